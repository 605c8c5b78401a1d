//! External secrets are not visible in a sandbox with any grants.

use serde_json::{Value, json};

use crate::gateway::{CANARY, SCANNER, Stage, judge, python, shop, stage};
use crate::gateway_outside::Target;
use crate::sessions_claude::{KEY, Model, agent};
use crate::sessions_support::with;
use crate::support::beside_others;

/// Secret that a rule adds to requests.
const ADDED: &str = "added-outside-4b1d8e62";

/// Value in the environment of the session, which the search must find.
const PLANTED: &str = "found-5e1fa0c3";

fn backwards(text: &str) -> String {
    text.chars().rev().collect()
}

#[test]
fn nothing_secret_is_found_inside() {
    let _guard = beside_others();
    let (model, target) = (Model::start(), Target::start());
    let stage =
        stage(&format!("{}\n[gateway.secrets]\npartner = \"Bearer {ADDED}\"\n", model.settings()));
    let Stage { sessions, mariadb, .. } = &stage;
    let rule = json!({
        "hosts": ["127.0.0.2"],
        "ports": [target.address.port()],
        "paths": ["/v1/*"],
        "internal": ["127.0.0.2"],
        "headers": {"authorization": {"secret": "partner"}},
    });
    let grants = json!([
        shop("read_write"),
        judge(),
        {"kind": "http", "rules": [rule]},
        {"kind": "model"},
    ]);
    sessions.deploy(&with(agent("claude"), &json!({"grants": grants})));
    let env = json!({"PLANTED": PLANTED, "TARGET": format!("http://{}", target.address)});
    let session = sessions.create(&json!({"agent": "claude", "env": env}));
    // The agent runs and has used the model: its memory is searched as well.
    assert!(sessions.ask(&session, "hello").starts_with("You said: hello"));
    // Everything that a program can read: environment, memory, files, `/proc` of the processes that
    // it may see, errors of all servers, and data before a login.
    let secrets = [CANARY, ADDED, KEY, PLANTED].map(backwards).join(" ");
    let report = python(sessions, &session, SCANNER, &secrets);
    let report: Value = serde_json::from_str(&report).unwrap();
    let [of_databases, added, key, planted] = [0, 1, 2, 3].map(|it| report["found"][it].clone());
    assert_eq!((of_databases, added, key), (json!([]), json!([]), json!([])), "{report}");
    assert_eq!(report["password"], false, "{report}");
    // The planted value is found in every process.
    let planted = planted.to_string();
    let places = ["\"environment\"", "/environ\"", "\"memory of /proc/"];
    assert!(places.iter().all(|place| planted.contains(place)), "{report}");
    assert!(planted.matches("memory of").count() > 1, "{report}");
    // The proxy has added the rule's secret, and the databases were used with their passwords.
    let seen = target.seen();
    let mut lines: Vec<&str> = seen.iter().map(|sent| sent.lines().next().unwrap()).collect();
    lines.sort_unstable();
    let expected = ["echo", "header", "pieces", "plain"].map(|it| format!("GET /v1/{it} HTTP/1.1"));
    assert_eq!(lines, expected);
    assert!(seen.iter().all(|sent| sent.contains(&format!("Bearer {ADDED}\r\n"))), "{seen:?}");
    assert!(model.log().matches("\"key\": \"right\"").count() > 2, "{}", model.log());
    assert_eq!(mariadb.sql("SELECT COUNT(*) FROM judge.answers"), "1");
}
