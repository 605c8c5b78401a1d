//! Bounds the number of jobs of each tenant that one claim may take.
//!
//! A claimed job occupies a worker, even while it waits for its tenant's share of the places to
//! run. Without a bound here, one tenant's jobs would occupy every worker while they wait, and the
//! jobs of other tenants, whose places are free, would not be claimed.
//!
//! Jobs of a tenant whose limit has its homes at other nodes are left to those.

use std::collections::HashMap;

use crate::admission::TenantsElsewhere;

/// Maximum of jobs that a claim may take of each tenant.
#[derive(Clone, Debug)]
pub struct ClaimQuota {
    /// Maximum number of claimed jobs of a tenant.
    in_hand_max: usize,
    /// Number of claimed jobs of each tenant, including new ones.
    in_hand: HashMap<String, usize>,
    /// Tenants whose jobs are left to other nodes.
    elsewhere: Option<TenantsElsewhere>,
}

impl ClaimQuota {
    /// Returns a quota without a bound, for a single tenant.
    #[must_use]
    pub fn unlimited() -> ClaimQuota {
        ClaimQuota::new(usize::MAX, HashMap::new())
    }

    /// Returns a quota of at most `in_hand_max` claimed jobs for each tenant, including those in
    /// `in_hand`.
    #[must_use]
    pub fn new(in_hand_max: usize, in_hand: HashMap<String, usize>) -> ClaimQuota {
        ClaimQuota { in_hand_max, in_hand, elsewhere: None }
    }

    /// Leaves the jobs of some tenants to other nodes.
    pub(crate) fn leaving(self, elsewhere: Option<TenantsElsewhere>) -> ClaimQuota {
        ClaimQuota { elsewhere, ..self }
    }

    /// Returns whether jobs of a tenant are left to other nodes.
    pub(crate) fn leaves(&self, tenant: &str) -> bool {
        self.elsewhere.as_ref().is_some_and(|elsewhere| elsewhere.contains(tenant))
    }

    /// Returns whether jobs of some tenants may be left to other nodes.
    pub(crate) fn leaves_some(&self) -> bool {
        self.elsewhere.is_some()
    }

    /// Counts a job of this tenant; returns false, and counts nothing, if the tenant has reached
    /// its maximum, or is served elsewhere.
    pub(crate) fn charge(&mut self, tenant: &str) -> bool {
        if self.leaves(tenant) {
            return false;
        }
        match self.in_hand.get_mut(tenant) {
            Some(count) if *count >= self.in_hand_max => return false,
            Some(count) => *count += 1,
            None if self.in_hand_max == 0 => return false,
            None if self.in_hand_max == usize::MAX => {}
            None => drop(self.in_hand.insert(tenant.to_owned(), 1)),
        }
        true
    }

    /// Returns the maximum for a tenant without claimed jobs; None without a bound.
    pub(crate) fn per_tenant_max(&self) -> Option<usize> {
        (self.in_hand_max != usize::MAX).then_some(self.in_hand_max)
    }

    /// Returns the tenants with claimed jobs, with the remaining number of each.
    pub(crate) fn left(&self) -> impl Iterator<Item = (&str, usize)> {
        let left = |count: &usize| self.in_hand_max.saturating_sub(*count);
        self.in_hand.iter().map(move |(tenant, count)| (tenant.as_str(), left(count)))
    }
}
