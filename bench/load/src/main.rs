//! The load generator of the benchmark: a closed loop of C clients that each send one job, wait for
//! its answer, check it, and send the next.
//!
//! One run is one *batch*: one rival, one workload, one number of clients. The specification is
//! JSON on standard input and the raw figures are JSON on standard output; `bench/run.py` computes
//! percentiles and tables from several batches. Every job of a batch differs from all others, and
//! every answer is compared with the expected answer of that job, so that a rival that mixes up,
//! caches or drops answers shows failures instead of speed.
//!
//! | module | content |
//! |---|---|
//! | [`spec`] | the specification from `bench/run.py` |
//! | [`workload`] | jobs, all different, with their expected answers |
//! | [`rival`] | runners of jobs: over HTTP, or as a process started by this program |
//! | [`language`] | how a program is compiled and run if the rival does not know its language |
//! | [`http`] | a small HTTP/1.1 client with one kept connection |
//! | [`live`] | follows one job of Cove's: WebSocket, events |
//! | [`batch`] | the closed loop and its figures |
//! | [`cpu`] | CPU time used by the machine without this program |

mod batch;
mod cpu;
mod http;
mod language;
mod live;
mod rival;
mod spec;
mod workload;

use std::io::Read;
use std::process::ExitCode;

fn run() -> Result<String, String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|e| format!("read specification: {e}"))?;
    let spec: spec::Spec =
        serde_json::from_str(&text).map_err(|e| format!("parse specification: {e}"))?;
    let figures = batch::run(&spec)?;
    serde_json::to_string(&figures).map_err(|e| format!("write figures: {e}"))
}

fn main() -> ExitCode {
    match run() {
        Ok(figures) => {
            println!("{figures}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("load: failed to {message}");
            ExitCode::FAILURE
        }
    }
}
