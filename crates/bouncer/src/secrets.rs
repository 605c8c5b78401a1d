//! Passwords from the configuration or the store: text that is never printed, and the resolution of
//! references.

use std::fmt;

/// Maximum length of a password or secret in bytes: tokens of cloud providers are shorter.
pub const PASSWORD_BYTES_MAX: usize = 65_535;

/// Resolves `env:NAME` and `file:PATH`; returns other texts unchanged. The arguments are the name
/// of the setting, for errors, and the text.
pub type Resolve<'a> = dyn Fn(&str, &str) -> Result<String, String> + Sync + 'a;

/// A password, or a secret derived from one. It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSecret(Box<str>);

impl ClientSecret {
    /// Creates a secret from a text.
    pub fn new(text: impl Into<Box<str>>) -> ClientSecret {
        ClientSecret(text.into())
    }

    /// Returns the text, for use in a proof.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// Returns whether a text is a reference. References are allowed only in `cove.toml`: a caller of
/// the API could read the server's files with them.
pub fn is_reference(text: &str) -> bool {
    text.starts_with("env:") || text.starts_with("file:")
}
