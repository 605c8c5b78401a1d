//! Writing names and values so that they are read back as what they are, and nothing else.
//!
//! What is written reads the same under every `sql_mode` and in every character set: nothing but
//! ASCII, and no backslash.

/// Longest name of a variable that is replayed, in bytes: `NAME_CHAR_LEN`, and a prefix.
pub const VARIABLE_NAME_BYTES_MAX: usize = 128;

/// Appends `value` as a string. What has bytes beyond ASCII, or a backslash, is written in
/// hexadecimal digits with the character set named, because `NO_BACKSLASH_ESCAPES` and the
/// character set of the session decide how such a string would be read.
pub fn quote_string(out: &mut Vec<u8>, value: &[u8]) {
    if value.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'\\') {
        out.push(b'\'');
        for byte in value {
            if *byte == b'\'' {
                out.push(b'\'');
            }
            out.push(*byte);
        }
        out.push(b'\'');
        return;
    }
    out.extend_from_slice(b"_utf8mb4 X'");
    for byte in value {
        for digit in [byte >> 4, byte & 15] {
            out.push(b"0123456789ABCDEF".get(usize::from(digit)).copied().unwrap_or(b'0'));
        }
    }
    out.push(b'\'');
}

/// Appends `name` as an identifier, in backticks. Beyond ASCII it is read in the character set of
/// the session, which the caller has to know.
pub fn quote_identifier(out: &mut Vec<u8>, name: &[u8]) {
    out.push(b'`');
    for byte in name {
        if *byte == b'`' {
            out.push(b'`');
        }
        out.push(*byte);
    }
    out.push(b'`');
}

/// Whether `name` can be that of a variable of the server: `[A-Za-z_][A-Za-z0-9_]*`, with at most
/// one dot (`keycache.key_buffer_size`), and not longer than [`VARIABLE_NAME_BYTES_MAX`].
#[must_use]
pub fn is_variable_name(name: &[u8]) -> bool {
    let part = |part: &[u8]| {
        part.first().is_some_and(|it| it.is_ascii_alphabetic() || *it == b'_')
            && part.iter().all(|it| it.is_ascii_alphanumeric() || *it == b'_')
    };
    let mut parts = name.split(|byte| *byte == b'.');
    name.len() <= VARIABLE_NAME_BYTES_MAX
        && parts.by_ref().take(2).all(part)
        && parts.next().is_none()
}

/// Appends `name=value`, as one of the assignments of a `SET`. `value` is what a tracker told or a
/// literal said; a number is written as one, because a variable that is a number refuses a string.
/// Appends nothing and says `false` when `name` cannot be that of a variable.
#[must_use]
pub fn put_assignment(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> bool {
    if !is_variable_name(name) {
        return false;
    }
    out.extend_from_slice(name);
    out.push(b'=');
    let lower = name.to_ascii_lowercase();
    // Trackers tell `NULL` as an empty text; these can be `NULL` and cannot be empty.
    let null_when_empty = matches!(lower.as_slice(), b"character_set_results");
    if value.is_empty() && null_when_empty {
        out.extend_from_slice(b"NULL");
    } else if is_number(value) && !is_text_variable(&lower) {
        out.extend_from_slice(value);
    } else {
        quote_string(out, value);
    }
    true
}

/// Variables of the session that are texts and may look like numbers.
fn is_text_variable(lower: &[u8]) -> bool {
    matches!(
        lower,
        b"default_master_connection"
            | b"session_track_system_variables"
            | b"debug"
            | b"debug_dbug"
            | b"debug_sync"
            | b"time_zone"
    )
}

/// Whether `value` is a decimal number as the server writes it: `-1`, `5.000000`.
fn is_number(value: &[u8]) -> bool {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    let mut parts = digits.split(|byte| *byte == b'.');
    let whole = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    digits.len() <= NUMBER_BYTES_MAX && parts.by_ref().take(2).all(whole) && parts.next().is_none()
}

/// Digits of a number that is replayed as one.
const NUMBER_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, value: &str) -> String {
        let mut out = Vec::new();
        assert!(put_assignment(&mut out, name.as_bytes(), value.as_bytes()));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_value_has_no_way_out() {
        for (name, value, expected) in [
            ("sql_mode", "", "sql_mode=''"),
            ("sql_mode", "ANSI,ORACLE", "sql_mode='ANSI,ORACLE'"),
            ("sort_buffer_size", "262144", "sort_buffer_size=262144"),
            ("max_statement_time", "5.000000", "max_statement_time=5.000000"),
            ("x", "-1", "x=-1"),
            ("x", "--1", "x='--1'"),
            ("x", "1.", "x='1.'"),
            ("x", "1.2.3", "x='1.2.3'"),
            ("x", "1e5", "x='1e5'"),
            ("time_zone", "+05:00", "time_zone='+05:00'"),
            ("autocommit", "ON", "autocommit='ON'"),
            ("x", "it's", "x='it''s'"),
            ("x", "\\'; DROP", "x=_utf8mb4 X'5C273B2044524F50'"),
            ("x", "\u{e9}", "x=_utf8mb4 X'C3A9'"),
            ("x", "a\nb", "x=_utf8mb4 X'610A62'"),
            ("character_set_results", "", "character_set_results=NULL"),
            ("default_master_connection", "1", "default_master_connection='1'"),
        ] {
            assert_eq!(written(name, value), expected);
        }
        let mut out = Vec::new();
        quote_identifier(&mut out, b"a`; DROP");
        assert_eq!(out, b"`a``; DROP`");
    }

    #[test]
    fn names_of_variables() {
        for name in ["a", "sql_mode", "_x", "keycache.key_buffer_size"] {
            assert!(is_variable_name(name.as_bytes()), "{name}");
        }
        let long = "a".repeat(VARIABLE_NAME_BYTES_MAX + 1);
        for name in ["", ".", "a.", ".a", "1a", "a b", "a'", "a=b", "a`", "é", "a.b.c", &long] {
            assert!(!is_variable_name(name.as_bytes()), "{name}");
            assert!(!put_assignment(&mut Vec::new(), name.as_bytes(), b"1"));
        }
    }
}
