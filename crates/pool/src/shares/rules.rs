//! Rules of fairness, apart from the ledger: entitlements, and which tenant gives a slot to which.

use std::time::Duration;

use super::ledger::TenantQuota;

/// Busy time, in microseconds, by which a tenant must be ahead of another before a slot moves
/// between two that have about their share. Moving a slot costs a login, so it must not happen at
/// every turn.
pub const ROTATE_BUSY_US: u64 = 50_000;

/// Time that one user of a tenant waits before another user of the same tenant with equally few
/// connections closes one.
pub const SIBLING_PATIENCE: Duration = Duration::from_millis(20);

/// Virtual time of one microsecond at weight 1; so large that no weight rounds it to zero.
const VIRTUAL_US: u128 = 1 << 32;

/// Loads are kept as integers: slots by weight, times this.
const LOAD_UNIT: u64 = 1 << 16;

/// A tenant's position relative to the others of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TenantStanding {
    /// Slots it holds.
    pub(super) held: u32,
    /// Slots it is entitled to.
    pub(super) entitled: u32,
    /// At least 1.
    pub(super) weight: u32,
    /// True if it was active lately.
    pub(super) active: bool,
    /// Virtual time of the tenant.
    pub(super) time: u128,
}

impl TenantStanding {
    /// Slots by weight.
    pub(super) fn load(&self) -> u64 {
        u64::from(self.held) * LOAD_UNIT / u64::from(self.weight)
    }
}

/// Returns a tenant's part of a server's slots by weight, at least one; only its minimum while it
/// is not active.
pub(super) fn entitlement(
    connections_max: u32,
    active_weight: u64,
    limits: &TenantQuota,
    active: bool,
) -> u32 {
    if !active {
        return limits.connections_min;
    }
    let part = u64::from(connections_max) * u64::from(limits.weight.max(1)) / active_weight.max(1);
    let part = u32::try_from(part).unwrap_or(u32::MAX).max(1);
    part.min(limits.connections_max).max(limits.connections_min)
}

/// Returns the virtual time that busy time adds to a tenant.
pub(super) fn virtual_time(busy_us: u64, weight: u32) -> u128 {
    u128::from(busy_us) * VIRTUAL_US / u128::from(weight.max(1))
}

/// Returns whether `holder` closes an idle connection so that `to`, which waits, gets its slot.
///
/// After each of the first three cases the same rule does not give the slot back, and after the
/// last one only when the other tenant has been busy for long; so slots do not bounce.
pub(super) fn gives(holder: &TenantStanding, to: &TenantStanding) -> bool {
    let over = holder.held > holder.entitled;
    let under = to.held < to.entitled;
    if over && (under || !holder.active) {
        return true;
    }
    // By weight the holder has at least as much, even after it gave one.
    let weighed = |held: u32, weight: u32| u64::from(held) * u64::from(weight);
    if over && weighed(holder.held - 1, to.weight) >= weighed(to.held + 1, holder.weight) {
        return true;
    }
    // Shares are less than one slot, or do not divide: take turns by busy time.
    if !over && !under {
        return false;
    }
    let turn = virtual_time(ROTATE_BUSY_US, holder.weight);
    weighed(holder.held, to.weight) > weighed(to.held, holder.weight)
        && holder.time > to.time.saturating_add(turn)
}

/// Compares two users of one tenant, who share by count and by waiting time.
pub(super) fn sibling_gives(holder_held: u32, held: u32, waited: Duration) -> bool {
    holder_held > held.saturating_add(1) || waited >= SIBLING_PATIENCE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing((held, entitled, weight): (u32, u32, u32), busy_ms: u64) -> TenantStanding {
        let time = virtual_time(busy_ms * 1_000, weight);
        TenantStanding { held, entitled, weight, active: entitled > 0, time }
    }

    #[test]
    fn entitlements_are_parts_by_weight_of_those_that_are_active() {
        let limits = |connections_max, connections_min, weight| TenantQuota {
            connections_max,
            connections_min,
            weight,
            ..TenantQuota::default()
        };
        for (slots, active_weight, limits, active, expected) in [
            (20, 2, limits(20, 0, 1), true, 10),
            (20, 1, limits(20, 0, 1), true, 20),
            (20, 1, limits(5, 0, 1), true, 5),
            (20, 8, limits(20, 0, 5), true, 12),
            (4, 100, limits(20, 0, 1), true, 1), // every tenant is entitled to one
            (4, 100, limits(20, 3, 1), true, 3),
            (20, 2, limits(20, 0, 1), false, 0),
            (20, 2, limits(20, 2, 1), false, 2),
            (20, 2, limits(20, 0, 0), true, 10), // a weight of 0 is 1
            (0, 0, limits(20, 0, 1), true, 1),
        ] {
            let found = entitlement(slots, active_weight, &limits, active);
            assert_eq!(found, expected, "{slots} {active_weight} {limits:?} {active}");
        }
    }

    #[test]
    fn slots_go_from_those_who_have_too_much() {
        // (held, entitled, weight) and busy milliseconds of the holder and of the waiting tenant.
        for (holder, holder_ms, to, to_ms, expected) in [
            ((20, 10, 1), 0, (0, 10, 1), 0, true),
            ((11, 10, 1), 0, (9, 10, 1), 500, true), // entitled, regardless of its usage
            ((10, 10, 1), 9_000, (9, 10, 1), 0, true), // the holder used far more: takes turns
            ((10, 10, 1), 0, (9, 10, 1), 0, false),
            ((10, 10, 1), 9_000, (10, 10, 1), 0, false), // both have their share
            ((9, 10, 1), 9_000, (11, 10, 1), 0, false),  // never below its share for surplus
            ((12, 5, 1), 0, (10, 5, 1), 0, true),        // surplus is levelled
            ((11, 5, 1), 0, (10, 5, 1), 0, false),       // and then stays
            ((2, 1, 1), 100, (1, 1, 1), 0, true),        // the extra slot rotates
            ((2, 1, 1), 40, (1, 1, 1), 0, false),
            ((1, 1, 1), 100, (0, 1, 1), 0, true), // more tenants than slots
            ((1, 1, 1), 100, (0, 1, 1), 90, false),
            ((1, 0, 1), 0, (7, 3, 1), 0, true), // the holder is inactive
            ((6, 6, 4), 0, (2, 2, 1), 0, false),
        ] {
            let found = gives(&standing(holder, holder_ms), &standing(to, to_ms));
            assert_eq!(found, expected, "{holder:?} {holder_ms} ms, {to:?} {to_ms} ms");
        }
    }

    #[test]
    fn a_slot_that_was_given_is_not_given_back_at_once() {
        for seed in 0..200_000_u32 {
            let part = |shift: u32, below: u32| (seed.wrapping_mul(2_654_435_761) >> shift) % below;
            let holder = standing((1 + part(3, 12), 1 + part(7, 12), 1 + part(11, 4)), 0);
            let to = standing((part(15, 12), 1 + part(19, 12), 1 + part(23, 4)), 0);
            if gives(&holder, &to) {
                let holder = TenantStanding { held: holder.held - 1, ..holder };
                let to = TenantStanding { held: to.held + 1, ..to };
                assert!(!gives(&to, &holder), "{to:?} back to {holder:?}");
            }
        }
    }
}
