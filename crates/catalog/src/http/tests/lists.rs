//! Cached lists equal the store's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;

/// Tables that are created while others list them.
const TABLES: usize = 30;

/// Sets a flag when dropped, also on a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Returns all lists, from the cache and in pages from the store.
fn lists(server: &Server) -> Vec<Value> {
    let mut all = Vec::new();
    let paths = ["namespaces", "namespaces?parent=n", "namespaces?parent=m"];
    let below = ["n", "m", "n%1Fc"].map(|it| [format!("{it}/tables"), format!("{it}/views")]);
    let below = below.into_iter().flatten().map(|it| format!("namespaces/{it}"));
    for path in paths.into_iter().map(str::to_owned).chain(below) {
        let mark = if path.contains('?') { '&' } else { '?' };
        // Twice: the second response is a cached one.
        let made = server.ask("GET", &format!("/v1/main/{path}"), None);
        let ready = server.ask("GET", &format!("/v1/main/{path}"), None);
        let paged = format!("/v1/main/{path}{mark}pageToken=&pageSize=1000");
        let read = server.ask("GET", &paged, None);
        assert_eq!((made.status, ready.status), (read.status, read.status), "{path}");
        assert_eq!(made.text(), ready.text(), "{path}");
        assert_eq!(ready.json(), read.json(), "{path}");
        all.push(ready.json());
    }
    for namespace in ["n", "m", "n%1Fc"] {
        let path = format!("/v1/main/namespaces/{namespace}");
        let (made, ready) = (server.ask("GET", &path, None), server.ask("GET", &path, None));
        assert_eq!(made.text(), ready.text(), "{path}");
        all.push(ready.json());
    }
    all
}

#[test]
fn every_change_of_names_is_seen_by_whoever_lists_next() {
    let server = Server::start();
    let ident = |name: &str, namespace: &[&str]| json!({"namespace": namespace, "name": name});
    let rename = |from: Value, to: Value| json!({"source": from, "destination": to});
    let namespace = |levels: &[&str]| json!({"namespace": levels, "properties": {"a": "b"}});
    let creation = json!({"table-changes": [{
        "identifier": ident("made", &["n"]),
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": schema(), "last-column-id": 2},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
        ],
    }]});
    let (n, c) = ("namespaces/n", "namespaces/n%1Fc");
    let mut location = json!(null);
    for (method, path, body) in [
        ("POST", "namespaces".to_owned(), Some(namespace(&["n"]))),
        ("POST", "namespaces".to_owned(), Some(namespace(&["n", "c"]))),
        ("POST", "namespaces".to_owned(), Some(namespace(&["m"]))),
        ("POST", format!("{n}/properties"), Some(json!({"updates": {"x": "y"}}))),
        ("POST", format!("{n}/tables"), Some(new_table("t"))),
        ("POST", format!("{n}/views"), Some(new_view("v"))),
        ("POST", "transactions/commit".to_owned(), Some(creation)),
        ("POST", "tables/rename".to_owned(), Some(rename(ident("t", &["n"]), ident("u", &["n"])))),
        (
            "POST",
            "tables/rename".to_owned(),
            Some(rename(ident("u", &["n"]), ident("t", &["n", "c"]))),
        ),
        ("POST", "views/rename".to_owned(), Some(rename(ident("v", &["n"]), ident("v", &["m"])))),
        ("POST", format!("{c}/tables/t/unregister"), Some(json!({}))),
        ("POST", format!("{n}/register"), None),
        ("DELETE", "namespaces/m/views/v".to_owned(), None),
        ("DELETE", "namespaces/m".to_owned(), None),
        ("DELETE", c.to_owned(), None),
        ("DELETE", format!("{n}/tables/made?purgeRequested=true"), None),
    ] {
        let before = lists(&server);
        let body = match path.ends_with("/register") {
            true => Some(json!({"name": "back", "metadata-location": location})),
            false => body,
        };
        let done = server.ask(method, &format!("/v1/main/{path}"), body.as_ref());
        assert!(done.status < 300, "{path}: {}", done.text());
        if path.ends_with("/unregister") {
            location = done.json()["metadata-location"].clone();
        }
        assert_ne!(lists(&server), before, "{method} {path} has changed nothing that is listed");
    }
    let figures = server.catalog.lists().figures();
    assert!(figures.hits > figures.misses / 2 && figures.misses > 0, "{figures:?}");
    assert!(figures.bytes > 0, "{figures:?}");
}

#[test]
fn a_commit_leaves_lists_ready() {
    let server = Server::start();
    server.fill("n", "t");
    let list = || server.ask("GET", "/v1/main/namespaces/n/tables", None).text();
    let first = list();
    let before = server.catalog.lists().figures();
    let commit = json!({"requirements": [], "updates": [
        {"action": "set-properties", "updates": {"a": "b"}}]});
    assert_eq!(server.ask("POST", "/v1/main/namespaces/n/tables/t", Some(&commit)).status, 200);
    assert_eq!(list(), first);
    assert_eq!(server.catalog.lists().figures().misses, before.misses);
}

#[test]
fn nobody_who_may_not_read_gets_a_ready_list() {
    let server = Server::start();
    server.fill("n", "t");
    let path = "/v1/main/namespaces/n/tables";
    assert_eq!(server.ask("GET", path, None).status, 200);
    assert_refused(&server.ask_as(None, "GET", path, None), 401, "NotAuthorizedException");
    let client = server.ask("POST", "/management/v1/clients", Some(&json!({"name": "x"}))).json();
    let request = Request::new("POST", &format!("{PREFIX}/v1/oauth/tokens"))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(format!(
            "grant_type=client_credentials&client_id={}&client_secret={}",
            client["client-id"].as_str().unwrap(),
            client["client-secret"].as_str().unwrap()
        ));
    let token = server.send_bare(&request).json();
    let token = token["access_token"].as_str().unwrap();
    assert_refused(&server.ask_as(Some(token), "GET", path, None), 403, "ForbiddenException");
}

#[test]
fn who_lists_after_a_table_was_made_sees_it_whoever_else_lists() {
    let server = Server::start();
    server.fill("n", "first");
    let path = "/v1/main/namespaces/n/tables";
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _over = Over(&is_over);
            for number in 0..TABLES {
                let name = format!("t{number}");
                assert_eq!(server.ask("POST", path, Some(&new_table(&name))).status, 200);
                let listed = server.ask("GET", path, None).text();
                assert!(listed.contains(&format!("\"{name}\"")), "{name}: {listed}");
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    assert_eq!(server.ask("GET", path, None).status, 200);
                }
            });
        }
    });
}
