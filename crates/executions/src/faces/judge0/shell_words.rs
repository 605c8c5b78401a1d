//! Splits a line of arguments like a shell, without expansions.

/// Characters that Judge0 removes from compiler options, because a shell interprets them there.
const STRIPPED: [char; 7] = ['$', '&', ';', '<', '>', '|', '`'];

/// Splits at white space; quotes protect it, a backslash protects the next character. Nothing is
/// expanded. An unclosed quote extends to the end.
pub(super) fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), c) if open == c => quote = None,
            (None, '\\') => word.get_or_insert_default().extend(chars.next()),
            (Some('"'), '\\') => {
                let word = word.get_or_insert_default();
                match chars.next() {
                    // Between double quotes, a backslash escapes only these.
                    Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                    other => {
                        word.push('\\');
                        word.extend(other);
                    }
                }
            }
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Returns compiler options as words.
pub(super) fn options(line: &str) -> Vec<String> {
    split(&line.replace(STRIPPED, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_shell_s_and_nothing_is_expanded() {
        for (line, expected) in [
            ("", &[][..]),
            ("  ", &[]),
            ("a b\tc\nd", &["a", "b", "c", "d"]),
            ("'a b' \"c d\"", &["a b", "c d"]),
            ("a'b'\"c\"d", &["abcd"]),
            ("'' \"\"", &["", ""]),
            (r"a\ b \\ \'", &["a b", r"\", "'"]),
            (r#""a\"b\n" '\n'"#, &[r#"a"b\n"#, r"\n"]),
            ("$HOME `x` $(y) * ~ ; rm", &["$HOME", "`x`", "$(y)", "*", "~", ";", "rm"]),
            ("'open end", &["open end"]),
            ("é 😀", &["é", "😀"]),
        ] {
            assert_eq!(split(line), expected, "{line}");
        }
        assert_eq!(options("-O3 -DX=$(y)|`z`; --std=c++17 &"), ["-O3", "-DX=(y)z", "--std=c++17"]);
    }
}
