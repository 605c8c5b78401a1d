//! Shares of a resource that all callers need: none of them takes all of it, and unused capacity is
//! available to new callers.
//!
//! A caller may have at most a multiple of the free part. A single caller gets the greater part;
//! the more callers there are, the less each has, and something is always left for the next one.
//! This is the dynamic threshold of shared buffers (A. Choudhury and E. Hahne, "Dynamic queue
//! length thresholds for shared-memory packet switches", 1998).
//!
//! No caller waits here, so there are no turns to take ([`pool::RoundRobin`]).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Owner of a share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ShareOwner {
    /// Callers with a token of this tenant.
    Tenant(Arc<str>),
    /// Callers without a token, or with one that the shell does not know, by address.
    Address(Option<IpAddr>),
}

/// Shares of callers in a countable resource.
#[derive(Debug)]
pub struct Shares {
    /// Multiple of the free part that a caller may have.
    weight: usize,
    state: Mutex<ShareTable>,
}

#[derive(Debug)]
struct ShareTable {
    free: usize,
    held: HashMap<ShareOwner, usize>,
}

/// A part of the resource, which is free again when this is dropped.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    caller: ShareOwner,
    units: usize,
}

/// Reason to refuse a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareRefusal {
    /// No caller can get more.
    Exhausted,
    /// The caller has its present maximum.
    Exceeded,
}

impl Shares {
    /// Creates shares of `units` units, of which a caller may have at most `weight` times the free
    /// part.
    pub fn new(units: usize, weight: usize) -> Arc<Shares> {
        let state = Mutex::new(ShareTable { free: units, held: HashMap::new() });
        Arc::new(Shares { weight, state })
    }

    /// Gives a caller `units` units. While it has no other share, only the free part bounds it.
    ///
    /// # Errors
    /// If too little is left, or the caller would have more than its part of what is free.
    pub fn take(self: &Arc<Self>, caller: ShareOwner, units: usize) -> Result<Share, ShareRefusal> {
        let mut share = Share::none(self, caller);
        share.grow_to(units)?;
        Ok(share)
    }
}

impl Share {
    /// Creates an empty share.
    pub(super) fn none(shares: &Arc<Shares>, caller: ShareOwner) -> Share {
        Share { shares: Arc::clone(shares), caller, units: 0 }
    }

    /// Grows the share to `units`, unless it is as large already.
    pub(super) fn grow_to(&mut self, units: usize) -> Result<(), ShareRefusal> {
        let Some(more) = units.checked_sub(self.units).filter(|more| *more > 0) else {
            return Ok(());
        };
        let ShareTable { free, held } = &mut *self.shares.state.lock();
        let left = free.checked_sub(more).ok_or(ShareRefusal::Exhausted)?;
        let has = held.get(&self.caller).copied().unwrap_or(0);
        let is_only = has == self.units;
        if !is_only && has.saturating_add(more) > free.saturating_mul(self.shares.weight) {
            return Err(ShareRefusal::Exceeded);
        }
        *free = left;
        held.insert(self.caller.clone(), has + more);
        self.units = units;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let ShareTable { free, held } = &mut *self.shares.state.lock();
        *free += self.units;
        if let Some(has) = held.get_mut(&self.caller) {
            *has -= self.units;
            if *has == 0 {
                held.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> ShareOwner {
        ShareOwner::Tenant(name.into())
    }

    /// Takes single units until one is refused.
    fn take_all(shares: &Arc<Shares>, name: &str) -> Vec<Share> {
        std::iter::from_fn(|| shares.take(tenant(name), 1).ok()).collect()
    }

    #[test]
    fn callers_leave_something_to_the_next_one() {
        for (weight, expected) in [(1, [50, 25, 13, 6]), (3, [75, 19, 5, 1])] {
            let shares = Shares::new(100, weight);
            let all: Vec<_> = ["a", "b", "c", "d"].map(|name| take_all(&shares, name)).into();
            let counts: Vec<_> = all.iter().map(Vec::len).collect();
            assert_eq!(counts, expected, "{weight}");
            drop(all);
            let state = shares.state.lock();
            assert_eq!((state.free, state.held.len()), (100, 0));
        }
    }

    #[test]
    fn a_caller_gives_back_what_it_had() {
        let shares = Shares::new(8, 1);
        let take = |name, expected: usize| {
            let taken = take_all(&shares, name);
            assert_eq!(taken.len(), expected, "{name}");
            taken
        };
        let first = take("first", 4);
        let second = take("second", 2);
        assert_eq!(shares.take(tenant("first"), 1).unwrap_err(), ShareRefusal::Exceeded);
        drop(first);
        drop(take("third", 3));
        drop(second);
        drop(take("first", 4));
        let state = shares.state.lock();
        assert_eq!((state.free, state.held.len()), (8, 0));
    }

    #[test]
    fn a_single_request_may_take_all_there_is() {
        let shares = Shares::new(10, 1);
        let mut share = shares.take(tenant("a"), 4).unwrap();
        share.grow_to(10).unwrap();
        assert_eq!(share.grow_to(11), Err(ShareRefusal::Exhausted));
        assert_eq!(shares.take(tenant("a"), 1).unwrap_err(), ShareRefusal::Exhausted);
        drop(share);
        let first = shares.take(tenant("a"), 4).unwrap();
        assert_eq!(shares.take(tenant("a"), 4).unwrap_err(), ShareRefusal::Exceeded);
        shares.take(tenant("b"), 6).unwrap();
        drop(first);
    }
}
