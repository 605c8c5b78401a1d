//! Automatic takeover of sessions whose node is lost.
//!
//! Each node checks for lost nodes when it renews its lease. Their sessions are distributed: for
//! each session, one node takes it first ([`takeover::is_own_turn`]). Requests in progress end with
//! an error, so that no caller waits for them; files come from the object store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use api::{SessionEventKind, SessionState};
use futures_util::{StreamExt as _, stream};
use node::clock;
use node::cluster::{LostNode, takeover};
use serde_json::json;

use super::cluster::ClusterPlace;
use super::directory::SessionDirectory;
use super::lifecycle::SessionLifecycle;
use super::shared::SharedParts;
use super::sweeps::SWEEPS_MAX;
use crate::error::SessionError;
use crate::events::EventWriter;
use crate::metrics::{SandboxEvent, SessionCounters};
use crate::store::rows::SessionRow;
use crate::store::{CLAIMED_MAX, LostSessions, SessionStore};

/// Error of a turn that was running on a lost node.
pub(super) const LOST: &str = "the node that worked on this was lost";

/// Progress of taking over from a lost run of a node.
#[derive(Debug)]
struct LossProgress {
    since: Instant,
    /// Passes that have no more sessions for this node.
    done: HashSet<LossPass>,
}

/// Kind of pass over the sessions of a lost node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LossPass {
    /// True to include sessions whose files may be taken from the object store.
    moves_files: bool,
    /// True to include sessions for which other nodes take precedence.
    takes_all: bool,
}

/// Takes over the sessions of lost nodes.
pub(crate) struct SessionTakeover {
    store: SessionStore,
    writer: EventWriter,
    cluster: Arc<ClusterPlace>,
    directory: Arc<SessionDirectory>,
    metrics: Arc<SessionCounters>,
    lifecycle: Arc<SessionLifecycle>,
}

impl SessionTakeover {
    pub(super) fn new(
        shared: &SharedParts,
        lifecycle: Arc<SessionLifecycle>,
    ) -> Arc<SessionTakeover> {
        Arc::new(SessionTakeover {
            store: shared.store.clone(),
            writer: shared.writer.clone(),
            cluster: Arc::clone(&shared.cluster),
            directory: Arc::clone(&shared.directory),
            metrics: Arc::clone(&shared.metrics),
            lifecycle,
        })
    }

    /// Takes over the sessions of lost nodes, for ever.
    pub(super) async fn take_over_lost(self: &Arc<Self>) {
        let mut renewals = self.cluster.membership().renewals();
        let mut losses: HashMap<String, LossProgress> = HashMap::new();
        while renewals.changed().await.is_ok() {
            let lost = self.cluster.membership().lost();
            losses.retain(|run, _| lost.iter().any(|node| node.incarnation == *run));
            for node in lost {
                let run = node.incarnation.clone();
                let loss = losses.entry(run).or_insert_with(|| {
                    let (node, lease) = (&node.id, self.cluster.membership().lease());
                    tracing::info!(node, ?lease, "a node is lost; its sessions are taken over");
                    LossProgress { since: clock::now(), done: HashSet::new() }
                });
                if let Err(error) = self.take_from(&node, loss).await {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(node = node.id, error, "sessions could not be taken over");
                }
            }
        }
        std::future::pending().await
    }

    async fn take_from(
        self: &Arc<Self>,
        node: &LostNode,
        loss: &mut LossProgress,
    ) -> Result<(), SessionError> {
        let (nodes, own) = (self.cluster.membership().session_nodes(), &self.cluster.run().id);
        let terms = self.cluster.claim_terms();
        let lost_for = clock::now().duration_since(loss.since);
        let pass = LossPass {
            moves_files: terms.may_move_files(node.seen_ms),
            takes_all: lost_for >= takeover::FIRST_CHOICE_MAX,
        };
        // A draining node takes no sessions.
        if loss.done.contains(&pass) || !nodes.contains(own) {
            return Ok(());
        }
        let wanted = LostSessions { node: node.clone(), moves_files: pass.moves_files };
        let found = self.store.sessions_of_lost(&wanted).await?;
        let is_all = found.len() < LostSessions::FOUND_MAX;
        let mine = found.into_iter().filter(|id| takeover::is_own_turn(id, own, &nodes, lost_for));
        let mine: Vec<String> = mine.collect();
        for some in mine.chunks(CLAIMED_MAX) {
            self.cluster.check_lease()?;
            let taken =
                self.store.claim_lost(&wanted, self.cluster.run(), some.to_vec(), terms).await?;
            let ids = taken.iter().map(|row| row.id.clone()).collect();
            let with_messages = self.store.waiting.sessions_with(ids).await?;
            let recovering = taken.into_iter().map(|row| {
                let goes_on = with_messages.contains(&row.id);
                self.recover_taken(row, goes_on)
            });
            stream::iter(recovering).buffer_unordered(SWEEPS_MAX).collect::<()>().await;
        }
        if is_all {
            loss.done.insert(pass);
        }
        Ok(())
    }

    /// Ends the running turns of a session that was just claimed, and resumes processing of its
    /// queued messages, if any.
    async fn recover_taken(self: &Arc<Self>, row: SessionRow, goes_on: bool) {
        let (tenant, session) = (row.tenant.clone(), row.id.clone());
        match self.recover_lost(row).await {
            Ok(is_here) if is_here && goes_on => {}
            Ok(_) => return,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                // The next request for the session completes the recovery.
                tracing::warn!(session, error, "failed to end the requests of a lost node");
                return;
            }
        }
        match self.lifecycle.acquire(&tenant, &session).await {
            // Another owner processes the messages by now.
            Ok(_) | Err(SessionError::Ended | SessionError::OnAnotherServer { .. }) => {}
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(session, error, "messages wait until the session is next used");
            }
        }
    }

    /// Ends the running turns of a session that was just claimed and is not in use here yet.
    /// Returns false if another server has the only copy of its files; the session is returned to
    /// that server.
    async fn recover_lost(&self, mut row: SessionRow) -> Result<bool, SessionError> {
        let _loading = self.directory.loading(&row.id).lock().await;
        if self.directory.known(&row.id).is_some() {
            // A request has claimed it again meanwhile.
            return Ok(true);
        }
        self.metrics.count(SandboxEvent::TakenOver);
        let log = self.writer.log(&row);
        let ended = log.end_open_turns(LOST).await?;
        let was_live = matches!(row.state, SessionState::Active | SessionState::Starting);
        let stays = self.cluster.has_files_elsewhere(&row).map(str::to_owned);
        if was_live || !ended.is_empty() {
            // Its creation was never answered, or its files are not here.
            if row.state == SessionState::Starting || (was_live && stays.is_some()) {
                row.state = SessionState::Paused;
            }
            let data = json!({ "state": row.state.as_str(), "reason": LOST });
            row.last_seq = log.push(SessionEventKind::Lifecycle, None, data);
            log.save_life(Arc::new(row.clone())).await?;
        }
        log.leave();
        if let Some(server) = &stays {
            // Only that server can use it, once it has returned.
            self.store.give_back(&row.id, row.epoch, server).await?;
        }
        Ok(stays.is_none())
    }
}
