//! Names of settings in the strings of a text, which code outside of the text may set.

use super::quote::{SETTING_NAME_BYTES_MAX, is_setting_name};

/// Maximum names that are kept of one text.
const MENTIONS_MAX: usize = 16;

/// Returns the custom setting (`app.user`) that a string may name, in lower case: only the server
/// knows whether there is such a setting.
#[must_use]
pub fn custom_setting_name(string: &[u8]) -> Option<String> {
    if string.len() > SETTING_NAME_BYTES_MAX || !string.contains(&b'.') {
        return None;
    }
    let name = std::str::from_utf8(string).ok()?;
    is_setting_name(name).then(|| name.to_ascii_lowercase())
}

/// Returns the strings of a text, including those within other strings, that may name such
/// settings.
pub(super) fn mentions(text: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    // Whether a quote opens or closes a string does not matter: the text between any two is
    // examined.
    for between in text.split(|byte| *byte == b'\'') {
        if let Some(name) = custom_setting_name(between)
            && !names.contains(&name)
        {
            names.push(name);
            if names.len() == MENTIONS_MAX {
                break;
            }
        }
    }
    names
}
