//! Sessions cannot reach the server, its keys, the host, other sessions, other tenants.

use std::fs;

use serde_json::{Value, json};
use testkit::{Receiver, Request, eventually, process, until};

use crate::asynchronous::{assert_error, post_request};
use crate::sessions_support::{
    SOON, Sessions, ok, path, probe, serve_sessions, start_inside, with,
};
use crate::support::{beside_others, wait_until_gone};

/// Secret of one session that no other session may find.
const SECRET: &str = "the-secret-of-the-first-session";
/// The server's key for the model.
const KEY: &str = "sk-isolation-4711";
/// Maximum memory that a flood of any size may cost the server.
const FLAT_BYTES: u64 = 96 << 20;

/// A Python script that prints the outcome of each attempt.
const ATTEMPTS: &str = r#"
import ctypes, os, socket, sys
port, host = int(sys.argv[1]), sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)

def attempt(name, act):
    try:
        print(name, "DID", act())
    except Exception as error:
        print(name, "failed", type(error).__name__, error)

def call(number, *arguments):
    if libc.syscall(number, *arguments) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "it"

def connect(kind, address, family=socket.AF_INET):
    with socket.socket(family, kind) as peer:
        peer.settimeout(3)
        peer.connect(address)
        if kind == socket.SOCK_DGRAM:
            peer.send(b"x")
        return "connected"

stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
attempt("server", lambda: connect(stream, ("127.0.0.1", port)))
attempt("server by name", lambda: connect(stream, ("localhost", port)))
attempt("server by host", lambda: connect(stream, (host, port)))
attempt("other port", lambda: connect(stream, ("127.0.0.1", 9471)))
attempt("abstract", lambda: connect(stream, "\0cove-test-abstract", socket.AF_UNIX))
attempt("network", lambda: connect(stream, ("1.1.1.1", 80)))
attempt("network6", lambda: connect(stream, ("2606:4700:4700::1111", 80), socket.AF_INET6))
attempt("datagram", lambda: connect(datagram, ("1.1.1.1", 53)))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
attempt("vsock", lambda: connect(stream, (2, 1024), socket.AF_VSOCK))
attempt("shadow", lambda: open("/etc/shadow").read())
attempt("init environ", lambda: open("/proc/1/environ").read())
attempt("init root", lambda: os.listdir("/proc/1/root/"))
attempt("init fd", lambda: os.listdir("/proc/1/fd"))
attempt("init mem", lambda: open("/proc/1/mem", "r+b"))
attempt("init kill", lambda: os.kill(1, 9))
attempt("sysrq", lambda: open("/proc/sysrq-trigger", "w"))
attempt("core pattern", lambda: open("/proc/sys/kernel/core_pattern", "w"))
attempt("mknod", lambda: os.mknod("/tmp/sda", 0o60600, os.makedev(8, 0)))
attempt("setuid", lambda: os.setuid(0))
attempt("root", lambda: open("/made", "w"))
attempt("usr", lambda: open("/usr/bin/made", "w"))
attempt("chroot", lambda: os.chroot("/tmp"))
attempt("mount", lambda: call(165, b"none", b"/tmp", b"tmpfs", 0, None))
attempt("unshare", lambda: call(272, 0x10000000))
attempt("ptrace", lambda: call(101, 16, 1, 0, 0))
attempt("bpf", lambda: call(321, 0, None, 0))
attempt("keyctl", lambda: call(250, 0, -3, 0, 0, 0))
attempt("io_uring", lambda: call(425, 8, ctypes.create_string_buffer(256)))
attempt("reboot", lambda: call(169, 0xfee1dead, 672274793, 0x1234567, None))
print("pids", sorted(int(name) for name in os.listdir("/proc") if name.isdigit()))
"#;

/// Returns an address of this machine that is not loopback, if it has one.
fn host_address() -> String {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // Connecting a UDP socket only selects the route, and sends nothing.
    let address = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    address.map_or("127.0.0.2".to_owned(), |address| address.ip().to_string())
}

#[test]
fn a_program_reaches_nothing_but_its_own_session() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    sessions.deploy(&probe("probe"));
    let mine = json!({"agent": "probe", "env": {"MINE": SECRET}});
    let first = sessions.create(&mine);
    sessions.ask(&first, &format!("keep /workspace/secret {SECRET}"));
    sessions.ask(&first, &format!("keep /tmp/secret {SECRET}"));
    // A server in the first session's sandbox, with a TCP and an abstract socket.
    let listen = r#"setsid python3 -c '
import socket, time
tcp = socket.create_server(("0.0.0.0", 9471))
unix = socket.socket(socket.AF_UNIX); unix.bind("\0cove-test-abstract"); unix.listen()
open("/tmp/listens", "w")
time.sleep(600)' > /dev/null 2>&1 < /dev/null &
while [ ! -e /tmp/listens ]; do sleep 0.01; done"#;
    sessions.out(&first, listen);
    assert_eq!(sessions.ask(&first, "connect 9471"), "connected");
    assert_eq!(sessions.ask(&first, "connect @cove-test-abstract"), "connected");
    let second = sessions.create(&json!({"agent": "probe"}));
    sessions.ask(&second, "hello");
    assert_eq!(sessions.write(&second, "attempts.py", ATTEMPTS.as_bytes()).status / 100, 2);
    let port = server.client().address().port();
    let command = format!("python3 attempts.py {port} {}", host_address());
    let found = sessions.out(&second, &command);
    // The kernel drops a signal to process 1, so this successful call has no effect.
    let did = found.lines().filter(|line| line.contains(" DID ") && *line != "init kill DID None");
    assert_eq!(did.collect::<Vec<_>>(), [""; 0], "{found}");
    let pids = found.lines().last().unwrap().split(',').count();
    assert!(pids < 8, "{found}");
    // The same attempts by the session's agent, and a search of files and processes.
    for peer in ["9471".to_owned(), "@cove-test-abstract".to_owned(), port.to_string()] {
        let came = sessions.ask(&second, &format!("connect {peer}"));
        assert!(came.starts_with("refused"), "{peer}: {came}");
    }
    let data = server.data_dir();
    // The command line is visible in `/proc`, so it must not contain the searched text.
    let search = "ls -d /tmp/cove-tes[t]* /var/lib/cov[e]; cat /proc/*/environ /proc/*/cmdline; \
         grep -rs the-secre[t]-of /workspace /home /tmp /dev/shm /var /run /etc /opt /srv /mnt; \
         env; cat /proc/self/status; cat /proc/self/mountinfo; ls -la / /dev; true";
    let seen = sessions.exec(&second, search)["stdout"].as_str().unwrap().to_owned();
    let data = data.display().to_string();
    for hidden in [SECRET, server.token(), &first, &data] {
        // A sandbox can read no table that contains the path of a loop device's file.
        assert!(!seen.contains(hidden), "{hidden}: {seen}");
    }
    for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(seen.lines().any(|it| it == line), "{line}: {seen}");
    }
    // The first session is not affected.
    assert_eq!(sessions.out(&first, "cat secret /tmp/secret"), SECRET.repeat(2));
    assert_eq!(sessions.out(&second, "ls -A"), "attempts.py\nprobe.py\n");
}

#[test]
fn another_tenant_finds_nothing() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    sessions.ask(&session, "mine");
    let target = format!("{}/snapshots", path(&session));
    let snapshot = ok(&sessions.client.send(&post_request(&target, &json!({}))));
    let opened = format!("{}/terminal?argv=cat&detach_s=600", path(&session));
    let mut socket = sessions.client.websocket(&opened).unwrap();
    let terminal = socket.json()["terminal"].as_str().unwrap().to_owned();
    let client = server.other_client("other", &["--tenant", "other"]);
    let at = |rest: &str| format!("{}{rest}", path(&session));
    let get = |rest: &str| Request::new("GET", &at(rest));
    let post = |rest: &str, body: &Value| post_request(&at(rest), body);
    let empty = json!({});
    for request in [
        get(""),
        get("/messages"),
        get("/events"),
        get("/events").header("accept", "application/json"),
        get("/logs"),
        get("/files"),
        get("/files/probe.py"),
        get("/archive"),
        get("/watch"),
        get("/terminals"),
        crate::revocation::websocket(&at(&format!("/terminal?attach={terminal}"))),
        Request::new("DELETE", &at(&format!("/terminals/{terminal}"))),
        get("/metrics"),
        get("/snapshots"),
        get("/attachments"),
        post("/messages", &json!({"content": "hello"})),
        post("/exec", &json!({"command": "id"})),
        post("/pause", &empty),
        post("/stop", &empty),
        post("/resume", &empty),
        post("/fork", &empty),
        post("/interrupt", &empty),
        post("/snapshots", &empty),
        Request::new("PUT", &at("/files/x")).body("x"),
        Request::new("PUT", &at("/archive")).body("x"),
        Request::new("DELETE", &at("/files/probe.py")),
        Request::new("DELETE", &at("")),
        Request::new("GET", "/v1/agents/probe"),
        Request::new("GET", "/v1/agents/probe/files/probe.py"),
        Request::new("DELETE", "/v1/agents/probe"),
        Request::new("DELETE", &format!("/v1/snapshots/{}", snapshot["id"].as_str().unwrap())),
        post_request("/v1/sessions", &json!({"agent": "probe"})),
        post_request("/v1/sessions", &json!({"snapshot": snapshot["id"]})),
    ] {
        let response = client.send(&request);
        let what = format!("{} {}", request.method, request.target);
        assert_eq!(response.status, 404, "{what}: {}", response.text());
    }
    for list in ["/v1/sessions", "/v1/agents", "/v1/snapshots", "/v1/credentials"] {
        let response = ok(&client.get(list));
        let things = response.as_object().unwrap().values().next().unwrap();
        assert_eq!(*things, json!([]), "{list}: {response}");
    }
    assert_eq!(ok(&client.get("/v1/usage"))["total"]["turns"], 0);
    assert_eq!(sessions.record(&session)["state"], "active");
    assert_eq!(sessions.recall(&session), ["mine", "recall"]);
}

/// Requests that an agent may not send with the server's key, to the model's endpoint or elsewhere.
const ELSEWHERE: &[&str] = &[
    "GET /",
    "POST /v1/../admin",
    "POST /v1/messages/../../admin",
    "POST /v1/%2e%2e/admin",
    "POST //evil.example/v1/messages",
    "POST http://evil.example/v1/messages/batches",
    "CONNECT evil.example:443",
    "GET /v1/files",
    "POST /v1/messages/batches",
    "DELETE /v1/messages",
    "TRACE /v1/messages",
    "POST /V1/messages",
];

#[test]
fn the_way_to_the_model_leads_there_only_and_has_no_key() {
    let _guard = beside_others();
    let model = Receiver::start(|_| {
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nset-cookie: a=b\r\n\
         x-secret: of-the-endpoint\r\ncontent-length: 2\r\n\r\n{}"
    });
    let model_url = format!("http://{}", model.address());
    let server = serve_sessions(&format!(
        "[sessions.model]\nurl = {model_url:?}\napi_key = \"file:{}\"",
        testkit_file(KEY)
    ));
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    sessions.ask(&session, "hello");
    let ask = |request: &str| {
        let script = format!(
            r#"python3 -c '
import socket, sys
peer = socket.create_connection(("127.0.0.1", 8100), 10)
peer.sendall({request:?}.encode("latin-1"))
answer = b""
try:
    while chunk := peer.recv(65536):
        answer += chunk
except OSError as error:
    answer += str(error).encode()
sys.stdout.buffer.write(answer)'"#
        );
        sessions.out(&session, &script)
    };
    let request = |line: &str, more: &str| {
        format!(
            "{line} HTTP/1.1\r\nhost: evil.example\r\nx-api-key: own\r\nauthorization: Bearer own\r\n\
             cookie: a=b\r\nconnection: close\r\ncontent-type: application/json\r\n{more}\
             content-length: 2\r\n\r\n{{}}"
        )
    };
    let answer = ask(&request("POST /v1/messages", ""));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(!answer.contains("of-the-endpoint") && !answer.contains("a=b"), "{answer}");
    let delivered = model.delivered();
    assert_eq!(delivered.len(), 1);
    assert_eq!(delivered[0].line, "POST /v1/messages");
    assert_eq!(delivered[0].header("x-api-key"), KEY);
    assert_eq!(delivered[0].header("host"), model.address().to_string());
    assert!(!format!("{:?}", delivered[0].headers).contains("own"), "{delivered:?}");
    for line in ELSEWHERE {
        let answer = ask(&request(line, ""));
        assert!(answer.starts_with("HTTP/1.1 4"), "{line}: {answer}");
        assert!(!answer.contains(KEY), "{line}: {answer}");
    }
    // Ambiguous framing does not turn one request into two.
    for more in ["transfer-encoding: chunked\r\n", "content-length: 40\r\n"] {
        let smuggled = format!(
            "{}POST /v1/files HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
            request("POST /v1/messages", more)
        );
        let answer = ask(&smuggled);
        assert!(!answer.contains(KEY), "{more}: {answer}");
    }
    for delivered in model.delivered() {
        assert_eq!(delivered.line, "POST /v1/messages", "{delivered:?}");
    }
    // The key is in no environment, on no command line and in no event of the session.
    let seen = sessions.exec(&session, "env; cat /proc/*/environ; cat /proc/*/cmdline; true");
    assert!(!seen.to_string().contains(KEY), "{seen}");
    assert!(!format!("{:?}", sessions.kept(&session, 0)).contains(KEY));
}

/// Creates a file with a secret below the target directory of the tests. Returns its path.
fn testkit_file(content: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("isolation-key");
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

/// Paths in a workspace that must not be read.
const READS: &[&str] = &[
    "init",
    "shadow",
    "outside",
    "loop",
    "fifo",
    "zero",
    "fds",
    "closed/f",
    "initroot/etc/passwd",
    "tty",
    "root/etc/shadow",
    "root/proc/kcore",
    "..%2f..%2f..%2fetc%2fshadow",
    "%2fetc%2fshadow",
    "/etc/shadow",
    "nothing%00",
    "%ff%fe",
    "",
    "root/proc/1/mem",
    "root/proc/kmsg",
    "root/sys/kernel/debug",
];
/// Paths in a workspace that must not be written to.
const WRITES: &[&str] = &[
    "root/etc/made",
    "root/usr/bin/made",
    "closed/g",
    "initroot/tmp/made",
    "root/proc/sys/kernel/hostname",
    "root/dev/shm",
    "root/proc/self/mem",
];

#[test]
fn no_path_leads_out_of_a_session() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let outside = server.scratch().file("outside", "untouched");
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    let out = outside.display().to_string();
    sessions.out(
        &session,
        &format!(
            "ln -s /proc/1/environ init; ln -s /etc/shadow shadow; ln -s {out} outside; \
             ln -s / root; ln -s loop loop; mkfifo fifo; ln -s /dev/zero zero; \
             ln -s /proc/self/fd fds; mkdir closed; echo x > closed/f; chmod 000 closed; \
             ln -s /proc/1/root initroot; ln -s /dev/tty tty; ln -s . self"
        ),
    );
    let long = "n".repeat(256);
    let deep = "d/".repeat(3000);
    for file in READS.iter().chain(&[&*long, &*deep]) {
        let response = sessions.read(&session, file);
        let excerpt: String = file.chars().take(40).collect();
        assert!(
            (400..500).contains(&response.status),
            "{excerpt}: {} {}",
            response.status,
            response.text()
        );
        assert!(!response.text().contains("root:"), "{excerpt}: {}", response.text());
    }
    for file in WRITES.iter().chain(&[&*long, &*deep]) {
        let response = sessions.write(&session, file, b"evil");
        let excerpt: String = file.chars().take(40).collect();
        let status = response.status;
        assert!((400..500).contains(&status), "{excerpt}: {status} {}", response.text());
    }
    // A write to a link or special file replaces it or is rejected; the link's target does not
    // change.
    for file in ["outside", "loop", "zero", "tty", "fifo", "root/dev/full"] {
        let response = sessions.write(&session, file, b"evil");
        assert!(response.status < 500, "{file}: {}", response.text());
    }
    assert_eq!(fs::read_to_string(&outside).unwrap(), "untouched");
    for file in ["root/etc", "root", "initroot/etc", "closed/f"] {
        let target = format!("{}/files/{file}?recursive=true", path(&session));
        let response = sessions.client.send(&Request::new("DELETE", &target));
        assert!(file == "root" || response.status >= 400, "{file}: {}", response.text());
    }
    // The session still works after the rejected requests, and a recursive listing ends.
    let target = format!("{}/files?path=/workspace&depth=32", path(&session));
    let listed = ok(&sessions.client.get(&target));
    assert!(listed.to_string().contains("probe.py"), "{listed}");
    // A directory that the session's user cannot read cannot be packed, so its mode is restored.
    // Links are packed as links, without their targets.
    sessions.out(&session, "chmod 755 closed");
    let archive = sessions.client.get(&format!("{}/archive?path=/workspace", path(&session)));
    assert_eq!(archive.status, 200, "{}", archive.text());
    assert!(!process::contains(&archive.body, b"root:"));
    assert_eq!(sessions.recall(&session), ["recall"]);
}

#[test]
fn an_archive_unpacks_into_the_session_and_nowhere_else() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    let outside = server.scratch().path().join("unpacked");
    // Python's `tarfile` can write entries that tar programs do not.
    let make = format!(
        r#"python3 -c '
import io, tarfile
def entry(name, kind=tarfile.REGTYPE, link="", data=b"evil", mode=0o644):
    it = tarfile.TarInfo(name); it.type = kind; it.linkname = link; it.mode = mode
    it.size = len(data) if kind == tarfile.REGTYPE else 0
    return it, io.BytesIO(data)
for number, entries in enumerate([
    [entry("../../../../../../{out}")],
    [entry("/{out}")],
    [entry("l", tarfile.SYMTYPE, "/etc"), entry("l/made")],
    [entry("d", tarfile.SYMTYPE, "/tmp"), entry("d/../../etc/made")],
    [entry("h", tarfile.LNKTYPE, "/etc/passwd")],
    [entry("h2", tarfile.LNKTYPE, "../../../etc/passwd")],
    [entry("dev", tarfile.BLKTYPE)],
    [entry("chr", tarfile.CHRTYPE)],
    [entry("suid", mode=0o6755)],
    [entry("x" * 300)],
]):
    with tarfile.open(f"/tmp/{{number}}.tar", "w") as tar:
        for it, data in entries: tar.addfile(it, data)
print(number + 1)'"#,
        out = outside.display().to_string().trim_start_matches('/'),
    );
    let count: usize = sessions.out(&session, &make).trim().parse().unwrap();
    for number in 0..count {
        let file = sessions.client.get(&format!("{}/files//tmp/{number}.tar", path(&session)));
        assert_eq!(file.status, 200, "{}", file.text());
        let target = format!("{}/archive?path=/workspace", path(&session));
        let response = sessions.client.send(&Request::new("PUT", &target).body(file.body));
        assert!(response.status < 500, "{number}: {} {}", response.status, response.text());
    }
    assert!(!outside.exists());
    let looked = sessions.out(
        &session,
        "find / -xdev -name made 2>/dev/null; find /workspace -type b -o -type c; true",
    );
    assert_eq!(looked, "");
    assert_eq!(sessions.recall(&session), ["recall"]);
    // Data that is not an archive.
    let target = format!("{}/archive?path=/workspace", path(&session));
    for body in [vec![0xff; 4096], b"short".to_vec(), vec![b'a'; 1 << 20]] {
        let response = sessions.client.send(&Request::new("PUT", &target).body(body));
        assert!((400..500).contains(&response.status), "{} {}", response.status, response.text());
    }
}

#[test]
fn floods_cost_the_server_nothing_that_lasts() {
    let _guard = beside_others();
    let server = serve_sessions("line_bytes_max = 1000000");
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    sessions.ask(&session, "hello");
    let before = process::resident_bytes(server.pid());
    let check = |what: &str| {
        eventually(SOON, || {
            let now = process::resident_bytes(server.pid()).saturating_sub(before);
            if now <= FLAT_BYTES { Ok(()) } else { Err(format!("{now} bytes more after {what}")) }
        })
        .unwrap();
    };
    let flood = sessions.exec(&session, "head -c 300M /dev/zero | tr '\\0' x");
    assert_eq!(flood["truncated"], true);
    check("output");
    // A line that exceeds the limit is an error, and is not read to its end.
    let turn = sessions.hear(&session, "line 50000000");
    assert_eq!(turn.errors().len(), 1);
    check("a line");
    for _ in 0..60 {
        sessions.ask(&session, &format!("stderr {}", "y".repeat(100_000)));
    }
    check("errors");
    let logs = ok(&sessions.client.get(&format!("{}/logs", path(&session))));
    assert!(logs.to_string().len() < 20 << 20, "{}", logs.to_string().len());
    // Clients that subscribe and do not read.
    let unread: Vec<_> = (0..8)
        .map(|_| {
            let request = Request::new("GET", &format!("{}/events", path(&session)));
            sessions.client.open(&request).unwrap()
        })
        .collect();
    sessions.ask(&session, "flood 20 100000");
    check("listeners");
    drop(unread);
    // Orphaned processes belong to the sandbox, and end with it.
    let marked = start_inside(&sessions, &session);
    sessions.exec(&session, "for i in $(seq 100); do setsid sleep 7766.5 & done; true");
    sessions.end(&session);
    wait_until_gone("7766.5");
    until("the end of the one before", SOON, || match process::name(marked) {
        name if name == "sleep" => Err(name),
        _ => Ok(()),
    });
}

#[test]
fn names_and_ids_are_what_the_server_says() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let agent = with(
        probe("probe"),
        &json!({"env": {"COVE_SESSION_ID": "ses_forged", "COVE_RESUMED": "1"}}),
    );
    sessions.deploy(&agent);
    let session = sessions.create(&json!({"agent": "probe"}));
    let who: Value = serde_json::from_str(&sessions.ask(&session, "who")).unwrap();
    assert_eq!(who["session"], session.as_str());
    for id in
        ["ses_../../etc", "ses_%00", "..", "%2e%2e", "ses_' OR 1=1 --", &"s".repeat(5000), "ses_"]
    {
        let id: String = id.replace(' ', "%20").replace('\'', "%27");
        let response = sessions.client.get(&format!("/v1/sessions/{id}"));
        assert!([400, 404, 414, 431].contains(&response.status), "{id}: {}", response.status);
    }
    for name in ["../x", "a b", "", "-x", "x/y", &"n".repeat(65), "\u{0}"] {
        let response = crate::asynchronous::post(
            &sessions.client,
            "/v1/agents",
            &with(agent.clone(), &json!({"name": name})),
        );
        if name == "-x" && response.status == 201 {
            continue;
        }
        assert_error(&response, 400, "invalid_request", Some("name"));
    }
    for file in ["../x", "/x", "a/../b", "a//b", "", ".", "a/./b", "\u{0}", "x/"] {
        let files = json!({"name": "files", "files": [{"path": file, "content": "x"}]});
        let response = crate::asynchronous::post(&sessions.client, "/v1/agents", &files);
        assert_error(&response, 400, "invalid_request", Some("files[0].path"));
    }
}
