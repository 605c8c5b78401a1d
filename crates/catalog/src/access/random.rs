//! Secrets that nobody can guess, without asking the kernel for each.
//!
//! A key of 32 bytes makes the next secret and the next key, each by SHA-256 behind a word of its
//! own, so that what is found in memory later tells nothing about secrets that were given out. The
//! kernel's bytes are mixed in now and then.

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};

/// Secrets between two questions to the kernel.
const RESEED_AFTER: u32 = 4096;

/// SHA-256 of a secret.
pub(super) type Hash = [u8; 32];

/// Makes secrets.
pub(super) struct Generator(Mutex<State>);

struct State {
    key: [u8; 32],
    left: u32,
}

impl Generator {
    /// One that has asked the kernel.
    ///
    /// # Errors
    /// `Internal` when the kernel gives no random bytes.
    pub(super) fn new() -> Result<Generator> {
        let key = node::auth::random_key().map_err(Error::internal)?;
        Ok(Generator(Mutex::new(State { key, left: RESEED_AFTER })))
    }

    /// 256 bits.
    ///
    /// # Errors
    /// `Internal` when the kernel is asked and gives no random bytes.
    pub(super) fn secret(&self) -> Result<[u8; 32]> {
        let mut state = self.0.lock();
        if state.left == 0 {
            let fresh = node::auth::random_key().map_err(Error::internal)?;
            state.key = derived(b"seed", &[&state.key, &fresh]);
            state.left = RESEED_AFTER;
        }
        state.left -= 1;
        let secret = derived(b"give", &[&state.key]);
        state.key = derived(b"next", &[&state.key]);
        Ok(secret)
    }
}

fn derived(word: &[u8; 4], from: &[&[u8; 32]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(word);
    for bytes in from {
        hash.update(bytes);
    }
    hash.finalize().into()
}

/// What is kept of a secret. It has 256 random bits: a slow hash would protect nothing.
pub(super) fn hash(secret: &str) -> Hash {
    Sha256::digest(secret.as_bytes()).into()
}

/// A secret as text behind a prefix, in one allocation.
pub(super) fn text(prefix: &str, secret: &[u8; 32]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(prefix.len() + 2 * secret.len());
    text.push_str(prefix);
    for byte in secret {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_secret_comes_twice_and_none_is_the_key() {
        let generator = Generator::new().unwrap();
        let count = usize::try_from(RESEED_AFTER).unwrap() + 10;
        let mut seen = HashSet::new();
        for _ in 0..count {
            let before = generator.0.lock().key;
            let secret = generator.secret().unwrap();
            assert!(seen.insert(secret));
            assert!(secret != before && secret != generator.0.lock().key);
        }
        let other = Generator::new().unwrap().secret().unwrap();
        assert!(!seen.contains(&other));
        let text = text("cat_", &[0xa5; 32]);
        assert_eq!(text, format!("cat_{}", "a5".repeat(32)));
        assert_eq!(text.capacity(), text.len());
    }
}
