//! The store on SQLite and on PostgreSQL: every test runs on both.

use bytes::Bytes;
use iceberg::ident::{NamespaceIdent, TableIdent, Uuid};
use std::time::Duration;

use node::clock;
use node::store::{StoreConfig, StoreUrl};
use node::telemetry::Registry;
use testkit::{Postgres, Scratch};

use super::*;
use crate::error::ErrorReason;

mod places;

const WAREHOUSE: &str = "wh_1";
const NOW: u64 = 1_800_000_000_000;

pub(crate) async fn open(url: StoreUrl) -> CatalogStore {
    let store = SqlStore::open(StoreConfig::new(url), &mut Registry::default()).await.unwrap();
    CatalogStore::open(store).await.unwrap()
}

/// Runs a test on a store of each engine, and on one with a collation other than byte order.
async fn check(claim: impl AsyncFn(&CatalogStore)) {
    let scratch = Scratch::new();
    let server = Postgres::shared();
    for url in [
        StoreUrl::Sqlite(scratch.path().join("db")),
        StoreUrl::Postgres(server.database()),
        StoreUrl::Postgres(server.linguistic_database()),
    ] {
        let store = open(url).await;
        let (id, name) = (WAREHOUSE.to_owned(), "first".to_owned());
        let root = "file:///w".to_owned();
        let row = WarehouseRow { id, name, root, created_ms: NOW, storage: None };
        store.warehouses().insert_warehouse(row, Vec::new(), Properties::new()).await.unwrap();
        claim(&store).await;
        store.database.sql_store().close().await;
    }
}

fn context() -> ChangeContext {
    ChangeContext {
        principal: "someone".to_owned(),
        is_operator: false,
        now_ms: NOW,
        key: None,
        names: None,
    }
}

fn namespace(levels: &[&str]) -> NamespaceIdent {
    NamespaceIdent::new(levels).unwrap()
}

fn table(levels: &[&str], name: &str) -> TableIdent {
    TableIdent::new(namespace(levels), name).unwrap()
}

fn relation(ident: &TableIdent, kind: RelationKind) -> NewRelation {
    NewRelation {
        ident: ident.clone(),
        kind,
        uuid: "u".to_owned(),
        base: format!("file:///w/{}", ident.name),
        places: Vec::new(),
        location: format!("file:///w/{}/1.json", ident.name),
        document: Bytes::from_static(b"{}"),
        act: LogAction::CreateTable,
    }
}

fn next(ident: &TableIdent, expected: &MetadataPointer, document: &str) -> PointerSwap {
    PointerSwap {
        ident: ident.clone(),
        expected: expected.clone(),
        uuid: expected.uuid.clone(),
        base: expected.base.clone(),
        places: Vec::new(),
        location: format!("{}/{}.json", expected.base, expected.version + 1),
        document: Bytes::from(document.to_owned()),
        act: LogAction::UpdateTable,
    }
}

fn refusal<T: std::fmt::Debug>(result: Result<T>) -> (ErrorReason, String) {
    let error = result.unwrap_err();
    (error.kind, error.message)
}

async fn with_namespaces(store: &CatalogStore, all: &[&[&str]]) {
    for levels in all {
        let ident = namespace(levels);
        store
            .namespaces()
            .insert_namespace(&context(), WAREHOUSE, &ident, &Properties::new())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_namespace_is_made_below_its_parent_and_goes_when_it_is_empty() {
    check(async |store| {
        let (above, below) = (namespace(&["a"]), namespace(&["a", "b.c"]));
        let none = Properties::new();
        let early = store.namespaces().insert_namespace(&context(), WAREHOUSE, &below, &none).await;
        assert_eq!(
            refusal(early),
            (ErrorReason::NoSuchNamespace, "Namespace does not exist: a".into())
        );
        with_namespaces(store, &[&["a"], &["a", "b.c"]]).await;
        let again = store.namespaces().insert_namespace(&context(), WAREHOUSE, &above, &none).await;
        assert_eq!(
            refusal(again),
            (ErrorReason::AlreadyExists, "Namespace already exists: a".into())
        );
        let full = store.namespaces().drop_namespace(&context(), WAREHOUSE, &above).await;
        assert_eq!(
            refusal(full),
            (ErrorReason::NamespaceNotEmpty, "Namespace a is not empty".into())
        );
        let inner = table(&["a", "b.c"], "t");
        let new = relation(&inner, RelationKind::View);
        store.relations().insert_relation(&context(), WAREHOUSE, new).await.unwrap();
        let full = store.namespaces().drop_namespace(&context(), WAREHOUSE, &below).await;
        assert_eq!(refusal(full).0, ErrorReason::NamespaceNotEmpty);
        let what = (RelationKind::View, &inner);
        store
            .relations()
            .drop_relation(&context(), WAREHOUSE, what.0, what.1, LogAction::DropView)
            .await
            .unwrap();
        store.namespaces().drop_namespace(&context(), WAREHOUSE, &below).await.unwrap();
        store.namespaces().drop_namespace(&context(), WAREHOUSE, &above).await.unwrap();
        let gone = store.namespaces().drop_namespace(&context(), WAREHOUSE, &above).await;
        assert_eq!(refusal(gone).0, ErrorReason::NoSuchNamespace);
        let acts: Vec<_> = store.change_log().log(WAREHOUSE, 0, 100).await.unwrap();
        let acts: Vec<_> = acts.iter().map(|line| line.act.as_str()).collect();
        let expected = ["create-namespace", "create-namespace", "create-table", "drop-view"];
        assert_eq!(acts, [&expected[..], &["drop-namespace", "drop-namespace"]].concat());
    })
    .await;
}

#[tokio::test]
async fn properties_of_a_namespace_change_together() {
    check(async |store| {
        let ident = namespace(&["a"]);
        let of = |pairs: &[(&str, &str)]| -> Properties {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let first = of(&[("x", "1"), ("y", "2")]);
        store.namespaces().insert_namespace(&context(), WAREHOUSE, &ident, &first).await.unwrap();
        let removals = vec!["x".to_owned(), "z".to_owned()];
        let updates = of(&[("y", "3"), ("w", "4")]);
        let change = PropertiesChange { removals, updates, known_location: None };
        let done = store.namespaces().update_namespace(&context(), WAREHOUSE, &ident, change).await;
        let expected = PropertiesChanged {
            updated: vec!["w".to_owned(), "y".to_owned()],
            removed: vec!["x".to_owned()],
            missing: vec!["z".to_owned()],
        };
        assert_eq!(done.unwrap(), expected);
        let now = store.namespaces().namespace(WAREHOUSE, &ident).await.unwrap();
        assert_eq!(now, Some(of(&[("w", "4"), ("y", "3")])));
        assert_eq!(store.namespaces().namespace("wh_2", &ident).await.unwrap(), None);
        // A change of its location requires the known one.
        for (known, expected) in [
            (Some(Some("file:///w/a")), Some(ErrorReason::CommitFailed)),
            (Some(None), None),
            (Some(None), Some(ErrorReason::CommitFailed)),
            (Some(Some("file:///w/b")), None),
            (None, None),
        ] {
            let updates = of(&[("location", "file:///w/b")]);
            let known_location = known.map(|it| it.map(str::to_owned));
            let change = PropertiesChange { updates, known_location, removals: vec![] };
            let done =
                store.namespaces().update_namespace(&context(), WAREHOUSE, &ident, change).await;
            assert_eq!(done.err().map(|error| error.kind), expected, "{known:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn lists_go_on_where_a_page_ended() {
    check(async |store| {
        with_namespaces(store, &[&["a"], &["b"], &["c"], &["b", "x"], &["b", "y"]]).await;
        let all = store.namespaces().list(WAREHOUSE, None, None, None).await.unwrap();
        assert_eq!(all, [namespace(&["a"]), namespace(&["b"]), namespace(&["c"])]);
        let rest =
            store.namespaces().list(WAREHOUSE, None, Some("a".to_owned()), Some(1)).await.unwrap();
        assert_eq!(rest, [namespace(&["b"])]);
        let below = store.namespaces().list(WAREHOUSE, Some(&namespace(&["b"])), None, None).await;
        assert_eq!(below.unwrap(), [namespace(&["b", "x"]), namespace(&["b", "y"])]);
        let none = store.namespaces().list(WAREHOUSE, Some(&namespace(&["z"])), None, None).await;
        assert_eq!(refusal(none).0, ErrorReason::NoSuchNamespace);
        for (name, kind) in
            [("t1", RelationKind::Table), ("t2", RelationKind::Table), ("v", RelationKind::View)]
        {
            let new = relation(&table(&["b"], name), kind);
            store.relations().insert_relation(&context(), WAREHOUSE, new).await.unwrap();
        }
        let ns = namespace(&["b"]);
        for (kind, after, limit, expected) in [
            (RelationKind::Table, None, None, vec!["t1", "t2"]),
            (RelationKind::Table, None, Some(1), vec!["t1"]),
            (RelationKind::Table, Some("t1"), Some(1), vec!["t2"]),
            (RelationKind::View, None, None, vec!["v"]),
        ] {
            let after = after.map(str::to_owned);
            let names = store.relations().list(WAREHOUSE, &ns, kind, after, limit).await.unwrap();
            assert_eq!(names, expected);
        }
    })
    .await;
}

#[tokio::test]
async fn a_pointer_moves_only_from_where_it_is_thought_to_be() {
    check(async |store| {
        with_namespaces(store, &[&["a"]]).await;
        let (one, two) = (table(&["a"], "one"), table(&["a"], "two"));
        let new = |ident| relation(ident, RelationKind::Table);
        let at_one =
            store.relations().insert_relation(&context(), WAREHOUSE, new(&one)).await.unwrap();
        let at_two =
            store.relations().insert_relation(&context(), WAREHOUSE, new(&two)).await.unwrap();
        let swaps = vec![next(&one, &at_one, r#"{"n":2}"#)];
        let done = store.relations().swap(&context(), WAREHOUSE, swaps, Vec::new()).await.unwrap();
        assert_eq!((done.swapped[0].version, &*done.swapped[0].id), (2, &*at_one.id));
        // Of two swaps one is stale: neither pointer moves, and nothing is created.
        let swaps = vec![next(&two, &at_two, "{}"), next(&one, &at_one, "{}")];
        let made = vec![new(&table(&["a"], "three"))];
        let lost = store.relations().swap(&context(), WAREHOUSE, swaps, made).await;
        assert_eq!(refusal(lost).0, ErrorReason::CommitFailed);
        assert_eq!(store.relations().pointer(WAREHOUSE, &two).await.unwrap(), Some(at_two));
        assert_eq!(
            store.relations().pointer(WAREHOUSE, &table(&["a"], "three")).await.unwrap(),
            None
        );
        let now = store.relations().relation(WAREHOUSE, &one).await.unwrap().unwrap();
        assert_eq!(now.document.unwrap(), r#"{"n":2}"#);
        let log = store.change_log().log(WAREHOUSE, 0, 100).await.unwrap();
        let last = log.last().unwrap();
        assert_eq!((&*last.act, last.version), ("update-table", Some(2)));
        assert_eq!(last.previous.as_deref(), Some("file:///w/one/1.json"));
        assert_eq!(last.location.as_deref(), Some("file:///w/one/2.json"));
        assert!(log.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    })
    .await;
}

#[tokio::test]
async fn a_long_document_is_not_kept_in_the_store() {
    check(async |store| {
        with_namespaces(store, &[&["a"]]).await;
        for (name, length, is_kept) in
            [("t", DOCUMENT_BYTES_KEPT_MAX, true), ("u", DOCUMENT_BYTES_KEPT_MAX + 1, false)]
        {
            let ident = table(&["a"], name);
            let document = Bytes::from(vec![b' '; length]);
            let new = NewRelation { document, ..relation(&ident, RelationKind::Table) };
            store.relations().insert_relation(&context(), WAREHOUSE, new).await.unwrap();
            let kept = store.relations().relation(WAREHOUSE, &ident).await.unwrap().unwrap();
            assert_eq!(kept.document.is_some(), is_kept, "{length}");
        }
        let recent = store.relations().recent(WAREHOUSE, 1000, "", 10).await.unwrap();
        assert_eq!(recent.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn tables_and_views_share_their_names() {
    check(async |store| {
        with_namespaces(store, &[&["a"], &["b"]]).await;
        let (one, two) = (table(&["a"], "one"), table(&["a"], "two"));
        let (as_table, as_view) = (RelationKind::Table, RelationKind::View);
        store
            .relations()
            .insert_relation(&context(), WAREHOUSE, relation(&one, as_table))
            .await
            .unwrap();
        store
            .relations()
            .insert_relation(&context(), WAREHOUSE, relation(&two, as_view))
            .await
            .unwrap();
        for (ident, kind, message) in [
            (&one, as_table, "Table already exists: a.one"),
            (&one, as_view, "Table with same name already exists: a.one"),
            (&two, as_view, "View already exists: a.two"),
            (&two, as_table, "View with same name already exists: a.two"),
        ] {
            let result = store
                .relations()
                .insert_relation(&context(), WAREHOUSE, relation(ident, kind))
                .await;
            assert_eq!(refusal(result), (ErrorReason::AlreadyExists, message.to_owned()));
        }
        let elsewhere = table(&["z"], "one");
        let orphan = store
            .relations()
            .insert_relation(&context(), WAREHOUSE, relation(&elsewhere, as_table))
            .await;
        assert_eq!(refusal(orphan).1, "Namespace does not exist: z");
        for (kind, from, to, expected) in [
            (as_table, &one, &two, "Cannot rename a.one to a.two. View already exists"),
            (as_view, &two, &one, "Cannot rename a.two to a.one. Table already exists"),
            (as_table, &one, &elsewhere, "Namespace does not exist: z"),
            (as_table, &two, &one, "Table does not exist: a.two"),
            (as_view, &one, &two, "View does not exist: a.one"),
        ] {
            let result =
                store.relations().rename_relation(&context(), WAREHOUSE, kind, from, to).await;
            assert_eq!(refusal(result).1, expected);
        }
        let to = table(&["b"], "other");
        let before = store.relations().pointer(WAREHOUSE, &one).await.unwrap();
        store
            .relations()
            .rename_relation(&context(), WAREHOUSE, as_table, &one, &to)
            .await
            .unwrap();
        assert_eq!(store.relations().pointer(WAREHOUSE, &one).await.unwrap(), None);
        assert_eq!(store.relations().pointer(WAREHOUSE, &to).await.unwrap(), before);
        let gone = store
            .relations()
            .drop_relation(&context(), WAREHOUSE, as_view, &to, LogAction::DropView)
            .await;
        assert_eq!(refusal(gone).1, "View does not exist: b.other");
    })
    .await;
}

#[tokio::test]
async fn a_directory_is_shared_with_what_is_in_it_and_what_it_is_in() {
    check(async |store| {
        with_namespaces(store, &[&["a"]]).await;
        let ident = table(&["a"], "t");
        let base = "file:///w/x%y/".to_owned();
        let new = NewRelation { base, ..relation(&ident, RelationKind::Table) };
        let made = store.relations().insert_relation(&context(), WAREHOUSE, new).await.unwrap();
        assert!(store.relations().is_pointed_at("file:///w/t/1.json", "").await.unwrap());
        assert!(!store.relations().is_pointed_at("file:///w/t/2.json", "").await.unwrap());
        for (place, expected) in [
            ("file:///w/x%y", true),
            ("/w/x%y/", true),
            ("file:/w/x%y/inner", true),
            ("file:///w", false),
            ("file:///w/x%yz", false),
        ] {
            assert_eq!(
                store.locations().is_within_another(place).await.unwrap(),
                expected,
                "{place}"
            );
            assert_eq!(
                store.locations().is_place_of(place, &made.id).await.unwrap(),
                expected,
                "{place}"
            );
            assert!(!store.locations().is_place_of(place, "another").await.unwrap(), "{place}");
        }
        for (base, expected) in [
            ("file:///w/x%y", true),
            ("/w/x%y/", true),
            ("file:/w//x%y/inner", true),
            ("file:///w/x%y/inner", true),
            ("file:///w", true),
            ("file:///w/", true),
            ("file:///w/x%", false),
            ("file:///w/x%yz", false),
            ("file:///w/xzy", false),
            ("file:///w/X%Y", false),
            ("file:///W", false),
        ] {
            assert_eq!(store.locations().is_shared(base, "").await.unwrap(), expected, "{base}");
            assert!(!store.locations().is_shared(base, &made.id).await.unwrap(), "{base}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_place_is_a_tables_until_it_is_forgotten() {
    check(async |store| {
        with_namespaces(store, &[&["a"]]).await;
        let ident = table(&["a"], "t");
        let places = vec!["file:///p/one/".to_owned()];
        let new = NewRelation { places, ..relation(&ident, RelationKind::Table) };
        let made = store.relations().insert_relation(&context(), WAREHOUSE, new).await.unwrap();
        let places = vec!["file:/p/one".to_owned(), "file:///p/two".to_owned()];
        let base = "file:///moved".to_owned();
        let swap = PointerSwap { base, places, ..next(&ident, &made, "{}") };
        store.relations().swap(&context(), WAREHOUSE, vec![swap], Vec::new()).await.unwrap();
        let check = async |expected: &[bool; 4], own: &str| {
            let all = ["file:///w/t/data", "file:///p/one", "file:///p/two/x", "file:///moved"];
            for (place, expected) in all.into_iter().zip(expected) {
                let found = store.locations().is_shared(place, own).await.unwrap();
                assert_eq!(found, *expected, "{place} but for {own:?}");
            }
        };
        check(&[true; 4], "").await;
        check(&[false; 4], &made.id).await;
        // It can be restored, and is, as itself or as another relation.
        let (as_table, keep) = (RelationKind::Table, DropMode { until_ms: NOW, purge: false });
        let set_aside = async || {
            let what = (as_table, &ident);
            store
                .dropped_relations()
                .set_aside(&context(), WAREHOUSE, what.0, what.1, LogAction::DropTable, keep)
                .await
                .unwrap();
        };
        set_aside().await;
        check(&[true; 4], "").await;
        store.dropped_relations().undrop(&context(), WAREHOUSE, &made.id, &ident).await.unwrap();
        check(&[true; 4], "").await;
        set_aside().await;
        let again = relation(&ident, as_table);
        let again = store
            .dropped_relations()
            .register_dropped(&context(), WAREHOUSE, again, &made.id)
            .await
            .unwrap();
        check(&[true; 4], &made.id).await;
        check(&[false; 4], &again.id).await;
        set_aside().await;
        let dropped =
            store.dropped_relations().dropped_as(WAREHOUSE, &again.id).await.unwrap().remove(0);
        store.dropped_relations().forget_dropped(&context(), WAREHOUSE, &dropped).await.unwrap();
        check(&[false; 4], "").await;
        let new = relation(&ident, as_table);
        store.relations().insert_relation(&context(), WAREHOUSE, new).await.unwrap();
        check(&[true, false, false, false], "").await;
        let what = (as_table, &ident);
        store
            .relations()
            .drop_relation(&context(), WAREHOUSE, what.0, what.1, LogAction::DropTable)
            .await
            .unwrap();
        check(&[false; 4], "").await;
    })
    .await;
}

#[tokio::test]
async fn a_request_with_a_key_is_remembered_with_what_it_changed() {
    check(async |store| {
        let key = Uuid::v7(clock::wall_ms()).unwrap();
        let keyed = ChangeContext { key: Some((key, [7; 32])), ..context() };
        let (ident, none) = (namespace(&["a"]), Properties::new());
        assert_eq!(store.change_log().remembered("someone", key).await.unwrap(), None);
        store.namespaces().insert_namespace(&keyed, WAREHOUSE, &ident, &none).await.unwrap();
        let done = IdempotentOutcome { hash: vec![7; 32], refused: None };
        assert_eq!(store.change_log().remembered("someone", key).await.unwrap(), Some(done));
        assert_eq!(store.change_log().remembered("other", key).await.unwrap(), None);
        // The same key again changes nothing, for any request.
        let second = namespace(&["b"]);
        let again = store.namespaces().insert_namespace(&keyed, WAREHOUSE, &second, &none).await;
        assert_eq!(refusal(again).0, ErrorReason::CommitFailed);
        assert_eq!(store.namespaces().namespace(WAREHOUSE, &second).await.unwrap(), None);

        let refused = ChangeContext {
            key: Some((Uuid::v7(clock::wall_ms()).unwrap(), [8; 32])),
            ..context()
        };
        let error = CatalogError::new(ErrorReason::AlreadyExists, "Namespace already exists: a");
        store.change_log().remember_refusal(&refused, &error).await.unwrap();
        store.change_log().remember_refusal(&refused, &error).await.unwrap();
        let found = store
            .change_log()
            .remembered("someone", refused.key.unwrap().0)
            .await
            .unwrap()
            .unwrap();
        let expected = (ErrorReason::AlreadyExists, "Namespace already exists: a".to_owned());
        assert_eq!(found.refused, Some(expected));
        assert_eq!(store.change_log().forget_keys(NOW).await.unwrap(), 0);
        assert_eq!(store.change_log().forget_keys(NOW + 1).await.unwrap(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_warehouse_is_the_same_one_at_another_root() {
    check(async |store| {
        let before = store.warehouses().warehouses_version(Duration::ZERO).await.unwrap();
        let main = async || store.warehouses().list().await.unwrap().pop().unwrap();
        store.warehouses().ensure_warehouse("main", "file:///a", NOW).await.unwrap();
        let made = main().await;
        for _ in 0..2 {
            store.warehouses().ensure_warehouse("main", "file:///b", NOW).await.unwrap();
            let again = main().await;
            assert_eq!((&*again.root, &again.id), ("file:///b", &made.id));
            assert_eq!(store.warehouses().list().await.unwrap().len(), 2);
            assert_eq!(
                store.warehouses().warehouses_version(Duration::ZERO).await.unwrap(),
                before + 2
            );
        }
    })
    .await;
}

/// Returns a job stored at `NOW`, and the stored form of one in this state.
fn job(number: u64, state: &str) -> (JobRow, JobText) {
    let report = format!("{{\"state\":\"{state}\",\"items\":[1]}}").into_bytes();
    let figures = format!("{{\"state\":\"{state}\"}}").into_bytes();
    let (id, warehouse, owner) = (format!("mj_{number}"), WAREHOUSE.into(), "someone".into());
    let created_ms = NOW + number;
    let row =
        JobRow { id, warehouse, owner, report: report.clone(), created_ms, beat_ms: created_ms };
    (row, JobText { report, figures, is_over: state == "done" })
}

#[tokio::test]
async fn a_job_that_is_over_stays_so_whatever_was_under_way() {
    check(async |store| {
        let (row, running) = job(1, "running");
        let (_, done) = job(1, "done");
        store.jobs().insert_job(row, running.figures.clone(), 0).await.unwrap();
        let seen = async || store.jobs().job("mj_1").await.unwrap().unwrap();
        assert!(!store.jobs().beat_job("mj_1", running.clone(), NOW + 1).await.unwrap());
        assert_eq!((seen().await.report, seen().await.beat_ms), (running.report.clone(), NOW + 1));
        store.jobs().beat_job("mj_1", done.clone(), NOW + 2).await.unwrap();
        // An update that began earlier, and is repeated after a conflict.
        store.jobs().beat_job("mj_1", running, NOW + 1).await.unwrap();
        assert_eq!((seen().await.report, seen().await.beat_ms), (done.report, NOW + 2));
    })
    .await;
}

#[tokio::test]
async fn jobs_that_are_over_make_room_at_once_and_are_listed_in_figures() {
    check(async |store| {
        let most = u64::try_from(JOBS_KEPT_MAX).unwrap();
        let keep = async |numbers: std::ops::Range<u64>, state: &str| {
            for number in numbers {
                let (row, text) = job(number, state);
                store.jobs().insert_job(row, text.figures.clone(), NOW).await.unwrap();
                store.jobs().beat_job(&format!("mj_{number}"), text, NOW + number).await.unwrap();
            }
            store.jobs().list(WAREHOUSE, 1000).await.unwrap()
        };
        let under_way = keep(0..2, "running").await;
        assert_eq!(under_way.len(), 2);
        let listed = keep(2..most * 2, "done").await;
        // Running jobs with recent updates are kept.
        assert_eq!(listed.len(), usize::try_from(most).unwrap() + 2);
        let (last, done) = job(most * 2 - 1, "done");
        assert_eq!((&*listed[0].id, &listed[0].report), (&*last.id, &done.figures));
        assert_eq!(store.jobs().job(&last.id).await.unwrap().unwrap().report, done.report);
        store.warehouses().delete_warehouse(WAREHOUSE, "first").await.unwrap();
        assert_eq!(store.jobs().list(WAREHOUSE, 1000).await.unwrap(), []);
        let (row, text) = job(999, "running");
        let late = store.jobs().insert_job(row, text.figures, NOW).await.unwrap_err();
        assert_eq!(late.kind, ErrorReason::NoSuchWarehouse);
    })
    .await;
}
