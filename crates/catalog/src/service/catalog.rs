//! The catalog: what it has, and what of it every operation asks for.

use std::sync::Arc;
use std::time::Duration;

use iceberg::ident::TableIdent;
use node::clock;
use node::drain::DrainHandle;
use node::objects::SigningCredentials;
use node::sealed::Sealer;
use node::store::SqlStore;
use node::task::Boxed;

use super::changes::ChangeNotifier;
use super::entries::RelationEntries;
use super::job_registry::MaintenanceJobs;
use super::keys::ChangeRunner;
use super::lists::{ListFigures, ReadyLists};
use super::rights::RightGuard;
use super::warehouses::WarehouseDirectory;
use super::{past, plans};
use crate::error::Result;
use crate::principal::RightAuthority;
use crate::storage::StorageSettings;
use crate::store::{CatalogStore, NameCounters};
use crate::warehouse::Warehouse;

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
}

/// A catalog. Cheap to clone.
#[derive(Clone)]
pub struct Catalog(pub(super) Arc<CatalogInner>);

pub(super) struct CatalogInner {
    pub(super) store: CatalogStore,
    pub(super) rights: RightGuard,
    pub(super) settings: Arc<CatalogSettings>,
    pub(super) warehouses: WarehouseDirectory,
    pub(super) entries: RelationEntries,
    pub(super) changes: ChangeRunner,
    pub(super) lists: ReadyLists,
    /// Tells followers of the log that something happened.
    pub(super) feed: Arc<ChangeNotifier>,
    /// Maintenance of tables.
    pub(super) jobs: MaintenanceJobs,
    /// Limit of readers of past documents.
    pub(super) readers: past::PastReaderLimit,
    pub(super) plans: plans::PlanStore,
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

impl Catalog {
    /// Opens a catalog: brings its tables up to date, and makes its warehouse if there is none.
    ///
    /// # Errors
    /// When the store cannot be used, or a location is none.
    pub fn open(
        store: SqlStore,
        mut settings: CatalogSettings,
        authority: Arc<dyn RightAuthority>,
    ) -> Boxed<'static, Result<Catalog>> {
        Box::pin(async move {
            settings.storage = settings.storage.for_root(&settings.root);
            let store = CatalogStore::open(store).await?;
            let name = TableIdent::check_name(&settings.warehouse).map(|()| &settings.warehouse)?;
            store.ensure_warehouse(name, &settings.root, clock::wall_ms()).await?;
            let (settings, rights) = (Arc::new(settings), RightGuard::new(authority));
            let warehouses =
                WarehouseDirectory::open(store.clone(), rights.clone(), Arc::clone(&settings));
            let warehouses = warehouses.await?;
            let (names, feed) = (NameCounters::default(), Arc::<ChangeNotifier>::default());
            Ok(Catalog(Arc::new(CatalogInner {
                entries: RelationEntries::new(store.clone(), &settings),
                changes: ChangeRunner::new(store.clone(), names.clone(), Arc::clone(&feed)),
                lists: ReadyLists::new(
                    names,
                    store.is_shared_by_servers().then_some(settings.pointer_cache),
                ),
                store,
                rights,
                settings,
                warehouses,
                feed,
                jobs: MaintenanceJobs::default(),
                readers: past::PastReaderLimit::default(),
                plans: plans::PlanStore::default(),
            })))
        })
    }

    /// Does what has to be done now and then, until the server drains.
    pub async fn work(&self, drain: &DrainHandle) {
        let beside = async {
            tokio::join!(self.0.changes.forget_now_and_then(drain), self.sweep_now_and_then(drain));
        };
        tokio::select! {
            () = beside => {}
            () = self.0.warehouses.keep_up() => {}
        }
    }

    /// The warehouse of clients who name none.
    ///
    /// # Errors
    /// `NoSuchWarehouse` is not among them: it was made when the catalog was opened.
    pub fn default_warehouse(&self) -> Result<Arc<Warehouse>> {
        self.0.warehouses.configured()
    }

    /// Returns what is kept, for those who keep other things beside it.
    #[must_use]
    pub fn store(&self) -> &CatalogStore {
        &self.0.store
    }

    /// Returns the current versions of tables and views.
    #[must_use]
    pub fn entries(&self) -> &RelationEntries {
        &self.0.entries
    }

    /// Returns the warehouses that are open.
    #[must_use]
    pub fn warehouses(&self) -> &WarehouseDirectory {
        &self.0.warehouses
    }

    /// Returns who decides what a principal may do.
    #[must_use]
    pub fn rights(&self) -> &RightGuard {
        &self.0.rights
    }

    /// Returns the counters of lists.
    #[must_use]
    pub fn list_figures(&self) -> ListFigures {
        self.0.lists.figures()
    }
}
