//! The buffer pool's rows: 4 KiB buffers, as in the Go side.

use std::hint::black_box;

use pool::{BufferConfig, BufferPool};
use tokio::runtime::Runtime;

use crate::measure::{Row, measure};
use crate::tasks::tasks;

const CAPACITY: usize = 4096;
const SMALL: [u8; 64] = [b'a'; 64];
const LARGE: [u8; 1024] = [b'b'; 1024];

fn pooled(buffers: &BufferPool, ops: usize, text: &[u8]) -> bool {
    let mut right = true;
    for _ in 0..ops {
        let mut buffer = buffers.take(CAPACITY);
        buffer.extend_from_slice(black_box(text));
        right &= black_box(&*buffer).len() == text.len();
    }
    right
}

fn unpooled(ops: usize) -> bool {
    let mut right = true;
    for _ in 0..ops {
        let mut buffer: Vec<u8> = black_box(Vec::with_capacity(black_box(CAPACITY)));
        buffer.extend_from_slice(black_box(&SMALL));
        right &= black_box(&buffer).len() == SMALL.len();
    }
    right
}

pub fn rows(runtime: &Runtime) -> Vec<Row> {
    let buffers = BufferPool::new(BufferConfig::default());
    let workers = |n: usize, ops: usize, text: &'static [u8]| {
        let right = tasks(runtime, n, ops, |ops| {
            let buffers = buffers.clone();
            async move { pooled(&buffers, ops, text) }
        });
        let stats = buffers.stats();
        // All are back, and none had to be freed.
        right && stats.taken == stats.returned && stats.freed == 0
    };
    vec![
        measure("buffers/alone", 40_000, |ops| pooled(&buffers, ops, &SMALL)),
        measure("buffers/concurrent", 200_000, |ops| workers(2, ops, &SMALL)),
        measure("buffers/workers_10", 200_000, |ops| workers(10, ops, &SMALL)),
        measure("buffers/workers_100", 200_000, |ops| workers(100, ops, &SMALL)),
        measure("buffers/sustained", 200_000, |ops| workers(2, ops, &LARGE)),
        measure("buffers/with_pool", 200_000, |ops| workers(2, ops, &SMALL)),
        measure("buffers/without_pool", 40_000, |ops| {
            tasks(runtime, 2, ops, |ops| async move { unpooled(ops) })
        }),
    ]
}
