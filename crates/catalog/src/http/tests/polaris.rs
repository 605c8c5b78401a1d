//! Iceberg's paths as in Polaris, with the same operations and the same errors, and Polaris's
//! management.

mod benchmarks;
mod grants;
mod manage;

use super::*;

/// Path of the management.
const MANAGEMENT: &str = "/polaris/api/management/v1";

/// Sends a request to the management, as the operator.
fn manage(server: &Server, method: &str, path: &str, body: Option<&Value>) -> Response {
    server.ask(method, &format!("{MANAGEMENT}/{path}"), body)
}

/// Sends a request, and requires this status; returns the body.
fn expect(
    server: &Server,
    (method, path): (&str, &str),
    body: Option<&Value>,
    status: u16,
) -> Value {
    let response = manage(server, method, path, body);
    assert_eq!(response.status, status, "{method} {path} {}", response.text());
    if response.body.is_empty() { Value::Null } else { response.json() }
}

/// Returns a catalog in a new directory.
fn new_catalog(server: &Server, name: &str) -> Value {
    let base = base(server, name);
    json!({"catalog": {"type": "INTERNAL", "name": name,
        "properties": {"default-base-location": base},
        "storageConfigInfo": {"storageType": "FILE"}}})
}

fn base(server: &Server, name: &str) -> String {
    format!("file://{}/made/{name}", server.scratch.path().display())
}

#[test]
fn what_is_made_by_one_path_is_there_by_the_other() {
    let server = Server::start();
    let polaris = "/polaris/api/catalog/v1";
    let config = server.ask("GET", &format!("{polaris}/config?warehouse=main"), None);
    assert_eq!(config.json(), server.ask("GET", "/v1/config?warehouse=main", None).json());
    let namespace = json!({"namespace": ["n"], "properties": {}});
    let made = server.ask("POST", &format!("{polaris}/main/namespaces"), Some(&namespace));
    assert_eq!(made.status, 200, "{}", made.text());
    let tables = format!("{polaris}/main/namespaces/n/tables");
    assert_eq!(server.ask("POST", &tables, Some(&new_table("t"))).status, 200);
    let here = server.ask("GET", &format!("{tables}/t"), None);
    assert_eq!(here.json(), server.ask("GET", "/v1/main/namespaces/n/tables/t", None).json());
    // The limit of commits applies to this path, too.
    let long = "x".repeat(3 << 20);
    let commit = json!({"requirements": [], "updates": [
        {"action": "set-properties", "updates": {"k": long}}]});
    let committed = server.ask("POST", &format!("{tables}/t"), Some(&commit));
    assert_eq!(committed.status, 200, "{}", committed.text());
    let nobody = server.ask_as(None, "GET", &format!("{tables}/t"), None);
    assert_refused(&nobody, 401, "NotAuthorizedException");
    let tokens = server.ask_as(None, "POST", &format!("{polaris}/oauth/tokens"), None);
    assert_eq!((tokens.status, &tokens.json()["error"]), (400, &json!("invalid_request")));
    let management = server.ask_as(None, "GET", &format!("{MANAGEMENT}/catalogs"), None);
    assert_refused(&management, 401, "NotAuthorizedException");
    let nothing = manage(&server, "GET", "nothing", None);
    assert_refused(&nothing, 404, "NotFoundException");
}
