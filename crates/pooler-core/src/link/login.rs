//! The login of a client, in either protocol.

use api::TenantEngine;
use wire::mysql::auth::AuthPlugin;
use wire::pg::message::{ErrorFields, backend};

use super::put_mysql_error;
use crate::mysql;
use crate::pg;
use crate::pg::login::{ClientTransport, PgLoginRefusal, TlsFacts};

/// The login of one client.
#[derive(Debug)]
pub enum LoginMachine {
    /// PostgreSQL.
    Pg(pg::login::PgLogin),
    /// MySQL or MariaDB.
    My(mysql::login::MysqlLogin),
}

/// Next step. Pending output for the client must be sent first.
#[derive(Debug)]
pub enum ClientLoginNext {
    /// Present more bytes.
    More,
    /// Perform the TLS handshake, beginning with the unconsumed input.
    StartTls,
    /// Resolve [`LoginMachine::asked`]; then call [`LoginMachine::routed`].
    Route,
    /// Run this check on another thread; then call [`LoginMachine::checked`].
    Check(Box<mysql::login::PasswordCheck>),
    /// The client is authenticated.
    Done(LoggedInClient),
    /// Sent a cancel request, which must be handled.
    Cancel {
        /// Process id of the client to cancel.
        pid: u32,
        /// Key.
        key: Vec<u8>,
    },
    /// Close. The client received the error, unless it left by itself.
    Fail(PgLoginRefusal),
}

/// Result of presenting input.
#[derive(Debug)]
pub struct ClientLoginStep {
    /// Bytes of the input that were processed.
    pub consumed: usize,
    /// Next step.
    pub next: ClientLoginNext,
}

/// An authenticated client.
#[derive(Debug)]
pub enum LoggedInClient {
    /// PostgreSQL.
    Pg(Box<pg::login::PgAuthenticatedClient>),
    /// MySQL or MariaDB.
    My(Box<mysql::login::MysqlAuthenticatedClient>),
}

/// Proof that a client has to give.
#[derive(Debug)]
pub enum ClientProofRequest {
    /// PostgreSQL.
    Pg(pg::login::RouteAuth),
    /// MySQL or MariaDB.
    My(mysql::login::MysqlProof),
}

/// Login whose tenant and user are not resolved yet.
#[derive(Clone, Copy, Debug)]
pub struct UnresolvedLogin<'a> {
    /// Protocol.
    pub engine: TenantEngine,
    /// Transport.
    pub reached: ClientTransport,
    /// Result of its TLS handshake.
    pub tls: Option<&'a TlsFacts>,
    /// The tenant named among its `options`.
    pub options_tenant_id: Option<&'a str>,
    /// The tenant named by a startup parameter.
    pub tenant_id: Option<&'a str>,
    /// The database.
    pub database: Option<&'a str>,
    /// User name that the client sent.
    pub user: &'a str,
}

/// The method announced to MySQL clients. Every client knows it; those that prefer another one
/// request it at once.
pub const MYSQL_PLUGIN: AuthPlugin = AuthPlugin::Native;

impl ClientProofRequest {
    /// Returns whether the proof is a password.
    #[must_use]
    pub fn asks_password(&self) -> bool {
        match self {
            ClientProofRequest::Pg(auth) => matches!(auth.proof, pg::login::PgProof::Password(..)),
            ClientProofRequest::My(proof) => {
                matches!(proof, mysql::login::MysqlProof::Password { .. })
            }
        }
    }
}

impl LoginMachine {
    /// Returns the client's request, once it is known.
    #[must_use]
    pub fn asked(&self) -> Option<UnresolvedLogin<'_>> {
        Some(match self {
            LoginMachine::Pg(login) => {
                let requested = login.requested()?;
                UnresolvedLogin {
                    engine: TenantEngine::Postgres,
                    reached: requested.reached,
                    tls: requested.tls.as_ref(),
                    options_tenant_id: requested.options_tenant_id.as_deref(),
                    tenant_id: requested.tenant_id.as_deref(),
                    database: requested.database.as_deref(),
                    user: &requested.user,
                }
            }
            LoginMachine::My(login) => {
                let requested = login.requested()?;
                UnresolvedLogin {
                    engine: TenantEngine::Mysql,
                    reached: requested.reached,
                    tls: requested.tls.as_ref(),
                    options_tenant_id: None,
                    tenant_id: requested.tenant(),
                    database: requested.database.as_deref(),
                    user: &requested.user,
                }
            }
        })
    }

    /// Returns the startup request of a PostgreSQL client.
    #[must_use]
    pub fn pg_requested(&self) -> Option<&pg::login::PgStartupRequest> {
        match self {
            LoginMachine::Pg(login) => login.requested(),
            LoginMachine::My(_) => None,
        }
    }

    /// Processes input from the client that was not consumed before.
    pub fn input(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> ClientLoginStep {
        match self {
            LoginMachine::Pg(login) => login.input(bytes, out).into(),
            LoginMachine::My(login) => login.input(bytes, out).into(),
        }
    }

    /// Continues after the TLS handshake.
    pub fn tls_started(&mut self, facts: TlsFacts, out: &mut Vec<u8>) -> ClientLoginStep {
        match self {
            LoginMachine::Pg(login) => login.tls_started(facts, out).into(),
            LoginMachine::My(login) => login.tls_started(facts, out).into(),
        }
    }

    /// Answers [`ClientLoginNext::Route`].
    pub fn routed(
        &mut self,
        answer: Result<ClientProofRequest, PgLoginRefusal>,
        out: &mut Vec<u8>,
    ) -> ClientLoginStep {
        let other = || PgLoginRefusal::new("XX000", "the tenant speaks another protocol");
        match self {
            LoginMachine::Pg(login) => {
                let answer = answer.and_then(|proof| match proof {
                    ClientProofRequest::Pg(auth) => Ok(auth),
                    ClientProofRequest::My(_) => Err(other()),
                });
                login.routed(answer, out).into()
            }
            LoginMachine::My(login) => {
                let answer = answer.and_then(|proof| match proof {
                    ClientProofRequest::My(proof) => Ok(proof),
                    ClientProofRequest::Pg(_) => Err(other()),
                });
                login.routed(answer, out).into()
            }
        }
    }

    /// Answers [`ClientLoginNext::Check`]; does nothing without such a request.
    pub fn checked(
        &mut self,
        answer: mysql::login::PasswordCheckResult,
        out: &mut Vec<u8>,
    ) -> Option<ClientLoginStep> {
        match self {
            LoginMachine::Pg(_) => None,
            LoginMachine::My(login) => Some(login.checked(answer, out).into()),
        }
    }

    /// Appends the error with which it is disconnected.
    pub fn put_fatal_error(&self, fields: &ErrorFields<'_>, out: &mut Vec<u8>) {
        match self {
            LoginMachine::Pg(_) => backend::error(out, fields),
            LoginMachine::My(login) => put_mysql_error(&mut login.seq(), fields, out),
        }
    }
}

impl LoggedInClient {
    /// Appends the error with which it is refused after authentication.
    pub fn put_refusal(&self, refusal: &PgLoginRefusal, out: &mut Vec<u8>) {
        match self {
            LoggedInClient::Pg(_) => refusal.write(out),
            LoggedInClient::My(client) => {
                let mut seq = client.seq;
                mysql::login::put_refusal(out, &mut seq, refusal);
            }
        }
    }
}

impl From<pg::login::PgLoginStep> for ClientLoginStep {
    fn from(step: pg::login::PgLoginStep) -> ClientLoginStep {
        use pg::login::PgLoginNext as Pg;
        let next = match step.next {
            Pg::More => ClientLoginNext::More,
            Pg::StartTls => ClientLoginNext::StartTls,
            Pg::Route => ClientLoginNext::Route,
            Pg::Done(authenticated) => ClientLoginNext::Done(LoggedInClient::Pg(authenticated)),
            Pg::Cancel { pid, key } => ClientLoginNext::Cancel { pid, key },
            Pg::Fail(refusal) => ClientLoginNext::Fail(refusal),
        };
        ClientLoginStep { consumed: step.consumed, next }
    }
}

impl From<mysql::login::MysqlLoginStep> for ClientLoginStep {
    fn from(step: mysql::login::MysqlLoginStep) -> ClientLoginStep {
        ClientLoginStep { consumed: step.consumed, next: step.next.into() }
    }
}

impl From<mysql::login::MysqlLoginNext> for ClientLoginNext {
    fn from(next: mysql::login::MysqlLoginNext) -> ClientLoginNext {
        use mysql::login::MysqlLoginNext as My;
        match next {
            My::More => ClientLoginNext::More,
            My::StartTls => ClientLoginNext::StartTls,
            My::Route => ClientLoginNext::Route,
            My::Check(check) => ClientLoginNext::Check(check),
            My::Done(authenticated) => ClientLoginNext::Done(LoggedInClient::My(authenticated)),
            My::Fail(refusal) => ClientLoginNext::Fail(refusal),
        }
    }
}
