//! Tables for each rule, and properties of the rules for any bytes.

use proptest::prelude::*;

use super::*;

const FLOAT: ComparisonRule = ComparisonRule::Float { absolute: 0.01, relative: 0.001 };

fn check(rule: ComparisonRule, cases: &[(&str, &str, bool)]) {
    for (actual, expected, equal) in cases {
        let difference = difference(rule, actual.as_bytes(), expected.as_bytes());
        assert_eq!(difference.is_none(), *equal, "{rule:?} {actual:?} {expected:?} {difference:?}");
    }
}

#[test]
fn exact_is_byte_for_byte() {
    check(
        ComparisonRule::Exact,
        &[("", "", true), ("a\n", "a\n", true), ("a\n", "a", false), ("a", "b", false)],
    );
    assert!(difference(ComparisonRule::Exact, b"\xff\0", b"\xff\0").is_none());
    assert_eq!(
        difference(ComparisonRule::Exact, b"abc", b"abd").unwrap(),
        "differs from what is expected at byte 3"
    );
}

#[test]
fn space_at_the_end_of_lines_and_of_all_does_not_count() {
    check(
        ComparisonRule::TrailingSpace,
        &[
            ("", "\n \n", true),
            ("a \r\nb\n\n", "a\nb", true),
            ("a\n\nb", "a\nb", false),
            (" a", "a", false),
            ("a  b", "a b", false),
            ("a\nb", "a\nb\nc", false),
            ("a\nb\nc", "a\nb", false),
            ("\n a", " a", false),
        ],
    );
}

#[test]
fn words_are_what_scanf_reads() {
    check(
        ComparisonRule::Tokens,
        &[
            ("", " \n", true),
            (" 1\t2\r\n3\u{b}4\u{c}", "1 2 3 4", true),
            ("12", "1 2", false),
            ("1", "1 2", false),
            ("1 2", "1", false),
            ("1.0", "1", false),
            // Not white space in C.
            ("a\u{a0}b", "a b", false),
        ],
    );
}

#[test]
fn numbers_may_differ_within_either_tolerance() {
    check(
        FLOAT,
        &[
            ("0.009", "0", true),
            ("0.011", "0", false),
            ("1000.9", "1000", true),
            ("1001.1", "1000", false),
            ("-1", "1", false),
            ("1e3 x", "1000 x", true),
            ("x 1", "y 1", false),
            ("+.5", "0.500", true),
            ("nan", "NaN", true),
            ("nan", "1", false),
            ("1", "nan", false),
            ("inf", "Infinity", true),
            ("-inf", "inf", false),
            ("1e999", "inf", true),
            ("inf", "1e308", false),
            ("1e308", "-1e308", false),
            ("5e-324", "0", true),
            ("0x10", "16", false),
            ("1,5", "1.5", false),
            ("1e", "1", false),
        ],
    );
    let none = ComparisonRule::Float { absolute: 0.0, relative: 0.0 };
    check(none, &[("1.0", "1", true), ("5e-324", "0", false), ("1.7e308", "-1.7e308", false)]);
    let huge = ComparisonRule::Float { absolute: 0.0, relative: 3.0 };
    check(huge, &[("1.7e308", "-1.7e308", true)]);
}

#[test]
fn megabytes_are_compared_in_one_pass() {
    for byte in [b' ', b'\n', b'1', 0] {
        let text = vec![byte; 8 << 20];
        for rule in
            [ComparisonRule::Exact, ComparisonRule::TrailingSpace, ComparisonRule::Tokens, FLOAT]
        {
            assert_eq!(difference(rule, &text, &text), None, "{byte} {rule:?}");
        }
    }
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b" ".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\xff".to_vec()),
        Just(b"1.5".to_vec()),
        Just(b"nan".to_vec()),
        "[ab]{1,2}".prop_map(String::into_bytes),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// Each rule accepts everything that the stricter one before it accepts, and all but the last
    /// one are symmetric.
    #[test]
    fn each_rule_is_looser_than_the_one_before(a in text(), b in text()) {
        let text_rules =
            [ComparisonRule::Exact, ComparisonRule::TrailingSpace, ComparisonRule::Tokens];
        let [exact, trailing, tokens] = text_rules;
        let rules = [exact, trailing, tokens, FLOAT];
        let equal = rules.map(|rule| difference(rule, &a, &b).is_none());
        prop_assert!(equal.is_sorted(), "{:?}", equal);
        prop_assert_eq!(equal[0], a == b);
        let reversed = text_rules.map(|rule| difference(rule, &b, &a).is_none());
        prop_assert_eq!(&reversed[..], &equal[..3]);
    }

    #[test]
    fn an_answer_equals_itself_with_space_at_its_end(a in text()) {
        prop_assert_eq!(difference(ComparisonRule::Exact, &a, &a), None);
        let mut longer = a.clone();
        longer.extend_from_slice(b" \n\n");
        prop_assert_eq!(difference(ComparisonRule::TrailingSpace, &longer, &a), None);
        longer.extend_from_slice(b"x");
        prop_assert!(difference(FLOAT, &longer, &a).is_some());
    }

    #[test]
    fn floats_are_close_as_arithmetic_says(a in -1e6_f64..1e6, d in -0.1_f64..0.1) {
        let b = a + d;
        let rule = ComparisonRule::Float { absolute: 0.05, relative: 0.0 };
        let equal = difference(rule, a.to_string().as_bytes(), b.to_string().as_bytes()).is_none();
        prop_assert_eq!(equal, (a - b).abs() <= 0.05);
    }
}
