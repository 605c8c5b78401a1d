//! Admission: decides which requests run now, wait, or are refused.
//!
//! Waiting tenants take turns, one execution each. Within a tenant the order is first come, first
//! served, except that its callers, its patient callers and its jobs take turns if several of these
//! wait. A request that needs more memory than is free at its turn keeps the turn and is not
//! overtaken, so that small requests do not starve large ones. One limit per tenant prevents it
//! from filling the queue; another one from occupying all places and all memory, so that the next
//! tenant does not wait for the end of a long program. A tenant at its limit is skipped. If that
//! limit applies across all nodes, a tenant may run this node's part of it here, which grows when
//! its executions wait ([`Admission::share_limits`]). A small limit has its homes at few nodes
//! ([`Admission::limit_homes`]): its callers are sent there, and its jobs are claimed there.
//!
//! [`AdmissionQueue`] makes the decisions, without locks, clocks or tasks; [`Admission`] is its
//! asynchronous shell.

mod queue;

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use node::auth::TokenRegistry;
use node::cluster::{
    LimitGrant, LimitHomes, LimitShares, LimitUse, SharedLimitUser, SharedLimitUses,
    follow_shared_limits,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use self::queue::{
    AdmissionQueue, AdmissionTicket, ArrivalOutcome, TenantPartUse, TurnRequest, WaitingBound,
};
use crate::error::{ExecutionError, RequestRefusal};

/// Time for which a request that may not wait in line waits for this node's first part of its
/// tenant's limit, like a client of the bouncer.
const FIRST_PART_WAIT_MAX: Duration = Duration::from_secs(2);

/// Role of the nodes that can be homes of limits: all of them run executions.
const HOME_ROLE: &str = "front";

/// Limits of running and waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdmissionBounds {
    /// Maximum number of running executions.
    pub(crate) running_max: usize,
    /// Maximum number of running executions of one tenant, if there are others.
    pub(crate) running_max_per_tenant: usize,
    /// True if that was configured, and not derived from the places of this node: then it may apply
    /// across all nodes.
    pub(crate) limits_tenants: bool,
    /// Maximum sum of the memory limits of running programs.
    pub(crate) memory_bytes_max: u64,
    /// Maximum number of waiting callers.
    pub(crate) queue_max: usize,
    /// Maximum number of waiting callers of one tenant.
    pub(crate) queue_max_per_tenant: usize,
    /// Maximum number of waiting patient callers.
    pub(crate) patient_max: usize,
    /// Maximum number of waiting patient callers of one tenant.
    pub(crate) patient_max_per_tenant: usize,
}

/// Origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionOrigin {
    /// A caller that waits for the answer. It is refused when too many wait.
    Caller,
    /// A caller that prefers waiting, for a stated time, to refusal. It has limits of its own, so
    /// that many patient callers take no queue places from other callers.
    PatientCaller,
    /// A job that was accepted before and that a worker has claimed. It may always wait: there are
    /// no more jobs than workers.
    Job,
}

impl AdmissionOrigin {
    /// Returns the line of the same tenant that is served after this one.
    fn following(self) -> AdmissionOrigin {
        match self {
            AdmissionOrigin::Caller => AdmissionOrigin::PatientCaller,
            AdmissionOrigin::PatientCaller => AdmissionOrigin::Job,
            AdmissionOrigin::Job => AdmissionOrigin::Caller,
        }
    }

    /// Returns the maximum number of waiting requests, in total and of one tenant.
    fn waiting_max(self, bounds: &AdmissionBounds) -> [usize; 2] {
        match self {
            AdmissionOrigin::Caller => [bounds.queue_max, bounds.queue_max_per_tenant],
            AdmissionOrigin::PatientCaller => [bounds.patient_max, bounds.patient_max_per_tenant],
            AdmissionOrigin::Job => [usize::MAX; 2],
        }
    }
}

/// Load at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AdmissionLoad {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) memory_bytes: u64,
}

/// Load of one tenant at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TenantLoad {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
}

/// Hands out permits to run. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    queue: Arc<Mutex<AdmissionQueue<Waker>>>,
    /// Tokens of the server: places are reserved for other tenants if there are any.
    tokens: Arc<OnceLock<TokenRegistry>>,
    /// This node's parts of limits that apply across all nodes, if they do.
    shares: Arc<OnceLock<LimitShares>>,
    /// Notified when an execution waits for a part of a limit that applies across all nodes.
    demand: Arc<Notify>,
}

/// Resources that a program needs to run.
#[derive(Clone, Copy, Debug)]
struct AdmissionRequest<'a> {
    tenant: &'a str,
    memory_bytes: u64,
    tenant_max: usize,
    is_further: bool,
}

/// The right to run, released on drop.
#[derive(Debug)]
pub(crate) struct RunPermit {
    admission: Admission,
    tenant: String,
    memory_bytes: u64,
    /// True if it is counted together with another permit.
    is_further: bool,
}

impl Admission {
    pub(crate) fn new(bounds: AdmissionBounds) -> Admission {
        let queue = Arc::new(Mutex::new(AdmissionQueue::new(bounds)));
        Admission {
            queue,
            tokens: Arc::new(OnceLock::new()),
            shares: Arc::new(OnceLock::new()),
            demand: Arc::default(),
        }
    }

    /// Makes each tenant's limit, if configured, apply across all nodes from now on. Only the first
    /// call counts; [`Admission::follow_limits`] must run.
    pub(crate) fn share_limits(&self, shares: LimitShares) {
        if self.shares.set(shares).is_ok() {
            self.set_parts(HashMap::new());
        }
    }

    /// Returns whether limits may apply across all nodes.
    pub(crate) fn shares_limits(&self) -> bool {
        self.shares.get().is_some()
    }

    /// Maintains this node's parts of limits. Never returns.
    pub(crate) async fn follow_limits(&self) {
        match self.shares.get() {
            Some(shares) => follow_shared_limits(shares, self, &self.demand).await,
            None => std::future::pending().await,
        }
    }

    fn set_parts(&self, parts: HashMap<String, usize>) {
        let woken = self.queue.lock().set_parts(parts);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Reserves places for other tenants from now on, if there are other tokens. Only the first
    /// call counts.
    pub(crate) fn share_by(&self, tokens: TokenRegistry) {
        drop(self.tokens.set(tokens));
    }

    /// Returns the maximum number of executions of each tenant; `usize::MAX` if there is one
    /// tenant.
    pub(crate) fn tenant_max_beside_others(&self) -> usize {
        match self.tokens.get() {
            Some(tokens) if tokens.has_several_tenants() => self.bounds().running_max_per_tenant,
            _ => usize::MAX,
        }
    }

    /// Returns the maximum number of running executions of one tenant.
    fn tenant_max(&self, tenant: &str) -> usize {
        match self.tokens.get() {
            Some(tokens) if tokens.has_tenants_beside(tenant) => {
                self.bounds().running_max_per_tenant
            }
            _ => usize::MAX,
        }
    }

    /// Returns the homes of a tenant's limit: None if it has no limit, or all nodes are homes.
    pub(crate) fn limit_homes(&self, tenant: &str) -> Option<Vec<String>> {
        let homes = self.homes_of_limit(self.shares.get()?, self.tenant_max(tenant))?;
        Some(homes.of(&limit_name(tenant)))
    }

    /// Returns the tenants whose limits have their homes elsewhere, and whose jobs are left to
    /// other nodes: None if all nodes are homes.
    pub(crate) fn tenants_elsewhere(&self) -> Option<TenantsElsewhere> {
        let shares = self.shares.get()?;
        self.homes_of_limit(shares, self.tenant_max_beside_others()).map(TenantsElsewhere)
    }

    fn homes_of_limit(&self, shares: &LimitShares, tenant_max: usize) -> Option<LimitHomes> {
        if tenant_max == usize::MAX || !self.bounds().limits_tenants {
            return None;
        }
        shares.homes(HOME_ROLE, amount(tenant_max))
    }

    /// Waits for the request's turn, as a caller.
    ///
    /// # Errors
    /// If it can never run, or too many wait. Cancel-safe like [`Admission::enter_as`].
    pub(crate) async fn enter(
        &self,
        tenant: &str,
        memory_bytes: u64,
    ) -> Result<RunPermit, ExecutionError> {
        self.enter_as(AdmissionOrigin::Caller, tenant, memory_bytes).await
    }

    /// Waits for the request's turn. Cancel-safe: dropping the future gives up the place in the
    /// queue, or the permit if it was granted in the meantime.
    ///
    /// # Errors
    /// If it can never run, or is a caller's and too many wait.
    pub(crate) async fn enter_as(
        &self,
        origin: AdmissionOrigin,
        tenant: &str,
        memory_bytes: u64,
    ) -> Result<RunPermit, ExecutionError> {
        let tenant_max = self.tenant_max(tenant);
        let place = AdmissionRequest { tenant, memory_bytes, tenant_max, is_further: false };
        self.enter_place(origin, place).await
    }

    /// Waits for the turn of one of `count` programs that run together or not at all, and may have
    /// as many places as there are programs. All but the first of them are `is_further`: together
    /// they count as one if the limit of a tenant applies across all nodes, because no node could
    /// run some of them.
    ///
    /// # Errors
    /// Like [`Admission::enter`]; cancel-safe like it.
    pub(crate) async fn enter_grouped(
        &self,
        tenant: &str,
        memory_bytes: u64,
        count: usize,
        is_further: bool,
    ) -> Result<RunPermit, ExecutionError> {
        let tenant_max = self.tenant_max(tenant).max(count);
        let place = AdmissionRequest { tenant, memory_bytes, tenant_max, is_further };
        self.enter_place(AdmissionOrigin::Caller, place).await
    }

    async fn enter_place(
        &self,
        origin: AdmissionOrigin,
        place: AdmissionRequest<'_>,
    ) -> Result<RunPermit, ExecutionError> {
        let AdmissionRequest { tenant, memory_bytes, tenant_max, is_further } = place;
        let request = TurnRequest { tenant, origin, memory_bytes, tenant_max, is_further };
        let (arrival, wants_part) = {
            let mut queue = self.queue.lock();
            let arrival = queue.arrive(request);
            (arrival, !is_further && queue.wants_part(tenant, tenant_max))
        };
        let (ticket, full) = match arrival {
            ArrivalOutcome::Admitted => return Ok(self.permit(&place)),
            ArrivalOutcome::Waits(ticket) => (ticket, None),
            ArrivalOutcome::AwaitsPart { ticket, full } => (ticket, Some(full)),
            ArrivalOutcome::TooLarge { memory_bytes_max } => {
                let message =
                    format!("is more than the {memory_bytes_max} bytes this server may give out");
                return Err(RequestRefusal::invalid("limits.memory_bytes", message).into());
            }
            ArrivalOutcome::Full(full) => return Err(full.into()),
        };
        let mut waiting =
            AdmissionPlace { admission: self, ticket: Some(ticket), tenant, memory_bytes };
        if wants_part {
            self.demand.notify_one();
        }
        let turn = poll_fn(|context| match self.queue.lock().poll(ticket, context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
        match full {
            Some(full) => {
                timeout(FIRST_PART_WAIT_MAX, turn).await.map_err(|_| ExecutionError::from(full))?;
            }
            None => turn.await,
        }
        waiting.ticket = None;
        Ok(self.permit(&place))
    }

    /// Replaces the limits of waiting requests. Requests that wait already are not affected.
    pub(crate) fn change_bounds(&self, change: impl FnOnce(AdmissionBounds) -> AdmissionBounds) {
        let mut queue = self.queue.lock();
        let bounds = queue.bounds();
        queue.set_bounds(change(bounds));
        drop(queue);
        // Running executions may be subject to a limit from now on.
        self.demand.notify_one();
    }

    /// Returns the current limits.
    pub(crate) fn bounds(&self) -> AdmissionBounds {
        self.queue.lock().bounds()
    }

    /// Returns the number of running and waiting requests.
    pub(crate) fn load(&self) -> AdmissionLoad {
        self.queue.lock().load()
    }

    /// Returns the running and waiting requests of each tenant that has any.
    pub(crate) fn tenant_loads(&self) -> HashMap<String, TenantLoad> {
        self.queue.lock().tenant_loads()
    }

    fn permit(&self, place: &AdmissionRequest<'_>) -> RunPermit {
        let AdmissionRequest { tenant, memory_bytes, is_further, .. } = *place;
        RunPermit { admission: self.clone(), tenant: tenant.to_owned(), memory_bytes, is_further }
    }
}

impl From<WaitingBound> for ExecutionError {
    fn from(full: WaitingBound) -> ExecutionError {
        match full {
            WaitingBound::All { queue_max } => ExecutionError::QueueFull { queue_max },
            WaitingBound::Tenant { waiting_max } => ExecutionError::TooManyWaiting { waiting_max },
        }
    }
}

impl SharedLimitUser for Admission {
    /// Tenant.
    type Limit = String;

    const SUBJECT: &'static str = "executions that run";

    const PREFIX: &'static str = "executions/";

    fn uses(&self) -> SharedLimitUses<String> {
        let limit = self.tenant_max_beside_others();
        let queue = self.queue.lock();
        if limit == usize::MAX || !queue.has_parts() {
            return SharedLimitUses::new();
        }
        let uses = queue.part_uses().into_iter().map(|(tenant, it)| {
            let used = limit_use(&tenant, limit, it);
            (used.resource.clone(), (tenant, used))
        });
        uses.collect()
    }

    fn take_parts(&self, parts: Vec<(String, LimitGrant)>) {
        let parts = parts.into_iter().map(|(tenant, grant)| (tenant, grant.part as usize));
        self.set_parts(parts.collect());
    }
}

/// Returns a tenant's use of and demand for its limit at this node.
fn limit_use(tenant: &str, limit: usize, it: TenantPartUse) -> LimitUse {
    LimitUse {
        resource: limit_name(tenant),
        limit: amount(limit),
        bound: amount(it.bound),
        used: amount(it.running),
        needed: amount((it.running + it.waiting).min(limit)),
    }
}

/// Returns the name of a tenant's limit, the same at all nodes.
fn limit_name(tenant: &str) -> String {
    format!("executions/tenant/{tenant}")
}

fn amount(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The tenants whose limits have their homes at other nodes.
#[derive(Clone, Debug)]
pub(crate) struct TenantsElsewhere(pub(crate) LimitHomes);

impl TenantsElsewhere {
    /// Returns whether a tenant is one of them.
    pub(crate) fn contains(&self, tenant: &str) -> bool {
        !self.0.is_here(&limit_name(tenant))
    }
}

/// A place in the queue, released on drop.
struct AdmissionPlace<'a> {
    admission: &'a Admission,
    /// `None` once a permit has replaced it.
    ticket: Option<AdmissionTicket>,
    tenant: &'a str,
    memory_bytes: u64,
}

impl Drop for AdmissionPlace<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let woken = self.admission.queue.lock().leave(ticket, self.tenant, self.memory_bytes);
            // Outside of the lock: a waker may poll at once.
            woken.into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        let mut queue = self.admission.queue.lock();
        let woken = match self.is_further {
            true => queue.release_further(&self.tenant, self.memory_bytes),
            false => queue.release(&self.tenant, self.memory_bytes),
        };
        drop(queue);
        woken.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;
