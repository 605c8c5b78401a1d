//! The catalog: its services, and the parts that they share.

use std::sync::Arc;

use iceberg::ident::TableIdent;
use node::clock;
use node::drain::DrainHandle;
use node::store::SqlStore;
use node::task::Boxed;

use super::changes::{ChangeFeed, ChangeNotifier};
use super::delegation::FileAccess;
use super::dropped::DroppedRelations;
use super::entries::RelationEntries;
use super::functions::FunctionService;
use super::homes::LocationRules;
use super::keys::ChangeRunner;
use super::lists::ReadyLists;
use super::maintenance::MaintenanceService;
use super::namespaces::NamespaceService;
use super::past::CatalogHistory;
use super::plans::ScanPlanner;
use super::protection::ProtectionRules;
use super::relations::RelationService;
use super::rights::RightGuard;
use super::settings::CatalogSettings;
use super::warehouses::WarehouseDirectory;
use crate::database::DatabaseClock;
use crate::error::Result;
use crate::principal::RightAuthority;
use crate::store::{CatalogStore, NameCounters, RelationStore};
use crate::warehouse::Warehouse;

/// A catalog. Cheap to clone.
#[derive(Clone)]
pub struct Catalog(pub(super) Arc<CatalogInner>);

pub(super) struct CatalogInner {
    pub(super) clock: DatabaseClock,
    pub(super) relation_store: RelationStore,
    /// The database tables, which tests inspect.
    #[cfg(test)]
    pub(super) store: CatalogStore,
    pub(super) settings: Arc<CatalogSettings>,
    pub(super) rights: RightGuard,
    pub(super) entries: RelationEntries,
    pub(super) changes: ChangeRunner,
    pub(super) warehouses: WarehouseDirectory,
    pub(super) namespaces: NamespaceService,
    pub(super) functions: FunctionService,
    pub(super) relations: RelationService,
    pub(super) protection: ProtectionRules,
    pub(super) dropped: DroppedRelations,
    pub(super) lists: ReadyLists,
    pub(super) plans: ScanPlanner,
    pub(super) maintenance: MaintenanceService,
    pub(super) files: FileAccess,
    pub(super) feed: ChangeFeed,
    pub(super) history: CatalogHistory,
}

impl CatalogInner {
    /// Creates the services in the order of their dependencies.
    fn new(
        store: &CatalogStore,
        settings: Arc<CatalogSettings>,
        rights: RightGuard,
        warehouses: WarehouseDirectory,
    ) -> CatalogInner {
        let (names, notifier) = (NameCounters::default(), Arc::<ChangeNotifier>::default());
        let stale_lists = store.is_shared_by_servers().then_some(settings.pointer_cache);
        let lists = ReadyLists::new(rights.clone(), names.clone(), stale_lists);
        let locations = LocationRules::new(store);
        let entries = RelationEntries::new(store, &settings);
        let changes = ChangeRunner::new(store, names, Arc::clone(&notifier));
        let protection = ProtectionRules::new(store, rights.clone(), entries.clone());
        let dropped = DroppedRelations::new(
            store,
            rights.clone(),
            entries.clone(),
            changes.clone(),
            warehouses.clone(),
            protection.clone(),
            Arc::clone(&settings),
        );
        let relations = RelationService::new(
            store,
            locations.clone(),
            rights.clone(),
            entries.clone(),
            changes.clone(),
            protection.clone(),
            dropped.clone(),
        );
        let plans = ScanPlanner::new(
            store.locations().clone(),
            rights.clone(),
            entries.clone(),
            Arc::clone(&settings),
        );
        let maintenance = MaintenanceService::new(
            store,
            rights.clone(),
            entries.clone(),
            relations.clone(),
            plans.clone(),
            changes.clone(),
        );
        CatalogInner {
            namespaces: NamespaceService::new(
                store.namespaces().clone(),
                locations.clone(),
                rights.clone(),
                changes.clone(),
                protection.clone(),
            ),
            functions: FunctionService::new(
                store.functions().clone(),
                locations,
                rights.clone(),
                changes.clone(),
            ),
            files: FileAccess::new(store.locations().clone(), rights.clone(), entries.clone()),
            feed: ChangeFeed::new(store, rights.clone(), notifier),
            history: CatalogHistory::new(store.past().clone(), rights.clone(), entries.clone()),
            clock: store.clock(),
            relation_store: store.relations().clone(),
            #[cfg(test)]
            store: store.clone(),
            settings,
            rights,
            entries,
            changes,
            warehouses,
            relations,
            protection,
            dropped,
            lists,
            plans,
            maintenance,
        }
    }
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

impl Catalog {
    /// Opens a catalog: migrates its tables, and creates its warehouse if it does not exist.
    ///
    /// # Errors
    /// If the store cannot be used, or a location is invalid.
    pub fn open(
        store: SqlStore,
        mut settings: CatalogSettings,
        authority: Arc<dyn RightAuthority>,
    ) -> Boxed<'static, Result<Catalog>> {
        Box::pin(async move {
            settings.storage = settings.storage.for_root(&settings.root);
            let store = CatalogStore::open(store).await?;
            let name = TableIdent::check_name(&settings.warehouse).map(|()| &settings.warehouse)?;
            store.warehouses().ensure_warehouse(name, &settings.root, clock::wall_ms()).await?;
            let (settings, rights) = (Arc::new(settings), RightGuard::new(authority));
            let warehouses =
                WarehouseDirectory::open(&store, rights.clone(), Arc::clone(&settings));
            let warehouses = warehouses.await?;
            Ok(Catalog(Arc::new(CatalogInner::new(&store, settings, rights, warehouses))))
        })
    }

    /// Runs periodic work, until the server drains.
    pub async fn work(&self, drain: &DrainHandle) {
        let beside = async {
            tokio::join!(
                self.0.changes.forget_now_and_then(drain),
                self.0.dropped.sweep_now_and_then(drain)
            );
        };
        tokio::select! {
            () = beside => {}
            () = self.0.warehouses.keep_up() => {}
        }
    }

    /// Returns the warehouse of clients that name none.
    ///
    /// # Errors
    /// As in [`WarehouseDirectory::get`]; never `NoSuchWarehouse`, because opening the catalog
    /// creates it.
    pub fn default_warehouse(&self) -> Result<Arc<Warehouse>> {
        self.0.warehouses.configured()
    }

    /// Returns the database tables.
    #[cfg(test)]
    pub(crate) fn store(&self) -> &CatalogStore {
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

    /// Returns the namespaces.
    #[must_use]
    pub fn namespaces(&self) -> &NamespaceService {
        &self.0.namespaces
    }

    /// Returns the functions.
    #[must_use]
    pub fn functions(&self) -> &FunctionService {
        &self.0.functions
    }

    /// Returns the tables and views.
    #[must_use]
    pub fn relations(&self) -> &RelationService {
        &self.0.relations
    }

    /// Returns the protection of objects.
    #[must_use]
    pub fn protection(&self) -> &ProtectionRules {
        &self.0.protection
    }

    /// Returns the dropped relations that are kept.
    #[must_use]
    pub fn dropped(&self) -> &DroppedRelations {
        &self.0.dropped
    }

    /// Returns the cached lists of names.
    #[must_use]
    pub fn lists(&self) -> &ReadyLists {
        &self.0.lists
    }

    /// Returns the plans of scans.
    #[must_use]
    pub fn plans(&self) -> &ScanPlanner {
        &self.0.plans
    }

    /// Returns the maintenance of tables.
    #[must_use]
    pub fn maintenance(&self) -> &MaintenanceService {
        &self.0.maintenance
    }

    /// Returns the access to files of tables.
    #[must_use]
    pub fn files(&self) -> &FileAccess {
        &self.0.files
    }

    /// Returns the changes in the log.
    #[must_use]
    pub fn changes(&self) -> &ChangeFeed {
        &self.0.feed
    }

    /// Returns the catalog at past moments.
    #[must_use]
    pub fn history(&self) -> &CatalogHistory {
        &self.0.history
    }

    /// Returns the service that decides on rights.
    #[must_use]
    pub fn rights(&self) -> &RightGuard {
        &self.0.rights
    }
}
