//! The queue in Redis, against a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use testkit::Redis;

use super::super::conformance;
use super::*;

/// A queue of its own on a server that tests share.
async fn open(server: &Redis, config: QueueConfig) -> Arc<dyn Queue> {
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
