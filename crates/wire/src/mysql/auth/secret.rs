//! A user's secret in any of the forms of MySQL and MariaDB, and the check of clients' proofs.
//!
//! # References
//! - <https://dev.mysql.com/doc/refman/8.4/en/caching-sha2-pluggable-authentication.html>

use std::sync::OnceLock;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::crypt::SALT_BYTES;
use super::{AuthNonce, AuthPlugin, NativeHash, NativeKey, Sha2Crypt, Sha2Hash, Sha2Key};
use crate::pg::secret::{PASSWORD_BYTES_MAX, PlainPassword};

/// Rounds of the secret of a user that does not exist: MySQL's default.
const MOCK_ROUNDS: u32 = 5000;

/// A user's secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MysqlSecret {
    /// The password itself.
    Plain(PlainPassword),
    /// `*` and 40 digits, for `mysql_native_password`.
    Native(NativeHash),
    /// `$A$005$…`, for `caching_sha2_password`.
    Sha2(Sha2Crypt),
}

/// Forms of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretKind {
    /// [`MysqlSecret::Plain`].
    Plain,
    /// [`MysqlSecret::Native`].
    Native,
    /// [`MysqlSecret::Sha2`].
    Sha2,
}

impl SecretKind {
    /// All forms.
    pub const ALL: [SecretKind; 3] = [SecretKind::Plain, SecretKind::Native, SecretKind::Sha2];
}

/// Why a text is not a valid secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MysqlSecretError {
    /// Empty password: a user without one is either trusted or refused.
    #[error("the password is empty")]
    Empty,
    /// Too long for a client to send.
    #[error("the password is longer than {PASSWORD_BYTES_MAX} bytes")]
    TooLong,
    /// A NUL byte, which clients cannot send.
    #[error("the password has a NUL byte")]
    Nul,
    /// Begins like a stored secret and is malformed. As a password it would lock the user out.
    #[error("malformed caching_sha2_password secret")]
    MalformedSha2,
}

impl MysqlSecret {
    /// Parses a password or a stored secret.
    ///
    /// # Errors
    /// If no client could log in with it.
    pub fn parse(text: &str) -> Result<MysqlSecret, MysqlSecretError> {
        match text {
            "" => Err(MysqlSecretError::Empty),
            _ if text.len() > PASSWORD_BYTES_MAX => Err(MysqlSecretError::TooLong),
            _ if text.contains('\0') => Err(MysqlSecretError::Nul),
            _ if Sha2Crypt::is_meant(text) => {
                Sha2Crypt::parse(text).map(MysqlSecret::Sha2).ok_or(MysqlSecretError::MalformedSha2)
            }
            _ => Ok(match NativeHash::parse(text) {
                Some(hash) => MysqlSecret::Native(hash),
                None => MysqlSecret::Plain(PlainPassword::new(text.to_owned())),
            }),
        }
    }

    /// Returns its form.
    #[must_use]
    pub fn kind(&self) -> SecretKind {
        match self {
            MysqlSecret::Plain(_) => SecretKind::Plain,
            MysqlSecret::Native(_) => SecretKind::Native,
            MysqlSecret::Sha2(_) => SecretKind::Sha2,
        }
    }

    /// Returns the method for its user, where `preferred` is the preferred one.
    #[must_use]
    pub fn plugin(&self, preferred: AuthPlugin) -> AuthPlugin {
        match (self, preferred) {
            (_, AuthPlugin::Clear) => AuthPlugin::Clear,
            (MysqlSecret::Native(_), _) => AuthPlugin::Native,
            (MysqlSecret::Sha2(_), _) => AuthPlugin::CachingSha2,
            (MysqlSecret::Plain(_), _) => preferred,
        }
    }
}

/// Result of checking a proof of `caching_sha2_password`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastAuthResult {
    /// Right.
    Right(Sha2Key),
    /// Wrong.
    Wrong,
    /// Undecided: the password has to be requested.
    Unknown,
}

/// A user's secret, prepared for checking clients.
///
/// There is also one for users that do not exist: see [`MysqlVerifier::mock`].
#[derive(Debug)]
pub struct MysqlVerifier {
    secret: MysqlSecret,
    is_mock: bool,
    native: Option<NativeHash>,
    /// Hash for `caching_sha2_password`; for a stored secret it is known once a client has sent the
    /// password.
    sha2: OnceLock<Sha2Hash>,
}

impl MysqlVerifier {
    /// Creates the verifier of a user with a secret.
    #[must_use]
    pub fn new(secret: MysqlSecret) -> MysqlVerifier {
        let (mut native, sha2) = (None, OnceLock::new());
        match &secret {
            MysqlSecret::Plain(password) => {
                native = Some(NativeKey::of(password.reveal()).hash());
                drop(sha2.set(Sha2Key::of(password.reveal()).hash()));
            }
            MysqlSecret::Native(hash) => native = Some(hash.clone()),
            MysqlSecret::Sha2(_) => {}
        }
        MysqlVerifier { secret, is_mock: false, native, sha2 }
    }

    /// Creates the verifier of a user that does not exist or has no secret: it requests the same
    /// and costs the same as a secret of this form, and accepts nothing, because its password is
    /// unknown.
    #[must_use]
    pub fn mock(user: &str, process_secret: &[u8; 32], kind: SecretKind) -> MysqlVerifier {
        let bytes = Sha256::new()
            .chain_update(b"mysql mock")
            .chain_update(process_secret)
            .chain_update(user)
            .finalize();
        let password: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let secret = match kind {
            SecretKind::Sha2 => {
                let mut salt = [0; SALT_BYTES];
                salt.iter_mut().zip(bytes).for_each(|(one, byte)| *one = byte & 0x7F);
                MysqlSecret::Sha2(Sha2Crypt::unknown(salt, &bytes.into(), MOCK_ROUNDS))
            }
            SecretKind::Native => MysqlSecret::Native(NativeKey::of(&password).hash()),
            SecretKind::Plain => MysqlSecret::Plain(PlainPassword::new(password)),
        };
        MysqlVerifier { is_mock: true, ..MysqlVerifier::new(secret) }
    }

    /// Returns the secret; `None` for a mock.
    #[must_use]
    pub fn secret(&self) -> Option<&MysqlSecret> {
        (!self.is_mock).then_some(&self.secret)
    }

    /// Returns the method for its user, where `preferred` is the preferred one.
    #[must_use]
    pub fn plugin(&self, preferred: AuthPlugin) -> AuthPlugin {
        self.secret.plugin(preferred)
    }

    /// Returns whether a proof by this method can be checked.
    #[must_use]
    pub fn takes(&self, plugin: AuthPlugin) -> bool {
        match plugin {
            AuthPlugin::Native => self.native.is_some(),
            AuthPlugin::CachingSha2 => !matches!(self.secret, MysqlSecret::Native(_)),
            AuthPlugin::Clear => true,
        }
    }

    /// Returns the key that a proof by `mysql_native_password` discloses; `None` if it is wrong.
    #[must_use]
    pub fn accepts_native(&self, nonce: &AuthNonce, answer: &[u8]) -> Option<NativeKey> {
        self.native.as_ref()?.accepts(nonce, answer).filter(|_| !self.is_mock)
    }

    /// Checks a proof by `caching_sha2_password`. If the password may have been changed, a wrong
    /// proof is undecided, and the stored secret is checked.
    #[must_use]
    pub fn accepts_sha2(&self, nonce: &AuthNonce, answer: &[u8]) -> FastAuthResult {
        let key = self.sha2.get().and_then(|hash| hash.accepts(nonce, answer));
        match (key, &self.secret) {
            (Some(key), _) if !self.is_mock => FastAuthResult::Right(key),
            (_, MysqlSecret::Sha2(_)) => FastAuthResult::Unknown,
            (_, MysqlSecret::Plain(_) | MysqlSecret::Native(_)) => FastAuthResult::Wrong,
        }
    }

    /// Returns whether this is the password. Takes milliseconds of hashing for a stored secret of
    /// `caching_sha2_password` at the first time.
    #[must_use]
    pub fn accepts_password(&self, candidate: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(candidate) else { return false };
        if candidate.is_empty() || candidate.contains(&0) {
            return false;
        }
        let is_right = match &self.secret {
            // Hashes are compared, so that the duration does not reveal the length either.
            MysqlSecret::Plain(password) => {
                let own = Sha256::digest(password.reveal());
                own.as_slice().ct_eq(Sha256::digest(text).as_slice()).into()
            }
            MysqlSecret::Native(hash) => hash.is_of(text),
            MysqlSecret::Sha2(stored) => {
                if self.sha2.get().is_some_and(|known| known.is_of(text)) {
                    return true;
                }
                let is_right = stored.is_of(candidate);
                if is_right {
                    drop(self.sha2.set(Sha2Key::of(text).hash())); // another thread may be faster
                }
                is_right
            }
        };
        is_right && !self.is_mock
    }
}
