//! Invalid input is rejected with a 4xx that names the error, in the common error format, and
//! starts nothing.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use serde_json::{Value, json};
use testkit::{Client, Request, Response, process};

use crate::support::{SOON, beside_others, run, serve, shell};

/// Size of a body far above the server's limit.
const GIBIBYTE: u64 = 1 << 30;
/// Maximum memory that the server may need to reject a large body.
const REFUSAL_BYTES_MAX: u64 = 48 << 20;

/// Expected content of a rejection: status, code, field and a part of the message.
struct Refusal {
    status: u16,
    code: &'static str,
    field: Option<&'static str>,
    says: &'static str,
}

const fn invalid(field: Option<&'static str>, says: &'static str) -> Refusal {
    Refusal { status: 400, code: "invalid_request", field, says }
}

/// Checks the rejection of one row of the tables.
fn check(name: &str, response: &Response, expected: &Refusal) {
    let text = response.text();
    assert_eq!(response.status, expected.status, "{name}: {text}");
    let type_ = response.header("content-type").unwrap_or("none");
    assert!(type_.starts_with("application/json"), "{name}: content type {type_}");
    let body = response.json();
    let error = &body["error"];
    assert_eq!(error["code"], expected.code, "{name}: {text}");
    let message = error["message"].as_str().unwrap_or("");
    assert!(message.contains(expected.says), "{name}: {message:?} lacks {:?}", expected.says);
    if let Some(field) = expected.field {
        assert_eq!(error["field"], field, "{name}: {text}");
    }
    assert_eq!(error["retry"], false, "{name}: {text}");
    let known = ["code", "message", "field", "retry"];
    for key in error.as_object().unwrap().keys() {
        assert!(known.contains(&key.as_str()), "{name}: unknown key {key}");
    }
}

/// Returns a program with one file of this name.
fn with_file(name: &str) -> Value {
    json!({"argv": ["/bin/true"], "files": [{"name": name, "content": "x"}]})
}

fn with_limit(name: &str, value: impl Into<Value>) -> Value {
    let mut limits = json!({});
    limits[name] = value.into();
    json!({"argv": ["/bin/true"], "limits": limits})
}

fn shapes() -> Vec<(&'static str, Value, Refusal)> {
    vec![
        ("nothing at all", json!({}), invalid(None, "either language or argv")),
        (
            "both",
            json!({"language": "python", "argv": ["x"], "source": ""}),
            invalid(None, "exclude"),
        ),
        ("no source", json!({"language": "python"}), invalid(None, "source or files")),
        ("no command", json!({"argv": []}), invalid(Some("argv"), "program")),
        ("empty command", json!({"argv": [""]}), invalid(Some("argv"), "program")),
        (
            "source without language",
            json!({"argv": ["x"], "source": "x"}),
            invalid(Some("source"), "language"),
        ),
        (
            "no test cases",
            json!({"argv": ["true"], "tests": []}),
            invalid(Some("tests"), "at least one test case"),
        ),
        ("an array", json!([1, 2]), invalid(None, "")),
        ("a string", json!("run"), invalid(None, "")),
        ("null", json!(null), invalid(None, "")),
        (
            "unknown field",
            json!({"argv": ["x"], "sudo": true}),
            invalid(None, "unknown field `sudo`"),
        ),
        ("unknown limit", with_limit("gpu_ms", 1), invalid(None, "unknown field `gpu_ms`")),
        ("wrong type", json!({"argv": "ls"}), invalid(Some("argv"), "expected an array, got")),
        (
            "wrong type inside",
            json!({"argv": ["a", 1]}),
            invalid(Some("argv[1]"), "expected a string, got the number 1"),
        ),
        (
            "limit as text",
            with_limit("cpu_ms", "1s"),
            invalid(Some("limits.cpu_ms"), "expected a whole number"),
        ),
    ]
}

fn values() -> Vec<(&'static str, Value, Refusal)> {
    vec![
        ("NUL in argv", json!({"argv": ["a\u{0}b"]}), invalid(Some("argv[0]"), "NUL")),
        (
            "NUL in args",
            json!({"argv": ["a"], "args": ["x", "a\u{0}"]}),
            invalid(Some("args[1]"), "NUL"),
        ),
        (
            "NUL in env",
            json!({"argv": ["a"], "env": {"A": "\u{0}"}}),
            invalid(Some("env.A"), "NUL"),
        ),
        (
            "env name with =",
            json!({"argv": ["a"], "env": {"A=B": ""}}),
            invalid(Some("env"), "name"),
        ),
        ("empty env name", json!({"argv": ["a"], "env": {"": ""}}), invalid(Some("env"), "name")),
        (
            "stdin twice",
            json!({"argv": ["a"], "stdin": "", "stdin_base64": ""}),
            invalid(Some("stdin"), "twice"),
        ),
        (
            "stdin not base64",
            json!({"argv": ["a"], "stdin_base64": "*"}),
            invalid(Some("stdin_base64"), "base64"),
        ),
        (
            "unknown language",
            json!({"language": "brainfog", "source": ""}),
            Refusal {
                status: 400,
                code: "unknown_language",
                field: Some("language"),
                says: "brainfog",
            },
        ),
        (
            "language with control characters",
            json!({"language": "../python\u{1b}[2J", "source": ""}),
            Refusal { status: 400, code: "unknown_language", field: Some("language"), says: "" },
        ),
    ]
}

fn limits() -> Vec<(&'static str, Value, Refusal)> {
    let mut rows = Vec::new();
    for name in [
        "cpu_ms",
        "wall_ms",
        "memory_bytes",
        "processes",
        "output_bytes",
        "open_files",
        "file_size_bytes",
        "disk_bytes",
        "disk_inodes",
        "stack_bytes",
    ] {
        rows.push((name, with_limit(name, 0), invalid(None, "at least")));
        rows.push((name, with_limit(name, u64::MAX), invalid(None, "at most")));
        rows.push((name, with_limit(name, -1), invalid(None, "expected a whole number")));
        rows.push((name, with_limit(name, 1.5), invalid(None, "expected a whole number")));
        rows.push((name, with_limit(name, true), invalid(None, "expected a whole number")));
    }
    let compile = json!({"language": "c", "source": "", "compile_limits": {"cpu_ms": u64::MAX}});
    rows.push(("compile", compile, invalid(Some("compile_limits.cpu_ms"), "at most")));
    rows
}

fn names() -> Vec<(&'static str, Value, Refusal)> {
    let mut rows = Vec::new();
    for (name, says) in [
        ("../x", "`..`"),
        ("a/../../x", "`..`"),
        ("/etc/x", "relative"),
        ("a\u{0}b", "NUL"),
        ("", "empty"),
        (".", "`.`"),
        ("..", "`..`"),
        ("./x", "`.`"),
        ("a//b", "empty part"),
        ("a/", "empty part"),
    ] {
        rows.push((name, with_file(name), invalid(Some("files[0].name"), says)));
        let output = json!({"argv": ["/bin/true"], "outputs": [name]});
        rows.push((name, output, invalid(Some("outputs[0]"), says)));
    }
    let long = |count: usize| "n".repeat(count);
    rows.push(("long part", with_file(&long(256)), invalid(Some("files[0].name"), "255")));
    rows.push((
        "long path",
        with_file(&format!("{}/x", long(5000))),
        invalid(Some("files[0].name"), "longer"),
    ));
    rows.push((
        "deep path",
        with_file(&"d/".repeat(900).replace("d/", "d/d/")),
        invalid(Some("files[0].name"), ""),
    ));
    let two = |first: &str, second: &str| {
        json!({"argv": ["/bin/true"], "files": [
            {"name": first, "content": "1"}, {"name": second, "content": "2"}]})
    };
    rows.push(("duplicate", two("a", "a"), invalid(Some("files[1].name"), "earlier")));
    rows.push(("file as directory", two("a", "a/b"), invalid(None, "directory")));
    let outputs = json!({"argv": ["/bin/true"], "outputs": ["a", "a"]});
    rows.push(("duplicate output", outputs, invalid(Some("outputs[1]"), "earlier")));
    let file = |file: Value| json!({"argv": ["/bin/true"], "files": [file]});
    let base64 = file(json!({"name": "a", "content": "*", "encoding": "base64"}));
    rows.push(("bad base64", base64, invalid(Some("files[0].content"), "base64")));
    let encoding = file(json!({"name": "a", "content": "", "encoding": "rot13"}));
    rows.push(("encoding", encoding, invalid(Some("files[0].encoding"), "rot13")));
    rows.push(("no name", file(json!({"content": ""})), invalid(None, "missing field `name`")));
    rows.push((
        "mode",
        file(json!({"name": "a", "content": "", "mode": 4755})),
        invalid(None, "unknown field `mode`"),
    ));
    let many: Vec<_> = (0..5000).map(|n| json!({"name": n.to_string(), "content": ""})).collect();
    rows.push((
        "many files",
        json!({"argv": ["x"], "files": many}),
        invalid(Some("files"), "at most"),
    ));
    let many: Vec<_> = (0..5000).map(|n| n.to_string()).collect();
    rows.push((
        "many outputs",
        json!({"argv": ["x"], "outputs": many}),
        invalid(Some("outputs"), "at most"),
    ));
    let large = json!({"argv": ["x".repeat(1 << 20)]});
    rows.push(("large argument", large, invalid(Some("argv"), "at most")));
    rows
}

/// Bodies that are not valid JSON or have the wrong structure.
fn bytes() -> Vec<(&'static str, &'static [u8], Refusal)> {
    vec![
        ("empty body", b"", invalid(None, "empty")),
        ("not JSON", b"argv=ls", invalid(None, "JSON")),
        ("cut off", b"{\"argv\": [\"ls\"", invalid(None, "JSON")),
        ("something after", b"{\"argv\": [\"ls\"]} {}", invalid(None, "")),
        ("field twice", b"{\"argv\": [\"a\"], \"argv\": [\"b\"]}", invalid(None, "duplicate")),
        ("invalid UTF-8", b"{\"argv\": [\"\xff\xfe\"]}", invalid(None, "UTF-8")),
        ("overlong UTF-8", b"{\"argv\": [\"\xc0\xaf\"]}", invalid(None, "UTF-8")),
        ("lone surrogate", b"{\"argv\": [\"\\ud800\"]}", invalid(None, "")),
        ("not a number", b"{\"argv\": [\"a\"], \"limits\": {\"cpu_ms\": NaN}}", invalid(None, "")),
        ("huge number", b"{\"argv\": [\"a\"], \"limits\": {\"cpu_ms\": 1e999}}", invalid(None, "")),
        (
            "more than 64 bits",
            b"{\"argv\": [\"a\"], \"limits\": {\"cpu_ms\": 18446744073709551616}}",
            invalid(None, ""),
        ),
    ]
}

/// Requests that are rejected before their body is read.
fn envelopes(client: &Client) -> Vec<(&'static str, Response, Refusal)> {
    let good = client.execution(&shell("true"));
    let of_type = |value: &str| {
        let mut request = good.clone();
        request.headers = vec![("content-type".to_owned(), value.to_owned())];
        client.send(&request)
    };
    let mut untyped = good.clone();
    untyped.headers.clear();
    let with_token = |value: &str| client.send(&good.clone().header("authorization", value));
    let refused = |status, code, says| Refusal { status, code, field: None, says };
    let unknown = || refused(401, "unauthenticated", "token");
    vec![
        ("text", of_type("text/plain"), refused(415, "unsupported_media_type", "application/json")),
        ("xml", of_type("application/xml"), refused(415, "unsupported_media_type", "json")),
        ("no type", client.send(&untyped), refused(415, "unsupported_media_type", "json")),
        ("no token", client.anonymous().send(&good), unknown()),
        (
            "wrong token",
            with_token("Bearer cove_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
            unknown(),
        ),
        ("empty token", with_token("Bearer "), unknown()),
        ("other scheme", with_token("Basic dXNlcjpwYXNz"), unknown()),
        ("token in the query", client.anonymous().get("/v1/languages?token=x"), unknown()),
        ("no such path", client.get("/v1/nothing"), refused(404, "not_found", "/v1/nothing")),
        ("no such page", client.get("/nothing"), refused(404, "not_found", "/nothing")),
        ("dots", client.get("/v1/../etc/passwd"), refused(404, "not_found", "")),
        (
            "wrong method",
            client.send(&Request::new("PUT", "/v1/executions")),
            refused(405, "method_not_allowed", "PUT"),
        ),
        (
            "strange method",
            client.send(&Request::new("FETCH", "/v1/languages")),
            refused(405, "method_not_allowed", "FETCH"),
        ),
    ]
}

#[test]
fn bad_requests_are_told_what_is_wrong() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    for (name, request, expected) in
        shapes().into_iter().chain(values()).chain(limits()).chain(names())
    {
        check(name, &client.run(&request), &expected);
    }
    for (name, body, expected) in bytes() {
        let request = client.execution(&Value::Null).body(body);
        check(name, &client.send(&request), &expected);
    }
    for (name, response, expected) in envelopes(&client) {
        check(name, &response, &expected);
    }
    // The server still works.
    assert_eq!(run(&client, &shell("echo fine"))["stdout"], "fine\n");
}

#[test]
fn a_gibibyte_is_refused_without_being_read_or_kept() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    assert_eq!(run(&client, &shell("echo warm"))["stdout"], "warm\n");
    let before = process::resident_bytes(server.pid());
    let refused = Refusal { status: 413, code: "body_too_large", field: None, says: "bytes" };
    let request = client.execution(&Value::Null).body("{\"stdin\": \"");
    check("announced", &client.announce(&request, GIBIBYTE).unwrap(), &refused);
    let (response, sent) = client.stream(&request, GIBIBYTE).unwrap();
    check("streamed", &response, &refused);
    assert!(sent < GIBIBYTE, "the server read it all");
    let grown = process::resident_bytes(server.pid()).saturating_sub(before);
    assert!(grown < REFUSAL_BYTES_MAX, "the server grew by {grown} bytes");
    assert_eq!(run(&client, &shell("echo fine"))["stdout"], "fine\n");
}

#[test]
fn what_is_not_http_is_refused_or_dropped() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let smuggled = "POST /v1/executions HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\
                    transfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/languages HTTP/1.1\r\n\r\n";
    let long = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(1 << 20));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(10_000));
    // An invalid or incomplete HTTP/2 preface ends the connection.
    let framed = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &[0xff; 64]].concat();
    for bytes in [framed.as_slice(), b"PRI * HTTP/2.0\r\n\r\nXX", b"PRI"] {
        let mut stream = TcpStream::connect(client.address()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // The connection ends, with or without a response.
        let ended = stream.read_to_end(&mut Vec::new());
        let is_timeout = |error: &std::io::Error| error.kind() == ErrorKind::WouldBlock;
        assert!(!ended.as_ref().is_err_and(is_timeout), "{bytes:?} keeps a connection");
    }
    for bytes in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(),
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x00\x00\x00\x00\r\n\r\n",
        b"POST /v1/executions HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/executions HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"POST /v1/executions HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        smuggled.as_bytes(),
        long.as_bytes(),
        many.as_bytes(),
    ] {
        if let Ok(response) = client.raw(bytes) {
            let start = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
            assert!((400..500).contains(&response.status), "{start}: {}", response.status);
        }
    }
    assert_eq!(run(&client, &shell("echo fine"))["stdout"], "fine\n");
}

/// Metric families follow Prometheus' naming rules, and each is documented.
#[test]
fn metrics_are_named_by_the_rules_and_documented() {
    let _guard = beside_others();
    let server = serve();
    // Prometheus' older format contains the complete names of counters.
    let request = Request::new("GET", "/metrics").header("accept", "text/plain");
    let metrics = server.client().send(&request).text();
    let page = include_str!("../../../../docs/metrics.md");
    let mut count = 0;
    for line in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        count += 1;
        assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
        let odd = ["milliseconds", "microseconds", "ms", "us", "kilobytes"];
        assert!(!name.split('_').any(|part| odd.contains(&part)), "{line}");
        // The page abbreviates the common prefix of several names.
        let mut ends = name.match_indices('_').map(|(at, _)| format!("…{}`", &name[at..]));
        let is_documented =
            page.contains(&format!("`{name}`")) || ends.any(|end| page.contains(&end));
        assert!(is_documented, "docs/metrics.md lacks {line}");
    }
    assert!(count > 50, "{metrics}");
}
