//! Costs of the ledger and of background writes, per operation, without sandboxes.
//!
//! Ash has a benchmark that times these operations on a pool with a real database and no processes.
//! This one uses the sessions' ledger and log, also on a real database, and the writer writes
//! marked rows while the clock runs. `bench/run.py` runs it in a release build and parses its
//! output.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::SessionState;
use node::clock;
use testkit::Scratch;

use super::books::{EvictionDuty, PlaceRequest, ResidentKey, ResidentLedger, UseCount};
use super::entry::SessionEntry;
use crate::events::EventWriter;
use crate::store::SessionStore;
use crate::store::tests::{session, sqlite};

/// Number of live sandboxes, as in Ash's benchmark: 40 % at work, 30 % waiting, 30 % unused; plus
/// cold sessions.
const LIVE: usize = 100;
const COLD: usize = 10;
const ROUNDS: usize = 1000;
/// Tenant of all sessions.
const TENANT: &str = "a";
const SWEEPS: usize = 200;
const SWEPT: usize = 5;
/// Reads per measurement, because one read takes less time than reading the clock.
const READS: u32 = 1000;
const IDLE: Duration = Duration::ZERO;

/// Times of an operation, in nanoseconds.
struct OperationTimes(&'static str, Vec<f64>);

impl OperationTimes {
    fn new(name: &'static str) -> OperationTimes {
        OperationTimes(name, Vec::with_capacity(ROUNDS))
    }

    fn take<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        let began = clock::now();
        let result = black_box(operation());
        self.1.push(clock::now().duration_since(began).as_secs_f64() * 1e9);
        result
    }

    fn json(mut self) -> serde_json::Value {
        self.1.sort_by(f64::total_cmp);
        // Nearest rank, as in Ash's benchmark.
        let at = |percent: usize| self.1[(self.1.len() * percent).div_ceil(100).max(1) - 1];
        let count = f64::from(u32::try_from(self.1.len()).unwrap());
        let mean = self.1.iter().sum::<f64>() / count;
        serde_json::json!({
            "name": self.0, "n": self.1.len(), "p50_ns": at(50), "p95_ns": at(95),
            "p99_ns": at(99), "mean_ns": mean,
        })
    }
}

/// A session with its entry in the ledger.
struct MeasuredResident {
    entry: SessionEntry,
    uses: UseCount,
}

struct MeasuredPool {
    books: ResidentLedger,
    store: SessionStore,
    writer: EventWriter,
    live: Vec<MeasuredResident>,
}

impl MeasuredPool {
    async fn new(scratch: &Scratch, live: usize) -> MeasuredPool {
        let store = sqlite(scratch).await;
        let (writer, _lost) = EventWriter::start(store.clone());
        let capacity = live + COLD + ROUNDS;
        let books = ResidentLedger::new(live, capacity, clock::now());
        let mut pool = MeasuredPool { books, store, writer, live: Vec::new() };
        for number in 0..live {
            let resident = pool.add(&format!("ses_live{number:06}")).await;
            pool.live.push(resident);
        }
        for number in 0..COLD {
            pool.books.keep_cold(
                &format!("ses_cold{number:06}").into(),
                &TENANT.into(),
                clock::now(),
            );
        }
        pool
    }

    /// Adds a stored session that has a place.
    async fn add(&self, id: &str) -> MeasuredResident {
        let row = self.store.insert_session(session(id, TENANT), u64::MAX).await.unwrap();
        let log = self.writer.log(&row);
        let entry = SessionEntry::new(row, log);
        admit(&self.books, &entry.key);
        self.books.warm(&entry.key, clock::now());
        MeasuredResident { entry, uses: UseCount::default() }
    }

    /// Begins a use of a session.
    fn running(&self, it: &MeasuredResident) {
        let begun = self.books.begin(&it.entry.key, &it.entry.tenant, &it.uses, clock::now());
        assert!(begun.is_some());
        mark(&it.entry, SessionState::Active);
    }

    /// Ends the use.
    fn waiting(&self, it: &MeasuredResident) {
        self.books.end(&it.entry.key, &it.entry.tenant, &it.uses, clock::now());
        mark(&it.entry, SessionState::Active);
    }
}

/// Takes a place.
fn admit(books: &ResidentLedger, key: &ResidentKey) -> Vec<EvictionDuty> {
    let request = PlaceRequest { key, tenant: &TENANT.into(), tenant_max: usize::MAX };
    books.admit(&request, clock::now()).unwrap()
}

/// Marks a session's row for a background write.
fn mark(entry: &SessionEntry, state: SessionState) {
    let row = {
        let mut changing = entry.state.lock();
        changing.row.last_active_ms = clock::wall_ms();
        changing.row.state = state;
        Arc::new(changing.row.clone())
    };
    entry.log.mark(row);
}

fn marks(pool: &MeasuredPool, rows: &mut Vec<OperationTimes>) {
    let (busy, rest) = pool.live.split_at(LIVE * 4 / 10);
    let (waiting, warm) = rest.split_at(LIVE * 3 / 10);
    busy.iter().chain(waiting).for_each(|it| pool.running(it));
    waiting.iter().for_each(|it| pool.waiting(it));
    let (mut begun, mut over) =
        (OperationTimes::new("mark_running"), OperationTimes::new("mark_waiting"));
    for it in warm.iter().cycle().take(ROUNDS) {
        begun.take(|| pool.running(it));
        pool.waiting(it);
    }
    for it in busy.iter().cycle().take(ROUNDS) {
        over.take(|| pool.waiting(it));
        pool.running(it);
    }
    rows.extend([begun, over]);
}

/// Takes a place when none is free: a waiting session is evicted, and its row is written in the
/// background.
async fn evictions(pool: MeasuredPool, rows: &mut Vec<OperationTimes>) {
    let MeasuredPool { books, store, writer, live } = pool;
    let mut times = OperationTimes::new("evict_one");
    let mut known: HashMap<_, _> =
        live.into_iter().map(|it| (Arc::clone(&it.entry.id), it)).collect();
    for number in 0..ROUNDS {
        let id = format!("ses_more{number:06}");
        let row = store.insert_session(session(&id, TENANT), u64::MAX).await.unwrap();
        let it = MeasuredResident {
            entry: SessionEntry::new(row.clone(), writer.log(&row)),
            uses: UseCount::default(),
        };
        let duties = times.take(|| {
            let duties = admit(&books, &it.entry.key);
            for duty in &duties {
                if let EvictionDuty::Stop(id) = duty {
                    mark(&known[id].entry, SessionState::Paused);
                }
            }
            books.warm(&it.entry.key, clock::now());
            duties
        });
        let [EvictionDuty::Stop(evicted)] = &*duties else {
            panic!("one goes, and not {duties:?}")
        };
        known[evicted].entry.log.settle().await.unwrap();
        let row = store.session(TENANT, evicted).await.unwrap().unwrap();
        assert_eq!(row.state, SessionState::Paused, "it was written behind");
        known.insert(Arc::clone(&it.entry.id), it);
    }
    rows.push(times);
    writer.close().await;
}

fn reads(pool: &MeasuredPool, rows: &mut Vec<OperationTimes>) {
    let (mut count, mut stats) = (OperationTimes::new("count"), OperationTimes::new("stats"));
    for _ in 0..ROUNDS {
        count.take(|| (0..READS).for_each(|_| _ = black_box(pool.books.stats().total)));
        stats.take(|| (0..READS).for_each(|_| _ = black_box(pool.books.stats())));
    }
    for row in [&mut count, &mut stats] {
        row.1.iter_mut().for_each(|time| *time /= f64::from(READS));
    }
    rows.extend([count, stats]);
}

async fn sweeps(pool: &MeasuredPool, rows: &mut Vec<OperationTimes>) {
    let mut times = OperationTimes::new("sweep_5_idle");
    // Sessions that wait already would all be part of the first sweep.
    pool.books.idle(clock::now(), IDLE);
    for round in 0..SWEEPS {
        let mut swept = Vec::new();
        for number in 0..SWEPT {
            let it = pool.add(&format!("ses_idle{:06}", round * SWEPT + number)).await;
            pool.running(&it);
            pool.waiting(&it);
            swept.push(it);
        }
        let now: Instant = clock::now();
        let taken = times.take(|| {
            let taken = pool.books.idle(now, IDLE);
            for id in &taken {
                let it = swept.iter().find(|it| it.entry.id == *id).unwrap();
                mark(&it.entry, SessionState::Paused);
            }
            taken.len()
        });
        assert_eq!(taken, SWEPT);
        for it in swept {
            it.entry.log.settle().await.unwrap();
            let row = pool.store.session(TENANT, &it.entry.id).await.unwrap().unwrap();
            assert_eq!(row.state, SessionState::Paused, "it was written behind");
            pool.books.remove(&it.entry.key);
        }
    }
    rows.push(times);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a benchmark: bench/run.py runs it in release"]
async fn figures() {
    let scratch = Scratch::new();
    let mut rows = Vec::new();
    let pool = MeasuredPool::new(&scratch, LIVE).await;
    marks(&pool, &mut rows);
    reads(&pool, &mut rows);
    evictions(pool, &mut rows).await;
    let scratch = Scratch::new();
    let pool = MeasuredPool::new(&scratch, LIVE).await;
    // Frees the places for swept sessions, so that they evict nothing.
    pool.live.iter().take(SWEPT).for_each(|it| pool.books.remove(&it.entry.key));
    sweeps(&pool, &mut rows).await;
    pool.writer.close().await;
    let rows: Vec<_> = rows.into_iter().map(OperationTimes::json).collect();
    println!("{}", serde_json::Value::from(rows));
}
