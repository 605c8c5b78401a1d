//! Proofs of a user's identity: passwords, and the secrets that servers store instead.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/catalog-pg-authid.html>
//! - <https://www.postgresql.org/docs/current/auth-password.html>

use std::fmt;
use std::sync::OnceLock;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::md5::Md5Secret;
use super::scram::{ITERATIONS_DEFAULT, ScramSecret};

/// Maximum length of a password, as in PgBouncer: cloud tokens are used as passwords.
pub const PASSWORD_BYTES_MAX: usize = 65_535;

/// A cleartext password. It is never printed and is wiped from memory.
#[derive(Clone, PartialEq, Eq)]
pub struct PlainPassword(Zeroizing<String>);

impl PlainPassword {
    /// Creates a password from a text.
    #[must_use]
    pub fn new(text: String) -> PlainPassword {
        PlainPassword(Zeroizing::new(text))
    }

    /// Returns the text, for deriving keys and for sending it to a server.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PlainPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// A user's secret in any of PostgreSQL's forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PgSecret {
    /// The password itself.
    Plain(PlainPassword),
    /// A SCRAM verifier, `SCRAM-SHA-256$…`.
    Scram(ScramSecret),
    /// `md5` and a hash.
    Md5(Md5Secret),
}

/// Why a text is not a valid secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PgSecretError {
    /// Empty password, with which no user may log in, as in PostgreSQL.
    #[error("the password is empty")]
    Empty,
    /// Too long for a client to send.
    #[error("the password is longer than {PASSWORD_BYTES_MAX} bytes")]
    TooLong,
    /// A NUL byte, which clients cannot send.
    #[error("the password has a NUL byte")]
    Nul,
    /// Begins like a SCRAM secret and is malformed. As a password it would lock the user out.
    #[error("malformed SCRAM secret")]
    MalformedScram,
}

impl PgSecret {
    /// Parses a password or a stored secret, distinguished as in PostgreSQL.
    ///
    /// # Errors
    /// If no client could log in with it.
    pub fn parse(text: &str) -> Result<PgSecret, PgSecretError> {
        match text {
            "" => Err(PgSecretError::Empty),
            _ if text.len() > PASSWORD_BYTES_MAX => Err(PgSecretError::TooLong),
            _ if text.contains('\0') => Err(PgSecretError::Nul),
            _ if text.starts_with("SCRAM-SHA-256$") => {
                ScramSecret::parse(text).map(PgSecret::Scram).ok_or(PgSecretError::MalformedScram)
            }
            _ => Ok(match Md5Secret::parse(text) {
                Some(secret) => PgSecret::Md5(secret),
                None => PgSecret::Plain(PlainPassword::new(text.to_owned())),
            }),
        }
    }
}

/// A user's secret, prepared for checking clients: each check costs a few hashes, not thousands.
///
/// There is also one for users that do not exist: see [`PgVerifier::mock`].
#[derive(Debug)]
pub struct PgVerifier {
    user: String,
    secret: Option<PgSecret>,
    /// Created for the first client that needs it, or by [`PgVerifier::prepare`].
    scram: OnceLock<ScramSecret>,
    /// Source of the salt of a plain password, and of all values of a mock.
    process_secret: Zeroizing<[u8; 32]>,
}

impl PgVerifier {
    /// Creates the verifier of a user with a secret. `process_secret` should outlive the process:
    /// salts are derived from it, and a salt that changes distinguishes existing users from others.
    #[must_use]
    pub fn new(user: &str, secret: PgSecret, process_secret: [u8; 32]) -> PgVerifier {
        PgVerifier { secret: Some(secret), ..PgVerifier::mock(user, process_secret) }
    }

    /// Creates the verifier of a user that does not exist or has no secret: it requests the same
    /// and costs the same as a password, and accepts nothing.
    #[must_use]
    pub fn mock(user: &str, process_secret: [u8; 32]) -> PgVerifier {
        let process_secret = Zeroizing::new(process_secret);
        PgVerifier { user: user.to_owned(), secret: None, scram: OnceLock::new(), process_secret }
    }

    /// Computes in advance what the first client would wait for: milliseconds of hashing.
    pub fn prepare(&self) {
        self.scram();
    }

    /// Returns the secret; `None` for a mock.
    #[must_use]
    pub fn secret(&self) -> Option<&PgSecret> {
        self.secret.as_ref()
    }

    /// Returns the secret for a SCRAM exchange. It accepts no client if there is no secret, or an
    /// MD5 one, with which SCRAM cannot be checked.
    pub fn scram(&self) -> &ScramSecret {
        match &self.secret {
            Some(PgSecret::Scram(secret)) => secret,
            Some(PgSecret::Plain(password)) => self.scram.get_or_init(|| {
                let salt = ScramSecret::mock_salt(&self.process_secret, &self.user);
                ScramSecret::derive(password.reveal(), &salt, ITERATIONS_DEFAULT)
            }),
            Some(PgSecret::Md5(_)) | None => {
                self.scram.get_or_init(|| ScramSecret::mock(&self.process_secret, &self.user))
            }
        }
    }

    /// Returns whether `answer` is right for an MD5 challenge with `salt`, from a client that calls
    /// itself `user`: the hash includes this name, which may have a tenant as prefix. False for
    /// SCRAM secrets, with which MD5 cannot be checked.
    #[must_use]
    pub fn accepts_md5(&self, user: &str, salt: [u8; 4], answer: &[u8]) -> bool {
        match &self.secret {
            Some(PgSecret::Md5(secret)) => secret.accepts(salt, answer),
            Some(PgSecret::Plain(password)) => {
                Md5Secret::derive(user, password.reveal()).accepts(salt, answer)
            }
            Some(PgSecret::Scram(_)) | None => {
                // The same work as for a user with a secret.
                let _refused = Md5Secret::derive(user, "").accepts(salt, answer);
                false
            }
        }
    }

    /// Returns whether this is the password. Takes thousands of hashes for a SCRAM secret: a SCRAM
    /// exchange is preferable where possible.
    #[must_use]
    pub fn accepts_password(&self, candidate: &[u8]) -> bool {
        if candidate.contains(&0) {
            return false; // HMAC pads keys with NUL bytes, so trailing ones would be ignored
        }
        match &self.secret {
            Some(PgSecret::Plain(password)) => {
                // Hashes are compared, so that the duration does not reveal the length either.
                let own = Md5Secret::derive(&self.user, password.reveal());
                let same = password.reveal().as_bytes().ct_eq(candidate);
                std::str::from_utf8(candidate)
                    .is_ok_and(|candidate| own.is_of(&self.user, candidate))
                    && same.into()
            }
            Some(PgSecret::Md5(secret)) => std::str::from_utf8(candidate)
                .is_ok_and(|candidate| secret.is_of(&self.user, candidate)),
            Some(PgSecret::Scram(secret)) => {
                std::str::from_utf8(candidate).is_ok_and(|candidate| secret.is_of(candidate))
            }
            None => {
                // The same work as for a user with a secret.
                let mock = Md5Secret::derive(&self.user, "");
                let _refused =
                    std::str::from_utf8(candidate).map(|text| mock.is_of(&self.user, text));
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
            ("", Err(PgSecretError::Empty)),
            ("a\0b", Err(PgSecretError::Nul)),
            ("SCRAM-SHA-256$4096:short", Err(PgSecretError::MalformedScram)),
            ("SCRAM", Ok("plain")),
            ("md5", Ok("plain")),
            ("md5900150983cd24fb0d6963f7d28e17f72", Ok("md5")),
            (&scram, Ok("scram")),
        ] {
            let kind = PgSecret::parse(text).map(|secret| match secret {
                PgSecret::Plain(_) => "plain",
                PgSecret::Scram(_) => "scram",
                PgSecret::Md5(_) => "md5",
            });
            assert_eq!(kind, expected, "{text}");
        }
        let long = "x".repeat(PASSWORD_BYTES_MAX + 1);
        assert_eq!(PgSecret::parse(&long), Err(PgSecretError::TooLong));
    }

    #[test]
    fn a_password_is_accepted_in_every_way_its_secret_allows() {
        let plain = PgSecret::parse("secret").expect("a password");
        let md5 = PgSecret::Md5(Md5Secret::derive("alice", "secret"));
        let scram = PgSecret::Scram(ScramSecret::derive("secret", b"0123456789abcdef", 4096));
        let right = Md5Secret::derive("alice", "secret").answer(*b"salt");
        for (secret, by_md5) in [(plain, true), (md5, true), (scram, false)] {
            let verifier = PgVerifier::new("alice", secret, [7; 32]);
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
        let mock = PgVerifier::mock("nobody", [7; 32]);
        let real =
            PgVerifier::new("alice", PgSecret::parse("secret").expect("a password"), [7; 32]);
        assert_eq!(mock.scram().salt().len(), real.scram().salt().len());
        assert_eq!(mock.scram().iterations(), real.scram().iterations());
        let again = PgVerifier::mock("nobody", [7; 32]);
        assert_eq!(mock.scram().salt(), again.scram().salt());
        assert_ne!(mock.scram().salt(), PgVerifier::mock("nobody", [8; 32]).scram().salt());
        assert_ne!(mock.scram().salt(), real.scram().salt());
        assert!(!mock.accepts_password(b""));
        let nothing = Md5Secret::derive("nobody", "").answer(*b"salt");
        assert!(!mock.accepts_md5("nobody", *b"salt", &nothing));
        // With a password the user would have the same salt as the mock, so its creation is not
        // visible.
        let created = PgVerifier::new("nobody", PgSecret::parse("x").expect("a password"), [7; 32]);
        assert_eq!(created.scram().salt(), mock.scram().salt());
    }

    #[test]
    fn nothing_secret_is_printed() {
        let scram = ScramSecret::derive("hidden", b"0123456789abcdef", 4096);
        for secret in [
            PgSecret::parse("hidden").expect("a password"),
            PgSecret::Md5(Md5Secret::derive("alice", "hidden")),
            PgSecret::Scram(scram),
        ] {
            let debug_text = format!("{:?}", PgVerifier::new("alice", secret, [7; 32]));
            assert!(!debug_text.contains("hidden") && !debug_text.contains("[7"), "{debug_text}");
        }
    }
}
