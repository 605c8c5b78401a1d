//! A warehouse: the directory or the bucket that the tables of a catalog are in, and what a client
//! may say of where they are.
//!
//! A location that a client names is taken apart once ([`Place`]), and refused unless it is below
//! the warehouse's root or below one of the other roots that the configuration allows. What is
//! below is decided by names alone; that no symbolic link leads elsewhere is seen to when a file
//! is opened ([`Files`]).

mod files;
mod local;
mod place;

use std::fmt::Write as _;
use std::sync::Arc;

use node::objects::Credentials;
use serde::{Deserialize, Serialize};

pub use self::files::{FILE_BYTES_MAX, Files, Flush};
pub use self::place::{LOCATION_BYTES_MAX, Place};
use crate::error::{Error, Kind, Result};
use crate::ident::{NamespaceIdent, TableIdent, Uuid};
use crate::storage::{Storage, StorageSettings};

/// Longest part of a default location that comes from a name, in bytes.
const NAME_PART_BYTES_MAX: usize = 64;

/// Longest default location below the root, in bytes; deeper namespaces are left out of it.
const DEFAULT_BYTES_MAX: usize = 300;

/// What may be done with a warehouse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Whatever there is a right to.
    #[default]
    Active,
    /// Nothing in it changes.
    ReadOnly,
    /// Whatever there is a right to, but it is not removed.
    Protected,
}

impl Status {
    /// As the store and the management have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Status::Active => "active",
            Status::ReadOnly => "read-only",
            Status::Protected => "protected",
        }
    }

    /// The status of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Status> {
        [Status::Active, Status::ReadOnly, Status::Protected]
            .into_iter()
            .find(|it| it.name() == name)
    }
}

/// What a warehouse is to be.
#[derive(Clone, Debug, Default)]
pub struct WarehouseSpec {
    /// Names it for as long as it lives.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// Where it is: `file:///DIRECTORY`, or `s3://BUCKET/PREFIX` with the parameters of
    /// [`node::objects::ObjectsUrl`].
    pub root: String,
    /// Other roots that clients may have tables below.
    pub locations: Vec<String>,
    /// Directories that are the owner's word. A root below one of them is not: no symbolic link is
    /// followed on the way to it.
    pub anchors: Vec<String>,
    /// For `s3://`.
    pub credentials: Option<Credentials>,
    /// How clients get at a bucket.
    pub storage: StorageSettings,
    /// What may be done with it.
    pub status: Status,
}

/// A warehouse.
#[derive(Debug)]
pub struct Warehouse {
    id: Arc<str>,
    name: Arc<str>,
    root: String,
    files: Files,
    status: Status,
    storage: Option<Storage>,
}

impl Warehouse {
    /// A warehouse as described. Makes nothing: directories are made when something is written.
    ///
    /// # Errors
    /// `BadRequest` when a location is none, or its credentials are missing.
    pub fn new(spec: WarehouseSpec) -> Result<Warehouse> {
        let WarehouseSpec { id, name, root, locations, anchors, credentials, storage, status } =
            spec;
        let roots = std::iter::once(&root).chain(&locations);
        let files = Files::new(roots.map(String::as_str), &anchors, credentials.as_ref())?;
        let storage = match credentials {
            Some(credentials) if root.starts_with("s3") => {
                Some(Storage::new(&root, storage, credentials)?)
            }
            _ => None,
        };
        let root = root.split('?').next().unwrap_or_default().trim_end_matches('/').to_owned();
        Ok(Warehouse { id: id.into(), name: name.into(), root, files, status, storage })
    }

    /// What may be done with it.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// How clients get at it; none of one in directories.
    #[must_use]
    pub fn storage(&self) -> Option<&Storage> {
        self.storage.as_ref()
    }

    /// Names it for as long as it lives.
    #[must_use]
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Where it is.
    #[must_use]
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Its files.
    #[must_use]
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Refuses a location that is not below one of its roots.
    ///
    /// # Errors
    /// `BadRequest` when it is no location, `Forbidden` when it is elsewhere.
    pub fn check_location(&self, location: &str) -> Result<()> {
        let place: Place = location.parse()?;
        if self.files.allows(&place) {
            return Ok(());
        }
        let shown: String = location.chars().take(200).collect();
        let message = format!("the location `{shown}` is outside of the warehouse `{}`", self.name);
        Err(Error::new(Kind::Forbidden, message))
    }

    /// Where a new table's data goes when nothing else is said: no other table has had this
    /// location, whatever is renamed, dropped and made again.
    #[must_use]
    pub fn default_location(&self, ident: &TableIdent, uuid: Uuid) -> String {
        let mut below = String::new();
        for level in ident.namespace.levels() {
            push_part(&mut below, level);
            below.push('/');
        }
        if below.len() > DEFAULT_BYTES_MAX {
            below.clear();
        }
        push_part(&mut below, &ident.name);
        below.push('-');
        for byte in uuid.as_bytes() {
            // Writing to a string does not fail.
            let _ = write!(below, "{byte:02x}");
        }
        format!("{}/{below}", self.root)
    }

    /// Where a new table's data goes below a namespace that has a location of its own.
    #[must_use]
    pub fn location_below(&self, base: &str, ident: &TableIdent, uuid: Uuid) -> String {
        let inner =
            TableIdent { namespace: root_level(&ident.namespace), name: ident.name.clone() };
        let whole = self.default_location(&inner, uuid);
        let name = whole.rsplit('/').next().unwrap_or_default();
        format!("{}/{name}", base.trim_end_matches('/'))
    }
}

/// The outermost level: what is left out of a location is of no use in it.
fn root_level(namespace: &NamespaceIdent) -> NamespaceIdent {
    let mut outermost = namespace.clone();
    while let Some(above) = outermost.parent() {
        outermost = above;
    }
    outermost
}

/// Appends a name as a part of a path that every file system and every object store takes.
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
