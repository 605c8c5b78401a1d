//! Log lines about connections in PgBouncer's wording, for tools that match on its messages.
//! They cost nothing while they are disabled.

use std::net::SocketAddr;

use pooler_core::pg::login::ReplicationMode;
use tracing::Level;

use super::client::{ClientPhase, RelayClient};
use super::client_count::ClientLimit;
use super::departure::ClientDeparture;
use super::dialect::{DATABASE, ErrorDialect};
use super::pools::{CloseReason, LeaseRefusal};
use super::server::{RelayServer, ServerCloseReason};
use crate::tenants::RouteError;

/// Target of these log lines.
pub const JOURNAL: &str = "pgbouncer";

impl ErrorDialect {
    pub(super) fn full(self, full: ClientLimit) -> String {
        match (self, full) {
            (ErrorDialect::Own, full) => full.to_string(),
            (ErrorDialect::PgBouncer, ClientLimit::All(_)) => {
                "no more connections allowed (max_client_conn)".to_owned()
            }
            (ErrorDialect::PgBouncer, ClientLimit::Tenant(_)) => {
                "client connections exceeded (max_db_client_connections)".to_owned()
            }
            (ErrorDialect::PgBouncer, ClientLimit::User(_)) => {
                "client connections exceeded (max_user_client_connections)".to_owned()
            }
        }
    }

    /// Returns the code and the message.
    pub(super) fn route(self, error: &RouteError, database: &str) -> (&'static str, String) {
        let message = match (self, error) {
            (ErrorDialect::PgBouncer, RouteError::Nothing(_) | RouteError::NoSuchTenant(_)) => {
                format!("no such database: {database}")
            }
            (ErrorDialect::PgBouncer, RouteError::Paused(name)) => {
                format!("database \"{name}\" is disabled")
            }
            (ErrorDialect::Own | ErrorDialect::PgBouncer, error) => error.to_string(),
        };
        (if self == ErrorDialect::Own { error.sqlstate() } else { "08P01" }, message)
    }

    pub(super) fn waited(self, refusal: &LeaseRefusal, tenant: &str) -> String {
        match (self, refusal) {
            (ErrorDialect::PgBouncer, LeaseRefusal::WaitTimeout { .. }) => {
                "query_wait_timeout".to_owned()
            }
            // PgBouncer passes on the server's message.
            (ErrorDialect::PgBouncer, LeaseRefusal::Down(failure)) => failure.message.to_string(),
            (ErrorDialect::Own, LeaseRefusal::Down(failure)) => failure.sentence(tenant),
            (ErrorDialect::Own | ErrorDialect::PgBouncer, refusal) => refusal.to_string(),
        }
    }
}

fn is_read() -> bool {
    tracing::enabled!(target: JOURNAL, Level::DEBUG)
}

fn address(address: Option<SocketAddr>) -> String {
    address.map_or_else(|| "unix".to_owned(), |it| it.to_string())
}

impl RelayClient {
    /// Logs the attempt to log in.
    pub(super) fn journal_login(&self, place: u32) {
        if is_read()
            && let ClientPhase::Login(phase) = &self.phase
            && let Some(requested) = phase.requested()
        {
            let (database, user) = (requested.database_or_user(), &requested.user);
            let from = address(self.conn.socket.peer());
            let tls = if requested.tls.is_some() { "TLS" } else { "no" };
            let replication = match requested.replication {
                ReplicationMode::None => "no",
                ReplicationMode::Logical => "logical",
                ReplicationMode::Physical => "physical",
            };
            tracing::debug!(
                target: JOURNAL,
                "C-{place:#x}: {database}/{user}@{from} login attempt: db={database} user={user} \
                 tls={tls} replication={replication}"
            );
        }
    }

    /// Logs that it is closed, for this reason.
    pub(super) fn journal_closing(&self, place: u32, reason: &str, now_us: u64) {
        if is_read() {
            let name = who(self);
            let age = now_us.saturating_sub(self.begun_us) / 1_000_000;
            tracing::debug!(target: JOURNAL, "C-{place:#x}: {name} closing because: {reason} (age={age}s)");
        }
    }

    /// Logs that it leaves.
    pub(super) fn journal_leaving(&self, place: u32, leaving: &ClientDeparture, now_us: u64) {
        let reason = match leaving {
            ClientDeparture::Terminate => "client close request",
            ClientDeparture::End | ClientDeparture::Lost(_) => "client unexpected eof",
            ClientDeparture::Dismissed => return,
        };
        self.journal_closing(place, reason, now_us);
    }
}

impl RelayServer {
    /// Logs that its socket is connected.
    pub(super) fn journal_connected(&self, place: u32) {
        if is_read() {
            let name = whose(self);
            let from = address(self.conn.socket.local());
            tracing::debug!(target: JOURNAL, "S-{place:#x}: {name} new connection to server (from {from})");
        }
    }

    /// Logs that the server refuses the login.
    pub(super) fn journal_refused(&self, place: u32, message: &str) {
        if is_read() {
            let name = whose(self);
            tracing::debug!(target: JOURNAL, "S-{place:#x}: {name} server login failed: FATAL {message}");
        }
    }

    /// Logs that it is closed, or could not be opened, for this reason.
    pub(super) fn journal_closing(&self, place: u32, reason: &str, now_us: u64) {
        if is_read() {
            let name = whose(self);
            let age = now_us.saturating_sub(self.begun_us) / 1_000_000;
            tracing::debug!(target: JOURNAL, "S-{place:#x}: {name} closing because: {reason} (age={age}s)");
        }
    }
}

/// Returns the reason why a server connection is closed, in PgBouncer's wording.
pub(super) fn reason(closing: &ServerCloseReason) -> String {
    match closing {
        ServerCloseReason::Pool(CloseReason::Idle) => "server idle timeout".to_owned(),
        ServerCloseReason::Pool(CloseReason::Lifetime) => "server lifetime over".to_owned(),
        ServerCloseReason::Pool(CloseReason::Unfit) => "database configuration changed".to_owned(),
        ServerCloseReason::Pool(CloseReason::Held) => "pause mode".to_owned(),
        ServerCloseReason::Pool(CloseReason::GivenUp) => "evicted".to_owned(),
        ServerCloseReason::End => "server conn crashed?".to_owned(),
        ServerCloseReason::Unclean => "client disconnected while server was not ready".to_owned(),
        ServerCloseReason::Ordered => "admin forced disconnect".to_owned(),
        ServerCloseReason::Lost(_) | ServerCloseReason::Broken(_) | ServerCloseReason::Failed => {
            closing.to_string()
        }
    }
}

fn who(client: &RelayClient) -> String {
    let from = address(client.conn.socket.peer());
    match &client.phase {
        ClientPhase::Session(session) => {
            format!("{}/{}@{from}", session.route.tenant.name, session.route.user.name)
        }
        ClientPhase::Greeting(greeting) => {
            format!("{}/{}@{from}", greeting.route.tenant.name, greeting.route.user.name)
        }
        ClientPhase::Console(console_client) => {
            format!("{DATABASE}/{}@{from}", console_client.user)
        }
        ClientPhase::Login(_) | ClientPhase::Passed(_) | ClientPhase::Closing => {
            format!("(nodb)/(nouser)@{from}")
        }
    }
}

fn whose(server: &RelayServer) -> String {
    let at = address(server.conn.socket.peer());
    format!("{}/{}@{at}", server.tenant.name, server.user)
}
