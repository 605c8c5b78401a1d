//! A server is backed up under load, and restored: every operation that had succeeded before is
//! present, every file that the store's copy names is present, and no damaged archive is restored.
//!
//! Tables name their files by path, so the restored server uses the first one's data directory,
//! which is moved away before.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::{Client, Postgres, Request, Response, S3, Server, until};

use crate::asynchronous::{ended, figures, post, record, set_paused, submit};
use crate::sessions_support::{SOON, Sessions, config, ok};
use crate::support::{beside_others, shell};
use crate::{sessions_support, support};

/// Rounds of each kind of work before the backup begins.
const ROUNDS_MIN: usize = 3;

/// Namespace of all tables.
const TABLES: &str = "/catalog/v1/main/namespaces/shop/tables";

/// Operations that succeeded.
#[derive(Debug, Default)]
struct Answered {
    executions: Vec<String>,
    /// Number of commits to the permanent table.
    commits: usize,
    /// Files of the active session, with their content.
    files: BTreeMap<String, String>,
}

/// Load by several threads.
#[derive(Debug, Default)]
struct Load {
    stop: AtomicBool,
    answered: Mutex<Answered>,
    rounds: [AtomicUsize; 4],
}

impl Load {
    /// Repeats one kind of work.
    fn work(&self, kind: usize, mut round: impl FnMut(usize)) {
        for number in 0.. {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            round(number);
            self.rounds[kind].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until each kind of work has done this many more rounds.
    fn wait_for_rounds(&self, count: usize) {
        let counts = || self.rounds.each_ref().map(|it| it.load(Ordering::Relaxed));
        let before = counts();
        until("all kinds of work to go on", SOON, || {
            let now = counts();
            let is_done = now.iter().zip(before).all(|(now, before)| *now >= before + count);
            if is_done { Ok(()) } else { Err(format!("{before:?}, {now:?}")) }
        });
    }
}

fn table(name: &str) -> Value {
    json!({"name": name, "schema": {"type": "struct", "fields": [
        {"id": 1, "name": "id", "required": true, "type": "long"},
    ]}})
}

fn commit(client: &Client, key: &str) -> Response {
    let updates = json!({"requirements": [], "updates": [
        {"action": "set-properties", "updates": {key: "there"}}
    ]});
    post(client, &format!("{TABLES}/kept"), &updates)
}

/// Works with the server: executions, a session's files, commits, short-lived tables.
fn work(load: &Load, client: &Client, session: &str) {
    let sessions = Sessions { client: client.clone() };
    thread::scope(|scope| {
        scope.spawn(|| {
            load.work(0, |number| {
                let id = submit(client, &shell(&format!("echo {number}")));
                load.answered.lock().executions.push(id);
            });
        });
        scope.spawn(|| {
            load.work(1, |number| {
                let (name, content) = (format!("{number}.txt"), "x".repeat(number * 100));
                ok(&sessions.write(session, &name, content.as_bytes()));
                load.answered.lock().files.insert(name, content);
            });
        });
        scope.spawn(|| {
            load.work(2, |number| {
                ok(&commit(client, &format!("key-{number}")));
                load.answered.lock().commits = number + 1;
            });
        });
        scope.spawn(|| {
            load.work(3, |number| {
                let name = format!("passing-{number}");
                ok(&post(client, TABLES, &table(&name)));
                // Two exist at a time: files of one are removed while others are held.
                let Some(older) = number.checked_sub(2) else { return };
                let target = format!("{TABLES}/passing-{older}?purgeRequested=true");
                let purged = client.send(&Request::new("DELETE", &target));
                assert_eq!(purged.status, 204, "{}", purged.text());
            });
        });
    });
}

/// Runs `cove backup` or `cove restore`.
fn command(server: &Server, name: &str, arguments: &[&str], token: Option<&str>) -> Output {
    let mut command = testkit::command(support::COVE);
    command.arg(name).args(arguments);
    if name == "backup" && arguments.first() != Some(&"verify") {
        command.args(["--server", &format!("http://{}", server.client().address())]);
        command.env("COVE_TOKEN", token.unwrap_or(server.token()));
    }
    command.output().unwrap()
}

/// Runs such a command, which must exit with this code, and returns its output.
fn exits(server: &Server, name: &str, arguments: &[&str], code: i32) -> String {
    let output = command(server, name, arguments, None);
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(output.status.code(), Some(code), "{name} {arguments:?}: {text}");
    text
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Stops the server, and replaces its data directory by a restored one.
fn replace_data(server: &mut Server, archive: &Path, aside: &str, more: &[&str]) -> Value {
    server.signal("TERM");
    assert!(server.wait(SOON).success());
    let data = server.data_dir();
    fs::rename(&data, data.with_file_name(aside)).unwrap();
    let arguments = [&[text(archive), "--data-dir", text(&data), "--json"], more].concat();
    serde_json::from_str(&exits(server, "restore", &arguments, 0)).unwrap()
}

/// Replaces the data directory, and restarts the server.
fn restore_in_place(server: &mut Server, archive: &Path, aside: &str, more: &[&str]) -> Value {
    let restored = replace_data(server, archive, aside, more);
    server.restart();
    restored
}

/// Returns the local metadata file of a table.
fn metadata_file(loaded: &Value) -> PathBuf {
    let location = loaded["metadata-location"].as_str().unwrap();
    PathBuf::from(location.strip_prefix("file://").unwrap())
}

/// Checks that the restored server has everything that had succeeded before the backup.
fn check_restored(server: &Server, before: &Answered, session: &str) {
    let client = server.client();
    for (number, id) in before.executions.iter().enumerate() {
        let record = ended(&client, id);
        assert_eq!(record["result"]["stdout"], format!("{number}\n"), "{record}");
    }
    let listed = ok(&client.get(TABLES));
    let listed = listed["identifiers"].as_array().unwrap();
    assert!(!listed.is_empty());
    for table in listed {
        let loaded = ok(&client.get(&format!("{TABLES}/{}", table["name"].as_str().unwrap())));
        let file = metadata_file(&loaded);
        assert!(file.is_file(), "{} is missing: {table}", file.display());
    }
    let kept = ok(&client.get(&format!("{TABLES}/kept")));
    for number in 0..before.commits {
        assert_eq!(kept["metadata"]["properties"][format!("key-{number}")], "there");
    }
    ok(&commit(&client, "after"));

    let sessions = Sessions::from(server);
    assert_eq!(sessions.record(session)["state"], "paused");
    sessions.did(session, "resume");
    for (name, content) in &before.files {
        assert_eq!(sessions.read(session, name).text(), *content, "{name}");
    }
    // The server's key opens its sealed secrets.
    assert_eq!(sessions.out(session, "echo $SEALED"), "kept secret\n");
    let mounted = sessions.out(session, "echo more > new.txt && cat new.txt");
    assert_eq!(mounted, "more\n");
}

#[test]
fn a_server_that_works_is_backed_up_and_what_it_had_answered_is_restored() {
    let _guard = beside_others();
    let mut server = sessions_support::serve_sessions("resident_max = 20");
    let client = server.client();
    let sessions = Sessions::from(&server);
    let other = server.other_client("other", &["--scope", "executions"]);
    let narrow = server.other_client("narrow", &["--operator", "--scope", "executions"]);

    let at_work = sessions.create(&json!({"env": {"SEALED": "kept secret"}}));
    let cold = sessions.create(&json!({}));
    ok(&sessions.write(&cold, "cold.txt", b"cold"));
    let snapshot = ok(&post(&client, &format!("/v1/sessions/{cold}/snapshots"), &json!({})));
    ok(&sessions.write(&cold, "later.txt", b"later"));
    sessions.did(&cold, "stop");
    ok(&post(&client, "/catalog/v1/main/namespaces", &json!({"namespace": ["shop"]})));
    let kept = ok(&post(&client, TABLES, &table("kept")));
    // A client writes data beside the metadata, and a link, which must not be restored.
    let place = metadata_file(&kept).parent().unwrap().with_file_name("data");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("1.parquet"), "rows").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", place.join("link")).unwrap();

    for (who, refused) in [
        ("another tenant", other.get("/v1/backup")),
        ("an operator for executions", narrow.get("/v1/backup")),
    ] {
        assert_eq!(refused.status, 403, "{who}: {}", refused.text());
    }
    assert_eq!(client.anonymous().get("/v1/backup").status, 401);

    let scratch = testkit::Scratch::new();
    let archive = scratch.path().join("cove.tar.gz");
    let load = Load::default();
    let (before, described) = thread::scope(|scope| {
        let working = scope.spawn(|| work(&load, &client, &at_work));
        load.wait_for_rounds(ROUNDS_MIN);
        let before = std::mem::take(&mut *load.answered.lock());
        let commits = load.answered.lock().commits.max(before.commits);
        let described = exits(&server, "backup", &["-o", text(&archive), "--json"], 0);
        load.wait_for_rounds(1);
        load.stop.store(true, Ordering::Relaxed);
        working.join().unwrap();
        (Answered { commits, ..before }, described)
    });
    check_description(&serde_json::from_str(&described).unwrap(), &archive);
    check_refusals(&server, &archive, scratch.path());
    assert!(!server.data_dir().join("backup").exists(), "files of the backup are left behind");
    let first_node = ok(&client.get("/v1/whoami"))["node"].clone();

    // An execution that ran when the store was copied is run once more.
    server.expect_log("executions were cut off by the server's end");
    let restored = restore_in_place(&mut server, &archive, "first", &[]);
    let node = ok(&server.client().get("/v1/whoami"))["node"].clone();
    assert_eq!(restored["restored"]["node"], node);
    assert_ne!(node, first_node);
    assert_eq!(restored["restored"]["sessions"], 2, "{restored}");
    check_restored(&server, &before, &at_work);
    assert_eq!(fs::read_to_string(place.join("1.parquet")).unwrap(), "rows");
    assert!(!place.join("link").exists());
    let other = other.at(server.client().address());
    assert_eq!(other.get("/v1/executions").status, 200, "the other token is not known");
    let sessions = Sessions::from(&server);
    sessions.did(&cold, "resume");
    assert_eq!(sessions.read(&cold, "later.txt").text(), "later");
    let copy = sessions.create(&json!({"snapshot": snapshot["id"]}));
    assert_eq!(sessions.read(&copy, "cold.txt").text(), "cold");
    assert_eq!(sessions.read(&copy, "later.txt").status, 404);
}

/// Checks the output of `cove backup --json`.
fn check_description(described: &Value, archive: &Path) {
    assert_eq!(described["file"], text(archive));
    let part = |name: &str| {
        let parts = described["manifest"]["parts"].as_array().unwrap();
        let found = parts.iter().find(|part| part["name"] == name);
        found.unwrap_or_else(|| panic!("no {name}: {described}"))["files"].as_u64().unwrap()
    };
    assert_eq!((part("store"), part("keys and tokens")), (1, 5), "{described}");
    // Two disks, the layer of the snapshot, and its objects.
    assert_eq!(part("sessions"), 3, "{described}");
    assert!(part("objects") >= 2 && part("warehouse") >= 5, "{described}");
    let skipped = &described["report"]["skipped"];
    assert_eq!(skipped["count"], 1, "{described}");
    assert!(skipped["first"][0].as_str().unwrap().ends_with("/data/link"), "{described}");
    assert_eq!(described["report"]["shortened"]["count"], 0, "{described}");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(archive).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let partial = format!("{}.partial", archive.display());
    assert!(!Path::new(&partial).exists());
}

/// Checks which backups and restorations are rejected.
fn check_refusals(server: &Server, archive: &Path, scratch: &Path) {
    let whole = exits(server, "backup", &["verify", text(archive)], 0);
    assert!(whole.contains("not in it:\n  the configuration"), "{whole}");
    let verified = exits(server, "restore", &[text(archive), "--verify"], 0);
    assert_eq!(verified, whole);
    let exists = exits(server, "backup", &["-o", text(archive)], 2);
    assert!(exists.contains("exists: name another file"), "{exists}");
    let refused = command(server, "backup", &["-o", text(&scratch.join("n"))], Some("cove_wrong"));
    assert_eq!(refused.status.code(), Some(125));

    let bytes = fs::read(archive).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 0x10;
    let target = scratch.join("target");
    for (name, content) in [("cut", &bytes[..bytes.len() / 2]), ("flipped", &flipped)] {
        let path = scratch.join(name);
        fs::write(&path, content).unwrap();
        exits(server, "backup", &["verify", text(&path)], 125);
        exits(server, "restore", &[text(&path), "--data-dir", text(&target)], 125);
        assert!(!target.exists(), "{name}");
    }
    let data = server.data_dir();
    let full = exits(server, "restore", &[text(archive), "--data-dir", text(&data)], 2);
    assert!(full.contains("is not empty"), "{full}");
    let files: Vec<_> = fs::read_dir(scratch).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(files.len(), 3, "{files:?}");
}

#[test]
fn what_waited_in_a_backup_runs_when_it_is_told_to() {
    let _guard = beside_others();
    let mut server = Server::start_with(support::COVE, &[], Some(&config("")));
    let client = server.client();
    set_paused(&client, true);
    let id = submit(&client, &shell("echo waited"));
    let scratch = testkit::Scratch::new();
    let archive = scratch.path().join("cove.tar.gz");
    exits(&server, "backup", &["-o", text(&archive)], 0);
    set_paused(&client, false);
    ended(&client, &id);

    restore_in_place(&mut server, &archive, "first", &["--pause-queue"]);
    let client = server.client();
    assert_eq!(figures(&client)["paused"], true);
    assert_eq!(record(&client, &id)["state"], "queued");
    set_paused(&client, false);
    assert_eq!(ended(&client, &id)["result"]["stdout"], "waited\n");
}

#[test]
fn what_is_in_a_database_and_a_bucket_is_restored_beside_the_directory() {
    let _guard = beside_others();
    let (database, bucket) = (Postgres::shared(), S3::start());
    let configuration = |store: &str| {
        format!(
            "store.url = {store:?}\nobjects.url = {:?}\nobjects.access_key_id = {:?}\n\
             objects.secret_access_key = {:?}\n{}",
            bucket.url("backup"),
            bucket.access_key_id,
            bucket.secret_access_key,
            config("")
        )
    };
    let store = database.database();
    let mut server = Server::start_with(support::COVE, &[], Some(&configuration(&store)));
    let client = server.client();
    let sessions = Sessions::from(&server);
    let session = sessions.create(&json!({"env": {"SEALED": "kept secret"}}));
    ok(&sessions.write(&session, "kept.txt", b"kept"));
    let snapshot = ok(&post(&client, &format!("/v1/sessions/{session}/snapshots"), &json!({})));
    set_paused(&client, true);
    let id = submit(&client, &shell("echo waited"));

    // In the order of docs/operations.md; changes in between are in the directory only.
    let copy = database.copy_of(&store);
    ok(&sessions.write(&session, "later.txt", b"later"));
    let scratch = testkit::Scratch::new();
    let archive = scratch.path().join("cove.tar.gz");
    let output = exits(&server, "backup", &["-o", text(&archive)], 0);
    for elsewhere in ["the store, in PostgreSQL", "objects (`objects.url`)"] {
        assert!(output.contains(elsewhere), "{elsewhere}: {output}");
    }
    assert!(!output.contains("kept secret") && !output.contains(&store), "{output}");
    set_paused(&client, false);
    ended(&client, &id);
    let end = Request::new("DELETE", &sessions_support::path(&session));
    ok(&client.send(&end));
    let node = ok(&client.get("/v1/whoami"))["node"].clone();

    let refused = exits(
        &server,
        "restore",
        &[text(&archive), "--data-dir", text(&scratch.path().join("new")), "--pause-queue"],
        2,
    );
    assert!(refused.contains("the store is not in this archive"), "{refused}");
    replace_data(&mut server, &archive, "first", &[]);
    let file = server.scratch().path().join("cove.toml");
    fs::write(file, configuration(&copy)).unwrap();
    server.restart();
    let (client, sessions) = (server.client(), Sessions::from(&server));
    assert_eq!(ok(&client.get("/v1/whoami"))["node"], node, "rows of the store name the old one");
    assert_eq!(record(&client, &id)["state"], "queued");
    set_paused(&client, false);
    assert_eq!(ended(&client, &id)["result"]["stdout"], "waited\n");
    sessions.did(&session, "resume");
    assert_eq!(sessions.read(&session, "kept.txt").text(), "kept");
    assert_eq!(sessions.read(&session, "later.txt").text(), "later");
    assert_eq!(sessions.out(&session, "echo $SEALED"), "kept secret\n");
    let copy = sessions.create(&json!({"snapshot": snapshot["id"]}));
    assert_eq!(sessions.read(&copy, "kept.txt").text(), "kept");
    assert_eq!(sessions.read(&copy, "later.txt").status, 404);
}
