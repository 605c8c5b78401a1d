//! Identity of a node, and of each run of it.
//!
//! A node's name lasts as long as its data directory, which can be copied: with a volume, an image
//! or a machine. So each run of a server has an incarnation, and only the run that registered last
//! is the node's current one.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Id of the machine's present boot (`random(4)`).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Identity of a run of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Name, for as long as its data directory exists.
    pub id: String,
    /// Name of this run.
    pub incarnation: String,
    /// Unique id of its data directory. An earlier run with the same id has ended, because a
    /// directory has one server at a time.
    pub home: String,
}

impl NodeIdentity {
    /// Returns the identity of a run that starts in a directory.
    ///
    /// # Errors
    /// If the directory or the machine's boot id cannot be read.
    pub fn in_directory(
        id: String,
        incarnation: String,
        data_dir: &Path,
    ) -> io::Result<NodeIdentity> {
        let boot = fs::read_to_string(BOOT_ID)?;
        let directory = fs::metadata(data_dir)?;
        // Neither a copy of the directory nor a directory of another machine has the same values.
        let home = format!("{} {} {}", boot.trim(), directory.dev(), directory.ino());
        Ok(NodeIdentity { id, incarnation, home })
    }
}
