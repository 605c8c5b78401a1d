//! Code that the bouncer tests share: a PostgreSQL server with Cove in front of it.

use std::fs;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use serde_json::Value;
use testkit::{PgAddress, PgClient, PgFailure, Postgres, Server};

use crate::shared::{COVE, LANGUAGES};

/// User of every test, in Cove and PostgreSQL.
pub(crate) const USER: &str = "ada";
/// Password of the user in both.
pub(crate) const PASSWORD: &str = "pencil";

/// Tenant with its database.
#[derive(Clone, Debug)]
pub(crate) struct Behind {
    /// Name of the tenant and of its database.
    pub(crate) name: String,
    /// `session`, `transaction` or `statement`.
    pub(crate) mode: &'static str,
    /// Maximum concurrent server connections.
    pub(crate) connections: u32,
    /// Additional lines of TOML.
    pub(crate) more: String,
}

impl Behind {
    /// Returns a tenant in a mode with a number of server connections.
    pub(crate) fn new(name: &str, mode: &'static str, connections: u32) -> Behind {
        Behind { name: name.to_owned(), mode, connections, more: String::new() }
    }

    /// Adds lines to its table.
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

/// PostgreSQL with Cove in front of it.
#[derive(Debug)]
pub(crate) struct Bounced {
    /// Dropped first.
    pub(crate) server: Server,
    pub(crate) postgres: Arc<Postgres>,
    address: SocketAddr,
}

/// Starts a PostgreSQL server with the user [`USER`], which requires passwords except from
/// `postgres`.
pub(crate) fn postgres() -> Postgres {
    prepared(Postgres::start_with(&["max_connections=300", "max_prepared_transactions=20"]))
}

/// Returns one such server for all tests that hold it at the same time. Each test uses its own
/// names of databases and roles.
pub(crate) fn shared_postgres() -> Arc<Postgres> {
    static SHARED: RwLock<Weak<Postgres>> = RwLock::new(Weak::new());
    let mut shared = SHARED.write().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(postgres());
        *shared = Arc::downgrade(&server);
        server
    })
}

/// Creates the user on a server of any version.
pub(crate) fn prepared(postgres: Postgres) -> Postgres {
    postgres.sql(&format!("CREATE ROLE {USER} LOGIN SUPERUSER PASSWORD '{PASSWORD}'"));
    postgres.require("scram-sha-256");
    postgres
}

/// Creates the databases, and starts Cove with these tenants and additional `[bouncer]` lines.
pub(crate) fn bounce(postgres: Arc<Postgres>, bouncer: &str, tenants: &[Behind]) -> Bounced {
    let upstream = postgres.tcp().to_string();
    bounce_at(postgres, &upstream, bouncer, tenants)
}

/// Starts Cove with another address of the server.
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

/// Returns the configuration of a server with these tenants.
pub(crate) fn config(upstream: &str, bouncer: &str, tenants: &[Behind]) -> String {
    let tenants: String = tenants.iter().map(|tenant| tenant.toml(upstream)).collect();
    format!(
        "[executions]\nlanguages = {LANGUAGES:?}\n\
         [bouncer]\nlisten = \"127.0.0.1:0\"\n{bouncer}\n{tenants}"
    )
}

/// Returns a server's address for PostgreSQL clients.
pub(crate) fn address(server: &Server) -> SocketAddr {
    let text = fs::read_to_string(server.data_dir().join("addresses.json")).unwrap();
    let addresses: Value = serde_json::from_str(&text).unwrap();
    let address = addresses["bouncer"].as_str();
    address.unwrap_or_else(|| panic!("no \"bouncer\" in {addresses}")).parse().unwrap()
}

impl Bounced {
    /// Reads the address for clients again, after a restart of the server.
    pub(crate) fn moved(&mut self) {
        self.address = address(&self.server);
    }

    /// Returns the address for clients.
    pub(crate) fn tcp(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address as a [`PgAddress`].
    pub(crate) fn address(&self) -> PgAddress {
        self.address.into()
    }

    /// Logs a client of a tenant in.
    pub(crate) fn login(&self, tenant: &str) -> PgClient {
        self.try_login(tenant, &[]).unwrap_or_else(|error| panic!("{tenant}: {error}"))
    }

    /// Tries to log a client in, with additional parameters.
    pub(crate) fn try_login(
        &self,
        tenant: &str,
        more: &[(&str, &str)],
    ) -> Result<PgClient, PgFailure> {
        let parameters = [&[("user", USER), ("database", tenant)], more].concat();
        PgClient::login(&self.address(), &parameters, PASSWORD)
    }
}
