//! The operations on who a caller is, and on signing in at the console.

use serde_json::{Value, json};

use super::super::Operation;

/// A code that examples are about.
const CODE: &str = "q1Zx0cN8yJ3mB5tR7vW2eA";

/// `GET /v1/whoami`, and everything below `/v1/console`.
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
    let mut login = operation(
        "post",
        "/v1/console/login",
        "signInAtConsole",
        "Redeem a code",
        "Needs no token: the code is one. It works once; after ten wrong ones in a minute an \
         address has to wait. The token that is answered is sent as any other, has the tenant and \
         at most the scopes of the one that made the code, ends after 12 hours, and within a \
         second when that one ends.",
    );
    login.token = false;
    login.request = Some((
        "ConsoleLogin",
        json!({ "code": { "summary": "A code", "value": { "code": CODE } } }),
    ));
    let mut codes = operation(
        "post",
        "/v1/console/codes",
        "createConsoleCode",
        "Make a code to sign in with",
        "For whoever is to open the console: the code works once, within 5 minutes, with the \
         rights of this token or fewer. A sign-in of the console makes no codes. The body may be \
         left out.",
    );
    codes.request = Some((
        "CreateConsoleCode",
        json!({
            "all": { "summary": "All that the token is for", "value": {} },
            "some": { "summary": "Less", "value": { "scopes": ["executions"] } }
        }),
    ));
    vec![
        operation(
            "get",
            "/v1/whoami",
            "whoami",
            "Who am I?",
            "What this token is for, and which services this server has. For every token.",
        )
        .answers(200, "Whoami", "The caller.", whoami),
        codes.answers(201, "ConsoleCode", "The code.", code).fails(&[400, 403, 404, 429]),
        login.answers(200, "ConsoleSession", "The sign-in.", session).fails(&[400, 403, 404, 429]),
        operation(
            "post",
            "/v1/console/logout",
            "signOutAtConsole",
            "End a sign-in",
            "Ends the sign-in whose token is sent, on all servers, with all that it has begun.",
        )
        .gives(204, "text/plain", "It has ended.")
        .fails(&[400]),
    ]
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
        tag: "server",
        token: true,
        summary,
        description,
        parameters: Value::Array(Vec::new()),
        request: None,
        answers: Vec::new(),
        errors: &[],
    }
}
