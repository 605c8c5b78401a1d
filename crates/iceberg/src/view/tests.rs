//! Commits change views as the reference (Iceberg 1.11) does, and documents are written back
//! unchanged.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::ident::Uuid;
use crate::{CatalogError, ErrorReason};

/// Results of the reference: `refused`, or `view`, in which `now` is the time of the commit. `ours`
/// is our result if it differs: the error, or the resulting version of the view.
const COMMITS: &str = include_str!("tests/commits.json");
const UUID: &str = "fa6506c3-7681-40c8-86dc-e36561f83385";
const NOW_MS: i64 = 1_700_000_000_000;

/// With all possible and some unknown members.
const DOCUMENT: &str = concat!(
    r#"{"format-version":1,"x-first":[1.50,{"y":null}],"location":"file:\/\/\/wh\/v\u00e9","#,
    r#""view-uuid":"fa6506c3-7681-40c8-86dc-e36561f83385","current-version-id":2,"#,
    r#""properties":{"comment":"\u00e4\n","a":""},"#,
    r#""version-log":[{"timestamp-ms":1000,"version-id":1,"x":1},"#,
    r#"{"version-id":2,"timestamp-ms":2000}],"schemas":[{"schema-id":1,"type":"struct","#,
    r#""fields":[{"id":1,"name":"x","required":false,"type":"int"}],"z":[]}],"#,
    r#""versions":[{"version-id":1,"timestamp-ms":1000,"schema-id":1,"summary":{},"#,
    r#""representations":[],"default-namespace":[]},"#,
    r#"{"version-id":2,"timestamp-ms":2000,"schema-id":1,"summary":{"u":"v"},"#,
    r#""default-catalog":null,"representations":[{"type":"sql","sql":"SELECT 1","#,
    r#""dialect":"Spark","x":0.10},{"type":"plan","p":{}}],"default-namespace":["a","b"],"#,
    r#""storage-table":{"ns":[]}}],"x-last":"\u0041"}"#
);

fn fragment(value: &Value) -> RawJson {
    RawJson::of(value).expect("JSON")
}

fn written(doc: &ViewDoc) -> Value {
    serde_json::from_slice(&doc.to_bytes()).expect("JSON")
}

/// Sorts the versions of a document by id, since their order has no meaning.
fn sorted(mut view: Value) -> Value {
    if let Some(versions) = view["versions"].as_array_mut() {
        versions.sort_by_key(|version| version["version-id"].as_i64());
    }
    // The reference does not write an empty map.
    let properties = &mut view["properties"];
    if *properties == json!({}) {
        *properties = Value::Null;
    }
    view
}

fn commit(base: &Value, updates: &Value) -> Result<ViewDoc> {
    let base = ViewDoc::parse(base.to_string().into())?;
    let body = json!({"requirements": [{"type": "assert-view-uuid", "uuid": UUID}],
        "updates": updates});
    let commit = parse_view_commit(&fragment(&body))?;
    check_view(&commit.requirements, &base)?;
    Ok(apply_view(&base, &commit.updates, NOW_MS)?.unwrap_or(base))
}

#[test]
fn commits_make_what_the_reference_makes() {
    let cases: Vec<Value> = serde_json::from_str(COMMITS).expect("a table");
    assert!(cases.len() >= 50);
    for case in cases {
        let made = commit(&case["base"], &case["updates"]);
        let refused = case["ours"].as_str().or(case["refused"].as_str());
        match (made, refused) {
            (Err(error), Some(message)) => {
                assert!(error.message.contains(message), "{case}\n{error:?}")
            }
            (Ok(doc), None) if case["ours"].is_i64() => {
                assert_eq!(json!(doc.current_version_id), case["ours"], "{case}");
                doc.settle().expect("a document");
            }
            (Ok(doc), None) => {
                let now = case["view"].to_string().replace("\"now\"", &NOW_MS.to_string());
                let expected: Value = serde_json::from_str(&now).expect("JSON");
                assert_eq!(sorted(written(&doc)), sorted(expected), "{case}");
                doc.settle().expect("a document");
            }
            (made, _) => panic!("{case}\n{made:?}"),
        }
    }
}

#[test]
fn what_changes_nothing_is_no_commit() {
    let base = ViewDoc::parse(DOCUMENT.into()).expect("a document");
    let version: Value = base.current_version().expect("a version").raw.decode().expect("JSON");
    let schema: Value = base.current_schema().expect("a schema").raw.decode().expect("JSON");
    for updates in [
        json!([]),
        json!([{"action": "set-location", "location": "file:///wh/v\u{e9}"}]),
        json!([{"action": "set-properties", "updates": {"a": ""}}]),
        json!([{"action": "remove-properties", "removals": ["b"]}]),
        json!([{"action": "add-schema", "schema": schema}]),
        json!([{"action": "add-view-version", "view-version": version},
               {"action": "set-current-view-version", "view-version-id": -1}]),
        json!([{"action": "upgrade-format-version", "format-version": 1}]),
        json!([{"action": "assign-uuid", "uuid": UUID.to_uppercase()}]),
    ] {
        let body = json!({"updates": updates});
        let commit = parse_view_commit(&fragment(&body)).expect("a commit");
        let made = apply_view(&base, &commit.updates, NOW_MS).expect("carried out");
        assert!(made.is_none(), "{updates} {made:?}");
    }
}

#[test]
fn what_is_no_commit_is_refused() {
    let other = "fa6506c3-7681-40c8-86dc-e36561f83386";
    for (body, kind, expected) in [
        (json!({}), ErrorReason::BadRequest, "`updates` is missing"),
        (json!({"updates": [{"action": "add-snapshot"}]}), ErrorReason::BadRequest, "add-snapshot"),
        (
            json!({"updates": [{}]}),
            ErrorReason::IllegalArgument,
            "Cannot parse missing string: action",
        ),
        (
            json!({"updates": [7]}),
            ErrorReason::IllegalArgument,
            "a number where an object is expected",
        ),
        (
            json!({"requirements": [{"type": "assert-create"}], "updates": []}),
            ErrorReason::BadRequest,
            "Unknown requirement type: assert-create",
        ),
        (
            json!({"requirements": [{"type": "assert-view-uuid", "uuid": other}], "updates": []}),
            ErrorReason::CommitFailed,
            "Requirement failed: view UUID does not match: expected \
             fa6506c3-7681-40c8-86dc-e36561f83385 != fa6506c3-7681-40c8-86dc-e36561f83386",
        ),
        (
            json!({"updates": vec![json!({"action": "set-location", "location": "x"}); 1001]}),
            ErrorReason::TooLarge,
            "1000 updates",
        ),
        (
            json!({"updates": [{"action": "set-location", "location": ""}]}),
            ErrorReason::IllegalArgument,
            "Invalid location",
        ),
        (
            json!({"updates": [{"action": "add-schema", "schema": {"type": "struct", "fields": [
                {"id": 1, "name": "a", "required": true, "type": "int"},
                {"id": 1, "name": "b", "required": true, "type": "int"}]}}]}),
            ErrorReason::Validation,
            "Multiple entries with same key: 1",
        ),
    ] {
        let base = ViewDoc::parse(DOCUMENT.into()).expect("a document");
        let act = || -> Result<()> {
            let commit = parse_view_commit(&fragment(&body))?;
            check_view(&commit.requirements, &base)?;
            apply_view(&base, &commit.updates, NOW_MS).map(drop)
        };
        let error: CatalogError = act().expect_err("refused");
        assert_eq!(error.kind, kind, "{body} {error:?}");
        assert!(error.message.contains(expected), "{body} {error:?}");
    }
}

#[test]
fn the_log_and_the_versions_are_bounded() {
    let version = |sql: usize| {
        json!({"version-id": 1, "timestamp-ms": 1, "schema-id": 1, "summary": {},
            "representations": [{"type": "sql", "sql": sql.to_string(), "dialect": "spark"}],
            "default-namespace": ["n"]})
    };
    let mut doc = ViewDoc::parse(DOCUMENT.into()).expect("a document");
    let current = json!({"action": "set-current-view-version", "view-version-id": -1});
    for turn in 0..VERSION_LOG_MAX + 20 {
        let add = json!({"action": "add-view-version", "view-version": version(turn % 2)});
        let commit = parse_view_commit(&fragment(&json!({"updates": [add, current]})));
        let made = apply_view(&doc, &commit.expect("a commit").updates, NOW_MS);
        doc = made.expect("carried out").expect("a change");
    }
    assert_eq!((doc.versions.len(), doc.version_log.len()), (4, VERSION_LOG_MAX));
    let adds: Vec<Value> = (0..=ADDED_MAX)
        .map(|sql| json!({"action": "add-view-version", "view-version": version(sql)}))
        .collect();
    let commit = parse_view_commit(&fragment(&json!({"updates": adds}))).expect("a commit");
    let refused = apply_view(&doc, &commit.updates, NOW_MS).expect_err("too many");
    assert_eq!(refused.kind, ErrorReason::TooLarge);
    let many = vec![json!({"type": "sql", "sql": "", "dialect": "d"}); REPRESENTATIONS_MAX + 1];
    let mut version = version(0);
    version["representations"] = json!(many);
    let add = json!({"updates": [{"action": "add-view-version", "view-version": version}]});
    assert_eq!(
        parse_view_commit(&fragment(&add)).expect_err("too many").kind,
        ErrorReason::TooLarge
    );
}

#[test]
fn a_view_begins_with_its_first_version() {
    let body = json!({
        "name": "v", "location": "file:///wh/v", "properties": {"k": "v", "uuid": "kept"},
        "schema": {"type": "struct", "schema-id": 9, "fields": [
            {"id": 3, "name": "x", "required": false, "type": "timestamp_ns"}]},
        "view-version": {"version-id": 7, "timestamp-ms": 5, "schema-id": 9,
            "summary": {"engine-name": "e"}, "default-catalog": "c", "default-namespace": ["n"],
            "representations": [{"type": "sql", "sql": "select 1", "dialect": "trino"}]},
    });
    let request = CreateView::parse(&fragment(&body)).expect("a request");
    assert_eq!((request.name.as_str(), request.location.as_deref()), ("v", Some("file:///wh/v")));
    let uuid: Uuid = UUID.parse().expect("a UUID");
    let doc = request.document(uuid, "file:///wh/v", NOW_MS).expect("a view");
    let mut version = body["view-version"].clone();
    version["version-id"] = json!(1);
    version["schema-id"] = json!(0);
    let mut schema = body["schema"].clone();
    schema["schema-id"] = json!(0);
    let expected = json!({
        "view-uuid": UUID, "format-version": 1, "location": "file:///wh/v",
        "properties": {"k": "v", "uuid": "kept"}, "schemas": [schema], "current-version-id": 1,
        "versions": [version], "version-log": [{"timestamp-ms": 5, "version-id": 1}],
    });
    assert_eq!(written(&doc), expected);
    let (settled, bytes) = doc.settle().expect("a document");
    assert_eq!(settled.to_bytes(), bytes);
    let refused = |change: fn(&mut Value), message: &str| {
        let mut changed = body.clone();
        change(&mut changed);
        let made = CreateView::parse(&fragment(&changed))
            .and_then(|request| request.document(uuid, "file:///wh/v", NOW_MS));
        let error = made.expect_err(message);
        assert!(error.message.contains(message), "{error:?}");
    };
    refused(|it| it["name"] = json!(null), "Cannot parse missing field: name");
    refused(|it| it["schema"] = json!(null), "Cannot parse missing field: schema");
    refused(|it| it["view-version"] = json!(null), "Cannot parse missing field: view-version");
    refused(|it| it["view-version"]["summary"] = json!(null), "missing map: summary");
    refused(
        |it| it["view-version"]["representations"] = json!([]),
        "Cannot create view without specifying a query",
    );
    refused(
        |it| it["view-version"]["representations"][0] = json!({"type": "plan"}),
        "Found unsupported view representations: [plan]",
    );
    refused(|it| it["schema"]["fields"][0]["id"] = json!(null), "has no id");
    refused(
        |it| it["properties"] = json!({"version.history.num-entries": "-1"}),
        "version.history.num-entries must be positive but was -1",
    );
}

#[test]
fn documents_come_back_byte_for_byte() {
    let doc = ViewDoc::parse(DOCUMENT.into()).expect("a document");
    assert_eq!(doc.to_bytes(), DOCUMENT);
    assert!(doc.size_hint() >= DOCUMENT.len(), "{}", doc.size_hint());
    let unknown: Vec<String> = doc.unknown().map(|(name, _)| name.to_string()).collect();
    assert_eq!(unknown, ["x-first", "x-last"]);
    // Parts that a commit does not change are preserved.
    let body = json!({"updates": [{"action": "set-location", "location": "file:///w"}]});
    let commit = parse_view_commit(&fragment(&body)).expect("a commit");
    let new = apply_view(&doc, &commit.updates, NOW_MS).expect("carried out").expect("a change");
    let expected = DOCUMENT.replace(r"file:\/\/\/wh\/v\u00e9", "file:///w");
    assert_eq!(new.to_bytes(), expected);
    let spaced = DOCUMENT.replace("},", "} ,\n ").replace("\":", "\" : ");
    let doc = ViewDoc::parse(spaced.into()).expect("a document");
    let (one, two): (Value, Value) = (written(&doc), serde_json::from_str(DOCUMENT).expect("JSON"));
    assert_eq!(one, two);
}

proptest! {
    #[test]
    fn hostile_documents_are_refused_or_come_back(
        at in 0..DOCUMENT.len(),
        start in 0..DOCUMENT.len(),
        length in 0_usize..40,
    ) {
        let whole = DOCUMENT.as_bytes();
        let piece = &whole[start..(start + length).min(whole.len())];
        let after = (at + length).min(whole.len());
        let text = [&whole[..at], piece, &whole[after..]].concat();
        if let Ok(doc) = ViewDoc::parse(text.clone().into()) {
            prop_assert_eq!(written(&doc), serde_json::from_slice::<Value>(&text).expect("JSON"));
            prop_assert!(doc.settle().is_ok());
        }
        // The same text as a commit's version, or as a request.
        if let Ok(raw) = RawJson::parse(text.into()) {
            let _either = CreateView::parse(&raw);
            let _either = parse_view_commit(&raw);
        }
    }
}
