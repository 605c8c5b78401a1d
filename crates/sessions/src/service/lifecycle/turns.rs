//! Messages: accepted, queued, sent to the agent one after the other, and answered.
//!
//! Every accepted turn has a `turn_start` and a `done`, and every event between them carries its
//! id. While a turn runs or waits, the session's sandbox counts as working.
//!
//! A queued message is stored before its sender is answered, and kept until its turn has begun: if
//! this server is lost, the session's next owner continues with it. The start of a turn is durable
//! before the agent receives the message, so no message is delivered twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use api::{MessageRequest, SessionEventKind};
use node::clock;
use serde_json::json;

use super::SessionLifecycle;
use crate::agent::{TurnId, TurnInput, TurnOutcome};
use crate::config::SnapshotPolicy;
use crate::error::SessionError;
use crate::metrics::TimedOperation;
use crate::service::entry::{SandboxUse, SessionEntry};
use crate::service::open_turns::{MessageKeeping, OpenTurn, QueuedMessage};
use crate::service::streams::MessageStream;
use crate::store::WaitingMessage;
use crate::store::rows::UsageRow;
use crate::traces::TurnTrace;

/// Maximum processes that a message is sent to, if earlier ones could not receive it.
const TRIES_MAX: u32 = 3;
/// Error of a turn that was interrupted before it could begin.
pub(super) const INTERRUPTED: &str = "the turn was interrupted";

/// A queued message.
pub(in crate::service) struct TakenMessage {
    pub(in crate::service) stream: MessageStream,
    /// Record to store, if the message has to wait.
    pub(in crate::service) waiting: Option<WaitingMessage>,
}

/// Traces the wait for an agent, including its start.
async fn started<T>(agent: impl Future<Output = T>) -> T {
    let _span = node::traces::span("agent");
    agent.await
}

impl SessionLifecycle {
    /// Queues a message; returns `None` if the session has no sandbox at the moment.
    pub(in crate::service) fn take_message(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
        id: &TurnId,
        request: &mut Option<MessageRequest>,
        arrived: Instant,
    ) -> Result<Option<TakenMessage>, SessionError> {
        let mut state = entry.state.lock();
        state.active()?;
        if state.turns.waiting.len() >= self.config.now().messages_waiting_max {
            let message = format!(
                "{} messages are waiting in this session already",
                self.config.now().messages_waiting_max
            );
            return Err(SessionError::TooMany(message));
        }
        if let Some(message) = entry.history_is_full(self.config.now().history_bytes_max) {
            return Err(SessionError::Conflict(message));
        }
        let Some(body) = state.body.clone() else { return Ok(None) };
        let Some(at_work) = SandboxUse::of(&self.books, entry, body, arrived) else {
            return Ok(None);
        };
        let Some(request) = request.take() else { return Ok(None) };
        let policy = request.on_disconnect.unwrap_or(state.row.on_disconnect);
        let has_to_wait = state.turns.is_worked || !state.turns.waiting.is_empty();
        let waiting = has_to_wait.then(|| WaitingMessage {
            turn: id.to_string(),
            request: MessageRequest { on_disconnect: Some(policy), ..request.clone() },
            at_ms: clock::wall_ms(),
        });
        let keeping = match waiting {
            Some(_) => MessageKeeping::Writing,
            None => MessageKeeping::NotNeeded,
        };
        let turn = OpenTurn::new(Arc::clone(id), policy, 1, keeping);
        let turn = Arc::new(OpenTurn { arrived, trace: TurnTrace::current(), ..turn });
        let events = entry.log.subscribe(entry.log.last_seq());
        state.turns.waiting.push_back(QueuedMessage { turn: Arc::clone(&turn), request });
        state.row.last_active_ms = clock::wall_ms();
        if !std::mem::replace(&mut state.turns.is_worked, true) {
            drop(state);
            node::task::spawn(Arc::clone(self).work_off(at_work));
        } else {
            // The task that processes the queue holds its own use.
            drop(state);
            drop(at_work);
        }
        let stream = MessageStream { turn, entry: Arc::clone(entry), events, is_over: false };
        Ok(Some(TakenMessage { stream, waiting }))
    }

    /// Processes the messages of a session one after the other.
    pub(in crate::service) async fn work_off(self: Arc<Self>, mut at_work: SandboxUse) {
        let entry = Arc::clone(&at_work.entry);
        loop {
            let (queued, body) = {
                let mut state = entry.state.lock();
                let Some(queued) = state.turns.waiting.pop_front() else {
                    state.turns.current = None;
                    state.turns.is_worked = false;
                    return;
                };
                state.turns.current = Some(Arc::clone(&queued.turn));
                (queued, state.body.clone())
            };
            // The sandbox may have been replaced since the last turn.
            if body.is_none_or(|body| !Arc::ptr_eq(&body, &at_work.body)) {
                let other = tokio::select! {
                    biased;
                    () = queued.turn.stopped() => Err(SessionError::Agent(INTERRUPTED.to_owned())),
                    other = self.with_body(&entry) => other,
                };
                match other {
                    Ok(other) => at_work = other,
                    Err(error) => {
                        self.refuse_all(&entry, vec![queued], &error.to_string());
                        continue;
                    }
                }
            }
            self.run_turn(&at_work, queued).await;
        }
    }

    /// Sends one message to the agent and runs its turn, up to `done`.
    async fn run_turn(self: &Arc<Self>, at_work: &SandboxUse, queued: QueuedMessage) {
        let QueuedMessage { turn, request } = queued;
        let entry = &at_work.entry;
        let id = Some(&*turn.id);
        let began_ms = clock::wall_ms();
        let keeping = turn.kept().await;
        if keeping == MessageKeeping::Failed {
            turn.over.send_replace(true);
            return;
        }
        entry.log.push(SessionEventKind::TurnStart, id, json!({ "content": request.content }));
        entry.log.message("user", id, json!(request.content));
        if keeping == MessageKeeping::Kept && !self.begun(entry, &[Arc::clone(&turn)]).await {
            // The session's new owner continues with the message.
            turn.over.send_replace(true);
            return;
        }
        self.change_model(entry, request.model.as_deref()).await;
        let mut span = turn.trace.begin(&entry.id, &turn.id, turn.arrived);
        let bound = span.bind(&entry.id);
        let answer = Box::pin(self.answer(at_work, &turn, &request));
        let outcome = span.within(answer).await;
        drop(bound);
        turn.trace.end();
        *turn.agent.lock() = None;
        let error = match outcome {
            Ok(outcome) => {
                tracing::debug!(session = %entry.id, end = ?outcome.end, "a turn ended");
                self.note_usage(entry, &turn, &outcome, began_ms);
                outcome.error
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = error {
            // Not in the span: the agent's error text may contain anything.
            span.fail("the turn ended with an error");
            entry.log.push(SessionEventKind::Error, id, json!({ "error": error }));
        }
        let policy = self.config.now().snapshot_policy();
        if policy == SnapshotPolicy::TurnSync
            && let Err(error) = self.disk_archive.snapshot_live(at_work).await
        {
            // Clients that rely on the files see this before the end of the turn.
            let error = format!("the files of this turn are on this server alone: {error}");
            entry.log.push(SessionEventKind::Error, id, json!({ "error": error }));
        }
        {
            let mut state = entry.state.lock();
            state.row.turns += 1;
            state.row.last_active_ms = clock::wall_ms();
        }
        self.directory.mark(entry);
        // The log shows it only once all of the turn is durable.
        entry.log.push(SessionEventKind::Done, id, json!({}));
        turn.over.send_replace(true);
        span.set("cove.tool_calls", turn.tool_calls.load(Ordering::Relaxed));
        span.end();
        if policy == SnapshotPolicy::Turn {
            self.disk_archive.snapshot_behind(at_work).await;
        }
    }

    /// Runs the agent on a message. The agent is started if it does not run.
    async fn answer(
        self: &Arc<Self>,
        at_work: &SandboxUse,
        turn: &Arc<OpenTurn>,
        request: &MessageRequest,
    ) -> Result<TurnOutcome, SessionError> {
        let entry = &at_work.entry;
        let mut tries = TRIES_MAX;
        loop {
            tries -= 1;
            let agent = tokio::select! {
                biased;
                () = turn.stopped() => return Err(SessionError::Agent(INTERRUPTED.to_owned())),
                agent = started(self.launcher.agent(entry, &at_work.body)) => agent?.handle,
            };
            turn.begin(&agent);
            if turn.is_stopped.load(Ordering::Acquire) {
                return Err(SessionError::Agent(INTERRUPTED.to_owned()));
            }
            let waited = clock::now().duration_since(turn.arrived);
            self.metrics.took(TimedOperation::TurnStart, waited);
            let outcome = agent.send_turn(self.input(turn, request)).await;
            if outcome.conversation_lost {
                // The agent does not know the conversation, so there is nothing to continue.
                entry.state.lock().row.agent_session = None;
                self.directory.mark(entry);
            }
            // In both cases the message was not delivered, so another process may receive it.
            if tries == 0 || !(outcome.conversation_lost || outcome.is_untold) {
                return Ok(outcome);
            }
            agent.close().await;
        }
    }

    /// Records the session's new model, which later processes use as well.
    async fn change_model(&self, entry: &SessionEntry, model: Option<&str>) {
        let is_new = {
            let mut state = entry.state.lock();
            let is_new = model.is_some() && state.row.options.model.as_deref() != model;
            if is_new {
                state.row.options.model = model.map(str::to_owned);
            }
            is_new
        };
        if is_new && let Err(error) = self.directory.save(entry).await {
            tracing::warn!(session = %entry.id, error = &error as &dyn std::error::Error,
                "the model of a session could not be stored");
        }
    }

    fn input(&self, turn: &OpenTurn, request: &MessageRequest) -> TurnInput {
        TurnInput {
            turn: Arc::clone(&turn.id),
            content: request.content.clone(),
            partial: request.partial,
            // Already set as the session's own model.
            model: None,
            extra: request.extra.clone(),
            time: Duration::from_secs(self.config.now().turn_s.into()),
            traceparent: turn.trace.traceparent(),
        }
    }

    fn note_usage(
        &self,
        entry: &SessionEntry,
        turn: &OpenTurn,
        outcome: &TurnOutcome,
        began_ms: u64,
    ) {
        let usage = &outcome.usage;
        let now_ms = clock::wall_ms();
        let (agent, model) = {
            let state = entry.state.lock();
            (state.row.agent_name.clone(), state.row.options.model.clone())
        };
        entry.log.usage(UsageRow {
            session: entry.id.to_string(),
            turn: turn.id.to_string(),
            tenant: entry.tenant.to_string(),
            agent,
            at_ms: now_ms,
            model,
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cache_read_tokens: usage.cache_read_tokens,
            cache_write_tokens: usage.cache_creation_tokens,
            cost_usd: usage.cost_usd,
            tool_calls: turn.tool_calls.load(Ordering::Relaxed),
            duration_ms: now_ms.saturating_sub(began_ms),
        });
    }
}
