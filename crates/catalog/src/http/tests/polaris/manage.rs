//! Catalogs, principals and roles: created, listed, shown, changed and removed.

use super::*;

#[test]
fn a_catalog_is_a_warehouse() {
    let server = Server::start();
    let made = expect(&server, ("POST", "catalogs"), Some(&new_catalog(&server, "lake")), 201);
    assert_eq!((&made["type"], &made["name"]), (&json!("INTERNAL"), &json!("lake")));
    assert_eq!(made["properties"], json!({"default-base-location": base(&server, "lake")}));
    let info = json!({"storageType": "FILE", "allowedLocations": [base(&server, "lake")]});
    assert_eq!(made["storageConfigInfo"], info);
    assert_eq!(made["entityVersion"], 1);
    assert!(made["createTimestamp"].as_u64().is_some(), "{made}");
    assert_eq!(expect(&server, ("GET", "catalogs/lake"), None, 200), made);
    let again = manage(&server, "POST", "catalogs", Some(&new_catalog(&server, "lake")));
    assert_refused(&again, 409, "AlreadyExistsException");
    // The configured warehouse is listed as well.
    let all = expect(&server, ("GET", "catalogs"), None, 200);
    let names: Vec<&Value> =
        all["catalogs"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["lake", "main"]);
    assert_eq!(all["catalogs"][0], made);
    let native = server.ask("GET", "/management/v1/warehouses/lake", None).json();
    assert_eq!(
        (&native["root"], &native["configured"]),
        (&json!(base(&server, "lake")), &json!(false))
    );
    let properties = json!({"k": "v", "default-base-location": base(&server, "lake")});
    let body = json!({"currentEntityVersion": 1, "properties": properties});
    let changed = expect(&server, ("PUT", "catalogs/lake"), Some(&body), 200);
    assert_eq!((&changed["properties"], &changed["entityVersion"]), (&properties, &json!(2)));
    let stale = manage(&server, "PUT", "catalogs/lake", Some(&body));
    assert_refused(&stale, 409, "CommitFailedException");
    let other = base(&server, "other");
    let moved = json!({"currentEntityVersion": 2, "storageConfigInfo": {
        "storageType": "FILE", "allowedLocations": [base(&server, "lake"), other]}});
    let changed = expect(&server, ("PUT", "catalogs/lake"), Some(&moved), 200);
    assert_eq!(changed["storageConfigInfo"]["allowedLocations"][1], json!(other));
    assert_eq!((&changed["properties"]["k"], &changed["entityVersion"]), (&json!("v"), &json!(3)));
    // Cove's own calls increment the version, too.
    let native = json!({"status": "protected"});
    server.ask("PATCH", "/management/v1/warehouses/lake", Some(&native));
    assert_eq!(expect(&server, ("GET", "catalogs/lake"), None, 200)["entityVersion"], 4);
    let protected = manage(&server, "DELETE", "catalogs/lake", None);
    assert_refused(&protected, 403, "ForbiddenException");
    let native = json!({"status": "active"});
    server.ask("PATCH", "/management/v1/warehouses/lake", Some(&native));
    expect(&server, ("DELETE", "catalogs/lake"), None, 204);
    let gone = manage(&server, "GET", "catalogs/lake", None);
    assert_refused(&gone, 404, "NoSuchWarehouseException");
    // A new catalog of that name inherits nothing.
    let made = expect(&server, ("POST", "catalogs"), Some(&new_catalog(&server, "lake")), 201);
    assert_eq!((&made["properties"]["k"], &made["entityVersion"]), (&Value::Null, &json!(1)));
    let body = json!({"currentEntityVersion": 1, "properties": {"k": "v"}});
    let main = expect(&server, ("PUT", "catalogs/main"), Some(&body), 200);
    assert_eq!(main["properties"]["k"], "v");
}

#[test]
fn what_a_catalog_cannot_be_is_refused_by_name() {
    let server = Server::start();
    let check = |change: &dyn Fn(&mut Value), status: u16, part: &str| {
        let mut body = new_catalog(&server, "lake");
        change(&mut body["catalog"]);
        let refused = manage(&server, "POST", "catalogs", Some(&body));
        assert_eq!(refused.status, status, "{body} {}", refused.text());
        assert_eq!(refused.json()["error"]["code"], json!(status));
        assert!(refused.text().contains(part), "{body} {}", refused.text());
    };
    check(&|it| it["type"] = json!("EXTERNAL"), 501, "EXTERNAL");
    check(&|it| it["type"] = json!("OTHER"), 400, "`type`");
    check(&|it| it["connectionConfigInfo"] = json!({}), 501, "connectionConfigInfo");
    check(&|it| it["storageConfigInfo"] = json!({"storageType": "GCS"}), 501, "GCS");
    check(&|it| it["storageConfigInfo"] = json!({"storageType": "S3"}), 400, "storageType");
    check(&|it| it["properties"] = json!({}), 400, "default-base-location");
    check(&|it| it["properties"]["default-base-location"] = json!("file:///etc"), 403, "root");
    check(&|it| it["properties"]["k"] = json!("x".repeat(17 << 10)), 400, "properties");
    check(&|it| it["name"] = json!("clients"), 400, "name");
    check(&|it| it["surprise"] = json!(1), 400, "surprise");
    expect(&server, ("POST", "catalogs"), Some(&new_catalog(&server, "lake")), 201);
    let update = |body: Value, status: u16, part: &str| {
        let refused = manage(&server, "PUT", "catalogs/lake", Some(&body));
        assert_eq!(refused.status, status, "{body} {}", refused.text());
        assert!(refused.text().contains(part), "{body} {}", refused.text());
    };
    update(json!({"properties": {}}), 400, "currentEntityVersion");
    let moved = json!({"default-base-location": base(&server, "x")});
    update(json!({"currentEntityVersion": 1, "properties": moved}), 400, "does not change");
    let kind = json!({"storageType": "S3"});
    update(json!({"currentEntityVersion": 1, "storageConfigInfo": kind}), 400, "storageType");
    assert_eq!(expect(&server, ("GET", "catalogs/lake"), None, 200)["entityVersion"], 1);
}

#[test]
fn a_principal_is_a_client_and_its_secret_is_told_once() {
    let server = Server::start();
    let body = json!({"principal": {"name": "alice", "properties": {"team": "a"}},
        "credentialRotationRequired": false});
    let made = expect(&server, ("POST", "principals"), Some(&body), 201);
    let id = made["credentials"]["clientId"].as_str().unwrap().to_owned();
    assert_eq!(made["principal"]["clientId"], json!(id));
    assert_eq!(made["principal"]["properties"], json!({"team": "a"}));
    let again = manage(&server, "POST", "principals", Some(&body));
    assert_refused(&again, 409, "AlreadyExistsException");
    let principal = expect(&server, ("GET", "principals/alice"), None, 200);
    assert_eq!(principal, made["principal"]);
    let all = manage(&server, "GET", "principals", None);
    assert_eq!(all.json()["principals"], json!([principal]));
    assert!(!all.text().contains("cvs_"), "{}", all.text());
    let change = json!({"currentEntityVersion": 1, "properties": {"team": "b"}});
    let changed = expect(&server, ("PUT", "principals/alice"), Some(&change), 200);
    assert_eq!(
        (&changed["properties"]["team"], &changed["entityVersion"]),
        (&json!("b"), &json!(2))
    );
    let stale = manage(&server, "PUT", "principals/alice", Some(&change));
    assert_refused(&stale, 409, "CommitFailedException");
    // The client can rotate its own secret, and none of others.
    let secret = |made: &Value| made["credentials"]["clientSecret"].as_str().unwrap().to_owned();
    let token = token_of(&server, &id, &secret(&made)).unwrap();
    let own = |method: &str, path: &str| {
        server.ask_as(Some(&token), method, &format!("{MANAGEMENT}/{path}"), None)
    };
    expect(&server, ("POST", "principals"), Some(&json!({"principal": {"name": "bob"}})), 201);
    for path in ["principals/bob/rotate", "principals/nobody/rotate", "principals/alice/reset"] {
        assert_refused(&own("POST", path), 403, "ForbiddenException");
    }
    assert_eq!(own("GET", "principals/alice").status, 200);
    let second = own("POST", "principals/alice/rotate").json();
    assert!(token_of(&server, &id, &secret(&made)).is_none());
    assert!(token_of(&server, &id, &secret(&second)).is_some());
    let third = expect(&server, ("POST", "principals/alice/reset"), None, 200);
    assert!(token_of(&server, &id, &secret(&second)).is_none());
    assert!(token_of(&server, &id, &secret(&third)).is_some());
    expect(&server, ("DELETE", "principals/alice"), None, 204);
    assert_refused(&manage(&server, "GET", "principals/alice", None), 404, "NotFoundException");
    // Cove's own clients may share names: ambiguous names match no client.
    for _ in 0..2 {
        let made = server.ask("POST", "/management/v1/clients", Some(&json!({"name": "twin"})));
        assert_eq!(made.status, 200);
    }
    assert_refused(&manage(&server, "GET", "principals/twin", None), 409, "AlreadyExistsException");
}

/// Requests an access token for a secret, as Polaris's clients do; `None` if the secret is wrong.
pub(super) fn token_of(server: &Server, id: &str, secret: &str) -> Option<String> {
    let form = format!(
        "grant_type=client_credentials&client_id={id}&client_secret={secret}\
         &scope=PRINCIPAL_ROLE%3AALL"
    );
    let path = format!("{PREFIX}/polaris/api/catalog/v1/oauth/tokens");
    let request = Request::new("POST", &path)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form);
    let response = server.send_bare(&request);
    match response.status {
        200 => response.json()["access_token"].as_str().map(str::to_owned),
        status => {
            assert_eq!(status, 401, "{}", response.text());
            None
        }
    }
}

#[test]
fn what_a_principal_or_a_role_cannot_be_is_refused_by_name() {
    let server = Server::start();
    expect(&server, ("POST", "principals"), Some(&json!({"principal": {"name": "a"}})), 201);
    for (method, path, body, status, part) in [
        ("POST", "principals", json!({"principal": {"name": ""}}), 400, "name"),
        (
            "POST",
            "principals",
            json!({"principal": {"name": "b", "clientId": "x"}}),
            400,
            "clientId",
        ),
        (
            "POST",
            "principals",
            json!({"principal": {"name": "b"}, "credentialRotationRequired": true}),
            501,
            "credentialRotationRequired",
        ),
        ("POST", "principals/a/reset", json!({"clientSecret": "x"}), 501, "clientSecret"),
        ("PUT", "principals/a", json!({"properties": {}}), 400, "currentEntityVersion"),
        ("PUT", "principals/a", json!({"currentEntityVersion": -1, "properties": {}}), 400, "-1"),
        ("POST", "principal-roles", json!({"principalRole": {"name": "a/b"}}), 400, "name"),
        (
            "POST",
            "principal-roles",
            json!({"principalRole": {"name": "r", "federated": true}}),
            501,
            "federated",
        ),
        ("PUT", "principals/a/principal-roles", json!({"principalRole": {"name": "r"}}), 404, "r"),
        (
            "POST",
            "catalogs/main/catalog-roles",
            json!({"catalogRole": {"name": "a:b"}}),
            400,
            "name",
        ),
        ("POST", "catalogs/none/catalog-roles", json!({"catalogRole": {"name": "a"}}), 404, "none"),
        (
            "PUT",
            "principal-roles/r/catalog-roles/main",
            json!({"catalogRole": {"name": "c"}}),
            404,
            "r",
        ),
    ] {
        let refused = manage(&server, method, path, Some(&body));
        assert_eq!(refused.status, status, "{path} {body} {}", refused.text());
        assert!(refused.text().contains(part), "{path} {body} {}", refused.text());
    }
}

#[test]
fn roles_of_both_kinds_are_made_changed_given_and_removed() {
    let server = Server::start();
    let role = json!({"principalRole": {"name": "etl", "properties": {"k": "v"}}});
    let made = expect(&server, ("POST", "principal-roles"), Some(&role), 201);
    assert_eq!((&made["name"], &made["federated"]), (&json!("etl"), &json!(false)));
    let again = manage(&server, "POST", "principal-roles", Some(&role));
    assert_refused(&again, 409, "AlreadyExistsException");
    let catalog_role = json!({"catalogRole": {"name": "reader", "properties": {"k": "v"}}});
    let roles = "catalogs/main/catalog-roles";
    let of_catalog = expect(&server, ("POST", roles), Some(&catalog_role), 201);
    assert_eq!(of_catalog["properties"], json!({"k": "v"}));
    let again = manage(&server, "POST", roles, Some(&catalog_role));
    assert_refused(&again, 409, "AlreadyExistsException");
    for (path, made) in [("principal-roles/etl", &made), (&*format!("{roles}/reader"), &of_catalog)]
    {
        assert_eq!(&expect(&server, ("GET", path), None, 200), made);
        let change = json!({"currentEntityVersion": 1, "properties": {}});
        let changed = expect(&server, ("PUT", path), Some(&change), 200);
        assert_eq!((&changed["properties"], &changed["entityVersion"]), (&json!({}), &json!(2)));
        let stale = manage(&server, "PUT", path, Some(&change));
        assert_refused(&stale, 409, "CommitFailedException");
    }
    expect(&server, ("POST", "principals"), Some(&json!({"principal": {"name": "a"}})), 201);
    let assign = json!({"principalRole": {"name": "etl"}});
    let give = json!({"catalogRole": {"name": "reader"}});
    for _ in 0..2 {
        expect(&server, ("PUT", "principals/a/principal-roles"), Some(&assign), 201);
        expect(&server, ("PUT", "principal-roles/etl/catalog-roles/main"), Some(&give), 201);
    }
    let names = |path: &str, list: &str| -> Vec<String> {
        let all = expect(&server, ("GET", path), None, 200);
        let all = all[list].as_array().unwrap().iter();
        all.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    let of_role = "principal-roles/etl/catalog-roles/main";
    let holders = "catalogs/main/catalog-roles/reader/principal-roles";
    assert_eq!(names("principals/a/principal-roles", "roles"), ["etl"]);
    assert_eq!(names("principal-roles/etl/principals", "principals"), ["a"]);
    assert_eq!(names(of_role, "roles"), ["reader"]);
    assert_eq!(names(holders, "roles"), ["etl"]);
    assert_eq!(names("principal-roles", "roles"), ["etl"]);
    assert_eq!(names(roles, "roles"), ["reader"]);
    expect(&server, ("DELETE", "principals/a/principal-roles/etl"), None, 204);
    expect(&server, ("DELETE", &format!("{of_role}/reader")), None, 204);
    assert!(names("principals/a/principal-roles", "roles").is_empty());
    assert!(names(of_role, "roles").is_empty());
    // Removed assignments do not apply to a new role of that name.
    expect(&server, ("PUT", of_role), Some(&give), 201);
    expect(&server, ("DELETE", &format!("{roles}/reader")), None, 204);
    expect(&server, ("POST", roles), Some(&catalog_role), 201);
    assert!(names(holders, "roles").is_empty());
    expect(&server, ("PUT", of_role), Some(&give), 201);
    expect(&server, ("DELETE", "principal-roles/etl"), None, 204);
    assert!(names(holders, "roles").is_empty());
    for path in ["principal-roles/etl", "catalogs/main/catalog-roles/none"] {
        assert_refused(&manage(&server, "GET", path, None), 404, "NotFoundException");
        assert_refused(&manage(&server, "DELETE", path, None), 404, "NotFoundException");
    }
}
