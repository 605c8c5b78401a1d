//! Measures the link of `bouncer` between a client and a server in this process and prints one JSON
//! document; see `run.py`. The Go side does the same work under the same row names.

mod executor;
#[path = "../../pool/src/measure.rs"]
mod measure;
mod pipe;
mod postgres;
mod relay;

use measure::{Counting, Row};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    let rows: Vec<String> = postgres::rows(&only).iter().map(Row::to_json).collect();
    println!("{{\"rows\":[{}]}}", rows.join(","));
}
