//! The load generator of the benchmark: a closed loop of C clients that each send one job, wait for
//! its answer, check it, and send the next.
//!
//! One run is one *batch*: one rival, one workload, one number of clients. The specification comes
//! as JSON on standard input and the raw figures leave as JSON on standard output; percentiles and
//! tables are made from several batches by `bench/run.py`. Every job of a batch is unlike every
//! other one, and every answer is compared with what that very job must give, so that a rival that
//! mixes up answers, caches them or drops them shows up as failures and not as speed.
//!
//! | module | what it is |
//! |---|---|
//! | [`spec`] | what to run, as `bench/run.py` says it |
//! | [`workload`] | jobs: unlike each other, with the answer each must give |
//! | [`rival`] | who runs a job: over HTTP, or as a process started from here |
//! | [`language`] | how a program is compiled and run where the rival does not know |
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
