//! Tables in directories of their own names: which directories are free, and which of them commits
//! accept.

use std::fs;

use super::homes::Granted;
use super::*;

/// A catalog on the stage's store whose default warehouse has plain locations.
async fn plain(stage: &Stage, authority: Arc<dyn RightAuthority>) -> (Catalog, Arc<Warehouse>) {
    let storage = StorageSettings { plain_locations: true, ..StorageSettings::default() };
    let settings = CatalogSettings { storage, ..CatalogSettings::clone(&stage.catalog.0.settings) };
    let catalog = Catalog::open(stage.store.clone(), settings, authority).await.unwrap();
    let warehouse = catalog.default_warehouse().unwrap();
    assert!(warehouse.has_plain_locations());
    (catalog, warehouse)
}

fn base(entry: &CachedVersion) -> String {
    entry.table().unwrap().location.clone()
}

#[tokio::test]
async fn nothing_new_is_where_the_files_of_something_else_are() {
    let stage = sqlite().await;
    let (catalog, warehouse) = plain(&stage, Arc::new(OperatorsOnly)).await;
    let root = warehouse.root().to_owned();
    stage.namespace(&["a"]).await;
    let make = async |name: &str| {
        let body = RawJson::of(&creation(&json!({}))).unwrap();
        let table = ident(&["a"], name);
        let made = catalog
            .relations()
            .commit_table(&stage.call(), &warehouse, &table, &body)
            .await
            .unwrap();
        (base(&made), location(&made).to_owned())
    };
    let drop = async |name: &str, purge: bool| {
        catalog
            .relations()
            .drop_table(&stage.call(), &warehouse, &ident(&["a"], name), purge)
            .await
            .unwrap();
    };
    let (first, file) = make("t").await;
    assert_eq!(first, format!("{root}/a/t"));
    // It may belong to another catalog now.
    drop("t", false).await;
    let (second, _) = make("t").await;
    assert!(second.starts_with(&format!("{root}/a/t-")), "{second}");
    drop("t", true).await;
    assert!(!stage.path(&second).exists());
    assert!(stage.path(&file).exists());
    // A purged table leaves no files, and an empty directory is free.
    make("u").await;
    drop("u", true).await;
    fs::create_dir_all(stage.path(&format!("{root}/a/u"))).unwrap();
    assert_eq!(make("u").await.0, format!("{root}/a/u"));
    // A file of that name prevents its use as well.
    fs::write(stage.path(&format!("{root}/a/v")), "").unwrap();
    let (beside, _) = make("v").await;
    assert!(beside.starts_with(&format!("{root}/a/v-")), "{beside}");
    stage.store.close().await;
}

#[tokio::test]
async fn what_was_staged_outside_of_its_home_can_be_committed() {
    let stage = sqlite().await;
    let (catalog, warehouse) = plain(&stage, Arc::new(Granted)).await;
    let root = warehouse.root().to_owned();
    stage.namespace(&["a"]).await;
    let commit = async |who: &CatalogPrincipal, table: &TableIdent, place: Option<&str>| {
        let mut body = creation(&json!({}));
        let moved = place.map(|it| json!({"action": "set-location", "location": it}));
        body["updates"].as_array_mut().unwrap().extend(moved);
        let body = RawJson::of(&body).unwrap();
        catalog.relations().commit_table(&ChangeCall::of(who), &warehouse, table, &body).await
    };
    // The default home of a namespace is in the directory of a table.
    let around =
        commit(&CatalogPrincipal::new("warehouse", "w"), &ident(&["a"], "b"), None).await.unwrap();
    assert_eq!(base(&around), format!("{root}/a/b"));
    let home = stage.namespace(&["a", "b"]).await;
    let (who, own) = (CatalogPrincipal::new("namespace", "n"), ident(&["a", "b"], "own"));
    let schema = json!({
        "type": "struct",
        "fields": [{"id": 1, "name": "x", "required": false, "type": "long"}],
    });
    let body = json!({"name": "own", "stage-create": true, "schema": schema});
    let body = RawJson::of(&body).unwrap();
    let staged = catalog
        .relations()
        .create_table(&ChangeCall::of(&who), &warehouse, &home, &body)
        .await
        .unwrap();
    let place = base(&staged);
    assert!(place.starts_with(&format!("{root}/own~")), "{place}");
    // A table created from a query has files there before it is committed.
    fs::create_dir_all(stage.path(&place)).unwrap();
    fs::write(stage.path(&format!("{place}/1.parquet")), "rows").unwrap();
    for (table, to, expected) in [
        (&own, format!("{root}/elsewhere"), Some(ErrorReason::Forbidden)),
        (&own, format!("{place}0"), Some(ErrorReason::Forbidden)),
        (&ident(&["a", "b"], "other"), place.clone(), Some(ErrorReason::Forbidden)),
        (&own, place.clone(), None),
    ] {
        let made = commit(&who, table, Some(&to)).await;
        assert_eq!(made.as_ref().err().map(|it| it.kind), expected, "{to}");
        assert!(made.is_err() || base(&made.unwrap()) == place);
    }
    // Another table is placed beside it, as is one of the same name after the first is
    // unregistered.
    let table = ident(&["a", "b"], "other");
    let other = base(&commit(&who, &table, None).await.unwrap());
    assert!(other.starts_with(&format!("{root}/other~")), "{other}");
    let operator = stage.call();
    catalog.relations().drop_table(&operator, &warehouse, &table, false).await.unwrap();
    let again = base(&commit(&who, &table, None).await.unwrap());
    assert!(again.starts_with(&format!("{root}/other-")), "{again}");
    stage.store.close().await;
}
