//! Time until which a node may act for the sessions that it owns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time;

use crate::clock;

/// Time before the end of its lease from which a node no longer acts: messages sent then would
/// still be in flight when another node may take over.
pub const LEASE_MARGIN: Duration = Duration::from_millis(250);

/// Longest sleep towards the end of a lease: timers stop while a machine is suspended.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// Right of a node to act for its sessions, their grants and their connections to databases.
///
/// The node has this right until its lease in the store ends. The lease counts from *before* a
/// renewal was sent, and by a clock that continues while the machine is suspended, so it ends here
/// before it ends in the store, however long the answer took. Components that act for a sandbox, or
/// let it act, check [`ServingLease::holds`] for each request and each forwarded piece.
///
/// A lease that had ended when it was renewed has *lapsed*: other nodes may have taken over the
/// node's sessions. It does not hold again until the verifier has compared these with the store
/// ([`ServingLease::verify`]).
///
/// Cheap to clone; clones share their state.
#[derive(Clone, Debug)]
pub struct ServingLease(Arc<ServingLeaseState>);

#[derive(Debug)]
struct ServingLeaseState {
    /// Milliseconds that it holds after a renewal; none for an unlimited lease.
    length_ms: Option<u64>,
    /// End of the lease, by [`clock::boot_ms`].
    until_ms: AtomicU64,
    /// Number of lapses, and number of the last lapse after which everything was compared.
    lapses: AtomicU64,
    verified: AtomicU64,
    /// True if there is a verifier.
    is_verified: AtomicBool,
    /// Counts changes, for waiting tasks.
    changes: watch::Sender<u64>,
}

/// Handle of the verifier, which compares a node's sessions with the store after each lapse.
#[derive(Debug)]
pub struct LeaseVerifier {
    lease: ServingLease,
    changes: watch::Receiver<u64>,
}

impl ServingLease {
    /// Creates the lease of a node whose store is not shared: no node can take over from it.
    #[must_use]
    pub fn unlimited() -> ServingLease {
        ServingLease::new(None, u64::MAX)
    }

    /// Creates the lease of a node whose row counts as alive for `lease`. It has ended until it is
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

    /// Returns whether no node can take over from this one.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.0.length_ms.is_none()
    }

    /// Applies a renewal that the store has confirmed, and that was sent at `sent_ms` by
    /// [`clock::boot_ms`].
    pub fn renewed(&self, sent_ms: u64) {
        self.renewed_at(sent_ms, clock::boot_ms());
    }

    /// Applies a renewal whose confirmation arrived at `now_ms`.
    pub(super) fn renewed_at(&self, sent_ms: u64, now_ms: u64) {
        let Some(length_ms) = self.0.length_ms else { return };
        let before_ms = self.0.until_ms.load(Ordering::Acquire);
        let until_ms = sent_ms.saturating_add(length_ms);
        // Counted first, so that a reader of the new end also sees the lapse.
        if before_ms != 0 && until_ms > before_ms && before_ms <= now_ms {
            self.lapse();
        }
        // Answers may overtake each other.
        self.0.until_ms.fetch_max(until_ms, Ordering::AcqRel);
        self.tell();
    }

    /// Records that other nodes saw this node as lost, and may have taken over its sessions.
    pub fn lapse(&self) {
        let lapses = self.0.lapses.fetch_add(1, Ordering::AcqRel) + 1;
        if !self.0.is_verified.load(Ordering::Acquire) {
            self.0.verified.fetch_max(lapses, Ordering::AcqRel);
        }
        self.tell();
    }

    /// Registers the caller as the verifier, which compares this node's sessions with the store
    /// after each lapse.
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

    /// Returns how long the node may act without a renewal; [`Duration::MAX`] for an unlimited
    /// lease.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.remaining_at(clock::boot_ms())
    }

    /// Returns how long the node may act from `now_ms` on.
    pub(super) fn remaining_at(&self, now_ms: u64) -> Duration {
        match self.0.until_ms.load(Ordering::Acquire) {
            u64::MAX => Duration::MAX,
            _ if self.0.verified.load(Ordering::Acquire) != self.lapses() => Duration::ZERO,
            until_ms => Duration::from_millis(until_ms.saturating_sub(now_ms)),
        }
    }

    /// Returns the number of lapses: work begun before the last one may be another node's.
    #[must_use]
    pub fn lapses(&self) -> u64 {
        self.0.lapses.load(Ordering::Acquire)
    }

    /// Resolves when the lease does not hold.
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

    /// Resolves when the lease holds.
    pub async fn held(&self) {
        let mut changes = self.0.changes.subscribe();
        loop {
            changes.mark_unchanged();
            if self.holds() {
                return;
            }
            // The sender lives in this lease.
            drop(changes.changed().await);
        }
    }

    fn tell(&self) {
        self.0.changes.send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl LeaseVerifier {
    /// Resolves when there was a lapse without a comparison after it, with the number of the lapse.
    pub async fn lapsed(&mut self) -> u64 {
        loop {
            self.changes.mark_unchanged();
            if let Some(lapse) = self.unverified() {
                return lapse;
            }
            // The sender lives in the lease.
            drop(self.changes.changed().await);
        }
    }

    /// Returns the number of the latest lapse, if no comparison followed it yet.
    pub(super) fn unverified(&self) -> Option<u64> {
        let lapses = self.lease.lapses();
        (self.lease.0.verified.load(Ordering::Acquire) < lapses).then_some(lapses)
    }

    /// Records that everything present at a lapse was compared: the rest belongs to this node.
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
        // An answer that took longer than the lease grants no right.
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

    /// A late renewal requires a comparison before the node acts again.
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
        // A second lapse, during the comparison for the first.
        lease.lapse();
        verifier.verified(lapse);
        assert!(!lease.holds());
        assert_eq!(verifier.lapsed().await, 2);
        verifier.verified(2);
        lease.held().await;
        // A renewal in time is no lapse.
        lease.renewed(now_ms + 1);
        assert!(lease.holds() && lease.lapses() == 2);
    }
}
