//! Admission of requests with several programs.
//!
//! Such a request needs a place for each program before any of them runs. Two groups that each had
//! half of their places would deadlock, so one group acquires its places at a time. Only the first
//! group of each tenant competes with those of other tenants, so that a tenant that sends many
//! delays only itself. Semaphores implement this, and they also clean up after a cancelled group.

use std::sync::Arc;

use node::tenant_values::TenantValues;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::run::RunError;

/// Maximum number of groups that acquire places or wait for that.
const GROUPS_MAX: usize = 256;
/// Maximum of groups per tenant.
const GROUPS_MAX_PER_TENANT: usize = 64;

/// Admits one group at a time, and tenants in rotation.
#[derive(Debug)]
pub(super) struct GroupAdmission {
    /// Permits, one for each group that acquires places or waits for that.
    groups: Semaphore,
    /// Held by the group that acquires places.
    running: Semaphore,
    tenants: TenantValues<TenantGroups>,
}

/// Permits of one tenant.
#[derive(Debug)]
struct TenantGroups {
    /// One permit for each of its groups.
    groups: Arc<Semaphore>,
    /// Held by the group of this tenant that competes with those of other tenants.
    running: Arc<Semaphore>,
}

/// The right to acquire places for a group, released on drop.
#[derive(Debug)]
pub(super) struct GroupPermit<'a> {
    // In this order, so that the next group of this tenant goes to the end of the common queue.
    _all: SemaphorePermit<'a>,
    _own: OwnedSemaphorePermit,
    _group: WaitingGroup<'a>,
}

/// A group that acquires places or waits for that.
#[derive(Debug)]
struct WaitingGroup<'a> {
    /// Dropped first: the tenant's entry is kept while a group has one of its permits.
    _permits: (SemaphorePermit<'a>, OwnedSemaphorePermit),
    tenant: Arc<TenantGroups>,
}

impl GroupAdmission {
    pub(super) fn new() -> GroupAdmission {
        GroupAdmission {
            groups: Semaphore::new(GROUPS_MAX),
            running: Semaphore::new(1),
            tenants: TenantValues::default(),
        }
    }

    /// Waits for the right to acquire the places of a group. Cancel-safe.
    pub(super) async fn acquire(&self, tenant: &str) -> Result<GroupPermit<'_>, RunError> {
        let group = self.enter(tenant)?;
        let own = Arc::clone(&group.tenant.running).acquire_owned().await;
        let own = own.map_err(|_| RunError::Internal)?;
        let all = self.running.acquire().await.map_err(|_| RunError::Internal)?;
        Ok(GroupPermit { _all: all, _own: own, _group: group })
    }

    fn enter(&self, tenant: &str) -> Result<WaitingGroup<'_>, RunError> {
        let full = |what: String| RunError::Full(format!("worker queue is full: {what}"));
        let of_all = self.groups.try_acquire();
        let of_all = of_all.map_err(|_| full(format!("{GROUPS_MAX} groups are waiting")))?;
        let tenant = self.tenants.value_of(tenant, TenantGroups::new);
        let own = Arc::clone(&tenant.groups).try_acquire_owned();
        let own = own.map_err(|_| full(format!("{GROUPS_MAX_PER_TENANT} groups of this token")))?;
        Ok(WaitingGroup { tenant, _permits: (of_all, own) })
    }
}

impl TenantGroups {
    fn new() -> TenantGroups {
        TenantGroups {
            groups: Arc::new(Semaphore::new(GROUPS_MAX_PER_TENANT)),
            running: Arc::new(Semaphore::new(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_gathers_at_a_time_and_tenants_take_turns() {
        let admission = GroupAdmission::new();
        let first = admission.acquire("a").await.unwrap();
        let mut second = Box::pin(admission.acquire("a"));
        let mut third = Box::pin(admission.acquire("a"));
        let mut other = Box::pin(admission.acquire("b"));
        for waiting in [&mut second, &mut third, &mut other] {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        drop(first);
        assert!(second.as_mut().now_or_never().is_none(), "its tenant has just had its turn");
        let group = other.as_mut().now_or_never().unwrap().unwrap();
        assert!(third.as_mut().now_or_never().is_none());
        drop(group);
        drop(second.as_mut().now_or_never().unwrap().unwrap());
        drop(third.as_mut().now_or_never().unwrap().unwrap());
        drop((second, third, other));
        let free = [&admission.groups, &admission.running].map(Semaphore::available_permits);
        assert_eq!(free, [GROUPS_MAX, 1]);
        assert!(["a", "b"].iter().all(|tenant| admission.tenants.in_use(tenant).is_none()));
    }

    #[tokio::test]
    async fn neither_one_tenant_nor_all_wait_without_end() {
        let admission = GroupAdmission::new();
        let full = |tenant: &str| match admission.enter(tenant) {
            Err(RunError::Full(message)) => Some(message),
            Err(error) => panic!("{error}"),
            Ok(_) => None,
        };
        let mut kept = Vec::new();
        for tenant in 0..GROUPS_MAX / GROUPS_MAX_PER_TENANT {
            let tenant = format!("t{tenant}");
            for _ in 0..GROUPS_MAX_PER_TENANT {
                kept.push(admission.enter(&tenant).unwrap());
            }
            assert!(full(&tenant).is_some());
        }
        assert!(full("another").unwrap().contains("256 groups are waiting"));
        kept.pop();
        assert_eq!(full("another"), None);
        assert!(full("t0").unwrap().contains("64 groups of this token"));
    }
}
