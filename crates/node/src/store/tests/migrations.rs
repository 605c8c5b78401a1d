//! Migrations, on both engines.

use super::*;

const STEPS: &[MigrationStep] = &[
    MigrationStep::Same("CREATE TABLE a (x BIGINT); INSERT INTO a VALUES (1)"),
    MigrationStep::Each {
        sqlite: "ALTER TABLE a ADD COLUMN y TEXT DEFAULT 'sqlite'",
        postgres: "ALTER TABLE a ADD COLUMN y TEXT DEFAULT 'postgres'",
    },
    MigrationStep::Same("UPDATE a SET x = x + 10; CREATE TABLE b (z BIGINT)"),
];

async fn check_migrated(store: &SqlStore) {
    let name = match store.dialect() {
        StoreDialect::Sqlite => "sqlite",
        StoreDialect::Postgres => "postgres",
    };
    let rows = ask(store, "SELECT x, y FROM a", vec![]).await.unwrap();
    assert_eq!(rows[0].values(), [SqlValue::Int(11), name.into()]);
    assert!(ask(store, "SELECT z FROM b", vec![]).await.unwrap().is_empty());
}

#[tokio::test]
async fn migrations_lead_from_every_version_to_the_newest() {
    for older in 0..=STEPS.len() {
        check(async |fresh| {
            let store = &fresh.store;
            store.migrate("a", &STEPS[..older]).await.unwrap();
            store.migrate("a", STEPS).await.unwrap();
            store.migrate("a", STEPS).await.unwrap();
            check_migrated(store).await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_newer_database_is_refused_where_something_was_removed() {
    const CONTRACT: MigrationStep = MigrationStep::Contract("ALTER TABLE a DROP COLUMN y");
    check(async |Fresh { store, .. }| {
        let later = [STEPS[0], STEPS[1], CONTRACT, STEPS[2]];
        store.migrate("a", &STEPS[..2]).await.unwrap();
        store.migrate("a", &later).await.unwrap();
        // The version with the contracting step, and without the step after it.
        store.migrate("a", &later[..3]).await.unwrap();
        let error = store.migrate("a", &STEPS[..2]).await.unwrap_err();
        let expected = "the store has version 4 of `a`, this version of cove knows up to 2, and \
            one that works with it has to know version 3";
        assert_eq!(error.to_string(), expected);
        assert!(ask(store, "SELECT z FROM b", vec![]).await.unwrap().is_empty());
        // Services do not share numbers.
        store.migrate("b", &[]).await.unwrap();
    })
    .await;
}

/// An older version works with additions of a later one.
#[tokio::test]
async fn an_older_version_works_with_what_was_added() {
    check(async |Fresh { store, .. }| {
        store.migrate("a", STEPS).await.unwrap();
        for known in 0..STEPS.len() {
            store.migrate("a", &STEPS[..known]).await.unwrap();
        }
        store.migrate("a", STEPS).await.unwrap();
        check_migrated(store).await;
    })
    .await;
}

#[test]
#[should_panic(expected = "removes something")]
fn a_step_that_removes_something_says_so() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let fresh = Fresh::open(StoreDialect::Sqlite, |_| {}).await;
        let steps = [MigrationStep::Same("ALTER TABLE a RENAME TO b")];
        fresh.store.migrate("a", &steps).await.unwrap();
    });
}

#[tokio::test]
async fn a_step_that_fails_leaves_the_version_before() {
    check(async |Fresh { store, .. }| {
        let broken =
            [STEPS[0], MigrationStep::Contract("CREATE TABLE b (z BIGINT); DROP TABLE nothing")];
        let error = store.migrate("a", &broken).await.unwrap_err();
        assert!(matches!(error, SqlStoreError::Migrate { version: 2, .. }), "{error:?}");
        store.migrate("a", STEPS).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_start_together_migrate_once() {
    let fresh = Fresh::open(StoreDialect::Postgres, |_| {}).await;
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let store = fresh.again().await.unwrap();
        tasks.spawn(async move { store.migrate("a", STEPS).await });
    }
    for result in tasks.join_all().await {
        result.unwrap();
    }
    check_migrated(&fresh.store).await;
}

/// CockroachDB's procedure, on PostgreSQL: an interrupted migration continues where it stopped.
#[tokio::test(flavor = "multi_thread")]
async fn servers_that_start_together_on_a_new_store_make_its_first_table_once() {
    let fresh = Fresh::open(StoreDialect::Postgres, |_| {}).await;
    let (one, two) = (fresh.again().await.unwrap(), fresh.again().await.unwrap());
    // Two conflict on the name of the table or on that of its row type, at random.
    for _ in 0..100 {
        fresh.store.transact("test", |it| it.batch("DROP TABLE cove_migrations")).await.unwrap();
        let (one, two) = tokio::join!(one.migrate("a", &[]), two.migrate("a", &[]));
        one.and(two).unwrap();
    }
}

#[tokio::test]
async fn a_migration_in_pieces_makes_each_piece_once() {
    let Fresh { store, .. } = &Fresh::open(StoreDialect::Postgres, |_| {}).await;
    let whole = "CREATE TABLE a (x TEXT COLLATE \"C\" NOT NULL); -- a comment; with that
        CREATE INDEX a_x ON a (x);
        INSERT INTO a VALUES ('once');
        DROP INDEX a_x; CREATE INDEX a_x ON a (x) ;";
    let (before, broken) = whole.split_once("DROP").unwrap();
    let failed = migrate::apply_pieces(store, "a", 1, &format!("{before}{broken}")).await;
    assert!(matches!(failed, Err(SqlStoreError::Statement { .. })), "{failed:?}");
    for _ in 0..2 {
        migrate::apply_pieces(store, "a", 1, whole).await.unwrap();
    }
    let rows = ask(store, "SELECT x FROM a", vec![]).await.unwrap();
    assert_eq!(rows.len(), 1);
    let count = "SELECT COUNT(*) FROM cove_migrations WHERE service = 'a/1'";
    assert_eq!(ask(store, count, vec![]).await.unwrap()[0].get::<i64>(0).unwrap(), 5);
    let collations = "SELECT COUNT(*) FROM information_schema.columns
        WHERE table_name = 'a' AND collation_name = 'C'";
    assert_eq!(ask(store, collations, vec![]).await.unwrap()[0].get::<i64>(0).unwrap(), 0);
}
