//! The order of waiting jobs: pure, without a clock.
//!
//! Waiting tenants take turns, one job each ([`TurnOrder`]). A new tenant joins behind all others,
//! so a late one is not compensated for time in which it had no jobs, and one that sends a single
//! job waits one round at most.
//!
//! Within a tenant the order is by effective priority: the priority plus one step for each `ageing`
//! of waiting. All jobs age at the same rate, so the order of two jobs never changes, and the
//! constant `created - priority × ageing` determines it.

mod ordered;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::ExecutionId;
use pool::TurnOrder;

use self::ordered::OrderedRuns;
use super::quota::ClaimQuota;

/// A waiting job in the schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WaitingJob {
    /// Id.
    pub(crate) id: ExecutionId,
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// Priority from -100 to 100; higher runs first.
    pub(crate) priority: i32,
    /// Time of acceptance, in milliseconds.
    pub(crate) created_ms: u64,
    /// Time from which on it must not be started any more.
    pub(crate) deadline_ms: Option<u64>,
    /// Size in bytes ([`super::NewJob::bytes`]). The order does not depend on it.
    pub(crate) bytes: u64,
}

/// Returns the constant that orders jobs of a tenant: lower runs first. `created_ms` is its time of
/// acceptance and `ageing` the duration of a step of priority.
pub(crate) fn rank(priority: i32, created_ms: u64, ageing: Duration) -> i64 {
    let created = i64::try_from(created_ms).unwrap_or(i64::MAX);
    let ageing = i64::try_from(ageing.as_millis()).unwrap_or(i64::MAX);
    created.saturating_sub(i64::from(priority).saturating_mul(ageing))
}

/// A job's position among those of its tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct JobPosition {
    rank: i64,
    created_ms: u64,
    id: Arc<str>,
}

/// Jobs that were taken, in order.
#[derive(Debug, Default)]
pub(crate) struct TakenJobs {
    pub(crate) jobs: Vec<WaitingJob>,
    /// Number of turns that passed meanwhile, including those of skipped tenants.
    pub(crate) turns: usize,
}

/// Waiting jobs, in order. Every operation except [`JobSchedule::position`] takes time that grows
/// at most with the logarithm of the number of waiting jobs, or with the number of jobs that it
/// removes.
#[derive(Debug)]
pub(crate) struct JobSchedule {
    ageing: Duration,
    jobs: HashMap<Arc<str>, ScheduleEntry>,
    /// Tenants with the positions of their jobs. A tenant without jobs stays until its turn comes.
    tenants: TurnOrder<Arc<str>, OrderedRuns<JobPosition>>,
    /// Deadlines of waiting jobs.
    deadlines: BTreeSet<(u64, Arc<str>)>,
}

#[derive(Debug)]
struct ScheduleEntry {
    tenant: Arc<str>,
    place: JobPosition,
    priority: i32,
    deadline_ms: Option<u64>,
    bytes: u64,
}

impl JobSchedule {
    pub(crate) fn new(ageing: Duration) -> JobSchedule {
        JobSchedule {
            ageing,
            jobs: HashMap::new(),
            tenants: TurnOrder::default(),
            deadlines: BTreeSet::new(),
        }
    }

    /// Adds a job. A job that waits already keeps its position.
    pub(crate) fn insert(&mut self, job: WaitingJob) {
        let WaitingJob { id, tenant, priority, created_ms, deadline_ms, bytes } = job;
        if self.jobs.contains_key(id.0.as_str()) {
            return;
        }
        let id: Arc<str> = id.0.into();
        let known = self.tenants.get(tenant.as_str());
        let tenant = known.map_or_else(|| tenant.as_str().into(), |(name, _)| Arc::clone(name));
        let rank = rank(priority, created_ms, self.ageing);
        let place = JobPosition { rank, created_ms, id: Arc::clone(&id) };
        self.tenants.join(Arc::clone(&tenant), OrderedRuns::default).insert(place.clone());
        if let Some(deadline_ms) = deadline_ms {
            self.deadlines.insert((deadline_ms, Arc::clone(&id)));
        }
        self.jobs.insert(id, ScheduleEntry { tenant, place, priority, deadline_ms, bytes });
    }

    /// Removes a job that no longer waits; does nothing if it did not wait.
    pub(crate) fn remove(&mut self, id: &ExecutionId) {
        if let Some((id, entry)) = self.jobs.remove_entry(id.0.as_str())
            && let Some(mut of_tenant) = self.tenants.entry(&entry.tenant)
        {
            of_tenant.queue_mut().remove(&entry.place);
            if let Some(deadline_ms) = entry.deadline_ms {
                self.deadlines.remove(&(deadline_ms, id));
            }
        }
    }

    /// Takes out up to `count_max` jobs, in the order of turns. Jobs past their deadline are never
    /// among them: they leave the order. Tenants whose quota is used up are skipped and move behind
    /// all others.
    pub(crate) fn take(
        &mut self,
        count_max: usize,
        quota: &mut ClaimQuota,
        now_ms: u64,
    ) -> TakenJobs {
        self.drop_overdue(now_ms);
        let mut taken = TakenJobs::default();
        while taken.jobs.len() < count_max
            && let Some(job) = self.take_one(quota, &mut taken.turns)
        {
            taken.jobs.push(job);
        }
        taken
    }

    fn take_one(&mut self, quota: &mut ClaimQuota, turns: &mut usize) -> Option<WaitingJob> {
        let mut passed_over = 0;
        loop {
            let mut first = self.tenants.first()?;
            if first.queue().len() == 0 {
                // It joins again, at the end, when it has a job.
                first.leave();
                continue;
            }
            *turns += 1;
            if !quota.charge(first.key()) {
                first.send_back();
                passed_over += 1;
                if passed_over >= self.tenants.len() {
                    return None;
                }
                continue;
            }
            let place = first.queue_mut().pop_first()?;
            first.send_back();
            if let Some((id, entry)) = self.jobs.remove_entry(&place.id) {
                if let Some(deadline_ms) = entry.deadline_ms {
                    self.deadlines.remove(&(deadline_ms, Arc::clone(&id)));
                }
                return Some(WaitingJob {
                    id: ExecutionId(id.as_ref().to_owned()),
                    tenant: entry.tenant.as_ref().to_owned(),
                    priority: entry.priority,
                    created_ms: place.created_ms,
                    deadline_ms: entry.deadline_ms,
                    bytes: entry.bytes,
                });
            }
        }
    }

    fn drop_overdue(&mut self, now_ms: u64) {
        while let Some((deadline_ms, id)) = self.deadlines.first()
            && *deadline_ms <= now_ms
        {
            let id = ExecutionId(id.as_ref().to_owned());
            self.remove(&id);
        }
    }

    /// Returns the number of jobs that run before this one: exact if no job is added or cancelled.
    /// Takes time that grows with the number of tenants, not with that of jobs.
    pub(crate) fn position(&self, id: &ExecutionId) -> Option<u64> {
        let entry = self.jobs.get(id.0.as_str())?;
        let within = self.tenants.get(&entry.tenant)?.1.before(&entry.place);
        let mut before = within;
        // Tenants whose turn is sooner take one turn more than those whose turn is later.
        let mut turns = within + 1;
        for (name, waiting) in self.tenants.iter() {
            if *name == entry.tenant {
                turns = within;
            } else {
                before += waiting.len().min(turns);
            }
        }
        u64::try_from(before).ok()
    }

    /// Removes every job. The order of turns is kept.
    pub(crate) fn clear(&mut self) {
        self.jobs.clear();
        self.deadlines.clear();
        for waiting in self.tenants.queues_mut() {
            *waiting = OrderedRuns::default();
        }
    }

    /// Returns whether no job waits that may still run.
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Returns the number of a tenant's waiting jobs.
    pub(crate) fn of_tenant(&self, tenant: &str) -> usize {
        self.tenants.get(tenant).map_or(0, |(_, waiting)| waiting.len())
    }
}

#[cfg(test)]
mod tests;
