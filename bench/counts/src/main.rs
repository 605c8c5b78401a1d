//! Repeated operations of one kind, for a tool that counts instructions.
//!
//! - `bench-counts list`: prints each case with its number of operations, one a line.
//! - `bench-counts CASE OPERATIONS`: runs the case; fails if an answer is wrong.
//!
//! `bench/check.py` runs each case with N and with 2N operations, and divides the difference by N,
//! so that no figure includes preparation. Operations are single-threaded and read no clock.

mod bouncer;
mod documents;
mod http;
mod pools;

use std::process::ExitCode;

/// A kind of work.
struct Case {
    name: &'static str,
    /// Operations of the shorter run: enough that the figure does not depend on their number.
    operations: u64,
    /// Prepares, runs so many operations, and panics if one has a wrong result.
    run: fn(u64),
}

const CASES: &[Case] = &[
    Case { name: "pool/acquire_return", operations: 20_000, run: pools::acquire_return },
    Case { name: "pool/handover", operations: 5_000, run: pools::handover },
    Case { name: "pool/open_retire", operations: 1_000, run: pools::open_retire },
    Case { name: "residents/marks", operations: 5_000, run: pools::marks },
    Case { name: "residents/evict", operations: 2_000, run: pools::evict },
    Case { name: "postgres/select", operations: 5_000, run: bouncer::postgres_select },
    Case { name: "postgres/prepared", operations: 5_000, run: bouncer::postgres_prepared },
    Case { name: "postgres/rows_64k", operations: 500, run: bouncer::postgres_rows },
    Case { name: "postgres/analyse_sql", operations: 5_000, run: bouncer::postgres_sql },
    Case { name: "mysql/select", operations: 5_000, run: bouncer::mysql_select },
    Case { name: "mysql/translated", operations: 5_000, run: bouncer::mysql_translated },
    Case { name: "mysql/analyse_sql", operations: 5_000, run: bouncer::mysql_sql },
    Case { name: "executions/parse_request", operations: 2_000, run: http::parse_request },
    Case { name: "executions/write_answer", operations: 2_000, run: http::write_answer },
    Case { name: "catalog/parse_small", operations: 500, run: documents::parse_small },
    Case { name: "catalog/write_small", operations: 2_000, run: documents::write_small },
    Case { name: "catalog/create", operations: 400, run: documents::create },
    Case { name: "catalog/commit_property", operations: 2_000, run: documents::commit_property },
    Case { name: "catalog/commit_logged", operations: 500, run: documents::commit_logged },
    Case { name: "catalog/parse_thousand", operations: 5, run: documents::parse_thousand },
    Case { name: "catalog/append_thousand", operations: 5, run: documents::append_thousand },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["list"] => {
            for case in CASES {
                println!("{} {}", case.name, case.operations);
            }
            ExitCode::SUCCESS
        }
        [name, operations] => {
            let case = CASES.iter().find(|case| case.name == *name);
            let (Some(case), Ok(operations)) = (case, operations.parse()) else {
                return usage();
            };
            (case.run)(operations);
            ExitCode::SUCCESS
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: bench-counts list, or bench-counts CASE OPERATIONS");
    ExitCode::from(2)
}
