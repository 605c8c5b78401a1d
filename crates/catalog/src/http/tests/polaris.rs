//! Iceberg's paths where Polaris has them, with the same operations and the same refusals, and its
//! management.

mod benchmarks;
mod grants;
mod manage;

use super::*;

/// Where the management is.
const MANAGEMENT: &str = "/polaris/api/management/v1";

/// Asks the management something, as the operator.
fn manage(server: &Server, method: &str, path: &str, body: Option<&Value>) -> Response {
    server.ask(method, &format!("{MANAGEMENT}/{path}"), body)
}

/// Asks, and demands this status; answers the body.
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

/// A catalog in a directory of its own.
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
    // A commit may be long by this path, too.
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
