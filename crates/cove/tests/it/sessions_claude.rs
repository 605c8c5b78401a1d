//! The real command line of Claude as the agent of sessions, with a stand-in for the model.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use testkit::{Scratch, Server, install_packages};

use crate::asynchronous::{id, post};
use crate::sessions_support::{Sessions, Turn, ok, path, serve_sessions, with};
use crate::support::beside_others;

/// Key that the model requires, and that must not be visible in a sandbox.
pub(crate) const KEY: &str = "sk-of-the-server-0123456789";
/// Instructions in the agent's folder.
const CLAUDE_MD: &str = "You are the agent of a test. The word of the day is heliotrope.";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the directory of Claude's program, installed once below the target directory.
fn claude() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let project = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compat-claude");
        let project = install_packages(&root().join("compat/claude"), project, &[]);
        program(&project).expect("npm has installed Claude's program")
    })
}

/// Returns the path of Claude's program.
pub(crate) fn claude_program() -> PathBuf {
    claude().join("claude")
}

fn program(project: &Path) -> Option<PathBuf> {
    let packages = fs::read_dir(project.join("node_modules/@anthropic-ai")).ok()?;
    let mut packages = packages.flatten().map(|package| package.path());
    packages.find(|package| package.join("claude").is_file())
}

/// Stand-in for the model: a process with a log of its requests.
pub(crate) struct Model {
    process: Child,
    url: String,
    scratch: Scratch,
}

impl Model {
    pub(crate) fn start() -> Model {
        let scratch = Scratch::new();
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "python3"])
            .arg(root().join("examples/model/stand_in.py"))
            .args(["--port", "0", "--api-key", KEY, "--log-bodies", "--log"])
            .arg(scratch.path().join("log"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        Model { process, url, scratch }
    }

    /// Returns the log of all requests.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.scratch.path().join("log")).unwrap()
    }

    /// Starts a server whose agents use this model.
    pub(crate) fn serve(&self, settings: &str) -> Server {
        serve_sessions(&format!("{settings}\n{}", self.settings()))
    }

    /// Returns lines for the `[sessions]` table of a server that uses it, followed by the model's
    /// table.
    pub(crate) fn settings(&self) -> String {
        self.settings_at(self.address())
    }

    /// Returns the address of its listener.
    pub(crate) fn address(&self) -> SocketAddr {
        self.url.strip_prefix("http://").unwrap().parse().unwrap()
    }

    /// Returns the lines for a server that reaches it at another address.
    pub(crate) fn settings_at(&self, address: SocketAddr) -> String {
        let key = self.scratch.file("key", KEY);
        format!(
            "claude = {:?}\n[sessions.model]\nurl = {:?}\napi_key = \"file:{}\"",
            claude().display().to_string(),
            format!("http://{address}"),
            key.display()
        )
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Returns the definition of an agent that runs Claude.
pub(crate) fn agent(name: &str) -> Value {
    let file = |path: &str, content: &str| json!({"path": path, "content": content});
    json!({"name": name, "files": [file("CLAUDE.md", CLAUDE_MD), file("data.txt", "of the folder\n")]})
}

/// Reads up to the first piece of text.
fn wait_for_text(turn: &mut Turn) {
    turn.until("a piece of text", |event| event["type"] == "text_delta");
}

#[test]
fn claude_answers_works_and_is_resumed() {
    let _guard = beside_others();
    let model = Model::start();
    let mut server = model.serve("");
    let sessions = Sessions::from(&server);
    let deployed = sessions.deploy(&agent("claude"));
    assert_eq!(deployed["runtime"], json!({"type": "claude"}), "{deployed}");
    let session = sessions.create(&json!({"agent": "claude"}));
    let first = sessions.ask(&session, "first");
    assert!(first.starts_with("You said: first") && first.ends_with("turns: 1]"), "{first}");
    assert!(model.log().contains("heliotrope"), "what the folder says reaches the model");
    // Tools run in the sandbox, as the session's user.
    let answered = sessions.hear(&session, "run: cat data.txt; echo inside > made.txt; pwd");
    assert_eq!(answered.errors(), [""; 0]);
    let of = |kind: &str| answered.events.iter().find(|event| event["type"] == kind).unwrap();
    assert_eq!(of("tool_use")["data"]["name"], "Bash");
    assert!(of("tool_result").to_string().contains("of the folder\\n/workspace"), "{answered:?}");
    assert_eq!(sessions.out(&session, "cat made.txt"), "inside\n");
    // A stopped turn ends, and the conversation continues.
    let mut turn =
        sessions.send_as(&session, &json!({"content": "stream: 5000 20", "partial": true}));
    wait_for_text(&mut turn);
    assert_eq!(sessions.did(&session, "interrupt")["interrupted"], true);
    let stopped = turn.end();
    assert_eq!(stopped.errors(), ["the turn was interrupted"], "{stopped:?}");
    // The same while a tool runs.
    let mut turn = sessions.send(&session, "run: echo begun > begun; tail -f /dev/null");
    turn.until("a tool", |event| event["type"] == "tool_use");
    assert_eq!(sessions.did(&session, "interrupt")["interrupted"], true);
    assert_eq!(turn.end().errors(), ["the turn was interrupted"]);
    // The conversation survives a new sandbox and a killed server.
    for how in ["stop", "kill"] {
        match how {
            "stop" => drop(sessions.did(&session, "stop")),
            _ => server.restart(),
        }
        let sessions = Sessions::from(&server);
        sessions.did(&session, "resume");
        let recalled = sessions.ask(&session, "recall");
        for phrase in ["first", "cat data.txt", "stream: 5000 20"] {
            assert!(recalled.contains(phrase), "after {how}: {recalled}");
        }
        assert_eq!(sessions.out(&session, "cat made.txt"), "inside\n");
    }
    let usage = ok(&server.client().get("/v1/usage"));
    assert!(usage["total"]["input_tokens"].as_u64().unwrap() > 0, "{usage}");
    assert!(usage["total"]["tool_calls"].as_u64().unwrap() >= 2, "{usage}");
}

#[test]
fn claude_never_sees_the_key() {
    let _guard = beside_others();
    let model = Model::start();
    let server = model.serve("");
    let sessions = Sessions::from(&server);
    sessions.deploy(&agent("claude"));
    let session = sessions.create(&json!({"agent": "claude"}));
    let looked = sessions.hear(
        &session,
        "run: env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; echo looked",
    );
    assert!(format!("{looked:?}").contains("looked"), "{looked:?}");
    assert!(!format!("{looked:?}").contains(KEY), "{looked:?}");
    // All processes are stopped during the search: a file that a program replaces meanwhile would
    // be missing, and would change the exit code of `grep`.
    let found = sessions.exec(
        &session,
        &format!(
            "kill -STOP -1; grep -rs {KEY} /workspace /home/user /tmp /etc /run; code=$?; \
             kill -CONT -1; exit $code"
        ),
    );
    assert_eq!(found["exit_code"], 1, "{found}");
    assert!(model.log().contains("\"status\": 200") || model.log().contains("\"status\":200"));
    // A session's own credential is used in the same way, in place of the server's key.
    let credential = json!({"kind": "anthropic", "label": "of a test", "secret": "sk-not-good"});
    let response = post(&sessions.client, "/v1/credentials", &credential);
    assert_eq!(response.status, 201, "{}", response.text());
    let own = sessions.create(&json!({"agent": "claude", "credential": id(&response.json())}));
    let refused = sessions.hear(&own, "hello");
    assert!(refused.errors()[0].contains("API key"), "{refused:?}");
    let seen = sessions.out(&own, "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; env");
    assert!(!seen.contains("sk-not-good") && !seen.contains(KEY), "{seen}");
}

#[test]
fn claude_that_was_started_ahead_does_what_its_session_wants() {
    let _guard = beside_others();
    let model = Model::start();
    let server = model.serve("ready = 0");
    let sessions = Sessions::from(&server);
    let ahead = json!({"settings": {"prewarm_agents": 1}});
    sessions.deploy(&with(agent("claude"), &ahead));
    sessions.wait_for_counts(&json!({"warm": 1}));
    assert!(!model.log().contains("/v1/messages"), "starting ahead asks no model");
    let own = json!({
        "agent": "claude",
        "env": {"COLOUR": "vermilion"},
        "options": {
            "system_prompt": "You are a lighthouse.",
            "model": "claude-haiku-4-5",
            "permission_mode": "bypassPermissions",
        },
    });
    let session = sessions.create(&own);
    assert_eq!(sessions.counts()["prewarm_hits"], 1);
    let system = sessions.ask(&session, "system");
    assert!(system.contains("You are a lighthouse."), "{system}");
    assert!(model.log().contains("claude-haiku-4-5"));
    let ran = sessions.ask(&session, "run: echo it is $COLOUR in $COVE_SESSION_ID");
    assert!(ran.contains(&format!("it is vermilion in {session}")), "{ran}");
    // The same after the session was resumed.
    sessions.did(&session, "stop");
    sessions.did(&session, "resume");
    let system = sessions.ask(&session, "system");
    assert!(system.contains("You are a lighthouse."), "{system}");
    let ran = sessions.ask(&session, "run: echo it is $COLOUR in $COVE_SESSION_ID");
    assert!(ran.contains(&format!("it is vermilion in {session}")), "{ran}");
    // Another session takes the next prestarted agent, without any state of the first.
    sessions.wait_for_counts(&json!({"warm": 1}));
    let plain = sessions.create(&json!({"agent": "claude"}));
    assert_eq!(sessions.counts()["prewarm_hits"], 2);
    let ran = sessions.ask(&plain, "run: echo it is ${COLOUR:-nothing} in $COVE_SESSION_ID");
    assert!(ran.contains(&format!("it is nothing in {plain}")), "{ran}");
    let history = ok(&sessions.client.get(&format!("{}/messages", path(&plain))));
    assert!(!history.to_string().contains("lighthouse"), "{history}");
}
