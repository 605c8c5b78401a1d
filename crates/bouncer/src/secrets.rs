//! Passwords on their way from the configuration or the store to the protocol: text that is never
//! shown, and what references stand for.

use std::fmt;

/// Longest password or secret, in bytes: tokens of cloud providers stay below it.
pub const PASSWORD_BYTES_MAX: usize = 65_535;

/// Finds what `env:NAME` and `file:PATH` stand for; hands back other texts as they are. Given the
/// name of the setting, for the error.
pub type Resolve<'a> = dyn Fn(&str, &str) -> Result<String, String> + Sync + 'a;

/// A password, or a secret that stands for one. It has no way to be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSecret(Box<str>);

impl ClientSecret {
    /// Takes a text.
    pub fn new(text: impl Into<Box<str>>) -> ClientSecret {
        ClientSecret(text.into())
    }

    /// The text, for whoever proves with it who it is.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// Returns whether a text refers to a place outside. Only whoever writes `cove.toml` may say so: a
/// caller could read the server's files by it.
pub fn is_reference(text: &str) -> bool {
    text.starts_with("env:") || text.starts_with("file:")
}
