//! Identity of a node, and of each run of it.
//!
//! A node's name lasts as long as its data directory, which can be copied: with a volume, an image
//! or a machine. So each run of a server has an incarnation, and only the latest one that
//! registered speaks for the name.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Name of the machine's present life, new at each boot (`random(4)`).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Identity of a run of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Name, for as long as its data directory exists.
    pub id: String,
    /// Name of this run.
    pub incarnation: String,
    /// Directory that it runs in, as nobody else's is called: that of a run which is over if it is
    /// the same, because a directory has one server at a time.
    pub home: String,
}

impl NodeIdentity {
    /// Identity of a run that begins in a directory.
    ///
    /// # Errors
    /// When the directory or the machine's boot id cannot be read.
    pub fn in_directory(
        id: String,
        incarnation: String,
        data_dir: &Path,
    ) -> io::Result<NodeIdentity> {
        let boot = fs::read_to_string(BOOT_ID)?;
        let directory = fs::metadata(data_dir)?;
        // Neither a copy of it has these, nor one on another machine.
        let home = format!("{} {} {}", boot.trim(), directory.dev(), directory.ino());
        Ok(NodeIdentity { id, incarnation, home })
    }
}
