//! Displays foreign text on a terminal: it cannot move the cursor, hide text, or change the order
//! in which a line is read.

/// Format characters (general category Cf) and separators of lines and paragraphs (Zl, Zp) of
/// Unicode 16: <https://www.unicode.org/Public/16.0.0/ucd/extracted/DerivedGeneralCategory.txt>.
/// They include all bidirectional controls and invisible characters.
const FORMAT_CHARACTERS: [(char, char); 21] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

/// Returns text on one line, with replacement characters for terminal controls.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(replace_steering).collect()
}

/// Like [`plain`], but keeps line ends and tabs.
pub(crate) fn plain_with_lines(text: &str) -> String {
    text.chars()
        .map(|it| if matches!(it, '\n' | '\t') { it } else { replace_steering(it) })
        .collect()
}

/// Formats a message of several lines: all after the first are indented, so that none looks like a
/// separate message.
pub(crate) fn plain_lines(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n  ")
}

/// Returns an equivalent JSON document with escapes for terminal controls: in JSON such characters
/// occur within strings only.
pub(crate) fn plain_json(document: &str) -> String {
    let mut text = String::with_capacity(document.len());
    for it in document.chars() {
        if is_steering(it) && it != '\n' {
            let mut units = [0; 2];
            for unit in it.encode_utf16(&mut units) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            text.push(it);
        }
    }
    text
}

fn replace_steering(character: char) -> char {
    if is_steering(character) { char::REPLACEMENT_CHARACTER } else { character }
}

fn is_steering(character: char) -> bool {
    let is_format = |(first, last): &(char, char)| (*first..=*last).contains(&character);
    character.is_control() || (!character.is_ascii() && FORMAT_CHARACTERS.iter().any(is_format))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every character with Unicode's property `Bidi_Control`.
    const BIDI_CONTROLS: [char; 12] = [
        '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}',
        '\u{202e}', '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
    ];

    #[test]
    fn nothing_steers_the_terminal() {
        let soft = ['\u{ad}', '\u{200b}', '\u{200d}', '\u{2028}', '\u{2029}', '\u{feff}'];
        let all = BIDI_CONTROLS.into_iter().chain(soft).chain(['\x1b', '\u{9b}', '\r', '\0']);
        for it in all.chain(['\u{e0001}', '\u{e0041}', '\u{1d173}', '\u{fffb}']) {
            let text = format!("a{it}b");
            assert_eq!(plain(&text), "a\u{fffd}b", "{it:?}");
            assert_eq!(plain_with_lines(&text), "a\u{fffd}b", "{it:?}");
            if it != '\r' {
                assert_eq!(plain_lines(&text), "a\u{fffd}b", "{it:?}");
            }
            let document = serde_json::to_string(&text).unwrap();
            let escaped_json = plain_json(&document);
            assert!(!escaped_json.contains(is_steering), "{escaped_json:?}");
            assert_eq!(serde_json::from_str::<String>(&escaped_json).unwrap(), text);
        }
        assert_eq!(plain("a\x1b[2Jb\r\nc"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}c");
        assert_eq!(plain_lines("Invalid:\n- a\r\n- \x1bb"), "Invalid:\n  - a\n  - \u{fffd}b");
        assert_eq!(plain_with_lines("a\n\tb\r"), "a\n\tb\u{fffd}");
    }

    #[test]
    fn what_people_write_is_shown() {
        for text in
            ["naïve", "n\u{303}", "数据 表", "שלום", "سلام", "a\u{3000}b", "→ ✓ 🙂 ❤\u{fe0f}"]
        {
            assert_eq!(plain(text), text);
            assert_eq!(plain_json(text), text);
        }
    }

    #[test]
    fn nothing_that_is_printed_is_replaced() {
        // After a first character, `str::escape_debug` escapes only characters that are not
        // printable.
        for it in ('\u{80}'..=char::MAX).filter(|it| is_steering(*it)) {
            let escaped: String = format!("a{it}").escape_debug().collect();
            assert!(escaped.starts_with("a\\u{"), "{it:?} is printed");
        }
    }
}
