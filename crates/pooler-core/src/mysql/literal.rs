//! Values within texts of our own.

/// Digits of bytes in base 16.
pub(crate) fn hex_digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A text with a value in place of every `?`, which cannot be anything else than a value: its bytes
/// in hexadecimal digits, whatever quotes and backslashes mean to the server.
#[must_use]
pub fn with_value(text: &str, value: &str) -> String {
    let digits = hex_digits(value.as_bytes());
    text.replace('?', &format!("_utf8mb4 x'{digits}'"))
}
