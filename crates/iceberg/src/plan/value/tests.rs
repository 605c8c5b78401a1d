//! Round trips of values.

use proptest::prelude::*;

use super::*;

fn text(kind: &str, value: &PlanValue) -> String {
    let mut out = Vec::new();
    value.put_json(&ColumnType::parse(kind).unwrap(), &mut out);
    String::from_utf8(out).unwrap()
}

fn read(kind: &str, json: &str) -> Result<FilterLiteral, String> {
    let json = RawJson::parse(json.to_owned().into()).unwrap();
    PlanValue::of_json(&ColumnType::parse(kind).unwrap(), &json)
}

#[test]
fn values_are_written_as_the_interface_has_them() {
    let bytes = |all: &[u8]| PlanValue::Bytes(all.into());
    for (kind, value, expected) in [
        ("boolean", PlanValue::Bool(true), "true"),
        ("int", PlanValue::Integer(-5), "-5"),
        ("date", PlanValue::Integer(13_850), r#""2007-12-03""#),
        ("time", PlanValue::Integer(81_068_123_456), r#""22:31:08.123456""#),
        ("timestamp", PlanValue::Integer(1_196_677_815_123_456), r#""2007-12-03T10:30:15.123456""#),
        ("timestamptz", PlanValue::Integer(-1), r#""1969-12-31T23:59:59.999999+00:00""#),
        ("timestamp_ns", PlanValue::Integer(1), r#""1970-01-01T00:00:00.000000001""#),
        ("float", PlanValue::Float(f64::from(3.25_f32)), "3.25"),
        ("double", PlanValue::Float(123.456), "123.456"),
        ("double", PlanValue::Float(f64::NAN), r#""NaN""#),
        ("decimal(9,4)", PlanValue::Decimal(1_234_500), r#""123.4500""#),
        ("decimal(9,2)", PlanValue::Decimal(-5), r#""-0.05""#),
        ("decimal(9,0)", PlanValue::Decimal(2), r#""2""#),
        ("string", PlanValue::Text("a\"b".into()), r#""a\"b""#),
        ("binary", bytes(&[0x78, 0x79, 0x7a]), r#""78797A""#),
        ("uuid", bytes(&[0xeb; 16]), r#""ebebebeb-ebeb-ebeb-ebeb-ebebebebebeb""#),
    ] {
        assert_eq!(text(kind, &value), expected, "{kind}");
        if !value.is_nan() {
            assert_eq!(read(kind, expected), Ok(FilterLiteral::Value(value)), "{kind}");
        }
    }
}

#[test]
fn values_of_filters_fit_their_column_or_are_refused() {
    let value = |value: PlanValue| Ok(FilterLiteral::Value(value));
    for (kind, json, expected) in [
        ("int", "2147483648", Ok(FilterLiteral::Above)),
        ("int", "-99999999999999999999999999999999999999999999", Ok(FilterLiteral::Below)),
        ("long", "5.0", value(PlanValue::Integer(5))),
        ("float", "1e39", Ok(FilterLiteral::Above)),
        ("float", "0.1", value(PlanValue::Float(f64::from(0.1_f32)))),
        ("date", "19000", value(PlanValue::Integer(19_000))),
        ("timestamp", r#""2020-01-01T01:02:03""#, value(PlanValue::Integer(1_577_840_523_000_000))),
        ("decimal(9,2)", "1.2", value(PlanValue::Decimal(120))),
        ("decimal(9,2)", r#""1.200""#, value(PlanValue::Decimal(120))),
        ("fixed[2]", r#""abCD""#, value(PlanValue::Bytes([0xab, 0xcd].into()))),
    ] {
        assert_eq!(read(kind, json), expected, "{kind} {json}");
    }
    for (kind, json) in [
        ("int", "1.5"),
        ("int", r#""1""#),
        ("boolean", "1"),
        ("double", r#""NaN""#),
        ("date", r#""2020-02-30""#),
        ("time", "-1"),
        ("timestamp", r#""2020-01-01T00:00:00Z""#),
        ("decimal(9,2)", r#""1.234""#),
        ("decimal(9,2)", r#""1e99999999999""#),
        ("string", "1"),
        ("uuid", r#""x""#),
        ("fixed[2]", r#""abc""#),
        ("fixed[2]", r#""abcdef""#),
        ("variant", "1"),
    ] {
        assert!(read(kind, json).is_err(), "{kind} {json}");
    }
}

#[test]
fn bounds_are_read_in_the_binary_form_and_that_of_narrower_types() {
    for (kind, bytes, expected) in [
        ("long", vec![1, 0, 0, 0], Some(PlanValue::Integer(1))),
        ("long", vec![0xff; 8], Some(PlanValue::Integer(-1))),
        ("timestamp", vec![1, 0, 0, 0], Some(PlanValue::Integer(DAY_MICROS))),
        ("double", 1.5_f32.to_le_bytes().to_vec(), Some(PlanValue::Float(1.5))),
        ("decimal(9,2)", vec![0xff], Some(PlanValue::Decimal(-1))),
        ("decimal(9,2)", vec![0x00, 0x80], Some(PlanValue::Decimal(128))),
        ("decimal(9,2)", vec![], None),
        ("string", vec![0xff], None),
        ("uuid", vec![0; 15], None),
        ("boolean", vec![], None),
    ] {
        let kind_of = ColumnType::parse(kind).unwrap();
        assert_eq!(PlanValue::of_bytes(&kind_of, &bytes), expected, "{kind} {bytes:?}");
    }
}

proptest! {
    #[test]
    fn any_number_goes_there_and_back(number in any::<i64>(), real in any::<f64>()) {
        for kind in ["long", "timestamp", "timestamptz", "timestamp_ns"] {
            let value = PlanValue::Integer(number);
            let written = text(kind, &value);
            // Text forms have years of four digits; values beyond are sent as numbers.
            if kind == "long" || !written.starts_with("\"-") && written.find('-') == Some(5) {
                prop_assert_eq!(read(kind, &written), Ok(FilterLiteral::Value(value)), "{} {}", kind, written);
            }
        }
        if real.is_finite() {
            let value = PlanValue::Float(real);
            prop_assert_eq!(read("double", &text("double", &value)), Ok(FilterLiteral::Value(value)));
        }
        let decimal = PlanValue::Decimal(i128::from(number));
        prop_assert_eq!(read("decimal(38,7)", &text("decimal(38,7)", &decimal)), Ok(FilterLiteral::Value(decimal)));
    }

    #[test]
    fn any_text_is_a_date_or_none(text in "[-+0-9T:.Z ]{0,40}") {
        for kind in ["date", "time", "timestamp", "timestamptz", "decimal(38,10)", "binary"] {
            drop(read(kind, &format!("\"{text}\"")));
        }
    }
}
