//! The current versions of tables and views: from memory or from the store, and the locks by name
//! under which they are read and changed.

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

/// Current versions of tables and views in memory, read from the store when they are asked for,
/// with the locks by name. Cheap to clone.
#[derive(Clone)]
pub struct RelationEntries(Arc<RelationEntriesInner>);

struct RelationEntriesInner {
    location_store: LocationStore,
    relation_store: RelationStore,
    /// True if other servers may change what is in the store.
    is_shared: bool,
    cache: EntryCache,
    /// Locks of loads from the store.
    loads: Arc<KeyLocks<CacheKey>>,
    /// Locks of changes, by table or view.
    changes: Arc<KeyLocks<CacheKey>>,
    /// Largest age of an answer to a reader, as [`CatalogSettings::pointer_cache`] says.
    pointer_cache: Duration,
    /// True if metadata files are looked at, as [`CatalogSettings::check_files`] says.
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

    /// Returns what was found in memory and what was not.
    #[must_use]
    pub fn figures(&self) -> CacheFigures {
        self.0.cache.figures()
    }

    /// The entry of a table or view, from memory or from the store.
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

    /// Loads an entry for a reader: where other servers change the store, it may be as old as the
    /// settings say.
    ///
    /// # Errors
    /// As of [`RelationEntries::entry`].
    pub(crate) async fn entry_to_read(
        &self,
        warehouse: &Warehouse,
        kind: RelationKind,
        ident: &TableIdent,
    ) -> Result<Arc<CachedVersion>> {
        self.entry_of_age(warehouse, kind, ident, self.0.pointer_cache).await
    }

    /// Returns what a reader finds, where that takes no waiting and nothing is wrong with it.
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

    /// The schema that a table has now. Whether somebody may know is up to the caller.
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

    /// Refuses an entry whose metadata file is gone, where that is to be looked at. A location that
    /// the configuration does not allow any more is looked at in vain.
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

    /// Refuses a document from a file that says other places than what was committed. Who may write
    /// a table's files may have changed it, and credentials are for the places that it says, and
    /// files there are removed.
    ///
    /// # Errors
    /// `NotFound`: the one that was committed is not there any more.
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

    /// Puts a document that a pointer leads to in the cache.
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

    /// Takes what is behind a name out of the cache: it changed, or nobody knows.
    pub(crate) fn forget(&self, warehouse: &Warehouse, ident: &TableIdent) {
        self.0.cache.forget(&key(warehouse, ident));
    }

    /// Waits for the right to change what is behind a name.
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

    /// Returns which version of a table or view the store has, whatever is in memory; nothing when
    /// there is none of this name.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn stored_pointer(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
    ) -> Result<Option<MetadataPointer>> {
        self.0.relation_store.pointer(warehouse.id(), ident).await
    }

    /// An entry in memory that is no older than this: where other servers change the store, that
    /// is asked.
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
        // As of before the store was asked.
        entry.set_fresh(now);
        Ok(Some(entry))
    }

    /// Returns whether an entry in memory is no older than this for all that is known here.
    fn is_current(&self, entry: &CachedVersion, now: Instant, age: Duration) -> bool {
        !self.0.is_shared || (!age.is_zero() && entry.is_fresh(now, age))
    }

    /// Reads an entry, one reader of a name at a time.
    async fn read_entry(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
        age: Duration,
    ) -> Result<Option<Arc<CachedVersion>>> {
        let key = key(warehouse, ident);
        let _lock = self.0.loads.lock(key.clone()).await;
        // Whoever read it meanwhile may have begun before this reader did, and before a commit of
        // another server that this one's client knows of.
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

    /// Refuses an entry from a file that says other places than what was committed.
    async fn check_committed(&self, entry: &CachedVersion) -> Result<()> {
        let Some(pointer) = &entry.pointer else { return Ok(()) };
        match (entry.table(), entry.view()) {
            (Some(doc), _) => self.check_places(pointer, &**doc).await,
            (None, Some(doc)) => self.check_places(pointer, &**doc).await,
            (None, None) => Ok(()),
        }
    }

    /// Lets nobody read an entry from the store for as long as what it answers is held.
    #[cfg(test)]
    pub(super) async fn hold_loads(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
    ) -> KeyLockGuard<CacheKey> {
        self.0.loads.lock(key(warehouse, ident)).await
    }

    /// Puts a version in memory as a reader does.
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

/// Returns what the cache and locks know a table or view by.
fn key(warehouse: &Warehouse, ident: &TableIdent) -> CacheKey {
    CacheKey { warehouse: Arc::clone(warehouse.id()), ident: ident.clone() }
}

/// Refuses a document that is of another relation than the pointer to it, or of another place.
///
/// # Errors
/// `NotFound`: the one that was committed is not there any more.
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
    // Nobody's request is at fault when what is kept cannot be read.
    let doc = match pointer.kind {
        RelationKind::Table => TableDoc::parse(document).map(RelationDocument::into_doc),
        RelationKind::View => ViewDoc::parse(document).map(RelationDocument::into_doc),
    };
    Ok(CachedVersion::new(Some(pointer), doc.map_err(CatalogError::internal)?, text))
}
