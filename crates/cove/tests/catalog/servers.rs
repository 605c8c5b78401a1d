//! Two servers with one database in PostgreSQL and one warehouse: a commit that one of them has
//! acknowledged is visible on the other, and a revocation on one soon applies on the other.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Client, Postgres, Request, Response, Scratch, Server, until};

use crate::shared::COVE;

/// A revocation applies on other servers within two seconds, and the machine may be busy.
const SOON: Duration = Duration::from_secs(20);

/// Commits of each writer.
const COMMITS: usize = 25;

struct Pair {
    one: Server,
    other: Server,
    /// Declared after the servers, which need both until their end.
    _database: Arc<Postgres>,
    files: Scratch,
}

impl Pair {
    fn start() -> Pair {
        let (database, files) = (Postgres::shared(), Scratch::new());
        let root = files.path().display();
        let config = format!(
            "[store]\nurl = {:?}\n[catalog]\nroot = \"file://{root}/main\"\n\
             warehouse_roots = [\"file://{root}/made\"]\n",
            database.database()
        );
        let one = Server::start_with(COVE, &[], Some(&config));
        let other = one.start_beside(&config);
        Pair { one, other, _database: database, files }
    }

    fn clients(&self) -> [Client; 2] {
        [self.one.client(), self.other.client()]
    }
}

fn send(client: &Client, method: &str, path: &str, body: &Value) -> Response {
    let request = Request::new(method, &format!("/catalog/{path}"));
    client.send(&request.header("content-type", "application/json").body(body.to_string()))
}

fn done(client: &Client, method: &str, path: &str, body: &Value) -> Value {
    let reply = send(client, method, path, body);
    assert!(matches!(reply.status, 200 | 204), "{method} {path} {} {}", reply.status, reply.text());
    if reply.body.is_empty() { Value::Null } else { reply.json() }
}

fn get(client: &Client, path: &str) -> Value {
    done(client, "GET", path, &Value::Null)
}

fn table(name: &str) -> Value {
    json!({"name": name, "schema": {"type": "struct", "fields": [
        {"id": 1, "name": "id", "required": true, "type": "long"},
    ]}})
}

fn setting(key: &str, value: &str) -> Value {
    json!({"requirements": [], "updates": [
        {"action": "set-properties", "updates": {key: value}}
    ]})
}

const NAMESPACES: &str = "v1/main/namespaces";
const TABLES: &str = "v1/main/namespaces/n/tables";
const TABLE: &str = "v1/main/namespaces/n/tables/t";

#[test]
fn what_one_has_acknowledged_the_other_one_has() {
    let pair = Pair::start();
    let [one, other] = pair.clients();
    done(&one, "POST", NAMESPACES, &json!({"namespace": ["n"]}));
    done(&other, "POST", TABLES, &table("t"));
    // Both have it cached, and each sees the other's changes at once.
    for turn in 0..20 {
        let (writer, reader) = if turn % 2 == 0 { (&one, &other) } else { (&other, &one) };
        let before = reader.get(&format!("/catalog/{TABLE}"));
        let etag = before.header("etag").unwrap().to_owned();
        let written = done(writer, "POST", TABLE, &setting("turn", &turn.to_string()));
        let request = Request::new("GET", &format!("/catalog/{TABLE}"));
        let found = reader.send(&request.header("if-none-match", &etag));
        assert_eq!(found.status, 200, "the other one has an older version for the same");
        let found = found.json();
        assert_eq!(found["metadata-location"], written["metadata-location"]);
        assert_eq!(found["metadata"]["properties"]["turn"], json!(turn.to_string()));
    }
    // Names and namespaces, which are cached as well.
    let names = |client: &Client, path: &str, member: &str| -> usize {
        get(client, path)[member].as_array().unwrap().len()
    };
    for (count, (writer, reader)) in [(&one, &other), (&other, &one)].into_iter().enumerate() {
        assert_eq!(names(reader, TABLES, "identifiers"), 1 + count);
        assert_eq!(names(reader, NAMESPACES, "namespaces"), 1 + count);
        done(writer, "POST", TABLES, &table(&format!("more{count}")));
        done(writer, "POST", NAMESPACES, &json!({"namespace": [format!("m{count}")]}));
        assert_eq!(names(reader, TABLES, "identifiers"), 2 + count);
        assert_eq!(names(reader, NAMESPACES, "namespaces"), 2 + count);
    }
    let change = json!({"updates": {"k": "v"}, "removals": []});
    done(&one, "POST", &format!("{NAMESPACES}/n/properties"), &change);
    assert_eq!(get(&other, &format!("{NAMESPACES}/n"))["properties"]["k"], json!("v"));
    // A rename or drop on one server is visible on the other, where it can also be undone.
    let here = |name: &str| json!({"namespace": ["n"], "name": name});
    let names = json!({"source": here("t"), "destination": here("u")});
    done(&other, "POST", "v1/main/tables/rename", &names);
    assert_eq!(one.get(&format!("/catalog/{TABLE}")).status, 404);
    let moved = get(&one, &format!("{TABLES}/u"));
    assert_eq!(moved["metadata"]["properties"]["turn"], json!("19"));
    done(&one, "DELETE", &format!("{TABLES}/u"), &Value::Null);
    assert_eq!(other.get(&format!("/catalog/{TABLES}/u")).status, 404);
    let back = json!({"uuid": moved["metadata"]["table-uuid"]});
    done(&other, "POST", "management/v1/main/undrop", &back);
    assert_eq!(get(&one, &format!("{TABLES}/u")), moved);
}

#[test]
fn no_commit_is_lost_between_them() {
    let pair = Pair::start();
    let [one, other] = pair.clients();
    done(&one, "POST", NAMESPACES, &json!({"namespace": ["n"]}));
    done(&one, "POST", TABLES, &table("t"));
    let writers: Vec<_> = [one.clone(), other.clone(), one.clone(), other.clone()]
        .into_iter()
        .enumerate()
        .map(|(writer, client)| {
            thread::spawn(move || {
                for count in 0..COMMITS {
                    let body = setting(&format!("w{writer}-{count}"), "there");
                    // A server that lost several races lets its client retry.
                    until("the commit to be taken", SOON, || {
                        let reply = send(&client, "POST", TABLE, &body);
                        assert!(matches!(reply.status, 200 | 409), "{}", reply.text());
                        if reply.status == 200 { Ok(()) } else { Err(reply.text()) }
                    });
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let (found, same) = (get(&one, TABLE), get(&other, TABLE));
    assert_eq!(found, same);
    let properties = found["metadata"]["properties"].as_object().unwrap();
    assert_eq!(properties.values().filter(|it| **it == "there").count(), 4 * COMMITS);
    let location = found["metadata-location"].as_str().unwrap();
    // One document for each commit, and none was overwritten.
    assert!(location.contains(&format!("/{:05}-", 4 * COMMITS)), "{location}");
    let file = std::fs::read(location.strip_prefix("file://").unwrap()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&file).unwrap(), found["metadata"]);
}

#[test]
fn a_warehouse_that_one_has_made_is_there_at_the_other_one() {
    let pair = Pair::start();
    let [one, other] = pair.clients();
    let root = format!("file://{}/made/lake", pair.files.path().display());
    let made = json!({"name": "lake", "root": root});
    done(&one, "POST", "management/v1/warehouses", &made);
    let config = get(&other, "v1/config?warehouse=lake");
    assert_eq!(config["overrides"]["prefix"], json!("lake"));
    done(&other, "POST", "v1/lake/namespaces", &json!({"namespace": ["n"]}));
    done(&one, "POST", "v1/lake/namespaces/n/tables", &table("t"));
    let path = "v1/lake/namespaces/n/tables/t";
    // Dropped tables are purged at once, so that the warehouse becomes empty.
    done(&one, "POST", "management/v1/lake/retention", &json!({"undrop-seconds": 0}));
    assert_eq!(get(&one, path), get(&other, path));
    let status = |text: &str| json!({"status": text});
    done(&one, "PATCH", "management/v1/warehouses/lake", &status("read-only"));
    until("the other one to take no changes", SOON, || {
        let reply = send(&other, "POST", path, &setting("k", "v"));
        if reply.status == 403 { Ok(()) } else { Err(reply.text()) }
    });
    done(&one, "PATCH", "management/v1/warehouses/lake", &status("active"));
    until("the other one to take changes again", SOON, || {
        let reply = send(&other, "DELETE", path, &Value::Null);
        if reply.status == 204 { Ok(()) } else { Err(reply.text()) }
    });
    done(&other, "DELETE", "v1/lake/namespaces/n", &Value::Null);
    done(&other, "DELETE", "management/v1/warehouses/lake", &Value::Null);
    until("the first one to have forgotten it", SOON, || {
        let reply = one.get("/catalog/v1/config?warehouse=lake");
        if reply.status == 404 { Ok(()) } else { Err(reply.text()) }
    });
}

/// Waits until a server returns this status to a client.
fn soon(what: &str, client: &Client, status: u16) {
    until(what, SOON, || {
        let reply = client.get(&format!("/catalog/{TABLE}"));
        if reply.status == status {
            Ok(())
        } else {
            Err(format!("{} {}", reply.status, reply.text()))
        }
    });
}

#[test]
fn what_one_gives_and_takes_back_the_other_one_honours() {
    let pair = Pair::start();
    let [one, other] = pair.clients();
    done(&one, "POST", NAMESPACES, &json!({"namespace": ["n"]}));
    done(&one, "POST", TABLES, &table("t"));
    let made = done(&one, "POST", "management/v1/clients", &json!({"name": "spark"}));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (id, secret) = (text(&made["client-id"]), text(&made["client-secret"]));
    let token = || {
        let form = format!("grant_type=client_credentials&client_id={id}&client_secret={secret}");
        let request = Request::new("POST", "/catalog/v1/oauth/tokens")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form);
        let reply = one.anonymous().send(&request);
        assert_eq!(reply.status, 200, "{}", reply.text());
        text(&reply.json()["access_token"])
    };
    let at_other = |token: &str| Client::new(other.address(), Some(token.to_owned()));
    let bearer = token();
    let reader = at_other(&bearer);
    // A token is valid everywhere at once; it has no rights yet.
    soon("the token to be known", &reader, 403);
    let right =
        json!({"principal": format!("client:{id}"), "namespace": ["n"], "rights": ["read"]});
    done(&one, "POST", "management/v1/main/grants", &right);
    soon("the right to be known", &reader, 200);
    done(&one, "POST", "management/v1/main/grants/revoke", &right);
    soon("the right to be gone", &reader, 403);
    done(&one, "POST", "management/v1/main/grants", &right);
    soon("the right to be known again", &reader, 200);

    let form = format!("token={bearer}");
    let revoke = Request::new("POST", "/catalog/v1/oauth/revoke")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form);
    assert_eq!(one.send(&revoke).status, 200);
    soon("the token to be taken back", &reader, 401);

    let key =
        done(&one, "POST", &format!("management/v1/clients/{id}/keys"), &json!({"name": "k"}));
    let by_key = at_other(&text(&key["key"]));
    soon("the key to be known", &by_key, 200);
    let path = format!("management/v1/clients/{id}/keys/{}", text(&key["key-id"]));
    done(&one, "DELETE", &path, &Value::Null);
    soon("the key to be gone", &by_key, 401);

    let again = at_other(&token());
    soon("another token to be known", &again, 200);
    done(&one, "DELETE", &format!("management/v1/clients/{id}"), &Value::Null);
    soon("the client to be gone", &again, 401);
}
