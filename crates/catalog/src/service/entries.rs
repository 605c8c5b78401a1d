//! Current versions of tables and views, from memory or from the store, and the locks by name under
//! which they are read and changed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iceberg::doc::TableDoc;
use iceberg::ident::TableIdent;
use iceberg::json::RawJson;
use iceberg::view::ViewDoc;
use node::clock;

use super::documents::{PlacedDocument, RelationDocument, read};
use super::settings::CatalogSettings;
use crate::cache::{AnswerText, CacheFigures, CacheKey, CachedVersion, EntryCache};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::locks::{KeyLockGuard, KeyLocks};
use crate::store::{
    CatalogStore, LocationStore, MetadataPointer, RelationKind, RelationStore, StoredRelation,
    place_of,
};
use crate::warehouse::Warehouse;

/// Current versions of tables and views in memory, read from the store on demand, with the locks by
/// name. Cheap to clone.
#[derive(Clone)]
pub struct RelationEntries(Arc<RelationEntriesInner>);

struct RelationEntriesInner {
    location_store: LocationStore,
    relation_store: RelationStore,
    /// True if other servers may change the store.
    is_shared: bool,
    cache: EntryCache,
    /// Locks of loads from the store.
    loads: Arc<KeyLocks<CacheKey>>,
    /// Locks of changes, by table or view.
    changes: Arc<KeyLocks<CacheKey>>,
    /// Largest age of an entry for a reader, see [`CatalogSettings::pointer_cache`].
    pointer_cache: Duration,
    /// True if metadata files are checked, see [`CatalogSettings::check_files`].
    check_files: bool,
}

impl std::fmt::Debug for RelationEntries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelationEntries").finish_non_exhaustive()
    }
}

impl RelationEntries {
    pub(super) fn new(store: &CatalogStore, settings: &CatalogSettings) -> RelationEntries {
        RelationEntries(Arc::new(RelationEntriesInner {
            location_store: store.locations().clone(),
            relation_store: store.relations().clone(),
            is_shared: store.is_shared_by_servers(),
            cache: EntryCache::new(settings.cache_bytes_max),
            loads: Arc::default(),
            changes: Arc::default(),
            pointer_cache: settings.pointer_cache,
            check_files: settings.check_files,
        }))
    }

    /// Returns the cache's counters.
    #[must_use]
    pub fn figures(&self) -> CacheFigures {
        self.0.cache.figures()
    }

    /// Returns the entry of a table or view, from memory or from the store.
    ///
    /// # Errors
    /// `NoSuchTable` or `NoSuchView`.
    pub(crate) async fn entry(
        &self,
        warehouse: &Warehouse,
        kind: RelationKind,
        ident: &TableIdent,
    ) -> Result<Arc<CachedVersion>> {
        self.entry_of_age(warehouse, kind, ident, Duration::ZERO).await
    }

    /// Loads an entry for a reader: if other servers change the store, it may be as old as the
    /// settings allow.
    ///
    /// # Errors
    /// As in [`RelationEntries::entry`].
    pub(crate) async fn entry_to_read(
        &self,
        warehouse: &Warehouse,
        kind: RelationKind,
        ident: &TableIdent,
    ) -> Result<Arc<CachedVersion>> {
        self.entry_of_age(warehouse, kind, ident, self.0.pointer_cache).await
    }

    /// Returns the entry for a reader if it is available without waiting and valid.
    pub(super) fn at_hand(
        &self,
        warehouse: &Warehouse,
        kind: RelationKind,
        ident: &TableIdent,
    ) -> Option<Arc<CachedVersion>> {
        let entry = self.0.cache.get(warehouse.id(), ident)?;
        let is_of_kind = entry.pointer.as_ref().is_some_and(|pointer| pointer.kind == kind);
        let is_good = is_of_kind
            && self.is_current(&entry, clock::now(), self.0.pointer_cache)
            && self.check_file(warehouse, &entry).is_ok();
        is_good.then_some(entry)
    }

    /// Returns the present schema of a table. The caller checks rights.
    pub(crate) async fn schema_of(
        &self,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
    ) -> Result<RawJson> {
        let entry = self.entry(warehouse, RelationKind::Table, ident).await?;
        let schema = entry.table().and_then(|doc| doc.current_schema());
        let schema = schema.ok_or_else(|| CatalogError::internal("a table without a schema"))?;
        Ok(schema.raw.clone())
    }

    /// Rejects an entry whose metadata file is missing, if files are checked. A location that the
    /// configuration no longer allows counts as missing.
    pub(crate) fn check_file(&self, warehouse: &Warehouse, entry: &CachedVersion) -> Result<()> {
        let find = |location: &str| match warehouse.files().local_path(location) {
            Ok(path) => path,
            Err(_) => Some(PathBuf::new()),
        };
        if !self.0.check_files || entry.has_file(find) {
            return Ok(());
        }
        let location = entry.location().unwrap_or_default();
        let message = format!("Failed to open input stream for file: {location}");
        Err(CatalogError::new(ErrorReason::NotFound, message))
    }

    /// Rejects a document from a file whose locations differ from the committed ones. A principal
    /// that may write a table's files may have changed it; credentials cover the document's
    /// locations, and purges remove files there.
    ///
    /// # Errors
    /// `NotFound`: the committed document no longer exists.
    pub(super) async fn check_places<D: RelationDocument>(
        &self,
        pointer: &MetadataPointer,
        doc: &D,
    ) -> Result<()> {
        check_same(pointer, doc)?;
        for place in doc.places() {
            if !self.0.location_store.is_place_of(&place, &pointer.id).await? {
                return Err(not_committed(pointer));
            }
        }
        Ok(())
    }

    /// Puts the document of a pointer into the cache.
    pub(super) fn publish<D: RelationDocument>(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
        pointer: MetadataPointer,
        placed: PlacedDocument<D>,
    ) -> Arc<CachedVersion> {
        let doc = placed.doc.into_doc();
        let entry = Arc::new(CachedVersion::new(Some(pointer), doc, placed.text));
        self.0.cache.publish(key(warehouse, ident), Arc::clone(&entry));
        entry
    }

    /// Removes a name from the cache: it changed, or its state is unknown.
    pub(crate) fn forget(&self, warehouse: &Warehouse, ident: &TableIdent) {
        self.0.cache.forget(&key(warehouse, ident));
    }

    /// Waits for the lock for changes of a name.
    pub(crate) async fn lock(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
    ) -> KeyLockGuard<CacheKey> {
        self.0.changes.lock(key(warehouse, ident)).await
    }

    async fn entry_of_age(
        &self,
        warehouse: &Warehouse,
        kind: RelationKind,
        ident: &TableIdent,
        age: Duration,
    ) -> Result<Arc<CachedVersion>> {
        let entry = match self.cached_entry(warehouse, ident, age).await? {
            Some(entry) => Some(entry),
            None => Box::pin(self.read_entry(warehouse, ident, age)).await?,
        };
        let entry = entry.ok_or_else(|| kind.no_such(ident))?;
        let is_of_kind = entry.pointer.as_ref().is_some_and(|pointer| pointer.kind == kind);
        if is_of_kind { Ok(entry) } else { Err(kind.no_such(ident)) }
    }

    /// Returns the version of a table or view in the store, regardless of memory; `None` if it does
    /// not exist.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn stored_pointer(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
    ) -> Result<Option<MetadataPointer>> {
        self.0.relation_store.pointer(warehouse.id(), ident).await
    }

    /// Returns an entry in memory that is no older than `age`: if other servers change the store,
    /// the store is queried.
    async fn cached_entry(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
        age: Duration,
    ) -> Result<Option<Arc<CachedVersion>>> {
        let Some(entry) = self.0.cache.get(warehouse.id(), ident) else { return Ok(None) };
        let now = clock::now();
        if self.is_current(&entry, now, age) {
            return Ok(Some(entry));
        }
        if self.0.relation_store.pointer(warehouse.id(), ident).await? != entry.pointer {
            // Another server has changed it.
            self.forget(warehouse, ident);
            return Ok(None);
        }
        // Fresh as of before the store was queried.
        entry.set_fresh(now);
        Ok(Some(entry))
    }

    /// Returns whether an entry in memory is known to be no older than `age`.
    fn is_current(&self, entry: &CachedVersion, now: Instant, age: Duration) -> bool {
        !self.0.is_shared || (!age.is_zero() && entry.is_fresh(now, age))
    }

    /// Reads an entry; one reader of a name at a time.
    async fn read_entry(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
        age: Duration,
    ) -> Result<Option<Arc<CachedVersion>>> {
        let key = key(warehouse, ident);
        let _lock = self.0.loads.lock(key.clone()).await;
        // The previous reader may have begun before this one, and before a commit of another server
        // that this reader's client knows of.
        if let Some(entry) = self.cached_entry(warehouse, ident, age).await? {
            return Ok(Some(entry));
        }
        let reading = self.0.cache.read(key);
        let Some(relation) = self.0.relation_store.relation(warehouse.id(), ident).await? else {
            return Ok(None);
        };
        let is_from_file = relation.document.is_none();
        let entry = Arc::new(parsed(warehouse, relation).await?);
        if is_from_file {
            self.check_committed(&entry).await?;
        }
        reading.keep(Arc::clone(&entry));
        Ok(Some(entry))
    }

    /// Rejects an entry from a file whose locations differ from the committed ones.
    async fn check_committed(&self, entry: &CachedVersion) -> Result<()> {
        let Some(pointer) = &entry.pointer else { return Ok(()) };
        match (entry.table(), entry.view()) {
            (Some(doc), _) => self.check_places(pointer, &**doc).await,
            (None, Some(doc)) => self.check_places(pointer, &**doc).await,
            (None, None) => Ok(()),
        }
    }

    /// Blocks reads of an entry from the store while the returned guard is held.
    #[cfg(test)]
    pub(super) async fn hold_loads(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
    ) -> KeyLockGuard<CacheKey> {
        self.0.loads.lock(key(warehouse, ident)).await
    }

    /// Puts a version into memory as a reader does.
    #[cfg(test)]
    pub(super) fn publish_entry(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
        entry: Arc<CachedVersion>,
    ) {
        self.0.cache.publish(key(warehouse, ident), entry);
    }
}

/// Returns the key of a table or view for the cache and the locks.
fn key(warehouse: &Warehouse, ident: &TableIdent) -> CacheKey {
    CacheKey { warehouse: Arc::clone(warehouse.id()), ident: ident.clone() }
}

/// Rejects a document of another relation, or of another location, than its pointer's.
///
/// # Errors
/// `NotFound`: the committed document no longer exists.
fn check_same<D: RelationDocument>(pointer: &MetadataPointer, doc: &D) -> Result<()> {
    let is_same = doc.uuid() == pointer.uuid && place_of(doc.location()) == place_of(&pointer.base);
    if is_same { Ok(()) } else { Err(not_committed(pointer)) }
}

fn not_committed(pointer: &MetadataPointer) -> CatalogError {
    let message = format!("the metadata file is not what was committed: {}", pointer.location);
    CatalogError::new(ErrorReason::NotFound, message)
}

async fn parsed(warehouse: &Warehouse, relation: StoredRelation) -> Result<CachedVersion> {
    let StoredRelation { pointer, document } = relation;
    let document = match document {
        Some(document) => document,
        None => read(warehouse, &pointer.location).await?,
    };
    let text = AnswerText::of_read(Some(&pointer.location), document);
    let document = text.document().clone();
    // An unreadable stored document is not the fault of a request.
    let doc = match pointer.kind {
        RelationKind::Table => TableDoc::parse(document).map(RelationDocument::into_doc),
        RelationKind::View => ViewDoc::parse(document).map(RelationDocument::into_doc),
    };
    Ok(CachedVersion::new(Some(pointer), doc.map_err(CatalogError::internal)?, text))
}
