//! Migrations: numbered for each service, forward only, each in a transaction of its own.
//!
//! Nodes of a version run beside those of the version before, and a downgrade by one version is
//! possible. So a step *expands*: it adds tables, indexes, and optional columns. Superfluous ones
//! are removed by a step that *contracts*, two versions later, when no version that is left uses
//! them. A store records the last contracting step: a version of Cove that knows it works with a
//! store that a later one has expanded, and any other refuses to.

use super::error::SqlStoreError;
use super::{SqlStore, StoreDialect, StoreTransaction};

/// A step from a version of the tables to the next.
#[derive(Clone, Copy, Debug)]
pub enum MigrationStep {
    /// Statements for both engines.
    Same(&'static str),
    /// Statements for each engine.
    Each {
        /// For SQLite.
        sqlite: &'static str,
        /// For PostgreSQL.
        postgres: &'static str,
    },
    /// Statements for both engines that remove something: versions of Cove that do not know this
    /// step no longer work with the tables.
    Contract(&'static str),
    /// The same, for each engine.
    ContractEach {
        /// For SQLite.
        sqlite: &'static str,
        /// For PostgreSQL.
        postgres: &'static str,
    },
}

impl MigrationStep {
    fn sql(&self, dialect: StoreDialect) -> &'static str {
        match (self, dialect) {
            (MigrationStep::Same(sql) | MigrationStep::Contract(sql), _)
            | (
                MigrationStep::Each { sqlite: sql, .. }
                | MigrationStep::ContractEach { sqlite: sql, .. },
                StoreDialect::Sqlite,
            )
            | (
                MigrationStep::Each { postgres: sql, .. }
                | MigrationStep::ContractEach { postgres: sql, .. },
                StoreDialect::Postgres,
            ) => sql,
        }
    }

    fn contracts(&self) -> bool {
        matches!(self, MigrationStep::Contract(_) | MigrationStep::ContractEach { .. })
    }

    /// Returns whether the step is of its declared kind: an expanding step removes and renames
    /// nothing.
    fn is_honest(&self, dialect: StoreDialect) -> bool {
        let sql = self.sql(dialect);
        let removes = REMOVALS.iter().any(|statement| sql.contains(statement));
        self.contracts() || !removes
    }
}

/// Parts of statements that remove something that an earlier version uses.
const REMOVALS: &[&str] = &["DROP TABLE", "DROP COLUMN", "RENAME ", "ALTER COLUMN", "SET NOT NULL"];

/// Table of the migrations that were applied, by service.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS cove_migrations (
    service TEXT NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (service, version)
)";

/// Table of the last contracting step of each service.
const FLOORS: &str = "CREATE TABLE IF NOT EXISTS cove_migration_floors (
    service TEXT NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
)";

/// Number of attempts of a step: several servers may start at once, and PostgreSQL's
/// `CREATE TABLE IF NOT EXISTS` fails when two run concurrently.
const ATTEMPTS_MAX: usize = 5;

pub(super) async fn migrate(
    store: &SqlStore,
    service: &'static str,
    steps: &[MigrationStep],
) -> Result<(), SqlStoreError> {
    let failed = |version| {
        move |source| SqlStoreError::Migrate { service, version, source: Box::new(source) }
    };
    for table in [TABLE, FLOORS] {
        attempt(store, || |transaction: &mut dyn StoreTransaction| transaction.batch(table))
            .await
            .map_err(failed(0))?;
    }
    let TableVersion { found, floor } = version(store, service).await.map_err(failed(0))?;
    let known = steps.len();
    if floor > known {
        return Err(SqlStoreError::TooNew { service, found, known, floor });
    }
    if found > known {
        tracing::info!(service, version = found, known, "the store is of a later version");
    }
    let dialect = store.dialect();
    debug_assert!(
        steps.iter().all(|step| step.is_honest(dialect)),
        "a step of `{service}` removes something, and is no `MigrationStep::Contract`"
    );
    let in_pieces = is_cockroach(store).await.map_err(failed(found))?;
    for (index, step) in steps.iter().enumerate().skip(found) {
        let (number, sql) = (index + 1, step.sql(dialect));
        if in_pieces {
            apply_pieces(store, service, number, sql).await.map_err(failed(number))?;
        }
        // The pieces were run before; here the version is only recorded.
        let sql = if in_pieces { "" } else { sql };
        let step = || {
            let migration = NumberedStep { service, number, sql, contracts: step.contracts() };
            move |transaction: &mut dyn StoreTransaction| apply(transaction, &migration)
        };
        attempt(store, step).await.map_err(failed(number))?;
        tracing::info!(service, version = number, "migrated the store");
    }
    Ok(())
}

/// Returns whether the database is CockroachDB, which uses PostgreSQL's protocol.
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

/// Applies one version statement by statement, each in a transaction of its own, which is recorded
/// for a service of the version's own: an interrupted migration continues after the last one.
///
/// CockroachDB does not let one transaction use a column that it has added, or create an index with
/// the name of one that it has dropped.
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
                // First, because in CockroachDB a change of the schema cannot follow a change of
                // rows.
                transaction.batch(&piece)?;
                let count = "INSERT INTO cove_migrations (service, version) VALUES ($1, $2)";
                transaction.execute(count, &parameters).map(drop)
            }
        };
        attempt(store, step).await?;
    }
    Ok(())
}

/// Returns the statements of a migration in CockroachDB's dialect: it compares texts by their bytes
/// anyway and has no collation `C`. No statement of ours has a semicolon or two hyphens within a
/// string literal.
fn pieces(sql: &str) -> Vec<String> {
    let lines = sql.lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code));
    let code = lines.collect::<Vec<_>>().join("\n").replace(" COLLATE \"C\"", "");
    let pieces = code.split(';').map(str::trim).filter(|piece| !piece.is_empty());
    pieces.map(str::to_owned).collect()
}

/// Version of a service's tables.
struct TableVersion {
    /// Number of applied steps.
    found: usize,
    /// The last contracting step among them, 0 for none.
    floor: usize,
}

async fn version(store: &SqlStore, service: &'static str) -> Result<TableVersion, SqlStoreError> {
    let latest = |table| {
        let sql = format!("SELECT COALESCE(MAX(version), 0) FROM {table} WHERE service = $1");
        store.read("store.version", move |transaction| {
            let row = transaction.query_one(&sql, &[service.into()])?;
            row.map_or(Ok(0), |row| row.get(0))
        })
    };
    let found = latest("cove_migrations").await?;
    Ok(TableVersion { found, floor: latest("cove_migration_floors").await? })
}

/// A step of a service's migrations.
struct NumberedStep<'a> {
    service: &'static str,
    number: usize,
    sql: &'a str,
    contracts: bool,
}

/// Applies one version, unless another server has done so meanwhile.
fn apply(
    transaction: &mut dyn StoreTransaction,
    step: &NumberedStep<'_>,
) -> Result<(), SqlStoreError> {
    let NumberedStep { service, number, sql, contracts } = *step;
    let version = i64::try_from(number).unwrap_or(i64::MAX);
    // First, because another server that does the same waits for this row.
    let mine = transaction.execute(
        "INSERT INTO cove_migrations (service, version) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        &[service.into(), version.into()],
    )?;
    if mine == 0 {
        return Ok(());
    }
    transaction.batch(sql)?;
    if contracts {
        let sql = "INSERT INTO cove_migration_floors (service, version) VALUES ($1, $2) \
            ON CONFLICT (service) DO UPDATE SET version = excluded.version";
        transaction.execute(sql, &[service.into(), version.into()])?;
    }
    Ok(())
}

async fn attempt<F>(store: &SqlStore, body: impl Fn() -> F) -> Result<(), SqlStoreError>
where
    F: FnMut(&mut dyn StoreTransaction) -> Result<(), SqlStoreError> + Send + 'static,
{
    for _ in 1..ATTEMPTS_MAX {
        match store.transact_idempotent("store.migrate", body()).await {
            // Two servers created the same table at the same moment: the next attempt finds it.
            Err(SqlStoreError::Constraint { .. } | SqlStoreError::Contended { .. }) => {}
            other => return other,
        }
    }
    store.transact_idempotent("store.migrate", body()).await
}
