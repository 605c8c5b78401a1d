//! What the tests of MySQL share: a MariaDB server and a Cove in front of it.

use std::fs;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use serde_json::Value;
use testkit::{MariaDb, MyClient, MyFailure, MyLogin, PgAddress, Server};

use crate::shared::COVE;
use crate::support::{Behind, PASSWORD, USER, config};

/// What makes a tenant one of MySQL.
const ENGINE: &str = "engine = \"mysql\"";

/// MariaDB and Cove in front of it.
#[derive(Debug)]
pub(crate) struct Fronted {
    /// Ends first.
    pub(crate) server: Server,
    pub(crate) maria: Arc<MariaDb>,
    address: SocketAddr,
}

/// A tenant in a mode with so many connections to its server.
pub(crate) fn behind(name: &str, mode: &'static str, connections: u32) -> Behind {
    Behind::new(name, mode, connections).with(ENGINE)
}

/// A MariaDB server that knows [`USER`].
pub(crate) fn maria() -> MariaDb {
    prepared(MariaDb::start())
}

/// The same of whichever version and with whichever settings it was started.
pub(crate) fn prepared(maria: MariaDb) -> MariaDb {
    maria.user(USER, PASSWORD);
    maria
}

/// One such server for all tests that hold it at the same time. Names of databases and of users are
/// each test's own.
pub(crate) fn shared_maria() -> Arc<MariaDb> {
    static SHARED: RwLock<Weak<MariaDb>> = RwLock::new(Weak::new());
    let mut shared = SHARED.write().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(maria());
        *shared = Arc::downgrade(&server);
        server
    })
}

/// Makes the databases, and starts a Cove with these tenants and these lines in `[bouncer]`.
pub(crate) fn front(maria: Arc<MariaDb>, bouncer: &str, tenants: &[Behind]) -> Fronted {
    let upstream = maria.tcp().to_string();
    front_at(maria, &upstream, bouncer, tenants)
}

/// The same, where Cove reaches the server at another address.
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

/// Where a server takes clients of MySQL.
pub(crate) fn address(server: &Server) -> SocketAddr {
    let text = fs::read_to_string(server.data_dir().join("addresses.json")).unwrap();
    let addresses: Value = serde_json::from_str(&text).unwrap();
    let address = addresses["mysql"].as_str();
    address.unwrap_or_else(|| panic!("no \"mysql\" in {addresses}")).parse().unwrap()
}

impl Fronted {
    /// Where clients are taken.
    pub(crate) fn tcp(&self) -> SocketAddr {
        self.address
    }

    /// The same for a client of the kit.
    pub(crate) fn address(&self) -> PgAddress {
        self.address.into()
    }

    /// A client of a tenant.
    pub(crate) fn login(&self, tenant: &str) -> MyClient {
        self.try_login(tenant).unwrap_or_else(|error| panic!("{tenant}: {error}"))
    }

    /// The same, if it is let in.
    pub(crate) fn try_login(&self, tenant: &str) -> Result<MyClient, MyFailure> {
        MyClient::login(&self.address(), &login(tenant))
    }
}

/// How a test logs in.
pub(crate) fn login(database: &str) -> MyLogin {
    MyLogin::new(USER, PASSWORD, database)
}
