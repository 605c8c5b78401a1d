//! The operations on available grants for sandboxes, and on the audit of their use.

use api::operations::gateway as table;
use serde_json::json;

use super::super::Operation;

/// Returns `GET /v1/gateway/offers`.
pub(super) fn offers() -> Operation {
    let database = json!({
        "connections": 20, "statement_s": 30.0, "transaction_s": 300.0,
        "idle_in_transaction_s": 60.0, "rows": 1_000_000, "bytes": 268_435_456
    });
    let answer = json!({
        "tenant": "team", "unrestricted": false, "truncated": false,
        "offers": [
            { "kind": "postgres", "tenant": "shop", "access": ["read_only", "read_write"],
              "roles": ["reporting"], "role_required": false, "port": 5432 },
            { "kind": "catalog", "warehouse": "lake", "access": ["read_only"], "port": 8181 },
            { "kind": "http", "hosts": ["*.partner.example"], "ports": [443, 8443],
              "secrets": ["partner"], "internal": ["10.1.0.0/16"], "port": 3128 },
            { "kind": "model", "priced_models": ["claude-opus-4-1"], "port": 8100 }
        ],
        "limits": {
            "grants": 16, "database": database, "model_tokens": 5_000_000,
            "http": { "connections": 64, "requests": 100_000, "bytes": 1_073_741_824 }
        }
    });
    Operation::of(
        &table::LIST_GRANT_OFFERS,
        "What the server's configuration offers to the token's tenant, and no other tenant's \
         offers; for an operator's token with the scope `tenants` all that the server has. \
         Secrets are names, and their values are in no answer. It needs the scope `executions` or \
         `sessions`.",
    )
    .answers(200, "The offered grants.", answer)
}

/// Returns `POST /v1/gateway/offers/check`.
pub(super) fn check() -> Operation {
    let request = json!({ "grants": [
        { "kind": "model" },
        { "kind": "postgres", "tenant": "shop", "access": "read_write" }
    ] });
    let answer = json!({
        "given": false,
        "grants": [
            { "grant": "model", "port": 8100, "given": true },
            { "grant": "postgres:shop", "port": 5432, "given": false, "refusal": {
                "code": "forbidden", "field": "grants[1]",
                "message": "`postgres:shop:rw` is not offered to this token's tenant" } }
        ]
    });
    Operation::of(
        &table::CHECK_GRANTS,
        "A dry run: each grant is authorized and resolved as for a session or execution of this \
         token's, and nothing is made. What is not offered to the token's tenant is `forbidden`, \
         whether it exists or not. Sessions of an agent have the agent's own grants whatever the \
         token may give. It needs the scope `executions` or `sessions`.",
    )
    .takes_any_of(json!({ "two grants": { "value": request } }))
    .answers(200, "Each grant, and whether it would be accepted.", answer)
}

/// Returns `GET /v1/audit`.
pub(super) fn audit() -> Operation {
    let record = json!({
        "seq": 4711, "at": "2026-11-23T10:02:11.118Z", "tenant": "team",
        "holder": "ses_01M804ZD7HDBNWX72N11NHQYP8", "grant": "postgres:shop",
        "event": "statement", "outcome": "done",
        "text": "SELECT name FROM items WHERE id = ?", "took_us": 1830, "rows": 1, "bytes_in": 12
    });
    let operation = Operation::of(
        &table::LIST_AUDIT,
        "Grants that were given and taken back, connections, statements, requests and refusals, \
         the oldest first unless `order` says otherwise, for as long as they are kept. A token \
         sees what sandboxes of its tenant did, an operator's what all did. It needs the scope \
         `executions` or `sessions`. What was done before the question is in the answer. A \
         request looks at 20,000 records at most: a page may be empty and still say where the \
         next one begins.",
    );
    filters(operation)
        .asks("order", "string", "`asc` for the oldest first, which is the default, or `desc`.")
        .asks("after", "integer", "Only those with a greater number; `next_after` of a page.")
        .asks("before", "integer", "Only those with a smaller number; `next_before` of a page.")
        .asks("limit", "integer", "Maximum number: 1 to 1000, 100 if absent.")
        .answers(
            200,
            "A page of the list.",
            json!({ "records": [record], "next_after": 4711, "newest": 5120 }),
        )
}

/// Adds the filters of records.
fn filters(operation: Operation) -> Operation {
    operation
        .asks("holder", "string", "Only records of this session or execution.")
        .asks(
            "tenant",
            "string",
            "Only records of this tenant's sandboxes; other tenants need an operator's token.",
        )
        .asks("grant", "string", "Only records of this grant: `postgres:shop`, `http`.")
        .asks(
            "event",
            "string",
            "Only of this kind: `granted`, `revoked`, `connect`, `disconnect`, `statement`, \
             `request`, `missing`.",
        )
        .asks("outcome", "string", "Only records with this outcome: `done`, `failed`, `refused`.")
        .asks(
            "text",
            "string",
            "Only records with this in the text or the error; ASCII letters match in either case.",
        )
        .asks(
            "from_ms",
            "integer",
            "Only records that ended at this time or later (Unix milliseconds).",
        )
        .asks("to_ms", "integer", "Only records that ended before this time.")
}

/// Returns `GET /v1/audit/summary`.
pub(super) fn audit_summary() -> Operation {
    let group = json!({
        "name": "api.example.com", "tenant": "team", "records": 42, "refused": 2, "failed": 0,
        "missing": 0, "rows": 0, "bytes_out": 5120, "bytes_in": 91234,
        "first_ms": 1764324131118_u64, "last_ms": 1764325131118_u64,
        "targets_count": 1, "targets": ["api.example.com"]
    });
    let operation = Operation::of(
        &table::SUMMARIZE_AUDIT,
        "The newest 20,000 records that fit, counted by target, by session or execution, or by \
         grant: requests, refusals, bytes and distinct targets. What there is before them is \
         counted by another request, with `next_before` as `before`. Rights are those of `GET \
         /v1/audit`.",
    );
    filters(operation)
        .asks("by", "string", "`target`, which is the default, `holder` or `grant`.")
        .asks("after", "integer", "Only those with a greater number.")
        .asks(
            "before",
            "integer",
            "Only those with a smaller number; `next_before` of another page.",
        )
        .asks("limit", "integer", "Maximum number of groups: 1 to 1000, 100 if absent.")
        .answers(
            200,
            "Groups with the most records first.",
            json!({ "groups": [group], "others": 0 }),
        )
}

/// Returns `GET /v1/live`.
pub(super) fn live() -> Operation {
    Operation::of(
        &table::OPEN_LIVE,
        "Each `LiveClientMessage` subscribes to a topic or ends that; answers and events are \
         `LiveServerMessage`s. A topic reads a route of this interface with the token that opened \
         the WebSocket, so that its rights, parameters and events are those of the route. \
         Subprotocol `cove.live.v1`; a browser gives its token as the subprotocol \
         `bearer.<token>` beside it. A page of another origin is refused with 403.",
    )
    .opens("A WebSocket. Closed with 1001 when the server shuts down, 4400 for an invalid message.")
}
