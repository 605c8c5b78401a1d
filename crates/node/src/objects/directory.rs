//! Objects in a directory: a file for each, in directories for the parts of its key.
//!
//! A file's name ends with a character that no key has, so that `a` and `a/b` can both be objects.
//! Files are written in a separate directory and moved into place; files left there by a crash are
//! removed at a later start. Every file and every name waits for the disk if a successful write has
//! to survive a power failure, as in the store.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{OBJECT_BYTES_MAX, ObjectsError, PutOutcome, check_key, check_prefix};
use crate::clock::{self, IdGenerator};
use crate::data_dir::open_private;
use crate::store::CommitDurability;

/// Directory in which files are written before they have their final name. No part of a key begins
/// with a dot.
const BESIDE: &str = ".new";

/// Suffix of every object's file.
const MARK: char = '@';

/// Age from which a file counts as left over: another server may be writing younger ones.
const LEFT_OVER: Duration = Duration::from_secs(3600);

/// Number of attempts to create a directory that others remove because it is empty.
const RACES_MAX: u32 = 16;

#[derive(Clone, Debug)]
pub(super) struct DirectoryObjects(Arc<DirectoryObjectsShared>);

#[derive(Debug)]
struct DirectoryObjectsShared {
    root: PathBuf,
    ids: IdGenerator,
    durability: CommitDurability,
}

impl DirectoryObjects {
    pub(super) fn open(
        root: &Path,
        durability: CommitDurability,
    ) -> Result<DirectoryObjects, ObjectsError> {
        let beside = root.join(BESIDE);
        fs::create_dir_all(&beside).map_err(error("create", &beside))?;
        sync_directory(root)?;
        for entry in fs::read_dir(&beside).map_err(error("read", &beside))? {
            let path = entry.map_err(error("read", &beside))?.path();
            let modified = fs::metadata(&path).and_then(|metadata| metadata.modified());
            // Its writer may have finished it meanwhile.
            let Ok(modified) = modified else { continue };
            if clock::wall().duration_since(modified).is_ok_and(|age| age > LEFT_OVER) {
                fs::remove_file(&path).map_err(error("remove", &path))?;
            }
        }
        let ids = IdGenerator::new().map_err(error("draw random bytes for", root))?;
        Ok(DirectoryObjects(Arc::new(DirectoryObjectsShared {
            root: root.to_owned(),
            ids,
            durability,
        })))
    }

    pub(super) async fn put(&self, key: &str, bytes: Bytes) -> Result<(), ObjectsError> {
        let place = |beside: &Path, path: &Path| fs::rename(beside, path);
        self.write(key, bytes, place).await.map(drop)
    }

    pub(super) async fn put_if_absent(
        &self,
        key: &str,
        bytes: Bytes,
    ) -> Result<PutOutcome, ObjectsError> {
        // Before the work of writing, which is usually unnecessary for content that is named by its
        // hash.
        if self.exists(key).await? {
            return Ok(PutOutcome::Present);
        }
        // Unlike a rename, a link replaces no file.
        let place = |beside: &Path, path: &Path| {
            fs::hard_link(beside, path).and_then(|()| fs::remove_file(beside))
        };
        self.write(key, bytes, place).await
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<Bytes>, ObjectsError> {
        let (path, key) = (self.0.file(key), key.to_owned());
        blocking(move || {
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(cause) if is_absent(&cause) => return Ok(None),
                Err(cause) => return Err(error("open", &path)(cause)),
            };
            let mut bytes = Vec::new();
            let limited = file.take(OBJECT_BYTES_MAX + 1).read_to_end(&mut bytes);
            limited.map_err(error("read", &path))?;
            if u64::try_from(bytes.len()).is_ok_and(|length| length > OBJECT_BYTES_MAX) {
                return Err(ObjectsError::TooLarge(key));
            }
            Ok(Some(bytes.into()))
        })
        .await
    }

    pub(super) async fn exists(&self, key: &str) -> Result<bool, ObjectsError> {
        let path = self.0.file(key);
        blocking(move || match fs::metadata(&path) {
            Ok(_) => Ok(true),
            Err(cause) if is_absent(&cause) => Ok(false),
            Err(cause) => Err(error("look at", &path)(cause)),
        })
        .await
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), ObjectsError> {
        let (shared, path) = (Arc::clone(&self.0), self.0.file(key));
        blocking(move || {
            match fs::remove_file(&path) {
                Ok(()) => {}
                Err(cause) if is_absent(&cause) => return Ok(()),
                Err(cause) => return Err(error("remove", &path)(cause)),
            }
            let mut above = path.parent();
            while let Some(directory) = above.filter(|it| *it != shared.root) {
                // It has other objects, or just got one; then so have those above.
                if fs::remove_dir(directory).is_err() {
                    break;
                }
                above = directory.parent();
            }
            above.map_or(Ok(()), |above| shared.settle(above))
        })
        .await
    }

    pub(super) async fn list(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<String>, ObjectsError> {
        let (shared, prefix, after) = (Arc::clone(&self.0), prefix.to_owned(), after.to_owned());
        blocking(move || {
            let mut found = Vec::new();
            let wanted = DirectoryListRequest { prefix: &prefix, after: &after, limit };
            wanted.collect(&shared.root, "", &mut found)?;
            Ok(found)
        })
        .await
    }

    async fn write(
        &self,
        key: &str,
        bytes: Bytes,
        place: fn(&Path, &Path) -> io::Result<()>,
    ) -> Result<PutOutcome, ObjectsError> {
        let (shared, path) = (Arc::clone(&self.0), self.0.file(key));
        blocking(move || {
            let beside = shared.root.join(BESIDE).join(shared.ids.next(""));
            let written = shared.write(&beside, &bytes);
            let placed = written.and_then(|()| shared.place(&beside, &path, place));
            if !matches!(placed, Ok(PutOutcome::New)) {
                // No reader uses it; a later start would remove it as well.
                drop(fs::remove_file(&beside));
            }
            placed
        })
        .await
    }
}

impl DirectoryObjectsShared {
    /// Returns the path of an object. The key has been checked: none of its parts points elsewhere.
    fn file(&self, key: &str) -> PathBuf {
        self.root.join(format!("{key}{MARK}"))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), ObjectsError> {
        let write = || -> io::Result<()> {
            let mut file = open_private(path, true)?;
            file.write_all(bytes)?;
            match self.durability {
                CommitDurability::Process => Ok(()),
                CommitDurability::Power => file.sync_all(),
            }
        };
        write().map_err(error("write", path))
    }

    /// Makes names in a directory as durable as configured.
    fn settle(&self, directory: &Path) -> Result<(), ObjectsError> {
        match self.durability {
            CommitDurability::Process => Ok(()),
            CommitDurability::Power => sync_directory(directory),
        }
    }

    /// Gives a file its name, and makes that durable.
    fn place(
        &self,
        beside: &Path,
        path: &Path,
        place: fn(&Path, &Path) -> io::Result<()>,
    ) -> Result<PutOutcome, ObjectsError> {
        let directory = path.parent().unwrap_or(&self.root);
        let mut races = 0;
        loop {
            self.make(directory)?;
            match place(beside, path) {
                Ok(()) => break,
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
                    return Ok(PutOutcome::Present);
                }
                // The last object beside it was deleted in between, and the directory with it.
                Err(cause) if cause.kind() == io::ErrorKind::NotFound && races < RACES_MAX => {
                    races += 1;
                }
                Err(cause) => return Err(error("write", path)(cause)),
            }
        }
        self.settle(directory)?;
        Ok(PutOutcome::New)
    }

    /// Creates a directory below the root. Each new one is durable once the one above it is.
    fn make(&self, directory: &Path) -> Result<(), ObjectsError> {
        if directory == self.root || directory.is_dir() {
            return Ok(());
        }
        let above = directory.parent().unwrap_or(&self.root);
        let mut races = 0;
        loop {
            self.make(above)?;
            match fs::create_dir(directory) {
                Ok(()) => return self.settle(above),
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound && races < RACES_MAX => {
                    races += 1;
                }
                Err(cause) => return Err(error("create", directory)(cause)),
            }
        }
    }
}

/// Request for a list.
struct DirectoryListRequest<'a> {
    prefix: &'a str,
    after: &'a str,
    limit: usize,
}

impl DirectoryListRequest<'_> {
    /// Returns whether keys of this list can begin with `beginning`.
    fn may_be_below(&self, beginning: &str) -> bool {
        let fits = self.prefix.starts_with(beginning) || beginning.starts_with(self.prefix);
        fits && (beginning > self.after || self.after.starts_with(beginning))
    }

    /// Adds the keys below a directory, which begin with `beginning`.
    fn collect(
        &self,
        directory: &Path,
        beginning: &str,
        found: &mut Vec<String>,
    ) -> Result<(), ObjectsError> {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            // Removed meanwhile, because it is empty.
            Err(cause) if is_absent(&cause) => return Ok(()),
            Err(cause) => return Err(error("read", directory)(cause)),
        };
        let mut keys = Vec::new();
        for entry in entries {
            let entry = entry.map_err(error("read", directory))?;
            let name = entry.file_name();
            // Other files are ignored, such as a lost+found directory or notes.
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
            match name.strip_suffix(MARK) {
                Some(part) => {
                    let key = format!("{beginning}{part}");
                    let is_key = check_key(&key).is_ok();
                    let is_wanted = is_key && key.starts_with(self.prefix) && *key > *self.after;
                    keys.extend(is_wanted.then_some(key));
                }
                None => {
                    let below = format!("{beginning}{name}/");
                    let is_wanted = check_prefix(&below).is_ok() && self.may_be_below(&below);
                    keys.extend(is_wanted.then_some(below));
                }
            }
        }
        // Keys in the order of their bytes; a directory is sorted with the keys below it.
        keys.sort_unstable();
        for key in keys {
            if found.len() >= self.limit {
                break;
            }
            match key.strip_suffix('/') {
                None => found.push(key),
                Some(directory_key) => {
                    let name = directory_key.rsplit('/').next().unwrap_or_default();
                    self.collect(&directory.join(name), &key, found)?;
                }
            }
        }
        Ok(())
    }
}

/// Makes names in a directory durable. Succeeds if it was removed because it was empty.
fn sync_directory(path: &Path) -> Result<(), ObjectsError> {
    match File::open(path).and_then(|directory| directory.sync_all()) {
        Err(cause) if !is_absent(&cause) => Err(error("synchronise", path)(cause)),
        _ => Ok(()),
    }
}

/// No such file, or a file in the place of a directory, which this module never creates.
fn is_absent(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ObjectsError {
    let path = path.to_owned();
    move |source| ObjectsError::File { action, path, source }
}

/// Runs blocking disk work on a blocking thread. It runs to its end even if the caller is dropped.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ObjectsError> + Send + 'static,
) -> Result<T, ObjectsError> {
    crate::task::blocking(work).await.map_err(|_| ObjectsError::Stopped)?
}
