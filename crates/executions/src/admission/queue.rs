//! The decisions of admission: a state machine that knows neither time nor tasks.

use std::collections::{HashMap, VecDeque};

use super::{Bounds, Load};

/// What becomes of a request when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It runs.
    Admitted,
    /// It waits.
    Waits(Ticket),
    /// It can never run.
    TooLarge { memory_bytes_max: u64 },
    /// Nobody else may wait.
    QueueFull { queue_max: usize },
    /// Nobody else of this tenant may wait.
    TenantFull { waiting_max: usize },
}

/// Names one place in the queue; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// Who runs and who waits. `W` is what wakes a waiting one.
///
/// Between calls: what is in `waiting` cannot run, because the first of it cannot. `running` and
/// `memory_bytes` count what is in `granted` too: it has its place already, but was not told yet.
#[derive(Debug)]
pub(super) struct Queue<W> {
    bounds: Bounds,
    running: usize,
    memory_bytes: u64,
    waiting: VecDeque<Waiter<W>>,
    /// How many of `waiting` are whose; no entry for none.
    per_tenant: HashMap<String, usize>,
    /// Admitted from the queue, and not yet noticed by the one who waits.
    granted: Vec<Ticket>,
    next_ticket: u64,
}

#[derive(Debug)]
struct Waiter<W> {
    ticket: Ticket,
    tenant: String,
    memory_bytes: u64,
    wake: Option<W>,
}

impl<W: Clone> Queue<W> {
    pub(super) fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(super) fn new(bounds: Bounds) -> Queue<W> {
        Queue {
            bounds,
            running: 0,
            memory_bytes: 0,
            waiting: VecDeque::new(),
            per_tenant: HashMap::new(),
            granted: Vec::new(),
            next_ticket: 0,
        }
    }

    /// A request arrives.
    pub(super) fn arrive(&mut self, tenant: &str, memory_bytes: u64) -> Arrival {
        let Bounds { memory_bytes_max, queue_max, queue_max_per_tenant, .. } = self.bounds;
        if memory_bytes > memory_bytes_max {
            return Arrival::TooLarge { memory_bytes_max };
        }
        if self.waiting.is_empty() && self.fits(memory_bytes) {
            self.running += 1;
            self.memory_bytes += memory_bytes;
            return Arrival::Admitted;
        }
        if self.waiting.len() >= queue_max {
            return Arrival::QueueFull { queue_max };
        }
        let of_tenant = self.per_tenant.get(tenant).copied().unwrap_or(0);
        if of_tenant >= queue_max_per_tenant {
            return Arrival::TenantFull { waiting_max: queue_max_per_tenant };
        }
        self.per_tenant.insert(tenant.to_owned(), of_tenant + 1);
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let tenant = tenant.to_owned();
        self.waiting.push_back(Waiter { ticket, tenant, memory_bytes, wake: None });
        Arrival::Waits(ticket)
    }

    /// Whether `ticket` has been admitted; if so, that is told once. Otherwise remembers how to
    /// wake the one who holds it.
    pub(super) fn poll(&mut self, ticket: Ticket, wake: &W) -> bool {
        if let Some(at) = self.granted.iter().position(|granted| *granted == ticket) {
            self.granted.swap_remove(at);
            return true;
        }
        if let Some(waiter) = self.waiting.iter_mut().find(|waiter| waiter.ticket == ticket) {
            waiter.wake = Some(wake.clone());
        }
        false
    }

    /// Somebody stops waiting, admitted or not. Returns who is to be woken.
    pub(super) fn leave(&mut self, ticket: Ticket, memory_bytes: u64) -> Vec<W> {
        if let Some(at) = self.granted.iter().position(|granted| *granted == ticket) {
            self.granted.swap_remove(at);
            return self.release(memory_bytes);
        }
        if let Some(at) = self.waiting.iter().position(|waiter| waiter.ticket == ticket) {
            self.remove(at);
        }
        // The one behind it may need less.
        self.admit()
    }

    /// Something that ran has ended. Returns who is to be woken.
    pub(super) fn release(&mut self, memory_bytes: u64) -> Vec<W> {
        debug_assert!(self.running > 0 && self.memory_bytes >= memory_bytes);
        self.running = self.running.saturating_sub(1);
        self.memory_bytes = self.memory_bytes.saturating_sub(memory_bytes);
        self.admit()
    }

    pub(super) fn load(&self) -> Load {
        Load { running: self.running, waiting: self.waiting.len(), memory_bytes: self.memory_bytes }
    }

    fn fits(&self, memory_bytes: u64) -> bool {
        self.running < self.bounds.running_max
            && memory_bytes <= self.bounds.memory_bytes_max - self.memory_bytes
    }

    /// Admits from the head as long as the head fits.
    fn admit(&mut self) -> Vec<W> {
        let mut woken = Vec::new();
        while let Some(memory_bytes) = self.waiting.front().map(|waiter| waiter.memory_bytes)
            && self.fits(memory_bytes)
            && let Some(waiter) = self.remove(0)
        {
            self.running += 1;
            self.memory_bytes += memory_bytes;
            self.granted.push(waiter.ticket);
            woken.extend(waiter.wake);
        }
        woken
    }

    fn remove(&mut self, at: usize) -> Option<Waiter<W>> {
        let waiter = self.waiting.remove(at)?;
        if let Some(count) = self.per_tenant.get_mut(&waiter.tenant) {
            *count -= 1;
            if *count == 0 {
                self.per_tenant.remove(&waiter.tenant);
            }
        }
        Some(waiter)
    }
}

#[cfg(test)]
mod tests;
