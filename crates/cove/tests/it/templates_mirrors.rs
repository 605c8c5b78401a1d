//! Packages in templates: builds reach the mirrors and nothing else; the builders of E2B's clients.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use testkit::{Server, until};

use crate::asynchronous::post;
use crate::e2b::{key, project};
use crate::sessions_support::{SOON, Sessions, config, ok};
use crate::shared::{COMPAT, interpreter};
use crate::support::{COVE, beside_others};

/// Script that serves a package index, a registry and a repository, with generated content.
const PACKAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mirrors/packages.py");

/// Mirrors of a test, at a port of 127.0.0.2.
pub(crate) struct Mirrors {
    child: Child,
    port: u16,
}

impl Mirrors {
    pub(crate) fn start() -> Mirrors {
        let mut command = Command::new("python3");
        command.arg(PACKAGES).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut port = String::new();
        lines.read_line(&mut port).unwrap();
        // The script prints each request, and an unread pipe would fill. Tests read the audit
        // instead.
        std::thread::spawn(move || lines.lines().for_each(drop));
        Mirrors { child, port: port.trim().parse().unwrap() }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.2:{}{path}", self.port)
    }

    /// Starts a server whose builds reach them.
    pub(crate) fn serve(&self) -> Server {
        let table = format!(
            "memory_bytes = 536870912\n[sessions.templates]\ndisk_bytes = 268435456\n\
             pip_index = {:?}\nnpm_registry = {:?}\nhosts = [\"127.0.0.2:{}\"]\n\
             internal = [\"127.0.0.2\"]",
            self.url("/simple/"),
            self.url("/npm/"),
            self.port,
        );
        Server::start_with(COVE, &["--e2b", "127.0.0.1:0"], Some(&config(&table)))
    }
}

impl Drop for Mirrors {
    fn drop(&mut self) {
        // The script ends at the end of its input, and removes its files.
        drop(self.child.stdin.take());
        let _ended = self.child.wait();
    }
}

#[test]
fn packages_come_from_the_mirrors_and_nothing_else_is_reached() {
    let _guard = beside_others();
    let mirrors = Mirrors::start();
    let server = mirrors.serve();
    let sessions = Sessions::from(&server);
    let client = &sessions.client;
    let request = json!({"name": "packages", "steps": [
        {"type": "workdir", "path": "/workspace/app"},
        {"type": "pip_install", "packages": ["greetings"]},
        {"type": "npm_install", "packages": ["shouter"]},
        {"type": "npm_install", "packages": ["shouter"], "global": true},
        {"type": "git_clone", "url": mirrors.url("/git/notes.git"), "path": "notes"},
    ]});
    let build = ok(&post(client, "/v1/templates?wait=true", &request));
    assert_eq!(build["status"], "ready", "{build}");
    let session = sessions.create(&json!({"template": "packages"}));
    let seen = sessions.out(&session, "greet; shout; npx --no shout; cat notes/note.txt; env");
    let (listed, environment) = seen.split_at(seen.find("repository\n").unwrap() + 11);
    assert_eq!(
        listed,
        "hello from a wheel\nHELLO FROM A TARBALL\nHELLO FROM A TARBALL\nfrom a repository\n"
    );
    // A session does not get the environment of its template's build.
    for name in ["HTTP_PROXY", "PIP_INDEX_URL", "npm_config_registry"] {
        assert!(!environment.contains(name), "{environment}");
    }
    drop(sessions.end(&session));
    // The audit records all requests, with the build as the holder.
    let audit = format!("/v1/audit?holder={}", build["id"].as_str().unwrap());
    until("the requests on the audit", SOON, || {
        let records = ok(&client.get(&audit)).to_string();
        let wanted = ["greetings-1.0-py3-none-any.whl", "shouter-1.0.0.tgz", "notes.git/info/refs"];
        match wanted.iter().all(|path| records.contains(path)) {
            true => Ok(()),
            false => Err(records),
        }
    });
    let outside = json!([{
        "type": "run",
        "command": "curl -s -o /dev/null -w '%{http_code}\\n' http://example.com/; \
            curl -s -o /dev/null -w '%{http_code}\\n' http://127.0.0.2:1/; \
            curl -s --noproxy '*' http://127.0.0.2/ || echo no network; exit 1",
    }]);
    let refused = json!({"name": "outside", "steps": outside});
    let build = ok(&post(client, "/v1/templates?wait=true", &refused));
    let message = build["failure"]["message"].as_str().unwrap();
    assert!(message.contains("403\n403\nno network"), "{message}");
    let records: Value =
        ok(&client.get(&format!("/v1/audit?holder={}", build["id"].as_str().unwrap())));
    assert!(records.to_string().contains("refused"), "{records}");
}

/// Runs a client of `compat/e2b`, which must pass this many checks.
fn run_client(server: &Server, client: &mut Command, checks: usize) {
    let url = format!("http://{}", server.listener("e2b"));
    client.env("E2B_API_URL", &url).env("E2B_SANDBOX_URL", &url).env("E2B_API_KEY", key(server));
    let output = client.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let is_well = |line: &&str| serde_json::from_str::<Value>(line).unwrap()["ok"] == true;
    let well = text.lines().filter(is_well).count();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && well == checks, "{text}\n{errors}");
}

#[test]
fn the_python_builder_of_templates_works_as_it_is() {
    let _guard = beside_others();
    let mirrors = Mirrors::start();
    let server = mirrors.serve();
    let client = Path::new(COMPAT).join("e2b/templates.py");
    let mut command = Command::new(interpreter());
    command.arg(client).env("E2B_GIT_URL", mirrors.url("/git/notes.git"));
    run_client(&server, &mut command, 8);
}

#[test]
fn the_javascript_builder_of_templates_works_as_it_is() {
    let _guard = beside_others();
    let mirrors = Mirrors::start();
    let server = mirrors.serve();
    let mut command = Command::new("node");
    command.arg("templates.mjs").current_dir(project());
    run_client(&server, &mut command, 5);
}
