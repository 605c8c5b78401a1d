//! Messages between one node and the store about one amount, and the size of leases. Pure.
//!
//! Of each account the store has what was spent, and a row for each node that has leased something
//! of it. Numbers in a row only grow, in the count of the node: what it may have used at most
//! (`granted`), what it has used (`used`), and how much of that is in the account already
//! (`absorbed`). So a transaction that is run twice does the same.

use crate::cluster::identity::NodeIdentity;

/// Part of what is left of an amount that one node leases ahead: so small that little is lost with
/// a node that crashes, and so large that a budget of any size takes a few hundred exchanges.
const AHEAD_PART: u64 = 16;

/// What becomes of something that a lost node had leased, and of which nobody knows whether it was
/// used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnusedLease {
    /// It counts as spent: the limit is never exceeded.
    Spent,
    /// It goes back to the account: what was used since the last exchange is used once more.
    GivenBack,
}

/// Lease of one node, as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseRow {
    pub(super) node: String,
    pub(super) incarnation: String,
    /// Tells the leases of one run apart: another one begins where the row was gone.
    pub(super) life: u64,
    pub(super) granted: u64,
    pub(super) used: u64,
    pub(super) absorbed: u64,
}

impl LeaseRow {
    /// Returns what nobody else may use.
    pub(super) fn taken(&self) -> u64 {
        self.granted.max(self.used).saturating_sub(self.absorbed)
    }

    pub(super) fn left(&self) -> u64 {
        self.granted.saturating_sub(self.used)
    }

    fn spent(&self) -> u64 {
        self.used.saturating_sub(self.absorbed)
    }

    /// Returns what the account has to take over of a lease that is over.
    fn remainder(&self, unused: UnusedLease) -> u64 {
        match unused {
            UnusedLease::Spent => self.taken(),
            UnusedLease::GivenBack => self.spent(),
        }
    }
}

/// What a node says of one amount, and wants of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AmountDemand {
    /// Most that all nodes together may use; none for no limit.
    pub(super) limit: Option<u64>,
    /// Lease that the node has, and the one that it has next if that is gone.
    pub(super) life: u64,
    pub(super) next_life: u64,
    /// What it may have used at most: no more than it was granted.
    pub(super) retained: u64,
    pub(super) used: u64,
    /// What of that is counted in the account for certain if its row is gone.
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
    /// Say what was used.
    Settle,
    /// The same, where nobody uses the account here any more: one that is removed stays so.
    Close,
}

/// What the store answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AmountAnswer {
    pub(super) life: u64,
    /// What the node may have used at most from now on, in its own count.
    pub(super) granted: u64,
    /// What all nodes have spent, as far as they have said it.
    pub(super) spent_by_all: u64,
    /// What other nodes have leased beyond that.
    pub(super) held_elsewhere: u64,
    /// What nobody has.
    pub(super) free: u64,
}

/// Rows of an account after an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExchangedRows {
    /// What is spent, but for what is in rows.
    pub(super) spent: u64,
    /// Nodes whose rows are gone.
    pub(super) removed: Vec<String>,
    /// Row that the node has from now on.
    pub(super) own: LeaseRow,
    pub(super) answer: AmountAnswer,
}

/// Amount that a node leases ahead where so much is left for it.
pub(super) fn ahead(left: u64) -> u64 {
    left.div_ceil(AHEAD_PART)
}

/// Settles one amount of one node, and leases more of it. `is_over` tells which leases belong to
/// runs that use nothing any more.
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

/// Returns the node's row with what it says. A row of a former lease goes into `spent`.
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
            // A new lease that the node has not heard of: what it had before is over.
            let granted = if row.life == demand.life { demand.retained.max(used) } else { used };
            LeaseRow { granted, used, ..row.clone() }
        }
        None => {
            let former = row.map_or(0, |row| row.remainder(unused));
            // Of what is not in the account the node says it here, and once.
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
