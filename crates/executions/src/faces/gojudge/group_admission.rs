//! Admission of requests with several programs.
//!
//! Such a request needs a place for each program before any of them runs. Two that each had half of
//! theirs would wait for each other for ever, so one group acquires its places at a time. Of one
//! tenant only the first group waits among those of all, so that a tenant that sends many delays
//! its own.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::run::RunError;

/// Groups of programs that acquire places or wait for that.
const GROUPS_MAX: usize = 256;
/// Maximum of groups per tenant.
const GROUPS_MAX_PER_TENANT: usize = 64;

/// Admits one group at a time, and tenants in rotation.
#[derive(Debug)]
pub(super) struct GroupAdmission {
    running: Semaphore,
    groups: Mutex<GroupQueue>,
}

#[derive(Debug, Default)]
struct GroupQueue {
    count: usize,
    /// Tenants with groups; no entry for others.
    per_tenant: HashMap<Arc<str>, TenantGroups>,
}

#[derive(Debug)]
struct TenantGroups {
    count: usize,
    /// Held by the group of this tenant that waits among those of all.
    running: Arc<Semaphore>,
}

/// The right to acquire places for a group, until it is dropped.
#[derive(Debug)]
pub(super) struct GroupPermit<'a> {
    // In this order: the next group of this tenant goes to the end of the queue of all.
    _all: SemaphorePermit<'a>,
    _own: OwnedSemaphorePermit,
    _group: WaitingGroup<'a>,
}

impl GroupAdmission {
    pub(super) fn new() -> GroupAdmission {
        GroupAdmission { running: Semaphore::new(1), groups: Mutex::default() }
    }

    /// Waits for the right to acquire the places of a group. Cancel-safe.
    pub(super) async fn acquire(&self, tenant: &str) -> Result<GroupPermit<'_>, RunError> {
        let (group, own) = self.enter(tenant)?;
        let own = own.acquire_owned().await.map_err(|_| RunError::Internal)?;
        let all = self.running.acquire().await.map_err(|_| RunError::Internal)?;
        Ok(GroupPermit { _all: all, _own: own, _group: group })
    }

    fn enter(&self, tenant: &str) -> Result<(WaitingGroup<'_>, Arc<Semaphore>), RunError> {
        let full = |what: String| RunError::Full(format!("worker queue is full: {what}"));
        let mut groups = self.groups.lock();
        if groups.count >= GROUPS_MAX {
            return Err(full(format!("{GROUPS_MAX} groups are waiting")));
        }
        let (name, own) = match groups.per_tenant.get_key_value(tenant) {
            Some((_, own)) if own.count >= GROUPS_MAX_PER_TENANT => {
                return Err(full(format!("{GROUPS_MAX_PER_TENANT} groups of this token")));
            }
            Some((name, own)) => (Arc::clone(name), Arc::clone(&own.running)),
            None => (tenant.into(), Arc::new(Semaphore::new(1))),
        };
        groups.count += 1;
        let new = || TenantGroups { count: 0, running: Arc::clone(&own) };
        groups.per_tenant.entry(Arc::clone(&name)).or_insert_with(new).count += 1;
        Ok((WaitingGroup { admission: self, tenant: name }, own))
    }
}

/// A group that acquires places or waits for that.
#[derive(Debug)]
struct WaitingGroup<'a> {
    admission: &'a GroupAdmission,
    tenant: Arc<str>,
}

impl Drop for WaitingGroup<'_> {
    fn drop(&mut self) {
        let mut groups = self.admission.groups.lock();
        groups.count = groups.count.saturating_sub(1);
        if let Some(own) = groups.per_tenant.get_mut(&self.tenant) {
            own.count = own.count.saturating_sub(1);
            if own.count == 0 {
                groups.per_tenant.remove(&self.tenant);
            }
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
        let groups = admission.groups.lock();
        assert_eq!((groups.count, groups.per_tenant.len()), (0, 0));
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
