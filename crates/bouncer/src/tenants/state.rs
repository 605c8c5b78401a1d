//! State that a tenant keeps across changes of its definition, and state that must be visible at
//! once.
//!
//! Written by the service, read by every relay thread. The values are independent of each other, so
//! relaxed atomics suffice; threads that must act on a change also receive an order.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use parking_lot::Mutex;

use super::PoolId;
use crate::guest::turns::Crowd;

/// Maximum roles of one tenant that have or had a pool.
pub const POOLS_PER_TENANT_MAX: usize = 10_000;

/// Admission of work to a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WorkAdmission {
    /// Clients are served.
    Open,
    /// Clients may connect, and wait before their next transaction.
    Paused,
    /// Clients are refused; connected ones at their next transaction.
    Refusing,
    /// Clients are refused; connected ones leave after their transaction.
    Draining,
}

impl WorkAdmission {
    /// Converts a stored number.
    pub(crate) fn of_number(number: u8) -> WorkAdmission {
        match number {
            1 => WorkAdmission::Paused,
            2 => WorkAdmission::Refusing,
            3 => WorkAdmission::Draining,
            _ => WorkAdmission::Open,
        }
    }
}

/// Health of a tenant's server, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ServerHealth {
    /// Not checked yet.
    Unknown,
    /// The server answers.
    Healthy,
    /// As many checks as tolerated failed without an answer.
    Unhealthy,
    /// The server answers, but refused the login in as many checks as tolerated. Clients are routed
    /// to it all the same, because other roles may be accepted, and the others see the server's
    /// reason.
    Refusing,
}

impl ServerHealth {
    /// Returns whether as many checks as tolerated failed.
    pub fn is_bad(self) -> bool {
        matches!(self, ServerHealth::Unhealthy | ServerHealth::Refusing)
    }
}

/// State that a tenant keeps across changes of its definition.
#[derive(Debug)]
pub struct TenantState {
    admission: AtomicU8,
    health: AtomicU8,
    is_removed: AtomicBool,
    /// Incremented when server connections become unfit: by another server, another password, an
    /// order.
    epoch: AtomicU32,
    /// Incremented when the definition changes: earlier answers of the server do not apply to the
    /// new one.
    revision: AtomicU32,
    /// Pools by role. Read when a client has logged in.
    pools: Mutex<HashMap<Box<str>, PoolId>>,
    /// Next pool id, of all tenants.
    pool_ids: Arc<AtomicU32>,
    /// Guests that use its server connections.
    pub(crate) crowd: Crowd,
}

impl TenantState {
    /// Creates the state of a new tenant. All tenants of a process share `pool_ids`.
    pub(super) fn new(pool_ids: Arc<AtomicU32>) -> TenantState {
        TenantState {
            admission: AtomicU8::new(WorkAdmission::Open as u8),
            health: AtomicU8::new(ServerHealth::Unknown as u8),
            is_removed: AtomicBool::new(false),
            epoch: AtomicU32::new(0),
            revision: AtomicU32::new(0),
            pools: Mutex::default(),
            pool_ids,
            crowd: Crowd::default(),
        }
    }

    /// Returns the admission.
    pub fn admission(&self) -> WorkAdmission {
        WorkAdmission::of_number(self.admission.load(Ordering::Relaxed))
    }

    /// Changes the admission. Returns the former one.
    pub fn set_admission(&self, admission: WorkAdmission) -> WorkAdmission {
        let before = self.admission();
        self.admission.store(admission as u8, Ordering::Relaxed);
        before
    }

    /// Returns the health of its server.
    pub fn health(&self) -> ServerHealth {
        match self.health.load(Ordering::Relaxed) {
            1 => ServerHealth::Healthy,
            2 => ServerHealth::Unhealthy,
            3 => ServerHealth::Refusing,
            _ => ServerHealth::Unknown,
        }
    }

    /// Changes the health.
    pub fn set_health(&self, health: ServerHealth) {
        self.health.store(health as u8, Ordering::Relaxed);
    }

    /// Returns whether the tenant was removed.
    pub fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }

    pub(super) fn set_removed(&self, is_removed: bool) {
        self.is_removed.store(is_removed, Ordering::Relaxed);
    }

    /// Returns the epoch: a server connection from another epoch is closed when it is returned.
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Makes all open server connections unfit.
    pub fn next_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the revision: failures to reach the server under another revision are forgotten.
    pub fn revision(&self) -> u32 {
        self.revision.load(Ordering::Relaxed)
    }

    /// Starts a new revision: the tenant has another server, or logs in differently.
    pub(super) fn next_revision(&self) {
        self.revision.fetch_add(1, Ordering::Relaxed);
        self.set_health(ServerHealth::Unknown);
    }

    /// Returns the pool of a role. Must not be called before the client is authenticated, so that
    /// no pools are created for guessed names. `None` if there are [too
    /// many](POOLS_PER_TENANT_MAX).
    pub fn pool(&self, server_user: &str) -> Option<PoolId> {
        let mut pools = self.pools.lock();
        if let Some(id) = pools.get(server_user) {
            return Some(*id);
        }
        if pools.len() >= POOLS_PER_TENANT_MAX {
            return None;
        }
        let id = PoolId(self.pool_ids.fetch_add(1, Ordering::Relaxed));
        pools.insert(server_user.into(), id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_what_is_read() {
        let state = TenantState::new(Arc::default());
        assert_eq!(
            (state.admission(), state.health()),
            (WorkAdmission::Open, ServerHealth::Unknown)
        );
        for admission in [
            WorkAdmission::Paused,
            WorkAdmission::Refusing,
            WorkAdmission::Draining,
            WorkAdmission::Open,
        ] {
            state.set_admission(admission);
            assert_eq!(state.admission(), admission);
        }
        let all = [
            ServerHealth::Healthy,
            ServerHealth::Unhealthy,
            ServerHealth::Refusing,
            ServerHealth::Unknown,
        ];
        for health in all {
            state.set_health(health);
            assert_eq!(state.health(), health);
        }
    }

    #[test]
    fn a_role_has_one_pool_and_there_are_not_too_many() {
        let state = TenantState::new(Arc::new(AtomicU32::new(7)));
        assert_eq!(state.pool("a"), Some(PoolId(7)));
        assert_eq!(state.pool("b"), Some(PoolId(8)));
        assert_eq!(state.pool("a"), Some(PoolId(7)));
        for role in 2..POOLS_PER_TENANT_MAX {
            assert!(state.pool(&format!("role {role}")).is_some());
        }
        assert_eq!(state.pool("one too many"), None);
        assert_eq!(state.pool("b"), Some(PoolId(8)));
    }
}
