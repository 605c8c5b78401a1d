//! The operation on what sandboxes did with their grants.

use serde_json::json;

use super::super::Operation;

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
            refusals, the oldest first, for as long as they are kept. A token sees what sandboxes \
            of its tenant did, an operator's what all did. It needs the scope `executions` or \
            `sessions`. What was done before the question is in the answer.",
        parameters: json!([]),
        request: None,
        answers: Vec::new(),
        errors: &[400, 403],
    };
    operation
        .asks("holder", "string", "Only of this session or execution.")
        .asks("tenant", "string", "Only of this tenant's sandboxes; another one's, for an operator.")
        .asks(
            "event",
            "string",
            "Only of this kind: `granted`, `revoked`, `connect`, `disconnect`, `statement`, `request`.",
        )
        .asks("outcome", "string", "Only what ended so: `done`, `failed`, `refused`.")
        .asks("after", "integer", "Only those with a greater number; `next_after` of a page.")
        .asks("limit", "integer", "How many at most: 1 to 1000, 100 when absent.")
        .answers(
            200,
            "AuditRecordList",
            "A page of it.",
            json!({ "records": [record], "next_after": 4711 }),
        )
}
