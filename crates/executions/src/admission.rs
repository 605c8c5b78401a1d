//! Admission: who runs now, who waits, and who is refused.
//!
//! Tenants that wait take turns, one execution each. Within a tenant it is first come, first
//! served, except that its callers, its patient callers and its jobs take turns where several of
//! these wait. Whoever asks for more memory than is free when its turn comes keeps the turn and
//! nobody overtakes, so that large requests are not starved by small ones. What keeps one tenant
//! from filling the queue is a limit on how much of it may be one tenant's; another one keeps it
//! from all places and all memory, so that who comes next does not wait for the end of a long
//! program. A tenant that runs as much as it may is passed over.
//!
//! [`AdmissionQueue`] decides, without a lock, a clock or a task in reach; [`Admission`] is its
//! asynchronous shell.

mod queue;

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};

use node::auth::TokenRegistry;
use parking_lot::Mutex;

use self::queue::{AdmissionQueue, AdmissionTicket, ArrivalOutcome, TurnRequest};
use crate::error::{ExecutionError, RequestRefusal};

/// The bounds of everything that runs and waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdmissionBounds {
    /// Executions that run at one time.
    pub(crate) running_max: usize,
    /// Executions of one tenant that run at one time, where there are others.
    pub(crate) running_max_per_tenant: usize,
    /// Sum of the memory limits of what runs.
    pub(crate) memory_bytes_max: u64,
    /// Callers that wait.
    pub(crate) queue_max: usize,
    /// Callers of one tenant that wait.
    pub(crate) queue_max_per_tenant: usize,
    /// Patient callers that wait.
    pub(crate) patient_max: usize,
    /// Patient callers of one tenant that wait.
    pub(crate) patient_max_per_tenant: usize,
}

/// Origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionOrigin {
    /// A caller that waits for the answer. It is turned away when too many wait.
    Caller,
    /// A caller that would rather wait than be turned away, and says for how long. It has bounds of
    /// its own, so that a crowd of them takes no place in the queue from other callers.
    PatientCaller,
    /// A job that was accepted before, in the hands of a worker. It may always wait: there are no
    /// more of them than workers.
    Job,
}

impl AdmissionOrigin {
    /// The line of the same tenant that is served after this one.
    fn following(self) -> AdmissionOrigin {
        match self {
            AdmissionOrigin::Caller => AdmissionOrigin::PatientCaller,
            AdmissionOrigin::PatientCaller => AdmissionOrigin::Job,
            AdmissionOrigin::Job => AdmissionOrigin::Caller,
        }
    }

    /// Most that wait, in all and of one tenant.
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
    /// Tokens of the server: places are kept for others where there are others.
    tokens: Arc<OnceLock<TokenRegistry>>,
}

/// The right to run, until it is dropped.
#[derive(Debug)]
pub(crate) struct RunPermit {
    admission: Admission,
    tenant: String,
    memory_bytes: u64,
}

impl Admission {
    pub(crate) fn new(bounds: AdmissionBounds) -> Admission {
        let queue = Arc::new(Mutex::new(AdmissionQueue::new(bounds)));
        Admission { queue, tokens: Arc::new(OnceLock::new()) }
    }

    /// Keeps places for others from now on, where there are other tokens. Only the first call
    /// counts.
    pub(crate) fn share_by(&self, tokens: TokenRegistry) {
        drop(self.tokens.set(tokens));
    }

    /// Executions that each tenant may run at one time; `usize::MAX` where there is one tenant.
    pub(crate) fn tenant_max_beside_others(&self) -> usize {
        match self.tokens.get() {
            Some(tokens) if tokens.has_several_tenants() => self.bounds().running_max_per_tenant,
            _ => usize::MAX,
        }
    }

    /// Executions of one tenant that may run at one time.
    fn tenant_max(&self, tenant: &str) -> usize {
        match self.tokens.get() {
            Some(tokens) if tokens.has_tenants_beside(tenant) => {
                self.bounds().running_max_per_tenant
            }
            _ => usize::MAX,
        }
    }

    /// Waits for its turn as a caller.
    ///
    /// # Errors
    /// When it can never run, or too many wait. Cancel-safe as [`Admission::enter_as`].
    pub(crate) async fn enter(
        &self,
        tenant: &str,
        memory_bytes: u64,
    ) -> Result<RunPermit, ExecutionError> {
        self.enter_as(AdmissionOrigin::Caller, tenant, memory_bytes).await
    }

    /// Waits for its turn. Cancel-safe: dropping the future gives up the place in the queue, or the
    /// permit if it was granted in the meantime.
    ///
    /// # Errors
    /// When it can never run, or is a caller's and too many wait.
    pub(crate) async fn enter_as(
        &self,
        origin: AdmissionOrigin,
        tenant: &str,
        memory_bytes: u64,
    ) -> Result<RunPermit, ExecutionError> {
        self.enter_within(origin, tenant, memory_bytes, self.tenant_max(tenant)).await
    }

    /// Waits for its turn as one of `count` programs that run together or not at all, and may have
    /// as many places as they are.
    ///
    /// # Errors
    /// As of [`Admission::enter`]; cancel-safe like it.
    pub(crate) async fn enter_grouped(
        &self,
        tenant: &str,
        memory_bytes: u64,
        count: usize,
    ) -> Result<RunPermit, ExecutionError> {
        let tenant_max = self.tenant_max(tenant).max(count);
        self.enter_within(AdmissionOrigin::Caller, tenant, memory_bytes, tenant_max).await
    }

    async fn enter_within(
        &self,
        origin: AdmissionOrigin,
        tenant: &str,
        memory_bytes: u64,
        tenant_max: usize,
    ) -> Result<RunPermit, ExecutionError> {
        let request = TurnRequest { tenant, origin, memory_bytes, tenant_max };
        let arrival = self.queue.lock().arrive(request);
        let ticket = match arrival {
            ArrivalOutcome::Admitted => return Ok(self.permit(tenant, memory_bytes)),
            ArrivalOutcome::Waits(ticket) => ticket,
            ArrivalOutcome::TooLarge { memory_bytes_max } => {
                let message =
                    format!("is more than the {memory_bytes_max} bytes this server may give out");
                return Err(RequestRefusal::invalid("limits.memory_bytes", message).into());
            }
            ArrivalOutcome::QueueFull { queue_max } => {
                return Err(ExecutionError::QueueFull { queue_max });
            }
            ArrivalOutcome::TenantFull { waiting_max } => {
                return Err(ExecutionError::TooManyWaiting { waiting_max });
            }
        };
        let mut waiting =
            AdmissionPlace { admission: self, ticket: Some(ticket), tenant, memory_bytes };
        poll_fn(|context| match self.queue.lock().poll(ticket, context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        waiting.ticket = None;
        Ok(self.permit(tenant, memory_bytes))
    }

    /// Keeps to other bounds of what waits from now on. Who waits already goes on to.
    pub(crate) fn change_bounds(&self, change: impl FnOnce(AdmissionBounds) -> AdmissionBounds) {
        let mut queue = self.queue.lock();
        let bounds = queue.bounds();
        queue.set_bounds(change(bounds));
    }

    /// The bounds it keeps to.
    pub(crate) fn bounds(&self) -> AdmissionBounds {
        self.queue.lock().bounds()
    }

    /// Returns how much runs and waits now.
    pub(crate) fn load(&self) -> AdmissionLoad {
        self.queue.lock().load()
    }

    /// Returns what each tenant runs and waits for, of those that do.
    pub(crate) fn tenant_loads(&self) -> HashMap<String, TenantLoad> {
        self.queue.lock().tenant_loads()
    }

    fn permit(&self, tenant: &str, memory_bytes: u64) -> RunPermit {
        RunPermit { admission: self.clone(), tenant: tenant.to_owned(), memory_bytes }
    }
}

/// A place in the queue, given up on drop.
struct AdmissionPlace<'a> {
    admission: &'a Admission,
    /// `None` once the permit took its place.
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
        let woken = self.admission.queue.lock().release(&self.tenant, self.memory_bytes);
        woken.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;
