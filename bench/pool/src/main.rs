//! Measures `pool` and prints one JSON document; see `run.py`. The Go side does the same work under
//! the same row names.

mod buffers;
mod leases;
mod measure;

use measure::{Counting, Row};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let which = std::env::args().nth(1).unwrap_or_default();
    // As many workers as Go gets processors.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .expect("start two workers");
    let rows = match which.as_str() {
        "pool" => leases::rows(&runtime),
        "buffers" => buffers::rows(&runtime),
        _ => {
            eprintln!("usage: bench-pool pool|buffers");
            std::process::exit(2);
        }
    };
    let rows: Vec<String> = rows.iter().map(Row::to_json).collect();
    println!("{{\"rows\":[{}]}}", rows.join(","));
}
