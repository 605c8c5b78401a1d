//! Cost of the catalog's documents: serving, writing, parsing, appending.

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use catalog::cache::{AnswerText, CachedVersion, ParsedDocument, SnapshotSelection};
use iceberg::doc::TableDoc;
use iceberg::json::RawJson;
use iceberg::update;
use serde_json::Value;

use crate::fixtures;
use crate::measure::{Row, measure};

/// Number of snapshots in the long document.
const SNAPSHOTS: i64 = 1_000;

/// Returns all rows, and whether each must not allocate.
pub fn rows() -> Vec<(Row, bool)> {
    let (small, large) = (fixtures::small(), fixtures::large());
    let long = fixtures::long(SNAPSHOTS);
    vec![
        (serve("documents/small_serve", &fixtures::completed(&small)), true),
        (serve("documents/large_serve", &fixtures::completed(&large)), true),
        (serve("documents/thousand_serve", &long), true),
        (put("documents/small_put", 2_000, &fixtures::completed(&small)), true),
        (put("documents/large_put", 2_000, &fixtures::completed(&large)), true),
        (put("documents/thousand_put", 20, &long), true),
        (parse("documents/thousand_parse", &long), false),
        (append("documents/thousand_append", &long), false),
    ]
}

/// Measures the answer to a load: the bytes of the document, which all answers share.
fn serve(name: &'static str, value: &Value) -> Row {
    let text = AnswerText::of_read(None, Bytes::from(value.to_string()));
    let (document, doc) = (text.document().clone(), TableDoc::parse(text.document().clone()));
    let doc = ParsedDocument::Table(Arc::new(doc.expect("a document")));
    let entry = Arc::new(CachedVersion::new(None, doc, text));
    let length: usize = entry.frames(SnapshotSelection::All, None).iter().map(Bytes::len).sum();
    assert!(length > document.len(), "an answer is a document and more");
    measure(name, 2_000, |ops| {
        (0..ops).all(|_| {
            let frames = black_box(&entry).frames(SnapshotSelection::All, None);
            black_box(frames).iter().map(Bytes::len).sum::<usize>() == length
        })
    })
}

/// Measures writing a catalog document into a reused buffer.
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

/// Measures an append, from the request's body to the bytes of the next document.
fn append(name: &'static str, value: &Value) -> Row {
    let base = read(&value.to_string());
    let body = Bytes::from(fixtures::append(SNAPSHOTS));
    let next = |body: Bytes| -> catalog::Result<usize> {
        let request = update::parse_commit(&RawJson::parse(body)?)?;
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
