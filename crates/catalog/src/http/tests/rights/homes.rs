//! Homes of namespaces, over HTTP.

use super::*;

/// Checks that a principal that may write in a namespace only can create a staged table at its
/// staged location. Returns that location.
fn check_staged(server: &Server, namespace: &str, table: &str) -> String {
    let made = json!({"namespace": [namespace]});
    let made = server.ask("POST", "/v1/main/namespaces", Some(&made));
    assert!(matches!(made.status, 200 | 409), "{}", made.text());
    let token = token(server, Some(AccessRight::Write), Some(namespace));
    let tables = format!("/v1/main/namespaces/{}/tables", request::encoded(namespace));
    let mut staged = new_table(table);
    staged["stage-create"] = json!(true);
    let staged = server.ask_as(Some(&token), "POST", &tables, Some(&staged));
    assert_eq!(staged.status, 200, "{namespace} {table}: {}", staged.text());
    let metadata = &staged.json()["metadata"];
    let path = format!("{tables}/{}", request::encoded(table));
    let made = server.ask_as(Some(&token), "POST", &path, Some(&staged_commit(metadata)));
    assert_eq!(made.status, 200, "{namespace} {table}: {}", made.text());
    assert_eq!(made.json()["metadata"]["location"], metadata["location"]);
    metadata["location"].as_str().unwrap().to_owned()
}

#[test]
fn what_was_staged_is_made_whatever_it_is_called() {
    let server = Server::start();
    let long = "n".repeat(255);
    let mut homes = std::collections::HashSet::new();
    let names = ["n", "a b", "a_b", "..", "%2e%2e", "ä/ö", "~", "a.b", "a\\b?#", &long, &long[1..]];
    for name in names {
        let place = check_staged(&server, name, name);
        let home = place.rsplit_once('/').unwrap().0.to_owned();
        let again = check_staged(&server, name, "t");
        assert_eq!(again.rsplit_once('/').unwrap().0, home);
        assert!(homes.insert(home), "{name}");
    }
    // Names that look alike in a path have different homes.
    let token = token(&server, Some(AccessRight::Write), Some("a_b"));
    for (number, home) in homes.iter().enumerate() {
        let mut body = new_table(&format!("chosen-{number}"));
        body["location"] = json!(format!("{home}/chosen"));
        let tables = "/v1/main/namespaces/a_b/tables";
        let made = server.ask_as(Some(&token), "POST", tables, Some(&body));
        let expected = if home.ends_with("/a_b") { 200 } else { 403 };
        assert_eq!(made.status, expected, "{home}: {}", made.text());
    }
}
