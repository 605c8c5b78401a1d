//! The operations on tenants of the bouncer.

use serde_json::{Value, json};

use super::super::Operation;

const TIME: &str = "2026-11-22T01:37:28.954Z";

/// All of them, in the order of the page.
pub(super) fn all() -> Vec<Operation> {
    let mut all = definitions();
    all.extend(figures());
    all.extend(acts());
    all
}

fn operation(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    description: &'static str,
) -> Operation {
    Operation {
        method,
        path,
        id,
        tag: "tenants",
        token: true,
        summary,
        description,
        parameters: in_path(path),
        request: None,
        answers: Vec::new(),
        errors: if path.contains('{') { &[403, 404] } else { &[403] },
    }
}

fn in_path(path: &str) -> Value {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let parameter = |name: &str| match name {
        "pid" => json!({
            "name": "pid", "in": "path", "required": true, "example": 100_042,
            "description": "Process id of the client, as it knows it.",
            "schema": { "type": "integer" }
        }),
        _ => json!({
            "name": name, "in": "path", "required": true, "example": "shop",
            "description": "Name of the tenant.", "schema": { "type": "string" }
        }),
    };
    names.map(parameter).collect()
}

fn spec(password: &str) -> Value {
    json!({
        "name": "shop", "server": "db.internal:5432", "pool_mode": "transaction",
        "users": [{ "name": "app", "auth": "password", "password": password }],
        "read_only": false,
        "limits": { "server_connections_max": 40, "wait_s": 5.0 }
    })
}

fn tenant() -> Value {
    json!({ "spec": spec("***"), "origin": "api", "admission": "open", "health": "healthy" })
}

fn definitions() -> Vec<Operation> {
    vec![
        operation(
            "post",
            "/v1/tenants",
            "createTenant",
            "Make a tenant",
            "A database behind a name: clients of PostgreSQL that ask the bouncer for a database \
             `shop` are led to it. All of these operations need an operator's token with the \
             scope `tenants`. Passwords are stored encrypted and never shown; references such as \
             `env:NAME` are for `cove.toml` only.",
        )
        .takes("TenantSpec", "tenant", "A database with one user", spec("a password"))
        .fails(&[400, 403, 409, 413, 415])
        .answers(201, "Tenant", "It holds on this server.", tenant()),
        operation(
            "get",
            "/v1/tenants",
            "listTenants",
            "List tenants",
            "Those of `cove.toml` and those that came by this interface, by name.",
        )
        .answers(200, "TenantList", "All of them.", json!({ "tenants": [tenant()] })),
        operation(
            "get",
            "/v1/tenants/{name}",
            "getTenant",
            "Show a tenant",
            "In place of every password that it has stands `***`.",
        )
        .answers(200, "Tenant", "What it is and how it is.", tenant()),
        operation(
            "put",
            "/v1/tenants/{name}",
            "replaceTenant",
            "Change a tenant",
            "In place of the whole definition. `***` stands for the password that is there. \
             Clients stay connected; what changes holds from their next transaction on. A tenant \
             of `cove.toml` is changed there: 409.",
        )
        .takes("TenantSpec", "tenant", "The same password as before", spec("***"))
        .fails(&[400, 403, 404, 409, 413, 415])
        .answers(200, "Tenant", "It holds on this server.", tenant()),
        operation(
            "delete",
            "/v1/tenants/{name}",
            "deleteTenant",
            "Remove a tenant",
            "Its clients finish their transactions and are sent away.",
        )
        .fails(&[403, 404, 409])
        .gives(204, "text/plain", "It is gone."),
    ]
}

fn figures() -> Vec<Operation> {
    let times = json!({ "p50": 0.41, "p95": 1.2, "p99": 3.7, "max": 12.0 });
    let stats = json!({
        "name": "shop", "clients": 210, "clients_active": 12, "clients_waiting": 0, "servers": 20,
        "servers_active": 12, "servers_idle": 8, "servers_busy": 0, "server_connections_max": 40,
        "transactions": 1_204_000, "queries": 3_611_000, "received_bytes": 301_000_000_u64,
        "sent_bytes": 1_920_000_000_u64, "busy_us": 840_000_000, "wait_us": 12_000, "exhausted": 0,
        "pins": { "temp_table": 3 }, "errors": { "23505": 14, "40001": 3 },
        "query_ms": times, "transaction_ms": times, "wait_ms": times
    });
    let client = json!({
        "pid": 100_042, "tenant": "shop", "user": "app", "address": "10.0.0.7:51312",
        "state": "active", "server_pid": 2211, "pins": ["temp_table"], "in_transaction": false,
        "application_name": "psql", "connected_s": 12.5, "state_s": 0.2, "statement_s": 0.2,
        "tls": true
    });
    let server = json!({
        "pid": 2211, "tenant": "shop", "user": "app", "address": "db.internal:5432",
        "state": "active", "client_pid": 100_042, "connected_s": 310.2, "tls": true
    });
    let health = json!({
        "health": "healthy", "failures": 0, "checked_at": TIME, "took_ms": 2.4
    });
    let clients = || json!({ "clients": [client] });
    vec![
        operation(
            "get",
            "/v1/tenants/stats",
            "allTenantStats",
            "Figures of all tenants",
            "As those of one, of all tenants by name, in one request.",
        )
        .answers(200, "TenantStatsList", "Figures of all.", json!({ "tenants": [stats] })),
        operation(
            "get",
            "/v1/tenants/{name}/stats",
            "tenantStats",
            "Figures of a tenant",
            "Counts since the server started, and percentiles of times since then.",
        )
        .answers(200, "TenantStats", "Its figures.", stats),
        operation(
            "get",
            "/v1/tenants/{name}/health",
            "tenantHealth",
            "Health of a tenant",
            "What the checks in the background found.",
        )
        .answers(200, "TenantHealthReport", "What they found.", health),
        operation(
            "get",
            "/v1/tenants/{name}/clients",
            "tenantClients",
            "Clients of a tenant",
            "Those that have logged in, with the server connection that each has.",
        )
        .answers(200, "BouncerClientList", "Its clients.", clients()),
        operation(
            "get",
            "/v1/tenants/{name}/pins",
            "tenantPins",
            "Clients that keep a server connection",
            "Those that have one beyond their transaction, and why.",
        )
        .answers(200, "BouncerClientList", "Clients with pins.", clients()),
        operation(
            "get",
            "/v1/tenants/{name}/servers",
            "tenantServers",
            "Server connections of a tenant",
            "Every connection to its server, and who has it.",
        )
        .answers(
            200,
            "BouncerServerList",
            "Its connections.",
            json!({ "servers": [server] }),
        ),
    ]
}

fn acts() -> Vec<Operation> {
    let mut paused = tenant();
    paused["admission"] = json!("paused");
    let mut draining = tenant();
    draining["admission"] = json!("draining");
    let reloaded = json!({ "tenants": 3, "restart_needed_for": ["bouncer.listen"] });
    vec![
        operation(
            "post",
            "/v1/tenants/{name}/pause",
            "pauseTenant",
            "Pause a tenant",
            "Transactions that run end; clients wait before their next one, up to their limit. \
             With `refuse=true` they are refused instead. Holds until it is resumed or the server \
             ends, also over a reload; at all servers that share a store, until it is resumed.",
        )
        .asks("refuse", "boolean", "Refuse clients rather than let them wait.")
        .answers(200, "Tenant", "It is paused.", paused),
        operation(
            "post",
            "/v1/tenants/{name}/resume",
            "resumeTenant",
            "Resume a tenant",
            "After a pause or a drain.",
        )
        .answers(200, "Tenant", "It takes work.", tenant()),
        operation(
            "post",
            "/v1/tenants/{name}/drain",
            "drainTenant",
            "Drain a tenant",
            "No new clients; those that are connected leave after their transaction, and are \
             closed when the server's `drain_s` is up.",
        )
        .answers(202, "Tenant", "It has begun.", draining),
        operation(
            "post",
            "/v1/tenants/{name}/reconnect",
            "reconnectTenant",
            "Open server connections anew",
            "Idle ones are closed now, the others when they come back.",
        )
        .gives(204, "text/plain", "It has begun."),
        operation(
            "post",
            "/v1/tenants/{name}/kill",
            "killTenant",
            "Close all connections of a tenant",
            "Clients and server connections, whatever they are doing.",
        )
        .gives(204, "text/plain", "They are being closed."),
        operation(
            "delete",
            "/v1/tenants/{name}/clients/{pid}",
            "killTenantClient",
            "Close a client",
            "Whatever it is doing.",
        )
        .fails(&[400, 403, 404])
        .gives(204, "text/plain", "It is being closed."),
        operation(
            "post",
            "/v1/bouncer/reload",
            "reloadBouncer",
            "Read the configuration again",
            "The `[bouncer]` table of `cove.toml`, as SIGHUP does. No client is dropped. What \
             cannot be is refused as a whole, and everything stays as it was.",
        )
        .fails(&[400, 403])
        .answers(200, "BouncerReloaded", "It holds.", reloaded),
    ]
}
