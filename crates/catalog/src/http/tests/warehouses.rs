//! Warehouses that are created while serving, by the operators' interface.

use super::*;

const PATH: &str = "/management/v1/warehouses";

fn root(server: &Server, name: &str) -> String {
    format!("file://{}/made/{name}", server.scratch.path().display())
}

fn new(server: &Server, name: &str) -> Value {
    json!({"name": name, "root": root(server, name)})
}

/// Checks that the creation of a warehouse is rejected.
fn refused(server: &Server, body: &Value, status: u16, part: &str) {
    let response = server.ask("POST", PATH, Some(body));
    assert_eq!(response.status, status, "{body} {}", response.text());
    assert!(response.text().contains(part), "{body} {}", response.text());
}

#[test]
fn a_warehouse_is_made_used_and_removed() {
    let server = Server::start();
    let made = server.ask("POST", PATH, Some(&new(&server, "lake")));
    assert_eq!(made.status, 200, "{}", made.text());
    let made = made.json();
    assert_eq!((&made["status"], &made["configured"]), (&json!("active"), &json!(false)));
    let config = server.ask("GET", "/v1/config?warehouse=lake", None).json();
    assert_eq!(config["overrides"]["prefix"], "lake");
    let namespace = json!({"namespace": ["n"]});
    assert_eq!(server.ask("POST", "/v1/lake/namespaces", Some(&namespace)).status, 200);
    let tables = "/v1/lake/namespaces/n/tables";
    let table = server.ask("POST", tables, Some(&new_table("t"))).json();
    let location = table["metadata"]["location"].as_str().unwrap();
    assert!(location.starts_with(&format!("{}/n/t-", root(&server, "lake"))), "{location}");
    // The other warehouse does not contain it.
    assert_eq!(server.ask("GET", "/v1/main/namespaces/n", None).status, 404);
    let warehouse = server.ask("GET", &format!("{PATH}/lake"), None).json();
    assert_eq!(warehouse["statistics"], json!({"namespaces": 1, "tables": 1, "views": 0}));
    let names: Vec<Value> = server.ask("GET", PATH, None).json()["warehouses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].clone())
        .collect();
    assert_eq!(names, ["lake", "main"]);
    for path in [format!("{PATH}/lake"), format!("{PATH}/lake?force=true")] {
        assert_refused(&server.ask("DELETE", &path, None), 409, "NamespaceNotEmptyException");
    }
    assert_eq!(server.ask("DELETE", &format!("{tables}/t"), None).status, 204);
    assert_eq!(server.ask("DELETE", "/v1/lake/namespaces/n", None).status, 204);
    assert_eq!(server.ask("DELETE", &format!("{PATH}/lake"), None).status, 204);
    assert_refused(
        &server.ask("GET", "/v1/config?warehouse=lake", None),
        404,
        "NoSuchWarehouseException",
    );
    assert_refused(
        &server.ask("DELETE", &format!("{PATH}/lake"), None),
        404,
        "NoSuchWarehouseException",
    );
    assert_refused(&server.ask("DELETE", &format!("{PATH}/main"), None), 403, "ForbiddenException");
}

#[test]
fn no_two_warehouses_share_a_place_and_none_is_elsewhere() {
    let server = Server::start();
    assert_eq!(server.ask("POST", PATH, Some(&new(&server, "a"))).status, 200);
    let other = |root: String| json!({"name": "b", "root": root});
    let directory = server.scratch.path().display().to_string();
    refused(&server, &new(&server, "a"), 409, "already exists");
    refused(&server, &other(root(&server, "a")), 409, "`a`");
    refused(&server, &other(root(&server, "a/b")), 409, "`a`");
    refused(&server, &other(format!("file:{directory}/made//a/")), 409, "`a`");
    refused(&server, &other(format!("file://{directory}/made")), 403, "`root`");
    refused(&server, &other(format!("file://{directory}/w/x")), 403, "`root`");
    refused(&server, &other("file:///etc".to_owned()), 403, "warehouse_roots");
    refused(&server, &other(root(&server, "x/../../y")), 400, "`root`");
    refused(&server, &other("http://x".to_owned()), 400, "`root`");
    refused(&server, &other("s3://bucket/x".to_owned()), 400, "key is missing");
    refused(&server, &other("s3://bucket/x?ca=/etc/passwd".to_owned()), 400, "`root`");
    let nested =
        json!({"name": "b", "root": root(&server, "b"), "locations": [root(&server, "a")]});
    refused(&server, &nested, 409, "`a`");
    let mixed = json!({"name": "b", "root": root(&server, "b"), "locations": ["s3://bucket/x"]});
    refused(&server, &mixed, 400, "in buckets, or in directories");
    for (field, value) in [
        ("name", json!("clients")),
        ("name", json!("a/b")),
        ("name", json!("")),
        ("status", json!("gone")),
        ("storage", json!({"credentials-seconds": 1})),
        ("storage", json!({"endpoint": "ftp://x"})),
        ("credentials", json!({"access-key-id": "a\n", "secret-access-key": "b"})),
        ("credentials", json!({"access-key-id": "a"})),
        ("locations", json!(vec!["file:///x"; 33])),
        ("surprise", json!(1)),
    ] {
        let mut body = new(&server, "b");
        body[field] = value;
        refused(&server, &body, 400, "");
    }
    // A symbolic link in the path is not followed.
    let made = server.scratch.path().join("made");
    std::fs::create_dir_all(&made).unwrap();
    std::os::unix::fs::symlink("/tmp", made.join("link")).unwrap();
    assert_eq!(server.ask("POST", PATH, Some(&new(&server, "link"))).status, 200);
    let namespace = json!({"namespace": ["n"]});
    assert_eq!(server.ask("POST", "/v1/link/namespaces", Some(&namespace)).status, 200);
    let table = server.ask("POST", "/v1/link/namespaces/n/tables", Some(&new_table("t")));
    assert_eq!(table.status, 403, "{}", table.text());
}

#[test]
fn a_key_is_told_to_nobody_and_a_status_holds() {
    let server = Server::start();
    let body = json!({"name": "cloud", "root": "s3://bucket/lake",
        "storage": {"endpoint": "http://127.0.0.1:9", "vended-credentials": true},
        "credentials": {"access-key-id": "ID", "secret-access-key": "HIDDEN"}});
    let made = server.ask("POST", PATH, Some(&body));
    assert_eq!(made.status, 200, "{}", made.text());
    let path = format!("{PATH}/cloud");
    for text in [made.text(), server.ask("GET", &path, None).text()] {
        assert!(!text.contains("HIDDEN") && text.contains("\"has-credentials\":true"), "{text}");
    }
    let change = |body: &Value| server.ask("PATCH", &path, Some(body));
    let changed =
        change(&json!({"status": "read-only", "storage": {"endpoint": "http://[::1]:9"}}));
    assert_eq!(changed.status, 200, "{}", changed.text());
    let changed = changed.json();
    assert_eq!(changed["status"], "read-only");
    assert_eq!(changed["has-credentials"], true);
    assert_eq!(changed["storage"]["vended-credentials"], false);
    let namespace = json!({"namespace": ["n"]});
    let refused = server.ask("POST", "/v1/cloud/namespaces", Some(&namespace));
    assert_refused(&refused, 403, "ForbiddenException");
    assert!(refused.text().contains("read-only"), "{}", refused.text());
    assert_eq!(server.ask("GET", "/v1/cloud/namespaces", None).status, 200);
    assert_eq!(change(&json!({"status": "protected"})).status, 200);
    assert_eq!(server.ask("POST", "/v1/cloud/namespaces", Some(&namespace)).status, 200);
    assert_eq!(server.ask("DELETE", "/v1/cloud/namespaces/n", None).status, 204);
    assert_refused(&server.ask("DELETE", &path, None), 403, "ForbiddenException");
    assert_eq!(server.ask("DELETE", &format!("{path}?force=true"), None).status, 204);
    // Only the status of the configured warehouse can be changed.
    let main = format!("{PATH}/main");
    let status = server.ask("PATCH", &main, Some(&json!({"status": "read-only"})));
    assert_eq!(status.json()["configured"], true);
    assert_eq!(server.ask("POST", "/v1/main/namespaces", Some(&namespace)).status, 403);
    let storage = server.ask("PATCH", &main, Some(&json!({"storage": {}})));
    assert_refused(&storage, 400, "BadRequestException");
    assert_eq!(server.ask("PATCH", &main, Some(&json!({"status": "active"}))).status, 200);
    assert_eq!(server.ask("POST", "/v1/main/namespaces", Some(&namespace)).status, 200);
}

#[test]
fn who_looks_after_a_warehouse_sees_it_and_no_other() {
    let server = Server::start();
    assert_eq!(server.ask("POST", PATH, Some(&new(&server, "a"))).status, 200);
    let (id, secret) = server.runtime.block_on(async {
        let made = server.access.clients().create_client(&operator(), "x", false).await.unwrap();
        (made.client.client_id, made.client_secret)
    });
    let grant = json!({"principal": format!("client:{id}"), "rights": ["manage"]});
    assert_eq!(server.ask("POST", "/management/v1/a/grants", Some(&grant)).status, 204);
    let token = server.runtime.block_on(server.access.tokens().token_for(&id, &secret, None));
    let token = token.unwrap().token;
    let list = server.ask_as(Some(&token), "GET", PATH, None).json();
    assert_eq!(list["warehouses"].as_array().unwrap().len(), 1);
    for (method, name, expected) in
        [("GET", "a", 200), ("GET", "main", 403), ("DELETE", "a", 403), ("PATCH", "a", 403)]
    {
        let body = (method == "PATCH").then(|| json!({}));
        let response =
            server.ask_as(Some(&token), method, &format!("{PATH}/{name}"), body.as_ref());
        assert_eq!(response.status, expected, "{method} {name}");
    }
    // Grants on a warehouse are removed with it: a new one of its name has none.
    assert_eq!(server.ask("DELETE", &format!("{PATH}/a"), None).status, 204);
    assert_eq!(server.ask("POST", PATH, Some(&new(&server, "a"))).status, 200);
    assert_eq!(server.ask_as(Some(&token), "GET", &format!("{PATH}/a"), None).status, 403);
}
