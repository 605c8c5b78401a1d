//! Stored form of `caching_sha2_password`: a password hashed five thousand times.
//!
//! The hash is that of Unix passwords, `$5$`, with a salt of 20 bytes (specification: "Unix crypt
//! using SHA-256 and SHA-512", U. Drepper). It can neither be used to log in nor to check a proof,
//! but only to check the password itself.
//!
//! # References
//! - <https://www.akkadia.org/drepper/SHA-crypt.txt>

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

/// Bytes of a salt.
pub(super) const SALT_BYTES: usize = 20;

/// Digits of a hash.
const DIGITS: usize = 43;

/// Rounds per unit of the count in the stored text.
const ROUNDS_UNIT: u32 = 1000;

/// Maximum length of a password, as in MySQL: the cost of each round grows with it.
const PASSWORD_BYTES_MAX: usize = 256;

/// Maximum rounds that are computed, a hundred times the default. MySQL allows four million, which
/// would delay all other logins.
const ROUNDS_MAX: u32 = 500_000;

/// `$A$005$`, the salt, and the hash.
#[derive(Clone, PartialEq, Eq)]
pub struct Sha2Crypt {
    rounds: u32,
    salt: [u8; SALT_BYTES],
    digits: [u8; DIGITS],
}

impl Sha2Crypt {
    /// Prefix of every stored text of this kind.
    const PREFIX: &'static str = "$A$";

    /// Derives the hash of a password.
    #[must_use]
    pub fn derive(password: &str, salt: [u8; SALT_BYTES], rounds: u32) -> Sha2Crypt {
        let digits = digits(&hash(password.as_bytes(), &salt, rounds));
        Sha2Crypt { rounds, salt, digits }
    }

    /// Creates a hash without a known password.
    pub(super) fn unknown(salt: [u8; SALT_BYTES], hash: &[u8; 32], rounds: u32) -> Sha2Crypt {
        Sha2Crypt { rounds, salt, digits: digits(hash) }
    }

    /// Returns whether a text begins like a stored one: the prefix, the rounds, and a dollar sign.
    pub(super) fn is_meant(text: &str) -> bool {
        let rest = text.strip_prefix(Sha2Crypt::PREFIX).and_then(|rest| rest.split_at_checked(3));
        rest.is_some_and(|(rounds, rest)| {
            rounds.bytes().all(|byte| byte.is_ascii_hexdigit()) && rest.starts_with('$')
        })
    }

    /// Parses a value of `authentication_string`; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Sha2Crypt> {
        let (rounds, rest) = text.strip_prefix(Sha2Crypt::PREFIX)?.split_at_checked(3)?;
        let rounds = u32::from_str_radix(rounds, 16).ok()?.checked_mul(ROUNDS_UNIT)?;
        let (salt, digits) = rest.strip_prefix('$')?.as_bytes().split_first_chunk()?;
        let is_possible = (1..=ROUNDS_MAX).contains(&rounds) && digits.iter().all(is_digit);
        is_possible.then_some(())?;
        Some(Sha2Crypt { rounds, salt: *salt, digits: digits.try_into().ok()? })
    }

    /// Returns whether this is the password. Takes milliseconds of hashing.
    #[must_use]
    pub fn is_of(&self, password: &[u8]) -> bool {
        if password.len() > PASSWORD_BYTES_MAX {
            return false;
        }
        let digits = digits(&hash(password, &self.salt, self.rounds));
        digits.as_slice().ct_eq(&self.digits).into()
    }
}

impl fmt::Display for Sha2Crypt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (salt, digits) =
            (String::from_utf8_lossy(&self.salt), String::from_utf8_lossy(&self.digits));
        write!(f, "$A${:03X}${salt}{digits}", self.rounds / ROUNDS_UNIT)
    }
}

impl fmt::Debug for Sha2Crypt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sha2Crypt(..)")
    }
}

impl Drop for Sha2Crypt {
    fn drop(&mut self) {
        self.digits.zeroize();
    }
}

fn is_digit(byte: &u8) -> bool {
    matches!(byte, b'.' | b'/' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z')
}

/// Computes the hash by the steps of the specification.
fn hash(password: &[u8], salt: &[u8], rounds: u32) -> [u8; 32] {
    let other = sha(&[password, salt, password]);
    let mut first = Sha256::new();
    first.update(password);
    first.update(salt);
    first.update(repeated(&other, password.len()));
    let mut bits = password.len();
    while bits > 0 {
        if bits & 1 == 1 {
            first.update(other)
        } else {
            first.update(password)
        }
        bits >>= 1;
    }
    let mut current: [u8; 32] = first.finalize().into();
    let mut of_password = Sha256::new();
    for _ in password {
        of_password.update(password);
    }
    let mut of_password = repeated(&of_password.finalize(), password.len());
    let mut of_salt = Sha256::new();
    for _ in 0..(16 + usize::from(current.first().copied().unwrap_or_default())) {
        of_salt.update(salt);
    }
    let of_salt = repeated(&of_salt.finalize(), salt.len());
    for round in 0..rounds {
        let is_odd = round % 2 == 1;
        let mut next = Sha256::new();
        if is_odd {
            next.update(&of_password)
        } else {
            next.update(current)
        }
        if round % 3 != 0 {
            next.update(&of_salt);
        }
        if round % 7 != 0 {
            next.update(&of_password);
        }
        if is_odd {
            next.update(current)
        } else {
            next.update(&of_password)
        }
        current = next.finalize().into();
    }
    of_password.zeroize();
    current
}

fn sha(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

/// Returns `len` bytes, by repeating the given ones.
fn repeated(bytes: &[u8], len: usize) -> Vec<u8> {
    bytes.iter().copied().cycle().take(len).collect()
}

/// Bytes of the hash that are encoded together as four digits, in their order; the last two become
/// three.
const ORDER: [[usize; 3]; 10] = [
    [0, 10, 20],
    [21, 1, 11],
    [12, 22, 2],
    [3, 13, 23],
    [24, 4, 14],
    [15, 25, 5],
    [6, 16, 26],
    [27, 7, 17],
    [18, 28, 8],
    [9, 19, 29],
];

fn digits(hash: &[u8; 32]) -> [u8; DIGITS] {
    let at = |index: usize| u32::from(hash.get(index).copied().unwrap_or_default());
    let groups = ORDER.iter().map(|[a, b, c]| (at(*a) << 16 | at(*b) << 8 | at(*c), 4_usize));
    let last = (at(31) << 8 | at(30), 3);
    let mut digits = [0; DIGITS];
    let mut places = digits.iter_mut();
    for (mut group, count) in groups.chain([last]) {
        for place in places.by_ref().take(count) {
            *place = digit(group & 63);
            group >>= 6;
        }
    }
    digits
}

fn digit(value: u32) -> u8 {
    const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let index = usize::try_from(value).unwrap_or_default();
    ALPHABET.get(index).copied().unwrap_or(b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(password: &str, salt: &str, wanted: &str) {
        let hash = hash(password.as_bytes(), salt.as_bytes(), 5000);
        assert_eq!(std::str::from_utf8(&digits(&hash)), Ok(wanted), "{password}");
    }

    #[test]
    fn it_is_the_hash_of_unix_passwords() {
        // Results of glibc.
        check("Hello world!", "saltstring", "5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5");
        check("secret", "abcdefghijklmnop", "i7zHaTeYqXlesRXJ8dXj6o.MEFQdzfIJpJpcWAtszs6");
        let long = "a longer password than thirty-two bytes, to see";
        check(long, "abcdefghijklmnop", "CeGE2cFPbKYvzZSClavzt3ir5uElgwwmFBjFpw7uwj6");
    }

    #[test]
    fn what_is_stored_is_read_and_holds_for_its_password_only() {
        let stored = Sha2Crypt::derive("secret", *b"abcdefghijklmnopqrst", 5000);
        let text = stored.to_string();
        assert!(text.starts_with("$A$005$abcdefghijklmnopqrst"), "{text}");
        assert_eq!(text.len(), 7 + SALT_BYTES + DIGITS);
        let read = Sha2Crypt::parse(&text).expect("what was written");
        assert_eq!(read, stored);
        assert!(read.is_of(b"secret"));
        for wrong in [&b""[..], b"Secret", b"secret\0", &[b'x'; 257]] {
            assert!(!read.is_of(wrong), "{wrong:?}");
        }
        let cut = text.split_at(text.len() - 1).0;
        let more_rounds = text.replace("$005$", "$FFF$");
        for bad in ["", "$A$", "$A$000$", "$A$005$short", cut, &more_rounds, &format!("{text}x")] {
            assert_eq!(Sha2Crypt::parse(bad), None, "{bad}");
        }
    }
}
