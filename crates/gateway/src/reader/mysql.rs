//! A client of MySQL and MariaDB for one statement: a text query without parameters, a prepared
//! statement with parameters. The capability for several statements in one text is not requested,
//! so servers reject them.
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_command_phase.html>
//! - <https://mariadb.com/kb/en/clientserver-protocol/>

mod types;

use api::QueryColumn;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use wire::mysql::capabilities::CapabilityFlags;
use wire::mysql::frame::{HEADER_BYTES, PacketHeader, put_packet};
use wire::mysql::handshake::{ConnectionAttributes, HandshakeResponse, MORE, SWITCH, ServerHello};
use wire::mysql::lenenc::{self, PacketReader};
use wire::mysql::packet::{EOF, EOF_LEN_BOUND, ERR, ErrPacket, LOCAL_INFILE, OK};

use self::types::MysqlType;
use super::room::{ResultRoom, RowFate};
use super::{MESSAGE_BYTES_MAX, ResultTable, SqlFailure, WHO, discard};

/// Collation `utf8mb4_general_ci`, which all servers have.
const COLLATION: u8 = 45;

/// Most columns of a result, as limited by servers.
const COLUMNS_MAX: u64 = 4_096;

/// Most packets of authentication before the server decides.
const LOGIN_PACKETS_MAX: usize = 8;

const COM_QUERY: u8 = 0x03;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_EXECUTE: u8 = 0x17;

/// Type of a parameter that is sent as text.
const TYPE_VAR_STRING: u8 = 253;
/// Type of a parameter that is sent as a 64-bit integer.
const TYPE_LONGLONG: u8 = 8;
/// Type of a parameter that is sent as a floating-point number.
const TYPE_DOUBLE: u8 = 5;
/// Flag of an unsigned parameter.
const UNSIGNED: u8 = 0x80;

/// Requested capabilities. Those for several statements in one text, or for files requested by the
/// server, are not among them.
const CAPABILITIES: CapabilityFlags = CapabilityFlags::LONG_PASSWORD
    .union(CapabilityFlags::LONG_FLAG)
    .union(CapabilityFlags::PROTOCOL_41)
    .union(CapabilityFlags::TRANSACTIONS)
    .union(CapabilityFlags::SECURE_CONNECTION)
    .union(CapabilityFlags::PLUGIN_AUTH);

/// A logged-in connection. Fuzz targets use another stream type.
pub(super) struct MysqlClient<S = TcpStream> {
    stream: BufReader<S>,
    /// Number of the next packet.
    seq: u8,
}

/// Column as the server describes it.
struct MysqlColumn {
    name: String,
    known: MysqlType,
}

/// Forms of rows.
#[derive(Clone, Copy)]
enum RowForm {
    Text,
    Binary,
}

fn malformed() -> SqlFailure {
    SqlFailure::protocol("the database sent a malformed packet")
}

impl<S: AsyncRead + AsyncWrite + Unpin> MysqlClient<S> {
    /// Logs in. No credential is sent, because the socket identifies the client.
    ///
    /// # Errors
    /// If the server rejects the login, or disconnects.
    pub(super) async fn connect(stream: S) -> Result<MysqlClient<S>, SqlFailure> {
        let mut client = MysqlClient { stream: BufReader::new(stream), seq: 0 };
        let greeting = client.packet().await?;
        fail_on_error(&greeting).map_err(SqlFailure::of_connection)?;
        let hello = ServerHello::parse(&greeting).map_err(|_| malformed())?;
        let mut out = Vec::new();
        let response = HandshakeResponse {
            capabilities: CAPABILITIES.intersection(hello.capabilities),
            packet_max: u32::try_from(MESSAGE_BYTES_MAX).unwrap_or(u32::MAX),
            collation: COLLATION,
            user: WHO.as_bytes(),
            answer: &[],
            database: None,
            plugin: Some(hello.plugin),
            attributes: ConnectionAttributes::default(),
        };
        response.write(&mut out);
        client.send(&out).await?;
        for _ in 0..LOGIN_PACKETS_MAX {
            let packet = client.packet().await?;
            fail_on_error(&packet).map_err(SqlFailure::of_connection)?;
            match packet.first() {
                Some(&OK) => return Ok(client),
                Some(&SWITCH) => client.send(&[]).await?,
                Some(&MORE) => {}
                _ => return Err(malformed()),
            }
        }
        Err(SqlFailure::protocol("the database asks for a password"))
    }

    /// Runs one statement.
    ///
    /// # Errors
    /// An error of the database.
    pub(super) async fn run(
        &mut self,
        sql: &str,
        parameters: &[Value],
        mut room: ResultRoom,
    ) -> Result<ResultTable, SqlFailure> {
        let form = match parameters.is_empty() {
            true => {
                self.command(&[&[COM_QUERY], sql.as_bytes()].concat()).await?;
                RowForm::Text
            }
            false => {
                let statement = self.prepare(sql, parameters.len()).await?;
                self.command(&execution(statement, parameters)).await?;
                RowForm::Binary
            }
        };
        let first = self.packet().await?;
        fail_on_error(&first)?;
        let count = match first.first() {
            Some(&OK) => return Ok(ResultTable::default()),
            Some(&LOCAL_INFILE) => {
                return Err(SqlFailure::protocol("the database asks for a file"));
            }
            _ => PacketReader::new(&first).lenenc_int().ok_or_else(malformed)?,
        };
        let columns = self.columns(count).await?;
        let mut rows = Vec::new();
        while let Some(row) = self.row(&mut room).await? {
            let Some(row) = row else { continue };
            rows.push(match form {
                RowForm::Text => text_row(&columns, &row).ok_or_else(malformed)?,
                RowForm::Binary => binary_row(&columns, &row).ok_or_else(malformed)?,
            });
        }
        let shown = columns
            .into_iter()
            .map(|MysqlColumn { name, known }| QueryColumn { name, type_name: known.name() });
        Ok(ResultTable { columns: shown.collect(), rows, limit: room.limit() })
    }

    /// Prepares a statement; returns its number.
    async fn prepare(&mut self, sql: &str, given: usize) -> Result<u32, SqlFailure> {
        self.command(&[&[COM_STMT_PREPARE], sql.as_bytes()].concat()).await?;
        let answer = self.packet().await?;
        fail_on_error(&answer)?;
        let mut reader = PacketReader::new(&answer);
        let mut read = || {
            let is_ok = reader.u8()? == OK;
            let head = (reader.u32()?, u64::from(reader.u16()?), u64::from(reader.u16()?));
            is_ok.then_some(head)
        };
        let (statement, columns, parameters) = read().ok_or_else(malformed)?;
        for count in [parameters, columns] {
            self.columns(count).await?;
        }
        match u64::try_from(given) == Ok(parameters) {
            true => Ok(statement),
            false => Err(SqlFailure::parameters(format!(
                "the statement has {parameters} parameters, but got {given} values"
            ))),
        }
    }

    /// Reads column definitions and their terminator; nothing if there are none.
    async fn columns(&mut self, count: u64) -> Result<Vec<MysqlColumn>, SqlFailure> {
        let mut columns = Vec::new();
        if count > COLUMNS_MAX {
            return Err(malformed());
        }
        for _ in 0..count {
            let definition = self.packet().await?;
            columns.push(column(&definition).ok_or_else(malformed)?);
        }
        if count > 0 {
            let end = self.packet().await?;
            fail_on_error(&end)?;
            if !is_end(&end) {
                return Err(malformed());
            }
        }
        Ok(columns)
    }

    /// Reads the next row; the inner option is `None` for a row that is not kept, the outer at the
    /// end.
    async fn row(&mut self, room: &mut ResultRoom) -> Result<Option<Option<Vec<u8>>>, SqlFailure> {
        let header = self.header().await?;
        // The first byte and the length distinguish an end and an error from a row, which may be
        // long.
        let first = match header.len {
            0 => return Err(malformed()),
            _ => self.stream.read_u8().await?,
        };
        if first == ERR || (first == EOF && header.len < EOF_LEN_BOUND) {
            let packet = self.behind(first, header).await?;
            fail_on_error(&packet)?;
            return Ok(None);
        }
        // A row that continues in another packet exceeds the limit for kept rows.
        let bytes = if header.is_continued() { usize::MAX } else { header.len };
        match room.row(bytes) {
            RowFate::Keep => Ok(Some(Some(self.behind(first, header).await?))),
            RowFate::Discard => {
                discard(&mut self.stream, header.len - 1).await?;
                Ok(Some(None))
            }
            RowFate::Stop => Ok(None),
        }
    }

    /// Reads the rest of a packet whose first byte is already read.
    async fn behind(&mut self, first: u8, header: PacketHeader) -> Result<Vec<u8>, SqlFailure> {
        let mut packet = vec![first];
        packet.extend(self.rest(header.len - 1).await?);
        Ok(packet)
    }

    async fn command(&mut self, payload: &[u8]) -> Result<(), SqlFailure> {
        self.seq = 0;
        self.send(payload).await
    }

    async fn send(&mut self, payload: &[u8]) -> Result<(), SqlFailure> {
        let mut out = Vec::new();
        put_packet(&mut out, &mut self.seq, payload);
        self.stream.write_all(&out).await?;
        Ok(self.stream.flush().await?)
    }

    async fn packet(&mut self) -> Result<Vec<u8>, SqlFailure> {
        let header = self.header().await?;
        self.rest(header.len).await
    }

    async fn header(&mut self) -> Result<PacketHeader, SqlFailure> {
        let mut head = [0; HEADER_BYTES];
        self.stream.read_exact(&mut head).await?;
        let header = PacketHeader::parse(&head).ok_or_else(malformed)?;
        self.seq = header.seq.wrapping_add(1);
        Ok(header)
    }

    async fn rest(&mut self, length: usize) -> Result<Vec<u8>, SqlFailure> {
        if length > MESSAGE_BYTES_MAX {
            return Err(SqlFailure::protocol("the database sent a packet that is too long"));
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        Ok(body)
    }
}

fn fail_on_error(packet: &[u8]) -> Result<(), SqlFailure> {
    match ErrPacket::parse(packet) {
        None => Ok(()),
        Some(error) => {
            let message = String::from_utf8_lossy(error.message).into_owned();
            Err(SqlFailure::database(&error.code.to_string(), message))
        }
    }
}

fn is_end(packet: &[u8]) -> bool {
    packet.first() == Some(&EOF) && packet.len() < EOF_LEN_BOUND
}

fn column(definition: &[u8]) -> Option<MysqlColumn> {
    let mut reader = PacketReader::new(definition);
    // Catalog, schema, table and the table's original name.
    for _ in 0..4 {
        reader.lenenc_bytes()?;
    }
    let name = String::from_utf8_lossy(reader.lenenc_bytes()?).into_owned();
    reader.lenenc_bytes()?;
    reader.lenenc_int()?;
    let charset = reader.u16()?;
    reader.u32()?;
    let (code, flags) = (reader.u8()?, reader.u16()?);
    Some(MysqlColumn { name, known: MysqlType::new(code, flags, charset) })
}

fn text_row(columns: &[MysqlColumn], packet: &[u8]) -> Option<Vec<Value>> {
    let mut reader = PacketReader::new(packet);
    columns.iter().map(|column| Some(column.known.value(reader.value()?))).collect()
}

fn binary_row(columns: &[MysqlColumn], packet: &[u8]) -> Option<Vec<Value>> {
    let mut reader = PacketReader::new(packet);
    reader.u8()?;
    // The first two bits are reserved.
    let nulls = reader.bytes((columns.len() + 9) / 8)?;
    let mut values = Vec::with_capacity(columns.len());
    for (at, column) in columns.iter().enumerate() {
        let bit = at + 2;
        let is_null = nulls.get(bit / 8)? & (1 << (bit % 8)) != 0;
        values.push(match is_null {
            true => Value::Null,
            false => column.known.binary(&mut reader)?,
        });
    }
    Some(values)
}

/// Builds the command that runs a prepared statement.
///
/// # References
/// - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_stmt_execute.html>
fn execution(statement: u32, parameters: &[Value]) -> Vec<u8> {
    let mut out = vec![COM_STMT_EXECUTE];
    out.extend(statement.to_le_bytes());
    // Without a cursor; one iteration.
    out.extend([0, 1, 0, 0, 0]);
    let mut nulls = vec![0_u8; parameters.len().div_ceil(8)];
    let (mut types, mut values) = (Vec::new(), Vec::new());
    for (at, parameter) in parameters.iter().enumerate() {
        let mut typed = |code: u8, mark: u8| types.extend([code, mark]);
        match parameter {
            Value::Null => {
                typed(TYPE_VAR_STRING, 0);
                if let Some(byte) = nulls.get_mut(at / 8) {
                    *byte |= 1 << (at % 8);
                }
            }
            Value::Bool(truth) => {
                typed(TYPE_LONGLONG, 0);
                values.extend(i64::from(*truth).to_le_bytes());
            }
            Value::Number(number) => {
                if let Some(number) = number.as_i64() {
                    typed(TYPE_LONGLONG, 0);
                    values.extend(number.to_le_bytes());
                } else if let Some(number) = number.as_u64() {
                    typed(TYPE_LONGLONG, UNSIGNED);
                    values.extend(number.to_le_bytes());
                } else {
                    typed(TYPE_DOUBLE, 0);
                    values.extend(number.as_f64().unwrap_or_default().to_le_bytes());
                }
            }
            Value::String(text) => {
                typed(TYPE_VAR_STRING, 0);
                lenenc::put_bytes(&mut values, text.as_bytes());
            }
            Value::Array(_) | Value::Object(_) => {
                typed(TYPE_VAR_STRING, 0);
                lenenc::put_bytes(&mut values, parameter.to_string().as_bytes());
            }
        }
    }
    out.extend(nulls);
    out.push(1);
    out.extend(types);
    out.extend(values);
    out
}
