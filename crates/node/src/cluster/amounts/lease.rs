//! One amount as known to a node: how much it may use without querying the store. Pure.

use super::exchange::{AmountAnswer, AmountDemand, ExchangePurpose, UnusedLease, ahead};

/// Use that is to be made of an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AmountUse {
    /// So much of it.
    Exactly(u64),
    /// Some of it; how much is known afterwards.
    Some,
}

impl AmountUse {
    /// Returns what has to be there.
    pub(super) fn needed(self) -> u64 {
        match self {
            AmountUse::Exactly(amount) => amount,
            AmountUse::Some => 1,
        }
    }
}

/// What may be used beyond a lease while the store is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreAwayRule {
    /// Nothing.
    Refuse,
    /// As much as is leased ahead of an amount of which nothing is used.
    GoOn,
}

/// Result of an attempt to use something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UseAttempt {
    /// It may be used, and is counted where it is known how much it is.
    Granted,
    /// The limit is reached.
    UsedUp,
    /// Nothing more is leased here; the store has to be asked.
    Short,
}

/// An amount at one node.
#[derive(Debug)]
pub(super) struct LocalAmount {
    limit: Option<u64>,
    life: u64,
    next_life: u64,
    /// Most that `used` may be.
    granted: u64,
    used: u64,
    /// What of `used` the store has confirmed.
    confirmed: u64,
    /// What all had spent with that.
    spent_by_all: u64,
    held_elsewhere: u64,
    free: u64,
    /// What is left when more is leased ahead.
    low: u64,
    /// Amount that requests wait for.
    waiting: u64,
    /// What was used at the last look, and how many looks there were since it was used.
    looked_at: u64,
    idle_looks: u32,
    /// True from a demand to its answer.
    is_asked: bool,
    /// True from when the store did not answer until it does.
    is_store_away: bool,
    away_rule: StoreAwayRule,
    unused: UnusedLease,
}

impl LocalAmount {
    /// Creates one of which nothing is leased. `next_life` is one that this run had never before.
    pub(super) fn new(
        next_life: u64,
        unused: UnusedLease,
        away_rule: StoreAwayRule,
    ) -> LocalAmount {
        LocalAmount {
            limit: None,
            life: 0,
            next_life,
            granted: 0,
            used: 0,
            confirmed: 0,
            spent_by_all: 0,
            held_elsewhere: 0,
            free: 0,
            low: 0,
            waiting: 0,
            looked_at: 0,
            idle_looks: 0,
            is_asked: false,
            is_store_away: false,
            away_rule,
            unused,
        }
    }

    /// Creates one that nobody else uses, so that the store is never asked.
    pub(super) fn alone() -> LocalAmount {
        let it = LocalAmount::new(0, UnusedLease::Spent, StoreAwayRule::Refuse);
        LocalAmount { granted: u64::MAX, ..it }
    }

    /// Returns what is known to be spent by all.
    pub(super) fn spent(&self) -> u64 {
        self.spent_by_all.saturating_add(self.used.saturating_sub(self.confirmed))
    }

    pub(super) fn left(&self) -> u64 {
        self.granted.saturating_sub(self.used)
    }

    /// Returns whether so much more would exceed a limit, by what is known here.
    pub(super) fn would_exceed(&self, amount: u64, limit: Option<u64>) -> bool {
        limit.is_some_and(|limit| self.spent().saturating_add(amount) > limit)
    }

    /// Uses something if that may be.
    pub(super) fn attempt(&mut self, wanted: AmountUse, limit: Option<u64>) -> UseAttempt {
        self.limit = limit;
        let needed = wanted.needed();
        if self.would_exceed(needed, limit) {
            return UseAttempt::UsedUp;
        }
        let most = self.granted.saturating_add(self.credit(limit));
        if limit.is_some() && most.saturating_sub(self.used) < needed {
            return UseAttempt::Short;
        }
        if let AmountUse::Exactly(amount) = wanted {
            self.charge(amount);
        }
        UseAttempt::Granted
    }

    /// Returns what may be used beyond the lease now.
    fn credit(&self, limit: Option<u64>) -> u64 {
        match self.away_rule {
            StoreAwayRule::GoOn if self.is_store_away => ahead(limit.unwrap_or(0)),
            StoreAwayRule::GoOn | StoreAwayRule::Refuse => 0,
        }
    }

    /// Notes that the store does not answer.
    pub(super) fn lose_store(&mut self) {
        self.is_store_away = true;
    }

    /// Counts what was used, also beyond what is leased or there is.
    pub(super) fn charge(&mut self, amount: u64) {
        self.used = self.used.saturating_add(amount);
    }

    /// Returns whether others have what is missing.
    pub(super) fn is_held_elsewhere(&self) -> bool {
        self.held_elsewhere > 0 && self.free == 0
    }

    /// Returns whether it is time to lease more, before a request has to wait for it.
    pub(super) fn wants_ahead(&self) -> bool {
        let is_low = self.left() <= self.low && !self.is_asked;
        self.limit.is_some() && self.free > 0 && is_low
    }

    /// Returns whether more was used than is leased.
    pub(super) fn is_overdrawn(&self) -> bool {
        self.limit.is_some() && self.used > self.granted
    }

    /// Looks whether something was used, and returns for how many looks nothing was.
    pub(super) fn look(&mut self) -> u32 {
        let is_idle = std::mem::replace(&mut self.looked_at, self.used) == self.used;
        self.idle_looks = if is_idle { self.idle_looks.saturating_add(1) } else { 0 };
        self.idle_looks
    }

    /// Returns whether the store does not know all that was used, or did not answer.
    pub(super) fn is_unsettled(&self) -> bool {
        self.used != self.confirmed || self.is_asked
    }

    /// Returns whether the store knows all of it, and nothing is leased: it may be forgotten here.
    pub(super) fn is_settled(&self) -> bool {
        !self.is_unsettled() && !self.has_left()
    }

    /// Returns what was used and is not confirmed.
    #[cfg(test)]
    pub(super) fn unconfirmed(&self) -> u64 {
        self.used - self.confirmed
    }

    /// Returns whether something is leased that is not used.
    pub(super) fn has_left(&self) -> bool {
        self.left() > 0
    }

    pub(super) fn wait_for(&mut self, amount: u64) {
        self.waiting = self.waiting.saturating_add(amount);
    }

    pub(super) fn stop_waiting_for(&mut self, amount: u64) {
        self.waiting = self.waiting.saturating_sub(amount);
    }

    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting > 0
    }

    /// Returns what is to be said to the store, to go on.
    pub(super) fn demand(&mut self) -> AmountDemand {
        // What others could use as well is given up here first, and then there: of what nobody has
        // and what is left, no more than would be leased now.
        let fair = ahead(self.free.saturating_add(self.left())).max(self.waiting);
        self.give_up_beyond(fair);
        let is_low = self.left() <= self.low || self.waiting > self.left();
        let leases = self.limit.is_some() && is_low;
        self.ask(if leases { ExchangePurpose::Lease } else { ExchangePurpose::Settle })
    }

    /// Returns what is to be said to the store, to give back what is left.
    pub(super) fn give_back(&mut self) -> AmountDemand {
        self.give_up_beyond(0);
        self.ask(ExchangePurpose::Settle)
    }

    /// Returns what is to be said to the store when nobody uses it here any more.
    pub(super) fn close(&mut self) -> AmountDemand {
        self.give_up_beyond(0);
        self.ask(ExchangePurpose::Close)
    }

    /// Gives up what is left beyond an amount. What was used beyond the lease does not make that
    /// larger.
    fn give_up_beyond(&mut self, amount: u64) {
        self.granted = self.granted.min(self.used.saturating_add(amount));
    }

    fn ask(&mut self, purpose: ExchangePurpose) -> AmountDemand {
        self.is_asked = true;
        AmountDemand {
            limit: self.limit,
            life: self.life,
            next_life: self.next_life,
            retained: self.granted,
            used: self.used,
            counted: match self.unused {
                // Whoever took the lease for lost has counted all of it.
                UnusedLease::Spent if self.life != 0 => self.confirmed.max(self.granted),
                UnusedLease::Spent | UnusedLease::GivenBack => self.confirmed,
            },
            wanted: self.waiting,
            purpose,
        }
    }

    /// Takes the answer to a demand. `next_life` is a new one.
    pub(super) fn answered(
        &mut self,
        demand: &AmountDemand,
        answer: &AmountAnswer,
        next_life: u64,
    ) {
        if answer.life == self.next_life {
            self.next_life = next_life;
        }
        self.is_asked = false;
        self.is_store_away = false;
        self.life = answer.life;
        self.granted = answer.granted;
        self.confirmed = demand.used;
        self.spent_by_all = answer.spent_by_all;
        self.held_elsewhere = answer.held_elsewhere;
        self.free = answer.free;
        if demand.purpose == ExchangePurpose::Lease {
            self.low = self.left() / 4;
        }
    }
}
