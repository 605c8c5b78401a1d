//! Objects: bytes under a key, written once as a whole, in a directory or in a service with S3's
//! protocol.
//!
//! A successful write is durable: the directory was synchronised, or the service has confirmed it.
//! A reader sees a whole object or none. Servers that share a back end share its objects.
//!
//! | limit | |
//! |---|---|
//! | [`OBJECT_BYTES_MAX`] | one object |
//! | [`KEY_BYTES_MAX`] | one key |
//! | [`LIST_MAX`] | keys of one answer |
//! | [`REQUESTS_MAX`] | requests to a service at the same time; more wait |
//! | [`ATTEMPTS_MAX`] | attempts at one request to a service |
//! | [`TIMEOUT`] | one attempt |

mod directory;
mod s3;
pub mod sign;
mod url;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;

use self::directory::DirectoryObjects;
use self::s3::S3Objects;
use crate::client::ClientError;
use crate::removals::RemovalGate;
use crate::store::CommitDurability;

pub use self::sign::SigningCredentials;
pub use self::url::{BadUrl, BucketStyle, ObjectsUrl, S3Location, decoded};

/// Longest object. Larger data is divided into several.
pub const OBJECT_BYTES_MAX: u64 = 64 << 20;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 512;

/// Longest part of a key between two `/`, in bytes: file names have 255 at most.
pub const PART_BYTES_MAX: usize = 200;

/// Maximum number of keys in one answer.
pub const LIST_MAX: usize = 1000;

/// Maximum number of concurrent requests to a service; further ones wait for their turn.
pub const REQUESTS_MAX: usize = 32;

/// Maximum number of attempts at one request to a service.
pub const ATTEMPTS_MAX: u32 = 5;

/// Time for one attempt.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Result of [`ObjectStore::put_if_absent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// Written.
    New,
    /// An object with this key exists, and was not changed. After a broken connection it may be
    /// this caller's own.
    Present,
}

/// Reason why an object cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// The key is invalid.
    #[error(
        "a key has at most {KEY_BYTES_MAX} letters, digits, `-`, `_`, `.`, `=`, `+`, `%` and `/`, and \
         no part of it is empty, begins with `.` or has more than {PART_BYTES_MAX}: `{}`",
        shortened(.0)
    )]
    Key(String),
    /// The object is too long.
    #[error("an object has at most {OBJECT_BYTES_MAX} bytes: `{0}`")]
    TooLarge(String),
    /// A file operation failed.
    #[error("{action} `{}`", path.display())]
    File {
        /// Failed operation.
        action: &'static str,
        /// Affected file or directory.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The service did not answer.
    #[error("{action} `{key}` in the object store")]
    Request {
        /// Failed operation.
        action: &'static str,
        /// The key.
        key: String,
        /// Cause.
        source: ClientError,
    },
    /// The service refused.
    #[error("{action} `{key}` in the object store: {status} {code}")]
    Refused {
        /// Failed operation.
        action: &'static str,
        /// The key.
        key: String,
        /// Status of the answer.
        status: StatusCode,
        /// Error code, such as `AccessDenied`.
        code: String,
    },
    /// The service's answer is malformed.
    #[error("list `{0}` in the object store: the response is not a list")]
    Malformed(String),
    /// This process is stopping.
    #[error("the server is stopping")]
    Stopped,
}

impl ObjectsError {
    /// Returns whether the same request may succeed later without other changes.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            ObjectsError::Request { source, .. } => s3::is_worth_another(source),
            ObjectsError::Refused { status, .. } => s3::is_temporary(*status),
            ObjectsError::File { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            ObjectsError::Key(_)
            | ObjectsError::TooLarge(_)
            | ObjectsError::Malformed(_)
            | ObjectsError::Stopped => false,
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

/// An object store. Cheap to clone; clones share their limits.
#[derive(Clone)]
pub struct ObjectStore {
    backend: ObjectBackend,
    removals: RemovalGate,
}

#[derive(Clone)]
enum ObjectBackend {
    Directory(DirectoryObjects),
    S3(Arc<S3Objects>),
}

impl fmt::Debug for ObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.backend {
            ObjectBackend::Directory(directory) => directory.fmt(f),
            ObjectBackend::S3(s3) => s3.fmt(f),
        }
    }
}

impl ObjectStore {
    /// Opens the objects in a directory, which is created if it is missing. `durability` determines
    /// which failures a successful write survives. Reads and writes files, so call it on a thread
    /// that may block.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn in_directory(
        path: &Path,
        durability: CommitDurability,
    ) -> Result<ObjectStore, ObjectsError> {
        let backend = ObjectBackend::Directory(DirectoryObjects::open(path, durability)?);
        Ok(ObjectStore { backend, removals: RemovalGate::default() })
    }

    /// Opens the objects in a bucket. Sends nothing before the first request.
    #[must_use]
    pub fn in_s3(location: S3Location, credentials: SigningCredentials) -> ObjectStore {
        let backend = ObjectBackend::S3(Arc::new(S3Objects::new(location, credentials)));
        ObjectStore { backend, removals: RemovalGate::default() }
    }

    /// Lets objects be removed only while this gate is open.
    #[must_use]
    pub fn with_removals(self, removals: RemovalGate) -> ObjectStore {
        ObjectStore { removals, ..self }
    }

    /// Returns the gate of removals, for files that belong to the objects.
    #[must_use]
    pub fn removals(&self) -> &RemovalGate {
        &self.removals
    }

    /// Writes an object, and replaces one with the same key.
    ///
    /// # Errors
    /// If the key is invalid, the object is too long, or the back end fails.
    pub async fn put(&self, key: &str, bytes: Bytes) -> Result<(), ObjectsError> {
        check(key, &bytes)?;
        match &self.backend {
            ObjectBackend::Directory(directory) => directory.put(key, bytes).await,
            ObjectBackend::S3(s3) => s3.put(key, bytes).await,
        }
    }

    /// Writes an object unless there is one with the key. If several writes are concurrent, one
    /// succeeds (with services that support `If-None-Match`, as all current ones do).
    ///
    /// # Errors
    /// As of [`ObjectStore::put`].
    pub async fn put_if_absent(&self, key: &str, bytes: Bytes) -> Result<PutOutcome, ObjectsError> {
        check(key, &bytes)?;
        match &self.backend {
            ObjectBackend::Directory(directory) => directory.put_if_absent(key, bytes).await,
            ObjectBackend::S3(s3) => s3.put_if_absent(key, bytes).await,
        }
    }

    /// Returns an object's bytes; none if there is no such object.
    ///
    /// # Errors
    /// If the key is invalid, the object is longer than [`ObjectStore::put`] accepts, or the back
    /// end fails.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>, ObjectsError> {
        check_key(key)?;
        match &self.backend {
            ObjectBackend::Directory(directory) => directory.get(key).await,
            ObjectBackend::S3(s3) => s3.get(key).await,
        }
    }

    /// Returns whether there is such an object.
    ///
    /// # Errors
    /// If the key is invalid, or the back end fails.
    pub async fn exists(&self, key: &str) -> Result<bool, ObjectsError> {
        check_key(key)?;
        match &self.backend {
            ObjectBackend::Directory(directory) => directory.exists(key).await,
            ObjectBackend::S3(s3) => s3.exists(key).await,
        }
    }

    /// Removes an object. Succeeds if there is none.
    ///
    /// # Errors
    /// If the key is invalid, or the back end fails.
    pub async fn delete(&self, key: &str) -> Result<(), ObjectsError> {
        check_key(key)?;
        let _permit = self.removals.permit().await;
        match &self.backend {
            ObjectBackend::Directory(directory) => directory.delete(key).await,
            ObjectBackend::S3(s3) => s3.delete(key).await,
        }
    }

    /// Returns the keys that begin with `prefix`, which may end within a part, and follow `after`,
    /// in the order of their bytes: at most `limit` and [`LIST_MAX`]. A shorter answer is complete.
    ///
    /// # Errors
    /// If `prefix` or `after` cannot begin a key, or the back end fails.
    pub async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, ObjectsError> {
        check_prefix(prefix)?;
        after.map_or(Ok(()), check_prefix)?;
        let (after, limit) = (after.unwrap_or_default(), limit.min(LIST_MAX));
        match &self.backend {
            ObjectBackend::Directory(directory) => directory.list(prefix, after, limit).await,
            ObjectBackend::S3(s3) => s3.list(prefix, after, limit).await,
        }
    }
}

fn check(key: &str, bytes: &Bytes) -> Result<(), ObjectsError> {
    check_key(key)?;
    match u64::try_from(bytes.len()) {
        Ok(length) if length <= OBJECT_BYTES_MAX => Ok(()),
        _ => Err(ObjectsError::TooLarge(key.to_owned())),
    }
}

fn check_key(key: &str) -> Result<(), ObjectsError> {
    let is_good = !key.is_empty() && key.split('/').all(|part| !part.is_empty());
    if is_good { check_prefix(key) } else { Err(ObjectsError::Key(key.to_owned())) }
}

/// Checks the prefix of keys: like a key, but its last part may be missing.
fn check_prefix(prefix: &str) -> Result<(), ObjectsError> {
    let mut parts = prefix.split('/').peekable();
    let mut is_good = prefix.len() <= KEY_BYTES_MAX;
    while let Some(part) = parts.next() {
        let is_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.=+%".contains(&byte);
        is_good &= part.len() <= PART_BYTES_MAX
            && !part.starts_with('.')
            && part.bytes().all(is_byte)
            && (!part.is_empty() || parts.peek().is_none());
    }
    if is_good { Ok(()) } else { Err(ObjectsError::Key(prefix.to_owned())) }
}

#[cfg(test)]
mod tests;
