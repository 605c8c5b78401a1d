//! The operations on tenants of the bouncer.

use api::operations::ApiOperation;
use api::operations::tenants as table;
use serde_json::{Value, json};

use super::super::Operation;

const TIME: &str = "2026-11-22T01:37:28.954Z";

/// Returns all operations, in the order of the page.
pub(super) fn all() -> Vec<Operation> {
    let mut all = definitions();
    all.extend(figures());
    all.extend(acts());
    all
}

fn operation(entry: &'static ApiOperation, description: &'static str) -> Operation {
    Operation::of(entry, description).with_parameters(in_path(entry.path))
}

fn in_path(path: &str) -> Value {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let parameter = |name: &str| match name {
        "pid" => json!({
            "name": "pid", "in": "path", "required": true, "example": 100_042,
            "description": "Process id of the client, as the server reported it at login.",
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
            &table::CREATE_TENANT,
            "A database behind a name: clients of PostgreSQL that ask the bouncer for a database \
             `shop` are led to it. All of these operations need an operator's token with the \
             scope `tenants`. Passwords are stored encrypted and never shown; references such as \
             `env:NAME` are for `cove.toml` only.",
        )
        .takes("tenant", "A database with one user", spec("a password"))
        .answers(201, "The definition is in effect on this server.", tenant()),
        operation(
            &table::LIST_TENANTS,
            "Those of `cove.toml` and those that came by this interface, by name.",
        )
        .answers(200, "The complete list.", json!({ "tenants": [tenant()] })),
        operation(&table::GET_TENANT, "In place of every password that it has stands `***`.")
            .answers(200, "Definition and state.", tenant()),
        operation(
            &table::REPLACE_TENANT,
            "In place of the whole definition. `***` stands for the password that is there. \
             Clients stay connected; what changes holds from their next transaction on. A tenant \
             of `cove.toml` is changed there: 409.",
        )
        .takes("tenant", "The same password as before", spec("***"))
        .answers(200, "The definition is in effect on this server.", tenant()),
        operation(
            &table::DELETE_TENANT,
            "Its clients finish their transactions and are sent away.",
        )
        .gives(204, "Removed."),
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
            &table::ALL_TENANT_STATS,
            "As those of one, of all tenants by name, in one request.",
        )
        .answers(200, "Figures of all tenants.", json!({ "tenants": [stats] })),
        operation(
            &table::TENANT_STATS,
            "Counts since the server started, and percentiles of times since then.",
        )
        .answers(200, "Figures of the tenant.", stats),
        operation(&table::TENANT_HEALTH, "What the checks in the background found.").answers(
            200,
            "Results of the health checks.",
            health,
        ),
        operation(
            &table::TENANT_CLIENTS,
            "Those that have logged in, with the server connection that each has.",
        )
        .answers(200, "The clients.", clients()),
        operation(&table::TENANT_PINS, "Those that have one beyond their transaction, and why.")
            .answers(200, "Clients with a pinned server connection.", clients()),
        operation(&table::TENANT_SERVERS, "Every connection to its server, and who has it.")
            .answers(200, "The connections.", json!({ "servers": [server] })),
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
            &table::PAUSE_TENANT,
            "Transactions that run end; clients wait before their next one, up to their limit. \
             With `refuse=true` they are refused instead. Holds until it is resumed or the server \
             ends, also over a reload; at all servers that share a store, until it is resumed.",
        )
        .asks("refuse", "boolean", "Reject clients instead of making them wait.")
        .answers(200, "The tenant is paused.", paused),
        operation(&table::RESUME_TENANT, "After a pause or a drain.").answers(
            200,
            "Work is accepted.",
            tenant(),
        ),
        operation(
            &table::DRAIN_TENANT,
            "No new clients; those that are connected leave after their transaction, and are \
             closed when the server's `drain_s` is up.",
        )
        .answers(202, "Started.", draining),
        operation(
            &table::RECONNECT_TENANT,
            "Idle ones are closed now, the others when they come back.",
        )
        .gives(204, "Started."),
        operation(&table::KILL_TENANT, "Clients and server connections, whatever they are doing.")
            .gives(204, "The connections are being closed."),
        operation(&table::KILL_TENANT_CLIENT, "Whatever it is doing.")
            .gives(204, "The client is being disconnected."),
        operation(
            &table::RELOAD_BOUNCER,
            "The `[bouncer]` table of `cove.toml`, as SIGHUP does. No client is dropped. What \
             cannot be is refused as a whole, and everything stays as it was.",
        )
        .answers(200, "The configuration is in effect.", reloaded),
    ]
}
