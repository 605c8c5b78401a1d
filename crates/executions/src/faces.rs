//! HTTP interfaces of other systems: their paths, their bodies, their errors, over the same
//! executions.
//!
//! A face only translates: it turns its input into an [`api::ExecutionRequest`] and the result into
//! its own format. Languages have names and numbers of their own there, so faces, and only faces,
//! know languages by name. `docs/compat.md` lists the differences between a face and its original.

pub mod gojudge;
pub mod judge0;
pub mod piston;
pub mod sandbox_fusion;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Maximum number of parameters of one query or form.
const PARAMETERS_MAX: usize = 256;

/// Accepts base64 with and without padding, because other systems are lenient about it.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Decodes base64 as callers write it: accepts line breaks, the URL-safe alphabet and missing
/// padding; returns None for other input.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.bytes().filter(|byte| !byte.is_ascii_whitespace());
    let digits: Vec<u8> = digits
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => other,
        })
        .collect();
    LENIENT.decode(digits).ok()
}

/// Returns names and values of a query or of a form, decoded, in order.
fn parameters(text: &str) -> Vec<(String, String)> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty()).take(PARAMETERS_MAX);
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decoded(name), percent_decoded(value))
        })
        .collect()
}

/// Decodes `%41` and `+`; invalid UTF-8 is replaced.
fn percent_decoded(text: &str) -> String {
    let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match (first, escaped) {
            (_, Some((high, low))) => {
                bytes.push(high << 4 | low);
                rest = &after[2..];
            }
            (b'+', None) => bytes.push(b' '),
            (other, None) => bytes.push(other),
        }
    }
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Returns the part of a caller's text that an error quotes.
fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Returns the usual name of a language's entry file here, which is also its fastest one.
fn entry_name(language: &str, extensions: &[String]) -> String {
    match (language, extensions.first()) {
        ("java" | "java-source", _) => "Main.java".to_owned(),
        (_, Some(extension)) => format!("main.{extension}"),
        (_, None) => "main".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_taken_as_callers_write_it() {
        for (text, expected) in [
            ("aGVsbG8=", Some("hello")),
            ("aGVsbG8", Some("hello")),
            ("aGVs\r\nbG8=\n", Some("hello")),
            ("Pz8-", Some("??>")),
            ("Pz8+", Some("??>")),
            ("", Some("")),
            ("print(1)", None),
            ("a", None),
        ] {
            assert_eq!(from_base64(text), expected.map(|text| text.as_bytes().to_vec()), "{text}");
        }
    }

    #[test]
    fn parameters_are_decoded() {
        let pairs = parameters("a=1&b=x%20y+z&&c&d=%zz%4&e=%e2%82%ac&f=%ff");
        let pairs: Vec<_> = pairs.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let expected =
            [("a", "1"), ("b", "x y z"), ("c", ""), ("d", "%zz%4"), ("e", "€"), ("f", "\u{fffd}")];
        assert_eq!(pairs, expected);
        assert_eq!(parameters(&"x&".repeat(5000)).len(), PARAMETERS_MAX);
    }
}
