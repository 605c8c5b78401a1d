//! Names of variables, and quoting of names.
//!
//! # References
//! - <https://dev.mysql.com/doc/refman/8.4/en/string-literals.html>

/// Maximum length of a variable's name, in bytes.
const VARIABLE_NAME_BYTES_MAX: usize = 64;

/// Appends `name` as an identifier, in backticks. Beyond ASCII it is interpreted in the character
/// set of the session, which the caller has to know.
pub(super) fn quote_identifier(out: &mut Vec<u8>, name: &[u8]) {
    out.push(b'`');
    for byte in name {
        if *byte == b'`' {
            out.push(b'`');
        }
        out.push(*byte);
    }
    out.push(b'`');
}

/// Returns whether `name` is a possible name of a server variable: `[A-Za-z_][A-Za-z0-9_]*`, and
/// not longer than [`VARIABLE_NAME_BYTES_MAX`].
pub(super) fn is_variable_name(name: &[u8]) -> bool {
    name.len() <= VARIABLE_NAME_BYTES_MAX
        && name.first().is_some_and(|it| it.is_ascii_alphabetic() || *it == b'_')
        && name.iter().all(|it| it.is_ascii_alphanumeric() || *it == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_variables() {
        for name in ["a", "sql_mode", "_x", "A1"] {
            assert!(is_variable_name(name.as_bytes()), "{name}");
        }
        let long = "a".repeat(VARIABLE_NAME_BYTES_MAX + 1);
        for name in ["", ".", "a.b", "1a", "a b", "a'", "a=b", "a`", "é", &long] {
            assert!(!is_variable_name(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn an_identifier_has_no_way_out() {
        let mut out = Vec::new();
        quote_identifier(&mut out, b"a`; DROP");
        assert_eq!(out, b"`a``; DROP`");
    }
}
