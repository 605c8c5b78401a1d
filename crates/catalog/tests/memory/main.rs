//! Memory use of the document cache: measured for the whole process, and so separate from other
//! tests.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use catalog::cache::{
    AnswerText, CacheKey, CachedVersion, EntryCache, ParsedDocument, SnapshotSelection,
};
use catalog::store::{MetadataPointer, RelationKind};
use iceberg::create::CreateTable;
use iceberg::doc::TableDoc;
use iceberg::ident::{NamespaceIdent, TableIdent, Uuid};
use iceberg::json::RawJson;
use iceberg::update;

/// Number of entries: enough to make other memory of the process negligible.
const ENTRIES: usize = 4_000;
/// Entries before the first measurement.
const WARM: usize = 100;
/// Time of a request, in milliseconds since 1970.
const NOW_MS: i64 = 1_800_000_000_000;

/// Origin of a cached entry.
#[derive(Clone, Copy, Debug)]
enum EntrySource {
    /// Its table was created by a request.
    Create,
    /// A commit has added a snapshot to it, by a request with much other content.
    Commit,
    /// It was read from the store.
    Store,
}

/// A table of twenty columns, in a request that is longer than the stored part.
fn request() -> RawJson {
    let field =
        |n: i32| format!(r#"{{"id":{n},"name":"column_{n}","required":false,"type":"string"}}"#);
    let fields: Vec<String> = (1..=20).map(field).collect();
    let text = format!(
        r#"{{"name":"t","schema":{{"type":"struct","schema-id":0,"fields":[{}]}},"x-other":"{}"}}"#,
        fields.join(","),
        "x".repeat(2_000)
    );
    RawJson::parse(text.into()).expect("JSON")
}

fn drafted(number: usize) -> TableDoc {
    let request = CreateTable::parse(&request()).expect("a request");
    let uuid = Uuid::v4().expect("a UUID");
    let location = format!("file:///var/lib/cove/warehouse/namespace/table_{number}");
    request.document(uuid, &location, NOW_MS).expect("a document")
}

/// Returns a document with one more snapshot.
fn committed(base: &TableDoc, before: &str) -> TableDoc {
    let id = base.snapshots.len() + 1;
    let body = format!(
        r#"{{"requirements":[],"x-other":"{}","updates":[{{"action":"add-snapshot","snapshot":
        {{"sequence-number":{id},"snapshot-id":{id},"timestamp-ms":{NOW_MS},"schema-id":0,
        "summary":{{"operation":"append"}},"manifest-list":"{}/metadata/{id}.avro"}}}},
        {{"action":"set-snapshot-ref","ref-name":"main","type":"branch","snapshot-id":{id}}}]}}"#,
        "x".repeat(2_000),
        base.location
    );
    let body = RawJson::parse(body.into()).expect("JSON");
    let request = update::parse_commit(&body).expect("a request");
    let next = update::apply(base, &request.updates, NOW_MS).expect("a commit");
    update::logged(next.expect("a change"), base, before).0
}

fn entry(source: EntrySource, number: usize) -> CachedVersion {
    let mut doc = drafted(number);
    let location = format!("{}/metadata/00000-{}.metadata.json", doc.location, doc.uuid);
    let pointer = MetadataPointer {
        id: format!("tb_{:020}", number),
        kind: RelationKind::Table,
        uuid: doc.uuid.clone(),
        base: doc.location.clone(),
        version: 1,
        location: location.clone(),
    };
    if let EntrySource::Commit = source {
        // Twice, so that there is a snapshot without a branch.
        doc = committed(&committed(&doc, &location), &location);
    }
    let (doc, text) = match source {
        EntrySource::Create | EntrySource::Commit => {
            AnswerText::of_table(doc, Some(&location)).expect("a document")
        }
        EntrySource::Store => {
            let document = Bytes::from(doc.to_bytes().to_vec());
            let text = AnswerText::of_read(Some(&location), document);
            (TableDoc::parse(text.document().clone()).expect("a document"), text)
        }
    };
    CachedVersion::new(Some(pointer), ParsedDocument::Table(Arc::new(doc)), text)
}

fn key(number: usize) -> CacheKey {
    let namespace = NamespaceIdent::new(["namespace"]).expect("a namespace");
    let ident = TableIdent::new(namespace, &format!("table_{number}")).expect("a table");
    CacheKey { warehouse: "wh_1".into(), ident }
}

/// Returns the resident memory of this process, in bytes.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: usize = status.split(' ').nth(1).expect("resident").parse().expect("pages");
    pages * 4096
}

fn fill(cache: &EntryCache, source: EntrySource, numbers: Range<usize>) {
    for number in numbers {
        cache.publish(key(number), Arc::new(entry(source, number)));
    }
}

/// Requests compressed responses of entries, in every form.
async fn compress(cache: &EntryCache, numbers: Range<usize>) {
    for number in numbers {
        let key = key(number);
        let entry = cache.get(&key.warehouse, &key.ident).expect("an entry");
        for snapshots in [SnapshotSelection::All, SnapshotSelection::Refs] {
            entry.gzip(snapshots, None).await.expect("an answer");
        }
    }
}

#[track_caller]
fn check(what: &str, counted: usize, held: usize) {
    let is_near = counted * 100 >= held * 85 && counted * 100 <= held * 115;
    assert!(is_near, "{what}: {counted} bytes are counted, {held} are held");
}

/// One test, because concurrent ones would distort the measurement.
#[tokio::test]
async fn the_cache_counts_what_it_holds() {
    // Memory released by one cache would be reused by the next.
    let mut caches = Vec::new();
    for source in [EntrySource::Create, EntrySource::Commit, EntrySource::Store] {
        let cache = EntryCache::new(1 << 30);
        fill(&cache, source, 0..WARM);
        compress(&cache, 0..WARM).await;
        let (memory_before, counted_before) = (memory(), cache.figures().bytes);
        fill(&cache, source, WARM..WARM + ENTRIES);
        let counted = cache.figures().bytes - counted_before;
        check(&format!("{source:?}"), counted, memory() - memory_before);
        if let EntrySource::Commit = source {
            compress(&cache, WARM..WARM + ENTRIES).await;
            let counted_again = cache.figures().bytes - counted_before;
            assert!(counted_again > counted + 500 * ENTRIES, "an entry that grows counts more");
            check("compressed", counted_again, memory() - memory_before);
        }
        caches.push(cache);
    }
    for cache in caches {
        for number in 0..WARM + ENTRIES {
            cache.forget(&key(number));
        }
        assert_eq!(cache.figures().bytes, 0);
    }
}
