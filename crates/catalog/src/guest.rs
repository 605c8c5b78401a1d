//! The catalog for guests: whoever comes in by a socket of his own, without a token, and may do
//! what was said when the socket was opened.
//!
//! Below `/v1/` are Iceberg's own paths and nothing of the management. Every request is one of the
//! guest's principal, and judged like those of all others. At all other paths, which begin with a
//! bucket, are the files of the tables that the guest may see, by as much of S3's protocol as
//! clients need for files ([`files`]): so they need no key, and there is none to be had. What a
//! client says of who it is, is not looked at.
//!
//! | file | what it is |
//! |---|---|
//! | `exchange` | one request, as it is counted and told |
//! | `files` | requests for files |
//! | `pieces` | bodies that are cut in S3's way |

mod exchange;
mod files;
mod pieces;

/// Entry of the fuzz target for bodies that are cut in S3's way.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use bytes::Bytes;

    use super::pieces::ChunkedDecoder;

    /// Puts a body together that arrives in parts of `cut` bytes. Answers its content, and whether
    /// that was all; none when the body is malformed.
    pub fn body(bytes: &[u8], cut: usize) -> Option<(Vec<u8>, bool)> {
        let (mut pieces, mut all) = (ChunkedDecoder::default(), Vec::new());
        for part in bytes.chunks(cut) {
            let mut part = Bytes::copy_from_slice(part);
            while let Some(piece) = pieces.next(&mut part).ok()? {
                all.extend_from_slice(&piece);
            }
        }
        Some((all, pieces.is_done()))
    }
}

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::AuditOutcome;
use axum::body::{Body, HttpBody as _};
use axum::{Extension, Router};
use bytes::Bytes;
use iceberg::doc::TableDoc;
use iceberg::ident::{NamespaceIdent, TableIdent};
use node::http::{ListenerSite, ShellLimits, serve_one};
use node::task::Boxed;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use self::exchange::{SandboxExchange, named};
use crate::access::{AccessControl, GuestRights, TemporaryPrincipal};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::service::{Catalog, CatalogPrincipal};
use crate::storage::TableScope;
use crate::store::no_such_warehouse;
use crate::warehouse::Warehouse;

/// Connections of one guest at one time. Clients read several files at once.
pub const CONNECTIONS_MAX: usize = 64;

/// Most namespaces that one guest is let in to.
pub const NAMESPACES_MAX: usize = 100;

/// Bytes of bodies in memory, of one guest.
pub const BODIES_BYTES_MAX: u64 = 64 << 20;

/// Maximum of all guests together, in bytes.
pub const ALL_BODIES_BYTES_MAX: u64 = 256 << 20;

/// Tables that a guest has staged and not made yet, whose files it may write. Older ones are
/// forgotten.
pub const STAGED_MAX: usize = 64;

/// Bytes of bodies that each guest has room for, whatever others have in memory.
pub const OWN_BODIES_BYTES: u64 = 1 << 20;

/// Longest time in which a body comes that is read as a whole.
const BODY_TIME_MAX: Duration = Duration::from_secs(60);

/// Time that a connection on which nothing happens is kept.
const IDLE_TIME_MAX: Duration = Duration::from_secs(5 * 60);

/// Unit in which the memory of bodies is counted, in bytes.
const UNIT_BYTES: u64 = 1024;

/// Placeholder of a key in what clients get. It is none, and nobody looks at it.
const NO_KEY: &str = "granted";

/// Shortest name of a bucket: those of all services are longer than what Iceberg's paths begin
/// with.
const BUCKET_BYTES_MIN: usize = 3;

/// Record of what a guest did.
#[derive(Clone, Copy, Debug)]
pub struct SandboxRequestRecord<'a> {
    /// The method and what it named.
    pub text: &'a str,
    /// The status of the answer; 0 when there was none.
    pub status: u16,
    /// Outcome.
    pub outcome: AuditOutcome,
    /// Why it failed or was refused.
    pub error: Option<&'a str>,
    /// Time that it took, to the last byte of the answer.
    pub took: Duration,
    /// Bytes that the guest sent.
    pub bytes_out: u64,
    /// Bytes that it got.
    pub bytes_in: u64,
}

/// Is told what a guest does. It never waits.
pub trait SandboxRequestObserver: Send + Sync + fmt::Debug {
    /// Takes what was done. Copies what it keeps.
    fn saw(&self, seen: &SandboxRequestRecord<'_>);
}

/// A guest that is to be let in.
#[derive(Clone, Debug)]
pub struct NewGuest {
    /// Tenant that owns it: its principal is `grant:` and this.
    pub tenant: Arc<str>,
    /// Name of the warehouse.
    pub warehouse: String,
    /// Namespaces with all that is below them, levels divided by `.`; all when there is none.
    pub namespaces: Vec<String>,
    /// True if it may change what is there.
    pub writes: bool,
    /// Address at which it reaches the server: `http://127.0.0.1:8181`.
    pub address: String,
    /// Is told what it does.
    pub watch: Arc<dyn SandboxRequestObserver>,
}

/// Error in the definition of a guest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct SandboxAccessError {
    /// Part that is wrong: `warehouse`, `namespaces[1]`.
    pub field: String,
    /// A sentence, lower case, no period.
    pub message: String,
}

/// Lets guests in. Cheap to clone.
#[derive(Clone)]
pub struct SandboxAccess(Arc<SandboxAccessShared>);

struct SandboxAccessShared {
    catalog: Catalog,
    access: AccessControl,
    router: Router,
    bodies: Arc<Semaphore>,
}

impl fmt::Debug for SandboxAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guests").finish_non_exhaustive()
    }
}

impl SandboxAccess {
    /// Creates the guests of a catalog, whose paths divide levels of namespaces by `separator`.
    #[must_use]
    pub fn new(catalog: Catalog, access: AccessControl, separator: &str) -> SandboxAccess {
        let router = crate::http::guest_routes(catalog.clone(), access.clone(), separator);
        let router = router.fallback(files::answer);
        let bodies = Arc::new(Semaphore::new(units(ALL_BODIES_BYTES_MAX)));
        SandboxAccess(Arc::new(SandboxAccessShared { catalog, access, router, bodies }))
    }

    /// Returns whether a guest could be let in to this.
    ///
    /// # Errors
    /// What is wrong: a warehouse that there is not, or what can be no namespace.
    pub fn check(
        &self,
        warehouse: &str,
        namespaces: &[String],
    ) -> std::result::Result<(), SandboxAccessError> {
        self.resolve(warehouse, namespaces).map(drop)
    }

    fn resolve(
        &self,
        warehouse: &str,
        namespaces: &[String],
    ) -> std::result::Result<(Arc<Warehouse>, Vec<NamespaceIdent>), SandboxAccessError> {
        let wrong = |field: String, message: String| Err(SandboxAccessError { field, message });
        let found = match self.0.catalog.warehouse(warehouse) {
            Ok(found) => found,
            Err(error) => return wrong("warehouse".to_owned(), error.message),
        };
        if namespaces.len() > NAMESPACES_MAX {
            return wrong("namespaces".to_owned(), format!("more than {NAMESPACES_MAX} of them"));
        }
        let mut idents = Vec::new();
        for (at, text) in namespaces.iter().enumerate() {
            match NamespaceIdent::new(text.split('.')) {
                Ok(ident) => idents.push(ident),
                Err(error) => return wrong(format!("namespaces[{at}]"), error.message),
            }
        }
        Ok((found, idents))
    }

    /// Lets a guest in, until the last copy of what is answered is dropped.
    ///
    /// # Errors
    /// As of [`Guests::check`].
    pub fn open(
        &self,
        new: NewGuest,
    ) -> std::result::Result<Arc<CatalogSandboxListener>, SandboxAccessError> {
        let (warehouse, namespaces) = self.resolve(&new.warehouse, &new.namespaces)?;
        let rights =
            GuestRights { warehouse: &warehouse, namespaces: &namespaces, writes: new.writes };
        let admission = self.0.access.admit(&new.tenant, rights);
        let visit = SandboxSession {
            shared: Arc::clone(&self.0),
            who: admission.who().clone(),
            warehouse: Arc::clone(warehouse.name()),
            warehouse_id: Arc::clone(warehouse.id()),
            address: new.address,
            watch: new.watch,
            staged: Mutex::default(),
            bodies: Arc::new(Semaphore::new(units(BODIES_BYTES_MAX))),
            own_bodies: Arc::new(Semaphore::new(units(OWN_BODIES_BYTES))),
        };
        let visit = Arc::new(visit);
        Ok(Arc::new(CatalogSandboxListener { _admission: admission, visit, site: OnceLock::new() }))
    }
}

/// Listener of one guest.
pub struct CatalogSandboxListener {
    _admission: TemporaryPrincipal,
    visit: Arc<SandboxSession>,
    /// Made for the first connection: most guests may have none.
    site: OnceLock<ListenerSite>,
}

impl fmt::Debug for CatalogSandboxListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("warehouse", &self.visit.warehouse).finish_non_exhaustive()
    }
}

impl CatalogSandboxListener {
    /// Returns whose requests come in here.
    #[must_use]
    pub fn who(&self) -> &CatalogPrincipal {
        self.visit.who()
    }

    /// Serves one connection to its end. Dropping the future ends it; a change that has begun is
    /// ended by itself.
    pub fn serve(self: Arc<Self>, stream: TcpStream) -> Boxed<'static, ()> {
        Box::pin(async move {
            let made = || {
                let router = self.visit.shared.router.clone();
                ListenerSite::from(router.layer(Extension(Arc::clone(&self.visit))))
            };
            let site = self.site.get_or_init(made).clone();
            let limits = ShellLimits { header_read_max: IDLE_TIME_MAX, ..ShellLimits::default() };
            serve_one(stream, site, limits).await;
        })
    }
}

/// A guest that is there, as its requests know it.
pub(crate) struct SandboxSession {
    shared: Arc<SandboxAccessShared>,
    who: CatalogPrincipal,
    warehouse: Arc<str>,
    /// Another warehouse may have the name one day.
    warehouse_id: Arc<str>,
    address: String,
    watch: Arc<dyn SandboxRequestObserver>,
    staged: Mutex<VecDeque<StagedTable>>,
    /// For all of its bodies.
    bodies: Arc<Semaphore>,
    /// For those that need nothing of what all share.
    own_bodies: Arc<Semaphore>,
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

    /// Begins a request.
    pub(crate) fn exchange(&self, text: String) -> Arc<SandboxExchange> {
        Arc::new(SandboxExchange::new(text, Arc::clone(&self.watch)))
    }

    /// The warehouse that it was let in to.
    ///
    /// # Errors
    /// `NoSuchWarehouse` when it is gone.
    pub(crate) fn warehouse(&self) -> Result<Arc<Warehouse>> {
        let found = self.shared.catalog.warehouse(&self.warehouse)?;
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
        let root = warehouse.root().split_once("://").map(|(_, rest)| rest).unwrap_or_default();
        let bucket = root.split('/').next().unwrap_or_default();
        let storage = warehouse.storage().filter(|_| bucket.len() >= BUCKET_BYTES_MIN);
        let Some(storage) = storage else { return Vec::new() };
        let region = storage.region().to_owned();
        vec![
            ("client.region", region.clone()),
            ("s3.access-key-id", NO_KEY.to_owned()),
            ("s3.endpoint", self.address.clone()),
            ("s3.path-style-access", "true".to_owned()),
            ("s3.region", region),
            ("s3.secret-access-key", NO_KEY.to_owned()),
        ]
    }

    /// Returns whether files of a warehouse are reached from here.
    pub(crate) fn reaches_files(&self, warehouse: &Warehouse) -> bool {
        !self.file_settings(warehouse).is_empty()
    }

    /// Notes a table that is staged, whose files come before it.
    ///
    /// # Errors
    /// As of [`Scope::of`].
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
    fn staged_at(&self, bucket: &str, key: &str) -> Option<StagedTable> {
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
        let taken = some(&self.own_bodies, count).or_else(|| some(&self.shared.bodies, count));
        Ok([counted, taken.ok_or_else(refuse)?])
    }
}

fn units(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(usize::MAX)
}

fn some(bodies: &Arc<Semaphore>, count: usize) -> Option<OwnedSemaphorePermit> {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    Arc::clone(bodies).try_acquire_many_owned(count).ok()
}
