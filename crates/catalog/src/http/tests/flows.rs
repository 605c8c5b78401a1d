//! Typical requests of clients, and their errors.

use std::io::Read as _;

use flate2::read::GzDecoder;

use super::*;

fn get(path: &str) -> Request {
    Request::new("GET", &format!("{PREFIX}{path}"))
}

#[test]
fn a_table_lives_from_its_creation_to_its_end() {
    let server = Server::start();
    server.fill("n", "t");
    let table = "/v1/main/namespaces/n/tables/t";
    let loaded = server.ask("GET", table, None);
    assert_eq!(loaded.status, 200, "{}", loaded.text());
    let before = loaded.json();
    assert_eq!(before["metadata"]["properties"]["owner"], json!("me"));
    assert!(before["metadata-location"].as_str().unwrap().ends_with(".metadata.json"));

    let etag = loaded.header("etag").unwrap().to_owned();
    let again = server.send(get(table).header("if-none-match", &etag));
    assert_eq!((again.status, again.body.len()), (304, 0));
    assert_eq!(again.header("etag"), Some(&*etag));
    let refs = format!("{table}?snapshots=refs");
    let other = server.send(get(&refs).header("if-none-match", &etag));
    assert_eq!(other.status, 200);
    assert_ne!(other.header("etag"), Some(&*etag));

    let commit = json!({
        "requirements": [{"type": "assert-table-uuid", "uuid": before["metadata"]["table-uuid"]}],
        "updates": [{"action": "set-properties", "updates": {"big": "x".repeat(5000)}}],
    });
    let committed = server.ask("POST", table, Some(&commit));
    assert_eq!(committed.status, 200, "{}", committed.text());
    assert_ne!(committed.header("etag"), Some(&*etag));
    let changed = server.send(get(table).header("if-none-match", &format!("\"x\", {etag}")));
    assert_eq!(changed.status, 200);

    let packed = server.send(get(table).header("accept-encoding", "br, gzip;q=0.5"));
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let mut text = Vec::new();
    GzDecoder::new(&packed.body[..]).read_to_end(&mut text).unwrap();
    assert_eq!(text, changed.body);
    for coding in ["identity", "gzip;q=0", "*;q=0"] {
        let plain = server.send(get(table).header("accept-encoding", coding));
        assert_eq!((plain.header("content-encoding"), &plain.body), (None, &text), "{coding}");
    }

    assert_eq!(server.ask("HEAD", table, None).status, 204);
    let credentials = server.ask("GET", &format!("{table}/credentials"), None);
    assert_eq!(credentials.json(), json!({"storage-credentials": []}));
    let report = json!({"report-type": "commit-report"});
    let reported = server.ask("POST", &format!("{table}/metrics"), Some(&report));
    assert_eq!(reported.status, 204, "{}", reported.text());

    let rename = json!({"source": {"namespace": ["n"], "name": "t"},
        "destination": {"namespace": ["n"], "name": "u"}});
    assert_eq!(server.ask("POST", "/v1/main/tables/rename", Some(&rename)).status, 204);
    assert_refused(&server.ask("GET", table, None), 404, "NoSuchTableException");
    let table = "/v1/main/namespaces/n/tables/u";
    let released = server.ask("POST", &format!("{table}/unregister"), Some(&json!({})));
    assert_eq!(released.status, 200, "{}", released.text());
    let location = &released.json()["metadata-location"];
    let register = json!({"name": "back", "metadata-location": location});
    let back = server.ask("POST", "/v1/main/namespaces/n/register", Some(&register));
    assert_eq!(back.status, 200, "{}", back.text());
    let table = "/v1/main/namespaces/n/tables/back";
    assert_eq!(server.ask("DELETE", &format!("{table}?purgeRequested=True"), None).status, 204);
    assert_eq!(server.ask("HEAD", table, None).status, 404);
}

#[test]
fn a_staged_table_is_there_when_it_is_committed() {
    let server = Server::start();
    server.fill("n", "other");
    let mut staged = new_table("t");
    staged["stage-create"] = json!(true);
    let answer = server.ask("POST", "/v1/main/namespaces/n/tables", Some(&staged));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let metadata = &answer.json()["metadata"];
    assert_eq!(answer.json()["metadata-location"], Value::Null);
    let table = "/v1/main/namespaces/n/tables/t";
    assert_eq!(server.ask("HEAD", table, None).status, 404);
    let commit = staged_commit(metadata);
    let made = server.ask("POST", table, Some(&commit));
    assert_eq!(made.status, 200, "{}", made.text());
    assert_eq!(made.json()["metadata"]["table-uuid"], metadata["table-uuid"]);
    assert_refused(&server.ask("POST", table, Some(&commit)), 409, "CommitFailedException");
}

#[test]
fn a_view_lives_from_its_creation_to_its_end() {
    let server = Server::start();
    server.fill("n", "t");
    let views = "/v1/main/namespaces/n/views";
    let made = server.ask("POST", views, Some(&new_view("v")));
    assert_eq!(made.status, 200, "{}", made.text());
    let made = made.json();
    assert_refused(&server.ask("POST", views, Some(&new_view("v"))), 409, "AlreadyExistsException");
    assert_refused(&server.ask("POST", views, Some(&new_view("t"))), 409, "AlreadyExistsException");
    let tables = "/v1/main/namespaces/n/tables";
    let taken = server.ask("POST", tables, Some(&new_table("v")));
    assert_refused(&taken, 409, "AlreadyExistsException");
    let view = format!("{views}/v");
    assert_eq!(server.ask("GET", &view, None).json(), made);
    assert_eq!(server.ask("HEAD", &view, None).status, 204);
    assert_refused(&server.ask("GET", &format!("{tables}/v"), None), 404, "NoSuchTableException");
    let replace = |uuid: &Value| {
        json!({
            "requirements": [{"type": "assert-view-uuid", "uuid": uuid}],
            "updates": [{"action": "set-properties", "updates": {"k": "v"}}],
        })
    };
    let uuid = &made["metadata"]["view-uuid"];
    let other = json!("00000000-0000-4000-8000-000000000000");
    let refused = server.ask("POST", &view, Some(&replace(&other)));
    assert_refused(&refused, 409, "CommitFailedException");
    let replaced = server.ask("POST", &view, Some(&replace(uuid)));
    assert_eq!(replaced.status, 200, "{}", replaced.text());
    let replaced = replaced.json();
    assert_eq!(replaced["metadata"]["properties"]["k"], json!("v"));
    assert_ne!(replaced["metadata-location"], made["metadata-location"]);
    // A request without changes writes nothing.
    let same = server.ask("POST", &view, Some(&replace(uuid))).json();
    assert_eq!(same["metadata-location"], replaced["metadata-location"]);

    let rename = json!({"source": {"namespace": ["n"], "name": "v"},
        "destination": {"namespace": ["n"], "name": "w"}});
    assert_eq!(server.ask("POST", "/v1/main/views/rename", Some(&rename)).status, 204);
    let listed = server.ask("GET", views, None).json();
    assert_eq!(listed["identifiers"], json!([{"namespace": ["n"], "name": "w"}]));
    let view = format!("{views}/w");
    assert_eq!(server.ask("DELETE", &view, None).status, 204);
    assert_refused(&server.ask("GET", &view, None), 404, "NoSuchViewException");
    let location = &replaced["metadata-location"];
    let register = json!({"name": "back", "metadata-location": location});
    let back = server.ask("POST", "/v1/main/namespaces/n/register-view", Some(&register));
    assert_eq!(back.status, 200, "{}", back.text());
    assert_eq!(back.json(), replaced);
}

#[test]
fn lists_come_whole_or_page_by_page() {
    let server = Server::start();
    for name in ["a", "b", "c", "d", "e"] {
        server.fill("n", name);
    }
    let path = "/v1/main/namespaces/n/tables";
    let whole = server.ask("GET", path, None).json();
    assert_eq!(whole["identifiers"].as_array().unwrap().len(), 5);
    assert_eq!(whole["next-page-token"], Value::Null);
    let (mut names, mut token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = format!("{path}?pageSize=2&pageToken={token}");
        let page = server.ask("GET", &page, None).json();
        names.extend(page["identifiers"].as_array().unwrap().iter().cloned());
        pages += 1;
        match page["next-page-token"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    assert_eq!((pages, json!(names)), (3, whole["identifiers"].clone()));
    for query in ["pageSize=0", "pageSize=x", "pageToken=%21", "pageSize=1&pageSize=2"] {
        let refused = server.ask("GET", &format!("{path}?{query}"), None);
        assert_refused(&refused, 400, "BadRequestException");
    }
}

#[test]
fn names_have_levels_dots_and_other_characters() {
    for (separator, advertised) in [(SEPARATOR_DEFAULT, None), (".", Some("."))] {
        let server = Server::with_separator(separator);
        let config = server.ask("GET", "/v1/config", None).json();
        assert_eq!(config["overrides"]["prefix"], json!("main"));
        assert_eq!(config["overrides"]["namespace-separator"].as_str(), advertised);
        let dotted = json!(["a.b"]);
        for levels in [json!(["a"]), json!(["a", "b"]), dotted.clone(), json!(["ä /é"])] {
            let made = json!({"namespace": levels});
            let made = server.ask("POST", "/v1/main/namespaces", Some(&made));
            assert_eq!(made.status, 200, "{}", made.text());
        }
        for (path, expected) in [
            ("a", json!(["a"])),
            ("a%1Fb", json!(["a", "b"])),
            ("%C3%A4%20%2F%C3%A9", json!(["ä /é"])),
            ("a.b", if advertised.is_some() { json!(["a", "b"]) } else { dotted.clone() }),
        ] {
            let found = server.ask("GET", &format!("/v1/main/namespaces/{path}"), None);
            assert_eq!(found.json()["namespace"], expected, "{path} {separator:?}");
        }
        let below = server.ask("GET", "/v1/main/namespaces?parent=a", None).json();
        assert_eq!(below["namespaces"], json!([["a", "b"]]));
        let update = json!({"removals": ["no"], "updates": {"k": "v"}});
        let updated = server.ask("POST", "/v1/main/namespaces/a/properties", Some(&update));
        let expected = json!({"updated": ["k"], "removed": [], "missing": ["no"]});
        assert_eq!(updated.json(), expected);
        let full = server.ask("DELETE", "/v1/main/namespaces/a", None);
        assert_refused(&full, 409, "NamespaceNotEmptyException");
        assert_eq!(server.ask("DELETE", "/v1/main/namespaces/a%1Fb", None).status, 204);
        assert_eq!(server.ask("DELETE", "/v1/main/namespaces/a", None).status, 204);
        assert_eq!(server.ask("HEAD", "/v1/main/namespaces/a", None).status, 404);
    }
}

#[test]
fn every_refusal_has_the_envelope() {
    let server = Server::start();
    server.fill("n", "t");
    let tables = "/v1/main/namespaces/n/tables";
    let (bad, missing) = ("BadRequestException", "NoSuchNamespaceException");
    for (method, path, body, status, kind) in [
        ("GET", "/v1/config?warehouse=no", None, 404, "NoSuchWarehouseException"),
        ("GET", "/v1/no/namespaces", None, 404, "NoSuchWarehouseException"),
        ("GET", "/v1/main/namespaces/no", None, 404, missing),
        ("GET", "/v1/main/namespaces/no/tables", None, 404, missing),
        ("GET", "/v1/main/namespaces//tables/t", None, 404, "NoSuchTableException"),
        ("GET", "/v1/main/namespaces//views/v", None, 404, "NoSuchViewException"),
        ("GET", "/v1/main/namespaces//tables", None, 400, bad),
        ("GET", "/v1/main/namespaces?parent=no", None, 404, missing),
        ("GET", "/v1/main/namespaces/n/tables/no", None, 404, "NoSuchTableException"),
        ("GET", "/v1/main/namespaces/n/views/no", None, 404, "NoSuchViewException"),
        ("GET", "/v1/main/namespaces/%1F", None, 400, bad),
        ("GET", "/v1/main/namespaces/%FF", None, 400, bad),
        ("GET", "/v1/main/namespaces/n/tables/t?snapshots=some", None, 400, bad),
        ("DELETE", "/v1/main/namespaces/n/tables/t?purgeRequested=maybe", None, 400, bad),
        ("POST", "/v1/main/namespaces", Some("{"), 400, bad),
        ("POST", "/v1/main/namespaces", Some(""), 400, bad),
        ("POST", "/v1/main/namespaces", Some("[]"), 400, bad),
        ("POST", "/v1/main/namespaces", Some(r#"{"namespace":[]}"#), 400, bad),
        ("POST", "/v1/main/namespaces", Some(r#"{"namespace":"n"}"#), 400, bad),
        ("POST", "/v1/main/namespaces", Some("\u{1}"), 400, bad),
        ("POST", tables, Some("null"), 400, bad),
        ("POST", "/v1/main/namespaces/n/tables/t", Some(r#"{"updates":1}"#), 400, bad),
        ("POST", "/v1/main/transactions/commit", Some("{}"), 400, bad),
        ("POST", "/v1/main/tables/rename", Some("{}"), 400, bad),
        ("POST", "/v1/main/namespaces/n/register", Some("{}"), 400, bad),
        ("PUT", "/v1/main/namespaces", None, 405, "UnsupportedOperationException"),
        ("GET", "/v1/main/nothing", None, 404, "NotFoundException"),
        ("GET", "", None, 404, "NotFoundException"),
        ("GET", "/v2/config", None, 404, "NotFoundException"),
    ] {
        let mut request = Request::new(method, &format!("{PREFIX}{path}"));
        if let Some(body) = body {
            request = request.body(body);
        }
        let refused = server.send(request);
        assert_eq!(refused.status, status, "{method} {path} {body:?} {}", refused.text());
        assert_refused(&refused, status, kind);
    }
    let both = json!({"removals": ["k"], "updates": {"k": "v"}});
    let refused = server.ask("POST", "/v1/main/namespaces/n/properties", Some(&both));
    assert_refused(&refused, 422, "UnprocessableEntityException");
    let nobody = server.ask_as(None, "GET", "/v1/config", None);
    assert_refused(&nobody, 401, "NotAuthorizedException");
    assert_eq!(nobody.header("www-authenticate"), Some("Bearer"));
}

#[test]
fn a_request_with_a_key_is_carried_out_once() {
    let server = Server::start();
    server.fill("n", "t");
    let key = "0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b";
    let create = |key: &str, name: &str| {
        let request = Request::new("POST", "/catalog/v1/main/namespaces/n/tables");
        server.send(request.header("idempotency-key", key).body(new_table(name).to_string()))
    };
    let first = create(key, "once");
    assert_eq!(first.status, 200, "{}", first.text());
    let again = create(key, "once");
    assert_eq!((again.status, again.json()), (200, first.json()));
    assert_refused(&create(key, "other"), 422, "UnprocessableEntityException");
    assert_refused(&create("no-uuid", "other"), 400, "BadRequestException");
    let listed = server.ask("GET", "/v1/main/namespaces/n/tables", None).json();
    assert_eq!(listed["identifiers"].as_array().unwrap().len(), 2);
}

#[test]
fn a_management_request_with_a_key_is_carried_out_once_and_gets_its_secret_again() {
    let server = Server::start();
    let mut number = 0;
    // A request that creates or replaces an object, another one, and whether the response has a
    // secret.
    let mut check = |path: &str, body: Value, other: Value, has_secret: bool| -> Value {
        number += 1;
        let key = format!("0193a1b2-c3d4-7e5f-8a9b-{number:012}");
        let send = |key: &str, body: &Value| {
            let request = Request::new("POST", &format!("{PREFIX}{path}"));
            server.send(request.header("idempotency-key", key).body(body.to_string()))
        };
        let first = send(&key, &body);
        assert!(first.status < 300, "{path}: {}", first.text());
        assert_eq!(first.header("idempotent-replayed"), None);
        let again = send(&key, &body);
        assert_eq!((again.status, again.text()), (first.status, first.text()), "{path}");
        assert_eq!(again.header("idempotent-replayed"), Some("true"), "{path}");
        assert_eq!(first.text().to_lowercase().contains("secret"), has_secret, "{path}");
        assert_refused(&send(&key, &other), 422, "UnprocessableEntityException");
        assert_refused(&send("no-uuid", &other), 400, "BadRequestException");
        if first.body.is_empty() { Value::Null } else { first.json() }
    };
    let management = "/management/v1";
    let clients = format!("{management}/clients");
    let client = check(&clients, json!({"name": "a"}), json!({"name": "b"}), true);
    let id = client["client-id"].as_str().unwrap_or_else(|| panic!("{client}")).to_owned();
    let keys = format!("{clients}/{id}/keys");
    let made = check(&keys, json!({"name": "a"}), json!({"name": "b"}), false);
    assert!(made["key"].is_string(), "{made}");
    let grace = json!({"grace-seconds": 60});
    check(&format!("{clients}/{id}/rotate"), json!({}), grace, true);
    check(&format!("{management}/roles"), json!({"name": "r"}), json!({"name": "s"}), false);
    let warehouse = |name: &str| {
        let root = format!("file://{}/made/{name}", server.scratch.path().display());
        json!({ "name": name, "root": root })
    };
    check(&format!("{management}/warehouses"), warehouse("one"), warehouse("two"), false);

    // The same by Polaris's interface.
    let polaris = "/polaris/api/management/v1";
    let catalog = |name: &str| {
        let base = format!("file://{}/made/{name}", server.scratch.path().display());
        json!({"catalog": {"type": "INTERNAL", "name": name,
            "properties": {"default-base-location": base},
            "storageConfigInfo": {"storageType": "FILE"}}})
    };
    let principal = |name: &str| json!({"principal": {"name": name}});
    check(&format!("{polaris}/catalogs"), catalog("three"), catalog("four"), false);
    check(&format!("{polaris}/principals"), principal("p"), principal("q"), true);
    let (nothing, other) = (json!({}), json!({"a": 1}));
    check(&format!("{polaris}/principals/p/rotate"), nothing.clone(), other.clone(), true);
    check(&format!("{polaris}/principals/p/reset"), nothing, other, true);
    let role = |name: &str| json!({"principalRole": {"name": name}});
    check(&format!("{polaris}/principal-roles"), role("x"), role("y"), false);
    let role = |name: &str| json!({"catalogRole": {"name": name}});
    check(&format!("{polaris}/catalogs/three/catalog-roles"), role("x"), role("y"), false);

    // A failed request is retried.
    let key = "0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b";
    let make = |name: &str| {
        let request = Request::new("POST", &format!("{PREFIX}{management}/roles"));
        let request = request.header("idempotency-key", key);
        server.send(request.body(json!({ "name": name }).to_string()))
    };
    assert!((400..500).contains(&make("").status));
    assert!(make("t").status < 300);
    // Each exists once, although requests were repeated.
    let listed = server.ask("GET", &clients, None).text();
    assert_eq!(listed.matches("\"name\":\"a\"").count(), 1, "{listed}");
}
