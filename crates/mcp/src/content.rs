//! Contents of results for a model: text cut to head and tail, images, links to files. Pure.
//!
//! # References
//! - <https://modelcontextprotocol.io/specification/2026-07-28/server/tools>

use serde_json::{Value, json};

/// Bytes from the beginning of a text that are shown if it is too long.
pub(crate) const HEAD_BYTES: usize = 8 << 10;

/// Bytes from its end that are shown.
pub(crate) const TAIL_BYTES: usize = 8 << 10;

/// Cuts a text that is too long in the middle, and states the number of omitted bytes.
pub(crate) fn cut(text: &str) -> String {
    if text.len() <= HEAD_BYTES + TAIL_BYTES {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(HEAD_BYTES);
    let tail_start = text.ceil_char_boundary(text.len() - TAIL_BYTES);
    let (first, last) = (text.get(..head).unwrap_or(""), text.get(tail_start..).unwrap_or(""));
    format!("{first}\n[… {} bytes left out …]\n{last}", tail_start - head)
}

/// Returns standard output and error of a result in the form for a model.
pub(crate) fn output_text(result: &Value) -> String {
    let mut text = String::new();
    for (name, title) in [("stdout", ""), ("stderr", "standard error:\n")] {
        let output = result[name].as_str().unwrap_or_default();
        if !output.is_empty() {
            text.push_str(title);
            text.push_str(&cut(output));
            if !output.ends_with('\n') {
                text.push('\n');
            }
        }
    }
    text
}

/// Cuts standard output and error in the document of a result as in its text: some clients show a
/// model the document, some the text.
pub(crate) fn cut_output(result: &mut Value) {
    for name in ["stdout", "stderr"] {
        if let Some(Value::String(output)) = result.get_mut(name) {
            *output = cut(output);
        }
    }
}

/// Returns a block of text.
pub(crate) fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// Returns the media type of an image by its first bytes, if models support it.
pub(crate) fn image_type(bytes: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 3] = [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF8", "image/gif"),
    ];
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return Some("image/webp");
    }
    known.into_iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, name)| name)
}

/// Returns a block with an image; `data` is base64.
pub(crate) fn image(data: &str, media_type: &str) -> Value {
    json!({ "type": "image", "data": data, "mimeType": media_type })
}

/// Returns a block with a link to a file of a session.
pub(crate) fn file_link(session: &str, path: &str) -> Value {
    let name = path.rsplit('/').next().unwrap_or(path);
    json!({ "type": "resource_link", "uri": file_uri(session, path), "name": name })
}

/// Returns the resource URI of a file of a session. The path is absolute.
pub(crate) fn file_uri(session: &str, path: &str) -> String {
    let path = percent_encoding::utf8_percent_encode(path, IN_PATH);
    format!("cove://sessions/{session}/files{path}")
}

/// Parses a URI from [`file_uri`] into session and path.
pub(crate) fn parse_file_uri(uri: &str) -> Option<(String, String)> {
    let rest = uri.strip_prefix("cove://sessions/")?;
    let (session, path) = rest.split_once("/files")?;
    let path = percent_encoding::percent_decode_str(path).decode_utf8().ok()?;
    (path.starts_with('/') && is_session_id(session))
        .then(|| (session.to_owned(), path.into_owned()))
}

/// Returns whether a text may be the id of a session, and so is safe as a path segment.
pub(crate) fn is_session_id(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Characters that are encoded in a path: all but RFC 3986's unreserved ones and the slash.
pub(crate) const IN_PATH: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_text_keeps_its_ends_and_says_what_is_missing() {
        let long = format!("begin{}end", "x".repeat(100_000));
        let short = cut(&long);
        assert!(short.starts_with("begin") && short.ends_with("end"));
        let missing = long.len() - HEAD_BYTES - TAIL_BYTES;
        assert!(short.contains(&format!("[… {missing} bytes left out …]")), "{}", short.len());
        assert_eq!(cut("short"), "short");
    }

    #[test]
    fn images_are_known_by_their_bytes() {
        for (bytes, expected) in [
            (&b"\x89PNG\r\n\x1a\n...."[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"RIFF....WEBPVP8 ", Some("image/webp")),
            (b"RIFF....WAVE", None),
            (b"<svg/>", None),
            (b"", None),
        ] {
            assert_eq!(image_type(bytes), expected);
        }
    }

    proptest! {
        #[test]
        fn a_text_is_cut_at_characters(text in "\\PC{0,9000}") {
            let short = cut(&text);
            prop_assert!(short.len() <= HEAD_BYTES + TAIL_BYTES + 64);
        }

        #[test]
        fn an_address_leads_back_to_its_file(path in "/\\PC{0,40}") {
            let found = parse_file_uri(&file_uri("ses_01", &path));
            prop_assert_eq!(found, Some(("ses_01".to_owned(), path)));
        }
    }
}
