//! Servers that share a store: the allowed age of responses.

use super::*;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

/// Checks whether one server sees a change of another one, with this setting.
async fn check(pointer_cache: Duration, is_seen: bool) {
    let server = Postgres::shared();
    let url = StoreUrl::Postgres(server.database());
    let one = Stage::new(url, Arc::new(Scratch::new())).await;
    let settings =
        CatalogSettings { pointer_cache, ..CatalogSettings::clone(&one.catalog.0.settings) };
    let store = one.store.clone();
    let other = Catalog::open(store, settings, Arc::new(OperatorsOnly)).await.unwrap();
    let warehouse = other.default_warehouse().unwrap();
    one.namespace(&["a"]).await;
    let t = ident(&["a"], "t");
    one.table(&t).await;
    let load = async || {
        let entry =
            other.relations().load(&one.who, &warehouse, RelationKind::Table, &t).await.unwrap();
        entry.pointer.clone().unwrap().version
    };
    assert_eq!(load().await, 1);
    // Queried in the store once, so that it is known to be current.
    assert_eq!(load().await, 1);
    one.commit(&t, &setting("from", "one")).await.unwrap();
    assert_eq!(load().await, if is_seen { 2 } else { 1 });
    // A change is never based on an outdated version, even if reads return one.
    let body = RawJson::of(&setting("from", "other")).unwrap();
    let entry = other.relations().commit_table(&one.call(), &warehouse, &t, &body).await.unwrap();
    assert_eq!(entry.pointer.clone().unwrap().version, 3);
    assert_eq!(load().await, 3);

    let list = async || {
        let place = (ListContent::Tables, Some(&t.namespace));
        let make = async || {
            let (kind, page) = (RelationKind::Table, PageRequest::default());
            let all =
                other.relations().list(&one.who, &warehouse, kind, &t.namespace, &page).await?;
            Ok(all.items.len().to_string().into())
        };
        other.lists().ready(&one.who, &warehouse, place.0, place.1, make).await.unwrap()
    };
    assert_eq!(list().await, "1");
    one.table(&ident(&["a"], "u")).await;
    assert_eq!(list().await, if is_seen { "2" } else { "1" });
    one.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_see_what_other_servers_did_at_once() {
    check(Duration::ZERO, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_may_be_told_to_bear_something_older() {
    check(LONG, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waited_for_another_reader_sees_what_was_done_before_he_asked() {
    let server = Postgres::shared();
    let url = StoreUrl::Postgres(server.database());
    let one = Stage::new(url, Arc::new(Scratch::new())).await;
    let other = one.again().await;
    one.namespace(&["a"]).await;
    let t = ident(&["a"], "t");
    let old = one.table(&t).await;
    // A reader has read the first version there, and has not published it yet.
    let lock = other.catalog.0.entries.hold_loads(&other.warehouse, &t).await;
    one.commit(&t, &setting("k", "v")).await.unwrap();
    let load = other.load(&t);
    tokio::pin!(load);
    tokio::select! {
        biased;
        _ = &mut load => panic!("it does not wait"),
        () = std::future::ready(()) => {}
    }
    other.catalog.0.entries.publish_entry(&other.warehouse, &t, old);
    drop(lock);
    assert_eq!(version(&load.await.unwrap()), 2);
    other.store.close().await;
    one.store.close().await;
}
