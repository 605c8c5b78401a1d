//! What the tests of the bouncer share: a PostgreSQL server and a Cove in front of it.

use std::fs;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use serde_json::Value;
use testkit::{PgAddress, PgClient, PgFailure, Postgres, Server};

use crate::shared::{COVE, LANGUAGES};

/// Who every test is, to Cove and to PostgreSQL.
pub(crate) const USER: &str = "ada";
/// How it proves that, to both.
pub(crate) const PASSWORD: &str = "pencil";

/// A database behind a name.
#[derive(Clone, Debug)]
pub(crate) struct Behind {
    /// The tenant's name and the database's.
    pub(crate) name: String,
    /// `session`, `transaction` or `statement`.
    pub(crate) mode: &'static str,
    /// Connections to the server at one time.
    pub(crate) connections: u32,
    /// More lines of TOML.
    pub(crate) more: String,
}

impl Behind {
    /// A tenant in a mode with so many connections to its server.
    pub(crate) fn new(name: &str, mode: &'static str, connections: u32) -> Behind {
        Behind { name: name.to_owned(), mode, connections, more: String::new() }
    }

    /// The same with more lines in its table.
    pub(crate) fn with(mut self, more: &str) -> Behind {
        self.more.push_str(more);
        self.more.push('\n');
        self
    }

    fn toml(&self, server: &str) -> String {
        let Behind { name, mode, connections, more } = self;
        format!(
            "[[bouncer.tenants]]\n\
             name = {name:?}\nserver = {server:?}\npool_mode = {mode:?}\n\
             users = [{{ name = {USER:?}, password = {PASSWORD:?} }}]\n\
             limits.server_connections_max = {connections}\n{more}\n"
        )
    }
}

/// PostgreSQL and Cove in front of it.
#[derive(Debug)]
pub(crate) struct Bounced {
    /// Ends first.
    pub(crate) server: Server,
    pub(crate) postgres: Arc<Postgres>,
    address: SocketAddr,
}

/// A PostgreSQL server that knows [`USER`], and asks everybody else but `postgres` for a password.
pub(crate) fn postgres() -> Postgres {
    prepared(Postgres::start_with(&["max_connections=300", "max_prepared_transactions=20"]))
}

/// One such server for all tests that hold it at the same time. Names of databases and of roles are
/// each test's own.
pub(crate) fn shared_postgres() -> Arc<Postgres> {
    static SHARED: RwLock<Weak<Postgres>> = RwLock::new(Weak::new());
    let mut shared = SHARED.write().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(postgres());
        *shared = Arc::downgrade(&server);
        server
    })
}

/// The same of whichever version and with whichever settings it was started.
pub(crate) fn prepared(postgres: Postgres) -> Postgres {
    postgres.sql(&format!("CREATE ROLE {USER} LOGIN SUPERUSER PASSWORD '{PASSWORD}'"));
    postgres.require("scram-sha-256");
    postgres
}

/// Makes the databases, and starts a Cove with these tenants and these lines in `[bouncer]`.
pub(crate) fn bounce(postgres: Arc<Postgres>, bouncer: &str, tenants: &[Behind]) -> Bounced {
    let upstream = postgres.tcp().to_string();
    bounce_at(postgres, &upstream, bouncer, tenants)
}

/// The same, where Cove reaches the server at another address.
pub(crate) fn bounce_at(
    postgres: Arc<Postgres>,
    upstream: &str,
    bouncer: &str,
    tenants: &[Behind],
) -> Bounced {
    for tenant in tenants {
        postgres.sql(&format!("CREATE DATABASE \"{}\"", tenant.name));
    }
    let server = Server::start_with(COVE, &[], Some(&config(upstream, bouncer, tenants)));
    let address = address(&server);
    Bounced { server, postgres, address }
}

/// The configuration of a server with these tenants.
pub(crate) fn config(upstream: &str, bouncer: &str, tenants: &[Behind]) -> String {
    let tenants: String = tenants.iter().map(|tenant| tenant.toml(upstream)).collect();
    format!(
        "[executions]\nlanguages = {LANGUAGES:?}\n\
         [bouncer]\nlisten = \"127.0.0.1:0\"\n{bouncer}\n{tenants}"
    )
}

/// Where a server takes clients of PostgreSQL.
pub(crate) fn address(server: &Server) -> SocketAddr {
    let text = fs::read_to_string(server.data_dir().join("addresses.json")).unwrap();
    let addresses: Value = serde_json::from_str(&text).unwrap();
    let address = addresses["bouncer"].as_str();
    address.unwrap_or_else(|| panic!("no \"bouncer\" in {addresses}")).parse().unwrap()
}

impl Bounced {
    /// Looks again where clients are taken, after the server has started again.
    pub(crate) fn moved(&mut self) {
        self.address = address(&self.server);
    }

    /// Where clients are taken.
    pub(crate) fn tcp(&self) -> SocketAddr {
        self.address
    }

    /// The same for a client of the kit.
    pub(crate) fn address(&self) -> PgAddress {
        self.address.into()
    }

    /// A client of a tenant.
    pub(crate) fn login(&self, tenant: &str) -> PgClient {
        self.try_login(tenant, &[]).unwrap_or_else(|error| panic!("{tenant}: {error}"))
    }

    /// The same with more parameters.
    pub(crate) fn try_login(
        &self,
        tenant: &str,
        more: &[(&str, &str)],
    ) -> Result<PgClient, PgFailure> {
        let parameters = [&[("user", USER), ("database", tenant)], more].concat();
        PgClient::login(&self.address(), &parameters, PASSWORD)
    }
}
