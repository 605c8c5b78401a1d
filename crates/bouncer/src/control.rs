//! Connections for the bouncer's own queries to a server: `auth_query` and health checks.
//!
//! Asynchronous and slow, for the control plane; no client's bytes ever pass here. Callers set a
//! deadline: dropping the future closes the connection.

use std::fmt;
use std::io;
use std::sync::Arc;

use pooler_core::mysql::dial::MysqlDialError;
use pooler_core::pg::dial::{PgCredentials, PgDial, PgDialError, PgDialNext, PgDialParams};
use wire::pg::frame::{self, PgHeader, TransactionStatus, backend};
use wire::pg::message::frontend;
use wire::pg::notice::ServerNotice;
use wire::pg::scram::NONCE_BYTES;
use wire::pg::startup::ProtocolVersion;

use crate::tenants::ServerAddress;
use crate::tls::{self, ServerSide, TlsError};

pub(crate) use line::ControlLine;

mod line;
pub mod mysql;

/// Maximum bytes of an answer.
pub(crate) const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Maximum rows of an answer.
pub(crate) const ROWS_MAX: usize = 100;

/// Error of a query over a control connection.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The server cannot be reached, or the connection was lost.
    #[error("reach the server")]
    Io(#[from] io::Error),
    /// TLS could not be established as configured.
    #[error("encrypt the connection to the server")]
    Tls(#[from] TlsError),
    /// The server refuses the login.
    #[error("log in to the server")]
    LogIn(#[source] PgDialError),
    /// A server of MySQL refuses the login.
    #[error("log in to the server")]
    LogInMysql(#[source] MysqlDialError),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server answers the query with an error.
    #[error("{message} ({code})")]
    Refused {
        /// SQLSTATE.
        code: String,
        /// Message of the server.
        message: String,
    },
    /// The answer violates the protocol, or is too long.
    #[error("the server violates the protocol: {0}")]
    Protocol(&'static str),
}

impl ControlError {
    /// Returns whether a server of MySQL has answered with this error number.
    pub(crate) fn is_mysql(&self, number: u16) -> bool {
        match self {
            ControlError::Refused { code, .. } => {
                code.split(' ').next().is_some_and(|code| code == number.to_string())
            }
            ControlError::Io(_)
            | ControlError::Tls(_)
            | ControlError::LogIn(_)
            | ControlError::LogInMysql(_)
            | ControlError::Closed
            | ControlError::Protocol(_) => false,
        }
    }
}

/// Address and role of a control connection.
#[derive(Clone, Debug)]
pub struct ControlTarget<'a> {
    /// The server.
    pub server: &'a ServerAddress,
    /// The database there.
    pub database: &'a str,
    /// The role.
    pub user: &'a str,
    /// Credentials of the role.
    pub credentials: Arc<PgCredentials>,
    /// Application name that the server shows.
    pub application: &'a str,
}

/// Rows of texts.
pub type Rows = Vec<Vec<Option<String>>>;

/// A connection that is logged in.
pub struct ControlConnection {
    line: ControlLine,
}

impl ControlConnection {
    /// Connects and logs in. `search_path` is fixed, so that functions and tables of other users
    /// cannot shadow the system's (CVE-2025-12819).
    ///
    /// # Errors
    /// If the server cannot be reached or refuses the login.
    pub async fn open(
        tls: &ServerSide,
        errand: ControlTarget<'_>,
    ) -> Result<ControlConnection, ControlError> {
        let address = &errand.server.address;
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(io::Error::from)?;
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let dial = PgDial::new(
            PgDialParams {
                user: errand.user.to_owned(),
                database: Some(errand.database.to_owned()),
                credentials: errand.credentials,
                parameters: vec![
                    of("application_name", errand.application),
                    of("search_path", "pg_catalog"),
                    of("client_encoding", "UTF8"),
                ],
                tls: tls::request(&errand.server.tls, address),
                assurance: tls::assurance(&errand.server.tls, address.socket_path().is_some()),
                rules: errand.server.tls.rules.clone(),
                version: ProtocolVersion::V3_0,
            },
            nonce,
        );
        let line = ControlLine::connect(address).await?;
        ControlConnection { line }.log_in(dial, tls, errand.server).await
    }

    async fn log_in(
        mut self,
        mut dial: PgDial,
        tls: &ServerSide,
        server: &ServerAddress,
    ) -> Result<ControlConnection, ControlError> {
        let mut out = Vec::new();
        let mut next = dial.start(&mut out);
        loop {
            self.line.send(&mut out).await?;
            match next {
                PgDialNext::More => {
                    self.line.read().await?;
                    let step = dial.input(&self.line.input, &mut out);
                    self.line.input.drain(..step.consumed);
                    next = step.next;
                }
                PgDialNext::StartTls => {
                    let end_point = self.line.start_tls(tls, server).await?;
                    next = dial.tls_started(end_point, &mut out);
                }
                PgDialNext::Ready(_) => return Ok(self),
                PgDialNext::Fail(error) => return Err(ControlError::LogIn(error)),
                PgDialNext::Cancelled => return Err(ControlError::Closed),
            }
        }
    }

    /// Runs one statement with parameters and returns its rows. After any error other than one from
    /// the server the connection cannot be used any more.
    ///
    /// # Errors
    /// If the server reports one, closes the connection, or sends too much.
    pub async fn ask(&mut self, text: &str, values: &[&str]) -> Result<Rows, ControlError> {
        let mut out = Vec::new();
        let values: Vec<Option<&str>> = values.iter().copied().map(Some).collect();
        frontend::parse(&mut out, "", text, &[]);
        frontend::bind(&mut out, "", &values);
        frontend::execute(&mut out, 0);
        frontend::sync(&mut out);
        self.line.send(&mut out).await?;
        let (mut rows, mut received, mut error) = (Rows::new(), 0_usize, None);
        loop {
            let header = PgHeader::parse(&self.line.input);
            let header = header.map_err(|_| ControlError::Protocol("a length"))?;
            let Some(header) = header.filter(|header| header.total <= self.line.input.len()) else {
                self.line.read().await?;
                continue;
            };
            received = received.saturating_add(header.total);
            if received > ANSWER_BYTES_MAX || rows.len() > ROWS_MAX {
                return Err(ControlError::Protocol("too long an answer"));
            }
            let body = self.line.input.get(frame::HEADER_BYTES..header.total).unwrap_or_default();
            match header.tag {
                backend::DATA_ROW => rows.push(row(body)?),
                backend::ERROR => {
                    let notice = ServerNotice::parse(body);
                    let (code, message) = (notice.code().to_owned(), notice.message().into_owned());
                    error = Some(ControlError::Refused { code, message });
                }
                backend::READY_FOR_QUERY if body == [TransactionStatus::Idle.byte()] => {
                    self.line.input.drain(..header.total);
                    return error.map_or(Ok(rows), Err);
                }
                backend::READY_FOR_QUERY => return Err(ControlError::Protocol("a transaction")),
                _ => {} // ignored: completions, descriptions, notices
            }
            self.line.input.drain(..header.total);
        }
    }

    /// Sends a termination message, so that the server does not log a broken connection.
    pub async fn close(mut self) {
        let mut out = Vec::new();
        frontend::terminate(&mut out);
        // An error means that the connection is closed already.
        drop(self.line.send(&mut out).await);
    }
}

impl fmt::Debug for ControlConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

/// Returns the values of a `DataRow`.
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
