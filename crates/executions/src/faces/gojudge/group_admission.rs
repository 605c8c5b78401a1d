//! Turns of requests that gather several places.
//!
//! A request with several programs needs a place for each before any of them runs. Two that each
//! had half of theirs would wait for each other for ever, so one gathers at a time. Tenants take
//! turns: of one tenant only the first request is in the line of all, so that whoever sends many
//! holds up its own.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::run::RunError;

/// Groups of programs that gather places or wait for their turn to.
const GROUPS_MAX: usize = 256;
/// Maximum of groups per tenant.
const GROUPS_MAX_PER_TENANT: usize = 64;

/// Hands out the turn.
#[derive(Debug)]
pub(super) struct SlotGathering {
    turn: Semaphore,
    groups: Mutex<GroupQueue>,
}

#[derive(Debug, Default)]
struct GroupQueue {
    count: usize,
    /// No entry for who has none.
    per_tenant: HashMap<Arc<str>, GatheringTenant>,
}

#[derive(Debug)]
struct GatheringTenant {
    count: usize,
    /// Held by its group that is in the line of all.
    turn: Arc<Semaphore>,
}

/// The right to gather, until it is dropped.
#[derive(Debug)]
pub(super) struct GatherPermit<'a> {
    // In this order: who is next of this tenant goes to the end of the line of all.
    _all: SemaphorePermit<'a>,
    _own: OwnedSemaphorePermit,
    _group: WaitingGroup<'a>,
}

impl SlotGathering {
    pub(super) fn new() -> SlotGathering {
        SlotGathering { turn: Semaphore::new(1), groups: Mutex::default() }
    }

    /// Waits for the turn. Cancel-safe.
    pub(super) async fn turn(&self, tenant: &str) -> Result<GatherPermit<'_>, RunError> {
        let (group, own) = self.enter(tenant)?;
        let own = own.acquire_owned().await.map_err(|_| RunError::Internal)?;
        let all = self.turn.acquire().await.map_err(|_| RunError::Internal)?;
        Ok(GatherPermit { _all: all, _own: own, _group: group })
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
            Some((name, own)) => (Arc::clone(name), Arc::clone(&own.turn)),
            None => (tenant.into(), Arc::new(Semaphore::new(1))),
        };
        groups.count += 1;
        let new = || GatheringTenant { count: 0, turn: Arc::clone(&own) };
        groups.per_tenant.entry(Arc::clone(&name)).or_insert_with(new).count += 1;
        Ok((WaitingGroup { gathering: self, tenant: name }, own))
    }
}

/// Group that gathers places or waits to.
#[derive(Debug)]
struct WaitingGroup<'a> {
    gathering: &'a SlotGathering,
    tenant: Arc<str>,
}

impl Drop for WaitingGroup<'_> {
    fn drop(&mut self) {
        let mut groups = self.gathering.groups.lock();
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
        let gathering = SlotGathering::new();
        let first = gathering.turn("a").await.unwrap();
        let mut second = Box::pin(gathering.turn("a"));
        let mut third = Box::pin(gathering.turn("a"));
        let mut other = Box::pin(gathering.turn("b"));
        for waiting in [&mut second, &mut third, &mut other] {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        drop(first);
        assert!(second.as_mut().now_or_never().is_none(), "its tenant has just had its turn");
        let turn = other.as_mut().now_or_never().unwrap().unwrap();
        assert!(third.as_mut().now_or_never().is_none());
        drop(turn);
        drop(second.as_mut().now_or_never().unwrap().unwrap());
        drop(third.as_mut().now_or_never().unwrap().unwrap());
        drop((second, third, other));
        let groups = gathering.groups.lock();
        assert_eq!((groups.count, groups.per_tenant.len()), (0, 0));
    }

    #[tokio::test]
    async fn neither_one_tenant_nor_all_wait_without_end() {
        let gathering = SlotGathering::new();
        let full = |tenant: &str| match gathering.enter(tenant) {
            Err(RunError::Full(message)) => Some(message),
            Err(error) => panic!("{error}"),
            Ok(_) => None,
        };
        let mut kept = Vec::new();
        for tenant in 0..GROUPS_MAX / GROUPS_MAX_PER_TENANT {
            let tenant = format!("t{tenant}");
            for _ in 0..GROUPS_MAX_PER_TENANT {
                kept.push(gathering.enter(&tenant).unwrap());
            }
            assert!(full(&tenant).is_some());
        }
        assert!(full("another").unwrap().contains("256 groups are waiting"));
        kept.pop();
        assert_eq!(full("another"), None);
        assert!(full("t0").unwrap().contains("64 groups of this token"));
    }
}
