//! Time until which a node may act for the sessions that it owns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time;

use crate::clock;

/// Time before the end of its lease from which a node does not act any more: what it sends then is
/// under way when another one may take over.
pub const LEASE_MARGIN: Duration = Duration::from_millis(250);

/// Longest that the end of a lease is slept towards at a time: timers stand still while a machine
/// is suspended.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// Right of a node to act for what it has: sessions, their grants, their connections to databases.
///
/// A node has it until its lease in the store ends. It counts from *before* a renewal was sent,
/// and by a clock that goes on while the machine is suspended, so it ends here before it ends in
/// the store, however long the answer took. Whoever acts for a sandbox, or lets it act, asks
/// [`ServingLease::holds`] for each request and each forwarded piece.
///
/// A lease that had ended when it was renewed has *lapsed*: others may have taken over what the
/// node has. It does not hold again until whoever keeps that has compared it with the store
/// ([`ServingLease::verify`]).
///
/// Cheap to clone; clones share their state.
#[derive(Clone, Debug)]
pub struct ServingLease(Arc<ServingLeaseState>);

#[derive(Debug)]
struct ServingLeaseState {
    /// Milliseconds that it holds after a renewal; none without an end.
    length_ms: Option<u64>,
    /// When it ends, by [`clock::boot_ms`].
    until_ms: AtomicU64,
    /// Number of lapses, and of those after which everything was compared.
    lapses: AtomicU64,
    verified: AtomicU64,
    /// True if somebody compares.
    is_verified: AtomicBool,
    /// Counts changes, for those who wait.
    changes: watch::Sender<u64>,
}

/// Comparison of what a node has with the store, after each lapse of its lease.
#[derive(Debug)]
pub struct LeaseVerifier {
    lease: ServingLease,
    changes: watch::Receiver<u64>,
}

impl ServingLease {
    /// Makes the lease of a node that has its store for itself: nobody can take over from it.
    #[must_use]
    pub fn unlimited() -> ServingLease {
        ServingLease::new(None, u64::MAX)
    }

    /// Makes the lease of a node whose row counts as alive for `lease`. It has ended until it is
    /// renewed.
    #[must_use]
    pub fn of(lease: Duration) -> ServingLease {
        let length = lease.saturating_sub(LEASE_MARGIN);
        ServingLease::new(Some(u64::try_from(length.as_millis()).unwrap_or(u64::MAX)), 0)
    }

    fn new(length_ms: Option<u64>, until_ms: u64) -> ServingLease {
        ServingLease(Arc::new(ServingLeaseState {
            length_ms,
            until_ms: AtomicU64::new(until_ms),
            lapses: AtomicU64::new(0),
            verified: AtomicU64::new(0),
            is_verified: AtomicBool::new(false),
            changes: watch::Sender::new(0),
        }))
    }

    /// Returns whether nobody can take over from this node.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.0.length_ms.is_none()
    }

    /// Takes a renewal that the store has confirmed, and that was sent at `sent_ms` by
    /// [`clock::boot_ms`].
    pub fn renewed(&self, sent_ms: u64) {
        self.renewed_at(sent_ms, clock::boot_ms());
    }

    /// Takes a renewal whose confirmation arrived at `now_ms`.
    pub(super) fn renewed_at(&self, sent_ms: u64, now_ms: u64) {
        let Some(length_ms) = self.0.length_ms else { return };
        let before_ms = self.0.until_ms.load(Ordering::Acquire);
        let until_ms = sent_ms.saturating_add(length_ms);
        // Counted first: whoever sees the new end sees the lapse, too.
        if before_ms != 0 && until_ms > before_ms && before_ms <= now_ms {
            self.lapse();
        }
        // Answers may overtake each other.
        self.0.until_ms.fetch_max(until_ms, Ordering::AcqRel);
        self.tell();
    }

    /// Notes that others were told that this node is gone, and may have taken over what it has.
    pub fn lapse(&self) {
        let lapses = self.0.lapses.fetch_add(1, Ordering::AcqRel) + 1;
        if !self.0.is_verified.load(Ordering::Acquire) {
            self.0.verified.fetch_max(lapses, Ordering::AcqRel);
        }
        self.tell();
    }

    /// Makes the caller the one that compares what this node has with the store after each lapse.
    #[must_use]
    pub fn verify(&self) -> LeaseVerifier {
        self.0.is_verified.store(true, Ordering::Release);
        LeaseVerifier { lease: self.clone(), changes: self.0.changes.subscribe() }
    }

    /// Returns whether this node may act now.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.remaining() > Duration::ZERO
    }

    /// Returns how long it may act if its lease is not renewed; [`Duration::MAX`] without an end.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.remaining_at(clock::boot_ms())
    }

    /// Returns how long it may act from `now_ms` on.
    pub(super) fn remaining_at(&self, now_ms: u64) -> Duration {
        match self.0.until_ms.load(Ordering::Acquire) {
            u64::MAX => Duration::MAX,
            _ if self.0.verified.load(Ordering::Acquire) != self.lapses() => Duration::ZERO,
            until_ms => Duration::from_millis(until_ms.saturating_sub(now_ms)),
        }
    }

    /// Returns how often it has lapsed: what began before the latest time may be another node's.
    #[must_use]
    pub fn lapses(&self) -> u64 {
        self.0.lapses.load(Ordering::Acquire)
    }

    /// Resolves when it does not hold.
    pub async fn ended(&self) {
        let mut changes = self.0.changes.subscribe();
        loop {
            changes.mark_unchanged();
            match self.remaining() {
                Duration::ZERO => return,
                // It may be renewed meanwhile, or lapse.
                left => drop(time::timeout(left.min(SLEEP_MAX), changes.changed()).await),
            }
        }
    }

    /// Resolves when it holds.
    pub async fn held(&self) {
        let mut changes = self.0.changes.subscribe();
        loop {
            changes.mark_unchanged();
            if self.holds() {
                return;
            }
            // The sender is here.
            drop(changes.changed().await);
        }
    }

    fn tell(&self) {
        self.0.changes.send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl LeaseVerifier {
    /// Resolves when there was a lapse after which nothing was compared yet, with its number.
    pub async fn lapsed(&mut self) -> u64 {
        loop {
            self.changes.mark_unchanged();
            if let Some(lapse) = self.unverified() {
                return lapse;
            }
            // The sender is in the lease.
            drop(self.changes.changed().await);
        }
    }

    /// Returns the number of the latest lapse, if nothing was compared after it yet.
    pub(super) fn unverified(&self) -> Option<u64> {
        let lapses = self.lease.lapses();
        (self.lease.0.verified.load(Ordering::Acquire) < lapses).then_some(lapses)
    }

    /// Notes that everything was compared that there was at a lapse: what is left is this node's.
    pub fn verified(&self, lapse: u64) {
        self.lease.0.verified.fetch_max(lapse, Ordering::AcqRel);
        self.lease.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_from_before_its_renewal_was_sent() {
        let lease = ServingLease::of(Duration::from_secs(30));
        assert!(!lease.holds(), "nobody has renewed it");
        let now_ms = clock::boot_ms();
        lease.renewed(now_ms);
        assert!(lease.holds() && lease.remaining() <= Duration::from_millis(29_750));
        // An answer that took longer than the lease gives no right.
        let late = ServingLease::of(Duration::from_secs(30));
        late.renewed(now_ms.saturating_sub(29_750));
        assert!(!late.holds());
        let other = late.clone();
        other.renewed(now_ms);
        assert!(late.holds() && other.holds(), "clones share it");
        late.renewed(now_ms.saturating_sub(29_750));
        assert!(late.holds(), "an older answer takes nothing away");
    }

    #[test]
    fn a_node_alone_may_always_act() {
        let lease = ServingLease::unlimited();
        lease.renewed(0);
        assert!(lease.holds());
        assert_eq!(lease.remaining(), Duration::MAX);
    }

    /// Whoever comes too late compares what it has before it acts again.
    #[tokio::test]
    async fn a_lease_that_lapsed_holds_when_everything_was_compared() {
        let lease = ServingLease::of(Duration::from_secs(30));
        let mut verifier = lease.verify();
        let now_ms = clock::boot_ms();
        lease.renewed(now_ms.saturating_sub(29_750));
        lease.ended().await;
        assert_eq!(lease.lapses(), 0);
        lease.renewed(now_ms);
        assert!(!lease.holds() && lease.lapses() == 1);
        let lapse = verifier.lapsed().await;
        // Again, while the first one is compared.
        lease.lapse();
        verifier.verified(lapse);
        assert!(!lease.holds());
        assert_eq!(verifier.lapsed().await, 2);
        verifier.verified(2);
        lease.held().await;
        // In time it is no lapse.
        lease.renewed(now_ms + 1);
        assert!(lease.holds() && lease.lapses() == 2);
    }
}
