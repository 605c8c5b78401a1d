//! A version of a table or view: its document, and the bytes of the responses that show it.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use iceberg::doc::TableDoc;
use iceberg::memory;
use iceberg::view::ViewDoc;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use super::gzip::{self, CompressedPrefix};
use super::text::{AnswerText, END, Frames};
use crate::error::{CatalogError, Result};
use crate::store::MetadataPointer;

/// Longest document that is compressed on the responding thread, in bytes; a longer one is
/// compressed on a blocking thread.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// Levels of compression: short documents are sent often, long ones change with every commit.
const LEVEL_SHORT: u32 = 6;
const LEVEL_LONG: u32 = 1;

/// Hexadecimal digits of an entity tag: 128 bits, so that two versions never share one by chance.
const ETAG_DIGITS: usize = 32;

/// Size of the counters of an `Arc`.
const ARC_BYTES: usize = 2 * size_of::<usize>();

/// Snapshots of a table that a response shows.
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

/// A version of a table or view.
pub struct CachedVersion {
    /// Version and location; `None` for a staged document.
    pub pointer: Option<MetadataPointer>,
    /// The document, whose parts are slices of the text of the response.
    pub doc: ParsedDocument,
    /// Entity tags as header values.
    weak_etags: [Bytes; 2],
    /// Local metadata file, once it was looked up; `None` inside if it is on another machine.
    file: OnceLock<Option<PathBuf>>,
    /// Time at which the store last confirmed this as the newest version; `None` if it is never
    /// queried.
    checked: Mutex<Option<Instant>>,
    all: DocumentForm,
    /// Form with the snapshots of branches and tags only; `None` inside if those are all.
    refs: OnceLock<Option<Box<DocumentForm>>>,
    growth: Mutex<EntryGrowth>,
}

/// A form of the document for responses.
#[derive(Debug)]
struct DocumentForm {
    text: AnswerText,
    gzip: OnceCell<CompressedPrefix>,
}

/// Bytes that an entry has grown by since it was created, and the account of the cache that they
/// are charged to.
#[derive(Debug, Default)]
struct EntryGrowth {
    bytes: usize,
    account: Option<Arc<AtomicUsize>>,
}

impl fmt::Debug for CachedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("pointer", &self.pointer).finish_non_exhaustive()
    }
}

impl DocumentForm {
    fn new(text: AnswerText) -> DocumentForm {
        DocumentForm { text, gzip: OnceCell::new() }
    }

    fn compress(&self, level: u32) -> Result<CompressedPrefix> {
        gzip::begin(&[self.text.head(), self.text.document()], level)
    }
}

impl CachedVersion {
    /// Creates an entry for a document whose parts are slices of this text.
    #[must_use]
    pub fn new(
        pointer: Option<MetadataPointer>,
        doc: ParsedDocument,
        text: AnswerText,
    ) -> CachedVersion {
        let weak_etags = weak_etags(pointer.as_ref());
        CachedVersion {
            doc,
            weak_etags,
            file: OnceLock::new(),
            checked: Mutex::default(),
            all: DocumentForm::new(text),
            refs: OnceLock::new(),
            growth: Mutex::default(),
            pointer,
        }
    }

    /// Returns the document of a table; `None` for a view.
    #[must_use]
    pub fn table(&self) -> Option<&Arc<TableDoc>> {
        match &self.doc {
            ParsedDocument::Table(doc) => Some(doc),
            ParsedDocument::View(_) => None,
        }
    }

    /// Returns the document of a view; `None` for a table.
    #[must_use]
    pub fn view(&self) -> Option<&Arc<ViewDoc>> {
        match &self.doc {
            ParsedDocument::Table(_) => None,
            ParsedDocument::View(doc) => Some(doc),
        }
    }

    /// Returns the metadata file; `None` for a staged document.
    #[must_use]
    pub fn location(&self) -> Option<&str> {
        self.pointer.as_ref().map(|pointer| &*pointer.location)
    }

    /// Returns whether its metadata file exists. `find` returns its path on this machine; a file
    /// elsewhere is assumed to exist. One system call.
    pub(crate) fn has_file(&self, find: impl FnOnce(&str) -> Option<PathBuf>) -> bool {
        let file = self.file.get_or_init(|| {
            let file = self.location().and_then(find);
            self.grow(file.as_ref().map_or(0, |path| memory::of_block(path.capacity())));
            file
        });
        let is_file = |path: &PathBuf| path.symlink_metadata().is_ok_and(|it| it.is_file());
        file.as_ref().is_none_or(is_file)
    }

    /// Returns whether the store confirmed less than `age` before `now` that this is the newest
    /// version.
    pub(crate) fn is_fresh(&self, now: Instant, age: Duration) -> bool {
        self.checked.lock().is_some_and(|at| now.saturating_duration_since(at) < age)
    }

    /// Records that the store confirmed at `now` that this is the newest version.
    pub(crate) fn set_fresh(&self, now: Instant) {
        *self.checked.lock() = Some(now);
    }

    /// Returns the document as it is in its file, with all snapshots.
    #[must_use]
    pub fn document(&self) -> &Bytes {
        self.all.text.document()
    }

    /// Returns an identifier of this version with this selection of snapshots: 32 hexadecimal
    /// digits, without quotes.
    #[must_use]
    pub fn etag(&self, snapshots: SnapshotSelection) -> &str {
        let tag = self.weak_etag(snapshots).get(WEAK.len()..WEAK.len() + ETAG_DIGITS);
        tag.and_then(|digits| str::from_utf8(digits).ok()).unwrap_or_default()
    }

    /// Returns the entity tag as a header value, with the mark of weakness and quotes.
    pub(crate) fn weak_etag(&self, snapshots: SnapshotSelection) -> &Bytes {
        match snapshots {
            SnapshotSelection::All => &self.weak_etags[0],
            SnapshotSelection::Refs => &self.weak_etags[1],
        }
    }

    /// Returns the response. `end` follows the document instead of `}`, and begins with a comma if
    /// it adds members: `,"config":{…}}`.
    #[must_use]
    pub fn frames(&self, snapshots: SnapshotSelection, end: Option<Bytes>) -> Frames {
        self.form(snapshots).text.frames(end)
    }

    /// Returns the response as one gzip member. The document is compressed once.
    ///
    /// # Errors
    /// `Internal` if `end` is longer than 64 KiB.
    pub async fn gzip(
        self: &Arc<CachedVersion>,
        snapshots: SnapshotSelection,
        end: Option<&[u8]>,
    ) -> Result<[Bytes; 2]> {
        let form = self.form(snapshots);
        let beginning = form.gzip.get_or_try_init(async || {
            let compressed = if form.text.document().len() <= INLINE_BYTES_MAX {
                form.compress(LEVEL_SHORT)?
            } else {
                let entry = Arc::clone(self);
                let compress = move || entry.form(snapshots).compress(LEVEL_LONG);
                node::task::blocking(compress).await.map_err(CatalogError::internal)??
            };
            self.grow(memory::of_shared(compressed.bytes.len()));
            Ok::<_, CatalogError>(compressed)
        });
        packed(beginning.await?, end)
    }

    /// Returns the compressed response, if the document was already compressed.
    #[must_use]
    pub fn gzip_at_hand(
        &self,
        snapshots: SnapshotSelection,
        end: Option<&[u8]>,
    ) -> Option<[Bytes; 2]> {
        packed(self.form(snapshots).gzip.get()?, end).ok()
    }

    /// Returns the bytes that the entry held when it was created, as reserved by the allocator.
    /// Later growth is charged to the account of its cache.
    #[must_use]
    pub fn weight(&self) -> usize {
        let doc = match &self.doc {
            ParsedDocument::Table(doc) => {
                memory::of_block(ARC_BYTES + size_of::<TableDoc>()) + doc.heap_bytes()
            }
            ParsedDocument::View(doc) => {
                memory::of_block(ARC_BYTES + size_of::<ViewDoc>()) + doc.heap_bytes()
            }
        };
        let pointer = self.pointer.as_ref().map_or(
            0,
            |MetadataPointer { id, uuid, base, location, .. }| {
                [id, uuid, base, location].into_iter().map(memory::of_text).sum()
            },
        );
        let etags = memory::of_shared(2 * self.weak_etags[0].len());
        memory::of_block(ARC_BYTES + size_of::<CachedVersion>())
            + doc
            + pointer
            + etags
            + self.all.text.heap_bytes()
    }

    /// Charges its past and future growth to the account of a cache. One cache at a time.
    pub(super) fn enter(&self, account: &Arc<AtomicUsize>) {
        let mut growth = self.growth.lock();
        if growth.account.is_none() {
            account.fetch_add(growth.bytes, Ordering::Relaxed);
            growth.account = Some(Arc::clone(account));
        }
    }

    /// Subtracts its growth from the account of the cache that it leaves.
    pub(super) fn leave(&self) {
        let mut growth = self.growth.lock();
        if let Some(account) = growth.account.take() {
            account.fetch_sub(growth.bytes, Ordering::Relaxed);
        }
    }

    /// Bytes that it has come to hold since it was made.
    pub(super) fn grown(&self) -> usize {
        self.growth.lock().bytes
    }

    pub(super) fn grow(&self, bytes: usize) {
        let mut growth = self.growth.lock();
        growth.bytes += bytes;
        if let Some(account) = &growth.account {
            account.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn form(&self, snapshots: SnapshotSelection) -> &DocumentForm {
        match (snapshots, &self.doc) {
            (SnapshotSelection::All, _) | (_, ParsedDocument::View(_)) => &self.all,
            (SnapshotSelection::Refs, ParsedDocument::Table(doc)) => {
                let form = self.refs.get_or_init(|| {
                    let form = self.form_of_refs(doc)?;
                    let box_bytes = memory::of_block(size_of::<DocumentForm>());
                    self.grow(box_bytes + form.text.heap_bytes());
                    Some(Box::new(form))
                });
                form.as_deref().unwrap_or(&self.all)
            }
        }
    }

    /// Returns the form with the snapshots of branches and tags; `None` if those are all.
    fn form_of_refs(&self, doc: &TableDoc) -> Option<DocumentForm> {
        let named = |id: i64| doc.refs.iter().any(|it| it.snapshot_id == id);
        if doc.snapshots.len() <= doc.refs.len()
            && doc.snapshots.iter().all(|snapshot| named(snapshot.id))
        {
            return None;
        }
        let head = self.all.text.head();
        let mut whole = head.to_vec();
        doc.put_refs(&mut whole);
        whole.extend_from_slice(END);
        Some(DocumentForm::new(AnswerText::of_whole(memory::frozen(whole), head.len())))
    }
}

/// Beginning of a weak entity tag (RFC 9110, section 8.8.3).
const WEAK: &str = "W/\"";

/// Returns the entity tags of the version of a pointer: with all snapshots, and with some. They
/// share one buffer.
fn weak_etags(pointer: Option<&MetadataPointer>) -> [Bytes; 2] {
    let etag = |mode: &[u8]| {
        let mut hash = Sha256::new();
        if let Some(pointer) = pointer {
            hash.update(pointer.id.as_bytes());
            hash.update(pointer.version.to_be_bytes());
            hash.update(pointer.location.as_bytes());
        }
        hash.update(mode);
        let digest = hash.finalize();
        node::hex::encode(&digest[..ETAG_DIGITS / 2])
    };
    let both = format!("{WEAK}{}\"{WEAK}{}\"", etag(b"all"), etag(b"refs"));
    let mut all = Bytes::from(both);
    let refs = all.split_off(all.len() / 2);
    [all, refs]
}

/// Returns a response of a compressed document and its end.
fn packed(beginning: &CompressedPrefix, end: Option<&[u8]>) -> Result<[Bytes; 2]> {
    let end = gzip::end(beginning, end.unwrap_or(END))?;
    Ok([beginning.bytes.clone(), end])
}
