//! Queued messages in the store.

use std::sync::Arc;

use api::{OnDisconnect, SessionState};

use super::SessionLifecycle;
use super::turns::INTERRUPTED;
use crate::error::SessionError;
use crate::service::detached::detached;
use crate::service::entry::{SandboxUse, SessionEntry};
use crate::service::open_turns::{MessageKeeping, OpenTurn, QueuedMessage};
use crate::service::storage::StorageRequest;
use crate::service::streams::MessageStream;
use crate::store::WaitingMessage;

impl SessionLifecycle {
    /// Stores a queued message; continues even if its sender disconnects.
    ///
    /// # Errors
    /// If it cannot be stored; its turn does not begin then.
    pub(in crate::service) async fn keep_message(
        self: &Arc<Self>,
        stream: &MessageStream,
        message: WaitingMessage,
    ) -> Result<(), SessionError> {
        let (lifecycle, turn) = (Arc::clone(self), Arc::clone(&stream.turn));
        let entry = Arc::clone(&stream.entry);
        detached(async move {
            let kept = lifecycle.write_waiting(&entry, message).await;
            let (keeping, outcome) = match kept {
                Ok(true) => (MessageKeeping::Kept, Ok(())),
                Ok(false) => (MessageKeeping::Failed, Err(lifecycle.cluster.on_another_server())),
                Err(error) => (MessageKeeping::Failed, Err(error)),
            };
            turn.keeping.send_replace(keeping);
            outcome
        })
        .await
    }

    async fn write_waiting(
        &self,
        entry: &SessionEntry,
        message: WaitingMessage,
    ) -> Result<bool, SessionError> {
        let bytes = serde_json::to_vec(&message.request).map_err(SessionError::internal)?.len();
        let stored = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.storage.check(&entry.tenant, StorageRequest { stored, declared: 0 }).await?;
        let epoch = entry.state.lock().row.epoch;
        self.store.waiting.keep(&entry.id, epoch, message).await
    }

    /// Starts processing the queued messages that the session brought to this server, if there are
    /// any and no task processes them.
    pub(in crate::service) fn go_on_waiting(self: &Arc<Self>, at_work: &SandboxUse) {
        let mut state = at_work.entry.state.lock();
        if state.row.state != SessionState::Active || state.turns.waiting.is_empty() {
            return;
        }
        if !std::mem::replace(&mut state.turns.is_worked, true) {
            drop(state);
            node::task::spawn(Arc::clone(self).work_off(at_work.clone()));
        }
    }

    /// Queues the messages that the session's previous owner has stored. Turns that depend on
    /// subscribers have lost them and are refused.
    pub(in crate::service) fn restore_waiting(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
        messages: Vec<WaitingMessage>,
    ) {
        let restored = messages.into_iter().map(QueuedMessage::restored);
        let (unheard, waiting): (Vec<_>, Vec<_>) =
            restored.partition(|queued| queued.turn.policy == OnDisconnect::Interrupt);
        entry.state.lock().turns.waiting.extend(waiting);
        self.refuse_all(entry, unheard, INTERRUPTED);
    }

    /// Ends turns that never began, and removes their messages from the store.
    pub(in crate::service) fn refuse_all(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
        refused: Vec<QueuedMessage>,
        why: &str,
    ) {
        let is_kept =
            |queued: &QueuedMessage| *queued.turn.keeping.borrow() != MessageKeeping::NotNeeded;
        let mut kept = Vec::new();
        for queued in refused {
            queued.refuse(&entry.log, why);
            if is_kept(&queued) {
                kept.push(queued.turn);
            }
        }
        if !kept.is_empty() {
            let (lifecycle, entry) = (Arc::clone(self), Arc::clone(entry));
            node::task::spawn(async move {
                for turn in &kept {
                    turn.kept().await;
                }
                lifecycle.begun(&entry, &kept).await;
            });
        }
    }

    /// Removes messages whose turns have begun from the store, once the start is durable. Returns
    /// false if another server owns the session by now.
    pub(in crate::service) async fn begun(
        &self,
        entry: &SessionEntry,
        turns: &[Arc<OpenTurn>],
    ) -> bool {
        if entry.log.settle().await.is_err() {
            return false;
        }
        let turns = turns.iter().map(|turn| turn.id.to_string()).collect();
        if let Err(error) = self.store.waiting.remove(&entry.id, turns).await {
            // The turn has begun, which is sufficient.
            let error = &error as &dyn std::error::Error;
            tracing::warn!(session = %entry.id, error, "a message that has begun is still kept");
        }
        true
    }
}
