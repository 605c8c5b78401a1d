//! Detection of what would prevent an interpreter from forking contexts in this installation, for
//! `cove doctor`.
//!
//! A program imports the parked interpreter's modules and reports the threads that they start. The
//! caller runs it in a sandbox.

use serde::{Deserialize, Serialize};

use super::languages::hazard_source;

/// Maximum bytes parsed of the program's answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Error that the program reports for a missing module.
const NOT_INSTALLED: &str = "not installed";

/// Threads that the parked interpreter's modules start when they are imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkHazards {
    /// Version of Python.
    pub python: String,
    /// Imports as in the parked interpreter; none if that process was killed.
    pub parked: Option<ParkedImports>,
    /// Imports as in a cell that sets none of the variables; none if that process was killed.
    pub plain: Option<Vec<ModuleHazard>>,
}

/// Modules as imported by the parked interpreter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkedImports {
    /// Modules in order of their import.
    pub modules: Vec<ModuleHazard>,
    /// True if linear algebra works in a copy of the process; none without NumPy.
    pub copy_calculates: Option<bool>,
}

/// Effects of importing a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleHazard {
    /// Name of the module.
    pub module: String,
    /// Why it could not be imported.
    pub error: Option<String>,
    /// Threads that the import has started.
    pub threads: Vec<String>,
    /// Loaded libraries that are known for starting threads.
    pub libraries: Vec<String>,
}

impl ModuleHazard {
    /// Returns whether the module is installed but cannot be imported.
    pub fn has_failed(&self) -> bool {
        self.error.as_deref().is_some_and(|why| why != NOT_INSTALLED)
    }
}

impl ForkHazards {
    /// Returns the program, which `python3` reads from standard input.
    pub fn program() -> String {
        hazard_source()
    }

    /// Parses the program's output.
    ///
    /// # Errors
    /// If the output is not a valid answer.
    pub fn parse(stdout: &[u8]) -> Result<ForkHazards, serde_json::Error> {
        serde_json::from_slice(stdout.get(..ANSWER_BYTES_MAX).unwrap_or(stdout))
    }
}
