//! What would keep an interpreter from forking contexts, in this installation: `cove doctor` asks.
//!
//! A program imports what the parked interpreter imports and says which threads that starts. Who
//! runs it, in a sandbox, is not decided here.

use serde::{Deserialize, Serialize};

use super::languages::hazard_source;

/// Bytes of the program's answer that are looked at.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Error that the program reports for a module that is not there.
const NOT_INSTALLED: &str = "not installed";

/// Threads that the modules of the parked interpreter start when they are imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkHazards {
    /// Version of Python.
    pub python: String,
    /// As the parked interpreter imports them; none if that process was killed.
    pub parked: Option<ParkedImports>,
    /// As a cell imports them that sets none of the variables; none if that process was killed.
    pub plain: Option<Vec<ModuleHazard>>,
}

/// Modules as the parked interpreter imports them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkedImports {
    /// In the order in which they are imported.
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
    /// Threads that it has started.
    pub threads: Vec<String>,
    /// Libraries known for their threads that it has loaded.
    pub libraries: Vec<String>,
}

impl ModuleHazard {
    /// Returns whether it is installed and cannot be imported all the same.
    pub fn has_failed(&self) -> bool {
        self.error.as_deref().is_some_and(|why| why != NOT_INSTALLED)
    }
}

impl ForkHazards {
    /// The program, which `python3` takes as its standard input.
    pub fn program() -> String {
        hazard_source()
    }

    /// Reads what the program has written.
    ///
    /// # Errors
    /// If that is not its answer.
    pub fn parse(stdout: &[u8]) -> Result<ForkHazards, serde_json::Error> {
        serde_json::from_slice(stdout.get(..ANSWER_BYTES_MAX).unwrap_or(stdout))
    }
}
