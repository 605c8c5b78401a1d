//! Errors are in terms of JSON, at the field that has them.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only errors are looked at")]
struct Asked {
    name: String,
    #[serde(default)]
    count: Option<u32>,
    #[serde(default)]
    share: f64,
    #[serde(default)]
    is_open: bool,
    #[serde(default)]
    limits: AskedLimits,
    #[serde(default)]
    parts: Vec<AskedLimits>,
    #[serde(default)]
    by_name: BTreeMap<String, AskedLimits>,
    #[serde(default)]
    kind: Option<AskedKind>,
    #[serde(default)]
    grant: Option<api::Grant>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AskedLimits {
    cpu_ms: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "only errors are looked at")]
enum AskedKind {
    Small,
    Large { by: u8 },
}

#[test]
fn what_is_wrong_is_said_in_words_of_json() {
    const WHOLE: &str = "expected a whole number from 0 to 4294967295";
    for (text, field, message) in [
        (r#"{"name": 5}"#, "name", "expected a string, got the number 5"),
        (r#"{"name": null}"#, "name", "expected a string, got `null`"),
        (r#"{"name": "a", "count": "x"}"#, "count", &format!("{WHOLE}, got the string \"x\"")),
        (r#"{"name": "a", "count": 1.5}"#, "count", &format!("{WHOLE}, got the number 1.5")),
        (r#"{"name": "a", "count": -1}"#, "count", "expected a whole number from 0"),
        (r#"{"name": "a", "share": []}"#, "share", "expected a number, got an array"),
        (
            r#"{"name": "a", "is_open": 1}"#,
            "is_open",
            "expected `true` or `false`, got the number 1",
        ),
        (r#"{"name": "a", "parts": {}}"#, "parts", "expected an array, got an object"),
        (r#"{"name": "a", "by_name": []}"#, "by_name", "expected an object, got an array"),
        (
            r#"{"name": "a", "kind": "big"}"#,
            "kind",
            "unknown value `big`, expected `small` or `large`",
        ),
        (r#"{"name": "a", "size": 1}"#, "size", "unknown field `size`"),
        (r#"{}"#, "name", "missing field `name`"),
        // The order of fields is not part of the interface, at any depth.
        (r#"["a", 1]"#, "", "the request body: expected an object, got an array"),
        (r#"{"name": "a", "limits": [5]}"#, "limits", "expected an object, got an array"),
        (r#"{"name": "a", "parts": [[5]]}"#, "parts[0]", "expected an object, got an array"),
        (
            r#"{"name": "a", "by_name": {"x": [5]}}"#,
            "by_name.x",
            "expected an object, got an array",
        ),
        (r#"{"name": "a", "kind": {"large": [5]}}"#, "kind", "expected an object, got an array"),
        (r#"{"name": "a", "grant": ["model"]}"#, "grant", "expected an object, got an array"),
        (
            r#"{"name": "a", "grant": {"kind": "postgres", "tenant": "t", "limits": [1]}}"#,
            "grant",
            "expected an object, got an array",
        ),
        (
            r#"{"name": "a", "grant": {"kind": "http", "rules": [["allow", ["x"]]]}}"#,
            "grant",
            "expected an object, got an array",
        ),
        (r#""text""#, "", "the request body: expected an object, got the string \"text\""),
    ] {
        let error = parse_json::<Asked>("the request body", text.as_bytes()).unwrap_err();
        let detail = error.detail();
        let whole = detail.message.starts_with(message) && !detail.message.contains(" at line ");
        assert!(whole, "{text}: {}", detail.message);
        let found = detail.field.as_deref().unwrap_or_default();
        assert!(found.starts_with(field), "{text}: {found}");
        for word in ["u32", "u64", "struct", "enum", "sequence", "invalid type"] {
            assert!(!detail.message.contains(word), "{text}: {}", detail.message);
        }
    }
}

#[test]
fn what_is_no_json_is_said_in_words_of_json() {
    for (text, message) in [
        ("\u{feff}{}", "it begins with a byte order mark"),
        ("{\"name\": }", "a value is missing or is not written as JSON has it at line 1 column 10"),
        ("{\"name\": \"a\"", "it ends within an object"),
        ("{\"parts\": [", "it ends within an array"),
        ("{\"name\": \"a\"} x", "something follows the value"),
        ("{name: 1}", "a name is not in double quotes"),
    ] {
        let error = parse_json::<Asked>("the request body", text.as_bytes()).unwrap_err();
        let found = &error.detail().message;
        let rest = found.strip_prefix("the request body is not JSON: ");
        assert!(rest.is_some_and(|rest| rest.starts_with(message)), "{text}: {found}");
    }
}
