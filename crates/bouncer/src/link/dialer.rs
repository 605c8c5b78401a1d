//! Our way into a server of either protocol.

use std::sync::Arc;

use api::TenantEngine;
use wire::pg::secret;

use crate::mysql;
use crate::pg;
use crate::relay::pools::FailureStage;
use crate::secrets::Password;

/// How a role proves on its server who it is.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// To PostgreSQL.
    Pg(Arc<pg::dial::Credentials>),
    /// To MySQL.
    My(Arc<mysql::dial::Credentials>),
}

impl Credentials {
    /// A password that is configured, or nothing.
    pub(crate) fn of(engine: TenantEngine, password: Option<&Password>) -> Credentials {
        let password = password.map(|it| secret::Password::new(it.expose().to_owned()));
        match engine {
            TenantEngine::Postgres => {
                use pg::dial::Credentials as Pg;
                Credentials::Pg(Arc::new(password.map_or(Pg::None, Pg::of_password)))
            }
            TenantEngine::Mysql => {
                use mysql::dial::Credentials as My;
                Credentials::My(Arc::new(password.map_or(My::None, My::Password)))
            }
        }
    }
}

/// One connection to a server that is being made.
#[derive(Debug)]
pub enum Dialer {
    /// To PostgreSQL.
    Pg(pg::dial::Dial),
    /// To MySQL.
    My(mysql::dial::Dial),
}

/// What to do now. First, what was assembled for the server is sent.
#[derive(Debug)]
pub enum DialNext {
    /// Present more bytes.
    More,
    /// Shake hands; then call [`Dialer::tls_started`].
    StartTls,
    /// Logged in and idle.
    Ready(Greeting),
    /// What was to be cancelled is, or is over. Close.
    Cancelled,
    /// Close.
    Fail {
        /// Where it failed.
        stage: FailureStage,
        /// SQLSTATE for a client that waits for this connection.
        code: Box<str>,
        /// Why.
        message: Box<str>,
    },
}

/// What a server says of itself.
#[derive(Debug)]
pub enum Greeting {
    /// Of PostgreSQL.
    Pg(Box<pg::dial::Greeting>),
    /// Of MySQL.
    My(Box<mysql::dial::Greeting>),
}

impl Dialer {
    /// The socket has connected.
    pub fn start(&mut self, out: &mut Vec<u8>) -> DialNext {
        match self {
            Dialer::Pg(dial) => dial.start(out).into(),
            Dialer::My(dial) => dial.start(out).into(),
        }
    }

    /// Takes what the server has sent; says how much of it was used.
    pub fn input(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> (usize, DialNext) {
        match self {
            Dialer::Pg(dial) => {
                let step = dial.input(bytes, out);
                (step.consumed, step.next.into())
            }
            Dialer::My(dial) => {
                let step = dial.input(bytes, out);
                (step.consumed, step.next.into())
            }
        }
    }

    /// Continues behind TLS; `end_point` is the hash of the server's certificate.
    pub fn tls_started(&mut self, end_point: Option<Vec<u8>>, out: &mut Vec<u8>) -> DialNext {
        match self {
            Dialer::Pg(dial) => dial.tls_started(end_point, out).into(),
            Dialer::My(dial) => dial.tls_started(out).into(),
        }
    }
}

impl From<pg::dial::DialNext> for DialNext {
    fn from(next: pg::dial::DialNext) -> DialNext {
        use pg::dial::DialNext as Pg;
        match next {
            Pg::More => DialNext::More,
            Pg::StartTls => DialNext::StartTls,
            Pg::Ready(greeting) => DialNext::Ready(Greeting::Pg(greeting)),
            Pg::Cancelled => DialNext::Cancelled,
            Pg::Fail(error) => DialNext::Fail {
                stage: error.stage(),
                code: error.code().into(),
                message: error.to_string().into(),
            },
        }
    }
}

impl From<mysql::dial::DialNext> for DialNext {
    fn from(next: mysql::dial::DialNext) -> DialNext {
        use mysql::dial::DialNext as My;
        match next {
            My::More => DialNext::More,
            My::StartTls => DialNext::StartTls,
            My::Ready(greeting) => DialNext::Ready(Greeting::My(greeting)),
            My::Cancelled => DialNext::Cancelled,
            My::Fail(error) => DialNext::Fail {
                stage: error.stage(),
                code: error.code().into(),
                message: error.to_string().into(),
            },
        }
    }
}
