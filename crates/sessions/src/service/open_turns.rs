//! Turns of a session that are not over, and the messages that wait for theirs.

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

/// The turns of a session that are not over.
#[derive(Debug, Default)]
pub(crate) struct OpenTurns {
    pub(super) waiting: VecDeque<QueuedMessage>,
    pub(super) current: Option<Arc<OpenTurn>>,
    /// A task takes them one after the other.
    pub(super) is_worked: bool,
}

/// A turn that is not over.
#[derive(Debug)]
pub(crate) struct OpenTurn {
    pub(super) id: TurnId,
    pub(super) policy: OnDisconnect,
    /// Number of its listeners.
    pub(super) listeners: AtomicUsize,
    pub(super) arrived: Instant,
    pub(super) is_stopped: AtomicBool,
    pub(super) stop: Notify,
    /// True if the agent has said something.
    pub(super) has_begun: AtomicBool,
    pub(super) tool_calls: AtomicU64,
    pub(super) trace: TurnTrace,
    /// Agent to interrupt.
    pub(super) agent: Mutex<Option<AgentHandle>>,
    pub(super) over: watch::Sender<bool>,
    pub(super) keeping: watch::Sender<MessageKeeping>,
}

/// A message that waits for its turn.
#[derive(Debug)]
pub(crate) struct QueuedMessage {
    pub(super) turn: Arc<OpenTurn>,
    pub(super) request: MessageRequest,
}

/// State of a message in the store while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKeeping {
    /// It did not have to wait.
    NotNeeded,
    /// It is being written.
    Writing,
    /// It is there.
    Kept,
    /// It could not be written, and its sender was told so.
    Failed,
}

impl OpenTurns {
    /// Takes away what waits.
    pub(super) fn take_waiting(&mut self) -> Vec<QueuedMessage> {
        self.waiting.drain(..).collect()
    }

    /// Stops the turn that runs, and says which that is.
    pub(super) fn stop_current(&self) -> Option<Arc<OpenTurn>> {
        let turn = self.current.clone()?;
        turn.stop();
        Some(turn)
    }

    /// The turn that runs.
    pub(super) fn current(&self) -> Option<&Arc<OpenTurn>> {
        self.current.as_ref()
    }
}

impl QueuedMessage {
    /// Ends a turn that never began.
    pub(super) fn refuse(&self, log: &SessionLog, why: &str) {
        let turn = Some(&*self.turn.id);
        log.push(SessionEventKind::TurnStart, turn, json!({ "content": self.request.content }));
        log.push(SessionEventKind::Error, turn, json!({ "error": why }));
        log.push(SessionEventKind::Done, turn, json!({}));
        self.turn.over.send_replace(true);
    }

    /// A message that was kept by whoever had the session before.
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

    /// Tells it to give way, whatever it is doing.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.stop.notify_one();
        if let Some(agent) = &*self.agent.lock() {
            agent.interrupt();
        }
    }

    /// Resolves when it is over.
    pub(super) async fn over(&self) {
        let mut over = self.over.subscribe();
        // Its sender is here.
        drop(over.wait_for(|over| *over).await);
    }

    pub(super) async fn stopped(&self) {
        while !self.is_stopped.load(Ordering::Acquire) {
            self.stop.notified().await;
        }
    }

    /// Gives it the agent that works on it. From here on the agent is who is stopped.
    pub(super) fn begin(&self, agent: &AgentHandle) {
        *self.agent.lock() = Some(agent.clone());
    }

    /// Returns what became of the message in the store, once that is known.
    pub(super) async fn kept(&self) -> MessageKeeping {
        let mut keeping = self.keeping.subscribe();
        let known = keeping.wait_for(|keeping| *keeping != MessageKeeping::Writing).await;
        // The sender is here.
        known.map_or(MessageKeeping::Failed, |keeping| *keeping)
    }
}
