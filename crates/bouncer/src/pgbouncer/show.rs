//! The tables of `SHOW`, with PgBouncer's columns: exporters read them by name.
//!
//! Pure: all input is in a [`ShowView`]. Columns without a meaning here have PgBouncer's empty
//! value, so that programs can still parse them.
//!
//! # References
//! - <https://www.pgbouncer.org/usage.html#show-commands>

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use api::PoolMode;
use node::clock::rfc3339;

use super::command::ShowTopic;
use super::settings::{SettingEffect, SettingValues};
use super::table::{ShowTable, of};
use crate::relay::dialect::DATABASE;
use crate::relay::snapshot::{ClientState, ClientView, ServerState, ServerView, ThreadSnapshot};
use crate::tenants::{
    BackendAddress, TenantId, TenantRouting, TenantSnapshot, TenantUser, UserRuleSet, WorkAdmission,
};

/// The version of PgBouncer whose columns these are.
const VERSION: &str = concat!("PgBouncer 1.25.2 (Cove ", env!("CARGO_PKG_VERSION"), ")");

/// Counters of a tenant since the start; times in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantTotals {
    /// Server connections given to clients.
    pub assignments: u64,
    /// Transactions.
    pub transactions: u64,
    /// Statements.
    pub queries: u64,
    /// Bytes from clients.
    pub received: u64,
    /// Bytes to clients.
    pub sent: u64,
    /// Time in transactions.
    pub transaction_us: u64,
    /// Time in statements.
    pub query_us: u64,
    /// Time waiting for a server connection.
    pub wait_us: u64,
    /// Clients that logged in.
    pub logins: u64,
}

impl TenantTotals {
    fn plus(self, other: TenantTotals) -> TenantTotals {
        TenantTotals {
            assignments: self.assignments + other.assignments,
            transactions: self.transactions + other.transactions,
            queries: self.queries + other.queries,
            received: self.received + other.received,
            sent: self.sent + other.sent,
            transaction_us: self.transaction_us + other.transaction_us,
            query_us: self.query_us + other.query_us,
            wait_us: self.wait_us + other.wait_us,
            logins: self.logins + other.logins,
        }
    }

    fn minus(self, earlier: TenantTotals) -> TenantTotals {
        TenantTotals {
            assignments: self.assignments.saturating_sub(earlier.assignments),
            transactions: self.transactions.saturating_sub(earlier.transactions),
            queries: self.queries.saturating_sub(earlier.queries),
            received: self.received.saturating_sub(earlier.received),
            sent: self.sent.saturating_sub(earlier.sent),
            transaction_us: self.transaction_us.saturating_sub(earlier.transaction_us),
            query_us: self.query_us.saturating_sub(earlier.query_us),
            wait_us: self.wait_us.saturating_sub(earlier.wait_us),
            logins: self.logins.saturating_sub(earlier.logins),
        }
    }
}

/// State to show, at one time.
#[derive(Debug)]
pub struct ShowView<'a> {
    /// Tenants.
    pub routing: &'a TenantRouting,
    /// Connections of every thread.
    pub snapshots: &'a [ThreadSnapshot],
    /// Settings in force.
    pub values: &'a SettingValues,
    /// Rules for users by name.
    pub rules: &'a UserRuleSet,
    /// Counts by tenant.
    pub totals: &'a BTreeMap<TenantId, TenantTotals>,
    /// Counters when the period of averages began.
    pub earlier: &'a BTreeMap<TenantId, TenantTotals>,
    /// Length of the period.
    pub period: Duration,
    /// `active`, `paused`, `suspended`, `shutting_down`.
    pub state: &'a str,
    /// Added to the numbers of connections, so that those of several nodes differ.
    pub first_number: u64,
    /// The wall clock, in milliseconds since 1970.
    pub now_ms: u64,
}

/// The result set of a topic.
#[must_use]
pub fn show(topic: ShowTopic, view: &ShowView<'_>) -> ShowTable {
    match topic {
        ShowTopic::Help => help(),
        ShowTopic::Config => config(view.values),
        ShowTopic::Databases => databases(view),
        ShowTopic::Pools => pools(view),
        ShowTopic::Clients => ShowTable::new(&CONNECTION).with(clients(view)),
        ShowTopic::Servers => ShowTable::new(&CONNECTION).with(servers(view)),
        ShowTopic::Sockets | ShowTopic::ActiveSockets => {
            sockets(view, topic == ShowTopic::ActiveSockets)
        }
        ShowTopic::Lists => lists(view),
        ShowTopic::Version => ShowTable::new(&["version"]).with([vec![of(VERSION)]]),
        ShowTopic::State => state(view),
        ShowTopic::Stats => stats(view, true, true),
        ShowTopic::StatsTotals => stats(view, true, false),
        ShowTopic::StatsAverages => stats(view, false, true),
        ShowTopic::Totals => totals(view),
        ShowTopic::Users => users(view),
        ShowTopic::Pins => pins(view),
        // These have no counterpart here: descriptors are handed over in another way, the allocator
        // owns the memory, the system resolves names, one process has all threads.
        ShowTopic::Fds => ShowTable::new(&FDS),
        ShowTopic::Mem => ShowTable::new(&["name", "size", "used", "free", "memtotal"]),
        ShowTopic::DnsHosts => ShowTable::new(&["hostname", "ttl", "addrs"]),
        ShowTopic::DnsZones => ShowTable::new(&["zonename", "serial", "count"]),
        ShowTopic::Peers => ShowTable::new(&["peer_id", "host", "port", "pool_size"]),
        ShowTopic::PeerPools => ShowTable::new(&PEER_POOLS),
    }
}

const FDS: [&str; 13] = [
    "fd",
    "task",
    "user",
    "database",
    "addr",
    "port",
    "cancel",
    "link",
    "client_encoding",
    "std_strings",
    "datestyle",
    "timezone",
    "password",
];

const PEER_POOLS: [&str; 5] =
    ["database", "cl_active_cancel_req", "cl_waiting_cancel_req", "sv_active_cancel", "sv_login"];

fn help() -> ShowTable {
    let topics = super::command::TOPICS.iter().map(|(name, _)| format!("SHOW {name}"));
    let others = [
        "SET key = value",
        "PAUSE [db]",
        "RESUME [db]",
        "DISABLE db",
        "ENABLE db",
        "RECONNECT [db]",
        "KILL [db]",
        "KILL_CLIENT id",
        "SUSPEND",
        "RELOAD",
        "WAIT_CLOSE [db]",
        "SHUTDOWN [WAIT_FOR_SERVERS | WAIT_FOR_CLIENTS]",
    ];
    let rows = topics.chain(others.map(str::to_owned));
    ShowTable::new(&["command"]).with(rows.map(|command| vec![Some(command)]))
}

fn config(values: &SettingValues) -> ShowTable {
    let row = |(setting, value): (&'static super::settings::PgbouncerSetting, &str)| {
        let changeable = if setting.change == SettingEffect::Live { "yes" } else { "no" };
        vec![of(setting.name), of(value), of(setting.default), of(changeable)]
    };
    ShowTable::new(&["key", "value", "default", "changeable"]).with(values.iter().map(row))
}

fn sorted(routing: &TenantRouting) -> Vec<&Arc<TenantSnapshot>> {
    let mut tenants: Vec<_> = routing.tenants().collect();
    tenants.sort_by(|a, b| a.name.cmp(&b.name));
    tenants
}

fn mode_name(mode: PoolMode) -> &'static str {
    match mode {
        PoolMode::Session => "session",
        PoolMode::Transaction => "transaction",
        PoolMode::Statement => "statement",
    }
}

/// Formats a limit: 0 if there is none, as in PgBouncer.
fn limit(count: Option<u32>) -> Option<String> {
    of(count.unwrap_or(0))
}

impl ShowView<'_> {
    fn all_clients(&self) -> impl Iterator<Item = &ClientView> {
        self.snapshots.iter().flat_map(|snapshot| &snapshot.clients)
    }

    fn all_servers(&self) -> impl Iterator<Item = &ServerView> {
        self.snapshots.iter().flat_map(|snapshot| &snapshot.servers)
    }

    fn clients_of(&self, tenant: TenantId) -> impl Iterator<Item = &ClientView> {
        let is_its =
            move |client: &&ClientView| client.tenant.as_ref().is_some_and(|(id, _)| *id == tenant);
        self.all_clients().filter(is_its)
    }

    fn servers_of(&self, tenant: TenantId) -> impl Iterator<Item = &ServerView> {
        self.all_servers().filter(move |server| server.tenant.0 == tenant)
    }

    fn time(&self, ago_us: u64) -> String {
        let at = UNIX_EPOCH + Duration::from_millis(self.now_ms.saturating_sub(ago_us / 1000));
        // PgBouncer writes a space and the time zone.
        rfc3339(at).replace('T', " ").replace('Z', " UTC")
    }
}

fn databases(view: &ShowView<'_>) -> ShowTable {
    let rows = sorted(view.routing).into_iter().map(|tenant| {
        let limits = &tenant.limits;
        let (host, port) = match &tenant.server.address {
            BackendAddress::Tcp { host, port } => (host.clone(), *port),
            BackendAddress::Unix { directory, port } => (directory.display().to_string(), *port),
            BackendAddress::Socket { path } => (path.display().to_string(), 0),
        };
        let admission = tenant.state.admission();
        let is = |wanted| of(u8::from(admission == wanted));
        vec![
            of(&tenant.name),
            of(host),
            of(port),
            of(&tenant.database),
            tenant.forced.as_ref().map(|(user, _)| user.to_string()),
            of(limits.user_server_connections_max.unwrap_or(limits.server_connections_max)),
            of(limits.server_connections_min),
            of(limits.server_connections_reserve),
            of(limits.server_lifetime.map_or(0, |it| it.as_secs())),
            of(mode_name(tenant.mode)),
            None,
            of(limits.server_connections_max),
            of(view.servers_of(tenant.id).count()),
            limit(limits.clients_max),
            of(view.clients_of(tenant.id).count()),
            is(WorkAdmission::Paused),
            is(WorkAdmission::Refusing),
        ]
    });
    let visitors = view.all_clients().filter(|client| client.state == ClientState::Console).count();
    let mut console: Vec<Option<String>> = vec![of(0); 17];
    console[0] = of(DATABASE);
    console[1] = None;
    console[2] = of(6432);
    console[3] = of(DATABASE);
    console[4] = of(DATABASE);
    console[9] = of("statement");
    console[10] = None;
    console[13] = of(view.values.text("max_db_client_connections"));
    console[14] = of(visitors);
    let rows = rows.chain([console]);
    ShowTable::new(&[
        "name",
        "host",
        "port",
        "database",
        "force_user",
        "pool_size",
        "min_pool_size",
        "reserve_pool_size",
        "server_lifetime",
        "pool_mode",
        "load_balance_hosts",
        "max_connections",
        "current_connections",
        "max_client_connections",
        "current_client_connections",
        "paused",
        "disabled",
    ])
    .with(rows)
}

/// Connections of a database and a user.
#[derive(Default)]
struct PoolCounts {
    active: u64,
    waiting: u64,
    servers: [u64; 5],
    wait_us: u64,
}

fn pools(view: &ShowView<'_>) -> ShowTable {
    let mut pools: BTreeMap<(&str, &str), PoolCounts> = BTreeMap::new();
    for client in view.all_clients() {
        let Some(pair) = database_of(client).zip(client.user.as_deref()) else { continue };
        let pool = pools.entry(pair).or_default();
        match client.state {
            ClientState::Login | ClientState::Closing => {}
            ClientState::Idle | ClientState::Active | ClientState::Console => pool.active += 1,
            ClientState::Waiting => {
                pool.waiting += 1;
                pool.wait_us = pool.wait_us.max(client.state_us);
            }
        }
    }
    for server in view.all_servers() {
        let pool = pools.entry((&server.tenant.1, &server.user)).or_default();
        pool.servers[server.state as usize] += 1;
    }
    let mode = |name: &str| match view.routing.named(name) {
        Some(tenant) => of(mode_name(tenant.mode)),
        None => of("statement"),
    };
    let rows = pools.into_iter().map(|((tenant, user), pool)| {
        let servers = |state: ServerState| of(pool.servers[state as usize]);
        vec![
            of(tenant),
            of(user),
            of(pool.active),
            of(pool.waiting),
            of(0),
            of(0),
            servers(ServerState::Active),
            of(0),
            servers(ServerState::Cancelling),
            servers(ServerState::Idle),
            of(0),
            servers(ServerState::Resetting),
            servers(ServerState::Login),
            of(pool.wait_us / 1_000_000),
            of(pool.wait_us % 1_000_000),
            mode(tenant),
            None,
        ]
    });
    ShowTable::new(&[
        "database",
        "user",
        "cl_active",
        "cl_waiting",
        "cl_active_cancel_req",
        "cl_waiting_cancel_req",
        "sv_active",
        "sv_active_cancel",
        "sv_being_canceled",
        "sv_idle",
        "sv_used",
        "sv_tested",
        "sv_login",
        "maxwait",
        "maxwait_us",
        "pool_mode",
        "load_balance_hosts",
    ])
    .with(rows)
}

const CONNECTION: [&str; 20] = [
    "type",
    "user",
    "database",
    "replication",
    "state",
    "addr",
    "port",
    "local_addr",
    "local_port",
    "connect_time",
    "request_time",
    "wait",
    "wait_us",
    "close_needed",
    "ptr",
    "link",
    "remote_pid",
    "tls",
    "application_name",
    "id",
];

fn host_and_port(address: Option<SocketAddr>) -> [Option<String>; 2] {
    match address {
        Some(address) => [of(address.ip()), of(address.port())],
        None => [of("unix"), of(0)],
    }
}

/// Returns the database that a client is in; the console counts as one.
fn database_of(client: &ClientView) -> Option<&str> {
    match client.state {
        ClientState::Console => Some(DATABASE),
        _ => client.tenant.as_ref().map(|(_, name)| &**name),
    }
}

fn clients<'a>(view: &'a ShowView<'_>) -> impl Iterator<Item = Vec<Option<String>>> + 'a {
    // A client that only waits for its final error to be sent is not shown.
    let clients = view.all_clients().filter(|client| client.state != ClientState::Closing);
    clients.map(|client| {
        let state = match client.state {
            ClientState::Login | ClientState::Closing => "login",
            ClientState::Idle => "idle",
            ClientState::Waiting => "waiting",
            ClientState::Active | ClientState::Console => "active",
        };
        let wait_us = if client.state == ClientState::Waiting { client.state_us } else { 0 };
        let [host, port] = host_and_port(client.address);
        vec![
            of("C"),
            of(client.user.as_deref().unwrap_or("")),
            of(database_of(client).unwrap_or("")),
            of("none"),
            of(state),
            host,
            port,
            of(""),
            of(0),
            of(view.time(client.age_us)),
            of(view.time(client.state_us)),
            of(wait_us / 1_000_000),
            of(wait_us % 1_000_000),
            of(0),
            of(format!("{:#x}", client.pid)),
            of(client.server_pid.map_or(String::new(), |pid| format!("{pid:#x}"))),
            of(0),
            of(if client.tls { "TLS" } else { "" }),
            of(""),
            of(view.first_number + client.number),
        ]
    })
}

fn servers<'a>(view: &'a ShowView<'_>) -> impl Iterator<Item = Vec<Option<String>>> + 'a {
    view.all_servers().map(|server| {
        let state = match server.state {
            ServerState::Login => "new",
            ServerState::Idle => "idle",
            ServerState::Active => "active",
            ServerState::Resetting => "tested",
            ServerState::Cancelling => "being_canceled",
        };
        let [host, port] = host_and_port(server.address);
        vec![
            of("S"),
            of(&server.user),
            of(&server.tenant.1),
            of("none"),
            of(state),
            host,
            port,
            of(""),
            of(0),
            of(view.time(server.age_us)),
            of(view.time(server.state_us)),
            of(0),
            of(0),
            of(0),
            of(format!("{:#x}", server.pid)),
            of(server.client_pid.map_or(String::new(), |pid| format!("{pid:#x}"))),
            of(server.pid),
            of(if server.tls { "TLS" } else { "" }),
            of(""),
            of(view.first_number + server.number),
        ]
    })
}

fn sockets(view: &ShowView<'_>, only_active: bool) -> ShowTable {
    let is_active = |row: &Vec<Option<String>>| row[4].as_deref() == Some("active");
    let rows = clients(view).chain(servers(view));
    ShowTable::new(&CONNECTION).with(rows.filter(|row| !only_active || is_active(row)))
}

fn lists(view: &ShowView<'_>) -> ShowTable {
    let pairs: BTreeMap<(&str, &str), ()> = view
        .all_servers()
        .map(|server| ((&*server.tenant.1, &*server.user), ()))
        .chain(view.all_clients().filter_map(|client| {
            Some(((&*client.tenant.as_ref()?.1, &**client.user.as_ref()?), ()))
        }))
        .collect();
    let logins = view.all_clients().filter(|it| it.state == ClientState::Login).count();
    let clients = view.all_clients().count();
    let users: usize = view.routing.tenants().map(|tenant| tenant.users.len()).sum();
    let row = |name: &str, items: usize| vec![of(name), of(items)];
    ShowTable::new(&["list", "items"]).with([
        row("databases", view.routing.len()),
        row("users", users),
        row("peers", 0),
        row("pools", pairs.len()),
        row("peer_pools", 0),
        row("free_clients", 0),
        row("used_clients", clients - logins),
        row("login_clients", logins),
        row("free_servers", 0),
        row("used_servers", view.all_servers().count()),
        row("dns_names", 0),
        row("dns_zones", 0),
        row("dns_queries", 0),
        row("dns_pending", 0),
    ])
}

fn state(view: &ShowView<'_>) -> ShowTable {
    let row = |name: &str| vec![of(name), of(if view.state == name { "yes" } else { "no" })];
    ShowTable::new(&["key", "value"]).with(["active", "paused", "suspended"].map(row))
}

/// Number of figures of a database.
const FIGURES: usize = 9;

/// Columns of all figures; the tables of totals and averages alone omit the prefix.
const STATS: [&str; 1 + 2 * FIGURES] = [
    "database",
    "total_server_assignment_count",
    "total_xact_count",
    "total_query_count",
    "total_received",
    "total_sent",
    "total_xact_time",
    "total_query_time",
    "total_wait_time",
    "total_client_login_count",
    "avg_server_assignment_count",
    "avg_xact_count",
    "avg_query_count",
    "avg_recv",
    "avg_sent",
    "avg_xact_time",
    "avg_query_time",
    "avg_wait_time",
    "avg_client_login_count",
];

const STATS_TOTALS: [&str; 1 + FIGURES] = [
    "database",
    "server_assignment_count",
    "xact_count",
    "query_count",
    "bytes_received",
    "bytes_sent",
    "xact_time",
    "query_time",
    "wait_time",
    "client_login_count",
];

const STATS_AVERAGES: [&str; 1 + FIGURES] = STATS_TOTALS;

fn total_values(of_tenant: TenantTotals) -> [u64; FIGURES] {
    let TenantTotals { assignments, transactions, queries, received, sent, .. } = of_tenant;
    let TenantTotals { transaction_us, query_us, wait_us, logins, .. } = of_tenant;
    [assignments, transactions, queries, received, sent, transaction_us, query_us, wait_us, logins]
}

/// Computes counts per second, and times per counted event.
fn average_values(in_period: TenantTotals, period: Duration) -> [u64; FIGURES] {
    let micros = u64::try_from(period.as_micros()).unwrap_or(u64::MAX).max(1);
    let per_second = |count: u64| count.saturating_mul(1_000_000) / micros;
    let per = |time: u64, count: u64| time.checked_div(count).unwrap_or(0);
    [
        per_second(in_period.assignments),
        per_second(in_period.transactions),
        per_second(in_period.queries),
        per_second(in_period.received),
        per_second(in_period.sent),
        per(in_period.transaction_us, in_period.transactions),
        per(in_period.query_us, in_period.queries),
        per(in_period.wait_us, in_period.assignments),
        per_second(in_period.logins),
    ]
}

fn stats(view: &ShowView<'_>, with_totals: bool, with_averages: bool) -> ShowTable {
    let columns: &'static [&'static str] = match (with_totals, with_averages) {
        (true, true) => &STATS,
        (true, false) => &STATS_TOTALS,
        (false, _) => &STATS_AVERAGES,
    };
    let rows = sorted(view.routing).into_iter().map(|tenant| {
        let total = view.totals.get(&tenant.id).copied().unwrap_or_default();
        let earlier = view.earlier.get(&tenant.id).copied().unwrap_or_default();
        let mut row = vec![of(&tenant.name)];
        if with_totals {
            row.extend(total_values(total).map(of));
        }
        if with_averages {
            row.extend(average_values(total.minus(earlier), view.period).map(of));
        }
        row
    });
    ShowTable::new(columns).with(rows)
}

fn totals(view: &ShowView<'_>) -> ShowTable {
    let sum = view.totals.values().fold(TenantTotals::default(), |sum, it| sum.plus(*it));
    let rows = STATS[1..=FIGURES].iter().zip(total_values(sum));
    ShowTable::new(&["name", "value"]).with(rows.map(|(name, value)| vec![of(name), of(value)]))
}

fn users(view: &ShowView<'_>) -> ShowTable {
    let mut users: BTreeMap<&str, Option<(&TenantSnapshot, &TenantUser)>> = BTreeMap::new();
    for tenant in sorted(view.routing) {
        for (name, user) in &tenant.users {
            users.entry(name).or_insert(Some((tenant, user)));
        }
    }
    let own = view.rules.users.keys().map(String::as_str);
    let listed = ["admin_users", "stats_users"].map(|setting| view.values.text(setting));
    let listed = listed.into_iter().flat_map(|names| names.split(',').map(str::trim));
    // Users found by lookup count as users while they are connected.
    let here = view.all_clients().filter(|client| is_in(client));
    let here = here.filter_map(|client| client.user.as_deref());
    for name in own.chain(listed).chain(here).filter(|name| !name.is_empty()) {
        users.entry(name).or_insert(None);
    }
    let clients_max: u32 = view.values.text("max_user_client_connections").parse().unwrap_or(0);
    let connections_max = view.values.text("max_user_connections");
    let rows = users.into_iter().map(|(name, known)| {
        let rules = view.rules.of(name);
        let role = known.map_or(name, |(_, user)| &*user.server_user);
        let size = known.and_then(|(_, user)| user.server_connections_max);
        let limit_of_tenant = known.and_then(|(tenant, user)| tenant.connections_max_of(user));
        let clients_of_tenant = known.and_then(|(tenant, user)| tenant.clients_max_of(user));
        let clients_max = rules.clients_max.or(clients_of_tenant).unwrap_or(clients_max);
        let connections_max = match rules.connections_max.or(limit_of_tenant) {
            Some(max) => of(max),
            None => of(connections_max),
        };
        let mode = rules.mode.or(known.and_then(|(_, user)| user.mode));
        let is_its = |client: &&ClientView| is_in(client) && client.user.as_deref() == Some(name);
        vec![
            of(name),
            rules.pool_size.or(size).map_or(of(""), of),
            of(""),
            mode.map(|mode| mode_name(mode).to_owned()),
            connections_max,
            of(view.all_servers().filter(|it| *it.user == *role).count()),
            of(clients_max),
            of(view.all_clients().filter(is_its).count()),
        ]
    });
    ShowTable::new(&[
        "name",
        "pool_size",
        "reserve_pool_size",
        "pool_mode",
        "max_user_connections",
        "current_connections",
        "max_user_client_connections",
        "current_client_connections",
    ])
    .with(rows)
}

/// Returns whether a client is authenticated and not leaving.
fn is_in(client: &ClientView) -> bool {
    !matches!(client.state, ClientState::Login | ClientState::Closing)
}

fn pins(view: &ShowView<'_>) -> ShowTable {
    let pinned = view.all_clients().filter(|client| !client.pins.is_empty());
    let rows = pinned.map(|client| {
        vec![
            of(client.tenant.as_ref().map_or("", |(_, name)| name)),
            of(client.user.as_deref().unwrap_or("")),
            of(client.pid),
            client.server_pid.map(|pid| pid.to_string()),
            of(client.pins.join(", ")),
            of(client.state_us / 1000),
        ]
    });
    ShowTable::new(&["database", "user", "client_id", "server_id", "reasons", "state_ms"])
        .with(rows)
}
