//! The `[console]` table.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, de};

/// Settings of the console.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsoleConfig {
    /// Serves the console.
    pub enabled: bool,
    /// Path at which browsers find the console: `/console`, behind the prefix that a proxy adds.
    #[serde(deserialize_with = "base_path")]
    pub base_path: String,
    /// Names under which browsers know the server, without port, beside those of `mcp.hosts`.
    /// Addresses, `localhost` and what is below it need not be named.
    pub hosts: Vec<String>,
    /// Directory that the files are read from at each request, for work on the console; none for
    /// the built-in ones.
    pub directory: Option<PathBuf>,
}

impl Default for ConsoleConfig {
    fn default() -> ConsoleConfig {
        ConsoleConfig {
            enabled: true,
            base_path: crate::PATH.to_owned(),
            hosts: Vec::new(),
            directory: None,
        }
    }
}

/// Why a text is no path of the console.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is not a path for the console: it begins with `/`, ends in `/console`, and has letters, \
     digits and `-._~/` only"
)]
pub struct ConsolePathError(String);

/// Checks a path that is written into the page as it is.
///
/// # Errors
/// When it is relative, does not end in `/console`, or has other characters than a plain path.
pub(crate) fn parse_base_path(text: &str) -> Result<String, ConsolePathError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let is_path = text.starts_with('/') && text.ends_with(crate::PATH) && !text.contains("//");
    match is_path && text.bytes().all(plain) {
        true => Ok(text.to_owned()),
        false => Err(ConsolePathError(text.to_owned())),
    }
}

fn base_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_base_path(&text).map_err(de::Error::custom)
}
