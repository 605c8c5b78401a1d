//! Names of settings that a text mentions in its strings, for code that is not in the text.

use super::quote::{SETTING_NAME_BYTES_MAX, is_setting_name};

/// Names that are kept of one text.
const MENTIONS_MAX: usize = 16;

/// The setting of no module (`app.user`) that a string may name, in lower case: whether there is
/// such a setting only the server knows.
#[must_use]
pub fn custom_setting_name(string: &[u8]) -> Option<String> {
    if string.len() > SETTING_NAME_BYTES_MAX || !string.contains(&b'.') {
        return None;
    }
    let name = std::str::from_utf8(string).ok()?;
    is_setting_name(name).then(|| name.to_ascii_lowercase())
}

/// Strings of a text, within other strings too, that may name such settings.
pub(super) fn mentions(text: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    // Whether a quote opens or closes does not matter: what stands between two is looked at.
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
