//! Code that the MySQL tests share: a MariaDB server with Cove in front of it.

use std::fs;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use serde_json::Value;
use testkit::{MariaDb, MyClient, MyFailure, MyLogin, PgAddress, Server};

use crate::shared::COVE;
use crate::support::{Behind, PASSWORD, USER, config};

/// Setting that makes a tenant a MySQL one.
const ENGINE: &str = "engine = \"mysql\"";

/// MariaDB with Cove in front of it.
#[derive(Debug)]
pub(crate) struct Fronted {
    /// Dropped first.
    pub(crate) server: Server,
    pub(crate) maria: Arc<MariaDb>,
    address: SocketAddr,
}

/// Returns a tenant in a mode with a number of server connections.
pub(crate) fn behind(name: &str, mode: &'static str, connections: u32) -> Behind {
    Behind::new(name, mode, connections).with(ENGINE)
}

/// Starts a MariaDB server with the user [`USER`].
pub(crate) fn maria() -> MariaDb {
    prepared(MariaDb::start())
}

/// Creates the user on a server of any version.
pub(crate) fn prepared(maria: MariaDb) -> MariaDb {
    maria.user(USER, PASSWORD);
    maria
}

/// Returns one such server for all tests that hold it at the same time. Each test uses its own
/// names of databases and users.
pub(crate) fn shared_maria() -> Arc<MariaDb> {
    static SHARED: RwLock<Weak<MariaDb>> = RwLock::new(Weak::new());
    let mut shared = SHARED.write().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(maria());
        *shared = Arc::downgrade(&server);
        server
    })
}

/// Creates the databases, and starts Cove with these tenants and additional `[bouncer]` lines.
pub(crate) fn front(maria: Arc<MariaDb>, bouncer: &str, tenants: &[Behind]) -> Fronted {
    let upstream = maria.tcp().to_string();
    front_at(maria, &upstream, bouncer, tenants)
}

/// Starts Cove with another address of the server.
pub(crate) fn front_at(
    maria: Arc<MariaDb>,
    upstream: &str,
    bouncer: &str,
    tenants: &[Behind],
) -> Fronted {
    for tenant in tenants {
        maria.sql(&format!("CREATE DATABASE `{}`", tenant.name));
    }
    let server = Server::start_with(COVE, &[], Some(&config(upstream, bouncer, tenants)));
    let address = address(&server);
    Fronted { server, maria, address }
}

/// Returns a server's address for MySQL clients.
pub(crate) fn address(server: &Server) -> SocketAddr {
    let text = fs::read_to_string(server.data_dir().join("addresses.json")).unwrap();
    let addresses: Value = serde_json::from_str(&text).unwrap();
    let address = addresses["mysql"].as_str();
    address.unwrap_or_else(|| panic!("no \"mysql\" in {addresses}")).parse().unwrap()
}

impl Fronted {
    /// Returns the address for clients.
    pub(crate) fn tcp(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address as a [`PgAddress`].
    pub(crate) fn address(&self) -> PgAddress {
        self.address.into()
    }

    /// Logs a client of a tenant in.
    pub(crate) fn login(&self, tenant: &str) -> MyClient {
        self.try_login(tenant).unwrap_or_else(|error| panic!("{tenant}: {error}"))
    }

    /// Tries to log a client of a tenant in.
    pub(crate) fn try_login(&self, tenant: &str) -> Result<MyClient, MyFailure> {
        MyClient::login(&self.address(), &login(tenant))
    }
}

/// Returns the login of a test.
pub(crate) fn login(database: &str) -> MyLogin {
    MyLogin::new(USER, PASSWORD, database)
}
