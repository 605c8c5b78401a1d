//! Start, drain, `kill -9`, tokens, one server per data directory.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{
    Client, Host, MariaDb, MyClient, MyLogin, PgAddress, PgBatch, PgClient, Postgres, Scratch,
    Server, Watch, process, until,
};

use crate::support::{
    COVE, SOON, alone_on_host, beside_others, held, run, serve, serve_with, settle, shell,
    wait_for_sleep, wake, warm_up,
};

/// Time limit for compiling a Java program and starting interpreters.
const WARM: Duration = Duration::from_secs(60);

/// Sends a request from a separate thread.
fn in_background(
    client: &Client,
    script: &str,
) -> std::thread::JoinHandle<Option<testkit::Response>> {
    sent_in_background(client, &held(script))
}

fn sent_in_background(
    client: &Client,
    request: &Value,
) -> std::thread::JoinHandle<Option<testkit::Response>> {
    let (client, request) = (client.clone(), client.execution(request));
    std::thread::spawn(move || client.try_send(&request).ok())
}

#[test]
fn sigterm_lets_a_running_job_finish() {
    let _guard = beside_others();
    let mut server = serve();
    let job = in_background(&server.client(), "sleep 63010; echo finished");
    wait_for_sleep("63010");
    server.signal("TERM");
    // New work is rejected, by a status or a closed connection.
    until("new work to be refused", SOON, || {
        let late = server.client().try_send(&server.client().execution(&shell("true")));
        match late {
            Ok(response) if response.status == 503 => {
                assert_eq!(response.json()["error"]["code"], "draining");
                assert!(response.header("retry-after").is_some());
                Ok(())
            }
            Ok(response) => Err(response.text()),
            Err(_) => Ok(()),
        }
    });
    wake("63010");
    let response = job.join().unwrap().expect("an answer");
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.json()["stdout"], "finished\n");
    assert!(server.wait(SOON).success());
    assert!(
        !server.data_dir().join("addresses.json").exists(),
        "addresses of a server that is gone"
    );
}

#[test]
fn an_idle_server_stops_at_once_and_leaves_nothing() {
    let _guard = alone_on_host();
    let before = Host::snapshot(&Watch::default());
    let mut server = serve();
    assert_eq!(run(&server.client(), &shell("echo x"))["stdout"], "x\n");
    let family = process::descendants(server.pid());
    assert!(!family.is_empty(), "no spawner");
    server.signal("TERM");
    assert!(server.wait(SOON).success());
    wait_until_dead(&family.into_iter().collect::<Vec<_>>());
    before.wait_for_return(SOON);
}

fn wait_until_dead(family: &[process::Process]) {
    until("the end of every process", SOON, || {
        let left: Vec<_> = family.iter().filter(|process| process.is_alive()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

/// Programs of warm interpreters, each with its own `sleep`.
fn warm_sleepers(seconds: &str) -> [Value; 3] {
    let java = "public class Main { public static void main(String[] args) throws Exception {\n\
                new ProcessBuilder(\"sleep\", \"SECONDS\").start().waitFor(); } }";
    [
        ("python", "import subprocess; subprocess.run(['sleep', 'SECONDS']); print('done')"),
        ("javascript", "require('child_process').spawnSync('sleep', ['SECONDS'])"),
        ("java", java),
    ]
    .map(|(language, source)| {
        json!({"language": language, "source": source.replace("SECONDS", seconds),
            "limits": {"wall_ms": 100_000}})
    })
}

#[test]
fn killing_the_server_leaves_nothing_and_the_next_one_starts() {
    let _guard = alone_on_host();
    let before = Host::snapshot(&Watch::default());
    let mut server = serve_with("running_max = 8");
    let client = server.client();
    let jobs: Vec<_> = [
        "sleep 63001",
        "trap '' TERM HUP; setsid sleep 63001 & sleep 63001",
        "while :; do :; done",
        "dd if=/dev/zero of=/tmp/fill bs=1M count=20; sleep 63001",
    ]
    .map(|script| in_background(&client, script))
    .into_iter()
    .chain(warm_sleepers("63001").iter().map(|request| sent_in_background(&client, request)))
    .collect();
    until("all of them running, and others waiting", WARM, || {
        let count = process::with_marker("63001").len();
        let family = process::descendants(server.pid());
        let names: Vec<String> = family.iter().map(|one| process::name(one.pid)).collect();
        let is_there_twice = |name: &&str| names.iter().filter(|one| one == name).count() >= 2;
        let are_ready = ["python3", "node", "java"].iter().all(is_there_twice);
        if count >= 7 && are_ready { Ok(()) } else { Err(format!("{count} {names:?}")) }
    });
    let family: Vec<_> = process::descendants(server.pid()).into_iter().collect();
    assert!(family.len() > 4, "{family:?}");
    server.signal("KILL");
    assert!(!server.wait(SOON).success());
    wait_until_dead(&family);
    for job in jobs {
        assert!(job.join().unwrap().is_none(), "an answer from a dead server");
    }
    before.wait_for_return(SOON);
}

#[test]
fn killing_a_spawner_costs_its_runs_and_nothing_else() {
    let _guard = alone_on_host();
    let host = Host::snapshot(&Watch::default());
    let mut server = serve();
    server.expect_log("spawner");
    server.expect_log("ended unexpectedly");
    let client = server.client();
    warm_up(&client);
    settle(&client);
    let before = Host::snapshot(&Watch { server: Some(server.pid()), markers: Vec::new() });
    // The server's other child processes query the versions of tools.
    let is_spawner = |child: &process::Process| process::name(child.pid) == "cove-spawner";
    let spawners: Vec<_> = process::children(server.pid()).into_iter().filter(is_spawner).collect();
    assert!(!spawners.is_empty(), "no spawner");
    for spawner in spawners {
        let [python, ..] = warm_sleepers("63011");
        let jobs: Vec<_> = (0..3)
            .map(|_| in_background(&client, "sleep 63011; echo done"))
            .chain((0..2).map(|_| sent_in_background(&client, &python)))
            .collect();
        wait_for_sleep("63011");
        process::signal(spawner.pid, "KILL");
        until("every answer", SOON, || {
            // Ends programs that another spawner runs, and programs that waited for a place.
            for sleep in process::named("sleep", "63011") {
                process::end(sleep);
            }
            let open = jobs.iter().filter(|job| !job.is_finished()).count();
            if open == 0 { Ok(()) } else { Err(format!("{open} are not there")) }
        });
        for job in jobs {
            let response = job.join().unwrap().expect("an answer");
            let answer = response.json();
            let served = answer["verdict"] == "OK" && answer["stdout"] == "done\n";
            // A run lost with its spawner is reported as an internal error (IE), not as a failure
            // of the program.
            assert!(served || answer["verdict"] == "IE" || response.status == 503, "{answer}");
        }
        assert!(!spawner.is_alive());
        for _ in 0..8 {
            let answer = run(&client, &shell("echo serves on"));
            assert_eq!(
                (&answer["verdict"], &answer["stdout"]),
                (&json!("OK"), &json!("serves on\n"))
            );
            let answer = run(&client, &json!({"language": "python", "source": "print('on')"}));
            assert_eq!(
                (&answer["mode"], &answer["stdout"]),
                (&json!("zygote"), &json!("on\n")),
                "{answer}"
            );
        }
    }
    before.wait_for_return(SOON);
    server.signal("TERM");
    assert!(server.wait(SOON).success());
    host.wait_for_return(SOON);
}

/// Language whose preparation on the host lasts as long as the test requires.
const PREPARED_FOR_LONG: &str = r#"
[tools.waits]
executable = "bin/sh"
directories = ["/usr"]
version = ["-c", "echo 1"]

[languages.waits]
aliases = []
extensions = ["waits"]
entry = "main.waits"
[[languages.waits.ways]]
version = "waits"
run = ["{waits}", "{entry}"]
prepare = ["{waits}", "-c", "sleep 63009 & sleep 63009; true"]
"#;

#[test]
fn what_prepares_a_language_dies_with_the_server() {
    let _guard = beside_others();
    let scratch = testkit::Scratch::new();
    let others = include_str!("../cases/languages.toml");
    let languages = scratch.file("languages.toml", format!("{others}{PREPARED_FOR_LONG}"));
    for signal in ["TERM", "KILL"] {
        let config = format!("[executions]\nlanguages = {languages:?}\n");
        let mut server = testkit::Server::start_with(COVE, &[], Some(&config));
        until("its preparation", SOON, || {
            let pids = process::with_marker("63009");
            if pids.len() >= 3 { Ok(()) } else { Err(format!("{pids:?}")) }
        });
        server.signal(signal);
        let _status = server.wait(SOON);
        until("the end of its preparation", SOON, || {
            let left = process::with_marker("63009");
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        });
    }
}

/// Returns all files below `directory`.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

#[test]
fn the_token_is_its_owners_alone_and_is_never_printed() {
    let _guard = beside_others();
    let server = serve();
    assert_eq!(run(&server.client(), &shell("echo x"))["stdout"], "x\n");
    let token = server.token();
    assert!(token.len() >= 32, "a short token");
    assert!(!server.log().contains(token), "the token is in the log");
    let metrics = server.client().get("/metrics").text();
    assert!(!metrics.contains(token), "the token is in the metrics");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&server.data_dir()), 0o700);
    let mut holders = Vec::new();
    for path in files(&server.data_dir()) {
        assert_eq!(mode(&path) & 0o077, 0, "{} is open to others", path.display());
        let mut content = Vec::new();
        fs::File::open(&path).unwrap().read_to_end(&mut content).unwrap();
        if process::contains(&content, token.as_bytes()) {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
            holders.push(path);
        }
    }
    assert_eq!(holders.len(), 1, "the token stands in {holders:?}");
    for pid in
        process::descendants(server.pid()).iter().map(|process| process.pid).chain([server.pid()])
    {
        for place in ["cmdline", "environ"] {
            let content = fs::read(format!("/proc/{pid}/{place}")).unwrap_or_default();
            assert!(
                !process::contains(&content, token.as_bytes()),
                "the token is in {place} of {pid}"
            );
        }
    }
}

/// Secrets and proofs of grants would be valid for one of the servers only.
#[test]
fn a_server_whose_keys_are_not_those_of_its_store_is_refused() {
    let _guard = beside_others();
    let database = Postgres::shared();
    let url = database.database();
    let key = |digit: &str| digit.repeat(64);
    let config = |secrets: &str, webhooks: &str| {
        format!(
            "store.url = {url:?}\nsecrets_key = {:?}\nexecutions.jobs.webhook_key = {:?}\n",
            key(secrets),
            key(webhooks)
        )
    };
    let first = Server::start_with(COVE, &[], Some(&config("a", "b")));
    let start = |config: &str, arguments: &[&str]| {
        let scratch = Scratch::new();
        let mut command = testkit::command(COVE);
        command.args(arguments).args(["--http", "127.0.0.1:0", "--data-dir"]);
        command.arg(scratch.path().join("data"));
        command.arg("--config").arg(scratch.file("cove.toml", config));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (secrets, webhooks, setting) in
        [("c", "b", "secrets_key: "), ("a", "c", "executions.jobs.webhook_key: ")]
    {
        let (code, errors) = start(&config(secrets, webhooks), &["serve"]);
        assert_eq!(code, Some(1), "{errors}");
        assert!(errors.contains(setting) && errors.contains("--replace-keys"), "{errors}");
        assert!(!errors.contains(&key("a")) && !errors.contains(&key("c")), "{errors}");
    }
    let (code, errors) = start(&config("c", "b"), &["catalog", "serve"]);
    assert_eq!(code, Some(1), "{errors}");
    drop(first);
    // After a deliberate change, the old key is rejected.
    drop(Server::start_with(COVE, &["--replace-keys"], Some(&config("c", "d"))));
    assert_eq!(start(&config("a", "b"), &["serve"]).0, Some(1));
    drop(Server::start_with(COVE, &[], Some(&config("c", "d"))));
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let _guard = beside_others();
    let server = serve();
    let second = testkit::command(COVE)
        .args(["serve", "--http", "127.0.0.1:0", "--data-dir"])
        .arg(server.data_dir())
        .output()
        .unwrap();
    assert!(!second.status.success(), "{second:?}");
    let message = String::from_utf8_lossy(&second.stderr);
    assert!(message.contains(&*server.data_dir().to_string_lossy()), "{message}");
    assert!(message.contains("another"), "{message}");
    assert_eq!(run(&server.client(), &shell("echo first serves"))["stdout"], "first serves\n");
}

#[test]
fn a_token_is_for_what_it_was_made_for_in_each_spelling() {
    let _guard = beside_others();
    let server = serve();
    let job = json!({"argv": ["/bin/true"]});
    let submit = |client: &Client| client.run(&job);
    for (scope, e2b, status) in [
        ("sessions,agents", "--e2b", 403),
        ("sessions", "--e2b", 403),
        ("executions", "--e2b", 200),
    ] {
        let more = ["--tenant", "team", "--scope", scope, e2b];
        let reply = submit(&server.other_client("sdk", &more));
        assert_eq!(reply.status, status, "{scope}: {}", reply.text());
        if status == 403 {
            let error = &reply.json()["error"];
            assert_eq!(error["code"], "forbidden");
            assert_eq!(error["message"], "this token lacks the scope `executions`");
        }
    }
    let mut first = testkit::command(COVE);
    first.args(["token", "--e2b", "--data-dir"]).arg(server.data_dir());
    let output = first.output().unwrap();
    let token = String::from_utf8(output.stdout).unwrap();
    assert!(token.starts_with("e2b_") && token.trim().len() == 68, "{token}");
    let request = testkit::Request::new("GET", "/v1/languages").header("x-api-key", token.trim());
    assert_eq!(server.client().anonymous().send(&request).status, 200);

    let command = |more: &[&str]| {
        let mut command = testkit::command(COVE);
        command.args(["token", "--data-dir"]).arg(server.data_dir()).args(more).output().unwrap()
    };
    let listed = String::from_utf8(command(&["list"]).stdout).unwrap();
    assert!(listed.contains("sdk  tenant team  for sessions,agents\n"), "{listed}");
    let refused = command(&["create", "--name", "a", "--scope", "root"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("`root` is not a scope"), "{text}");
}

#[test]
fn a_restarted_server_knows_the_same_token() {
    let _guard = beside_others();
    let scratch = testkit::Scratch::new();
    let data = scratch.path().join("data");
    let data = data.to_str().unwrap();
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let mut child = testkit::command(COVE)
            .args(["serve", "--http", "127.0.0.1:0", "--data-dir", data])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        until("addresses.json", Duration::from_secs(60), || {
            fs::read(Path::new(data).join("addresses.json")).map_err(|error| error.to_string())
        });
        let output = testkit::command(COVE).args(["token", "--data-dir", data]).output().unwrap();
        tokens.push(String::from_utf8_lossy(&output.stdout).into_owned());
        process::signal(child.id(), "TERM");
        until("its end", SOON, || match child.try_wait() {
            Ok(Some(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    assert_eq!(tokens[0], tokens[1]);
    assert!(!tokens[0].trim().is_empty());
}

#[test]
fn bad_configuration_is_refused_at_the_start_with_a_reason() {
    let _guard = beside_others();
    let scratch = testkit::Scratch::new();
    for (config, says) in [
        ("unknown_key = 1", "unknown_key"),
        ("[executions]\nqueue_maximum = 1", "queue_maximum"),
        ("[executions]\nqueue_max = \"many\"", ":2:"),
        ("not toml at all", "cove.toml"),
    ] {
        let path = scratch.file("cove.toml", config);
        let output = testkit::command(COVE)
            .args(["serve", "--http", "127.0.0.1:0", "--config"])
            .arg(&path)
            .arg("--data-dir")
            .arg(scratch.path().join("data"))
            .output()
            .unwrap();
        assert!(!output.status.success(), "{config}");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(says), "{config}: {message}");
    }
    for address in ["127.0.0.1", "nowhere:0:0", "256.0.0.1:1"] {
        let output = testkit::command(COVE)
            .args(["serve", "--http", address, "--data-dir"])
            .arg(scratch.path().join("data"))
            .output()
            .unwrap();
        assert!(!output.status.success(), "{address}");
        assert!(!output.stderr.is_empty(), "{address}");
    }
}

#[test]
fn health_metrics_and_documentation_need_no_token() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client().anonymous();
    for target in
        ["/health/live", "/health/ready", "/metrics", "/docs/", "/docs/executions", "/docs/api"]
    {
        let response = client.get(target);
        assert_eq!(response.status, 200, "{target}: {}", response.text());
        assert!(!response.body.is_empty(), "{target}");
    }
    assert_eq!(run(&server.client(), &shell("exit 3"))["verdict"], "RE");
    let metrics = client.get("/metrics").text();
    assert!(metrics.contains("cove_"), "{metrics}");
    assert!(metrics.contains("\"RE\"") || metrics.contains("\"re\""), "{metrics}");
}

/// A core dump would contain hashes of tokens, passwords of databases, and keys.
#[test]
fn the_server_writes_no_core_dumps() {
    let _guard = beside_others();
    let server = serve();
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let values: Vec<&str> = line.split_whitespace().skip(4).take(2).collect();
    assert_eq!(values, ["0", "0"], "{line}");
}

/// Clients of the bouncer survive an upgrade of their server.
#[test]
fn clients_of_the_bouncer_go_on_at_the_next_server() {
    let _guard = beside_others();
    let (postgres, maria) = (Postgres::start(), MariaDb::start());
    postgres.sql("CREATE ROLE app LOGIN PASSWORD 'pw'");
    maria.user("app", "pw");
    let scratch = Scratch::new();
    let socket = scratch.path().join("takeover.sock").display().to_string();
    let config = format!(
        "[[bouncer.tenants]]\nname = \"shop\"\nserver = \"{}\"\ndatabase = \"postgres\"\n\
         users = [{{ name = \"app\", password = \"pw\" }}]\n\
         [[bouncer.tenants]]\nname = \"blog\"\nengine = \"mysql\"\nserver = \"{}\"\n\
         database = \"information_schema\"\nusers = [{{ name = \"app\", password = \"pw\" }}]\n",
        postgres.tcp(),
        maria.tcp()
    );
    let mut server = Server::start_with(COVE, &["--takeover", &socket], Some(&config));
    let (address, of_mysql) = (server.listener("bouncer"), server.listener("mysql"));
    let log_in = || {
        let parameters = [("user", "app"), ("database", "shop")];
        PgClient::login(&PgAddress::Tcp(address), &parameters, "pw").unwrap()
    };
    let mut idle = log_in();
    idle.run("SET work_mem = '1234kB'");
    idle.ask(&PgBatch::new().parse("kept", "SELECT 6 * 7").sync()).unwrap();
    let login = MyLogin::new("app", "pw", "blog");
    let mut of_maria = MyClient::login(&PgAddress::Tcp(of_mysql), &login).unwrap();
    of_maria.query("SET SESSION sort_buffer_size = 123456").unwrap();

    let is_over = Arc::new(AtomicBool::new(false));
    let worker = thread::spawn({
        let (is_over, mut client) = (Arc::clone(&is_over), log_in());
        move || {
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                client.run("BEGIN");
                assert_eq!(client.value(&format!("SELECT {number}")), number.to_string());
                client.run("COMMIT");
                number += 1;
            }
        }
    });
    for turn in 1..=2 {
        let mut open = log_in();
        open.run("BEGIN; CREATE TEMP TABLE mine (number int) ON COMMIT DROP");
        let log = server.scratch().path().join("server.log");
        let committed = thread::spawn(move || {
            until("the next server to wait", SOON, || {
                let log = fs::read_to_string(&log).unwrap();
                let count = log.matches("waits for the server that hands over").count();
                if count == turn { Ok(()) } else { Err(log) }
            });
            // The open transaction keeps its server connection until it commits.
            assert_eq!(open.value("SELECT count(*) FROM mine"), "0");
            open.run("COMMIT");
            assert_eq!(open.value("SELECT 7"), "7");
        });
        server.replace();
        committed.join().unwrap();
        assert_eq!((server.listener("bouncer"), server.listener("mysql")), (address, of_mysql));
        assert_eq!(idle.value("SHOW work_mem"), "1234kB");
        let execute = PgBatch::new().bind("", "kept", &[]).execute("", 0).sync();
        assert_eq!(idle.ask(&execute).unwrap().value(), "42");
        assert_eq!(of_maria.value("SELECT @@sort_buffer_size"), "123456");
        assert_eq!(log_in().value("SELECT 1"), "1");
        assert_eq!(run(&server.client(), &shell("echo x"))["stdout"], "x\n");
    }
    is_over.store(true, Ordering::Relaxed);
    worker.join().unwrap();
}
