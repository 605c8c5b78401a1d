//! Unfinished turns of a session, and its queued messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use api::{MessageRequest, OnDisconnect, SessionEventKind};
use node::clock;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Notify, watch};

use crate::agent::{AgentHandle, TurnId};
use crate::events::SessionLog;
use crate::store::WaitingMessage;
use crate::traces::TurnTrace;

/// Unfinished turns of a session.
#[derive(Debug, Default)]
pub(crate) struct OpenTurns {
    pub(super) waiting: VecDeque<QueuedMessage>,
    pub(super) current: Option<Arc<OpenTurn>>,
    /// True while a task processes them one after the other.
    pub(super) is_worked: bool,
}

/// An unfinished turn.
#[derive(Debug)]
pub(crate) struct OpenTurn {
    pub(super) id: TurnId,
    pub(super) policy: OnDisconnect,
    /// Number of its subscribers.
    pub(super) listeners: AtomicUsize,
    pub(super) arrived: Instant,
    pub(super) is_stopped: AtomicBool,
    pub(super) stop: Notify,
    /// True once the agent has produced an event.
    pub(super) has_begun: AtomicBool,
    pub(super) tool_calls: AtomicU64,
    pub(super) trace: TurnTrace,
    /// Agent to interrupt on a stop.
    pub(super) agent: Mutex<Option<AgentHandle>>,
    pub(super) over: watch::Sender<bool>,
    pub(super) keeping: watch::Sender<MessageKeeping>,
}

/// A queued message.
#[derive(Debug)]
pub(crate) struct QueuedMessage {
    pub(super) turn: Arc<OpenTurn>,
    pub(super) request: MessageRequest,
}

/// State of the stored copy of a queued message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKeeping {
    /// Not needed, because the message does not wait.
    NotNeeded,
    /// Being stored.
    Writing,
    /// Stored.
    Kept,
    /// Storing failed, and the sender received the error.
    Failed,
}

impl OpenTurns {
    /// Removes and returns the queued messages.
    pub(super) fn take_waiting(&mut self) -> Vec<QueuedMessage> {
        self.waiting.drain(..).collect()
    }

    /// Stops the running turn, and returns it.
    pub(super) fn stop_current(&self) -> Option<Arc<OpenTurn>> {
        let turn = self.current.clone()?;
        turn.stop();
        Some(turn)
    }

    /// Returns the running turn.
    pub(super) fn current(&self) -> Option<&Arc<OpenTurn>> {
        self.current.as_ref()
    }
}

impl QueuedMessage {
    /// Ends a turn that never began, with an error.
    pub(super) fn refuse(&self, log: &SessionLog, why: &str) {
        let turn = Some(&*self.turn.id);
        log.push(SessionEventKind::TurnStart, turn, json!({ "content": self.request.content }));
        log.push(SessionEventKind::Error, turn, json!({ "error": why }));
        log.push(SessionEventKind::Done, turn, json!({}));
        self.turn.over.send_replace(true);
    }

    /// Restores a message that the session's previous owner has stored.
    pub(super) fn restored(message: WaitingMessage) -> QueuedMessage {
        let policy = message.request.on_disconnect.unwrap_or_default();
        let turn = OpenTurn::new(message.turn.into(), policy, 0, MessageKeeping::Kept);
        QueuedMessage { turn: Arc::new(turn), request: message.request }
    }
}

impl OpenTurn {
    pub(super) fn new(
        id: TurnId,
        policy: OnDisconnect,
        listeners: usize,
        keeping: MessageKeeping,
    ) -> OpenTurn {
        OpenTurn {
            id,
            policy,
            listeners: AtomicUsize::new(listeners),
            arrived: clock::now(),
            is_stopped: AtomicBool::new(false),
            stop: Notify::new(),
            has_begun: AtomicBool::new(false),
            tool_calls: AtomicU64::new(0),
            trace: TurnTrace::default(),
            agent: Mutex::default(),
            over: watch::Sender::new(false),
            keeping: watch::Sender::new(keeping),
        }
    }

    /// Stops the turn in any state.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.stop.notify_one();
        if let Some(agent) = &*self.agent.lock() {
            agent.interrupt();
        }
    }

    /// Resolves once the turn has ended.
    pub(super) async fn over(&self) {
        let mut over = self.over.subscribe();
        // Cannot fail: `self` owns the sender.
        drop(over.wait_for(|over| *over).await);
    }

    pub(super) async fn stopped(&self) {
        while !self.is_stopped.load(Ordering::Acquire) {
            self.stop.notified().await;
        }
    }

    /// Sets the agent that processes the turn, which a stop interrupts from now on.
    pub(super) fn begin(&self, agent: &AgentHandle) {
        *self.agent.lock() = Some(agent.clone());
    }

    /// Returns the final state of the stored message once it is known.
    pub(super) async fn kept(&self) -> MessageKeeping {
        let mut keeping = self.keeping.subscribe();
        let known = keeping.wait_for(|keeping| *keeping != MessageKeeping::Writing).await;
        // Cannot fail: `self` owns the sender.
        known.map_or(MessageKeeping::Failed, |keeping| *keeping)
    }
}
