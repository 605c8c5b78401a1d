//! Counters for the history of a server: of all executions, and of each tenant that ran some
//! recently. Reading them accesses no store and no records.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use api::Verdict;
use node::history::{LatencyCounts, LatencyHistogram, SharedCounter};
use parking_lot::Mutex;

use crate::admission::{AdmissionLoad, TenantLoad};

/// Maximum number of tenants that are counted individually. A new one replaces the one that was
/// idle for longest.
const TENANTS_MAX: usize = 64;

/// Time without an execution after which a tenant is no longer counted individually: as long as a
/// history is kept.
const IDLE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Classes of verdicts that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictClass {
    /// `OK`.
    Ok,
    /// The program is to blame: it failed, did not compile, or its answer is wrong.
    Failed,
    /// A limit was reached.
    Limit,
    /// Cove failed.
    Server,
}

impl VerdictClass {
    /// All classes.
    pub const ALL: [VerdictClass; 4] =
        [VerdictClass::Ok, VerdictClass::Failed, VerdictClass::Limit, VerdictClass::Server];

    /// Returns the class of a verdict.
    #[must_use]
    pub fn of(verdict: Verdict) -> VerdictClass {
        match verdict {
            Verdict::Ok => VerdictClass::Ok,
            Verdict::Re | Verdict::Sg | Verdict::Ce | Verdict::Wa | Verdict::Jf => {
                VerdictClass::Failed
            }
            Verdict::Tle | Verdict::Mle | Verdict::Ole => VerdictClass::Limit,
            Verdict::Ie => VerdictClass::Server,
        }
    }

    /// Returns the name of the class, as a label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            VerdictClass::Ok => "ok",
            VerdictClass::Failed => "failed",
            VerdictClass::Limit => "limit",
            VerdictClass::Server => "server",
        }
    }
}

/// Counts of executions since the start, and of those that run and wait now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecutionTotals {
    /// Executions that got a place to run.
    pub started: u64,
    /// Executions that ended, in the order of [`VerdictClass::ALL`].
    pub ended: [u64; 4],
    /// Requests that were refused.
    pub refused: u64,
    /// Executions that run now.
    pub running: usize,
    /// Executions that wait for a place now.
    pub waiting: usize,
}

/// A reading of all counters.
#[derive(Clone, Debug, Default)]
pub struct ExecutionActivity {
    /// Executions of all tenants.
    pub total: ExecutionTotals,
    /// Times until executions got a place to run.
    pub wait: LatencyCounts,
    /// Times for which programs ran.
    pub run: LatencyCounts,
    /// Tenants that are counted individually.
    pub tenants: Vec<(Arc<str>, ExecutionTotals)>,
}

#[derive(Debug, Default)]
struct Counters {
    started: SharedCounter,
    ended: [SharedCounter; 4],
    refused: SharedCounter,
}

impl Counters {
    fn totals(&self) -> ExecutionTotals {
        ExecutionTotals {
            started: self.started.load(),
            ended: self.ended.each_ref().map(SharedCounter::load),
            refused: self.refused.load(),
            running: 0,
            waiting: 0,
        }
    }
}

#[derive(Debug)]
struct TenantActivityCounters {
    counters: Arc<Counters>,
    used: Instant,
}

/// Live counters of executions.
#[derive(Debug, Default)]
pub(crate) struct ActivityCounters {
    total: Counters,
    wait: LatencyHistogram,
    run: LatencyHistogram,
    tenants: Mutex<HashMap<Arc<str>, TenantActivityCounters>>,
    /// Number of tenants that were replaced by others.
    displaced: AtomicU64,
}

impl ActivityCounters {
    pub(crate) fn waited(&self, took: Duration) {
        self.wait.record(took);
    }

    pub(crate) fn ran(&self, took: Duration) {
        self.run.record(took);
    }

    pub(crate) fn started(&self, tenant: &str, now: Instant) {
        self.total.started.inc();
        self.of(tenant, now).started.inc();
    }

    pub(crate) fn ended(&self, tenant: &str, verdict: Verdict, now: Instant) {
        let class = VerdictClass::of(verdict) as usize;
        self.total.ended[class].inc();
        self.of(tenant, now).ended[class].inc();
    }

    pub(crate) fn refused(&self, tenant: &str, now: Instant) {
        self.total.refused.inc();
        self.of(tenant, now).refused.inc();
    }

    fn of(&self, tenant: &str, now: Instant) -> Arc<Counters> {
        let mut tenants = self.tenants.lock();
        if let Some(known) = tenants.get_mut(tenant) {
            known.used = now;
            return Arc::clone(&known.counters);
        }
        if tenants.len() >= TENANTS_MAX {
            let oldest = tenants.iter().min_by_key(|(_, it)| it.used).map(|(name, _)| name.clone());
            if let Some(oldest) = oldest {
                tenants.remove(&oldest);
            }
            self.displaced.fetch_add(1, Ordering::Relaxed);
        }
        let counters = Arc::<Counters>::default();
        let known = TenantActivityCounters { counters: Arc::clone(&counters), used: now };
        tenants.insert(tenant.into(), known);
        counters
    }

    /// Returns the counts, with the load of `admission`: in total, and of each tenant.
    pub(crate) fn read(
        &self,
        of_all: AdmissionLoad,
        loads: &HashMap<String, TenantLoad>,
        now: Instant,
    ) -> ExecutionActivity {
        let mut tenants = self.tenants.lock();
        tenants.retain(|_, it| now.saturating_duration_since(it.used) < IDLE_MAX);
        let of_tenants = tenants.iter().map(|(name, it)| {
            let load = loads.get(&**name).copied().unwrap_or_default();
            let TenantLoad { running, waiting } = load;
            (Arc::clone(name), ExecutionTotals { running, waiting, ..it.counters.totals() })
        });
        let AdmissionLoad { running, waiting, .. } = of_all;
        ExecutionActivity {
            total: ExecutionTotals { running, waiting, ..self.total.totals() },
            wait: self.wait.counts(),
            run: self.run.counts(),
            tenants: of_tenants.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_has_a_class_and_every_class_a_verdict() {
        for (at, class) in VerdictClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, at);
            assert!(Verdict::ALL.into_iter().any(|it| VerdictClass::of(it) == class), "{class:?}");
        }
    }

    #[test]
    fn tenants_are_counted_apart_up_to_a_limit() {
        let counters = ActivityCounters::default();
        let start = node::clock::now();
        let at = |second: usize| start + Duration::from_secs(second as u64);
        for number in 0..TENANTS_MAX + 2 {
            counters.started(&format!("t{number}"), at(number));
            counters.ended(&format!("t{number}"), Verdict::Tle, at(number));
        }
        let load = TenantLoad { running: 2, waiting: 3 };
        let loads = HashMap::from([("t5".to_owned(), load), ("t0".to_owned(), load)]);
        let found = counters.read(
            AdmissionLoad { running: 7, waiting: 8, memory_bytes: 0 },
            &loads,
            at(TENANTS_MAX),
        );
        assert_eq!(found.total.started, TENANTS_MAX as u64 + 2);
        assert_eq!((found.total.running, found.total.waiting), (7, 8));
        assert_eq!(found.tenants.len(), TENANTS_MAX);
        let of = |name: &str| found.tenants.iter().find(|(it, _)| **it == *name).map(|(_, it)| *it);
        assert_eq!((of("t0"), of("t1")), (None, None), "those that were idle for longest");
        let expected =
            ExecutionTotals { started: 1, ended: [0, 0, 1, 0], refused: 0, running: 2, waiting: 3 };
        assert_eq!(of("t5"), Some(expected));
        assert_eq!(counters.displaced.load(Ordering::Relaxed), 2);
        let later = at(TENANTS_MAX) + IDLE_MAX;
        assert_eq!(counters.read(AdmissionLoad::default(), &loads, later).tenants.len(), 1);
    }
}
