//! Limits that hold over all nodes of a store: the part of each that a node may use.
//!
//! A node that uses a resource limited over all nodes has a row for it, with the part that was
//! granted to it and its need. The parts never add up to more than the limit: a node that needs
//! more gets unused parts, and a node with more than its fair share releases the excess. So a part
//! grows only with the store's answer, and shrinks in two steps: the node first stops using more,
//! and gives the rest back at the next exchange.
//!
//! The part of a lost node goes to the others when its lease ends ([`LimitScope::Soft`]), or when
//! its process is known to have ended ([`LimitScope::Strict`]): a suspended process keeps its
//! connections, and may use them again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::identity::NodeIdentity;
use super::limit_homes::LimitHomes;
use super::membership::NodeMembership;
use super::record::NodeRecord;
use super::registry::{list, milliseconds as number};
use super::takeover::{NodeFate, NodeJudge};
use crate::store::{MigrationStep, SqlRow, SqlStore, SqlStoreError, StoreTransaction};

/// Service that the tables belong to.
const SERVICE: &str = "limits";

const MIGRATIONS: &[MigrationStep] = &[
    // A row to lock: changes to the parts of one limit are serialised.
    MigrationStep::Same(
        "CREATE TABLE cove_limits (
            resource TEXT NOT NULL PRIMARY KEY,
            amount BIGINT NOT NULL
        )",
    ),
    MigrationStep::Same(
        "CREATE TABLE cove_limit_shares (
            resource TEXT NOT NULL,
            node TEXT NOT NULL,
            incarnation TEXT NOT NULL,
            granted BIGINT NOT NULL,
            needed BIGINT NOT NULL,
            PRIMARY KEY (resource, node)
        )",
    ),
    // Order of the settlements, without a clock.
    MigrationStep::Same("ALTER TABLE cove_limits ADD COLUMN round BIGINT NOT NULL DEFAULT 0"),
    MigrationStep::Same("ALTER TABLE cove_limit_shares ADD COLUMN round BIGINT NOT NULL DEFAULT 0"),
];

/// Time to connect to the store, and for one statement there.
const STATEMENT_MAX: Duration = Duration::from_secs(2);

/// Time after which the turn passes to another node, if the limit is less than one for each node in
/// need.
const TURN_MS: u64 = 2000;

/// Maximum number of limits that one transaction settles.
pub(super) const SETTLED_MAX: usize = 100;

/// Validity of limits in a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    /// Each node has a limit of its own.
    #[default]
    Node,
    /// All nodes share the limit. The part of a silent node goes to others with its lease, so that
    /// the limit may be exceeded by that part until the node returns or ends; a node that does not
    /// reach the store uses its even part.
    Soft,
    /// All nodes share the limit, which is never exceeded. The part of a silent node is kept for
    /// it, and a node that does not reach the store uses no more than its last part.
    Strict,
}

/// Use of a resource that is limited over all nodes, by one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitUse {
    /// Name of the resource, the same at all nodes.
    pub resource: String,
    /// Maximum at all nodes together.
    pub limit: u32,
    /// Maximum that the node may use at this moment. Its part is not reduced below this value: to
    /// give up more, the node lowers this value first.
    pub bound: u32,
    /// Amount that it uses.
    pub used: u32,
    /// Amount that it would use if it could.
    pub needed: u32,
}

impl LimitUse {
    /// Returns the amount that cannot be taken from the node now.
    fn held(&self) -> u32 {
        self.used.max(self.bound)
    }
}

/// A node's part of a limit, and what it may know of the other nodes' parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitGrant {
    /// Maximum that the node may use from now on.
    pub part: u32,
    /// Amount that the other nodes have and need, as last reported.
    pub used_elsewhere: u32,
    /// Number of the transaction that granted this, among those of all nodes about the limit.
    pub round: u64,
    /// The earliest of the transactions in which the other nodes reported their need; [`u64::MAX`]
    /// if no other node has a part.
    pub heard_elsewhere: u64,
}

/// A node's part of a limit, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShareRow {
    pub(super) node: String,
    pub(super) incarnation: String,
    pub(super) granted: u32,
    pub(super) needed: u32,
    /// Number of the transaction in which the node reported this.
    pub(super) round: u64,
}

/// Returns the fair part of each of some nodes, by need: no node gets more than it needs, and less
/// only where no node gets more than it (max-min fairness). The rest goes to where most is needed
/// next. `turn` selects the first node if there is less than one for each.
fn fair_parts(limit: u32, needed: &[u32], turn: u64) -> Vec<u32> {
    let mut parts = fill(limit, needed, turn);
    let left = limit - parts.iter().sum::<u32>();
    // Some more than is needed now, so that not every connection needs an exchange.
    let spare: Vec<u32> = needed.iter().map(|needed| needed.div_ceil(4)).collect();
    for (part, more) in parts.iter_mut().zip(fill(left, &spare, 0)) {
        *part += more;
    }
    parts
}

/// Max-min fair parts of an amount in whole numbers.
fn fill(amount: u32, needed: &[u32], turn: u64) -> Vec<u32> {
    let mut parts = vec![0; needed.len()];
    let mut left = amount;
    let mut open: Vec<usize> = (0..needed.len()).filter(|at| needed[*at] > 0).collect();
    while let Ok(count) = u32::try_from(open.len())
        && count > 0
        && left >= count
    {
        let most = open.iter().map(|at| needed[*at] - parts[*at]).min().unwrap_or(0);
        let each = most.min(left / count);
        open.iter().for_each(|at| parts[*at] += each);
        left -= each * count;
        open.retain(|at| parts[*at] < needed[*at]);
    }
    if !open.is_empty() {
        // One each as far as they go, in a fixed order while every node has some; otherwise the
        // parts would move about.
        let is_short = open.iter().any(|at| parts[*at] == 0);
        let first = if is_short { turn % open.len() as u64 } else { 0 };
        open.rotate_left(usize::try_from(first).unwrap_or(0));
        for at in open.into_iter().take(left as usize) {
            parts[at] += 1;
        }
    }
    parts
}

/// Returns whether a part belongs to a run that can use nothing any more.
pub(super) fn is_free(
    row: &ShareRow,
    nodes: &BTreeMap<String, NodeRecord>,
    judge: NodeJudge,
    scope: LimitScope,
) -> bool {
    is_run_over(&row.node, &row.incarnation, nodes, judge, scope)
}

/// Returns whether a node's run can use none of its part of a limit any more.
pub(super) fn is_run_over(
    id: &str,
    incarnation: &str,
    nodes: &BTreeMap<String, NodeRecord>,
    judge: NodeJudge,
    scope: LimitScope,
) -> bool {
    let Some(node) = nodes.get(id) else { return true };
    if node.incarnation != incarnation {
        // A directory has one run at a time, and a copy of it waits for the end of the lease.
        return true;
    }
    match judge.fate(node) {
        NodeFate::Present => false,
        NodeFate::Silent => scope != LimitScope::Strict,
        NodeFate::Stopped | NodeFate::Crashed => true,
    }
}

/// This node's parts of limits. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LimitShares {
    store: SqlStore,
    membership: NodeMembership,
    scope: LimitScope,
}

impl LimitShares {
    /// Migrates the tables. None if the node's limits are its own: if its store is not shared, or
    /// the scope is [`LimitScope::Node`].
    ///
    /// # Errors
    /// If the store cannot be used.
    pub async fn open(
        store: &SqlStore,
        membership: &NodeMembership,
        scope: LimitScope,
    ) -> Result<Option<LimitShares>, SqlStoreError> {
        if scope == LimitScope::Node || !membership.is_shared() {
            return Ok(None);
        }
        store.migrate(SERVICE, MIGRATIONS).await?;
        // Rows are locked one after the other: transactions wait for each other, and none fails.
        let store = store.reserved(STATEMENT_MAX).await?;
        Ok(Some(LimitShares { store, membership: membership.clone(), scope }))
    }

    /// Returns the scope of the limits.
    #[must_use]
    pub fn scope(&self) -> LimitScope {
        self.scope
    }

    /// Returns the homes of limits of one size at the nodes of a role, as this node knows them now;
    /// none if such a limit has a part at every node.
    #[must_use]
    pub fn homes(&self, role: &str, limit: u32) -> Option<LimitHomes> {
        self.membership.limit_homes(role, limit)
    }

    /// Returns the even part of a limit among the known nodes.
    #[must_use]
    pub fn even_part(&self, limit: u32) -> u32 {
        let nodes = u32::try_from(self.membership.all_living().len()).unwrap_or(u32::MAX);
        (limit / nodes.max(1)).max(1)
    }

    /// Returns the resources of which this node has a part and another node needs more than was
    /// granted to it. Their names begin with `prefix`, a word and a slash. At most [`SETTLED_MAX`].
    ///
    /// # Errors
    /// If the store cannot be used.
    pub async fn wanted_elsewhere(
        &self,
        prefix: &'static str,
    ) -> Result<Vec<String>, SqlStoreError> {
        let own = self.membership.identity().id.clone();
        let wanted = self.store.read("limits.wanted_elsewhere", move |it| {
            let sql = "SELECT DISTINCT other.resource FROM cove_limit_shares AS other \
                JOIN cove_limit_shares AS own ON own.resource = other.resource AND own.node = $1 \
                WHERE other.node <> $1 AND other.granted < other.needed \
                AND other.resource LIKE $2 LIMIT $3";
            let pattern = format!("{prefix}%");
            let most = number(SETTLED_MAX as u64);
            let parameters = [own.as_str().into(), pattern.into(), most];
            it.query(sql, &parameters)?.iter().map(|row| row.get(0)).collect()
        });
        wanted.await
    }

    /// Reports the use and need of this node, and returns what it may use of each, in the same
    /// order. At most [`SETTLED_MAX`] at once. A limit without use and need loses its part.
    ///
    /// # Errors
    /// If the store cannot be used; then the stored parts are unchanged, or larger.
    pub async fn settle(&self, uses: &[LimitUse]) -> Result<Vec<LimitGrant>, SqlStoreError> {
        let (uses, run) = (uses.to_vec(), self.membership.identity().clone());
        let (judge, scope) = (self.membership.judge(), self.scope);
        let settled = self.store.transact_idempotent("limits.settle", move |it| {
            let nodes: BTreeMap<String, NodeRecord> =
                list(it)?.into_iter().map(|node| (node.id.clone(), node)).collect();
            let is_free = |row: &ShareRow| is_free(row, &nodes, judge, scope);
            let turn = judge.now_ms() / TURN_MS;
            // In one order everywhere, so that no two transactions deadlock.
            let mut order: Vec<usize> = (0..uses.len()).collect();
            order.sort_by(|a, b| uses[*a].resource.cmp(&uses[*b].resource));
            let mut grants = vec![LimitGrant::default(); uses.len()];
            for at in order {
                grants[at] = settle_one(it, &uses[at], &run, &is_free, turn)?;
            }
            Ok(grants)
        });
        settled.await
    }
}

/// Grants a node its next part, given the rows of all nodes that may use some. Returns the node's
/// row from now on, and what it may use.
pub(super) fn grant(
    rows: &[ShareRow],
    used: &LimitUse,
    run: &NodeIdentity,
    turn: u64,
) -> (ShareRow, u32) {
    let own = rows.iter().find(|row| row.node == run.id);
    // The part of a former run ended with it.
    let granted = own.filter(|row| row.incarnation == run.incarnation).map_or(0, |row| row.granted);
    let mut row = ShareRow {
        node: run.id.clone(),
        incarnation: run.incarnation.clone(),
        granted,
        needed: used.needed.max(used.used),
        round: 0,
    };
    let others: Vec<&ShareRow> = rows.iter().filter(|other| other.node != row.node).collect();
    // In one order everywhere, so that all nodes compute the same.
    let place = others.iter().filter(|other| other.node < row.node).count();
    let mut needed: Vec<(&str, u32)> =
        others.iter().map(|other| (other.node.as_str(), other.needed)).collect();
    needed.push((&row.node, row.needed));
    needed.sort_unstable();
    let needed: Vec<u32> = needed.into_iter().map(|(_, needed)| needed).collect();
    let fair = fair_parts(used.limit, &needed, turn)[place];
    let of_others: u64 = others.iter().map(|other| u64::from(other.granted)).sum();
    let free = u64::from(used.limit).saturating_sub(of_others + u64::from(granted));
    let more = fair.saturating_sub(granted).min(u32::try_from(free).unwrap_or(u32::MAX));
    row.granted = (granted.min(fair) + more).max(used.held());
    let part = row.granted.min(fair);
    (row, part)
}

fn settle_one(
    it: &mut dyn StoreTransaction,
    used: &LimitUse,
    run: &NodeIdentity,
    is_free: &dyn Fn(&ShareRow) -> bool,
    turn: u64,
) -> Result<LimitGrant, SqlStoreError> {
    let resource = used.resource.as_str();
    let sql = "INSERT INTO cove_limits (resource, amount, round) VALUES ($1, $2, 1) \
        ON CONFLICT (resource) DO UPDATE SET amount = excluded.amount, \
        round = cove_limits.round + 1 RETURNING round";
    let counted = it.query_one(sql, &[resource.into(), number(used.limit.into())])?;
    let round: u64 = counted.ok_or(SqlStoreError::Spoiled)?.get(0)?;
    let sql = "SELECT node, incarnation, granted, needed, round FROM cove_limit_shares \
        WHERE resource = $1";
    let rows: Result<Vec<ShareRow>, _> =
        it.query(sql, &[resource.into()])?.iter().map(share_row).collect();
    let (free, rows): (Vec<ShareRow>, Vec<ShareRow>) =
        rows?.into_iter().partition(|row| row.node != run.id && is_free(row));
    let remove = "DELETE FROM cove_limit_shares WHERE resource = $1 AND node = $2";
    for row in free {
        it.execute(remove, &[resource.into(), row.node.into()])?;
    }
    let (row, part) = grant(&rows, used, run, turn);
    let others = || rows.iter().filter(|other| other.node != run.id);
    let used_elsewhere: u64 = others().map(|it| u64::from(it.granted.min(it.needed))).sum();
    let granted = LimitGrant {
        part,
        used_elsewhere: u32::try_from(used_elsewhere).unwrap_or(u32::MAX),
        round,
        heard_elsewhere: others().map(|it| it.round).min().unwrap_or(u64::MAX),
    };
    if row.granted == 0 && row.needed == 0 {
        it.execute(remove, &[resource.into(), row.node.into()])?;
        return Ok(granted);
    }
    let sql = "INSERT INTO cove_limit_shares \
        (resource, node, incarnation, granted, needed, round) \
        VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (resource, node) DO UPDATE SET \
        incarnation = excluded.incarnation, granted = excluded.granted, needed = excluded.needed, \
        round = excluded.round";
    let parameters = [
        resource.into(),
        row.node.into(),
        row.incarnation.into(),
        number(row.granted.into()),
        number(row.needed.into()),
        number(round),
    ];
    it.execute(sql, &parameters)?;
    Ok(granted)
}

fn share_row(row: &SqlRow) -> Result<ShareRow, SqlStoreError> {
    let amount = |column| -> Result<u32, SqlStoreError> {
        u32::try_from(row.get::<u64>(column)?).map_err(|_| SqlStoreError::Spoiled)
    };
    Ok(ShareRow {
        node: row.get(0)?,
        incarnation: row.get(1)?,
        granted: amount(2)?,
        needed: amount(3)?,
        round: row.get(4)?,
    })
}

#[cfg(test)]
mod tests;
