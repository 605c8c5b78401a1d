//! The queue in Redis, against a real server, and beside BullMQ in Node.

mod node;

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use api::ExecutionState;
use testkit::{Redis, Scratch};

use super::super::conformance::{self, NOW, id, job};
use super::*;

/// Opens a new queue on a server that tests share.
async fn open(server: &Redis, config: QueueConfig) -> Arc<dyn JobQueue> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("cove{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let place = RedisConfig { url: server.url(), name, ..RedisConfig::default() };
    Arc::new(RedisQueue::open(place, config).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_passes_the_conformance_suite() {
    let server = Redis::start();
    let make = async |config: QueueConfig| open(&server, config).await;
    conformance::check_all(make, &[]).await;
}

#[tokio::test]
async fn the_loading_of_scripts_leaves_nothing() {
    let server = Redis::start();
    let queue = open(&server, QueueConfig::default()).await;
    // The record of queues, the ring, and BullMQ's own metadata of the queue.
    assert_eq!(server.command("DBSIZE"), ":3");
    drop(queue);
    assert_eq!(server.command("DBSIZE"), ":3");
}

#[tokio::test]
async fn sizes_that_were_added_are_taken_away() {
    let server = Redis::start();
    let queue = open(&server, conformance::config()).await;
    let jobs = (1..=6).map(|number| job(number, "a")).collect();
    queue.push(jobs).await.unwrap();
    let claims = queue.claim(4, ClaimQuota::unlimited(), NOW).await.unwrap();
    let ends = [
        AttemptResult::Result(b"{}".to_vec()),
        AttemptResult::Cancelled { message: "why".to_owned() },
        AttemptResult::Returned,
    ];
    for (claim, end) in claims.iter().zip(ends) {
        queue.finish(claim.lease.clone(), end, NOW + 1).await.unwrap();
    }
    assert_eq!(server.command("KEYS *:own:bytes").lines().next(), Some("*1"));
    // The fourth is lost, waits again, and is drained with the rest.
    queue.sweep(NOW + 30_000).await.unwrap();
    assert_eq!(queue.drain(None, NOW + 30_001).await.unwrap().len(), 4);
    assert_eq!(queue.sweep(NOW + 10_000_000).await.unwrap().removed, 6);
    assert_eq!(server.command("KEYS *:own:bytes").lines().next(), Some("*0"));
}

#[tokio::test]
async fn scripts_that_the_server_forgot_are_loaded_again() {
    let server = Redis::start();
    let queue = open(&server, QueueConfig::default()).await;
    queue.push(vec![job(1, "a")]).await.unwrap();
    assert_eq!(server.command("SCRIPT FLUSH"), "+OK");
    let claims = queue.claim(1, ClaimQuota::unlimited(), NOW).await.unwrap();
    assert_eq!(server.command("SCRIPT FLUSH"), "+OK");
    let lease = claims[0].lease.clone();
    assert_eq!(queue.heartbeat(vec![lease.clone()], NOW).await.unwrap(), [LeaseRenewal::Held]);
    assert_eq!(server.command("SCRIPT FLUSH"), "+OK");
    let ended = queue.finish(lease, AttemptResult::Result(b"{}".to_vec()), NOW).await.unwrap();
    assert_eq!(ended, AttemptDisposition::Now(ExecutionState::Finished));
}

#[tokio::test]
async fn a_lost_worker_is_told_as_stalled_and_its_job_is_given_once_more() {
    let server = Redis::start();
    let queue = open(&server, conformance::config()).await;
    queue.push(vec![job(1, "a")]).await.unwrap();
    let lost = queue.claim(1, ClaimQuota::unlimited(), NOW).await.unwrap().remove(0);
    let swept = queue.sweep(NOW + 30_000).await.unwrap();
    assert_eq!((swept.requeued, swept.ended), (vec![id(1)], vec![]));
    let again = queue.claim(2, ClaimQuota::unlimited(), NOW + 30_000).await.unwrap();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].attempt, 2);
    let late = queue.finish(lost.lease, AttemptResult::Result(b"{}".to_vec()), NOW + 30_001).await;
    assert_eq!(late.unwrap(), AttemptDisposition::Fenced);
    let swept = queue.sweep(NOW + 60_000).await.unwrap();
    assert_eq!((swept.requeued, swept.ended), (vec![], vec![(id(1), ExecutionState::Dead)]));
    assert_eq!(queue.claim(1, ClaimQuota::unlimited(), NOW + 60_000).await.unwrap(), []);
}

/// A server that can be killed and restarted with its data.
struct Mortal {
    scratch: Scratch,
    port: u16,
    child: Child,
}

impl Mortal {
    fn start() -> Mortal {
        let scratch = Scratch::new();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Mortal::spawn(&scratch, port);
        Mortal { scratch, port, child }
    }

    fn spawn(scratch: &Scratch, port: u16) -> Child {
        // The signal is for the end of the process: the test's own thread starts it.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "redis-server", "--bind", "127.0.0.1", "--save", ""]);
        command.args(["--appendonly", "yes", "--appendfsync", "always", "--port"]);
        command.arg(port.to_string()).arg("--dir").arg(scratch.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        testkit::until("Redis", Duration::from_secs(60), || {
            std::net::TcpStream::connect(("127.0.0.1", port)).map(drop).map_err(|it| it.to_string())
        });
        child
    }

    fn kill_and_start(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = Mortal::spawn(&self.scratch, self.port);
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[tokio::test]
async fn a_killed_server_loses_nothing_that_was_acknowledged() {
    let mut server = Mortal::start();
    let url = format!("redis://127.0.0.1:{}", server.port);
    let place = RedisConfig { url, ..RedisConfig::default() };
    let queue = RedisQueue::open(place, conformance::config()).await.unwrap();
    queue.push((1..=20).map(|number| job(number, "a")).collect()).await.unwrap();
    let first = queue.claim(5, ClaimQuota::unlimited(), NOW + 20).await.unwrap();
    assert_eq!(first.len(), 5);
    server.kill_and_start();
    // The first request may meet the broken connection; none needs a new queue.
    let mut rest = Vec::new();
    for _ in 0..100 {
        match queue.claim(20, ClaimQuota::unlimited(), NOW + 20).await {
            Ok(claims) => {
                rest = claims;
                break;
            }
            Err(error) => assert!(matches!(error, QueueError::Unavailable(_)), "{error}"),
        }
    }
    assert_eq!(rest.len(), 15);
    for claim in first.into_iter().chain(rest) {
        let result = AttemptResult::Result(b"{}".to_vec());
        let ended = queue.finish(claim.lease, result, NOW + 21).await.unwrap();
        assert_eq!(ended, AttemptDisposition::Now(ExecutionState::Finished));
    }
    assert_eq!(queue.stats(None, NOW).await.unwrap().finished, 20);
}

#[tokio::test]
async fn a_server_that_hangs_is_unavailable_in_time_and_comes_back() {
    let server = Redis::start();
    let queue = open(&server, conformance::config()).await;
    server.signal("STOP");
    let refused = tokio::time::timeout(Duration::from_secs(20), queue.push(vec![job(1, "a")]));
    let refused = refused.await.expect("an answer in time");
    server.signal("CONT");
    assert!(matches!(refused, Err(QueueError::Unavailable(_))), "{refused:?}");
    queue.push(vec![job(2, "a")]).await.unwrap();
    assert!(queue.get(id(2), JobParts::default()).await.unwrap().is_some());
}
