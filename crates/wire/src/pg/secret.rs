//! What proves that a user is who it says: passwords, and what servers store instead of them.

use std::fmt;
use std::sync::OnceLock;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::md5::Md5Secret;
use super::scram::{ITERATIONS_DEFAULT, ScramSecret};

/// The longest password: as long as PgBouncer takes, because tokens of clouds are passwords.
pub const PASSWORD_BYTES_MAX: usize = 65_535;

/// A password as it is. It is never printed and is wiped from memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Zeroizing<String>);

impl Password {
    /// Takes it over.
    #[must_use]
    pub fn new(text: String) -> Password {
        Password(Zeroizing::new(text))
    }

    /// The text, for deriving keys and for sending it to a server.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// A user's secret in any of the forms that PostgreSQL has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// The password itself.
    Plain(Password),
    /// A SCRAM verifier, `SCRAM-SHA-256$…`.
    Scram(ScramSecret),
    /// `md5` and a hash.
    Md5(Md5Secret),
}

/// Why a text is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Nobody may log in with an empty password, as in PostgreSQL.
    #[error("the password is empty")]
    Empty,
    /// Longer than a client could send it.
    #[error("the password is longer than {PASSWORD_BYTES_MAX} bytes")]
    TooLong,
    /// A NUL byte, which no client could send.
    #[error("the password has a NUL byte")]
    Nul,
    /// Begins like a SCRAM secret and is none. Taken for a password it would lock the user out.
    #[error("malformed SCRAM secret")]
    MalformedScram,
}

impl Secret {
    /// Reads a password or a stored secret, told apart as PostgreSQL does.
    ///
    /// # Errors
    /// When nobody could log in with it.
    pub fn parse(text: &str) -> Result<Secret, SecretError> {
        match text {
            "" => Err(SecretError::Empty),
            _ if text.len() > PASSWORD_BYTES_MAX => Err(SecretError::TooLong),
            _ if text.contains('\0') => Err(SecretError::Nul),
            _ if text.starts_with("SCRAM-SHA-256$") => {
                ScramSecret::parse(text).map(Secret::Scram).ok_or(SecretError::MalformedScram)
            }
            _ => Ok(match Md5Secret::parse(text) {
                Some(secret) => Secret::Md5(secret),
                None => Secret::Plain(Password::new(text.to_owned())),
            }),
        }
    }
}

/// A user's secret, prepared for checking clients: each costs a few hashes, not thousands.
///
/// There is one for users that do not exist, too: see [`Verifier::mock`].
#[derive(Debug)]
pub struct Verifier {
    user: String,
    secret: Option<Secret>,
    /// Made when the first client needs it, or by [`Verifier::prepare`].
    scram: OnceLock<ScramSecret>,
    /// Makes the salt of a plain password, and everything of a mock.
    process_secret: Zeroizing<[u8; 32]>,
}

impl Verifier {
    /// For a user with a secret. `process_secret` should outlive the process: salts come from it,
    /// and one that changes tells users that exist from those that do not.
    #[must_use]
    pub fn new(user: &str, secret: Secret, process_secret: [u8; 32]) -> Verifier {
        Verifier { secret: Some(secret), ..Verifier::mock(user, process_secret) }
    }

    /// For a user that does not exist or has no secret: asks for the same and costs the same as one
    /// with a password, and accepts nothing.
    #[must_use]
    pub fn mock(user: &str, process_secret: [u8; 32]) -> Verifier {
        let process_secret = Zeroizing::new(process_secret);
        Verifier { user: user.to_owned(), secret: None, scram: OnceLock::new(), process_secret }
    }

    /// Does now what the first client would wait for: milliseconds of hashing.
    pub fn prepare(&self) {
        self.scram();
    }

    /// The secret; none of a mock.
    #[must_use]
    pub fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }

    /// What a SCRAM exchange is held against. It accepts nobody when there is no secret, or an MD5
    /// one, which says nothing about SCRAM.
    pub fn scram(&self) -> &ScramSecret {
        match &self.secret {
            Some(Secret::Scram(secret)) => secret,
            Some(Secret::Plain(password)) => self.scram.get_or_init(|| {
                let salt = ScramSecret::mock_salt(&self.process_secret, &self.user);
                ScramSecret::derive(password.reveal(), &salt, ITERATIONS_DEFAULT)
            }),
            Some(Secret::Md5(_)) | None => {
                self.scram.get_or_init(|| ScramSecret::mock(&self.process_secret, &self.user))
            }
        }
    }

    /// Whether `answer` is the right one to an MD5 challenge with `salt`, of a client that calls
    /// itself `user`: the name is hashed as well, and may have a tenant in front of it there. False
    /// for SCRAM secrets, which say nothing about MD5.
    #[must_use]
    pub fn accepts_md5(&self, user: &str, salt: [u8; 4], answer: &[u8]) -> bool {
        match &self.secret {
            Some(Secret::Md5(secret)) => secret.accepts(salt, answer),
            Some(Secret::Plain(password)) => {
                Md5Secret::derive(user, password.reveal()).accepts(salt, answer)
            }
            Some(Secret::Scram(_)) | None => {
                // The same work as for a user who has one.
                let _refused = Md5Secret::derive(user, "").accepts(salt, answer);
                false
            }
        }
    }

    /// Whether this is the password. Thousands of hashes for a SCRAM secret: ask its users for a
    /// SCRAM exchange instead where that is possible.
    #[must_use]
    pub fn accepts_password(&self, given: &[u8]) -> bool {
        if given.contains(&0) {
            return false; // to HMAC, trailing NUL bytes of a key are as if they were not there
        }
        match &self.secret {
            Some(Secret::Plain(password)) => {
                // Hashes are compared, so that the length does not show either.
                let own = Md5Secret::derive(&self.user, password.reveal());
                let same = password.reveal().as_bytes().ct_eq(given);
                std::str::from_utf8(given).is_ok_and(|given| own.is_of(&self.user, given))
                    && same.into()
            }
            Some(Secret::Md5(secret)) => {
                std::str::from_utf8(given).is_ok_and(|given| secret.is_of(&self.user, given))
            }
            Some(Secret::Scram(secret)) => {
                std::str::from_utf8(given).is_ok_and(|given| secret.is_of(given))
            }
            None => {
                // The same work as for a user who has one.
                let mock = Md5Secret::derive(&self.user, "");
                let _refused = std::str::from_utf8(given).map(|text| mock.is_of(&self.user, text));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_told_apart_as_postgresql_does() {
        let scram = ScramSecret::derive("secret", b"0123456789abcdef", 4096).to_string();
        for (text, expected) in [
            ("", Err(SecretError::Empty)),
            ("a\0b", Err(SecretError::Nul)),
            ("SCRAM-SHA-256$4096:short", Err(SecretError::MalformedScram)),
            ("SCRAM", Ok("plain")),
            ("md5", Ok("plain")),
            ("md5900150983cd24fb0d6963f7d28e17f72", Ok("md5")),
            (&scram, Ok("scram")),
        ] {
            let kind = Secret::parse(text).map(|secret| match secret {
                Secret::Plain(_) => "plain",
                Secret::Scram(_) => "scram",
                Secret::Md5(_) => "md5",
            });
            assert_eq!(kind, expected, "{text}");
        }
        let long = "x".repeat(PASSWORD_BYTES_MAX + 1);
        assert_eq!(Secret::parse(&long), Err(SecretError::TooLong));
    }

    #[test]
    fn a_password_is_accepted_in_every_way_its_secret_allows() {
        let plain = Secret::parse("secret").expect("a password");
        let md5 = Secret::Md5(Md5Secret::derive("alice", "secret"));
        let scram = Secret::Scram(ScramSecret::derive("secret", b"0123456789abcdef", 4096));
        let right = Md5Secret::derive("alice", "secret").answer(*b"salt");
        for (secret, by_md5) in [(plain, true), (md5, true), (scram, false)] {
            let verifier = Verifier::new("alice", secret, [7; 32]);
            assert!(verifier.accepts_password(b"secret"), "{verifier:?}");
            for wrong in [&b""[..], b"Secret", b"secret\0", b"secre", b"\xff"] {
                assert!(!verifier.accepts_password(wrong), "{verifier:?} {wrong:?}");
            }
            assert_eq!(verifier.accepts_md5("alice", *b"salt", &right), by_md5, "{verifier:?}");
            assert!(!verifier.accepts_md5("alice", *b"sale", &right), "{verifier:?}");
        }
    }

    #[test]
    fn a_user_that_does_not_exist_looks_the_same_and_is_not_let_in() {
        let mock = Verifier::mock("nobody", [7; 32]);
        let real = Verifier::new("alice", Secret::parse("secret").expect("a password"), [7; 32]);
        assert_eq!(mock.scram().salt().len(), real.scram().salt().len());
        assert_eq!(mock.scram().iterations(), real.scram().iterations());
        let again = Verifier::mock("nobody", [7; 32]);
        assert_eq!(mock.scram().salt(), again.scram().salt());
        assert_ne!(mock.scram().salt(), Verifier::mock("nobody", [8; 32]).scram().salt());
        assert_ne!(mock.scram().salt(), real.scram().salt());
        assert!(!mock.accepts_password(b""));
        let nothing = Md5Secret::derive("nobody", "").answer(*b"salt");
        assert!(!mock.accepts_md5("nobody", *b"salt", &nothing));
        // Had the user a password, its salt would be the mock's: nothing tells when it is created.
        let created = Verifier::new("nobody", Secret::parse("x").expect("a password"), [7; 32]);
        assert_eq!(created.scram().salt(), mock.scram().salt());
    }

    #[test]
    fn nothing_secret_is_printed() {
        let scram = ScramSecret::derive("hidden", b"0123456789abcdef", 4096);
        for secret in [
            Secret::parse("hidden").expect("a password"),
            Secret::Md5(Md5Secret::derive("alice", "hidden")),
            Secret::Scram(scram),
        ] {
            let shown = format!("{:?}", Verifier::new("alice", secret, [7; 32]));
            assert!(!shown.contains("hidden") && !shown.contains("[7"), "{shown}");
        }
    }
}
