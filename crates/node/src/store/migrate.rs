//! Migrations: numbered for each service, forward only, each in a transaction of its own.

use super::error::SqlStoreError;
use super::{SqlStore, StoreDialect, StoreTransaction};

/// A step from a version of the tables to the next.
#[derive(Clone, Copy, Debug)]
pub enum MigrationStep {
    /// Statements that both engines understand.
    Same(&'static str),
    /// Statements for each.
    Each {
        /// For SQLite.
        sqlite: &'static str,
        /// For PostgreSQL.
        postgres: &'static str,
    },
}

impl MigrationStep {
    fn sql(&self, dialect: StoreDialect) -> &'static str {
        match (self, dialect) {
            (MigrationStep::Same(sql), _)
            | (MigrationStep::Each { sqlite: sql, .. }, StoreDialect::Sqlite)
            | (MigrationStep::Each { postgres: sql, .. }, StoreDialect::Postgres) => sql,
        }
    }
}

/// Table of the migrations that were applied, by service.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS cove_migrations (
    service TEXT NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (service, version)
)";

/// Number of times that a step is tried: several servers may start at once, and `CREATE TABLE IF
/// NOT EXISTS` of PostgreSQL fails when two run side by side.
const ATTEMPTS_MAX: usize = 5;

pub(super) async fn migrate(
    store: &SqlStore,
    service: &'static str,
    steps: &[MigrationStep],
) -> Result<(), SqlStoreError> {
    let failed = |version| {
        move |source| SqlStoreError::Migrate { service, version, source: Box::new(source) }
    };
    attempt(store, || |transaction: &mut dyn StoreTransaction| transaction.batch(TABLE))
        .await
        .map_err(failed(0))?;
    let found = version(store, service).await.map_err(failed(0))?;
    if found > steps.len() {
        return Err(SqlStoreError::TooNew { service, found, known: steps.len() });
    }
    let dialect = store.dialect();
    let in_pieces = is_cockroach(store).await.map_err(failed(found))?;
    for (index, step) in steps.iter().enumerate().skip(found) {
        let (number, sql) = (index + 1, step.sql(dialect));
        if in_pieces {
            apply_pieces(store, service, number, sql).await.map_err(failed(number))?;
        }
        // What was made in pieces is only counted here.
        let sql = if in_pieces { "" } else { sql };
        let step = || {
            move |transaction: &mut dyn StoreTransaction| apply(transaction, service, number, sql)
        };
        attempt(store, step).await.map_err(failed(number))?;
        tracing::info!(service, version = number, "migrated the store");
    }
    Ok(())
}

/// Returns whether it is CockroachDB, which speaks PostgreSQL's protocol.
async fn is_cockroach(store: &SqlStore) -> Result<bool, SqlStoreError> {
    if store.dialect() == StoreDialect::Sqlite {
        return Ok(false);
    }
    store
        .read("store.version", |transaction| {
            let row = transaction.query_one("SELECT version()", &[])?;
            row.map_or(Ok(false), |row| {
                row.get::<String>(0).map(|version| version.starts_with("CockroachDB"))
            })
        })
        .await
}

/// Makes one version statement by statement, each in a transaction of its own, which is counted
/// for a service of the version's own: whoever is interrupted goes on behind the last one.
///
/// CockroachDB does not let one transaction use a column that it has added, or make an index by the
/// name of one that it has dropped.
pub(super) async fn apply_pieces(
    store: &SqlStore,
    service: &'static str,
    number: usize,
    sql: &str,
) -> Result<(), SqlStoreError> {
    let name = format!("{service}/{number}");
    for (index, piece) in (1_i64..).zip(pieces(sql)) {
        let step = || {
            let parameters = [name.as_str().into(), index.into()];
            let piece = piece.clone();
            move |transaction: &mut dyn StoreTransaction| {
                let done = "SELECT version FROM cove_migrations \
                    WHERE service = $1 AND version = $2";
                if transaction.query_one(done, &parameters)?.is_some() {
                    return Ok(());
                }
                // First, because there a change of the schema cannot follow a change of rows.
                transaction.batch(&piece)?;
                let count = "INSERT INTO cove_migrations (service, version) VALUES ($1, $2)";
                transaction.execute(count, &parameters).map(drop)
            }
        };
        attempt(store, step).await?;
    }
    Ok(())
}

/// The statements of a migration, as CockroachDB takes them: it compares texts by their bytes
/// anyway and has no columns that say so. No statement of ours has a semicolon or two hyphens
/// within a text.
fn pieces(sql: &str) -> Vec<String> {
    let lines = sql.lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code));
    let code = lines.collect::<Vec<_>>().join("\n").replace(" COLLATE \"C\"", "");
    let pieces = code.split(';').map(str::trim).filter(|piece| !piece.is_empty());
    pieces.map(str::to_owned).collect()
}

async fn version(store: &SqlStore, service: &'static str) -> Result<usize, SqlStoreError> {
    let sql = "SELECT COALESCE(MAX(version), 0) FROM cove_migrations WHERE service = $1";
    store
        .read("store.version", move |transaction| {
            let row = transaction.query_one(sql, &[service.into()])?;
            row.map_or(Ok(0), |row| row.get(0))
        })
        .await
}

/// Makes one version, unless another server has done so meanwhile.
fn apply(
    transaction: &mut dyn StoreTransaction,
    service: &'static str,
    number: usize,
    sql: &str,
) -> Result<(), SqlStoreError> {
    let version = i64::try_from(number).unwrap_or(i64::MAX);
    // First, because another server that does the same waits for this row.
    let mine = transaction.execute(
        "INSERT INTO cove_migrations (service, version) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        &[service.into(), version.into()],
    )?;
    if mine == 0 { Ok(()) } else { transaction.batch(sql) }
}

async fn attempt<F>(store: &SqlStore, body: impl Fn() -> F) -> Result<(), SqlStoreError>
where
    F: FnMut(&mut dyn StoreTransaction) -> Result<(), SqlStoreError> + Send + 'static,
{
    for _ in 1..ATTEMPTS_MAX {
        match store.transact_idempotent("store.migrate", body()).await {
            // Two servers made the same table at the same moment: the next attempt finds it.
            Err(SqlStoreError::Constraint { .. } | SqlStoreError::Contended { .. }) => {}
            other => return other,
        }
    }
    store.transact_idempotent("store.migrate", body()).await
}
