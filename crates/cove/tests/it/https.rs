//! HTTPS with ordinary clients: curl, Node and the command line.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use testkit::{Certificate, Scratch, Server, until};

use crate::sessions_support::SOON;
use crate::support::COVE;

/// A server with a certificate, which clients trust only if configured to.
fn start(scratch: &Scratch) -> (Server, Certificate) {
    let certificate = Certificate::new(scratch);
    let config = format!(
        "tls.cert = {:?}\ntls.key = {:?}\nbouncer.enabled = false\ncatalog.enabled = false\n",
        certificate.certificate, certificate.key
    );
    (Server::start_with(COVE, &[], Some(&config)), certificate)
}

fn port(server: &Server) -> u16 {
    server.client().address().port()
}

/// Runs curl. Returns the body, and the version and status of the answer or curl's error.
fn curl(server: &Server, trusted: &Path, arguments: &[&str], path: &str) -> (String, String) {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "60", "-w", "\n%{http_version} %{http_code}", "--cacert"])
        .arg(trusted)
        .args(["-H", &format!("authorization: Bearer {}", server.token())])
        .args(arguments)
        .arg(format!("https://localhost:{}{path}", port(server)))
        .output()
        .expect("start curl; scripts/test-deps.sh installs it");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match text.rsplit_once('\n') {
        Some((body, last)) if output.status.success() => (body.to_owned(), last.to_owned()),
        _ => (String::new(), String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

#[test]
fn clients_choose_between_http_1_and_2() {
    let scratch = Scratch::new();
    let (server, own) = start(&scratch);
    let trusted = own.certificate.as_path();
    let program = r#"{"language": "python", "source": "print(6*7)"}"#;
    for (option, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let arguments = [option, "-d", program, "-H", "content-type: application/json"];
        let (body, seen) = curl(&server, trusted, &arguments, "/v1/executions?wait=true");
        assert_eq!(seen, format!("{version} 200"), "{body}");
        assert!(body.contains(r#""stdout":"42\n""#), "{body}");
        let (body, seen) = curl(&server, trusted, &[option], "/v1/nothing");
        assert_eq!(seen, format!("{version} 404"));
        assert!(body.contains("does not exist"), "{body}");
        // Events arrive as they happen.
        let queued = ["-d", program, "-H", "content-type: application/json", option];
        let (body, _) = curl(&server, trusted, &queued, "/v1/executions");
        let id = body.split('"').find(|it| it.starts_with("ex_")).unwrap().to_owned();
        let path = format!("/v1/executions/{id}/events");
        let (events, seen) = curl(&server, trusted, &[option, "-N"], &path);
        assert_eq!(seen, format!("{version} 200"));
        assert!(events.contains("event: exit"), "{events}");
    }
    // Local programs, such as the command line, need no TLS.
    assert_eq!(server.client().get("/v1/languages").status, 200);
}

/// Node's own HTTP/2 client, with concurrent requests.
const NODE: &str = r#"
const http2 = require('http2'), fs = require('fs');
const [origin, ca, token] = process.argv.slice(1);
const session = http2.connect(origin, { ca: fs.readFileSync(ca) });
const ask = (n) => new Promise((resolve, reject) => {
  const body = JSON.stringify({ language: 'python', source: `print(${n} * 2)` });
  const stream = session.request({ ':method': 'POST', ':path': '/v1/executions?wait=true',
    authorization: `Bearer ${token}`, 'content-type': 'application/json' });
  let text = '';
  stream.setEncoding('utf8').on('data', (piece) => text += piece).on('error', reject)
    .on('end', () => resolve(JSON.parse(text).stdout.trim()));
  stream.end(body);
});
Promise.all([...Array(24).keys()].map(ask)).then((all) => {
  console.log(all.join(' ')); session.close();
});
"#;

#[test]
fn one_connection_runs_many_programs_side_by_side() {
    let scratch = Scratch::new();
    let (server, own) = start(&scratch);
    let output = Command::new("node")
        .args(["-e", NODE, &format!("https://localhost:{}", port(&server))])
        .arg(&own.certificate)
        .arg(server.token())
        .output()
        .expect("start node; scripts/test-deps.sh installs it");
    let expected: Vec<String> = (0..24).map(|number| (number * 2).to_string()).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected.join(" "), "{errors}");
}

/// The command line as on another machine: with only an address and a token.
fn cove(server: &Server, trusted: &Path, arguments: &[&str]) -> Output {
    Command::new(COVE)
        .args(arguments)
        .env("COVE_URL", format!("https://localhost:{}", port(server)))
        .env("COVE_TOKEN", server.token())
        .env("SSL_CERT_FILE", trusted)
        .env("HOME", server.scratch().path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn the_command_line_speaks_tls_and_websockets_in_it() {
    let scratch = Scratch::new();
    let (server, own) = start(&scratch);
    let source = scratch.path().join("program.py");
    fs::write(&source, "print('over TLS')").unwrap();
    let arguments = ["exec", "submit", "--lang", "python", "--watch", source.to_str().unwrap()];
    let output = cove(&server, &own.certificate, &arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("over TLS"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_certificate_is_renewed_while_the_server_runs() {
    let scratch = Scratch::new();
    let (mut server, own) = start(&scratch);
    let kept = scratch.path().join("trusted.pem");
    fs::copy(&own.certificate, &kept).unwrap();
    let (_, seen) = curl(&server, &kept, &[], "/v1/languages");
    assert_eq!(seen, "2 200");
    // An invalid file changes nothing except the log.
    fs::write(&own.certificate, "nonsense").unwrap();
    server.expect_log("cannot be read again; the old one holds");
    until("the nonsense to be seen", SOON, || match server.log() {
        log if log.contains("the old one holds") => Ok(()),
        _ => Err("nothing in the log".to_owned()),
    });
    assert_eq!(curl(&server, &kept, &[], "/v1/languages").1, "2 200");
    let others = Scratch::new();
    let other = Certificate::new(&others);
    fs::copy(&other.key, &own.key).unwrap();
    fs::copy(&other.certificate, &own.certificate).unwrap();
    until("the new certificate to be shown", SOON, || {
        match curl(&server, &other.certificate, &[], "/v1/languages").1 {
            seen if seen == "2 200" => Ok(()),
            seen => Err(seen),
        }
    });
    assert!(curl(&server, &kept, &[], "/v1/languages").1.contains("certificate"));
}
