//! Batches, medians and a counting allocator, also for `bench/bouncer`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Many short batches: on a shared machine the median of short ones is rarely affected by
/// interruptions.
const SAMPLES: usize = 101;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Whether allocations are counted: counting threads contend, which must not happen in a program
/// that serves.
static IS_COUNTING: AtomicBool = AtomicBool::new(false);

/// The system's allocator with two counters.
pub struct Counting;

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_COUNTING.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        }
        // SAFETY: as given by our caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as given by our caller; `alloc` above got it from the system.
        unsafe { System.dealloc(pointer, layout) }
    }
}

pub struct Row {
    name: &'static str,
    ns_per_op: f64,
    allocs_per_op: f64,
    bytes_per_op: f64,
    checked: bool,
}

impl Row {
    pub fn to_json(&self) -> String {
        format!(
            r#"{{"name":"{}","ns_per_op":{:.3},"allocs_per_op":{:.6},"bytes_per_op":{:.3},"checked":{}}}"#,
            self.name, self.ns_per_op, self.allocs_per_op, self.bytes_per_op, self.checked
        )
    }
}

/// Runs `batch` several times; it does `ops` operations and returns whether their results are
/// right. The time is the median.
pub fn measure(name: &'static str, ops: usize, mut batch: impl FnMut(usize) -> bool) -> Row {
    measure_prepared(name, ops, |_| (), |ops, ()| batch(ops))
}

/// Does the same with a preparation for each batch that is not measured.
pub fn measure_prepared<T>(
    name: &'static str,
    ops: usize,
    mut prepare: impl FnMut(usize) -> T,
    mut batch: impl FnMut(usize, T) -> bool,
) -> Row {
    IS_COUNTING.store(true, Ordering::Relaxed);
    let mut checked = batch(ops, prepare(ops));
    let mut times = [0.0; SAMPLES];
    let (mut allocations, mut bytes) = (0, 0);
    for time in &mut times {
        let prepared = prepare(ops);
        let before = (ALLOCATIONS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
        let start = Instant::now();
        checked &= batch(ops, prepared);
        *time = start.elapsed().as_nanos() as f64 / ops as f64;
        allocations += ALLOCATIONS.load(Ordering::Relaxed) - before.0;
        bytes += BYTES.load(Ordering::Relaxed) - before.1;
    }
    times.sort_by(f64::total_cmp);
    let all = (ops * SAMPLES) as f64;
    Row {
        name,
        ns_per_op: times[SAMPLES / 2],
        allocs_per_op: allocations as f64 / all,
        bytes_per_op: bytes as f64 / all,
        checked,
    }
}
