//! The operations on what sandboxes did with their grants.

use serde_json::json;

use super::super::{Answer, Operation};

/// `GET /v1/audit`.
pub(super) fn audit() -> Operation {
    let record = json!({
        "seq": 4711, "at": "2026-11-23T10:02:11.118Z", "tenant": "team",
        "holder": "ses_01M804ZD7HDBNWX72N11NHQYP8", "grant": "postgres:shop",
        "event": "statement", "outcome": "done",
        "text": "SELECT name FROM items WHERE id = ?", "took_us": 1830, "rows": 1, "bytes_in": 12
    });
    let operation = Operation {
        method: "get",
        path: "/v1/audit",
        id: "listAudit",
        tag: "gateway",
        token: true,
        summary: "What sandboxes did with their grants",
        description: "Grants that were given and taken back, connections, statements, requests and \
            refusals, the oldest first unless `order` says otherwise, for as long as they are \
            kept. A token sees what sandboxes of its tenant did, an operator's what all did. It \
            needs the scope `executions` or `sessions`. What was done before the question is in \
            the answer. A request looks at 20,000 records at most: a page may be empty and still \
            say where the next one begins.",
        parameters: json!([]),
        request: None,
        answers: Vec::new(),
        errors: &[400, 403],
    };
    filters(operation)
        .asks("order", "string", "`asc` for the oldest first, which is the default, or `desc`.")
        .asks("after", "integer", "Only those with a greater number; `next_after` of a page.")
        .asks("before", "integer", "Only those with a smaller number; `next_before` of a page.")
        .asks("limit", "integer", "How many at most: 1 to 1000, 100 when absent.")
        .answers(
            200,
            "AuditRecordList",
            "A page of it.",
            json!({ "records": [record], "next_after": 4711, "newest": 5120 }),
        )
}

/// Adds what records may be narrowed to.
fn filters(operation: Operation) -> Operation {
    operation
        .asks("holder", "string", "Only of this session or execution.")
        .asks(
            "tenant",
            "string",
            "Only of this tenant's sandboxes; another one's, for an operator.",
        )
        .asks("grant", "string", "Only of this grant: `postgres:shop`, `http`.")
        .asks(
            "event",
            "string",
            "Only of this kind: `granted`, `revoked`, `connect`, `disconnect`, `statement`, \
             `request`, `missing`.",
        )
        .asks("outcome", "string", "Only what ended so: `done`, `failed`, `refused`.")
        .asks(
            "text",
            "string",
            "Only with this in the text or the error, whatever the case of ASCII letters.",
        )
        .asks("from_ms", "integer", "Only what ended at this time or later (Unix milliseconds).")
        .asks("to_ms", "integer", "Only what ended before this time.")
}

/// `GET /v1/audit/summary`.
pub(super) fn audit_summary() -> Operation {
    let group = json!({
        "name": "api.example.com", "tenant": "team", "records": 42, "refused": 2, "failed": 0,
        "missing": 0, "rows": 0, "bytes_out": 5120, "bytes_in": 91234,
        "first_ms": 1764324131118_u64, "last_ms": 1764325131118_u64,
        "targets_count": 1, "targets": ["api.example.com"]
    });
    let operation = Operation {
        method: "get",
        path: "/v1/audit/summary",
        id: "summarizeAudit",
        tag: "gateway",
        token: true,
        summary: "What was reached with grants, and how often",
        description: "The newest 20,000 records that fit, counted by target, by session or \
            execution, or by grant: requests, refusals, bytes and distinct targets. What there is \
            before them is counted by another request, with `next_before` as `before`. Rights are \
            those of `GET /v1/audit`.",
        parameters: json!([]),
        request: None,
        answers: Vec::new(),
        errors: &[400, 403],
    };
    filters(operation)
        .asks("by", "string", "`target`, which is the default, `holder` or `grant`.")
        .asks("after", "integer", "Only those with a greater number.")
        .asks(
            "before",
            "integer",
            "Only those with a smaller number; `next_before` of another one.",
        )
        .asks("limit", "integer", "How many groups at most: 1 to 1000, 100 when absent.")
        .answers(
            200,
            "AuditSummaryReport",
            "Those with most records first.",
            json!({ "groups": [group], "others": 0 }),
        )
}

/// `GET /v1/live`.
pub(super) fn live() -> Operation {
    Operation {
        method: "get",
        path: "/v1/live",
        id: "openLive",
        tag: "live",
        token: true,
        summary: "Follow many things on one WebSocket",
        description: "Each `LiveClientMessage` subscribes to a topic or ends that; answers and \
            events are `LiveServerMessage`s. A topic reads a route of this interface with the \
            token that opened the WebSocket, so that its rights, parameters and events are those \
            of the route. Subprotocol `cove.live.v1`; a browser gives its token as the \
            subprotocol `bearer.<token>` beside it. A page of another origin is refused with 403.",
        parameters: json!([]),
        request: None,
        answers: vec![(
            101,
            Answer::Socket {
                says: "A WebSocket. Closed with 1001 when the server shuts down, 4400 for a \
                    message that is none.",
                receives: "LiveClientMessage",
            },
        )],
        errors: &[403, 426],
    }
}
