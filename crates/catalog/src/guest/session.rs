//! A guest that is let in, as its requests know it: its warehouse, the tables that it staged, and
//! the memory of its bodies.

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

/// Longest time in which a body comes that is read as a whole.
const BODY_TIME_MAX: Duration = Duration::from_secs(60);

/// Unit in which the memory of bodies is counted, in bytes.
const UNIT_BYTES: u64 = 1024;

/// Placeholder of a key in what clients get. It is none, and nobody looks at it.
const NO_KEY: &str = "granted";

/// Region that clients are told of where files are in a directory: they need one, whichever it is.
const LOCAL_REGION: &str = "us-east-1";

/// Shortest name of a bucket: those of all services are longer than what Iceberg's paths begin
/// with.
const BUCKET_BYTES_MIN: usize = 3;

/// Tables that a guest has staged and not made yet, whose files it may write. Older ones are
/// forgotten.
pub const STAGED_MAX: usize = 64;

/// A guest that is there, as its requests know it.
pub(crate) struct SandboxSession {
    pub(super) catalog: Catalog,
    /// For the bodies of all guests.
    pub(super) all_bodies: Arc<Semaphore>,
    pub(super) who: CatalogPrincipal,
    pub(super) warehouse: Arc<str>,
    /// Another warehouse may have the name one day.
    pub(super) warehouse_id: Arc<str>,
    pub(super) address: String,
    pub(super) watch: Arc<dyn SandboxRequestObserver>,
    /// Lets it do nothing after the server's lease.
    pub(super) fence: EffectFence,
    pub(super) staged: Mutex<VecDeque<StagedTable>>,
    /// For all of its bodies.
    pub(super) bodies: Arc<Semaphore>,
    /// For those that need nothing of what all share.
    pub(super) own_bodies: Arc<Semaphore>,
}

/// A table that was staged, and where its files are to be.
#[derive(Clone, Debug)]
pub(crate) struct StagedTable {
    pub(crate) ident: TableIdent,
    pub(crate) scope: TableScope,
}

/// A body, and its place among those in memory.
pub(crate) struct BufferedBody {
    pub(crate) bytes: Bytes,
    _room: Vec<OwnedSemaphorePermit>,
}

impl SandboxSession {
    /// Returns who it is.
    pub(crate) fn who(&self) -> &CatalogPrincipal {
        &self.who
    }

    /// Lets a request, or a piece of one, pass while the server's lease holds.
    ///
    /// # Errors
    /// `ServiceUnavailable` when it has ended.
    pub(crate) fn check_lease(&self) -> Result<()> {
        let checked = self.fence.check(EffectWay::Catalog);
        checked.map_err(|lost| CatalogError::new(ErrorReason::ServiceUnavailable, lost.to_string()))
    }

    /// Begins a request.
    pub(crate) fn exchange(&self, text: String) -> Arc<SandboxExchange> {
        Arc::new(SandboxExchange::new(text, Arc::clone(&self.watch)))
    }

    /// The warehouse that it was let in to.
    ///
    /// # Errors
    /// `NoSuchWarehouse` when it is gone.
    pub(crate) fn warehouse(&self) -> Result<Arc<Warehouse>> {
        let found = self.catalog.warehouses().get(&self.warehouse)?;
        match *found.id() == self.warehouse_id {
            true => Ok(found),
            false => Err(no_such_warehouse(&self.warehouse)),
        }
    }

    /// Refuses the name of any other warehouse, whether there is one or not.
    ///
    /// # Errors
    /// `NoSuchWarehouse`.
    pub(crate) fn require_named(&self, name: &str) -> Result<()> {
        if *name == *self.warehouse {
            return self.warehouse().map(drop);
        }
        Err(no_such_warehouse(name))
    }

    /// Returns what clients have to know to get at files: nothing of a warehouse whose files they
    /// cannot get at here.
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

    /// Returns whether files of a warehouse are written from here: those of a directory are only
    /// read.
    pub(crate) fn writes_files(&self, warehouse: &Warehouse) -> bool {
        warehouse.storage().is_some() && !self.file_settings(warehouse).is_empty()
    }

    /// Notes a table that is staged, whose files come before it.
    ///
    /// # Errors
    /// As of [`TableScope::of`].
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

    /// The table that is staged where an object is.
    pub(super) fn staged_at(&self, bucket: &str, key: &str) -> Option<StagedTable> {
        self.staged.lock().iter().find(|it| it.scope.covers(bucket, key)).cloned()
    }

    /// Reads a body as a whole.
    ///
    /// # Errors
    /// `TooLarge`; `ServiceUnavailable` when too many are in memory; `BadRequest` when it breaks
    /// off.
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
        // It may have come slowly.
        self.check_lease()?;
        Ok(BufferedBody { bytes: bytes.into(), _room: room })
    }

    /// Room for more of a body: the guest's own, or of what all share.
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
