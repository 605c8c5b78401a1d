//! Limits on a tenant's storage, and on the use of this server's disk.
//!
//! A sandbox writes to its disk without asking, so these limits apply to creation: a tenant at its
//! limit gets nothing new, and its existing disks can grow to their size, whose sum is limited as
//! well. Measurements are cached for some seconds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use node::clock;
use node::current::CurrentSettings;
use parking_lot::Mutex;

use super::cluster::ClusterPlace;
use super::limits;
use crate::config::SessionsConfig;
use crate::error::SessionError;
use crate::store::SessionStore;
use crate::workspace::WorkspaceStore;

/// Maximum age of a cached count.
const COUNT_AGE: Duration = Duration::from_secs(10);
/// Maximum age of a count that would cause a rejection, so that recent removals are considered.
const RECOUNT_AGE: Duration = Duration::from_millis(500);
/// Maximum age of the cached free space.
const FREE_AGE: Duration = Duration::from_secs(1);
/// Maximum number of tenants with a cached count.
const COUNTED_TENANTS_MAX: usize = 10_000;

/// Storage of a tenant at the last count.
#[derive(Clone, Copy, Debug)]
struct StorageCount {
    /// Bytes that it uses.
    stored: u64,
    /// Sum of the sizes of its disks.
    declared: u64,
    at: Instant,
}

/// Free space of the disk at the last measurement.
#[derive(Clone, Copy, Debug)]
struct FreeSpace {
    bytes: u64,
    at: Instant,
}

/// Storage that a request is about to take.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StorageRequest {
    /// Bytes, if known.
    pub(super) stored: u64,
    /// Sum of the sizes of new disks.
    pub(super) declared: u64,
}

/// Limits on tenants' storage and on this server's disk.
pub(crate) struct StorageQuota {
    config: CurrentSettings<SessionsConfig>,
    cluster: Arc<ClusterPlace>,
    store: SessionStore,
    workspaces: WorkspaceStore,
    /// Storage of tenants at the last count.
    counts: Mutex<HashMap<String, StorageCount>>,
    /// Free space of this server's disk at the last measurement.
    free: Mutex<Option<FreeSpace>>,
}

impl StorageQuota {
    pub(super) fn new(
        config: CurrentSettings<SessionsConfig>,
        cluster: Arc<ClusterPlace>,
        store: SessionStore,
        workspaces: WorkspaceStore,
    ) -> Arc<StorageQuota> {
        let (counts, free) = (Mutex::default(), Mutex::default());
        Arc::new(StorageQuota { config, cluster, store, workspaces, counts, free })
    }

    /// Rejects new storage for a tenant that has reached its limit, and anything new on a disk that
    /// is almost full.
    ///
    /// # Errors
    /// `TooMany` and `DiskFull`, each naming the setting.
    pub(super) async fn check(
        &self,
        tenant: &str,
        more: StorageRequest,
    ) -> Result<(), SessionError> {
        self.check_free().await?;
        let mut count = self.count(tenant, COUNT_AGE).await?;
        if self.refuse(&count, more).is_err() {
            count = self.count(tenant, RECOUNT_AGE).await?;
        }
        self.refuse(&count, more)?;
        if let Some(count) = self.counts.lock().get_mut(tenant) {
            count.stored = count.stored.saturating_add(more.stored);
            count.declared = count.declared.saturating_add(more.declared);
        }
        Ok(())
    }

    /// Rejects writes to a disk that is almost full, including the store's rows.
    ///
    /// # Errors
    /// `DiskFull`, naming the setting.
    pub(super) async fn check_free(&self) -> Result<(), SessionError> {
        let (least, now) = (self.config.now().disk_free_bytes_min, clock::now());
        let known = *self.free.lock();
        let is_fresh = |free: &FreeSpace| now.saturating_duration_since(free.at) < FREE_AGE;
        let bytes = match known.filter(is_fresh) {
            Some(free) => free.bytes,
            None => {
                let bytes = self.workspaces.free_bytes().await?;
                *self.free.lock() = Some(FreeSpace { bytes, at: now });
                bytes
            }
        };
        match bytes < least {
            true => Err(SessionError::DiskFull(format!(
                "the server's disk is almost full: {bytes} bytes are free, and nothing new is \
                 made below {least} (sessions.disk_free_bytes_min)"
            ))),
            false => Ok(()),
        }
    }

    fn refuse(&self, count: &StorageCount, more: StorageRequest) -> Result<(), SessionError> {
        let most = self.config.now().stored_bytes_max_per_tenant;
        // At the limit, even a request of unknown size is rejected, because it will need some
        // bytes.
        if count.stored >= most || count.stored.saturating_add(more.stored) > most {
            return Err(SessionError::TooMany(format!(
                "the tenant keeps {} bytes, and may keep {most} \
                 (sessions.stored_bytes_max_per_tenant); remove something first",
                count.stored
            )));
        }
        let most = self.config.now().disk_bytes_max_per_tenant;
        if count.declared.saturating_add(more.declared) > most {
            return Err(SessionError::TooMany(format!(
                "the disks of the tenant's sessions have {} bytes together, and may have {most} \
                 (sessions.disk_bytes_max_per_tenant); end sessions first, or ask for smaller disks",
                count.declared
            )));
        }
        Ok(())
    }

    async fn count(&self, tenant: &str, age_max: Duration) -> Result<StorageCount, SessionError> {
        let now = clock::now();
        let known = self.counts.lock().get(tenant).copied();
        if let Some(known) = known
            && now.saturating_duration_since(known.at) < age_max
        {
            return Ok(known);
        }
        let rows = self.store.stored_by(tenant, self.cluster.server()).await?;
        let on_disks = self.workspaces.disks_bytes(rows.disks).await?;
        let declared = rows.limits.iter().map(|it| limits::disk_size(&self.config.now(), it).bytes);
        let count = StorageCount {
            stored: rows.bytes.saturating_add(on_disks),
            declared: declared.fold(0, u64::saturating_add),
            at: now,
        };
        let mut counts = self.counts.lock();
        if counts.len() >= COUNTED_TENANTS_MAX {
            counts.clear();
        }
        counts.insert(tenant.to_owned(), count);
        Ok(count)
    }
}
