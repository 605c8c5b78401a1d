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
    /// For warehouses in buckets without a key of their own.
    pub credentials: Option<SigningCredentials>,
    /// Client access to the configured warehouse, if it is in a bucket.
    pub storage: StorageSettings,
    /// Directories below which warehouses may be created while serving.
    pub warehouse_roots: Vec<String>,
    /// Seals the keys of such warehouses.
    pub sealer: Option<Arc<Sealer>>,
    /// Bytes of documents in memory.
    pub cache_bytes_max: usize,
    /// True if a table is loaded only if its metadata file exists, where checking is cheap.
    pub check_files: bool,
    /// Largest age of a response to a reader if other servers change the same store; zero disables
    /// caching.
    pub pointer_cache: Duration,
    /// Default retention of dropped objects, in seconds.
    pub undrop_seconds: u64,
    /// Retention of the log, in seconds.
    pub log_retention_seconds: u64,
    /// Name of this node, for ids of objects that exist only on it; `None` if other nodes cannot
    /// reach it.
    pub node: Option<String>,
    /// Gate that removals of files pass.
    pub removals: RemovalGate,
}
