//! Requests of the catalog that create, change and scan tables and views. The documents that they
//! produce can be read.
#![no_main]

use bytes::Bytes;
use iceberg::create::CreateTable;
use iceberg::doc::TableDoc;
use iceberg::ident::Uuid;
use iceberg::json::RawJson;
use iceberg::plan::{FilterExpression, ScanRequest};
use iceberg::update::{apply, parse_commit};
use iceberg::view::{CreateView, ViewDoc, apply_view, parse_view_commit};
use libfuzzer_sys::fuzz_target;

const UUID: &str = "9c12d441-03fe-4693-9a96-a0705ddf69c1";
const LOCATION: &str = "s3://bucket/table";
const NOW_MS: i64 = 1_700_000_000_000;

fuzz_target!(|bytes: &[u8]| {
    let Ok(body) = RawJson::parse(Bytes::copy_from_slice(bytes)) else { return };
    let uuid = || UUID.parse::<Uuid>().expect("a UUID");
    let _ = FilterExpression::parse(&body);
    let _ = ScanRequest::parse(&body);
    if let Ok(table) =
        CreateTable::parse(&body).and_then(|it| it.document(uuid(), LOCATION, NOW_MS))
    {
        TableDoc::parse(table.to_bytes()).expect("a table that was created");
    }
    if let Ok(view) = CreateView::parse(&body).and_then(|it| it.document(uuid(), LOCATION, NOW_MS))
    {
        ViewDoc::parse(view.to_bytes()).expect("a view that was created");
        if let Ok(commit) = parse_view_commit(&body) {
            let _ = apply_view(&view, &commit.updates, NOW_MS);
        }
    }
    if let Ok(commit) = parse_commit(&body) {
        let base = TableDoc::empty(2, UUID, LOCATION, NOW_MS);
        if let Ok(Some(changed)) = apply(&base, &commit.updates, NOW_MS) {
            TableDoc::parse(changed.to_bytes()).expect("a table that was changed");
        }
    }
});
