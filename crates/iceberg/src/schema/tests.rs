//! Schemas, specifications and orders by a table of documents. `ours` marks those on which the
//! reference (Iceberg 1.11) differs: it rejects unknown types and transforms of several columns,
//! and accepts ids that are reserved or shared by two fields.

use std::collections::HashSet;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::ErrorReason;
use crate::doc::MetadataPart;

const SCHEMAS: &str = include_str!("tests/schemas.json");
const FRESH: &str = include_str!("tests/fresh.json");
const SPECS: &str = include_str!("tests/specs.json");
const ORDERS: &str = include_str!("tests/orders.json");
const COLUMNS: &str = include_str!("tests/columns.json");

fn fragment(value: &Value) -> RawJson {
    RawJson::of(value).expect("JSON")
}

fn value(fragment: &RawJson) -> Value {
    fragment.decode().expect("JSON")
}

/// Runs `act` on each case of a table, and compares its result or error.
fn check<T: std::fmt::Debug>(
    cases: &str,
    least: usize,
    act: impl Fn(&Value) -> Result<T>,
    see: impl Fn(&Value, T),
) {
    let cases: Vec<Value> = serde_json::from_str(cases).expect("a table");
    assert!(cases.len() >= least, "{} cases", cases.len());
    for case in cases {
        match (act(&case), case["refused"].as_str()) {
            (Ok(made), None) => see(&case, made),
            (Err(error), Some(expected)) => {
                assert!(error.message.contains(expected), "{case}\n{error:?}");
                let kinds = [
                    ErrorReason::Validation,
                    ErrorReason::IllegalArgument,
                    ErrorReason::BadRequest,
                ];
                assert!(kinds.contains(&error.kind), "{case}\n{error:?}");
            }
            (made, _) => panic!("{case}\n{made:?}"),
        }
    }
}

#[test]
fn schemas_are_those_of_their_version() {
    let act = |case: &Value| {
        let version = case["version"].as_u64().and_then(|it| u8::try_from(it).ok());
        check_schema(&fragment(&case["schema"]), version.expect("a version"))
    };
    check(SCHEMAS, 110, act, |_, ()| {});
}

#[test]
fn ids_are_given_in_the_order_of_the_reference() {
    let act = |case: &Value| fresh_ids(&fragment(&case["schema"]), 1);
    check(FRESH, 4, act, |case, RenumberedSchema { raw, last_column_id: last, ids, .. }| {
        let schema = with_id(&raw, "schema-id", 0);
        assert_eq!(value(&schema), case["fresh"]);
        assert_eq!(last, last_column_id_of(&schema).expect("a schema"));
        let assigned: HashSet<i32> = ids.values().copied().collect();
        assert_eq!(assigned, (1..=last).collect());
        assert!(same_schema(&schema, &fragment(&case["fresh"])));
    });
    let none = fragment(&json!({"type": "struct", "fields": [], "x": {"kept": 1.50}}));
    let same = fresh_ids(&none, 1).expect("a schema");
    assert_eq!((same.raw, same.last_column_id, same.ids.len()), (none, 0, 0));
    let stray = json!({"type": "struct", "fields": [], "identifier-field-ids": [1]});
    assert!(fresh_ids(&fragment(&stray), 1).is_err());
}

fn doc(version: u8, last_partition_id: i32, specs: &[Value]) -> TableDoc {
    let mut doc = TableDoc::empty(version, "u", "file:///t", 0);
    doc.last_partition_id = last_partition_id;
    doc.specs = (0..).zip(specs).map(|(id, it)| MetadataPart { id, raw: fragment(it) }).collect();
    doc
}

fn ids(spec: &RawJson) -> Vec<i64> {
    let fields = value(spec)["fields"].as_array().cloned().unwrap_or_default();
    fields.iter().filter_map(|field| field["field-id"].as_i64()).collect()
}

#[test]
fn specifications_are_bound_to_columns() {
    let columns: Value = serde_json::from_str(COLUMNS).expect("a schema");
    let act = |case: &Value| {
        let schema = case.get("schema").unwrap_or(&columns);
        let version = case["version"].as_u64().and_then(|it| u8::try_from(it).ok());
        let doc = doc(version.expect("a version"), 999, &[]);
        bind_spec(&fragment(&case["spec"]), &fragment(schema), &doc)
    };
    check(SPECS, 70, act, |case, (spec, last)| {
        let expected: Vec<i64> =
            case["ids"].as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
        assert_eq!(ids(&spec), expected, "{case}");
        assert_eq!(i64::from(last), expected.iter().copied().max().unwrap_or(999), "{case}");
        assert!(same_spec(&spec, &fragment(&case["spec"])), "{case}");
    });
}

#[test]
fn fields_get_the_ids_of_equal_fields_of_before() {
    let columns: RawJson = fragment(&serde_json::from_str(COLUMNS).expect("a schema"));
    let field = |source: i32, transform: &str, name: &str, id: Option<i32>| {
        let mut field = json!({"source-id": source, "transform": transform, "name": name});
        if let Some(id) = id {
            field["field-id"] = json!(id);
        }
        field
    };
    let spec = |fields: &[Value]| json!({"spec-id": 1, "fields": fields});
    let first = spec(&[field(1, "identity", "a", Some(1000)), field(2, "day", "b", Some(1001))]);
    let second = spec(&[field(1, "bucket[4]", "c", Some(1002))]);
    for (version, new, expected) in [
        (2, vec![field(2, "day", "z", None)], Ok(vec![1001])),
        (
            2,
            vec![field(1, "Bucket[4]", "z", None), field(3, "identity", "y", None)],
            Ok(vec![1002, 1003]),
        ),
        (2, vec![field(2, "day", "x", None), field(2, "day", "y", None)], Ok(vec![1001, 1003])),
        (2, vec![field(2, "day", "z", Some(1001))], Ok(vec![1001])),
        (
            2,
            vec![field(2, "day", "z", Some(1007)), field(3, "identity", "y", None)],
            Ok(vec![1007, 1008]),
        ),
        (2, vec![field(2, "hour", "z", Some(1001))], Err("it is the id of another field")),
        (2, vec![field(2, "void", "z", Some(1001))], Ok(vec![1001])),
        // In version 1 ids start again with each specification.
        (
            1,
            vec![field(3, "identity", "z", None), field(2, "day", "b", None)],
            Ok(vec![1000, 1001]),
        ),
        (1, vec![field(3, "identity", "z", Some(1000))], Ok(vec![1000])),
        (
            2,
            vec![field(2, "day", "z", Some(i32::MAX)), field(3, "identity", "y", None)],
            Err("field ids are used up"),
        ),
    ] {
        let doc = doc(version, 1002, &[first.clone(), second.clone()]);
        let bound = bind_spec(&fragment(&spec(&new)), &columns, &doc);
        match (bound, expected) {
            (Ok((bound, _)), Ok(expected)) => assert_eq!(ids(&bound), expected, "{new:?}"),
            (Err(error), Err(message)) => assert!(error.message.contains(message), "{error:?}"),
            (bound, _) => panic!("{new:?} {bound:?}"),
        }
    }
}

#[test]
fn a_column_may_get_the_name_of_a_field_that_is_there() {
    let schema = json!({"type": "struct", "fields": [
        {"id": 1, "name": "id", "required": true, "type": "long"},
        {"id": 2, "name": "id_bucket", "required": true, "type": "long"}]});
    let spec = json!({"spec-id": 0, "fields": [
        {"source-id": 1, "field-id": 1000, "transform": "bucket[4]", "name": "id_bucket"}]});
    let (schema, raw) = (fragment(&schema), fragment(&spec));
    assert!(bind_spec(&raw, &schema, &doc(2, 1000, &[spec])).is_ok());
    let refused = bind_spec(&raw, &schema, &doc(2, 999, &[])).expect_err("a conflict");
    assert_eq!(refused.kind, ErrorReason::IllegalArgument);
}

#[test]
fn orders_are_bound_to_columns() {
    let columns = fragment(&serde_json::from_str(COLUMNS).expect("a schema"));
    let act = |case: &Value| bind_order(&fragment(&case["order"]), &columns);
    check(ORDERS, 45, act, |case, order| {
        assert_eq!(value(&order), case["order"]);
        assert!(same_order(&order, &fragment(&case["order"])));
    });
}

#[test]
fn what_says_the_same_is_the_same() {
    let schema = |fields: Value, ids: Value| {
        fragment(&json!({"type": "struct", "schema-id": 7, "fields": fields,
            "identifier-field-ids": ids}))
    };
    let field = |kind: &str| json!([{"id": 1, "name": "a", "required": true, "type": kind}]);
    let base = schema(field("decimal(9, 2)"), json!([1]));
    let list = |kind: &str| {
        json!([{"id": 1, "name": "a", "required": true, "type": {"type": "list",
            "element-id": 2, "element": kind, "element-required": true}}])
    };
    let doc_null = json!([{"id": 1, "name": "a", "required": true, "type": "decimal(9,2)",
        "doc": null}]);
    for (a, b, expected) in [
        (base.clone(), schema(field("Decimal( 9,2)"), json!([1, 1])), true),
        (base.clone(), schema(doc_null, json!([1])), true),
        (base.clone(), schema(field("decimal(9, 3)"), json!([1])), false),
        (base.clone(), schema(field("decimal(9, 2)"), json!([])), false),
        (base.clone(), schema(json!([]), json!([1])), false),
        (schema(list("geometry"), json!([])), schema(list("geometry(OGC:CRS84)"), json!([])), true),
        (schema(list("geometry"), json!([])), schema(list("geometry(x)"), json!([])), false),
        (schema(list("tomorrow"), json!([])), schema(list("Tomorrow"), json!([])), false),
        (base, fragment(&json!(null)), false),
    ] {
        assert_eq!((same_schema(&a, &b), same_schema(&b, &a)), (expected, expected), "{a:?} {b:?}");
    }
    let spec = |field: Value| fragment(&json!({"spec-id": 1, "fields": [field]}));
    let plain = spec(json!({"source-id": 1, "field-id": 7, "transform": "bucket[4]", "name": "a"}));
    let other = spec(json!({"source-ids": [1], "transform": "BUCKET[4]", "name": "a", "x": 1}));
    assert!(same_spec(&plain, &other));
    assert!(!same_spec(
        &plain,
        &spec(json!({"source-ids": [1, 2], "transform": "bucket[4]", "name": "a"}))
    ));
    assert!(!same_spec(
        &plain,
        &spec(json!({"source-id": 1, "transform": "bucket[4]", "name": "b"}))
    ));
}

#[test]
fn a_schema_has_its_limits() {
    let field =
        |id: usize, name: &str| json!({"id": id, "name": name, "required": true, "type": "int"});
    let fields: Vec<Value> = (0..=COLUMNS_MAX).map(|id| field(id, &id.to_string())).collect();
    let schema = fragment(&json!({"type": "struct", "fields": fields}));
    assert_eq!(check_schema(&schema, 2).expect_err("too many").kind, ErrorReason::TooLarge);
    // Names below a long name are long.
    let within: Vec<Value> = (1..3000).map(|id| field(id, "x")).collect();
    let long = json!({"type": "struct", "fields": [{"id": 0, "name": "n".repeat(40_000),
        "required": true, "type": {"type": "struct", "fields": within}}]});
    assert_eq!(
        last_column_id_of(&fragment(&long)).expect_err("too long").kind,
        ErrorReason::TooLarge
    );
    // Deeper nesting is rejected by the JSON parser.
    let mut deep = json!("int");
    for id in 0..380 {
        deep = json!({"type": "list", "element-id": id, "element": deep, "element-required": true});
    }
    let deep = fragment(&json!({"type": "struct", "fields": [
        {"id": 999, "name": "a", "required": true, "type": deep}]}));
    check_schema(&deep, 1).expect("a schema");
    let fresh = fresh_ids(&deep, 1).expect("a schema");
    assert_eq!(fresh.last_column_id, 381);
    check_schema(&fresh.raw, 1).expect("a schema");
    let fields: Vec<Value> = (0..=PARTITION_FIELDS_MAX)
        .map(|name| json!({"source-id": 999, "transform": "void", "name": name.to_string()}))
        .collect();
    let spec = fragment(&json!({"spec-id": 0, "fields": fields}));
    let refused = bind_spec(&spec, &deep, &doc(2, 999, &[]));
    assert_eq!(refused.expect_err("too many").kind, ErrorReason::TooLarge);
    let fields = vec![
        json!({"source-id": 999, "transform": "identity", "direction": "asc",
        "null-order": "nulls-first"});
        SORT_FIELDS_MAX + 1
    ];
    let order = fragment(&json!({"order-id": 0, "fields": fields}));
    assert_eq!(bind_order(&order, &deep).expect_err("too many").kind, ErrorReason::TooLarge);
}

/// Columns in any structure, with valid ids.
fn shape() -> impl Strategy<Value = Value> {
    let leaf =
        prop::sample::select(vec!["int", "string", "decimal(9, 2)", "timestamptz", "fixed[3]"])
            .prop_map(|kind| json!(kind));
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|it| json!({"type": "list", "element-id": 0, "element": it,
                "element-required": false, "x-kept": [1.50]})),
            (inner.clone(), inner.clone()).prop_map(|(k, v)| json!({"type": "map", "key-id": 0,
                "key": k, "value-id": 0, "value": v, "value-required": true})),
            prop::collection::vec(inner, 0..4).prop_map(|kinds| {
                let field = |(place, kind): (usize, Value)| {
                    json!({"id": 0,
                    "name": place.to_string(), "required": true, "type": kind, "doc": "\u{e9}"})
                };
                let fields: Vec<Value> = kinds.into_iter().enumerate().map(field).collect();
                json!({"type": "struct", "fields": fields})
            }),
        ]
    })
}

/// Renumbers every id in a structure: first those of the parent, from `next`.
fn number(value: &mut Value, next: &mut impl FnMut() -> i64) {
    match value {
        Value::Object(members) => {
            for name in ["id", "element-id", "key-id", "value-id"] {
                if let Some(id) = members.get_mut(name) {
                    *id = json!(next());
                }
            }
            members.values_mut().for_each(|value| number(value, next));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| number(value, next)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn fresh_ids_change_ids_and_nothing_else(
        kinds in prop::collection::vec(shape(), 0..4),
        step in 1_i64..9,
    ) {
        let field = |(place, kind): (usize, Value)| json!({"id": 0, "name": place.to_string(),
            "required": true, "type": kind});
        let fields: Vec<Value> = kinds.into_iter().enumerate().map(field).collect();
        let mut schema = json!({"type": "struct", "schema-id": 3, "fields": fields});
        let mut id = 1000;
        number(&mut schema, &mut || { id -= step; id });
        let raw = fragment(&schema);
        let RenumberedSchema { raw: fresh, columns, last_column_id: last, ids } =
            fresh_ids(&raw, 1).expect("a schema");
        check_schema(&fresh, 1).expect("a schema");
        let read = SchemaColumns::read(&fresh).expect("a schema");
        let of = |it: &SchemaColumns| -> Vec<(i32, String)> {
            it.list.iter().map(|column| (column.id, column.name.clone())).collect()
        };
        prop_assert_eq!(of(&columns), of(&read));
        prop_assert!((1..=last).all(|id| columns.get(id).is_some_and(|it| it.id == id)));
        prop_assert_eq!(last, last_column_id_of(&fresh).expect("a schema"));
        prop_assert_eq!(usize::try_from(last).expect("ids"), ids.len());
        // Without ids both are the same; and each id was replaced as the map states.
        let (mut before, mut after) = (schema.clone(), value(&fresh));
        let (mut olds, mut news) = (Vec::new(), Vec::new());
        collect(&before, &mut olds);
        collect(&after, &mut news);
        let became: Vec<i64> = olds.iter().map(|id| {
            let id = i32::try_from(*id).expect("an id");
            i64::from(ids.get(&id).copied().expect("a new id"))
        }).collect();
        prop_assert_eq!(became, news);
        number(&mut before, &mut || 0);
        number(&mut after, &mut || 0);
        prop_assert_eq!(before, after);
        // Ids are assigned once: existing ones stay.
        let again = fresh_ids(&fresh, 1).expect("a schema");
        prop_assert!(same_schema(&again.raw, &fresh));
    }

    #[test]
    fn hostile_texts_are_refused_and_nothing_worse(text in hostile()) {
        let Ok(raw) = RawJson::parse(Bytes::from(text)) else { return Ok(()) };
        let columns = fragment(&serde_json::from_str(COLUMNS).expect("a schema"));
        let doc = doc(3, 999, &[]);
        for version in 1..=3 {
            if let Ok(RenumberedSchema { raw, columns, .. }) = fresh_ids(&raw, 1) {
                // Columns read before the renumbering are as valid as those read after it.
                let told = |it: Result<()>| it.map_err(|error| error.kind);
                let anew = told(check_schema(&raw, version));
                prop_assert_eq!(told(check_columns(&raw, Some(&columns), version)), anew);
            }
            if check_schema(&raw, version).is_ok() {
                prop_assert!(last_column_id_of(&raw).is_ok());
                let fresh = fresh_ids(&raw, 1).expect("a schema");
                prop_assert!(check_schema(&fresh.raw, version).is_ok());
            }
        }
        prop_assert!(same_schema(&raw, &raw) && same_spec(&raw, &raw) && same_order(&raw, &raw));
        if let Ok((bound, last)) = bind_spec(&raw, &columns, &doc) {
            prop_assert!(last >= 999);
            let again = bind_spec(&bound, &columns, &doc).expect("bound before");
            prop_assert_eq!(again, (bound, last));
        }
        let _either = bind_order(&raw, &columns);
        let _either = bind_spec(&columns, &raw, &doc);
    }
}

fn collect(value: &Value, ids: &mut Vec<i64>) {
    match value {
        Value::Object(members) => {
            let names = ["id", "element-id", "key-id", "value-id"];
            ids.extend(names.iter().filter_map(|name| members.get(*name)?.as_i64()));
            members.values().for_each(|value| collect(value, ids));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, ids)),
        _ => {}
    }
}

/// A document of one of the tables, with a part replaced by a part of another.
fn hostile() -> impl Strategy<Value = String> {
    let pieces: Vec<String> = [SCHEMAS, SPECS, ORDERS]
        .iter()
        .flat_map(|table| serde_json::from_str::<Vec<Value>>(table).expect("a table"))
        .flat_map(|case| ["schema", "spec", "order"].map(|name| case[name].clone()))
        .filter(|value| !value.is_null())
        .map(|value| value.to_string())
        .collect();
    let piece = prop::sample::select(pieces);
    (piece.clone(), piece, 0_usize..400, 0_usize..400, 0_usize..40).prop_map(
        |(into, from, at, start, length)| {
            let (into, from) = (into.as_bytes(), from.as_bytes());
            let at = at.min(into.len());
            let start = start.min(from.len());
            let end = (start + length).min(from.len());
            let after = (at + length).min(into.len());
            let text = [&into[..at], &from[start..end], &into[after..]].concat();
            String::from_utf8_lossy(&text).into_owned()
        },
    )
}
