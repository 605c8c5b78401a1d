//! Conversations of sessions: messages, events and logs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::{MessageContent, MessageRequest, SessionEvent, SessionEventKind, SessionState};
use node::clock::{self, IdGenerator};
use serde::Serialize;
use serde_json::Value;

use super::directory::SessionDirectory;
use super::lifecycle::SessionLifecycle;
use super::logs::AgentLogLine;
use super::shared::SharedParts;
use super::storage::StorageQuota;
use super::streams::{EventStream, MessageStream};
use crate::agent::TurnId;
use crate::error::SessionError;
use crate::events::EventWriter;
use crate::store::rows::MessageRow;
use crate::store::{PAGE_MAX, SessionStore};

/// Maximum number of blocks in one message.
const BLOCKS_MAX: usize = 1000;

/// A message of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConversationMessage {
    /// Number in the sequence of the session's events.
    pub seq: u64,
    /// Time of the message, in milliseconds since 1970.
    pub at_ms: u64,
    /// Turn that it belongs to.
    pub turn: Option<String>,
    /// `user` or `assistant`.
    pub role: String,
    /// Text or content blocks.
    pub content: Value,
}

/// Conversations of sessions.
pub struct SessionConversations {
    store: SessionStore,
    writer: EventWriter,
    ids: Arc<IdGenerator>,
    directory: Arc<SessionDirectory>,
    storage: Arc<StorageQuota>,
    lifecycle: Arc<SessionLifecycle>,
}

impl fmt::Debug for SessionConversations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionConversations").finish_non_exhaustive()
    }
}

impl SessionConversations {
    pub(super) fn new(
        shared: &SharedParts,
        lifecycle: Arc<SessionLifecycle>,
    ) -> SessionConversations {
        SessionConversations {
            store: shared.store.clone(),
            writer: shared.writer.clone(),
            ids: Arc::clone(&shared.ids),
            directory: Arc::clone(&shared.directory),
            storage: Arc::clone(&shared.storage),
            lifecycle,
        }
    }

    /// Accepts a message. It is sent to the agent after the earlier ones.
    ///
    /// # Errors
    /// `Conflict` if the session is not active; `TooMany` if too many messages wait; `DiskFull` if
    /// the disk is almost full.
    pub async fn send(
        &self,
        tenant: &str,
        id: &str,
        request: MessageRequest,
    ) -> Result<MessageStream, SessionError> {
        let arrived = clock::now();
        check(&request)?;
        self.storage.check_free().await?;
        let mut entry = self.lifecycle.acquire(tenant, id).await?;
        let turn: TurnId = self.ids.next("turn_").into();
        let mut request = Some(request);
        loop {
            if let Some(taken) =
                self.lifecycle.take_message(&entry, &turn, &mut request, arrived)?
            {
                if let Some(waiting) = taken.waiting {
                    self.lifecycle.keep_message(&taken.stream, waiting).await?;
                }
                return Ok(taken.stream);
            }
            // An active session lacks a sandbox only for a moment, or until the next request. The
            // code that starts one may have looked the session up again.
            entry = Arc::clone(&self.lifecycle.with_body(&entry).await?.entry);
        }
    }

    /// Stops the running turn. Returns whether there was one.
    ///
    /// # Errors
    /// If there is no such session.
    pub async fn interrupt(&self, tenant: &str, id: &str) -> Result<bool, SessionError> {
        let Some(entry) = self.directory.here(tenant, id) else {
            return self.directory.row(tenant, id).await.map(|_| false);
        };
        let stopped = entry.state.lock().turns.stop_current();
        Ok(stopped.is_some())
    }

    /// Subscribes to a session's events after `after`.
    ///
    /// # Errors
    /// If there is no such session.
    pub async fn events(
        &self,
        tenant: &str,
        id: &str,
        after: u64,
    ) -> Result<EventStream, SessionError> {
        if let Some(entry) = self.directory.here(tenant, id) {
            entry.listeners.fetch_add(1, Ordering::AcqRel);
            let events = entry.log.subscribe(after);
            return Ok(EventStream { entry: Some(entry), events });
        }
        let row = self.directory.row(tenant, id).await?;
        let log = self.writer.follow(id);
        if row.state == SessionState::Ended {
            // Subscribers receive the stored events and then the end of the stream.
            log.close();
        }
        Ok(EventStream { entry: None, events: log.subscribe(after) })
    }

    /// Returns the number of a session's latest event.
    ///
    /// # Errors
    /// If there is no such session.
    pub async fn last_seq(&self, tenant: &str, id: &str) -> Result<u64, SessionError> {
        match self.directory.here(tenant, id) {
            Some(entry) => Ok(entry.log.last_seq()),
            None => Ok(self.directory.row(tenant, id).await?.last_seq),
        }
    }

    /// Returns a session's stored events above number `after`, of these kinds or of all.
    ///
    /// # Errors
    /// If there is no such session.
    pub async fn event_page(
        &self,
        tenant: &str,
        id: &str,
        after: u64,
        limit: usize,
        kinds: Vec<SessionEventKind>,
    ) -> Result<Vec<SessionEvent>, SessionError> {
        self.directory.settled(tenant, id).await?;
        self.store.event_page(id, after, u64::MAX, limit.clamp(1, PAGE_MAX), kinds).await
    }

    /// Returns a session's messages above number `after`.
    ///
    /// # Errors
    /// If there is no such session.
    pub async fn messages(
        &self,
        tenant: &str,
        id: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<ConversationMessage>, SessionError> {
        self.directory.settled(tenant, id).await?;
        let rows = self.store.messages(id, after, limit.clamp(1, PAGE_MAX)).await?;
        let message = |row: MessageRow| ConversationMessage {
            seq: row.seq,
            at_ms: row.at_ms,
            turn: row.turn,
            role: row.role,
            content: row.content,
        };
        Ok(rows.into_iter().map(message).collect())
    }

    /// Returns lines of the agent's standard error and of the server, from number `from` on, for
    /// the session's current life.
    ///
    /// # Errors
    /// If there is no such session.
    pub async fn logs(
        &self,
        tenant: &str,
        id: &str,
        from: u64,
    ) -> Result<Vec<AgentLogLine>, SessionError> {
        match self.directory.here(tenant, id) {
            Some(entry) => Ok(entry.lines.lock().from(from)),
            None => self.directory.row(tenant, id).await.map(|_| Vec::new()),
        }
    }
}

fn check(request: &MessageRequest) -> Result<(), SessionError> {
    match &request.content {
        MessageContent::Text(text) if text.is_empty() => {
            return Err(SessionError::invalid("content", "is empty"));
        }
        MessageContent::Blocks(blocks) if blocks.is_empty() || blocks.len() > BLOCKS_MAX => {
            let message = format!("must have 1 to {BLOCKS_MAX} blocks");
            return Err(SessionError::invalid("content", message));
        }
        MessageContent::Text(_) | MessageContent::Blocks(_) => {}
    }
    Ok(())
}
