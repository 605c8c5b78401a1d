//! Servers as operators use them: checks, configuration, tokens, and the host names of the console.

use std::thread;

use serde_json::{Value, json};
use testkit::{Client, Request, Server, until};

use crate::asynchronous::post;
use crate::support::{COVE, SOON, beside_others, serve, serve_with, wait_until_gone};

/// Returns the names of a report's checks. A module that was not imported in time on a busy machine
/// has a separate line with the same name, which is left out.
fn names(report: &Value) -> Vec<String> {
    let checks = report["checks"].as_array().unwrap();
    let mut names: Vec<_> =
        checks.iter().map(|check| check["name"].as_str().unwrap().to_owned()).collect();
    names.dedup();
    names
}

/// Returns the report of the first run, which the first request starts.
fn first_report(server: &Server) -> Value {
    until("the first report", SOON, || {
        let view = server.client().get("/v1/doctor").json();
        match view["last"].is_object() {
            true => Ok(view["last"].clone()),
            false => Err(view.to_string()),
        }
    })
}

/// Requests a run, and returns its report.
fn run_doctor(client: &Client) -> Value {
    let answer = post(client, "/v1/doctor", &json!({}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut view = answer.json();
    // On a busy machine, a run takes longer than the longest wait of a request.
    while view["running"] == true {
        view = client.get("/v1/doctor").json();
    }
    view["last"].clone()
}

#[test]
fn a_server_checks_itself_for_operators_and_callers_share_a_run() {
    let _guard = beside_others();
    let server = serve();
    let owner = server.client();
    let other = server.other_client("other", &[]);
    for method in ["GET", "POST"] {
        let refused = other.send(&Request::new(method, "/v1/doctor"));
        assert_eq!(refused.status, 403, "{}", refused.text());
        let refused = owner.anonymous().send(&Request::new(method, "/v1/doctor"));
        assert_eq!(refused.status, 401);
    }
    let begun = owner.get("/v1/doctor").json();
    assert!(
        begun["running"] == true && begun.get("last").is_none(),
        "refused calls ran it: {begun}"
    );
    let first = first_report(&server);
    assert_eq!(first["node"], owner.get("/v1/whoami").json()["node"]);
    let report = &first["report"];
    assert_eq!((&report["ok"], &report["root"]), (&json!(true), &json!(true)), "{report}");
    for name in ["kernel", "memory limit", "stop a greedy one", "session disks", "sessions"] {
        assert!(names(report).iter().any(|it| it == name), "no check \"{name}\": {report}");
    }
    let languages = report["languages"].as_array().unwrap();
    assert!(languages.iter().any(|it| it["name"] == "python"), "{report}");

    // Concurrent callers share one run.
    let callers: Vec<_> = (0..3)
        .map(|_| {
            let client = owner.clone();
            thread::spawn(move || run_doctor(&client))
        })
        .collect();
    let runs: Vec<Value> = callers.into_iter().map(|it| it.join().unwrap()).collect();
    assert!(runs[0]["started_ms"].as_u64() > first["started_ms"].as_u64(), "{runs:?}");
    assert!(runs.iter().all(|run| run == &runs[0]), "{runs:?}");
    assert_eq!(owner.get("/v1/doctor").json()["last"], runs[0]);
    assert!(!server.data_dir().join("doctor").exists(), "its disk is left behind");

    // The same from the command line, with a valid and an invalid token.
    let url = format!("http://{}", owner.address());
    let doctor = |arguments: &[&str], token: &str| {
        let mut command = server.command("doctor");
        command.args(["--server", &url]).args(arguments).env("COVE_TOKEN", token);
        command.output().unwrap()
    };
    let output = doctor(&["--json"], server.token());
    let run: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), names(&run["report"])), (Some(0), names(report)));
    let output = doctor(&[], server.token());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("ok       kernel") && text.contains("can be run here"), "{text}");
    assert_eq!(doctor(&[], "cove_wrong").status.code(), Some(125));
}

/// Configuration with a secret in each possible form.
const WITH_SECRETS: &str = "\
drain_s = 5
secrets_key = '00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff'
[sessions.model]
url = 'http://127.0.0.1:9'
api_key = 'hunter2'
[mcp]
resource = 'https://user:hunter2@cove.example/mcp'
[gateway.secrets]
example = 'hunter2'
[bouncer.health]
interval_s = 0
[[bouncer.tenants]]
name = 'shop'
server = '127.0.0.1:9'
users = [{ name = 'app', password = 'hunter2' }]
";

fn assert_no_secret(text: &str, server: &Server) {
    for secret in ["hunter2", "00112233", server.token()] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[test]
fn operators_see_the_configuration_in_force_and_all_tokens_without_secrets() {
    let _guard = beside_others();
    let server = Server::start_with(COVE, &[], Some(WITH_SECRETS));
    let owner = server.client();
    let other = server.other_client("other", &["--scope", "sessions", "--expires", "30d"]);
    let narrow = server.other_client("narrow", &["--operator", "--scope", "executions"]);
    for path in ["/v1/config", "/v1/tokens"] {
        let refused = other.get(path);
        assert_eq!(refused.status, 403, "{path}: {}", refused.text());
        assert_eq!(owner.anonymous().get(path).status, 401, "{path}");
    }
    // The scope `tokens` is required for tokens only.
    assert_eq!(narrow.get("/v1/config").status, 200);
    let refused = narrow.get("/v1/tokens");
    assert!(refused.status == 403 && refused.text().contains("tokens"), "{}", refused.text());

    let answer = owner.get("/v1/config");
    assert_no_secret(&answer.text(), &server);
    let config = answer.json();
    let setting = |key: &str| {
        let all = config["settings"].as_array().unwrap();
        all.iter().find(|it| it["key"] == key).unwrap_or_else(|| panic!("no {key}")).clone()
    };
    let drain = setting("drain_s");
    assert_eq!((&drain["value"], &drain["default"]), (&json!(5), &json!(30)));
    assert_eq!((&drain["origin"]["kind"], &drain["origin"]["line"]), (&json!("file"), &json!(1)));
    assert_eq!(setting("http")["origin"], json!({"kind": "flag", "name": "--http"}));
    assert_eq!(setting("executions.files_max")["origin"], json!({"kind": "default"}));
    let key = setting("gateway.secrets.example");
    assert_eq!((&key["value"], &key["masked"]), (&json!("…"), &json!(true)));
    assert_eq!(setting("mcp.resource")["value"], "https://user:…@cove.example/mcp");
    let tenants = setting("bouncer.tenants");
    assert_eq!(tenants["value"][0]["users"][0], json!({"name": "app", "password": "…"}));
    assert_eq!((&tenants["reloadable"], &drain["reloadable"]), (&json!(true), &json!(false)));

    let answer = owner.get("/v1/tokens");
    assert_no_secret(&answer.text(), &server);
    assert!(!answer.text().contains("sha256"), "{}", answer.text());
    let listed = answer.json();
    let names: Vec<&str> = listed["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["first", "other", "narrow"]);
    let of_other = &listed["tokens"][1];
    assert_eq!((&of_other["operator"], &of_other["scopes"]), (&json!(false), &json!(["sessions"])));
    assert!(of_other["expires"].is_string() && of_other["expired"] == false, "{of_other}");
    // The command line lists the same tokens.
    let output = server.command("token").args(["list", "--json"]).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let of_command: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(listed["tokens"], json!(of_command));

    // The configuration of the server and that of the file, from the command line.
    let url = format!("http://{}", owner.address());
    let show = |arguments: &[&str]| {
        let mut command = server.command("config");
        command.args(["show"]).args(arguments).env("COVE_TOKEN", server.token());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert_no_secret(&text, &server);
        text
    };
    let remote: Value = serde_json::from_str(&show(&["--server", &url, "--json"])).unwrap();
    assert_eq!(remote, config);
    let whole = show(&["--server", "--origin"]);
    assert!(whole.contains("\nhttp = \"127.0.0.1:0\"  # --http\n"), "{whole}");
    assert!(whole.contains("# secrets_key = \"…\"  # masked, "), "{whole}");
    let local = show(&["--section", "sessions.model", "--http", "127.0.0.1:7"]);
    let expected = "[sessions.model]\nurl = \"http://127.0.0.1:9\"\n# api_key = \"…\"  # masked\n";
    assert_eq!(local, expected);
    // The output is itself a valid configuration.
    let again = server.data_dir().join("again.toml");
    std::fs::write(&again, &whole).unwrap();
    let mut check = testkit::command(COVE);
    check.args(["config", "check", "--json", "--config"]).arg(&again);
    let output = check.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["ok"], output.status.code()), (&json!(true), Some(0)), "{report}");
}

#[test]
fn a_configuration_is_checked_without_a_server() {
    let _guard = beside_others();
    let scratch = testkit::Scratch::new();
    let check = |text: &str, variables: &[(&str, &str)], arguments: &[&str], expected: &[&str]| {
        let file = scratch.file("cove.toml", text);
        let mut command = testkit::command(COVE);
        command.args(["config", "check", "--config"]).arg(&file).args(arguments);
        command.arg("--data-dir").arg(scratch.path().join("none"));
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let stderr = stderr.replace(&*file.to_string_lossy(), "f");
        assert_eq!(stderr.lines().collect::<Vec<_>>(), expected, "{text}");
        assert_eq!(output.status.code(), Some(i32::from(!expected.is_empty())), "{stderr}");
        assert_eq!(output.stdout.is_empty(), !expected.is_empty());
    };
    check("drain_s = 5\n", &[("COVE_LOG__LEVEL", "debug")], &["--http", "127.0.0.1:7"], &[]);
    check(
        "[log]\nlevl = 'debug'\n",
        &[("COVE_DRAIN_S", "soon")],
        &["--http", "nowhere"],
        &[
            "f:2: log.levl: unknown field `levl`; did you mean `level`?",
            "COVE_DRAIN_S: drain_s: expected a number of seconds",
            "--http: http: `nowhere` is not HOST:PORT, such as `127.0.0.1:4100`",
        ],
    );
    // Values of the right type that are invalid, or invalid with other settings.
    check(
        "secrets_key = 'env:NO_SUCH_VARIABLE'\n[tls]\ncert = '/nowhere'\n\n[cluster]\n\
         listen = '127.0.0.1:0'\n[bouncer]\nthreads = 0\n\n[[bouncer.tenants]]\nname = 'a b'\n\
         server = 'db'\n[gateway]\naudit_records_per_s_per_grant = -1\n",
        &[],
        &[],
        &[
            "f:3: tls.cert: tls.key is missing: `tls.cert` needs the key that it is for",
            "f:6: cluster.listen: sessions and agents go from node to node by an object store that \
             all share; set `objects.url`",
            "f:1: secrets_key: `NO_SUCH_VARIABLE` is not set",
            "f:8: bouncer.threads: must be 1 or more",
            "f:10: bouncer.tenants[0].name: must be a letter or digit, then up to 62 letters, \
             digits, `_` and `-`",
            "f:14: gateway.audit_records_per_s_per_grant: must be a number",
        ],
    );
    assert!(!scratch.path().join("none").exists(), "a check made a data directory");
    let run = |arguments: &[&str]| {
        let output = testkit::command(COVE).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, stderr) = run(&["config", "check", "--config", "/nowhere/cove.toml"]);
    assert!(code == Some(2) && stderr.contains("/nowhere/cove.toml"), "{stderr}");
    let (code, stderr) = run(&["config", "show", "--section", "executons"]);
    assert!(code == Some(2) && stderr.contains("did you mean `executions`?"), "{stderr}");
}

#[test]
fn checks_wait_for_their_turn_and_end_with_the_server() {
    let _guard = beside_others();
    let mut server = serve_with("running_max = 1\n");
    let owner = server.client();
    let holder = owner.clone();
    let held = crate::support::held("sleep 62.3");
    let held = thread::spawn(move || post(&holder, "/v1/executions?wait=true", &held).status);
    crate::support::wait_for_sleep("62.3");
    let begun = owner.get("/v1/doctor").json();
    assert_eq!(begun["running"], true);
    // The server responds, and a check that waits for a place does not disturb the running program.
    assert_eq!(owner.get("/v1/languages").status, 200);
    let still = owner.get("/v1/doctor").json();
    assert!(still["running"] == true && still.get("last").is_none(), "{still}");
    server.signal("TERM");
    // Two pending signals of one kind are merged, so the test waits for the effect of the first.
    crate::support::wait_for_log(&server, "draining");
    server.signal("TERM");
    server.wait(SOON);
    wait_until_gone("62.3");
    drop(held.join());
}

#[test]
fn the_console_is_not_served_under_names_of_others() {
    let _guard = beside_others();
    let server = serve();
    let owner = server.client();
    let own = owner.address().to_string();
    let made = |headers: &[(&str, &str)]| {
        let request = Request::new("POST", "/v1/console/codes");
        owner.send(
            &headers.iter().fold(request, |request, (name, value)| request.header(name, value)),
        )
    };
    // A `host` in `headers` replaces the client's own.
    let login = |client: &Client, code: &str, headers: &[(&str, &str)]| {
        let body = json!({"code": code}).to_string();
        let request = Request::new("POST", "/v1/console/login").body(body);
        let request = request.header("content-type", "application/json");
        client.send(
            &headers.iter().fold(request, |request, (name, value)| request.header(name, value)),
        )
    };
    let page = |client: &Client, path: &str, host: &str| {
        client.anonymous().send(&Request::new("GET", path).header("host", host))
    };
    let origin = |name: &str| format!("http://{name}");
    let code = made(&[("host", &own), ("origin", &origin(&own))]).json()["code"].clone();
    let code = code.as_str().unwrap();
    // A page whose host name an attacker resolves to this server, and one that posts from its own
    // origin.
    let evil = "evil.example:4100";
    for (host, from) in
        [(evil, evil), (evil, own.as_str()), (own.as_str(), evil), (own.as_str(), "null")]
    {
        let from = if from == "null" { from.to_owned() } else { origin(from) };
        for forwarded in [&[][..], &[("x-forwarded-for", "192.0.2.9")]] {
            let headers = [&[("host", host), ("origin", &*from)][..], forwarded].concat();
            let refused = login(&owner.anonymous(), code, &headers);
            assert_eq!(refused.status, 403, "{headers:?}: {}", refused.text());
            assert!(refused.text().contains("console.hosts"), "{}", refused.text());
            assert_eq!(made(&headers).status, 403, "{headers:?}");
            let socket = headers
                .iter()
                .fold(crate::revocation::websocket("/v1/live"), |request, (name, value)| {
                    request.header(name, value)
                });
            assert_eq!(owner.send(&socket).status, 403, "{headers:?}");
        }
    }
    for path in ["/console", "/console/", "/console/sessions/ses_1", "/console/licences"] {
        let refused = page(&owner, path, evil);
        assert_eq!(refused.status, 403, "{path}");
        assert!(refused.text().contains("evil.example"), "{}", refused.text());
        for host in [own.as_str(), "localhost:4100", "cove.localhost", "[::1]:4100", "192.0.2.1"] {
            assert_eq!(page(&owner, path, host).status, 200, "{path} at {host}");
        }
    }
    // The rejected attempts have not used up the code.
    let headers = [("host", own.as_str()), ("origin", &*origin(&own))];
    assert_eq!(login(&owner.anonymous(), code, &headers).status, 200);
    // Tools and libraries send no `Origin` header, and the API accepts any host name.
    assert_eq!(owner.send(&Request::new("GET", "/v1/whoami").header("host", evil)).status, 200);

    let named = Server::start_with(COVE, &[], Some("console.hosts = [\"cove.example\"]\n"));
    let owner = named.client();
    for (host, expected) in
        [("cove.example", 200), ("Cove.Example:443", 200), (evil, 403), ("127.0.0.1", 200)]
    {
        assert_eq!(page(&owner, "/console/", host).status, expected, "{host}");
    }
    let passed_on = [("origin", "https://cove.example"), ("x-forwarded-for", "192.0.2.9")];
    let wrong = login(&owner.anonymous(), "no-code", &passed_on);
    assert!(wrong.text().contains("code"), "a proxy that sets another host: {}", wrong.text());
    let foreign = [("origin", "https://evil.example"), ("x-forwarded-for", "192.0.2.9")];
    let refused = login(&owner.anonymous(), "no-code", &foreign);
    assert!(refused.text().contains("origin"), "{}", refused.text());
}
