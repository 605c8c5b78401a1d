//! Tokens in a file of the data directory: one JSON object per line, and never a token itself.
//!
//! It is small, and is only ever replaced as a whole.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::file_error;
use super::{StoredTokens, TokenChange, TokenError, TokenRecord, TokensVersion};
use crate::data_dir::{self, write_atomic};
use crate::hex;

/// Hashes and names of all tokens.
pub(super) const TOKENS_FILE: &str = "tokens.jsonl";

/// Name of that file after its tokens were moved into a shared store.
const MOVED_FILE: &str = "tokens.jsonl.moved";

/// Locked while `TOKENS_FILE` is changed.
const TOKENS_LOCK_FILE: &str = "tokens.lock";

/// Version of the file, by which a change is detected without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileVersion {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// The token file of a data directory, which need not exist.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    lock_path: PathBuf,
}

impl TokenFile {
    pub(super) fn of(directory: &Path) -> TokenFile {
        TokenFile { path: directory.join(TOKENS_FILE), lock_path: directory.join(TOKENS_LOCK_FILE) }
    }

    /// Returns the version of the file; none if there is no file.
    pub(super) fn version(&self) -> Result<Option<FileVersion>, TokenError> {
        match fs::metadata(&self.path) {
            Ok(metadata) => Ok(Some(FileVersion {
                inode: metadata.ino(),
                bytes: metadata.size(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file_error("read", &self.path)(error)),
        }
    }

    /// Reads all tokens.
    pub(super) fn read(&self) -> Result<StoredTokens, TokenError> {
        // The version is read first: a change in between is detected at the next read.
        let Some(version) = self.version()? else { return Ok(StoredTokens::default()) };
        let path = || self.path.clone();
        let text = fs::read_to_string(&self.path).map_err(file_error("read", &self.path))?;
        let mut records = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let line_number = index + 1;
            let record: TokenRecord = serde_json::from_str(line).map_err(|source| {
                TokenError::Malformed { path: path(), line: line_number, source }
            })?;
            let hash = hex::decode_32(&record.sha256)
                .ok_or_else(|| TokenError::NotAHash { path: path(), line: line_number })?;
            records.push((record, hash));
        }
        Ok(StoredTokens { records, version: Some(TokensVersion::File(version)) })
    }

    /// Changes the file, one process at a time, starting from its present content.
    pub(super) fn change(&self, change: &TokenChange) -> Result<TokenRecord, TokenError> {
        let lock = data_dir::open_private(&self.lock_path, false)
            .and_then(|file| file.lock().map(|()| file))
            .map_err(file_error("lock", &self.lock_path))?;
        let mut records: Vec<_> = self.read()?.records.into_iter().map(|(it, _)| it).collect();
        let changed = change.apply(&mut records)?;
        let mut text = String::new();
        for record in &records {
            let line = serde_json::to_string(record).map_err(io::Error::from);
            text.push_str(&line.map_err(file_error("write", &self.path))?);
            text.push('\n');
        }
        write_atomic(&self.path, text.as_bytes())?;
        drop(lock);
        Ok(changed)
    }

    /// Renames the file, or creates a marker instead: tokens are in a shared store now.
    pub(super) fn set_aside(&self) -> Result<(), TokenError> {
        let moved = self.path.with_file_name(MOVED_FILE);
        match fs::rename(&self.path, &moved) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mark = data_dir::open_private(&moved, false);
                mark.map(drop).map_err(file_error("write", &moved))
            }
            renamed => renamed.map_err(file_error("rename", &self.path)),
        }
    }

    /// Returns whether the file was set aside.
    pub(super) fn is_aside(&self) -> bool {
        self.path.with_file_name(MOVED_FILE).exists()
    }
}
