//! The pools of one thread.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pool::shares::{ReleaseOutcome, SlotPermit, ThreadHandle, ThreadLetter};

use super::one::{IdleServer, LocalPool, PoolWaiter};
use super::registry::{OpeningCount, PoolMessage, PoolRegistry, PoolTerms, PooledSlot, part};
use super::{
    CloseReason, FETCH_IDLE_AFTER, FORGET_AFTER, FreedConnectionUse, LeaseRefusal, OLDER_BY,
    OPENING_MAX, PoolEffect, PoolFailure, PoolGate, PoolRef, QueueTicket, REMIND_EVERY,
    ServerLease, ThreadPoolFigures, sooner,
};
use crate::tenants::{PoolId, TenantId};

/// All pools of one thread. `C` names a server connection, `W` a client.
pub struct ThreadPools<C, W> {
    registry: Arc<PoolRegistry>,
    handle: ThreadHandle,
    pools: Vec<Option<LocalPool<C, W>>>,
    free: Vec<PoolRef>,
    by_id: HashMap<PoolId, PoolRef>,
    /// By the key's index in the shares.
    by_key: HashMap<usize, PoolRef>,
    /// Times at which pools need attention; each pool has at most one entry.
    agenda: BTreeSet<(Instant, PoolRef)>,
    effects: VecDeque<PoolEffect<C, W>>,
    /// Kept to reuse its memory.
    letters: Vec<ThreadLetter>,
    notes: Vec<PoolMessage>,
    /// State of the generator for jitter.
    chance: u64,
}

impl<C: Copy + Eq + fmt::Debug, W: Copy + Eq + fmt::Debug> ThreadPools<C, W> {
    /// Creates a set without pools. `handle` identifies the thread; `seed` seeds its jitter.
    pub fn new(registry: Arc<PoolRegistry>, handle: ThreadHandle, seed: u64) -> ThreadPools<C, W> {
        ThreadPools {
            registry,
            handle,
            pools: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::new(),
            by_key: HashMap::new(),
            agenda: BTreeSet::new(),
            effects: VecDeque::new(),
            letters: Vec::new(),
            notes: Vec::new(),
            chance: seed | 1,
        }
    }

    /// Returns the pool, for one more client; [`ThreadPools::leave`] must be called when that
    /// leaves.
    pub fn join(
        &mut self,
        id: PoolId,
        tenant: TenantId,
        terms: PoolTerms,
        now: Instant,
    ) -> PoolRef {
        let pool = self.enter(id, tenant, terms, now);
        let local = self.local(pool);
        local.members += 1;
        if local.members == 1 && local.terms.connections_min > 0 {
            self.plan(pool, Some(now));
        }
        pool
    }

    /// Returns the pool, without counting a client.
    fn enter(&mut self, id: PoolId, tenant: TenantId, terms: PoolTerms, now: Instant) -> PoolRef {
        if let Some(pool) = self.by_id.get(&id).copied() {
            self.set_terms(pool, tenant, terms, now);
            return pool;
        }
        let local = LocalPool {
            common: self.registry.common(id, tenant, &terms),
            terms,
            gate: PoolGate::Open,
            members: 0,
            idle: Vec::new(),
            waiting: VecDeque::new(),
            next_ticket: 0,
            leased: 0,
            opening: Arc::default(),
            asking: false,
            starving: false,
            remind_at: now,
            busy_us: 0,
            charge_at: now,
            left_at: now,
            due: None,
        };
        let pool = self.free.pop().unwrap_or_else(|| {
            self.pools.push(None);
            // Memory runs out long before 32 bits do.
            PoolRef(u32::try_from(self.pools.len() - 1).unwrap_or(u32::MAX))
        });
        self.by_key.insert(local.common.key.index(), pool);
        self.pools[pool.0 as usize] = Some(local);
        self.by_id.insert(id, pool);
        pool
    }

    /// Counts one client less. Pools without clients are removed after a while.
    pub fn leave(&mut self, pool: PoolRef, now: Instant) {
        let local = self.local(pool);
        local.members = local.members.saturating_sub(1);
        if local.members == 0 {
            local.left_at = now;
            self.plan(pool, Some(now + FORGET_AFTER));
        }
    }

    /// Returns the pool on this thread, if it is known here.
    pub fn find(&self, id: PoolId) -> Option<PoolRef> {
        self.by_id.get(&id).copied()
    }

    /// Returns all pools on this thread.
    pub fn iter(&self) -> impl Iterator<Item = (PoolRef, PoolId)> {
        self.by_id.iter().map(|(id, pool)| (*pool, *id))
    }

    /// Updates a pool to its tenant's definition. Connections of another epoch or server are
    /// closed; those in use are closed when they are returned.
    pub fn set_terms(&mut self, pool: PoolRef, tenant: TenantId, terms: PoolTerms, now: Instant) {
        let registry = Arc::clone(&self.registry);
        let thread = self.handle.thread();
        let local = self.local(pool);
        if local.terms == terms {
            return;
        }
        let common = registry.common(local.common.id, tenant, &terms);
        let moved = !Arc::ptr_eq(&common, &local.common);
        if terms.revision != local.terms.revision {
            common.forget_trouble();
        }
        let unfit = moved || terms.epoch != local.terms.epoch;
        if moved {
            local.common.key.set_idle(thread, None);
        }
        local.terms = terms;
        if unfit || moved {
            // Waiting clients must claim slots anew, from the other server's ledger.
            self.calm(pool, now);
            let local = self.local(pool);
            let before = std::mem::replace(&mut local.common, Arc::clone(&common)).key.index();
            self.by_key.remove(&before);
            self.by_key.insert(common.key.index(), pool);
            self.close_idle(pool, usize::MAX, CloseReason::Unfit);
        }
        self.give_up_surplus(pool);
        self.plan(pool, Some(now));
        self.need(pool, now);
    }

    /// Closes connections that have been idle since before `before`.
    pub fn give_up_idle(&mut self, pool: PoolRef, before: Instant) {
        let idle = &self.local(pool).idle;
        let count = idle.iter().take_while(|idle| idle.since <= before).count();
        self.close_idle(pool, count, CloseReason::GivenUp);
    }

    /// Closes idle connections beyond the pool's current maximum.
    pub fn give_up_surplus(&mut self, pool: PoolRef) {
        let surplus = self.local(pool).common.key.surplus();
        self.close_idle(pool, usize::try_from(surplus).unwrap_or(usize::MAX), CloseReason::GivenUp);
    }

    /// Gives out no connections until [`ThreadPools::resume`]; idle connections are closed, others
    /// when they are returned, so that a server whose tenants are held can be replaced.
    pub fn hold(&mut self, pool: PoolRef, now: Instant) {
        if self.local(pool).gate == PoolGate::Open {
            self.local(pool).gate = PoolGate::Held;
            self.calm(pool, now);
            self.close_idle(pool, usize::MAX, CloseReason::Held);
        }
    }

    /// Ends [`ThreadPools::hold`].
    pub fn resume(&mut self, pool: PoolRef, now: Instant) {
        self.local(pool).gate = PoolGate::Open;
        self.need(pool, now);
        self.plan(pool, Some(now));
    }

    /// Refuses all waiting and future clients.
    pub fn shut(&mut self, pool: PoolRef, now: Instant) {
        self.local(pool).gate = PoolGate::Shut;
        self.refuse_all(pool, &LeaseRefusal::Shut, now);
        self.close_idle(pool, usize::MAX, CloseReason::Held);
    }

    /// Returns a server connection for a client with these settings, whose last one was `last`.
    pub fn lease(
        &mut self,
        pool: PoolRef,
        client: W,
        settings: u64,
        last: Option<C>,
        now: Instant,
    ) -> ServerLease<C> {
        let thread = self.handle.thread();
        let local = self.local(pool);
        if local.waiting.is_empty()
            && local.gate == PoolGate::Open
            && let Some(at) = local.choose(settings, last)
        {
            let idle = local.idle.remove(at);
            local.leased += 1;
            if at == 0 {
                local.publish_idle(thread);
            }
            return ServerLease::Ready(idle.conn);
        }
        self.queue(pool, client, now)
    }

    /// Handles a client for which no connection is idle.
    fn queue(&mut self, pool: PoolRef, client: W, now: Instant) -> ServerLease<C> {
        let local = self.local(pool);
        if local.gate == PoolGate::Shut {
            return ServerLease::Refused(LeaseRefusal::Shut);
        }
        if let Some(refusal) = local.down(now) {
            return ServerLease::Refused(refusal);
        }
        let waiting_max = local.terms.waiting_max;
        if !local.common.begin_to_wait(waiting_max) {
            return ServerLease::Refused(LeaseRefusal::QueueFull { waiting_max });
        }
        let ticket = local.next_ticket;
        local.next_ticket += 1;
        local.waiting.push_back(PoolWaiter { ticket, client, since: now });
        let later = local.next_look(now);
        self.plan(pool, later);
        self.need(pool, now);
        ServerLease::Waiting(QueueTicket(ticket))
    }

    /// Removes a client from the queue. Returns whether it was still waiting.
    pub fn give_up_waiting(&mut self, pool: PoolRef, ticket: QueueTicket, now: Instant) -> bool {
        let local = self.local(pool);
        let Ok(at) = local.waiting.binary_search_by_key(&ticket.0, |waiter| waiter.ticket) else {
            return false;
        };
        local.waiting.remove(at);
        local.common.end_to_wait(1);
        self.served(pool, now);
        true
    }

    /// Handles a connection that [`PoolEffect::Open`] requested and that is ready.
    pub fn opened(
        &mut self,
        pool: PoolRef,
        conn: C,
        place: &mut PooledSlot,
        settings: u64,
        now: Instant,
    ) -> FreedConnectionUse<W> {
        let jitter = self.chance();
        let local = self.local(pool);
        place.opening = None;
        local.leased += 1;
        place.expires = local.terms.lifetime.map(|life| now + life - part(life / 10, jitter));
        place.common.reached();
        let next = self.free_again(pool, conn, place, settings, now);
        // The first one succeeded, so that more may be opened at once.
        self.need(pool, now);
        next
    }

    /// Handles the failure of a connection that [`PoolEffect::Open`] requested.
    pub fn open_failed(
        &mut self,
        pool: PoolRef,
        place: PooledSlot,
        failure: Arc<PoolFailure>,
        now: Instant,
    ) {
        let jitter = self.chance();
        let local = self.local(pool);
        let retry = local.terms.retry;
        place.common.failed(failure, retry, jitter, now);
        drop(place);
        self.refuse_if_down(pool, now);
        let retry_at = self.local(pool).common.trouble().map(|trouble| trouble.retry_at);
        self.plan(pool, retry_at);
    }

    /// Handles a connection that a client has returned after it was busy for a time.
    pub fn returned(
        &mut self,
        pool: PoolRef,
        conn: C,
        place: &mut PooledSlot,
        settings: u64,
        busy_us: u64,
        now: Instant,
    ) -> FreedConnectionUse<W> {
        self.local(pool).busy_us += busy_us;
        self.free_again(pool, conn, place, settings, now)
    }

    /// Handles a connection from another thread. Returns `None` if this thread has no such pool;
    /// the connection is then closed.
    pub fn received(
        &mut self,
        conn: C,
        place: &mut PooledSlot,
        settings: u64,
        now: Instant,
    ) -> Option<(PoolRef, FreedConnectionUse<W>)> {
        let pool = self.find(place.pool())?;
        let local = self.local(pool);
        local.asking = false;
        local.leased += 1;
        let next = self.free_again(pool, conn, place, settings, now);
        self.need(pool, now);
        Some((pool, next))
    }

    /// Handles the loss of a connection, or its closing by the thread itself; not to be called for
    /// connections that an effect or return value has closed or moved.
    pub fn lost(&mut self, pool: PoolRef, conn: C, now: Instant) {
        let thread = self.handle.thread();
        let local = self.local(pool);
        match local.idle.iter().position(|idle| idle.conn == conn) {
            Some(at) => {
                local.idle.remove(at);
                local.publish_idle(thread);
            }
            None => local.leased = local.leased.saturating_sub(1),
        }
        self.need(pool, now);
        self.plan(pool, Some(now + REMIND_EVERY));
    }

    /// Decides the use of a connection that was counted as leased and is free.
    fn free_again(
        &mut self,
        pool: PoolRef,
        conn: C,
        place: &mut PooledSlot,
        settings: u64,
        now: Instant,
    ) -> FreedConnectionUse<W> {
        let thread = self.handle.thread();
        let local = self.local(pool);
        local.leased = local.leased.saturating_sub(1);
        let is_old = place.expires.is_some_and(|expires| expires <= now);
        let is_unfit =
            place.epoch != local.terms.epoch || !Arc::ptr_eq(&place.common, &local.common);
        let reason = match (local.gate, is_unfit, is_old) {
            (PoolGate::Held | PoolGate::Shut, _, _) => Some(CloseReason::Held),
            (PoolGate::Open, true, _) => Some(CloseReason::Unfit),
            (PoolGate::Open, false, true) => Some(CloseReason::Lifetime),
            (PoolGate::Open, false, false) => None,
        };
        if let Some(reason) = reason {
            // Its slot is free only after this: waiting clients queue for it.
            self.need(pool, now);
            return FreedConnectionUse::Close(reason);
        }
        // The connection is published before the check for waiting clients: see `needed_elsewhere`.
        if local.waiting.is_empty() {
            local.idle.push(IdleServer { conn, settings, since: now, expires: place.expires });
            if local.idle.len() == 1 {
                local.publish_idle(thread);
            }
        }
        if local.common.key.needed_elsewhere(thread)
            && let Some(next) = self.decide(pool, place, now)
        {
            let local = self.local(pool);
            if local.idle.pop_if(|idle| idle.conn == conn).is_some() && local.idle.is_empty() {
                local.publish_idle(thread);
            }
            return next;
        }
        let local = self.local(pool);
        if let Some(waiter) = local.pop_waiter() {
            local.leased += 1;
            self.served(pool, now);
            return FreedConnectionUse::Serve(waiter.client);
        }
        if self.local(pool).due.is_none() {
            let later = self.local(pool).next_look(now);
            self.plan(pool, later);
        }
        FreedConnectionUse::Idle
    }

    /// Returns the use of a free connection outside of this pool of the thread, if any.
    fn decide(
        &mut self,
        pool: PoolRef,
        place: &mut PooledSlot,
        now: Instant,
    ) -> Option<FreedConnectionUse<W>> {
        let thread = self.handle.thread();
        let local = self.local(pool);
        let own = local.waits_since();
        if local.common.key.is_contended() {
            local.charge(now);
            let released = local.common.key.release(&mut place.permit, own, now);
            if released == ReleaseOutcome::GiveUp {
                return Some(FreedConnectionUse::Close(CloseReason::GivenUp));
            }
        }
        // The margin includes a part of this thread's own wait, or connections would move back and
        // forth between threads that are equally busy.
        let waits = own.map_or(Duration::ZERO, |own| now.saturating_duration_since(own));
        local
            .common
            .key
            .claim_older(thread, own, OLDER_BY + waits / 4)
            .map(FreedConnectionUse::Move)
    }

    /// Opens, fetches or claims connections for the clients that wait.
    fn need(&mut self, pool: PoolRef, now: Instant) {
        let thread = self.handle.thread();
        let local = self.local(pool);
        let Some(since) = local.waits_since().filter(|_| local.gate == PoolGate::Open) else {
            return;
        };
        if local.opening() >= local.waiters() || (local.starving && now < local.remind_at) {
            return;
        }
        if let Some(trouble) = local.common.trouble()
            && now < trouble.retry_at
        {
            self.plan(pool, Some(trouble.retry_at));
            return;
        }
        if let Some((_, idle_since)) = local.common.key.idle_elsewhere(thread)
            && now.saturating_duration_since(idle_since) >= FETCH_IDLE_AFTER
        {
            self.ask(pool);
        }
        let local = self.local(pool);
        if local.asking {
            return;
        }
        let opening_max = if local.common.is_proven() { OPENING_MAX } else { 1 };
        while self.local(pool).opening() < self.local(pool).waiters().min(opening_max) {
            match self.local(pool).common.key.open(since, now) {
                Ok(permit) => self.open(pool, permit),
                Err(_) => return self.starve(pool, since, now),
            }
        }
    }

    /// Announces to all threads that clients wait here for a slot.
    fn starve(&mut self, pool: PoolRef, since: Instant, now: Instant) {
        let thread = self.handle.thread();
        let local = self.local(pool);
        local.charge(now);
        let wanted = local.waiters().saturating_sub(local.opening());
        local.starving = true;
        local.remind_at = now + REMIND_EVERY;
        // Published before the check for idle connections: see `needed_elsewhere`.
        local.common.key.set_waiting(thread, Some(since));
        local.common.key.want(thread, wanted, since, now);
        self.ask(pool);
        self.plan(pool, Some(now + REMIND_EVERY));
    }

    /// Requests the longest idle connection of this pool from the thread that has it.
    fn ask(&mut self, pool: PoolRef) {
        let thread = self.handle.thread();
        let local = self.local(pool);
        if local.asking {
            return;
        }
        if let Some((other, _)) = local.common.key.idle_elsewhere(thread) {
            local.asking = true;
            let wanted = local.waiters().saturating_sub(local.opening());
            let note = PoolMessage::Ask { pool: local.common.id, by: thread, wanted };
            self.registry.tell(other, note);
        }
    }

    fn open(&mut self, pool: PoolRef, permit: SlotPermit) {
        let local = self.local(pool);
        let opening = OpeningCount::new(&local.opening);
        let common = Arc::clone(&local.common);
        let place = PooledSlot::new(permit, common, local.terms.epoch, Some(opening));
        self.effects.push_back(PoolEffect::Open { pool, place });
    }

    /// Updates the state after a client was served.
    fn served(&mut self, pool: PoolRef, now: Instant) {
        let thread = self.handle.thread();
        let local = self.local(pool);
        if !local.starving {
            return;
        }
        match local.waits_since() {
            Some(since) => local.common.key.set_waiting(thread, Some(since)),
            None => self.calm(pool, now),
        }
    }

    /// Withdraws the claim to slots of a pool that needs none any more.
    fn calm(&mut self, pool: PoolRef, now: Instant) {
        let thread = self.handle.thread();
        let local = self.local(pool);
        if std::mem::take(&mut local.starving) {
            local.common.key.set_waiting(thread, None);
            local.common.key.want(thread, 0, now, now);
        }
    }

    /// Handles messages of other threads. Must be called when this thread was woken.
    pub fn mail(&mut self, now: Instant) {
        let mut letters = std::mem::take(&mut self.letters);
        self.handle.take_letters(&mut letters);
        for letter in letters.drain(..) {
            match letter {
                ThreadLetter::Granted(permit) => self.granted(permit),
                ThreadLetter::Reclaim(key) => {
                    if let Some(pool) = self.by_key.get(&key.index()).copied() {
                        self.close_idle(pool, 1, CloseReason::GivenUp);
                    }
                }
            }
        }
        self.letters = letters;
        let mut notes = std::mem::take(&mut self.notes);
        self.registry.take_notes(self.handle.thread(), &mut notes);
        for note in notes.drain(..) {
            match note {
                PoolMessage::Ask { pool, by, wanted } => self.asked(pool, by, wanted),
                PoolMessage::Decline { pool } => {
                    if let Some(pool) = self.find(pool) {
                        self.local(pool).asking = false;
                        self.need(pool, now);
                    }
                }
            }
        }
        self.notes = notes;
    }

    fn granted(&mut self, permit: SlotPermit) {
        let Some(pool) = self.by_key.get(&permit.key().index()).copied() else { return };
        let local = self.local(pool);
        // Not needed any more: dropping the permit passes it to the next in line.
        if local.gate == PoolGate::Open && local.opening() < local.waiters() {
            self.open(pool, permit);
        }
    }

    fn asked(&mut self, id: PoolId, by: usize, wanted: u32) {
        let mut sent = 0;
        if let Some(pool) = self.find(id) {
            let thread = self.handle.thread();
            while sent < wanted && !self.local(pool).idle.is_empty() {
                let local = self.local(pool);
                let conn = local.idle.remove(0).conn;
                local.publish_idle(thread);
                self.effects.push_back(PoolEffect::Move { conn, thread: by });
                sent += 1;
            }
        }
        if sent == 0 {
            self.registry.tell(by, PoolMessage::Decline { pool: id });
        }
    }

    /// Returns a slot for a connection that the thread uses itself and never returns to the pool,
    /// such as one that listens. `None` if no slot is free.
    pub fn extra(&mut self, pool: PoolRef, now: Instant) -> Option<PooledSlot> {
        let local = self.local(pool);
        let permit = local.common.key.open(now, now).ok()?;
        Some(PooledSlot::new(permit, Arc::clone(&local.common), local.terms.epoch, None))
    }

    /// Returns the next effect to execute; if there is none, [`ThreadPools::next_due`] is the time
    /// of the next [`ThreadPools::tick`].
    pub fn next_effect(&mut self) -> Option<PoolEffect<C, W>> {
        self.effects.pop_front()
    }

    /// Returns the time at which [`ThreadPools::tick`] has something to do.
    pub fn next_due(&self) -> Option<Instant> {
        self.agenda.first().map(|(due, _)| *due)
    }

    /// Handles the passing of time.
    pub fn tick(&mut self, now: Instant) {
        while let Some(&(due, pool)) = self.agenda.first() {
            if due > now {
                return;
            }
            self.agenda.pop_first();
            self.local(pool).due = None;
            self.maintain(pool, now);
        }
    }

    fn maintain(&mut self, pool: PoolRef, now: Instant) {
        let local = self.local(pool);
        if local.busy_us > 0 && now >= local.charge_at {
            local.charge(now);
        }
        self.refuse_late(pool, now);
        self.refuse_if_down(pool, now);
        self.need(pool, now);
        self.close_old(pool, now);
        self.keep_min(pool, now);
        let local = self.local(pool);
        if local.is_unused() && now >= local.left_at + FORGET_AFTER {
            let id = local.common.id;
            local.charge(now);
            let (due, key) = (local.due, local.common.key.index());
            if let Some(due) = due {
                self.agenda.remove(&(due, pool));
            }
            self.by_key.remove(&key);
            self.by_id.remove(&id);
            if let Some(local) = self.pools[pool.0 as usize].take() {
                self.registry.forget(&local.common);
            }
            self.free.push(pool);
            return;
        }
        let later = local.next_look(now);
        self.plan(pool, later);
    }

    /// Refuses clients that have waited for as long as the limit allows.
    fn refuse_late(&mut self, pool: PoolRef, now: Instant) {
        let Some(wait) = self.local(pool).terms.wait else { return };
        while let Some(since) = self.local(pool).waits_since()
            && now >= since + wait
        {
            let Some(waiter) = self.local(pool).pop_waiter() else { break };
            let refusal = LeaseRefusal::WaitTimeout { wait };
            self.effects.push_back(PoolEffect::Refuse { client: waiter.client, refusal });
            self.served(pool, now);
        }
    }

    /// Refuses all waiting clients if the server cannot be reached.
    fn refuse_if_down(&mut self, pool: PoolRef, now: Instant) {
        let local = self.local(pool);
        if !local.waiting.is_empty()
            && let Some(refusal) = local.down(now)
        {
            self.refuse_all(pool, &refusal, now);
        }
    }

    fn refuse_all(&mut self, pool: PoolRef, refusal: &LeaseRefusal, now: Instant) {
        while let Some(waiter) = self.local(pool).pop_waiter() {
            let refusal = refusal.clone();
            self.effects.push_back(PoolEffect::Refuse { client: waiter.client, refusal });
        }
        self.calm(pool, now);
    }

    /// Closes the longest idle connections.
    fn close_idle(&mut self, pool: PoolRef, count: usize, reason: CloseReason) {
        let thread = self.handle.thread();
        let Some(local) = self.pools[pool.0 as usize].as_mut() else { return };
        let count = count.min(local.idle.len());
        let closed = local.idle.drain(..count);
        self.effects.extend(closed.map(|idle| PoolEffect::Close { conn: idle.conn, reason }));
        local.publish_idle(thread);
    }

    /// Closes connections that have been idle for too long or are too old.
    fn close_old(&mut self, pool: PoolRef, now: Instant) {
        let thread = self.handle.thread();
        let Some(local) = self.pools[pool.0 as usize].as_mut() else { return };
        let (limit, live) = (local.terms.idle, local.common.live());
        let kept = if local.members > 0 { local.terms.connections_min } else { 0 };
        let mut surplus = live.saturating_sub(kept);
        let effects = &mut self.effects;
        local.idle.retain(|idle| {
            let reason = if idle.expires.is_some_and(|expires| expires <= now) {
                CloseReason::Lifetime
            } else if surplus > 0 && limit.is_some_and(|limit| idle.since + limit <= now) {
                surplus -= 1;
                CloseReason::Idle
            } else {
                return true;
            };
            effects.push_back(PoolEffect::Close { conn: idle.conn, reason });
            false
        });
        local.publish_idle(thread);
    }

    /// Opens connections up to the minimum, one after another.
    fn keep_min(&mut self, pool: PoolRef, now: Instant) {
        let thread = self.handle.thread();
        let local = self.local(pool);
        let lacks = local.lacks_min(thread) && local.opening() == 0;
        let is_time = local.common.trouble().is_none_or(|trouble| now >= trouble.retry_at);
        if lacks
            && is_time
            && let Ok(permit) = local.common.key.open(now, now)
        {
            self.open(pool, permit);
        }
    }

    /// Returns the figures of a pool on this thread.
    pub fn figures(&self, pool: PoolRef, now: Instant) -> ThreadPoolFigures {
        let Some(local) = self.pools.get(pool.0 as usize).and_then(Option::as_ref) else {
            return ThreadPoolFigures::default();
        };
        let waited = local.waits_since().map(|since| now.saturating_duration_since(since));
        ThreadPoolFigures {
            idle: u32::try_from(local.idle.len()).unwrap_or(u32::MAX),
            leased: local.leased,
            opening: local.opening(),
            waiting: local.waiters(),
            waited: waited.unwrap_or_default(),
        }
    }

    /// Schedules a check of the pool at `time`, or sooner.
    fn plan(&mut self, pool: PoolRef, time: Option<Instant>) {
        let local = self.local(pool);
        let due = sooner(local.due, time);
        let before = std::mem::replace(&mut local.due, due);
        if before != due {
            if let Some(before) = before {
                self.agenda.remove(&(before, pool));
            }
            self.agenda.extend(due.map(|due| (due, pool)));
        }
    }

    /// Returns a pool that was joined. A reference outlives its pool only if a client leaves twice.
    fn local(&mut self, pool: PoolRef) -> &mut LocalPool<C, W> {
        self.pools[pool.0 as usize].as_mut().expect("a pool that is referred to was joined")
    }

    /// Returns the next value of xorshift64: values only need to differ.
    fn chance(&mut self) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance
    }
}

impl<C, W> fmt::Debug for ThreadPools<C, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pools").field("pools", &self.by_id.len()).finish_non_exhaustive()
    }
}
