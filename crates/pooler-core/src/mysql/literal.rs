//! Values within the pooler's own statements.

/// Returns the hexadecimal digits of bytes.
pub(crate) fn hex_digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a text in which a value replaces every `?`. The value cannot be anything else: its bytes
/// are written in hexadecimal digits, so quotes and backslashes do not matter.
#[must_use]
pub fn with_value(text: &str, value: &str) -> String {
    let digits = hex_digits(value.as_bytes());
    text.replace('?', &format!("_utf8mb4 x'{digits}'"))
}
