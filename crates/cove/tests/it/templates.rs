//! Templates through the server's own interface: steps, existing layers, rejections, and sessions
//! that start from a template.

use std::io::Write as _;

use serde_json::{Value, json};
use testkit::{Client, Request, Response, Server, until};

use crate::asynchronous::{assert_error, post};
use crate::sessions_support::{SOON, Sessions, ok, path, probe, serve_sessions, with};
use crate::support::beside_others;

/// Settings of the servers in these tests: small disks, and few concurrent builds.
const SMALL: &str = "[sessions.templates]\ndisk_bytes = 67108864\nbuilds_max_per_tenant = 2";

fn serve() -> Server {
    serve_sessions(SMALL)
}

/// Builds a template, and waits for the end of the build.
fn build(client: &Client, request: &Value) -> Value {
    ok(&post(client, "/v1/templates?wait=true", request))
}

/// Builds a template; the build must succeed.
fn ready(client: &Client, request: &Value) -> Value {
    let build = build(client, request);
    assert_eq!(build["status"], "ready", "{build}");
    build
}

fn run(command: &str) -> Value {
    json!({"type": "run", "command": command})
}

/// Returns for each step of a build whether its layer existed before.
fn cached(build: &Value) -> Vec<bool> {
    let steps = build["steps"].as_array().unwrap();
    steps.iter().map(|step| step["cached"].as_bool().unwrap()).collect()
}

/// Entry of an archive: a file with its content, or a link with its target.
enum TarEntry<'a> {
    File(&'a str, &'a [u8]),
    Link(&'a str, &'a str),
}

/// Returns a tar archive (POSIX.1-1988, `ustar`).
fn archive(entries: &[TarEntry<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        let (name, content, link, kind) = match *entry {
            TarEntry::File(name, content) => (name, content, "", b'0'),
            TarEntry::Link(name, target) => (name, &[] as &[u8], target, b'2'),
        };
        let mut head = [0_u8; 512];
        head[..name.len()].copy_from_slice(name.as_bytes());
        head[100..108].copy_from_slice(b"0000644\0");
        head[108..124].copy_from_slice(b"0000000\x000000000\0");
        let size = format!("{:011o}\0", content.len());
        head[124..136].copy_from_slice(size.as_bytes());
        head[136..148].copy_from_slice(b"00000000000\0");
        head[148..156].copy_from_slice(b"        ");
        head[156] = kind;
        head[157..157 + link.len()].copy_from_slice(link.as_bytes());
        head[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = head.iter().map(|&byte| u32::from(byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// Uploads an archive under its hash, and returns the hash.
fn upload(client: &Client, archive: &[u8]) -> String {
    let hash = sha256(archive);
    let response = put(client, &hash, archive);
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.json()["bytes"], archive.len());
    hash
}

fn put(client: &Client, hash: &str, archive: &[u8]) -> Response {
    let request = Request::new("PUT", &format!("/v1/template-files/{hash}"));
    client.send(&request.header("content-type", "application/x-tar").body(archive))
}

/// Returns the hash that `sha256sum` prints.
fn sha256(bytes: &[u8]) -> String {
    let mut command = std::process::Command::new("sha256sum");
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

/// Runs a command in a session. Returns its standard output.
fn shell(sessions: &Sessions, session: &str, command: &str) -> String {
    let target = format!("{}/exec", path(session));
    let result = ok(&post(&sessions.client, &target, &json!({"command": command})));
    assert_eq!(result["exit_code"], 0, "{command}: {result}");
    result["stdout"].as_str().unwrap().to_owned()
}

#[test]
fn sessions_start_with_what_the_steps_of_a_template_left() {
    let _guard = beside_others();
    let server = serve();
    let sessions = Sessions::from(&server);
    let files = archive(&[
        TarEntry::File("src/app.txt", b"one\n"),
        TarEntry::File("src/deep/b.txt", b"two\n"),
    ]);
    let hash = upload(&sessions.client, &files);
    let request = json!({
        "name": "web", "tags": ["v1", "default"], "start": "touch /tmp/up; exec sleep 1000",
        "ready": "[ -e /tmp/up ]",
        "steps": [
            {"type": "env", "values": {"GREETING": "hello"}},
            {"type": "workdir", "path": "/workspace/app"},
            {"type": "user", "name": "user"},
            {"type": "copy", "archive": hash, "source": "src", "to": ".", "mode": "0600"},
            run("echo \"$GREETING from $(pwd) as $(id -un 2>/dev/null || echo $USER)\" > made.txt"),
        ],
    });
    let build = ready(&sessions.client, &request);
    assert_eq!(cached(&build), [false, false]);
    for reference in ["web", "web:v1", build["template"].as_str().unwrap()] {
        let session = sessions.create(&json!({"template": reference, "env": {"OWN": "mine"}}));
        assert_eq!(sessions.record(&session)["template"], reference);
        let seen = shell(
            &sessions,
            &session,
            "pwd; cat app.txt deep/b.txt made.txt; stat -c %a app.txt; echo $GREETING $OWN; ls /tmp",
        );
        let expected = "/workspace/app\none\ntwo\nhello from /workspace/app as user\n600\n\
                        hello mine\nup\n";
        assert_eq!(seen, expected);
        drop(sessions.end(&session));
    }
    // A repeated build finds the layers of all steps.
    let again = ready(&sessions.client, &request);
    assert_eq!(cached(&again), [true, true]);
    // A template based on another one continues with its layers, environment and working directory.
    let above =
        json!({"name": "above", "from": "web:v1", "steps": [run("echo $GREETING > x.txt")]});
    let build = ready(&sessions.client, &above);
    assert_eq!(cached(&build), [false]);
    let session = sessions.create(&json!({"template": "above"}));
    assert_eq!(shell(&sessions, &session, "cat x.txt app.txt"), "hello\none\n");
    // The files of a session outlive its template, also in a new sandbox.
    for name in ["above", "web"] {
        let deleted =
            sessions.client.send(&Request::new("DELETE", &format!("/v1/templates/{name}")));
        assert_eq!(deleted.status, 204, "{}", deleted.text());
    }
    sessions.did(&session, "stop");
    sessions.did(&session, "resume");
    assert_eq!(
        shell(&sessions, &session, "cat x.txt app.txt; echo $GREETING"),
        "hello\none\nhello\n"
    );
    let refused = sessions.try_create(&json!({"template": "web"}));
    assert_error(&refused, 404, "not_found", None);
    drop(sessions.end(&session));
}

/// The start command of a template is a process, which ends with its sandbox.
#[test]
fn the_start_command_runs_in_every_sandbox_that_is_made_anew() {
    let _guard = beside_others();
    let mut server = serve();
    server.expect_log("a session could not be resumed");
    let sessions = Sessions::from(&server);
    let request = json!({
        "name": "served",
        "start": "[ -e /workspace/broken ] && exit 3; echo $NAME >> starts; sleep 0.2; \
            touch /tmp/up; exec sleep 1000",
        "ready": "[ -e /tmp/up ]",
        "steps": [
            {"type": "env", "values": {"NAME": "started"}},
            {"type": "workdir", "path": "/workspace/app"},
        ],
    });
    ready(&sessions.client, &request);
    let session = sessions.create(&json!({"template": "served"}));
    let started = |session: &str, times: usize| {
        let seen = shell(&sessions, session, "ls /tmp; cat starts");
        assert_eq!(seen, format!("up\n{}", "started\n".repeat(times)));
    };
    started(&session, 1);
    // In the same sandbox, the process continues.
    sessions.did(&session, "pause");
    sessions.did(&session, "resume");
    started(&session, 1);
    sessions.did(&session, "stop");
    sessions.did(&session, "resume");
    started(&session, 2);
    let copy = sessions.fork(&session);
    started(&copy, 3);
    let snapshot =
        ok(&post(&sessions.client, &format!("{}/snapshots", path(&session)), &json!({})));
    let of_snapshot = sessions.create(&json!({"snapshot": snapshot["id"]}));
    started(&of_snapshot, 3);
    // A failing start command is reported, and the session is in the state `error`.
    drop(shell(&sessions, &session, "touch /workspace/broken"));
    sessions.did(&session, "stop");
    let refused = sessions.act(&session, "resume");
    assert_error(&refused, 409, "conflict", None);
    assert!(refused.text().contains("start command exited with code 3"), "{}", refused.text());
    assert_eq!(sessions.record(&session)["state"], "error");
    for session in [&session, &copy, &of_snapshot] {
        drop(sessions.end(session));
    }
}

#[test]
fn layers_are_shared_by_what_they_come_from_and_go_with_the_last_template() {
    let _guard = beside_others();
    let server = serve();
    let sessions = Sessions::from(&server);
    let layers = || std::fs::read_dir(server.data_dir().join("sessions/layers")).unwrap().count();
    let steps = |last: &str| json!([run("echo 1 > 1"), run("echo 2 > 2"), run(last)]);
    let of = |name: &str, steps: Value| json!({"name": name, "steps": steps});
    assert_eq!(cached(&ready(&sessions.client, &of("a", steps("true")))), [false; 3]);
    assert_eq!(layers(), 3);
    let other = ready(&sessions.client, &of("b", steps("echo other")));
    assert_eq!(cached(&other), [true, true, false]);
    assert_eq!(layers(), 4);
    // A failed build keeps the layers of its successful steps for the next build.
    let failed = build(&sessions.client, &of("c", json!([run("echo new"), run("false")])));
    assert_eq!(failed["status"], "error");
    let mended = ready(&sessions.client, &of("c", json!([run("echo new"), run("true")])));
    assert_eq!(cached(&mended), [true, false]);
    // Tenants do not share layers.
    let stranger = server.other_client("stranger", &[]);
    assert_eq!(cached(&ready(&stranger, &of("a", steps("true")))), [false; 3]);
    let forced = with(of("a", steps("true")), &json!({"force": true}));
    assert_eq!(cached(&ready(&stranger, &forced)), [false; 3]);
    let delete = |client: &Client, name: &str| {
        let response = client.send(&Request::new("DELETE", &format!("/v1/templates/{name}")));
        assert_eq!(response.status, 204, "{}", response.text());
    };
    delete(&sessions.client, "a");
    delete(&sessions.client, "c");
    // `b` still uses the layers of the first two steps.
    assert_eq!(cached(&ready(&sessions.client, &of("b", steps("echo other")))), [true; 3]);
    delete(&sessions.client, "b");
    delete(&stranger, "a");
    assert_eq!(layers(), 0);
    assert_eq!(cached(&ready(&sessions.client, &of("a", steps("true")))), [false; 3]);
}

#[test]
fn a_build_that_fails_names_the_step_its_command_and_the_end_of_its_output() {
    let _guard = beside_others();
    let server = serve();
    let sessions = Sessions::from(&server);
    let check = |steps: Value, step: u64, expected: &[&str]| {
        let failed = build(&sessions.client, &json!({"name": "bad", "steps": steps}));
        assert_eq!(failed["status"], "error", "{failed}");
        assert_eq!(failed["failure"]["step"], step, "{failed}");
        let message = failed["failure"]["message"].as_str().unwrap();
        for part in expected {
            assert!(message.contains(part), "{part} is not in {message}");
        }
    };
    check(
        json!([run("true"), run("echo before; echo why >&2; exit 3")]),
        2,
        &["step 2", "exit 3", "exited with code 3", "before", "why"],
    );
    // Only the end of long output is reported.
    check(json!([run("yes | head -c 3000000; kill -9 $$")]), 1, &["was killed by SIGKILL", "y\ny"]);
    check(json!([run("cat /dev/zero > big")]), 1, &["No space left on device"]);
    check(
        json!([{"type": "copy", "archive": "0".repeat(64), "to": "."}]),
        1,
        &["was not uploaded"],
    );
    check(
        json!([{"type": "pip_install", "packages": ["no-such-package"]}]),
        1,
        &["pip install no-such-package", "sessions.templates.pip_index"],
    );
    // A failed build gets no tag.
    let template = ok(&sessions.client.get("/v1/templates/bad"));
    assert_eq!(template["tags"], json!({}));
    let refused = sessions.try_create(&json!({"template": "bad"}));
    assert_error(&refused, 404, "not_found", None);
    // The log ends with the error.
    let id = template["build"]["id"].as_str().unwrap();
    let log = ok(&sessions.client.get(&format!("/v1/templates/bad/builds/{id}/logs")));
    assert_eq!(log["lines"].as_array().unwrap().last().unwrap()["level"], "error", "{log}");
}

#[test]
fn archives_lead_nowhere_else_and_are_what_their_names_say() {
    let _guard = beside_others();
    let settings = format!("{SMALL}\narchive_bytes_max = 65536");
    let server = serve_sessions(&settings);
    let sessions = Sessions::from(&server);
    let client = &sessions.client;
    let plain = archive(&[TarEntry::File("a", b"a")]);
    assert_error(&put(client, &"0".repeat(64), &plain), 400, "invalid_request", Some("archive"));
    assert_error(&put(client, "..", &plain), 400, "invalid_request", Some("archive"));
    let large = vec![0; 65_537];
    assert_error(&put(client, &sha256(&large), &large), 413, "body_too_large", None);
    let absent = client.get(&format!("/v1/template-files/{}", sha256(&plain)));
    assert_error(&absent, 404, "not_found", None);
    let check = |entries: &[TarEntry<'_>], source: &str, expected: &str| {
        let hash = upload(client, &archive(entries));
        let steps = json!([
            {"type": "copy", "archive": hash, "source": source, "to": "/workspace/in/"},
            run("ls -l /workspace/in; cat /workspace/in/* && ls /home/user/.copy-* /workspace/up"),
        ]);
        let failed = build(client, &json!({"name": "hostile", "steps": steps}));
        assert_eq!(failed["status"], "error", "{failed}");
        let message = failed["failure"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{expected} is not in {message}");
    };
    check(&[TarEntry::File("../../up", b"x")], ".", "'..'");
    // Written through the link, the file would be outside of the directory for unpacked archives.
    let through = [TarEntry::Link("out", "/workspace"), TarEntry::File("out/up", b"x")];
    check(&through, ".", "step 1");
    // A link is copied as a link, so its target is read with the rights of the sandbox's user.
    check(&[TarEntry::Link("key", "/etc/shadow")], ".", "No such file or directory");
    check(&[TarEntry::File("a", b"a")], "b*", "nothing in the archive is b*");
    check(&[TarEntry::File("-rf", b"a")], "-rf", ".copy-");
    let hash = upload(client, &plain);
    let body = json!({"name": "x", "steps": [{"type": "copy", "archive": hash, "source": "../a", "to": "."}]});
    assert_error(
        &post(client, "/v1/templates", &body),
        400,
        "invalid_request",
        Some("steps[0].source"),
    );
}

#[test]
fn what_there_is_not_is_refused_with_its_reason() {
    let _guard = beside_others();
    let server = serve();
    let client = &server.client();
    let check = |request: Value, field: &str, reason: &str| {
        let response = post(client, "/v1/templates", &request);
        assert_error(&response, 400, "invalid_request", Some(field));
        assert!(response.text().contains(reason), "{}", response.text());
    };
    let steps = |step: Value| json!({"name": "x", "steps": [step]});
    check(steps(json!({"type": "user", "name": "root"})), "steps[0].name", "one user");
    check(steps(run("apt-get install -y vim")), "steps[0].command", "needs root");
    check(steps(json!({"type": "workdir", "path": "/app"})), "steps[0].path", "is not kept");
    check(json!({"name": "x", "from": "python:3"}), "from", "there is no template");
    for name in ["", "base", "a/b", "tpl_x", "x:y:z", "ä"] {
        check(json!({"name": name}), if name == "x:y:z" { "tags" } else { "name" }, "must be");
    }
    // None of the rejected requests has created a template.
    assert_eq!(ok(&client.get("/v1/templates"))["templates"], json!([]));
    let both = json!({"template": "x", "agent": "y"});
    assert_error(&post(client, "/v1/sessions", &both), 400, "invalid_request", Some("template"));
}

#[test]
fn a_build_is_followed_limited_and_cancelled_with_its_template() {
    let _guard = beside_others();
    let server = serve();
    let sessions = Sessions::from(&server);
    let client = &sessions.client;
    let long = |name: &str| json!({"name": name, "steps": [run("echo begun; sleep 1000")]});
    let begin = |name: &str| {
        let response = post(client, "/v1/templates", &long(name));
        assert_eq!(response.status, 202, "{}", response.text());
        response.json()
    };
    let first = begin("first");
    let target = format!("/v1/templates/first/builds/{}/logs", first["id"].as_str().unwrap());
    let mut events = client.events(&target).unwrap();
    let is_output = |line: &Value| line["message"] == "begun" && line["step"] == 1;
    assert!(events.by_ref().any(|event| is_output(&event.data)));
    begin("second");
    let third = post(client, "/v1/templates", &long("third"));
    assert_error(&third, 429, "too_many_requests", None);
    assert!(third.text().contains("sessions.templates.builds_max_per_tenant"), "{}", third.text());
    for name in ["first", "second"] {
        let deleted = client.send(&Request::new("DELETE", &format!("/v1/templates/{name}")));
        assert_eq!(deleted.status, 204, "{}", deleted.text());
    }
    until("the builds to end", SOON, || {
        let counts = ok(&client.get("/v1/sandboxes"));
        if counts["running"] == 0 { Ok(()) } else { Err(counts.to_string()) }
    });
    // The event stream ends when its build is deleted.
    while events.next().is_some() {}
    ready(client, &json!({"name": "first", "steps": [run("true")]}));
}

#[test]
fn a_build_that_a_killed_server_worked_on_has_failed_and_its_name_can_be_built_again() {
    let _guard = beside_others();
    let mut server = serve();
    let client = server.client();
    let steps = json!([run("echo kept > kept"), run("sleep 1000")]);
    let response = post(&client, "/v1/templates", &json!({"name": "cut", "steps": steps}));
    let id = response.json()["id"].as_str().unwrap().to_owned();
    let target = format!("/v1/templates/cut/builds/{id}");
    until("the second step", SOON, || {
        let log = ok(&client.get(&format!("{target}/logs")));
        if log.to_string().contains("RUN sleep") { Ok(()) } else { Err(log.to_string()) }
    });
    server.restart();
    let client = server.client();
    let build = ok(&client.get(&target));
    assert_eq!(build["status"], "error", "{build}");
    assert!(build["failure"]["message"].as_str().unwrap().contains("build it again"), "{build}");
    let steps = json!([run("echo kept > kept"), run("true")]);
    assert_eq!(cached(&ready(&client, &json!({"name": "cut", "steps": steps}))), [true, false]);
}

#[test]
fn tags_name_builds_and_templates_of_other_tenants_are_not_there() {
    let _guard = beside_others();
    let server = serve();
    let sessions = Sessions::from(&server);
    let client = &sessions.client;
    let of = |text: &str| json!({"name": "t", "steps": [run(&format!("echo {text} > text"))]});
    let one = ready(client, &with(of("one"), &json!({"name": "t:one"})));
    let two = ready(client, &of("two"));
    let template = ok(&client.get("/v1/templates/t"));
    assert_eq!(template["tags"], json!({"one": one["id"], "default": two["id"]}));
    let tag = json!({"build": "one", "tags": ["stable", "old"]});
    let tagged = ok(&post(client, "/v1/templates/t/tags", &tag));
    assert_eq!(tagged["tags"]["stable"], one["id"]);
    for (reference, expected) in [("t", "two\n"), ("t:stable", "one\n")] {
        let session = sessions.create(&json!({"template": reference}));
        assert_eq!(shell(&sessions, &session, "cat text"), expected);
        drop(sessions.end(&session));
    }
    let untag = Request::new("DELETE", "/v1/templates/t/tags/stable");
    assert_eq!(client.send(&untag).status, 204);
    assert_error(&client.send(&untag), 404, "not_found", None);
    assert_error(&sessions.try_create(&json!({"template": "t:stable"})), 404, "not_found", None);
    let stranger = server.other_client("stranger", &[]);
    assert_eq!(ok(&stranger.get("/v1/templates"))["templates"], json!([]));
    let build = one["id"].as_str().unwrap();
    let id = one["template"].as_str().unwrap();
    for target in [
        "/v1/templates/t".to_owned(),
        format!("/v1/templates/{id}"),
        format!("/v1/templates/t/builds/{build}"),
        format!("/v1/templates/{id}/builds/{build}/logs"),
    ] {
        assert_error(&stranger.get(&target), 404, "not_found", None);
    }
    let from = json!({"name": "mine", "from": id});
    assert_error(&post(&stranger, "/v1/templates", &from), 400, "invalid_request", Some("from"));
    assert_error(
        &post(&stranger, "/v1/sessions", &json!({"template": id})),
        404,
        "not_found",
        None,
    );
    // Names belong to a tenant: this build is separate, and the other tenant's tag does not change.
    ready(&stranger, &of("three"));
    assert_eq!(ok(&client.get("/v1/templates/t"))["tags"]["default"], two["id"]);
}

#[test]
fn an_agent_stands_on_a_template() {
    let _guard = beside_others();
    let server = serve();
    let sessions = Sessions::from(&server);
    let steps = json!([
        {"type": "env", "values": {"LEVEL": "template", "BELOW": "yes"}},
        run("echo base > /workspace/base.txt"),
    ]);
    ready(&sessions.client, &json!({"name": "ground", "steps": steps}));
    let more = json!({"template": "ground", "env": {"LEVEL": "agent"}});
    sessions.deploy(&with(probe("worker"), &more));
    let session = sessions.create(&json!({"agent": "worker"}));
    let seen = shell(&sessions, &session, "cat base.txt; ls probe.py; echo $LEVEL $BELOW");
    assert_eq!(seen, "base\nprobe.py\nagent yes\n");
    drop(sessions.end(&session));
}

#[test]
fn a_start_command_that_is_never_ready_gives_no_session() {
    let _guard = beside_others();
    let server = serve_sessions(&format!("{SMALL}\nready_s = 1"));
    let sessions = Sessions::from(&server);
    let check = |name: &str, start: &str, expected: &str| {
        let request = json!({"name": name, "start": start, "ready": "[ -e /tmp/never ]"});
        ready(&sessions.client, &request);
        let refused = sessions.try_create(&json!({"template": name}));
        assert_error(&refused, 409, "conflict", None);
        assert!(refused.text().contains(expected), "{}", refused.text());
    };
    check("slow", "sleep 1000", "sessions.templates.ready_s");
    check("broken", "exit 7", "exited with code 7");
    let live = ok(&sessions.client.get("/v1/sessions?state=active"));
    assert_eq!(live["sessions"], json!([]));
}

#[test]
fn the_command_line_builds_a_folder_and_shows_what_there_is() {
    let _guard = beside_others();
    let server = serve();
    let scratch = testkit::Scratch::new();
    std::fs::create_dir_all(scratch.path().join("folder/deep")).unwrap();
    let manifest = "start = \"touch /tmp/up\"\nready = \"[ -e /tmp/up ]\"\n\
        [[steps]]\ntype = \"copy\"\nto = \"/workspace/in/\"\n\
        [[steps]]\ntype = \"run\"\ncommand = \"echo said; cat /workspace/in/deep/a.txt\"\n";
    scratch.file("folder/template.toml", manifest);
    scratch.file("folder/deep/a.txt", "from the folder\n");
    scratch.file("folder/.env", "SECRET=1\n");
    let folder = scratch.path().join("folder");
    let folder = folder.to_str().unwrap();
    let cove = |arguments: &[&str], code: i32| {
        let output = crate::sessions_http::cove(&server, arguments, "");
        let texts =
            [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {texts:?}");
        texts
    };
    let [out, log] = cove(&["template", "build", folder, "--name", "cli:v1", "--tag", "latest"], 0);
    assert!(out.contains("is ready (2 layers, 2 of them new"), "{out}");
    assert!(log.contains("[2] said") && log.contains("[2] from the folder"), "{log}");
    let [out, log] = cove(&["template", "build", folder, "--name", "cli:v1"], 0);
    assert!(out.contains("0 of them new") && log.contains("CACHED"), "{out}{log}");
    let [out, _] = cove(&["session", "create", "--template", "cli:v1"], 0);
    let session = out.trim().to_owned();
    let [out, _] = cove(&["session", "exec", &session, "--", "ls", "-A", "in", "/tmp"], 0);
    assert_eq!(out, "/tmp:\nup\n\nin:\ndeep\n");
    drop(Sessions::from(&server).end(&session));
    let [out, _] = cove(&["template", "list"], 0);
    assert!(out.contains("cli") && out.contains("latest, v1"), "{out}");
    let [out, log] = cove(&["template", "show", "cli", "--logs"], 0);
    assert!(out.contains("touch /tmp/up") && log.contains("CACHED"), "{out}{log}");
    scratch.file("folder/template.toml", "[[steps]]\ntype = \"run\"\ncommand = \"exit 3\"\n");
    let [_, log] = cove(&["template", "build", folder, "--name", "cli"], 1);
    assert!(log.contains("step 1 (`RUN exit 3`): exited with code 3"), "{log}");
    scratch.file("folder/template.toml", "[[steps]]\ntype = \"apt\"\n");
    cove(&["template", "build", folder], 2);
    cove(&["template", "delete", "cli"], 0);
    cove(&["template", "show", "cli"], 2);
}
