//! The operations on a caller's identity, and on console sign-in.

use api::operations::server as table;
use serde_json::json;

use super::super::Operation;

/// A code for examples.
const CODE: &str = "q1Zx0cN8yJ3mB5tR7vW2eA";

/// Returns `GET /v1/whoami`, and everything below `/v1/console`.
pub(super) fn all() -> Vec<Operation> {
    let whoami = json!({
        "name": "first", "kind": "token", "tenant": "tok_4Q2M8V3T5W",
        "scopes": ["executions", "sessions", "agents", "tokens", "tenants", "catalog"],
        "operator": true, "version": "0.1.0", "node": "srv_01M804ZD7HDBNWX72N11NHQYP8",
        "services": {
            "executions": true, "queue": true, "sessions": true, "bouncer": true, "catalog": true,
            "gateway": true
        }
    });
    let code = json!({
        "code": CODE, "expires_ms": 1_795_000_300_000_u64,
        "url_path": format!("/console/#c={CODE}")
    });
    let session =
        json!({ "token": "cove_console_eyJpZCI6.Zm9v", "expires_ms": 1_795_043_200_000_u64 });
    let login = Operation::of(
        &table::SIGN_IN_AT_CONSOLE,
        "Needs no token: the code is one. It works once; after ten wrong ones in a minute an \
         address has to wait. The token that is answered is sent as any other, has the tenant and \
         at most the scopes of the one that made the code, ends after 12 hours, and within a \
         second when that one ends.",
    )
    .takes("code", "A code", json!({ "code": CODE }))
    .answers(200, "The sign-in.", session);
    let codes = Operation::of(
        &table::CREATE_CONSOLE_CODE,
        "For whoever is to open the console: the code works once, within 5 minutes, with the \
         rights of this token or fewer. A sign-in of the console makes no codes. The body may be \
         left out.",
    )
    .takes_any_of(json!({
        "all": { "summary": "All that the token is for", "value": {} },
        "some": { "summary": "Less", "value": { "scopes": ["executions"] } }
    }))
    .answers(201, "The code.", code);
    vec![
        Operation::of(
            &table::WHOAMI,
            "What this token is for, and which services this server has. For every token.",
        )
        .answers(200, "The caller.", whoami),
        codes,
        login,
        Operation::of(
            &table::SIGN_OUT_AT_CONSOLE,
            "Ends the sign-in whose token is sent, on all servers, with all that it has begun.",
        )
        .gives(204, "Ended."),
    ]
}
