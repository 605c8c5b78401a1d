//! Stored listing of an agent's folder.

use serde::{Deserialize, Serialize};

/// A file of an agent's folder, without its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderEntry {
    /// Relative, `/`-separated.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// True for mode 0755 rather than 0644.
    pub executable: bool,
}
