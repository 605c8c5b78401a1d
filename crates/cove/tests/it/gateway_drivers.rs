//! Database drivers for Node, Go, Java and Python, in a sandbox with grants. None is configured
//! with an address or credentials; the programs are in `compat/gateway`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Scratch, install_packages};

use crate::gateway::{CANARY, Stage, audit, judge, patch, shop, stage};
use crate::go::go;
use crate::sessions_support::{Sessions, with};
use crate::shared::{COMPAT, finish, interpreter};
use crate::support::beside_others;

/// Debian's paths of the drivers, which `scripts/test-deps.sh` installs.
const JARS: &str = "/usr/share/java/postgresql.jar:/usr/share/java/mariadb-java-client.jar";

/// Queries of all notes with their writers.
const NOTES: &str = "SELECT string_agg(id || ' ' || text, ', ' ORDER BY id) FROM notes";
const NOTES_OF_MARIADB: &str =
    "SELECT GROUP_CONCAT(id, ' ', text ORDER BY id SEPARATOR ', ') FROM judge.notes";

/// Returns the JavaScript program in one file, with its drivers.
fn bundle(scratch: &Scratch) -> PathBuf {
    let project = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compat-gateway-js");
    let project = install_packages(&Path::new(COMPAT).join("gateway"), project, &["client.mjs"]);
    let made = scratch.path().join("client.cjs");
    let mut esbuild = Command::new("esbuild");
    esbuild.args(["client.mjs", "--bundle", "--platform=node", "--external:pg-native"]);
    esbuild.arg(format!("--outfile={}", made.display()));
    finish(esbuild.args(["--log-level=warning"]).current_dir(&project));
    made
}

/// Returns the static Go program.
fn binary(scratch: &Scratch) -> PathBuf {
    let made = scratch.path().join("client");
    let mut build = go();
    build.env("CGO_ENABLED", "0").args(["build", "-ldflags=-s -w", "-o"]).arg(&made).arg(".");
    finish(build.current_dir(Path::new(COMPAT).join("gateway/go")));
    made
}

/// Copies installed Python packages into a session.
pub(crate) fn unpack(sessions: &Sessions, session: &str, packages: &[&str]) {
    let purelib = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let purelib_path = finish(Command::new(interpreter()).args(["-c", purelib]));
    sessions.unpack(session, "packages", Path::new(purelib_path.trim()), packages);
}

/// Copies the programs into a session.
fn upload(sessions: &Sessions, session: &str) {
    let scratch = Scratch::new();
    let put = |name: &str, file: &Path| {
        let written = sessions.write(session, name, &fs::read(file).unwrap());
        assert!(written.status < 300, "{name}: {}", written.text());
    };
    put("client.cjs", &bundle(&scratch));
    put("client", &binary(&scratch));
    for name in ["Client.java", "client.py"] {
        put(name, &Path::new(COMPAT).join("gateway").join(name));
    }
    let psycopg = ["psycopg", "psycopg_binary", "psycopg_binary.libs", "typing_extensions.py"];
    unpack(sessions, session, &psycopg);
    sessions.out(session, "chmod +x client");
}

/// Runs a program in a session, which prints a line for each of its checks.
fn check(sessions: &Sessions, session: &str, command: &str, count: usize) {
    let ended = sessions.exec(session, command);
    let text = ended["stdout"].as_str().unwrap();
    let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    let lines = lines.unwrap_or_else(|error| panic!("{command}: {error}: {ended}"));
    let failed: Vec<String> = lines
        .iter()
        .filter(|line| line["ok"] != true)
        .map(|line| format!("{}\n{}", line["check"], line["error"].as_str().unwrap_or_default()))
        .collect();
    assert!(failed.is_empty(), "{command}:\n{}", failed.join("\n"));
    assert!(ended["exit_code"] == 0 && lines.len() == count, "{command}: {ended}");
    assert!(!ended.to_string().contains(CANARY), "{command}: {ended}");
}

#[test]
fn drivers_for_other_languages_are_told_nothing() {
    let _guard = beside_others();
    let stage = stage("");
    let Stage { sessions, postgres, mariadb, server } = &stage;
    let table = "CREATE TABLE notes (id int PRIMARY KEY, text varchar(100))";
    postgres.sql(&format!("{table}; GRANT ALL ON notes TO clerk"));
    mariadb.sql(&format!("USE judge; {table}"));
    let all = json!([
        shop("read_write"),
        with(judge(), &json!({"access": "read_write"})),
        with(shop("read_only"), &json!({"port": 5433})),
        with(judge(), &json!({"port": 3307})),
    ]);
    let session = sessions.create(&json!({"grants": all}));
    upload(sessions, &session);
    for (command, checks) in [
        ("node client.cjs", 10),
        ("./client", 15),
        (&*format!("java -cp {JARS} Client.java"), 8),
        ("PYTHONPATH=packages /usr/bin/python3 client.py", 5),
    ] {
        check(sessions, &session, command, checks);
    }
    // Each committed note exists, and none that was rolled back or not allowed.
    let notes = postgres.sql(NOTES);
    assert_eq!(notes, "1000 kept, 2000 kept, 2100 kept, 3000 kept, 4000 kept, 4002 copied");
    assert_eq!(mariadb.sql(NOTES_OF_MARIADB), "1000 kept, 2200 kept, 3100 kept");
    // If there is one database, its URL is in the environment, without a password.
    for (grant, address) in [
        (judge(), "mysql://judge@127.0.0.1:3306/judge"),
        (shop("read_only"), "postgresql://clerk@127.0.0.1:5432/postgres?sslmode=disable"),
    ] {
        let patched = patch(&server.client(), &session, &json!({"grants": [grant]}));
        assert_eq!(patched.status, 200, "{}", patched.text());
        assert_eq!(sessions.out(&session, "echo $DATABASE_URL").trim(), address);
        check(sessions, &session, "node client.cjs url", 1);
    }
    let environment = sessions.out(&session, "env");
    let has_password = environment.lines().any(|line| line.to_uppercase().contains("PASS"));
    assert!(!has_password && !environment.contains(CANARY), "{environment}");
    // Rejected statements are recorded as such, with any driver.
    let refused = |record: &Value| record["text"] == "UPDATE notes SET text = ?";
    let records = audit(&server.client(), &session, refused);
    let refused = records.iter().filter(|record| refused(record));
    let ends: Vec<&Value> = refused.map(|record| &record["outcome"]).collect();
    assert!(ends.len() == 8 && ends.iter().all(|end| **end != "done"), "{ends:?}");
    assert!(!format!("{records:?}").contains(CANARY));
}
