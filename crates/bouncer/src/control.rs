//! A connection to a server for questions of our own: who is this user, are you alive.
//!
//! Asynchronous and slow, for the control plane; no client's bytes ever pass here. Whoever waits
//! for it puts a deadline around it: dropping it closes the connection.

use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use wire::pg::frame::{self, Header, TransactionStatus, backend};
use wire::pg::message::frontend;
use wire::pg::notice::Notice;
use wire::pg::scram::NONCE_BYTES;
use wire::pg::startup::Version;

use crate::pg::dial::{Credentials, Dial, DialError, DialNext, DialParams, Exposure};
use crate::tenants::{Address, ServerAddress};
use crate::tls::{self, ServerSide, TlsError};

/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Rows of an answer.
const ROWS_MAX: usize = 100;

/// Bytes that are read at once.
const READ_BYTES: usize = 4096;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The server cannot be reached, or the connection broke.
    #[error("reach the server")]
    Io(#[from] io::Error),
    /// There is no TLS as it was asked for.
    #[error("encrypt the connection to the server")]
    Tls(#[from] TlsError),
    /// The server does not let us in.
    #[error("log in to the server")]
    LogIn(#[source] DialError),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The question is answered by an error.
    #[error("{message} ({code})")]
    Refused {
        /// SQLSTATE.
        code: String,
        /// The server's sentence.
        message: String,
    },
    /// The answer is none, or too long.
    #[error("the server does not keep to the protocol: {0}")]
    Protocol(&'static str),
}

/// Where to, and as whom.
#[derive(Clone, Debug)]
pub struct Errand<'a> {
    /// The server.
    pub server: &'a ServerAddress,
    /// The database there.
    pub database: &'a str,
    /// The role.
    pub user: &'a str,
    /// How it proves who it is.
    pub credentials: Arc<Credentials>,
    /// What the server shows as the name of the connection.
    pub application: &'a str,
}

/// Rows of texts.
pub type Rows = Vec<Vec<Option<String>>>;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connection that is logged in.
pub struct Control {
    stream: Box<dyn Stream>,
    /// What was read and not looked at.
    input: Vec<u8>,
}

impl Control {
    /// Connects and logs in. `search_path` is fixed, so that nobody's functions and tables are
    /// taken for the system's (CVE-2025-12819).
    ///
    /// # Errors
    /// When the server cannot be reached or does not let us in.
    pub async fn open(tls: &ServerSide, errand: Errand<'_>) -> Result<Control, ControlError> {
        let address = &errand.server.address;
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(io::Error::from)?;
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let dial = Dial::new(
            DialParams {
                user: errand.user.to_owned(),
                database: Some(errand.database.to_owned()),
                credentials: errand.credentials,
                parameters: vec![
                    of("application_name", errand.application),
                    of("search_path", "pg_catalog"),
                    of("client_encoding", "UTF8"),
                ],
                tls: tls::request(&errand.server.tls, address),
                exposure: match address {
                    Address::Unix { .. } | Address::Socket { .. } => Exposure::Private,
                    Address::Tcp { .. } => Exposure::Public,
                },
                version: Version::V3_0,
            },
            nonce,
        );
        match address {
            Address::Unix { .. } | Address::Socket { .. } => {
                let path = address.socket_path().unwrap_or_default();
                let stream = Box::new(UnixStream::connect(path).await?);
                Control { stream, input: Vec::new() }.log_in(dial, tls, errand.server).await
            }
            Address::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                let stream = Box::new(stream);
                Control { stream, input: Vec::new() }.log_in(dial, tls, errand.server).await
            }
        }
    }

    async fn log_in(
        mut self,
        mut dial: Dial,
        tls: &ServerSide,
        server: &ServerAddress,
    ) -> Result<Control, ControlError> {
        let mut out = Vec::new();
        let mut next = dial.start(&mut out);
        loop {
            self.send(&mut out).await?;
            match next {
                DialNext::More => {
                    self.read().await?;
                    let step = dial.input(&self.input, &mut out);
                    self.input.drain(..step.consumed);
                    next = step.next;
                }
                DialNext::StartTls => {
                    let config = tls.config(&server.tls)?;
                    let name = server_name(&server.address)?;
                    let stream = TlsConnector::from(config).connect(name, self.stream).await?;
                    let end_point = tls::end_point(stream.get_ref().1);
                    self.stream = Box::new(stream);
                    next = dial.tls_started(end_point, &mut out);
                }
                DialNext::Ready(_) => return Ok(self),
                DialNext::Fail(error) => return Err(ControlError::LogIn(error)),
                DialNext::Cancelled => return Err(ControlError::Closed),
            }
        }
    }

    /// Asks one statement with values, and gives its rows. After an error that is not the
    /// server's answer the connection is of no use any more.
    ///
    /// # Errors
    /// When the server answers with one, closes, or says too much.
    pub async fn ask(&mut self, text: &str, values: &[&str]) -> Result<Rows, ControlError> {
        let mut out = Vec::new();
        let values: Vec<Option<&str>> = values.iter().copied().map(Some).collect();
        frontend::parse(&mut out, "", text, &[]);
        frontend::bind(&mut out, "", &values);
        frontend::execute(&mut out, 0);
        frontend::sync(&mut out);
        self.send(&mut out).await?;
        let (mut rows, mut received, mut error) = (Rows::new(), 0_usize, None);
        loop {
            let header = Header::parse(&self.input);
            let header = header.map_err(|_| ControlError::Protocol("a length"))?;
            let Some(header) = header.filter(|header| header.total <= self.input.len()) else {
                self.read().await?;
                continue;
            };
            received = received.saturating_add(header.total);
            if received > ANSWER_BYTES_MAX || rows.len() > ROWS_MAX {
                return Err(ControlError::Protocol("too long an answer"));
            }
            let body = self.input.get(frame::HEADER_BYTES..header.total).unwrap_or_default();
            match header.tag {
                backend::DATA_ROW => rows.push(row(body)?),
                backend::ERROR => {
                    let notice = Notice::parse(body);
                    let (code, message) = (notice.code().to_owned(), notice.message().into_owned());
                    error = Some(ControlError::Refused { code, message });
                }
                backend::READY_FOR_QUERY if body == [TransactionStatus::Idle.byte()] => {
                    self.input.drain(..header.total);
                    return error.map_or(Ok(rows), Err);
                }
                backend::READY_FOR_QUERY => return Err(ControlError::Protocol("a transaction")),
                _ => {} // of no interest: completions, descriptions, notices
            }
            self.input.drain(..header.total);
        }
    }

    /// Takes leave, so that the server does not log a broken connection.
    pub async fn close(mut self) {
        let mut out = Vec::new();
        frontend::terminate(&mut out);
        // It may be gone already, which is as good.
        drop(self.send(&mut out).await);
    }

    async fn send(&mut self, out: &mut Vec<u8>) -> Result<(), ControlError> {
        if !out.is_empty() {
            self.stream.write_all(out).await?;
            self.stream.flush().await?;
            out.clear();
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<(), ControlError> {
        if self.input.len() > ANSWER_BYTES_MAX {
            return Err(ControlError::Protocol("too long a message"));
        }
        self.input.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.input).await? {
            0 => Err(ControlError::Closed),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

fn server_name(address: &Address) -> Result<ServerName<'static>, TlsError> {
    let host = match address {
        Address::Tcp { host, .. } => host.as_str(),
        Address::Unix { .. } | Address::Socket { .. } => "localhost",
    };
    ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))
}

/// The texts of a `DataRow`.
fn row(body: &[u8]) -> Result<Vec<Option<String>>, ControlError> {
    let malformed = || ControlError::Protocol("a row");
    let (count, mut rest) = body.split_first_chunk().ok_or_else(malformed)?;
    let count = usize::from(u16::from_be_bytes(*count));
    let mut values = Vec::new();
    for _ in 0..count {
        let (length, after) = rest.split_first_chunk().ok_or_else(malformed)?;
        let length = i32::from_be_bytes(*length);
        if length == -1 {
            values.push(None);
            rest = after;
            continue;
        }
        let length = usize::try_from(length).map_err(|_| malformed())?;
        let (value, after) = after.split_at_checked(length).ok_or_else(malformed)?;
        let value = std::str::from_utf8(value).map_err(|_| malformed())?;
        values.push(Some(value.to_owned()));
        rest = after;
    }
    Ok(values)
}

#[cfg(test)]
mod tests;
