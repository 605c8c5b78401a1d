//! Code interpreter: contexts that run cells and keep what those have defined.
//!
//! A context is one process in the session's sandbox, started as every other program of the session
//! and bounded with them. It talks to the server over one socket, in lines of JSON; its standard
//! output and standard error are pipes of their own. All that comes out of it is hostile input: it
//! is bounded, parsed into types, and never more than what a caller of the same session is shown.
//!
//! | file | what |
//! |---|---|
//! | `frames.rs` | lines of a context, parsed; pure |
//! | `languages.rs` | what each language is started with, and how a cell is written to it; pure |
//! | `parked.rs` | the interpreter of a sandbox that has imported its libraries and forks contexts |
//! | `process.rs` | the process of a context, started or forked |
//! | `cell.rs` | one cell: its output, its limits, its end |
//! | `contexts.rs` | the contexts of one sandbox |
//! | `hazards.rs` | what would keep an interpreter from forking, for `cove doctor` |
//! | `metrics.rs` | what of all that is counted |
//! | `drivers/` | what runs inside, in Python and JavaScript |
//!
//! It never listens inside of a sandbox, and never waits for a context without a limit of time.

mod cell;
mod contexts;
mod frames;
mod hazards;
mod interrupts;
mod languages;
mod metrics;
mod parked;
mod process;

pub(crate) use cell::CellStream;
pub use hazards::{ForkHazards, ModuleHazard, ParkedImports};

pub(crate) use contexts::{CodeContext, NewContext, SandboxContexts};
pub(crate) use languages::CellLanguage;
pub(crate) use metrics::InterpreterMetrics;
pub(crate) use process::FrameMemory;

/// Long lines of contexts that the server holds at the same time, for all tenants: each is 12 MiB
/// at most, and some times as much once it is decoded. A tenant has a part of what is free.
pub(crate) const LONG_FRAMES_MAX: usize = 24;

/// Entry of the fuzz target for lines of contexts.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use super::frames::FrameReader;

    /// Takes frames out of a stream that arrives in parts of `cut` bytes. Answers how many there
    /// are, and whether the stream is well so far.
    pub fn frames(bytes: &[u8], cut: usize) -> (usize, bool) {
        let (mut reader, mut count) = (FrameReader::default(), 0);
        for part in bytes.chunks(cut) {
            if reader.push(part).is_err() {
                return (count, false);
            }
            loop {
                match reader.next() {
                    Ok(Some(_)) => count += 1,
                    Ok(None) => break,
                    Err(_) => return (count, false),
                }
            }
        }
        (count, true)
    }
}
