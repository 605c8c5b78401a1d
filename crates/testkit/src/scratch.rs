//! Temporary directories that are removed on drop.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::wait::eventually;

/// Time within which writes to the directory of a finished test must stop.
const EMPTIES_WITHIN: Duration = Duration::from_secs(30);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Directory of one test; removed on drop.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates an empty directory for one test.
    #[must_use]
    pub fn new() -> Scratch {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cove-test-{}-{number}", std::process::id()));
        fs::create_dir(&path).expect("create a directory for the test");
        Scratch(path)
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file into it and returns the path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).expect("write a file of the test");
        path
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A program of a killed server may write until it is killed as well.
        let removed = eventually(EMPTIES_WITHIN, || match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Err(error.to_string()),
            removed => Ok(removed.map_err(|error| error.to_string())),
        });
        if let Err(error) | Ok(Err(error)) = removed
            && !std::thread::panicking()
        {
            panic!("remove {}: {error}", self.0.display());
        }
    }
}
