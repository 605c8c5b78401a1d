//! Iceberg's paths where Polaris has them: the same operations, and the same refusals.

use super::*;

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
    let management = server.ask("GET", "/polaris/api/management/v1/catalogs", None);
    assert_refused(&management, 404, "NotFoundException");
}
