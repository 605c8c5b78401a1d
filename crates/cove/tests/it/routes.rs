//! Every route with every kind of token: each interface rejects tokens without the required scope.
//!
//! The native routes and their required scopes come from the server's own `openapi.json`, which is
//! generated from the tables of operations, so a new operation is tested automatically. Routes of
//! other interfaces are listed here.

use std::process::Command;

use serde_json::{Value, json};
use testkit::{Client, Request, Response, Server, until};

use crate::asynchronous::{id, post};
use crate::sessions_support::{Sessions, config, ok, path, probe};
use crate::support::{COVE, SOON, beside_others};

/// Text in every object of the first tenant, which must not occur in responses to others.
const CANARY: &str = "planted-canary";

/// Routes of other systems' interfaces on the main listener, with the scope that they need. `{s}`
/// stands for a session, `{a}` for an agent.
const FOREIGN: &[(&str, &str, &str)] = &[
    ("GET", "/compat/piston/api/v2/runtimes", "executions"),
    ("POST", "/compat/piston/api/v2/execute", "executions"),
    ("GET", "/compat/judge0/submissions", "executions"),
    ("POST", "/compat/judge0/submissions", "executions"),
    ("GET", "/compat/judge0/submissions/batch?tokens=a", "executions"),
    ("GET", "/compat/judge0/languages", "executions"),
    ("POST", "/compat/go-judge/run", "executions"),
    ("GET", "/compat/go-judge/file", "executions"),
    ("GET", "/compat/go-judge/stream", "executions"),
    ("GET", "/compat/go-judge/ws", "executions"),
    ("POST", "/compat/sandbox-fusion/run_code", "executions"),
    ("POST", "/compat/sandbox-fusion/run_jupyter", "executions"),
    ("GET", "/compat/sandbox-fusion/v1/ping", "executions"),
    ("GET", "/api/agents", "agents"),
    ("GET", "/api/agents/{a}", "agents"),
    ("DELETE", "/api/agents/{a}", "agents"),
    ("GET", "/api/agents/{a}/files", "agents"),
    ("GET", "/api/agents/{a}/versions", "agents"),
    ("GET", "/api/agents/{a}/eval-cases", "agents"),
    ("GET", "/api/sessions", "sessions"),
    ("GET", "/api/sessions/{s}", "sessions"),
    ("DELETE", "/api/sessions/{s}", "sessions"),
    ("GET", "/api/sessions/{s}/messages", "sessions"),
    ("GET", "/api/sessions/{s}/events", "sessions"),
    ("GET", "/api/sessions/{s}/logs", "sessions"),
    ("GET", "/api/sessions/{s}/files", "sessions"),
    ("GET", "/api/sessions/{s}/workspace", "sessions"),
    ("POST", "/api/sessions/{s}/pause", "sessions"),
    ("POST", "/api/sessions/{s}/fork", "sessions"),
    ("GET", "/api/credentials", "sessions"),
    ("GET", "/api/queue", "sessions"),
    ("GET", "/api/usage", "sessions"),
    ("GET", "/catalog/v1/config", "catalog"),
    ("GET", "/catalog/v1/main/namespaces", "catalog"),
    ("POST", "/catalog/v1/main/namespaces", "catalog"),
];

/// One route, with the objects of the first tenant as its parameters.
#[derive(Debug)]
struct Route {
    method: String,
    target: String,
    body: Option<Value>,
    /// Alternatives for the token: the scopes that it needs, or the operator role.
    needs: Vec<Vec<String>>,
    /// Whether it refers to an object of the first tenant.
    names_a_thing: bool,
}

impl Route {
    /// Returns whether a token with these roles may use it.
    fn is_for(&self, roles: &[&str]) -> bool {
        let has_all = |needed: &Vec<String>| needed.iter().all(|it| roles.contains(&it.as_str()));
        self.needs.iter().any(has_all)
    }

    fn send(&self, client: &Client) -> Response {
        let mut request = Request::new(&self.method, &self.target);
        if let Some(body) = &self.body {
            let bytes = serde_json::to_vec(body).unwrap();
            request = request.header("content-type", "application/json").body(bytes);
        }
        client.send(&request)
    }
}

/// Objects of the first tenant, by the parameter that names them.
struct Owned {
    agent: String,
    session: String,
    execution: String,
    snapshot: String,
    credential: String,
    attachment: String,
}

fn make_things(sessions: &Sessions) -> Owned {
    let client = &sessions.client;
    let agent = CANARY.to_owned();
    sessions.deploy(&probe(&agent));
    let session = sessions.create(&json!({"agent": agent, "metadata": {"note": CANARY}}));
    assert!(sessions.write(&session, "secret.txt", CANARY.as_bytes()).status < 300);
    sessions.ask(&session, CANARY);
    let made = |target: &str, body: &Value| {
        let response = post(client, target, body);
        assert!(response.status < 300, "{target}: {}", response.text());
        response.json()
    };
    let own = path(&session);
    let snapshot = id(&made(&format!("{own}/snapshots"), &json!({"name": CANARY})));
    let credential = id(&made(
        "/v1/credentials",
        &json!({"kind": "anthropic", "label": CANARY, "secret": "sk-not-a-key"}),
    ));
    let attachment = Request::new("POST", &format!("{own}/attachments?name={CANARY}.txt"))
        .header("content-type", "text/plain")
        .body(CANARY);
    let attachment = id(&ok(&client.send(&attachment)));
    made("/v1/templates?wait=true", &json!({"name": CANARY}));
    let execution = id(&made("/v1/executions", &json!({"argv": ["/bin/true"], "label": CANARY})));
    Owned { agent, session, execution, snapshot, credential, attachment }
}

/// Returns the value of a path parameter: an object of the first tenant.
fn value_of<'a>(owned: &'a Owned, path: &str, parameter: &'a Value) -> &'a str {
    let name = parameter["name"].as_str().unwrap();
    match name {
        "id" if path.starts_with("/v1/executions") => &owned.execution,
        "id" if path.starts_with("/v1/snapshots") => &owned.snapshot,
        "id" if path.starts_with("/v1/credentials") => &owned.credential,
        "id" if path.starts_with("/v1/attachments") => &owned.attachment,
        "id" => &owned.session,
        "name" if path.starts_with("/v1/agents") => &owned.agent,
        "name" if path.starts_with("/v1/templates") => CANARY,
        "path" if path.starts_with("/v1/agents") => "probe.py",
        "path" => "secret.txt",
        _ => parameter["example"].as_str().unwrap_or("1"),
    }
}

/// Returns the routes of the server's own interface that need a token.
fn native(server: &Server, owned: &Owned) -> Vec<Route> {
    let document = server.client().anonymous().get("/openapi.json").json();
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if operation["security"] == json!([]) {
                continue;
            }
            // The catalog has its own rights; its crate tests them for each operation.
            if operation["tags"][0].as_str().unwrap().starts_with("catalog") {
                continue;
            }
            let mut target = path.clone();
            let mut query = Vec::new();
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let value = value_of(owned, path, parameter);
                let name = parameter["name"].as_str().unwrap();
                match parameter["in"].as_str().unwrap() {
                    "path" => target = target.replace(&format!("{{{name}}}"), value),
                    "query" if parameter["required"] == true => {
                        query.push(format!("{name}={value}"))
                    }
                    _ => {}
                }
            }
            if !query.is_empty() {
                target = format!("{target}?{}", query.join("&"));
            }
            let examples = &operation["requestBody"]["content"]["application/json"]["examples"];
            let example = examples.as_object().and_then(|examples| examples.values().next());
            let alternatives = operation["security"].as_array().unwrap().iter();
            let roles = |it: &Value| -> Vec<String> {
                let roles = it["token"].as_array().unwrap().iter();
                roles.map(|role| role.as_str().unwrap().to_owned()).collect()
            };
            routes.push(Route {
                method: method.to_uppercase(),
                names_a_thing: path.contains('{'),
                target,
                body: example.map(|example| example["value"].clone()),
                needs: alternatives.map(roles).collect(),
            });
        }
    }
    routes
}

fn foreign(owned: &Owned) -> Vec<Route> {
    let route = |(method, target, scope): &(&str, &str, &str)| Route {
        method: (*method).to_owned(),
        target: target.replace("{s}", &owned.session).replace("{a}", &owned.agent),
        body: (*method == "POST").then(|| json!({})),
        needs: vec![vec![(*scope).to_owned()]],
        names_a_thing: target.contains('{'),
    };
    FOREIGN.iter().map(route).collect()
}

/// Runs `cove token …` on the server's data directory. Returns its output.
fn token_command(server: &Server, arguments: &[&str]) -> String {
    let mut command = Command::new(COVE);
    command.args(["token", "--data-dir"]).arg(server.data_dir()).args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns a client as soon as the server knows its token, using a route that needs no scope.
fn known(server: &Server, token: String) -> Client {
    let client = Client::new(server.client().address(), Some(token));
    until("the token to be known", SOON, || match client.get("/v1/languages").status {
        401 => Err("401".to_owned()),
        status => Ok(status),
    });
    client
}

/// Returns a client whose token was revoked.
fn revoked(server: &Server) -> Client {
    let token = token_command(server, &["create", "--name", "revoked"]);
    let client = known(server, token);
    let list = token_command(server, &["list"]);
    let line = list.lines().find(|line| line.contains("revoked")).expect("the token is listed");
    token_command(server, &["revoke", line.split_whitespace().next().unwrap()]);
    until("the token to be refused", SOON, || match client.get("/v1/languages").status {
        401 => Ok(()),
        status => Err(status.to_string()),
    });
    client
}

/// Sends every route as `client`, and returns the responses that `is_right` rejects.
fn wrong_answers<'a>(
    routes: impl IntoIterator<Item = &'a Route>,
    client: &Client,
    is_right: impl Fn(&Response) -> bool,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for route in routes {
        let response = route.send(client);
        if !is_right(&response) || response.text().contains(CANARY) {
            let Route { method, target, .. } = route;
            wrong.push(format!("{method} {target}: {} {}", response.status, response.text()));
        }
    }
    wrong
}

#[test]
fn every_route_of_every_face_refuses_what_a_token_is_not_for() {
    let _guard = beside_others();
    let server = Server::start_with(COVE, &[], Some(&config("")));
    let sessions = Sessions::from(&server);
    let owned = make_things(&sessions);
    let mut routes = native(&server, &owned);
    assert!(routes.len() > 70, "{}", routes.len());
    for method in ["POST", "GET", "DELETE"] {
        let is_there = |route: &Route| route.target == "/mcp" && route.method == method;
        assert_eq!(routes.iter().filter(|route| is_there(route)).count(), 1, "{method} /mcp");
    }
    routes.extend(foreign(&owned));

    let anonymous = server.client().anonymous();
    let unknown = Client::new(anonymous.address(), Some("cove_0123456789abcdef".to_owned()));
    for (who, client) in
        [("no token", anonymous), ("unknown", unknown), ("revoked", revoked(&server))]
    {
        let wrong = wrong_answers(&routes, &client, |response| response.status == 401);
        assert_eq!(wrong, [""; 0], "{who}");
    }

    // Tokens with other scopes, and without the operator role. The scopes of MCP tools are tested
    // in `mcp.rs`; topics of `live` need the scopes of the corresponding routes.
    let scopes = ["executions", "sessions", "agents", "tokens", "tenants", "catalog"];
    for roles in scopes.iter().map(std::slice::from_ref).chain([scopes.as_slice()]) {
        let options = roles.iter().flat_map(|scope| ["--scope", *scope]);
        let options: Vec<&str> =
            ["create", "--name", roles[0]].into_iter().chain(options).collect();
        let client = known(&server, token_command(&server, &options));
        let others: Vec<&Route> = routes.iter().filter(|route| !route.is_for(roles)).collect();
        assert!(others.len() > 20, "{roles:?}: {}", others.len());
        let wrong = wrong_answers(others, &client, |response| response.status == 403);
        assert_eq!(wrong, [""; 0], "{roles:?}");
    }

    // A token of another tenant with all scopes.
    let other = server.other_client("other", &[]);
    let named: Vec<Route> = routes.into_iter().filter(|route| route.names_a_thing).collect();
    let wrong = wrong_answers(&named, &other, |response| (400..=426).contains(&response.status));
    assert_eq!(wrong, [""; 0], "another tenant");
    for target in [
        "/v1/executions",
        "/v1/sessions",
        "/v1/agents",
        "/v1/snapshots",
        "/v1/templates",
        "/v1/usage",
        "/v1/credentials",
        "/v1/audit",
        "/api/agents",
        "/api/sessions",
        "/api/credentials",
    ] {
        let response = other.get(target);
        assert!(response.status == 200 && !response.text().contains(CANARY), "{target}");
    }
    // The objects still exist for their owner.
    assert_eq!(sessions.record(&owned.session)["state"], "active");
    assert_eq!(sessions.read(&owned.session, "secret.txt").body, CANARY.as_bytes());
    drop(sessions.end(&owned.session));
}

/// Fails for an operation that is described in a table, but served by no router.
#[test]
fn every_operation_that_is_described_is_served() {
    let _guard = beside_others();
    let server = Server::start(COVE);
    let client = server.client();
    let document = client.get("/openapi.json").json();
    let mut missing = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        // The catalog's crate tests its operations, and not every server has them.
        if path.starts_with("/catalog") {
            continue;
        }
        // No route has this method, so the request has no effect.
        let response = client.send(&Request::new("OPTIONS", path));
        let allowed = response.header("allow").unwrap_or_default().to_owned();
        for method in methods.as_object().unwrap().keys() {
            let method = method.to_uppercase();
            if response.status != 405 || !allowed.split(',').any(|it| it.trim() == method) {
                missing.push(format!("{method} {path}: {} {allowed}", response.status));
            }
        }
    }
    assert_eq!(missing, [""; 0]);
}
