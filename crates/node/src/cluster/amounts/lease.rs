//! One amount as known to a node: how much it may use without querying the store. Pure.

use super::exchange::{AmountAnswer, AmountDemand, ExchangePurpose, UnusedLease, ahead};

/// Requested use of an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AmountUse {
    /// This much.
    Exactly(u64),
    /// Some of it; the quantity is known afterwards.
    Some,
}

impl AmountUse {
    /// Returns the amount that must be available.
    pub(super) fn needed(self) -> u64 {
        match self {
            AmountUse::Exactly(amount) => amount,
            AmountUse::Some => 1,
        }
    }
}

/// Use beyond a lease while the store is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreAwayRule {
    /// Nothing.
    Refuse,
    /// As much as would be leased ahead of a completely unused amount.
    GoOn,
}

/// Result of an attempt to use an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UseAttempt {
    /// The amount may be used; an exact use is counted.
    Granted,
    /// The limit is reached.
    UsedUp,
    /// Nothing more is leased here; the store must be queried.
    Short,
}

/// An amount at one node.
#[derive(Debug)]
pub(super) struct LocalAmount {
    limit: Option<u64>,
    life: u64,
    next_life: u64,
    /// Maximum of `used`.
    granted: u64,
    used: u64,
    /// Part of `used` that the store has confirmed.
    confirmed: u64,
    /// Usage of all nodes at that time.
    spent_by_all: u64,
    held_elsewhere: u64,
    free: u64,
    /// Remainder at which more is leased ahead.
    low: u64,
    /// Amount that requests wait for.
    waiting: u64,
    /// Usage at the last look, and the number of looks since the last use.
    looked_at: u64,
    idle_looks: u32,
    /// True from a demand to its answer.
    is_asked: bool,
    /// True from a failure of the store until its next answer.
    is_store_away: bool,
    away_rule: StoreAwayRule,
    unused: UnusedLease,
}

impl LocalAmount {
    /// Creates an amount without a lease. `next_life` is one that this run has never used.
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

    /// Creates an amount that no other node uses, so that the store is never queried.
    pub(super) fn alone() -> LocalAmount {
        let it = LocalAmount::new(0, UnusedLease::Spent, StoreAwayRule::Refuse);
        LocalAmount { granted: u64::MAX, ..it }
    }

    /// Returns the known usage by all nodes.
    pub(super) fn spent(&self) -> u64 {
        self.spent_by_all.saturating_add(self.used.saturating_sub(self.confirmed))
    }

    pub(super) fn left(&self) -> u64 {
        self.granted.saturating_sub(self.used)
    }

    /// Returns whether `amount` more would exceed a limit, by what this node knows.
    pub(super) fn would_exceed(&self, amount: u64, limit: Option<u64>) -> bool {
        limit.is_some_and(|limit| self.spent().saturating_add(amount) > limit)
    }

    /// Uses an amount if allowed.
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

    /// Returns the amount that may be used beyond the lease now.
    fn credit(&self, limit: Option<u64>) -> u64 {
        match self.away_rule {
            StoreAwayRule::GoOn if self.is_store_away => ahead(limit.unwrap_or(0)),
            StoreAwayRule::GoOn | StoreAwayRule::Refuse => 0,
        }
    }

    /// Records that the store does not answer.
    pub(super) fn lose_store(&mut self) {
        self.is_store_away = true;
    }

    /// Counts usage, also beyond the lease or the limit.
    pub(super) fn charge(&mut self, amount: u64) {
        self.used = self.used.saturating_add(amount);
    }

    /// Returns whether other nodes hold the missing amount.
    pub(super) fn is_held_elsewhere(&self) -> bool {
        self.held_elsewhere > 0 && self.free == 0
    }

    /// Returns whether to lease more before a request has to wait for it.
    pub(super) fn wants_ahead(&self) -> bool {
        let is_low = self.left() <= self.low && !self.is_asked;
        self.limit.is_some() && self.free > 0 && is_low
    }

    /// Returns whether more was used than is leased.
    pub(super) fn is_overdrawn(&self) -> bool {
        self.limit.is_some() && self.used > self.granted
    }

    /// Checks for new usage, and returns the number of looks without any.
    pub(super) fn look(&mut self) -> u32 {
        let is_idle = std::mem::replace(&mut self.looked_at, self.used) == self.used;
        self.idle_looks = if is_idle { self.idle_looks.saturating_add(1) } else { 0 };
        self.idle_looks
    }

    /// Returns whether the store does not know the whole usage, or has not answered.
    pub(super) fn is_unsettled(&self) -> bool {
        self.used != self.confirmed || self.is_asked
    }

    /// Returns whether the store knows the whole usage and nothing is leased: the account may be
    /// removed from memory.
    pub(super) fn is_settled(&self) -> bool {
        !self.is_unsettled() && !self.has_left()
    }

    /// Returns the unconfirmed usage.
    #[cfg(test)]
    pub(super) fn unconfirmed(&self) -> u64 {
        self.used - self.confirmed
    }

    /// Returns whether an unused part is leased.
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

    /// Returns the demand of a normal exchange.
    pub(super) fn demand(&mut self) -> AmountDemand {
        // A part that other nodes could use as well is given up here first, and then in the store:
        // of the free amount and the rest, the node keeps no more than it would lease now.
        let fair = ahead(self.free.saturating_add(self.left())).max(self.waiting);
        self.give_up_beyond(fair);
        let is_low = self.left() <= self.low || self.waiting > self.left();
        let leases = self.limit.is_some() && is_low;
        self.ask(if leases { ExchangePurpose::Lease } else { ExchangePurpose::Settle })
    }

    /// Returns the demand that gives back the rest.
    pub(super) fn give_back(&mut self) -> AmountDemand {
        self.give_up_beyond(0);
        self.ask(ExchangePurpose::Settle)
    }

    /// Returns the demand for an account without users here.
    pub(super) fn close(&mut self) -> AmountDemand {
        self.give_up_beyond(0);
        self.ask(ExchangePurpose::Close)
    }

    /// Gives up the rest beyond an amount. Overdrawn usage does not make the lease larger.
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
                // The node that declared the lease lost has counted all of it.
                UnusedLease::Spent if self.life != 0 => self.confirmed.max(self.granted),
                UnusedLease::Spent | UnusedLease::GivenBack => self.confirmed,
            },
            wanted: self.waiting,
            purpose,
        }
    }

    /// Applies the answer to a demand. `next_life` is a new one.
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
