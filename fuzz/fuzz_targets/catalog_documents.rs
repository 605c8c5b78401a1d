//! JSON, table metadata and view metadata of the catalog: a document that was read and written
//! reads the same.
#![no_main]

use bytes::Bytes;
use iceberg::doc::TableDoc;
use iceberg::json::RawJson;
use iceberg::view::ViewDoc;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = Bytes::copy_from_slice(bytes);
    if let Ok(json) = RawJson::parse(text.clone()) {
        serde_json::from_slice::<serde::de::IgnoredAny>(bytes).expect("the second opinion");
        let compact = RawJson::parse(json.compact().bytes()).expect("JSON without blanks");
        assert_eq!(compact.compact(), compact);
    }
    if let Ok(doc) = TableDoc::parse(text.clone()) {
        let written = doc.to_bytes();
        let second = TableDoc::parse(written.clone()).expect("a document of ours");
        assert_eq!(second.to_bytes(), written);
        assert_eq!(doc.settle().expect("a document of ours").1, written);
    }
    if let Ok(view) = ViewDoc::parse(text) {
        let (settled, written) = view.settle().expect("a view of ours");
        assert_eq!(settled.to_bytes(), written);
    }
});
