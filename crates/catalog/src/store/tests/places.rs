//! Locations in stores of earlier versions, and in databases with another collation.

use super::*;

/// Opens a database without its tables.
async fn bare(url: StoreUrl) -> SqlStore {
    SqlStore::open(StoreConfig::new(url), &mut Registry::default()).await.unwrap()
}

/// A table and a dropped one, in the form of each earlier version.
const OLD_ROWS: &str = "
    INSERT INTO catalog_warehouses (id, name, root, created_ms)
        VALUES ('wh_1', 'w', 'file:///w', 1);
    INSERT INTO catalog_tables (id, warehouse, namespace, name, kind, uuid, base, version,
        location, created_ms, updated_ms) VALUES ('tb_1', 'wh_1', 'a', 't', 'table', 'u',
        'file:///w/ä/t', 1, 'file:///w/ä/t/1.json', 1, 1);
    INSERT INTO catalog_dropped (id, warehouse, namespace, name, kind, uuid, base, version,
        location, created_ms, dropped_ms, until_ms, purge, principal, purging_ms)
        VALUES ('tb_2', 'wh_1', 'a', 'd', 'table', 'u', 'file:///w/ä/d', 1,
        'file:///w/ä/d/1.json', 1, 2, 3, 0, 'p', 0);
    INSERT INTO catalog_roles (name) VALUES ('r')";

/// Locations of a relation, for versions with a table for them.
const OLD_PLACES: &str = "
    INSERT INTO catalog_places (relation, place) VALUES ('tb_1', 'file:///w/ä/t');
    INSERT INTO catalog_places (relation, place) VALUES ('tb_2', 'file:///w/ä/d')";

/// Number of migrations after which locations exist, and before which catalog roles do not.
const STEPS_TO_PLACES: usize = 6;
const STEPS_TO_ROLES: usize = 9;

/// Checks that a store after this many migrations has its locations after the remaining ones.
async fn check_old(url: StoreUrl, steps: usize) {
    let store = bare(url.clone()).await;
    store.migrate(schema::SERVICE, schema::MIGRATIONS).await.unwrap();
    store.migrate(timeline::SERVICE, &timeline::MIGRATIONS[..steps]).await.unwrap();
    store.migrate(storage::SERVICE, storage::MIGRATIONS).await.unwrap();
    let of_access = &access_schema::MIGRATIONS[..STEPS_TO_ROLES];
    store.migrate(access_schema::SERVICE, of_access).await.unwrap();
    let fill = store.transact("test.fill", move |it| {
        it.batch(OLD_ROWS)?;
        if steps < STEPS_TO_PLACES { Ok(()) } else { it.batch(OLD_PLACES) }
    });
    fill.await.unwrap();
    store.close().await;
    let store = open(url).await;
    with_namespaces(&store, &[&["a"]]).await;
    for (place, other, expected) in [
        ("file:///w/ä/t", "", true),
        ("file:///w/ä/t/data", "", true),
        ("file:///w/ä", "", true),
        ("file:///w/ä/d/data", "", true),
        ("file:///w/ä/t", "tb_1", false),
        ("file:///w/ä/t2", "", false),
        ("file:///w/a", "", false),
    ] {
        let found = store.locations().is_shared(place, other).await.unwrap();
        assert_eq!(found, expected, "{steps} {place} {other:?}");
    }
    assert!(store.locations().is_place_of("file:///w/ä/t/data", "tb_1").await.unwrap());
    let ident = table(&["a"], "back");
    store.dropped_relations().undrop(&context(), WAREHOUSE, "tb_2", &ident).await.unwrap();
    let new = NewRelation {
        base: "file:///w/ä/d/in".to_owned(),
        ..relation(&table(&["a"], "n"), RelationKind::Table)
    };
    let refused = store.relations().insert_relation(&context(), WAREHOUSE, new).await;
    assert_eq!(refusal(refused).0, ErrorReason::Forbidden);
    store.database.sql_store().close().await;
}

#[tokio::test]
async fn a_store_that_was_made_before_keeps_its_places() {
    let server = Postgres::shared();
    for steps in STEPS_TO_PLACES - 1..=timeline::MIGRATIONS.len() - 1 {
        let scratch = Scratch::new();
        check_old(StoreUrl::Sqlite(scratch.path().join("db")), steps).await;
        check_old(StoreUrl::Postgres(server.database()), steps).await;
    }
}

#[tokio::test]
async fn places_are_found_whatever_order_a_database_has_for_texts() {
    let server = Postgres::shared();
    // A collation that ignores `/`.
    let sql = "CREATE DATABASE places_unordered TEMPLATE template0 \
        LOCALE_PROVIDER icu ICU_LOCALE 'und-u-ka-shifted'";
    server.sql(sql);
    let url = StoreUrl::Postgres(server.url("places_unordered"));
    let store = bare(url.clone()).await;
    let unordered = store.read("test.order", |it| {
        let sql = "SELECT CAST(CAST('/x/y' > '/x/' AND '/x/y' < '/x0' AS INT) AS BIGINT)";
        it.query_one(sql, &[])?.map_or(Ok(1), |row| row.get::<i64>(0))
    });
    assert_eq!(unordered.await.unwrap(), 0);
    store.close().await;
    let store = open(url).await;
    let row = WarehouseRow {
        id: WAREHOUSE.to_owned(),
        name: "first".to_owned(),
        root: "file:///w".to_owned(),
        created_ms: NOW,
        storage: None,
    };
    store.warehouses().insert_warehouse(row, Vec::new(), Properties::new()).await.unwrap();
    with_namespaces(&store, &[&["a"]]).await;
    let place = |at: &str, name: &str| NewRelation {
        base: format!("file:///w/{at}"),
        ..relation(&table(&["a"], name), RelationKind::Table)
    };
    store.relations().insert_relation(&context(), WAREHOUSE, place("x/y", "t")).await.unwrap();
    for (at, expected) in [
        ("x", Some(ErrorReason::Forbidden)),
        ("x/y", Some(ErrorReason::Forbidden)),
        ("x/y/z", Some(ErrorReason::Forbidden)),
        ("X/y", None),
        ("xy", None),
        ("x-y", None),
        ("x/y0", None),
        ("x/Y", None),
    ] {
        let name = at.replace('/', "_");
        let made = store.relations().insert_relation(&context(), WAREHOUSE, place(at, &name)).await;
        assert_eq!(made.err().map(|it| it.kind), expected, "{at}");
    }
    store.database.sql_store().close().await;
}
