//! Quoting of names and values, so that they are parsed back unchanged.

/// Appends `name` as an identifier, in double quotes.
pub fn quote_identifier(out: &mut Vec<u8>, name: &str) {
    out.push(b'"');
    for byte in name.bytes() {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

/// Appends `value` as a string. One with a backslash is written as `E'…'`, which does not depend on
/// `standard_conforming_strings`.
pub fn quote_literal(out: &mut Vec<u8>, value: &str) {
    if value.contains('\\') {
        // The space separates the `E` from a preceding name.
        out.extend_from_slice(b" E");
    }
    let escapes = value.contains('\\');
    out.push(b'\'');
    for letter in value.chars() {
        match letter {
            '\'' | '\\' => out.extend([letter; 2].iter().flat_map(|it| u8::try_from(*it))),
            // In some client encodings (GBK, SJIS) the byte before a backslash makes it a part of a
            // character: it then escapes nothing, and quoted text could escape from the string.
            _ if escapes && !letter.is_ascii() => {
                out.extend_from_slice(format!("\\U{:08x}", u32::from(letter)).as_bytes());
            }
            _ => out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'\'');
}

/// Returns whether `name` is a possible name of a setting: `[A-Za-z_][A-Za-z0-9_$]*`, with dots
/// between such parts, and not longer than [`SETTING_NAME_BYTES_MAX`].
#[must_use]
pub fn is_setting_name(name: &str) -> bool {
    let part = |part: &str| {
        let mut bytes = part.bytes();
        bytes.next().is_some_and(|it| it.is_ascii_alphabetic() || it == b'_')
            && bytes.all(|it| it.is_ascii_alphanumeric() || it == b'_' || it == b'$')
    };
    name.len() <= SETTING_NAME_BYTES_MAX && name.split('.').all(part)
}

/// Maximum length of the name of a replayed setting: two names of 63 bytes and a dot.
pub const SETTING_NAME_BYTES_MAX: usize = 127;

/// Appends an item to the value of a setting that is a list of names, in the server's form: names
/// in quotes where needed. Source: `flatten_set_variable_args` of `utils/misc/guc.c`.
pub(super) fn push_list_item(list: &mut String, item: &str) {
    let mut bytes = item.bytes();
    let plain = bytes.next().is_some_and(|it| it.is_ascii_lowercase() || it == b'_')
        && bytes.all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_');
    if plain {
        list.push_str(item);
        return;
    }
    list.push('"');
    for letter in item.chars() {
        if letter == '"' {
            list.push('"');
        }
        list.push(letter);
    }
    list.push('"');
}

/// Returns the names in the value of a setting that is a list. `None` if it is malformed. Source:
/// `SplitIdentifierString` of `utils/adt/varlena.c`.
#[must_use]
pub fn list_items(value: &str) -> Option<Vec<String>> {
    let mut items = Vec::new();
    let mut rest = value.trim();
    while !rest.is_empty() {
        let item = match rest.strip_prefix('"') {
            Some(quoted) => {
                let mut item = String::new();
                let mut letters = quoted.char_indices().peekable();
                loop {
                    match letters.next()? {
                        (_, '"') if letters.next_if(|it| it.1 == '"').is_some() => item.push('"'),
                        (at, '"') => {
                            rest = quoted.get(at + 1..)?;
                            break;
                        }
                        (_, letter) => item.push(letter),
                    }
                }
                item
            }
            None => {
                let end = rest.find(|it: char| it == ',' || it.is_whitespace());
                let (item, after) = rest.split_at(end.unwrap_or(rest.len()));
                rest = after;
                item.to_ascii_lowercase()
            }
        };
        if item.is_empty() {
            return None;
        }
        items.push(item);
        rest = rest.trim_start();
        if rest.is_empty() {
            break;
        }
        rest = rest.strip_prefix(',')?.trim_start();
        if rest.is_empty() {
            return None;
        }
    }
    Some(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(value: &str) -> String {
        let mut out = Vec::new();
        quote_literal(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_literal_has_no_way_out() {
        for (value, expected) in [
            ("", "''"),
            ("a", "'a'"),
            ("it's", "'it''s'"),
            ("a\\b", " E'a\\\\b'"),
            ("\\'; DROP TABLE t; --", " E'\\\\''; DROP TABLE t; --'"),
            ("\u{20ac}'", "'\u{20ac}'''"),
            ("\u{20ac}\\'; DROP TABLE t; --", " E'\\U000020ac\\\\''; DROP TABLE t; --'"),
        ] {
            assert_eq!(literal(value), expected);
        }
        let mut out = Vec::new();
        quote_identifier(&mut out, "a\"; DROP");
        assert_eq!(out, b"\"a\"\"; DROP\"");
    }

    #[test]
    fn lists_of_names_are_taken_apart() {
        let list = |value: &str| list_items(value).map(|items| items.join("|"));
        for (value, expected) in [
            ("", Some("")),
            ("a", Some("a")),
            (" A , b,\"B c\" ", Some("a|b|B c")),
            ("\"a\"\"b\",\"c,d\"", Some("a\"b|c,d")),
            ("a,", None),
            ("a b", None),
            (",a", None),
            ("\"a", None),
            ("\"\"", None),
        ] {
            assert_eq!(list(value).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn names_of_settings() {
        for name in ["a", "TimeZone", "_x", "app.user_id", "a.b.c", "a$1"] {
            assert!(is_setting_name(name), "{name}");
        }
        let long = "a".repeat(SETTING_NAME_BYTES_MAX + 1);
        for name in ["", ".", "a.", ".a", "1a", "a b", "a'", "a=b", "a\"", "é", &long] {
            assert!(!is_setting_name(name), "{name}");
        }
    }
}
