//! Credentials of users for servers of MySQL or MariaDB.

use wire::mysql::auth::{AuthNonce, AuthPlugin, NativeKey, Sha2Key};
use wire::pg::secret::PlainPassword;

/// There are no suitable credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MysqlCredentialsError {
    /// There are none at all.
    #[error("the server requires a password, but none is configured for this user")]
    None,
    /// The existing ones do not suit the method.
    #[error("the server requires {0}, but Cove has only {1}")]
    OnlyHave(&'static str, &'static str),
}

/// Credentials of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MysqlCredentials {
    /// None: the server has no password either, or accepts the pooler's certificate or user id.
    None,
    /// A password.
    Password(PlainPassword),
    /// Key that a client's proof by `mysql_native_password` disclosed.
    Native(NativeKey),
    /// Key that a client's proof by `caching_sha2_password` disclosed.
    Sha2(Sha2Key),
}

impl MysqlCredentials {
    /// Returns the initial method where the server offers `offered`: the offer may not depend on
    /// the user, and the server requests another method if the user has one.
    pub(super) fn plugin(&self, offered: Option<AuthPlugin>) -> AuthPlugin {
        match (self, offered) {
            (MysqlCredentials::Native(_), _) => AuthPlugin::Native,
            (MysqlCredentials::Sha2(_), _) => AuthPlugin::CachingSha2,
            // Only used if no other method suits, and possibly refused even then.
            (_, None | Some(AuthPlugin::Clear)) => AuthPlugin::Native,
            (_, Some(plugin)) => plugin,
        }
    }

    /// Returns the proof by a method. An empty one proves that there is no password.
    pub(super) fn answer(
        &self,
        plugin: AuthPlugin,
        nonce: &AuthNonce,
    ) -> Result<Vec<u8>, MysqlCredentialsError> {
        match (plugin, self) {
            (_, MysqlCredentials::None) => Ok(Vec::new()),
            (AuthPlugin::Native, MysqlCredentials::Password(password)) => {
                Ok(NativeKey::of(password.reveal()).answer(nonce).to_vec())
            }
            (AuthPlugin::Native, MysqlCredentials::Native(key)) => Ok(key.answer(nonce).to_vec()),
            (AuthPlugin::CachingSha2, MysqlCredentials::Password(password)) => {
                Ok(Sha2Key::of(password.reveal()).answer(nonce).to_vec())
            }
            (AuthPlugin::CachingSha2, MysqlCredentials::Sha2(key)) => {
                Ok(key.answer(nonce).to_vec())
            }
            (plugin, _) => Err(self.lacks(plugin)),
        }
    }

    /// Returns the password itself, as requested by `plugin`.
    pub(super) fn password(&self, plugin: AuthPlugin) -> Result<&str, MysqlCredentialsError> {
        match self {
            MysqlCredentials::Password(password) => Ok(password.reveal()),
            _ => Err(self.lacks(plugin)),
        }
    }

    fn lacks(&self, plugin: AuthPlugin) -> MysqlCredentialsError {
        match self {
            MysqlCredentials::None | MysqlCredentials::Password(_) => MysqlCredentialsError::None,
            MysqlCredentials::Native(_) => {
                MysqlCredentialsError::OnlyHave(plugin.name(), "a key for mysql_native_password")
            }
            MysqlCredentials::Sha2(_) => MysqlCredentialsError::OnlyHave(
                plugin.name(),
                "a key for caching_sha2_password, which suffices at servers that have \
                 seen the password",
            ),
        }
    }
}
