//! Reads of a grant's target from the server's side, for callers of the HTTP API.
//!
//! A reader is a client of the grant's own door, like a program in the sandbox: it connects to the
//! same listener code over a socket, without credentials. So read-only checks, masking, limits,
//! counts and audit are those of sandboxes, and are not repeated here. For a grant that may write,
//! the reader has a separate door, which may not.
//!
//! | file | what |
//! |---|---|
//! | `reader.rs` | [`DoorReader`]: admission, cancellation, errors |
//! | `reader/pg.rs`, `reader/mysql.rs` | clients of the two protocols |
//! | `reader/values.rs` | values as JSON, pure |
//! | `reader/room.rs` | size limits of a result, pure |
//! | `reader/describe.rs` | tables of databases |
//! | `reader/lake.rs` | tables of a warehouse |
//! | `reader/lake_query.rs` | statements over them, which a program in the sandbox runs |
//! | `reader/fuzzing.rs` | entries of fuzz targets |

mod describe;
mod lake;
mod lake_query;
mod mysql;
mod pg;
pub(crate) mod room;
mod values;

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::{
    AuditEvent, AuditOutcome, ErrorCode, GrantDescription, GrantQuery, GrantQueryResult,
    QueryColumn, QueryLimit, TenantEngine,
};
use node::clock;
use node::fence::{EffectFence, EffectWay, LEASE_RETRY};
use node::gateway::{GrantReader, HolderSandbox};
use node::http::HttpError;
use node::task::Boxed;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use wire::mask::{SqlDialect, mask};

use self::mysql::MysqlClient;
use self::pg::PgClient;
use self::room::{ROWS_DEFAULT, ROWS_MAX, ResultRoom};
use crate::config::AuditStatements;
use crate::doors::{AuditSink, DatabaseDoor, GatewayEvent, LoginPlace, StreamDoor};
use crate::gate::ReadingListener;

/// Most concurrent statements and descriptions of one grant.
pub(crate) const READERS_MAX: usize = 4;

/// Longest text of a statement, in bytes: databases reject longer ones of guests anyway.
const SQL_BYTES_MAX: usize = 1 << 20;

/// Most parameters of a statement.
const PARAMETERS_MAX: usize = 1_000;

/// Longest message of a database, in bytes: above [`room::RESULT_BYTES_MAX`], so that every stored
/// row fits into one message.
const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// Most bytes of a statement's text in the audit log, as for statements of databases.
const AUDIT_TEXT_BYTES_MAX: usize = 4096;

/// User name of readers at databases, which ignore it.
const WHO: &str = "cove";

/// Time after which a client may retry if there are too many readers.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Bytes that are discarded at a time.
const DISCARD_BYTES: usize = 16 << 10;

/// The door of a grant, for readers.
#[derive(Clone, Debug)]
pub(crate) enum ReaderDoor {
    /// A database. The reference is weak while a statement runs, so that revocation drops the door.
    Database(TenantEngine, Weak<dyn DatabaseDoor>),
    /// A warehouse.
    Warehouse(WarehouseDoor),
}

/// The door of a warehouse, for readers.
#[derive(Clone, Debug)]
pub(crate) struct WarehouseDoor {
    /// Name of the warehouse.
    pub(crate) warehouse: String,
    /// The grant's own door, for requests of the server.
    pub(crate) door: Weak<dyn StreamDoor>,
    /// Port of the grant in the sandbox, for programs of readers if the grant is read-only.
    pub(crate) port: u16,
    /// Listener for programs of readers where the grant may write.
    pub(crate) beside: Option<Arc<ReadingListener>>,
}

/// Semaphores of a reader.
#[derive(Clone, Debug)]
pub(crate) struct ReaderRooms {
    /// Concurrent readers of the grant.
    pub(crate) readers: Arc<Semaphore>,
    /// Logins of the grant in progress, including those of programs in the sandbox.
    pub(crate) logins: Arc<Semaphore>,
    /// Connections of the tenant, and of all tenants.
    pub(crate) connections: [Arc<Semaphore>; 2],
}

/// Reader of one grant's target.
pub(crate) struct DoorReader {
    pub(crate) label: String,
    pub(crate) door: ReaderDoor,
    pub(crate) rooms: ReaderRooms,
    /// Closed when the grant is revoked, or the sandbox ends.
    pub(crate) revoked: watch::Receiver<()>,
    /// Sink of the grant's audit records, for statements that no server records itself.
    pub(crate) audit: Arc<dyn AuditSink>,
    /// Blocks new work after the server's lease has ended.
    pub(crate) fence: EffectFence,
}

impl fmt::Debug for DoorReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DoorReader").field("label", &self.label).finish_non_exhaustive()
    }
}

/// Rows of a statement.
#[derive(Debug, Default)]
struct ResultTable {
    columns: Vec<QueryColumn>,
    rows: Vec<Vec<Value>>,
    limit: Option<QueryLimit>,
}

/// Reason why a statement has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum SqlFailure {
    /// Error of the database for the statement: a code and a message.
    #[error("{code}: {message}")]
    Database { code: String, message: String },
    /// Error of the database for the connection.
    #[error("the database refuses the connection: {code}: {message}")]
    Connection { code: String, message: String },
    /// The parameter values do not match the statement.
    #[error("{0}")]
    Parameters(String),
    /// The database violates the expected protocol.
    #[error("{0}")]
    Protocol(&'static str),
    /// The connection ended.
    #[error("the connection to the database ended")]
    Ended,
}

impl SqlFailure {
    fn database(code: &str, message: String) -> SqlFailure {
        SqlFailure::Database { code: code.to_owned(), message }
    }

    const fn parameters(message: String) -> SqlFailure {
        SqlFailure::Parameters(message)
    }

    const fn protocol(message: &'static str) -> SqlFailure {
        SqlFailure::Protocol(message)
    }

    /// Converts the error for a connection without a statement.
    fn of_connection(self) -> SqlFailure {
        match self {
            SqlFailure::Database { code, message } => SqlFailure::Connection { code, message },
            other => other,
        }
    }
}

impl From<io::Error> for SqlFailure {
    fn from(error: io::Error) -> SqlFailure {
        tracing::debug!(%error, "a reader of a grant lost its connection");
        SqlFailure::Ended
    }
}

impl SqlFailure {
    /// Returns the error for a caller; `field` is the field of the statement.
    fn answer(self, field: &str) -> HttpError {
        let message = self.to_string();
        match self {
            SqlFailure::Database { .. } | SqlFailure::Protocol(_) => {
                HttpError::invalid(message).at(field)
            }
            SqlFailure::Parameters(_) => HttpError::invalid(message).at("parameters"),
            SqlFailure::Connection { .. } | SqlFailure::Ended => {
                HttpError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER)
            }
        }
    }
}

impl GrantReader for DoorReader {
    fn query(
        self: Box<Self>,
        query: GrantQuery,
        inside: Box<dyn HolderSandbox>,
    ) -> Boxed<'static, Result<GrantQueryResult, HttpError>> {
        Box::pin(async move {
            let rows = checked(&query)?;
            self.check_lease()?;
            let _place = self.place()?;
            let began = clock::now();
            let running = async {
                match &self.door {
                    ReaderDoor::Database(engine, door) => {
                        let stream = self.connect(door).await?;
                        let done = run(*engine, stream, &query, ResultRoom::new(rows)).await;
                        done.map_err(|failure| failure.answer("sql"))
                    }
                    ReaderDoor::Warehouse(door) => {
                        self.query_tables(door, &query, rows, &*inside).await
                    }
                }
            };
            let ResultTable { columns, rows, limit } = self.unless_revoked(running).await?;
            Ok(GrantQueryResult {
                columns,
                row_count: u64::try_from(rows.len()).unwrap_or(u64::MAX),
                rows,
                truncated: limit.is_some(),
                limit,
                seconds: clock::now().duration_since(began).as_secs_f64(),
            })
        })
    }

    fn describe(
        self: Box<Self>,
        name: Option<String>,
    ) -> Boxed<'static, Result<GrantDescription, HttpError>> {
        Box::pin(async move {
            self.check_lease()?;
            let _place = self.place()?;
            let name = name.as_deref();
            let describing = async {
                match &self.door {
                    ReaderDoor::Database(engine, door) => {
                        let stream = self.connect(door).await?;
                        let found = describe::database(*engine, stream, name).await;
                        let found = found.map_err(|failure| failure.answer("name"))?;
                        found.ok_or_else(|| describe::not_found(name.unwrap_or_default()))
                    }
                    ReaderDoor::Warehouse(WarehouseDoor { warehouse, door, .. }) => {
                        self.browse(door, warehouse, name).await
                    }
                }
            };
            let (objects, truncated) = self.unless_revoked(describing).await?;
            Ok(GrantDescription { grant: self.label.clone(), objects, truncated })
        })
    }
}

impl DoorReader {
    /// Rejects new work after the server's lease has ended: another server may own the session.
    fn check_lease(&self) -> Result<(), HttpError> {
        self.fence.check(EffectWay::Query).map_err(|lost| {
            HttpError::new(ErrorCode::Overloaded, lost.to_string()).retry_after(LEASE_RETRY)
        })
    }

    fn place(&self) -> Result<OwnedSemaphorePermit, HttpError> {
        Arc::clone(&self.rooms.readers).try_acquire_owned().map_err(|_| {
            let message = format!("the grant has {READERS_MAX} queries already; wait for one");
            HttpError::new(ErrorCode::TooManyRequests, message).retry_after(RETRY_AFTER)
        })
    }

    fn taken_back(&self) -> HttpError {
        let message = format!("the grant `{}` was revoked, or its sandbox ended", self.label);
        HttpError::new(ErrorCode::Conflict, message)
    }

    /// Runs a future until the grant is revoked.
    async fn unless_revoked<T>(
        &self,
        running: impl Future<Output = Result<T, HttpError>>,
    ) -> Result<T, HttpError> {
        let mut revoked = self.revoked.clone();
        tokio::select! {
            result = running => result,
            _closed = revoked.changed() => Err(self.taken_back()),
        }
    }

    /// Connects to a database, as a program in the sandbox would.
    async fn connect(&self, door: &Weak<dyn DatabaseDoor>) -> Result<TcpStream, HttpError> {
        let [of_tenant, of_all] = self.rooms.connections.clone();
        let own = Arc::clone(&self.rooms.logins).acquire_owned().await;
        let (of_tenant, of_all) = (of_tenant.acquire_owned().await, of_all.acquire_owned().await);
        let (Ok(own), Ok(of_tenant), Ok(of_all)) = (own, of_tenant, of_all) else {
            return Err(self.taken_back());
        };
        let place = LoginPlace { _permits: [own, of_tenant, of_all] };
        let (inner, outer) = socket_pair().await.map_err(no_socket)?;
        let outer = outer.into_std().map_err(no_socket)?;
        door.upgrade().ok_or_else(|| self.taken_back())?.admit(outer, place);
        Ok(inner)
    }

    /// Runs a statement over tables of a warehouse, by a program in the sandbox, and audits it.
    async fn query_tables(
        &self,
        door: &WarehouseDoor,
        query: &GrantQuery,
        rows: u32,
        inside: &dyn HolderSandbox,
    ) -> Result<ResultTable, HttpError> {
        let began = clock::now();
        let statements = self.audit.statements();
        let text = match statements {
            AuditStatements::None => None,
            AuditStatements::Full => Some(query.sql.clone()),
            // DuckDB reads PostgreSQL's dialect.
            AuditStatements::Normalised => {
                let mut masked = Vec::new();
                let dialect = SqlDialect::Postgres;
                mask(dialect, query.sql.as_bytes(), AUDIT_TEXT_BYTES_MAX, &mut masked);
                Some(String::from_utf8_lossy(&masked).into_owned())
            }
        };
        let done = lake_query::run(door, query, rows, inside).await;
        let outcome = match &done {
            Ok(_) => AuditOutcome::Done,
            Err(failure) if failure.is_refusal() => AuditOutcome::Refused,
            Err(_) => AuditOutcome::Failed,
        };
        let rows = done.as_ref().ok().map(|table| u64::try_from(table.rows.len()).unwrap_or(0));
        let done = done.map_err(|failure| failure.answer(&self.label));
        // A message may contain values.
        let error = done.as_ref().err().map(|error| error.detail().message.clone());
        let error = error.filter(|_| statements == AuditStatements::Full);
        self.audit.saw(&GatewayEvent {
            text: text.as_deref(),
            error: error.as_deref(),
            took: clock::now().duration_since(began),
            rows,
            ..GatewayEvent::new(AuditEvent::Statement, outcome)
        });
        done
    }

    /// Describes a warehouse, over a connection that is served concurrently.
    async fn browse(
        &self,
        door: &Weak<dyn StreamDoor>,
        warehouse: &str,
        name: Option<&str>,
    ) -> Result<describe::Described, HttpError> {
        let [of_tenant, of_all] = self.rooms.connections.clone();
        let rooms = (of_tenant.try_acquire_owned(), of_all.try_acquire_owned());
        let (Ok(_of_tenant), Ok(_of_all)) = rooms else {
            let message = "too many connections of sandboxes are open";
            return Err(
                HttpError::new(ErrorCode::TooManyRequests, message).retry_after(RETRY_AFTER)
            );
        };
        let (inner, outer) = socket_pair().await.map_err(no_socket)?;
        let serving = door.upgrade().ok_or_else(|| self.taken_back())?.serve(outer);
        let asking = lake::describe(inner, warehouse, name);
        tokio::pin!(asking);
        tokio::select! {
            found = &mut asking => found,
            () = serving => asking.await,
        }
    }
}

/// Checks a query; returns its maximum number of rows.
fn checked(query: &GrantQuery) -> Result<u32, HttpError> {
    if query.sql.trim().is_empty() || query.sql.len() > SQL_BYTES_MAX || query.sql.contains('\0') {
        let message = format!("must be one statement of at most {SQL_BYTES_MAX} bytes");
        return Err(HttpError::invalid(message).at("sql"));
    }
    if query.parameters.len() > PARAMETERS_MAX {
        let message = format!("must be at most {PARAMETERS_MAX}");
        return Err(HttpError::invalid(message).at("parameters"));
    }
    let rows = query.max_rows.unwrap_or(ROWS_DEFAULT);
    match (1..=ROWS_MAX).contains(&rows) {
        true => Ok(rows),
        false => Err(HttpError::invalid(format!("must be 1 to {ROWS_MAX}")).at("max_rows")),
    }
}

/// Runs a statement on its own connection.
async fn run(
    engine: TenantEngine,
    stream: TcpStream,
    query: &GrantQuery,
    room: ResultRoom,
) -> Result<ResultTable, SqlFailure> {
    match engine {
        TenantEngine::Postgres => {
            let values: Result<Vec<Option<String>>, SqlFailure> =
                query.parameters.iter().map(as_text).collect();
            PgClient::connect(stream).await?.run(&query.sql, &values?, room).await
        }
        TenantEngine::Mysql => {
            let mut client = MysqlClient::connect(stream).await?;
            client.run(&query.sql, &query.parameters, room).await
        }
    }
}

/// Formats a parameter in PostgreSQL's text format.
fn as_text(value: &Value) -> Result<Option<String>, SqlFailure> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) if text.contains('\0') => {
            Err(SqlFailure::parameters("PostgreSQL does not support NUL in text".into()))
        }
        Value::String(text) => Ok(Some(text.clone())),
        other => Ok(Some(other.to_string())),
    }
}

/// Returns both ends of a connection within this process: a real socket, because relays take
/// sockets.
async fn socket_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
    let inner = TcpStream::connect(listener.local_addr()?).await?;
    let own = inner.local_addr()?;
    loop {
        let (outer, peer) = listener.accept().await?;
        // Any program of this machine can connect while the listener is open.
        if peer == own {
            inner.set_nodelay(true)?;
            return Ok((inner, outer));
        }
    }
}

fn no_socket(error: io::Error) -> HttpError {
    tracing::warn!(%error, "open a socket to read a grant");
    let message = "the server has no socket to spare";
    HttpError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER)
}

/// Reads and discards bytes.
async fn discard(stream: &mut (impl AsyncRead + Unpin), length: usize) -> io::Result<()> {
    let mut buffer = vec![0; DISCARD_BYTES.min(length)];
    let mut left = length;
    while left > 0 {
        let part = buffer.get_mut(..left.min(DISCARD_BYTES)).unwrap_or_default();
        left -= stream.read_exact(part).await?;
    }
    Ok(())
}

#[cfg(any(test, fuzzing))]
pub mod fuzzing;

#[cfg(test)]
mod tests;
