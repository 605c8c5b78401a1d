//! The directory a server keeps its state in: one server at a time, atomic writes, mode 0700.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::removals::RemovalGate;

/// Interval and number of attempts to lock the directory of a killed server: a process that the
/// server was just starting has the lock file open until it executes another program.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
const LOCK_TRIES_MAX: u32 = 100;
/// Name of the file that a running server holds locked; it contains the server's process id.
const LOCK_FILE: &str = "lock";

/// Name of the file with the addresses of a running server.
pub const ADDRESSES_FILE: &str = "addresses.json";

/// Mode of every file in the directory: only its owner may access them.
const FILE_MODE: u32 = 0o600;

/// Reason why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The directory cannot be created.
    #[error("create data directory `{}`", path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The path is not a directory.
    #[error("data directory `{}` is not a directory", path.display())]
    NotADirectory {
        /// The directory.
        path: PathBuf,
    },
    /// Another server uses it.
    #[error("another cove server{} uses the data directory `{}`", process_text(pid), path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Process id that the other server wrote into the lock file.
        pid: String,
    },
    /// A file in it cannot be read or written.
    #[error("{action} `{}`", path.display())]
    File {
        /// Failed operation.
        action: &'static str,
        /// Affected file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

fn process_text(pid: &str) -> String {
    if pid.is_empty() { String::new() } else { format!(" (process {pid})") }
}

/// A data directory that belongs to this process until it is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    removals: RemovalGate,
    /// Locked for as long as it is open; the kernel unlocks it when the process ends.
    _lock: File,
}

impl DataDir {
    /// Creates the directory if it is missing, and locks it for this process.
    ///
    /// # Errors
    /// If another server uses it, or the file system refuses.
    pub fn open(path: &Path) -> Result<DataDir, DataDirError> {
        create(path)?;
        let lock = lock(path)?;
        let removals = RemovalGate::default();
        let data_dir = DataDir { path: path.to_owned(), removals, _lock: lock };
        // A killed server leaves its addresses behind; they are wrong now.
        data_dir.remove_addresses()?;
        Ok(data_dir)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the gate for removals of its files.
    pub fn removals(&self) -> &RemovalGate {
        &self.removals
    }

    /// Writes the server's addresses, for clients of a server whose port the kernel chose: `http`,
    /// and other interfaces with an address of their own, by name.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn write_addresses(
        &self,
        http: SocketAddr,
        others: &[(&str, SocketAddr)],
    ) -> Result<(), DataDirError> {
        let mut document = serde_json::json!({ "http": http.to_string() });
        for (name, address) in others {
            document[name] = address.to_string().into();
        }
        write_atomic(&self.path.join(ADDRESSES_FILE), format!("{document}\n").as_bytes())
    }

    /// Removes the addresses.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn remove_addresses(&self) -> Result<(), DataDirError> {
        let path = self.path.join(ADDRESSES_FILE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(DataDirError::File { action: "remove", path, source: error })
            }
            _ => Ok(()),
        }
    }
}

fn create(path: &Path) -> Result<(), DataDirError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => return Err(DataDirError::NotADirectory { path: path.to_owned() }),
        Err(_) => {}
    }
    let create_error = |source| DataDirError::Create { path: path.to_owned(), source };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(create_error)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        // Another process has created it meanwhile, which is fine.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        other => other.map_err(create_error),
    }
}

fn lock(directory: &Path) -> Result<File, DataDirError> {
    let path = directory.join(LOCK_FILE);
    let error = |action| {
        let path = path.clone();
        move |source| DataDirError::File { action, path, source }
    };
    let mut file = open_private(&path, false).map_err(error("open"))?;
    let mut tries = 0;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(source)) => return Err(error("lock")(source)),
        }
        let mut pid = String::new();
        file.rewind().map_err(error("read"))?;
        // The process id is optional: without it the message is still true.
        let pid = match file.read_to_string(&mut pid) {
            Ok(_) => pid.trim().to_owned(),
            Err(_) => String::new(),
        };
        let is_gone = !pid.is_empty() && !Path::new("/proc").join(&pid).exists();
        if !is_gone || tries == LOCK_TRIES_MAX {
            return Err(DataDirError::InUse { path: directory.to_owned(), pid });
        }
        tries += 1;
        thread::park_timeout(LOCK_INTERVAL);
    }
    file.rewind().map_err(error("write"))?;
    file.set_len(0).map_err(error("write"))?;
    file.rewind().map_err(error("write"))?;
    writeln!(file, "{}", std::process::id()).map_err(error("write"))?;
    Ok(file)
}

/// Opens a file for reading and writing, and creates it with mode 0600.
pub(crate) fn open_private(path: &Path, truncate: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(truncate)
        .mode(FILE_MODE)
        .open(path)
}

/// Replaces a file so that a reader, or a crash, sees either the old content or the new.
///
/// # Errors
/// If the file system refuses.
pub fn write_atomic(path: &Path, content: &[u8]) -> Result<(), DataDirError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = directory.join(format!(".{name}.{}.new", std::process::id()));
    let write = || -> io::Result<()> {
        let mut file = open_private(&temporary, true)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        // The rename is durable once the directory is.
        File::open(directory)?.sync_all()
    };
    write().map_err(|source| DataDirError::File { action: "write", path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
