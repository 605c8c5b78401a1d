//! Read restrictions are sent with a table.

use iceberg::ident::{NamespaceIdent, TableIdent};
use iceberg::json::RawJson;
use iceberg::plan::{FilterExpression, ScanRequest};

use super::*;
use crate::service::AccessRight;
use crate::service::TokenClaims;

const TABLE: &str = "/v1/main/namespaces/n/tables/t";
const POLICIES: &str = "/management/v1/main/policies";

/// Returns the token of a principal that may manage everything and has the role `bi`.
fn token(server: &Server) -> String {
    let made = server.ask("POST", "/management/v1/clients", Some(&json!({"name": "bi"}))).json();
    let principal = &made["principal"];
    let token = server.runtime.block_on(async {
        let (id, secret) =
            (made["client-id"].as_str().unwrap(), made["client-secret"].as_str().unwrap());
        server.access.tokens().token_for(id, secret, None).await.unwrap().token
    });
    let role = json!({"name": "bi", "members": [principal]});
    assert_eq!(server.ask("POST", "/management/v1/roles", Some(&role)).status, 204);
    let grant = json!({"principal": "role:bi", "rights": ["manage"]});
    assert_eq!(server.ask("POST", "/management/v1/main/grants", Some(&grant)).status, 204);
    token
}

fn put(server: &Server, name: &str, principal: &str, more: &Value) -> Response {
    let mut all = json!({"principal": principal, "namespace": ["n"], "table": "t"});
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server.ask("PUT", &format!("{POLICIES}/{name}"), Some(&all))
}

#[test]
fn a_policy_is_told_to_whom_it_is_for() {
    let server = Server::start();
    server.fill("n", "t");
    let token = token(&server);
    let load = || server.ask_as(Some(&token), "GET", TABLE, None);
    let before = load();
    assert_eq!(before.json()["read-restrictions"], Value::Null);
    let filter = json!({"row-filter": {"type": "gt", "term": "id", "value": 5}});
    let masked = json!({"column-projections": [{"column": "data", "action": "mask-alphanum"}]});
    let kept = put(&server, "rows", "role:bi", &filter);
    assert_eq!(kept.status, 200, "{}", kept.text());
    assert_eq!(put(&server, "columns", "*", &masked).status, 200);
    let bound = json!({"type": "gt", "left": {"type": "reference", "id": 1},
        "right": {"type": "literal", "value": 5}});
    assert_eq!(kept.json()["row-filter"], bound);
    let expected = json!({
        "required-row-filter": bound,
        "required-column-projections": [{"action": "mask-alphanum", "field-id": 2}],
    });
    let restricted = load();
    assert_eq!(restricted.json()["read-restrictions"], expected);
    assert_eq!(restricted.json()["metadata"], before.json()["metadata"]);
    // A client with an earlier response does not receive "not modified" after a change of
    // restrictions.
    let ask_again = |tag: &str| {
        let request = Request::new("GET", &format!("/catalog{TABLE}")).header("if-none-match", tag);
        let request = request.header("authorization", &format!("Bearer {token}"));
        server.send_bare(&request).status
    };
    assert_eq!(ask_again(before.header("etag").unwrap()), 200);
    assert_eq!(ask_again(restricted.header("etag").unwrap()), 304);
    // Operators are not restricted.
    assert_eq!(server.ask("GET", TABLE, None).json()["read-restrictions"], Value::Null);
}

#[test]
fn a_policy_keeps_from_files_and_follows_its_table() {
    let server = Server::start();
    server.fill("n", "t");
    let token = token(&server);
    let load = |path: &str| server.ask_as(Some(&token), "GET", path, None);
    let credentials = format!("{TABLE}/credentials");
    assert_eq!(put(&server, "rows", "role:bi", &json!({"row-filter": true})).status, 200);
    assert_refused(&load(&credentials), 403, "ForbiddenException");
    let trusted = json!({"row-filter": true, "trusted": true});
    assert_eq!(put(&server, "columns", "*", &trusted).status, 200);
    assert_refused(&load(&credentials), 403, "ForbiddenException");
    assert_eq!(put(&server, "rows", "role:bi", &trusted).status, 200);
    assert_eq!(load(&credentials).status, 200);

    // It follows the table when it is renamed, and does not apply to another one of its former
    // name.
    let rename = json!({"source": {"namespace": ["n"], "name": "t"},
        "destination": {"namespace": ["n"], "name": "u"}});
    assert_eq!(server.ask("POST", "/v1/main/tables/rename", Some(&rename)).status, 204);
    server.fill("n", "t");
    assert_eq!(load(TABLE).json()["read-restrictions"], Value::Null);
    let moved = load("/v1/main/namespaces/n/tables/u").json();
    assert!(moved["read-restrictions"].is_object(), "{moved}");
    let listed = server.ask("GET", POLICIES, None).json();
    let names: Vec<_> =
        listed["policies"].as_array().unwrap().iter().map(|it| &it["table"]).collect();
    assert_eq!(names, [&json!("u"), &json!("u")]);
    assert_eq!(server.ask("DELETE", &format!("{POLICIES}/rows"), None).status, 204);
    assert_refused(
        &server.ask("DELETE", &format!("{POLICIES}/rows"), None),
        404,
        "NotFoundException",
    );
    assert_eq!(server.ask("DELETE", "/v1/main/namespaces/n/tables/u", None).status, 204);
    assert_eq!(server.ask("GET", POLICIES, None).json()["policies"], json!([]));
}

#[test]
fn a_policy_is_previewed_without_being_saved() {
    let server = Server::start();
    server.fill("n", "t");
    let token = token(&server);
    let preview = |name: &str, principal: &str, policy: &Value| {
        let mut all = json!({"principal": "role:bi", "namespace": ["n"], "table": "t"});
        all.as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
        let body = json!({"principal": principal, "policy": all});
        server.ask("POST", &format!("{POLICIES}/{name}/preview"), Some(&body))
    };
    let client = server.ask("GET", "/management/v1/roles", None).json();
    let client = client["roles"][0]["members"][0].as_str().unwrap().to_owned();
    let masked = json!([{"column": "data", "action": "mask-alphanum"}]);
    let mask = [("column-projections", &masked)];
    let mask: Value = mask.into_iter().map(|(name, it)| (name.to_owned(), it.clone())).collect();

    // A member of the role is restricted by it, and no longer receives credentials.
    let found = preview("mask", &client, &mask).json();
    let projected = json!([{"field-id": 2, "action": "mask-alphanum"}]);
    let everything = json!({"policies": [], "column-projections": [], "files": true});
    assert_eq!(found["rights"], json!(["read", "write", "manage"]), "{found}");
    assert_eq!((&found["applies"], &found["now"]), (&json!(true), &everything), "{found}");
    let expected = json!({"policies": ["mask"], "column-projections": projected, "files": false});
    assert_eq!(found["then"], expected, "{found}");
    // Nothing was saved.
    assert_eq!(server.ask("GET", POLICIES, None).json()["policies"], json!([]));
    let loaded = server.ask_as(Some(&token), "GET", TABLE, None).json();
    assert!(loaded.get("read-restrictions").is_none(), "{loaded}");

    // It shows the same as loading the table after saving, with other policies of the role.
    let filter = json!({"row-filter": {"type": "eq", "term": "data", "value": "a"}});
    assert_eq!(put(&server, "rows", "*", &filter).status, 200);
    let found = preview("mask", &client, &mask).json();
    assert_eq!(found["now"]["policies"], json!(["rows"]), "{found}");
    assert_eq!(found["then"]["policies"], json!(["mask", "rows"]), "{found}");
    assert_eq!(put(&server, "mask", "role:bi", &mask).status, 200);
    let restrictions = server.ask_as(Some(&token), "GET", TABLE, None).json();
    let restrictions = &restrictions["read-restrictions"];
    assert_eq!(
        found["then"]["row-filter"], restrictions["required-row-filter"],
        "{found} {restrictions}"
    );
    let columns = &restrictions["required-column-projections"];
    assert_eq!(&found["then"]["column-projections"], columns, "{found} {restrictions}");

    // Replaces the policy of its name; other principals are not restricted by it.
    let trusted = json!({"row-filter": true, "trusted": true});
    let found = preview("mask", "role:bi", &trusted).json();
    assert_eq!(found["then"]["column-projections"], json!([]), "{found}");
    let found = preview("mask", "tenant:else", &mask).json();
    assert_eq!((&found["applies"], &found["rights"]), (&json!(false), &json!([])), "{found}");
    assert_eq!(found["then"]["policies"], json!(["rows"]), "{found}");
    // Policies on a tenant restrict its sandboxes, whose rights are those of their grants.
    let of_tenant = json!({"principal": "tenant:shop", "row-filter": true});
    let found = preview("shop", "grant:shop", &of_tenant).json();
    assert_eq!((&found["applies"], found.get("rights")), (&json!(true), None), "{found}");

    for (name, principal, policy, status, kind) in [
        ("a%20b", "role:bi", &trusted, 400, "BadRequestException"),
        ("p", "somebody", &trusted, 400, "BadRequestException"),
        ("p", "role:none", &trusted, 404, "NotFoundException"),
        ("p", "role:bi", &json!({"principal": "role:none"}), 400, "BadRequestException"),
        (
            "p",
            "role:bi",
            &json!({"table": "none", "row-filter": true}),
            404,
            "NoSuchTableException",
        ),
        (
            "p",
            "role:bi",
            &json!({"principal": "role:none", "row-filter": true}),
            404,
            "NotFoundException",
        ),
    ] {
        assert_refused(&preview(name, principal, policy), status, kind);
    }
}

#[test]
fn nobody_gets_rid_of_his_policy_by_moving_a_table() {
    let server = Server::start();
    server.fill("n", "t");
    let manager = token(&server);
    let writer = rights::token(&server, Some(AccessRight::Write), Some("n"));
    let metadata = server.ask("GET", TABLE, None).json();
    let base = metadata["metadata"]["location"].as_str().unwrap().to_owned();
    let register = json!({"name": "t", "metadata-location": metadata["metadata-location"],
        "overwrite": true});
    let place = |to: &str| json!({"action": "set-location", "location": format!("{base}{to}")});
    let change = |to: &str| json!({"requirements": [], "updates": [place(to)]});
    let transaction = json!({"table-changes": [{"identifier": {"namespace": ["n"], "name": "t"},
        "requirements": [], "updates": [place("-w")]}]});
    let ask = |who: &str, method: &str, path: &str, body: Option<&Value>| {
        server.ask_as(Some(who), method, path, body)
    };
    // A change of location requires the right to manage.
    assert_refused(&ask(&writer, "POST", TABLE, Some(&change("-w"))), 403, "ForbiddenException");
    let refused = ask(&writer, "POST", "/v1/main/transactions/commit", Some(&transaction));
    assert_refused(&refused, 403, "ForbiddenException");
    assert_eq!(ask(&manager, "POST", TABLE, Some(&change("-m"))).status, 200);
    assert_eq!(ask(&manager, "POST", TABLE, Some(&change(""))).status, 200);
    assert_eq!(put(&server, "rows", "role:bi", &json!({"row-filter": true})).status, 200);
    let unregister = format!("{TABLE}/unregister");
    let commit = "/v1/main/transactions/commit";
    let (moved, register_at) = (change("-m"), "/v1/main/namespaces/n/register");
    for (method, path, body) in [
        ("POST", TABLE, Some(&moved)),
        ("POST", commit, Some(&transaction)),
        ("POST", register_at, Some(&register)),
        ("POST", &*unregister, None),
        ("DELETE", TABLE, None),
    ] {
        let refused = ask(&manager, method, path, body);
        assert_refused(&refused, 403, "ForbiddenException");
    }
    assert_eq!(
        put(&server, "rows", "role:bi", &json!({"row-filter": true, "trusted": true})).status,
        200
    );
    assert_eq!(ask(&manager, "POST", register_at, Some(&register)).status, 200);
    assert_eq!(ask(&manager, "POST", &unregister, None).status, 200);
}

#[test]
fn a_scan_is_of_the_rows_that_one_may_read() {
    let server = Server::start();
    server.fill("n", "t");
    token(&server);
    let request =
        json!({"filter": {"type": "lt", "term": "id", "value": 9}, "stats-fields": ["id"]});
    let request = ScanRequest::parse(&RawJson::of(&request).unwrap()).unwrap();
    let warehouse = server.catalog.default_warehouse().unwrap();
    let ident = TableIdent::new(NamespaceIdent::new(["n"]).unwrap(), "t").unwrap();
    let found = |who: &CatalogPrincipal| {
        server.catalog.rights().restricted_scan(who, &warehouse, &ident, &request).unwrap()
    };
    let claims = TokenClaims { groups: vec!["group:okta:bi".into()], ..TokenClaims::default() };
    let who = CatalogPrincipal {
        claims: Some(Arc::new(claims)),
        ..CatalogPrincipal::new("oidc:okta:ada", "ada")
    };
    assert_eq!(found(&who).restriction.filter, FilterExpression::everything());
    let filter = json!({"type": "eq", "term": "data", "value": "EU"});
    for (principal, trusted) in [("role:bi", true), ("group:okta:bi", false)] {
        let policy = json!({"row-filter": filter, "trusted": trusted});
        assert_eq!(put(&server, &principal.replace(':', "-"), principal, &policy).status, 200);
    }
    let restricted = found(&who);
    let bound = json!({"type": "eq", "left": {"type": "reference", "id": 2},
        "right": {"type": "literal", "value": "EU"}});
    let bound = FilterExpression::parse(&RawJson::of(&bound).unwrap()).unwrap();
    assert_eq!((restricted.restriction.filter, restricted.stats.len()), (bound, 0));
    assert_eq!(restricted.filter, request.filter);
    // Planning scans requires only the right to read.
    let plan = server.ask("POST", &format!("{TABLE}/plan"), Some(&json!({})));
    assert_eq!(plan.status, 200, "{}", plan.text());
    let other = found(&CatalogPrincipal::new("oidc:okta:bob", "bob"));
    let all = FilterExpression::everything();
    assert_eq!((other.restriction.filter, other.stats.len()), (all.clone(), 1));
    assert_eq!(found(&operator()).restriction.filter, all);
}

#[test]
fn a_policy_that_is_none_is_refused() {
    let server = Server::start();
    server.fill("n", "t");
    let of = |principal: &str, table: &str, filter: Value| {
        let namespace = ["n"];
        json!({"principal": principal, "namespace": namespace, "table": table,
            "row-filter": filter})
    };
    let path = "/management/v1/main/policies/p";
    let long = json!({"type": "in", "term": "data",
        "values": vec!["x".repeat(100); crate::access::TABLE_POLICIES_BYTES_MAX / 100]});
    for (path, body, status, kind) in [
        (path, of("*", "none", json!(true)), 404, "NoSuchTableException"),
        (path, of("role:none", "t", json!(true)), 404, "NotFoundException"),
        (path, of("client:none", "t", json!(true)), 404, "NotFoundException"),
        (path, of("somebody", "t", json!(true)), 400, "BadRequestException"),
        (path, of("*", "t", json!({"type": "eq"})), 400, "BadRequestException"),
        (path, of("*", "t", long), 400, "BadRequestException"),
        (path, json!({"principal": "*"}), 400, "BadRequestException"),
        (
            "/management/v1/main/policies/a%20b",
            of("*", "t", json!(true)),
            400,
            "BadRequestException",
        ),
    ] {
        assert_refused(&server.ask("PUT", path, Some(&body)), status, kind);
    }
}
