//! A client's way in, by either protocol.

use std::sync::Arc;

use api::TenantEngine;
use wire::mysql::auth::Plugin;
use wire::pg::message::{ErrorFields, backend};

use super::{Credentials, put_mysql_error};
use crate::mysql;
use crate::pg;
use crate::pg::login::{Reached, Refusal, ReplicationPolicy, TlsFacts};
use crate::tenants::{Route, Tenant, TenantUser};

/// Secrets of users of both protocols. Shared by all threads.
#[derive(Clone, Debug)]
pub struct Keyrings {
    /// Of PostgreSQL.
    pub pg: Arc<pg::auth::Keyring>,
    /// Of MySQL.
    pub my: Arc<mysql::auth::Keyring>,
}

/// The login of one client.
#[derive(Debug)]
pub enum LoginMachine {
    /// Of PostgreSQL.
    Pg(pg::login::Login),
    /// Of MySQL.
    My(mysql::login::Login),
}

/// What to do now. First, what was assembled for the client is sent.
#[derive(Debug)]
pub enum LoginNext {
    /// Present more bytes.
    More,
    /// Shake hands, beginning with what was not consumed.
    StartTls,
    /// Find out who [`LoginMachine::asked`] is; then call [`LoginMachine::routed`].
    Route,
    /// Do this on another thread; then call [`LoginMachine::checked`].
    Check(Box<mysql::login::Check>),
    /// The client is who it says.
    Done(Proved),
    /// It wants to cancel what another client does, and has been dealt with.
    Cancel {
        /// The process number of that one.
        pid: u32,
        /// Its key.
        key: Vec<u8>,
    },
    /// Close. The client was told, unless it left by itself.
    Fail(Refusal),
}

/// What became of the input.
#[derive(Debug)]
pub struct LoginStep {
    /// Bytes of the input that are done with.
    pub consumed: usize,
    /// What to do now.
    pub next: LoginNext,
}

/// A client that has proved who it is.
#[derive(Debug)]
pub enum Proved {
    /// Of PostgreSQL.
    Pg(Box<pg::login::Authenticated>),
    /// Of MySQL.
    My(Box<mysql::login::Authenticated>),
}

/// What a client has to prove.
#[derive(Debug)]
pub enum Proof {
    /// Of PostgreSQL.
    Pg(pg::login::RouteAuth),
    /// Of MySQL.
    My(mysql::login::Proof),
}

/// What a client has to show.
#[derive(Debug)]
pub enum Demand {
    /// This, or it is sent away.
    Known(Result<Proof, Refusal>),
    /// What the tenant's `auth_query` finds; then [`Keyrings::found`].
    Query,
}

/// What a client asks for that is not known yet.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// What it speaks.
    pub engine: TenantEngine,
    /// How it came.
    pub reached: Reached,
    /// What its TLS handshake gave.
    pub tls: Option<&'a TlsFacts>,
    /// The tenant that it names among its `options`.
    pub options_tenant_id: Option<&'a str>,
    /// The tenant that it names otherwise.
    pub tenant_id: Option<&'a str>,
    /// The database.
    pub database: Option<&'a str>,
    /// Who it says it is.
    pub user: &'a str,
}

/// The method that clients of MySQL are greeted with. Every client knows it; those that would
/// rather use another one say so at once.
pub(crate) const MYSQL_PLUGIN: Plugin = Plugin::Native;

impl Keyrings {
    /// Empty ones. `process_secret` should outlive the process: what users are asked who do not
    /// exist comes from it. PostgreSQL's clients are asked by `method`.
    #[must_use]
    pub fn new(process_secret: [u8; 32], method: pg::login::Method) -> Keyrings {
        let best = mysql::login::Method::Best;
        Keyrings {
            pg: Arc::new(pg::auth::Keyring::new(process_secret, method)),
            my: Arc::new(mysql::auth::Keyring::new(process_secret, best)),
        }
    }

    /// What a client has to show to be who it was routed as.
    #[must_use]
    pub fn demand(
        &self,
        route: &Route,
        login: &LoginMachine,
        replication: ReplicationPolicy,
    ) -> Option<Demand> {
        let Route { tenant, user } = route;
        Some(match login {
            LoginMachine::Pg(login) => match self.pg.demand(user, login.requested()?) {
                pg::auth::Demand::Known(proof) => Demand::Known(
                    proof.map(|auth| Proof::Pg(pg::login::RouteAuth { replication, ..auth })),
                ),
                pg::auth::Demand::Query => Demand::Query,
            },
            LoginMachine::My(login) => match self.my.demand(tenant, user, login.requested()?) {
                mysql::auth::Demand::Known(proof) => Demand::Known(proof.map(Proof::My)),
                mysql::auth::Demand::Query => Demand::Query,
            },
        })
    }

    /// What a client has to show whose secret was looked up; none when there is no such user.
    #[must_use]
    pub fn found(
        &self,
        route: &Route,
        secret: Option<&str>,
        replication: ReplicationPolicy,
    ) -> Proof {
        let Route { tenant, user } = route;
        match tenant.engine {
            TenantEngine::Postgres => {
                let auth = self.pg.found(user, secret);
                Proof::Pg(pg::login::RouteAuth { replication, ..auth })
            }
            TenantEngine::Mysql => Proof::My(self.my.found(tenant, user, secret)),
        }
    }

    /// What is shown to the server for a client.
    #[must_use]
    pub fn credentials(&self, route: &Route, client: &Proved) -> Credentials {
        let Route { tenant, user } = route;
        match client {
            Proved::Pg(client) => Credentials::Pg(self.pg.credentials(tenant, user, client)),
            Proved::My(client) => Credentials::My(self.my.credentials(user, client)),
        }
    }

    /// What is shown to the server when no client is at hand; none when only clients have it.
    #[must_use]
    pub fn own_credentials(&self, tenant: &Tenant, user: &TenantUser) -> Option<Credentials> {
        match tenant.engine {
            TenantEngine::Postgres => self.pg.own_credentials(tenant, user).map(Credentials::Pg),
            TenantEngine::Mysql => self.my.own_credentials(user).map(Credentials::My),
        }
    }
}

impl Proof {
    /// Whether that is a password.
    #[must_use]
    pub fn asks_password(&self) -> bool {
        match self {
            Proof::Pg(auth) => matches!(auth.proof, pg::login::Proof::Password(..)),
            Proof::My(proof) => matches!(proof, mysql::login::Proof::Password { .. }),
        }
    }
}

impl LoginMachine {
    /// What the client asks for, once that is known.
    #[must_use]
    pub fn asked(&self) -> Option<Asked<'_>> {
        Some(match self {
            LoginMachine::Pg(login) => {
                let requested = login.requested()?;
                Asked {
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
                Asked {
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

    /// What a client of PostgreSQL asks for.
    #[must_use]
    pub fn pg_requested(&self) -> Option<&pg::login::Requested> {
        match self {
            LoginMachine::Pg(login) => login.requested(),
            LoginMachine::My(_) => None,
        }
    }

    /// Takes what the client has sent and was not consumed before.
    pub fn input(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> LoginStep {
        match self {
            LoginMachine::Pg(login) => login.input(bytes, out).into(),
            LoginMachine::My(login) => login.input(bytes, out).into(),
        }
    }

    /// Continues behind TLS.
    pub fn tls_started(&mut self, facts: TlsFacts, out: &mut Vec<u8>) -> LoginStep {
        match self {
            LoginMachine::Pg(login) => login.tls_started(facts, out).into(),
            LoginMachine::My(login) => login.tls_started(facts, out).into(),
        }
    }

    /// Answers [`LoginNext::Route`].
    pub fn routed(&mut self, answer: Result<Proof, Refusal>, out: &mut Vec<u8>) -> LoginStep {
        let other = || Refusal::new("XX000", "the tenant speaks another protocol");
        match self {
            LoginMachine::Pg(login) => {
                let answer = answer.and_then(|proof| match proof {
                    Proof::Pg(auth) => Ok(auth),
                    Proof::My(_) => Err(other()),
                });
                login.routed(answer, out).into()
            }
            LoginMachine::My(login) => {
                let answer = answer.and_then(|proof| match proof {
                    Proof::My(proof) => Ok(proof),
                    Proof::Pg(_) => Err(other()),
                });
                login.routed(answer, out).into()
            }
        }
    }

    /// Answers [`LoginNext::Check`]; nothing when it did not ask.
    pub fn checked(
        &mut self,
        answer: mysql::login::Checked,
        out: &mut Vec<u8>,
    ) -> Option<LoginStep> {
        match self {
            LoginMachine::Pg(_) => None,
            LoginMachine::My(login) => Some(login.checked(answer, out).into()),
        }
    }

    /// Appends why it has to go.
    pub fn put_farewell(&self, fields: &ErrorFields<'_>, out: &mut Vec<u8>) {
        match self {
            LoginMachine::Pg(_) => backend::error(out, fields),
            LoginMachine::My(login) => put_mysql_error(&mut login.seq(), fields, out),
        }
    }
}

impl Proved {
    /// Appends why it cannot stay all the same.
    pub fn put_refusal(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        match self {
            Proved::Pg(_) => refusal.write(out),
            Proved::My(client) => {
                let mut seq = client.seq;
                mysql::login::put_refusal(out, &mut seq, refusal);
            }
        }
    }
}

impl From<pg::login::LoginStep> for LoginStep {
    fn from(step: pg::login::LoginStep) -> LoginStep {
        use pg::login::LoginNext as Pg;
        let next = match step.next {
            Pg::More => LoginNext::More,
            Pg::StartTls => LoginNext::StartTls,
            Pg::Route => LoginNext::Route,
            Pg::Done(authenticated) => LoginNext::Done(Proved::Pg(authenticated)),
            Pg::Cancel { pid, key } => LoginNext::Cancel { pid, key },
            Pg::Fail(refusal) => LoginNext::Fail(refusal),
        };
        LoginStep { consumed: step.consumed, next }
    }
}

impl From<mysql::login::LoginStep> for LoginStep {
    fn from(step: mysql::login::LoginStep) -> LoginStep {
        LoginStep { consumed: step.consumed, next: step.next.into() }
    }
}

impl From<mysql::login::LoginNext> for LoginNext {
    fn from(next: mysql::login::LoginNext) -> LoginNext {
        use mysql::login::LoginNext as My;
        match next {
            My::More => LoginNext::More,
            My::StartTls => LoginNext::StartTls,
            My::Route => LoginNext::Route,
            My::Check(check) => LoginNext::Check(check),
            My::Done(authenticated) => LoginNext::Done(Proved::My(authenticated)),
            My::Fail(refusal) => LoginNext::Fail(refusal),
        }
    }
}
