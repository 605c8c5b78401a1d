//! The pooler's login at a server, in either protocol.

use std::sync::Arc;

use api::TenantEngine;
use wire::pg::secret;

use crate::mysql;
use crate::pg;

/// Credentials of a role for its server.
#[derive(Clone, Debug)]
pub enum ServerCredentials {
    /// To PostgreSQL.
    Pg(Arc<pg::dial::PgCredentials>),
    /// To MySQL.
    My(Arc<mysql::dial::MysqlCredentials>),
}

impl ServerCredentials {
    /// Creates the credentials of a configured password, or of none.
    pub fn of(engine: TenantEngine, password: Option<&str>) -> ServerCredentials {
        let password = password.map(|it| secret::PlainPassword::new(it.to_owned()));
        match engine {
            TenantEngine::Postgres => {
                use pg::dial::PgCredentials as Pg;
                ServerCredentials::Pg(Arc::new(password.map_or(Pg::None, Pg::of_password)))
            }
            TenantEngine::Mysql => {
                use mysql::dial::MysqlCredentials as My;
                ServerCredentials::My(Arc::new(password.map_or(My::None, My::Password)))
            }
        }
    }
}

/// Stage at which opening a server connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureStage {
    /// No answer at the server's address, or not from such a server.
    Connect,
    /// The pooler aborts the login.
    Login,
    /// The server answers, and refuses the login. Code and message are the server's.
    Refused,
}

/// A connection to a server that is being opened.
#[derive(Debug)]
pub enum ServerDialer {
    /// To PostgreSQL.
    Pg(pg::dial::PgDial),
    /// To MySQL.
    My(mysql::dial::MysqlDial),
}

/// Next step. Pending output for the server must be sent first.
#[derive(Debug)]
pub enum ServerDialNext {
    /// Present more bytes.
    More,
    /// Perform the TLS handshake; then call [`ServerDialer::tls_started`].
    StartTls,
    /// Logged in and idle.
    Ready(ServerGreeting),
    /// The cancel request was delivered. Close.
    Cancelled,
    /// Close.
    Fail {
        /// Stage of the failure.
        stage: FailureStage,
        /// SQLSTATE for a client that waits for this connection.
        code: Box<str>,
        /// Reason.
        message: Box<str>,
    },
}

/// Greeting of a server.
#[derive(Debug)]
pub enum ServerGreeting {
    /// PostgreSQL.
    Pg(Box<pg::dial::PgServerGreeting>),
    /// MySQL or MariaDB.
    My(Box<mysql::dial::MysqlServerGreeting>),
}

impl ServerDialer {
    /// Starts the login; the socket is connected.
    pub fn start(&mut self, out: &mut Vec<u8>) -> ServerDialNext {
        match self {
            ServerDialer::Pg(dial) => dial.start(out).into(),
            ServerDialer::My(dial) => dial.start(out).into(),
        }
    }

    /// Processes input from the server; returns how many bytes were used.
    pub fn input(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> (usize, ServerDialNext) {
        match self {
            ServerDialer::Pg(dial) => {
                let step = dial.input(bytes, out);
                (step.consumed, step.next.into())
            }
            ServerDialer::My(dial) => {
                let step = dial.input(bytes, out);
                (step.consumed, step.next.into())
            }
        }
    }

    /// Continues after the TLS handshake; `end_point` is the hash of the server's certificate.
    pub fn tls_started(&mut self, end_point: Option<Vec<u8>>, out: &mut Vec<u8>) -> ServerDialNext {
        match self {
            ServerDialer::Pg(dial) => dial.tls_started(end_point, out).into(),
            ServerDialer::My(dial) => dial.tls_started(out).into(),
        }
    }
}

impl From<pg::dial::PgDialNext> for ServerDialNext {
    fn from(next: pg::dial::PgDialNext) -> ServerDialNext {
        use pg::dial::PgDialNext as Pg;
        match next {
            Pg::More => ServerDialNext::More,
            Pg::StartTls => ServerDialNext::StartTls,
            Pg::Ready(greeting) => ServerDialNext::Ready(ServerGreeting::Pg(greeting)),
            Pg::Cancelled => ServerDialNext::Cancelled,
            Pg::Fail(error) => ServerDialNext::Fail {
                stage: error.stage(),
                code: error.code().into(),
                message: error.to_string().into(),
            },
        }
    }
}

impl From<mysql::dial::MysqlDialNext> for ServerDialNext {
    fn from(next: mysql::dial::MysqlDialNext) -> ServerDialNext {
        use mysql::dial::MysqlDialNext as My;
        match next {
            My::More => ServerDialNext::More,
            My::StartTls => ServerDialNext::StartTls,
            My::Ready(greeting) => ServerDialNext::Ready(ServerGreeting::My(greeting)),
            My::Cancelled => ServerDialNext::Cancelled,
            My::Fail(error) => ServerDialNext::Fail {
                stage: error.stage(),
                code: error.code().into(),
                message: error.to_string().into(),
            },
        }
    }
}
