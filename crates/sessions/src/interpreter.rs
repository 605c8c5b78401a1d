//! Code interpreter: contexts that run cells and keep their definitions.
//!
//! A context is one process in the session's sandbox, started and limited like every program of the
//! session. It communicates with the server over one socket, in JSON lines; its standard output and
//! standard error are separate pipes. All of its output is hostile input: it is bounded, parsed
//! into types, and shown only to callers of the same session.
//!
//! | file | contents |
//! |---|---|
//! | `frames.rs` | lines of a context, parsed; pure |
//! | `languages.rs` | start of each language, and encoding of its cells; pure |
//! | `parked.rs` | the interpreter of a sandbox that has imported its libraries and forks contexts |
//! | `process.rs` | the process of a context, started or forked |
//! | `cell.rs` | one cell: its output, its limits, its end |
//! | `contexts.rs` | the contexts of one sandbox |
//! | `hazards.rs` | what would prevent an interpreter from forking, for `cove doctor` |
//! | `metrics.rs` | metrics of contexts and cells |
//! | `drivers/` | programs that run inside the sandbox, in Python and JavaScript |
//!
//! This module never listens inside a sandbox, and never waits for a context without a time limit.

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

/// Maximum number of long lines held concurrently for all tenants: each has at most 12 MiB, and
/// several times as much once it is decoded. A tenant may use a share of the free places.
pub(crate) const LONG_FRAMES_MAX: usize = 24;

/// Entry of the fuzz target for lines of contexts.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use super::frames::FrameReader;

    /// Reads frames from a stream that arrives in parts of `cut` bytes. Returns their number, and
    /// whether the stream is valid so far.
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
