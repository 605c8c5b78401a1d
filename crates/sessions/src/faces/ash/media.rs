//! Media types by file name extension, and names in headers.

/// Extensions and their media types.
const TYPES: [(&str, &str); 43] = [
    ("html", "text/html"),
    ("htm", "text/html"),
    ("css", "text/css"),
    ("js", "application/javascript"),
    ("mjs", "application/javascript"),
    ("json", "application/json"),
    ("xml", "application/xml"),
    ("csv", "text/csv"),
    ("txt", "text/plain"),
    ("log", "text/plain"),
    ("md", "text/markdown"),
    ("yaml", "text/yaml"),
    ("yml", "text/yaml"),
    ("toml", "text/plain"),
    ("ts", "text/typescript"),
    ("tsx", "text/typescript"),
    ("jsx", "text/javascript"),
    ("py", "text/x-python"),
    ("rb", "text/x-ruby"),
    ("rs", "text/x-rust"),
    ("go", "text/x-go"),
    ("java", "text/x-java"),
    ("c", "text/x-c"),
    ("h", "text/x-c"),
    ("cpp", "text/x-c++"),
    ("sh", "text/x-shellscript"),
    ("bash", "text/x-shellscript"),
    ("sql", "text/x-sql"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("ico", "image/x-icon"),
    ("pdf", "application/pdf"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
    ("tar", "application/x-tar"),
    ("wasm", "application/wasm"),
    ("mp4", "video/mp4"),
    ("webm", "video/webm"),
    ("mp3", "audio/mpeg"),
];

/// Media type of unknown content.
pub(super) const UNKNOWN: &str = "application/octet-stream";

/// Returns the media type of a file by its name.
pub(super) fn type_of(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or_default();
    let Some((_, end)) = name.rsplit_once('.') else { return UNKNOWN };
    let known = TYPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(end));
    known.map_or(UNKNOWN, |(_, media_type)| media_type)
}

/// Encodes a text as a header parameter (RFC 8187 §3.2.1).
pub(super) fn encoded(text: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!#$&+^`|".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _always = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_known_by_ends() {
        for (path, expected) in [
            ("a.txt", "text/plain"),
            ("a/B.PNG", "image/png"),
            ("a.tar.gz", "application/gzip"),
            ("README", UNKNOWN),
            ("a.b/c", UNKNOWN),
            ("", UNKNOWN),
        ] {
            assert_eq!(type_of(path), expected, "{path}");
        }
    }

    #[test]
    fn names_are_encoded() {
        assert_eq!(encoded("a b'\u{e9}.txt"), "a%20b%27%C3%A9.txt");
    }
}
