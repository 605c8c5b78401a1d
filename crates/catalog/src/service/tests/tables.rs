//! Tables: life cycle, names, files.

use std::fs;

use super::*;

#[tokio::test]
async fn a_table_is_made_changed_and_gone_with_its_files() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        let t = ident(&["a"], "t");
        assert_eq!(
            refusal(stage.load(&t).await),
            (ErrorReason::NoSuchTable, "Table does not exist: a.t".into())
        );
        let none = stage.commit(&t, &setting("k", "v")).await;
        assert_eq!(refusal(none).1, "Table does not exist: a.t");
        let made = stage.table(&t).await;
        let again = stage.commit(&t, &creation(&json!({}))).await;
        let expected =
            (ErrorReason::CommitFailed, "Requirement failed: table already exists".to_owned());
        assert_eq!(refusal(again), expected);
        let changed = stage.commit(&t, &setting("k", "v")).await.unwrap();
        for (entry, number) in [(&made, "/00000-"), (&changed, "/00001-")] {
            assert!(location(entry).contains(number));
            assert!(fs::read(stage.path(location(entry))).unwrap() == entry.document()[..]);
        }
        let log = &changed.table().unwrap().metadata_log;
        assert_eq!((log.len(), &*log[0].metadata_file()), (1, location(&made)));
        // A commit without changes writes nothing.
        let same = stage.commit(&t, &setting("k", "v")).await.unwrap();
        assert_eq!(same.etag(SnapshotSelection::All), changed.etag(SnapshotSelection::All));
        let uuid =
            json!({"type": "assert-table-uuid", "uuid": "00000000-0000-0000-0000-000000000000"});
        let stale = json!({"requirements": [uuid], "updates": []});
        let (kind, message) = refusal(stage.commit(&t, &stale).await);
        assert_eq!(kind, ErrorReason::CommitFailed);
        assert!(message.starts_with("Requirement failed: UUID does not match"), "{message}");
        let loaded = stage.load(&t).await.unwrap();
        assert_eq!(
            loaded.frames(SnapshotSelection::All, None),
            changed.frames(SnapshotSelection::All, None)
        );
        // Reading only from the store yields the same.
        let other = stage.again().await;
        let loaded = other.load(&t).await.unwrap();
        assert_eq!(
            loaded.frames(SnapshotSelection::All, None),
            changed.frames(SnapshotSelection::All, None)
        );
        stage.catalog.relations().table_exists(&stage.who, &stage.warehouse, &t).await.unwrap();
        let directory = stage.path(&made.table().unwrap().location);
        stage.drop(&t, true).await.unwrap();
        assert!(!directory.exists());
        assert_eq!(refusal(stage.drop(&t, true).await).0, ErrorReason::NoSuchTable);
        assert_eq!(refusal(stage.load(&t).await).0, ErrorReason::NoSuchTable);
        other.store.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_table_is_not_loaded_without_its_file() {
    let stage = sqlite().await;
    stage.namespace(&["a"]).await;
    let t = ident(&["a"], "t");
    let made = stage.table(&t).await;
    let (path, aside) = (stage.path(location(&made)), stage.directory.join("aside"));
    fs::rename(&path, &aside).unwrap();
    let expected = format!("Failed to open input stream for file: {}", location(&made));
    assert_eq!(refusal(stage.load(&t).await), (ErrorReason::NotFound, expected));
    fs::rename(&aside, &path).unwrap();
    stage.load(&t).await.unwrap();
}

#[tokio::test]
async fn purging_a_table_leaves_the_one_that_has_its_name_now() {
    check(async |stage| {
        stage.namespace(&["a"]).await;
        let (one, two) = (ident(&["a"], "one"), ident(&["a"], "two"));
        let first = stage.table(&one).await;
        let (call, warehouse) = (stage.call(), &stage.warehouse);
        stage
            .catalog
            .relations()
            .rename(&call, warehouse, RelationKind::Table, &one, &two)
            .await
            .unwrap();
        assert_eq!(refusal(stage.load(&one).await).0, ErrorReason::NoSuchTable);
        assert_eq!(location(&stage.load(&two).await.unwrap()), location(&first));
        let second = stage.table(&one).await;
        stage.drop(&two, true).await.unwrap();
        assert!(!stage.path(location(&first)).exists());
        assert!(stage.path(location(&second)).exists());
        let nowhere = ident(&["z"], "t");
        let renamed = stage
            .catalog
            .relations()
            .rename(&call, warehouse, RelationKind::Table, &one, &nowhere)
            .await;
        assert_eq!(refusal(renamed).1, "Namespace does not exist: z");
    })
    .await;
}

#[tokio::test]
async fn a_purge_spares_what_others_use_and_what_is_kept() {
    let stage = sqlite().await;
    stage.namespace(&["a"]).await;
    let (outer, inner) = (ident(&["a"], "outer"), ident(&["a"], "inner"));
    let kept = ident(&["a"], "kept");
    let base = format!("{}/shared", stage.warehouse.root());
    let below = |location: &str| {
        let mut body = creation(&json!({}));
        let update = json!({"action": "set-location", "location": location});
        body["updates"].as_array_mut().unwrap().push(update);
        body
    };
    let first = stage.commit(&outer, &below(&base)).await.unwrap();
    let second = stage.commit(&inner, &below(&format!("{base}/inner"))).await.unwrap();
    stage.drop(&outer, true).await.unwrap();
    assert!(stage.path(location(&first)).exists() && stage.path(location(&second)).exists());
    stage.drop(&inner, true).await.unwrap();
    assert!(!stage.path(location(&second)).exists());
    let body = creation(&json!({"gc.enabled": "false"}));
    let entry = stage.commit(&kept, &body).await.unwrap();
    stage.drop(&kept, true).await.unwrap();
    assert!(stage.path(location(&entry)).exists());
}

#[tokio::test]
async fn a_table_is_released_and_registered_again() {
    check(async |stage| {
        let ns = stage.namespace(&["a"]).await;
        let (one, two) = (ident(&["a"], "one"), ident(&["a"], "two"));
        let (catalog, warehouse, call) = (&stage.catalog, &stage.warehouse, stage.call());
        stage.table(&one).await;
        let last = stage.commit(&one, &setting("k", "v")).await.unwrap();
        let released = catalog.relations().unregister_table(&call, warehouse, &one).await.unwrap();
        assert_eq!(location(&released), location(&last));
        assert_eq!(
            refusal(stage.commit(&one, &setting("k", "w")).await).0,
            ErrorReason::NoSuchTable
        );
        let gone = catalog.relations().unregister_table(&call, warehouse, &one).await;
        assert_eq!(refusal(gone).0, ErrorReason::NoSuchTable);
        let request = |name: &str, location: &str, overwrite: bool| {
            let body = json!({"name": name, "metadata-location": location, "overwrite": overwrite});
            RawJson::of(&body).unwrap()
        };
        let body = request("two", location(&last), false);
        let registered =
            catalog.relations().register_table(&call, warehouse, &ns, &body).await.unwrap();
        assert_eq!(registered.document(), last.document());
        let next = stage.commit(&two, &setting("k", "w")).await.unwrap();
        assert!(location(&next).contains("/00002-"), "{}", location(&next));
        let again = catalog.relations().register_table(&call, warehouse, &ns, &body).await;
        assert_eq!(
            refusal(again),
            (ErrorReason::AlreadyExists, "Table already exists: a.two".into())
        );
        let body = request("two", location(&last), true);
        let back = catalog.relations().register_table(&call, warehouse, &ns, &body).await.unwrap();
        assert_eq!((property(&back, "k"), version(&back)), (Some("v".to_owned()), 3));
        let root = warehouse.root();
        for (name, location, overwrite, expected) in [
            ("x", "file:///etc/passwd", false, ErrorReason::Forbidden),
            ("x", &*format!("{root}/../db"), false, ErrorReason::BadRequest),
            ("x", &*format!("{root}/none.metadata.json"), false, ErrorReason::NotFound),
            ("", location(&last), false, ErrorReason::BadRequest),
        ] {
            let body = request(name, location, overwrite);
            let refused = catalog.relations().register_table(&call, warehouse, &ns, &body).await;
            assert_eq!(refusal(refused).0, expected, "{name} {location}");
        }
        let nowhere = NamespaceIdent::new(["z"]).unwrap();
        let body = request("x", location(&last), false);
        let refused = catalog.relations().register_table(&call, warehouse, &nowhere, &body).await;
        assert_eq!(refusal(refused).0, ErrorReason::NoSuchNamespace);
    })
    .await;
}

#[tokio::test]
async fn a_file_that_is_no_document_is_not_registered() {
    let stage = sqlite().await;
    let ns = stage.namespace(&["a"]).await;
    fs::create_dir_all(&stage.directory).unwrap();
    let root = stage.warehouse.root();
    for (name, content) in [
        ("a.metadata.json", "{}"),
        ("b.metadata.json", "not json"),
        ("c.gz.metadata.json", "{}"),
        ("d.metadata.json", &*crate::cache::tests::document(1)),
    ] {
        fs::write(stage.directory.join(name), content).unwrap();
        let body = json!({"name": "x", "metadata-location": format!("{root}/{name}")});
        let body = RawJson::of(&body).unwrap();
        let (call, catalog) = (stage.call(), &stage.catalog);
        let refused = catalog.relations().register_table(&call, &stage.warehouse, &ns, &body).await;
        // The last is a document of a table at another location.
        let (kind, message) = refusal(refused);
        assert!((400..=403).contains(&kind.status()), "{name}: {kind:?} {message}");
    }
}

#[tokio::test]
async fn no_table_gets_out_of_the_warehouse() {
    let stage = sqlite().await;
    stage.namespace(&["a"]).await;
    let (t, new) = (ident(&["a"], "t"), ident(&["a"], "new"));
    let made = stage.table(&t).await;
    let outside = format!("file://{}/outside", stage._scratch.path().display());
    let inside = stage.path(&made.table().unwrap().location);
    std::os::unix::fs::symlink(stage._scratch.path(), inside.join("link")).unwrap();
    let by_link = format!("{}/link/outside", made.table().unwrap().location);
    for place in [&*outside, "file:///etc", "s3://bucket/x", &format!("{outside}/../w/x"), &by_link]
    {
        for update in [
            json!({"action": "set-location", "location": place}),
            json!({"action": "set-properties", "updates": {"write.metadata.path": place}}),
        ] {
            let body = json!({"requirements": [], "updates": [update]});
            let (kind, message) = refusal(stage.commit(&t, &body).await);
            assert!(
                matches!(kind, ErrorReason::Forbidden | ErrorReason::BadRequest),
                "{place}: {message}"
            );
            let mut body = creation(&json!({}));
            body["updates"].as_array_mut().unwrap().push(update);
            let (kind, message) = refusal(stage.commit(&new, &body).await);
            assert!(
                matches!(kind, ErrorReason::Forbidden | ErrorReason::BadRequest),
                "{place}: {message}"
            );
        }
    }
    assert!(!stage._scratch.path().join("outside").exists());
    assert_eq!(version(&stage.load(&t).await.unwrap()), 1);
    assert_eq!(refusal(stage.load(&new).await).0, ErrorReason::NoSuchTable);
    // Locations that the configuration allows are accepted.
    let extra = format!("file://{}/extra/t", stage._scratch.path().display());
    let update = json!({"action": "set-location", "location": extra});
    let moved = stage.commit(&t, &json!({"requirements": [], "updates": [update]})).await.unwrap();
    assert!(location(&moved).starts_with(&extra));
}

/// Grants everything to all principals.
struct Everybody;

impl RightAuthority for Everybody {
    fn check(
        &self,
        _: &CatalogPrincipal,
        _: &Warehouse,
        _: AccessRight,
        _: RightTarget<'_>,
    ) -> Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn nobody_puts_a_table_where_another_ones_files_are() {
    let stage = sqlite().await;
    let ns = stage.namespace(&["a"]).await;
    let (victim, own) = (ident(&["a"], "victim"), ident(&["a"], "own"));
    let target = stage.table(&victim).await;
    let settings = CatalogSettings::clone(&stage.catalog.0.settings);
    let catalog = Catalog::open(stage.store.clone(), settings, Arc::new(Everybody)).await.unwrap();
    let who = CatalogPrincipal::new("u", "u");
    let (call, warehouse) = (ChangeCall::of(&who), &stage.warehouse);
    let body = RawJson::of(&creation(&json!({}))).unwrap();
    catalog.relations().commit_table(&call, warehouse, &own, &body).await.unwrap();
    let base = target.table().unwrap().location.clone();
    let other_name = base.replacen("file:///", "file:/", 1).replace("/a/", "//a/");
    for place in [&*base, &other_name, &format!("{base}/data"), &format!("{}/a", warehouse.root())]
    {
        let update = json!({"action": "set-location", "location": place});
        let body = json!({"requirements": [], "updates": [update]});
        let body = RawJson::of(&body).unwrap();
        let moved = catalog.relations().commit_table(&call, warehouse, &own, &body).await;
        assert_eq!(refusal(moved).0, ErrorReason::Forbidden, "{place}");
        let mut body = creation(&json!({}));
        body["updates"].as_array_mut().unwrap().push(update);
        let body = RawJson::of(&body).unwrap();
        let new = ident(&["a"], "new");
        let made = catalog.relations().commit_table(&call, warehouse, &new, &body).await;
        assert_eq!(refusal(made).0, ErrorReason::Forbidden, "{place}");
    }
    let register = json!({"name": "new", "metadata-location": location(&target)});
    let register = RawJson::of(&register).unwrap();
    let registered = catalog.relations().register_table(&call, warehouse, &ns, &register).await;
    assert_eq!(refusal(registered).0, ErrorReason::Forbidden);
    // A table may move within its own location.
    let base = catalog.relations().load(&who, warehouse, RelationKind::Table, &own).await.unwrap();
    let inner = format!("{}/inner", base.table().unwrap().location);
    let update = json!({"action": "set-location", "location": inner});
    let body = RawJson::of(&json!({"requirements": [], "updates": [update]})).unwrap();
    catalog.relations().commit_table(&call, warehouse, &own, &body).await.unwrap();
}

#[tokio::test]
async fn a_document_that_names_files_of_others_has_none_of_them_deleted() {
    let stage = sqlite().await;
    let ns = stage.namespace(&["a"]).await;
    let victim = stage.table(&ident(&["a"], "victim")).await;
    let mine = stage.table(&ident(&["a"], "mine")).await;
    let forged = |name: &str, place: &str| {
        let mut document: Value = serde_json::from_slice(mine.document()).unwrap();
        document["location"] = json!(format!("{}/{name}", stage.warehouse.root()));
        document["properties"] = json!({
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "1",
            "write.metadata.path": place,
        });
        let entry = json!({"timestamp-ms": 1, "metadata-file": location(&victim)});
        document["metadata-log"] = json!([entry]);
        document
    };
    // By its own directory, and by that of the other one.
    for (name, place) in [
        ("x", format!("{}/x/metadata", stage.warehouse.root())),
        ("y", victim.table().unwrap().location.clone()),
    ] {
        let file = stage.directory.join(format!("{name}.metadata.json"));
        fs::write(&file, forged(name, &place).to_string()).unwrap();
        let at = format!("{}/{name}.metadata.json", stage.warehouse.root());
        let body = json!({"name": name, "metadata-location": at});
        let body = RawJson::of(&body).unwrap();
        let (call, catalog) = (stage.call(), &stage.catalog);
        catalog.relations().register_table(&call, &stage.warehouse, &ns, &body).await.unwrap();
        for number in 0..3 {
            let body = setting("n", &number.to_string());
            stage.commit(&ident(&["a"], name), &body).await.unwrap();
        }
        stage.drop(&ident(&["a"], name), true).await.unwrap();
        assert!(stage.path(location(&victim)).exists(), "{name}");
    }
}

#[tokio::test]
async fn a_report_is_taken_of_tables_that_are_there() {
    let stage = sqlite().await;
    stage.namespace(&["a"]).await;
    let t = ident(&["a"], "t");
    stage.table(&t).await;
    for (name, report, expected) in [
        ("t", json!({"report-type": "scan-report"}), None),
        ("t", json!({}), Some(ErrorReason::BadRequest)),
        ("t", json!([]), Some(ErrorReason::BadRequest)),
        ("u", json!({"report-type": "scan-report"}), Some(ErrorReason::NoSuchTable)),
    ] {
        let (ident, report) = (ident(&["a"], name), RawJson::of(&report).unwrap());
        let (who, warehouse) = (&stage.who, &stage.warehouse);
        let taken = stage.catalog.relations().report_metrics(who, warehouse, &ident, &report).await;
        assert_eq!(taken.err().map(|error| error.kind), expected);
    }
}
