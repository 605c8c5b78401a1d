//! Foreign documents are written back unchanged, and contradictory ones are rejected.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A document of version 2 with all known and some unknown members.
pub(crate) const V2: &str = concat!(
    r#"{"format-version":2,"table-uuid":"9c12d441-03fe-4693-9a96-a0705ddf69c1","#,
    r#""location":"file:\/\/\/wh\/ns\/t\u00e9","x-first":[1.50,{"y":null}],"#,
    r#""last-sequence-number":34,"last-updated-ms":1602638573590,"last-column-id":3,"#,
    r#""current-schema-id":1,"schemas":[{"type":"struct","schema-id":0,"fields":[{"id":1,"#,
    r#""name":"x","required":true,"type":"long"}]},{"type":"struct","schema-id":1,"#,
    r#""identifier-field-ids":[1,2],"fields":[{"id":1,"name":"x","required":true,"type":"long"},"#,
    r#"{"id":2,"name":"y","required":true,"type":"long","doc":"comment"},"#,
    r#"{"id":3,"name":"z","required":true,"type":"a type of tomorrow(7)"}]}],"#,
    r#""default-spec-id":0,"partition-specs":[{"spec-id":0,"fields":[{"name":"x","#,
    r#""transform":"identity","source-id":1,"field-id":1000}]}],"last-partition-id":1000,"#,
    r#""default-sort-order-id":3,"sort-orders":[{"order-id":3,"fields":[{"transform":"identity","#,
    r#""source-id":2,"direction":"asc","null-order":"nulls-first"}]}],"#,
    r#""properties":{"read.split.target.size":"134217728","k\u0065y":"v\/w"},"#,
    r#""current-snapshot-id":3055729675574597004,"snapshots":[{"snapshot-id":3051729675574597004,"#,
    r#""timestamp-ms":1515100955770,"sequence-number":0,"summary":{"operation":"append"},"#,
    r#""manifest-list":"s3://a/b/1.avro"},{"snapshot-id":3055729675574597004,"#,
    r#""parent-snapshot-id":3051729675574597004,"timestamp-ms":1555100955770,"#,
    r#""sequence-number":1,"summary":{"operation":"append","total-records":"7"},"#,
    r#""manifest-list":"s3://a/b/2.avro","schema-id":1,"x-new":{}}],"#,
    r#""snapshot-log":[{"snapshot-id":3051729675574597004,"timestamp-ms":1515100955770},"#,
    r#"{"snapshot-id":3055729675574597004,"timestamp-ms":1555100955770}],"#,
    r#""metadata-log":[{"timestamp-ms":1515100955770,"metadata-file":"s3://b/v1.json"}],"#,
    r#""refs":{"main":{"snapshot-id":3055729675574597004,"type":"branch"},"t":{"type":"tag","#,
    r#""snapshot-id":3051729675574597004,"max-ref-age-ms":10000000,"x":1}},"#,
    r#""statistics":[{"snapshot-id":3055729675574597004,"statistics-path":"s3://a/b.puffin","#,
    r#""file-size-in-bytes":413,"file-footer-size-in-bytes":42,"blob-metadata":[]}],"#,
    r#""partition-statistics":[],"x-last":"\ud83d\ude00"}"#
);

/// An old one of version 1, with only the singular members.
pub(crate) const V1: &str = concat!(
    r#"{"format-version":1,"table-uuid":"d20125c8-7284-442c-9aea-15fee620737c","#,
    r#""location":"s3://bucket/test","last-updated-ms":1602638573874,"last-column-id":3,"#,
    r#""schema":{"type":"struct","fields":[{"id":1,"name":"x","required":true,"type":"long"},"#,
    r#"{"id":2,"name":"y","required":true,"type":"long"},"#,
    r#"{"id":3,"name":"z","required":true,"type":"long"}]},"#,
    r#""partition-spec":[{"name":"x","transform":"identity","source-id":1},"#,
    r#"{"name":"y","transform":"identity","source-id":2}],"#,
    r#""properties":{},"current-snapshot-id":-1,"snapshots":[{"snapshot-id":1,"#,
    r#""timestamp-ms":1515100955770,"manifests":["a.avro"]}]}"#
);

/// The shortest one of version 3.
pub(crate) const V3: &str = concat!(
    r#"{"format-version":3,"table-uuid":"9c12d441-03fe-4693-9a96-a0705ddf69c2","#,
    r#""location":"file:/t","last-sequence-number":0,"last-updated-ms":1602638573590,"#,
    r#""last-column-id":1,"#,
    r#""current-schema-id":0,"schemas":[{"type":"struct","schema-id":0,"fields":[{"id":1,"#,
    r#""name":"v","required":false,"type":"variant"}]}],"default-spec-id":0,"#,
    r#""partition-specs":[{"spec-id":0,"fields":[]}],"last-partition-id":999,"#,
    r#""default-sort-order-id":0,"sort-orders":[{"order-id":0,"fields":[]}],"#,
    r#""current-snapshot-id":null,"next-row-id":0,"snapshots":null}"#
);

pub(crate) fn parse(text: &str) -> TableDoc {
    TableDoc::parse(Bytes::copy_from_slice(text.as_bytes())).expect(text)
}

/// Checks that a document is written back byte for byte.
#[track_caller]
fn check_round_trip(text: &str) -> TableDoc {
    let doc = parse(text);
    let mut out = Vec::new();
    doc.put(&mut out);
    assert_eq!(String::from_utf8_lossy(&out), text);
    assert_eq!(doc.to_bytes(), text);
    assert!(doc.size_hint() >= text.len(), "{} < {}", doc.size_hint(), text.len());
    let (settled, bytes) = doc.clone().settle().expect("settled");
    assert_eq!(bytes, text);
    assert_eq!(settled.to_bytes(), text);
    assert_eq!(settled.settle().expect("settled again").1, text);
    doc
}

#[test]
fn documents_come_back_byte_for_byte() {
    check_round_trip(V2);
    check_round_trip(V1);
    check_round_trip(V3);
    // With members in another order, and without optional ones.
    let mut shuffled: Vec<(String, Value)> =
        serde_json::from_str::<serde_json::Map<_, _>>(V2).expect("JSON").into_iter().collect();
    shuffled.reverse();
    let text = shuffled.iter().map(|(k, v)| format!("{}:{v}", Value::from(k.as_str())));
    check_round_trip(&format!("{{{}}}", text.collect::<Vec<_>>().join(",")));
    for lost in ["properties", "snapshot-log", "metadata-log", "statistics", "x-first", "refs"] {
        let mut value: Value = serde_json::from_str(V2).expect("JSON");
        value.as_object_mut().expect("an object").remove(lost);
        check_round_trip(&value.to_string());
    }
}

#[test]
fn what_is_read_is_what_is_written() {
    let doc = check_round_trip(V2);
    assert_eq!(doc.location, "file:///wh/ns/té");
    assert_eq!(doc.current_snapshot_id, Some(3_055_729_675_574_597_004));
    assert_eq!(doc.properties.get("key").as_deref(), Some("v/w"));
    assert_eq!(doc.snapshot(3_055_729_675_574_597_004).and_then(|it| it.schema_id), Some(1));
    assert_eq!(doc.reference("t").map(|it| it.kind), Some(ReferenceKind::Tag));
    let unknown: Vec<String> = doc.unknown().map(|(name, _)| name.to_string()).collect();
    assert_eq!(unknown, ["x-first", "x-last"]);

    let old = check_round_trip(V1);
    assert_eq!((old.current_schema_id, old.default_spec_id, old.last_partition_id), (0, 0, 1001));
    assert_eq!(old.current_snapshot_id, None);
    assert_eq!(old.default_sort_order().map(|it| it.id), Some(0));
}

#[test]
fn a_reused_buffer_is_not_grown_again() {
    let doc = parse(V2);
    let mut out = Vec::new();
    doc.put(&mut out);
    let (place, capacity) = (out.as_ptr(), out.capacity());
    for _ in 0..3 {
        out.clear();
        doc.put(&mut out);
        assert_eq!((out.as_ptr(), out.capacity()), (place, capacity));
    }
}

#[test]
fn a_settled_document_lies_in_its_own_bytes_only() {
    let doc = parse(V2);
    let (settled, bytes) = doc.clone().settle().expect("settled");
    drop(doc);
    let range = bytes.as_ptr_range();
    let raws = (settled.snapshots.iter().map(|it| &it.raw))
        .chain(settled.schemas.iter().map(|it| &it.raw))
        .chain(settled.refs.iter().map(|it| &it.raw))
        .chain(settled.unknown().map(|(_, raw)| raw));
    for raw in raws {
        assert!(range.contains(&raw.as_bytes().as_ptr()), "{raw:?} lies elsewhere");
    }
}

#[test]
fn only_named_snapshots_are_written_for_refs() {
    let mut value: Value = serde_json::from_str(V2).expect("JSON");
    value["refs"].as_object_mut().expect("refs").remove("t");
    let doc = parse(&value.to_string());
    let mut out = Vec::new();
    doc.put_refs(&mut out);
    value["snapshots"].as_array_mut().expect("snapshots").remove(0);
    assert_eq!(serde_json::from_slice::<Value>(&out).expect("JSON"), value);
}

/// Checks that the document is rejected with `pointer` set to `value` (or removed), with this
/// message.
#[track_caller]
fn refused(text: &str, pointer: &str, value: Option<Value>, message: &str) {
    let mut whole: Value = serde_json::from_str(text).expect("JSON");
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    let parent = whole.pointer_mut(parent).expect(pointer);
    match value {
        Some(value) if parent.is_object() => parent[name] = value,
        Some(value) => parent.as_array_mut().expect("an array").push(value),
        None => drop(parent.as_object_mut().expect("an object").remove(name)),
    }
    let error = TableDoc::parse(whole.to_string().into()).expect_err(pointer);
    assert!(error.message.contains(message), "{pointer}: {}", error.message);
    assert_eq!(error.kind.status(), 400);
}

#[test]
fn what_contradicts_itself_is_refused() {
    let snapshot = json!({"snapshot-id": 3_051_729_675_574_597_004_i64, "timestamp-ms": 1});
    let cases = [
        ("/format-version", Some(json!(4)), "Cannot read unsupported version 4"),
        ("/format-version", Some(json!(0)), "Cannot read unsupported version 0"),
        ("/format-version", Some(json!("2")), "Cannot parse to a long value: format-version"),
        ("/format-version", None, "`format-version` is missing"),
        ("/table-uuid", None, "UUID is required in format v2"),
        ("/location", None, "`location` is missing"),
        ("/location", Some(json!("")), "no location"),
        ("/last-sequence-number", None, "last-sequence-number must exist in format v2"),
        ("/last-sequence-number", Some(json!(0)), "greater than last sequence number 0"),
        ("/last-updated-ms", None, "`last-updated-ms` is missing"),
        ("/last-updated-ms", Some(json!(5)), "Invalid update timestamp 5: before last snapshot"),
        ("/last-updated-ms", Some(json!(1.5)), "Cannot parse to a long value"),
        ("/last-column-id", Some(json!(1_u64 << 40)), "Cannot parse to an integer value"),
        ("/schemas", None, "schemas must exist in format v2"),
        ("/schemas", Some(json!([])), "no schema"),
        ("/schemas", Some(json!({})), "not an array"),
        ("/schemas/-", Some(json!({"schema-id": 1})), "several of one schema"),
        ("/current-schema-id", Some(json!(7)), "Cannot find schema with current-schema-id=7"),
        ("/default-spec-id", Some(json!(7)), "Cannot find partition spec"),
        ("/default-sort-order-id", Some(json!(7)), "Cannot find sort order"),
        ("/partition-specs", None, "partition-specs must exist in format v2"),
        ("/sort-orders", None, "sort-orders must exist in format v2"),
        ("/last-partition-id", None, "last-partition-id must exist in format v2"),
        ("/properties/n", Some(json!(1)), "the property `n` is not a string"),
        ("/current-snapshot-id", Some(json!(9)), "Cannot find current version"),
        (
            "/current-snapshot-id",
            Some(json!(3_051_729_675_574_597_004_i64)),
            "Current snapshot ID does not match main branch",
        ),
        ("/current-snapshot-id", None, "Current snapshot is not set, but main branch exists"),
        ("/refs/b", Some(json!({"snapshot-id": 9, "type": "branch"})), "Snapshot for reference b"),
        ("/refs/b", Some(json!({"snapshot-id": 9, "type": "twig"})), "Invalid snapshot ref type"),
        ("/refs/b", Some(json!({"type": "tag"})), "`snapshot-id` is missing"),
        ("/snapshots/-", Some(snapshot), "several snapshots with id 3051729675574597004"),
        ("/snapshots/-", Some(json!({"snapshot-id": 1})), "`timestamp-ms` is missing"),
        (
            "/snapshot-log/-",
            Some(json!({"snapshot-id": 1, "timestamp-ms": 9})),
            "Expected sorted snapshot log entries",
        ),
        (
            "/metadata-log/-",
            Some(json!({"metadata-file": "x", "timestamp-ms": 9})),
            "Expected sorted previous metadata log",
        ),
        (
            "/metadata-log/-",
            Some(json!({"metadata-file": "x", "timestamp-ms": 1_702_638_573_590_i64})),
            "before the latest metadata log entry",
        ),
        ("/statistics/-", Some(json!({"snapshot-id": 1})), "`statistics-path` is missing"),
        ("/encryption-keys", Some(json!([{"key-id": "k"}])), "`encrypted-key-metadata` is missing"),
    ];
    for (pointer, value, message) in cases {
        refused(V2, pointer, value, message);
    }
    refused(V3, "/next-row-id", None, "`next-row-id` is missing");
    refused(V3, "/next-row-id", Some(json!(-1)), "`next-row-id` is negative");
    refused(V1, "/last-sequence-number", Some(json!(1)), "Sequence number must be 0 in v1");
    refused(V1, "/schema", None, "`schema` is missing");
    refused(V1, "/partition-spec", None, "`partition-spec` is missing");
    let twice = V3.replace("\"next-row-id\":0", "\"next-row-id\":0,\"next-row-\\u0069d\":5");
    let error = TableDoc::parse(twice.into()).expect_err("a member that is there twice");
    assert_eq!(error.message, "the table metadata has `next-row-id` twice");
}

#[test]
fn what_is_too_much_is_refused_and_what_is_not_is_read() {
    let members = |count: usize, text: &str| -> String {
        (0..count).map(|at| text.replace('#', &at.to_string())).collect::<Vec<_>>().join(",")
    };
    let with = |list: String| V3.replacen('{', &format!("{{{list},"), 1);
    let order = r#""sort-orders":[{"order-id":0,"fields":[]}"#;
    let orders = |count| {
        let more = members(count, r##"{"order-id":1#,"fields":[]}"##);
        V3.replace(order, &format!("{order},{more}"))
    };
    let properties = |count| with(format!(r#""properties":{{{}}}"#, members(count, r##""#":"""##)));
    let unknown = |count| with(members(count, r##""x#":1"##));
    let cases = [
        (unknown(UNKNOWN_MEMBERS_MAX), ""),
        (unknown(UNKNOWN_MEMBERS_MAX + 1), "more than 1000 unknown members"),
        (properties(properties::PROPERTIES_MAX), ""),
        (properties(properties::PROPERTIES_MAX + 1), "more than 100000 properties"),
        (orders(PARTS_MAX - 1), ""),
        (orders(PARTS_MAX), "more than 100000 parts with `order-id`"),
    ];
    for (text, message) in cases {
        match TableDoc::parse(text.into()) {
            Ok(_) => assert_eq!(message, "", "was read"),
            Err(error) => {
                assert!(!message.is_empty() && error.message.contains(message), "{error}");
            }
        }
    }
}

#[test]
fn strings_are_equal_by_what_they_say() {
    let mut moved = parse(&V3.replace("\"format-version\"", "\"form\\u0061t-version\""));
    assert_eq!(moved.format_version, 3);
    moved.location = "file:/u".to_owned();
    let text = String::from_utf8(moved.to_bytes().to_vec()).expect("UTF-8");
    assert!(
        text.contains("\"location\":\"file:/u\"") && text.contains("\"form\\u0061t-version\":3")
    );
}

#[test]
fn a_member_is_found_by_its_name() {
    use super::layout::DocumentKey;
    for name in ["format-version", "schema", "partition-specs", "encryption-keys", "metadata-log"] {
        assert_eq!(DocumentKey::of(name).name(), name);
    }
    assert_eq!(
        (DocumentKey::of("refs"), DocumentKey::of("metadata-log")),
        (DocumentKey::Refs, DocumentKey::MetadataLog)
    );
    assert_eq!(
        (DocumentKey::of("ref"), DocumentKey::of("")),
        (DocumentKey::Unknown, DocumentKey::Unknown)
    );
    assert_eq!(DocumentKey::Unknown.name(), "");
}

#[test]
fn many_properties_are_merged_in_order() {
    let mut properties = TableProperties::from_iter([("a", "1"), ("b", "2"), ("c", "3")]);
    let updates = TableProperties::from_iter([("b", "x"), ("d", "4"), ("uuid", "no"), ("a", "1")]);
    assert!(properties.merge(&updates));
    assert!(!properties.merge(&updates));
    let pairs: Vec<String> = properties.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(pairs, ["a=1", "b=x", "c=3", "d=4"]);
    assert!(properties.remove_all(["c", "e"]));
    assert!(!properties.remove_all(["c", "e"]));
    assert_eq!(properties, TableProperties::from_iter([("d", "4"), ("b", "x"), ("a", "1")]));
}

/// A foreign document, with one byte or one value changed.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let base = prop::sample::select(vec![V1, V2, V3]);
    let byte = prop::sample::select(b"{}[]\",:0-9e.ntf \\\xff".to_vec());
    let edits = prop::collection::vec((any::<prop::sample::Index>(), 0..4_u8, byte), 0..3);
    (base, edits).prop_map(|(base, edits)| {
        let mut text = base.as_bytes().to_vec();
        for (place, act, byte) in edits {
            let at = place.index(text.len());
            match act {
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                2 => drop(text.remove(at)),
                // An independent change: a digit for a digit.
                _ => {
                    let digit = text[at].is_ascii_digit();
                    text[at] = if digit { b'7' } else { text[at] };
                }
            }
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn whatever_is_taken_is_written_as_it_was(text in damaged()) {
        if let Ok(doc) = TableDoc::parse(text.clone().into()) {
            let written = doc.to_bytes();
            let read = |text: &[u8]| serde_json::from_slice::<Value>(text).expect("JSON");
            let mut expected = read(&text);
            // A missing main branch is added, and written.
            if let Some(id) = doc.current_snapshot_id
                && expected["refs"].as_object().is_some_and(|refs| !refs.contains_key(MAIN))
            {
                expected["refs"][MAIN] = json!({"snapshot-id": id, "type": "branch"});
            }
            prop_assert_eq!(read(&written), expected);
            let again = TableDoc::parse(written.clone()).expect("once more");
            prop_assert_eq!(again.to_bytes(), &written);
            prop_assert_eq!(doc.settle().expect("settled").1, written);
        }
    }

    #[test]
    fn strange_members_come_back(
        names in prop::collection::vec("[a-z\"\\\\é]{1,9}", 0..6),
        number in any::<f64>(),
    ) {
        let mut value: Value = serde_json::from_str(V2).expect("JSON");
        for (at, name) in names.iter().enumerate() {
            let strange = json!({ name.clone(): [number, null, {"deep": name}] });
            value[format!("~{name}")] = strange.clone();
            value["snapshots"][at % 2][format!("~{name}")] = strange.clone();
            value["refs"]["t"][format!("~{name}")] = strange.clone();
            value["schemas"][0][format!("~{name}")] = strange.clone();
            value["snapshot-log"][0][format!("~{name}")] = strange;
        }
        check_round_trip(&value.to_string());
    }
}
