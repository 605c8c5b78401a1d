//! Guests: sandbox clients, which their listening socket identifies ([`crate::guest`]).

use std::sync::Arc;

use api::{PoolMode, TenantEngine};
use pooler_core::link::{ClientLink, ClientProofRequest, LoginMachine};
use pooler_core::pg::login::{PgLoginRefusal, ReplicationPolicy};
use pooler_core::{mysql, pg};

use super::client::ClientLogin;
use super::common::RelayShared;
use super::login::LoginPhase;
use super::orders::ThreadMessageKind;
use super::server::Parameters;
use crate::guest::client::{LoginPlace, SandboxClient, SandboxClientError};
use crate::guest::turns::Call;
use crate::guest::watch::ConnectionObserver;
use crate::tenants::{TenantRoute, TenantRouting};

/// Origin of a client.
#[derive(Debug)]
pub(super) enum ClientOrigin {
    /// Accepted by the listener of this number.
    Listener(usize),
    /// Guest.
    Guest(Arc<SandboxClient>, LoginPlace),
}

/// Facts about a client before it sends anything.
#[derive(Clone, Debug, Default)]
pub(super) struct ListenerBinding {
    /// The tenant of its listener.
    pub(super) tenant: Option<Arc<str>>,
    /// Guest.
    pub(super) guest: Option<Arc<SandboxClient>>,
    /// Place that it holds until it is logged in.
    pub(super) login_place: Option<LoginPlace>,
}

impl ListenerBinding {
    /// Returns the binding of a client of this origin, and its protocol.
    pub(super) fn of(by: ClientOrigin, common: &RelayShared) -> (TenantEngine, ListenerBinding) {
        match by {
            ClientOrigin::Listener(number) => match common.bound.get(number) {
                Some((engine, tenant)) => (*engine, ListenerBinding::to(tenant.clone())),
                None => (TenantEngine::default(), ListenerBinding::default()),
            },
            ClientOrigin::Guest(guest, place) => {
                let tenant = Some(Arc::clone(&guest.spec().tenant));
                let (engine, login_place) = (guest.spec().engine, Some(place));
                (engine, ListenerBinding { tenant, guest: Some(guest), login_place })
            }
        }
    }

    /// Creates a binding to a tenant.
    pub(super) fn to(tenant: Option<Arc<str>>) -> ListenerBinding {
        ListenerBinding { tenant, ..ListenerBinding::default() }
    }
}

/// Returns whether guests may not use these parameters.
pub(super) fn refuses_parameters(parameters: &Parameters) -> bool {
    let mut pairs = parameters.iter();
    pairs.any(|(name, value)| name == "is_superuser" && value == "on")
}

impl LoginPhase {
    /// Routes a guest to the tenant of its grant, whatever it requests.
    pub(super) fn route_guest(
        &mut self,
        guest: &SandboxClient,
        routing: &TenantRouting,
    ) -> Result<ClientProofRequest, PgLoginRefusal> {
        let route = guest.check_lease().map_err(SandboxClientError::from);
        let route = route
            .and_then(|()| guest.route(routing))
            .map_err(|error| PgLoginRefusal::new(error.sqlstate(), error.to_string()))?;
        let proof = match &self.login {
            LoginMachine::Pg(_) => ClientProofRequest::Pg(pg::login::RouteAuth {
                proof: pg::login::PgProof::Nothing,
                replication: ReplicationPolicy::Refused,
            }),
            LoginMachine::My(_) => ClientProofRequest::My(mysql::login::MysqlProof::Nothing),
        };
        self.set_route(route);
        Ok(proof)
    }
}

impl ClientLogin {
    /// Starts to observe the client, if it is a guest.
    pub(super) fn begin_watch(&mut self, begun_us: u64, now_us: u64) {
        let Some(guest) = &self.bound.guest else { return };
        self.watch = Some(match &self.link {
            ClientLink::Pg(_) => ConnectionObserver::pg(guest, begun_us, now_us),
            ClientLink::My(link) => {
                ConnectionObserver::mysql(guest, link.capabilities, begun_us, now_us)
            }
        });
    }

    /// Returns whether it is a guest in a pool mode without session pooling, so that a server
    /// connection that it holds between two transactions is pinned.
    pub(super) fn is_pinned_guest(&self) -> bool {
        let TenantRoute { tenant, user } = &self.route;
        self.bound.guest.is_some() && tenant.mode_of(user) != PoolMode::Session
    }

    /// Returns whether it may use a server connection now. If not, `SessionRelay::turn_granted`
    /// follows. Only guests wait for one another, and only where connections are returned between
    /// transactions.
    pub(super) fn has_turn(
        &mut self,
        thread: usize,
        place: u32,
        common: &Arc<RelayShared>,
    ) -> bool {
        let Some(guest) = &self.bound.guest else { return true };
        let TenantRoute { tenant, user } = &self.route;
        if self.turn.is_none() && tenant.mode_of(user) != PoolMode::Session {
            let pid = self.pid;
            let call = || -> Call {
                let common = Arc::clone(common);
                Box::new(move |turn| {
                    let Some(peer) = common.peers.get(thread) else { return };
                    peer.inbox.push(ThreadMessageKind::Turn { client: place, pid, turn });
                })
            };
            let connections = tenant.limits.server_connections_max;
            self.turn = guest.turns().take(connections, &tenant.state.crowd, call);
            return self.turn.is_some();
        }
        true
    }
}
