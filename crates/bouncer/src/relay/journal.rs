//! What happens to connections, in the words of PgBouncer: for those who read its log or match on
//! its messages. Nothing here costs anything when nobody asked for that.

use std::net::SocketAddr;

use tracing::Level;

use super::client::{Client, Phase};
use super::common::Full;
use super::console::DATABASE;
use super::leave::Leaving;
use super::pools::{Reason, Refusal};
use super::server::{Closing, Server};
use super::worker::Worker;
use crate::pg::login::Replication;
use crate::tenants::RouteError;

/// Target of these log lines.
pub const JOURNAL: &str = "pgbouncer";

/// In whose words clients are told what goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Words {
    /// Ours: they name the settings of `cove.toml`.
    #[default]
    Own,
    /// PgBouncer's: they name its settings.
    PgBouncer,
}

impl Words {
    /// One of two wordings.
    pub(super) fn of(self, own: &'static str, pgbouncer: &'static str) -> &'static str {
        match self {
            Words::Own => own,
            Words::PgBouncer => pgbouncer,
        }
    }

    /// The code of an error: PgBouncer has one for all that it refuses by itself.
    pub(super) fn code(self, own: &'static str) -> &'static str {
        self.of(own, "08P01")
    }

    pub(super) fn full(self, full: Full) -> String {
        match (self, full) {
            (Words::Own, full) => full.to_string(),
            (Words::PgBouncer, Full::All(_)) => {
                "no more connections allowed (max_client_conn)".to_owned()
            }
            (Words::PgBouncer, Full::Tenant(_)) => {
                "client connections exceeded (max_db_client_connections)".to_owned()
            }
            (Words::PgBouncer, Full::User(_)) => {
                "client connections exceeded (max_user_client_connections)".to_owned()
            }
        }
    }

    /// The code and the message.
    pub(super) fn route(self, error: &RouteError, database: &str) -> (&'static str, String) {
        let message = match (self, error) {
            (Words::PgBouncer, RouteError::Nothing(_) | RouteError::NoSuchTenant(_)) => {
                format!("no such database: {database}")
            }
            (Words::PgBouncer, RouteError::Paused(name)) => {
                format!("database \"{name}\" is disabled")
            }
            (Words::Own | Words::PgBouncer, error) => error.to_string(),
        };
        (if self == Words::Own { error.sqlstate() } else { "08P01" }, message)
    }

    pub(super) fn waited(self, refusal: &Refusal, tenant: &str) -> String {
        match (self, refusal) {
            (Words::PgBouncer, Refusal::WaitTimeout { .. }) => "query_wait_timeout".to_owned(),
            // There the server's own words are passed on.
            (Words::PgBouncer, Refusal::Down(failure)) => failure.message.to_string(),
            (Words::Own, Refusal::Down(failure)) => failure.sentence(tenant),
            (Words::Own | Words::PgBouncer, refusal) => refusal.to_string(),
        }
    }
}

fn is_read() -> bool {
    tracing::enabled!(target: JOURNAL, Level::DEBUG)
}

fn address(address: Option<SocketAddr>) -> String {
    address.map_or_else(|| "unix".to_owned(), |it| it.to_string())
}

impl Worker {
    /// The words in which clients are told what goes wrong.
    pub(super) fn words(&self) -> Words {
        self.common.console.get().map_or(Words::Own, |desk| desk.words())
    }

    /// A client wants to log in.
    pub(super) fn journal_login(&self, place: u32) {
        if is_read()
            && let Some(client) = self.clients.get(place)
            && let Phase::Login(phase) = &client.phase
            && let Some(requested) = phase.requested()
        {
            let (database, user) = (requested.database_or_user(), &requested.user);
            let from = address(client.conn.socket.peer());
            let tls = if requested.tls.is_some() { "TLS" } else { "no" };
            let replication = match requested.replication {
                Replication::None => "no",
                Replication::Logical => "logical",
                Replication::Physical => "physical",
            };
            tracing::debug!(
                target: JOURNAL,
                "C-{place:#x}: {database}/{user}@{from} login attempt: db={database} user={user} \
                 tls={tls} replication={replication}"
            );
        }
    }

    /// A client leaves, for this reason.
    pub(super) fn journal_client(&self, place: u32, reason: &str) {
        if is_read()
            && let Some(client) = self.clients.get(place)
        {
            let name = who(client);
            let age = self.ground.now_us.saturating_sub(client.begun_us) / 1_000_000;
            tracing::debug!(target: JOURNAL, "C-{place:#x}: {name} closing because: {reason} (age={age}s)");
        }
    }

    /// A client leaves by itself.
    pub(super) fn journal_leaving(&self, place: u32, leaving: &Leaving) {
        let reason = match leaving {
            Leaving::Terminate => "client close request",
            Leaving::End | Leaving::Lost(_) => "client unexpected eof",
            Leaving::Dismissed => return,
        };
        self.journal_client(place, reason);
    }

    /// A server connection was made.
    pub(super) fn journal_connected(&self, place: u32) {
        if is_read()
            && let Some(server) = self.servers.get(place)
        {
            let name = whose(server);
            let from = address(server.conn.socket.local());
            tracing::debug!(target: JOURNAL, "S-{place:#x}: {name} new connection to server (from {from})");
        }
    }

    /// A server does not let us in.
    pub(super) fn journal_refused(&self, place: u32, message: &str) {
        if is_read()
            && let Some(server) = self.servers.get(place)
        {
            let name = whose(server);
            tracing::debug!(target: JOURNAL, "S-{place:#x}: {name} server login failed: FATAL {message}");
        }
    }

    /// A server connection is closed, or could not be made, for this reason.
    pub(super) fn journal_server(&self, place: u32, server: &Server, reason: &str) {
        if is_read() {
            let name = whose(server);
            let age = self.ground.now_us.saturating_sub(server.begun_us) / 1_000_000;
            tracing::debug!(target: JOURNAL, "S-{place:#x}: {name} closing because: {reason} (age={age}s)");
        }
    }
}

/// Why a server connection is closed, in PgBouncer's words.
pub(super) fn reason(closing: &Closing) -> String {
    match closing {
        Closing::Pool(Reason::Idle) => "server idle timeout".to_owned(),
        Closing::Pool(Reason::Lifetime) => "server lifetime over".to_owned(),
        Closing::Pool(Reason::Unfit) => "database configuration changed".to_owned(),
        Closing::Pool(Reason::Held) => "pause mode".to_owned(),
        Closing::Pool(Reason::GivenUp) => "evicted".to_owned(),
        Closing::End => "server conn crashed?".to_owned(),
        Closing::Unclean => "client disconnected while server was not ready".to_owned(),
        Closing::Ordered => "admin forced disconnect".to_owned(),
        Closing::Lost(_) | Closing::Broken(_) | Closing::Failed => closing.to_string(),
    }
}

fn who(client: &Client) -> String {
    let from = address(client.conn.socket.peer());
    match &client.phase {
        Phase::Session(session) => {
            format!("{}/{}@{from}", session.route.tenant.name, session.route.user.name)
        }
        Phase::Greeting(greeting) => {
            format!("{}/{}@{from}", greeting.route.tenant.name, greeting.route.user.name)
        }
        Phase::Console(visitor) => format!("{DATABASE}/{}@{from}", visitor.user),
        Phase::Login(_) | Phase::Closing => format!("(nodb)/(nouser)@{from}"),
    }
}

fn whose(server: &Server) -> String {
    let at = address(server.conn.socket.peer());
    format!("{}/{}@{at}", server.tenant.name, server.user)
}
