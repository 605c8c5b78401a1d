//! Executions that outlive their request: what is known of one, its events, and the queue.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::execution::{
    Execution, ExecutionId, ExecutionMode, ExecutionRequest, StageName, StageOutcome, TerminalSize,
    Verdict,
};

/// State of an execution. `queued` and `running` go on; the others are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ExecutionState {
    /// Durable and waiting.
    Queued,
    /// Given to a worker.
    Running,
    /// Has a result.
    Finished,
    /// Ended at its owner's wish, or because an attached caller or its template went away.
    Cancelled,
    /// Did not start before its deadline.
    Expired,
    /// Cove failed at it as often as it may; it can be replayed.
    Dead,
}

impl ExecutionState {
    /// The name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            ExecutionState::Queued => "queued",
            ExecutionState::Running => "running",
            ExecutionState::Finished => "finished",
            ExecutionState::Cancelled => "cancelled",
            ExecutionState::Expired => "expired",
            ExecutionState::Dead => "dead",
        }
    }

    /// Returns whether it stays as it is.
    pub fn is_final(self) -> bool {
        !matches!(self, ExecutionState::Queued | ExecutionState::Running)
    }
}

/// An execution and its state. Answer of `POST /v1/executions` (202) and `GET /v1/executions/{id}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ExecutionRecord {
    /// Names it.
    pub id: ExecutionId,
    /// State of the execution.
    pub state: ExecutionState,
    /// The language, or `argv`.
    pub language: String,
    /// Priority, as given.
    pub priority: i32,
    /// Label, as given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// When it was accepted (RFC 3339, milliseconds, UTC).
    pub created_at: String,
    /// When the latest attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When it reached its final state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// When it is forgotten, once it is final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Number of starts.
    pub attempts: u32,
    /// Number of executions before it, while it is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// In how many milliseconds it will start, estimated from what ran lately; while queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_start_ms: Option<u64>,
    /// Verdict, once it is finished. Absent in Redis, and for what a server of an earlier
    /// version finished; the result has it always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Why it is dead, cancelled or expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The request as it was sent, with `include=request`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<ExecutionRequest>>,
    /// The result, once it is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Execution>,
}

/// Answer of `GET /v1/executions`: newest first, without results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ExecutionList {
    /// This page.
    pub executions: Vec<ExecutionRecord>,
    /// Value of `cursor` for the next page; none on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Body of `POST /v1/executions/batch`: all are accepted, or none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BatchRequest {
    /// Executions to submit.
    pub executions: Vec<ExecutionRequest>,
}

/// Answer of `POST /v1/executions/batch`, in the order of the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct BatchAnswer {
    /// Executions that were accepted.
    pub executions: Vec<ExecutionRecord>,
}

/// Event of an execution, as on `/v1/executions/{id}/events`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ExecutionEvent {
    /// Counts from 1 without gaps; a later attempt, after a failure of the server, goes on with
    /// much larger numbers. The id of a server-sent event.
    pub seq: u64,
    /// Kind of event, with its data.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// Kinds of events of an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventKind {
    /// Durable and waiting.
    Queued {
        /// Number of executions before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        position: Option<u64>,
    },
    /// A worker has it.
    Started {
        /// Number of the attempt, from 1.
        attempt: u32,
    },
    /// A stage begins.
    Stage {
        /// Name of the stage.
        stage: StageName,
        /// Number of the test case, from 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        test: Option<u32>,
    },
    /// A chunk of standard output of the current stage.
    Stdout(EventBytes),
    /// A chunk of standard error of the current stage.
    Stderr(EventBytes),
    /// A stage has ended.
    Exit {
        /// Name of the stage.
        stage: StageName,
        /// Number of the test case, from 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        test: Option<u32>,
        /// Speed mode that was used.
        mode: ExecutionMode,
        /// Verdict of the stage.
        verdict: Verdict,
        /// Exit code, when it exited.
        exit_code: Option<i32>,
        /// Signal that ended it.
        signal: Option<String>,
        /// CPU time in milliseconds.
        cpu_ms: f64,
        /// Time from start to end in milliseconds.
        wall_ms: f64,
    },
    /// Events in between are not kept any more.
    Gap {
        /// The first one that is missing.
        from: u64,
        /// The last one that is missing.
        to: u64,
    },
    /// Finished with a result. The last event.
    Verdict {
        /// The judgement.
        verdict: Verdict,
        /// The whole result.
        result: Box<Execution>,
    },
    /// Ended without a result. The last event.
    Ended {
        /// Final state.
        state: ExecutionState,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
}

impl EventKind {
    /// The name, as in JSON and as the `event` of a server-sent event.
    pub fn name(&self) -> &'static str {
        match self {
            EventKind::Queued { .. } => "queued",
            EventKind::Started { .. } => "started",
            EventKind::Stage { .. } => "stage",
            EventKind::Stdout(_) => "stdout",
            EventKind::Stderr(_) => "stderr",
            EventKind::Exit { .. } => "exit",
            EventKind::Gap { .. } => "gap",
            EventKind::Verdict { .. } => "verdict",
            EventKind::Ended { .. } => "ended",
        }
    }

    /// Returns whether no event follows.
    pub fn is_last(&self) -> bool {
        matches!(self, EventKind::Verdict { .. } | EventKind::Ended { .. })
    }
}

/// Bytes: as text where they are UTF-8 by themselves, else as base64. Exactly one is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EventBytes {
    /// The bytes as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The bytes as base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
}

/// Message of a caller on the WebSocket of `/v1/executions/{id}/events`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ClientMessage {
    /// Bytes for standard input: exactly one of `data` and `data_base64`.
    Stdin {
        /// The bytes as text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<String>,
        /// The bytes as base64.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data_base64: Option<String>,
    },
    /// End of standard input.
    Eof,
    /// A signal for the program.
    Signal {
        /// Name of the signal, such as `SIGINT`.
        signal: String,
    },
    /// The terminal has another size.
    Resize(TerminalSize),
    /// Ends the execution.
    Cancel,
    /// Acknowledges output of a terminal that was opened with `window`. Elsewhere it says nothing.
    Ack {
        /// Bytes of this connection's output that the client has shown so far.
        bytes: u64,
    },
}

/// Answer of `GET /v1/queue`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct QueueStats {
    /// Back end that holds the queue: `sqlite`, `postgresql`, `redis`.
    pub backend: String,
    /// True if nothing is started at present.
    pub paused: bool,
    /// Executions that wait.
    pub queued: u64,
    /// Executions that run.
    pub running: u64,
    /// Executions that finished and are still kept.
    pub finished: u64,
    /// Cancelled ones that are still kept.
    pub cancelled: u64,
    /// Expired ones that are still kept.
    pub expired: u64,
    /// Dead letters.
    pub dead: u64,
    /// Age of the oldest that waits, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_queued_ms: Option<u64>,
    /// Tenants that have something waiting.
    pub tenants_waiting: u64,
}

/// Answer of `GET /v1/webhooks/secret`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct WebhookSecret {
    /// The key that this token's webhooks are signed with, unless a request has its own: `whsec_`
    /// and base64, as libraries of Standard Webhooks take it.
    pub secret: String,
}

/// Answer of the operations on the queue that change many executions at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct QueueChange {
    /// Number of executions that were changed.
    pub changed: u64,
}

/// A result without the streams: what [`EventKind::Exit`] shows of an outcome.
impl From<(&StageOutcome, StageName, Option<u32>, ExecutionMode)> for EventKind {
    fn from(
        (outcome, stage, test, mode): (&StageOutcome, StageName, Option<u32>, ExecutionMode),
    ) -> EventKind {
        EventKind::Exit {
            stage,
            test,
            mode,
            verdict: outcome.verdict,
            exit_code: outcome.exit_code,
            signal: outcome.signal.clone(),
            cpu_ms: outcome.cpu_ms,
            wall_ms: outcome.wall_ms,
        }
    }
}
