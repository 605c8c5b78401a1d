//! Unguessable secrets, without a call to the kernel for each.
//!
//! The kernel provides random bytes for many secrets at once. The bytes of issued secrets are
//! wiped, so that memory contents found later reveal nothing about them.

use std::fmt;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::error::{CatalogError, Result};

/// Number of secrets for each request to the kernel.
const SECRETS: usize = 128;

/// Bytes of a secret, and digits of its text.
const SECRET_BYTES: usize = 32;
const DIGITS: usize = 2 * SECRET_BYTES;

/// SHA-256 of a secret.
pub(crate) type Hash = [u8; 32];

/// Generates secrets.
pub struct SecretGenerator(Mutex<GeneratorState>);

struct GeneratorState {
    bytes: [u8; SECRETS * SECRET_BYTES],
    /// Number of secrets already issued.
    used: usize,
}

impl GeneratorState {
    fn fill(&mut self) -> Result<()> {
        getrandom::fill(&mut self.bytes).map_err(CatalogError::internal)?;
        self.used = 0;
        Ok(())
    }
}

impl fmt::Debug for SecretGenerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generator").finish_non_exhaustive()
    }
}

impl SecretGenerator {
    /// Creates a generator that is seeded by the kernel.
    ///
    /// # Errors
    /// `Internal` if the kernel provides no random bytes.
    pub fn new() -> Result<SecretGenerator> {
        let mut state = GeneratorState { bytes: [0; SECRETS * SECRET_BYTES], used: 0 };
        state.fill()?;
        Ok(SecretGenerator(Mutex::new(state)))
    }

    /// Returns 256 random bits.
    ///
    /// # Errors
    /// `Internal` if the kernel is called and provides no random bytes.
    pub fn secret(&self) -> Result<[u8; SECRET_BYTES]> {
        let mut secret = [0; SECRET_BYTES];
        let mut state = self.0.lock();
        if state.used == SECRETS {
            state.fill()?;
        }
        let at = state.used * SECRET_BYTES;
        // Swapped with zeros, which wipes it.
        state.bytes[at..at + SECRET_BYTES].swap_with_slice(&mut secret);
        state.used += 1;
        Ok(secret)
    }

    /// Returns a new secret as text with a prefix, in one allocation.
    ///
    /// # Errors
    /// Those of [`SecretGenerator::secret`].
    pub fn token(&self, prefix: &str) -> Result<String> {
        Ok(text(prefix, &self.secret()?))
    }

    /// Appends a token to a text.
    ///
    /// # Errors
    /// Those of [`SecretGenerator::secret`].
    pub fn put_token(&self, out: &mut String) -> Result<()> {
        put(out, &self.secret()?);
        Ok(())
    }
}

/// Returns the stored hash of a secret. The secret has 256 random bits: a slow hash would not
/// protect it better.
pub(crate) fn hash(secret: &str) -> Hash {
    Sha256::digest(secret.as_bytes()).into()
}

/// Formats a secret as text with a prefix, in one allocation.
pub(super) fn text(prefix: &str, secret: &[u8; SECRET_BYTES]) -> String {
    let mut text = String::with_capacity(prefix.len() + DIGITS);
    text.push_str(prefix);
    put(&mut text, secret);
    text
}

fn put(out: &mut String, secret: &[u8; SECRET_BYTES]) {
    const DIGIT: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; DIGITS];
    for (two, byte) in digits.chunks_exact_mut(2).zip(secret) {
        two[0] = DIGIT[usize::from(byte >> 4)];
        two[1] = DIGIT[usize::from(byte & 15)];
    }
    // All of them are ASCII digits: one check of the whole is faster than pushing each.
    out.push_str(str::from_utf8(&digits).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_secret_comes_twice_and_none_stays_in_memory() {
        let generator = SecretGenerator::new().unwrap();
        let mut seen = HashSet::new();
        for _ in 0..3 * SECRETS + 10 {
            let secret = generator.secret().unwrap();
            assert!(secret != [0; SECRET_BYTES] && seen.insert(secret));
            let state = generator.0.lock();
            assert!(state.bytes.chunks_exact(SECRET_BYTES).all(|it| it != secret));
        }
        let other = SecretGenerator::new().unwrap().secret().unwrap();
        assert!(!seen.contains(&other));
        let text = text("cat_", &[0xa5; SECRET_BYTES]);
        assert_eq!(text, format!("cat_{}", "a5".repeat(SECRET_BYTES)));
        assert_eq!(text.capacity(), text.len());
        let mut token = generator.token("x").unwrap();
        generator.put_token(&mut token).unwrap();
        let digits = token.strip_prefix('x').unwrap();
        assert!(digits.len() == 2 * DIGITS && digits.bytes().all(|it| it.is_ascii_hexdigit()));
        assert_ne!(digits[..DIGITS], digits[DIGITS..]);
    }
}
