//! Measures the link of `bouncer` between a client and a server in this process and prints one JSON
//! document; see `run.py`. The Go program does the same work under the same row names.

mod executor;
#[path = "../../pool/src/measure.rs"]
mod measure;
mod mysql;
mod pipe;
mod pools;
mod postgres;
mod relay;
mod talk;

use measure::{Counting, Row};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    let mut rows = postgres::rows(&only);
    rows.extend(mysql::rows(&only));
    if only.is_empty() || only == "lease" {
        rows.extend(pools::rows());
    }
    let rows: Vec<String> = rows.iter().map(Row::to_json).collect();
    println!("{{\"rows\":[{}]}}", rows.join(","));
}
