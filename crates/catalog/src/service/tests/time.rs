//! Looking back: dropped objects are restored, changes are reported once, past states are exact.

use std::collections::BTreeMap;
use std::sync::mpsc;

use super::*;
use crate::store::{ChangeContext, DropMode, LogAction, TimelineMoment};

const TABLE: RelationKind = RelationKind::Table;

impl Stage {
    async fn keep_dropped(&self) {
        self.catalog.dropped().set_retention(&self.who, &self.warehouse, Some(3600)).await.unwrap();
    }

    async fn dropped(&self) -> Vec<crate::store::DroppedRelation> {
        let page = PageRequest::default();
        let list =
            self.catalog.dropped().list_dropped(&self.who, &self.warehouse, None, &page).await;
        list.unwrap().items
    }

    async fn undrop(&self, name: &str, to: Option<&TableIdent>) -> Result<RestoredRelation> {
        let to = to.cloned();
        let to = move |was: &TableIdent| Ok(to.unwrap_or_else(|| was.clone()));
        self.catalog.dropped().undrop(&self.call(), &self.warehouse, name, to).await
    }

    async fn rename(&self, from: &TableIdent, to: &TableIdent) -> Result<()> {
        self.catalog.relations().rename(&self.call(), &self.warehouse, TABLE, from, to).await
    }

    async fn all_changes(&self, after: i64) -> Vec<CatalogChange> {
        let filter = ChangeFilter::default();
        let (who, warehouse) = (&self.who, &self.warehouse);
        let page =
            self.catalog.changes().changes(who, warehouse, &filter, Some(after), CHANGES_MAX).await;
        page.unwrap().changes
    }
}

#[tokio::test]
async fn what_was_dropped_comes_back_with_its_files_under_any_free_name() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        stage.keep_dropped().await;
        let t = ident(&["a"], "t");
        let first = stage.table(&t).await;
        let uuid = first.pointer.as_ref().unwrap().uuid.clone();
        stage.drop(&t, true).await.unwrap();
        assert_eq!(refusal(stage.load(&t).await).0, ErrorReason::NoSuchTable);
        assert!(stage.path(location(&first)).exists(), "it can come back, so its files stay");
        let store = stage.catalog.store();
        assert!(store.locations().is_shared(&first.table().unwrap().location, "").await.unwrap());
        let found = stage.dropped().await;
        assert_eq!((found.len(), &found[0].ident, found[0].keep.purge), (1, &t, true));
        stage.table(&t).await;
        assert_eq!(refusal(stage.undrop(&uuid, None).await).0, ErrorReason::AlreadyExists);
        let lost = ident(&["nowhere"], "t");
        assert_eq!(refusal(stage.undrop(&uuid, Some(&lost)).await).0, ErrorReason::NoSuchNamespace);
        let back = ident(&["a"], "back");
        let done = stage.undrop(&uuid, Some(&back)).await.unwrap();
        assert_eq!((&done.ident, done.kind), (&back, TABLE));
        let entry = stage.load(&back).await.unwrap();
        assert_eq!((entry.document(), version(&entry)), (first.document(), 1));
        let next = stage.commit(&back, &setting("k", "v")).await.unwrap();
        assert_eq!(version(&next), 2);
        assert!(stage.dropped().await.is_empty());
        assert_eq!(refusal(stage.undrop(&uuid, None).await).0, ErrorReason::NotFound);
    })
    .await;
}

#[tokio::test]
async fn of_two_with_one_uuid_the_id_says_which() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        stage.keep_dropped().await;
        let t = ident(&["a"], "t");
        let entry = stage.table(&t).await;
        let (pointer, file) = (entry.pointer.clone().unwrap(), location(&entry).to_owned());
        let who = (&stage.call(), &stage.warehouse);
        // Unregistered and registered again, so that it is another table with the same document.
        stage.catalog.relations().unregister_table(who.0, who.1, &t).await.unwrap();
        let register =
            |name: &str| RawJson::of(&json!({"name": name, "metadata-location": file})).unwrap();
        for name in ["x", "y"] {
            let namespace = &t.namespace;
            stage
                .catalog
                .relations()
                .register_table(who.0, who.1, namespace, &register(name))
                .await
                .unwrap();
        }
        for name in ["x", "y"] {
            stage.drop(&ident(&["a"], name), false).await.unwrap();
        }
        let refused = refusal(stage.undrop(&pointer.uuid, None).await);
        assert_eq!(refused.0, ErrorReason::BadRequest, "{}", refused.1);
        let y = stage.dropped().await.pop().unwrap();
        assert_eq!(stage.undrop(&y.pointer.id, None).await.unwrap().ident, ident(&["a"], "y"));
        // Registering the other's metadata file restores it as well.
        let namespace = &t.namespace;
        stage
            .catalog
            .relations()
            .register_table(who.0, who.1, namespace, &register("x"))
            .await
            .unwrap();
        assert!(stage.dropped().await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn what_was_dropped_long_enough_ago_is_purged_once_by_whoever_sweeps() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        let mut entries = Vec::new();
        for (name, until_ms, purge) in
            [("gone", 1, true), ("stays", u64::MAX / 2, true), ("released", 1, false)]
        {
            let t = ident(&["a"], name);
            let entry = stage.table(&t).await;
            let (keep, context) =
                (DropMode { until_ms, purge }, stage.call().context(node::clock::wall_ms()));
            let (store, id) = (stage.catalog.store(), stage.warehouse.id());
            store
                .dropped_relations()
                .set_aside(&context, id, TABLE, &t, LogAction::DropTable, keep)
                .await
                .unwrap();
            stage.catalog.0.entries.forget(&stage.warehouse, &t);
            entries.push(entry);
        }
        let purged = match stage.catalog.store().is_shared_by_servers() {
            true => {
                let other = stage.again().await;
                let (one, two) = tokio::join!(
                    Box::pin(stage.catalog.dropped().sweep()),
                    Box::pin(other.catalog.dropped().sweep())
                );
                other.store.close().await;
                one.unwrap().purged + two.unwrap().purged
            }
            false => Box::pin(stage.catalog.dropped().sweep()).await.unwrap().purged,
        };
        assert_eq!(purged, 2);
        let there: Vec<_> = entries.iter().map(|it| stage.path(location(it)).exists()).collect();
        assert_eq!(there, [false, true, true]);
        let left = stage.dropped().await;
        assert_eq!((left.len(), &*left[0].ident.name), (1, "stays"));
        // It can be purged before its retention ends.
        let id = left[0].pointer.id.clone();
        let (call, warehouse) = (stage.call(), &stage.warehouse);
        stage.catalog.dropped().purge_dropped(&call, warehouse, &id).await.unwrap();
        assert!(!stage.path(location(&entries[1])).exists() && stage.dropped().await.is_empty());
        let again = stage.catalog.dropped().purge_dropped(&call, warehouse, &id).await;
        assert_eq!(refusal(again).0, ErrorReason::NotFound);
        let acts: Vec<_> = stage.all_changes(0).await.into_iter().map(|it| it.action).collect();
        assert_eq!(acts.iter().filter(|it| *it == "purge-table").count(), 3, "{acts:?}");
    })
    .await;
}

#[tokio::test]
async fn what_is_being_purged_does_not_come_back() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        stage.keep_dropped().await;
        let t = ident(&["a"], "t");
        let id = stage.table(&t).await.pointer.as_ref().unwrap().id.clone();
        stage.drop(&t, true).await.unwrap();
        stage.catalog.store().dropped_relations().take_dropped(&id, 5).await.unwrap();
        assert_eq!(refusal(stage.undrop(&id, None).await).0, ErrorReason::NotFound);
        let context = stage.call().context(node::clock::wall_ms());
        let undrop = stage
            .catalog
            .store()
            .dropped_relations()
            .undrop(&context, stage.warehouse.id(), &id, &t)
            .await;
        assert_eq!(refusal(undrop).0, ErrorReason::NotFound);
    })
    .await;
}

#[tokio::test]
async fn the_nearest_namespace_says_how_long_what_is_dropped_stays() {
    check(async |stage| {
        let (a, b) = (stage.namespace(&["a"]).await, stage.namespace(&["a", "b"]).await);
        let found = async |namespace| {
            stage.catalog.dropped().undrop_seconds(&stage.warehouse, namespace).await.unwrap()
        };
        assert_eq!((found(&a).await, found(&b).await), (0, 0));
        stage.keep_dropped().await;
        assert_eq!((found(&a).await, found(&b).await), (3600, 3600));
        let set = async |ident, value: &str| {
            let updates = Properties::from([(UNDROP_RETENTION.to_owned(), value.to_owned())]);
            let (call, warehouse) = (stage.call(), &stage.warehouse);
            stage
                .catalog
                .namespaces()
                .update_namespace(&call, warehouse, ident, vec![], updates)
                .await
        };
        set(&a, "2d").await.unwrap();
        assert_eq!((found(&a).await, found(&b).await), (172_800, 172_800));
        set(&b, "0").await.unwrap();
        assert_eq!((found(&a).await, found(&b).await), (172_800, 0));
        assert_eq!(refusal(set(&b, "soon").await).0, ErrorReason::BadRequest);
        let long = Some(UNDROP_SECONDS_MAX + 1);
        let refused =
            stage.catalog.dropped().set_retention(&stage.who, &stage.warehouse, long).await;
        assert_eq!(refusal(refused).0, ErrorReason::BadRequest);
    })
    .await;
}

#[tokio::test]
async fn what_is_protected_stays_as_it_is_called() {
    check(async |stage| {
        let a = stage.namespace(&["a"]).await;
        let (t, u) = (ident(&["a"], "t"), ident(&["a"], "u"));
        stage.table(&t).await;
        let (catalog, call, warehouse) = (&stage.catalog, stage.call(), &stage.warehouse);
        let check_refused = async || {
            for refused in [
                stage.drop(&t, false).await,
                stage.drop(&t, true).await,
                stage.rename(&t, &u).await,
                catalog.relations().unregister_table(&call, warehouse, &t).await.map(drop),
            ] {
                let (kind, message) = refusal(refused);
                assert_eq!(kind, ErrorReason::Forbidden);
                assert!(message.starts_with("Table a.t is protected: "), "{message}");
            }
        };
        let protect =
            async |on| catalog.protection().protect(&call, warehouse, &a, Some(&t), on).await;
        assert!(protect(true).await.unwrap().is_on());
        check_refused().await;
        stage.commit(&t, &setting("protected", "TRUE")).await.unwrap();
        let left = protect(false).await.unwrap();
        assert_eq!((left.by_flag, left.by_property), (false, true));
        check_refused().await;
        stage.commit(&t, &setting("protected", "false")).await.unwrap();
        let what = (&a, None);
        assert!(
            catalog
                .protection()
                .protect(&call, warehouse, what.0, what.1, true)
                .await
                .unwrap()
                .by_flag
        );
        let refused = refusal(catalog.namespaces().drop_namespace(&call, warehouse, &a).await);
        assert!(refused.1.starts_with("Namespace a is protected: "), "{}", refused.1);
        // The protection of a namespace does not extend to its content.
        stage.rename(&t, &u).await.unwrap();
        stage.drop(&u, false).await.unwrap();
        catalog.protection().protect(&call, warehouse, what.0, what.1, false).await.unwrap();
        catalog.namespaces().drop_namespace(&call, warehouse, &a).await.unwrap();
        let gone = catalog.protection().protect(&call, warehouse, what.0, what.1, true).await;
        assert_eq!(refusal(gone).0, ErrorReason::NoSuchNamespace);
    })
    .await;
}

/// Visible state of a catalog: top-level namespaces, and tables with their metadata files.
type CatalogSnapshot = (Vec<String>, BTreeMap<String, String>);

async fn snapshot(stage: &Stage, moment: Option<TimelineMoment>) -> CatalogSnapshot {
    let (catalog, who, warehouse) = (&stage.catalog, &stage.who, &stage.warehouse);
    let page = PageRequest::default();
    let spaces = match moment {
        Some(it) => catalog.history().list_namespaces_at(who, warehouse, None, it, &page).await,
        None => catalog.namespaces().list_namespaces(who, warehouse, None, &page).await,
    };
    let (mut names, mut tables) = (Vec::new(), BTreeMap::new());
    for namespace in spaces.unwrap().items {
        let found = match moment {
            Some(it) => {
                catalog.history().list_at(who, warehouse, TABLE, &namespace, it, &page).await
            }
            None => catalog.relations().list(who, warehouse, TABLE, &namespace, &page).await,
        };
        for ident in found.unwrap().items {
            let entry = match moment {
                Some(it) => {
                    let found = catalog.history().load_at(who, warehouse, TABLE, &ident, it).await;
                    found.map(|it| it.entry)
                }
                None => catalog.relations().load(who, warehouse, TABLE, &ident).await,
            };
            tables.insert(ident.to_string(), location(&entry.unwrap()).to_owned());
        }
        names.push(namespace.to_string());
    }
    (names, tables)
}

#[tokio::test]
async fn the_past_is_as_it_was_after_every_change() {
    check(async |stage| {
        stage.keep_dropped().await;
        let (a, b) = (ident(&["a"], "t"), ident(&["b"], "u"));
        let mut history = vec![(0, snapshot(stage, None).await)];
        for step in 0..14 {
            match step {
                0 => drop(stage.namespace(&["a"]).await),
                1 => drop(stage.table(&a).await),
                2 => drop(stage.commit(&a, &setting("k", "1")).await.unwrap()),
                3 => drop(stage.namespace(&["b"]).await),
                4 => stage.rename(&a, &b).await.unwrap(),
                5 => drop(stage.commit(&b, &setting("k", "2")).await.unwrap()),
                6 => drop(stage.table(&a).await),
                7 => stage.drop(&b, true).await.unwrap(),
                8 => {
                    let id = stage.dropped().await.pop().unwrap().pointer.id;
                    drop(stage.undrop(&id, Some(&ident(&["a"], "v"))).await.unwrap());
                }
                9 => drop(stage.commit(&a, &setting("k", "3")).await.unwrap()),
                10 => {
                    let (call, warehouse) = (stage.call(), &stage.warehouse);
                    stage
                        .catalog
                        .namespaces()
                        .drop_namespace(&call, warehouse, &b.namespace)
                        .await
                        .unwrap();
                }
                11 => stage.drop(&a, false).await.unwrap(),
                12 => stage.rename(&ident(&["a"], "v"), &a).await.unwrap(),
                _ => drop(stage.commit(&a, &setting("k", "4")).await.unwrap()),
            }
            let number = stage.catalog.changes().last_change().await.unwrap();
            history.push((number, snapshot(stage, None).await));
        }
        let numbers: Vec<_> = history.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (0..=14).collect::<Vec<i64>>(), "every change has the next number");
        for (number, expected) in &history {
            let found = snapshot(stage, Some(TimelineMoment::Number(*number))).await;
            assert_eq!(&found, expected, "after {number}");
        }
        let future = Some(TimelineMoment::Time(u64::MAX / 2));
        assert_eq!(snapshot(stage, future).await, history.last().unwrap().1);
        let early = snapshot(stage, Some(TimelineMoment::Time(1))).await;
        assert_eq!(early, history[0].1);
        let (catalog, who, warehouse) = (&stage.catalog, &stage.who, &stage.warehouse);
        let never =
            catalog.history().load_at(who, warehouse, TABLE, &a, TimelineMoment::Number(99)).await;
        assert_eq!(refusal(never).0, ErrorReason::BadRequest);
        // A state that the files or the log no longer contain is reported as an error.
        let then = history[2].1.1[&a.to_string()].clone();
        std::fs::remove_file(stage.path(&then)).unwrap();
        let gone =
            catalog.history().load_at(who, warehouse, TABLE, &a, TimelineMoment::Number(2)).await;
        assert_eq!(refusal(gone).0, ErrorReason::Gone);
        assert_eq!(catalog.store().change_log().trim_log(u64::MAX / 2).await.unwrap(), 14);
        let gone =
            catalog.history().load_at(who, warehouse, TABLE, &a, TimelineMoment::Number(13)).await;
        assert_eq!(refusal(gone).0, ErrorReason::Gone);
        let now = snapshot(stage, Some(TimelineMoment::Number(14))).await;
        assert_eq!(now, history.last().unwrap().1);
        let filter = ChangeFilter::default();
        let late = catalog.changes().changes(who, warehouse, &filter, Some(3), 10).await;
        let (kind, message) = refusal(late);
        assert_eq!(kind, ErrorReason::Gone);
        assert!(message.ends_with("after 14"), "{message}");
        stage.commit(&a, &setting("k", "5")).await.unwrap();
        let next = catalog.changes().changes(who, warehouse, &filter, None, 10).await.unwrap();
        assert_eq!(next.changes.iter().map(|it| it.seq).collect::<Vec<_>>(), [15]);
    })
    .await;
}

#[tokio::test]
async fn a_commit_that_comes_late_is_told_after_what_was_told_before_it() {
    let server = Postgres::shared();
    let url = StoreUrl::Postgres(server.database());
    let stage = Stage::new(url, Arc::new(Scratch::new())).await;
    let (wrote, has_written) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (store, id) = (stage.store.clone(), stage.warehouse.id().to_string());
    // Receives its number first and is committed last.
    let late = tokio::spawn(async move {
        store
            .transact("test.late", move |it| {
                let sql = "INSERT INTO catalog_log (at_ms, warehouse, act, namespace, principal) \
                    VALUES (1, $1, 'create-namespace', 'late', 'x')";
                it.execute(sql, &[id.as_str().into()])?;
                // The receiver may be dropped if the transaction is repeated.
                wrote.send(()).ok();
                may_go_on.recv().ok();
                Ok(())
            })
            .await
    });
    tokio::task::spawn_blocking(move || has_written.recv().unwrap()).await.unwrap();
    stage.namespace(&["early"]).await;
    let names = |changes: Vec<CatalogChange>| -> Vec<(i64, String)> {
        let named = |it: CatalogChange| (it.seq, it.namespace.unwrap().to_string());
        changes.into_iter().map(named).collect()
    };
    assert_eq!(names(stage.all_changes(0).await), [(1, "early".to_owned())]);
    drop(go_on);
    late.await.unwrap().unwrap();
    assert_eq!(names(stage.all_changes(1).await), [(2, "late".to_owned())]);
    stage.store.close().await;
}

#[tokio::test]
async fn followers_are_told_everything_once_wherever_it_is_done() {
    check(async |stage| {
        let is_shared = stage.catalog.store().is_shared_by_servers();
        let other = if is_shared { Some(stage.again().await) } else { None };
        let filter = ChangeFilter::default();
        let follow =
            stage.catalog.changes().follow(&stage.who, &stage.warehouse, filter, Some(0)).await;
        let mut follow = follow.unwrap();
        let work = async {
            for number in 0..40 {
                let at = other.as_ref().filter(|_| number % 2 == 0).unwrap_or(stage);
                at.namespace(&[&format!("n{number}")]).await;
            }
        };
        let followed = async {
            let mut seen = Vec::new();
            while seen.len() < 40 {
                seen.extend(follow.next().await.unwrap().unwrap().into_iter().map(|it| it.seq));
            }
            seen
        };
        let ((), seen) = tokio::join!(work, followed);
        assert_eq!(seen, (1..=40).collect::<Vec<i64>>());
        if let Some(other) = other {
            other.store.close().await;
        }
    })
    .await;
}

/// A principal that may read only one namespace.
struct OnlyIn(&'static str);

impl RightAuthority for OnlyIn {
    fn check(
        &self,
        _: &CatalogPrincipal,
        _: &Warehouse,
        _: AccessRight,
        object: RightTarget<'_>,
    ) -> Result<()> {
        let namespace = match object {
            RightTarget::Warehouse => None,
            RightTarget::Namespace(namespace) => Some(namespace),
            RightTarget::Relation(ident) => Some(&ident.namespace),
        };
        match namespace.is_some_and(|it| it.to_string() == self.0) {
            true => Ok(()),
            false => Err(CatalogError::new(ErrorReason::Forbidden, "elsewhere")),
        }
    }
}

#[tokio::test]
async fn who_may_not_read_something_is_not_told_of_it() {
    let stage = sqlite().await;
    stage.namespace(&["mine"]).await;
    stage.namespace(&["theirs"]).await;
    let (mine, theirs) = (ident(&["mine"], "t"), ident(&["theirs"], "secret"));
    stage.table(&mine).await;
    stage.table(&theirs).await;
    stage.rename(&theirs, &ident(&["mine"], "u")).await.unwrap();
    stage.rename(&mine, &ident(&["theirs"], "hidden")).await.unwrap();
    let authority = Arc::new(OnlyIn("mine"));
    let settings = CatalogSettings::clone(&stage.catalog.0.settings);
    let catalog = Catalog::open(stage.store.clone(), settings, authority).await.unwrap();
    let who = CatalogPrincipal { operator: false, ..stage.who.clone() };
    let all = ChangeFilter::default();
    let found = catalog.changes().changes(&who, &stage.warehouse, &all, None, 100).await.unwrap();
    let numbered: Vec<_> = found.changes.iter().map(|it| (it.seq, it.action.as_str())).collect();
    let expected =
        [(1, "create-namespace"), (3, "create-table"), (5, "rename-table"), (6, "rename-table")];
    assert_eq!(numbered, expected);
    let text = serde_json::to_string(&found.changes).unwrap();
    for hidden in ["secret", "hidden", "theirs\"", "tk_1"] {
        assert!(!text.contains(hidden), "{hidden} in {text}");
    }
    let theirs = ChangeFilter { namespace: Some(theirs.namespace), ident: None };
    let refused = catalog.changes().changes(&who, &stage.warehouse, &theirs, None, 100).await;
    assert_eq!(refusal(refused).0, ErrorReason::Forbidden);
}

#[tokio::test]
async fn lists_of_then_are_shown_to_who_is_shown_those_of_today() {
    check(async |stage| {
        stage.namespace(&["mine"]).await;
        stage.namespace(&["theirs"]).await;
        let (t, u) = (ident(&["mine"], "t"), ident(&["theirs"], "u"));
        stage.table(&t).await;
        stage.table(&u).await;
        let now = TimelineMoment::Number(stage.catalog.changes().last_change().await.unwrap());
        let authority = Arc::new(OnlyIn("mine"));
        let settings = CatalogSettings::clone(&stage.catalog.0.settings);
        let catalog = Catalog::open(stage.store.clone(), settings, authority).await.unwrap();
        let who = &CatalogPrincipal { operator: false, ..stage.who.clone() };
        let (warehouse, page) = (&stage.warehouse, &PageRequest::default());
        let names = |list: Result<ListPage<TableIdent>>| match list {
            Ok(list) => Ok(list.items.iter().map(|it| it.name.to_string()).collect::<Vec<_>>()),
            Err(error) => Err((error.kind, error.message)),
        };
        for (namespace, is_listed) in [(&t.namespace, true), (&u.namespace, false)] {
            for kind in [TABLE, RelationKind::View] {
                let today = catalog.relations().list(who, warehouse, kind, namespace, page).await;
                let then =
                    catalog.history().list_at(who, warehouse, kind, namespace, now, page).await;
                assert_eq!((names(then), today.is_ok()), (names(today), is_listed));
            }
        }
        for parent in [None, Some(&t.namespace), Some(&u.namespace)] {
            let today = catalog.namespaces().list_namespaces(who, warehouse, parent, page).await;
            let then =
                catalog.history().list_namespaces_at(who, warehouse, parent, now, page).await;
            let kind = |list: Result<ListPage<NamespaceIdent>>| match list {
                Ok(list) => Ok(list.items),
                Err(error) => Err((error.kind, error.message)),
            };
            assert_eq!(kind(then), kind(today));
        }
        // An object that moved to an invisible place is only a name: even its former state is
        // unreadable.
        stage.rename(&t, &ident(&["theirs"], "gone")).await.unwrap();
        let then = catalog.history().list_at(who, warehouse, TABLE, &t.namespace, now, page).await;
        assert_eq!(names(then), Ok(vec!["t".to_owned()]));
        let load = catalog.history().load_at(who, warehouse, TABLE, &t, now).await;
        assert_eq!(refusal(load).0, ErrorReason::Forbidden);
    })
    .await;
}

#[tokio::test]
async fn who_may_only_write_neither_protects_nor_shortens_what_can_come_back() {
    struct OnlyWrite;
    impl RightAuthority for OnlyWrite {
        fn check(
            &self,
            _: &CatalogPrincipal,
            _: &Warehouse,
            right: AccessRight,
            _: RightTarget<'_>,
        ) -> Result<()> {
            match right {
                AccessRight::Read | AccessRight::Write => Ok(()),
                AccessRight::Manage | AccessRight::Grant => {
                    Err(CatalogError::new(ErrorReason::Forbidden, "no"))
                }
            }
        }
    }
    let stage = sqlite().await;
    let a = stage.namespace(&["a"]).await;
    let t = ident(&["a"], "t");
    stage.table(&t).await;
    let settings = CatalogSettings::clone(&stage.catalog.0.settings);
    let catalog = Catalog::open(stage.store.clone(), settings, Arc::new(OnlyWrite)).await.unwrap();
    let who = CatalogPrincipal { operator: false, ..stage.who.clone() };
    let (call, warehouse) = (&ChangeCall::of(&who), &stage.warehouse);
    let commit = RawJson::of(&setting("protected", "false")).unwrap();
    let remove = json!({"requirements": [], "updates": [
        {"action": "remove-properties", "removals": ["protected"]}]});
    let remove = RawJson::of(&remove).unwrap();
    let of = |key: &str| Properties::from([(key.to_owned(), "0".to_owned())]);
    for refused in [
        catalog.relations().commit_table(call, warehouse, &t, &commit).await.map(drop),
        catalog.relations().commit_table(call, warehouse, &t, &remove).await.map(drop),
        catalog
            .namespaces()
            .update_namespace(call, warehouse, &a, vec![], of(PROTECTED))
            .await
            .map(drop),
        catalog
            .namespaces()
            .update_namespace(call, warehouse, &a, vec![], of(UNDROP_RETENTION))
            .await
            .map(drop),
        catalog
            .namespaces()
            .update_namespace(call, warehouse, &a, vec![PROTECTED.into()], of("k"))
            .await
            .map(drop),
        catalog.protection().protect(call, warehouse, &a, Some(&t), true).await.map(drop),
        catalog.protection().protect(call, warehouse, &a, None, false).await.map(drop),
        catalog.dropped().set_retention(&who, warehouse, Some(1)).await.map(drop),
        catalog.dropped().purge_dropped(call, warehouse, "tb_0").await,
    ] {
        assert_eq!(refusal(refused).0, ErrorReason::Forbidden);
    }
    let commit = RawJson::of(&setting("k", "v")).unwrap();
    catalog.relations().commit_table(call, warehouse, &t, &commit).await.unwrap();
}

#[tokio::test]
async fn old_lines_go_and_young_ones_stay_whatever_the_clocks_said() {
    check(async |stage| {
        let store = stage.catalog.store();
        for (number, now_ms) in [10, 30, 20, 40].into_iter().enumerate() {
            let ident = NamespaceIdent::new([format!("n{number}")]).unwrap();
            let context = ChangeContext { now_ms, ..stage.call().context(node::clock::wall_ms()) };
            let (id, none) = (stage.warehouse.id(), Properties::new());
            store.namespaces().insert_namespace(&context, id, &ident, &none).await.unwrap();
        }
        // The third was stamped earlier than the second, and counts as equally young in the order
        // of commits.
        assert_eq!(store.change_log().trim_log(25).await.unwrap(), 1);
        let numbers: Vec<_> = stage.all_changes(1).await.iter().map(|it| it.seq).collect();
        assert_eq!(numbers, [2, 3, 4]);
        assert_eq!(store.change_log().trim_log(25).await.unwrap(), 0);
        // The removed lines are older than these times, so the times are known; earlier ones are
        // not.
        let at = async |ms| {
            let found = store
                .past()
                .namespaces_at(stage.warehouse.id(), None, TimelineMoment::Time(ms))
                .await;
            found.map(|it| it.0.len()).map_err(|error| error.kind)
        };
        let found = [at(9).await, at(10).await, at(15).await, at(25).await, at(50).await];
        assert_eq!(found, [Err(ErrorReason::Gone), Ok(1), Ok(1), Ok(3), Ok(4)]);
        // All lines are removed; the youngest has the time 40.
        assert_eq!(store.change_log().trim_log(50).await.unwrap(), 3);
        let found = [at(35).await, at(39).await, at(40).await];
        assert_eq!(found, [Err(ErrorReason::Gone), Err(ErrorReason::Gone), Ok(4)]);
    })
    .await;
}

#[tokio::test]
async fn rights_to_a_table_are_none_to_one_that_had_its_name() {
    struct OnlyTheTable;
    impl RightAuthority for OnlyTheTable {
        fn check(
            &self,
            _: &CatalogPrincipal,
            _: &Warehouse,
            _: AccessRight,
            object: RightTarget<'_>,
        ) -> Result<()> {
            match object {
                RightTarget::Relation(_) => Ok(()),
                _ => Err(CatalogError::new(ErrorReason::Forbidden, "no")),
            }
        }
    }
    let stage = sqlite().await;
    stage.namespace(&["a"]).await;
    stage.keep_dropped().await;
    let t = ident(&["a"], "t");
    let old = stage.table(&t).await.pointer.clone().unwrap();
    stage.drop(&t, true).await.unwrap();
    stage.table(&t).await;
    let settings = CatalogSettings::clone(&stage.catalog.0.settings);
    let authority = Arc::new(OnlyTheTable);
    let catalog = Catalog::open(stage.store.clone(), settings, authority).await.unwrap();
    let who = CatalogPrincipal { operator: false, ..stage.who.clone() };
    let (call, warehouse) = (&ChangeCall::of(&who), &stage.warehouse);
    let to = |was: &TableIdent| Ok(was.clone());
    for refused in [
        catalog.dropped().undrop(call, warehouse, &old.id, to).await.map(drop),
        catalog.dropped().purge_dropped(call, warehouse, &old.id).await,
    ] {
        assert_eq!(refusal(refused).0, ErrorReason::Forbidden);
    }
    assert_eq!(stage.dropped().await.len(), 1);
}

#[tokio::test]
async fn a_purge_that_was_broken_off_keeps_the_place_and_is_finished_by_a_sweep() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        let t = ident(&["a"], "t");
        // Its document is only in its file.
        let long = "x".repeat(crate::store::DOCUMENT_BYTES_KEPT_MAX);
        let entry = stage.commit(&t, &creation(&json!({"long": long}))).await.unwrap();
        let base = entry.table().unwrap().location.clone();
        // Deeper than the limit for removal.
        let deep = stage.path(&base).join("d");
        std::fs::create_dir_all(deep.join("d/".repeat(200))).unwrap();
        stage.drop(&t, true).await.unwrap();
        assert_eq!(refusal(stage.load(&t).await).0, ErrorReason::NoSuchTable);
        let left = stage.dropped().await;
        assert!(left.len() == 1 && left[0].is_purging && left[0].has_begun, "{left:?}");
        let store = stage.catalog.store();
        assert!(
            store.locations().is_shared(&base, "").await.unwrap(),
            "nothing else is made there"
        );
        std::fs::remove_dir_all(&deep).unwrap();
        // It may already be removed.
        drop(std::fs::remove_file(stage.path(location(&entry))));
        std::fs::create_dir_all(stage.path(&base).join("data")).unwrap();
        std::fs::write(stage.path(&base).join("data/1.parquet"), b"x").unwrap();
        let id = &left[0].pointer.id;
        assert_eq!(
            stage.catalog.dropped().sweep().await.unwrap().purged,
            0,
            "somebody has it in hand"
        );
        store.dropped_relations().renew_dropped(id, 1).await.unwrap();
        assert_eq!(stage.catalog.dropped().sweep().await.unwrap().purged, 1);
        assert!(!stage.path(&base).exists() && stage.dropped().await.is_empty());
        assert!(!store.dropped_relations().begin_purge(id).await.unwrap(), "it is gone");
    })
    .await;
}

#[tokio::test]
async fn a_sweep_takes_one_at_a_time_renews_it_and_ends_when_the_server_drains() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        let (store, warehouse) = (stage.catalog.store(), &stage.warehouse);
        for (name, until_ms) in [("one", 1), ("two", 2)] {
            let t = ident(&["a"], name);
            stage.table(&t).await;
            let (keep, context) =
                (DropMode { until_ms, purge: true }, stage.call().context(node::clock::wall_ms()));
            let what = (TABLE, &t);
            store
                .dropped_relations()
                .set_aside(&context, warehouse.id(), what.0, what.1, LogAction::DropTable, keep)
                .await
                .unwrap();
        }
        let lock = stage.catalog.0.entries.lock(warehouse, &ident(&["a"], "one")).await;
        let drain = node::drain::DrainHandle::new();
        let (catalog, drained) = (stage.catalog.clone(), drain.clone());
        let sweeps = tokio::spawn(async move {
            catalog.dropped().sweep_every(Duration::from_millis(1), &drained).await;
        });
        let marked = async || {
            let all = stage.dropped().await.into_iter().filter(|it| it.is_purging);
            all.map(|it| it.ident.name.to_string()).collect::<Vec<_>>()
        };
        while marked().await.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(marked().await, ["one"]);
        drain.begin();
        let ended = tokio::time::timeout(Duration::from_secs(30), sweeps).await;
        ended.expect("it waits for nobody").unwrap();
        drop(lock);

        let one = stage.dropped().await.into_iter().find(|it| it.is_purging).unwrap();
        let renewing = async {
            // Without the renewal, other servers would take it over each time.
            let mut now_ms = 10_000;
            let is_others = async |now_ms| {
                let taken = store.dropped_relations().take_expired(now_ms, 500, 9).await.unwrap();
                taken.iter().any(|(_, it)| it.pointer.id == one.pointer.id)
            };
            store.dropped_relations().renew_dropped(&one.pointer.id, 1).await.unwrap();
            while is_others(now_ms).await {
                now_ms += 10_000;
            }
        };
        let dropped = stage.catalog.dropped();
        tokio::select! {
            () = renewing => {}
            never = dropped.keep_taken(&one.pointer.id, Duration::from_millis(1)) => {
                match never {}
            }
        }
    })
    .await;
}
