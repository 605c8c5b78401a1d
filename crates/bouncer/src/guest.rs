//! Guests: unauthenticated sandbox clients; the listening socket identifies them.
//!
//! The service that listens inside sandboxes accepts their connections and passes them here with a
//! [`GuestSpec`], which specifies their access: a tenant, a role there, read-only or not, limits.
//! They are clients of their tenant like all others, with its pools and limits; in addition they
//! are counted and limited per grant, everything that they do is reported to a
//! [`SandboxObserver`], and their access can be revoked ([`SandboxListener`]).

pub(crate) mod client;
mod former;
pub(crate) mod turns;
pub(crate) mod watch;

/// Entry of the fuzz target for observed connections.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use std::sync::Arc;

    use wire::mysql::capabilities::CapabilityFlags;

    use super::watch::{ConnectionObserver, ReplyAction};
    use super::{GuestSpec, SandboxClient};

    /// Observes a connection on which `asked` and `answered` pass in parts of `cut` bytes. Returns
    /// how many bytes of the answer the client gets.
    pub fn watch(spec: GuestSpec, asked: &[u8], answered: &[u8], cut: usize) -> usize {
        let is_mysql = spec.engine == api::TenantEngine::Mysql;
        let guest = Arc::new(SandboxClient::new(1, spec));
        let mut watch = match is_mysql {
            true => ConnectionObserver::mysql(&guest, CapabilityFlags::PROTOCOL_41, 0, 0),
            false => ConnectionObserver::pg(&guest, 0, 0),
        };
        asked.chunks(cut).for_each(|part| watch.sent(part, 10));
        let mut passed = 0;
        for part in answered.chunks(cut) {
            let mut part = part.to_vec();
            let seen = watch.received(&mut part, 20);
            passed += part.len();
            if matches!(seen, ReplyAction::Violation) {
                break;
            }
        }
        passed
    }
}

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::TenantEngine;
/// Fence of a [`GuestSpec`], by the lease of its server.
pub use node::fence::EffectFence;

pub use self::client::{
    GuestSpec, LoginPlace, SandboxAction, SandboxClient, SandboxClientError, SandboxObserver,
    StatementDetail, TEXT_BYTES_MAX,
};
pub(crate) use self::former::{END_FORMER, END_FORMER_PAUSE};
pub use self::former::{END_FORMER_TIME_MAX, FormerStatements};
use crate::relay::orders::ThreadCommand;
use crate::service::{Bouncer, RelayThreads};
use crate::tenants::TenantRouting;

/// Entrance of guests of one kind. When it is dropped, their connections receive an error and are
/// closed.
#[derive(Debug)]
pub struct SandboxListener {
    guest: Arc<SandboxClient>,
    threads: Arc<dyn RelayThreads>,
}

/// Facts about a guest before it connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestFacts {
    /// Database that it gets.
    pub database: Arc<str>,
    /// Role that it has there.
    pub role: Arc<str>,
}

impl SandboxListener {
    /// Admits guests of this kind.
    ///
    /// # Errors
    /// If the access cannot be granted now.
    pub fn open(
        threads: &Arc<dyn RelayThreads>,
        routing: &TenantRouting,
        spec: GuestSpec,
    ) -> Result<SandboxListener, SandboxClientError> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let guest = Arc::new(SandboxClient::new(id, spec));
        guest.route(routing)?;
        Ok(SandboxListener { guest, threads: Arc::clone(threads) })
    }

    /// Takes a connection from which nothing was read.
    ///
    /// [`GuestSpec::clients_max`] bounds the number of logged-in clients. Connections that have not
    /// logged in do not count: the caller that accepts them bounds their number by `place`.
    pub fn admit(&self, stream: TcpStream, place: LoginPlace) {
        self.threads.admit(stream, Arc::clone(&self.guest), place);
    }

    /// Reports that the guest's sandbox is at rest. Its connections that hold a server connection
    /// without using it are closed, whether because a transaction is open or because their session
    /// state cannot be moved.
    pub fn rest(&self) {
        self.threads.order(&|| ThreadCommand::ReleaseIdleOfGuest(self.guest.id));
    }
}

impl Drop for SandboxListener {
    fn drop(&mut self) {
        self.guest.is_revoked.store(true, Ordering::Release);
        self.threads.order(&|| ThreadCommand::RevokeGuest(self.guest.id));
    }
}

impl Bouncer {
    /// Returns the access that a guest would have at present.
    ///
    /// # Errors
    /// If it would have none.
    pub fn guest_facts(
        &self,
        engine: TenantEngine,
        tenant: &str,
        role: Option<&str>,
    ) -> Result<GuestFacts, SandboxClientError> {
        let routing = self.routing();
        let tenant = routing.for_guest(tenant, engine)?;
        let user = tenant.role_of_guest(role)?;
        let (database, role) = (Arc::clone(&tenant.database), Arc::clone(&user.server_user));
        Ok(GuestFacts { database, role })
    }

    /// Admits guests of this kind; see [`SandboxListener::open`].
    ///
    /// # Errors
    /// If the access cannot be granted now.
    pub fn open_door(&self, spec: GuestSpec) -> Result<SandboxListener, SandboxClientError> {
        SandboxListener::open(self.threads(), &self.routing(), spec)
    }
}
