//! Cost of the catalog, by itself and over a network connection.
//!
//! - `bench-catalog`: the seed's rows and those of documents, as `bench/pool` prints them; fails if
//!   writing a document allocates.
//! - `bench-catalog bare`: serves given bytes with the catalog's own stack alone.
//! - `bench-catalog load`: sends requests to a server for a given time, checks each answer, and
//!   reports their number.
//! - `bench-catalog sync`: reports the rate of durable 4 KiB writes to the disk, one after the
//!   other.

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
