//! Files as writers produce them, and invalid ones.

use proptest::prelude::*;
use serde_json::{Value, json};
use testkit::avro::{AvroWriter, CODECS, put_long, schema_of_pair};

use super::*;

fn schema() -> Value {
    json!({"type": "record", "name": "r", "fields": [
        {"name": "a", "field-id": 1, "type": "long"},
        {"name": "b", "field-id": 2, "type": ["null", "string"]},
        {"name": "c", "field-id": 3, "type": {
            "type": "array", "items": schema_of_pair(),
        }},
        {"name": "d", "field-id": 6, "type": ["null", "k1_v2"]},
    ]})
}

fn read(bytes: &[u8]) -> Result<Vec<String>, AvroError> {
    let mut all = Vec::new();
    AvroContainer::open(bytes)?.each(|row| {
        all.push(format!("{row:?}"));
        Ok::<(), AvroError>(())
    })?;
    Ok(all)
}

#[test]
fn records_come_back_in_every_codec() {
    for codec in CODECS {
        let mut writer = AvroWriter::new(&schema(), codec).header("k", "v");
        for number in [0, 1, -1, i64::MAX, i64::MIN] {
            let pair = json!({"key": 7, "value": [1, 2]});
            writer = writer.record(&json!({"a": number, "b": "x", "c": [pair, pair], "d": pair}));
        }
        writer = writer.record(&json!({"a": 5, "b": null, "c": [], "d": null}));
        let bytes = writer.bytes();
        assert_eq!(AvroContainer::open(&bytes).unwrap().entry("k"), Some("v"));
        let mut rows = Vec::new();
        let each = AvroContainer::open(&bytes).unwrap().each(|row| {
            let pairs = row.field(3).map(|it| format!("{it:?}")).unwrap_or_default();
            let inner = row.field(6).and_then(|it| it.field(4)).and_then(AvroDatum::as_i64);
            rows.push((row.field(1).and_then(AvroDatum::as_i64).unwrap(), pairs.len() > 10, inner));
            Ok::<(), AvroError>(())
        });
        each.unwrap();
        let numbers = [0, 1, -1, i64::MAX, i64::MIN].map(|it| (it, true, Some(7)));
        let expected: Vec<_> = numbers.into_iter().chain([(5, false, None)]).collect();
        assert_eq!(rows, expected, "{codec}");
    }
}

#[test]
fn what_is_no_file_is_refused_by_its_reason() {
    let good = AvroWriter::new(&schema(), "null").record(&json!({"a": 1, "b": "x", "c": []}));
    let good = good.bytes();
    let check = |bytes: &[u8], expected: &str| {
        assert_eq!(read(bytes).unwrap_err().0, expected);
    };
    check(b"", "the file ends too early");
    check(b"Obj\x02", "it is no Avro file");
    check(&good[..good.len() - 1], "the file ends too early");
    let mut other_sync = good;
    *other_sync.last_mut().unwrap() = 8;
    check(&other_sync, "a block does not have its declared length");
    for codec in ["bzip2", "xz", ""] {
        let packed = AvroWriter::new(&schema(), codec).bytes();
        check(&packed, "its codec is not `null`, `deflate`, `snappy` or `zstandard`");
    }
    let circle = json!({"type": "record", "name": "r", "fields": [
        {"name": "a", "type": "r"},
    ]});
    let mut endless = AvroWriter::new(&circle, "null");
    endless.push_encoded(vec![0; 10]);
    check(&endless.bytes(), "a value is nested too deeply");
    let nothing = json!({"type": "record", "name": "r", "fields": []});
    let mut nothings = AvroWriter::new(&nothing, "null");
    nothings.push_encoded(Vec::new());
    check(&nothings.bytes(), "the file ends too early");
    let list = json!({"type": "array", "items": "null"});
    let mut nulls = AvroWriter::new(&list, "null");
    let mut many = Vec::new();
    put_long(&mut many, 1 << 40);
    nulls.push_encoded(many);
    check(&nulls.bytes(), "the file ends too early");
    // Values without bytes are limited, in a list and elsewhere.
    for items in [json!("null"), nothing] {
        let mut empty = AvroWriter::new(&json!({"type": "array", "items": items}), "deflate");
        let mut record = Vec::new();
        put_long(&mut record, 1_000_000);
        record.resize(1_100_000, 0);
        empty.push_encoded(record);
        check(&empty.bytes(), "items of a list have no bytes");
    }
    let field = |at: usize| json!({"name": format!("f{at}"), "type": "null"});
    let fields: Vec<Value> = (0..VALUES_FREE / 2).map(field).collect();
    let mut wide = AvroWriter::new(
        &json!({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"},
            {"name": "b", "type": {"type": "record", "name": "s", "fields": fields}}]}),
        "null",
    );
    wide.push_encoded(vec![0]);
    assert_eq!(read(&wide.bytes()).unwrap().len(), 1);
    wide.push_encoded(vec![0]);
    wide.push_encoded(vec![0]);
    check(&wide.bytes(), "there are too many values");
}

proptest! {
    #[test]
    fn hostile_bytes_are_refused_or_read(mut bytes in hostile()) {
        // It only has to return.
        drop(read(&bytes));
        bytes.truncate(bytes.len() / 2);
        drop(read(&bytes));
    }
}

/// A valid file with some bytes changed.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let pair = json!({"key": 7, "value": [1, 2]});
    let row = json!({"a": 1, "b": "x", "c": [pair], "d": pair});
    let good =
        CODECS.map(|codec| AvroWriter::new(&schema(), codec).record(&row).record(&row).bytes());
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8);
    (prop::sample::select(good.to_vec()), changes).prop_map(|(mut bytes, changes)| {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}
