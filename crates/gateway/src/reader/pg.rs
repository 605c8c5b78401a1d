//! A client of PostgreSQL for one statement: the extended protocol, with values in text format.
//! This protocol accepts only one statement at a time, so no second one can follow it.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-EXT-QUERY>
//! - <https://www.postgresql.org/docs/current/protocol-message-formats.html>

mod types;

use api::QueryColumn;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use wire::pg::frame::{HEADER_BYTES, PgHeader, backend, split_string};
use wire::pg::message::frontend;
use wire::pg::notice::ServerNotice;
use wire::pg::startup::ProtocolVersion;

use self::types::PgType;
use super::room::{ResultRoom, RowFate};
use super::{MESSAGE_BYTES_MAX, ResultTable, SqlFailure, WHO, discard};

/// Most messages before the server has accepted a login.
const LOGIN_MESSAGES_MAX: usize = 200;

/// Settings that fix the text formats that are parsed here.
const SETTINGS: [(&str, &str); 7] = [
    ("user", WHO),
    ("application_name", WHO),
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("IntervalStyle", "postgres"),
    ("bytea_output", "hex"),
    ("extra_float_digits", "1"),
];

/// Queries the names of unknown types: enumerations, domains, those of extensions.
const TYPE_NAMES: &str = "SELECT t.oid, format_type(t.oid, NULL) FROM pg_catalog.pg_type t \
     WHERE t.oid::text = ANY (string_to_array($1, ','))";

/// A logged-in connection. Fuzz targets use another stream type.
pub(super) struct PgClient<S = TcpStream> {
    stream: BufReader<S>,
}

/// Column as the server describes it.
struct PgColumn {
    name: String,
    oid: u32,
}

/// Values of a row as text; `None` for NULL.
type PgRow = Vec<Option<Vec<u8>>>;

/// Response to a statement.
struct PgAnswer {
    columns: Vec<PgColumn>,
    rows: Vec<PgRow>,
    room: ResultRoom,
    /// True if the server is ready for another statement.
    is_ready: bool,
}

/// Messages of the server for a statement, in order.
enum PgMessage {
    Row(PgRow),
    Columns(Vec<PgColumn>),
    Failed(SqlFailure),
    /// Ready for the next statement.
    Ready,
    /// A message that does not affect the result.
    Other,
    /// More rows follow, which are not read.
    Stopped,
}

impl<S: AsyncRead + AsyncWrite + Unpin> PgClient<S> {
    /// Logs in. No credential is sent, because the socket identifies the client.
    ///
    /// # Errors
    /// If the server rejects the login, or disconnects.
    pub(super) async fn connect(stream: S) -> Result<PgClient<S>, SqlFailure> {
        let mut client = PgClient { stream: BufReader::new(stream) };
        let mut out = Vec::new();
        frontend::startup(&mut out, ProtocolVersion::V3_0, &SETTINGS);
        client.send(&out).await?;
        let mut room = ResultRoom::new(0);
        for _ in 0..LOGIN_MESSAGES_MAX {
            match client.message(&mut room).await? {
                PgMessage::Ready => return Ok(client),
                PgMessage::Failed(failure) => return Err(failure.of_connection()),
                _ => {}
            }
        }
        Err(SqlFailure::protocol("the database sends too much before it lets a client in"))
    }

    /// Runs one statement.
    ///
    /// # Errors
    /// An error of the database.
    pub(super) async fn run(
        &mut self,
        sql: &str,
        parameters: &[Option<String>],
        room: ResultRoom,
    ) -> Result<ResultTable, SqlFailure> {
        let PgAnswer { columns, rows, room, is_ready } =
            self.statement(sql, parameters, room).await?;
        let names = match is_ready {
            true => self.names(&columns).await?,
            // The connection ends in the middle of rows.
            false => Vec::new(),
        };
        let types: Vec<PgType> = columns.iter().map(|column| PgType::of(column.oid)).collect();
        let named = |oid: u32| names.iter().find(|(known, _)| *known == oid);
        let shown = columns.into_iter().zip(&types).map(|(column, known)| QueryColumn {
            type_name: match (known.name(), named(column.oid)) {
                (Some(name), _) => name,
                (None, Some((_, name))) => name.clone(),
                (None, None) => format!("oid {}", column.oid),
            },
            name: column.name,
        });
        let columns = shown.collect();
        let rows = rows.into_iter().map(|row| {
            let values = row.into_iter().zip(&types);
            values.map(|(value, known)| known.value(value.as_deref())).collect()
        });
        Ok(ResultTable { columns, rows: rows.collect(), limit: room.limit() })
    }

    /// Returns the names of the unknown types of columns.
    async fn names(&mut self, columns: &[PgColumn]) -> Result<Vec<(u32, String)>, SqlFailure> {
        let unknown = columns.iter().filter(|column| PgType::of(column.oid).name().is_none());
        let mut oids: Vec<String> = unknown.map(|column| column.oid.to_string()).collect();
        if oids.is_empty() {
            return Ok(Vec::new());
        }
        oids.sort_unstable();
        oids.dedup();
        let room = ResultRoom::new(u32::try_from(oids.len()).unwrap_or(u32::MAX));
        let answer = self.statement(TYPE_NAMES, &[Some(oids.join(","))], room).await?;
        let pair = |row: PgRow| {
            let mut texts = row.into_iter().flatten().map(String::from_utf8).filter_map(Result::ok);
            Some((texts.next()?.parse().ok()?, texts.next()?))
        };
        Ok(answer.rows.into_iter().filter_map(pair).collect())
    }

    /// Runs a statement up to its last row.
    async fn statement(
        &mut self,
        sql: &str,
        parameters: &[Option<String>],
        mut room: ResultRoom,
    ) -> Result<PgAnswer, SqlFailure> {
        let mut out = Vec::new();
        let values: Vec<Option<&str>> = parameters.iter().map(Option::as_deref).collect();
        frontend::parse(&mut out, "", sql, &[]);
        frontend::describe_statement(&mut out, "");
        frontend::bind(&mut out, "", &values);
        frontend::execute(&mut out, room.wanted());
        frontend::sync(&mut out);
        self.send(&out).await?;
        let (mut columns, mut rows, mut failure) = (Vec::new(), Vec::new(), None);
        let is_ready = loop {
            match self.message(&mut room).await {
                Ok(PgMessage::Row(row)) => rows.push(row),
                Ok(PgMessage::Columns(described)) => columns = described,
                // Later errors, such as the end of the connection, are less specific.
                Ok(PgMessage::Failed(failed)) => failure = failure.or(Some(failed)),
                Ok(PgMessage::Other) => {}
                Ok(PgMessage::Stopped) => break false,
                Ok(PgMessage::Ready) => break true,
                Err(error) => return Err(failure.unwrap_or(error)),
            }
        };
        failure.map_or(Ok(PgAnswer { columns, rows, room, is_ready }), Err)
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), SqlFailure> {
        self.stream.write_all(bytes).await?;
        Ok(self.stream.flush().await?)
    }

    /// Reads one message.
    async fn message(&mut self, room: &mut ResultRoom) -> Result<PgMessage, SqlFailure> {
        let mut head = [0; HEADER_BYTES];
        self.stream.read_exact(&mut head).await?;
        let header = PgHeader::parse(&head).ok().flatten();
        let Some(header) = header else {
            return Err(SqlFailure::protocol("the database sent a malformed message"));
        };
        let length = header.total.saturating_sub(HEADER_BYTES);
        match header.tag {
            backend::DATA_ROW => match room.row(length) {
                RowFate::Keep => row(&self.body(length).await?).map(PgMessage::Row),
                RowFate::Discard => {
                    discard(&mut self.stream, length).await?;
                    Ok(PgMessage::Other)
                }
                RowFate::Stop => Ok(PgMessage::Stopped),
            },
            backend::ROW_DESCRIPTION => columns(&self.body(length).await?).map(PgMessage::Columns),
            backend::ERROR => {
                let body = self.body(length).await?;
                let notice = ServerNotice::parse(&body);
                let mut message = notice.message().into_owned();
                if let Some(hint) = notice.hint() {
                    message = format!("{message} ({hint})");
                }
                Ok(PgMessage::Failed(SqlFailure::database(notice.code(), message)))
            }
            backend::READY_FOR_QUERY => {
                discard(&mut self.stream, length).await?;
                Ok(PgMessage::Ready)
            }
            backend::COPY_IN | backend::COPY_OUT | backend::COPY_BOTH => {
                Err(SqlFailure::protocol("COPY has no rows that can be returned; use SELECT"))
            }
            backend::AUTHENTICATION => match self.body(length).await?.as_slice() {
                [0, 0, 0, 0] => Ok(PgMessage::Other),
                _ => Err(SqlFailure::protocol("the database asks for a password")),
            },
            _ => {
                discard(&mut self.stream, length).await?;
                Ok(PgMessage::Other)
            }
        }
    }

    async fn body(&mut self, length: usize) -> Result<Vec<u8>, SqlFailure> {
        if length > MESSAGE_BYTES_MAX {
            return Err(SqlFailure::protocol("the database sent a message that is too long"));
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        Ok(body)
    }
}

/// Reads fields from the front of a message's body.
struct BodyReader<'a>(&'a [u8]);

impl<'a> BodyReader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

fn row(body: &[u8]) -> Result<PgRow, SqlFailure> {
    let mut reader = BodyReader(body);
    let mut read = || {
        let count = u16::from_be_bytes(reader.array()?);
        let mut values = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let length = i32::from_be_bytes(reader.array()?);
            values.push(match usize::try_from(length) {
                Ok(length) => Some(reader.bytes(length)?.to_vec()),
                Err(_) => None,
            });
        }
        Some(values)
    };
    read().ok_or_else(|| SqlFailure::protocol("the database sent a malformed row"))
}

fn columns(body: &[u8]) -> Result<Vec<PgColumn>, SqlFailure> {
    let mut reader = BodyReader(body);
    let mut read = || {
        let count = u16::from_be_bytes(reader.array()?);
        let mut columns = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let (name, rest) = split_string(reader.0)?;
            reader.0 = rest;
            // The table and its column.
            reader.bytes(6)?;
            let oid = u32::from_be_bytes(reader.array()?);
            // Length, modifier and format.
            reader.bytes(8)?;
            columns.push(PgColumn { name: String::from_utf8_lossy(name).into_owned(), oid });
        }
        Some(columns)
    };
    read().ok_or_else(|| SqlFailure::protocol("the database describes rows in an unknown way"))
}
