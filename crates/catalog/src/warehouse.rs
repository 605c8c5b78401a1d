//! A warehouse: the directory or bucket of a catalog's tables, and the locations in it that clients
//! may choose.
//!
//! A location from a client is parsed once ([`TableLocation`]), and rejected unless it is below the
//! warehouse's root or below another root that the configuration allows. This check compares names
//! alone; symbolic links are handled when a file is opened ([`WarehouseFiles`]).

mod files;
mod local;
mod place;

use std::sync::Arc;

use iceberg::ident::{TableIdent, Uuid};
use node::objects::SigningCredentials;
use node::removals::RemovalGate;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub(crate) use self::files::NewLocalFile;
pub use self::files::{FILE_BYTES_MAX, FlushMode, LocalFileVersion, WarehouseFiles};
pub use self::place::{LOCATION_BYTES_MAX, TableLocation};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::storage::{BucketStorage, StorageSettings};

/// Longest part of a default location that comes from a name, in bytes.
const NAME_PART_BYTES_MAX: usize = 64;

/// Longest path of a namespace's directory that consists of names, in bytes.
const DIRECTORY_BYTES_MAX: usize = 300;

/// Bytes of a hash that represents names in a path: enough to rule out collisions.
const HASH_BYTES: usize = 16;

/// Status of a warehouse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarehouseStatus {
    /// Reads and changes, as rights permit.
    #[default]
    Active,
    /// No changes.
    ReadOnly,
    /// Reads and changes, as rights permit, but no removal of the warehouse.
    Protected,
}

impl WarehouseStatus {
    /// Returns the name in the store and the management interface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            WarehouseStatus::Active => "active",
            WarehouseStatus::ReadOnly => "read-only",
            WarehouseStatus::Protected => "protected",
        }
    }

    /// Returns the status of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<WarehouseStatus> {
        [WarehouseStatus::Active, WarehouseStatus::ReadOnly, WarehouseStatus::Protected]
            .into_iter()
            .find(|it| it.name() == name)
    }
}

/// Definition of a warehouse.
#[derive(Clone, Debug, Default)]
pub struct WarehouseSpec {
    /// Id, which never changes.
    pub id: String,
    /// Name.
    pub name: String,
    /// Location of its root: `file:///DIRECTORY`, or `s3://BUCKET/PREFIX` with the parameters of
    /// [`node::objects::ObjectsUrl`].
    pub root: String,
    /// Other roots that clients may have tables below.
    pub locations: Vec<String>,
    /// Trusted directories of the owner, whose own paths may have symbolic links. On the way from
    /// one of them to a root below it, no symbolic link is followed.
    pub anchors: Vec<String>,
    /// Credentials for `s3://`.
    pub credentials: Option<SigningCredentials>,
    /// Client access to a bucket.
    pub storage: StorageSettings,
    /// Status.
    pub status: WarehouseStatus,
    /// Gate that removals of its files pass.
    pub removals: RemovalGate,
}

/// A warehouse.
#[derive(Debug)]
pub struct Warehouse {
    id: Arc<str>,
    name: Arc<str>,
    root: String,
    files: WarehouseFiles,
    status: WarehouseStatus,
    storage: Option<BucketStorage>,
    has_plain_locations: bool,
}

impl Warehouse {
    /// Creates a warehouse from its definition. No directory is created before a file is written.
    ///
    /// # Errors
    /// `BadRequest` if a location is invalid, or its credentials are missing.
    pub fn new(spec: WarehouseSpec) -> Result<Warehouse> {
        let WarehouseSpec {
            id,
            name,
            root,
            locations,
            anchors,
            credentials,
            storage,
            status,
            removals,
        } = spec;
        let has_plain_locations = storage.plain_locations;
        let roots = std::iter::once(&root).chain(&locations);
        let files = WarehouseFiles::new(roots.map(String::as_str), &anchors, credentials.as_ref())?;
        let files = files.with_removals(removals);
        let storage = match credentials {
            Some(credentials) if root.starts_with("s3") => {
                Some(BucketStorage::new(&root, storage, credentials)?)
            }
            _ => None,
        };
        let root = root.split('?').next().unwrap_or_default().trim_end_matches('/').to_owned();
        let (id, name) = (id.into(), name.into());
        Ok(Warehouse { id, name, root, files, status, storage, has_plain_locations })
    }

    /// Returns the status, which limits operations.
    #[must_use]
    pub fn status(&self) -> WarehouseStatus {
        self.status
    }

    /// Returns the object storage; `None` for a warehouse in directories.
    #[must_use]
    pub fn storage(&self) -> Option<&BucketStorage> {
        self.storage.as_ref()
    }

    /// Returns whether new tables are in directories of their own names.
    #[must_use]
    pub fn has_plain_locations(&self) -> bool {
        self.has_plain_locations
    }

    /// Returns the id, which never changes.
    #[must_use]
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the root location.
    #[must_use]
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Returns its files.
    #[must_use]
    pub fn files(&self) -> &WarehouseFiles {
        &self.files
    }

    /// Rejects a location that is not below one of its roots.
    ///
    /// # Errors
    /// `BadRequest` if it is no location, `Forbidden` if it is elsewhere.
    pub fn check_location(&self, location: &str) -> Result<()> {
        let place: TableLocation = location.parse()?;
        if self.files.allows(&place) {
            return Ok(());
        }
        let excerpt: String = location.chars().take(200).collect();
        let message =
            format!("the location `{excerpt}` is outside of the warehouse `{}`", self.name);
        Err(CatalogError::new(ErrorReason::Forbidden, message))
    }

    /// Returns the directory below `base` for a namespace with these levels. Different levels have
    /// different directories: if a name cannot be a path segment as it is, its hash is appended to
    /// the usable rest of it, and if there are too many names, the hash of the remaining ones
    /// replaces them.
    #[must_use]
    pub fn directory_in(&self, base: &str, levels: &[Box<str>]) -> String {
        let mut below = String::new();
        for (at, level) in levels.iter().enumerate() {
            let start = below.len();
            below.push('/');
            push_part(&mut below, level);
            // No name in a path contains this character.
            if below[start + 1..] != **level {
                below.push('~');
                push_hash(&mut below, std::slice::from_ref(level));
            }
            if below.len() > DIRECTORY_BYTES_MAX {
                below.truncate(start);
                below.push_str("/~");
                push_hash(&mut below, &levels[at..]);
                break;
            }
        }
        format!("{}{below}", base.trim_end_matches('/'))
    }

    /// Returns the default location of a new table in the home of its namespace: no other table has
    /// ever had it, even after renames, drops and recreations.
    #[must_use]
    pub fn location_in(&self, home: &str, name: &str, uuid: Uuid) -> String {
        let mut location = format!("{}/", home.trim_end_matches('/'));
        push_part(&mut location, name);
        location.push('-');
        location.push_str(&node::hex::encode(uuid.as_bytes()));
        location
    }

    /// Returns the location of a new table if its default locations in the namespace's home are
    /// taken: a directory in the root that no other name has.
    #[must_use]
    pub fn location_aside(&self, ident: &TableIdent) -> String {
        let mut location = format!("{}/", self.root);
        push_part(&mut location, &ident.name);
        // No name in a path contains this character, and no namespace has the hash of as many
        // names.
        location.push('~');
        let names = ident.namespace.levels().iter().chain([&ident.name]);
        push_hash(&mut location, &names.cloned().collect::<Vec<_>>());
        location
    }
}

/// Appends a hash that is unique to these names.
fn push_hash(path: &mut String, names: &[Box<str>]) {
    let mut hash = Sha256::new();
    for name in names {
        hash.update(name.as_bytes());
        // The separator occurs in no name.
        hash.update([0]);
    }
    path.push_str(&node::hex::encode(&hash.finalize()[..HASH_BYTES]));
}

/// Appends a name as a path segment that every file system and object store accepts.
fn push_part(path: &mut String, name: &str) {
    let start = path.len();
    for character in name.chars() {
        let is_good = character.is_ascii_alphanumeric() || "-_.".contains(character);
        let is_first = path.len() == start;
        path.push(if is_good && !(is_first && character == '.') { character } else { '_' });
        if path.len() - start == NAME_PART_BYTES_MAX {
            break;
        }
    }
}

#[cfg(test)]
mod tests;
