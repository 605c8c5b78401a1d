//! Pruned data never matches: compared with row-by-row evaluation.

use std::cmp::Ordering;

use proptest::prelude::*;
use serde_json::json;

use super::bind::{BoundFilter, BoundPredicate};
use super::expression::{FilterExpression, PREDICATES_MAX, PredicateOperator, VALUES_MAX};
use super::facts::{PredicateVerdict, UpperBound, ValueFacts};
use super::transform::{apply, bucket_of, inverse, murmur3};
use super::value::PlanValue;
use crate::json::RawJson;
use crate::schema::{ColumnType, FieldTransform, SchemaColumns};

/// Returns whether a value matches a predicate, as in engines.
fn fulfils(op: PredicateOperator, value: Option<&PlanValue>, literals: &[PlanValue]) -> bool {
    let (is_null, is_nan) = (value.is_none(), value.is_some_and(PlanValue::is_nan));
    let order =
        |literal: &PlanValue| value.filter(|it| !it.is_nan()).and_then(|it| it.order(literal));
    let first = literals.first().and_then(order);
    let is_in = literals.iter().any(|it| order(it) == Some(Ordering::Equal));
    let begins =
        literals.first().zip(value).is_some_and(|(with, it)| super::facts::begins(it, with));
    match op {
        PredicateOperator::IsNull => is_null,
        PredicateOperator::NotNull => !is_null,
        PredicateOperator::IsNan => is_nan,
        PredicateOperator::NotNan => !is_nan,
        PredicateOperator::Lt => first == Some(Ordering::Less),
        PredicateOperator::LtEq => matches!(first, Some(Ordering::Less | Ordering::Equal)),
        PredicateOperator::Gt => first == Some(Ordering::Greater),
        PredicateOperator::GtEq => matches!(first, Some(Ordering::Greater | Ordering::Equal)),
        PredicateOperator::Eq | PredicateOperator::In => is_in,
        PredicateOperator::NotEq | PredicateOperator::NotIn => !is_in,
        PredicateOperator::StartsWith => begins,
        PredicateOperator::NotStartsWith => !begins,
    }
}

/// Checks a verdict against the rows.
fn assert_agrees(
    verdict: PredicateVerdict,
    rows: &[Option<PlanValue>],
    op: PredicateOperator,
    literals: &[PlanValue],
) {
    for row in rows {
        let is = fulfils(op, row.as_ref(), literals);
        let about = || format!("{op:?} {literals:?} of {row:?} among {rows:?}");
        assert!(!(is && verdict == PredicateVerdict::Never), "left out: {}", about());
        assert!(is || verdict != PredicateVerdict::Always, "taken for granted: {}", about());
    }
}

fn op() -> impl Strategy<Value = PredicateOperator> {
    prop::sample::select(vec![
        PredicateOperator::IsNull,
        PredicateOperator::NotNull,
        PredicateOperator::Lt,
        PredicateOperator::LtEq,
        PredicateOperator::Gt,
        PredicateOperator::GtEq,
        PredicateOperator::Eq,
        PredicateOperator::NotEq,
        PredicateOperator::StartsWith,
        PredicateOperator::NotStartsWith,
        PredicateOperator::In,
        PredicateOperator::NotIn,
    ])
}

/// Types, their transforms, and neighbouring values.
fn cases()
-> impl Strategy<Value = (ColumnType, FieldTransform, Vec<Option<PlanValue>>, Vec<PlanValue>)> {
    let numbers =
        vec![FieldTransform::Identity, FieldTransform::Bucket(3), FieldTransform::Truncate(7)];
    let times = [
        FieldTransform::Identity,
        FieldTransform::Bucket(3),
        FieldTransform::Year,
        FieldTransform::Month,
    ];
    let days: Vec<_> = times.iter().cloned().chain([FieldTransform::Day]).collect();
    let hours: Vec<_> = days.iter().cloned().chain([FieldTransform::Hour]).collect();
    let kinds = prop::sample::select(vec![
        (ColumnType::Long, numbers.clone(), 1_i64),
        (ColumnType::Decimal { precision: 9, scale: 2 }, numbers.clone(), 1),
        (ColumnType::String, numbers.clone(), 1),
        (ColumnType::Binary, numbers, 1),
        (ColumnType::Date, days, 11),
        (ColumnType::Timestamp, hours.clone(), 1_799_999_999),
        (ColumnType::TimestampNs, hours, 1_799_999_999_999),
    ]);
    kinds.prop_flat_map(|(kind, transforms, scale)| {
        let of_kind = kind.clone();
        let value = (-200_i64..200).prop_map(move |number| value_of(&of_kind, number, scale));
        (
            Just(kind),
            prop::sample::select(transforms),
            prop::collection::vec(prop::option::weighted(0.9, value.clone()), 1..6),
            prop::collection::vec(value, 1..4),
        )
    })
}

fn value_of(kind: &ColumnType, number: i64, scale: i64) -> PlanValue {
    match kind {
        ColumnType::Decimal { .. } => PlanValue::Decimal(i128::from(number)),
        ColumnType::String => {
            let letters = format!("{:b}", number.unsigned_abs()).replace('0', "é");
            PlanValue::Text(letters.repeat(3).into())
        }
        ColumnType::Binary => {
            let bytes = format!("{:b}", number.unsigned_abs()).replace('0', "\u{7f}").into_bytes();
            PlanValue::Bytes(bytes.repeat(3).into())
        }
        _ => PlanValue::Integer(number * scale),
    }
}

fn sorted(mut literals: Vec<PlanValue>, op: PredicateOperator) -> Vec<PlanValue> {
    literals.sort_by(|a, b| a.order(b).unwrap());
    if !matches!(op, PredicateOperator::In | PredicateOperator::NotIn) {
        literals.truncate(1);
    }
    literals
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_partition_is_left_out_only_if_no_row_of_it_matches(
        (kind, transform, rows, literals) in cases(),
        op in op(),
    ) {
        let literals = sorted(literals, op);
        for row in &rows {
            let value = row.as_ref().and_then(|it| apply(&transform, &kind, it));
            prop_assert_eq!(value.is_none(), row.is_none());
            let facts = ValueFacts::exactly(value.clone());
            let facts = inverse(&transform, &kind, facts, value.as_ref(), value.as_ref());
            // All rows of the same partition.
            let same = |it: &&Option<PlanValue>| {
                it.as_ref().and_then(|it| apply(&transform, &kind, it)) == value
            };
            let rows: Vec<_> = rows.iter().filter(same).cloned().collect();
            assert_agrees(facts.judge(op, &literals), &rows, op, &literals);
        }
    }

    #[test]
    fn partitions_of_a_manifest_are_left_out_only_if_no_row_of_them_matches(
        (kind, transform, rows, literals) in cases(),
        op in op(),
    ) {
        let literals = sorted(literals, op);
        let made = |it: &PlanValue| apply(&transform, &kind, it).unwrap();
        let mut values: Vec<PlanValue> = rows.iter().flatten().map(made).collect();
        values.sort_by(|a, b| a.order(b).unwrap());
        let facts = ValueFacts {
            null: rows.iter().any(Option::is_none),
            nan: false,
            value: !values.is_empty(),
            ..ValueFacts::none()
        };
        let facts = inverse(&transform, &kind, facts, values.first(), values.last());
        assert_agrees(facts.judge(op, &literals), &rows, op, &literals);
    }

    #[test]
    fn rows_are_left_out_by_their_bounds_only_if_none_matches(
        (_, _, rows, literals) in cases(),
        op in op(),
        knows_nulls in any::<bool>(),
    ) {
        let literals = sorted(literals, op);
        let mut values: Vec<&PlanValue> = rows.iter().flatten().collect();
        values.sort_by(|a, b| a.order(b).unwrap());
        let facts = ValueFacts {
            null: !knows_nulls || rows.iter().any(Option::is_none),
            nan: false,
            value: !knows_nulls || !values.is_empty(),
            lower: values.first().map(|it| (*it).clone()),
            upper: values.last().map(|it| UpperBound::Value((*it).clone())),
            ..ValueFacts::none()
        };
        assert_agrees(facts.settled().judge(op, &literals), &rows, op, &literals);
    }

    #[test]
    fn floating_point_rows_are_left_out_only_if_none_matches(
        rows in prop::collection::vec(prop::sample::select(FLOATS.to_vec()), 1..5),
        literal in prop::sample::select(FLOATS[1..].to_vec()),
        op in prop::sample::select(vec![
            PredicateOperator::IsNan,
            PredicateOperator::NotNan,
            PredicateOperator::Lt,
            PredicateOperator::LtEq,
            PredicateOperator::Gt,
            PredicateOperator::GtEq,
            PredicateOperator::Eq,
            PredicateOperator::NotEq,
        ]),
    ) {
        let literals = [PlanValue::Float(literal)];
        let mut values: Vec<f64> = rows.iter().copied().filter(|it| !it.is_nan()).collect();
        values.sort_by(f64::total_cmp);
        let facts = ValueFacts {
            null: false,
            nan: rows.iter().any(|it| it.is_nan()),
            value: !values.is_empty(),
            lower: values.first().copied().map(PlanValue::Float),
            upper: values.last().copied().map(|it| UpperBound::Value(PlanValue::Float(it))),
            ..ValueFacts::none()
        };
        let verdict = facts.settled().judge(op, &literals);
        for row in &rows {
            // Zeros are equal in some engines and not in others: both are correct.
            let is = [*row, *row + 0.0, if *row == 0.0 { -0.0 } else { *row }];
            for row in is {
                assert_agrees(verdict, &[Some(PlanValue::Float(row))], op, &literals);
            }
        }
    }

    #[test]
    fn what_is_left_of_a_filter_is_the_filter_for_the_rows_that_are_left(
        filter in bound(4),
        known in prop::collection::vec(any::<Option<bool>>(), 3),
        hidden in prop::collection::vec(any::<bool>(), 3),
    ) {
        let truth = |column: i32| {
            let place = usize::try_from(column).unwrap();
            known[place].unwrap_or(hidden[place])
        };
        let place = |leaf: &BoundPredicate| usize::try_from(leaf.column).unwrap();
        let mut verdict = |leaf: &BoundPredicate| match known[place(leaf)] {
            Some(true) => PredicateVerdict::Always,
            Some(false) => PredicateVerdict::Never,
            None => PredicateVerdict::Maybe,
        };
        let whole = filter.judge(&mut verdict);
        let rest = filter.rest(&mut verdict);
        let mut tell = |leaf: &BoundPredicate| match truth(leaf.column) {
            true => PredicateVerdict::Always,
            false => PredicateVerdict::Never,
        };
        let is = filter.judge(&mut tell);
        prop_assert_eq!(rest.judge(&mut tell), is);
        prop_assert!(whole == PredicateVerdict::Maybe || whole == is);
    }
}

const FLOATS: [f64; 8] = [f64::NAN, -1.5, -0.0, 0.0, 1.0, f64::MAX, f64::MIN_POSITIVE, 2.0];

/// A filter on columns 0 to 2, each of which stands for a truth value.
fn bound(depth: u32) -> impl Strategy<Value = BoundFilter> {
    let leaf = (0..3).prop_map(|column| {
        BoundFilter::Leaf(Box::new(BoundPredicate {
            op: PredicateOperator::IsNull,
            column,
            name: format!("c{column}"),
            source: ColumnType::Long,
            kind: ColumnType::Long,
            transform: None,
            values: Vec::new(),
            is_optional: true,
            is_hidden: false,
        }))
    });
    let start = prop_oneof![leaf, any::<bool>().prop_map(BoundFilter::Constant)];
    start.prop_recursive(depth, 24, 3, |inner| {
        let several = prop::collection::vec(inner, 0..4);
        prop_oneof![several.clone().prop_map(BoundFilter::And), several.prop_map(BoundFilter::Or)]
    })
}

#[test]
fn hashes_are_those_of_the_format() {
    // The values of the specification's appendix B.
    let uuid = 0xf79c_3e09_677c_4bbd_a479_3f34_9cb7_85e7_u128.to_be_bytes();
    for (value, hash) in [
        (PlanValue::Integer(34), 2_017_239_379_u32),
        (PlanValue::Decimal(1420), (-500_754_589_i32).cast_unsigned()),
        (PlanValue::Integer(17_486), (-653_330_422_i32).cast_unsigned()),
        (PlanValue::Integer(81_068_000_000), (-662_762_989_i32).cast_unsigned()),
        (PlanValue::Integer(1_510_871_468_000_000), (-2_047_944_441_i32).cast_unsigned()),
        (PlanValue::Text("iceberg".into()), 1_210_000_089),
        (PlanValue::Bytes(uuid.into()), 1_488_055_340),
        (PlanValue::Bytes([0, 1, 2, 3].into()), (-188_683_207_i32).cast_unsigned()),
    ] {
        let expected = i64::from(hash & 0x7fff_ffff);
        assert_eq!(bucket_of(&value, 0x7fff_ffff), Some(expected % 0x7fff_ffff), "{value:?}");
    }
    assert_eq!(murmur3(b""), 0);
}

/// Returns a filter bound to the columns of a schema, or the error.
fn bound_text(filter: &serde_json::Value, hidden: &[i32]) -> Result<String, String> {
    let schema = json!({"type": "struct", "fields": [
        {"id": 1, "name": "id", "required": true, "type": "int"},
        {"id": 2, "name": "data", "required": false, "type": "string"},
        {"id": 3, "name": "at", "required": false, "type": "timestamptz"},
        {"id": 4, "name": "in", "required": false, "type": {"type": "struct", "fields": [
            {"id": 5, "name": "x", "required": true, "type": "double"},
        ]}},
        {"id": 6, "name": "all", "required": false, "type": {
            "type": "list", "element-id": 7, "element": "int", "element-required": true}},
    ]});
    let columns = SchemaColumns::read(&RawJson::of(&schema).unwrap()).unwrap();
    let filter = FilterExpression::parse(&RawJson::of(filter).unwrap()).map_err(|it| it.message)?;
    let hidden = hidden.iter().copied().collect();
    let bound = BoundFilter::new(&filter, &columns, true, &hidden).map_err(|it| it.message)?;
    let mut out = Vec::new();
    bound.put_json(&mut out);
    // The output can be parsed again.
    let again = RawJson::parse(out.clone().into()).unwrap();
    let again =
        BoundFilter::new(&FilterExpression::parse(&again).unwrap(), &columns, true, &hidden)
            .unwrap();
    match again == bound {
        true => Ok(String::from_utf8(out).unwrap()),
        false => Err(format!("{again:?} is read again")),
    }
}

#[test]
fn filters_are_bound_in_both_of_their_forms() {
    let reference = |name: &str| json!({"type": "reference", "name": name});
    let cases = [
        (
            json!({"type": "eq", "term": "data", "value": "a"}),
            r#"{"type":"eq","term":"data","value":"a"}"#,
        ),
        (
            json!({"type": "eq", "left": reference("data"), "right": "data"}),
            r#"{"type":"eq","term":"data","value":"data"}"#,
        ),
        (
            json!({"type": "gt", "left": {"type": "literal", "value": 5, "data-type": "int"},
                "right": {"type": "reference", "id": 1}}),
            r#"{"type":"lt","term":"id","value":5}"#,
        ),
        (json!({"type": "is-null", "term": "id"}), "false"),
        (
            json!({"type": "is-null", "child": reference("in.x")}),
            r#"{"type":"is-null","term":"in.x"}"#,
        ),
        (json!({"type": "lt", "term": "id", "value": 3_000_000_000_u64}), "true"),
        (
            json!({"type": "in", "term": "id", "values": [5, -3_000_000_000_i64, 5]}),
            r#"{"type":"eq","term":"id","value":5}"#,
        ),
        (
            json!({"type": "not", "child": {"type": "in", "term": "id", "values": [2, 1]}}),
            r#"{"type":"not-in","term":"id","values":[1,2]}"#,
        ),
        (
            json!({"type": "eq", "left": {"type": "apply", "function": "bucket",
                "arguments": [4, reference("id")]}, "right": 3}),
            r#"{"type":"eq","term":{"type":"transform","transform":"bucket[4]","term":"id"},"value":3}"#,
        ),
        (
            json!({"type": "gt-eq", "term": {"type": "transform", "transform": "day", "term": "at"},
                "value": "2026-11-22"}),
            r#"{"type":"gt-eq","term":{"type":"transform","transform":"day","term":"at"},"value":"2026-11-22"}"#,
        ),
        (json!({"type": "or", "left": true, "right": {"type": "is-nan", "term": "in.x"}}), "true"),
    ];
    for (filter, expected) in cases {
        assert_eq!(bound_text(&filter, &[]).as_deref(), Ok(expected), "{filter}");
    }
    for (filter, expected) in [
        (
            json!({"type": "eq", "left": "data", "right": "a"}),
            "compares one field with one literal",
        ),
        (json!({"type": "is-null", "child": "data"}), "is not a field"),
        (json!({"type": "eq", "term": "all.element", "value": 1}), "several values in a row"),
        (json!({"type": "starts-with", "left": "a", "right": reference("data")}), "on the right"),
        (json!({"type": "in", "term": "id", "values": [null]}), "cannot be compared"),
        (
            json!({"type": "eq", "left": {"type": "apply", "function": "hour",
                "arguments": [reference("id")]}, "right": 1}),
            "cannot be transformed by 'hour'",
        ),
    ] {
        let error = bound_text(&filter, &[]).unwrap_err();
        assert!(error.contains(expected), "{filter}: {error}");
    }
    // Masked columns imply nothing.
    let null = json!({"type": "is-null", "term": "id"});
    assert_eq!(bound_text(&null, &[1]).as_deref(), Ok(r#"{"type":"is-null","term":"id"}"#));
}

#[test]
fn a_filter_is_bounded() {
    let leaf = json!({"type": "eq", "term": "id", "value": 1});
    let of = |count: usize| {
        let mut all: Vec<_> = std::iter::repeat_n(leaf.clone(), count).collect();
        while all.len() > 1 {
            let pair = |it: &[serde_json::Value]| match it {
                [left, right] => json!({"type": "and", "left": left, "right": right}),
                one => one[0].clone(),
            };
            all = all.chunks(2).map(pair).collect();
        }
        all.remove(0)
    };
    assert!(bound_text(&of(PREDICATES_MAX / 2), &[]).is_ok());
    assert!(bound_text(&of(PREDICATES_MAX), &[]).unwrap_err().contains("predicates"));
    let many: Vec<usize> = (0..=VALUES_MAX).collect();
    let many = json!({"type": "in", "term": "id", "values": many});
    assert!(bound_text(&many, &[]).unwrap_err().contains("values"));
}
