//! Connections of a thread as snapshots show them.

use std::sync::Arc;

use super::client::{ClientPhase, RelayClient, ServerAttachment};
use super::server::{RelayServer, ServerPhase};
use super::snapshot::{ClientState, ClientView, ServerState, ServerView};

/// Maximum characters of an `application_name`: the servers themselves keep 63 bytes.
const APPLICATION_NAME_MAX: usize = 63;

impl RelayClient {
    /// Returns the client's view; `server` is the connection that it holds.
    pub(super) fn view(&self, server: Option<&RelayServer>, now_us: u64) -> ClientView {
        let mut view = ClientView {
            number: self.number,
            pid: 0,
            tenant: None,
            user: None,
            state: ClientState::Login,
            address: self.conn.socket.peer(),
            tls: self.conn.socket.is_tls_to_client(),
            age_us: now_us.saturating_sub(self.begun_us),
            state_us: now_us.saturating_sub(self.since_us),
            server_pid: None,
            pins: Vec::new(),
            in_transaction: false,
            statements: 0,
            statement_us: None,
            application_name: None,
        };
        match &self.phase {
            ClientPhase::Login(_) => {}
            ClientPhase::Console(console_client) => {
                view.pid = console_client.pid;
                view.user = Some(Arc::clone(&console_client.user));
                view.state = ClientState::Console;
            }
            ClientPhase::Greeting(greeting) => {
                let tenant = &greeting.route.tenant;
                view.tenant = Some((tenant.id, Arc::clone(&tenant.name)));
                view.user = Some(Arc::clone(&greeting.route.user.name));
            }
            ClientPhase::Session(session) => {
                let tenant = &session.route.tenant;
                view.pid = session.pid;
                view.tenant = Some((tenant.id, Arc::clone(&tenant.name)));
                view.user = Some(Arc::clone(&session.route.user.name));
                view.in_transaction = session.is_in_transaction();
                view.statements = session.link.statement_count();
                let name = session.link.pg().and_then(|link| link.application_name());
                view.application_name =
                    name.map(|name| name.chars().take(APPLICATION_NAME_MAX).collect());
                let statement_us = now_us.saturating_sub(session.request_us);
                view.state = match session.place {
                    ServerAttachment::Idle => ClientState::Idle,
                    ServerAttachment::Parked | ServerAttachment::Waiting(_) => {
                        view.statement_us = Some(statement_us);
                        ClientState::Waiting
                    }
                    ServerAttachment::Attached(_) => {
                        let is_asked = server.is_some_and(RelayServer::is_in_request);
                        view.statement_us = is_asked.then_some(statement_us);
                        view.server_pid = server.and_then(RelayServer::pid);
                        view.pins = server.map(RelayServer::pins).unwrap_or_default();
                        ClientState::Active
                    }
                };
            }
            // The node that serves it lists it among its clients.
            ClientPhase::Passed(_) | ClientPhase::Closing => view.state = ClientState::Closing,
        }
        view
    }
}

impl RelayServer {
    /// Returns the connection's view; `client_pid` is that of the client that holds it.
    pub(super) fn view(&self, client_pid: Option<u32>, now_us: u64) -> ServerView {
        let state = match &self.phase {
            ServerPhase::Opening(_) => ServerState::Login,
            ServerPhase::Live(_) if self.client.is_some() => ServerState::Active,
            ServerPhase::Live(_) if self.awaits_cancels => ServerState::Cancelling,
            ServerPhase::Live(_) if self.is_resetting => ServerState::Resetting,
            ServerPhase::Live(_) => ServerState::Idle,
        };
        ServerView {
            number: self.number,
            pid: self.pid().unwrap_or(0),
            tenant: (self.tenant.id, Arc::clone(&self.tenant.name)),
            pool: self.slot.pool(),
            user: Arc::clone(&self.user),
            state,
            address: self.conn.socket.peer(),
            tls: self.conn.socket.is_tls(),
            age_us: now_us.saturating_sub(self.begun_us),
            state_us: now_us.saturating_sub(self.since_us),
            client_pid,
        }
    }
}
