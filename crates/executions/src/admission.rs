//! Who may run now, who waits, and who is turned away.
//!
//! Tenants that wait take turns, one execution each. Within a tenant it is first come, first
//! served, except that its callers and its jobs go alternately when both wait. Whoever asks for
//! more memory than is free when its turn comes keeps the turn and nobody overtakes, so that large
//! requests are not starved by small ones. What keeps one tenant from filling the queue is a limit
//! on how much of it may be one tenant's.
//!
//! [`Queue`] decides, without a lock, a clock or a task in reach; [`Admission`] is its asynchronous
//! shell.

mod queue;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

use self::queue::{Arrival, Queue, Ticket};
use crate::error::{Error, Refusal};

/// The bounds of everything that runs and waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Executions that run at one time.
    pub(crate) running_max: usize,
    /// Sum of the memory limits of what runs.
    pub(crate) memory_bytes_max: u64,
    /// Callers that wait.
    pub(crate) queue_max: usize,
    /// Callers of one tenant that wait.
    pub(crate) queue_max_per_tenant: usize,
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A caller that waits for the answer. It is turned away when too many wait.
    Caller,
    /// A job that was accepted before, in the hands of a worker. It may always wait: there are no
    /// more of them than workers.
    Job,
}

impl Origin {
    fn other(self) -> Origin {
        match self {
            Origin::Caller => Origin::Job,
            Origin::Job => Origin::Caller,
        }
    }
}

/// How much there is of what, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) memory_bytes: u64,
}

/// Hands out permits to run. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    queue: Arc<Mutex<Queue<Waker>>>,
}

/// The right to run, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    admission: Admission,
    memory_bytes: u64,
}

impl Admission {
    pub(crate) fn new(bounds: Bounds) -> Admission {
        Admission { queue: Arc::new(Mutex::new(Queue::new(bounds))) }
    }

    /// Waits for its turn as a caller.
    ///
    /// # Errors
    /// When it can never run, or too many wait. Cancel-safe as [`Admission::enter_as`].
    pub(crate) async fn enter(&self, tenant: &str, memory_bytes: u64) -> Result<Permit, Error> {
        self.enter_as(Origin::Caller, tenant, memory_bytes).await
    }

    /// Waits for its turn. Cancel-safe: dropping the future gives up the place in the queue, or the
    /// permit if it was granted in the meantime.
    ///
    /// # Errors
    /// When it can never run, or is a caller's and too many wait.
    pub(crate) async fn enter_as(
        &self,
        origin: Origin,
        tenant: &str,
        memory_bytes: u64,
    ) -> Result<Permit, Error> {
        let arrival = self.queue.lock().arrive(tenant, origin, memory_bytes);
        let ticket = match arrival {
            Arrival::Admitted => return Ok(self.permit(memory_bytes)),
            Arrival::Waits(ticket) => ticket,
            Arrival::TooLarge { memory_bytes_max } => {
                let message =
                    format!("is more than the {memory_bytes_max} bytes this server may give out");
                return Err(Refusal::invalid("limits.memory_bytes", message).into());
            }
            Arrival::QueueFull { queue_max } => return Err(Error::QueueFull { queue_max }),
            Arrival::TenantFull { waiting_max } => {
                return Err(Error::TooManyWaiting { waiting_max });
            }
        };
        let mut waiting = Waiting { admission: self, ticket: Some(ticket), memory_bytes };
        poll_fn(|context| match self.queue.lock().poll(ticket, context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        waiting.ticket = None;
        Ok(self.permit(memory_bytes))
    }

    /// The bounds it keeps to.
    pub(crate) fn bounds(&self) -> Bounds {
        self.queue.lock().bounds()
    }

    /// How much runs and waits now.
    pub(crate) fn load(&self) -> Load {
        self.queue.lock().load()
    }

    fn permit(&self, memory_bytes: u64) -> Permit {
        Permit { admission: self.clone(), memory_bytes }
    }
}

/// A place in the queue, given up on drop.
struct Waiting<'a> {
    admission: &'a Admission,
    /// `None` once the permit took its place.
    ticket: Option<Ticket>,
    memory_bytes: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let woken = self.admission.queue.lock().leave(ticket, self.memory_bytes);
            // Outside of the lock: a waker may poll at once.
            woken.into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let woken = self.admission.queue.lock().release(self.memory_bytes);
        woken.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;
