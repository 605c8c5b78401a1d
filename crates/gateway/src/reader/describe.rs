//! Tables and views of a database, from its own catalog, as visible to the grant's role.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/catalogs.html>
//! - <https://dev.mysql.com/doc/refman/8.4/en/information-schema.html>

use api::{DataColumn, DataObject, ErrorCode, TenantEngine};
use node::http::HttpError;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::mysql::MysqlClient;
use super::pg::PgClient;
use super::room::ResultRoom;
use super::{SqlFailure, as_text};

/// Most objects in a description, and most columns of one.
pub(super) const OBJECTS_MAX: u32 = 500;

/// Objects, and whether there are more.
pub(super) type Described = (Vec<DataObject>, bool);

/// Tables and views that the role may read, without system schemas.
const PG_OBJECTS: &str = "SELECT n.nspname || '.' || c.relname, CASE c.relkind WHEN 'v' THEN 'view' \
     WHEN 'm' THEN 'materialized view' WHEN 'f' THEN 'foreign table' ELSE 'table' END, \
     obj_description(c.oid, 'pg_class') FROM pg_catalog.pg_class c \
     JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition \
     AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%' \
     AND has_schema_privilege(n.oid, 'USAGE') \
     AND has_any_column_privilege(c.oid, 'SELECT') ORDER BY 1";

/// One object by its name, which is resolved as in a statement.
const PG_OBJECT: &str = "SELECT n.nspname || '.' || c.relname, CASE c.relkind WHEN 'v' THEN 'view' \
     WHEN 'm' THEN 'materialized view' WHEN 'f' THEN 'foreign table' ELSE 'table' END, \
     obj_description(c.oid, 'pg_class') FROM pg_catalog.pg_class c \
     JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.oid = to_regclass($1) AND has_any_column_privilege(c.oid, 'SELECT')";

const PG_COLUMNS: &str = "SELECT a.attname, format_type(a.atttypid, a.atttypmod), \
     NOT a.attnotnull, pg_get_expr(d.adbin, d.adrelid), col_description(a.attrelid, a.attnum) \
     FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef d \
     ON d.adrelid = a.attrelid AND d.adnum = a.attnum WHERE a.attrelid = to_regclass($1) \
     AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

const PG_CONSTRAINTS: &str = "SELECT pg_get_constraintdef(oid) FROM pg_catalog.pg_constraint \
     WHERE conrelid = to_regclass($1) ORDER BY contype DESC, conname";

const MYSQL_OBJECTS: &str = "SELECT CONCAT(table_schema, '.', table_name), \
     IF(table_type LIKE '%VIEW', 'view', 'table'), NULLIF(table_comment, '') \
     FROM information_schema.tables WHERE table_schema NOT IN \
     ('information_schema', 'mysql', 'performance_schema', 'sys') ORDER BY 1";

const MYSQL_OBJECT: &str = "SELECT CONCAT(table_schema, '.', table_name), \
     IF(table_type LIKE '%VIEW', 'view', 'table'), NULLIF(table_comment, '') \
     FROM information_schema.tables WHERE table_name = ? \
     AND table_schema = COALESCE(?, DATABASE())";

const MYSQL_COLUMNS: &str = "SELECT column_name, column_type, is_nullable = 'YES', \
     column_default, NULLIF(column_comment, '') FROM information_schema.columns \
     WHERE table_name = ? AND table_schema = COALESCE(?, DATABASE()) ORDER BY ordinal_position";

const MYSQL_CONSTRAINTS: &str = "SELECT CONCAT(IF(constraint_name = 'PRIMARY', 'PRIMARY KEY', \
     IF(MAX(referenced_table_name) IS NULL, 'UNIQUE', 'FOREIGN KEY')), ' (', \
     GROUP_CONCAT(column_name ORDER BY ordinal_position SEPARATOR ', '), ')', \
     COALESCE(CONCAT(' REFERENCES ', MAX(referenced_table_name), ' (', \
     GROUP_CONCAT(referenced_column_name ORDER BY ordinal_position SEPARATOR ', '), ')'), '')) \
     FROM information_schema.key_column_usage WHERE table_name = ? \
     AND table_schema = COALESCE(?, DATABASE()) GROUP BY constraint_name ORDER BY 1";

/// A client of either protocol.
enum DescribingClient {
    Postgres(PgClient),
    Mysql(MysqlClient),
}

impl DescribingClient {
    /// Returns the rows of a statement, and whether there are more.
    async fn rows(
        &mut self,
        sql: &str,
        parameters: &[Value],
    ) -> Result<(Vec<Vec<Value>>, bool), SqlFailure> {
        let room = ResultRoom::new(OBJECTS_MAX);
        let table = match self {
            DescribingClient::Postgres(client) => {
                let values: Result<Vec<_>, _> = parameters.iter().map(as_text).collect();
                client.run(sql, &values?, room).await?
            }
            DescribingClient::Mysql(client) => client.run(sql, parameters, room).await?,
        };
        Ok((table.rows, table.limit.is_some()))
    }
}

/// Describes a database, or one object in it; `None` if the object does not exist, or the role may
/// not read it.
///
/// # Errors
/// An error of the database.
pub(super) async fn database(
    engine: TenantEngine,
    stream: TcpStream,
    name: Option<&str>,
) -> Result<Option<Described>, SqlFailure> {
    let mut client = match engine {
        TenantEngine::Postgres => DescribingClient::Postgres(PgClient::connect(stream).await?),
        TenantEngine::Mysql => DescribingClient::Mysql(MysqlClient::connect(stream).await?),
    };
    let Some(name) = name else {
        let all = match engine {
            TenantEngine::Postgres => PG_OBJECTS,
            TenantEngine::Mysql => MYSQL_OBJECTS,
        };
        let (rows, truncated) = client.rows(all, &[]).await?;
        return Ok(Some((rows.iter().map(|row| object(row)).collect(), truncated)));
    };
    let (statements, parameters) = match engine {
        TenantEngine::Postgres => ([PG_OBJECT, PG_COLUMNS, PG_CONSTRAINTS], vec![json!(name)]),
        TenantEngine::Mysql => {
            let (schema, table) = match name.split_once('.') {
                Some((schema, table)) => (Value::String(schema.to_owned()), table),
                None => (Value::Null, name),
            };
            ([MYSQL_OBJECT, MYSQL_COLUMNS, MYSQL_CONSTRAINTS], vec![json!(table), schema])
        }
    };
    let [objects, columns, constraints] = statements;
    let (rows, _) = client.rows(objects, &parameters).await?;
    let Some(mut found) = rows.first().map(|row| object(row)) else { return Ok(None) };
    let (rows, truncated) = client.rows(columns, &parameters).await?;
    found.columns = rows.iter().map(|row| column(row)).collect();
    let (rows, _) = client.rows(constraints, &parameters).await?;
    found.constraints = rows.iter().map(|row| text(row, 0)).collect();
    Ok(Some((vec![found], truncated)))
}

pub(super) fn not_found(name: &str) -> HttpError {
    let shown: String = name.chars().take(100).collect();
    HttpError::new(ErrorCode::NotFound, format!("there is no `{shown}` that the grant may read"))
        .at("name")
}

fn text(row: &[Value], at: usize) -> String {
    optional(row, at).unwrap_or_default()
}

fn optional(row: &[Value], at: usize) -> Option<String> {
    row.get(at).and_then(Value::as_str).map(str::to_owned)
}

fn object(row: &[Value]) -> DataObject {
    DataObject {
        name: text(row, 0),
        kind: text(row, 1),
        comment: optional(row, 2),
        ..DataObject::default()
    }
}

fn column(row: &[Value]) -> DataColumn {
    let nullable = row.get(2).is_some_and(|it| *it == Value::Bool(true) || *it == json!(1));
    DataColumn {
        name: text(row, 0),
        type_name: text(row, 1),
        nullable,
        default: optional(row, 3),
        comment: optional(row, 4),
    }
}
