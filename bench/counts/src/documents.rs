//! Iceberg's documents: read, written, created, changed.

use std::hint::black_box;

use bytes::Bytes;
use iceberg::create::CreateTable;
use iceberg::doc::TableDoc;
use iceberg::json::RawJson;
use iceberg::update;

#[path = "../../catalog/src/fixtures.rs"]
#[expect(dead_code, reason = "some of its documents are only of the other program")]
mod fixtures;

const SNAPSHOTS: i64 = 1_000;
/// Entries of a full log of metadata files.
const LOGGED: usize = 100;
const NOW_MS: i64 = 1_800_000_000_000;
const CREATE: &str = r#"{"name":"t","schema":{"type":"struct","schema-id":0,"fields":[FIELDS]},
"properties":{"owner":"bench"}}"#;
const COMMIT: &str = r#"{"requirements":[{"type":"assert-table-uuid",
"uuid":"550e8400-e29b-41d4-a716-446655440000"}],
"updates":[{"action":"set-properties","updates":{"bench":"4711"}}]}"#;

fn small() -> Bytes {
    Bytes::from(fixtures::completed(&fixtures::small()).to_string())
}

fn read(text: Bytes) -> TableDoc {
    TableDoc::parse(text).expect("a document")
}

/// Parses a table of twenty columns.
pub fn parse_small(operations: u64) {
    let text = small();
    for _ in 0..operations {
        assert_eq!(read(black_box(&text).clone()).schemas.len(), 1);
    }
}

/// Writes a table of twenty columns into a reused buffer.
pub fn write_small(operations: u64) {
    let text = small();
    let (document, mut out) = (read(text.clone()), Vec::with_capacity(text.len()));
    for _ in 0..operations {
        out.clear();
        black_box(&document).put(&mut out);
        assert_eq!(out.len(), text.len());
    }
}

/// Creates the document of a new table of twenty columns, from the request to its bytes.
pub fn create(operations: u64) {
    let field =
        |n: i32| format!(r#"{{"id":{n},"name":"column_{n}","required":false,"type":"string"}}"#);
    let fields: Vec<String> = (1..=20).map(field).collect();
    let body = Bytes::from(CREATE.replace("FIELDS", &fields.join(",")));
    for _ in 0..operations {
        let request = CreateTable::parse(&RawJson::parse(body.clone()).expect("JSON"));
        let uuid = "550e8400-e29b-41d4-a716-446655440000".parse().expect("a UUID");
        let document = request.expect("a request").document(uuid, "s3://warehouse/t", NOW_MS);
        assert!(document.expect("a table").to_bytes().len() > 1000);
    }
}

/// Commits, from the request's body to the bytes of the next document.
fn commit(base: &TableDoc, body: &Bytes) -> usize {
    let next = || {
        let request = update::parse_commit(&RawJson::parse(body.clone())?)?;
        update::check(&request.requirements, Some(base))?;
        let new = update::apply(base, &request.updates, base.last_updated_ms + 1_000)?;
        let (new, _) = update::logged(new.expect("a change"), base, "s3://warehouse/before.json");
        Ok::<_, iceberg::CatalogError>(new.settle()?.1.len())
    };
    next().expect("a commit")
}

/// Commits a property.
pub fn commit_property(operations: u64) {
    let (base, body) = (read(small()), Bytes::from(COMMIT));
    for _ in 0..operations {
        assert!(commit(black_box(&base), &body) > 1000);
    }
}

/// Commits a property to a table whose log of metadata files is full.
pub fn commit_logged(operations: u64) {
    let mut base = read(small());
    for number in 0..LOGGED {
        let file = format!("file:///warehouse/small/metadata/{number:05}-{:036}.json", number);
        base = update::logged(base.clone(), &base, &file).0;
    }
    let (base, body) = (read(base.to_bytes()), Bytes::from(COMMIT));
    assert_eq!(base.metadata_log.len(), LOGGED);
    for _ in 0..operations {
        assert!(commit(black_box(&base), &body) > 10_000);
    }
}

/// Parses a table with a thousand snapshots.
pub fn parse_thousand(operations: u64) {
    let text = Bytes::from(fixtures::long(SNAPSHOTS).to_string());
    for _ in 0..operations {
        assert_eq!(read(black_box(&text).clone()).snapshots.len(), SNAPSHOTS as usize);
    }
}

/// Adds a snapshot to a table with a thousand.
pub fn append_thousand(operations: u64) {
    let base = read(Bytes::from(fixtures::long(SNAPSHOTS).to_string()));
    let body = Bytes::from(fixtures::append(SNAPSHOTS));
    for _ in 0..operations {
        assert!(commit(black_box(&base), &body) > 100_000);
    }
}
