//! Looking back over HTTP: dropped objects, changes, and past states.

use testkit::Message;

use super::*;

const CHANGES: &str = "/catalog/management/v1/main/changes";

impl Server {
    fn authorized(&self, path: &str) -> Request {
        Request::new("GET", path).header("authorization", &format!("Bearer {}", self.root))
    }
}

#[test]
fn a_table_that_was_dropped_is_listed_and_comes_back() {
    let server = Server::start();
    server.fill("n", "t");
    let keep = json!({"undrop-seconds": 600});
    let management = |path: &str| format!("/management/v1/main/{path}");
    let set = server.ask("POST", &management("retention"), Some(&keep));
    assert_eq!((set.status, set.json()), (200, keep));
    let table = "/v1/main/namespaces/n/tables/t";
    let before = server.ask("GET", table, None).json();
    assert_eq!(server.ask("DELETE", &format!("{table}?purgeRequested=true"), None).status, 204);
    assert_refused(&server.ask("GET", table, None), 404, "NoSuchTableException");
    let list = server.ask("GET", &management("dropped?namespace=n"), None).json();
    let one = &list["dropped"][0];
    assert_eq!((&one["name"], &one["type"]), (&json!("t"), &json!("table")));
    assert_eq!(one["purge-requested"], json!(true));
    let elsewhere = server.ask("GET", &management("dropped?namespace=m"), None).json();
    assert_eq!(elsewhere["dropped"], json!([]));
    let neither = server.ask("POST", &management("undrop"), Some(&json!({"name": "x"})));
    assert_refused(&neither, 400, "BadRequestException");
    let back = json!({"uuid": before["metadata"]["table-uuid"]});
    let done = server.ask("POST", &management("undrop"), Some(&back));
    assert_eq!((done.status, &done.json()["name"]), (200, &json!("t")), "{}", done.text());
    assert_eq!(server.ask("GET", table, None).json(), before);
    let again = server.ask("POST", &management("undrop"), Some(&back));
    assert_refused(&again, 404, "NotFoundException");
    let flag = json!({"namespace": ["n"], "name": "t", "protected": true});
    let on = server.ask("POST", &management("protection"), Some(&flag)).json();
    let expected = json!({"protected": true, "by-flag": true, "by-property": false});
    assert_eq!(on, expected);
    assert_refused(&server.ask("DELETE", table, None), 403, "ForbiddenException");
    let protection = server.ask("GET", &management("protection?namespace=n&name=t"), None).json();
    assert_eq!(protection, expected);
    let lift = json!({"namespace": ["n"], "name": "t", "protected": false});
    server.ask("POST", &management("protection"), Some(&lift));
    assert_eq!(server.ask("DELETE", table, None).status, 204);
    let id = server.ask("GET", &management("dropped"), None).json()["dropped"][0]["id"].clone();
    let path = management(&format!("dropped/{}", id.as_str().unwrap()));
    assert_eq!(server.ask("DELETE", &path, None).status, 204);
    assert_refused(&server.ask("DELETE", &path, None), 404, "NotFoundException");
}

#[test]
fn changes_come_in_pages_and_as_events_without_gap_or_repeat() {
    let server = Server::start();
    server.fill("n", "t");
    server.fill("m", "u");
    let page =
        |query: &str| server.ask("GET", &format!("/management/v1/main/changes?{query}"), None);
    let first = page("limit=3").json();
    let numbers = |page: &Value| -> Vec<i64> {
        page["changes"].as_array().unwrap().iter().map(|it| it["seq"].as_i64().unwrap()).collect()
    };
    assert_eq!((numbers(&first), &first["more"]), (vec![1, 2, 3], &json!(true)));
    let rest = page(&format!("after={}", first["next-after"])).json();
    assert_eq!((numbers(&rest), &rest["more"]), (vec![4], &json!(false)));
    assert_eq!(numbers(&page("namespace=n").json()), [1, 2]);
    assert_eq!(numbers(&page("namespace=m&table=u").json()), [4]);
    assert_eq!(numbers(&page("after=latest").json()), [0_i64; 0]);
    for wrong in ["after=x", "after=-1", "after=99", "limit=0", "limit=1001", "table=u"] {
        assert_refused(&page(wrong), 400, "BadRequestException");
    }
    let request = server.authorized(CHANGES).header("last-event-id", "2");
    let mut events = server.client.events_by(&request).unwrap();
    let next = |events: &mut testkit::EventStream| {
        let event = events.next().unwrap();
        (event.id, event.name, event.data["action"].clone())
    };
    let change = |id: &str, action: &str| (id.to_owned(), "change".to_owned(), json!(action));
    assert_eq!(next(&mut events), change("3", "create-namespace"));
    assert_eq!(next(&mut events), change("4", "create-table"));
    assert_eq!(server.ask("DELETE", "/v1/main/namespaces/m/tables/u", None).status, 204);
    assert_eq!(next(&mut events), change("5", "drop-table"));
    let early = server.authorized(CHANGES).header("last-event-id", "77");
    assert_refused(&server.client.events_by(&early).unwrap_err(), 400, "BadRequestException");
}

#[test]
fn changes_come_on_a_websocket_as_well() {
    let server = Server::start();
    server.fill("n", "t");
    let request = server.authorized(&format!("{CHANGES}?after=1"));
    let mut socket = server.client.websocket_by(&request).unwrap();
    let first = socket.json();
    assert_eq!((&first["seq"], &first["action"]), (&json!(2), &json!("create-table")));
    assert!(first["metadata-location"].as_str().unwrap().starts_with("file://"));
    // The content of a follower's message is ignored.
    socket.send(&json!({"hello": 1}));
    server.fill("m", "u");
    assert_eq!((&socket.json()["seq"], &socket.json()["seq"]), (&json!(3), &json!(4)));
    let store = server.catalog.store().clone();
    server.runtime.block_on(store.change_log().trim_log(u64::MAX / 2)).unwrap();
    let late = server.authorized(&format!("{CHANGES}?after=1"));
    assert_refused(&server.client.websocket_by(&late).unwrap_err(), 410, "GoneException");
    socket.writer().close(1000).unwrap();
    assert!(matches!(socket.message(), Message::Close(..)));
    let bare = Request::new("GET", CHANGES);
    assert_eq!(server.client.websocket_by(&bare).unwrap_err().status, 401);
}

#[test]
fn lists_and_tables_are_shown_as_of_then() {
    let server = Server::start();
    server.fill("n", "t");
    let table = "/v1/main/namespaces/n/tables/t";
    let first = server.ask("GET", table, None).json();
    let commit = json!({"requirements": [], "updates": [
        {"action": "set-properties", "updates": {"k": "v"}}]});
    assert_eq!(server.ask("POST", table, Some(&commit)).status, 200);
    assert_eq!(server.ask("DELETE", table, None).status, 204);
    let at = |path: &str, moment: &str| server.ask("GET", &format!("{path}?as-of={moment}"), None);
    assert_eq!(at(table, "2").json(), first);
    assert_eq!(at(table, "3").json()["metadata"]["properties"]["k"], json!("v"));
    assert_refused(&at(table, "4"), 404, "NoSuchTableException");
    assert_refused(&at(table, "1"), 404, "NoSuchTableException");
    let tables = "/v1/main/namespaces/n/tables";
    assert_eq!(at(tables, "3").json()["identifiers"][0]["name"], json!("t"));
    assert_eq!(at(tables, "4").json()["identifiers"], json!([]));
    assert_refused(&at(tables, "0"), 404, "NoSuchNamespaceException");
    let namespaces = "/v1/main/namespaces";
    assert_eq!(at(namespaces, "0").json()["namespaces"], json!([]));
    assert_eq!(at(namespaces, "1").json()["namespaces"], json!([["n"]]));
    assert_eq!(at(namespaces, "2020-01-01T00:00:00Z").json()["namespaces"], json!([]));
    assert_eq!(at("/v1/main/namespaces/n/views", "1").json()["identifiers"], json!([]));
    for wrong in ["x", "99", "2020-01-01"] {
        assert_refused(&at(tables, wrong), 400, "BadRequestException");
    }
    let by_header = server.authorized(&format!("{PREFIX}{table}")).header("x-cove-as-of", "2");
    assert_eq!(server.client.send(&by_header).json(), first);
    let twice = server.authorized(&format!("{PREFIX}{table}?as-of=2")).header("x-cove-as-of", "2");
    assert_refused(&server.client.send(&twice), 400, "BadRequestException");
}

#[test]
fn metadata_is_shown_in_rows_as_json_and_as_csv() {
    let server = Server::start();
    server.fill("n", "t");
    let now_ms = node::clock::wall_ms();
    let commit = json!({"requirements": [], "updates": [
        {"action": "add-snapshot", "snapshot": {"snapshot-id": 7_258_950_548_773_449_607_i64,
            "sequence-number": 1, "timestamp-ms": now_ms, "schema-id": 0,
            "manifest-list": "file:///x", "summary": {"operation": "append", "note": "a,b"}}},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch",
            "snapshot-id": 7_258_950_548_773_449_607_i64},
        {"action": "set-properties", "updates": {"formula": "=1+1", "quote": "a\"b"}}]});
    let done = server.ask("POST", "/v1/main/namespaces/n/tables/t", Some(&commit));
    assert_eq!(done.status, 200, "{}", done.text());
    let path = |rest: &str| format!("/management/v1/main/tables/n/t/{rest}");
    let rows = |rest: &str| server.ask("GET", &path(rest), None).json();
    let snapshot = &rows("snapshots")["rows"][0];
    assert_eq!(snapshot["snapshot-id"], json!(7_258_950_548_773_449_607_i64));
    assert_eq!(snapshot["committed-at"], json!(node::clock::rfc3339_of_ms(now_ms)));
    assert_eq!(snapshot["summary"]["note"], json!("a,b"));
    assert_eq!(rows("history")["rows"][0]["is-current-ancestor"], json!(true));
    assert_eq!(rows("refs")["rows"][0]["name"], json!("main"));
    assert_eq!(rows("refs?as-of=2")["rows"], json!([]));
    let schema = rows("schema");
    assert_eq!(
        (&schema["rows"][0]["name"], &schema["rows"][0]["type"]),
        (&json!("id"), &json!("long"))
    );
    let csv = |rest: &str| server.ask("GET", &path(rest), None);
    let properties = csv("properties?format=csv");
    assert!(properties.header("content-type").unwrap().starts_with("text/csv"));
    assert_eq!(properties.text().lines().next(), Some("key,value"));
    assert!(properties.text().contains("\r\nformula,'=1+1\r\n"), "{}", properties.text());
    assert!(properties.text().contains("\r\nquote,\"a\"\"b\"\r\n"), "{}", properties.text());
    let by_accept = server.authorized(&format!("{PREFIX}{}", path("properties")));
    let by_accept = server.client.send(&by_accept.header("accept", "text/csv"));
    assert_eq!(by_accept.text(), properties.text());
    let first = csv("properties?format=csv&pageSize=1");
    assert_eq!(first.text().lines().count(), 2);
    let token = first.header("x-next-page-token").unwrap().to_owned();
    let rest = rows(&format!("properties?pageToken={token}"));
    let whole = rows("properties");
    let all = whole["rows"].as_array().unwrap();
    assert_eq!(rest["rows"].as_array().unwrap().as_slice(), &all[1..]);
    assert_eq!(rest["next-page-token"], json!(null));
    let again = json!({"requirements": [], "updates": [
        {"action": "set-properties", "updates": {"k": "v"}}]});
    assert_eq!(server.ask("POST", "/v1/main/namespaces/n/tables/t", Some(&again)).status, 200);
    assert_refused(&csv(&format!("properties?pageToken={token}")), 410, "GoneException");
    for wrong in
        ["properties?pageToken=x", "refs?format=xml", "refs?pageSize=0", "files?snapshot-id=1"]
    {
        assert_refused(&csv(wrong), 400, "BadRequestException");
    }
    assert_refused(&csv("rows"), 404, "NotFoundException");
    let none = server.ask("GET", "/management/v1/main/tables/n/none/refs", None);
    assert_refused(&none, 404, "NoSuchTableException");
}

#[test]
fn a_job_is_started_followed_and_stopped() {
    let server = Server::start();
    server.fill("n", "t");
    let path = "/management/v1/main/maintenance";
    let request = json!({"actions": ["expire-snapshots", "clean-metadata"], "dry-run": true});
    let started = server.ask("POST", path, Some(&request));
    assert_eq!(started.status, 202, "{}", started.text());
    let job = format!("{path}/{}", started.json()["id"].as_str().unwrap());
    let report = testkit::until("the job is done", Duration::from_secs(60), || {
        let report = server.ask("GET", &job, None).json();
        if report["state"] == json!("done") { Ok(report) } else { Err(report.to_string()) }
    });
    assert_eq!((&report["tables-total"], &report["tables-done"]), (&json!(1), &json!(1)));
    assert_eq!((&report["items"], &report["failures"]), (&json!([]), &json!([])));
    let listed = server.ask("GET", path, None).json();
    assert_eq!((&listed["jobs"][0]["id"], &listed["jobs"][1]), (&report["id"], &Value::Null));
    assert_eq!(server.ask("GET", &format!("{job}?items=false"), None).json(), report);
    assert_eq!(server.ask("DELETE", &job, None).status, 204);
    assert_refused(&server.ask("GET", &format!("{path}/mj_0"), None), 404, "NotFoundException");
    let wrong = server.ask("POST", path, Some(&json!({"actions": ["vacuum"]})));
    assert_refused(&wrong, 400, "BadRequestException");
}

/// Returns the principal and a token of a new client with a right to one object.
fn somebody(server: &Server, name: &str, grant: &Value) -> (String, String) {
    let (id, secret) = server.runtime.block_on(async {
        let made = server.access.clients().create_client(&operator(), name, false).await.unwrap();
        (made.client.client_id, made.client_secret)
    });
    let mut grant = grant.clone();
    grant["principal"] = json!(format!("client:{id}"));
    let done = server.ask("POST", "/management/v1/main/grants", Some(&grant));
    assert_eq!(done.status, 204, "{}", done.text());
    let token =
        server.runtime.block_on(server.access.tokens().token_for(&id, &secret, None)).unwrap();
    (id, token.token)
}

#[test]
fn the_past_of_a_table_is_judged_by_what_became_of_it() {
    let server = Server::start();
    server.fill("n", "t");
    server.fill("m", "x");
    let keep = json!({"undrop-seconds": 600});
    server.ask("POST", "/management/v1/main/retention", Some(&keep));
    let (_, manager) = somebody(&server, "manager", &json!({"rights": ["manage"]}));
    let of_n = json!({"namespace": ["n"], "rights": ["read"]});
    let (_, reader) = somebody(&server, "reader", &of_n);
    let policy = json!({"principal": "*", "namespace": ["n"], "table": "t", "row-filter": true});
    let put = server.ask("PUT", "/management/v1/main/policies/p", Some(&policy));
    assert_eq!(put.status, 200, "{}", put.text());
    let table = "/v1/main/namespaces/n/tables/t?as-of=2";
    let files = "/management/v1/main/tables/n/t/refs?as-of=2";
    let load = |token: &str, path: &str| server.ask_as(Some(token), "GET", path, None);
    assert_eq!(load(&reader, table).status, 200);

    // It is renamed, with its policy, and another table gets its name.
    let rename = json!({"source": {"namespace": ["n"], "name": "t"},
        "destination": {"namespace": ["m"], "name": "u"}});
    assert_eq!(server.ask("POST", "/v1/main/tables/rename", Some(&rename)).status, 204);
    server.fill("n", "t");
    let one = json!({"namespace": ["n"], "name": "t", "rights": ["read"]});
    let (_, newcomer) = somebody(&server, "newcomer", &one);
    let restricted = load(&manager, table);
    assert_eq!(restricted.status, 200, "{}", restricted.text());
    assert!(restricted.json()["read-restrictions"].is_object(), "{}", restricted.text());
    for token in [&reader, &newcomer] {
        assert_eq!(load(token, "/v1/main/namespaces/n/tables/t").status, 200);
        assert_refused(&load(token, table), 403, "ForbiddenException");
        assert_refused(&load(token, files), 403, "ForbiddenException");
    }

    // A reader of the namespace sees its changes, and nothing of a table elsewhere.
    let changes = |token: &str| {
        let page = load(token, "/management/v1/main/changes?after=0").json();
        let line = |it: &Value| {
            let file = it["metadata-location"].is_string();
            (it["seq"].as_i64().unwrap(), it["id"].is_string(), file)
        };
        page["changes"].as_array().unwrap().iter().map(line).collect::<Vec<_>>()
    };
    let (made, moved, again) = ((2, false, false), (5, false, false), (6, true, true));
    assert_eq!(changes(&reader), [(1, false, false), made, moved, again]);
    assert_eq!(changes(&newcomer), [again]);

    // After the drop, only managers see it, and only operators see a relation that may be restored
    // with policies.
    assert_eq!(server.ask("DELETE", "/v1/main/namespaces/m/tables/u", None).status, 204);
    assert_refused(&load(&reader, table), 403, "ForbiddenException");
    assert_refused(&load(&manager, table), 403, "ForbiddenException");
    assert_eq!(server.ask("GET", table, None).status, 200);
    assert_eq!(server.ask("DELETE", "/management/v1/main/policies/p", None).status, 204);
    assert_eq!(load(&manager, table).status, 200);
    assert_refused(&load(&reader, table), 403, "ForbiddenException");
    assert_eq!(changes(&newcomer), [again]);
}

#[test]
fn a_follower_is_cut_when_its_client_is_removed() {
    let server = Server::start();
    server.fill("n", "t");
    let (id, token) = somebody(&server, "follower", &json!({"rights": ["read"]}));
    let bearer = format!("Bearer {token}");
    let request =
        Request::new("GET", &format!("{CHANGES}?after=1")).header("authorization", &bearer);
    let mut events = server.client.events_by(&request).unwrap();
    let mut socket = server.client.websocket_by(&request).unwrap();
    assert_eq!(events.next().unwrap().data["seq"], json!(2));
    assert_eq!(socket.json()["seq"], json!(2));
    let removed = server.ask("DELETE", &format!("/management/v1/clients/{id}"), None);
    assert_eq!(removed.status, 204);
    let last = events.next().unwrap();
    assert_eq!((last.name.as_str(), &last.data["code"]), ("error", &json!(401)));
    assert!(events.next().is_none());
    assert!(matches!(socket.message(), Message::Close(1008, ..)));
}
