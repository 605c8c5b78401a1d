//! Credentials of roles for servers.

use parking_lot::Mutex;
use wire::pg::md5::Md5Secret;
use wire::pg::scram::ScramKeys;
use wire::pg::secret::PlainPassword;

/// Maximum salts of one password that are remembered: one for each server with the role, usually a
/// single one.
const SALTS_MAX: usize = 4;

/// There are no suitable credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PgCredentialsError {
    /// There are none at all.
    #[error("the server requires a password, but none is configured for this role")]
    None,
    /// The existing ones do not suit the method.
    #[error("the server requires a password, but Cove has only {0}")]
    OnlyHave(&'static str),
    /// The keys that the client's proof disclosed have another salt.
    #[error("the server has another SCRAM secret for this role than the client")]
    OtherSecret,
}

/// Credentials of a role.
#[derive(Debug)]
pub enum PgCredentials {
    /// None: the server trusts the pooler, or accepts its certificate.
    None,
    /// A password.
    Password(PlainPassword, SaltedKeys),
    /// The keys of one SCRAM secret.
    Scram(ScramKeys),
    /// The MD5 hash of a password.
    Md5(Md5Secret),
}

/// Derived keys of one password, so that the next connection costs microseconds.
#[derive(Debug, Default)]
pub struct SaltedKeys(Mutex<Vec<ScramKeys>>);

impl PgCredentials {
    /// Creates the credentials of a password.
    #[must_use]
    pub fn of_password(password: PlainPassword) -> PgCredentials {
        PgCredentials::Password(password, SaltedKeys::default())
    }

    pub(super) fn password(&self) -> Result<&str, PgCredentialsError> {
        match self {
            PgCredentials::Password(password, _) => Ok(password.reveal()),
            PgCredentials::None => Err(PgCredentialsError::None),
            PgCredentials::Scram(_) => Err(PgCredentialsError::OnlyHave("a SCRAM key")),
            PgCredentials::Md5(_) => Err(PgCredentialsError::OnlyHave("an MD5 hash")),
        }
    }

    pub(super) fn md5(&self, user: &str) -> Result<Md5Secret, PgCredentialsError> {
        match self {
            PgCredentials::Md5(secret) => Ok(secret.clone()),
            _ => Ok(Md5Secret::derive(user, self.password()?)),
        }
    }

    pub(super) fn scram(
        &self,
        salt: &[u8],
        iterations: u32,
    ) -> Result<ScramKeys, PgCredentialsError> {
        match self {
            PgCredentials::Password(password, known) => {
                // Held while hashing, so that concurrent logins do not repeat it.
                let mut known = known.0.lock();
                if let Some(keys) = known.iter().find(|keys| keys.fit(salt, iterations)) {
                    return Ok(keys.clone());
                }
                let keys = ScramKeys::derive(password.reveal(), salt, iterations);
                if known.len() >= SALTS_MAX {
                    known.remove(0);
                }
                known.push(keys.clone());
                Ok(keys)
            }
            PgCredentials::Scram(keys) if keys.fit(salt, iterations) => Ok(keys.clone()),
            PgCredentials::Scram(_) => Err(PgCredentialsError::OtherSecret),
            PgCredentials::None => Err(PgCredentialsError::None),
            PgCredentials::Md5(_) => Err(PgCredentialsError::OnlyHave("an MD5 hash")),
        }
    }
}
