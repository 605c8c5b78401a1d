//! A document with the bytes of the answers that show it.
//!
//! An answer is `{"metadata-location":…,"metadata":` then the document then an end, which is `}` or
//! whatever a principal gets to see besides. The document is written once, in bytes that all
//! answers share; of a short one the whole answer is kept in one piece as well, because that is
//! cheaper to send.

use std::fmt;
use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use iceberg::doc::{TableDoc, TableSnapshot};
use iceberg::json::{put_name, put_string};
use iceberg::view::ViewDoc;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use super::gzip::{self, CompressedPrefix};
use crate::error::{CatalogError, Result};
use crate::store::MetadataPointer;

/// Longest document whose answers are kept in one piece, in bytes.
pub const WHOLE_BYTES_MAX: usize = 64 << 10;

/// Longest document that is compressed by the thread that answers, in bytes; a longer one by a
/// thread that may take its time.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// Levels of compression: short documents are sent often, long ones change with every commit.
const LEVEL_SHORT: u32 = 6;
const LEVEL_LONG: u32 = 1;

/// Size of an entry beside its document, in bytes, roughly.
const OVERHEAD_BYTES: usize = 2048;

/// End of an answer that shows nothing but the document.
const END: &[u8] = b"}";

/// Snapshots of a table that an answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotSelection {
    /// Every snapshot that has not expired.
    All,
    /// Snapshots of branches and tags.
    Refs,
}

/// A parsed document.
#[derive(Clone, Debug)]
pub enum ParsedDocument {
    /// A table.
    Table(Arc<TableDoc>),
    /// A view.
    View(Arc<ViewDoc>),
}

/// Pieces of an answer, one after the other; some may be empty.
pub type Frames = [Bytes; 3];

/// A version of a table or view.
pub struct CachedVersion {
    /// Version and location; none of what was only staged.
    pub pointer: Option<MetadataPointer>,
    /// The document.
    pub doc: ParsedDocument,
    /// The document as it is in its file.
    document: Bytes,
    /// Bytes before it in an answer.
    head: Bytes,
    etag: [Box<str>; 2],
    /// Entity tag, as a header has it.
    weak_etag: [Bytes; 2],
    /// File on this machine, once somebody has looked; none of one that is elsewhere.
    file: OnceLock<Option<PathBuf>>,
    /// When the store said last that this is the newest version; never where nobody asks.
    checked: Mutex<Option<Instant>>,
    all: DocumentForm,
    refs: DocumentForm,
}

/// A way to show the document.
#[derive(Debug, Default)]
struct DocumentForm {
    document: OnceLock<Bytes>,
    whole: OnceLock<Bytes>,
    gzip: OnceCell<CompressedPrefix>,
}

impl fmt::Debug for CachedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("pointer", &self.pointer).finish_non_exhaustive()
    }
}

impl CachedVersion {
    /// An entry for a document and the bytes it was read from or written to.
    #[must_use]
    pub fn new(
        pointer: Option<MetadataPointer>,
        doc: ParsedDocument,
        document: Bytes,
    ) -> CachedVersion {
        let mut head = vec![b'{'];
        if let Some(pointer) = &pointer {
            put_name(&mut head, "metadata-location");
            put_string(&mut head, &pointer.location);
        }
        put_name(&mut head, "metadata");
        let etag = |mode: &[u8]| {
            let mut hash = Sha256::new();
            if let Some(pointer) = &pointer {
                hash.update(pointer.id.as_bytes());
                hash.update(pointer.version.to_be_bytes());
                hash.update(pointer.location.as_bytes());
            }
            hash.update(mode);
            // 128 bits: no two versions have the same by chance.
            let digest = hash.finalize();
            node::hex::encode(&digest[..16]).into_boxed_str()
        };
        let etag = [etag(b"all"), etag(b"refs")];
        let weak_etag = [0, 1].map(|index: usize| format!("W/\"{}\"", etag[index]).into());
        CachedVersion {
            doc,
            document,
            head: head.into(),
            etag,
            weak_etag,
            file: OnceLock::new(),
            checked: Mutex::default(),
            all: DocumentForm::default(),
            refs: DocumentForm::default(),
            pointer,
        }
    }

    /// The document of a table; none of a view.
    #[must_use]
    pub fn table(&self) -> Option<&Arc<TableDoc>> {
        match &self.doc {
            ParsedDocument::Table(doc) => Some(doc),
            ParsedDocument::View(_) => None,
        }
    }

    /// The document of a view; none of a table.
    #[must_use]
    pub fn view(&self) -> Option<&Arc<ViewDoc>> {
        match &self.doc {
            ParsedDocument::Table(_) => None,
            ParsedDocument::View(doc) => Some(doc),
        }
    }

    /// The metadata file; none of what was only staged.
    #[must_use]
    pub fn location(&self) -> Option<&str> {
        self.pointer.as_ref().map(|pointer| &*pointer.location)
    }

    /// Returns whether its metadata file is there. `find` says where that is on this machine; one
    /// that is elsewhere is taken to be there. One system call.
    pub(crate) fn has_file(&self, find: impl FnOnce(&str) -> Option<PathBuf>) -> bool {
        let file = self.file.get_or_init(|| self.location().and_then(find));
        let is_file = |path: &PathBuf| path.symlink_metadata().is_ok_and(|it| it.is_file());
        file.as_ref().is_none_or(is_file)
    }

    /// Returns whether the store said at most `age` before `now` that this is the newest version.
    pub(crate) fn is_fresh(&self, now: Instant, age: Duration) -> bool {
        self.checked.lock().is_some_and(|at| now.saturating_duration_since(at) < age)
    }

    /// The store said at `now` that this is the newest version.
    pub(crate) fn set_fresh(&self, now: Instant) {
        *self.checked.lock() = Some(now);
    }

    /// The document as it is in its file, all snapshots of it.
    #[must_use]
    pub fn document(&self) -> &Bytes {
        &self.document
    }

    /// Returns what is the same for the same version and the same snapshots of it, and for nothing
    /// else: 32 hexadecimal digits, without quotes.
    #[must_use]
    pub fn etag(&self, snapshots: SnapshotSelection) -> &str {
        match snapshots {
            SnapshotSelection::All => &self.etag[0],
            SnapshotSelection::Refs => &self.etag[1],
        }
    }

    /// Returns the entity tag as a header has it, with the mark of weakness and quotes.
    pub(crate) fn weak_etag(&self, snapshots: SnapshotSelection) -> &Bytes {
        match snapshots {
            SnapshotSelection::All => &self.weak_etag[0],
            SnapshotSelection::Refs => &self.weak_etag[1],
        }
    }

    /// An answer. `end` follows the document in place of `}`, and begins with a comma where it is
    /// more: `,"config":{…}}`.
    #[must_use]
    pub fn frames(&self, snapshots: SnapshotSelection, end: Option<Bytes>) -> Frames {
        let document = self.selected(snapshots);
        if document.len() > WHOLE_BYTES_MAX {
            let end = end.unwrap_or(Bytes::from_static(END));
            return [self.head.clone(), document.clone(), end];
        }
        let whole = self.form(snapshots).whole.get_or_init(|| {
            let whole = [&self.head, document, END].concat();
            whole.into()
        });
        match end {
            None => [whole.clone(), Bytes::new(), Bytes::new()],
            Some(end) => [whole.slice(..whole.len() - END.len()), end, Bytes::new()],
        }
    }

    /// Returns the answer as one gzip member. The document is compressed once.
    ///
    /// # Errors
    /// `Internal` when `end` is longer than 64 KiB.
    pub async fn gzip(
        self: &Arc<CachedVersion>,
        snapshots: SnapshotSelection,
        end: Option<&[u8]>,
    ) -> Result<[Bytes; 2]> {
        let beginning = self.form(snapshots).gzip.get_or_try_init(async || {
            if self.selected(snapshots).len() <= INLINE_BYTES_MAX {
                return self.compress(snapshots, LEVEL_SHORT);
            }
            let entry = Arc::clone(self);
            let compress = move || entry.compress(snapshots, LEVEL_LONG);
            node::task::blocking(compress).await.map_err(CatalogError::internal)?
        });
        packed(beginning.await?, end)
    }

    /// Returns the compressed answer, where the document was compressed before.
    #[must_use]
    pub fn gzip_at_hand(
        &self,
        snapshots: SnapshotSelection,
        end: Option<&[u8]>,
    ) -> Option<[Bytes; 2]> {
        packed(self.form(snapshots).gzip.get()?, end).ok()
    }

    /// About how many bytes it takes, once it was asked for in every way.
    #[must_use]
    pub fn weight(&self) -> usize {
        let length = self.document.len();
        let pieces = if length > WHOLE_BYTES_MAX { 1 } else { 2 };
        let snapshots = match &self.doc {
            ParsedDocument::Table(doc) => doc.snapshots.len() * 2 * mem::size_of::<TableSnapshot>(),
            ParsedDocument::View(_) => 0,
        };
        OVERHEAD_BYTES + self.head.len() + pieces * length + length / 4 + snapshots
    }

    fn form(&self, snapshots: SnapshotSelection) -> &DocumentForm {
        match snapshots {
            SnapshotSelection::All => &self.all,
            SnapshotSelection::Refs => &self.refs,
        }
    }

    fn selected(&self, snapshots: SnapshotSelection) -> &Bytes {
        match (snapshots, &self.doc) {
            (SnapshotSelection::All, _) | (_, ParsedDocument::View(_)) => &self.document,
            (SnapshotSelection::Refs, ParsedDocument::Table(doc)) => {
                self.refs.document.get_or_init(|| {
                    let named = |id: i64| doc.refs.iter().any(|it| it.snapshot_id == id);
                    if doc.snapshots.len() <= doc.refs.len()
                        && doc.snapshots.iter().all(|snapshot| named(snapshot.id))
                    {
                        return self.document.clone();
                    }
                    let mut out = Vec::new();
                    doc.put_refs(&mut out);
                    out.into()
                })
            }
        }
    }

    fn compress(&self, snapshots: SnapshotSelection, level: u32) -> Result<CompressedPrefix> {
        gzip::begin(&[&self.head, self.selected(snapshots)], level)
    }
}

/// An answer of a compressed document and what follows it.
fn packed(beginning: &CompressedPrefix, end: Option<&[u8]>) -> Result<[Bytes; 2]> {
    let end = gzip::end(beginning, end.unwrap_or(END))?;
    Ok([beginning.bytes.clone(), end])
}
