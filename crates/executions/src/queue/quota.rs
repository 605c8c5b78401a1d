//! Bounds how many jobs of each tenant one claim may take.
//!
//! A job that is claimed holds a worker, also while it waits for its tenant's share of the places
//! to run. Without a bound here one tenant's jobs would hold every worker while they wait, and the
//! jobs of other tenants, whose places are free, would not be claimed.
//!
//! Jobs of a tenant whose limit lives at few nodes are left to those.

use std::collections::HashMap;

use crate::admission::TenantsElsewhere;

/// Jobs that a claim may take of each tenant.
#[derive(Clone, Debug)]
pub struct ClaimQuota {
    /// Jobs that a tenant may have in hand.
    in_hand_max: usize,
    /// Jobs that tenants have in hand; those that are claimed are added.
    in_hand: HashMap<String, usize>,
    /// Tenants of which none may be taken.
    elsewhere: Option<TenantsElsewhere>,
}

impl ClaimQuota {
    /// A quota without a bound: where there is one tenant only.
    #[must_use]
    pub fn unlimited() -> ClaimQuota {
        ClaimQuota::new(usize::MAX, HashMap::new())
    }

    /// Lets each tenant have at most `in_hand_max` jobs in hand, with those that it has already.
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

    /// Counts a job of this tenant; false, and nothing is counted, when it has as many as it may,
    /// or is served elsewhere.
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

    /// Jobs that may be taken of a tenant that has none in hand; none without a bound.
    pub(crate) fn per_tenant_max(&self) -> Option<usize> {
        (self.in_hand_max != usize::MAX).then_some(self.in_hand_max)
    }

    /// Tenants that have jobs in hand, and how many more may be taken of each.
    pub(crate) fn left(&self) -> impl Iterator<Item = (&str, usize)> {
        let left = |count: &usize| self.in_hand_max.saturating_sub(*count);
        self.in_hand.iter().map(move |(tenant, count)| (tenant.as_str(), left(count)))
    }
}
