//! The native interface of sessions, and the command line that uses it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Command, Output, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use testkit::{Client, Message, Request, Server, WebSocket, process, until};

use crate::asynchronous::{assert_error, post, post_request};
use crate::revocation::websocket;
use crate::sessions_support::{SOON, Sessions, ok, path, probe, serve_sessions};
use crate::support::{COVE, beside_others, wait_for_sleep, wait_until_gone};

/// Size of a file that exceeds any JSON body, and fits on a disk.
const LARGE_BYTES: u64 = 40 << 20;

fn request(method: &str, target: &str) -> Request {
    Request::new(method, target)
}

/// Returns the agent's answer to a message that is none of its commands: the text, and the number
/// of messages so far.
fn echo(text: &str, messages: usize) -> String {
    format!("You said: {text} [messages: {messages}]")
}

/// Returns this answer as the command line prints it.
fn echoed(text: &str, messages: usize) -> String {
    format!("{}\n", echo(text, messages))
}

/// Creates a session without an agent.
fn workspace(sessions: &Sessions) -> String {
    sessions.create(&json!({}))
}

#[test]
fn mistakes_are_named_with_their_field() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let id = sessions.probe();
    let at = |rest: &str| format!("{}{rest}", path(&id));
    let rows: Vec<(Request, u16, &str, Option<&str>)> = vec![
        (post_request("/v1/agents", &json!({"name": "a/b"})), 400, "invalid_request", Some("name")),
        (
            post_request("/v1/agents", &json!({"name": "a", "files": [{"path": "../x"}]})),
            400,
            "invalid_request",
            Some("files[0].path"),
        ),
        (post_request("/v1/agents", &json!({"nmae": "a"})), 400, "invalid_request", Some("nmae")),
        (request("GET", "/v1/agents/none"), 404, "not_found", None),
        (request("GET", "/v1/agents/probe/files/none"), 404, "not_found", None),
        (request("GET", "/v1/agents/probe/files?version=9"), 404, "not_found", None),
        (post_request("/v1/sessions", &json!({"agent": "none"})), 404, "not_found", None),
        (
            post_request("/v1/sessions", &json!({"limits": {"memory_bytes": 1}})),
            400,
            "invalid_request",
            Some("limits.memory_bytes"),
        ),
        (request("GET", "/v1/sessions?state=open"), 400, "invalid_request", Some("state")),
        (request("GET", "/v1/sessions?cursor=zzz"), 400, "invalid_request", Some("cursor")),
        (request("GET", "/v1/sessions?limit=0"), 400, "invalid_request", Some("limit")),
        (request("GET", "/v1/sessions/ses_none"), 404, "not_found", None),
        (request("GET", &at("/events?types=x")), 400, "invalid_request", Some("types")),
        (
            request("GET", &at("/events")).header("last-event-id", "x"),
            400,
            "invalid_request",
            Some("last-event-id"),
        ),
        (post_request(&at("/messages"), &json!({})), 400, "invalid_request", Some("content")),
        (
            post_request(&at("/messages"), &json!({"content": ""})),
            400,
            "invalid_request",
            Some("content"),
        ),
        (post_request(&at("/fork"), &json!({"count": 0})), 400, "invalid_request", Some("count")),
        (post_request(&at("/exec"), &json!({})), 400, "invalid_request", Some("command")),
        (
            post_request(&at("/exec"), &json!({"argv": ["a"], "timeout_ms": 0})),
            400,
            "invalid_request",
            Some("timeout_ms"),
        ),
        (request("GET", &at("/terminal")), 426, "upgrade_required", None),
        (request("GET", &at("/terminal?rows=0")), 400, "invalid_request", Some("rows")),
        (request("GET", &at("/files/none")), 404, "not_found", None),
        (request("GET", &at("/files?path=none")), 404, "not_found", None),
        (request("GET", &at("/files?limit=0")), 400, "invalid_request", Some("limit")),
        (request("PUT", &at("/files/x?mode=9")), 400, "invalid_request", Some("mode")),
        (request("PUT", &at("/files//proc/x")), 403, "forbidden", Some("path")),
        (
            request("PUT", &at("/files/x?create=true&append=true")),
            400,
            "invalid_request",
            Some("append"),
        ),
        (request("PUT", &at("/archive")).body("no archive"), 400, "invalid_request", None),
        (
            post_request("/v1/credentials", &json!({"kind": "x", "secret": "y"})),
            400,
            "invalid_request",
            Some("kind"),
        ),
        (request("POST", &at("/attachments")).body("x"), 400, "invalid_request", Some("name")),
        (request("GET", "/v1/usage?limit=0"), 400, "invalid_request", Some("limit")),
        (request("DELETE", "/v1/snapshots/none"), 404, "not_found", None),
        (request("DELETE", "/v1/credentials/none"), 404, "not_found", None),
        (request("GET", "/v1/attachments/none"), 404, "not_found", None),
    ];
    for (request, status, code, field) in rows {
        let response = sessions.client.send(&request);
        let summary = format!("{} {}: {}", request.method, request.target, response.text());
        assert_eq!(response.status, status, "{summary}");
        let error = response.json()["error"].clone();
        assert_eq!(
            (error["code"].as_str(), error["field"].as_str()),
            (Some(code), field),
            "{summary}"
        );
    }
}

#[test]
fn whoever_has_another_tenant_or_scope_finds_nothing() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let id = sessions.probe();
    let snapshot = ok(&post(&sessions.client, &format!("{}/snapshots", path(&id)), &json!({})));
    let secret = json!({"kind": "custom", "secret": "s3cr3t-of-the-owner"});
    let credential = post(&sessions.client, "/v1/credentials", &secret);
    let credential = ok(&credential);
    let stranger = server.other_client("stranger", &[]);
    let limited = server.other_client("limited", &["--scope", "executions"]);
    let friend = {
        let tenant = sessions.record(&id)["tenant"].as_str().unwrap().to_owned();
        server.other_client("friend", &["--tenant", &tenant])
    };
    let at = |rest: &str| format!("{}{rest}", path(&id));
    let targets = [
        request("GET", &path(&id)),
        request("DELETE", &path(&id)),
        request("GET", &at("/events")),
        request("GET", &at("/messages")),
        request("GET", &at("/logs")),
        request("GET", &at("/files")),
        request("GET", &at("/files/probe.py")),
        request("PUT", &at("/files/x")).body("x"),
        request("GET", &at("/archive")),
        request("GET", &at("/metrics")),
        request("GET", &at("/snapshots")),
        request("GET", &at("/attachments")),
        post_request(&at("/messages"), &json!({"content": "x"})),
        post_request(&at("/exec"), &json!({"command": "true"})),
        post_request(&at("/fork"), &json!({})),
        post_request(&at("/stop"), &json!({})),
        post_request(&at("/interrupt"), &json!({})),
        request("GET", "/v1/agents/probe"),
        request("DELETE", "/v1/agents/probe"),
        request("DELETE", &format!("/v1/snapshots/{}", snapshot["id"].as_str().unwrap())),
        request("DELETE", &format!("/v1/credentials/{}", credential["id"].as_str().unwrap())),
    ];
    for request in &targets {
        let request_line = format!("{} {}", request.method, request.target);
        let response = stranger.send(request);
        assert_eq!(response.status, 404, "{request_line}: {}", response.text());
        assert_eq!(limited.send(request).status, 403, "{request_line}");
        assert_eq!(sessions.client.anonymous().send(request).status, 401, "{request_line}");
    }
    for target in ["/v1/sessions", "/v1/agents", "/v1/snapshots", "/v1/credentials"] {
        let list = ok(&stranger.get(target));
        let mut lists = list.as_object().unwrap().values().filter_map(Value::as_array);
        assert!(lists.all(Vec::is_empty), "{target}: {list}");
        let request_line = friend.get(target).text();
        assert!(!request_line.contains("s3cr3t"), "{request_line}");
    }
    // All tokens of a tenant have access to its objects.
    assert_eq!(ok(&friend.get(&path(&id)))["id"], id.as_str());
    assert_eq!(Sessions { client: friend }.ask(&id, "still there"), echo("still there", 1));
}

#[test]
fn files_of_any_size_go_both_ways() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let id = workspace(&sessions);
    let large: Vec<u8> = (0..LARGE_BYTES).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let written = sessions.write(&id, "deep/er/large.bin", &large);
    assert_eq!(written.status, 201, "{}", written.text());
    assert_eq!(written.json()["size"], LARGE_BYTES);
    let read = sessions.read(&id, "deep/er/large.bin");
    assert_eq!((read.status, read.body.len()), (200, large.len()));
    assert!(read.body == large, "it comes back as it went");
    // In chunks, without a declared length.
    let upload = request("PUT", &format!("{}/files/chunked", path(&id)));
    let (response, sent) = sessions.client.stream(&upload, 1 << 20).unwrap();
    assert_eq!((response.status, sent), (201, 1 << 20), "{}", response.text());
    for (range, status, content) in [
        ("bytes=0-3", 206, &large[..4]),
        ("bytes=-2", 206, &large[large.len() - 2..]),
        ("bytes=41943039-", 206, &large[large.len() - 1..]),
        ("bytes=41943040-", 416, &[][..]),
    ] {
        let target = format!("{}/files/deep/er/large.bin", path(&id));
        let response = sessions.client.send(&request("GET", &target).header("range", range));
        assert_eq!(response.status, status, "{range}: {:?}", response.headers);
        if status == 206 {
            assert_eq!(response.body, content, "{range}");
        } else {
            assert_eq!(response.header("content-range"), Some("bytes */41943040"));
        }
    }
    // Uploads that do not fit or are aborted leave no file.
    let full = sessions.write(&id, "too-large.bin", &large);
    assert_error(&full, 409, "conflict", Some("path"));
    let upload = request("PUT", &format!("{}/files/half", path(&id))).body("half of it");
    let broken = sessions.client.announce(&upload.header("expect", "nothing"), 1000);
    drop(broken);
    let mut half = sessions.client.open(&request("PUT", &format!("{}/files/half", path(&id))));
    drop(half.as_mut().map(|stream| stream.flush()));
    // Only the upload with an empty body is completed.
    until("the empty file", SOON, || match sessions.out(&id, "ls -A") {
        names if names == "chunked\ndeep\nhalf\n" => Ok(()),
        names => Err(names),
    });
    assert_eq!(sessions.read(&id, "half").body, b"");
}

#[test]
fn files_are_made_moved_listed_and_removed() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let id = workspace(&sessions);
    let client = &sessions.client;
    let at = |rest: &str| format!("{}/files{rest}", path(&id));
    let put = |rest: &str, content: &str| client.send(&request("PUT", &at(rest)).body(content));
    assert_eq!(put("/a.txt", "one").status, 201);
    assert_eq!(put("/a.txt", "two").status, 200);
    assert_error(&put("/a.txt?create=true", "x"), 409, "conflict", Some("path"));
    assert_eq!(put("/a.txt?append=true", " three").status, 200);
    assert_eq!(sessions.read(&id, "a.txt").text(), "two three");
    assert_eq!(put("/run.sh?mode=0755", "#!/bin/sh\necho ran\n").json()["mode"], 0o755);
    assert_eq!(sessions.out(&id, "./run.sh"), "ran\n");
    assert_eq!(put("/dir/sub?directory=true", "").json()["kind"], "dir");
    assert_error(&put("/b?directory=true", "x"), 400, "invalid_request", Some("directory"));
    assert_error(&sessions.read(&id, "dir"), 400, "invalid_request", Some("path"));
    // Names with a special meaning elsewhere, such as in URLs.
    for name in ["move", "100%25", "a%20b%3F%23", ".hidden", "%C3%A4"] {
        assert_eq!(put(&format!("/{name}"), name).status, 201, "{name}");
        assert_eq!(sessions.read(&id, name).text(), name);
    }
    assert_eq!(
        sessions.out(&id, "ls -A | tr '\\n' ' '"),
        ".hidden 100% a b?# a.txt dir move run.sh ä "
    );
    // Paths outside of the workspace.
    assert_eq!(put("//tmp/x", "t").json()["path"], "/tmp/x");
    assert_eq!(put("/~/y", "h").json()["path"], "/home/user/y");
    assert_eq!(sessions.out(&id, "cat /tmp/x ~/y"), "th");
    let moved = post(client, &at("/move"), &json!({"from": "a.txt", "to": "dir/sub/b.txt"}));
    assert_eq!(ok(&moved)["path"], "/workspace/dir/sub/b.txt");
    assert_error(
        &post(client, &at("/other"), &json!({"from": "a", "to": "b"})),
        405,
        "method_not_allowed",
        None,
    );
    assert_eq!(sessions.out(&id, "ln -s sub/b.txt dir/link; cat dir/link"), "two three");
    let list = ok(&client.get(&at("?path=dir&depth=5")));
    let entries: Vec<_> = list["entries"].as_array().unwrap().iter().collect();
    let paths: Vec<_> = entries.iter().map(|entry| entry["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/workspace/dir/link", "/workspace/dir/sub", "/workspace/dir/sub/b.txt"]);
    assert_eq!(
        (&entries[0]["kind"], &entries[0]["target"]),
        (&json!("symlink"), &json!("sub/b.txt"))
    );
    assert_eq!(ok(&client.get(&at("?limit=2")))["truncated"], true);
    let stat = ok(&client.get(&at("/dir/link?stat=true")));
    assert_eq!(stat["kind"], "symlink");
    let delete = |rest: &str| client.send(&request("DELETE", &at(rest)));
    assert_error(&delete("/dir"), 409, "conflict", Some("path"));
    assert_eq!(delete("/dir?recursive=true").status, 204);
    assert_error(&delete("/dir"), 404, "not_found", None);
}

#[test]
fn archives_keep_everything_and_changes_are_told() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let (one, other) = (workspace(&sessions), workspace(&sessions));
    let script = "mkdir -p .git a/b; echo x > .git/HEAD; echo y > a/b/package-lock.json; \
        chmod 750 a; ln -s b/package-lock.json a/link; touch -d @1000000000 a/b/package-lock.json";
    sessions.out(&one, script);
    let archive = sessions.client.get(&format!("{}/archive", path(&one)));
    assert_eq!(archive.header("content-type"), Some("application/x-tar"));
    let target = format!("{}/watch?recursive=true", path(&other));
    let mut changes = sessions.client.events(&target).unwrap();
    let import = request("PUT", &format!("{}/archive?path=in", path(&other))).body(archive.body);
    let imported = ok(&sessions.client.send(&import));
    assert_eq!(imported["entries"], 6, "{imported}");
    let listing =
        "cd $0; find . | sort; stat -c %a a; cat a/link; stat -c %Y a/b/package-lock.json";
    let list =
        |id: &str, directory: &str| sessions.out(id, &format!("sh -c '{listing}' {directory}"));
    assert_eq!(list(&one, "/workspace"), list(&other, "/workspace/in"));
    let first = changes.next().unwrap();
    assert_eq!(first.data, json!({"type": "create", "path": "in"}));
    assert_eq!(first.name, "create");
}

#[test]
fn an_archive_that_nobody_reads_does_not_keep_its_place() {
    let _guard = beside_others();
    let settings = "[limits]\nwrite_stall_s = 1";
    let server = serve_sessions(settings);
    let sessions = Sessions::from(&server);
    let id = workspace(&sessions);
    // More than all buffers on the path hold.
    sessions.out(&id, "head -c 40000000 /dev/zero > zeros");
    let export = request("GET", &format!("{}/archive", path(&id)));
    let unread: Vec<_> = (0..4).map(|_| sessions.client.open(&export).unwrap()).collect();
    let archive = sessions.client.send(&export);
    assert_eq!(archive.status, 200);
    assert!(archive.body.len() > 40_000_000);
    drop(unread);
}

#[test]
fn messages_are_answered_at_once_or_in_the_end() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let id = sessions.probe();
    let target = format!("{}/messages?wait=true", path(&id));
    let answer = ok(&post(&sessions.client, &target, &json!({"content": "hello"})));
    assert_eq!(answer["result"], echo("hello", 1), "{answer}");
    assert_eq!((&answer["is_error"], &answer["session"]), (&json!(false), &json!(id)));
    let kept = sessions.kept(&id, 0);
    assert_eq!(kept.last().unwrap()["seq"], answer["seq"]);
    let failed = ok(&post(&sessions.client, &target, &json!({"content": "exit 3"})));
    assert_eq!(failed["is_error"], true, "{failed}");
    assert!(failed["error"].as_str().is_some_and(|it| !it.is_empty()), "{failed}");
    let turn = sessions.hear(&id, "again");
    assert_eq!(turn.result(), echo("again", 3), "it remembers what it was told");
    // Pages, and a filter by event type.
    let page = |query: &str| {
        let target = format!("{}/events{query}", path(&id));
        let request = request("GET", &target).header("accept", "application/json");
        ok(&sessions.client.send(&request))
    };
    let texts = page("?types=text");
    let texts = texts["events"].as_array().unwrap();
    assert!(texts.len() >= 2 && texts.iter().all(|it| it["type"] == "text"), "{texts:?}");
    let first = page("?limit=1");
    assert_eq!(first["events"][0]["seq"], first["next_after"]);
    let history = ok(&sessions.client.get(&format!("{}/messages", path(&id))));
    let roles: Vec<_> =
        history["messages"].as_array().unwrap().iter().map(|it| &it["role"]).collect();
    assert_eq!(roles[..2], [&json!("user"), &json!("assistant")], "{history}");
    let usage = ok(&sessions.client.get(&format!("/v1/usage?session={id}&limit=10")));
    assert_eq!(usage["total"]["turns"], usage["turns"].as_array().unwrap().len(), "{usage}");
    sessions.ask(&id, "stderr why it failed");
    let logs = until("the agent's log", SOON, || {
        let logs = ok(&sessions.client.get(&format!("{}/logs", path(&id))));
        if logs["lines"].as_array().unwrap().is_empty() { Err(logs.to_string()) } else { Ok(logs) }
    });
    assert!(logs.to_string().contains("why it failed"), "{logs}");
}

#[test]
fn what_is_kept_beside_sessions_is_kept() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let client = &sessions.client;
    let id = workspace(&sessions);
    sessions.write(&id, "kept.txt", b"before");
    let target = format!("{}/snapshots", path(&id));
    let snapshot = ok(&post(client, &target, &json!({"name": "first"})));
    sessions.write(&id, "kept.txt", b"after");
    let copy = sessions.create(&json!({"snapshot": snapshot["id"]}));
    assert_eq!(sessions.read(&copy, "kept.txt").text(), "before");
    assert_eq!(ok(&client.get("/v1/snapshots?limit=1"))["snapshots"][0], snapshot);
    let one = format!("/v1/snapshots/{}", snapshot["id"].as_str().unwrap());
    assert_eq!(client.send(&request("DELETE", &one)).status, 204);
    assert_eq!(sessions.read(&copy, "kept.txt").text(), "before", "it goes on without");
    // Attachments.
    let page = request("POST", &format!("{}/attachments?name=p.html", path(&id)));
    let page = page.header("content-type", "text/html").body("<script>");
    let attachment = ok(&client.send(&page));
    let one = format!("/v1/attachments/{}", attachment["id"].as_str().unwrap());
    let response = client.get(&one);
    assert_eq!(
        (response.text().as_str(), response.header("content-type")),
        ("<script>", Some("text/html"))
    );
    assert_eq!(response.header("content-disposition"), Some("attachment"));
    let list = ok(&client.get(&format!("{}/attachments", path(&id))));
    assert_eq!(list["attachments"], json!([attachment]));
    assert_eq!(client.send(&request("DELETE", &one)).status, 204);
    assert_eq!(client.get(&one).status, 404);
    // Credentials.
    let secret = json!({"kind": "openai", "label": "team", "secret": "s3cr3t"});
    let credential = ok(&post(client, "/v1/credentials", &secret));
    let listing = client.get("/v1/credentials").text();
    assert!(listing.contains("team") && !listing.contains("s3cr3t"), "{listing}");
    let with = sessions.create(&json!({"credential": credential["id"]}));
    assert_eq!(sessions.out(&with, "echo $OPENAI_API_KEY"), "s3cr3t\n");
    let one = format!("/v1/credentials/{}", credential["id"].as_str().unwrap());
    assert_eq!(client.send(&request("DELETE", &one)).status, 204);
    // Lists, filtered by the sessions' metadata.
    let found = sessions.create(&json!({"metadata": {"user": "a b", "x": "1"}}));
    let list = ok(&client.get("/v1/sessions?metadata.user=a%20b&state=active"));
    let ids: Vec<_> = list["sessions"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    assert_eq!(ids, [&json!(found)]);
    let change = json!({"metadata": {"user": "c"}, "options": {"model": "m"}, "idle_s": 9});
    let patch = |id: &str, body: &Value| {
        let patch = request("PATCH", &path(id)).header("content-type", "application/json");
        client.send(&patch.body(body.to_string()))
    };
    let changed = ok(&patch(&found, &change));
    assert_eq!(
        (&changed["metadata"], &changed["options"]["model"]),
        (&json!({"user": "c"}), &json!("m"))
    );
    assert_eq!(sessions.record(&found)["metadata"], json!({"user": "c"}));
    assert_error(&patch(&found, &json!({"idle_s": 0})), 400, "invalid_request", Some("idle_s"));
    assert_error(&patch(&found, &json!({"agent": "x"})), 400, "invalid_request", Some("agent"));
    let page = ok(&client.get("/v1/sessions?limit=1"));
    let next = page["next_cursor"].as_str().unwrap();
    let second = ok(&client.get(&format!("/v1/sessions?limit=1&cursor={next}")));
    assert_ne!(page["sessions"][0]["id"], second["sessions"][0]["id"]);
}

/// Runs a command with streamed output. Returns the bytes of both streams, and the result.
fn streamed_output(client: &Client, id: &str, body: &Value) -> (Vec<u8>, Vec<u8>, Value) {
    let request = post_request(&format!("{}/exec", path(id)), body);
    let events: Vec<_> = client.events_by(&request).unwrap().collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event.id, (index + 1).to_string());
        assert_eq!(event.name, event.data["type"].as_str().unwrap());
        let bytes = || BASE64.decode(event.data["data_base64"].as_str().unwrap()).unwrap();
        match event.name.as_str() {
            "stdout" => out.extend(bytes()),
            "stderr" => err.extend(bytes()),
            _ => {}
        }
    }
    assert_eq!(events[0].name, "started");
    (out, err, events.last().unwrap().data.clone())
}

#[test]
fn commands_are_followed_while_they_run() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let id = workspace(&sessions);
    let check = |body: Value, out: &[u8], err: &[u8], end: Value| {
        let (stdout, stderr, ended) = streamed_output(&sessions.client, &id, &body);
        assert_eq!((stdout.as_slice(), stderr.as_slice()), (out, err), "{body}");
        for (name, value) in end.as_object().unwrap() {
            assert_eq!(&ended[name], value, "{body}: {ended}");
        }
    };
    check(
        json!({"command": "printf '\\377'; echo e >&2; exit 3"}),
        b"\xff",
        b"e\n",
        json!({"exit_code": 3}),
    );
    check(json!({"argv": ["cat"], "stdin": "in"}), b"in", b"", json!({"exit_code": 0}));
    check(json!({"argv": ["pwd"], "cwd": "/tmp"}), b"/tmp\n", b"", json!({"exit_code": 0}));
    let absent = json!({"exit_code": 127, "start_error": "program: No such file or directory"});
    check(json!({"argv": ["nope"]}), b"", b"", absent);
    let denied = json!({"exit_code": 126, "start_error": "program: Permission denied"});
    check(json!({"argv": ["/etc/passwd"]}), b"", b"", denied);
    let elsewhere =
        json!({"exit_code": 126, "start_error": "working directory: No such file or directory"});
    check(json!({"argv": ["ls"], "cwd": "/nowhere"}), b"", b"", elsewhere);
    check(json!({"command": "exit 127"}), b"", b"", json!({"exit_code": 127, "start_error": null}));
    check(json!({"command": "echo $A", "env": {"A": "1"}}), b"1\n", b"", json!({"exit_code": 0}));
    check(json!({"command": "kill -9 $$"}), b"", b"", json!({"signal": "SIGKILL"}));
    check(json!({"argv": ["sleep", "99"], "timeout_ms": 50}), b"", b"", json!({"timed_out": true}));
    // A client that disconnects ends its command.
    let marker = format!("66{}.1", std::process::id());
    let body = json!({"argv": ["sleep", marker]});
    let mut events =
        sessions.client.events_by(&post_request(&format!("{}/exec", path(&id)), &body)).unwrap();
    events.next().unwrap();
    // The process is reported before it has executed its program.
    wait_for_sleep(&marker);
    drop(events);
    wait_until_gone(&marker);
}

/// Reads the output of a terminal until it contains `wanted`.
fn read_terminal(socket: &mut WebSocket, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        match socket.message() {
            Message::Binary(bytes) => text.push_str(&String::from_utf8_lossy(&bytes)),
            other => panic!("{other:?} after {text:?}, without {wanted:?}"),
        }
    }
    text
}

#[test]
fn a_terminal_is_typed_at_and_resized_and_hangs_up() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let id = workspace(&sessions);
    let open = |query: &str| {
        let socket = sessions.client.websocket(&format!("{}/terminal{query}", path(&id)));
        let mut socket = socket.unwrap_or_else(|response| panic!("{}", response.text()));
        assert_eq!(socket.json()["type"], "started");
        socket
    };
    let mut socket = open("?rows=30&cols=90&argv=sh");
    socket.writer().binary(b"stty size; echo $TERM\n").unwrap();
    read_terminal(&mut socket, "30 90\r\nxterm-256color");
    socket.send(&json!({"type": "resize", "rows": 40, "cols": 100}));
    socket.send(&json!({"type": "stdin", "data": "stty size\n"}));
    read_terminal(&mut socket, "40 100");
    // Ctrl-C ends the running program, not the shell. The test waits for the program, because the
    // terminal first shows only the typed text.
    let held = format!("66{}.3", std::process::id());
    socket.send(&json!({"type": "stdin", "data": format!("sleep {held} || echo cut\n")}));
    wait_for_sleep(&held);
    socket.send(&json!({"type": "stdin", "data_base64": "Aw=="}));
    socket.send(&json!({"type": "stdin", "data": "echo at''er; exit 7\n"}));
    read_terminal(&mut socket, "ater");
    let end = loop {
        match socket.message() {
            Message::Binary(_) => {}
            Message::Text(text) => break serde_json::from_str::<Value>(&text).unwrap(),
            Message::Close(..) => panic!("no end"),
        }
    };
    assert_eq!((&end["type"], &end["exit_code"]), (&json!("ended"), &json!(7)), "{end}");
    assert_eq!(socket.message(), Message::Close(1000, String::new()));
    // End of input, a signal, and an invalid message.
    let mut socket = open("?argv=cat");
    socket.send(&json!({"type": "eof"}));
    assert_eq!(socket.rest().0.last().unwrap()["exit_code"], 0);
    let mut socket = open("?argv=sleep&argv=1000");
    socket.send(&json!({"type": "signal", "signal": "SIGTERM"}));
    assert_eq!(socket.rest().0.last().unwrap()["signal"], "SIGTERM");
    let mut socket = open("?argv=cat");
    socket.writer().text("not json").unwrap();
    assert_eq!(socket.rest().1, 4400);
    // A client that disconnects hangs the terminal up.
    let marker = format!("66{}.2", std::process::id());
    let socket = open(&format!("?argv=sleep&argv={marker}"));
    wait_for_sleep(&marker);
    socket.cut();
    wait_until_gone(&marker);
}

/// Opens a terminal. Returns the socket and the first event.
fn terminal(sessions: &Sessions, id: &str, query: &str) -> (WebSocket, Value) {
    let socket = sessions.client.websocket(&format!("{}/terminal{query}", path(id)));
    let mut socket = socket.unwrap_or_else(|response| panic!("{query}: {}", response.text()));
    let first = socket.json();
    (socket, first)
}

/// Reads this many bytes of output.
fn output(socket: &mut WebSocket, count: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < count {
        match socket.message() {
            Message::Binary(piece) => bytes.extend(piece),
            other => panic!("{other:?} after {} of {count} bytes", bytes.len()),
        }
    }
    bytes
}

/// Waits until the only terminal of a session satisfies `is`, and returns it.
fn wait_for_terminal(sessions: &Sessions, id: &str, is: impl Fn(&Value) -> bool) -> Value {
    until("the terminal to be as expected", SOON, || {
        let list = ok(&sessions.client.get(&format!("{}/terminals", path(id))));
        let terminals = list["terminals"].as_array().unwrap();
        match terminals.as_slice() {
            [one] if is(one) => Ok(one.clone()),
            _ => Err(list.to_string()),
        }
    })
}

#[test]
fn a_terminal_outlives_its_socket_and_is_taken_up_again_without_a_gap() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let id = workspace(&sessions);
    let (mut socket, first) = terminal(&sessions, &id, "?argv=sh&detach_s=600");
    let name = first["terminal"].as_str().unwrap().to_owned();
    assert!(name.starts_with("tm_"), "{first}");
    socket.send(&json!({"type": "stdin", "data": "stty -echo; echo mark-$((40+2))\n"}));
    read_terminal(&mut socket, "mark-42");
    socket.cut();
    let detached = wait_for_terminal(&sessions, &id, |it| it["state"] == "detached");
    assert_eq!((&detached["id"], &detached["pid"]), (&json!(name), &first["pid"]), "{detached}");
    assert!(detached["expires_at"].is_string(), "{detached}");
    // A client attaches to the same shell, and receives its previous output.
    let again = format!("?attach={name}");
    let (mut socket, attached) = terminal(&sessions, &id, &again);
    let expected = json!({
        "type": "attached", "pid": first["pid"], "terminal": name, "from": 0,
        "to": attached["to"],
    });
    assert_eq!(attached, expected);
    let replay = output(&mut socket, attached["to"].as_u64().unwrap());
    assert!(String::from_utf8_lossy(&replay).contains("mark-42"), "{replay:?}");
    // A flood without an attached client blocks no program: the oldest bytes are dropped.
    socket.send(&json!({
        "type": "stdin",
        "data": "for i in $(seq 100000); do echo line-$i; done\n",
    }));
    // A cut connection may lose the last data sent, so the test first waits for their effect.
    read_terminal(&mut socket, "line-1");
    socket.cut();
    // `line-`, the digits of each number, and the end of the line.
    let written = attached["to"].as_u64().unwrap() + 100_000 * 7 + 488_895;
    let flooded =
        wait_for_terminal(&sessions, &id, |it| it["output_bytes"].as_u64().unwrap() >= written);
    assert_eq!(flooded["state"], "detached", "{flooded}");
    assert_eq!(flooded["kept_bytes"], 256 << 10, "{flooded}");
    let (mut socket, attached) = terminal(&sessions, &id, &again);
    let (from, to) = (attached["from"].as_u64().unwrap(), attached["to"].as_u64().unwrap());
    assert_eq!(to - from, 256 << 10, "{attached}");
    let replay = output(&mut socket, to - from);
    let lines = String::from_utf8_lossy(&replay).into_owned();
    // The lines are consecutive.
    let mut numbers = lines.lines().skip(1).filter_map(|line| line.strip_prefix("line-"));
    let mut last: u32 = numbers.next().unwrap().parse().unwrap();
    for number in numbers.by_ref() {
        let number: u32 = number.parse().unwrap();
        assert_eq!(number, last + 1);
        last = number;
    }
    assert_eq!(last, 100_000);
    // A client that sends its position receives only the output after it.
    socket.send(&json!({"type": "stdin", "data": "echo more\n"}));
    let more = read_terminal(&mut socket, "more");
    let had = from + (replay.len() + more.len()) as u64;
    socket.cut();
    let (_socket, attached) = terminal(&sessions, &id, &format!("{again}&from={had}"));
    assert_eq!(attached["from"].as_u64(), Some(had), "{attached}");
    let beyond = sessions.client.websocket(&format!("{}/terminal{again}&from=99999999", path(&id)));
    assert_eq!(beyond.unwrap_err().status, 400);
}

#[test]
fn a_client_that_acknowledges_output_bounds_what_is_on_its_way() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let id = workspace(&sessions);
    const WRITTEN: u64 = 300_000;
    let query = format!("?argv=head&argv=-c&argv={WRITTEN}&argv=/dev/zero&window=4096");
    let (mut socket, _) = terminal(&sessions, &id, &query);
    // An acknowledgement of more bytes than were sent counts only those that were.
    socket.send(&json!({"type": "ack", "bytes": u32::MAX}));
    let (mut received, mut printed) = (0, 0);
    while let Message::Binary(piece) = socket.message() {
        received += piece.len() as u64;
        assert!(received - printed <= 4096, "{} bytes are on the way", received - printed);
        printed = received;
        socket.send(&json!({"type": "ack", "bytes": printed}));
    }
    assert_eq!(received, WRITTEN);
}

#[test]
fn detached_terminals_are_bounded_taken_over_and_end() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let id = workspace(&sessions);
    let at = |rest: &str| format!("{}/terminals{rest}", path(&id));
    let (mut first, started) = terminal(&sessions, &id, "?argv=cat&detach_s=600");
    let name = started["terminal"].as_str().unwrap().to_owned();
    // A client that attaches replaces the attached one.
    let (mut second, _) = terminal(&sessions, &id, &format!("?attach={name}"));
    let taken = Message::Close(4409, "another client has attached".to_owned());
    assert_eq!(first.message(), taken);
    second.writer().binary(b"hello\n").unwrap();
    read_terminal(&mut second, "hello\r\nhello");
    // Ending a terminal hangs it up, and disconnects the attached client.
    let ended = sessions.client.send(&Request::new("DELETE", &at(&format!("/{name}"))));
    assert_eq!(ended.status, 204, "{}", ended.text());
    let goodbye = Message::Close(1000, "the terminal was ended".to_owned());
    assert_eq!(second.message(), goodbye);
    assert_eq!(ok(&sessions.client.get(&at("")))["terminals"], json!([]));
    for request in [
        Request::new("DELETE", &at(&format!("/{name}"))),
        websocket(&format!("{}/terminal?attach={name}", path(&id))),
    ] {
        assert_error(&sessions.client.send(&request), 404, "not_found", None);
    }
    // The end of a terminal without a client is reported to the next client, once.
    let (socket, started) = terminal(&sessions, &id, "?argv=sleep&argv=1000&detach_s=600");
    let name = started["terminal"].as_str().unwrap().to_owned();
    let pid = &started["pid"];
    socket.cut();
    let killed = json!({"command": format!("kill -KILL {pid}")});
    ok(&post(&sessions.client, &format!("{}/exec", path(&id)), &killed));
    wait_for_terminal(&sessions, &id, |it| it["state"] == "ended");
    let (mut socket, _) = terminal(&sessions, &id, &format!("?attach={name}"));
    let (events, code) = socket.rest();
    assert_eq!((&events.last().unwrap()["signal"], code), (&json!("SIGKILL"), 1000), "{events:?}");
    until("the terminal to be gone", SOON, || {
        let list = ok(&sessions.client.get(&at("")));
        if list["terminals"] == json!([]) { Ok(()) } else { Err(list.to_string()) }
    });
    // A session may have eight terminals, and each may be detached for at most an hour.
    let all: Vec<_> = (0..8).map(|_| terminal(&sessions, &id, "?argv=cat&detach_s=600")).collect();
    let open =
        |query: &str| sessions.client.send(&websocket(&format!("{}/terminal{query}", path(&id))));
    assert_error(&open("?argv=cat&detach_s=600"), 429, "too_many_requests", None);
    assert_error(&open("?detach_s=3601"), 400, "invalid_request", Some("detach_s"));
    // Terminals end with the sandbox.
    sessions.did(&id, "stop");
    for (mut socket, _) in all {
        let (events, _) = socket.rest();
        let kind = &events.last().unwrap()["type"];
        assert!(kind == "error" || kind == "ended", "{events:?}");
    }
    assert_eq!(ok(&sessions.client.get(&at("")))["terminals"], json!([]));
    // A detached terminal ends after `detach_s`.
    sessions.did(&id, "resume");
    let marker = format!("66{}.7", std::process::id());
    let (socket, _) = terminal(&sessions, &id, &format!("?argv=sleep&argv={marker}&detach_s=1"));
    wait_for_sleep(&marker);
    socket.cut();
    wait_until_gone(&marker);
}

/// Runs `cove`, which finds the server by its data directory only.
pub(crate) fn cove(server: &Server, arguments: &[&str], stdin: &str) -> Output {
    let at = arguments.iter().position(|it| *it == "--").unwrap_or(arguments.len());
    let mut command: Command = testkit::command(COVE);
    command.args(&arguments[..at]).arg("--data-dir").arg(server.data_dir());
    command.args(&arguments[at..]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("start cove");
    let mut pipe = child.stdin.take().unwrap();
    // A command may end without reading its input.
    drop(pipe.write_all(stdin.as_bytes()));
    drop(pipe);
    child.wait_with_output().expect("wait for cove")
}

/// Runs a command that must exit with this code, and returns its standard output.
fn stdout_of(server: &Server, arguments: &[&str], stdin: &str, code: i32) -> String {
    let output = cove(server, arguments, stdin);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn agents_are_deployed_from_the_command_line() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let folder = server.scratch().path().join("helper");
    fs::create_dir_all(folder.join(".hidden")).unwrap();
    let source = probe("x")["files"][0]["content"].as_str().unwrap().to_owned();
    let manifest = "runtime = { type = \"command\", argv = [\"python3\", \"probe.py\"] }\n\
        env = { COLOUR = \"red\", SIZE = \"1\" }\n";
    for (name, content) in [
        ("probe.py", source.as_str()),
        ("agent.toml", manifest),
        (".hidden/file", "h"),
        (".env", "PASSWORD=x"),
        ("left.out", "x"),
        (".coveignore", "*.out\n"),
        ("install.sh", "#!/bin/sh\necho made > made.txt\n"),
    ] {
        fs::write(folder.join(name), content).unwrap();
    }
    let directory = folder.display().to_string();
    let deploy = ["agent", "deploy", &directory, "-e", "SIZE=2"];
    assert_eq!(stdout_of(&server, &deploy, "", 0).split(' ').next(), Some("helper"));
    // A folder without a runtime, and one that is too large.
    let bare = server.scratch().path().join("bare");
    fs::create_dir(&bare).unwrap();
    fs::write(bare.join("data"), "x").unwrap();
    let notified = |code: i32| {
        let url = format!("http://{}", server.client().address());
        let mut command = testkit::command(COVE);
        command.args(["agent", "deploy", "--server", &url]).arg(&bare);
        let output = command.env("COVE_TOKEN", server.token()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        stderr
    };
    assert!(notified(0).contains("bare has no runtime"), "{}", notified(0));
    fs::write(bare.join("data"), vec![0xff; 30 << 20]).unwrap();
    let refused = notified(2);
    for phrase in ["limits.body_bytes_max", ".coveignore", "30 MiB"] {
        assert!(refused.contains(phrase), "{refused:?} lacks {phrase:?}");
    }
    let files = stdout_of(&server, &["agent", "info", "helper", "--files", "--json"], "", 0);
    let files: Value = serde_json::from_str(&files).unwrap();
    let paths: Vec<_> = files["files"].as_array().unwrap().iter().map(|it| &it["path"]).collect();
    assert_eq!(paths, [".hidden/file", "install.sh", "probe.py"]);
    assert!(stdout_of(&server, &["agent", "list"], "", 0).contains("helper"));
    assert!(stdout_of(&server, &["agent", "info", "helper"], "", 0).contains("COLOUR, SIZE"));
    let id = stdout_of(&server, &["session", "create", "helper", "-e", "COLOUR=blue"], "", 0);
    let id = id.trim();
    assert_eq!(stdout_of(&server, &["session", "send", id, "env COLOUR"], "", 0), "blue\n");
    assert_eq!(stdout_of(&server, &["session", "send", id, "env", "SIZE"], "", 0), "2\n");
    let cat = ["session", "exec", id, "--", "cat", "made.txt", ".hidden/file"];
    assert_eq!(stdout_of(&server, &cat, "", 0), "made\nh");
    stdout_of(&server, &["agent", "delete", "helper"], "", 0);
    stdout_of(&server, &["agent", "info", "helper"], "", 2);
}

#[test]
fn grants_are_given_and_taken_back_from_the_command_line() {
    let _guard = beside_others();
    let server = serve_sessions("");
    Sessions::from(&server).deploy(&probe("probe"));
    let run = |arguments: &[&str], code: i32| stdout_of(&server, arguments, "", code);
    run(&["agent", "update", "probe", "--grant", "http:example.com"], 0);
    assert!(run(&["agent", "info", "probe"], 0).contains("grants      http"));
    run(&["agent", "update", "probe", "--grant", "postgres:nothing"], 2);
    let id = run(&["session", "create", "probe"], 0);
    let id = id.trim();
    assert!(run(&["session", "grants", id], 0).contains("example.com"));
    let without = run(&["session", "create", "probe", "--no-grants"], 0);
    assert_eq!(run(&["session", "grants", without.trim()], 0), "nothing\n");
    let proxy = || run(&["session", "exec", id, "--", "sh", "-c", "echo $HTTP_PROXY"], 0);
    assert_eq!(proxy(), "http://127.0.0.1:3128\n");
    let set = run(&["session", "grants", id, "--set", "http:*.example.org", "--json"], 0);
    let set: Value = serde_json::from_str(&set).unwrap();
    assert_eq!(set[0]["rules"][0]["hosts"], json!(["*.example.org"]));
    assert_eq!(run(&["session", "grants", id, "--none"], 0), "nothing\n");
    assert_eq!(proxy(), "\n");
    // Grants can be checked in advance, which has no effect.
    assert!(run(&["grants", "offers"], 0).contains("This token may give all"));
    assert!(run(&["grants", "check", "http:example.com"], 0).contains("yes"));
    let report = run(&["grants", "check", "http:example.com", "postgres:nothing", "--json"], 1);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["given"], &report["grants"][0]["given"]), (&json!(false), &json!(true)));
    assert_eq!(report["grants"][1]["refusal"]["code"], "invalid_request");
    let other = server.other_client("other", &[]);
    let offers = other.get("/v1/gateway/offers").json();
    assert_eq!(offers["offers"], json!([]), "{offers}");
    let body = json!({ "grants": [{ "kind": "http", "rules": [{ "hosts": ["example.com"] }] }] });
    let report = post(&other, "/v1/gateway/offers/check", &body).json();
    assert_eq!(report["grants"][0]["refusal"]["code"], "forbidden", "{report}");
    // Granting and revoking are recorded in the audit.
    let audit = run(&["audit", "--holder", id], 0);
    let events: Vec<_> =
        audit.lines().skip(1).filter_map(|it| it.split_whitespace().nth(3)).collect();
    assert_eq!(events, ["granted", "revoked", "granted", "revoked"], "{audit}");
    let first = run(&["audit", "--holder", id, "--limit", "1", "--json"], 0);
    let first: Value = serde_json::from_str(&first).unwrap();
    assert_eq!((&first["grant"], &first["outcome"]), (&json!("http"), &json!("done")));
    assert_eq!(run(&["audit", "--holder", id, "--outcome", "refused", "--json"], 0), "");
}

#[test]
fn sessions_are_used_from_the_command_line() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    sessions.deploy(&probe("probe"));
    let id = stdout_of(&server, &["session", "create", "probe", "--metadata", "user=7"], "", 0);
    let id = id.trim();
    let run =
        |arguments: &[&str], stdin: &str, code: i32| stdout_of(&server, arguments, stdin, code);
    assert_eq!(run(&["session", "send", id, "hello", "there"], "", 0), echoed("hello there", 1));
    assert_eq!(run(&["session", "send", id, "-"], "from a file", 0), echoed("from a file", 2));
    let answer = run(&["session", "send", "--json", id, "x"], "", 0);
    assert_eq!(serde_json::from_str::<Value>(&answer).unwrap()["result"], echo("x", 3));
    let raw = run(&["session", "send", "--raw", id, "y"], "", 0);
    let last: Value = serde_json::from_str(raw.lines().last().unwrap()).unwrap();
    assert_eq!(last["type"], "done");
    run(&["session", "send", id, "exit 3"], "", 1);
    assert_eq!(
        run(&["session", "chat", id], "one\n\ntwo\n", 0),
        echoed("one", 6) + &echoed("two", 7)
    );
    // Commands.
    let sh = |script: &'static str, code: i32| {
        run(&["session", "exec", id, "--", "sh", "-c", script], "", code)
    };
    assert_eq!(sh("echo out; exit 3", 3), "out\n");
    sh("kill -TERM $$", 143);
    run(&["session", "exec", id, "--", "nope"], "", 127);
    run(&["session", "exec", "--timeout", "100ms", id, "--", "sleep", "99"], "", 124);
    run(&["session", "exec", "--tty", id], "", 2);
    assert_eq!(run(&["session", "exec", "-i", id, "--", "tr", "a", "b"], "aa", 0), "bb");
    // Files.
    let local = server.scratch().file("data.csv", "1,2\n").display().to_string();
    let place = |path: &str| format!("{id}:{path}");
    run(&["session", "files", "put", &local, &place("in/")], "", 0);
    assert_eq!(run(&["session", "files", "get", &place("in/data.csv"), "-"], "", 0), "1,2\n");
    assert!(
        run(&["session", "files", "ls", &place("in")], "", 0).contains("/workspace/in/data.csv")
    );
    run(&["session", "files", "rm", &place("in")], "", 2);
    run(&["session", "files", "rm", "-r", &place("in")], "", 0);
    run(&["session", "files", "get", &place("in/data.csv"), "-"], "", 2);
    // States.
    assert_eq!(run(&["session", "pause", id], "", 0), format!("{id} is paused\n"));
    run(&["session", "send", id, "x"], "", 2);
    assert_eq!(run(&["session", "stop", id], "", 0), format!("{id} is stopped\n"));
    assert_eq!(
        run(&["session", "chat", id], "back\n", 0),
        echoed("back", 8),
        "it is resumed for that"
    );
    let list = run(&["session", "list", "--metadata", "user=7", "--json"], "", 0);
    assert_eq!(serde_json::from_str::<Value>(list.trim()).unwrap()["id"], id);
    let copies = run(&["session", "fork", id, "--count", "2"], "", 0);
    assert_eq!(copies.lines().count(), 2);
    for copy in copies.lines() {
        assert!(sessions.recall(copy).contains(&"back".to_owned()));
    }
    let top: Value = serde_json::from_str(&run(&["top", "--json"], "", 0)).unwrap();
    assert_eq!(top["sessions"].as_array().unwrap().len(), 3, "{top}");
    assert!(top["sessions"][0]["metrics"]["memory_bytes"].as_u64().unwrap() > 0, "{top}");
    assert!(run(&["top"], "", 0).contains(id));
    // All events, from the beginning to the end.
    run(&["session", "end", id], "", 0);
    let output = run(&["session", "tail", "--raw", "--after", "0", id], "", 0);
    let kinds: Vec<Value> =
        output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(kinds, sessions.kept(id, 0));
    run(&["session", "send", id, "x"], "", 2);
}

#[test]
fn a_chat_is_interrupted_and_goes_on() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let id = sessions.probe();
    let mut command = testkit::command(COVE);
    command.args(["session", "chat", &id, "--data-dir"]).arg(server.data_dir());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut chat = command.spawn().unwrap();
    let mut input = chat.stdin.take().unwrap();
    input.write_all(b"hold /tmp/never\n").unwrap();
    sessions.wait_for(&id, "active", "running");
    // A turn begins before the agent receives its message. An interrupt at that time is possible,
    // but then the agent does not count the message.
    until("the agent to hold its turn", SOON, || {
        let events = sessions.kept(&id, 0);
        let is_held = events.iter().any(|event| event["data"]["text"] == "holding");
        if is_held { Ok(()) } else { Err(format!("{events:?}")) }
    });
    process::signal(chat.id(), "INT");
    sessions.wait_for(&id, "active", "waiting");
    input.write_all(b"next\n").unwrap();
    drop(input);
    let mut output = String::new();
    chat.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(output.ends_with(&echoed("next", 2)), "{output:?}");
    assert_eq!(chat.wait().unwrap().code(), Some(0));
}
