//! Listing of an agent's folder, as the store has it.

use serde::{Deserialize, Serialize};

/// A file of an agent's folder, without its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderEntry {
    /// Relative, `/`-separated.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Mode 0755 rather than 0644.
    pub executable: bool,
}
