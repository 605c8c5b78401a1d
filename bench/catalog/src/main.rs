//! What the catalog costs, by itself and on a wire.
//!
//! - `bench-catalog`: the seed's rows and those of documents, as `bench/pool` prints them; fails if
//!   a document is written with an allocation.
//! - `bench-catalog bare`: serves bytes that it is told, by the catalog's own stack alone.
//! - `bench-catalog load`: asks a server for as long as it is told, checks each answer, and says
//!   how many there were.
//! - `bench-catalog sync`: says how often the disk takes 4 KiB for good, one after the other.

mod bare;
mod chunks;
mod documents;
mod fixtures;
mod load;
#[path = "../../pool/src/measure.rs"]
mod measure;
mod seed;
mod sync;

use std::env;
use std::process::ExitCode;

use measure::{Counting, Row};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let done = match env::args().nth(1).as_deref() {
        None => return rows(),
        Some("bare") => bare::serve(),
        Some("load") => load::run(),
        Some("sync") => sync::run(),
        Some(_) => Err("there are `bare`, `load` and `sync`".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-catalog: {error}");
            ExitCode::FAILURE
        }
    }
}

fn rows() -> ExitCode {
    let all: Vec<(Row, bool)> = seed::rows().into_iter().chain(documents::rows()).collect();
    let texts: Vec<String> = all.iter().map(|(row, _)| row.to_json()).collect();
    println!("{{\"rows\":[\n{}\n]}}", texts.join(",\n"));
    let is_right = texts.iter().all(|row| row.ends_with("\"checked\":true}"));
    let is_free = |row: &String| row.contains("\"allocs_per_op\":0.000000,");
    if is_right && texts.iter().zip(&all).all(|(text, (_, free))| !free || is_free(text)) {
        return ExitCode::SUCCESS;
    }
    eprintln!("a document came out wrong, or with an allocation");
    ExitCode::FAILURE
}
