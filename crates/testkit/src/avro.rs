//! Avro container files, such as Iceberg manifests.
//!
//! # References
//! - <https://avro.apache.org/docs/1.12.0/specification/#object-container-files>

use std::io::Write as _;

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};

/// Container file that is being written.
#[derive(Debug)]
pub struct AvroWriter {
    schema: Value,
    codec: &'static str,
    header: Vec<(String, String)>,
    records: Vec<Vec<u8>>,
}

/// Codecs that Iceberg writes.
pub const CODECS: [&str; 4] = ["null", "deflate", "snappy", "zstandard"];

/// Marker between blocks.
const SYNC: [u8; 16] = [7; 16];

/// Appends a number in Avro's encoding: zigzag, seven bits per byte.
pub fn put_long(out: &mut Vec<u8>, number: i64) {
    let mut folded = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while folded >= 0x80 {
        out.push(u8::try_from(folded & 0x7f).expect("seven bits") | 0x80);
        folded >>= 7;
    }
    out.push(u8::try_from(folded).expect("seven bits"));
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_long(out, i64::try_from(bytes.len()).expect("a length"));
    out.extend_from_slice(bytes);
}

/// Appends a value of a schema. For a union it selects the branch that matches the value; bytes are
/// an array of numbers.
fn put(out: &mut Vec<u8>, schema: &Value, value: &Value) {
    match schema {
        Value::Array(branches) => {
            let at = branches.iter().position(|it| (*it == json!("null")) == value.is_null());
            let at = at.expect("a branch of the value's kind");
            put_long(out, i64::try_from(at).expect("a branch"));
            put(out, &branches[at], value);
        }
        Value::String(name) => match name.as_str() {
            "null" => {}
            "boolean" => out.push(u8::from(value.as_bool().expect("a boolean"))),
            "int" | "long" => put_long(out, value.as_i64().expect("a whole number")),
            "double" => out.extend_from_slice(&value.as_f64().expect("a number").to_le_bytes()),
            "string" => put_bytes(out, value.as_str().expect("a string").as_bytes()),
            "bytes" => {
                let all = value.as_array().expect("bytes as a list").iter();
                let all: Vec<u8> = all
                    .map(|it| it.as_u64().and_then(|it| u8::try_from(it).ok()).expect("a byte"))
                    .collect();
                put_bytes(out, &all);
            }
            "k1_v2" => put(out, &schema_of_pair(), value),
            other => panic!("{other}"),
        },
        Value::Object(object) => match object["type"].as_str().expect("a type") {
            "record" => {
                for field in object["fields"].as_array().expect("fields") {
                    let name = field["name"].as_str().expect("a name");
                    put(out, &field["type"], value.get(name).unwrap_or(&Value::Null));
                }
            }
            "array" => {
                let items = value.as_array().expect("a list");
                if !items.is_empty() {
                    put_long(out, i64::try_from(items.len()).expect("a length"));
                    items.iter().for_each(|item| put(out, &object["items"], item));
                }
                put_long(out, 0);
            }
            name => put(out, &json!(name), value),
        },
        _ => panic!("{schema}"),
    }
}

impl AvroWriter {
    /// Starts a file of records with this schema.
    #[must_use]
    pub fn new(schema: &Value, codec: &'static str) -> AvroWriter {
        AvroWriter { schema: schema.clone(), codec, header: Vec::new(), records: Vec::new() }
    }

    /// Adds a header entry.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> AvroWriter {
        self.header.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a record.
    #[must_use]
    pub fn record(mut self, value: &Value) -> AvroWriter {
        let mut out = Vec::new();
        put(&mut out, &self.schema, value);
        self.records.push(out);
        self
    }

    /// Adds an encoded record without checking it.
    pub fn push_encoded(&mut self, record: Vec<u8>) {
        self.records.push(record);
    }

    /// Returns the file, in blocks of two records.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"Obj\x01".to_vec();
        put_long(&mut out, i64::try_from(self.header.len() + 2).expect("a length"));
        let schema = self.schema.to_string();
        for (name, value) in [("avro.schema", schema.as_str()), ("avro.codec", self.codec)] {
            put_bytes(&mut out, name.as_bytes());
            put_bytes(&mut out, value.as_bytes());
        }
        for (name, value) in &self.header {
            put_bytes(&mut out, name.as_bytes());
            put_bytes(&mut out, value.as_bytes());
        }
        put_long(&mut out, 0);
        out.extend_from_slice(&SYNC);
        for block in self.records.chunks(2) {
            let plain = block.concat();
            let packed = pack(self.codec, &plain);
            put_long(&mut out, i64::try_from(block.len()).expect("a length"));
            put_bytes(&mut out, &packed);
            out.extend_from_slice(&SYNC);
        }
        out
    }
}

/// Returns the schema of the records in which manifests store column bounds.
#[must_use]
pub fn schema_of_pair() -> Value {
    json!({"type": "record", "name": "k1_v2", "fields": [
        {"name": "key", "field-id": 4, "type": "int"},
        {"name": "value", "field-id": 5, "type": "bytes"},
    ]})
}

/// Compresses a block with a codec.
#[must_use]
pub fn pack(codec: &str, plain: &[u8]) -> Vec<u8> {
    match codec {
        "deflate" => {
            let mut packer = DeflateEncoder::new(Vec::new(), Compression::fast());
            packer.write_all(plain).expect("deflate a block");
            packer.finish().expect("deflate a block")
        }
        "snappy" => {
            let mut packed = snap::raw::Encoder::new().compress_vec(plain).expect("pack a block");
            let mut crc = Crc::new();
            crc.update(plain);
            packed.extend_from_slice(&crc.sum().to_be_bytes());
            packed
        }
        "zstandard" => compress_to_vec(plain, CompressionLevel::Fastest),
        _ => plain.to_vec(),
    }
}
