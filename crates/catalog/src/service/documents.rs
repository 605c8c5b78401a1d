//! From a document to its file and back, and from a name to an entry.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use iceberg::doc::{TableDoc, TableProperties};
use iceberg::ident::{TableIdent, Uuid};
use iceberg::json::{RawJson, TEXT_BYTES_MAX};
use iceberg::view::ViewDoc;
use node::clock;

use super::catalog::{Catalog, key};
use super::relations::RelationDocument;
use crate::cache::CachedVersion;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{AccessRight, CatalogPrincipal, RightTarget};
use crate::store::{
    DOCUMENT_BYTES_KEPT_MAX, MetadataPointer, RelationKind, StoredRelation, place_of,
};
use crate::warehouse::{FlushMode, Warehouse};

/// Property: directory of metadata files, in place of `metadata` below the table.
pub(super) const METADATA_PATH: &str = "write.metadata.path";

/// Property: compression of metadata files.
const METADATA_CODEC: &str = "write.metadata.compression-codec";

/// Suffixes of compressed metadata files, of today's and of old writers.
const GZIP_ENDS: [&str; 2] = [".gz.metadata.json", ".metadata.json.gz"];

/// Suffix of other metadata files.
const END: &str = ".metadata.json";

/// Bytes of a UUID as text.
const UUID_TEXT_BYTES: usize = 36;

/// Highest number in the name of a metadata file that is counted on from.
const FILE_NUMBER_MAX: u64 = 1 << 40;

/// A document in its file, which nothing points to yet.
#[derive(Debug)]
pub(crate) struct WrittenDocument<D> {
    pub(crate) doc: D,
    pub(crate) document: Bytes,
    pub(crate) location: String,
}

impl Catalog {
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
    /// As of [`Catalog::entry`].
    pub(crate) async fn entry_to_read(
        &self,
        warehouse: &Warehouse,
        kind: RelationKind,
        ident: &TableIdent,
    ) -> Result<Arc<CachedVersion>> {
        self.entry_of_age(warehouse, kind, ident, self.0.settings.pointer_cache).await
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
        if self.0.store.pointer(warehouse.id(), ident).await? != entry.pointer {
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
        !self.0.store.is_shared_by_servers() || (!age.is_zero() && entry.is_fresh(now, age))
    }

    /// Returns what [`Catalog::load`] finds, where that takes no waiting and nothing is wrong with
    /// it.
    pub(crate) fn at_hand(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        kind: RelationKind,
        ident: &TableIdent,
    ) -> Option<Arc<CachedVersion>> {
        self.0
            .rights
            .allow(who, warehouse, AccessRight::Read, RightTarget::Relation(ident))
            .ok()?;
        let entry = self.0.cache.get(warehouse.id(), ident)?;
        let is_of_kind = entry.pointer.as_ref().is_some_and(|pointer| pointer.kind == kind);
        let is_good = is_of_kind
            && self.is_current(&entry, clock::now(), self.0.settings.pointer_cache)
            && self.check_file(warehouse, &entry).is_ok();
        is_good.then_some(entry)
    }

    /// Reads an entry, one reader of a name at a time.
    async fn read_entry(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
        age: Duration,
    ) -> Result<Option<Arc<CachedVersion>>> {
        let key = key(warehouse, ident);
        let _turn = self.0.loads.lock(key.clone()).await;
        // Whoever read it meanwhile may have begun before this reader did, and before a commit of
        // another server that this one's client knows of.
        if let Some(entry) = self.cached_entry(warehouse, ident, age).await? {
            return Ok(Some(entry));
        }
        let reading = self.0.cache.read(key);
        let Some(relation) = self.0.store.relation(warehouse.id(), ident).await? else {
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
            if !self.0.store.is_place_of(&place, &pointer.id).await? {
                return Err(not_committed(pointer));
            }
        }
        Ok(())
    }

    /// Refuses an entry whose metadata file is gone, where that is to be looked at. A location that
    /// the configuration does not allow any more is looked at in vain.
    pub(crate) fn check_file(&self, warehouse: &Warehouse, entry: &CachedVersion) -> Result<()> {
        let find = |location: &str| match warehouse.files().local_path(location) {
            Ok(path) => path,
            Err(_) => Some(PathBuf::new()),
        };
        if !self.0.settings.check_files || entry.has_file(find) {
            return Ok(());
        }
        let location = entry.location().unwrap_or_default();
        let message = format!("Failed to open input stream for file: {location}");
        Err(CatalogError::new(ErrorReason::NotFound, message))
    }
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
    // Nobody's request is at fault when what is kept cannot be read.
    let doc = match pointer.kind {
        RelationKind::Table => TableDoc::parse(document.clone()).map(RelationDocument::into_doc),
        RelationKind::View => ViewDoc::parse(document.clone()).map(RelationDocument::into_doc),
    };
    Ok(CachedVersion::new(Some(pointer), doc.map_err(CatalogError::internal)?, document))
}

/// The document in a metadata file.
///
/// # Errors
/// `NotFound` when there is no such file, `BadRequest` when it cannot be unpacked.
pub(crate) async fn read(warehouse: &Warehouse, location: &str) -> Result<Bytes> {
    let bytes = warehouse.files().read(location).await?;
    if !is_gzip(location) {
        return Ok(bytes);
    }
    let unpacked = node::task::blocking(move || unpack(&bytes)).await;
    unpacked.map_err(CatalogError::internal)?
}

/// Writes a document to a new file after `previous`.
///
/// # Errors
/// `Forbidden` when the document wants to be outside of the warehouse.
pub(super) async fn write<D: RelationDocument>(
    warehouse: &Warehouse,
    doc: &D,
    previous: Option<&str>,
) -> Result<WrittenDocument<D>> {
    let (doc, document) = doc.settle()?;
    let location = next_file(warehouse, doc.location(), doc.properties(), previous)?;
    write_document(warehouse, &location, document.clone()).await?;
    Ok(WrittenDocument { doc, document, location })
}

/// Returns where the next document goes of what says this of itself.
fn next_file(
    warehouse: &Warehouse,
    base: &str,
    properties: &TableProperties,
    previous: Option<&str>,
) -> Result<String> {
    warehouse.check_location(base)?;
    let location = metadata_location(base, properties, previous, Uuid::v4()?);
    warehouse.check_location(&location)?;
    Ok(location)
}

/// Writes the bytes of a document to a file that is not there yet, packed where its name says so.
///
/// # Errors
/// Those of [`crate::warehouse::WarehouseFiles::write_new`].
pub(crate) async fn write_document(
    warehouse: &Warehouse,
    location: &str,
    document: Bytes,
) -> Result<()> {
    let flush = match document.len() > DOCUMENT_BYTES_KEPT_MAX {
        // The store has no copy of it.
        true => FlushMode::Yes,
        false => FlushMode::No,
    };
    let bytes = if is_gzip(location) { pack(document).await? } else { document };
    warehouse.files().write_new(location, bytes, flush).await
}

/// `<directory>/<number>-<uuid>.metadata.json`: one more than the number of the file before.
fn metadata_location(
    base: &str,
    properties: &TableProperties,
    previous: Option<&str>,
    uuid: Uuid,
) -> String {
    let is_gzip = properties.get(METADATA_CODEC).is_some_and(|it| it.eq_ignore_ascii_case("gzip"));
    let end = if is_gzip { GZIP_ENDS[0] } else { END };
    let number = previous.and_then(file_number).map_or(0, |number| number + 1);
    let directory = match properties.get(METADATA_PATH) {
        Some(path) => path.trim_end_matches('/').to_owned(),
        None => format!("{}/metadata", base.trim_end_matches('/')),
    };
    format!("{directory}/{number:05}-{uuid}{end}")
}

/// The number of a metadata file that a catalog has written, by its name: `<number>-<uuid>` and an
/// end. None of any other file.
pub(super) fn own_number(name: &str) -> Option<u64> {
    let (digits, rest) = name.split_once('-')?;
    let (uuid, end) = rest.split_at_checked(UUID_TEXT_BYTES)?;
    let is_end = end == END || end == GZIP_ENDS[0] || end == GZIP_ENDS[1];
    let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
    let is_own = is_end && is_number && uuid.parse::<Uuid>().is_ok();
    is_own.then(|| file_number(name)).flatten()
}

fn file_number(location: &str) -> Option<u64> {
    let name = location.rsplit('/').next()?;
    let digits = name.split('-').next()?;
    let digits = digits.split('.').next()?.trim_start_matches('v');
    digits.parse().ok().filter(|number| *number < FILE_NUMBER_MAX)
}

fn is_gzip(location: &str) -> bool {
    GZIP_ENDS.iter().any(|end| location.ends_with(end))
}

async fn pack(document: Bytes) -> Result<Bytes> {
    let packed = node::task::blocking(move || {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&document)?;
        encoder.finish()
    });
    Ok(packed.await.map_err(CatalogError::internal)?.map_err(CatalogError::internal)?.into())
}

fn unpack(bytes: &[u8]) -> Result<Bytes> {
    let mut text = Vec::new();
    let most = u64::try_from(TEXT_BYTES_MAX).map_err(CatalogError::internal)?;
    let unpacked = MultiGzDecoder::new(bytes).take(most + 1).read_to_end(&mut text);
    let refuse =
        |what| CatalogError::new(ErrorReason::BadRequest, format!("the metadata file {what}"));
    unpacked.map_err(|_| refuse("is not compressed by gzip as its name says"))?;
    if text.len() > TEXT_BYTES_MAX {
        return Err(refuse("is too long"));
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metadata_file_is_numbered_after_the_one_before() {
        let uuid = Uuid::from_bytes([0xab; 16]);
        let text = uuid.to_string();
        let path = [("write.metadata.path", "file:///m/")];
        let gzip = [("write.metadata.compression-codec", "GZIP")];
        let at = |number: &str| format!("file:///w/t/metadata/{number}-{text}.metadata.json");
        for (properties, previous, expected) in [
            (&[][..], None, at("00000")),
            (&[], Some("file:///w/t/metadata/00007-x.metadata.json"), at("00008")),
            (&[], Some("file:///w/t/metadata/99999-x.metadata.json"), at("100000")),
            (&[], Some("file:///w/t/metadata/v3.metadata.json"), at("00004")),
            (&[], Some("file:///w/t/metadata/strange"), at("00000")),
            (&[], Some("file:///18446744073709551615-x"), at("00000")),
            (&path, None, format!("file:///m/00000-{text}.metadata.json")),
            (&gzip, None, format!("file:///w/t/metadata/00000-{text}.gz.metadata.json")),
        ] {
            let properties = properties.iter().copied().collect();
            let found = metadata_location("file:///w/t/", &properties, previous, uuid);
            assert_eq!(found, expected);
        }
        let own = |number: &str, end: &str| own_number(&format!("{number}-{text}{end}"));
        assert_eq!(own("00012", ".metadata.json"), Some(12));
        assert_eq!(own("00012", ".gz.metadata.json"), Some(12));
        for name in ["v3.metadata.json", "00001-x.metadata.json", "snap-1.avro", "ä", ""] {
            assert_eq!(own_number(name), None, "{name}");
        }
        assert_eq!((own("", ".metadata.json"), own("00001", ".json")), (None, None));
        assert!(is_gzip("a.gz.metadata.json") && is_gzip("a.metadata.json.gz"));
        assert!(!is_gzip("a.metadata.json"));
    }

    #[tokio::test]
    async fn what_was_packed_is_unpacked_and_what_was_not_is_refused() {
        let text = Bytes::from("{\"a\":1}".repeat(1000));
        assert_eq!(unpack(&pack(text.clone()).await.unwrap()).unwrap(), text);
        for bytes in [&b"{}"[..], b"", &pack(text).await.unwrap()[..20]] {
            assert_eq!(unpack(bytes).unwrap_err().kind, ErrorReason::BadRequest);
        }
    }
}
