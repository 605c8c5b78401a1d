//! Rejections of requests by their form: encodings, depth, and rate.

use super::*;
use crate::service::AccessRight;

#[test]
fn an_encoded_body_is_refused_as_such() {
    let server = Server::start();
    let path = format!("{PREFIX}/v1/main/namespaces");
    let form = "grant_type=client_credentials&client_id=a&client_secret=b";
    for (coding, expected) in [("gzip", 415), ("identity, br", 415), ("Identity", 200)] {
        let request = Request::new("POST", &path).header("content-encoding", coding);
        let response = server.send(request.body(json!({"namespace": [coding]}).to_string()));
        assert_eq!(response.status, expected, "{coding}: {}", response.text());
        if expected == 415 {
            assert_refused(&response, 415, "BadRequestException");
            assert_eq!(response.header("accept-encoding"), Some("identity"));
        }
    }
    let tokens = format!("{PREFIX}/v1/oauth/tokens");
    let request = Request::new("POST", &tokens)
        .header("content-type", "application/x-www-form-urlencoded")
        .header("content-encoding", "gzip");
    let response = server.send_bare(&request.body(form));
    assert_eq!(response.status, 415, "{}", response.text());
}

#[test]
fn a_transaction_without_changes_is_refused_to_everybody() {
    let server = Server::start();
    server.fill("n", "t");
    let reader = rights::token(&server, Some(AccessRight::Read), None);
    let path = "/v1/main/transactions/commit";
    for token in [&reader, &server.root] {
        let empty = json!({"table-changes": []});
        let response = server.ask_as(Some(token), "POST", path, Some(&empty));
        assert_refused(&response, 400, "BadRequestException");
    }
}

/// Creates a type of nested structs, or alternately lists and maps.
fn nested(levels: usize, is_struct: bool) -> Value {
    let mut kind = json!("int");
    for level in 0..levels {
        let id = 3 * level + 10;
        kind = match (is_struct, level % 2) {
            (true, _) => json!({"type": "struct", "fields": [
                {"id": id, "name": format!("f{level}"), "required": false, "type": kind}]}),
            (false, 0) => json!({"type": "list", "element-id": id, "element": kind,
                "element-required": false}),
            (false, _) => json!({"type": "map", "key-id": id, "key": "string",
                "value-id": id + 1, "value": kind, "value-required": false}),
        };
    }
    kind
}

#[test]
fn schemas_may_be_as_deep_as_the_limit_says() {
    let server = Server::start();
    server.fill("n", "t");
    for (name, levels, is_struct) in [("structs", 120, true), ("lists", 360, false)] {
        let mut table = new_table(name);
        table["schema"]["fields"][1]["type"] = nested(levels, is_struct);
        let path = "/v1/main/namespaces/n/tables";
        let made = server.ask("POST", path, Some(&table));
        assert_eq!(made.status, 200, "{}", made.text());
        let loaded = server.ask("GET", &format!("{path}/{name}"), None);
        assert_eq!(loaded.status, 200, "{}", loaded.text());
        let commit = json!({"requirements": [], "updates": [
            {"action": "set-properties", "updates": {"a": "b"}}]});
        let changed = server.ask("POST", &format!("{path}/{name}"), Some(&commit));
        assert_eq!(changed.status, 200, "{}", changed.text());
        let planned = server.ask("POST", &format!("{path}/{name}/plan"), Some(&json!({})));
        assert_eq!(planned.status, 200, "{}", planned.text());
    }
    let mut table = new_table("deep");
    table["schema"]["fields"][1]["type"] = nested(140, true);
    let refused = server.ask("POST", "/v1/main/namespaces/n/tables", Some(&table));
    assert_refused(&refused, 400, "BadRequestException");
    assert!(refused.text().contains("more than 400 objects and arrays"), "{}", refused.text());
    // Filters may be as deep, on the stack of a worker.
    let mut filter = json!({"type": "eq", "term": "id", "value": 1});
    for _ in 0..390 {
        filter = json!({"type": "not", "child": filter});
    }
    let plan = "/v1/main/namespaces/n/tables/t/plan";
    let planned = server.ask("POST", plan, Some(&json!({"filter": filter})));
    assert_eq!(planned.status, 200, "{}", planned.text());
}

#[test]
fn many_wrong_secrets_are_refused_for_a_while() {
    let server = Server::start();
    let client = server.ask("POST", "/management/v1/clients", Some(&json!({"name": "x"}))).json();
    let (id, secret) = (client["client-id"].as_str().unwrap(), &client["client-secret"]);
    let ask = |secret: &str| {
        let request = Request::new("POST", &format!("{PREFIX}/v1/oauth/tokens"))
            .header("content-type", "application/x-www-form-urlencoded");
        let form = format!("grant_type=client_credentials&client_id={id}&client_secret={secret}");
        server.send_bare(&request.body(form))
    };
    let mut refused = None;
    // Some are forgiven while the others are sent.
    for _ in 0..20 * crate::access::WRONG_SECRETS_MAX {
        let response = ask("wrong");
        if response.status != 401 {
            refused = Some(response);
            break;
        }
    }
    let refused = refused.expect("too many wrong secrets");
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.json()["error"], json!("invalid_client"));
    testkit::until("the right secret is looked at", Duration::from_secs(60), || {
        let response = ask(secret.as_str().unwrap());
        if response.status == 200 { Ok(()) } else { Err(response.text()) }
    });
}

#[test]
fn a_share_that_is_used_up_is_429_and_not_the_requests_fault() {
    let refused = node::http::HttpError::new(api::ErrorCode::TooManyRequests, "wait");
    assert_eq!(crate::http::from_shell(&refused).kind.status(), 429);
    assert_eq!(crate::http::render_error(&refused).status(), 429);
}
