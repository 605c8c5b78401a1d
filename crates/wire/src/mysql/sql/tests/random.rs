//! Texts of parts that are likely to interact badly.

use proptest::prelude::*;

use super::super::lexer::{CommentReading, MysqlLexer, MysqlTokenKind};
use super::*;

fn text() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        proptest::sample::select(vec![
            "'",
            "\"",
            "`",
            "/*",
            "*/",
            "/*!",
            "/*!50000",
            "/*!80000",
            "/*M!",
            "--",
            "-- ",
            "#",
            "\n",
            "\\",
            "\\'",
            "N'",
            "X'",
            ";",
            "(",
            ")",
            ",",
            ".",
            ":=",
            "@",
            "@@",
            "@a",
            "SET",
            " a ",
            "=",
            "GLOBAL",
            "SESSION",
            "TRANSACTION",
            "NAMES",
            "'a'",
            "CREATE",
            "TEMPORARY",
            "TABLE",
            "PROCEDURE",
            "BEGIN",
            "END",
            "CASE",
            "PREPARE",
            "EXECUTE",
            "IMMEDIATE",
            "FROM",
            "STATEMENT",
            "FOR",
            "GET_LOCK",
            "KILL",
            "CONNECTION_ID",
            "()",
            "1",
            "0x",
            ".5",
            "1e",
            "\u{e9}",
            "SELECT",
            "INTO",
            "WITH",
            "SHOW",
            "WARNINGS",
            "USE",
            "$$",
            "[",
            "?",
            " ",
        ])
        .prop_map(|it| it.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 1..3),
    ];
    proptest::collection::vec(part, 0..30).prop_map(|parts| parts.concat())
}

fn mode() -> impl Strategy<Value = SqlMode> {
    let charsets = vec![CharsetClass::Utf8, CharsetClass::AsciiSafe, CharsetClass::Unsafe];
    (any::<bool>(), any::<bool>(), proptest::sample::select(charsets)).prop_map(
        |(ansi_quotes, no_backslash_escapes, charset)| SqlMode {
            ansi_quotes,
            no_backslash_escapes,
            charset,
        },
    )
}

proptest! {
    #[test]
    fn tokens_are_in_order_and_within_the_text(text in text(), mode in mode()) {
        for reading in [CommentReading::Code, CommentReading::Comment] {
            let mut last = 0;
            let mut lexer = MysqlLexer::new(&text, mode, reading);
            for token in lexer.by_ref() {
                prop_assert!(token.start >= last && token.end > token.start);
                prop_assert!(token.end <= text.len());
                last = token.end;
                let first = text[token.start];
                let is_name = first == b'`' || (first == b'"' && mode.ansi_quotes);
                prop_assert_eq!(token.kind == MysqlTokenKind::Name, is_name);
            }
            prop_assert!(lexer.next().is_none());
        }
    }

    #[test]
    fn nothing_panics_on_any_bytes(
        text in proptest::collection::vec(any::<u8>(), 0..200),
        mode in mode(),
    ) {
        let _effects = effects(&text, mode);
        let _details = details(&text, mode);
        let _question = question(&text, mode);
        let _rewritten = rewrite_connection_id(&text, mode, 7, &mut Vec::new());
    }

    #[test]
    fn nothing_panics_on_difficult_texts(text in text(), mode in mode()) {
        let found = effects(&text, mode);
        let _details = details(&text, mode);
        let _question = question(&text, mode);
        let mut out = Vec::new();
        if rewrite_connection_id(&text, mode, 7, &mut out) {
            prop_assert!(found.contains(MysqlEffects::CONNECTION_ID));
            // A stored text is not rewritten, and neither is an assignment.
            let again = effects(&out, mode);
            let kept = MysqlEffects::DDL | MysqlEffects::SET_FIXED | MysqlEffects::UNPARSED;
            prop_assert!(again.intersects(kept) || !again.contains(MysqlEffects::CONNECTION_ID));
        } else {
            prop_assert!(out.is_empty());
        }
    }

    /// The text after or before a complete text hides no effects of it.
    #[test]
    fn two_texts_do_what_each_does(one in text(), other in text(), mode in mode()) {
        let (first, second) = (effects(&one, mode), effects(&other, mode));
        let both = effects(&[&one[..], b"\n;", &other].concat(), mode);
        if !first.contains(MysqlEffects::UNPARSED) && !both.contains(MysqlEffects::UNPARSED) {
            prop_assert!(both.contains(first), "{first:?} {both:?}");
            prop_assert!(both.contains(second), "{second:?} {both:?}");
        }
    }
}

#[test]
fn a_difficult_text_takes_linear_time() {
    let many = 200_000;
    for text in [
        "(".repeat(many),
        "/*".repeat(many),
        "/*!".repeat(many),
        "/*!80000 ".repeat(many / 8),
        "/*!80000 */".repeat(many / 8),
        "/*!80000 /* */".repeat(many / 8),
        "SET a = ".repeat(many / 8),
        format!("SET {}", "a=1,".repeat(many / 8)),
        format!("SET {}", "@@global.a.b=".repeat(many / 8)),
        "PREPARE a FROM 'PREPARE a FROM \"".repeat(many / 16),
        "EXECUTE IMMEDIATE ".repeat(many / 16),
        ";".repeat(many),
        "USE a;".repeat(many / 8),
        "'\\".repeat(many),
        "a.".repeat(many),
        "@".repeat(many),
        "CREATE PROCEDURE p() BEGIN ".repeat(many / 16),
        "COMMIT AND ".repeat(many / 16),
        "BEGIN /* */".repeat(many / 16),
        "CONNECTION_ID(".repeat(many / 16),
    ] {
        let text = text.as_bytes();
        let _effects = effects(text, PLAIN);
        let details = details(text, PLAIN);
        assert!(details.names.len() <= 64 && details.assignments.len() <= 64);
        let _rewritten = rewrite_connection_id(text, PLAIN, 7, &mut Vec::new());
    }
}
