//! Warehouses: the existing ones, and how to create, change and remove them while serving.
//!
//! All warehouses are in memory. The store counts their changes: the counter is checked for an
//! unknown name, and every [`WAREHOUSES_INTERVAL`], to notice warehouses created by another server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use iceberg::ident::TableIdent;
use node::clock;
use node::objects::SigningCredentials;
use node::store::COUNTER_AGE_MAX;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use super::rights::RightGuard;
use super::settings::CatalogSettings;
use crate::access::EntityChange;
use crate::access::entities::check_properties;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{AccessRight, CatalogPrincipal, RightTarget};
use crate::storage::StorageSettings;
use crate::store::{
    CatalogStore, Properties, StorageRow, WarehouseCounts, WarehouseRow, WarehouseStore,
    no_such_warehouse,
};
use crate::warehouse::{TableLocation, Warehouse, WarehouseSpec, WarehouseStatus};

/// Time for which another server may use the previous state of a warehouse.
pub const WAREHOUSES_INTERVAL: Duration = Duration::from_secs(2);

/// Most additional locations of a warehouse.
pub const LOCATIONS_MAX: usize = 32;

/// Names that management paths use for other objects.
const RESERVED: [&str; 8] =
    ["audit", "clients", "grants", "policies", "principals", "roles", "tokens", "warehouses"];

/// Warehouses that this server has open, as the store describes them, and their management. Cheap
/// to clone.
#[derive(Clone)]
pub struct WarehouseDirectory(Arc<WarehouseDirectoryInner>);

struct WarehouseDirectoryInner {
    warehouse_store: WarehouseStore,
    /// True if other servers may change warehouses.
    is_shared: bool,
    rights: RightGuard,
    settings: Arc<CatalogSettings>,
    loaded: RwLock<LoadedWarehouse>,
    /// Held while the store is read, so that an older read never replaces a newer one.
    loading: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for WarehouseDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WarehouseDirectory").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct LoadedWarehouse {
    version: u64,
    by_name: BTreeMap<Arc<str>, KnownWarehouses>,
}

#[derive(Clone, Debug)]
struct KnownWarehouses {
    row: WarehouseRow,
    /// `None` if it cannot be opened; the log has the reason.
    warehouse: Option<Arc<Warehouse>>,
}

/// A key of a warehouse's own.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NewStorageKey {
    access_key_id: String,
    secret_access_key: String,
    #[serde(default)]
    session_token: Option<String>,
}

impl std::fmt::Debug for NewStorageKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewKey").finish_non_exhaustive()
    }
}

/// A warehouse that is to be made.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NewWarehouse {
    pub(crate) name: String,
    pub(crate) root: String,
    #[serde(default)]
    pub(crate) locations: Vec<String>,
    #[serde(default)]
    pub(crate) status: WarehouseStatus,
    #[serde(default)]
    pub(crate) storage: StorageSettings,
    #[serde(default)]
    pub(crate) credentials: Option<NewStorageKey>,
}

/// Change of a warehouse: absent fields stay.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct WarehouseChange {
    #[serde(default)]
    pub(crate) status: Option<WarehouseStatus>,
    #[serde(default)]
    pub(crate) locations: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) storage: Option<StorageSettings>,
    #[serde(default)]
    pub(crate) credentials: Option<NewStorageKey>,
}

/// Administrative view of a warehouse, without secrets.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct WarehouseRecord {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) root: String,
    pub(crate) locations: Vec<String>,
    pub(crate) status: WarehouseStatus,
    /// True if the configuration defines the warehouse, and not the store.
    pub(crate) configured: bool,
    /// True if the warehouse has its own storage key.
    pub(crate) has_credentials: bool,
    pub(crate) storage: StorageSettings,
    pub(crate) created_ms: u64,
    pub(crate) updated_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    statistics: Option<WarehouseStatistics>,
}

#[derive(Debug, Serialize)]
struct WarehouseStatistics {
    namespaces: u64,
    tables: u64,
    views: u64,
}

impl WarehouseDirectory {
    /// Opens the warehouses described in the store.
    ///
    /// # Errors
    /// If the store cannot be read, or the configured warehouse cannot be opened.
    pub(super) async fn open(
        store: &CatalogStore,
        rights: RightGuard,
        settings: Arc<CatalogSettings>,
    ) -> Result<WarehouseDirectory> {
        let directory = WarehouseDirectory(Arc::new(WarehouseDirectoryInner {
            warehouse_store: store.warehouses().clone(),
            is_shared: store.is_shared_by_servers(),
            rights,
            settings,
            loaded: RwLock::default(),
            loading: tokio::sync::Mutex::default(),
        }));
        directory.load().await?;
        directory.check_configured().await?;
        Ok(directory)
    }

    /// Returns the warehouse of clients that name none.
    ///
    /// # Errors
    /// As in [`WarehouseDirectory::get`]; never `NoSuchWarehouse`, because opening the catalog
    /// creates it.
    pub fn configured(&self) -> Result<Arc<Warehouse>> {
        self.get(&self.0.settings.warehouse)
    }

    /// Returns the warehouse of this name from memory.
    ///
    /// # Errors
    /// `NoSuchWarehouse`; `ServiceUnavailable` if it cannot be opened.
    pub fn get(&self, name: &str) -> Result<Arc<Warehouse>> {
        let loaded = self.0.loaded.read();
        let known = loaded.by_name.get(name).ok_or_else(|| no_such_warehouse(name))?;
        known.warehouse.clone().ok_or_else(|| {
            let message = "the warehouse cannot be opened; see the server's log";
            CatalogError::new(ErrorReason::ServiceUnavailable, message)
        })
    }

    /// Returns all warehouses that can be opened.
    pub(super) fn all(&self) -> Vec<Arc<Warehouse>> {
        let loaded = self.0.loaded.read();
        loaded.by_name.values().filter_map(|it| it.warehouse.clone()).collect()
    }

    /// Returns the names of the warehouses that can be opened, regardless of a caller's rights.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.all().iter().map(|warehouse| warehouse.name().to_string()).collect()
    }

    /// Checks whether another server has created a warehouse of this name, unless it is known.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn seek(&self, name: &str) -> Result<()> {
        let is_known = self.0.loaded.read().by_name.contains_key(name);
        if is_known || !self.0.is_shared {
            return Ok(());
        }
        Box::pin(self.reload()).await
    }

    /// Loads changes of other servers, within [`WAREHOUSES_INTERVAL`]. Never returns.
    pub(super) async fn keep_up(&self) {
        if !self.0.is_shared {
            // No other server changes anything.
            return std::future::pending().await;
        }
        let mut ticks = tokio::time::interval(WAREHOUSES_INTERVAL / 4);
        let mut failed = false;
        loop {
            ticks.tick().await;
            let result = self.follow(COUNTER_AGE_MAX).await;
            // Logged once, not at every attempt.
            if let Err(error) = &result
                && !failed
            {
                let error = error as &dyn std::error::Error;
                tracing::error!(error, "failed to read the catalog's warehouses");
            }
            failed = result.is_err();
        }
    }

    /// Loads changes made since the last read, if there are any.
    ///
    /// # Errors
    /// If the store cannot be read. The loaded state stays in force.
    pub async fn reload(&self) -> Result<()> {
        self.follow(Duration::ZERO).await
    }

    /// Loads changes, as seen by a version counter that is at most `age_max` old.
    async fn follow(&self, age_max: Duration) -> Result<()> {
        let version = self.0.warehouse_store.warehouses_version(age_max).await?;
        if version == self.0.loaded.read().version {
            return Ok(());
        }
        self.load().await
    }

    async fn load(&self) -> Result<()> {
        let _lock = self.0.loading.lock().await;
        // The version is read first: changes made in between are read again.
        let version = self.0.warehouse_store.warehouses_version(Duration::ZERO).await?;
        let rows = self.0.warehouse_store.list().await?;
        let mut by_name = BTreeMap::new();
        for row in rows {
            let known = self.0.loaded.read().by_name.get(&*row.name).cloned();
            let known = match known {
                Some(known) if known.row == row => known,
                _ => KnownWarehouses { warehouse: self.open_warehouse(&row), row },
            };
            by_name.insert(Arc::from(&*known.row.name), known);
        }
        *self.0.loaded.write() = LoadedWarehouse { version, by_name };
        Ok(())
    }

    /// Rejects an invalid configured warehouse, so that a mistake shows at startup.
    async fn check_configured(&self) -> Result<()> {
        let settings = &self.0.settings;
        let row = self.require_known(&settings.warehouse)?.row;
        if row.storage.as_ref().is_some_and(|it| it.is_made) {
            return self.configured().map(drop);
        }
        settings.storage.check()?;
        // The specific error is more useful than that the warehouse cannot be opened.
        Warehouse::new(spec(&row, settings)?)?;
        let own = self.configured_places()?;
        for other in self.0.warehouse_store.list().await? {
            let is_made = other.storage.as_ref().is_some_and(|it| it.is_made);
            let theirs = if is_made { other.places()? } else { Vec::new() };
            if own.iter().any(|one| theirs.iter().any(|it| one.overlaps(it))) {
                let message =
                    format!("the warehouse `{}` has a part of `catalog.root`", other.name);
                return Err(CatalogError::new(ErrorReason::AlreadyExists, message));
            }
        }
        Ok(())
    }

    fn open_warehouse(&self, row: &WarehouseRow) -> Option<Arc<Warehouse>> {
        let spec = spec(row, &self.0.settings);
        match spec.and_then(Warehouse::new) {
            Ok(warehouse) => Some(Arc::new(warehouse)),
            Err(error) => {
                let (error, warehouse) = (&error as &dyn std::error::Error, &*row.name);
                tracing::error!(error, warehouse, "a warehouse cannot be opened");
                None
            }
        }
    }

    /// Returns the warehouses that the caller may manage.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn list(&self, who: &CatalogPrincipal) -> Result<Vec<WarehouseRecord>> {
        self.reload().await?;
        let mut records: Vec<_> = {
            let loaded = self.0.loaded.read();
            let known = loaded.by_name.values().filter(|known| self.may_see(who, known).is_ok());
            known.map(|known| self.record(&known.row, None)).collect()
        };
        records.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(records)
    }

    /// Returns a warehouse with the number of its objects.
    ///
    /// # Errors
    /// `Forbidden` without the right to manage it; `NoSuchWarehouse`.
    pub async fn show(&self, who: &CatalogPrincipal, name: &str) -> Result<WarehouseRecord> {
        let known = self.require_known(name)?;
        self.may_see(who, &known)?;
        let counts = self.0.warehouse_store.warehouse_counts(&known.row.id).await?;
        Ok(self.record(&known.row, Some(counts)))
    }

    /// Creates a warehouse. It can be used at once.
    ///
    /// # Errors
    /// `Forbidden` if the caller is no operator, or the root is a directory that may not hold
    /// warehouses; `AlreadyExists` if another warehouse has its name or overlaps its locations;
    /// `BadRequest` if a field is invalid.
    pub async fn create(
        &self,
        who: &CatalogPrincipal,
        new: NewWarehouse,
    ) -> Result<WarehouseRecord> {
        self.create_with(who, new, Properties::new()).await
    }

    /// Creates a warehouse with properties.
    ///
    /// # Errors
    /// Those of [`WarehouseDirectory::create`]; `BadRequest` if there are too many properties.
    pub async fn create_with(
        &self,
        who: &CatalogPrincipal,
        new: NewWarehouse,
        properties: Properties,
    ) -> Result<WarehouseRecord> {
        only_operators(who)?;
        check_properties(&properties)?;
        let NewWarehouse { name, root, locations, status, storage, credentials } = new;
        TableIdent::check_name(&name)?;
        if RESERVED.contains(&&*name) || name.contains('/') {
            let message = format!("`name`: no warehouse can be called `{name}`");
            return Err(CatalogError::new(ErrorReason::BadRequest, message));
        }
        let (id, now_ms) = (self.0.warehouse_store.new_warehouse_id(), clock::wall_ms());
        let secret = credentials.map(|key| self.seal(&id, &key)).transpose()?;
        let root = root.trim_end_matches('/').to_owned();
        let storage_row = StorageRow {
            is_made: true,
            status,
            locations,
            settings: storage,
            secret,
            updated_ms: now_ms,
        };
        let row = WarehouseRow { id, name, root, created_ms: now_ms, storage: Some(storage_row) };
        self.check_row(&row)?;
        let taken = self.configured_places()?;
        self.0.warehouse_store.insert_warehouse(row.clone(), taken, properties).await?;
        self.load().await?;
        Ok(self.record(&row, Some(WarehouseCounts::default())))
    }

    /// Changes a warehouse. Only the status of the configured one can be changed.
    ///
    /// # Errors
    /// `NoSuchWarehouse`; those of [`WarehouseDirectory::create`].
    pub async fn update(
        &self,
        who: &CatalogPrincipal,
        name: &str,
        change: WarehouseChange,
    ) -> Result<WarehouseRecord> {
        self.update_with(who, name, change, None).await
    }

    /// Changes a warehouse and its properties.
    ///
    /// # Errors
    /// Those of [`WarehouseDirectory::update`]; `CommitFailed` if it has another version;
    /// `BadRequest` if there are too many properties.
    pub async fn update_with(
        &self,
        who: &CatalogPrincipal,
        name: &str,
        change: WarehouseChange,
        entity: Option<EntityChange>,
    ) -> Result<WarehouseRecord> {
        only_operators(who)?;
        let properties = entity.as_ref().and_then(|it| it.properties.as_ref());
        properties.map_or(Ok(()), check_properties)?;
        self.reload().await?;
        let mut row = self.require_known(name)?.row;
        let expected_ms = row.storage.as_ref().map(|it| it.updated_ms);
        let is_made = row.storage.as_ref().is_some_and(|it| it.is_made);
        let WarehouseChange { status, locations, storage, credentials } = change;
        if !is_made && (locations.is_some() || storage.is_some() || credentials.is_some()) {
            let message = "the configuration describes this warehouse: only its `status` changes";
            return Err(CatalogError::new(ErrorReason::BadRequest, message));
        }
        let secret = credentials.map(|key| self.seal(&row.id, &key)).transpose()?;
        let mut storage_row = row.storage.take().unwrap_or_else(|| StorageRow {
            is_made: false,
            status: WarehouseStatus::Active,
            locations: Vec::new(),
            settings: StorageSettings::default(),
            secret: None,
            updated_ms: 0,
        });
        storage_row.status = status.unwrap_or(storage_row.status);
        storage_row.locations = locations.unwrap_or(storage_row.locations);
        storage_row.settings = storage.unwrap_or(storage_row.settings);
        storage_row.secret = secret.or(storage_row.secret);
        // Keeps the times of two changes within a millisecond distinct.
        storage_row.updated_ms = clock::wall_ms().max(storage_row.updated_ms + 1);
        row.storage = Some(storage_row);
        if is_made {
            self.check_row(&row)?;
        }
        let taken = self.configured_places()?;
        self.0.warehouse_store.update_warehouse(row.clone(), expected_ms, taken, entity).await?;
        self.load().await?;
        Ok(self.record(&row, None))
    }

    /// Removes an empty warehouse; files at its locations stay. A protected one is removed only if
    /// `insist` is set.
    ///
    /// # Errors
    /// `NamespaceNotEmpty`; `Forbidden` if it is protected, or is the configured one;
    /// `NoSuchWarehouse`.
    pub async fn delete(&self, who: &CatalogPrincipal, name: &str, insist: bool) -> Result<()> {
        only_operators(who)?;
        self.reload().await?;
        let row = self.require_known(name)?.row;
        if row.name == self.0.settings.warehouse {
            let message = "the configured warehouse cannot be removed";
            return Err(CatalogError::new(ErrorReason::Forbidden, message));
        }
        let is_protected =
            row.storage.as_ref().is_some_and(|it| it.status == WarehouseStatus::Protected);
        if is_protected && !insist {
            let message = "the warehouse is protected; `force=true` removes it all the same";
            return Err(CatalogError::new(ErrorReason::Forbidden, message));
        }
        self.0.warehouse_store.delete_warehouse(&row.id, &row.name).await?;
        self.0.rights.follow_moves().await;
        self.load().await
    }

    fn require_known(&self, name: &str) -> Result<KnownWarehouses> {
        let loaded = self.0.loaded.read();
        loaded.by_name.get(name).cloned().ok_or_else(|| no_such_warehouse(name))
    }

    /// Returns whether the caller may see a warehouse; one that cannot be opened is visible to
    /// operators only.
    fn may_see(&self, who: &CatalogPrincipal, known: &KnownWarehouses) -> Result<()> {
        match &known.warehouse {
            Some(warehouse) => {
                self.0.rights.has_right(who, warehouse, AccessRight::Manage, RightTarget::Warehouse)
            }
            None => only_operators(who),
        }
    }

    fn record(&self, row: &WarehouseRow, counts: Option<WarehouseCounts>) -> WarehouseRecord {
        let storage_row = row.storage.as_ref();
        let made = storage_row.filter(|it| it.is_made);
        let configured = &self.0.settings;
        WarehouseRecord {
            id: row.id.clone(),
            name: row.name.clone(),
            root: row.root.split('?').next().unwrap_or_default().to_owned(),
            locations: made.map_or_else(|| configured.locations.clone(), |it| it.locations.clone()),
            status: storage_row.map_or(WarehouseStatus::Active, |it| it.status),
            configured: made.is_none(),
            has_credentials: made.is_some_and(|it| it.secret.is_some()),
            storage: made.map_or_else(|| configured.storage.clone(), |it| it.settings.clone()),
            created_ms: row.created_ms,
            updated_ms: storage_row.map(|it| it.updated_ms),
            statistics: counts.map(|it| WarehouseStatistics {
                namespaces: it.namespaces,
                tables: it.tables,
                views: it.views,
            }),
        }
    }

    /// Seals a key for the row of a warehouse.
    fn seal(&self, id: &str, key: &NewStorageKey) -> Result<String> {
        let texts = [&key.access_key_id, &key.secret_access_key];
        let texts = texts.into_iter().chain(&key.session_token);
        for text in texts {
            if text.is_empty() || text.len() > 4096 || !text.bytes().all(|it| it.is_ascii_graphic())
            {
                let message = "`credentials` are visible ASCII characters, and not empty";
                return Err(CatalogError::new(ErrorReason::BadRequest, message));
            }
        }
        let Some(sealer) = &self.0.settings.sealer else {
            let message = "this server has no key to keep `credentials` with";
            return Err(CatalogError::new(ErrorReason::BadRequest, message));
        };
        let text = serde_json::to_string(key).map_err(CatalogError::internal)?;
        sealer.seal_text(&text, &about(id)).map_err(CatalogError::internal)
    }

    /// Rejects a warehouse that could not be opened, or whose locations are not allowed.
    fn check_row(&self, row: &WarehouseRow) -> Result<()> {
        let Some(storage_row) = &row.storage else { return Ok(()) };
        if storage_row.locations.len() > LOCATIONS_MAX {
            let message = format!("`locations` are at most {LOCATIONS_MAX}");
            return Err(CatalogError::new(ErrorReason::BadRequest, message));
        }
        storage_row.settings.check()?;
        let anchors: Vec<TableLocation> =
            self.0.settings.warehouse_roots.iter().filter_map(|it| it.parse().ok()).collect();
        let all = std::iter::once(("root", &row.root));
        let all = all.chain(storage_row.locations.iter().map(|it| ("locations", it)));
        let is_bucket = row.root.starts_with("s3");
        for (field, text) in all {
            // The other settings of a bucket have fields of their own, which are checked.
            let place: TableLocation = text.parse().map_err(|error: CatalogError| {
                CatalogError::new(error.kind, format!("`{field}`: {}", error.message))
            })?;
            if place.path().is_none() != is_bucket {
                let message = "a warehouse is in buckets, or in directories, with all `locations`";
                return Err(CatalogError::new(ErrorReason::BadRequest, message));
            }
            if !is_bucket && !anchors.iter().any(|anchor| place.is_below(anchor)) {
                let message = format!(
                    "`{field}`: a directory has to be below one of `catalog.warehouse_roots`"
                );
                return Err(CatalogError::new(ErrorReason::Forbidden, message));
            }
        }
        Warehouse::new(spec(row, &self.0.settings)?).map(drop)
    }

    /// Returns the locations that the configuration reserves.
    fn configured_places(&self) -> Result<Vec<TableLocation>> {
        let settings = &self.0.settings;
        let all = std::iter::once(&settings.root).chain(&settings.locations);
        all.map(|text| text.split('?').next().unwrap_or_default().parse()).collect()
    }
}

/// Returns the specification of a row for this server.
fn spec(row: &WarehouseRow, settings: &CatalogSettings) -> Result<WarehouseSpec> {
    let mut spec = WarehouseSpec {
        id: row.id.clone(),
        name: row.name.clone(),
        root: row.root.clone(),
        locations: settings.locations.clone(),
        credentials: settings.credentials.clone(),
        storage: settings.storage.clone(),
        removals: settings.removals.clone(),
        ..WarehouseSpec::default()
    };
    let Some(storage_row) = &row.storage else { return Ok(spec) };
    spec.status = storage_row.status;
    if !storage_row.is_made {
        return Ok(spec);
    }
    spec.root = storage_row.settings.locate(&row.root);
    spec.locations =
        storage_row.locations.iter().map(|it| storage_row.settings.locate(it)).collect();
    spec.storage = storage_row.settings.clone();
    spec.anchors = settings.warehouse_roots.clone();
    if let Some(secret) = &storage_row.secret {
        let sealer = settings.sealer.as_ref();
        let sealer = sealer.ok_or_else(|| CatalogError::internal("there is no key for secrets"))?;
        let opened = sealer.open_text(secret, &about(&row.id)).map_err(CatalogError::internal)?;
        let key: NewStorageKey = serde_json::from_slice(opened.expose())
            .map_err(|_| CatalogError::internal("a sealed key is damaged"))?;
        spec.credentials = Some(SigningCredentials {
            access_key_id: key.access_key_id,
            secret_access_key: key.secret_access_key,
            session_token: key.session_token,
        });
    }
    Ok(spec)
}

/// Returns the context that a key is sealed for.
fn about(id: &str) -> String {
    format!("catalog/warehouse/{id}")
}

fn only_operators(who: &CatalogPrincipal) -> Result<()> {
    crate::access::only_operators(who)
}
