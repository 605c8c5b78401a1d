//! Paths of requests in the canonical notation that rules are compared with.
//!
//! A server may interpret a path differently from this check: it decodes twice, takes `\` for
//! `/`, merges slashes, cuts it off at `;`. A path that permits this is *odd*, and is
//! refused if a rule compares paths. Other paths are sent exactly as they were compared.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc3986#section-5.2.4>

use std::fmt::Write as _;

/// The path of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestPath {
    /// It is unambiguous.
    Plain {
        /// Decoded, and without dot segments.
        text: String,
        /// Path to send, encoded again.
        sent: String,
    },
    /// Servers may interpret it in different ways.
    Odd,
}

impl RequestPath {
    /// Parses a path without its query.
    #[must_use]
    pub fn read(raw: &str) -> RequestPath {
        match plain(raw) {
            Some(text) => RequestPath::Plain { sent: encoded(&text), text },
            None => RequestPath::Odd,
        }
    }
}

fn plain(raw: &str) -> Option<String> {
    let decoded = decoded(raw)?;
    let mut kept: Vec<&str> = Vec::new();
    let mut rest = decoded.strip_prefix('/')?.split('/').peekable();
    while let Some(segment) = rest.next() {
        let is_last = rest.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            "" if !is_last => return None,
            other => kept.push(other),
        }
    }
    Some(format!("/{}", kept.join("/")))
}

/// Decodes a path. `None` if a decoded character is ambiguous.
fn decoded(raw: &str) -> Option<String> {
    let mut bytes = raw.bytes();
    let mut decoded = Vec::with_capacity(raw.len());
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let [high, low] =
                    [bytes.next()?, bytes.next()?].map(|it| char::from(it).to_digit(16));
                let byte = u8::try_from(high? << 4 | low?).ok()?;
                if matches!(byte, b'/' | b'%') {
                    return None;
                }
                byte
            }
            other => other,
        };
        if byte.is_ascii_control() || matches!(byte, b'\\' | b';') {
            return None;
        }
        decoded.push(byte);
    }
    // Some servers accept overlong UTF-8: `%c0%af` would be a slash.
    String::from_utf8(decoded).ok()
}

fn encoded(text: &str) -> String {
    let mut sent = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,=:@".contains(&byte) {
            sent.push(char::from(byte));
        } else {
            // Writing to a text does not fail.
            write!(sent, "%{byte:02X}").ok();
        }
    }
    sent
}

/// Paths of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathPattern {
    /// A single path.
    Exact(String),
    /// Paths with this prefix.
    Begins(String),
}

impl PathPattern {
    /// Parses `/v1/items`, `/v1/*` or `*`.
    #[must_use]
    pub fn parse(text: &str) -> Option<PathPattern> {
        let (text, is_open) = match text.strip_suffix('*') {
            Some("") => ("/", true),
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let RequestPath::Plain { text: plain, .. } = RequestPath::read(text) else { return None };
        // `/a/..*` would not match what it appears to match.
        if text.contains('*') || text.split('/').any(|part| part == "." || part == "..") {
            return None;
        }
        Some(if is_open { PathPattern::Begins(plain) } else { PathPattern::Exact(plain) })
    }

    /// Returns whether the pattern matches a path in canonical notation.
    #[must_use]
    pub fn fits(&self, text: &str) -> bool {
        match self {
            PathPattern::Exact(one) => one == text,
            PathPattern::Begins(start) => text.starts_with(start.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_has_one_meaning_has_one_notation() {
        for (raw, text, sent) in [
            ("/", "/", "/"),
            ("/a/b", "/a/b", "/a/b"),
            ("/%61/%2E/b", "/a/b", "/a/b"),
            ("/a/../b", "/b", "/b"),
            ("/a/%2e%2e/%2E./b/", "/b/", "/b/"),
            ("/../../a", "/a", "/a"),
            ("/a/.", "/a/", "/a/"),
            ("/a/..", "/", "/"),
            ("/a/...", "/a/...", "/a/..."),
            ("/a%3Fb%23c", "/a?b#c", "/a%3Fb%23c"),
            ("/%C3%BC", "/ü", "/%C3%BC"),
            ("/a+b c", "/a+b c", "/a+b%20c"),
        ] {
            let expected = RequestPath::Plain { text: text.to_owned(), sent: sent.to_owned() };
            assert_eq!(RequestPath::read(raw), expected, "{raw}");
        }
        for raw in [
            "",
            "a",
            "*",
            "//",
            "/a//b",
            "/a%2fb",
            "/a%2Fb",
            "/a\\b",
            "/a%5cb",
            "/a;x",
            "/a%3bx",
            "/..;/a",
            "/a%00",
            "/a%0a",
            "/%",
            "/%a",
            "/%zz",
            "/%252e%252e",
            "/%c0%ae",
            "/%ff",
        ] {
            assert_eq!(RequestPath::read(raw), RequestPath::Odd, "{raw}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, path, fits) in [
            ("/v1/*", "/v1/", true),
            ("/v1/*", "/v1/a/b", true),
            ("/v1/*", "/v1", false),
            ("/v1/*", "/v2/a", false),
            ("/v1*", "/v1", true),
            ("/v1", "/v1/", false),
            ("/%76%31", "/v1", true),
            ("*", "/a", true),
            ("/*", "/", true),
        ] {
            assert_eq!(PathPattern::parse(pattern).unwrap().fits(path), fits, "{pattern} {path}");
        }
        for wrong in ["", "v1", "/a/*/b", "/a/../b", "/a//b", "/a%2fb", "/..*", "**"] {
            assert_eq!(PathPattern::parse(wrong), None, "{wrong}");
        }
    }

    /// Simulates a server that is as lenient as all servers together.
    fn lenient(sent: &str) -> String {
        let mut text = sent.to_owned();
        for _ in 0..3 {
            text = percent_encoding::percent_decode_str(&text).decode_utf8_lossy().into_owned();
        }
        let text = text.replace('\\', "/");
        let mut kept = Vec::new();
        for part in text.split('/').map(|part| part.split(';').next().unwrap()) {
            match part {
                "" | "." => {}
                ".." => drop(kept.pop()),
                other => kept.push(other),
            }
        }
        format!("/{}", kept.join("/"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn no_server_reads_what_is_sent_in_another_way(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just("/"), Just("/v1"), Just("."), Just(".."), Just("%2e"), Just("%2f"),
                    Just("%25"), Just("%5c"), Just("\\"), Just(";"), Just("a"), Just("%61"),
                    Just("%c0%ae"), Just("/secret"), Just("%"), Just("2"), Just("e"), Just("ü"),
                ],
                0..12,
            ),
        ) {
            let raw = format!("/{}", parts.concat());
            if let RequestPath::Plain { text, sent } = RequestPath::read(&raw) {
                prop_assert_eq!(lenient(&sent), text.trim_end_matches('/').to_owned()
                    + if text == "/" { "/" } else { "" });
                // Parsing the result again changes nothing.
                prop_assert_eq!(RequestPath::read(&sent), RequestPath::Plain { text, sent });
            }
        }
    }
}
