//! Tables of consumable amounts, and the transaction that settles some of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::exchange::{
    AmountAnswer, AmountDemand, ExchangePurpose, LeaseRow, UnusedLease, exchange,
};
use super::lease::StoreAwayRule;
use crate::cluster::identity::NodeIdentity;
use crate::cluster::limit_shares::{LimitScope, is_run_over};
use crate::cluster::record::NodeRecord;
use crate::cluster::registry::{list, milliseconds as number};
use crate::cluster::takeover::NodeJudge;
use crate::store::{MigrationStep, SqlRow, SqlStore, SqlStoreError, StoreTransaction};

/// Service that the tables belong to.
const SERVICE: &str = "amounts";

const MIGRATIONS: &[MigrationStep] = &[
    // A row to lock: leases of one amount are serialised.
    MigrationStep::Same(
        "CREATE TABLE cove_amounts (
            account TEXT NOT NULL PRIMARY KEY,
            holder TEXT NOT NULL,
            spent BIGINT NOT NULL,
            changed_ms BIGINT NOT NULL
        )",
    ),
    MigrationStep::Same("CREATE INDEX cove_amounts_by_holder ON cove_amounts (holder)"),
    MigrationStep::Same(
        "CREATE TABLE cove_amount_leases (
            account TEXT NOT NULL,
            node TEXT NOT NULL,
            incarnation TEXT NOT NULL,
            life BIGINT NOT NULL,
            granted BIGINT NOT NULL,
            used BIGINT NOT NULL,
            absorbed BIGINT NOT NULL,
            PRIMARY KEY (account, node)
        )",
    ),
];

/// Name of an account, and its holder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct AccountName {
    pub(super) account: String,
    /// Session whose accounts are removed with it; empty for accounts that remain.
    pub(super) holder: String,
}

/// Judges the leases of other nodes.
#[derive(Clone, Debug)]
pub(super) struct LeaseJudge {
    pub(super) run: Arc<NodeIdentity>,
    pub(super) judge: NodeJudge,
    /// False if the store is this node's alone.
    pub(super) is_shared: bool,
    pub(super) scope: LimitScope,
}

impl LeaseJudge {
    /// Returns the treatment of a lost node's unused lease.
    pub(super) fn unused(&self) -> UnusedLease {
        unused_by(self.scope)
    }

    fn is_over(&self, row: &LeaseRow, nodes: &BTreeMap<String, NodeRecord>) -> bool {
        // Where each node has its own limits, a session's limit is still used by one node after the
        // other.
        let scope = match self.unused() {
            UnusedLease::GivenBack => LimitScope::Soft,
            UnusedLease::Spent => LimitScope::Strict,
        };
        !self.is_shared || is_run_over(&row.node, &row.incarnation, nodes, self.judge, scope)
    }
}

/// Returns the rule for use beyond a lease while the store is unreachable.
pub(super) fn away_rule_of(scope: LimitScope) -> StoreAwayRule {
    match scope {
        LimitScope::Node | LimitScope::Soft => StoreAwayRule::GoOn,
        LimitScope::Strict => StoreAwayRule::Refuse,
    }
}

/// Returns the treatment of a lost node's unused lease.
pub(super) fn unused_by(scope: LimitScope) -> UnusedLease {
    match scope {
        LimitScope::Soft => UnusedLease::GivenBack,
        LimitScope::Node | LimitScope::Strict => UnusedLease::Spent,
    }
}

/// Migrates the tables.
///
/// # Errors
/// If the store cannot be used.
pub async fn migrate_amounts(store: &SqlStore) -> Result<(), SqlStoreError> {
    store.migrate(SERVICE, MIGRATIONS).await
}

/// Removes the accounts of a session, as a part of the transaction that removes it.
///
/// # Errors
/// If a statement fails.
pub fn remove_amounts(it: &mut dyn StoreTransaction, holder: &str) -> Result<(), SqlStoreError> {
    let parameters = [holder.into()];
    let sql = "DELETE FROM cove_amount_leases WHERE account IN \
        (SELECT account FROM cove_amounts WHERE holder = $1)";
    it.execute(sql, &parameters)?;
    it.execute("DELETE FROM cove_amounts WHERE holder = $1", &parameters).map(drop)
}

/// Settles some amounts of this node, in the order of their names, in one transaction.
pub(super) async fn settle(
    store: &SqlStore,
    demands: Vec<(Arc<AccountName>, AmountDemand)>,
    judge: LeaseJudge,
) -> Result<Vec<AmountAnswer>, SqlStoreError> {
    let settled = store.transact_idempotent("amounts.settle", move |it| {
        let mut nodes = None;
        let mut answers = Vec::with_capacity(demands.len());
        for (name, demand) in &demands {
            answers.push(settle_one(it, name, demand, &judge, &mut nodes)?);
        }
        Ok(answers)
    });
    settled.await
}

fn settle_one(
    it: &mut dyn StoreTransaction,
    name: &AccountName,
    demand: &AmountDemand,
    judge: &LeaseJudge,
    nodes: &mut Option<BTreeMap<String, NodeRecord>>,
) -> Result<AmountAnswer, SqlStoreError> {
    let account = name.account.as_str();
    let Some(before) = lock_account(it, name, demand.purpose, judge.judge.now_ms())? else {
        // The session of the account was removed for good.
        return Ok(AmountAnswer { granted: demand.used, ..AmountAnswer::default() });
    };
    let sql = "SELECT node, incarnation, life, granted, used, absorbed \
        FROM cove_amount_leases WHERE account = $1";
    let rows: Result<Vec<LeaseRow>, _> =
        it.query(sql, &[account.into()])?.iter().map(lease_row).collect();
    let rows = rows?;
    // A row with nothing left is treated the same whether its node runs or not.
    let is_in_question = |row: &LeaseRow| row.node != judge.run.id && row.left() > 0;
    if nodes.is_none() && rows.iter().any(is_in_question) {
        *nodes = Some(list(it)?.into_iter().map(|node| (node.id.clone(), node)).collect());
    }
    let none = BTreeMap::new();
    let known = nodes.as_ref().unwrap_or(&none);
    let is_over = |row: &LeaseRow| is_in_question(row) && judge.is_over(row, known);
    let after = exchange(before, &rows, demand, &judge.run, &is_over, judge.unused());
    if after.spent != before {
        let sql = "UPDATE cove_amounts SET spent = $2 WHERE account = $1";
        it.execute(sql, &[account.into(), number(after.spent)])?;
    }
    for node in after.removed {
        let sql = "DELETE FROM cove_amount_leases WHERE account = $1 AND node = $2";
        it.execute(sql, &[account.into(), node.into()])?;
    }
    if !rows.contains(&after.own) {
        write_lease(it, account, &after.own)?;
    }
    Ok(after.answer)
}

/// Locks an account until the end of the transaction, and returns its spent amount. None if the
/// account is to be closed and does not exist.
fn lock_account(
    it: &mut dyn StoreTransaction,
    name: &AccountName,
    purpose: ExchangePurpose,
    now_ms: u64,
) -> Result<Option<u64>, SqlStoreError> {
    let account = name.account.as_str().into();
    let row = match purpose {
        ExchangePurpose::Close => {
            let sql = "UPDATE cove_amounts SET changed_ms = $2 WHERE account = $1 RETURNING spent";
            it.query_one(sql, &[account, number(now_ms)])?
        }
        ExchangePurpose::Lease | ExchangePurpose::Settle => {
            let sql = "INSERT INTO cove_amounts (account, holder, spent, changed_ms) \
                VALUES ($1, $2, 0, $3) \
                ON CONFLICT (account) DO UPDATE SET changed_ms = excluded.changed_ms \
                RETURNING spent";
            it.query_one(sql, &[account, name.holder.as_str().into(), number(now_ms)])?
        }
    };
    row.map(|row| row.get(0)).transpose()
}

fn write_lease(
    it: &mut dyn StoreTransaction,
    account: &str,
    row: &LeaseRow,
) -> Result<(), SqlStoreError> {
    let sql = "INSERT INTO cove_amount_leases \
        (account, node, incarnation, life, granted, used, absorbed) \
        VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (account, node) DO UPDATE SET \
        incarnation = excluded.incarnation, life = excluded.life, granted = excluded.granted, \
        used = excluded.used, absorbed = excluded.absorbed";
    let parameters = [
        account.into(),
        row.node.as_str().into(),
        row.incarnation.as_str().into(),
        number(row.life),
        number(row.granted),
        number(row.used),
        number(row.absorbed),
    ];
    it.execute(sql, &parameters).map(drop)
}

fn lease_row(row: &SqlRow) -> Result<LeaseRow, SqlStoreError> {
    Ok(LeaseRow {
        node: row.get(0)?,
        incarnation: row.get(1)?,
        life: row.get(2)?,
        granted: row.get(3)?,
        used: row.get(4)?,
        absorbed: row.get(5)?,
    })
}
