//! Admission of sandboxes: each takes a place on the books before it is made, and others may have
//! to give way for that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use node::auth::TokenRegistry;
use node::clock;
use node::current::CurrentSettings;
use node::task::Boxed;
use tokio::time;

use super::books::{CapacityRefusal, EvictionDuty, PlaceRequest, ResidentKey, ResidentLedger};
use super::shared::SharedParts;
use crate::config::SessionsConfig;
use crate::error::SessionError;
use crate::metrics::{SandboxEvent, SessionCounters};

/// Longest that a request for a sandbox waits for those that are just being made: some of them may
/// be brought from the object store, which takes longer than a caller is to wait for an answer.
const ADMISSION_MAX: Duration = Duration::from_secs(5);
/// First of the numbers of sandboxes in which versions and layers are made, apart from those that
/// are ready.
const BUILDS_FROM: u64 = 1 << 62;

/// Ends what gave way to another sandbox.
pub(super) trait SandboxEviction: Send + Sync {
    /// Does what has to be done for a place to be free.
    fn perform(self: Arc<Self>, duty: EvictionDuty) -> Boxed<'static, ()>;
}

/// Places of sandboxes.
pub(crate) struct SandboxAdmission {
    config: CurrentSettings<SessionsConfig>,
    books: Arc<ResidentLedger>,
    metrics: Arc<SessionCounters>,
    /// Tokens of the server: places are kept for other tenants where there are others.
    tokens: Option<TokenRegistry>,
    /// Weak, because the code that ends sandboxes also requests places.
    eviction: OnceLock<Weak<dyn SandboxEviction>>,
    /// Numbers the sandboxes in which versions of agents and layers of templates are made.
    builds: AtomicU64,
}

/// Place of a sandbox in which a version or a layer is made. Dropping it gives it back.
pub(super) struct BuildPlace {
    books: Arc<ResidentLedger>,
    key: ResidentKey,
}

impl Drop for BuildPlace {
    fn drop(&mut self) {
        self.books.remove(&self.key);
    }
}

impl SandboxAdmission {
    pub(super) fn new(shared: &SharedParts, tokens: Option<TokenRegistry>) -> SandboxAdmission {
        SandboxAdmission {
            config: shared.config.clone(),
            books: Arc::clone(&shared.books),
            metrics: Arc::clone(&shared.metrics),
            tokens,
            eviction: OnceLock::new(),
            builds: AtomicU64::new(0),
        }
    }

    /// Names who ends what gives way.
    pub(super) fn evict_by(&self, eviction: Weak<dyn SandboxEviction>) {
        // There is one.
        drop(self.eviction.set(eviction));
    }

    /// Takes a place for a sandbox in which something is made for a tenant. It may be there for
    /// minutes, and nobody waits for that to be over.
    pub(super) async fn admit_build(&self, tenant: &str) -> Result<BuildPlace, SessionError> {
        let key = ResidentKey::Ready(BUILDS_FROM + self.builds.fetch_add(1, Ordering::Relaxed));
        self.admit(&key, &tenant.into()).await?;
        self.books.build(&key, clock::now());
        Ok(BuildPlace { books: Arc::clone(&self.books), key })
    }

    /// Takes a place for a tenant's sandbox, and does what has to be done for it to be free. Who
    /// finds all places taken by those that are just being made waits, in line, until one of them
    /// is.
    pub(super) async fn admit(
        &self,
        key: &ResidentKey,
        tenant: &Arc<str>,
    ) -> Result<(), SessionError> {
        let request = self.place(key, tenant);
        let mut duties = match self.books.is_awaited() {
            true => Err(CapacityRefusal::Soon),
            false => self.books.admit(&request, clock::now()),
        };
        if let Err(CapacityRefusal::Soon) = duties {
            let in_line = self.books.admit_in_line(&request, clock::now);
            duties =
                time::timeout(ADMISSION_MAX, in_line).await.unwrap_or(Err(CapacityRefusal::Soon));
        }
        let duties = duties.map_err(|full| match full {
            CapacityRefusal::Soon | CapacityRefusal::Server => SessionError::Capacity,
            CapacityRefusal::Share => SessionError::TooMany(format!(
                "the tenant has {} sandboxes at work, which is its share of this server \
                 (sessions.resident_max_per_tenant); end or pause one first",
                request.tenant_max
            )),
        })?;
        for duty in duties {
            self.metrics.count(SandboxEvent::Evicted);
            let eviction = self.eviction.get().and_then(Weak::upgrade).ok_or_else(|| {
                SessionError::internal("no task is left to end the evicted sandbox")
            })?;
            eviction.perform(duty).await;
        }
        Ok(())
    }

    /// A place for a sandbox of a tenant, within the tenant's share.
    pub(super) fn place<'a>(&self, key: &'a ResidentKey, tenant: &'a Arc<str>) -> PlaceRequest<'a> {
        let tenant_max = match self.config.now().resident_max_per_tenant {
            // Half of a server would be wasted that has one tenant.
            0 if !self.has_tenants_beside(tenant) => usize::MAX,
            0 => self.config.now().resident_max.div_ceil(2),
            most => most,
        };
        PlaceRequest { key, tenant, tenant_max }
    }

    fn has_tenants_beside(&self, tenant: &str) -> bool {
        self.tokens.as_ref().is_some_and(|tokens| tokens.has_tenants_beside(tenant))
    }
}
