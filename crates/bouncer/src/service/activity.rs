//! Activity of tenants for a server's history: differences between two readings of the relay
//! threads' counters. Accesses no thread and no store.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Bouncer, distributions};
use crate::relay::stats::{DurationDistribution, ThreadTenantStats};
use crate::tenants::TenantId;

/// Quantiles of durations that are reported, in thousandths.
const PER_MILLE: [u64; 3] = [500, 950, 990];

/// Activity of a tenant since the last reading. Rates are per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantActivity {
    /// Name of the tenant.
    pub name: Arc<str>,
    /// Clients that are connected.
    pub clients: u64,
    /// Clients that have a server connection.
    pub clients_active: u64,
    /// Clients that wait for one.
    pub clients_waiting: u64,
    /// Idle server connections.
    pub servers_idle: u64,
    /// Transactions that ended, per second.
    pub transactions: f64,
    /// Statements that were answered, per second.
    pub queries: f64,
    /// Errors that servers sent to clients, per second.
    pub errors: f64,
    /// Bytes from clients, per second.
    pub received_bytes: f64,
    /// Bytes to clients, per second.
    pub sent_bytes: f64,
    /// Durations in seconds that 50, 95 and 99 % of statements did not exceed.
    pub query_s: [Option<f64>; 3],
    /// The same for the waits of clients that had to wait for a server connection.
    pub wait_s: [Option<f64>; 3],
}

/// Samples the activity of tenants. Keeps the last reading of each.
#[derive(Debug, Default)]
pub struct TenantSampler {
    before: HashMap<TenantId, TenantReading>,
}

/// Counters of a tenant at one reading.
#[derive(Clone, Debug)]
struct TenantReading {
    counts: [u64; 5],
    query: DurationDistribution,
    wait: DurationDistribution,
}

impl TenantSampler {
    /// Reads every tenant that was ever used, `elapsed_s` after the previous sample. A new one has
    /// no rates yet.
    pub fn sample(&mut self, bouncer: &Bouncer, elapsed_s: f64) -> Vec<TenantActivity> {
        let mut before = std::mem::take(&mut self.before);
        let routing = bouncer.routing();
        let mut found = Vec::new();
        for tenant in routing.tenants() {
            let stats = bouncer.threads().stats(tenant.id);
            if stats.is_empty() {
                continue;
            }
            let before = before.remove(&tenant.id);
            let (activity, reading) = read(&stats, before, elapsed_s);
            found.push(TenantActivity { name: tenant.name.to_string().into(), ..activity });
            self.before.insert(tenant.id, reading);
        }
        found
    }
}

fn read(
    stats: &[Arc<ThreadTenantStats>],
    before: Option<TenantReading>,
    elapsed_s: f64,
) -> (TenantActivity, TenantReading) {
    let sum = |of: fn(&ThreadTenantStats) -> u64| stats.iter().map(|it| of(it)).sum::<u64>();
    let counts = [
        sum(|it| it.transactions.load()),
        sum(|it| it.queries.load()),
        sum(ThreadTenantStats::errors_count),
        sum(|it| it.received_bytes.load()),
        sum(|it| it.sent_bytes.load()),
    ];
    let mut activity = TenantActivity {
        clients: sum(|it| it.clients.load()),
        clients_active: sum(|it| it.clients_active.load()),
        clients_waiting: sum(|it| it.clients_waiting.load()),
        servers_idle: sum(|it| it.servers_idle.load()),
        ..TenantActivity::default()
    };
    match before {
        // Without new statements there are no new durations, and the costly histograms need not be
        // read.
        Some(before) if before.counts == counts => (activity, before),
        before => {
            let [query, _, wait] = distributions(stats);
            if let Some(before) = before {
                let rate = |at: usize| {
                    let since = counts[at].saturating_sub(before.counts[at]);
                    f64::from(u32::try_from(since).unwrap_or(u32::MAX)) / elapsed_s.max(0.001)
                };
                activity.transactions = rate(0);
                activity.queries = rate(1);
                activity.errors = rate(2);
                activity.received_bytes = rate(3);
                activity.sent_bytes = rate(4);
                activity.query_s = percentiles(&query.since(&before.query));
                activity.wait_s = percentiles(&wait.since(&before.wait));
            }
            (activity, TenantReading { counts, query, wait })
        }
    }
}

fn percentiles(of: &DurationDistribution) -> [Option<f64>; 3] {
    PER_MILLE.map(|per_mille| {
        let us = of.percentile_us(per_mille)?;
        Some(std::time::Duration::from_micros(us).as_secs_f64())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_percentiles_are_of_what_came_between_two_readings() {
        let stats = Arc::new(ThreadTenantStats::default());
        let threads = [Arc::clone(&stats)];
        stats.transactions.add(100);
        stats.times().query.record(9_000_000);
        let (activity, reading) = read(&threads, None, 1.0);
        assert_eq!((activity.transactions, activity.query_s), (0.0, [None; 3]));
        for us in 1..=1000 {
            stats.times().query.record(us);
        }
        stats.transactions.add(50);
        stats.clients_waiting.add(3);
        stats.times().wait.record(40_000);
        let (activity, reading) = read(&threads, Some(reading), 2.0);
        assert_eq!((activity.transactions, activity.clients_waiting), (25.0, 3));
        let [p50, p95, p99] = activity.query_s.map(|it| it.expect("some"));
        assert!((0.0005..0.00054).contains(&p50), "{p50}");
        assert!((0.00095..0.0011).contains(&p95) && p95 < p99 && p99 < 0.0011, "{p95} {p99}");
        assert!(activity.wait_s[0].is_some_and(|it| (0.04..0.043).contains(&it)));
        // No activity.
        let (activity, _) = read(&threads, Some(reading), 1.0);
        assert_eq!((activity.transactions, activity.query_s), (0.0, [None; 3]));
        assert_eq!(activity.clients_waiting, 3);
    }
}
