//! Names of variables, and names written so that they are read back as what they are.
//!
//! # References
//! - <https://dev.mysql.com/doc/refman/8.4/en/string-literals.html>

/// Longest name of a variable that is kept, in bytes.
const VARIABLE_NAME_BYTES_MAX: usize = 64;

/// Appends `name` as an identifier, in backticks. Beyond ASCII it is read in the character set of
/// the session, which the caller has to know.
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

/// Returns whether `name` can be that of a variable of the server: `[A-Za-z_][A-Za-z0-9_]*`, and
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
