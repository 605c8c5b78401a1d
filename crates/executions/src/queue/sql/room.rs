//! How many wait, and whether more may.

use std::collections::{BTreeMap, HashMap};

use super::super::{QueueConfig, QueueError};

/// Counts of what waits and of what is about to. Of a store that others share it is an estimate
/// between two counts.
#[derive(Debug, Default)]
pub(super) struct Room {
    all: u64,
    /// No entry for none.
    tenants: HashMap<String, u64>,
}

impl Room {
    /// Takes places for jobs, all or none.
    pub(super) fn reserve(
        &mut self,
        wanted: &BTreeMap<String, u64>,
        config: &QueueConfig,
    ) -> Result<(), QueueError> {
        let sum = wanted.values().sum::<u64>();
        if sum > 0 && self.all + sum > config.queued_max {
            return Err(QueueError::Full { queued_max: config.queued_max });
        }
        for (tenant, count) in wanted {
            let waiting = self.tenants.get(tenant).copied().unwrap_or(0);
            if waiting + count > config.queued_max_per_tenant {
                let queued_max = config.queued_max_per_tenant;
                return Err(QueueError::TenantFull { queued_max });
            }
        }
        for (tenant, count) in wanted {
            self.enter(tenant, *count);
        }
        Ok(())
    }

    /// Some of a tenant wait, whether there is room or not: they had been accepted before.
    pub(super) fn enter(&mut self, tenant: &str, count: u64) {
        if count > 0 {
            self.all += count;
            match self.tenants.get_mut(tenant) {
                Some(waiting) => *waiting += count,
                None => drop(self.tenants.insert(tenant.to_owned(), count)),
            }
        }
    }

    /// Some of a tenant wait no more.
    pub(super) fn leave(&mut self, tenant: &str, count: u64) {
        self.all = self.all.saturating_sub(count);
        if let Some(waiting) = self.tenants.get_mut(tenant) {
            *waiting = waiting.saturating_sub(count);
            if *waiting == 0 {
                self.tenants.remove(tenant);
            }
        }
    }

    /// Replaces the estimate by a count.
    pub(super) fn recount(&mut self, tenants: HashMap<String, u64>) {
        self.all = tenants.values().sum();
        self.tenants = tenants;
    }
}
