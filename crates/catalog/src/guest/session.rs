//! An admitted guest, as its requests see it: its warehouse, its staged tables, and the memory for
//! its bodies.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use bytes::Bytes;
use iceberg::doc::TableDoc;
use iceberg::ident::TableIdent;
use node::fence::{EffectFence, EffectWay};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::exchange::{SandboxExchange, SandboxRequestObserver};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::service::{Catalog, CatalogPrincipal};
use crate::storage::TableScope;
use crate::store::no_such_warehouse;
use crate::warehouse::Warehouse;

/// Longest time for receiving a buffered body.
const BODY_TIME_MAX: Duration = Duration::from_secs(60);

/// Unit of accounting for the memory of bodies, in bytes.
const UNIT_BYTES: u64 = 1024;

/// Placeholder key in the settings of clients. It is no key, and is not checked.
const NO_KEY: &str = "granted";

/// Region in the settings of clients for files in a directory: clients need one, its value is
/// irrelevant.
const LOCAL_REGION: &str = "us-east-1";

/// Shortest bucket name: all services require longer names than the first segments of Iceberg's
/// paths.
const BUCKET_BYTES_MIN: usize = 3;

/// Most tables that a guest has staged and not created yet, whose files it may write. Older ones
/// are forgotten.
pub const STAGED_MAX: usize = 64;

/// An admitted guest, as its requests see it.
pub(crate) struct SandboxSession {
    pub(super) catalog: Catalog,
    /// Memory for the bodies of all guests.
    pub(super) all_bodies: Arc<Semaphore>,
    pub(super) who: CatalogPrincipal,
    pub(super) warehouse: Arc<str>,
    /// Id of the warehouse: another one may get its name later.
    pub(super) warehouse_id: Arc<str>,
    pub(super) address: String,
    pub(super) watch: Arc<dyn SandboxRequestObserver>,
    /// Blocks its effects after the server's lease has ended.
    pub(super) fence: EffectFence,
    pub(super) staged: Mutex<VecDeque<StagedTable>>,
    /// Memory for all of its bodies.
    pub(super) bodies: Arc<Semaphore>,
    /// Its reserved memory, independent of the shared one.
    pub(super) own_bodies: Arc<Semaphore>,
}

/// A staged table, and the locations of its files.
#[derive(Clone, Debug)]
pub(crate) struct StagedTable {
    pub(crate) ident: TableIdent,
    pub(crate) scope: TableScope,
}

/// A body in memory, with the permits for its size.
pub(crate) struct BufferedBody {
    pub(crate) bytes: Bytes,
    _room: Vec<OwnedSemaphorePermit>,
}

impl SandboxSession {
    /// Returns the principal.
    pub(crate) fn who(&self) -> &CatalogPrincipal {
        &self.who
    }

    /// Allows a request, or a part of one, while the server's lease is valid.
    ///
    /// # Errors
    /// `ServiceUnavailable` if the lease has ended.
    pub(crate) fn check_lease(&self) -> Result<()> {
        let checked = self.fence.check(EffectWay::Catalog);
        checked.map_err(|lost| CatalogError::new(ErrorReason::ServiceUnavailable, lost.to_string()))
    }

    /// Begins a request.
    pub(crate) fn exchange(&self, text: String) -> Arc<SandboxExchange> {
        Arc::new(SandboxExchange::new(text, Arc::clone(&self.watch)))
    }

    /// Returns the warehouse of the guest.
    ///
    /// # Errors
    /// `NoSuchWarehouse` if it was removed.
    pub(crate) fn warehouse(&self) -> Result<Arc<Warehouse>> {
        let found = self.catalog.warehouses().get(&self.warehouse)?;
        match *found.id() == self.warehouse_id {
            true => Ok(found),
            false => Err(no_such_warehouse(&self.warehouse)),
        }
    }

    /// Rejects the name of any other warehouse, whether it exists or not.
    ///
    /// # Errors
    /// `NoSuchWarehouse`.
    pub(crate) fn require_named(&self, name: &str) -> Result<()> {
        if *name == *self.warehouse {
            return self.warehouse().map(drop);
        }
        Err(no_such_warehouse(name))
    }

    /// Returns the settings by which clients reach files; empty for a warehouse whose files are not
    /// accessible here.
    pub(crate) fn file_settings(&self, warehouse: &Warehouse) -> Vec<(&'static str, String)> {
        if warehouse.storage().is_none() {
            return self.settings_of_requests(LOCAL_REGION);
        }
        let root = warehouse.root().split_once("://").map(|(_, rest)| rest).unwrap_or_default();
        let bucket = root.split('/').next().unwrap_or_default();
        let storage = warehouse.storage().filter(|_| bucket.len() >= BUCKET_BYTES_MIN);
        let Some(storage) = storage else { return Vec::new() };
        self.settings_of_requests(storage.region())
    }

    fn settings_of_requests(&self, region: &str) -> Vec<(&'static str, String)> {
        let region = region.to_owned();
        vec![
            ("client.region", region.clone()),
            ("s3.access-key-id", NO_KEY.to_owned()),
            ("s3.endpoint", self.address.clone()),
            ("s3.path-style-access", "true".to_owned()),
            ("s3.region", region),
            ("s3.secret-access-key", NO_KEY.to_owned()),
        ]
    }

    /// Returns whether the guest may write files of a warehouse: those in a directory are
    /// read-only.
    pub(crate) fn writes_files(&self, warehouse: &Warehouse) -> bool {
        warehouse.storage().is_some() && !self.file_settings(warehouse).is_empty()
    }

    /// Records a staged table, whose files are written before it is created.
    ///
    /// # Errors
    /// As in [`TableScope::of`].
    pub(crate) fn stage(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
        doc: &TableDoc,
    ) -> Result<()> {
        let staged = StagedTable { ident: ident.clone(), scope: TableScope::of(warehouse, doc)? };
        let mut all = self.staged.lock();
        all.retain(|it| it.ident != staged.ident);
        if all.len() >= STAGED_MAX {
            all.pop_front();
        }
        all.push_back(staged);
        Ok(())
    }

    /// Returns the staged table at an object's location.
    pub(super) fn staged_at(&self, bucket: &str, key: &str) -> Option<StagedTable> {
        self.staged.lock().iter().find(|it| it.scope.covers(bucket, key)).cloned()
    }

    /// Reads a body as a whole.
    ///
    /// # Errors
    /// `TooLarge`; `ServiceUnavailable` if too many are in memory; `BadRequest` if it is truncated.
    pub(crate) async fn read(
        &self,
        mut body: Body,
        exchange: &SandboxExchange,
        bytes_max: u64,
    ) -> Result<BufferedBody> {
        let seconds = BODY_TIME_MAX.as_secs();
        let late = || {
            CatalogError::new(
                ErrorReason::BadRequest,
                format!("the body did not come within {seconds} s"),
            )
        };
        let read = self.read_all(&mut body, exchange, bytes_max);
        tokio::time::timeout(BODY_TIME_MAX, read).await.map_err(|_| late())?
    }

    async fn read_all(
        &self,
        body: &mut Body,
        exchange: &SandboxExchange,
        bytes_max: u64,
    ) -> Result<BufferedBody> {
        let check = |bytes: u64| match bytes > bytes_max {
            true => {
                let message = format!("the body is larger than {bytes_max} bytes");
                Err(CatalogError::new(ErrorReason::TooLarge, message))
            }
            false => Ok(()),
        };
        check(body.size_hint().lower())?;
        let (mut bytes, mut room, mut has) = (Vec::new(), Vec::new(), 0);
        loop {
            let next = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx));
            let Some(frame) = next.await else { break };
            let frame = frame.map_err(|_| {
                CatalogError::new(ErrorReason::BadRequest, "the body is incomplete")
            })?;
            let Ok(piece) = frame.into_data() else { continue };
            exchange.sent(piece.len());
            let total = bytes.len().saturating_add(piece.len());
            let total = u64::try_from(total).unwrap_or(u64::MAX);
            check(total)?;
            let more = units(total).saturating_sub(has);
            if more > 0 {
                has += more;
                room.extend(self.room(more)?);
            }
            bytes.extend_from_slice(&piece);
        }
        // The body may have arrived slowly.
        self.check_lease()?;
        Ok(BufferedBody { bytes: bytes.into(), _room: room })
    }

    /// Reserves memory for more of a body: the guest's own, or shared memory.
    fn room(&self, count: usize) -> Result<[OwnedSemaphorePermit; 2]> {
        let refuse = || {
            CatalogError::new(
                ErrorReason::ServiceUnavailable,
                "too many request bodies are in memory",
            )
        };
        let counted = some(&self.bodies, count).ok_or_else(refuse)?;
        let taken = some(&self.own_bodies, count).or_else(|| some(&self.all_bodies, count));
        Ok([counted, taken.ok_or_else(refuse)?])
    }
}

pub(super) fn units(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(usize::MAX)
}

fn some(bodies: &Arc<Semaphore>, count: usize) -> Option<OwnedSemaphorePermit> {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    Arc::clone(bodies).try_acquire_many_owned(count).ok()
}
