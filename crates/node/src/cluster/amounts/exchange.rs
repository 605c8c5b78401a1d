//! Messages between one node and the store about one amount, and the size of leases. Pure.
//!
//! For each account the store has the spent amount, and a row for each node that has leased a part
//! of it. Numbers in a row only grow, in the node's own count: the most that it may have used
//! (`granted`), what it has used (`used`), and how much of that is in the account already
//! (`absorbed`). So running a transaction twice has the same effect as running it once.

use crate::cluster::identity::NodeIdentity;

/// Divisor for the part of the rest that one node leases ahead: small enough that a crashed node
/// loses little, and large enough that a budget of any size takes a few hundred exchanges.
const AHEAD_PART: u64 = 16;

/// Treatment of the unused lease of a lost node, whose last usage is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnusedLease {
    /// The lease counts as spent: the limit is never exceeded.
    Spent,
    /// The lease goes back to the account: usage since the last exchange may be used once more.
    GivenBack,
}

/// Lease of one node, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseRow {
    pub(super) node: String,
    pub(super) incarnation: String,
    /// Distinguishes the leases of one run: a new life begins after the row was removed.
    pub(super) life: u64,
    pub(super) granted: u64,
    pub(super) used: u64,
    pub(super) absorbed: u64,
}

impl LeaseRow {
    /// Returns the amount that no other node may use.
    pub(super) fn taken(&self) -> u64 {
        self.granted.max(self.used).saturating_sub(self.absorbed)
    }

    pub(super) fn left(&self) -> u64 {
        self.granted.saturating_sub(self.used)
    }

    fn spent(&self) -> u64 {
        self.used.saturating_sub(self.absorbed)
    }

    /// Returns the amount that the account takes over from a lease that has ended.
    fn remainder(&self, unused: UnusedLease) -> u64 {
        match unused {
            UnusedLease::Spent => self.taken(),
            UnusedLease::GivenBack => self.spent(),
        }
    }
}

/// Report and request of a node about one amount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AmountDemand {
    /// Maximum that all nodes together may use; none for no limit.
    pub(super) limit: Option<u64>,
    /// Current lease of the node, and its next one if the current row was removed.
    pub(super) life: u64,
    pub(super) next_life: u64,
    /// Maximum that it may have used: no more than it was granted.
    pub(super) retained: u64,
    pub(super) used: u64,
    /// Part of `used` that the account certainly contains if the row was removed.
    pub(super) counted: u64,
    /// Amount that requests wait for.
    pub(super) wanted: u64,
    pub(super) purpose: ExchangePurpose,
}

/// Purpose of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangePurpose {
    /// Lease more.
    Lease,
    /// Report the usage.
    Settle,
    /// Report the usage of an account that has no users here any more: a removed account stays
    /// removed.
    Close,
}

/// Answer of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AmountAnswer {
    pub(super) life: u64,
    /// Maximum that the node may have used from now on, in its own count.
    pub(super) granted: u64,
    /// Reported usage of all nodes.
    pub(super) spent_by_all: u64,
    /// Amount that other nodes have leased beyond that.
    pub(super) held_elsewhere: u64,
    /// Amount that no node has.
    pub(super) free: u64,
}

/// Rows of an account after an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExchangedRows {
    /// Spent amount, without the amounts in rows.
    pub(super) spent: u64,
    /// Nodes whose rows were removed.
    pub(super) removed: Vec<String>,
    /// The node's row from now on.
    pub(super) own: LeaseRow,
    pub(super) answer: AmountAnswer,
}

/// Returns the amount that a node leases ahead when `left` is left for it.
pub(super) fn ahead(left: u64) -> u64 {
    left.div_ceil(AHEAD_PART)
}

/// Settles one amount of one node, and leases more of it. `is_over` returns whether a lease belongs
/// to a run that can use nothing any more.
pub(super) fn exchange(
    spent: u64,
    rows: &[LeaseRow],
    demand: &AmountDemand,
    run: &NodeIdentity,
    is_over: &dyn Fn(&LeaseRow) -> bool,
    unused: UnusedLease,
) -> ExchangedRows {
    let (own, others): (Vec<&LeaseRow>, Vec<&LeaseRow>) =
        rows.iter().partition(|row| row.node == run.id);
    let (over, others): (Vec<&LeaseRow>, Vec<&LeaseRow>) =
        others.into_iter().partition(|row| is_over(row));
    let reclaimed = over.iter().map(|row| row.remainder(unused));
    let mut spent = reclaimed.fold(spent, u64::saturating_add);
    let removed: Vec<String> = over.iter().map(|row| row.node.clone()).collect();
    let mut own = own_row(own.first().copied(), demand, run, unused, &mut spent);
    let of_others =
        |what: fn(&LeaseRow) -> u64| others.iter().map(|it| what(it)).fold(0, u64::saturating_add);
    let taken_elsewhere = of_others(LeaseRow::taken);
    let spent_elsewhere = of_others(LeaseRow::spent);
    let not_free = spent.saturating_add(taken_elsewhere).saturating_add(own.spent());
    let left_for_own = demand.limit.unwrap_or(0).saturating_sub(not_free);
    if demand.purpose == ExchangePurpose::Lease {
        let target = demand.wanted.max(ahead(left_for_own)).min(left_for_own);
        own.granted = own.granted.max(own.used.saturating_add(target));
    }
    let answer = AmountAnswer {
        life: own.life,
        granted: own.granted,
        spent_by_all: spent.saturating_add(spent_elsewhere).saturating_add(own.spent()),
        held_elsewhere: taken_elsewhere.saturating_sub(spent_elsewhere),
        free: left_for_own.saturating_sub(own.left()),
    };
    ExchangedRows { spent, removed, own, answer }
}

/// Returns the node's row with its report applied. A row of a former lease goes into `spent`.
fn own_row(
    row: Option<&LeaseRow>,
    demand: &AmountDemand,
    run: &NodeIdentity,
    unused: UnusedLease,
    spent: &mut u64,
) -> LeaseRow {
    let is_own = |row: &&LeaseRow| row.incarnation == run.incarnation;
    match row.filter(is_own).filter(|row| [demand.life, demand.next_life].contains(&row.life)) {
        Some(row) => {
            let used = row.used.max(demand.used);
            // A new lease that the node has not received yet: its former lease is over.
            let granted = if row.life == demand.life { demand.retained.max(used) } else { used };
            LeaseRow { granted, used, ..row.clone() }
        }
        None => {
            let former = row.map_or(0, |row| row.remainder(unused));
            // The node reports usage that is not in the account here, and once.
            let uncounted = demand.used.saturating_sub(demand.counted);
            *spent = spent.saturating_add(former).saturating_add(uncounted);
            LeaseRow {
                node: run.id.clone(),
                incarnation: run.incarnation.clone(),
                life: demand.next_life,
                granted: demand.used,
                used: demand.used,
                absorbed: demand.used,
            }
        }
    }
}
