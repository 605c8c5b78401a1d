//! The rows of the seed's benchmark that serialise and create tokens, with the same fixtures.
//!
//! Where the seed took a buffer from a pool, a buffer is reused here; where it made a new one, a
//! new one of the right size is made here.

use std::hint::black_box;
use std::thread;

use catalog::access::SecretGenerator;
use serde_json::Value;

use crate::fixtures;
use crate::measure::{Row, measure};

/// The fixtures as the seed's own program wrote them.
const SMALL: &str = include_str!("../fixtures/fix_small.json");
const LARGE: &str = include_str!("../fixtures/fix_large.json");
const GC_FRESH: &str = include_str!("../fixtures/fix_gc_baseline.json");
const GC_REUSED: &str = include_str!("../fixtures/fix_gc_pool.json");

/// Digits of a token.
const TOKEN_DIGITS: usize = 64;

/// Returns the seed's rows, and whether each must not allocate.
pub fn rows() -> Vec<(Row, bool)> {
    // The definitions equal the recorded fixtures.
    assert!(fixtures::small().to_string() == SMALL, "not the seed's small document");
    assert!(fixtures::large().to_string() == LARGE, "not the seed's large document");
    let twelve = fixtures::twelve_keys();
    assert_eq!(twelve.to_string().len(), 1523, "not the seed's document of twelve keys");
    let generator = SecretGenerator::new().expect("random bytes");
    vec![
        (fresh("seed/small_fresh", 1_000, SMALL), false),
        (reused("seed/small_reused", 1_000, SMALL), true),
        (fresh("seed/large_fresh", 200, LARGE), false),
        (reused("seed/large_reused", 200, LARGE), true),
        (fresh("seed/gc_fresh", 1_000, GC_FRESH), false),
        (reused("seed/gc_reused", 1_000, GC_REUSED), true),
        (parallel("seed/concurrent_small", 4_000, &twelve), false),
        (token("seed/token_fresh", &generator), false),
        (token_reused("seed/token_reused", &generator), true),
    ]
}

fn parsed(text: &str) -> Value {
    let value: Value = serde_json::from_str(text).expect("a fixture");
    assert!(value.to_string() == text, "a fixture is not written as it was");
    value
}

/// Measures `json.Marshal`: into a new buffer.
fn fresh(name: &'static str, ops: usize, text: &str) -> Row {
    let value = parsed(text);
    measure(name, ops, |ops| (0..ops).all(|_| written(&value, text.len()).len() == text.len()))
}

fn written(value: &Value, length: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(length);
    serde_json::to_writer(&mut out, black_box(value)).expect("writing to memory");
    black_box(out)
}

/// Measures `json.NewEncoder` on a pooled buffer.
fn reused(name: &'static str, ops: usize, text: &str) -> Row {
    let value = parsed(text);
    let mut out = Vec::with_capacity(text.len());
    measure(name, ops, |ops| {
        (0..ops).all(|_| {
            out.clear();
            let written = serde_json::to_writer(&mut out, black_box(&value));
            written.is_ok() && out.len() == text.len()
        })
    })
}

/// Measures as many threads as the machine has processors.
fn parallel(name: &'static str, ops: usize, value: &Value) -> Row {
    let length = value.to_string().len();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    measure(name, ops, |ops| {
        thread::scope(|scope| {
            let work = || {
                let mut out = Vec::with_capacity(length);
                (0..ops / threads).all(|_| {
                    out.clear();
                    let written = serde_json::to_writer(&mut out, black_box(value));
                    written.is_ok() && out.len() == length
                })
            };
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().all(|worker| worker.join().unwrap_or(false))
        })
    })
}

fn token(name: &'static str, generator: &SecretGenerator) -> Row {
    measure(name, 2_000, |ops| {
        (0..ops).all(|_| black_box(generator.token("")).is_ok_and(|it| it.len() == TOKEN_DIGITS))
    })
}

fn token_reused(name: &'static str, generator: &SecretGenerator) -> Row {
    let mut text = String::with_capacity(TOKEN_DIGITS);
    measure(name, 2_000, |ops| {
        (0..ops).all(|_| {
            text.clear();
            generator.put_token(black_box(&mut text)).is_ok() && text.len() == TOKEN_DIGITS
        })
    })
}
