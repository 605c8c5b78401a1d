//! What the catalog's documents cost: to write them, to take them apart, to append to them. Prints
//! rows like `bench/pool`, and fails if a document is written with an allocation.

mod fixtures;
#[path = "../../pool/src/measure.rs"]
mod measure;

use std::hint::black_box;
use std::process::ExitCode;

use bytes::Bytes;
use catalog::doc::TableDoc;
use catalog::json::Fragment;
use catalog::update;
use measure::{Counting, Row, measure};
use serde_json::Value;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Snapshots of the long document.
const SNAPSHOTS: i64 = 1_000;

fn main() -> ExitCode {
    let (small, large) = (fixtures::small(), fixtures::large());
    assert_eq!(small.to_string().len(), 1640, "not the seed's small document");
    assert_eq!(large.to_string().len(), 8113, "not the seed's large document");
    let long = fixtures::long(SNAPSHOTS);
    let written = [
        serialize("documents/small_serialize", 1_000, &small),
        serialize("documents/large_serialize", 200, &large),
        put("documents/small_put", 2_000, &fixtures::completed(&small)),
        put("documents/large_put", 2_000, &fixtures::completed(&large)),
        put("documents/thousand_put", 20, &long),
    ];
    let others =
        [parse("documents/thousand_parse", &long), append("documents/thousand_append", &long)];
    let rows: Vec<String> = written.iter().chain(&others).map(Row::to_json).collect();
    println!("{{\"rows\":[\n{}\n]}}", rows.join(",\n"));
    let is_free = |row: &String| row.contains("\"allocs_per_op\":0.000000,");
    let is_right = rows.iter().all(|row| row.ends_with("\"checked\":true}"));
    if is_right && rows.iter().take(written.len()).all(is_free) {
        return ExitCode::SUCCESS;
    }
    eprintln!("a document came out wrong, or with an allocation");
    ExitCode::FAILURE
}

/// The seed's own row: values into a buffer that is used again.
fn serialize(name: &'static str, ops: usize, value: &Value) -> Row {
    let mut out = Vec::with_capacity(value.to_string().len());
    measure(name, ops, |ops| {
        (0..ops).all(|_| {
            out.clear();
            serde_json::to_writer(&mut out, black_box(value)).is_ok() && !out.is_empty()
        })
    })
}

/// A document of the catalog into a buffer that is used again.
fn put(name: &'static str, ops: usize, value: &Value) -> Row {
    let text = value.to_string();
    let doc = read(&text);
    let mut out = Vec::with_capacity(text.len());
    doc.put(&mut out);
    assert!(out == text.as_bytes(), "the document is not written as it was");
    measure(name, ops, |ops| {
        (0..ops).all(|_| {
            out.clear();
            black_box(&doc).put(&mut out);
            out.len() == text.len()
        })
    })
}

fn parse(name: &'static str, value: &Value) -> Row {
    let text = Bytes::from(value.to_string());
    measure(name, 5, |ops| (0..ops).all(|_| black_box(TableDoc::parse(text.clone())).is_ok()))
}

/// All that an append costs between the request's body and the bytes of the next document.
fn append(name: &'static str, value: &Value) -> Row {
    let base = read(&value.to_string());
    let body = Bytes::from(fixtures::append(SNAPSHOTS));
    let next = |body: Bytes| -> catalog::Result<usize> {
        let request = update::parse_commit(&Fragment::parse(body)?)?;
        update::check(&request.requirements, Some(&base))?;
        let new = update::apply(&base, &request.updates, base.last_updated_ms + 1_000)?;
        let (new, _) = update::logged(new.expect("a change"), &base, "s3://warehouse/before.json");
        Ok(new.settle()?.1.len())
    };
    measure(name, 5, |ops| (0..ops).all(|_| next(body.clone()).is_ok_and(|length| length > 0)))
}

fn read(text: &str) -> TableDoc {
    TableDoc::parse(Bytes::copy_from_slice(text.as_bytes())).expect("a document")
}
