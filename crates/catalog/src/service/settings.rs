//! Settings of a catalog.

use std::sync::Arc;
use std::time::Duration;

use node::objects::SigningCredentials;
use node::removals::RemovalGate;
use node::sealed::Sealer;

use crate::storage::StorageSettings;

/// Settings of a catalog.
#[derive(Clone, Debug)]
pub struct CatalogSettings {
    /// Name of the default warehouse.
    pub warehouse: String,
    /// Location of its root, when it is created: see [`crate::warehouse::WarehouseSpec::root`].
    pub root: String,
    /// Other roots that clients may have tables below.
    pub locations: Vec<String>,
    /// For warehouses in buckets that have no key of their own.
    pub credentials: Option<SigningCredentials>,
    /// Client access to the configured warehouse, when it is in a bucket.
    pub storage: StorageSettings,
    /// Directories below which warehouses may be made while serving.
    pub warehouse_roots: Vec<String>,
    /// Seals the keys of such warehouses.
    pub sealer: Option<Arc<Sealer>>,
    /// Bytes of documents in memory.
    pub cache_bytes_max: usize,
    /// True if a table is loaded only when its metadata file is there, where looking costs little.
    pub check_files: bool,
    /// Largest age of an answer to a reader where other servers change the same store; zero: not at
    /// all.
    pub pointer_cache: Duration,
    /// For how long what is dropped can come back, in seconds, where nothing else is said.
    pub undrop_seconds: u64,
    /// For how long the log is kept, in seconds.
    pub log_retention_seconds: u64,
    /// Name of this node, for ids of what it alone has; none where others do not reach it.
    pub node: Option<String>,
    /// Gate that removals of files pass.
    pub removals: RemovalGate,
}
