//! Room in the queue: the number and size of waiting jobs, and whether more may be accepted.

use std::collections::{BTreeMap, HashMap};

use super::super::{NewJob, QueueConfig, QueueError};

/// A number of jobs and their total size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct QueueLoad {
    pub(super) count: u64,
    pub(super) bytes: u64,
}

impl QueueLoad {
    /// Returns the load of one job of this size.
    pub(super) fn one(bytes: u64) -> QueueLoad {
        QueueLoad { count: 1, bytes }
    }

    /// Returns the load of a job to accept.
    pub(super) fn of(job: &NewJob) -> QueueLoad {
        QueueLoad::one(job.bytes())
    }

    pub(super) fn plus(self, other: QueueLoad) -> QueueLoad {
        QueueLoad {
            count: self.count.saturating_add(other.count),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    pub(super) fn minus(self, other: QueueLoad) -> QueueLoad {
        QueueLoad {
            count: self.count.saturating_sub(other.count),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// Counts of jobs that wait or are about to. If other servers share the store, it is an estimate
/// between two counts.
#[derive(Debug, Default)]
pub(super) struct QueueRoom {
    all: QueueLoad,
    /// Tenants without waiting jobs have no entry.
    tenants: HashMap<String, QueueLoad>,
}

impl QueueRoom {
    /// Reserves room for jobs, all or none.
    pub(super) fn reserve(
        &mut self,
        wanted: &BTreeMap<String, QueueLoad>,
        config: &QueueConfig,
    ) -> Result<(), QueueError> {
        let sum = wanted.values().copied().fold(QueueLoad::default(), QueueLoad::plus);
        let all = self.all.plus(sum);
        if sum.count > 0 && all.count > config.queued_max {
            return Err(QueueError::Full { queued_max: config.queued_max });
        }
        if sum.count > 0 && all.bytes > config.queued_bytes_max {
            return Err(QueueError::FullBytes { queued_bytes_max: config.queued_bytes_max });
        }
        for (tenant, load) in wanted {
            let of_tenant = self.tenants.get(tenant).copied().unwrap_or_default().plus(*load);
            if of_tenant.count > config.queued_max_per_tenant {
                let queued_max = config.queued_max_per_tenant;
                return Err(QueueError::TenantFull { queued_max });
            }
            if of_tenant.bytes > config.queued_bytes_max_per_tenant {
                let queued_bytes_max = config.queued_bytes_max_per_tenant;
                return Err(QueueError::TenantFullBytes { queued_bytes_max });
            }
        }
        for (tenant, load) in wanted {
            self.enter(tenant, *load);
        }
        Ok(())
    }

    /// Adds waiting jobs of a tenant, regardless of room: they were accepted before.
    pub(super) fn enter(&mut self, tenant: &str, load: QueueLoad) {
        if load.count > 0 {
            self.all = self.all.plus(load);
            match self.tenants.get_mut(tenant) {
                Some(waiting) => *waiting = waiting.plus(load),
                None => drop(self.tenants.insert(tenant.to_owned(), load)),
            }
        }
    }

    /// Removes jobs of a tenant that no longer wait.
    pub(super) fn leave(&mut self, tenant: &str, load: QueueLoad) {
        self.all = self.all.minus(load);
        if let Some(waiting) = self.tenants.get_mut(tenant) {
            *waiting = waiting.minus(load);
            if waiting.count == 0 {
                self.tenants.remove(tenant);
            }
        }
    }

    /// Replaces the estimate by a count.
    pub(super) fn recount(&mut self, tenants: HashMap<String, QueueLoad>) {
        self.all = tenants.values().copied().fold(QueueLoad::default(), QueueLoad::plus);
        self.tenants = tenants;
    }
}
