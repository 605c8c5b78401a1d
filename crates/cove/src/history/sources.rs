//! Reads services for the history: counters and gauges in memory, once a second.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::bouncer::Bouncer;
use ::bouncer::service::{TenantActivity, TenantSampler};
use ::catalog::service::RelationService;
use ::gateway::{GatewayActivity, GatewayService};
use executions::{ExecutionActivity, ExecutionService, ExecutionTotals, VerdictClass};
use node::history::{LatencyCounts, SeriesId, SeriesSample, SeriesSpec};
use node::telemetry::{HttpMetrics, ProcessFigures, RequestActivity};
use sandbox::Engine;
use sessions::{SessionActivity, Sessions};

use super::catalogue as c;

/// Maximum tenants with past sessions that are kept, so that a tenant sees its last session end.
const SESSION_TENANTS_MAX: usize = 64;

/// Time for which a tenant without sessions is kept.
const SESSION_TENANT_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Services that are read.
pub(crate) struct HistorySources {
    pub(crate) engine: Engine,
    pub(crate) executions: ExecutionService,
    pub(crate) sessions: Sessions,
    pub(crate) bouncer: Option<Bouncer>,
    pub(crate) catalog: Option<RelationService>,
    pub(crate) gateway: GatewayService,
    pub(crate) http: HttpMetrics,
}

/// Returns the owner of series about a token's executions.
pub(super) fn owner_of_executions(token_id: &str) -> String {
    format!("executions/{token_id}")
}

/// Returns the owner of series about a tenant's sessions.
pub(super) fn owner_of_sessions(tenant: &str) -> String {
    format!("sessions/{tenant}")
}

/// Previous reading, to compute rates from counters.
#[derive(Default)]
struct ServerReading {
    executions: ExecutionActivity,
    sessions: SessionActivity,
    commits: (u64, u64),
    gateway: GatewayActivity,
    http: RequestActivity,
    catalog: RequestActivity,
    cpu_s: f64,
}

/// Converts readings of services to samples.
pub(super) struct HistorySampler {
    sources: HistorySources,
    tenants: TenantSampler,
    before: Option<(Instant, ServerReading)>,
    /// Tenants that have or had sessions, with the time of the last one.
    session_tenants: HashMap<Arc<str>, Instant>,
}

/// Samples of one moment.
struct SampleSheet {
    samples: Vec<SeriesSample>,
    /// Seconds since the last reading; none for the first.
    elapsed_s: Option<f64>,
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "values are kept in single precision"
)]
impl SampleSheet {
    fn put(&mut self, spec: &'static SeriesSpec, value: f64) {
        self.put_as(spec, None, &Arc::default(), value);
    }

    fn put_as(
        &mut self,
        spec: &'static SeriesSpec,
        owner: Option<&Arc<str>>,
        label: &Arc<str>,
        value: f64,
    ) {
        let id = SeriesId { spec, owner: owner.cloned(), label: Arc::clone(label) };
        self.samples.push(SeriesSample { id, value: value as f32 });
    }

    fn count(&mut self, spec: &'static SeriesSpec, value: usize) {
        self.put(spec, value as f64);
    }

    /// Returns a rate; a counter below its previous value has restarted.
    fn per_second(&self, now: u64, before: u64) -> f64 {
        let since = now.checked_sub(before).unwrap_or(now);
        self.elapsed_s.map_or(f64::NAN, |elapsed| since as f64 / elapsed)
    }

    fn rate(&mut self, spec: &'static SeriesSpec, now: u64, before: u64) {
        self.put(spec, self.per_second(now, before));
    }

    /// Adds the duration that a share of the events since the last reading did not exceed; a gap if
    /// there were none.
    fn percentile(
        &mut self,
        spec: &'static SeriesSpec,
        now: &LatencyCounts,
        before: &LatencyCounts,
        per_mille: u64,
    ) {
        let found = self.elapsed_s.and_then(|_| now.percentile_since(before, per_mille));
        self.put(spec, found.unwrap_or(f64::NAN));
    }
}

impl HistorySampler {
    pub(super) fn new(sources: HistorySources) -> HistorySampler {
        HistorySampler {
            sources,
            tenants: TenantSampler::default(),
            before: None,
            session_tenants: HashMap::new(),
        }
    }

    /// Reads every service.
    pub(super) fn sample(&mut self, now: Instant) -> Vec<SeriesSample> {
        let (at, before) = self.before.take().unzip();
        let elapsed = at.map(|at| now.saturating_duration_since(at).as_secs_f64().max(0.001));
        let before = before.unwrap_or_default();
        let mut sheet = SampleSheet { samples: Vec::with_capacity(128), elapsed_s: elapsed };
        let executions = self.sources.executions.activity();
        let sessions = self.sources.sessions.activity();
        let gateway = self.sources.gateway.activity();
        let (http, catalog) = self.sources.http.activity();
        let catalog = catalog.unwrap_or_default();
        let commits = self.sources.catalog.as_ref().map(RelationService::commits_and_conflicts);
        let process = ProcessFigures::read();

        // Series of the whole server first: if there is no room, others are left out.
        of_executions(&mut sheet, &executions, &before.executions);
        sheet.count(&c::SANDBOXES_PREPARED, self.sources.engine.stats().prepared);
        if let Some(sessions) = &sessions {
            sheet.count(&c::SESSION_SANDBOXES, sessions.sandboxes);
            sheet.count(&c::SESSION_SANDBOXES_RUNNING, sessions.at_work);
            sheet.rate(&c::SESSION_MESSAGES, sessions.messages, before.sessions.messages);
            sheet.rate(&c::SESSION_COMMANDS, sessions.commands, before.sessions.commands);
        }
        if let Some((commits, conflicts)) = commits {
            sheet.rate(&c::CATALOG_REQUESTS, catalog.requests, before.catalog.requests);
            sheet.rate(&c::CATALOG_FAILURES, catalog.failures, before.catalog.failures);
            sheet.percentile(&c::CATALOG_P95, &catalog.took, &before.catalog.took, 950);
            sheet.rate(&c::CATALOG_COMMITS, commits, before.commits.0);
            sheet.rate(&c::CATALOG_CONFLICTS, conflicts, before.commits.1);
        }
        sheet.rate(&c::GATEWAY_REQUESTS, gateway.requests, before.gateway.requests);
        sheet.rate(&c::GATEWAY_REFUSALS, gateway.refusals, before.gateway.refusals);
        sheet.count(&c::GATEWAY_CONNECTIONS, gateway.connections);
        sheet.rate(&c::HTTP_REQUESTS, http.requests, before.http.requests);
        sheet.rate(&c::HTTP_FAILURES, http.failures, before.http.failures);
        sheet.percentile(&c::HTTP_P95, &http.took, &before.http.took, 950);
        sheet.count(&c::HTTP_STREAMS, usize::try_from(self.sources.http.streams()).unwrap_or(0));
        if let Some(process) = process {
            sheet.put(&c::PROCESS_MEMORY, process.resident_bytes);
            let cores = elapsed.map_or(f64::NAN, |it| (process.cpu_s - before.cpu_s).max(0.0) / it);
            sheet.put(&c::PROCESS_CPU, cores);
            if let Some(open_fds) = process.open_fds {
                sheet.put(&c::PROCESS_FDS, open_fds);
            }
        }
        if let Some(bouncer) = &self.sources.bouncer {
            for tenant in self.tenants.sample(bouncer, elapsed.unwrap_or(1.0)) {
                of_database(&mut sheet, &tenant);
            }
        }
        of_tenants(&mut sheet, &executions, &before.executions);
        self.sessions_of_tenants(&mut sheet, sessions.as_ref(), now);

        let sessions = sessions.unwrap_or_default();
        let commits = commits.unwrap_or_default();
        let cpu_s = process.map_or(before.cpu_s, |it| it.cpu_s);
        let reading =
            ServerReading { executions, sessions, commits, gateway, http, catalog, cpu_s };
        self.before = Some((now, reading));
        sheet.samples
    }

    fn sessions_of_tenants(
        &mut self,
        sheet: &mut SampleSheet,
        sessions: Option<&SessionActivity>,
        now: Instant,
    ) {
        let Some(sessions) = sessions else { return };
        let known = &mut self.session_tenants;
        for (tenant, _, _) in &sessions.tenants {
            if known.len() < SESSION_TENANTS_MAX || known.contains_key(tenant) {
                known.insert(Arc::clone(tenant), now);
            }
        }
        known.retain(|_, at| now.saturating_duration_since(*at) < SESSION_TENANT_AGE_MAX);
        let counts: HashMap<&str, (usize, usize)> = sessions
            .tenants
            .iter()
            .map(|(name, all, at_work)| (&**name, (*all, *at_work)))
            .collect();
        for tenant in known.keys() {
            let (all, at_work) = counts.get(&**tenant).copied().unwrap_or_default();
            let owner: Arc<str> = owner_of_sessions(tenant).into();
            let count = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
            let none = Arc::default();
            sheet.put_as(&c::SESSION_SANDBOXES, Some(&owner), &none, count(all));
            sheet.put_as(&c::SESSION_SANDBOXES_RUNNING, Some(&owner), &none, count(at_work));
        }
    }
}

fn of_executions(sheet: &mut SampleSheet, now: &ExecutionActivity, before: &ExecutionActivity) {
    totals(sheet, None, &now.total, &before.total);
    sheet.percentile(&c::EXECUTION_WAIT_P50, &now.wait, &before.wait, 500);
    sheet.percentile(&c::EXECUTION_WAIT_P95, &now.wait, &before.wait, 950);
    sheet.percentile(&c::EXECUTION_RUN_P50, &now.run, &before.run, 500);
    sheet.percentile(&c::EXECUTION_RUN_P95, &now.run, &before.run, 950);
}

fn of_tenants(sheet: &mut SampleSheet, now: &ExecutionActivity, before: &ExecutionActivity) {
    let known: HashMap<&str, &ExecutionTotals> =
        before.tenants.iter().map(|(name, totals)| (&**name, totals)).collect();
    for (tenant, now) in &now.tenants {
        let owner = owner_of_executions(tenant).into();
        // A new tenant had no counts before.
        let before = known.get(&**tenant).copied().copied().unwrap_or_default();
        totals(sheet, Some(&owner), now, &before);
    }
}

fn totals(
    sheet: &mut SampleSheet,
    owner: Option<&Arc<str>>,
    now: &ExecutionTotals,
    before: &ExecutionTotals,
) {
    let none = Arc::default();
    let started = sheet.per_second(now.started, before.started);
    sheet.put_as(&c::EXECUTIONS_STARTED, owner, &none, started);
    for (at, class) in VerdictClass::ALL.into_iter().enumerate() {
        let ended = sheet.per_second(now.ended[at], before.ended[at]);
        sheet.put_as(&c::EXECUTIONS_ENDED, owner, &class.as_str().into(), ended);
    }
    let refused = sheet.per_second(now.refused, before.refused);
    sheet.put_as(&c::EXECUTIONS_REFUSED, owner, &none, refused);
    let count = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    sheet.put_as(&c::EXECUTIONS_RUNNING, owner, &none, count(now.running));
    sheet.put_as(&c::EXECUTIONS_WAITING, owner, &none, count(now.waiting));
}

fn of_database(sheet: &mut SampleSheet, tenant: &TenantActivity) {
    let count = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let [query_p50, query_p95, query_p99] = tenant.query_s.map(|it| it.unwrap_or(f64::NAN));
    let [wait_p50, wait_p95, wait_p99] = tenant.wait_s.map(|it| it.unwrap_or(f64::NAN));
    for (spec, value) in [
        (&c::BOUNCER_CLIENTS, count(tenant.clients)),
        (&c::BOUNCER_ACTIVE, count(tenant.clients_active)),
        (&c::BOUNCER_IDLE, count(tenant.servers_idle)),
        (&c::BOUNCER_WAITING, count(tenant.clients_waiting)),
        (&c::BOUNCER_TRANSACTIONS, tenant.transactions),
        (&c::BOUNCER_QUERIES, tenant.queries),
        (&c::BOUNCER_ERRORS, tenant.errors),
        (&c::BOUNCER_RECEIVED, tenant.received_bytes),
        (&c::BOUNCER_SENT, tenant.sent_bytes),
        (&c::BOUNCER_QUERY_P50, query_p50),
        (&c::BOUNCER_QUERY_P95, query_p95),
        (&c::BOUNCER_QUERY_P99, query_p99),
        (&c::BOUNCER_WAIT_P50, wait_p50),
        (&c::BOUNCER_WAIT_P95, wait_p95),
        (&c::BOUNCER_WAIT_P99, wait_p99),
    ] {
        sheet.put_as(spec, None, &tenant.name, value);
    }
}
