//! Identity of a token, console sign-in, and its end.

use std::io::{ErrorKind, Read as _};

use serde_json::{Value, json};
use testkit::{Client, Request, Response, Server, until};

use crate::asynchronous::{post, submit};
use crate::revocation::websocket;
use crate::support::{COVE, SOON, beside_others, held, serve};

/// Runs a command of the server's owner that prints one document.
pub(crate) fn document(server: &Server, command: &str, arguments: &[&str]) -> Value {
    let output = server.command(command).arg("--json").args(arguments).output().unwrap();
    assert!(output.status.success(), "{command} {arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn code(client: &Client, scopes: &Value) -> Response {
    post(client, "/v1/console/codes", scopes)
}

fn login(server: &Server, code: &Value) -> Response {
    post(&server.client().anonymous(), "/v1/console/login", &json!({"code": code}))
}

/// Signs in with all rights of the client's token.
fn sign_in(server: &Server, client: &Client) -> Client {
    let made = code(client, &json!({}));
    assert_eq!(made.status, 201, "{}", made.text());
    let answer = login(server, &made.json()["code"]);
    assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")));
    let token = answer.json()["token"].as_str().unwrap().to_owned();
    Client::new(server.client().address(), Some(token))
}

#[test]
fn a_code_signs_in_once_with_the_rights_of_its_token_or_fewer() {
    let _guard = beside_others();
    let server = serve();
    let owner = server.client();
    let me = owner.get("/v1/whoami").json();
    assert_eq!(
        (&me["kind"], &me["operator"], &me["name"]),
        (&json!("token"), &json!(true), &json!("first"))
    );
    assert!(me["services"]["queue"] == true && me["node"].as_str().unwrap().starts_with("srv_"));

    // Codes that the server printed, and that the owner's command prints.
    let greeted = server.log();
    let at = greeted.find("/console/#c=").expect("the greeting has an address of the console");
    let greeted = greeted[at..].split_whitespace().next().unwrap().rsplit('=').next().unwrap();
    assert_eq!(login(&server, &json!(greeted)).status, 200);
    let printed = document(&server, "console", &["--scope", "executions"]);
    let url = printed["url"].as_str().unwrap();
    assert!(url.starts_with(&format!("http://{}/console/#c=", owner.address())), "{url}");
    let answer = login(&server, &printed["code"]);
    let token = answer.json()["token"].as_str().unwrap().to_owned();
    let again = login(&server, &printed["code"]);
    assert_eq!(again.status, 403, "{}", again.text());

    let narrow = Client::new(owner.address(), Some(token.clone()));
    let who = narrow.get("/v1/whoami").json();
    assert_eq!((&who["kind"], &who["tenant"]), (&json!("console"), &me["tenant"]));
    assert_eq!(
        (&who["scopes"], &who["expires_ms"]),
        (&json!(["executions"]), &answer.json()["expires_ms"])
    );
    assert_eq!(narrow.get("/v1/executions").status, 200);
    assert_eq!(narrow.get("/v1/sessions").status, 403, "it was narrowed");
    assert_eq!(code(&narrow, &json!({})).status, 403, "no chain of sign-ins");
    let other = server.other_client("few", &["--scope", "sessions"]);
    assert_eq!(code(&other, &json!({"scopes": ["executions"]})).status, 403);
    assert_eq!(code(&other, &json!({"scopes": ["root"]})).status, 400);
    let of_other = sign_in(&server, &other).get("/v1/whoami").json();
    assert_eq!((&of_other["operator"], &of_other["scopes"]), (&json!(false), &json!(["sessions"])));
    // Without a body, and with one changed letter.
    assert_eq!(other.send(&Request::new("POST", "/v1/console/codes")).status, 201);
    let forged =
        format!("{}{}", &token[..token.len() - 1], if token.ends_with('A') { 'B' } else { 'A' });
    assert_eq!(Client::new(owner.address(), Some(forged)).get("/v1/whoami").status, 401);
    // Too many attempts also block valid codes.
    let fresh = code(&owner, &json!({})).json();
    let statuses: Vec<u16> = (0..12).map(|_| login(&server, &json!("guess")).status).collect();
    assert!(statuses[0] == 403 && statuses[11] == 429, "{statuses:?}");
    let refused = login(&server, &fresh["code"]);
    assert!(refused.status == 429 && refused.header("retry-after").is_some());
}

#[test]
fn a_sign_in_ends_with_the_token_behind_it() {
    let _guard = beside_others();
    let server = serve();
    let made = document(&server, "token", &["create", "--name", "brief"]);
    let token = made["token"].as_str().unwrap().to_owned();
    let owner = Client::new(server.client().address(), Some(token));
    let (first, second) = (sign_in(&server, &owner), sign_in(&server, &owner));
    // Signing out, which does not apply to a token itself.
    let logout = Request::new("POST", "/v1/console/logout");
    assert_eq!(owner.send(&logout).status, 400);
    assert_eq!(first.send(&logout).status, 204);
    assert_eq!((first.get("/v1/whoami").status, second.get("/v1/whoami").status), (401, 200));
    // An event stream of the other session is closed when the token is revoked, and the program
    // ends.
    let mut interactive = held("sleep 61.8");
    interactive["interactive"] = json!(true);
    let id = submit(&owner, &interactive);
    let attached = websocket(&format!("/v1/executions/{id}/events?attach=true"));
    let mut stream = second.open(&attached).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut scrap = [0; 4096];
    assert!(stream.read(&mut scrap).unwrap() > 0);
    document(&server, "token", &["revoke", made["id"].as_str().unwrap()]);
    loop {
        match stream.read(&mut scrap) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("the stream goes on: {error}"),
        }
    }
    assert_eq!(second.get("/v1/whoami").status, 401);
}

#[test]
fn a_sign_in_outlives_a_restart_and_browsers_are_led_to_the_console() {
    let _guard = beside_others();
    let mut server = serve();
    let signed_in = sign_in(&server, &server.client());
    let token = signed_in_token(&server);
    server.restart();
    let address = server.client().address();
    until("the sign-in to be known", SOON, || {
        match Client::new(address, Some(token.clone())).get("/v1/whoami").status {
            200 => Ok(()),
            status => Err(status.to_string()),
        }
    });
    drop(signed_in);
    let root = |accept: &str| {
        let request = Request::new("GET", "/").header("accept", accept);
        let response = server.client().anonymous().send(&request);
        (response.status, response.header("location").map(str::to_owned))
    };
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    assert_eq!(root(browser), (303, Some("console/".to_owned())));
    assert_eq!(root("application/json"), (404, None));

    let off = Server::start_with(COVE, &[], Some("console.enabled = false\n"));
    assert!(!off.log().contains("/console/"), "{}", off.log());
    let request = Request::new("GET", "/").header("accept", browser);
    assert_eq!(off.client().send(&request).status, 404);
    let refused = code(&off.client(), &json!({}));
    assert!(refused.status == 404 && refused.text().contains("console.enabled"));
    assert_eq!(off.client().get("/v1/whoami").status, 200);
}

fn signed_in_token(server: &Server) -> String {
    let made = code(&server.client(), &json!({})).json();
    login(server, &made["code"]).json()["token"].as_str().unwrap().to_owned()
}
