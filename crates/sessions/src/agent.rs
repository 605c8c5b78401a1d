//! A long-lived agent process: it receives messages and writes lines, which become events.
//!
//! This module knows no sandbox, store or HTTP: a process consists of its three streams, a way to
//! signal it, and a notice of its end. One task owns all of it (`task`); `crate::turn` decides how
//! to react to each event; `lines` splits the output into lines, `translate` turns lines into
//! events, and `driver` implements the two kinds of agents.
//!
//! Lines come from a hostile program. They are bounded, read only while the sink has room, and can
//! end only the turn that the agent was given last.

mod driver;
mod lines;
mod task;
mod translate;

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::{MessageContent, SessionEventKind};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::turn::{StopReason, TurnEnd};

pub(crate) use self::driver::{LaunchPlan, LaunchSpec, MODEL_PORT, OptionChange};
use self::task::AgentTaskCommand;
pub(crate) use self::translate::TurnCost;

/// Id of a turn.
pub(crate) type TurnId = Arc<str>;

/// Value that becomes available later.
pub(crate) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Bytes read from an agent without a session; further output waits in its pipe.
const UNADOPTED_BYTES_MAX: usize = 256 << 10;
/// Lines of its standard error kept until it is adopted.
const UNADOPTED_STDERR_MAX: usize = 64;

/// Signal for an agent process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentSignal {
    /// `SIGINT` to the process.
    Interrupt,
    /// `SIGKILL` to the process and its group.
    Kill,
}

/// Streams and controls of an agent's process.
pub(crate) struct AgentProcess {
    /// Standard input.
    pub(crate) stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// Standard output.
    pub(crate) stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// Standard error.
    pub(crate) stderr: Box<dyn AsyncRead + Send + Unpin>,
    /// Sends a signal; returns at once.
    pub(crate) signal: Box<dyn Fn(AgentSignal) + Send + Sync>,
    /// Resolves when the process has ended, with a description such as `exited with code 1`.
    pub(crate) ended: Later<'static, String>,
}

impl fmt::Debug for AgentProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentProcess").finish_non_exhaustive()
    }
}

/// Receiver of an agent's output.
pub(crate) trait AgentSink: Send + Sync + 'static {
    /// Reports an event, with or without a turn. Does not wait.
    fn event(&self, turn: Option<&TurnId>, kind: SessionEventKind, data: Value);
    /// Returns why no more of the agent's output can be stored, as the error that ends its turn.
    fn full(&self) -> Option<String>;
    /// Resolves when there is room for more. Until then, the agent's output is not read.
    fn room(&self) -> Later<'_, ()>;
    /// Reports the agent's own id for its conversation, with which a later process continues it.
    /// Called for the first id and for every change.
    fn conversation(&self, id: &str);
    /// Reports a line of the agent's standard error.
    fn stderr(&self, line: &str);
}

/// Limits of an agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgentLimits {
    /// Maximum bytes of one line.
    pub(crate) line_bytes_max: usize,
    /// Time to become ready.
    pub(crate) start: Duration,
    /// Grace period after each stronger signal.
    pub(crate) grace: Duration,
}

/// A message for an agent.
#[derive(Clone, Debug)]
pub(crate) struct TurnInput {
    /// Id of the turn.
    pub(crate) turn: TurnId,
    /// Content of the message.
    pub(crate) content: MessageContent,
    /// True if partial messages are requested.
    pub(crate) partial: bool,
    /// Model from this turn on.
    pub(crate) model: Option<String>,
    /// Further fields of the line; fields that the line already has are ignored. For Claude,
    /// `max_turns` is the number of model replies after which the turn is stopped.
    pub(crate) extra: Map<String, Value>,
    /// Maximum duration of the turn.
    pub(crate) time: Duration,
    /// The `traceparent` of its span, if it is traced.
    pub(crate) traceparent: Option<String>,
}

/// Outcome of a turn. Its events have been sent already; the caller sends `done`.
#[derive(Clone, Debug)]
pub(crate) struct TurnOutcome {
    /// End of the turn.
    pub(crate) end: TurnEnd,
    /// Text to send as `error`; none if the agent has answered.
    pub(crate) error: Option<String>,
    /// Cost of the turn.
    pub(crate) usage: TurnCost,
    /// True if the process does not know the conversation that it was to continue, because the
    /// conversation was empty or its files are gone. The caller has to send the message to a new
    /// process without that conversation; nothing of it was delivered.
    pub(crate) conversation_lost: bool,
    /// True if the process ended or was about to end before it received the message, so that the
    /// message can be sent to another process.
    pub(crate) is_untold: bool,
}

/// Why an agent has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentEnd {
    /// Sentence for users.
    pub(crate) reason: String,
    /// Last lines of its standard error.
    pub(crate) stderr: String,
    /// See [`TurnOutcome::conversation_lost`].
    pub(crate) conversation_lost: bool,
}

/// A running agent. Cheap to clone. Dropping the last handle kills it.
#[derive(Clone)]
pub(crate) struct AgentHandle(Arc<AgentShared>);

struct AgentShared {
    commands: mpsc::UnboundedSender<AgentTaskCommand>,
    status: watch::Receiver<AgentStatus>,
    outlet: Arc<AgentOutlet>,
}

/// Status of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AgentStatus {
    Starting,
    Ready {
        /// True if the agent accepts control requests.
        has_control: bool,
    },
    Ended(AgentEnd),
}

impl fmt::Debug for AgentHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentHandle").field("status", &*self.0.status.borrow()).finish()
    }
}

impl AgentHandle {
    /// Takes over a process that was started by `plan`. Without a sink, its output is kept until it
    /// is adopted.
    pub(crate) fn start(
        process: AgentProcess,
        plan: &LaunchPlan,
        limits: AgentLimits,
        sink: Option<Arc<dyn AgentSink>>,
    ) -> AgentHandle {
        let outlet = Arc::new(AgentOutlet::new(sink));
        let (commands, inbox) = mpsc::unbounded_channel();
        let (status_sender, status) = watch::channel(AgentStatus::Starting);
        let task = task::AgentTask::new(process, plan, limits, Arc::clone(&outlet), status_sender);
        node::task::spawn(task.run(inbox));
        AgentHandle(Arc::new(AgentShared { commands, status, outlet }))
    }

    /// Gives an agent that was started ahead to its session, and reports its output so far to
    /// `sink`.
    pub(crate) fn adopt(&self, sink: Arc<dyn AgentSink>) {
        self.0.outlet.adopt(sink);
    }

    /// Resolves when the agent is ready, with whether it accepts control requests.
    ///
    /// # Errors
    /// If it has ended instead.
    pub(crate) async fn ready(&self) -> Result<bool, AgentEnd> {
        let mut status = self.0.status.clone();
        let reached = status.wait_for(|status| *status != AgentStatus::Starting).await;
        match reached.as_deref() {
            Ok(AgentStatus::Ready { has_control }) => Ok(*has_control),
            Ok(AgentStatus::Ended(end)) => Err(end.clone()),
            Ok(AgentStatus::Starting) | Err(_) => Err(AgentEnd::gone()),
        }
    }

    /// Resolves when the agent has ended.
    pub(crate) async fn ended(&self) -> AgentEnd {
        let mut status = self.0.status.clone();
        let reached = status.wait_for(|status| matches!(status, AgentStatus::Ended(_))).await;
        match reached.as_deref() {
            Ok(AgentStatus::Ended(end)) => end.clone(),
            Ok(AgentStatus::Starting | AgentStatus::Ready { .. }) | Err(_) => AgentEnd::gone(),
        }
    }

    /// Returns whether the agent has ended.
    pub(crate) fn is_ended(&self) -> bool {
        matches!(&*self.0.status.borrow(), AgentStatus::Ended(_))
    }

    /// Sends the agent a message and resolves when the turn is over, with exactly one outcome. The
    /// agent need not be ready. Dropping the future does not stop the turn.
    ///
    /// Turns do not overlap: during another turn, this returns `Broken` without sending the
    /// message.
    pub(crate) async fn send_turn(&self, input: TurnInput) -> TurnOutcome {
        let (told, outcome) = oneshot::channel();
        // The inbox of an ended agent is closed, which drops the sender.
        self.0.commands.send(AgentTaskCommand::Turn(Box::new(input), told)).ok();
        match outcome.await {
            Ok(outcome) => outcome,
            Err(_) => TurnOutcome::of_end(self.ended().await),
        }
    }

    /// Stops the running turn, if any: by a request, then a signal, then by ending the process,
    /// each after a grace period.
    pub(crate) fn interrupt(&self) {
        self.0.commands.send(AgentTaskCommand::Stop(StopReason::Interrupted)).ok();
    }

    /// Applies the requests from [`LaunchPlan::change`] before the next turn.
    ///
    /// # Errors
    /// The agent's answer, if it refuses; the caller then needs a new process.
    pub(crate) async fn apply(&self, requests: Vec<Map<String, Value>>) -> Result<(), String> {
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let (told, answer) = oneshot::channel();
            self.0.commands.send(AgentTaskCommand::Control(request, told)).ok();
            answers.push(answer);
        }
        for answer in answers {
            match answer.await {
                Ok(Ok(())) => {}
                Ok(Err(refusal)) => return Err(refusal),
                Err(_) => return Err(self.ended().await.reason),
            }
        }
        Ok(())
    }

    /// Lets the agent end by itself: closes its input, waits for a grace period, then kills it.
    pub(crate) async fn close(&self) -> AgentEnd {
        self.0.commands.send(AgentTaskCommand::Close).ok();
        self.ended().await
    }

    /// Kills the agent; a running turn ends at once.
    pub(crate) fn kill(&self) {
        self.0.commands.send(AgentTaskCommand::Kill).ok();
    }
}

impl AgentEnd {
    /// Describes an agent whose task has ended, which happens only at the server's shutdown.
    fn gone() -> AgentEnd {
        AgentEnd {
            reason: "the agent's session has ended".to_owned(),
            stderr: String::new(),
            conversation_lost: false,
        }
    }
}

impl TurnOutcome {
    /// Creates the outcome of a turn that could not begin, because the agent has ended.
    fn of_end(end: AgentEnd) -> TurnOutcome {
        TurnOutcome {
            end: TurnEnd::Died,
            error: Some(end.reason),
            usage: TurnCost::default(),
            conversation_lost: end.conversation_lost,
            is_untold: true,
        }
    }
}

/// Destination of the task's reports.
struct AgentOutlet {
    target: Mutex<OutletTarget>,
    adopted: Notify,
}

enum OutletTarget {
    Sink(Arc<dyn AgentSink>),
    Kept(EarlyOutput),
}

/// Output from before the agent was adopted.
#[derive(Default)]
struct EarlyOutput {
    /// Bytes read so far.
    bytes: usize,
    events: Vec<(SessionEventKind, Value)>,
    stderr: VecDeque<String>,
    conversation: Option<String>,
}

impl AgentOutlet {
    fn new(sink: Option<Arc<dyn AgentSink>>) -> AgentOutlet {
        let target = match sink {
            Some(sink) => OutletTarget::Sink(sink),
            None => OutletTarget::Kept(EarlyOutput::default()),
        };
        AgentOutlet { target: Mutex::new(target), adopted: Notify::new() }
    }

    fn adopt(&self, sink: Arc<dyn AgentSink>) {
        // Under the lock, so that new output does not overtake earlier output.
        let mut target = self.target.lock();
        if let OutletTarget::Kept(kept) = &mut *target {
            if let Some(conversation) = kept.conversation.take() {
                sink.conversation(&conversation);
            }
            for (kind, data) in kept.events.drain(..) {
                sink.event(None, kind, data);
            }
            for line in kept.stderr.drain(..) {
                sink.stderr(&line);
            }
        }
        *target = OutletTarget::Sink(sink);
        drop(target);
        self.adopted.notify_one();
    }

    fn event(&self, turn: Option<&TurnId>, kind: SessionEventKind, data: Value) {
        match &mut *self.target.lock() {
            OutletTarget::Sink(sink) => sink.event(turn, kind, data),
            OutletTarget::Kept(kept) => kept.events.push((kind, data)),
        }
    }

    fn full(&self) -> Option<String> {
        match &*self.target.lock() {
            OutletTarget::Sink(sink) => sink.full(),
            OutletTarget::Kept(_) => None,
        }
    }

    fn conversation(&self, id: &str) {
        match &mut *self.target.lock() {
            OutletTarget::Sink(sink) => sink.conversation(id),
            OutletTarget::Kept(kept) => kept.conversation = Some(id.to_owned()),
        }
    }

    fn stderr(&self, line: &str) {
        match &mut *self.target.lock() {
            OutletTarget::Sink(sink) => sink.stderr(line),
            OutletTarget::Kept(kept) => {
                if kept.stderr.len() == UNADOPTED_STDERR_MAX {
                    kept.stderr.pop_front();
                }
                kept.stderr.push_back(line.to_owned());
            }
        }
    }

    /// Counts bytes that were read.
    fn read(&self, count: usize) {
        if let OutletTarget::Kept(kept) = &mut *self.target.lock() {
            kept.bytes += count;
        }
    }

    /// Resolves when more may be read.
    async fn room(&self) {
        loop {
            let sink = match &*self.target.lock() {
                OutletTarget::Sink(sink) => Some(Arc::clone(sink)),
                OutletTarget::Kept(kept) if kept.bytes < UNADOPTED_BYTES_MAX => return,
                OutletTarget::Kept(_) => None,
            };
            match sink {
                Some(sink) => return sink.room().await,
                None => self.adopted.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests;
