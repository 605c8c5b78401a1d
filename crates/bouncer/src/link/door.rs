//! A client's way in, by either protocol.

use std::sync::Arc;

use api::TenantEngine;
use wire::mysql::auth::AuthPlugin;
use wire::pg::message::{ErrorFields, backend};

use super::{ServerCredentials, put_mysql_error};
use crate::mysql;
use crate::pg;
use crate::pg::login::{ClientTransport, PgLoginRefusal, ReplicationPolicy, TlsFacts};
use crate::tenants::{TenantRoute, TenantSnapshot, TenantUser};

/// Secrets of users of both protocols. Shared by all threads.
#[derive(Clone, Debug)]
pub struct ProtocolKeyrings {
    /// Keyring of PostgreSQL's users.
    pub pg: Arc<pg::auth::PgKeyring>,
    /// Keyring of MySQL's users.
    pub my: Arc<mysql::auth::MysqlKeyring>,
}

/// The login of one client.
#[derive(Debug)]
pub enum LoginMachine {
    /// PostgreSQL.
    Pg(pg::login::PgLogin),
    /// MySQL or MariaDB.
    My(mysql::login::MysqlLogin),
}

/// Next step. First, what was assembled for the client is sent.
#[derive(Debug)]
pub enum ClientLoginNext {
    /// Present more bytes.
    More,
    /// Shake hands, beginning with what was not consumed.
    StartTls,
    /// Find out who [`LoginMachine::asked`] is; then call [`LoginMachine::routed`].
    Route,
    /// Do this on another thread; then call [`LoginMachine::checked`].
    Check(Box<mysql::login::PasswordCheck>),
    /// The client is who it says.
    Done(LoggedInClient),
    /// Sent a cancel request, which has been dealt with.
    Cancel {
        /// The process number of that one.
        pid: u32,
        /// Key.
        key: Vec<u8>,
    },
    /// Close. The client was told, unless it left by itself.
    Fail(PgLoginRefusal),
}

/// Result of presenting input.
#[derive(Debug)]
pub struct ClientLoginStep {
    /// Bytes of the input that are done with.
    pub consumed: usize,
    /// Next step.
    pub next: ClientLoginNext,
}

/// A client that has proved who it is.
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

/// Authentication that a client needs.
#[derive(Debug)]
pub enum AuthRequirement {
    /// This, or it is sent away.
    Known(Result<ClientProofRequest, PgLoginRefusal>),
    /// The secret that the tenant's `auth_query` finds; then [`ProtocolKeyrings::found`].
    Query,
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
    /// The tenant that it names among its `options`.
    pub options_tenant_id: Option<&'a str>,
    /// The tenant that it names otherwise.
    pub tenant_id: Option<&'a str>,
    /// The database.
    pub database: Option<&'a str>,
    /// User name that the client sent.
    pub user: &'a str,
}

/// The method that clients of MySQL are greeted with. Every client knows it; those that would
/// rather use another one say so at once.
pub(crate) const MYSQL_PLUGIN: AuthPlugin = AuthPlugin::Native;

impl ProtocolKeyrings {
    /// Empty ones. `process_secret` should outlive the process: what users are asked who do not
    /// exist comes from it. PostgreSQL's clients are asked by `method`.
    #[must_use]
    pub fn new(process_secret: [u8; 32], method: pg::login::PgPasswordMethod) -> ProtocolKeyrings {
        let best = mysql::login::MysqlPasswordMethod::Best;
        ProtocolKeyrings {
            pg: Arc::new(pg::auth::PgKeyring::new(process_secret, method)),
            my: Arc::new(mysql::auth::MysqlKeyring::new(process_secret, best)),
        }
    }

    /// Returns what a client has to show to be who it was routed as.
    #[must_use]
    pub fn demand(
        &self,
        route: &TenantRoute,
        login: &LoginMachine,
        replication: ReplicationPolicy,
    ) -> Option<AuthRequirement> {
        let TenantRoute { tenant, user } = route;
        Some(match login {
            LoginMachine::Pg(login) => match self.pg.demand(user, login.requested()?) {
                pg::auth::PgAuthRequirement::Known(proof) => {
                    AuthRequirement::Known(proof.map(|auth| {
                        ClientProofRequest::Pg(pg::login::RouteAuth { replication, ..auth })
                    }))
                }
                pg::auth::PgAuthRequirement::Query => AuthRequirement::Query,
            },
            LoginMachine::My(login) => match self.my.demand(tenant, user, login.requested()?) {
                mysql::auth::MysqlAuthRequirement::Known(proof) => {
                    AuthRequirement::Known(proof.map(ClientProofRequest::My))
                }
                mysql::auth::MysqlAuthRequirement::Query => AuthRequirement::Query,
            },
        })
    }

    /// Returns what a client has to show whose secret was looked up; none when there is no such
    /// user.
    #[must_use]
    pub fn found(
        &self,
        route: &TenantRoute,
        secret: Option<&str>,
        replication: ReplicationPolicy,
    ) -> ClientProofRequest {
        let TenantRoute { tenant, user } = route;
        match tenant.engine {
            TenantEngine::Postgres => {
                let auth = self.pg.found(user, secret);
                ClientProofRequest::Pg(pg::login::RouteAuth { replication, ..auth })
            }
            TenantEngine::Mysql => ClientProofRequest::My(self.my.found(tenant, user, secret)),
        }
    }

    /// Returns what is shown to the server for a client.
    #[must_use]
    pub fn credentials(&self, route: &TenantRoute, client: &LoggedInClient) -> ServerCredentials {
        let TenantRoute { tenant, user } = route;
        match client {
            LoggedInClient::Pg(client) => {
                ServerCredentials::Pg(self.pg.credentials(tenant, user, client))
            }
            LoggedInClient::My(client) => ServerCredentials::My(self.my.credentials(user, client)),
        }
    }

    /// Returns what is shown to the server when no client is at hand; none when only clients have
    /// it.
    #[must_use]
    pub fn own_credentials(
        &self,
        tenant: &TenantSnapshot,
        user: &TenantUser,
    ) -> Option<ServerCredentials> {
        match tenant.engine {
            TenantEngine::Postgres => {
                self.pg.own_credentials(tenant, user).map(ServerCredentials::Pg)
            }
            TenantEngine::Mysql => self.my.own_credentials(user).map(ServerCredentials::My),
        }
    }
}

impl ClientProofRequest {
    /// Returns whether that is a password.
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
    /// Returns what the client asks for, once that is known.
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

    /// Returns what a client of PostgreSQL asks for.
    #[must_use]
    pub fn pg_requested(&self) -> Option<&pg::login::PgStartupRequest> {
        match self {
            LoginMachine::Pg(login) => login.requested(),
            LoginMachine::My(_) => None,
        }
    }

    /// Takes what the client has sent and was not consumed before.
    pub fn input(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> ClientLoginStep {
        match self {
            LoginMachine::Pg(login) => login.input(bytes, out).into(),
            LoginMachine::My(login) => login.input(bytes, out).into(),
        }
    }

    /// Continues behind TLS.
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

    /// Answers [`ClientLoginNext::Check`]; nothing when it did not ask.
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

    /// Appends why it has to go.
    pub fn put_fatal_error(&self, fields: &ErrorFields<'_>, out: &mut Vec<u8>) {
        match self {
            LoginMachine::Pg(_) => backend::error(out, fields),
            LoginMachine::My(login) => put_mysql_error(&mut login.seq(), fields, out),
        }
    }
}

impl LoggedInClient {
    /// Appends why it cannot stay all the same.
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
