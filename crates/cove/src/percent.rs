//! Percent encoding for URIs.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc3986#section-2.1>

/// Encodes a value for a path segment or a query.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_query_are_escaped() {
        assert_eq!(escaped("c++ & d=é"), "c%2B%2B%20%26%20d%3D%C3%A9");
        assert_eq!(escaped("a-b_c.d~9"), "a-b_c.d~9");
    }
}
