//! Valid and invalid JSON, compared with `serde_json`.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn fragment(text: &str) -> RawJson {
    RawJson::parse(Bytes::copy_from_slice(text.as_bytes())).expect(text)
}

/// The value, taken apart and rebuilt by this crate.
fn rebuilt(fragment: &RawJson) -> Value {
    match fragment.kind() {
        JsonKind::Object => {
            let members = fragment.members().expect("an object");
            Value::Object(members.map(|(name, it)| (name.into_owned(), rebuilt(&it))).collect())
        }
        JsonKind::Array => {
            Value::Array(fragment.items().expect("items").map(|it| rebuilt(&it)).collect())
        }
        JsonKind::String => Value::String(fragment.as_str().expect("a string").into_owned()),
        JsonKind::Bool => Value::Bool(fragment.as_bool().expect("a boolean")),
        JsonKind::Null => Value::Null,
        JsonKind::Number => serde_json::from_str(fragment.text()).expect("a number"),
    }
}

/// Checks that both readers agree on validity and content.
fn check(text: &[u8]) {
    let ours = RawJson::parse(Bytes::copy_from_slice(text));
    let readable = String::from_utf8_lossy(text);
    match (serde_json::from_slice::<Value>(text), ours) {
        (Ok(theirs), Ok(ours)) => {
            assert_eq!(rebuilt(&ours), theirs, "{readable}");
            let compact = ours.compact();
            assert_eq!(rebuilt(&compact), theirs, "{readable}");
            assert_eq!(compact.compact(), compact);
        }
        (Err(_), Err(_)) => {}
        // The reader of a number decides whether it can be represented.
        (Err(error), Ok(_)) if error.to_string().contains("number out of range") => {}
        (theirs, ours) => panic!("{readable}: serde_json {theirs:?}, ours {ours:?}"),
    }
}

/// Cases at the borders of the grammar.
const BORDERS: &[&str] = &[
    "",
    " ",
    "null",
    " null ",
    "nul",
    "nulls",
    "true",
    "false",
    "0",
    "-0",
    "01",
    "-",
    "1.",
    ".5",
    "1.5e",
    "1.5e+",
    "1.5e+7",
    "1E400",
    "-1e-7",
    "+1",
    "1 2",
    "\"",
    "\"\\\"",
    "\"\\\"\"",
    "\"\\u12\"",
    "\"\\u0041\\n\\/\"",
    "\"\\ud834\\udd1e\"",
    "\"\\ud834\"",
    "\"\\udd1e\"",
    "\"\\ud834\\u0041\"",
    "\"\\ud834\\ud834\"",
    "\"\\x41\"",
    "\"\t\"",
    "\"\u{7f}é\u{1F600}\"",
    "\"1234567\\n\"",
    "\"12345678\"",
    "\"12345678\u{1}\"",
    "\"1234567\u{1f}8901234\"",
    "[]",
    "[ ]",
    "[,]",
    "[1,]",
    "[1 2]",
    "[1",
    "]",
    "{}",
    "{ }",
    "{,}",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{\"a\" : 1 , \"b\":[ {} , [ ] ]}",
    "{a:1}",
    "{\"a\":1]",
    "[1}",
    "[[[[]]]",
    "{\"a\":1,\"a\":2}",
    "\u{feff}1",
    "[1,\n2,\r\n\t3 ]",
    "{\"\\u0061\":1}",
    "/**/1",
    "NaN",
    "[true,false,null,\"x\",{\"y\":[1.0,2e2]}]",
    "{\"a\":{\"b\":{\"c\":[{\"d\":[[]]}]}}}",
    "\0",
];

#[test]
fn both_readers_agree_at_the_borders_of_the_grammar() {
    for case in BORDERS {
        check(case.as_bytes());
    }
    for bytes in [&b"\"\xff\""[..], b"\"\xc3\"", b"\xe2\x82", b"\"\xed\xa0\x80\"", b"[\"\x80\"]"] {
        assert!(matches!(
            RawJson::parse(Bytes::from_static(bytes)),
            Err(JsonError::Malformed { what: "a byte that is not UTF-8", .. })
        ));
    }
}

#[test]
fn a_tower_of_values_is_refused_without_a_stack() {
    let tower = |height: usize| "[".repeat(height) + &"]".repeat(height);
    let depth = DEPTH_MAX;
    assert!(RawJson::parse(tower(depth).into()).is_ok());
    let refused = RawJson::parse(tower(depth + 1).into());
    assert_eq!(refused, Err(JsonError::TooDeep(DEPTH_MAX)));
    // Objects and arrays alternate, so that each end must match.
    let mixed = "[{\"a\":".repeat(depth / 2) + "1" + &"}]".repeat(depth / 2);
    assert!(RawJson::parse(mixed.clone().into()).is_ok());
    let wrong = mixed.replacen("}]}]", "}]]}", 1);
    assert!(matches!(RawJson::parse(wrong.into()), Err(JsonError::Malformed { .. })));
    // serde's limit is lower, and is reported.
    let deep = RawJson::parse(tower(depth).into()).expect("not too deep");
    let read = deep.decode::<serde_json::Value>();
    assert_eq!(read, Err(JsonError::TooDeep(DECODED_DEPTH_MAX)));
    assert!(RawJson::parse("[".repeat(10_000_000).into()).is_err());
    assert!(RawJson::parse("{\"a\":".repeat(1_000_000).into()).is_err());
    // Values entered member by member count as well.
    fn descend(cursor: &mut JsonCursor<'_>) -> Result<(), JsonError> {
        cursor.array(descend)
    }
    let text = tower(depth + 1);
    assert!(descend(&mut JsonCursor::new(text.as_bytes()).expect("UTF-8")).is_err());
    let text = tower(depth);
    descend(&mut JsonCursor::new(text.as_bytes()).expect("UTF-8")).expect("not too deep");
}

#[test]
fn numbers_keep_every_digit() {
    let text =
        "[9223372036854775807,-9223372036854775808,7258950548773449607,9223372036854775808,1.0]";
    let items: Vec<_> = fragment(text).items().expect("items").collect();
    let whole: Vec<_> = items.iter().map(RawJson::as_i64).collect();
    assert_eq!(whole[..3], [Some(i64::MAX), Some(i64::MIN), Some(7_258_950_548_773_449_607)]);
    assert_eq!(whole[3..], [None, None]);
    assert_eq!(items[3].text(), "9223372036854775808");
    assert_eq!(items[2].as_i32(), None);
}

#[test]
fn only_white_space_that_means_nothing_is_left_out() {
    let text = " [ \"\" , \" a \\\" b \" ,\n{ \"\\\\\" : 1 } ] ";
    assert_eq!(fragment(text).compact().text(), r#"[""," a \" b ",{"\\":1}]"#);
}

#[test]
fn a_member_is_set_where_it_is_or_at_the_end() {
    let with =
        |text, name| fragment(text).with(name, &RawJson::integer(7)).map(|it| it.text().to_owned());
    assert_eq!(with(r#"{"a":1,"b":[ ],"a":2}"#, "a").as_deref(), Ok(r#"{"a":7,"b":[ ]}"#));
    assert_eq!(with(r#"{"a":1}"#, "b").as_deref(), Ok(r#"{"a":1,"b":7}"#));
    assert_eq!(with("{}", "b").as_deref(), Ok(r#"{"b":7}"#));
    assert!(with("[]", "b").is_err());
}

#[test]
fn a_strings_form_is_kept_and_does_not_matter_for_what_it_says() {
    let escaped = RawString::of(&fragment(r#""\u0061\/b""#)).expect("a string");
    assert_eq!(escaped, "a/b");
    assert_eq!(escaped, RawString::new("a/b"));
    assert_eq!(escaped.raw(), br#""\u0061\/b""#);
    assert_ne!(escaped, RawString::new("a/c"));
}

/// Text that is JSON or almost: written by `serde_json`, with white space and bytes inserted.
fn nearly_json() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::String),
    ];
    let value = leaf.prop_recursive(6, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec((".{0,12}", inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    });
    let alphabet = prop::sample::select(b"{}[]\",:\\ \n\tu0-1e.tfn\x01\xff\xc3".to_vec());
    let edits = prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8, alphabet), 0..4);
    (value, any::<bool>(), edits).prop_map(|(value, pretty, edits)| {
        let written =
            if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) };
        let mut text = written.expect("JSON");
        for (place, act, byte) in edits {
            let at = place.index(text.len() + 1);
            match act {
                0 => text.insert(at, byte),
                1 if at < text.len() => text[at] = byte,
                2 if at < text.len() => drop(text.remove(at)),
                _ => text.truncate(at),
            }
        }
        text
    })
}

proptest! {
    #[test]
    fn both_readers_agree_on_nearly_json(text in nearly_json()) {
        check(&text);
    }

    #[test]
    fn both_readers_agree_on_bytes(text in prop::collection::vec(any::<u8>(), 0..60)) {
        check(&text);
    }

    #[test]
    fn what_is_written_is_read_back(
        names in prop::collection::btree_map(".*", any::<i64>(), 0..8),
    ) {
        let mut out = vec![b'{'];
        for (name, number) in &names {
            put_name(&mut out, name);
            put_integer(&mut out, *number);
        }
        out.push(b'}');
        let read: BTreeMap<String, i64> = serde_json::from_slice(&out).expect("JSON");
        prop_assert_eq!(&read, &names);
        let ours = RawJson::parse(out.into()).expect("JSON");
        for (name, number) in &names {
            prop_assert_eq!(ours.get(name).and_then(|it| it.as_i64()), Some(*number));
            prop_assert!(RawString::new(name) == name.as_str());
        }
    }

    #[test]
    fn the_search_for_special_bytes_misses_none(
        text in "[ -~]{0,40}",
        at in 0..40_usize,
        byte in 0..128_u8,
    ) {
        let mut bytes = text.into_bytes();
        if at < bytes.len() {
            bytes[at] = byte;
        }
        check(&[b"\"", &bytes[..], b"\""].concat());
    }
}

#[test]
fn what_was_checked_is_walked_as_it_was_checked() {
    for text in [
        r#"{"a":1,"b":[true,null,-1.5e+3],"c":{"d":"x","e":[]},"f":"last"}"#,
        " { \"a\" : 1 ,\n\"b\" : [ 1 , { } , [ \"]}\" ] ] , \"c\" : \"\\\\\" }\t",
        r#"{"quote\"d":"\"","brackets":"{[\\\"","unicode":"\u005d\u0022ä","empty":""}"#,
        r#"{"a":{"a":{"a":[[[0]]]}},"b":false}"#,
        "{}",
    ] {
        let value = RawJson::parse(Bytes::from(text.to_owned())).unwrap();
        let mut checked = Vec::new();
        let mut cursor = JsonCursor::new(value.as_bytes()).unwrap();
        let walked = cursor.object(|cursor, name| {
            checked.push((name.decode().into_owned(), cursor.value()?.to_owned()));
            Ok::<(), JsonError>(())
        });
        walked.unwrap();
        let members: Vec<_> = value.members().unwrap().collect();
        let found = members.iter().map(|(name, value)| (name.to_string(), value.text().to_owned()));
        assert_eq!(found.collect::<Vec<_>>(), checked, "{text}");
    }
    let items =
        RawJson::parse(Bytes::from_static(b"[ 1, \"a,]\\\\\" , [2,[3]],{\"b\":[]} ]")).unwrap();
    let items: Vec<_> = items.items().unwrap().map(|it| it.text().to_owned()).collect();
    assert_eq!(items, ["1", "\"a,]\\\\\"", "[2,[3]]", "{\"b\":[]}"]);
}

#[test]
fn members_are_found_in_one_walk_and_the_last_of_a_name_counts() {
    let value = RawJson::parse(Bytes::from_static(br#"{"a":1,"b":null,"a":2,"c":3}"#)).unwrap();
    let found = value.all_present(["c", "a", "b", "d"]);
    let found = found.map(|it| it.and_then(|value| value.as_i64()));
    assert_eq!(found, [Some(3), Some(2), None, None]);
    assert_eq!(RawJson::null().all_present(["a"]), [None]);
}
