//! Views of tenants and connections, and how a definition in a view is converted back.

use std::collections::BTreeMap;

use api::{
    BouncerClient, BouncerServer, Percentiles, TenantAdmission, TenantHealth, TenantSpec,
    TenantStats as Figures, TenantView,
};
use pooler_core::link::ErrorTally;

use crate::config::{BouncerConfig, RELOADED};
use crate::relay::snapshot::{ClientState, ClientView, ServerState, ServerView};
use crate::relay::stats::{DurationDistribution, ThreadTenantStats};
use crate::tenants::{
    DefinitionError, ServerHealth, TenantDefinition, TenantSnapshot, WorkAdmission, passwords,
};

/// Placeholder of a password.
pub(crate) const REDACTED: &str = "***";

pub(super) fn tenant(definition: &TenantDefinition, tenant: &TenantSnapshot) -> TenantView {
    let mut spec = definition.spec.clone();
    for (_, text) in passwords(&mut spec) {
        REDACTED.clone_into(text);
    }
    TenantView {
        spec,
        origin: definition.origin,
        admission: admission(tenant.state.admission()),
        health: health(tenant.state.health()),
    }
}

pub(super) fn admission(admission: WorkAdmission) -> TenantAdmission {
    match admission {
        WorkAdmission::Open => TenantAdmission::Open,
        WorkAdmission::Paused => TenantAdmission::Paused,
        WorkAdmission::Refusing => TenantAdmission::Refusing,
        WorkAdmission::Draining => TenantAdmission::Draining,
    }
}

pub(super) fn health(health: ServerHealth) -> TenantHealth {
    match health {
        ServerHealth::Unknown => TenantHealth::Unknown,
        ServerHealth::Healthy => TenantHealth::Healthy,
        ServerHealth::Unhealthy | ServerHealth::Refusing => TenantHealth::Unhealthy,
    }
}

/// Fills in passwords that were shown as `***`: from the same place, or for users from the former
/// user of the same name.
pub(super) fn complete(
    spec: TenantSpec,
    before: Option<&TenantSpec>,
) -> Result<TenantSpec, DefinitionError> {
    let mut spec = spec;
    let names: Vec<String> = spec.users.iter().map(|user| user.name.clone()).collect();
    for (place, text) in passwords(&mut spec) {
        if *text != REDACTED {
            continue;
        }
        let kept = before.and_then(|before| password_at(before, &place, &names));
        *text = kept.ok_or_else(|| {
            DefinitionError::new(place, "`***` keeps a stored password, but none is stored")
        })?;
    }
    Ok(spec)
}

/// Returns the password at a place of another definition, in which users may have other indexes.
fn password_at(before: &TenantSpec, place: &str, names: &[String]) -> Option<String> {
    let of_user = place.strip_prefix("users[").and_then(|rest| rest.split_once("]."));
    let Some((index, field)) = of_user else {
        return match place {
            "server_password" => before.server_password.clone(),
            "auth_query.password" => before.auth_query.as_ref()?.password.clone(),
            _ => None,
        };
    };
    let name = names.get(index.parse::<usize>().ok()?)?;
    let user = before.users.iter().find(|user| user.name == *name)?;
    match field {
        "password" => user.password.clone(),
        "server_password" => user.server_password.clone(),
        _ => None,
    }
}

/// Returns an error of one tenant, without the tenant's name before the field.
pub(super) fn own(refusal: DefinitionError, name: &str) -> DefinitionError {
    let inside = refusal.field.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
    let field = inside.map(str::to_owned);
    DefinitionError { field: field.unwrap_or(refusal.field), message: refusal.message }
}

/// Sums the counters of threads.
pub(crate) fn figures(
    tenant: &TenantSnapshot,
    stats: &[std::sync::Arc<ThreadTenantStats>],
) -> Figures {
    let sum = |of: fn(&ThreadTenantStats) -> u64| stats.iter().map(|it| of(it)).sum::<u64>();
    let [query, transaction, wait] = distributions(stats);
    let servers = sum(|it| it.servers.load());
    let servers_active = sum(|it| it.clients_active.load());
    let servers_idle = sum(|it| it.servers_idle.load());
    Figures {
        name: tenant.name.to_string(),
        clients: sum(|it| it.clients.load()),
        clients_active: servers_active,
        clients_waiting: sum(|it| it.clients_waiting.load()),
        servers,
        servers_active,
        servers_idle,
        // The counts are not a consistent snapshot.
        servers_busy: servers.saturating_sub(servers_active).saturating_sub(servers_idle),
        server_connections_max: tenant.limits.server_connections_max.into(),
        transactions: sum(|it| it.transactions.load()),
        queries: sum(|it| it.queries.load()),
        received_bytes: sum(|it| it.received_bytes.load()),
        sent_bytes: sum(|it| it.sent_bytes.load()),
        busy_us: sum(|it| it.busy_us.load()),
        wait_us: wait.sum_us(),
        exhausted: sum(|it| it.exhausted.load()),
        pins: pins(stats).into_iter().map(|(reason, count)| (reason.to_owned(), count)).collect(),
        errors: errors(stats).by_text(),
        query_ms: percentiles(&query),
        transaction_ms: percentiles(&transaction),
        wait_ms: percentiles(&wait),
        nodes: 1,
        missing: Vec::new(),
    }
}

/// Returns the errors that servers sent to clients, of all threads together.
pub(crate) fn errors(stats: &[std::sync::Arc<ThreadTenantStats>]) -> ErrorTally {
    let mut sum = ErrorTally::default();
    for of_thread in stats {
        of_thread.add_errors_to(&mut sum);
    }
    sum
}

/// Returns how often clients kept a server connection beyond a transaction, by reason, of all
/// threads together.
pub(crate) fn pins(stats: &[std::sync::Arc<ThreadTenantStats>]) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    for (reason, count) in stats.iter().flat_map(|it| it.pins()) {
        *sums.entry(reason).or_default() += count;
    }
    sums
}

/// Returns the durations of statements, transactions and waits, of all threads together.
pub(crate) fn distributions(
    stats: &[std::sync::Arc<ThreadTenantStats>],
) -> [DurationDistribution; 3] {
    let mut sums: [DurationDistribution; 3] = Default::default();
    for times in stats.iter().filter_map(|it| it.times_seen()) {
        let [query, transaction, wait] = &mut sums;
        times.query.add_to(query);
        times.transaction.add_to(transaction);
        times.wait.add_to(wait);
    }
    sums
}

pub(super) fn percentiles(of: &DurationDistribution) -> Percentiles {
    let ms = |per_mille| of.percentile_us(per_mille).map_or(0.0, us_as_ms);
    Percentiles { p50: ms(500), p95: ms(950), p99: ms(990), max: ms(1000) }
}

/// Exact below 2^32 microseconds, an hour; longer times are shown as that.
fn us_as_ms(us: u64) -> f64 {
    f64::from(u32::try_from(us).unwrap_or(u32::MAX)) / 1000.0
}

fn us_as_seconds(us: u64) -> f64 {
    std::time::Duration::from_micros(us).as_secs_f64()
}

pub(super) fn client(view: &ClientView, node: Option<String>) -> BouncerClient {
    let state = match view.state {
        ClientState::Login => "login",
        ClientState::Console => "console",
        ClientState::Idle => "idle",
        ClientState::Waiting => "waiting",
        ClientState::Active => "active",
        ClientState::Closing => "closing",
    };
    BouncerClient {
        pid: view.pid,
        tenant: view.tenant.as_ref().map(|(_, name)| name.to_string()).unwrap_or_default(),
        user: view.user.as_deref().unwrap_or_default().to_owned(),
        address: view.address.map_or_else(|| "unix".to_owned(), |it| it.to_string()),
        state: state.to_owned(),
        server_pid: view.server_pid,
        pins: view.pins.iter().map(|it| (*it).to_owned()).collect(),
        in_transaction: view.in_transaction,
        application_name: view.application_name.as_deref().map(str::to_owned),
        connected_s: us_as_seconds(view.age_us),
        state_s: us_as_seconds(view.state_us),
        waiting_s: (view.state == ClientState::Waiting).then(|| us_as_seconds(view.state_us)),
        statement_s: view.statement_us.map(us_as_seconds),
        tls: view.tls,
        node,
    }
}

pub(super) fn server(
    view: &ServerView,
    tenant: &TenantSnapshot,
    node: Option<String>,
) -> BouncerServer {
    let state = match view.state {
        ServerState::Login => "login",
        ServerState::Idle => "idle",
        ServerState::Active => "active",
        ServerState::Resetting => "resetting",
        ServerState::Cancelling => "cancelling",
    };
    BouncerServer {
        pid: view.pid,
        tenant: view.tenant.1.to_string(),
        user: view.user.to_string(),
        address: tenant.server.address.to_string(),
        state: state.to_owned(),
        client_pid: view.client_pid,
        connected_s: us_as_seconds(view.age_us),
        tls: view.tls,
        node,
    }
}

/// Returns the settings that changed and need a restart.
pub(super) fn needs_restart(before: &BouncerConfig, after: &BouncerConfig) -> Vec<String> {
    let tables = [before, after].map(|it| serde_json::to_value(it).unwrap_or_default());
    let [before, after] = &tables;
    let changed = before.as_object().into_iter().flatten().filter(|(key, value)| {
        after.get(key.as_str()) != Some(*value) && !RELOADED.contains(&key.as_str())
    });
    changed.map(|(key, _)| format!("bouncer.{key}")).collect()
}
