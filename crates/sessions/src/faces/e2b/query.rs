//! Query strings, parts of which E2B's clients encode twice.

use std::collections::BTreeMap;

/// Maximum number of parameters in one query.
const PARAMETERS_MAX: usize = 256;

/// Returns the decoded names and values of a query, in order.
pub(super) fn parameters(text: &str) -> Vec<(String, String)> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty()).take(PARAMETERS_MAX);
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        })
        .collect()
}

/// Parses a parameter that is itself a query with doubly encoded names and values.
pub(super) fn quoted_pairs(text: &str) -> BTreeMap<String, String> {
    let pairs = parameters(text).into_iter();
    pairs.map(|(name, value)| (unquoted(name), unquoted(value))).collect()
}

/// Decodes a second time if escapes remain. A plus sign is literal by now.
fn unquoted(text: String) -> String {
    if text.contains('%') { decoded(&text.replace('+', "%2B")) } else { text }
}

/// Decodes `%41` and `+`; invalid UTF-8 is replaced.
fn decoded(text: &str) -> String {
    let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    bytes.push(high << 4 | low);
                    rest = after;
                }
                _ => bytes.push(b'%'),
            },
            (b'+', _) => bytes.push(b' '),
            (other, _) => bytes.push(other),
        }
    }
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    //! Queries in the clients' format.

    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let pairs = parameters("a=1&b=x%20y+z&&c&d=%zz%4&e=%e2%82%ac&f=%ff");
        let pairs: Vec<_> = pairs.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let expected =
            [("a", "1"), ("b", "x y z"), ("c", ""), ("d", "%zz%4"), ("e", "€"), ("f", "\u{fffd}")];
        assert_eq!(pairs, expected);
        assert_eq!(parameters(&"x&".repeat(5000)).len(), PARAMETERS_MAX);
    }

    #[test]
    fn metadata_is_quoted_twice() {
        for (sent, name, value) in [
            // urlencode({quote(k): quote(v)}) as a parameter, so it was decoded once before.
            ("user=%25C3%25A4%2520b%2526c%253Dd", "user", "ä b&c=d"),
            ("user=plain", "user", "plain"),
            ("a%2520b=1%252B1", "a b", "1+1"),
            ("user=", "user", ""),
        ] {
            let pairs = quoted_pairs(sent);
            assert_eq!(pairs.get(name).map(String::as_str), Some(value), "{sent}");
        }
    }
}
