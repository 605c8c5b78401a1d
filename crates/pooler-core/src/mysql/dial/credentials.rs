//! Credentials of users for servers of MySQL or MariaDB.

use wire::mysql::auth::{AuthNonce, AuthPlugin, NativeKey, Sha2Key};
use wire::pg::secret::PlainPassword;

/// There is nothing to answer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MysqlCredentialsError {
    /// There is no secret at all.
    #[error("the server requires a password, but none is configured for this user")]
    None,
    /// There is one that does not do.
    #[error("the server requires {0}, but Cove has only {1}")]
    OnlyHave(&'static str, &'static str),
}

/// Credentials of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MysqlCredentials {
    /// None: the server knows no password either, or takes our certificate or user id.
    None,
    /// A password.
    Password(PlainPassword),
    /// Key that a client's proof by `mysql_native_password` disclosed.
    Native(NativeKey),
    /// Key that a client's proof by `caching_sha2_password` disclosed.
    Sha2(Sha2Key),
}

impl MysqlCredentials {
    /// The method to begin with where the server would have `offered`: it may be for nobody in
    /// particular, and it asks again when its user has another one.
    pub(super) fn plugin(&self, offered: Option<AuthPlugin>) -> AuthPlugin {
        match (self, offered) {
            (MysqlCredentials::Native(_), _) => AuthPlugin::Native,
            (MysqlCredentials::Sha2(_), _) => AuthPlugin::CachingSha2,
            // It is asked for when nothing else does, and maybe not given even then.
            (_, None | Some(AuthPlugin::Clear)) => AuthPlugin::Native,
            (_, Some(plugin)) => plugin,
        }
    }

    /// The proof by a method. Nothing is what proves that there is no password.
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

    /// The password itself, as `plugin` asks for it.
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
