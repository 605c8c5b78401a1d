//! Files of a warehouse, by their locations: in directories of this machine, or in buckets.
//!
//! Every operation first finds the root that a location is below, so no file outside of the roots
//! is ever opened.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man2/fsync.2.html>
//! - <https://man7.org/linux/man-pages/man2/rename.2.html>

use std::io;
use std::path::{Path, PathBuf};

use axum::http::StatusCode;
use bytes::Bytes;
use node::objects::{LIST_MAX, ObjectStore, ObjectsError, PutOutcome, SigningCredentials};
use node::removals::RemovalGate;

use super::local;
use super::place::TableLocation;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::storage;

/// Longest file that is read or written, in bytes.
pub const FILE_BYTES_MAX: u64 = 512 << 20;

/// Durability of a file: whether it survives a power failure after it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushMode {
    /// The content is durable elsewhere already.
    No,
    /// The file is the only copy.
    Yes,
}

/// Version of a local file's content: it changes when the file is replaced or written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalFileVersion {
    /// Length in bytes.
    pub length: u64,
    /// Device and inode number.
    pub(super) inode: (u64, u64),
    /// Seconds and nanoseconds of the last change.
    pub(super) changed: (i64, i64),
}

impl LocalFileVersion {
    /// Returns its entity tag for HTTP, in quotes.
    #[must_use]
    pub fn tag(&self) -> String {
        let (seconds, nanoseconds) = self.changed;
        format!("\"{:x}-{seconds:x}-{nanoseconds:x}-{:x}\"", self.inode.1, self.length)
    }
}

/// Files below a set of roots.
#[derive(Debug)]
pub struct WarehouseFiles {
    /// The warehouse's own root first.
    roots: Vec<WarehouseRoot>,
    /// Gate that each removal passes.
    removals: RemovalGate,
}

#[derive(Debug)]
struct WarehouseRoot {
    place: TableLocation,
    back: FileBackend,
    /// Path segments between the directory and the root.
    inner: Vec<Box<str>>,
}

#[derive(Debug)]
enum FileBackend {
    Directory(PathBuf),
    Objects(ObjectStore),
}

/// Returns the error for a missing file, in the form that clients expect.
fn absent(location: &str) -> CatalogError {
    CatalogError::new(
        ErrorReason::NotFound,
        format!("Failed to open input stream for file: {location}"),
    )
}

impl WarehouseFiles {
    /// Creates access to files below these roots. A root that is reached by a symbolic link is
    /// known only by the given name, so that each location has one name. The path from one of the
    /// `anchors` to a root below it must not contain such a link.
    ///
    /// # Errors
    /// `BadRequest` if a root is no location, or is a bucket and there are no credentials.
    pub fn new<'a>(
        roots: impl Iterator<Item = &'a str>,
        anchors: &[String],
        credentials: Option<&SigningCredentials>,
    ) -> Result<WarehouseFiles> {
        let mut made = Vec::new();
        for root in roots {
            let place: TableLocation = root.split('?').next().unwrap_or_default().parse()?;
            let Some(path) = place.path() else {
                let back = FileBackend::Objects(bucket(root, credentials)?);
                made.push(WarehouseRoot { place, back, inner: Vec::new() });
                continue;
            };
            let anchors = anchors.iter().filter_map(|it| it.parse::<TableLocation>().ok());
            let mut found =
                anchors.filter_map(|anchor| Some((anchor.path()?, place.below(&anchor)?.to_vec())));
            let (path, inner) = found.next().unwrap_or((path, Vec::new()));
            made.push(WarehouseRoot { place, back: FileBackend::Directory(path), inner });
        }
        Ok(WarehouseFiles { roots: made, removals: RemovalGate::default() })
    }

    /// Removes files only while this gate is open.
    #[must_use]
    pub fn with_removals(self, removals: RemovalGate) -> WarehouseFiles {
        WarehouseFiles { removals, ..self }
    }

    /// Returns whether a location is below one of the roots.
    #[must_use]
    pub fn allows(&self, place: &TableLocation) -> bool {
        self.roots.iter().any(|root| place.is_below(&root.place))
    }

    /// Returns whether the files are local, so that checking for one is cheap.
    #[must_use]
    pub fn is_local(&self, location: &str) -> bool {
        matches!(self.find(location), Ok((FileBackend::Directory(_), _)))
    }

    /// Returns the path of a local file; `None` for one in a bucket. It is only for checking that
    /// the file exists: to open it, use [`WarehouseFiles::read`], which follows no links.
    ///
    /// # Errors
    /// `Forbidden` if it is outside of the roots.
    pub fn local_path(&self, location: &str) -> Result<Option<PathBuf>> {
        let (back, parts) = self.find(location)?;
        Ok(match back {
            FileBackend::Directory(root) => {
                let mut path = root.clone();
                path.extend(parts.iter().map(|part| &**part));
                Some(path)
            }
            FileBackend::Objects(_) => None,
        })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// `NotFound` if it does not exist, `Forbidden` if it is outside of the roots or reached by a
    /// symbolic link, `TooLarge` beyond [`FILE_BYTES_MAX`].
    pub async fn read(&self, location: &str) -> Result<Bytes> {
        self.read_at_most(location, FILE_BYTES_MAX).await
    }

    /// Reads bytes of a local file from an offset on: at most `bytes_max`, fewer at its end. No
    /// descriptor is kept between two calls: compare the versions of their results.
    ///
    /// # Errors
    /// Those of [`WarehouseFiles::read`]; `Forbidden` if it is in a bucket.
    pub async fn read_part(
        &self,
        location: &str,
        offset: u64,
        bytes_max: usize,
    ) -> Result<(LocalFileVersion, Bytes)> {
        match self.find(location)? {
            (FileBackend::Directory(root), parts) => {
                let read = move |root: PathBuf, parts: Vec<Box<str>>| {
                    local::read_part(&root, &parts, offset, bytes_max)
                };
                let (version, part) = on_disk(location, root, parts, read).await?;
                Ok((version, part.into()))
            }
            (FileBackend::Objects(_), _) => {
                let message = "the file is in a bucket: the object store has its parts";
                Err(CatalogError::new(ErrorReason::Forbidden, message))
            }
        }
    }

    /// Reads a file of at most `bytes_max`.
    ///
    /// # Errors
    /// Those of [`WarehouseFiles::read`]; `TooLarge` beyond `bytes_max`.
    pub async fn read_at_most(&self, location: &str, bytes_max: u64) -> Result<Bytes> {
        let found = match self.find(location)? {
            (FileBackend::Directory(root), parts) => {
                let read = on_disk(location, root, parts, move |root, parts| {
                    local::read(&root, &parts, bytes_max)
                });
                read.await?.into()
            }
            (FileBackend::Objects(objects), parts) => {
                let found = objects.get(&parts.join("/")).await;
                found
                    .map_err(|error| of_objects(location, error))?
                    .ok_or_else(|| absent(location))?
            }
        };
        // Objects have a separate limit, which may be higher.
        match u64::try_from(found.len()).is_ok_and(|length| length <= bytes_max) {
            true => Ok(found),
            false => Err(too_large(location)),
        }
    }

    /// Writes a new file. Readers find all of it or nothing.
    ///
    /// # Errors
    /// `AlreadyExists` if the file exists, which is not changed; `Forbidden` as for reading;
    /// `Internal` and `ServiceUnavailable` if it cannot be written.
    pub async fn write_new(&self, location: &str, bytes: Bytes, flush: FlushMode) -> Result<()> {
        check_length(location, &bytes)?;
        match self.find(location)? {
            (FileBackend::Directory(root), parts) => {
                let file = NewLocalFile::new(location, root, parts);
                let written = node::task::blocking(move || file.write(&bytes, flush)).await;
                written.map_err(CatalogError::internal)?
            }
            (FileBackend::Objects(objects), parts) => {
                write_object(location, objects, &parts.join("/"), bytes).await
            }
        }
    }

    /// Returns the target of a new local file; `None` for one in a bucket. Writes nothing.
    ///
    /// # Errors
    /// `Forbidden` if it is outside of the roots.
    pub(crate) fn new_local(&self, location: &str) -> Result<Option<NewLocalFile>> {
        let (back, parts) = self.find(location)?;
        Ok(match back {
            FileBackend::Directory(root) => Some(NewLocalFile::new(location, root, parts)),
            FileBackend::Objects(_) => None,
        })
    }

    /// Removes a file; succeeds if it does not exist.
    ///
    /// # Errors
    /// `Forbidden` as for reading; `Internal` and `ServiceUnavailable` if it cannot be removed.
    pub async fn delete(&self, location: &str) -> Result<()> {
        let _permit = self.removals.permit().await;
        match self.find(location)? {
            (FileBackend::Directory(root), parts) => {
                on_disk(location, root, parts, |root, parts| local::delete(&root, &parts)).await
            }
            (FileBackend::Objects(objects), parts) => {
                let deleted = objects.delete(&parts.join("/")).await;
                deleted.map_err(|error| of_objects(location, error))
            }
        }
    }

    /// Returns the names of the files directly in a directory, in no order; empty if the directory
    /// does not exist.
    ///
    /// # Errors
    /// `Forbidden` as for reading; `Validation` if there are more than `most`.
    pub async fn list(&self, location: &str, most: usize) -> Result<Vec<String>> {
        let too_many = || {
            let message = format!("the directory has more than {most} files");
            CatalogError::new(ErrorReason::Validation, message)
        };
        match self.find(location)? {
            (FileBackend::Directory(root), parts) => {
                let listed = on_disk(location, root, parts, move |root, parts| {
                    local::list(&root, &parts, most)
                });
                listed.await?.ok_or_else(too_many)
            }
            (FileBackend::Objects(objects), parts) => {
                let prefix = format!("{}/", parts.join("/"));
                let (mut names, mut after) = (Vec::new(), None::<String>);
                loop {
                    let keys = objects.list(&prefix, after.as_deref(), LIST_MAX).await;
                    let keys = keys.map_err(|error| of_objects(location, error))?;
                    let below = keys.iter().filter_map(|key| key.strip_prefix(&prefix));
                    names.extend(below.filter(|it| !it.contains('/')).map(str::to_owned));
                    if names.len() > most {
                        return Err(too_many());
                    }
                    let is_last = keys.len() < LIST_MAX;
                    after = keys.into_iter().next_back();
                    if is_last {
                        return Ok(names);
                    }
                }
            }
        }
    }

    /// Returns whether no file is below a location.
    ///
    /// # Errors
    /// `Forbidden` if it is outside of the roots; those of the storage.
    pub async fn is_empty(&self, location: &str) -> Result<bool> {
        match self.find(location)? {
            (FileBackend::Directory(root), parts) => {
                on_disk(location, root, parts, |root, parts| local::is_empty(&root, &parts)).await
            }
            (FileBackend::Objects(objects), parts) => {
                let prefix = format!("{}/", parts.join("/"));
                let keys = objects.list(&prefix, None, 1).await;
                Ok(keys.map_err(|error| of_objects(location, error))?.is_empty())
            }
        }
    }

    /// Removes everything below a location, and the location. Follows no symbolic link.
    ///
    /// # Errors
    /// Those of [`WarehouseFiles::delete`]. Completed removals are not undone.
    pub async fn delete_tree(&self, location: &str) -> Result<()> {
        let _permit = self.removals.permit().await;
        match self.find(location)? {
            (FileBackend::Directory(root), parts) => {
                on_disk(location, root, parts, |root, parts| local::delete_tree(&root, &parts))
                    .await
            }
            (FileBackend::Objects(objects), parts) => {
                let prefix = format!("{}/", parts.join("/"));
                loop {
                    let keys = objects.list(&prefix, None, LIST_MAX).await;
                    let keys = keys.map_err(|error| of_objects(location, error))?;
                    for key in &keys {
                        let deleted = objects.delete(key).await;
                        deleted.map_err(|error| of_objects(location, error))?;
                    }
                    if keys.len() < LIST_MAX {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Returns the root that a location is below, and its remaining path segments.
    fn find(&self, location: &str) -> Result<(&FileBackend, Vec<Box<str>>)> {
        let place: TableLocation = location.parse()?;
        for root in &self.roots {
            if let Some(parts) = place.below(&root.place) {
                return Ok((&root.back, [&root.inner, parts].concat()));
            }
        }
        let excerpt: String = location.chars().take(200).collect();
        let message = format!("the location `{excerpt}` is outside of the warehouse");
        Err(CatalogError::new(ErrorReason::Forbidden, message))
    }
}

/// Target of a new local file.
#[derive(Debug)]
pub(crate) struct NewLocalFile {
    location: String,
    root: PathBuf,
    parts: Vec<Box<str>>,
}

impl NewLocalFile {
    fn new(location: &str, root: &Path, parts: Vec<Box<str>>) -> NewLocalFile {
        NewLocalFile { location: location.to_owned(), root: root.to_owned(), parts }
    }

    /// Returns its location.
    pub(crate) fn into_location(self) -> String {
        self.location
    }

    /// Writes the file as [`WarehouseFiles::write_new`] does. Waits for the disk.
    ///
    /// # Errors
    /// Those of [`WarehouseFiles::write_new`].
    pub(crate) fn write(&self, bytes: &[u8], flush: FlushMode) -> Result<()> {
        check_length(&self.location, bytes)?;
        let written = local::write_new(&self.root, &self.parts, bytes, flush);
        written.map_err(|error| of_disk(&self.location, error))
    }
}

fn check_length(location: &str, bytes: &[u8]) -> Result<()> {
    match u64::try_from(bytes.len()).is_ok_and(|length| length > FILE_BYTES_MAX) {
        true => Err(too_large(location)),
        false => Ok(()),
    }
}

/// Writes a new object; the store itself rejects an existing key.
async fn write_object(
    location: &str,
    objects: &ObjectStore,
    key: &str,
    bytes: Bytes,
) -> Result<()> {
    let placed = objects.put_if_absent(key, bytes.clone()).await;
    let placed = placed.map_err(|error| match error {
        ObjectsError::Refused { status: StatusCode::NOT_IMPLEMENTED, .. } => {
            let message = "the object store does not know `If-None-Match`, which keeps files of \
                others from being overwritten";
            CatalogError::caused(ErrorReason::ServiceUnavailable, message, error)
        }
        error => of_objects(location, error),
    })?;
    if placed == PutOutcome::New {
        return Ok(());
    }
    // After a broken connection the object may be the one just written. Any other belongs to
    // another writer, and no pointer may refer to it.
    let found = objects.get(key).await.map_err(|error| of_objects(location, error))?;
    if found.is_some_and(|found| found == bytes) { Ok(()) } else { Err(location_taken(location)) }
}

/// Runs a file operation on a thread that may block on the disk.
async fn on_disk<T: Send + 'static>(
    location: &str,
    root: &Path,
    parts: Vec<Box<str>>,
    act: impl FnOnce(PathBuf, Vec<Box<str>>) -> io::Result<T> + Send + 'static,
) -> Result<T> {
    let root = root.to_owned();
    let done = node::task::blocking(move || act(root, parts)).await;
    done.map_err(CatalogError::internal)?.map_err(|error| of_disk(location, error))
}

fn of_disk(location: &str, error: io::Error) -> CatalogError {
    let excerpt: String = location.chars().take(200).collect();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => absent(location),
        io::ErrorKind::AlreadyExists => location_taken(location),
        io::ErrorKind::FileTooLarge => too_large(location),
        io::ErrorKind::InvalidInput => {
            let message =
                format!("the location `{excerpt}` is not that of a file in the warehouse");
            CatalogError::new(ErrorReason::Forbidden, message)
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            CatalogError::caused(ErrorReason::ServiceUnavailable, "the warehouse is full", error)
        }
        _ => CatalogError::internal(error),
    }
}

fn of_objects(location: &str, error: ObjectsError) -> CatalogError {
    let excerpt: String = location.chars().take(200).collect();
    match error {
        ObjectsError::Key(_) => {
            let message = format!("the location `{excerpt}` has characters that no key may have");
            CatalogError::new(ErrorReason::BadRequest, message)
        }
        ObjectsError::TooLarge(_) => too_large(location),
        error => {
            let message = "the object store cannot be reached at present";
            CatalogError::caused(ErrorReason::ServiceUnavailable, message, error)
        }
    }
}

fn location_taken(location: &str) -> CatalogError {
    let excerpt: String = location.chars().take(200).collect();
    CatalogError::new(ErrorReason::AlreadyExists, format!("there is a file `{excerpt}` already"))
}

fn too_large(location: &str) -> CatalogError {
    let excerpt: String = location.chars().take(200).collect();
    CatalogError::new(ErrorReason::TooLarge, format!("the file `{excerpt}` is too long"))
}

fn bucket(root: &str, credentials: Option<&SigningCredentials>) -> Result<ObjectStore> {
    let location = storage::bucket(root)?;
    let missing = || {
        let root = root.split('?').next().unwrap_or_default();
        CatalogError::new(
            ErrorReason::BadRequest,
            format!("the location `{root}`: its key is missing"),
        )
    };
    Ok(ObjectStore::in_s3(location, credentials.ok_or_else(missing)?.clone()))
}
