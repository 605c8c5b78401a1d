//! The decisions of admission: a state machine without time or tasks.
//!
//! A [`TurnOrder`] determines the order of tenants; this module adds the decision when the tenant
//! at its turn may run, and which of its own requests is first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use pool::TurnOrder;

use super::{AdmissionBounds, AdmissionLoad, AdmissionOrigin, TenantLoad};

/// Result of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArrivalOutcome {
    /// Admitted at once.
    Admitted,
    /// Waiting.
    Waits(AdmissionTicket),
    /// Waiting although no other request may: it only lacks this node's first part of its tenant's
    /// limit, which was not requested so far. It must be refused if the part is not granted.
    AwaitsPart { ticket: AdmissionTicket, full: WaitingBound },
    /// Larger than any request that can run.
    TooLarge { memory_bytes_max: u64 },
    /// The queue is full for this request.
    Full(WaitingBound),
}

/// Limit of waiting requests that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitingBound {
    /// The limit of all requests of the origin.
    All { queue_max: usize },
    /// The limit of one tenant's requests.
    Tenant { waiting_max: usize },
}

/// A request to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnRequest<'a> {
    pub(super) tenant: &'a str,
    pub(super) origin: AdmissionOrigin,
    pub(super) memory_bytes: u64,
    /// Maximum number of executions of its tenant that may run concurrently, including this one.
    /// `usize::MAX` if no per-tenant limit applies.
    pub(super) tenant_max: usize,
    /// True for all but the first of several programs that run together: they count once in this
    /// node's part of the limit, and need no part themselves.
    pub(super) is_further: bool,
}

/// A tenant's use of its limit at this node, if all nodes share that limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TenantPartUse {
    /// Maximum number that may run here.
    pub(super) bound: usize,
    /// Number that runs here.
    pub(super) running: usize,
    /// Number that waits here, limited to those that could run.
    pub(super) waiting: usize,
}

/// Identifies one place in the queue; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct AdmissionTicket(u64);

/// Running and waiting requests. `W` wakes a waiting one.
///
/// Invariant between calls: no waiting request can run, because the one at its turn cannot, or
/// because its tenant has its share. `running` and `memory_bytes` include the requests in
/// `granted`: those have their place already, but were not polled since.
#[derive(Debug)]
pub(super) struct AdmissionQueue<W> {
    bounds: AdmissionBounds,
    running: usize,
    memory_bytes: u64,
    /// Usage of tenants with running requests.
    usage: HashMap<String, TenantUsage>,
    /// The tenants with waiting requests.
    turns: TurnOrder<Arc<str>, TenantLine<W>>,
    /// Admitted from the queue, and not yet noticed by its waiter.
    granted: Vec<GrantedTicket>,
    /// This node's parts of the limits of tenants; tenants that are not listed have none. None if
    /// the node does not share limits.
    parts: Option<HashMap<String, usize>>,
    next_ticket: u64,
}

/// Ticket of a request that was admitted from the queue.
#[derive(Clone, Copy, Debug)]
struct GrantedTicket {
    ticket: AdmissionTicket,
    is_further: bool,
}

/// Places and memory that one tenant has.
#[derive(Clone, Copy, Debug, Default)]
struct TenantUsage {
    running: usize,
    /// Number of those in `running` that are counted together with another one.
    further: usize,
    memory_bytes: u64,
}

impl TenantUsage {
    /// Returns the number that counts in this node's part of the limit.
    fn counted(&self) -> usize {
        self.running.saturating_sub(self.further)
    }
}

/// Waiting requests of one tenant, at least one. Each line is in order of arrival.
///
/// The lines take turns. With a single line, a tenant's jobs would wait behind all of its callers,
/// and meanwhile occupy the workers that other tenants' jobs need.
#[derive(Debug)]
struct TenantLine<W> {
    callers: VecDeque<AdmissionWaiter<W>>,
    patient_callers: VecDeque<AdmissionWaiter<W>>,
    jobs: VecDeque<AdmissionWaiter<W>>,
    /// The line whose first request is next; it is never empty.
    next: AdmissionOrigin,
}

#[derive(Debug)]
struct AdmissionWaiter<W> {
    ticket: AdmissionTicket,
    memory_bytes: u64,
    tenant_max: usize,
    is_further: bool,
    wake: Option<W>,
}

impl<W> TenantLine<W> {
    fn new(next: AdmissionOrigin) -> TenantLine<W> {
        TenantLine {
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

    /// Returns the first line from `origin` on that is not empty; `origin` if all are.
    fn first_waiting_from(&self, origin: AdmissionOrigin) -> AdmissionOrigin {
        let second = origin.following();
        let lines = [origin, second, second.following()];
        lines.into_iter().find(|line| !self.line(*line).is_empty()).unwrap_or(origin)
    }

    fn waiters(&self) -> impl Iterator<Item = &AdmissionWaiter<W>> {
        self.callers.iter().chain(&self.patient_callers).chain(&self.jobs)
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

    /// Replaces the limits, except those of running requests, which must be the same.
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
            turns: TurnOrder::default(),
            granted: Vec::new(),
            parts: None,
            next_ticket: 0,
        }
    }

    /// Handles the arrival of a request.
    pub(super) fn arrive(&mut self, request: TurnRequest<'_>) -> ArrivalOutcome {
        let TurnRequest { tenant, origin, memory_bytes, tenant_max, is_further } = request;
        let memory_bytes_max = self.bounds.memory_bytes_max;
        if memory_bytes > memory_bytes_max {
            return ArrivalOutcome::TooLarge { memory_bytes_max };
        }
        let line = self.turns.get(tenant).map(|(_, line)| line);
        let is_overtaking = line.is_some() || self.next_turn().is_some();
        let waiter = AdmissionWaiter {
            ticket: AdmissionTicket(self.next_ticket),
            memory_bytes,
            tenant_max,
            is_further,
            wake: None,
        };
        let has_share = self.has_share(tenant, &waiter);
        if !is_overtaking && !has_share && self.fits(memory_bytes) {
            self.start(tenant, &waiter);
            return ArrivalOutcome::Admitted;
        }
        let full = self.reached_bound(origin, line);
        if let Some(full) = full
            && !self.awaits_first_part(tenant, &waiter, line)
        {
            return ArrivalOutcome::Full(full);
        }
        let ticket = waiter.ticket;
        self.next_ticket += 1;
        match self.turns.entry(tenant) {
            Some(mut known) => known.queue_mut().line_mut(origin).push_back(waiter),
            None => {
                let line = self.turns.join(tenant.into(), || TenantLine::new(origin));
                line.line_mut(origin).push_back(waiter);
            }
        }
        match full {
            Some(full) => ArrivalOutcome::AwaitsPart { ticket, full },
            None => ArrivalOutcome::Waits(ticket),
        }
    }

    /// Returns the limit that keeps a request from waiting, in the line of its tenant if there is
    /// one.
    fn reached_bound(
        &self,
        origin: AdmissionOrigin,
        line: Option<&TenantLine<W>>,
    ) -> Option<WaitingBound> {
        let [queue_max, waiting_max] = origin.waiting_max(&self.bounds);
        let waiting = |tenant: &TenantLine<W>| tenant.line(origin).len();
        if self.turns.iter().map(|(_, line)| waiting(line)).sum::<usize>() >= queue_max {
            return Some(WaitingBound::All { queue_max });
        }
        (line.map_or(0, waiting) >= waiting_max).then_some(WaitingBound::Tenant { waiting_max })
    }

    /// Returns whether a request would run now if this node had a part of its tenant's limit, and
    /// has none. No more of them wait than there are places.
    fn awaits_first_part(
        &self,
        tenant: &str,
        waiter: &AdmissionWaiter<W>,
        line: Option<&TenantLine<W>>,
    ) -> bool {
        let has_part = self.parts.as_ref().is_some_and(|parts| parts.contains_key(tenant));
        let usage = self.usage.get(tenant);
        !has_part
            && usage.is_none()
            && self.has_part(tenant, usage, waiter)
            && self.next_turn().is_none()
            && self.fits(waiter.memory_bytes)
            && self.running + line.map_or(0, TenantLine::len) < self.bounds.running_max
    }

    /// Returns whether `ticket` has been admitted; reports that only once. Otherwise stores the
    /// waker of its holder.
    pub(super) fn poll(&mut self, ticket: AdmissionTicket, wake: &W) -> bool {
        if self.take_granted(ticket).is_some() {
            return true;
        }
        let mut waiters = self.turns.queues_mut().flat_map(TenantLine::waiters_mut);
        if let Some(waiter) = waiters.find(|waiter| waiter.ticket == ticket) {
            waiter.wake = Some(wake.clone());
        }
        false
    }

    /// Removes a request that stops waiting, admitted or not. Returns the requests to wake.
    pub(super) fn leave(
        &mut self,
        ticket: AdmissionTicket,
        tenant: &str,
        memory_bytes: u64,
    ) -> Vec<W> {
        match self.take_granted(ticket) {
            Some(GrantedTicket { is_further: true, .. }) => {
                return self.release_further(tenant, memory_bytes);
            }
            Some(_) => return self.release(tenant, memory_bytes),
            None => {}
        }
        if let Some(mut of_tenant) = self.turns.entry(tenant) {
            of_tenant.queue_mut().remove(ticket);
            if of_tenant.queue().len() == 0 {
                of_tenant.leave();
            }
        }
        // The next request may need less.
        self.admit()
    }

    fn take_granted(&mut self, ticket: AdmissionTicket) -> Option<GrantedTicket> {
        let at = self.granted.iter().position(|granted| granted.ticket == ticket)?;
        Some(self.granted.swap_remove(at))
    }

    /// Releases the place of an execution that ended. Returns the requests to wake.
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

    /// Releases a place that is counted together with another one.
    pub(super) fn release_further(&mut self, tenant: &str, memory_bytes: u64) -> Vec<W> {
        if let Some(usage) = self.usage.get_mut(tenant) {
            usage.further = usage.further.saturating_sub(1);
        }
        self.release(tenant, memory_bytes)
    }

    pub(super) fn load(&self) -> AdmissionLoad {
        let waiting = self.turns.iter().map(|(_, line)| line.len()).sum();
        AdmissionLoad { running: self.running, waiting, memory_bytes: self.memory_bytes }
    }

    /// Returns the running and waiting requests of each tenant that has any.
    pub(super) fn tenant_loads(&self) -> HashMap<String, TenantLoad> {
        let running = self
            .usage
            .iter()
            .map(|(name, usage)| (name.clone(), TenantLoad { running: usage.running, waiting: 0 }));
        let mut loads: HashMap<String, TenantLoad> = running.collect();
        for (tenant, line) in self.turns.iter() {
            loads.entry(tenant.as_ref().to_owned()).or_default().waiting = line.len();
        }
        loads
    }

    /// Makes limits of tenants apply across all nodes, with these parts for this node from now on;
    /// tenants that are not listed have none. Returns the requests to wake.
    pub(super) fn set_parts(&mut self, parts: HashMap<String, usize>) -> Vec<W> {
        self.parts = Some(parts);
        self.admit()
    }

    /// Returns whether limits of tenants apply across all nodes.
    pub(super) fn has_parts(&self) -> bool {
        self.parts.is_some() && self.bounds.limits_tenants
    }

    /// Returns whether a larger part of the limit `tenant_max` would let a tenant run more here.
    pub(super) fn wants_part(&self, tenant: &str, tenant_max: usize) -> bool {
        let Some(parts) = self.parts.as_ref().filter(|_| self.bounds.limits_tenants) else {
            return false;
        };
        let part = parts.get(tenant).copied().unwrap_or(0);
        let counted = self.usage.get(tenant).map_or(0, TenantUsage::counted);
        tenant_max != usize::MAX && part < tenant_max && counted >= part
    }

    /// Returns each tenant's use of its limit here, for tenants that use or want a part.
    pub(super) fn part_uses(&self) -> HashMap<String, TenantPartUse> {
        let mut uses: HashMap<String, TenantPartUse> = HashMap::new();
        for (tenant, bound) in self.parts.iter().flatten() {
            uses.entry(tenant.clone()).or_default().bound = *bound;
        }
        for (tenant, usage) in &self.usage {
            uses.entry(tenant.clone()).or_default().running = usage.counted();
        }
        for (tenant, line) in self.turns.iter() {
            let counted = line.waiters().filter(|waiter| !waiter.is_further).count();
            let usage = uses.entry(tenant.as_ref().to_owned()).or_default();
            // There are no places for more.
            usage.waiting = counted.min(self.bounds.running_max.saturating_sub(usage.running));
        }
        uses
    }

    fn fits(&self, memory_bytes: u64) -> bool {
        self.running < self.bounds.running_max
            && memory_bytes <= self.bounds.memory_bytes_max - self.memory_bytes
    }

    /// Returns whether a tenant has reached its share: of places, and of memory in the same
    /// proportion. Only the total memory limits a tenant's first use of memory.
    fn has_share(&self, tenant: &str, waiter: &AdmissionWaiter<W>) -> bool {
        let AdmissionWaiter { memory_bytes, tenant_max, .. } = *waiter;
        let AdmissionBounds { running_max, memory_bytes_max, .. } = self.bounds;
        let usage = self.usage.get(tenant);
        if self.has_part(tenant, usage, waiter) {
            return true;
        }
        let Some(usage) = usage else { return false };
        if usage.running >= tenant_max {
            return true;
        }
        if usage.memory_bytes == 0 || tenant_max >= running_max {
            return false;
        }
        let part = u128::from(memory_bytes_max) * tenant_max as u128 / running_max.max(1) as u128;
        u128::from(usage.memory_bytes) + u128::from(memory_bytes) > part
    }

    /// Returns whether a tenant has reached its part at this node, if all nodes share its limit.
    fn has_part(
        &self,
        tenant: &str,
        usage: Option<&TenantUsage>,
        waiter: &AdmissionWaiter<W>,
    ) -> bool {
        let Some(parts) = self.parts.as_ref().filter(|_| self.bounds.limits_tenants) else {
            return false;
        };
        let is_limited = waiter.tenant_max != usize::MAX && !waiter.is_further;
        let part = parts.get(tenant).copied().unwrap_or(0);
        is_limited && usage.map_or(0, TenantUsage::counted) >= part
    }

    /// Returns the tenant whose turn it is, with its request: the first one below its share.
    fn next_turn(&self) -> Option<(&Arc<str>, &AdmissionWaiter<W>)> {
        let mut firsts = self.turns.iter().filter_map(|(name, line)| Some((name, line.first()?)));
        firsts.find(|(name, first)| !self.has_share(name, first))
    }

    fn start(&mut self, tenant: &str, waiter: &AdmissionWaiter<W>) {
        let AdmissionWaiter { memory_bytes, is_further, .. } = *waiter;
        let further = usize::from(is_further);
        self.running += 1;
        self.memory_bytes += memory_bytes;
        // Looked up first: usually it exists.
        if let Some(usage) = self.usage.get_mut(tenant) {
            usage.running += 1;
            usage.further += further;
            usage.memory_bytes += memory_bytes;
        } else {
            let usage = TenantUsage { running: 1, further, memory_bytes };
            self.usage.insert(tenant.to_owned(), usage);
        }
    }

    /// Admits the requests at their turn as long as they fit. A tenant that was served moves to the
    /// end; one whose first request does not fit keeps its turn, and all behind it wait too. One
    /// that has reached its share keeps its place, and is skipped meanwhile.
    fn admit(&mut self) -> Vec<W> {
        let mut woken = Vec::new();
        while let Some((tenant, first)) = self.next_turn()
            && self.fits(first.memory_bytes)
            && let tenant = Arc::clone(tenant)
            && let Some(mut turn) = self.turns.entry(&tenant)
            && let Some(waiter) = turn.queue_mut().take_first()
        {
            match turn.queue().len() {
                0 => drop(turn.leave()),
                _ => turn.send_back(),
            }
            self.start(&tenant, &waiter);
            let AdmissionWaiter { ticket, is_further, .. } = waiter;
            self.granted.push(GrantedTicket { ticket, is_further });
            woken.extend(waiter.wake);
        }
        woken
    }
}

#[cfg(test)]
mod tests;
