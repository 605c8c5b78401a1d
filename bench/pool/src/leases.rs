//! The pool's rows. The clock is read once per batch: services already have the time when they
//! lease.

use std::future::poll_fn;
use std::hint::black_box;
use std::os::unix::net::UnixStream;
use std::task::Poll;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use pool::{DriverEffect as Effect, KeyHandle, KeyLimits, Pool, PoolConfig as Config};
use tokio::runtime::Runtime;

use crate::measure::{Row, measure, measure_prepared};
use crate::tasks::tasks;

type Handle = KeyHandle<String, UnixStream>;

/// Returns `n` idle entries, each one end of a pipe without a reader.
fn filled(n: usize, now: Instant) -> (Pool<String, UnixStream>, Handle) {
    let pool = Pool::new(Config { stripes: 2, ..Config::default() }, now);
    let limits = KeyLimits { max: n, min_idle: n, ..KeyLimits::default() };
    let handle = pool.key_with(&"tenant".to_owned(), limits).expect("the first key fits");
    for effect in pool.take_effects() {
        if let Effect::Open(ticket) = effect {
            ticket.opened(UnixStream::pair().expect("make a pipe").0, now);
        }
    }
    // As in the Go fixture: no further entries are kept ready.
    handle.set_limits(KeyLimits { max: n, min_idle: 0, ..KeyLimits::default() }, now);
    (pool, handle)
}

/// Yields the worker to other tasks once, like Go's `runtime.Gosched`.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn cycle(handle: &Handle, ops: usize, now: Instant, yields: bool) -> bool {
    let deadline = now + Duration::from_secs(30);
    for _ in 0..ops {
        let Ok(lease) = handle.acquire(now, deadline).await else { return false };
        black_box(&*lease);
        if yields {
            yield_once().await;
        }
        drop(lease);
    }
    true
}

fn all_back(handle: &Handle) -> bool {
    let stats = handle.stats();
    stats.idle == stats.max && stats.leased == 0 && stats.waiting == 0
}

/// Returns a token for each operation, and no more.
fn tokens(ops: usize) -> Receiver<()> {
    let (give, take) = crossbeam_channel::bounded(ops);
    for _ in 0..ops {
        give.send(()).expect("it has room for all");
    }
    take
}

pub fn rows(runtime: &Runtime) -> Vec<Row> {
    let start = Instant::now();
    let (_one, one) = filled(1, start);
    let (_twelve, twelve) = filled(12, start);
    let (_four, four) = filled(4, start);
    let (_eight, eight) = filled(8, start);
    let many = |handle: &Handle, n: usize, ops: usize, yields: bool| {
        let now = Instant::now();
        tasks(runtime, n, ops, |ops| {
            let handle = handle.clone();
            async move { cycle(&handle, ops, now, yields).await }
        }) && all_back(handle)
    };
    vec![
        measure("pool/acquire_return", 16_000, |ops| {
            runtime.block_on(cycle(&one, ops, Instant::now(), false)) && all_back(&one)
        }),
        measure("pool/parallel", 100_000, |ops| many(&twelve, 2, ops, false)),
        measure("pool/contended", 100_000, |ops| many(&four, 16, ops, false)),
        measure("pool/contended_yield", 16_000, |ops| many(&four, 16, ops, true)),
        measure_prepared("pool/throughput", 50_000, tokens, |_, take| {
            let now = Instant::now();
            tasks(runtime, 32, 32, |_| {
                let (handle, take) = (eight.clone(), take.clone());
                async move {
                    while take.recv().is_ok() {
                        if !cycle(&handle, 1, now, false).await {
                            return false;
                        }
                    }
                    true
                }
            }) && all_back(&eight)
        }),
        measure("pool/stats", 200_000, |ops| {
            let mut idle = 0;
            for _ in 0..ops {
                let stats = black_box(&four).stats();
                idle = black_box(&stats).idle;
            }
            idle == 4
        }),
    ]
}
