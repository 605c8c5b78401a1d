//! Messages: taken, put in line, told to the agent one after the other, and heard.
//!
//! Every turn that is taken has a `turn_start` and a `done`, with its own name on everything in
//! between. While one runs or waits, the session's sandbox is at work.
//!
//! A message that waits is in the store before its sender is answered, until its turn has begun:
//! whoever has the session next, because this server is lost, goes on with it. What has begun is
//! durable before the agent is told, so that nothing is told twice.

mod streams;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use api::{MessageContent, MessageRequest, SessionEvent, SessionEventKind, SessionState};
use node::clock;
use serde::Serialize;
use serde_json::{Value, json};

pub use self::streams::{EventStream, MessageStream};
use super::entry::{SandboxUse, SessionEntry};
use super::logs::AgentLogLine;
use super::open_turns::{MessageKeeping, OpenTurn, QueuedMessage};
use super::{Sessions, SessionsInner};
use crate::agent::{TurnId, TurnInput, TurnOutcome};
use crate::config::SnapshotPolicy;
use crate::error::SessionError;
use crate::metrics::{SessionCounters, TimedOperation};
use crate::store::rows::{MessageRow, UsageRow};
use crate::store::{PAGE_MAX, WaitingMessage};
use crate::traces::TurnTrace;

/// Blocks of one message.
const BLOCKS_MAX: usize = 1000;
/// Processes that are told one message, when those before could not be.
const TRIES_MAX: u32 = 3;
/// Error of a turn that somebody stopped before it could begin.
const INTERRUPTED: &str = "the turn was interrupted";

impl SessionEntry {
    /// Notes what an agent says in a turn: when it begins, and how often it uses tools.
    pub(super) fn note(
        &self,
        turn: &TurnId,
        kind: SessionEventKind,
        data: &Value,
        metrics: &SessionCounters,
    ) {
        let current = self.state.lock().turns.current.clone();
        let Some(current) = current.filter(|current| current.id == *turn) else { return };
        if !current.has_begun.swap(true, Ordering::Relaxed) {
            metrics.took(TimedOperation::FirstEvent, clock::now().duration_since(current.arrived));
        }
        if kind == SessionEventKind::ToolUse {
            current.tool_calls.fetch_add(1, Ordering::Relaxed);
        }
        current.trace.saw(kind, data);
    }
}

/// A message of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConversationMessage {
    /// Number, among those of the session's events.
    pub seq: u64,
    /// When (milliseconds since 1970).
    pub at_ms: u64,
    /// The turn that it belongs to.
    pub turn: Option<String>,
    /// `user` or `assistant`.
    pub role: String,
    /// Text or blocks.
    pub content: Value,
}

/// A message that is in line.
struct TakenMessage {
    stream: MessageStream,
    /// To be kept, where it waits.
    waiting: Option<WaitingMessage>,
}

impl Sessions {
    /// Takes a message. It is told to the agent when the ones before it are done with.
    ///
    /// # Errors
    /// `Conflict` when the session is not active; `TooMany` when too many wait already; `DiskFull`
    /// when what it writes down may not fit.
    pub async fn message(
        &self,
        tenant: &str,
        id: &str,
        request: MessageRequest,
    ) -> Result<MessageStream, SessionError> {
        let inner = self.ready()?;
        let arrived = clock::now();
        check(&request)?;
        inner.storage.check_free().await?;
        let mut entry = inner.acquire(tenant, id).await?;
        let turn: TurnId = inner.ids.next("turn_").into();
        let mut request = Some(request);
        loop {
            if let Some(taken) = inner.take_message(&entry, &turn, &mut request, arrived)? {
                if let Some(waiting) = taken.waiting {
                    inner.keep_message(&taken.stream, waiting).await?;
                }
                return Ok(taken.stream);
            }
            // Active without a sandbox: only for a moment, or until somebody asks.
            // Whoever made one may have had to look for the session again.
            entry = Arc::clone(&inner.with_body(&entry).await?.entry);
        }
    }

    /// Stops the turn that runs. Whether there was one.
    ///
    /// # Errors
    /// When there is no such session.
    pub async fn interrupt(&self, tenant: &str, id: &str) -> Result<bool, SessionError> {
        let inner = self.ready()?;
        let Some(entry) = inner.directory.here(tenant, id) else {
            return inner.directory.row(tenant, id).await.map(|_| false);
        };
        let stopped = entry.state.lock().turns.stop_current();
        Ok(stopped.is_some())
    }

    /// Listens to a session, from the event after `after` on.
    ///
    /// # Errors
    /// When there is no such session.
    pub async fn events(
        &self,
        tenant: &str,
        id: &str,
        after: u64,
    ) -> Result<EventStream, SessionError> {
        let inner = self.ready()?;
        if let Some(entry) = inner.directory.here(tenant, id) {
            entry.listeners.fetch_add(1, Ordering::AcqRel);
            let events = entry.log.subscribe(after);
            return Ok(EventStream { entry: Some(entry), events });
        }
        let row = inner.directory.row(tenant, id).await?;
        let log = inner.writer.follow(id);
        if row.state == SessionState::Ended {
            // Who listens is told what there is, and does not wait for more.
            log.close();
        }
        Ok(EventStream { entry: None, events: log.subscribe(after) })
    }

    /// The number of the latest event of a session.
    ///
    /// # Errors
    /// When there is no such session.
    pub async fn last_seq(&self, tenant: &str, id: &str) -> Result<u64, SessionError> {
        let inner = self.ready()?;
        match inner.directory.here(tenant, id) {
            Some(entry) => Ok(entry.log.last_seq()),
            None => Ok(inner.directory.row(tenant, id).await?.last_seq),
        }
    }

    /// Events of a session that are kept, above number `after`: of these kinds, or of all.
    ///
    /// # Errors
    /// When there is no such session.
    pub async fn event_page(
        &self,
        tenant: &str,
        id: &str,
        after: u64,
        limit: usize,
        kinds: Vec<SessionEventKind>,
    ) -> Result<Vec<SessionEvent>, SessionError> {
        let inner = self.ready()?;
        inner.directory.settled(tenant, id).await?;
        inner.store.event_page(id, after, u64::MAX, limit.clamp(1, PAGE_MAX), kinds).await
    }

    /// Messages of a session above number `after`.
    ///
    /// # Errors
    /// When there is no such session.
    pub async fn messages(
        &self,
        tenant: &str,
        id: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<ConversationMessage>, SessionError> {
        let inner = self.ready()?;
        inner.directory.settled(tenant, id).await?;
        let rows = inner.store.messages(id, after, limit.clamp(1, PAGE_MAX)).await?;
        let message = |row: MessageRow| ConversationMessage {
            seq: row.seq,
            at_ms: row.at_ms,
            turn: row.turn,
            role: row.role,
            content: row.content,
        };
        Ok(rows.into_iter().map(message).collect())
    }

    /// Lines of the agent's standard error and of the server, from number `from` on; those of this
    /// life only.
    ///
    /// # Errors
    /// When there is no such session.
    pub async fn logs(
        &self,
        tenant: &str,
        id: &str,
        from: u64,
    ) -> Result<Vec<AgentLogLine>, SessionError> {
        let inner = self.ready()?;
        match inner.directory.here(tenant, id) {
            Some(entry) => Ok(entry.lines.lock().from(from)),
            None => inner.directory.row(tenant, id).await.map(|_| Vec::new()),
        }
    }
}

/// Traces the wait for an agent, which may have to be started.
async fn started<T>(agent: impl Future<Output = T>) -> T {
    let _span = node::traces::span("agent");
    agent.await
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

impl SessionsInner {
    /// Puts a message in line; none when the session has no sandbox at the moment.
    fn take_message(
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
            // Whoever works the line off has a use of its own.
            drop(state);
            drop(at_work);
        }
        let stream = MessageStream { turn, entry: Arc::clone(entry), events, is_over: false };
        Ok(Some(TakenMessage { stream, waiting }))
    }

    /// Takes the messages of a session one after the other.
    async fn work_off(self: Arc<Self>, mut at_work: SandboxUse) {
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
            // The sandbox may be another one than that of the turn before.
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

    /// Tells the agent one message, up to `done`.
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
            // Whoever has the session now goes on with the message.
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
            // What the agent says of it may hold anything.
            span.fail("the turn ended with an error");
            entry.log.push(SessionEventKind::Error, id, json!({ "error": error }));
        }
        let policy = self.config.now().snapshot_policy();
        if policy == SnapshotPolicy::TurnSync
            && let Err(error) = self.disk_archive.snapshot_live(at_work).await
        {
            // Whoever relies on the files learns of it before the end.
            let error = format!("the files of this turn are on this server alone: {error}");
            entry.log.push(SessionEventKind::Error, id, json!({ "error": error }));
        }
        {
            let mut state = entry.state.lock();
            state.row.turns += 1;
            state.row.last_active_ms = clock::wall_ms();
        }
        self.directory.mark(entry);
        // The log tells of it when all of the turn is durable, and not before.
        entry.log.push(SessionEventKind::Done, id, json!({}));
        turn.over.send_replace(true);
        span.set("cove.tool_calls", turn.tool_calls.load(Ordering::Relaxed));
        span.end();
        if policy == SnapshotPolicy::Turn {
            self.disk_archive.snapshot_behind(at_work).await;
        }
    }

    /// Returns what the agent makes of a message. The agent is started when it does not run.
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
                // The agent does not know the conversation, so that it has said nothing in it.
                entry.state.lock().row.agent_session = None;
                self.directory.mark(entry);
            }
            // Nothing was told of the message in either case, so that another process may be.
            if tries == 0 || !(outcome.conversation_lost || outcome.is_untold) {
                return Ok(outcome);
            }
            agent.close().await;
        }
    }

    /// From this message on, the session has another model: a later process has it, too.
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
            // The session's own by now.
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
