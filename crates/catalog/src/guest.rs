//! The catalog for guests: clients of a dedicated socket, without a token, with the rights that
//! were set when the socket was opened.
//!
//! `/v1/` has Iceberg's own paths and no management. Every request is one of the guest's principal,
//! and authorized like any other. All other paths begin with a bucket and have the files of the
//! tables that the guest may see, by the part of S3's protocol that clients need for files
//! ([`files`]): so guests need no key, and receive none. Credentials that a client sends are
//! ignored.
//!
//! | file | what it is |
//! |---|---|
//! | `exchange` | one request, as it is counted and reported |
//! | `files` | requests for files |
//! | `local_files` | files of a directory of the server |
//! | `pieces` | bodies in S3's chunk format |

pub(crate) mod exchange;
mod files;
mod local_files;
mod pieces;
pub(crate) mod session;

/// Entries of the fuzz targets for bodies in S3's chunk format and for files of a directory.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use bytes::Bytes;

    use super::local_files::{RequestedRange, file_of};
    use super::pieces::ChunkedDecoder;

    /// Decodes a body that arrives in parts of `cut` bytes. Returns its content, and whether it is
    /// complete; `None` if it is malformed.
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

    /// Parses the path of a request for a file in a directory, and its range of a file with
    /// `length` bytes. Returns the location, and the range to send; `None` if it is rejected.
    pub fn file(path: &str, range: &str, length: u64) -> Option<(String, u64, u64)> {
        let file = file_of(path).ok()?;
        match RequestedRange::of(range, length) {
            RequestedRange::Whole => Some((file.to_string(), 0, length)),
            RequestedRange::Part(from, until) => Some((file.to_string(), from, until)),
            RequestedRange::Unsatisfiable => None,
        }
    }
}

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::{Extension, Router};
use iceberg::ident::NamespaceIdent;
use node::fence::EffectFence;
use node::http::{ListenerSite, ShellLimits, serve_one};
use node::task::Boxed;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

pub use self::exchange::{SandboxRequestObserver, SandboxRequestRecord};
pub use self::session::STAGED_MAX;
use self::session::{SandboxSession, units};
use crate::access::{AccessControl, GuestRights, TemporaryPrincipal};
use crate::service::{Catalog, CatalogPrincipal};
use crate::warehouse::Warehouse;

/// Most concurrent connections of one guest. Clients read several files at once.
pub const CONNECTIONS_MAX: usize = 64;

/// Most namespaces that one guest has access to.
pub const NAMESPACES_MAX: usize = 100;

/// Most bytes of bodies in memory, for one guest.
pub const BODIES_BYTES_MAX: u64 = 64 << 20;

/// Most bytes of bodies in memory, for all guests together.
pub const ALL_BODIES_BYTES_MAX: u64 = 256 << 20;

/// Bytes of bodies reserved for each guest, independent of other guests.
pub const OWN_BODIES_BYTES: u64 = 1 << 20;

/// Time after which an idle connection is closed.
const IDLE_TIME_MAX: Duration = Duration::from_secs(5 * 60);

/// A guest to admit.
#[derive(Clone, Debug)]
pub struct NewGuest {
    /// Tenant that owns it: its principal is `grant:` and this.
    pub tenant: Arc<str>,
    /// Name of the warehouse.
    pub warehouse: String,
    /// Namespaces, including everything below them, levels divided by `.`; all if the list is
    /// empty.
    pub namespaces: Vec<String>,
    /// True if it may make changes.
    pub writes: bool,
    /// Address at which the guest reaches the server: `http://127.0.0.1:8181`.
    pub address: String,
    /// Observes its requests.
    pub watch: Arc<dyn SandboxRequestObserver>,
    /// Blocks its effects after the server's lease has ended.
    pub fence: EffectFence,
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

/// Admits guests. Cheap to clone.
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

    /// Returns the names of the warehouses that guests could have access to, in order.
    #[must_use]
    pub fn warehouses(&self) -> Vec<String> {
        let mut names = self.0.catalog.warehouses().names();
        names.sort_unstable();
        names
    }

    /// Returns whether a guest could have this access.
    ///
    /// # Errors
    /// The invalid part: a warehouse that does not exist, or an invalid namespace.
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
        let found = match self.0.catalog.warehouses().get(warehouse) {
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

    /// Admits a guest, until the last copy of the returned listener is dropped.
    ///
    /// # Errors
    /// As in [`SandboxAccess::check`].
    pub fn open(
        &self,
        new: NewGuest,
    ) -> std::result::Result<Arc<CatalogSandboxListener>, SandboxAccessError> {
        let (warehouse, namespaces) = self.resolve(&new.warehouse, &new.namespaces)?;
        let rights =
            GuestRights { warehouse: &warehouse, namespaces: &namespaces, writes: new.writes };
        let admission = self.0.access.admit(&new.tenant, rights);
        let session = SandboxSession {
            catalog: self.0.catalog.clone(),
            all_bodies: Arc::clone(&self.0.bodies),
            who: admission.who().clone(),
            warehouse: Arc::clone(warehouse.name()),
            warehouse_id: Arc::clone(warehouse.id()),
            address: new.address,
            watch: new.watch,
            fence: new.fence,
            staged: Mutex::default(),
            bodies: Arc::new(Semaphore::new(units(BODIES_BYTES_MAX))),
            own_bodies: Arc::new(Semaphore::new(units(OWN_BODIES_BYTES))),
        };
        let session = Arc::new(session);
        let router = self.0.router.clone();
        let site = OnceLock::new();
        Ok(Arc::new(CatalogSandboxListener { _admission: admission, session, router, site }))
    }
}

/// Listener of one guest.
pub struct CatalogSandboxListener {
    _admission: TemporaryPrincipal,
    session: Arc<SandboxSession>,
    router: Router,
    /// Created with the first connection: most guests may have none.
    site: OnceLock<ListenerSite>,
}

impl fmt::Debug for CatalogSandboxListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogSandboxListener")
            .field("warehouse", &self.session.warehouse)
            .finish_non_exhaustive()
    }
}

impl CatalogSandboxListener {
    /// Returns the principal of the requests.
    #[must_use]
    pub fn who(&self) -> &CatalogPrincipal {
        self.session.who()
    }

    /// Serves one connection to its end. Dropping the future ends it; a change in progress is
    /// completed nevertheless.
    pub fn serve(self: Arc<Self>, stream: TcpStream) -> Boxed<'static, ()> {
        Box::pin(async move {
            let made = || {
                let router = self.router.clone();
                ListenerSite::from(router.layer(Extension(Arc::clone(&self.session))))
            };
            let site = self.site.get_or_init(made).clone();
            let limits = ShellLimits { header_read_max: IDLE_TIME_MAX, ..ShellLimits::default() };
            serve_one(stream, site, limits).await;
        })
    }
}
