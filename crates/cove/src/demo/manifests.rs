//! Manifests and manifest lists of format 2, as Avro containers without compression.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#manifests>
//! - <https://avro.apache.org/docs/1.12.0/specification/#object-container-files>

use serde_json::{Value, json};

/// Sync marker between the blocks of a container; any 16 bytes are valid.
const SYNC: &[u8; 16] = b"cove demo blocks";
/// Status of a file that its snapshot adds.
const ADDED: i64 = 1;

/// Data file, the manifest that lists it, and the snapshot that adds both.
#[derive(Clone, Debug)]
pub(super) struct DemoFile {
    pub(super) path: String,
    pub(super) bytes: i64,
    pub(super) rows: i64,
    pub(super) snapshot: i64,
    pub(super) sequence: i64,
    pub(super) manifest: String,
    /// Length of the manifest; 0 until it is written.
    pub(super) manifest_bytes: i64,
}

fn put_long(out: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push(u8::try_from(rest & 0x7f).unwrap_or_default() | 0x80);
        rest >>= 7;
    }
    out.push(u8::try_from(rest).unwrap_or_default());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_long(out, i64::try_from(text.len()).unwrap_or(i64::MAX));
    out.extend_from_slice(text.as_bytes());
}

fn container(schema: &Value, header: &[(&str, &str)], rows: &[Vec<u8>]) -> Vec<u8> {
    let mut out = b"Obj\x01".to_vec();
    let schema = schema.to_string();
    let mut all = vec![("avro.schema", schema.as_str()), ("avro.codec", "null")];
    all.extend_from_slice(header);
    put_long(&mut out, i64::try_from(all.len()).unwrap_or(i64::MAX));
    for (name, value) in all {
        put_text(&mut out, name);
        put_text(&mut out, value);
    }
    put_long(&mut out, 0);
    out.extend_from_slice(SYNC);
    put_long(&mut out, i64::try_from(rows.len()).unwrap_or(i64::MAX));
    put_long(&mut out, i64::try_from(rows.iter().map(Vec::len).sum::<usize>()).unwrap_or(i64::MAX));
    rows.iter().for_each(|row| out.extend_from_slice(row));
    out.extend_from_slice(SYNC);
    out
}

fn field(name: &str, id: i64, kind: &Value) -> Value {
    json!({"name": name, "type": kind, "field-id": id})
}

/// Returns the manifest of one added file. `schema` is the table's at that time.
pub(super) fn manifest(file: &DemoFile, schema: &Value) -> Vec<u8> {
    let (int, long, text) = (json!("int"), json!("long"), json!("string"));
    let data_file = json!({"type": "record", "name": "r2", "fields": [
        field("content", 134, &int),
        field("file_path", 100, &text),
        field("file_format", 101, &text),
        field("partition", 102, &json!({"type": "record", "name": "r102", "fields": []})),
        field("record_count", 103, &long),
        field("file_size_in_bytes", 104, &long),
    ]});
    // Union, whose second branch is written.
    let maybe = json!(["null", "long"]);
    let entry = json!({"type": "record", "name": "manifest_entry", "fields": [
        field("status", 0, &int),
        field("snapshot_id", 1, &maybe),
        field("sequence_number", 3, &maybe),
        field("file_sequence_number", 4, &maybe),
        field("data_file", 2, &data_file),
    ]});
    let mut row = Vec::new();
    put_long(&mut row, ADDED);
    for number in [file.snapshot, file.sequence, file.sequence] {
        put_long(&mut row, 1);
        put_long(&mut row, number);
    }
    put_long(&mut row, 0);
    put_text(&mut row, &file.path);
    put_text(&mut row, "PARQUET");
    put_long(&mut row, file.rows);
    put_long(&mut row, file.bytes);
    let (text, id) = (schema.to_string(), schema["schema-id"].to_string());
    let header = [
        ("schema", text.as_str()),
        ("schema-id", id.as_str()),
        ("partition-spec", "[]"),
        ("partition-spec-id", "0"),
        ("format-version", "2"),
        ("content", "data"),
    ];
    container(&entry, &header, &[row])
}

/// Returns the manifest list of the snapshot that adds the last of these files.
pub(super) fn manifest_list(files: &[DemoFile]) -> Vec<u8> {
    let (int, long) = (json!("int"), json!("long"));
    let schema = json!({"type": "record", "name": "manifest_file", "fields": [
        field("manifest_path", 500, &json!("string")),
        field("manifest_length", 501, &long),
        field("partition_spec_id", 502, &int),
        field("content", 517, &int),
        field("sequence_number", 515, &long),
        field("min_sequence_number", 516, &long),
        field("added_snapshot_id", 503, &long),
        field("added_files_count", 504, &int),
        field("existing_files_count", 505, &int),
        field("deleted_files_count", 506, &int),
        field("added_rows_count", 512, &long),
        field("existing_rows_count", 513, &long),
        field("deleted_rows_count", 514, &long),
    ]});
    let row = |file: &DemoFile| {
        let mut out = Vec::new();
        put_text(&mut out, &file.manifest);
        let (added, bytes) = (file.sequence, file.manifest_bytes);
        for number in [bytes, 0, 0, added, added, file.snapshot, 1, 0, 0, file.rows, 0, 0] {
            put_long(&mut out, number);
        }
        out
    };
    let last = files.last();
    let id = last.map_or(0, |it| it.snapshot).to_string();
    let sequence = last.map_or(0, |it| it.sequence).to_string();
    let header =
        [("snapshot-id", id.as_str()), ("sequence-number", &sequence), ("format-version", "2")];
    container(&schema, &header, &files.iter().map(row).collect::<Vec<_>>())
}
