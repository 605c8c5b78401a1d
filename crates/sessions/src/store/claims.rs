//! Claims of other servers' sessions: their conditions, individually and in batches.

use std::collections::HashMap;
use std::time::Duration;

use node::cluster::{self, LostNode, NodeIdentity, NodeJudge, NodeRecord};
use node::store::{SqlRow, SqlStoreError, StoreTransaction};

use super::rows::SessionRow;
use super::schema::{SessionColumns, limit, number, text};
use super::sessions::{COLUMNS, row};
use super::{SEQ_BLOCK, SessionStore};
use crate::error::SessionError;

/// Maximum number of sessions claimed in one statement.
pub(crate) const CLAIMED_MAX: usize = 100;

/// Selection of a lost node's sessions.
#[derive(Clone, Debug)]
pub(crate) struct LostSessions {
    /// The lost node.
    pub(crate) node: LostNode,
    /// True for sessions whose files may be taken from the object store; false for those without
    /// files there, whose open turns are only ended.
    pub(crate) moves_files: bool,
}

impl LostSessions {
    /// Maximum number of sessions found at a time.
    pub(crate) const FOUND_MAX: usize = 10_000;

    /// Returns the condition on their rows, in addition to the owner. Resting sessions whose only
    /// files are on the node's disk are left to that node.
    fn condition(&self) -> &'static str {
        match self.moves_files {
            true => {
                "state <> 'ended' AND \
                (disk IS NULL OR manifest IS NOT NULL OR state IN ('active', 'starting'))"
            }
            false => {
                "state <> 'ended' AND (disk IS NULL OR \
                (manifest IS NULL AND state IN ('active', 'starting')))"
            }
        }
    }
}

/// Sessions that a server owns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldSessions {
    /// Number of sessions.
    pub(crate) count: u64,
    /// Least recently used sessions, oldest first.
    pub(crate) oldest: Vec<HeldSession>,
}

/// A session that a server owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldSession {
    /// Id of the session.
    pub(crate) id: String,
    /// Tenant that owns it.
    pub(crate) tenant: String,
    /// Time of the last use, in milliseconds since 1970.
    pub(crate) used_ms: u64,
}

/// Terms on which another server's session may be claimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimTerms {
    /// Determines which nodes have ended or are lost.
    pub(crate) judge: NodeJudge,
    /// Time that a lost node has to return to files that are newer than those in the object store.
    pub(crate) patience: Duration,
}

impl ClaimTerms {
    /// Returns whether files of a node last seen at `seen_ms` may be taken from the object store.
    pub(crate) fn may_move_files(&self, seen_ms: u64) -> bool {
        let patience_ms = u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX);
        seen_ms.saturating_add(patience_ms) <= self.judge.now_ms()
    }

    /// Returns whether another server's session may be claimed.
    pub(super) fn allow(&self, row: &SessionRow, owner: Option<&NodeRecord>) -> bool {
        let Some(owner) = owner else { return true };
        let fate = self.judge.fate(owner);
        let has_copy = row.manifest.is_some() && row.disk_server.as_ref() == Some(&owner.id);
        fate.is_over() && (!fate.is_lost() || !has_copy || self.may_move_files(owner.seen_ms))
    }
}

impl SessionStore {
    /// Returns the ids of a lost node's sessions, most recently used first.
    pub(crate) async fn sessions_of_lost(
        &self,
        lost: &LostSessions,
    ) -> Result<Vec<String>, SessionError> {
        let parameters = [text(&lost.node.id), limit(LostSessions::FOUND_MAX)];
        let sql = format!(
            "SELECT id FROM sessions WHERE owner = $1 AND {} \
            ORDER BY last_active_ms DESC, id LIMIT $2",
            lost.condition()
        );
        self.access
            .read("sessions.of_lost", move |it| {
                it.query(&sql, &parameters)?
                    .iter()
                    .map(|row| SessionColumns::of(row).text())
                    .collect()
            })
            .await
    }

    /// Makes a run the owner of a lost node's sessions, at most [`CLAIMED_MAX`]. Returns the rows
    /// of the claimed sessions, as [`SessionStore::claim`] does.
    pub(crate) async fn claim_lost(
        &self,
        lost: &LostSessions,
        run: &NodeIdentity,
        ids: Vec<String>,
        terms: ClaimTerms,
    ) -> Result<Vec<SessionRow>, SessionError> {
        let (lost, run) = (lost.clone(), run.clone());
        self.access
            .write("sessions.claim_lost", move |it| claim_lost(it, &lost, &run, &ids, terms))
            .await
    }

    /// Makes another server the owner of a session: the one that has its files, or its next node.
    /// The caller must have written its data. Returns false if the session is not at this epoch any
    /// more.
    pub(crate) async fn give_back(
        &self,
        id: &str,
        epoch: u64,
        server: &str,
    ) -> Result<bool, SessionError> {
        let parameters = [text(id), number(epoch), text(server)];
        self.access
            .write_again("sessions.give_back", move |it| {
                let sql = "UPDATE sessions SET owner = $3 WHERE id = $1 AND epoch = $2";
                Ok(it.execute(sql, &parameters)? == 1)
            })
            .await
    }

    /// Returns the number of sessions that a server owns and that are not ended, and the least
    /// recently used of them, at most `count_max`.
    pub(crate) async fn sessions_held(
        &self,
        server: &str,
        count_max: usize,
    ) -> Result<HeldSessions, SessionError> {
        let parameters = [text(server), limit(count_max)];
        self.access
            .read("sessions.held", move |it| {
                let condition = "owner = $1 AND state <> 'ended'";
                let sql = format!("SELECT COUNT(*) FROM sessions WHERE {condition}");
                let count = it.query_one(&sql, &parameters[..1])?;
                let count: u64 = count.map_or(Ok(0), |row| row.get(0))?;
                let sql = format!(
                    "SELECT id, tenant, last_active_ms FROM sessions WHERE {condition} \
                ORDER BY last_active_ms, id LIMIT $2"
                );
                let rows = it.query(&sql, &parameters)?;
                let held = |row: &SqlRow| {
                    Ok(HeldSession { id: row.get(0)?, tenant: row.get(1)?, used_ms: row.get(2)? })
                };
                Ok(HeldSessions { count, oldest: rows.iter().map(held).collect::<Result<_, _>>()? })
            })
            .await
    }

    /// Returns the epochs of the sessions that a server owns and that are not ended.
    pub(crate) async fn epochs_of_server(
        &self,
        server: &str,
    ) -> Result<HashMap<String, u64>, SessionError> {
        let parameters = [text(server)];
        self.access
            .read("sessions.epochs", move |it| {
                let sql = "SELECT id, epoch FROM sessions WHERE owner = $1 AND state <> 'ended'";
                let rows = it.query(sql, &parameters)?;
                rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
            })
            .await
    }
}

fn claim_lost(
    transaction: &mut dyn StoreTransaction,
    lost: &LostSessions,
    run: &NodeIdentity,
    ids: &[String],
    terms: ClaimTerms,
) -> Result<Vec<SessionRow>, SqlStoreError> {
    let node = cluster::find(transaction, &lost.node.id)?;
    // Another run may have this node id by now, and continue the sessions.
    let is_lost = node.is_some_and(|node| {
        node.incarnation == lost.node.incarnation && terms.judge.fate(&node).is_lost()
    });
    if !is_lost || cluster::is_replaced(transaction, run)? {
        return Ok(Vec::new());
    }
    let mut parameters = vec![text(&run.id), text(&lost.node.id)];
    let mut places = Vec::with_capacity(ids.len());
    for id in ids {
        parameters.push(text(id));
        places.push(format!("${}", parameters.len()));
    }
    let sql = format!(
        "UPDATE sessions SET owner = $1, epoch = epoch + 1, seq_start = seq_ceiling, \
        seq_ceiling = seq_ceiling + {SEQ_BLOCK} WHERE owner = $2 AND {} AND id IN ({}) \
        RETURNING {COLUMNS}",
        lost.condition(),
        places.join(", ")
    );
    transaction.query(&sql, &parameters)?.iter().map(row).collect()
}
