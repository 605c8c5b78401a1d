//! Metrics for Prometheus: DBBouncer's metrics under Cove's prefix, percentiles of each tenant, and
//! totals of the relay.
//!
//! All values are read at the scrape. The series of a tenant end when it is removed.

use std::fmt;
use std::sync::Arc;

use node::telemetry::Registry;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric as _, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::relay::stats::{DurationDistribution, ThreadTenantStats};
use crate::service::{Bouncer, TOOK_BUCKETS, distributions, errors, pins};
use crate::tenants::TenantSnapshot;

/// Upper bounds of times of transactions and statements: 0.5 ms · 2^n, as DBBouncer has them.
const TIME_BUCKETS: usize = 16;
const TIME_FIRST_US: u64 = 500;

/// Upper bounds of times that clients waited: 0.1 ms · 2^n.
const WAIT_BUCKETS: usize = 14;
const WAIT_FIRST_US: u64 = 100;

/// Quantiles that are exported, in thousandths, with their labels.
const QUANTILES: [(u64, &str); 4] = [(500, "0.5"), (950, "0.95"), (990, "0.99"), (999, "0.999")];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabels {
    tenant: String,
    db_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuantileLabels {
    tenant: String,
    quantile: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    tenant: String,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    tenant: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    tenant: String,
    code: String,
}

/// Registers all metrics of a bouncer.
pub fn register(bouncer: &Bouncer, registry: &mut Registry) {
    registry.register_collector(Box::new(PublishedLabels(bouncer.clone())));
}

#[derive(Debug)]
struct PublishedLabels(Bouncer);

/// A tenant with its counters.
struct TenantCounters {
    tenant: Arc<TenantSnapshot>,
    stats: Vec<Arc<ThreadTenantStats>>,
    times: [DurationDistribution; 3],
}

impl TenantCounters {
    fn labels(&self) -> TenantLabels {
        TenantLabels { tenant: self.tenant.name.to_string(), db_type: self.tenant.engine.as_str() }
    }

    fn sum(&self, of: impl Fn(&ThreadTenantStats) -> u64) -> u64 {
        self.stats.iter().map(|it| of(it)).sum()
    }
}

impl Collector for PublishedLabels {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let routing = self.0.routing();
        let rows: Vec<TenantCounters> = routing
            .tenants()
            .map(|tenant| {
                let stats = self.0.threads().stats(tenant.id);
                let times = distributions(&stats);
                TenantCounters { tenant: Arc::clone(tenant), stats, times }
            })
            .collect();
        gauges(&mut encoder, &rows)?;
        counters(&mut encoder, &rows)?;
        times(&mut encoder, &rows)?;
        quantiles(&mut encoder, &rows)?;
        if let Some(expiry_s) = self.0.threads().certificate_expiry_s() {
            let help = "When the certificate that clients see expires, since 1970";
            let name = "cove_bouncer_certificate_expiry_timestamp";
            let unit = Some(&Unit::Seconds);
            let expiry = ConstGauge::new(i64::try_from(expiry_s).unwrap_or(i64::MAX));
            expiry.encode(encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?)?;
        }
        self.checks(&mut encoder, &rows)
    }
}

impl PublishedLabels {
    fn checks(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        rows: &[TenantCounters],
    ) -> Result<(), fmt::Error> {
        let tally = self.0.tally();
        let buckets: Vec<(f64, u64)> = TOOK_BUCKETS.into_iter().zip(tally.took).collect();
        let help = "Time of checks whether servers answer";
        let mut told = encoder.encode_descriptor(
            "cove_bouncer_health_check_duration",
            help,
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        told.encode_histogram::<NoLabelSet>(tally.took_s, tally.checks, &buckets, None)?;
        let help = "Checks that failed";
        counter(encoder, "cove_bouncer_health_check_errors", help, rows, |row| {
            tally.errors.get(&row.tenant.id).copied().unwrap_or_default()
        })
    }
}

fn gauges(encoder: &mut DescriptorEncoder<'_>, rows: &[TenantCounters]) -> Result<(), fmt::Error> {
    type Of = fn(&TenantCounters) -> u64;
    let gauges: [(&str, &str, Of); 9] = [
        ("connections_active", "Server connections that a client has", |row| {
            row.sum(|it| it.clients_active.load())
        }),
        ("connections_idle", "Server connections that wait for a client", |row| {
            row.sum(|it| it.servers_idle.load())
        }),
        ("connections", "Server connections", |row| row.sum(|it| it.servers.load())),
        ("connections_waiting", "Clients that wait for a server connection", |row| {
            row.sum(|it| it.clients_waiting.load())
        }),
        ("connections_max", "Server connections that a tenant may have", |row| {
            row.tenant.limits.server_connections_max.into()
        }),
        ("clients", "Clients that are connected", |row| row.sum(|it| it.clients.load())),
        (
            "clients_passed",
            "Clients that connected to this node and are served by another one",
            |row| row.sum(|it| it.clients_passed.load()),
        ),
        ("tenant_health", "1 while the tenant's server answers or was not asked", |row| {
            u64::from(!row.tenant.state.health().is_bad())
        }),
        ("tenant_admission", "0 open, 1 paused, 2 refusing, 3 draining", |row| {
            row.tenant.state.admission() as u64
        }),
    ];
    for (name, help, of) in gauges {
        let name = format!("cove_bouncer_{name}");
        let mut told = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
        for row in rows {
            let value = i64::try_from(of(row)).unwrap_or(i64::MAX);
            told.encode_family(&row.labels())?.encode_gauge(&value)?;
        }
    }
    Ok(())
}

fn counters(
    encoder: &mut DescriptorEncoder<'_>,
    rows: &[TenantCounters],
) -> Result<(), fmt::Error> {
    type Of = fn(&ThreadTenantStats) -> u64;
    let counters: [(&str, &str, Of); 9] = [
        ("transactions", "Transactions that ended", |it| it.transactions.load()),
        ("queries", "Statements that were answered", |it| it.queries.load()),
        ("received_bytes", "Bytes from clients", |it| it.received_bytes.load()),
        ("sent_bytes", "Bytes to clients", |it| it.sent_bytes.load()),
        ("pool_exhausted", "Clients that could not wait for a server connection", |it| {
            it.exhausted.load()
        }),
        ("dirty_disconnects", "Clients that left in the middle of something", |it| {
            it.dirty_disconnects.load()
        }),
        ("connections_opened", "Server connections that were opened", |it| it.opened.load()),
        ("connection_failures", "Server connections that could not be opened", |it| {
            it.open_failures.load()
        }),
        ("cancels", "Cancel requests that were forwarded or answered", |it| it.cancels.load()),
    ];
    for (name, help, of) in counters {
        counter(encoder, &format!("cove_bouncer_{name}"), help, rows, |row| row.sum(of))?;
    }
    let help = "Time in which clients had server connections";
    let mut told = encoder.encode_descriptor(
        "cove_bouncer_busy",
        help,
        Some(&Unit::Seconds),
        MetricType::Counter,
    )?;
    for row in rows {
        let busy = seconds(row.sum(|it| it.busy_us.load()));
        told.encode_family(&row.labels())?.encode_counter::<NoLabelSet, _, u64>(&busy, None)?;
    }
    let help = "Resets of server connections";
    let name = "cove_bouncer_backend_resets";
    let mut told = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for row in rows {
        let counts = [
            ("success", row.sum(|it| it.resets.load())),
            ("failure", row.sum(|it| it.reset_failures.load())),
        ];
        for (status, count) in counts {
            let labels = StatusLabels { tenant: row.tenant.name.to_string(), status };
            told.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    session_pins(encoder, rows)?;
    server_errors(encoder, rows)
}

/// Exports at most [`pooler_core::link::ERROR_CODES_MAX`] series of a tenant, and one for all other
/// codes.
fn server_errors(
    encoder: &mut DescriptorEncoder<'_>,
    rows: &[TenantCounters],
) -> Result<(), fmt::Error> {
    let help = "Errors that clients got from their servers";
    let name = "cove_bouncer_errors";
    let mut told = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for row in rows {
        for (code, count) in errors(&row.stats).by_text() {
            let labels = ErrorLabels { tenant: row.tenant.name.to_string(), code };
            told.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    Ok(())
}

fn session_pins(
    encoder: &mut DescriptorEncoder<'_>,
    rows: &[TenantCounters],
) -> Result<(), fmt::Error> {
    let help = "Clients that kept a server connection beyond their transaction";
    let name = "cove_bouncer_session_pins";
    let mut told = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for row in rows {
        for (reason, count) in pins(&row.stats) {
            let labels = ReasonLabels { tenant: row.tenant.name.to_string(), reason };
            told.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    Ok(())
}

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: &[TenantCounters],
    of: impl Fn(&TenantCounters) -> u64,
) -> Result<(), fmt::Error> {
    let mut told = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for row in rows {
        let count = of(row);
        told.encode_family(&row.labels())?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
    }
    Ok(())
}

fn times(encoder: &mut DescriptorEncoder<'_>, rows: &[TenantCounters]) -> Result<(), fmt::Error> {
    let told = [
        ("query_duration", "Time of statements", TIME_FIRST_US, TIME_BUCKETS),
        ("transaction_duration", "Time of transactions", TIME_FIRST_US, TIME_BUCKETS),
        (
            "acquire_duration",
            "Time for which clients waited for a server connection that had to",
            WAIT_FIRST_US,
            WAIT_BUCKETS,
        ),
    ];
    for (which, (name, help, first_us, count)) in told.into_iter().enumerate() {
        let name = format!("cove_bouncer_{name}");
        let unit = Some(&Unit::Seconds);
        let mut told = encoder.encode_descriptor(&name, help, unit, MetricType::Histogram)?;
        for row in rows {
            let Some(times) = row.times.get(which) else { continue };
            let sum = seconds(times.sum_us());
            let buckets = buckets(times, first_us, count);
            told.encode_family(&row.labels())?.encode_histogram::<NoLabelSet>(
                sum,
                times.count(),
                &buckets,
                None,
            )?;
        }
    }
    Ok(())
}

/// Returns the count of each bucket, without those of the buckets before it.
fn buckets(times: &DurationDistribution, first_us: u64, count: usize) -> Vec<(f64, u64)> {
    let mut below = 0;
    let mut buckets = Vec::with_capacity(count + 1);
    let mut bound_us = first_us;
    for _ in 0..count {
        let at_most = times.at_most(bound_us);
        buckets.push((seconds(bound_us), at_most.saturating_sub(below)));
        below = at_most.max(below);
        bound_us = bound_us.saturating_mul(2);
    }
    buckets.push((f64::INFINITY, times.count().saturating_sub(below)));
    buckets
}

fn quantiles(
    encoder: &mut DescriptorEncoder<'_>,
    rows: &[TenantCounters],
) -> Result<(), fmt::Error> {
    let names = [
        ("query_quantile", "Time that a share of statements did not exceed"),
        ("transaction_quantile", "Time that a share of transactions did not exceed"),
        ("acquire_quantile", "Time that a share of waits did not exceed"),
    ];
    for (which, (name, help)) in names.into_iter().enumerate() {
        let name = format!("cove_bouncer_{name}");
        let unit = Some(&Unit::Seconds);
        let mut told = encoder.encode_descriptor(&name, help, unit, MetricType::Gauge)?;
        for row in rows {
            for (per_mille, quantile) in QUANTILES {
                let time = row.times.get(which).and_then(|it| it.percentile_us(per_mille));
                let Some(us) = time else { continue };
                let labels = QuantileLabels { tenant: row.tenant.name.to_string(), quantile };
                told.encode_family(&labels)?.encode_gauge(&seconds(us))?;
            }
        }
    }
    Ok(())
}

fn seconds(us: u64) -> f64 {
    std::time::Duration::from_micros(us).as_secs_f64()
}
