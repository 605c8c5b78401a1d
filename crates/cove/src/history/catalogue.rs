//! The table of series. Names are those of the metrics, if there is such a metric.

use api::HistoryUnit::{self, Bytes, BytesPerSecond, Cores, Count, PerSecond, Seconds};
use node::auth::TokenScope;
use node::history::SeriesFold::{self, Max, Mean};
use node::history::SeriesSpec;

const fn series(
    name: &'static str,
    unit: HistoryUnit,
    fold: SeriesFold,
    label: Option<&'static str>,
) -> SeriesSpec {
    SeriesSpec { name, unit, label, fold }
}

/// Label of series of the bouncer.
pub(super) const TENANT: &str = "tenant";

macro_rules! catalogue {
    ($($constant:ident = $name:literal, $unit:ident, $fold:ident, $label:expr;)*) => {
        $(pub(super) static $constant: SeriesSpec = series($name, $unit, $fold, $label);)*

        /// All series.
        pub(super) static ALL: &[&SeriesSpec] = &[$(&$constant),*];
    };
}

catalogue! {
    EXECUTIONS_STARTED = "cove_executions_started", PerSecond, Mean, None;
    EXECUTIONS_ENDED = "cove_executions_ended", PerSecond, Mean, Some("class");
    EXECUTIONS_REFUSED = "cove_executions_refused", PerSecond, Mean, None;
    EXECUTIONS_RUNNING = "cove_executions_running", Count, Max, None;
    EXECUTIONS_WAITING = "cove_executions_waiting", Count, Max, None;
    EXECUTION_WAIT_P50 = "cove_execution_wait_p50_seconds", Seconds, Mean, None;
    EXECUTION_WAIT_P95 = "cove_execution_wait_p95_seconds", Seconds, Max, None;
    EXECUTION_RUN_P50 = "cove_execution_run_p50_seconds", Seconds, Mean, None;
    EXECUTION_RUN_P95 = "cove_execution_run_p95_seconds", Seconds, Max, None;
    SANDBOXES_PREPARED = "cove_sandboxes_prepared", Count, Mean, None;
    SESSION_SANDBOXES = "cove_session_sandboxes", Count, Max, None;
    SESSION_SANDBOXES_RUNNING = "cove_session_sandboxes_running", Count, Max, None;
    SESSION_MESSAGES = "cove_session_messages", PerSecond, Mean, None;
    SESSION_COMMANDS = "cove_session_commands", PerSecond, Mean, None;
    BOUNCER_CLIENTS = "cove_bouncer_clients", Count, Max, Some(TENANT);
    BOUNCER_ACTIVE = "cove_bouncer_connections_active", Count, Max, Some(TENANT);
    BOUNCER_IDLE = "cove_bouncer_connections_idle", Count, Max, Some(TENANT);
    BOUNCER_WAITING = "cove_bouncer_connections_waiting", Count, Max, Some(TENANT);
    BOUNCER_TRANSACTIONS = "cove_bouncer_transactions", PerSecond, Mean, Some(TENANT);
    BOUNCER_QUERIES = "cove_bouncer_queries", PerSecond, Mean, Some(TENANT);
    BOUNCER_ERRORS = "cove_bouncer_errors", PerSecond, Mean, Some(TENANT);
    BOUNCER_RECEIVED = "cove_bouncer_received_bytes", BytesPerSecond, Mean, Some(TENANT);
    BOUNCER_SENT = "cove_bouncer_sent_bytes", BytesPerSecond, Mean, Some(TENANT);
    BOUNCER_QUERY_P50 = "cove_bouncer_query_p50_seconds", Seconds, Mean, Some(TENANT);
    BOUNCER_QUERY_P95 = "cove_bouncer_query_p95_seconds", Seconds, Max, Some(TENANT);
    BOUNCER_QUERY_P99 = "cove_bouncer_query_p99_seconds", Seconds, Max, Some(TENANT);
    BOUNCER_WAIT_P50 = "cove_bouncer_wait_p50_seconds", Seconds, Mean, Some(TENANT);
    BOUNCER_WAIT_P95 = "cove_bouncer_wait_p95_seconds", Seconds, Max, Some(TENANT);
    BOUNCER_WAIT_P99 = "cove_bouncer_wait_p99_seconds", Seconds, Max, Some(TENANT);
    CATALOG_REQUESTS = "cove_catalog_requests", PerSecond, Mean, None;
    CATALOG_FAILURES = "cove_catalog_failures", PerSecond, Mean, None;
    CATALOG_P95 = "cove_catalog_request_p95_seconds", Seconds, Max, None;
    CATALOG_COMMITS = "cove_catalog_commits", PerSecond, Mean, None;
    CATALOG_CONFLICTS = "cove_catalog_conflicts", PerSecond, Mean, None;
    GATEWAY_REQUESTS = "cove_gateway_requests", PerSecond, Mean, None;
    GATEWAY_REFUSALS = "cove_gateway_refusals", PerSecond, Mean, None;
    GATEWAY_CONNECTIONS = "cove_gateway_connections", Count, Max, None;
    HTTP_REQUESTS = "cove_http_requests", PerSecond, Mean, None;
    HTTP_FAILURES = "cove_http_failures", PerSecond, Mean, None;
    HTTP_P95 = "cove_http_request_p95_seconds", Seconds, Max, None;
    HTTP_STREAMS = "cove_http_streams", Count, Max, None;
    PROCESS_MEMORY = "process_resident_memory_bytes", Bytes, Max, None;
    PROCESS_CPU = "process_cpu_cores", Cores, Mean, None;
    PROCESS_FDS = "process_open_fds", Count, Max, None;
}

/// Returns the series with a name.
pub(super) fn find(name: &str) -> Option<&'static SeriesSpec> {
    ALL.iter().find(|it| it.name == name).copied()
}

/// Returns the scope that a series requires; none if any token may read it.
pub(super) fn scope_of(name: &str) -> Option<TokenScope> {
    let scopes = [
        ("cove_execution", TokenScope::Executions),
        ("cove_session", TokenScope::Sessions),
        ("cove_bouncer_", TokenScope::Tenants),
        ("cove_catalog_", TokenScope::Catalog),
    ];
    scopes.into_iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, scope)| scope)
}

/// Series that are also kept for each tenant of tokens.
static OF_TENANTS: [&SeriesSpec; 7] = [
    &EXECUTIONS_STARTED,
    &EXECUTIONS_ENDED,
    &EXECUTIONS_REFUSED,
    &EXECUTIONS_RUNNING,
    &EXECUTIONS_WAITING,
    &SESSION_SANDBOXES,
    &SESSION_SANDBOXES_RUNNING,
];

/// Returns whether a series is also kept for each tenant of tokens.
pub(super) fn is_kept_by_tenant(name: &str) -> bool {
    OF_TENANTS.iter().any(|it| it.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_documented() {
        let page = include_str!("../../../../docs/history.md");
        for (at, spec) in ALL.iter().enumerate() {
            assert_eq!(ALL.iter().position(|it| it.name == spec.name), Some(at), "{}", spec.name);
            assert!(page.contains(&format!("`{}`", spec.name)), "docs/history.md: {}", spec.name);
        }
    }
}
