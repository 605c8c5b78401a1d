//! Privileges of catalog roles: granted, listed, enforced, and revoked.

use super::manage::token_of;
use super::*;

const ROLE: &str = "catalogs/main/catalog-roles/reader";

/// Creates a principal `alice` with the principal role `etl`, which has the catalog role `reader`
/// of the warehouse `main`. Returns its token.
fn alice(server: &Server) -> String {
    let made =
        expect(server, ("POST", "principals"), Some(&json!({"principal": {"name": "alice"}})), 201);
    let role = json!({"principalRole": {"name": "etl"}});
    let catalog_role = json!({"catalogRole": {"name": "reader"}});
    expect(server, ("POST", "principal-roles"), Some(&role), 201);
    expect(server, ("POST", "catalogs/main/catalog-roles"), Some(&catalog_role), 201);
    expect(server, ("PUT", "principals/alice/principal-roles"), Some(&role), 201);
    expect(server, ("PUT", "principal-roles/etl/catalog-roles/main"), Some(&catalog_role), 201);
    let credentials = &made["credentials"];
    let (id, secret) = (credentials["clientId"].as_str(), credentials["clientSecret"].as_str());
    token_of(server, id.unwrap(), secret.unwrap()).unwrap()
}

fn table(privilege: &str) -> Value {
    json!({"type": "table", "namespace": ["n"], "tableName": "t", "privilege": privilege})
}

#[test]
fn a_privilege_is_a_right_until_it_is_revoked() {
    let server = Server::start();
    server.fill("n", "t");
    server.fill("n", "u");
    let view = server.ask("POST", "/v1/main/namespaces/n/views", Some(&new_view("v")));
    assert_eq!(view.status, 200, "{}", view.text());
    let alice = alice(&server);
    let namespace = "/v1/main/namespaces/n";
    let commit = json!({"updates": []});
    let ask = |method: &str, path: &str| {
        let body = (method == "POST").then_some(&commit);
        server.ask_as(Some(&alice), method, &format!("{namespace}{path}"), body).status
    };
    let view = |privilege: &str| json!({"type": "view", "namespace": ["n"], "viewName": "v", "privilege": privilege});
    let whole = |privilege: &str| json!({"type": "catalog", "privilege": privilege});
    let part =
        |privilege: &str| json!({"type": "namespace", "namespace": ["n"], "privilege": privilege});
    let (t, u, v) = ("/tables/t", "/tables/u", "/views/v");
    for (grant, method, path, other) in [
        (table("TABLE_READ_DATA"), "GET", t, ("POST", t)),
        (table("TABLE_READ_DATA"), "GET", t, ("GET", u)),
        (table("TABLE_WRITE_DATA"), "POST", t, ("DELETE", t)),
        (view("VIEW_READ_PROPERTIES"), "GET", v, ("POST", v)),
        (view("VIEW_WRITE_PROPERTIES"), "POST", v, ("DELETE", v)),
        (part("TABLE_READ_DATA"), "GET", u, ("POST", u)),
        (part("TABLE_WRITE_DATA"), "POST", u, ("DELETE", u)),
        (whole("TABLE_READ_DATA"), "GET", "", ("POST", t)),
        (whole("TABLE_WRITE_DATA"), "POST", u, ("DELETE", u)),
        (view("VIEW_FULL_METADATA"), "DELETE", v, ("GET", t)),
        (part("CATALOG_MANAGE_CONTENT"), "DELETE", u, ("DELETE", "/tables/none/x")),
        (whole("CATALOG_MANAGE_CONTENT"), "DELETE", t, ("DELETE", "/tables/none/x")),
    ] {
        let body = json!({"grant": grant});
        let grants = format!("{ROLE}/grants");
        expect(&server, ("PUT", &grants), Some(&body), 201);
        let listed = expect(&server, ("GET", &grants), None, 200);
        assert_eq!(listed, json!({"grants": [grant]}));
        let (refused, with) = other;
        assert!(matches!(ask(refused, with), 403 | 404), "{grant} {refused} {with}");
        let status = ask(method, path);
        assert!(matches!(status, 200 | 204), "{grant} {method} {path} {status}");
        if method == "DELETE" {
            // Grants on it were removed with it.
            manage(&server, "POST", &grants, Some(&body));
        } else {
            expect(&server, ("POST", &grants), Some(&body), 201);
        }
        assert_eq!(expect(&server, ("GET", &grants), None, 200), json!({"grants": []}));
        assert_eq!(ask("GET", ""), 403, "{grant}");
    }
}

const FULL: &str = "TABLE_FULL_METADATA";
const WRITE: &str = "TABLE_WRITE_DATA";
const READ: &str = "TABLE_READ_DATA";
const CONTENT: &str = "CATALOG_MANAGE_CONTENT";

/// A revocation, its status, and the remaining list.
type Step = (Value, u16, &'static [&'static str]);

#[test]
fn what_is_revoked_is_gone_or_it_is_refused() {
    let server = Server::start();
    server.fill("n", "t");
    let alice = alice(&server);
    let grants = format!("{ROLE}/grants");
    let id = server.catalog.default_warehouse().unwrap().id().to_string();
    let principal = format!("catalog-role:{id}:reader");
    let whole = |privilege: &str| json!({"type": "catalog", "privilege": privilege});
    let cases: [(Value, Vec<Step>); 5] = [
        (
            json!({"namespace": ["n"], "name": "t", "rights": ["manage"]}),
            vec![
                (table(READ), 404, &[FULL, WRITE]),
                (table(WRITE), 501, &[FULL, WRITE]),
                (table(FULL), 201, &[WRITE]),
                (table(FULL), 404, &[WRITE]),
                (table(WRITE), 201, &[]),
            ],
        ),
        (
            json!({"namespace": ["n"], "name": "t", "rights": ["read", "write", "manage"]}),
            vec![
                (table(WRITE), 501, &[FULL, READ, WRITE]),
                (table(READ), 201, &[FULL, WRITE]),
                (table(FULL), 201, &[WRITE]),
                (table(WRITE), 201, &[]),
            ],
        ),
        (
            json!({"namespace": ["n"], "name": "t", "rights": ["read"]}),
            vec![(table(FULL), 404, &[READ]), (table(READ), 201, &[])],
        ),
        (
            json!({"rights": ["manage"]}),
            vec![(whole(WRITE), 404, &[CONTENT]), (whole(CONTENT), 201, &[])],
        ),
        (
            json!({"rights": ["write", "manage"]}),
            vec![(whole(WRITE), 201, &[CONTENT]), (whole(CONTENT), 201, &[])],
        ),
    ];
    for (mut requested, steps) in cases {
        requested["principal"] = json!(principal);
        let put = server.ask("POST", "/management/v1/main/grants", Some(&requested));
        assert_eq!(put.status, 204, "{}", put.text());
        for (grant, status, left) in steps {
            let body = json!({"grant": grant});
            let answer = manage(&server, "POST", &grants, Some(&body));
            assert_eq!(answer.status, status, "{requested} {body} {}", answer.text());
            let listed = expect(&server, ("GET", &grants), None, 200);
            let names = listed["grants"].as_array().unwrap().iter();
            let names: Vec<_> = names.map(|it| it["privilege"].as_str().unwrap()).collect();
            assert_eq!(names, left, "{requested} {body}");
            // A privilege that is no longer listed is no longer granted.
            let table = "/v1/main/namespaces/n/tables/t";
            let status = server.ask_as(Some(&alice), "GET", table, None).status;
            assert_eq!(status, if left.is_empty() { 403 } else { 200 }, "{requested} {body}");
        }
    }
}

#[test]
fn the_rights_of_a_catalog_role_go_with_what_gave_them() {
    let server = Server::start();
    server.fill("n", "t");
    let alice = alice(&server);
    let grant = json!({"grant": {"type": "catalog", "privilege": "TABLE_READ_DATA"}});
    let give = json!({"catalogRole": {"name": "reader"}});
    let assign = json!({"principalRole": {"name": "etl"}});
    let (grants, of_role) = (format!("{ROLE}/grants"), "principal-roles/etl/catalog-roles/main");
    let roles = "catalogs/main/catalog-roles";
    let status =
        || server.ask_as(Some(&alice), "GET", "/v1/main/namespaces/n/tables/t", None).status;
    expect(&server, ("PUT", &grants), Some(&grant), 201);
    assert_eq!(status(), 200);
    for (take, back) in [
        (("DELETE", format!("{of_role}/reader")), vec![("PUT", of_role, &give)]),
        (
            ("DELETE", "principals/alice/principal-roles/etl".to_owned()),
            vec![("PUT", "principals/alice/principal-roles", &assign)],
        ),
        (
            ("DELETE", ROLE.to_owned()),
            vec![("POST", roles, &give), ("PUT", of_role, &give), ("PUT", &grants, &grant)],
        ),
        (
            ("DELETE", "principal-roles/etl".to_owned()),
            vec![
                ("POST", "principal-roles", &assign),
                ("PUT", of_role, &give),
                ("PUT", "principals/alice/principal-roles", &assign),
            ],
        ),
    ] {
        expect(&server, (take.0, &take.1), None, 204);
        assert_eq!(status(), 403, "{take:?}");
        for (step, (method, path, body)) in back.iter().enumerate() {
            assert_eq!(status(), 403, "{take:?} {step}");
            expect(&server, (method, path), Some(body), 201);
        }
        assert_eq!(status(), 200, "{take:?}");
    }
}

#[test]
fn nobody_grants_by_a_catalog_role_what_he_has_not() {
    let server = Server::start();
    server.fill("n", "t");
    let alice = alice(&server);
    let grants = format!("{MANAGEMENT}/{ROLE}/grants");
    let body = |privilege: &str| json!({"grant": table(privilege)});
    let try_it = |method: &str, privilege: &str| {
        server.ask_as(Some(&alice), method, &grants, Some(&body(privilege)))
    };
    assert_refused(&try_it("PUT", "TABLE_READ_DATA"), 403, "ForbiddenException");
    // Cove's own calls treat a catalog role as a principal.
    let id = server.catalog.default_warehouse().unwrap().id().to_string();
    let own = json!({"principal": format!("catalog-role:{id}:reader"), "namespace": ["n"],
        "rights": ["read", "grant"]});
    let response = server.ask("POST", "/management/v1/main/grants", Some(&own));
    assert_eq!(response.status, 204, "{}", response.text());
    assert_eq!(try_it("PUT", "TABLE_READ_DATA").status, 201);
    assert_refused(&try_it("PUT", "TABLE_WRITE_DATA"), 403, "ForbiddenException");
    assert_eq!(try_it("POST", "TABLE_READ_DATA").status, 201);
    // It may not list grants: that requires the right to the whole catalog.
    assert_refused(&server.ask_as(Some(&alice), "GET", &grants, None), 403, "ForbiddenException");
    for principal in ["catalog-role:wh_0:reader", "catalog-role:reader", "catalog-role:"] {
        let wrong = json!({"principal": principal, "rights": ["read"]});
        let refused = server.ask("POST", "/management/v1/main/grants", Some(&wrong));
        assert!(matches!(refused.status, 400 | 404), "{principal} {}", refused.text());
    }
}

#[test]
fn what_cannot_be_granted_is_refused_by_name() {
    let server = Server::start();
    server.fill("n", "t");
    let view = server.ask("POST", "/v1/main/namespaces/n/views", Some(&new_view("v")));
    assert_eq!(view.status, 200, "{}", view.text());
    alice(&server);
    let policy = json!({"type": "policy", "namespace": ["n"], "policyName": "p", "privilege": "X"});
    for (grant, status, part) in [
        (policy, 501, "policies"),
        (table("TABLE_DROP"), 501, "TABLE_DROP"),
        (table("TABLE_READ"), 501, "TABLE_READ"),
        (table("everything"), 400, "privilege"),
        (json!({"type": "catalog", "privilege": "NAMESPACE_LIST"}), 501, "NAMESPACE_LIST"),
        (
            json!({"type": "catalog", "namespace": ["n"], "privilege": "TABLE_READ_DATA"}),
            400,
            "type",
        ),
        (json!({"type": "namespace", "privilege": "TABLE_READ_DATA"}), 400, "namespace"),
        (
            json!({"type": "table", "namespace": ["n"], "privilege": "TABLE_READ_DATA"}),
            400,
            "tableName",
        ),
        (json!({"type": "realm", "privilege": "TABLE_READ_DATA"}), 400, "type"),
        (
            json!({"type": "table", "namespace": ["n"], "tableName": "v",
                "privilege": "TABLE_READ_DATA"}),
            404,
            "Table does not exist: n.v",
        ),
        (
            json!({"type": "view", "namespace": ["n"], "viewName": "t",
                "privilege": "VIEW_READ_PROPERTIES"}),
            404,
            "View does not exist: n.t",
        ),
        (
            json!({"type": "namespace", "namespace": ["x"], "privilege": "TABLE_READ_DATA"}),
            404,
            "Namespace does not exist: x",
        ),
    ] {
        let body = json!({"grant": grant});
        let refused = manage(&server, "PUT", &format!("{ROLE}/grants"), Some(&body));
        assert_eq!(refused.status, status, "{body} {}", refused.text());
        assert!(refused.text().contains(part), "{body} {}", refused.text());
    }
    let read = json!({"grant": {"type": "catalog", "privilege": "TABLE_READ_DATA"}});
    let none = "catalogs/main/catalog-roles/none/grants";
    for (method, path, status) in [
        ("PUT", none.to_owned(), 404),
        ("POST", none.to_owned(), 404),
        ("POST", format!("{ROLE}/grants"), 404),
        ("POST", format!("{ROLE}/grants?cascade=true"), 501),
    ] {
        let refused = manage(&server, method, &path, Some(&read));
        assert_eq!(refused.status, status, "{path} {}", refused.text());
    }
    assert_refused(&manage(&server, "GET", none, None), 404, "NotFoundException");
}

#[test]
fn the_management_is_written_down() {
    let server = Server::start();
    alice(&server);
    manage(&server, "GET", "catalogs", None);
    server.runtime.block_on(server.access.audit_log().write_audit()).unwrap();
    let lines = server.ask("GET", "/management/v1/audit", None).json();
    let lines = lines["lines"].as_array().unwrap().iter();
    let names: Vec<String> = lines.map(|it| it["operation"].as_str().unwrap().to_owned()).collect();
    for operation in [
        "polaris-create-principal",
        "polaris-create-principal-role",
        "polaris-create-catalog-role",
        "polaris-assign-principal-role",
        "polaris-assign-catalog-role",
        "token",
    ] {
        assert!(names.iter().any(|it| it == operation), "{operation} {names:?}");
    }
    assert!(!names.iter().any(|it| it == "polaris-list-catalogs"), "{names:?}");
}
