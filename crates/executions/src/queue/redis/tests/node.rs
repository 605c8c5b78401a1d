//! BullMQ in Node beside Cove: Cove runs its producer's jobs, and its dashboards see and change
//! ours.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::*;

/// BullMQ, installed once below the target directory; `compat/bullmq` specifies it.
fn project() -> &'static Path {
    static PROJECT: OnceLock<PathBuf> = OnceLock::new();
    PROJECT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let project = root.join("target/compat/bullmq");
        std::fs::create_dir_all(&project).unwrap();
        let mut is_same = project.join("node_modules/bullmq").is_dir();
        for file in [".npmrc", "package.json", "package-lock.json", "producer.mjs", "observer.mjs"]
        {
            let content = std::fs::read(root.join("compat/bullmq").join(file)).unwrap();
            let there = std::fs::read(project.join(file)).unwrap_or_default();
            is_same &= there == content || file.ends_with(".mjs");
            std::fs::write(project.join(file), content).unwrap();
        }
        if !is_same {
            let mut npm = Command::new("npm");
            // Not `ci`: it requires metadata of the builds for other systems, which are left out.
            npm.args(["install", "--omit=optional", "--ignore-scripts", "--no-progress"]);
            npm.current_dir(&project);
            let output = npm.output().expect("npm is there");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        project
    })
}

fn port(server: &Redis) -> String {
    server.address().port().to_string()
}

fn node(arguments: &[&str]) -> Child {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "node"]).args(arguments).current_dir(project());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Returns the last line that a program printed.
fn answer(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap()
}

fn observe(server: &Redis, queue: &str, command: &[&str]) -> Value {
    answer(node(&[&["observer.mjs", &port(server), queue], command].concat()))
}

async fn named(server: &Redis, name: &str, attempts_max: u32) -> RedisQueue {
    let place = RedisConfig { url: server.url(), name: name.to_owned(), ..RedisConfig::default() };
    let config = QueueConfig { attempts_max, ..QueueConfig::default() };
    RedisQueue::open(place, config).await.unwrap()
}

fn now_ms() -> u64 {
    let now = ::node::clock::wall().duration_since(std::time::UNIX_EPOCH).unwrap();
    millis(now)
}

#[tokio::test]
async fn a_producer_gets_every_result_once() {
    let server = Redis::start();
    let queue = named(&server, "cove", 2).await;
    let mut producer = node(&["producer.mjs", &port(&server), "cove", "50"]);
    let mut done = 0;
    while producer.try_wait().unwrap().is_none() {
        queue.changed().await.unwrap();
        for claim in queue.claim(8, ClaimQuota::unlimited(), now_ms()).await.unwrap() {
            assert_eq!((&*claim.tenant, claim.attempt), ("bullmq", 1));
            let request: Value = serde_json::from_slice(&claim.request).unwrap();
            let result = json!({"echo": request["source"]}).to_string().into_bytes();
            let finish = AttemptResult::Result(result.clone());
            let ended = queue.finish(claim.lease.clone(), finish, now_ms()).await.unwrap();
            assert_eq!(ended, AttemptDisposition::Now(ExecutionState::Finished));
            let parts = JobParts { request: true, result: true };
            let job = queue.get(claim.lease.id, parts).await.unwrap().unwrap();
            assert_eq!((&*job.language, job.result), ("python", Some(result)));
            done += 1;
        }
    }
    assert_eq!(answer(producer), json!({"added": 50, "completed": 50, "wrong": 0}));
    assert_eq!(done, 50);
    let stats = queue.stats(Some("bullmq".to_owned()), now_ms()).await.unwrap();
    assert_eq!((stats.finished, stats.queued, stats.running), (50, 0, 0));
}

#[tokio::test]
async fn a_dashboard_sees_and_changes_what_was_submitted() {
    let server = Redis::start();
    let queue = named(&server, "cove", 1).await;
    let jobs = (1..=4).map(|number| job(number, "a")).collect();
    queue.push(jobs).await.unwrap();
    let claims = queue.claim(3, ClaimQuota::unlimited(), NOW + 9).await.unwrap();
    let finish = async |at: usize, finish: AttemptResult| {
        queue.finish(claims[at].lease.clone(), finish, NOW + 10).await.unwrap()
    };
    finish(0, AttemptResult::Result(b"{\"verdict\":\"OK\"}".to_vec())).await;
    finish(1, AttemptResult::Failed { message: "no sandbox".to_owned() }).await;

    let seen = observe(&server, "cove.a", &["look"]);
    let counts = json!({
        "waiting": 0, "prioritized": 1, "active": 1, "delayed": 0, "completed": 1, "failed": 1
    });
    assert_eq!(seen["counts"], counts);
    assert_eq!(seen["paused"], json!(false));
    let completed = &seen["jobs"]["completed"][0];
    assert_eq!(completed["id"], json!(id(1)));
    assert_eq!(completed["name"], json!("execute"));
    assert_eq!(completed["data"], json!({"number": 1}));
    assert_eq!(completed["returnvalue"], json!({"verdict": "OK"}));
    assert_eq!(seen["jobs"]["failed"][0]["failedReason"], json!("no sandbox"));
    assert_eq!(seen["jobs"]["active"][0]["id"], json!(id(3)));
    assert_eq!(seen["jobs"]["prioritized"][0]["id"], json!(id(4)));

    observe(&server, "cove.a", &["pause"]);
    assert_eq!(queue.claim(9, ClaimQuota::unlimited(), NOW + 11).await.unwrap(), []);
    observe(&server, "cove.a", &["resume"]);
    let four = queue.claim(9, ClaimQuota::unlimited(), NOW + 12).await.unwrap();
    assert_eq!(four.len(), 1);

    let retried = observe(&server, "cove.a", &["retry", &id(2).0]);
    assert_eq!(retried["state"], json!("prioritized"));
    let waiting = queue.get(id(2), JobParts::default()).await.unwrap().unwrap();
    assert_eq!((waiting.state, waiting.finished_ms), (ExecutionState::Queued, None));
    // Cove got no notification: a sweep detects that this tenant waits again.
    assert_eq!(queue.sweep(NOW + 13).await.unwrap(), QueueSweepReport::default());
    let again = queue.claim(9, ClaimQuota::unlimited(), NOW + 13).await.unwrap();
    assert_eq!(again.len(), 1);
    assert_eq!((&again[0].lease.id, again[0].attempt), (&id(2), 1));

    observe(&server, "cove.a", &["remove", &id(1).0]);
    assert_eq!(queue.get(id(1), JobParts::default()).await.unwrap(), None);
}
