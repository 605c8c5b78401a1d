//! Functions: created, listed, loaded, replaced and removed.

use super::*;
use testkit::documents::function_metadata;

const MANAGED: &str = "/management/v1/main/functions";
const LISTED: &str = "/v1/main/namespaces/n/functions";

fn function(name: &str) -> Value {
    json!({"namespace": ["n"], "name": name, "metadata": function_metadata()})
}

#[test]
fn a_function_is_there_until_it_is_dropped() {
    let server = Server::start();
    let missing = server.ask("POST", MANAGED, Some(&function("add_one")));
    assert_refused(&missing, 404, "NoSuchNamespaceException");
    assert_refused(&server.ask("GET", LISTED, None), 404, "NoSuchNamespaceException");
    server.ask("POST", "/v1/main/namespaces", Some(&json!({"namespace": ["n"]})));
    assert_eq!(server.ask("GET", LISTED, None).json()["identifiers"], json!([]));
    let unknown = server.ask("GET", &format!("{LISTED}/add_one"), None);
    assert_refused(&unknown, 404, "NoSuchFunctionException");

    let made = server.ask("POST", MANAGED, Some(&function("add_one")));
    assert_eq!(made.status, 200, "{}", made.text());
    let uuid = made.json()["metadata"]["function-uuid"].clone();
    let loaded = server.ask("GET", &format!("{LISTED}/add_one"), None);
    assert_eq!(loaded.json(), made.json());
    // Nothing is lost, including unknown members and their form.
    assert!(loaded.text().contains(r#""nobody-knows":{"this":1.5}"#), "{}", loaded.text());

    let again = server.ask("POST", MANAGED, Some(&function("add_one")));
    assert_refused(&again, 409, "AlreadyExistsException");
    let mut other = function("add_one");
    other["overwrite"] = json!(true);
    other["metadata"]["doc"] = json!("adds one");
    let replaced = server.ask("POST", MANAGED, Some(&other)).json();
    assert_eq!(
        (&replaced["metadata"]["function-uuid"], &replaced["metadata"]["doc"]),
        (&uuid, &json!("adds one"))
    );
    other["metadata"]["function-uuid"] = json!("00000000-0000-4000-8000-000000000000");
    let strange = server.ask("POST", MANAGED, Some(&other));
    assert_refused(&strange, 400, "IllegalArgumentException");
    let mut outside = function("outside");
    outside["metadata"]["location"] = json!("file:///etc");
    let outside = server.ask("POST", MANAGED, Some(&outside));
    assert_refused(&outside, 403, "ForbiddenException");

    for name in ["b", "c"] {
        assert_eq!(server.ask("POST", MANAGED, Some(&function(name))).status, 200);
    }
    let page = server.ask("GET", &format!("{LISTED}?pageToken=&pageSize=2"), None).json();
    assert_eq!(page["identifiers"], json!([["n", "add_one"], ["n", "b"]]));
    let token = page["next-page-token"].as_str().unwrap();
    let last = server.ask("GET", &format!("{LISTED}?pageToken={token}&pageSize=2"), None).json();
    assert_eq!(last, json!({"identifiers": [["n", "c"]], "next-page-token": null}));

    let full = server.ask("DELETE", "/v1/main/namespaces/n", None);
    assert_refused(&full, 409, "NamespaceNotEmptyException");
    for name in ["add_one", "b", "c"] {
        let path = format!("{MANAGED}/n/{name}");
        assert_eq!(server.ask("DELETE", &path, None).status, 204);
        assert_refused(&server.ask("DELETE", &path, None), 404, "NoSuchFunctionException");
    }
    assert_eq!(server.ask("DELETE", "/v1/main/namespaces/n", None).status, 204);
}
