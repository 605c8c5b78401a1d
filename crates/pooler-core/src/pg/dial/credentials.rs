//! Credentials of roles for servers.

use parking_lot::Mutex;
use wire::pg::md5::Md5Secret;
use wire::pg::scram::ScramKeys;
use wire::pg::secret::PlainPassword;

/// Salts of one password that are remembered: one for each server that has the role, and there is
/// one but for moments of change.
const SALTS_MAX: usize = 4;

/// There is nothing to answer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PgCredentialsError {
    /// There is no secret at all.
    #[error("the server requires a password, but none is configured for this role")]
    None,
    /// There is one that does not do.
    #[error("the server requires a password, but Cove has only {0}")]
    OnlyHave(&'static str),
    /// The keys that the client's proof gave away are of another salt.
    #[error("the server has another SCRAM secret for this role than the client")]
    OtherSecret,
}

/// Credentials of a role.
#[derive(Debug)]
pub enum PgCredentials {
    /// None: the server trusts us, or takes our certificate.
    None,
    /// A password.
    Password(PlainPassword, SaltedKeys),
    /// The keys of one SCRAM secret.
    Scram(ScramKeys),
    /// The MD5 hash of a password.
    Md5(Md5Secret),
}

/// Keys of one password that were derived, so that the next connection costs microseconds.
#[derive(Debug, Default)]
pub struct SaltedKeys(Mutex<Vec<ScramKeys>>);

impl PgCredentials {
    /// A password.
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
                // Held while hashing: whoever comes meanwhile would hash the same.
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
