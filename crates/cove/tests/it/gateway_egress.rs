//! Grants of external servers, used from a sandbox: what must not leave, what must not enter, and
//! what works. The tests check the requests that external servers receive.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use testkit::{Certificate, Scratch, Server};

use crate::gateway::{CANARY, audit, python};
use crate::gateway_drivers::unpack;
use crate::gateway_outside::{BAD, CUT, Names, Target};
use crate::sessions_support::{Sessions, config};
use crate::support::{COVE, beside_others};

/// Program that sends requests byte by byte.
const ATTEMPTS: &str = include_str!("../programs/attempts.py");

/// Script that starts a server with its own names.
const OWN_NAMES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/own_names.sh");

/// External names with their addresses, at the first lookup and later ones.
const NAMES: &[(&str, &[&[&str]])] = &[
    ("api.test", &[&["127.0.0.2"]]),
    ("plain.test", &[&["127.0.0.2"]]),
    ("tls.test", &[&["127.0.0.2"]]),
    ("rebind.test", &[&["127.0.0.2"], &["127.0.0.1"]]),
    ("turns.test", &[&["127.0.0.2"], &["127.0.0.2"], &["169.254.169.254"]]),
    ("mixed.test", &[&["127.0.0.2", "127.0.0.1"]]),
    ("public.test", &[&["8.8.8.8", "127.0.0.1"]]),
    ("localhost", &[&["127.0.0.1"]]),
    ("loop.test", &[&["127.0.0.1"]]),
    ("six.test", &[&["::1"]]),
    ("mapped.test", &[&["::ffff:127.0.0.1"]]),
    ("nat.test", &[&["64:ff9b::7f00:1"]]),
    ("metadata.test", &[&["169.254.169.254"]]),
    ("private.test", &[&["10.0.0.1"]]),
    ("unique.test", &[&["fd00:ec2::254"]]),
];

/// External servers, a server with grants for them, and a session.
struct Outside {
    target: Target,
    tls: Target,
    names: Names,
    server: Server,
    sessions: Sessions,
    session: String,
    scratch: Scratch,
}

impl Outside {
    fn start() -> Outside {
        let scratch = Scratch::new();
        let certificate = Certificate::named(&scratch, "tls.test");
        let (target, tls) = (Target::start(), Target::start_with(&certificate));
        let names = Names::start(NAMES);
        scratch.file("resolv.conf", format!("nameserver {}\n", names.address));
        scratch.file("nsswitch.conf", "hosts: files dns\n");
        symlink(COVE, scratch.path().join("binary")).unwrap();
        symlink(OWN_NAMES, scratch.path().join("cove")).unwrap();
        let table = config(&format!("[gateway.secrets]\npartner = \"Bearer {CANARY}\""));
        let binary = scratch.path().join("cove");
        let server = Server::start_with(binary.to_str().unwrap(), &[], Some(&table));
        let sessions = Sessions::from(&server);
        let outside =
            Outside { target, tls, names, server, sessions, session: String::new(), scratch };
        let grant = json!({"kind": "http", "rules": outside.rules()});
        let session = outside.sessions.create(&json!({"grants": [grant]}));
        Outside { session, ..outside }
    }

    fn rules(&self) -> Value {
        let [plain, tls, own] = self.ports();
        let key = json!({"authorization": {"secret": "partner"}});
        json!([
            {"effect": "deny", "hosts": ["api.test"], "paths": ["/admin/*"]},
            {
                "hosts": ["api.test"], "ports": [plain], "methods": ["GET", "POST"],
                "paths": ["/v1/*"], "internal": ["127.0.0.2"], "headers": key,
            },
            {
                "hosts": ["tls.test"], "ports": [tls], "methods": ["GET"], "tls": true,
                "internal": ["127.0.0.2"], "headers": key,
            },
            {"hosts": ["tls.test"], "ports": [tls], "methods": ["CONNECT"], "internal": ["127.0.0.2"]},
            {
                "hosts": ["plain.test", "rebind.test", "turns.test", "mixed.test", "127.0.0.2"],
                "ports": [plain], "methods": ["GET", "POST", "HEAD"], "internal": ["127.0.0.2"],
            },
            {"hosts": ["*"], "ports": [80, 443, plain, tls, own]},
        ])
    }

    /// Returns the ports of the plain server, of the TLS one, and of Cove's own interface.
    fn ports(&self) -> [u16; 3] {
        let own = self.server.client().address();
        [self.target.address, self.tls.address, own].map(|it| it.port())
    }

    /// Fills ports, the number of the attempt and longer texts into a template.
    fn filled(&self, number: usize, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, beginning) in BEGINNINGS {
            text = text.replace(name, beginning);
        }
        let [plain, tls, own] = self.ports().map(|it| it.to_string());
        let (number, huge, many) =
            (number.to_string(), "x".repeat(100_000), "X: y\r\n".repeat(200));
        for (name, value) in [
            ("{HIDDEN}", HIDDEN),
            ("{END}", END),
            ("{HUGE}", &huge),
            ("{MANY}", &many),
            ("{N}", &number),
            ("{P}", &plain),
            ("{T}", &tls),
            ("{OWN}", &own),
        ] {
            text = text.replace(name, value);
        }
        text
    }

    /// Makes attempts, and checks the results on both sides.
    fn check(&self, attempts: &[Attempt]) {
        let all = attempts.iter().enumerate();
        // Every fifth is sent byte by byte.
        let sent: Vec<Vec<String>> = all
            .clone()
            .map(|(number, (sent, ..))| {
                let sent = self.filled(number, sent);
                let is_slow = number % 5 == 0 && sent.len() < 1000;
                if is_slow { sent.chars().map(String::from).collect() } else { vec![sent] }
            })
            .collect();
        let answers = self.attempt(&sent);
        let mut wrong = Vec::new();
        for ((sent, statuses, _), answer) in attempts.iter().zip(&answers) {
            if status_of_each(answer) != *statuses || answer.contains(CANARY) {
                wrong.push(format!("{sent:?}: {answer:?}"));
            }
        }
        let mut expected: Vec<String> = all
            .filter(|(_, (.., seen))| !seen.is_empty())
            .map(|(number, (.., seen))| self.filled(number, seen))
            .collect();
        let (cut, seen) =
            self.target.seen().into_iter().partition::<Vec<_>, _>(|it| it.starts_with(CUT));
        assert!(!cut.concat().contains("/admin/"), "{cut:?}");
        let mut seen: Vec<String> = seen.iter().map(|it| self.looked_at(it)).collect();
        expected.sort_unstable();
        seen.sort_unstable();
        assert!(wrong.is_empty(), "{}\n{seen:#?}", wrong.join("\n"));
        assert_eq!(seen, expected);
        assert_eq!(self.tls.seen(), [""; 0]);
    }

    /// Returns the first line and body of a request, after checking the form that a proxy must
    /// write.
    fn looked_at(&self, seen: &str) -> String {
        let (head, body) = seen.split_once("\r\n\r\n").unwrap();
        let (line, headers) = head.split_once("\r\n").unwrap();
        let line = line.strip_suffix(" HTTP/1.1").unwrap_or_else(|| panic!("{seen}"));
        let is_api = line.split(' ').nth(1).unwrap().starts_with("/v1/");
        let host = if is_api { "api.test" } else { "plain.test" };
        let host = format!("{host}:{}", self.target.address.port());
        let of = |name: &str| -> Vec<&str> {
            let lines = headers.lines().filter_map(|line| line.split_once(": "));
            lines.filter(|(it, _)| *it == name).map(|(_, value)| value).collect()
        };
        assert_eq!((of("host"), of("connection")), (vec![&*host], vec!["close"]), "{seen}");
        let key = format!("Bearer {CANARY}");
        let keys = if is_api { vec![&*key] } else { Vec::new() };
        assert_eq!(of("authorization"), keys, "{seen}");
        let framings = of("content-length").len() + of("transfer-encoding").len();
        assert!(framings <= 1 && !headers.contains(['\0', '\x0b']), "{seen}");
        format!("{line}\n{body}")
    }

    /// Makes concurrent attempts; returns the complete responses.
    fn attempt(&self, attempts: &[Vec<String>]) -> Vec<String> {
        let list = serde_json::to_vec(attempts).unwrap();
        assert!(self.sessions.write(&self.session, "attempts.json", &list).status < 300);
        let output = python(&self.sessions, &self.session, ATTEMPTS, "attempts.json");
        serde_json::from_str(&output).unwrap()
    }
}

/// Returns the status of each response; checks that the connection has ended.
fn status_of_each(answer: &str) -> Vec<u16> {
    assert!(!answer.ends_with("NO END"), "{answer}");
    answer.split("HTTP/1.1 ").skip(1).map(|part| part[..3].parse().unwrap()).collect()
}

/// End of the head of a connection's last request.
const END: &str = "Connection: close\r\n\r\n";

/// Request after another one, which is refused if it is recognized as a request. If an external
/// server receives it, the proxy has forwarded it as part of another request.
const HIDDEN: &str =
    "GET http://api.test:{P}/admin/{N} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/// Abbreviations for the beginning of most requests.
const BEGINNINGS: [(&str, &str); 3] = [
    ("{CHUNKS}", "{POST}Transfer-Encoding: chunked\r\n\r\n"),
    ("{POST}", "POST http://plain.test:{P}/{N} HTTP/1.1\r\nHost: x\r\n"),
    ("{GET}", "GET http://plain.test:{P}/{N} HTTP/1.1\r\nHost: x\r\n"),
];

/// Request, the status of each response, and what the external server receives: its first line, and
/// its body on the next one.
type Attempt = (&'static str, &'static [u16], &'static str);

/// Requests followed by another one, whose end is ambiguous.
const SMUGGLED: &[Attempt] = &[
    // The chunks apply, and nothing after them is read.
    (
        "{POST}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}",
        &[200],
        "POST /{N}\n0\r\n\r\n",
    ),
    (
        "{POST}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{HIDDEN}",
        &[200],
        "POST /{N}\n0\r\n\r\n",
    ),
    // `Content-Length`.
    ("{POST}Content-Length: 0\r\nContent-Length: 40\r\n\r\n{HIDDEN}", &[400], ""),
    ("{POST}Content-Length: 0\r\nContent-Length: 0\r\n\r\n{HIDDEN}", &[200, 403], "POST /{N}\n"),
    ("{POST}Content-Length: 0, 40\r\n\r\n{HIDDEN}", &[400], ""),
    ("{POST}Content-Length: +0\r\n\r\n{HIDDEN}", &[400], ""),
    ("{POST}Content-Length: -1\r\n\r\n{HIDDEN}", &[400], ""),
    ("{POST}Content-Length: 0x0\r\n\r\n{HIDDEN}", &[400], ""),
    ("{POST}Content-Length: 18446744073709551616\r\n\r\n{HIDDEN}", &[400], ""),
    ("{POST}Content-Length : 0\r\n\r\n{HIDDEN}", &[400], ""),
    ("{POST}Content-Length:\x0b0\r\n\r\n{HIDDEN}", &[400], ""),
    ("{POST}Content_Length: 40\r\n\r\n{HIDDEN}", &[200, 403], "POST /{N}\n"),
    (
        "{POST}Content-Length: 0\r\nConnection: content-length\r\n\r\n{HIDDEN}",
        &[200, 403],
        "POST /{N}\n",
    ),
    ("{GET}Content-Length: 9\r\n\r\nGET /admi{HIDDEN}", &[200, 403], "GET /{N}\nGET /admi"),
    // `Transfer-Encoding`.
    ("{POST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{HIDDEN}", &[400], ""),
    ("{POST}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{HIDDEN}", &[400], ""),
    ("{POST}Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n{HIDDEN}", &[400, 403], ""),
    (
        "{POST}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n{HIDDEN}",
        &[400],
        "",
    ),
    ("{POST}Transfer-Encoding: identity\r\nContent-Length: 0\r\n\r\n{HIDDEN}", &[400], ""),
    ("{POST}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{HIDDEN}", &[400], ""),
    ("{POST}Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n{HIDDEN}", &[400], ""),
    (
        "POST http://plain.test:{P}/{N} HTTP/1.0\r\nConnection: keep-alive\r\n\
         Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}",
        &[400],
        "",
    ),
    // Folded header lines, and other line ends.
    ("{POST}X: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}", &[400], ""),
    ("{POST}X: y\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}", &[400], ""),
    (
        "{POST}X: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}",
        &[200, 403],
        "POST /{N}\n0\r\n\r\n",
    ),
    (
        "POST http://plain.test:{P}/{N} HTTP/1.1\nHost: x\nContent-Length: 0\n\n{HIDDEN}",
        &[200, 403],
        "POST /{N}\n",
    ),
    ("{POST}X\0: y\r\nContent-Length: 0\r\n\r\n{HIDDEN}", &[400], ""),
    ("{POST}X: y\0z\r\nContent-Length: 0\r\n\r\n{HIDDEN}", &[400], ""),
    ("{POST}: y\r\nContent-Length: 0\r\n\r\n{HIDDEN}", &[400], ""),
    ("\r\n\r\n{GET}\r\n{HIDDEN}", &[200, 403], "GET /{N}\n"),
    // Chunk syntax.
    ("{CHUNKS}0;x=y\n\r\n\r\n{HIDDEN}", &[400], ""),
    ("{CHUNKS}0\n\n{HIDDEN}", &[400], ""),
    ("{CHUNKS}0x0\r\n\r\n{HIDDEN}", &[400], ""),
    ("{CHUNKS}-1\r\n\r\n{HIDDEN}", &[400], ""),
    ("{CHUNKS}10000000000000000\r\n\r\n{HIDDEN}", &[400], ""),
    ("{CHUNKS}2\r\nokXX0\r\n\r\n{HIDDEN}", &[400], ""),
    (
        "{POST}Transfer-Encoding: chunked\r\nTrailer: Host, Authorization\r\n\r\n\
         0\r\nHost: api.test\r\nAuthorization: own\r\n\r\n{HIDDEN}",
        &[200, 403],
        "POST /{N}\n0\r\n\r\n",
    ),
    // Other and obsolete protocols.
    (
        "{GET}Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMA\r\n\r\n\
         {HIDDEN}",
        &[200, 403],
        "GET /{N}\n",
    ),
    (
        "{POST}Expect: 100-continue\r\nContent-Length: 2\r\n\r\nok{HIDDEN}",
        &[100, 200, 403],
        "POST /{N}\nok",
    ),
    ("GET http://plain.test:{P}/{N}\r\n\r\n{HIDDEN}", &[400], ""),
    ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{HIDDEN}", &[400], ""),
    // Unread data after an error does not lose the response.
    ("PRI * HTTP/2.0\r\n\r\n{HUGE}{HUGE}{HUGE}{HIDDEN}", &[400], ""),
    ("GET http://plain.test:{P}/{N}\r\n\r\n{HUGE}{HUGE}{HUGE}{HIDDEN}", &[400], ""),
    ("GET http://plain.test:{P}/{N} HTTP/1.1 HTTP/1.1\r\n\r\n{HIDDEN}", &[400], ""),
    ("GET http://plain.test:{P}/{N}\t HTTP/1.1\r\n\r\n{HIDDEN}", &[400], ""),
    (
        "GET http://plain.test:{P}/{N}%0d%0aX:%20y HTTP/1.1\r\n\r\n{HIDDEN}",
        &[200, 403],
        "GET /{N}%0d%0aX:%20y\n",
    ),
    // A second trailing dot is no other name for a denied host.
    ("GET http://api.test..:{P}/admin/{N} HTTP/1.1\r\n\r\n{HIDDEN}", &[400, 403], ""),
    // The target host is sent once only.
    (
        "{GET}Host: api.test\r\nX-Forwarded-Host: api.test\r\nConnection: host\r\n\r\n{HIDDEN}",
        &[200, 403],
        "GET /{N}\n",
    ),
    ("{GET}\r\n{HIDDEN}", &[200, 403], "GET /{N}\n"),
];

/// Requests to which rules apply.
const RULED: &[Attempt] = &[
    ("GET http://api.test:{P}/v1/{N} HTTP/1.1\r\n{END}", &[200], "GET /v1/{N}\n"),
    ("GET http://API.test.:{P}/v1/x/../{N} HTTP/1.1\r\n{END}", &[200], "GET /v1/{N}\n"),
    (
        "POST http://api.test:{P}/v1/{N} HTTP/1.1\r\nAuthorization: own\r\nAUTHORIZATION: own\r\n\
         Content-Length: 2\r\n{END}ok",
        &[200],
        "POST /v1/{N}\nok",
    ),
    ("GET http://api.test:{P}/v1/{N} HTTP/1.1\r\nAuthorization\t: own\r\n{END}", &[400], ""),
    ("PUT http://api.test:{P}/v1/{N} HTTP/1.1\r\n{END}", &[403], ""),
    ("get http://api.test:{P}/v1/{N} HTTP/1.1\r\n{END}", &[403], ""),
    ("TRACE http://plain.test:{P}/{N} HTTP/1.1\r\n{END}", &[403], ""),
    ("GET http://api.test:{P}/admin/{N} HTTP/1.1\r\n{END}", &[403], ""),
    ("GET http://api.test:{P}/v1/../admin/{N} HTTP/1.1\r\n{END}", &[403], ""),
    ("GET http://api.test:{P}/v1/%2e%2e/admin/{N} HTTP/1.1\r\n{END}", &[403], ""),
    ("GET http://api.test:{P}/v1/..%2fadmin/{N} HTTP/1.1\r\n{END}", &[403], ""),
    ("GET http://api.test:{P}/v1/%252e%252e/admin/{N} HTTP/1.1\r\n{END}", &[403], ""),
    ("GET http://api.test:{P}/v1/..;/admin/{N} HTTP/1.1\r\n{END}", &[403], ""),
    ("GET http://api.test:{P}/v1/..\\admin/{N} HTTP/1.1\r\n{END}", &[403], ""),
    ("GET http://api.test:{P}/v1/..%c0%afadmin/{N} HTTP/1.1\r\n{END}", &[403], ""),
    ("GET http://api.test:{P}//admin/{N} HTTP/1.1\r\n{END}", &[403], ""),
    ("GET http://api.test:{P}/%61dmin/{N} HTTP/1.1\r\n{END}", &[403], ""),
    ("GET http://api.test:{P}/v2/{N} HTTP/1.1\r\n{END}", &[403], ""),
    // The other server's name, at the port of the first.
    ("GET http://tls.test:{P}/{N} HTTP/1.1\r\n{END}", &[403], ""),
    ("CONNECT api.test:{P} HTTP/1.1\r\n\r\n{HIDDEN}", &[403, 403], ""),
    ("CONNECT plain.test:{P} HTTP/1.1\r\n\r\n{HIDDEN}", &[403, 403], ""),
    ("CONNECT http://plain.test:{P}/ HTTP/1.1\r\n{END}", &[400], ""),
    ("GET https://plain.test:{P}/{N} HTTP/1.1\r\n{END}", &[400], ""),
    ("GET file:///etc/passwd HTTP/1.1\r\n{END}", &[400], ""),
    ("GET /{N} HTTP/1.1\r\nHost: plain.test:{P}\r\n{END}", &[400], ""),
    ("GET plain.test:{P} HTTP/1.1\r\n{END}", &[400], ""),
    ("OPTIONS * HTTP/1.1\r\nHost: plain.test:{P}\r\n{END}", &[400], ""),
    ("GET http://api.test@plain.test:{P}/{N} HTTP/1.1\r\n{END}", &[400], ""),
    ("GET http://plain.test:{P}\\@api.test:{P}/{N} HTTP/1.1\r\n{END}", &[400], ""),
    ("GET http://plain.test:{P}#@api.test:{P}/{N} HTTP/1.1\r\n{END}", &[200], "GET /\n"),
    ("GET http://plain.test:{P}0/{N} HTTP/1.1\r\n{END}", &[400], ""),
    ("GET http://plain.test:{P}/{N} HTTP/1.1\r\nX: {HUGE}\r\n{END}", &[431], ""),
    ("GET http://plain.test:{P}/{HUGE} HTTP/1.1\r\n{END}", &[431], ""),
    ("GET http://plain.test:{P}/{N} HTTP/1.1\r\n{MANY}{END}", &[431], ""),
];

#[test]
fn no_request_gets_past_the_rules() {
    let _guard = beside_others();
    let outside = Outside::start();
    outside.check(&[SMUGGLED, RULED].concat());
}

#[test]
fn no_answer_is_taken_for_another_one() {
    let _guard = beside_others();
    let outside = Outside::start();
    let [port, ..] = outside.ports();
    let second = format!("GET http://plain.test:{port}/honest HTTP/1.1\r\n{END}");
    let request = |method: &str, path: &str| {
        vec![format!("{method} http://plain.test:{port}{path} HTTP/1.1\r\n\r\n{second}")]
    };
    for (index, method) in ["GET", "HEAD"].into_iter().enumerate() {
        let sent: Vec<_> = BAD.iter().map(|(path, ..)| request(method, path)).collect();
        for ((path, _, statuses), answer) in BAD.iter().zip(outside.attempt(&sent)) {
            let seen = status_of_each(&answer);
            if statuses[index] == 0 {
                assert!(seen.len() <= 1 && !answer.contains("honest"), "{method} {path}: {answer}");
                continue;
            }
            assert_eq!(seen, [statuses[index], 200], "{method} {path}: {answer}");
            assert!(answer.ends_with("\r\n\r\nhere is /honest"), "{method} {path}: {answer}");
        }
    }
    let seen = outside.target.seen();
    assert!(seen.iter().all(|sent| sent.matches("HTTP/1.1").count() == 1), "{seen:?}");
}

/// Addresses that no rule names, in all notations, and names that resolve to some.
const INTERNAL: &[&str] = &[
    "127.0.0.1 127.0.0.1. 127.1 127.0.1 2130706433 0x7f000001 0x7f.1 0X7F.0.0.1 0177.0.0.1",
    "017700000001 00000000177.1 127.0.0.3 127.255.255.254 0 0.0.0.0 localhost localhost. LOCALHOST",
    "[::1] [0:0:0:0:0:0:0:1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1]",
    "[64:ff9b::7f00:1] [2002:7f00:1::] [fe80::1] [fd00:ec2::254] [ff02::1]",
    "169.254.169.254 0xa9fea9fe 2852039166 0251.0376.0251.0376 169.254.43518",
    "10.0.0.1 10.1 0xa.1 012.1 172.16.0.1 192.168.0.1 192.168.1 100.64.0.1",
    "224.0.0.1 255.255.255.255 loop.test six.test mapped.test nat.test metadata.test",
    "private.test unique.test public.test mixed.test",
];

/// Texts that are neither a name nor an address in any interpretation.
const NEITHER: &str = "256.0.0.1 127.0.0.1.1 127.0.0.1.. localhost.. [::1%25lo] [127.0.0.1] ::1 \
                       127.0.0.1%00 127%2e0.0.1 \u{ff11}27.0.0.1 127\u{3002}0\u{3002}0\u{3002}1 .";

#[test]
fn nothing_internal_is_reached() {
    let _guard = beside_others();
    let outside = Outside::start();
    let [plain, _, own] = outside.ports();
    let token = outside.server.token();
    let hosts = INTERNAL.iter().flat_map(|line| line.split(' ')).map(|host| (host, 403));
    let hosts = hosts.chain(NEITHER.split(' ').map(|host| (host, 400)));
    let attempts: Vec<(String, u16)> = hosts
        .flat_map(|(host, status)| {
            [own, plain].into_iter().flat_map(move |port| {
                let get = format!("GET http://{host}:{port}/v1/sessions");
                [get, format!("CONNECT {host}:{port}")].map(|line| (line, status))
            })
        })
        .collect();
    let sent = attempts.iter().map(|(line, _)| {
        vec![format!("{line} HTTP/1.1\r\nAuthorization: Bearer {token}\r\n{END}")]
    });
    let answers = outside.attempt(&sent.collect::<Vec<_>>());
    for ((line, status), answer) in attempts.iter().zip(&answers) {
        assert_eq!(status_of_each(answer), [*status], "{line}: {answer}");
        // The response comes from the proxy, not from a server.
        let is_its_own = *status == 400 || answer.contains("\r\nx-cove-refused: address: ");
        assert!(is_its_own, "{line}: {answer}");
    }
    assert_eq!(outside.target.seen(), [""; 0]);
    // The same for a name that was permitted before, over new connections and over an existing one.
    let get = |name: &str, end| format!("GET http://{name}:{plain}/{name} HTTP/1.1\r\n{end}");
    let first = outside.attempt(&[vec![get("rebind.test", END)]]);
    let second = outside.attempt(&[vec![get("rebind.test", END)]]);
    let turns = [get("turns.test", "\r\n"), get("turns.test", "\r\n"), get("turns.test", END)];
    let third = outside.attempt(&[vec![turns.concat()]]);
    let statuses = [first, second, third].map(|answers| status_of_each(&answers[0]));
    assert_eq!(statuses, [vec![200], vec![403], vec![200, 200, 403]]);
    assert_eq!(["rebind.test", "turns.test"].map(|name| outside.names.lookups(name)), [2, 3]);
    assert_eq!(outside.target.seen().len(), 3);
}

/// Clients that are configured only with the certificate to trust; one line per client.
const CLIENTS: &str = r#"
import json, os, socket, ssl, subprocess, sys, urllib.request
sys.path.insert(0, "packages")
import requests

plain, tls = sys.argv[1:]
trust = ssl.create_default_context(cafile="certificate.pem")

def curl(*arguments):
    done = subprocess.run(["curl", "-sS", *arguments], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else f"failed after {done.stdout!r}"

def tunnel(name):
    stream = socket.create_connection(("127.0.0.1", 3128))
    stream.sendall(f"CONNECT tls.test:{tls} HTTP/1.1\r\n\r\n".encode())
    said = stream.recv(4096).split()[1].decode()
    try:
        trust.wrap_socket(stream, server_hostname=name).close()
        return said
    except ssl.SSLError as error:
        return f"{said} {error.reason}"

answers = {
    "curl": curl(f"http://plain.test:{plain}/curl"),
    "urllib": urllib.request.urlopen(f"http://plain.test:{plain}/urllib").read().decode(),
    "requests": requests.get(f"http://plain.test:{plain}/requests").text,
    "curl, tunnel": curl("--cacert", "certificate.pem", f"https://tls.test:{tls}/curl-tls"),
    "urllib, tunnel": urllib.request.urlopen(
        f"https://tls.test:{tls}/urllib-tls", context=trust).read().decode(),
    "requests, tunnel": requests.get(
        f"https://tls.test:{tls}/requests-tls", verify="certificate.pem").text,
    "a key": curl(f"http://api.test:{plain}/v1/key"),
    "a key over TLS": curl(f"http://tls.test:{tls}/key-tls"),
    "a key in a header": curl("-i", f"http://api.test:{plain}/v1/header"),
    "a key in a body": curl(f"http://api.test:{plain}/v1/echo"),
    "a key in pieces": curl(f"http://api.test:{plain}/v1/pieces"),
    "refused": curl("-o", "/dev/null", "-w", "%{http_code} %header{x-cove-refused}",
        f"http://api.test:{plain}/v2"),
    "no proxy": curl("--noproxy", "*", f"http://127.0.0.2:{plain}/"),
    "a tunnel": tunnel("tls.test"),
    "a tunnel for another": tunnel("other.test"),
}
print(json.dumps(answers))
"#;

#[test]
fn clients_reach_what_was_granted() {
    let _guard = beside_others();
    let outside = Outside::start();
    let Outside { sessions, session, .. } = &outside;
    let requests = ["requests", "urllib3", "certifi", "idna", "charset_normalizer"];
    unpack(sessions, session, &requests);
    let certificate = std::fs::read(outside.scratch.path().join("certificate.pem")).unwrap();
    assert!(sessions.write(session, "certificate.pem", &certificate).status < 300);
    let [plain, tls, _] = outside.ports();
    let output = python(sessions, session, CLIENTS, &format!("{plain} {tls}"));
    // Not even the beginning of the key entered before the response broke off.
    assert!(!output.contains(&CANARY[..6]), "{output}");
    let answers: Value = serde_json::from_str(&output).unwrap();
    for (client, expected) in [
        ("curl", "here is /curl"),
        ("urllib", "here is /urllib"),
        ("requests", "here is /requests"),
        ("curl, tunnel", "here is /curl-tls"),
        ("urllib, tunnel", "here is /urllib-tls"),
        ("requests, tunnel", "here is /requests-tls"),
        ("a key", "here is /v1/key"),
        ("a key over TLS", "here is /key-tls"),
        ("a key in a body", "failed after ''"),
        ("a tunnel", "200"),
        ("a tunnel for another", "200 TLSV1_ALERT_ACCESS_DENIED"),
        ("no proxy", "failed after ''"),
    ] {
        assert_eq!(answers[client], expected, "{client}: {output}");
    }
    let starts = |client: &str, start| answers[client].as_str().unwrap().starts_with(start);
    assert!(starts("a key in pieces", "failed after '"), "{output}");
    assert!(starts("refused", "403 address: "), "{output}");
    assert!(starts("a key in a header", "HTTP/1.1 200 OK"), "{output}");
    assert!(!answers["a key in a header"].to_string().contains("x-"), "{output}");
    // Externally, the key is sent only where it belongs.
    let seen = [outside.target.seen(), outside.tls.seen()].concat();
    let with_key = seen.iter().filter(|sent| sent.contains(&format!(": Bearer {CANARY}\r\n")));
    let mut with_key: Vec<&str> = with_key.map(|sent| sent.split(' ').nth(1).unwrap()).collect();
    with_key.sort_unstable();
    assert_eq!(with_key, ["/key-tls", "/v1/echo", "/v1/header", "/v1/key", "/v1/pieces"]);
    assert_eq!(seen.len(), with_key.len() + 6, "{seen:?}");
    // All requests are recorded.
    let of = |record: &Value, name: &str| record[name].as_str().unwrap_or_default().to_owned();
    let denied = |record: &Value| of(record, "error") == "tls: it is for another host";
    let records = audit(&sessions.client, session, denied);
    let requests = records.iter().filter(|record| record["event"] == "request");
    let refused = requests.clone().filter(|record| record["outcome"] == "refused");
    let mut refused: Vec<String> = refused.map(|record| of(record, "text")).collect();
    refused.sort_unstable();
    assert_eq!(
        refused,
        [
            format!("CONNECT tls.test:{tls}"),
            format!("GET http://api.test:{plain}/v1/echo"),
            format!("GET http://api.test:{plain}/v1/pieces"),
            format!("GET http://api.test:{plain}/v2"),
        ]
    );
    assert_eq!(requests.count(), 14, "{records:?}");
    assert!(!format!("{records:?}").contains(CANARY));
}

/// Packet sockets, routes to other networks, and the view of this network in `/proc`.
const PACKETS: &str = r#"
import ctypes, glob, json, os, socket
libc = ctypes.CDLL(None, use_errno=True)
did = []

def attempt(name, act):
    try:
        act()
        did.append(name)
    except OSError:
        pass

def call(number, *arguments):
    if libc.syscall(number, *arguments) == -1:
        raise OSError(ctypes.get_errno(), "refused")

for protocol in (0x0003, 0x0300, 1, 6, 17, 58, 255):
    for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM, 10):
        attempt(f"packet {kind} {protocol}", lambda: socket.socket(17, kind, protocol))
    for family in (socket.AF_INET, socket.AF_INET6):
        attempt(f"raw {family} {protocol}",
            lambda: socket.socket(family, socket.SOCK_RAW, protocol))
attempt("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4))
attempt("xdp", lambda: socket.socket(44, socket.SOCK_RAW, 0))
for flags in (0x40000000, 0x50000000, 0x10000000):
    attempt(f"unshare {flags:#x}", lambda: call(272, flags))
attempt("setns", lambda: call(308, os.open("/proc/1/ns/net", os.O_RDONLY), 0x40000000))
attempt("transparent", lambda: socket.socket().setsockopt(socket.IPPROTO_IP, 19, 1))
attempt("mark", lambda: socket.socket().setsockopt(socket.SOL_SOCKET, 36, 1))
# What was granted is listened for, and nobody else can do that.
attempt("the proxy's port", lambda: socket.socket().bind(("127.0.0.1", 3128)))
seen = {}
for path in glob.glob("/proc/self/net/*") + glob.glob("/proc/self/net/*/*"):
    try:
        seen[path.removeprefix("/proc/self/net/")] = open(path, errors="replace").read()
    except OSError:
        pass
print(json.dumps({"did": did, "seen": seen}))
"#;

#[test]
fn packets_of_others_are_not_seen() {
    let _guard = beside_others();
    let outside = Outside::start();
    // A request has passed, with its key, before the program looks.
    let [port, ..] = outside.ports();
    let get = format!("GET http://api.test:{port}/v1/key HTTP/1.1\r\n{END}");
    assert_eq!(status_of_each(&outside.attempt(&[vec![get]])[0]), [200]);
    let output = python(&outside.sessions, &outside.session, PACKETS, "");
    let report: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(report["did"], json!([]), "{output}");
    // There is one interface, and only sockets of this sandbox.
    let seen = |name: &str| report["seen"][name].as_str().unwrap_or_default().to_owned();
    let interfaces = seen("dev");
    let interfaces = interfaces.lines().filter_map(|line| line.split_once(':'));
    assert_eq!(interfaces.map(|(name, _)| name.trim()).collect::<Vec<_>>(), ["lo"], "{output}");
    let ends = |table: &str, listening: bool| -> Vec<String> {
        let table = seen(table);
        let lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        let lines = lines.filter(|fields| !listening || fields[3] == "0A");
        lines.map(|fields| fields[1].to_owned()).collect()
    };
    assert_eq!(ends("tcp", true), ["0100007F:0C38"], "the proxy, and nothing else: {output}");
    for table in ["tcp6", "udp", "udp6", "raw", "raw6", "packet"] {
        assert_eq!(ends(table, false), [""; 0], "{table}: {output}");
    }
    assert!(!output.contains(CANARY), "{output}");
}
