//! The decisions of admission: a state machine that knows neither time nor tasks.

use std::collections::{HashMap, VecDeque};

use super::{AdmissionBounds, AdmissionLoad, AdmissionOrigin, TenantLoad};

/// Result of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArrivalOutcome {
    /// Admitted at once.
    Admitted,
    /// Waiting.
    Waits(AdmissionTicket),
    /// Larger than can ever run.
    TooLarge { memory_bytes_max: u64 },
    /// No other request of this origin may wait.
    QueueFull { queue_max: usize },
    /// No other request of this origin and tenant may wait.
    TenantFull { waiting_max: usize },
}

/// A request to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnRequest<'a> {
    pub(super) tenant: &'a str,
    pub(super) origin: AdmissionOrigin,
    pub(super) memory_bytes: u64,
    /// Executions of its tenant that may run beside each other, with this one.
    pub(super) tenant_max: usize,
}

/// Names one place in the queue; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct AdmissionTicket(u64);

/// Running and waiting requests. `W` is what wakes a waiting one.
///
/// Between calls: nothing that waits can run, because the one whose turn it is cannot, or because
/// its tenant has its share. `running` and `memory_bytes` count what is in `granted` too: it has
/// its place already, but was not told yet.
#[derive(Debug)]
pub(super) struct AdmissionQueue<W> {
    bounds: AdmissionBounds,
    running: usize,
    memory_bytes: u64,
    /// Shares of tenants that run something.
    usage: HashMap<String, TenantUsage>,
    /// The tenants that wait, each once, the one whose turn it is first.
    turns: VecDeque<TenantLine<W>>,
    /// Admitted from the queue, and not yet noticed by the one who waits.
    granted: Vec<AdmissionTicket>,
    next_ticket: u64,
}

/// Places and memory that one tenant has.
#[derive(Clone, Copy, Debug, Default)]
struct TenantUsage {
    running: usize,
    memory_bytes: u64,
}

/// Waiting requests of one tenant, at least one. Each line is in order of arrival.
///
/// The lines take turns. Were they one, a tenant's jobs would stand behind all of its callers, and
/// hold meanwhile the workers that other tenants' jobs wait for.
#[derive(Debug)]
struct TenantLine<W> {
    name: String,
    callers: VecDeque<AdmissionWaiter<W>>,
    patient_callers: VecDeque<AdmissionWaiter<W>>,
    jobs: VecDeque<AdmissionWaiter<W>>,
    /// The line whose first goes next; it is never empty.
    next: AdmissionOrigin,
}

#[derive(Debug)]
struct AdmissionWaiter<W> {
    ticket: AdmissionTicket,
    memory_bytes: u64,
    tenant_max: usize,
    wake: Option<W>,
}

impl<W> TenantLine<W> {
    fn new(name: &str, next: AdmissionOrigin) -> TenantLine<W> {
        TenantLine {
            name: name.to_owned(),
            callers: VecDeque::new(),
            patient_callers: VecDeque::new(),
            jobs: VecDeque::new(),
            next,
        }
    }

    fn line(&self, origin: AdmissionOrigin) -> &VecDeque<AdmissionWaiter<W>> {
        match origin {
            AdmissionOrigin::Caller => &self.callers,
            AdmissionOrigin::PatientCaller => &self.patient_callers,
            AdmissionOrigin::Job => &self.jobs,
        }
    }

    fn line_mut(&mut self, origin: AdmissionOrigin) -> &mut VecDeque<AdmissionWaiter<W>> {
        match origin {
            AdmissionOrigin::Caller => &mut self.callers,
            AdmissionOrigin::PatientCaller => &mut self.patient_callers,
            AdmissionOrigin::Job => &mut self.jobs,
        }
    }

    fn first(&self) -> Option<&AdmissionWaiter<W>> {
        self.line(self.next).front()
    }

    fn take_first(&mut self) -> Option<AdmissionWaiter<W>> {
        let first = self.line_mut(self.next).pop_front();
        self.next = self.first_waiting_from(self.next.following());
        first
    }

    /// The first line from `origin` on in which somebody waits; `origin` where nobody does.
    fn first_waiting_from(&self, origin: AdmissionOrigin) -> AdmissionOrigin {
        let second = origin.following();
        let lines = [origin, second, second.following()];
        lines.into_iter().find(|line| !self.line(*line).is_empty()).unwrap_or(origin)
    }

    fn waiters_mut(&mut self) -> impl Iterator<Item = &mut AdmissionWaiter<W>> {
        self.callers.iter_mut().chain(&mut self.patient_callers).chain(&mut self.jobs)
    }

    fn remove(&mut self, ticket: AdmissionTicket) {
        for line in [&mut self.callers, &mut self.patient_callers, &mut self.jobs] {
            line.retain(|waiter| waiter.ticket != ticket);
        }
        self.next = self.first_waiting_from(self.next);
    }

    fn len(&self) -> usize {
        self.callers.len() + self.patient_callers.len() + self.jobs.len()
    }
}

impl<W: Clone> AdmissionQueue<W> {
    pub(super) fn bounds(&self) -> AdmissionBounds {
        self.bounds
    }

    /// Replaces the bounds, of which those of what runs must be the same.
    pub(super) fn set_bounds(&mut self, bounds: AdmissionBounds) {
        let of_running = |it: &AdmissionBounds| (it.running_max, it.memory_bytes_max);
        debug_assert_eq!(of_running(&self.bounds), of_running(&bounds));
        self.bounds = bounds;
    }

    pub(super) fn new(bounds: AdmissionBounds) -> AdmissionQueue<W> {
        AdmissionQueue {
            bounds,
            running: 0,
            memory_bytes: 0,
            usage: HashMap::new(),
            turns: VecDeque::new(),
            granted: Vec::new(),
            next_ticket: 0,
        }
    }

    /// A request arrives.
    pub(super) fn arrive(&mut self, request: TurnRequest<'_>) -> ArrivalOutcome {
        let TurnRequest { tenant, origin, memory_bytes, tenant_max } = request;
        let memory_bytes_max = self.bounds.memory_bytes_max;
        if memory_bytes > memory_bytes_max {
            return ArrivalOutcome::TooLarge { memory_bytes_max };
        }
        let known = self.turns.iter().position(|waiting| waiting.name == tenant);
        let is_overtaking = known.is_some() || self.next_turn().is_some();
        let has_share = self.has_share(tenant, memory_bytes, tenant_max);
        if !is_overtaking && !has_share && self.fits(memory_bytes) {
            self.start(tenant, memory_bytes);
            return ArrivalOutcome::Admitted;
        }
        let [queue_max, waiting_max] = origin.waiting_max(&self.bounds);
        let waiting = |tenant: &TenantLine<W>| tenant.line(origin).len();
        if self.turns.iter().map(waiting).sum::<usize>() >= queue_max {
            return ArrivalOutcome::QueueFull { queue_max };
        }
        if known.and_then(|at| self.turns.get(at)).map_or(0, waiting) >= waiting_max {
            return ArrivalOutcome::TenantFull { waiting_max };
        }
        let ticket = AdmissionTicket(self.next_ticket);
        self.next_ticket += 1;
        let waiter = AdmissionWaiter { ticket, memory_bytes, tenant_max, wake: None };
        match known.and_then(|at| self.turns.get_mut(at)) {
            Some(waiting) => waiting.line_mut(origin).push_back(waiter),
            None => {
                let mut waiting = TenantLine::new(tenant, origin);
                waiting.line_mut(origin).push_back(waiter);
                self.turns.push_back(waiting);
            }
        }
        ArrivalOutcome::Waits(ticket)
    }

    /// Returns whether `ticket` has been admitted; if so, that is told once. Otherwise remembers
    /// how to wake the one who holds it.
    pub(super) fn poll(&mut self, ticket: AdmissionTicket, wake: &W) -> bool {
        if let Some(at) = self.granted.iter().position(|granted| *granted == ticket) {
            self.granted.swap_remove(at);
            return true;
        }
        let mut waiters = self.turns.iter_mut().flat_map(TenantLine::waiters_mut);
        if let Some(waiter) = waiters.find(|waiter| waiter.ticket == ticket) {
            waiter.wake = Some(wake.clone());
        }
        false
    }

    /// Removes a request that stops waiting, admitted or not. Returns who is to be woken.
    pub(super) fn leave(
        &mut self,
        ticket: AdmissionTicket,
        tenant: &str,
        memory_bytes: u64,
    ) -> Vec<W> {
        if let Some(at) = self.granted.iter().position(|granted| *granted == ticket) {
            self.granted.swap_remove(at);
            return self.release(tenant, memory_bytes);
        }
        self.turns.iter_mut().for_each(|tenant| tenant.remove(ticket));
        self.turns.retain(|tenant| tenant.len() > 0);
        // The one behind it may need less.
        self.admit()
    }

    /// Gives back the place of an execution that ended. Returns who is to be woken.
    pub(super) fn release(&mut self, tenant: &str, memory_bytes: u64) -> Vec<W> {
        debug_assert!(self.running > 0 && self.memory_bytes >= memory_bytes);
        self.running = self.running.saturating_sub(1);
        self.memory_bytes = self.memory_bytes.saturating_sub(memory_bytes);
        if let Some(usage) = self.usage.get_mut(tenant) {
            usage.running = usage.running.saturating_sub(1);
            usage.memory_bytes = usage.memory_bytes.saturating_sub(memory_bytes);
            if usage.running == 0 {
                self.usage.remove(tenant);
            }
        }
        self.admit()
    }

    pub(super) fn load(&self) -> AdmissionLoad {
        let waiting = self.turns.iter().map(TenantLine::len).sum();
        AdmissionLoad { running: self.running, waiting, memory_bytes: self.memory_bytes }
    }

    /// Returns what each tenant runs and waits for, of those that do.
    pub(super) fn tenant_loads(&self) -> HashMap<String, TenantLoad> {
        let running = self
            .usage
            .iter()
            .map(|(name, usage)| (name.clone(), TenantLoad { running: usage.running, waiting: 0 }));
        let mut loads: HashMap<String, TenantLoad> = running.collect();
        for line in &self.turns {
            loads.entry(line.name.clone()).or_default().waiting = line.len();
        }
        loads
    }

    fn fits(&self, memory_bytes: u64) -> bool {
        self.running < self.bounds.running_max
            && memory_bytes <= self.bounds.memory_bytes_max - self.memory_bytes
    }

    /// Returns whether a tenant runs as much as it may: places, and memory in the same proportion.
    /// The first that takes memory is bounded by what there is alone.
    fn has_share(&self, tenant: &str, memory_bytes: u64, tenant_max: usize) -> bool {
        let AdmissionBounds { running_max, memory_bytes_max, .. } = self.bounds;
        let Some(usage) = self.usage.get(tenant) else { return false };
        if usage.running >= tenant_max {
            return true;
        }
        if usage.memory_bytes == 0 || tenant_max >= running_max {
            return false;
        }
        let part = u128::from(memory_bytes_max) * tenant_max as u128 / running_max.max(1) as u128;
        u128::from(usage.memory_bytes) + u128::from(memory_bytes) > part
    }

    /// Index in `turns` of the tenant whose turn it is: the first that runs less than its share.
    fn next_turn(&self) -> Option<usize> {
        self.turns.iter().position(|tenant| {
            tenant.first().is_some_and(|first| {
                !self.has_share(&tenant.name, first.memory_bytes, first.tenant_max)
            })
        })
    }

    fn start(&mut self, tenant: &str, memory_bytes: u64) {
        self.running += 1;
        self.memory_bytes += memory_bytes;
        // Looked up first: most of the time it is there.
        if let Some(usage) = self.usage.get_mut(tenant) {
            usage.running += 1;
            usage.memory_bytes += memory_bytes;
        } else {
            self.usage.insert(tenant.to_owned(), TenantUsage { running: 1, memory_bytes });
        }
    }

    /// Admits the ones whose turn it is as long as they fit. A tenant that was served goes to the
    /// end; one whose first does not fit keeps its turn, and everybody behind it waits too. One
    /// that has its share keeps its place, and is passed over meanwhile.
    fn admit(&mut self) -> Vec<W> {
        let mut woken = Vec::new();
        while let Some(at) = self.next_turn()
            && let Some(first) = self.turns.get(at).and_then(TenantLine::first)
            && self.fits(first.memory_bytes)
            && let Some(mut tenant) = self.turns.remove(at)
            && let Some(waiter) = tenant.take_first()
        {
            self.start(&tenant.name, waiter.memory_bytes);
            if tenant.len() > 0 {
                self.turns.push_back(tenant);
            }
            self.granted.push(waiter.ticket);
            woken.extend(waiter.wake);
        }
        woken
    }
}

#[cfg(test)]
mod tests;
