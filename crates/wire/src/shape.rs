//! The shape of SQL texts: the common part of texts that differ in their constants, computed in one
//! quick pass.
//!
//! A client that writes values into its texts never sends the same text twice, but only few shapes.
//! Texts of one shape have the same tokens, in either protocol and under every setting, except for
//! the contents of their numbers and plain strings. Facts that depend on those (a name in a string,
//! a value of a setting) cannot be derived from the shape.

/// Longer texts have no shape: parsing them is cheap compared with running them.
pub const SHAPED_BYTES_MAX: usize = 16 * 1024;

/// Class of a byte.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ByteClass {
    /// An ASCII letter or an underscore.
    Letter,
    Digit,
    /// The string quote of every dialect.
    Quote,
    /// A blank, or a character with the same meaning everywhere.
    Mark,
    /// The first character of a possible comment.
    Dash,
    Slash,
    /// Bytes whose meaning depends on dialect, settings or encoding, or that are rare.
    Other,
}

const CLASSES: [ByteClass; 256] = classes();

const fn classes() -> [ByteClass; 256] {
    let mut classes = [ByteClass::Other; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        classes[byte as usize] = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => ByteClass::Letter,
            b'0'..=b'9' => ByteClass::Digit,
            b'\'' => ByteClass::Quote,
            b'-' => ByteClass::Dash,
            b'/' => ByteClass::Slash,
            b' ' | b'\t' | b'\n' | b'\r' => ByteClass::Mark,
            b'(' | b')' | b',' | b';' | b'.' | b'*' | b'=' | b'<' | b'>' | b'+' => ByteClass::Mark,
            _ => ByteClass::Other,
        };
        byte += 1;
    }
    classes
}

/// Writes the shape of `text` into `out`, replacing its contents: each number becomes `0`, each
/// plain string `''`. False: it has no usable shape.
pub fn shape(text: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    if text.len() > SHAPED_BYTES_MAX {
        return false;
    }
    let class = |at: usize| text.get(at).map_or(ByteClass::Mark, |&it| CLASSES[usize::from(it)]);
    let verbatim = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let (mut at, mut from) = (0, 0);
    while at < text.len() {
        match class(at) {
            ByteClass::Letter => {
                while matches!(class(at), ByteClass::Letter | ByteClass::Digit) {
                    at += 1;
                }
                // `E'…'` and similar strings.
                if class(at) == ByteClass::Quote {
                    return false;
                }
            }
            ByteClass::Digit => {
                out.extend_from_slice(verbatim(from, at));
                out.push(b'0');
                while class(at) == ByteClass::Digit {
                    at += 1;
                }
                // `1e5`, `0x1f`, and names that begin with a digit.
                if matches!(class(at), ByteClass::Letter | ByteClass::Quote) {
                    return false;
                }
                from = at;
            }
            ByteClass::Quote => {
                out.extend_from_slice(verbatim(from, at));
                out.extend_from_slice(b"''");
                let Some(end) = string(text, at) else { return false };
                at = end;
                from = at;
            }
            ByteClass::Mark => at += 1,
            ByteClass::Dash if class(at + 1) != ByteClass::Dash => at += 1,
            ByteClass::Slash if text.get(at + 1) != Some(&b'*') => at += 1,
            ByteClass::Dash | ByteClass::Slash | ByteClass::Other => return false,
        }
    }
    out.extend_from_slice(verbatim(from, at));
    true
}

/// Returns the end of the string that begins at `start`; `None` if it is ambiguous.
fn string(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match *text.get(at)? {
            b'\'' if text.get(at + 1) == Some(&b'\'') => at += 2,
            b'\'' => return Some(at + 1),
            b'\\' | 0 | 0x80.. => return None,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mysql, pg};

    fn shape_of(text: &str) -> Option<String> {
        let mut out = b"left".to_vec();
        shape(text.as_bytes(), &mut out).then(|| String::from_utf8(out).unwrap())
    }

    #[test]
    fn constants_are_left_out() {
        let check = |text: &str, expected: &str| assert_eq!(shape_of(text).unwrap(), expected);
        check("", "");
        check("SELECT c FROM t1 WHERE id=4711;", "SELECT c FROM t1 WHERE id=0;");
        check("SELECT 12.5, .75 - -3 / 42", "SELECT 0.0, .0 - -0 / 0");
        check("INSERT INTO t VALUES (1,'a'),(22,'it''s')", "INSERT INTO t VALUES (0,''),(0,'')");
        check("SELECT 'a--b' 'c'", "SELECT '' ''");
        check("1", "0");
        check("select f_2(x3)", "select f_2(x3)");
    }

    #[test]
    fn what_reads_in_two_ways_has_no_shape() {
        let long = "1".repeat(SHAPED_BYTES_MAX + 1);
        for text in [
            "SELECT E'a'",
            "SELECT x'1f'",
            "SELECT N'a'",
            "SELECT U&'a'",
            "SELECT 1'a'",
            "SELECT 1e5",
            "SELECT 0x1f",
            "SELECT 1abc",
            "SELECT $1",
            "SELECT $$a$$",
            "SELECT \"a\"",
            "SELECT `a`",
            "SELECT @a",
            "SELECT 1 -- a",
            "SELECT /* a */ 1",
            "SELECT 1 # a",
            "SELECT 'a\\'",
            "SELECT 'ä'",
            "SELECT ä",
            "SELECT 'a",
            "SELECT '",
            "SELECT 'a''",
            "SELECT 1\0",
            "SELECT 'a\0'",
            &long,
        ] {
            assert_eq!(shape_of(text), None, "{text}");
        }
    }

    /// The guarantee of shapes: both parsers return the same for texts with the same shape.
    #[test]
    fn texts_of_one_shape_read_alike() {
        let values = [("1", "'x'"), ("0", "''"), ("98765432109876543210", "'it''s; DROP t'")];
        for text in [
            "SELECT abalance FROM pgbench_accounts WHERE aid = #;",
            "SELECT #, #.#, .#, f(#) FROM t# WHERE a IN (#, #, #) AND b = ? LIMIT # OFFSET #",
            "INSERT INTO a (b) VALUES (#, ?), (#, ?)",
            "UPDATE t SET a = a + -#, b = ? WHERE c = lower(?) OR d BETWEEN # AND #",
            "BEGIN; SELECT # (#), ?, ? ?; COMMIT",
            "DELETE FROM a.b WHERE c=#; SELECT count(*), now() - ? FROM a",
        ] {
            let of = |(number, string): (&str, &str)| {
                text.replace("t#", "t1").replace('#', number).replace('?', string)
            };
            let first = of(values[0]);
            for value in values {
                let other = of(value);
                assert_eq!(shape_of(&first).unwrap(), shape_of(&other).unwrap());
                assert_eq!(pg::sql::analyse(first.as_bytes()), pg::sql::analyse(other.as_bytes()));
                for no_backslash_escapes in [false, true] {
                    let mode = mysql::sql::SqlMode { no_backslash_escapes, ..Default::default() };
                    let effects = |text: &str| mysql::sql::effects(text.as_bytes(), mode);
                    assert_eq!(effects(&first), effects(&other));
                }
            }
        }
    }
}
