//! Files that callers store on the server between requests, each owned by its tenant.
//!
//! Content is in sealed anonymous files: nothing is written to a disk, programs get a copy made by
//! the kernel, and a file that is deleted while a program receives it stays complete for that
//! program.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use sandbox::SharedFile;

use super::config::GojudgeConfig;

/// Random bytes of an id: enough that ids cannot be guessed.
const ID_BYTES: usize = 15;
/// Longest name of a file; longer names are cut.
const NAME_BYTES_MAX: usize = 255;

/// Why a file was not stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileStoreError {
    /// The file is too large.
    #[error("the file is larger than {0} bytes")]
    FileTooLarge(u64),
    /// This tenant has reached its limit.
    #[error("this token has {0} stored already; delete some files first")]
    TenantFull(String),
    /// All tenants together have reached the limit.
    #[error("the server has {0} stored already")]
    Full(String),
    /// The kernel provided no memory, descriptor or random bytes.
    #[error("the file cannot be stored")]
    Io(#[from] io::Error),
}

/// A file's name and content.
#[derive(Debug)]
pub(super) struct KeptFile {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
}

/// The stored files of all tenants. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct FileStore {
    shared: Arc<FileStoreShared>,
}

#[derive(Debug)]
struct FileStoreShared {
    bounds: FileStoreBounds,
    /// All files that have an id.
    files: Mutex<HashMap<String, StoredFile>>,
    /// All existing files: a deleted file exists while a request uses it. Locked after `files`,
    /// never before.
    counts: Arc<Mutex<FileStoreCounts>>,
}

#[derive(Debug)]
struct FileStoreBounds {
    files_per_tenant: usize,
    files: usize,
    file_bytes: u64,
    bytes_per_tenant: u64,
    bytes: u64,
    ttl: Option<Duration>,
}

#[derive(Debug, Default)]
struct FileStoreCounts {
    total: TenantFileUsage,
    /// Tenants without files have no entry.
    per_tenant: HashMap<Arc<str>, TenantFileUsage>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TenantFileUsage {
    files: usize,
    bytes: u64,
}

#[derive(Debug)]
struct StoredFile {
    tenant: Arc<str>,
    name: String,
    content: Arc<SharedFile>,
    since: Instant,
}

/// Room reserved for one file.
#[derive(Debug)]
pub(super) struct FileReservation {
    shared: Arc<FileStoreShared>,
    share: FileCharge,
}

/// Room of a file, released on drop with the last reference to the file.
#[derive(Debug)]
struct FileCharge {
    counts: Arc<Mutex<FileStoreCounts>>,
    tenant: Arc<str>,
    bytes: u64,
}

impl FileStore {
    pub(super) fn new(config: &GojudgeConfig) -> FileStore {
        let bounds = FileStoreBounds {
            files_per_tenant: config.stored_files_max_per_tenant,
            files: config.stored_files_max,
            file_bytes: config.stored_file_bytes_max,
            bytes_per_tenant: config.stored_bytes_max_per_tenant,
            bytes: config.stored_bytes_max,
            ttl: config.stored_file_ttl_s.map(Duration::from_secs),
        };
        FileStore {
            shared: Arc::new(FileStoreShared {
                bounds,
                files: Mutex::default(),
                counts: Arc::default(),
            }),
        }
    }

    /// Reserves room for an empty file, to grow while its content arrives.
    pub(super) fn reserve(
        &self,
        tenant: &str,
        now: Instant,
    ) -> Result<FileReservation, FileStoreError> {
        drop(self.files(now));
        let FileStoreShared { bounds, counts, .. } = &*self.shared;
        let mut kept = counts.lock();
        let of_tenant = kept.per_tenant.get(tenant).map_or(0, |usage| usage.files);
        if of_tenant >= bounds.files_per_tenant {
            return Err(FileStoreError::TenantFull(format!("{of_tenant} files")));
        }
        if kept.total.files >= bounds.files {
            return Err(FileStoreError::Full(format!("{} files", kept.total.files)));
        }
        let tenant: Arc<str> = match kept.per_tenant.get_key_value(tenant) {
            Some((known, _)) => Arc::clone(known),
            None => tenant.into(),
        };
        kept.total.files += 1;
        kept.per_tenant.entry(Arc::clone(&tenant)).or_default().files += 1;
        let share = FileCharge { counts: Arc::clone(counts), tenant, bytes: 0 };
        Ok(FileReservation { shared: Arc::clone(&self.shared), share })
    }

    /// Returns all files that have an id now.
    fn files(&self, now: Instant) -> MutexGuard<'_, HashMap<String, StoredFile>> {
        let mut files = self.shared.files.lock();
        if let Some(ttl) = self.shared.bounds.ttl {
            files.retain(|_, entry| now.saturating_duration_since(entry.since) < ttl);
        }
        files
    }

    /// Stores bytes; returns their id.
    pub(super) fn add(
        &self,
        tenant: &str,
        name: &str,
        content: &[u8],
        now: Instant,
    ) -> Result<String, FileStoreError> {
        let mut room = self.reserve(tenant, now)?;
        room.grow(content.len())?;
        room.fill(name, content, now)
    }

    /// Keeps bytes without an id, within this tenant's limit, as long as the file is referenced.
    pub(super) fn borrow(
        &self,
        tenant: &str,
        content: &[u8],
        now: Instant,
    ) -> Result<Arc<SharedFile>, FileStoreError> {
        let mut room = self.reserve(tenant, now)?;
        room.grow(content.len())?;
        Ok(Arc::new(SharedFile::from_bytes(content)?.with_guard(room.share)))
    }

    /// Returns a file of this tenant with its name.
    pub(super) fn get(
        &self,
        tenant: &str,
        id: &str,
        now: Instant,
    ) -> Option<(String, Arc<SharedFile>)> {
        let files = self.files(now);
        let entry = files.get(id).filter(|entry| *entry.tenant == *tenant)?;
        Some((entry.name.clone(), Arc::clone(&entry.content)))
    }

    /// Returns the names of all files of this tenant by id.
    pub(super) fn list(&self, tenant: &str, now: Instant) -> BTreeMap<String, String> {
        let files = self.files(now);
        let own = files.iter().filter(|(_, entry)| *entry.tenant == *tenant);
        own.map(|(id, entry)| (id.clone(), entry.name.clone())).collect()
    }

    /// Removes a file of this tenant; returns whether it existed.
    pub(super) fn remove(&self, tenant: &str, id: &str, now: Instant) -> bool {
        let mut files = self.files(now);
        let is_own = files.get(id).is_some_and(|entry| *entry.tenant == *tenant);
        is_own && files.remove(id).is_some()
    }
}

impl FileReservation {
    /// Reserves room for `more` bytes.
    pub(super) fn grow(&mut self, more: usize) -> Result<(), FileStoreError> {
        let FileReservation { shared, share } = self;
        let bounds = &shared.bounds;
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        if share.bytes.saturating_add(more) > bounds.file_bytes {
            return Err(FileStoreError::FileTooLarge(bounds.file_bytes));
        }
        let mut kept = share.counts.lock();
        let total = kept.total.bytes;
        let of_tenant = kept.per_tenant.get(&share.tenant).map_or(0, |usage| usage.bytes);
        if of_tenant.saturating_add(more) > bounds.bytes_per_tenant {
            return Err(FileStoreError::TenantFull(format!("{of_tenant} bytes")));
        }
        if total.saturating_add(more) > bounds.bytes {
            return Err(FileStoreError::Full(format!("{total} bytes")));
        }
        kept.total.bytes += more;
        if let Some(usage) = kept.per_tenant.get_mut(&share.tenant) {
            usage.bytes += more;
        }
        share.bytes += more;
        Ok(())
    }

    /// Stores the content of a file; the reserved room must be as large as the content.
    pub(super) fn fill(
        self,
        name: &str,
        content: &[u8],
        now: Instant,
    ) -> Result<String, FileStoreError> {
        let FileReservation { shared, share } = self;
        debug_assert_eq!(
            u64::try_from(content.len()).ok(),
            Some(share.bytes),
            "the room fits the content"
        );
        let id = new_id()?;
        let name = name.get(..name.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or(name).to_owned();
        let tenant = Arc::clone(&share.tenant);
        let content = Arc::new(SharedFile::from_bytes(content)?.with_guard(share));
        shared.files.lock().insert(id.clone(), StoredFile { tenant, name, content, since: now });
        Ok(id)
    }
}

impl Drop for FileCharge {
    fn drop(&mut self) {
        self.counts.lock().subtract(&self.tenant, self.bytes);
    }
}

impl FileStoreCounts {
    fn subtract(&mut self, tenant: &str, bytes: u64) {
        self.total.files = self.total.files.saturating_sub(1);
        self.total.bytes = self.total.bytes.saturating_sub(bytes);
        if let Some(usage) = self.per_tenant.get_mut(tenant) {
            usage.files = usage.files.saturating_sub(1);
            usage.bytes = usage.bytes.saturating_sub(bytes);
            if usage.files == 0 {
                self.per_tenant.remove(tenant);
            }
        }
    }
}

/// Letters and digits, as in go-judge, but enough of them that ids cannot be guessed.
fn new_id() -> io::Result<String> {
    const DIGITS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut random = [0; ID_BYTES];
    getrandom::fill(&mut random).map_err(io::Error::from)?;
    let mut id = String::with_capacity(ID_BYTES * 8 / 5);
    for five in random.chunks(5) {
        let mut bytes = [0; 8];
        for (to, from) in bytes.iter_mut().skip(3).zip(five) {
            *to = *from;
        }
        let number = u64::from_be_bytes(bytes);
        for place in (0..8).rev() {
            let digit = (number >> (5 * place)).to_le_bytes()[0] & 31;
            id.push(char::from(DIGITS[usize::from(digit)]));
        }
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use node::clock;

    use super::*;

    fn store(change: impl FnOnce(&mut GojudgeConfig)) -> FileStore {
        let mut config = GojudgeConfig::default();
        change(&mut config);
        FileStore::new(&config)
    }

    #[test]
    fn a_file_is_its_tenant_s_alone() {
        let (store, now) = (store(|_| {}), clock::now());
        let id = store.add("a", "x.bin", b"\0\xff", now).unwrap();
        assert_eq!(id.len(), 24);
        let (name, content) = store.get("a", &id, now).unwrap();
        assert_eq!((name.as_str(), content.read().unwrap()), ("x.bin", b"\0\xff".to_vec()));
        assert!(store.get("b", &id, now).is_none() && store.list("b", now).is_empty());
        assert!(!store.remove("b", &id, now));
        assert_eq!(store.list("a", now), BTreeMap::from([(id.clone(), "x.bin".to_owned())]));
        assert!(store.remove("a", &id, now) && !store.remove("a", &id, now));
        assert!(store.get("a", &id, now).is_none());
        // A deleted file counts while it is referenced.
        assert_eq!(store.shared.counts.lock().total, TenantFileUsage { files: 1, bytes: 2 });
        assert_eq!(content.read().unwrap(), b"\0\xff");
        drop(content);
        assert_eq!(store.shared.counts.lock().total, TenantFileUsage::default());
        assert!(store.shared.counts.lock().per_tenant.is_empty());
    }

    #[test]
    fn every_bound_holds_and_what_is_given_back_can_be_used_again() {
        let now = clock::now();
        let check = |store: &FileStore, tenant: &str, bytes: usize, says: Option<&str>| {
            let result = store.add(tenant, "f", &vec![b'x'; bytes], now);
            match (result, says) {
                (Ok(_), None) => {}
                (Err(error), Some(says)) => assert!(error.to_string().contains(says), "{error}"),
                (result, _) => panic!("{tenant} {bytes}: {result:?}"),
            }
        };
        let small = store(|config| {
            config.stored_files_max_per_tenant = 2;
            config.stored_files_max = 3;
            config.stored_file_bytes_max = 10;
            config.stored_bytes_max_per_tenant = 15;
            config.stored_bytes_max = 20;
        });
        check(&small, "a", 11, Some("larger than 10 bytes"));
        check(&small, "a", 10, None);
        check(&small, "a", 6, Some("has 10 bytes stored"));
        check(&small, "a", 5, None);
        check(&small, "a", 0, Some("has 2 files stored"));
        check(&small, "b", 6, Some("server has 15 bytes"));
        check(&small, "b", 5, None);
        check(&small, "c", 0, Some("server has 3 files"));
        let id = small.list("a", now).into_keys().next().unwrap();
        assert!(small.remove("a", &id, now));
        check(&small, "c", 0, None);
    }

    #[test]
    fn deleting_what_a_request_has_makes_no_room() {
        let (store, now) = (store(|config| config.stored_bytes_max_per_tenant = 10), clock::now());
        let id = store.add("a", "f", &[0; 6], now).unwrap();
        let (_, content) = store.get("a", &id, now).unwrap();
        assert!(store.remove("a", &id, now));
        assert!(matches!(store.add("a", "f", &[0; 6], now), Err(FileStoreError::TenantFull(_))));
        drop(content);
        assert!(store.add("a", "f", &[0; 6], now).is_ok());
    }

    #[test]
    fn a_file_that_does_not_come_leaves_nothing() {
        let (store, now) = (store(|_| {}), clock::now());
        let mut room = store.reserve("a", now).unwrap();
        room.grow(5).unwrap();
        assert_eq!(store.shared.counts.lock().total, TenantFileUsage { files: 1, bytes: 5 });
        drop(room);
        assert_eq!(store.shared.counts.lock().total, TenantFileUsage::default());
    }

    #[test]
    fn files_go_when_their_time_is_over() {
        let (store, now) = (store(|config| config.stored_file_ttl_s = Some(60)), clock::now());
        let id = store.add("a", "f", b"1", now).unwrap();
        assert!(store.get("a", &id, now + Duration::from_secs(59)).is_some());
        assert!(store.get("a", &id, now + Duration::from_secs(60)).is_none());
        assert_eq!(store.shared.counts.lock().total, TenantFileUsage::default());
    }
}
