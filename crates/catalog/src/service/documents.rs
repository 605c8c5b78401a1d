//! Documents of tables and views, and conversion between a document and its file.

use std::borrow::Cow;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use iceberg::doc::{TableDoc, TableProperties};
use iceberg::ident::{TableIdent, Uuid};
use iceberg::json::TEXT_BYTES_MAX;
use iceberg::view::ViewDoc;
use parking_lot::Mutex;

use crate::cache::{AnswerText, ParsedDocument};
use crate::database::DiskWork;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::storage::PATHS;
use crate::store::{
    DOCUMENT_BYTES_KEPT_MAX, LogAction, MetadataPointer, NewRelation, PointerSwap, RelationKind,
    RelationStore,
};
use crate::warehouse::{FlushMode, NewLocalFile, TableLocation, Warehouse};

/// Property: directory of metadata files, instead of `metadata` below the table.
pub(super) const METADATA_PATH: &str = "write.metadata.path";

/// Property: compression of metadata files.
const METADATA_CODEC: &str = "write.metadata.compression-codec";

/// Suffixes of compressed metadata files, of present and of old writers.
const GZIP_ENDS: [&str; 2] = [".gz.metadata.json", ".metadata.json.gz"];

/// Suffix of other metadata files.
const END: &str = ".metadata.json";

/// Bytes of a UUID as text.
const UUID_TEXT_BYTES: usize = 36;

/// Largest number in the name of a metadata file that numbering continues from.
const FILE_NUMBER_MAX: u64 = 1 << 40;

/// Common interface of the documents of tables and views.
pub(crate) trait RelationDocument: Sized {
    /// Kind of the document.
    const KIND: RelationKind;

    fn uuid(&self) -> &str;
    fn location(&self) -> &str;
    fn properties(&self) -> &TableProperties;
    /// Returns the locations of its files besides its location.
    fn places(&self) -> Vec<String>;
    /// Writes the document, and the response that shows it at this location (or without one), into
    /// one buffer. The parts of the returned document are slices of that buffer.
    fn settle(self, location: Option<&str>) -> Result<(Self, AnswerText)>;
    fn into_doc(self) -> ParsedDocument;
}

impl RelationDocument for TableDoc {
    const KIND: RelationKind = RelationKind::Table;

    fn uuid(&self) -> &str {
        &self.uuid
    }

    fn location(&self) -> &str {
        &self.location
    }

    fn properties(&self) -> &TableProperties {
        &self.properties
    }

    fn places(&self) -> Vec<String> {
        let paths = PATHS.iter().filter_map(|name| self.properties.get(name));
        paths.map(Cow::into_owned).collect()
    }

    fn settle(self, location: Option<&str>) -> Result<(TableDoc, AnswerText)> {
        AnswerText::of_table(self, location)
    }

    fn into_doc(self) -> ParsedDocument {
        ParsedDocument::Table(Arc::new(self))
    }
}

impl RelationDocument for ViewDoc {
    const KIND: RelationKind = RelationKind::View;

    fn uuid(&self) -> &str {
        &self.uuid
    }

    fn location(&self) -> &str {
        &self.location
    }

    fn properties(&self) -> &TableProperties {
        &self.properties
    }

    fn places(&self) -> Vec<String> {
        Vec::new()
    }

    fn settle(self, location: Option<&str>) -> Result<(ViewDoc, AnswerText)> {
        AnswerText::of_view(&self, location)
    }

    fn into_doc(self) -> ParsedDocument {
        ParsedDocument::View(Arc::new(self))
    }
}

/// A document with the location of its file, which no pointer refers to yet.
#[derive(Debug)]
pub(crate) struct PlacedDocument<D> {
    pub(crate) doc: D,
    pub(crate) text: AnswerText,
    pub(crate) location: String,
}

impl<D: RelationDocument> PlacedDocument<D> {
    /// Returns the new table or view of this document.
    pub(super) fn new_relation(&self, ident: &TableIdent, act: LogAction) -> NewRelation {
        NewRelation {
            ident: ident.clone(),
            kind: D::KIND,
            uuid: self.doc.uuid().to_owned(),
            base: self.doc.location().to_owned(),
            places: self.doc.places(),
            location: self.location.clone(),
            document: self.text.document().clone(),
            act,
        }
    }

    /// Returns the move of a pointer to this document.
    pub(super) fn swap(
        &self,
        ident: &TableIdent,
        expected: &MetadataPointer,
        act: LogAction,
    ) -> PointerSwap {
        PointerSwap {
            ident: ident.clone(),
            expected: expected.clone(),
            uuid: self.doc.uuid().to_owned(),
            base: self.doc.location().to_owned(),
            places: self.doc.places(),
            location: self.location.clone(),
            document: self.text.document().clone(),
            act,
        }
    }
}

/// Reads the document in a metadata file.
///
/// # Errors
/// `NotFound` if the file does not exist, `BadRequest` if it cannot be decompressed.
pub(crate) async fn read(warehouse: &Warehouse, location: &str) -> Result<Bytes> {
    let bytes = warehouse.files().read(location).await?;
    if !is_gzip(location) {
        return Ok(bytes);
    }
    let unpacked = node::task::blocking(move || unpack(&bytes)).await;
    unpacked.map_err(CatalogError::internal)?
}

/// An unwritten local file of a document. It is written by the thread that runs the transaction
/// which moves a pointer to it.
#[derive(Debug)]
pub(crate) struct UnwrittenFile {
    file: NewLocalFile,
    document: Bytes,
    is_gzip: bool,
}

impl UnwrittenFile {
    /// Writes the file and returns its location. Waits for the disk.
    ///
    /// # Errors
    /// Errors of [`crate::warehouse::WarehouseFiles::write_new`].
    fn write(self) -> Result<String> {
        let flush = flush_of(&self.document);
        match self.is_gzip {
            true => self.file.write(&packed(&self.document)?, flush)?,
            false => self.file.write(&self.document, flush)?,
        }
        Ok(self.file.into_location())
    }
}

/// Creates the next file for a document after `previous`. In a bucket it is written when this
/// returns; a local file is still to be written.
///
/// # Errors
/// `Forbidden` if the document's location is outside of the warehouse.
pub(super) async fn place<D: RelationDocument>(
    warehouse: &Warehouse,
    doc: D,
    previous: Option<&str>,
) -> Result<(PlacedDocument<D>, Option<UnwrittenFile>)> {
    let location = next_file(warehouse, doc.location(), doc.properties(), previous)?;
    let (doc, text) = doc.settle(Some(&location))?;
    let document = text.document().clone();
    let unwritten = match warehouse.files().new_local(&location)? {
        Some(file) => Some(UnwrittenFile { file, document, is_gzip: is_gzip(&location) }),
        None => {
            let span = node::traces::span("write metadata");
            write_document(warehouse, &location, document).await?;
            span.end();
            None
        }
    };
    Ok((PlacedDocument { doc, text, location }, unwritten))
}

/// Locations of files written for a transaction, in case it fails.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenFiles(Arc<Mutex<Vec<String>>>);

impl WrittenFiles {
    /// Removes the files: no pointer refers to them.
    pub(super) async fn discard(&self, warehouse: &Warehouse) {
        let locations = std::mem::take(&mut *self.0.lock());
        for location in locations {
            delete_quietly(warehouse, &location).await;
        }
    }
}

/// Returns the work that writes files one after the other and waits for the disk, in a span of the
/// caller's trace; `None` without files. Also returns the list of files written so far, for cleanup
/// after a failure.
pub(super) fn writing(files: Vec<UnwrittenFile>) -> (Option<DiskWork>, WrittenFiles) {
    let written = WrittenFiles::default();
    if files.is_empty() {
        return (None, written);
    }
    let (span, progress) = (node::traces::span("write metadata"), written.clone());
    let work = move || {
        for file in files {
            let location = file.write()?;
            progress.0.lock().push(location);
        }
        span.end();
        Ok(())
    };
    (Some(Box::new(work)), written)
}

/// Returns the location of the next document's file, given its properties.
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

/// Writes the bytes of a document to a new file, compressed if its name says so.
///
/// # Errors
/// Those of [`crate::warehouse::WarehouseFiles::write_new`].
pub(crate) async fn write_document(
    warehouse: &Warehouse,
    location: &str,
    document: Bytes,
) -> Result<()> {
    let flush = flush_of(&document);
    let bytes = if is_gzip(location) { pack(document).await? } else { document };
    warehouse.files().write_new(location, bytes, flush).await
}

fn flush_of(document: &Bytes) -> FlushMode {
    match document.len() > DOCUMENT_BYTES_KEPT_MAX {
        // The store has no copy of it.
        true => FlushMode::Yes,
        false => FlushMode::No,
    }
}

/// Removes old metadata files of a table. A registered document may name any file: only files below
/// the table's own directories are removed, and none that a pointer refers to, other than that of
/// the relation `own_id`.
pub(super) async fn delete_old(
    relation_store: &RelationStore,
    warehouse: &Warehouse,
    doc: &TableDoc,
    locations: &[String],
    own_id: &str,
) {
    let path = doc.properties.get(METADATA_PATH);
    let own = [Some(doc.location.as_str()), path.as_deref()].into_iter().flatten();
    let own: Vec<TableLocation> = own.filter_map(|text| text.parse().ok()).collect();
    for location in locations {
        let is_own = |place: TableLocation| own.iter().any(|root| place.is_below(root));
        if !location.parse().is_ok_and(is_own) {
            continue;
        }
        match relation_store.is_pointed_at(location, own_id).await {
            Ok(true) => {}
            Ok(false) => delete_quietly(warehouse, location).await,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, location, "an old metadata file stays");
            }
        }
    }
}

/// Removes an unreferenced file; an error is harmless.
pub(crate) async fn delete_quietly(warehouse: &Warehouse, location: &str) {
    if let Err(error) = warehouse.files().delete(location).await {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, location, "a metadata file that is of no use stays");
    }
}

/// Builds `<directory>/<number>-<uuid>.metadata.json`: the number is one more than that of the
/// previous file.
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

/// Returns the number in the name of a metadata file that a catalog has written: `<number>-<uuid>`
/// and a suffix. `None` for other files.
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
    let packed = node::task::blocking(move || packed(&document)).await;
    packed.map_err(CatalogError::internal)?.map(Bytes::from)
}

fn packed(document: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(document).map_err(CatalogError::internal)?;
    encoder.finish().map_err(CatalogError::internal)
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
