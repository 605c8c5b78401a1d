//! How a user proves to a server of MySQL or MariaDB who it is.

use wire::mysql::auth::{NativeKey, Nonce, Plugin, Sha2Key};
use wire::pg::secret::Password;

/// There is nothing to answer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// There is no secret at all.
    #[error("the server asks for a password, and there is none for this user")]
    None,
    /// There is one that does not do.
    #[error("the server asks by {0}, and there is only {1}")]
    OnlyHave(&'static str, &'static str),
}

/// What a user has to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing: the server knows no password either, or takes our certificate or user id.
    None,
    /// A password.
    Password(Password),
    /// What a client's proof by `mysql_native_password` gave away.
    Native(NativeKey),
    /// What a client's proof by `caching_sha2_password` gave away.
    Sha2(Sha2Key),
}

impl Credentials {
    /// The method to begin with where the server would have `offered`: it may be for nobody in
    /// particular, and it asks again when its user has another one.
    pub(super) fn plugin(&self, offered: Option<Plugin>) -> Plugin {
        match (self, offered) {
            (Credentials::Native(_), _) => Plugin::Native,
            (Credentials::Sha2(_), _) => Plugin::CachingSha2,
            // It is asked for when nothing else does, and maybe not given even then.
            (_, None | Some(Plugin::Clear)) => Plugin::Native,
            (_, Some(plugin)) => plugin,
        }
    }

    /// The proof by a method. Nothing is what proves that there is no password.
    pub(super) fn answer(
        &self,
        plugin: Plugin,
        nonce: &Nonce,
    ) -> Result<Vec<u8>, CredentialsError> {
        match (plugin, self) {
            (_, Credentials::None) => Ok(Vec::new()),
            (Plugin::Native, Credentials::Password(password)) => {
                Ok(NativeKey::of(password.reveal()).answer(nonce).to_vec())
            }
            (Plugin::Native, Credentials::Native(key)) => Ok(key.answer(nonce).to_vec()),
            (Plugin::CachingSha2, Credentials::Password(password)) => {
                Ok(Sha2Key::of(password.reveal()).answer(nonce).to_vec())
            }
            (Plugin::CachingSha2, Credentials::Sha2(key)) => Ok(key.answer(nonce).to_vec()),
            (plugin, _) => Err(self.lacks(plugin)),
        }
    }

    /// The password itself, as `plugin` asks for it.
    pub(super) fn password(&self, plugin: Plugin) -> Result<&str, CredentialsError> {
        match self {
            Credentials::Password(password) => Ok(password.reveal()),
            _ => Err(self.lacks(plugin)),
        }
    }

    fn lacks(&self, plugin: Plugin) -> CredentialsError {
        match self {
            Credentials::None | Credentials::Password(_) => CredentialsError::None,
            Credentials::Native(_) => {
                CredentialsError::OnlyHave(plugin.name(), "a key for mysql_native_password")
            }
            Credentials::Sha2(_) => CredentialsError::OnlyHave(
                plugin.name(),
                "a key for caching_sha2_password, which does for servers that saw the password",
            ),
        }
    }
}
