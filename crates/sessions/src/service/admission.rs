//! Admission of sandboxes: each takes a place in the ledger before it starts, which may evict
//! others.

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

/// Longest time that a request waits for starting sandboxes. Some of them may be restored from the
/// object store, which takes longer than a caller should wait.
const ADMISSION_MAX: Duration = Duration::from_secs(5);
/// First number of the sandboxes for builds, distinct from prepared sandboxes.
const BUILDS_FROM: u64 = 1 << 62;

/// Ends evicted sandboxes.
pub(super) trait SandboxEviction: Send + Sync {
    /// Performs a duty, which frees a place.
    fn perform(self: Arc<Self>, duty: EvictionDuty) -> Boxed<'static, ()>;
}

/// Admission control for sandboxes.
pub(crate) struct SandboxAdmission {
    config: CurrentSettings<SessionsConfig>,
    books: Arc<ResidentLedger>,
    metrics: Arc<SessionCounters>,
    /// Tokens of the server: with several tenants, places are reserved for the others.
    tokens: Option<TokenRegistry>,
    /// Weak, because the code that ends sandboxes also requests places.
    eviction: OnceLock<Weak<dyn SandboxEviction>>,
    /// Counter of sandboxes for builds of agent versions and template layers.
    builds: AtomicU64,
}

/// Place of a sandbox for a build. Dropping it releases the place.
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

    /// Sets the component that ends evicted sandboxes.
    pub(super) fn evict_by(&self, eviction: Weak<dyn SandboxEviction>) {
        // Set once.
        drop(self.eviction.set(eviction));
    }

    /// Takes a place for a build of a tenant. The build may take minutes, so other requests do not
    /// wait for its place.
    pub(super) async fn admit_build(&self, tenant: &str) -> Result<BuildPlace, SessionError> {
        let key = ResidentKey::Ready(BUILDS_FROM + self.builds.fetch_add(1, Ordering::Relaxed));
        self.admit(&key, &tenant.into()).await?;
        self.books.build(&key, clock::now());
        Ok(BuildPlace { books: Arc::clone(&self.books), key })
    }

    /// Takes a place for a tenant's sandbox, and performs the necessary evictions. If no sandbox
    /// can be evicted but some are starting, waits in line for at most [`ADMISSION_MAX`].
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

    /// Returns the request of a place for a tenant's sandbox, within the tenant's share.
    pub(super) fn place<'a>(&self, key: &'a ResidentKey, tenant: &'a Arc<str>) -> PlaceRequest<'a> {
        let tenant_max = match self.config.now().resident_max_per_tenant {
            // With a single tenant, a limit would leave half of the server unused.
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
