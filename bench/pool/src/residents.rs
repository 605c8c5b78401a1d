//! The operations of a sandbox pool as a benchmark of Ash times them, one by one: the cost of the
//! table of residents alone, without sandboxes and without a store.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pool::residents::{Residents, State};

/// Live residents: 40 % running, 30 % waiting, 30 % warm. Cold ones come on top.
const LIVE: usize = 100;
const COLD: usize = 10;
const ROUNDS: usize = 1_000;
const SWEEPS: usize = 200;
const SWEPT: usize = 5;
/// Reads are shorter than a clock read, so that many are timed together.
const READS: u32 = 1_000;

struct Times(&'static str, Vec<f64>);

impl Times {
    fn to_json(&mut self) -> String {
        let Times(name, times) = self;
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        let (p50, p95, p99) = (at(0.5), at(0.95), at(0.99));
        format!(
            r#"{{"name":"residents/{name}","n":{},"p50_ns":{p50:.1},"p95_ns":{p95:.1},"p99_ns":{p99:.1}}}"#,
            times.len()
        )
    }
}

fn timed(times: &mut Times, operation: impl FnOnce()) {
    let start = Instant::now();
    operation();
    times.1.push(start.elapsed().as_nanos() as f64);
}

fn id(kind: &str, number: usize) -> String {
    format!("{kind}-{number:06}")
}

fn filled() -> (Residents<String>, Vec<String>) {
    let now = Instant::now();
    let mut residents = Residents::new(LIVE + COLD + ROUNDS + 100, now);
    let ids: Vec<String> = (0..LIVE).map(|number| id("sb", number)).collect();
    for (number, id) in ids.iter().enumerate() {
        let state = match number {
            n if n < LIVE * 4 / 10 => State::Running,
            n if n < LIVE * 7 / 10 => State::Waiting,
            _ => State::Warm,
        };
        residents.insert(id.clone(), state, now).expect("there is room");
    }
    for number in 0..COLD {
        residents.insert(id("cold", number), State::Cold, now).expect("there is room");
    }
    (residents, ids)
}

fn marks(rows: &mut Vec<Times>) {
    let (mut residents, ids) = filled();
    let (mut running, mut waiting) = (Times("mark_running", vec![]), Times("mark_waiting", vec![]));
    for round in 0..ROUNDS {
        let warm = &ids[LIVE * 7 / 10 + round % (LIVE * 3 / 10)];
        timed(&mut running, || residents.mark_running(warm, Instant::now()).expect("it may"));
        residents.mark_waiting(warm, Instant::now()).expect("it may");
    }
    for round in 0..ROUNDS {
        let busy = &ids[round % (LIVE * 4 / 10)];
        timed(&mut waiting, || residents.mark_waiting(busy, Instant::now()).expect("it may"));
        residents.mark_running(busy, Instant::now()).expect("it may");
    }
    rows.extend([running, waiting]);
}

fn evictions(rows: &mut Vec<Times>) {
    let (mut residents, _) = filled();
    let mut times = Times("evict_one", vec![]);
    for round in 0..ROUNDS {
        // As many cold ones as rounds; the benchmark that this follows runs out of them.
        residents.insert(id("more", round), State::Cold, Instant::now()).expect("there is room");
    }
    residents.set_capacity(residents.count());
    for round in 0..ROUNDS {
        let new = id("new", round);
        timed(&mut times, || {
            let evicted = residents.insert(new, State::Warm, Instant::now()).expect("one can go");
            assert!(black_box(evicted).is_some());
        });
    }
    rows.push(times);
}

fn reads(rows: &mut Vec<Times>) {
    let (residents, _) = filled();
    let figures = residents.figures();
    let (mut count, mut stats) = (Times("count", vec![]), Times("stats", vec![]));
    for _ in 0..ROUNDS {
        timed(&mut count, || (0..READS).for_each(|_| _ = black_box(figures.count())));
        timed(&mut stats, || (0..READS).for_each(|_| _ = black_box(figures.stats())));
    }
    for row in [&mut count, &mut stats] {
        row.1.iter_mut().for_each(|time| *time /= f64::from(READS));
    }
    rows.extend([count, stats]);
}

fn sweeps(rows: &mut Vec<Times>) {
    let (mut residents, _) = filled();
    let mut times = Times("sweep_5_idle", vec![]);
    let now = Instant::now();
    // Otherwise residents that wait since the set-up would all be in the first sweep.
    residents.idle(now, Duration::ZERO);
    for round in 0..SWEEPS {
        let swept: Vec<String> = (0..SWEPT).map(|n| id("idle", round * SWEPT + n)).collect();
        for id in &swept {
            residents.insert(id.clone(), State::Warm, now).expect("there is room");
            residents.mark_running(id, now).expect("it may");
            residents.mark_waiting(id, now).expect("it may");
        }
        timed(&mut times, || assert_eq!(residents.idle(now, Duration::ZERO).len(), SWEPT));
        swept.iter().for_each(|id| _ = residents.remove(id));
    }
    rows.push(times);
}

/// Returns one JSON object for each operation.
pub fn rows() -> Vec<String> {
    let mut rows = Vec::new();
    marks(&mut rows);
    evictions(&mut rows);
    reads(&mut rows);
    sweeps(&mut rows);
    rows.iter_mut().map(Times::to_json).collect()
}
