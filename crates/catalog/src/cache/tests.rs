//! What is cached and evicted, and that outdated entries are never inserted.

use std::io::Read as _;

use bytes::Bytes;
use flate2::read::GzDecoder;
use iceberg::doc::TableDoc;
use iceberg::ident::NamespaceIdent;

use super::*;
use crate::store::{MetadataPointer, RelationKind};

/// A document with snapshots 1 to `count`; `main` refers to the last one.
pub(crate) fn document(count: i64) -> String {
    let snapshots: Vec<_> = (1..=count)
        .map(|id| {
            format!(
                r#"{{"sequence-number":{id},"snapshot-id":{id},"timestamp-ms":{id},"summary":{{"operation":"append"}},"manifest-list":"file:///w/{id}.avro","schema-id":0}}"#
            )
        })
        .collect();
    let (snapshots, last) = (snapshots.join(","), count.max(1));
    format!(
        r#"{{"format-version":2,"table-uuid":"0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b","location":"file:///w/t","last-sequence-number":{count},"last-updated-ms":{last},"last-column-id":1,"current-schema-id":0,"schemas":[{{"type":"struct","schema-id":0,"fields":[{{"id":1,"name":"x","required":false,"type":"long"}}]}}],"default-spec-id":0,"partition-specs":[{{"spec-id":0,"fields":[]}}],"last-partition-id":999,"default-sort-order-id":0,"sort-orders":[{{"order-id":0,"fields":[]}}],"properties":{{}},"current-snapshot-id":{count},"refs":{{"main":{{"snapshot-id":{count},"type":"branch"}}}},"snapshots":[{snapshots}],"statistics":[],"partition-statistics":[],"snapshot-log":[],"metadata-log":[]}}"#
    )
}

fn entry(version: u64, document: &str) -> Arc<CachedVersion> {
    let pointer = MetadataPointer {
        id: "tb_1".to_owned(),
        kind: RelationKind::Table,
        uuid: "u".to_owned(),
        base: "file:///w/t".to_owned(),
        version,
        location: format!("file:///w/t/metadata/{version:05}.metadata.json"),
    };
    let text = AnswerText::of_read(Some(&pointer.location), Bytes::from(document.to_owned()));
    let doc = TableDoc::parse(text.document().clone()).unwrap();
    Arc::new(CachedVersion::new(Some(pointer), ParsedDocument::Table(Arc::new(doc)), text))
}

fn key(name: &str) -> CacheKey {
    let ident = TableIdent::new(NamespaceIdent::new(["ns"]).unwrap(), name).unwrap();
    CacheKey { warehouse: "wh_1".into(), ident }
}

fn get(cache: &EntryCache, key: &CacheKey) -> Option<Arc<CachedVersion>> {
    cache.get(&key.warehouse, &key.ident)
}

#[tokio::test]
async fn an_answer_is_the_same_in_pieces_and_compressed() {
    for count in [1, 3, 1000] {
        let text = document(count);
        let entry = entry(7, &text);
        assert_eq!(entry.document(), &text);
        for snapshots in [SnapshotSelection::All, SnapshotSelection::Refs] {
            for end in [None, Some(Bytes::from_static(br#","config":{"a":"b"}}"#))] {
                let answer = entry.frames(snapshots, end.clone()).concat();
                let json: serde_json::Value = serde_json::from_slice(&answer).unwrap();
                let location = "file:///w/t/metadata/00007.metadata.json";
                assert_eq!(json["metadata-location"], location);
                let expected = if snapshots == SnapshotSelection::All { count } else { 1 };
                let found = json["metadata"]["snapshots"].as_array().unwrap().len();
                assert_eq!(i64::try_from(found).unwrap(), expected);
                assert_eq!(json.get("config").is_some(), end.is_some());
                let member = entry.gzip(snapshots, end.as_deref()).await.unwrap().concat();
                let mut text = Vec::new();
                GzDecoder::new(&member[..]).read_to_end(&mut text).unwrap();
                assert!(text == answer, "{count} {snapshots:?}");
            }
        }
    }
}

#[test]
fn an_etag_tells_versions_and_modes_apart() {
    let (one, two) = (entry(1, &document(1)), entry(2, &document(1)));
    let tags = [&one, &two]
        .map(|it| [SnapshotSelection::All, SnapshotSelection::Refs].map(|mode| it.etag(mode)));
    let mut tags = tags.concat();
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), 4);
    assert_eq!(
        one.etag(SnapshotSelection::All),
        entry(1, &document(1)).etag(SnapshotSelection::All)
    );
}

#[test]
fn what_was_not_asked_for_gives_way() {
    let weight = entry(1, &document(1)).weight() + key("hot").weight();
    let cache = EntryCache::new(10 * weight + 100);
    let hot = key("hot");
    cache.publish(hot.clone(), entry(1, &document(1)));
    for number in 0..1000 {
        assert!(get(&cache, &hot).is_some(), "{number}: it is in use");
        cache.publish(key(&format!("t{number}")), entry(1, &document(1)));
        assert!(cache.size().0 <= 10 * weight + 100);
    }
    assert_eq!(cache.size(), (10 * weight, 10));
    // If all entries are in use and there is no room, some are evicted nevertheless.
    for number in 0..1000 {
        let key = key(&format!("u{number}"));
        cache.publish(key.clone(), entry(1, &document(1)));
        drop(get(&cache, &key));
    }
    assert_eq!(cache.size(), (10 * weight, 10));
    // An entry that is too long is not cached, and replaces nothing but its own old version.
    let long = key("long");
    cache.publish(long.clone(), entry(1, &document(1)));
    // It may have been evicted itself: the first shard to search depends on chance.
    let left = 10 - usize::from(get(&cache, &long).is_some());
    cache.publish(long.clone(), entry(2, &document(1000)));
    assert!(get(&cache, &long).is_none());
    assert_eq!(cache.size(), (left * weight, left));
    for _ in 0..1000 {
        cache.publish(hot.clone(), entry(1, &document(1)));
        cache.forget(&hot);
    }
    let queue = cache.shard(&hot).read().queue.len();
    assert!(queue <= QUEUE_FACTOR * 10 + QUEUE_MIN + 1, "{queue}");
}

#[test]
fn an_entry_that_outgrows_its_part_is_removed_before_those_in_use() {
    let small = entry(1, &document(1)).weight() + key("t0").weight();
    let large = entry(1, &document(100)).weight() + key("large").weight();
    let cache = EntryCache::new(2 * large);
    let names: Vec<_> = (0..large / 2 / small).map(|number| key(&format!("t{number}"))).collect();
    for name in &names {
        cache.publish(name.clone(), entry(1, &document(1)));
    }
    cache.publish(key("large"), entry(1, &document(100)));
    let grown = get(&cache, &key("large")).unwrap();
    assert!(names.iter().all(|name| get(&cache, name).is_some()));
    grown.grow(large / 2);
    assert!(cache.size().0 <= 2 * large, "there is room for what grew");
    grown.grow(large);
    assert!(cache.size().0 > 2 * large);
    let kept = names.iter().filter(|name| get(&cache, name).is_some()).count();
    assert_eq!(kept, names.len());
    assert!(get(&cache, &key("large")).is_none());
    assert_eq!(cache.size(), (names.len() * small, names.len()));
}

#[test]
fn what_was_read_before_a_commit_is_not_kept_after_it() {
    let cache = EntryCache::new(1 << 20);
    let version =
        |key: &CacheKey| get(&cache, key).and_then(|it| Some(it.pointer.as_ref()?.version));
    let key = key("t");
    cache.read(key.clone()).keep(entry(1, &document(1)));
    assert_eq!(version(&key), Some(1));
    cache.forget(&key);

    let reading = cache.read(key.clone());
    cache.publish(key.clone(), entry(2, &document(1)));
    reading.keep(entry(1, &document(1)));
    assert_eq!(version(&key), Some(2));

    let reading = cache.read(key.clone());
    cache.forget(&key);
    reading.keep(entry(2, &document(1)));
    assert_eq!(version(&key), None, "it was dropped");

    drop(cache.read(key.clone()));
    assert!(cache.shard(&key).read().pending.is_empty());
}
