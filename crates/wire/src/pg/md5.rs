//! MD5 passwords: weak, but some clients and servers support nothing else.
//!
//! The stored secret is equivalent to the password: it is sufficient to log in.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/auth-password.html>
//! - <https://www.postgresql.org/docs/current/protocol-flow.html>

use std::fmt;

use md5::{Digest, Md5};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

/// Secret that PostgreSQL stores after `md5`: 32 hexadecimal digits of the hash of password and
/// user name.
#[derive(Clone, PartialEq, Eq)]
pub struct Md5Secret([u8; 32]);

impl Md5Secret {
    /// Derives the secret from a user's password.
    #[must_use]
    pub fn derive(user: &str, password: &str) -> Md5Secret {
        Md5Secret(digits(&[password.as_bytes(), user.as_bytes()]))
    }

    /// Parses `md5` and 32 hexadecimal digits; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Md5Secret> {
        let digits: [u8; 32] = text.strip_prefix("md5")?.as_bytes().try_into().ok()?;
        let digits = digits.map(|digit| digit.to_ascii_lowercase());
        digits.iter().all(u8::is_ascii_hexdigit).then_some(Md5Secret(digits))
    }

    /// Returns the secret as text, in PostgreSQL's stored form.
    #[must_use]
    pub fn export(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("md5{}", String::from_utf8_lossy(&self.0)))
    }

    /// Returns a client's answer to `salt`: `md5` and 32 hexadecimal digits.
    #[must_use]
    pub fn answer(&self, salt: [u8; 4]) -> [u8; 35] {
        let mut answer = [0; 35];
        let (prefix, rest) = answer.split_at_mut(3);
        prefix.copy_from_slice(b"md5");
        rest.copy_from_slice(&digits(&[&self.0, &salt]));
        answer
    }

    /// Returns whether this is the right answer to `salt`.
    #[must_use]
    pub fn accepts(&self, salt: [u8; 4], answer: &[u8]) -> bool {
        self.answer(salt).as_slice().ct_eq(answer).into()
    }

    /// Returns whether this is the password of the secret's user.
    #[must_use]
    pub fn is_of(&self, user: &str, password: &str) -> bool {
        self.0.ct_eq(&Md5Secret::derive(user, password).0).into()
    }
}

impl Drop for Md5Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Md5Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Md5Secret(..)")
    }
}

/// Returns the MD5 of all parts, as lower case digits.
fn digits(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Md5::new();
    for part in parts {
        hash.update(part);
    }
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(hash.finalize()) {
        for (digit, half) in pair.iter_mut().zip([byte >> 4, byte & 15]) {
            *digit = *b"0123456789abcdef".get(usize::from(half)).unwrap_or(&b'0');
        }
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_postgresql_makes_of_it() {
        // SELECT 'md5' || md5('secret' || 'alice');
        let secret = Md5Secret::derive("alice", "secret");
        assert_eq!(secret.0, digits(&[b"secretalice"]));
        assert_eq!(digits(&[b"a", b"bc"]), *b"900150983cd24fb0d6963f7d28e17f72"); // RFC 1321
        let stored = secret.export();
        assert_eq!(Md5Secret::parse(&stored), Some(secret.clone()));
        assert_eq!(Md5Secret::parse(&format!("md5{}", stored[3..].to_uppercase())), Some(secret));
    }

    #[test]
    fn only_the_right_answer_to_this_salt_is_accepted() {
        let secret = Md5Secret::derive("alice", "secret");
        let answer = secret.answer(*b"salt");
        assert!(secret.accepts(*b"salt", &answer));
        assert!(!secret.accepts(*b"sale", &answer));
        assert!(!secret.accepts(*b"salt", &answer[..34]));
        assert!(!secret.accepts(*b"salt", b""));
        assert!(!Md5Secret::derive("bob", "secret").accepts(*b"salt", &answer));
        assert!(secret.is_of("alice", "secret") && !secret.is_of("alice", "Secret"));
    }

    #[test]
    fn other_texts_are_no_secrets_and_none_is_printed() {
        for text in ["", "md5", "md5900150983cd24fb0d6963f7d28e17f7", "secret"] {
            assert_eq!(Md5Secret::parse(text), None);
        }
        assert_eq!(Md5Secret::parse("md5900150983cd24fb0d6963f7d28e17fzz"), None);
        assert_eq!(format!("{:?}", Md5Secret::derive("a", "b")), "Md5Secret(..)");
    }
}
