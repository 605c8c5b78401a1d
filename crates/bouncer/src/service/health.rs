//! Health checks of tenants' servers: run in the background, judged by thresholds, logged on
//! change.
//!
//! A check uses a connection of its own, which is closed afterwards, so that it can neither wait
//! for a pool nor leave anything in it.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::TenantHealthReport;
use node::clock;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::views;
use crate::config::HealthTable;
use crate::guest::FormerStatements;
use crate::tenants::{ServerHealth, TenantId, TenantRouting, TenantSnapshot, WorkAdmission};

/// Check interval of unhealthy tenants, so that they are not refused for long after their server
/// has recovered; and of new ones.
const URGENT_EVERY: Duration = Duration::from_secs(2);

/// Maximum length of a reason.
const REASON_BYTES_MAX: usize = 500;

/// Checks whether a tenant's server answers.
pub trait ServerProbe: fmt::Debug + Send + Sync {
    /// Connects, sends a query, closes. Dropping the future aborts it.
    fn probe(&self, tenant: Arc<TenantSnapshot>) -> ProbeOutcome;

    /// Ends statements of a session's former owners, and counts them. Dropping the future aborts
    /// it.
    fn end_former(&self, _former: FormerStatements) -> EndedStatements {
        Box::pin(async { Ok(0) })
    }
}

/// Future number of statements that were ended, or the reason why they may still run.
pub type EndedStatements = Pin<Box<dyn Future<Output = Result<u64, String>> + Send>>;

/// Future result of a check.
pub type ProbeOutcome = Pin<Box<dyn Future<Output = Result<(), ProbeFailure>> + Send>>;

/// Why a check failed, as text for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeFailure {
    /// The server does not answer.
    Silent(String),
    /// The server answers, and refuses the login.
    Refused(String),
}

/// Health of one tenant.
#[derive(Clone, Debug, Default, PartialEq)]
struct HealthCheck {
    failures: u32,
    error: Option<String>,
    checked_ms: Option<u64>,
    took: Duration,
}

/// Number of checks of all tenants, for the metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct HealthCheckTotals {
    /// Checks that ended.
    pub(crate) checks: u64,
    /// Number of failed checks by tenant.
    pub(crate) errors: HashMap<TenantId, u64>,
    /// Total duration in seconds, and the number of checks up to each of [`TOOK_BUCKETS`].
    pub(crate) took_s: f64,
    pub(crate) took: [u64; TOOK_BUCKETS.len()],
}

/// Upper bounds, in seconds.
pub(crate) const TOOK_BUCKETS: [f64; 8] = [0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 5.0, f64::INFINITY];

/// Results of health checks.
#[derive(Debug)]
pub(super) struct HealthCheckResults {
    probe: Arc<dyn ServerProbe>,
    found: Mutex<HashMap<TenantId, HealthCheck>>,
    tally: Mutex<HealthCheckTotals>,
}

impl HealthCheckResults {
    pub(super) fn new(probe: Arc<dyn ServerProbe>) -> HealthCheckResults {
        HealthCheckResults { probe, found: Mutex::default(), tally: Mutex::default() }
    }

    pub(super) fn probe(&self) -> &Arc<dyn ServerProbe> {
        &self.probe
    }

    pub(super) fn tally(&self) -> HealthCheckTotals {
        self.tally.lock().clone()
    }

    /// Forgets tenants that were removed.
    pub(super) fn keep_only(&self, routing: &TenantRouting) {
        self.found.lock().retain(|id, _| routing.tenant(*id).is_some());
        self.tally.lock().errors.retain(|id, _| routing.tenant(*id).is_some());
    }

    pub(super) fn report(&self, tenant: &TenantSnapshot) -> TenantHealthReport {
        let check = self.found.lock().get(&tenant.id).cloned().unwrap_or_default();
        TenantHealthReport {
            health: views::health(tenant.state.health()),
            failures: check.failures,
            took_ms: check.checked_ms.map(|_| check.took.as_secs_f64() * 1000.0),
            checked_at: check.checked_ms.map(clock::rfc3339_of_ms),
            error: check.error,
        }
    }

    /// Checks all tenants that are due once, `parallel` at a time.
    pub(super) async fn round(
        &self,
        routing: &TenantRouting,
        table: HealthTable,
        only_urgent: bool,
    ) {
        let places = Arc::new(Semaphore::new(table.parallel.max(1)));
        let patience = Duration::from_secs(table.timeout_s.max(1).into());
        let mut probes = JoinSet::new();
        for tenant in routing.tenants() {
            let is_urgent = tenant.state.health() != ServerHealth::Healthy;
            // The server of a paused tenant may be about to move.
            let is_due =
                tenant.state.admission() == WorkAdmission::Open && (is_urgent || !only_urgent);
            if !is_due {
                continue;
            }
            let (places, probe) = (Arc::clone(&places), Arc::clone(&self.probe));
            let tenant = Arc::clone(tenant);
            probes.spawn(async move {
                // The semaphore is never closed.
                let _place = places.acquire_owned().await;
                let started = clock::now();
                let asked = probe.probe(Arc::clone(&tenant));
                let result = match tokio::time::timeout(patience, asked).await {
                    Ok(result) => result,
                    Err(_) => {
                        let reason = format!("no answer within {} s", patience.as_secs());
                        Err(ProbeFailure::Silent(reason))
                    }
                };
                (tenant, result, clock::now().duration_since(started))
            });
        }
        while let Some(done) = probes.join_next().await {
            match done {
                Ok((tenant, result, took)) => self.found_out(&tenant, result, took, table.failures),
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "a check failed");
                }
            }
        }
    }

    /// Records one result, and logs a resulting change.
    fn found_out(
        &self,
        tenant: &TenantSnapshot,
        result: Result<(), ProbeFailure>,
        took: Duration,
        failures_max: u32,
    ) {
        self.count(tenant.id, took, result.is_err());
        let mut found = self.found.lock();
        let check = found.entry(tenant.id).or_default();
        let before = tenant.state.health();
        let after = judge(check, result, before, failures_max);
        check.checked_ms = Some(clock::wall_ms());
        check.took = took;
        if after == before {
            return;
        }
        tenant.state.set_health(after);
        let name = &*tenant.name;
        match (before, after) {
            (_, ServerHealth::Unhealthy) => {
                let error = check.error.as_deref().unwrap_or_default();
                tracing::warn!(tenant = name, error, "the server does not answer");
            }
            (_, ServerHealth::Refusing) => {
                let error = check.error.as_deref().unwrap_or_default();
                tracing::warn!(tenant = name, error, "the server refuses the login");
            }
            (ServerHealth::Unhealthy | ServerHealth::Refusing, _) => {
                tracing::info!(tenant = name, "the server answers again");
            }
            (_, ServerHealth::Healthy | ServerHealth::Unknown) => {
                tracing::debug!(tenant = name, "the server answers");
            }
        }
    }

    fn count(&self, tenant: TenantId, took: Duration, is_failure: bool) {
        let mut tally = self.tally.lock();
        tally.checks += 1;
        tally.took_s += took.as_secs_f64();
        let bucket = TOOK_BUCKETS.iter().position(|bound| took.as_secs_f64() <= *bound);
        if let Some(count) = bucket.and_then(|bucket| tally.took.get_mut(bucket)) {
            *count += 1;
        }
        if is_failure {
            *tally.errors.entry(tenant).or_default() += 1;
        }
    }

    /// Runs the checks for the lifetime of the server.
    pub(super) async fn run(&self, service: &super::BouncerInner) {
        loop {
            let table = service.config.lock().health;
            if table.interval_s == 0 {
                // Checks again whether that is still so.
                tokio::time::sleep(URGENT_EVERY).await;
                continue;
            }
            self.round(&service.current.load(), table, false).await;
            let next = clock::now() + Duration::from_secs(table.interval_s.into());
            while clock::now() < next {
                let rest = next.saturating_duration_since(clock::now());
                tokio::time::sleep(rest.min(URGENT_EVERY)).await;
                self.round(&service.current.load(), table, true).await;
            }
        }
    }
}

/// Returns the health of a tenant after one more result.
fn judge(
    check: &mut HealthCheck,
    result: Result<(), ProbeFailure>,
    before: ServerHealth,
    failures_max: u32,
) -> ServerHealth {
    match result {
        Ok(()) => {
            check.failures = 0;
            check.error = None;
            ServerHealth::Healthy
        }
        Err(failure) => {
            let (health, reason) = match failure {
                ProbeFailure::Silent(reason) => (ServerHealth::Unhealthy, reason),
                ProbeFailure::Refused(reason) => (ServerHealth::Refusing, reason),
            };
            check.failures = check.failures.saturating_add(1);
            check.error = Some(shortened(reason));
            match check.failures >= failures_max.max(1) {
                true => health,
                false => before,
            }
        }
    }
}

fn shortened(text: String) -> String {
    match text.char_indices().find(|(at, _)| *at >= REASON_BYTES_MAX) {
        Some((at, _)) => text[..at].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_unhealthy_after_as_many_failures_as_are_tolerated() {
        let mut check = HealthCheck::default();
        let mut health = ServerHealth::Unknown;
        let steps = [
            (false, ServerHealth::Unknown),
            (true, ServerHealth::Healthy),
            (false, ServerHealth::Healthy),
            (false, ServerHealth::Healthy),
            (true, ServerHealth::Healthy),
            (false, ServerHealth::Healthy),
            (false, ServerHealth::Healthy),
            (false, ServerHealth::Unhealthy),
            (false, ServerHealth::Unhealthy),
            (true, ServerHealth::Healthy),
        ];
        for (step, (answers, expected)) in steps.into_iter().enumerate() {
            let silent = ProbeFailure::Silent("connection refused".to_owned());
            let result = if answers { Ok(()) } else { Err(silent) };
            health = judge(&mut check, result, health, 3);
            assert_eq!(health, expected, "step {step}");
            assert_eq!(check.error.is_some(), !answers, "step {step}");
        }
        let silent = Err(ProbeFailure::Silent(String::new()));
        assert_eq!(judge(&mut check, silent, health, 0), ServerHealth::Unhealthy);
        let refused = Err(ProbeFailure::Refused("no such database".to_owned()));
        assert_eq!(judge(&mut check, refused, health, 0), ServerHealth::Refusing);
    }

    #[test]
    fn reasons_are_cut_between_characters() {
        assert_eq!(shortened("short".to_owned()), "short");
        assert!(shortened("ä".repeat(1000)).len() <= REASON_BYTES_MAX + 1);
    }
}
