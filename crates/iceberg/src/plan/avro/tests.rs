//! Files as their writers make them, and as nobody should.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::unpack::tests::pack;
use super::*;

/// Writes a container file.
pub(crate) struct Writer {
    schema: Value,
    codec: &'static str,
    header: Vec<(String, String)>,
    records: Vec<Vec<u8>>,
}

const CODECS: [&str; 4] = ["null", "deflate", "snappy", "zstandard"];

const SYNC: [u8; SYNC_BYTES] = [7; SYNC_BYTES];

fn long(out: &mut Vec<u8>, number: i64) {
    let mut folded = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while folded >= 0x80 {
        out.push(u8::try_from(folded & 0x7f).unwrap() | 0x80);
        folded >>= 7;
    }
    out.push(u8::try_from(folded).unwrap());
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    long(out, i64::try_from(bytes.len()).unwrap());
    out.extend_from_slice(bytes);
}

/// Appends a value of a schema. Of a union it is the branch that has the value's kind; bytes are a
/// list of numbers.
fn put(out: &mut Vec<u8>, schema: &Value, value: &Value) {
    match schema {
        Value::Array(branches) => {
            let at = branches.iter().position(|it| (*it == json!("null")) == value.is_null());
            let at = at.unwrap();
            long(out, i64::try_from(at).unwrap());
            put(out, &branches[at], value);
        }
        Value::String(name) => match name.as_str() {
            "null" => {}
            "boolean" => out.push(u8::from(value.as_bool().unwrap())),
            "int" | "long" => long(out, value.as_i64().unwrap()),
            "double" => out.extend_from_slice(&value.as_f64().unwrap().to_le_bytes()),
            "string" => bytes(out, value.as_str().unwrap().as_bytes()),
            "bytes" => {
                let all = value.as_array().unwrap().iter();
                let all: Vec<u8> =
                    all.map(|it| u8::try_from(it.as_u64().unwrap()).unwrap()).collect();
                bytes(out, &all);
            }
            "k1_v2" => put(out, &schema_of_pair(), value),
            other => panic!("{other}"),
        },
        Value::Object(object) => match object["type"].as_str().unwrap() {
            "record" => {
                for field in object["fields"].as_array().unwrap() {
                    let name = field["name"].as_str().unwrap();
                    put(out, &field["type"], value.get(name).unwrap_or(&Value::Null));
                }
            }
            "array" => {
                let items = value.as_array().unwrap();
                if !items.is_empty() {
                    long(out, i64::try_from(items.len()).unwrap());
                    items.iter().for_each(|item| put(out, &object["items"], item));
                }
                long(out, 0);
            }
            name => put(out, &json!(name), value),
        },
        _ => panic!("{schema}"),
    }
}

impl Writer {
    pub(crate) fn new(schema: &Value, codec: &'static str) -> Writer {
        Writer { schema: schema.clone(), codec, header: Vec::new(), records: Vec::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Writer {
        self.header.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn record(mut self, value: &Value) -> Writer {
        let mut out = Vec::new();
        put(&mut out, &self.schema, value);
        self.records.push(out);
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        long(&mut out, i64::try_from(self.header.len() + 2).unwrap());
        let schema = self.schema.to_string();
        for (name, value) in [("avro.schema", schema.as_str()), ("avro.codec", self.codec)] {
            bytes(&mut out, name.as_bytes());
            bytes(&mut out, value.as_bytes());
        }
        for (name, value) in &self.header {
            bytes(&mut out, name.as_bytes());
            bytes(&mut out, value.as_bytes());
        }
        long(&mut out, 0);
        out.extend_from_slice(&SYNC);
        for block in self.records.chunks(2) {
            let plain = block.concat();
            let packed = pack(self.codec, &plain);
            long(&mut out, i64::try_from(block.len()).unwrap());
            bytes(&mut out, &packed);
            out.extend_from_slice(&SYNC);
        }
        out
    }
}

fn schema_of_pair() -> Value {
    json!({"type": "record", "name": "k1_v2", "fields": [
        {"name": "key", "field-id": 4, "type": "int"},
        {"name": "value", "field-id": 5, "type": "bytes"},
    ]})
}

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
        let mut writer = Writer::new(&schema(), codec).header("k", "v");
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
    let good = Writer::new(&schema(), "null").record(&json!({"a": 1, "b": "x", "c": []}));
    let good = good.bytes();
    let check = |bytes: &[u8], expected: &str| {
        assert_eq!(read(bytes).unwrap_err().0, expected);
    };
    check(b"", "the file ends too early");
    check(b"Obj\x02", "it is no Avro file");
    check(&good[..good.len() - 1], "the file ends too early");
    let mut other_sync = good;
    *other_sync.last_mut().unwrap() = 8;
    check(&other_sync, "a block does not end where it says");
    for codec in ["bzip2", "xz", ""] {
        let packed = Writer::new(&schema(), codec).bytes();
        check(&packed, "its codec is none of `null`, `deflate`, `snappy` and `zstandard`");
    }
    let circle = json!({"type": "record", "name": "r", "fields": [
        {"name": "a", "type": "r"},
    ]});
    let mut endless = Writer::new(&circle, "null");
    endless.records.push(vec![0; 10]);
    check(&endless.bytes(), "a value is nested too deeply");
    let nothing = json!({"type": "record", "name": "r", "fields": []});
    let mut nothings = Writer::new(&nothing, "null");
    nothings.records.push(Vec::new());
    check(&nothings.bytes(), "the file ends too early");
    let list = json!({"type": "array", "items": "null"});
    let mut nulls = Writer::new(&list, "null");
    let mut many = Vec::new();
    long(&mut many, 1 << 40);
    nulls.records.push(many);
    check(&nulls.bytes(), "the file ends too early");
    // Without bytes there are few values, in a list and elsewhere.
    for items in [json!("null"), nothing] {
        let mut empty = Writer::new(&json!({"type": "array", "items": items}), "deflate");
        let mut record = Vec::new();
        long(&mut record, 1_000_000);
        record.resize(1_100_000, 0);
        empty.records.push(record);
        check(&empty.bytes(), "items of a list have no bytes");
    }
    let field = |at: usize| json!({"name": format!("f{at}"), "type": "null"});
    let fields: Vec<Value> = (0..VALUES_FREE / 2).map(field).collect();
    let mut wide = Writer::new(
        &json!({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"},
            {"name": "b", "type": {"type": "record", "name": "s", "fields": fields}}]}),
        "null",
    );
    wide.records.push(vec![0]);
    assert_eq!(read(&wide.bytes()).unwrap().len(), 1);
    wide.records.extend([vec![0], vec![0]]);
    check(&wide.bytes(), "there are too many values");
}

proptest! {
    #[test]
    fn hostile_bytes_are_refused_or_read(mut bytes in hostile()) {
        // That it comes back is all there is to show.
        drop(read(&bytes));
        bytes.truncate(bytes.len() / 2);
        drop(read(&bytes));
    }
}

/// A good file with some bytes changed.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let pair = json!({"key": 7, "value": [1, 2]});
    let row = json!({"a": 1, "b": "x", "c": [pair], "d": pair});
    let good = CODECS.map(|codec| Writer::new(&schema(), codec).record(&row).record(&row).bytes());
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8);
    (prop::sample::select(good.to_vec()), changes).prop_map(|(mut bytes, changes)| {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}
