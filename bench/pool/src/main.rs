//! Measures `pool` and prints one JSON document; see `run.py`. The Go program does the same work
//! under the same row names.

mod leases;
mod measure;
mod residents;
mod tasks;

use measure::{Counting, Row};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let which = std::env::args().nth(1).unwrap_or_default();
    // As many workers as Go has processors.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .expect("start two workers");
    let json = |rows: Vec<Row>| rows.iter().map(Row::to_json).collect::<Vec<_>>();
    let rows = match which.as_str() {
        "pool" => json(leases::rows(&runtime)),
        // These rows have no counterpart in Go; see the module.
        "residents" => residents::rows(),
        _ => {
            eprintln!("usage: bench-pool pool|residents");
            std::process::exit(2);
        }
    };
    println!("{{\"rows\":[{}]}}", rows.join(","));
}
