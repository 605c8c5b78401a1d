//! The events of one session.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use api::{SessionEvent, SessionEventKind};
use node::clock;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::subscription::SessionSubscription;
use super::writer::EventWriterShared;
use super::{EVENT_BYTES, LOG_WAITING_MAX, RING_BYTES_MAX, TAKE_MAX, WAITING_MAX};
use crate::error::SessionError;
use crate::store::{
    EventRow, MessageRow, SEQ_BLOCK, SEQ_BLOCK_MAX, SessionBatch, SessionRow, UsageRow,
};

/// The events of one session, from [`super::EventWriter::log`] or [`super::EventWriter::follow`].
pub(crate) struct SessionLog {
    session: String,
    /// Weak reference to this log, which the writer upgrades while there are pending writes.
    itself: Weak<SessionLog>,
    shared: Arc<EventWriterShared>,
    state: Mutex<SessionLogState>,
    /// Counter of changes to visible or durable events, which wakes waiting subscribers.
    changed: watch::Sender<u64>,
}

/// State of a log: whether this server may append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogLife {
    /// Owned by this server, at this epoch.
    Here(u64),
    /// Owned by another server, or unowned. Its events are in the store.
    Elsewhere,
    /// Ended.
    Over,
}

struct SessionLogState {
    life: LogLife,
    /// Number of the latest event before this life.
    begun: u64,
    /// Number of the next event.
    next: u64,
    /// Highest number that subscribers may see.
    ceiling: u64,
    /// Ceiling requested from the writer.
    ceiling_asked: u64,
    /// Number up to which all events are in the store.
    durable: u64,
    /// Numbers of turn starts and ends that are not durable yet: subscribers see nothing from the
    /// first of them on.
    held: VecDeque<u64>,
    ring: VecDeque<LoggedEvent>,
    ring_bytes: usize,
    /// Highest number that was evicted from the ring.
    evicted: u64,
    /// Stored bytes of the session, including pending ones.
    history_bytes: u64,
    /// Events that the writer has not taken yet, and whether this log is in its queue.
    pending: SessionBatch,
    is_queued: bool,
    /// Bytes that are pending or being written.
    waiting: usize,
    /// Bytes that are pending.
    pending_bytes: usize,
    /// Number of requests to the writer, and the last one it has completed.
    asked: u64,
    written: u64,
    /// Value of `asked` at the latest change of the row.
    row_asked: u64,
}

struct LoggedEvent {
    event: Arc<SessionEvent>,
    bytes: usize,
    is_kept: bool,
}

/// Part of a log that the writer takes and confirms once it is written.
pub(super) struct PendingWrite {
    pub(super) part: SessionBatch,
    pub(super) bytes: usize,
    up_to: u64,
    asked: u64,
}

impl fmt::Debug for SessionLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("session", &self.session).finish_non_exhaustive()
    }
}

impl Drop for SessionLog {
    fn drop(&mut self) {
        self.shared.forget(&self.session);
    }
}

impl SessionLog {
    pub(super) fn new(session: String, shared: Arc<EventWriterShared>) -> Arc<SessionLog> {
        let state = SessionLogState {
            life: LogLife::Elsewhere,
            begun: 0,
            next: 1,
            ceiling: 0,
            ceiling_asked: 0,
            durable: 0,
            held: VecDeque::new(),
            ring: VecDeque::new(),
            ring_bytes: 0,
            evicted: 0,
            history_bytes: 0,
            pending: SessionBatch::default(),
            is_queued: false,
            waiting: 0,
            pending_bytes: 0,
            asked: 0,
            written: 0,
            row_asked: 0,
        };
        Arc::new_cyclic(|itself| SessionLog {
            session,
            itself: Weak::clone(itself),
            shared,
            state: Mutex::new(state),
            changed: watch::Sender::new(0),
        })
    }

    /// Begins a life with the numbers reserved for it.
    pub(super) fn begin(&self, row: &SessionRow) {
        {
            let mut state = self.state.lock();
            state.drop_pending(&self.shared);
            state.life = LogLife::Here(row.epoch);
            state.begun = row.seq_start;
            state.next = row.seq_start + 1;
            state.ceiling = row.seq_ceiling;
            state.ceiling_asked = row.seq_ceiling;
            state.durable = row.seq_start;
            state.evicted = row.seq_start;
            state.history_bytes = row.history_bytes;
            state.written = state.asked;
        }
        self.tell();
    }

    /// Returns the id of the log's session.
    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// Returns the number of the latest event appended in this life, or reserved before it.
    pub(crate) fn last_seq(&self) -> u64 {
        self.state.lock().next.saturating_sub(1)
    }

    /// Returns the stored bytes of the session's events and messages, over all its lives.
    pub(crate) fn history_bytes(&self) -> u64 {
        self.state.lock().history_bytes
    }

    /// Appends an event and returns its number. Never waits; a caller that appends much awaits
    /// [`SessionLog::room`] first.
    ///
    /// If this server does not own the session (any more), appends nothing and returns the number
    /// of the latest event.
    pub(crate) fn push(&self, kind: SessionEventKind, turn: Option<&str>, data: Value) -> u64 {
        let at_ms = clock::wall_ms();
        let is_kept = !kind.is_partial();
        // Outside the lock, because the JSON may be large.
        let json = if is_kept { data.to_string().into_bytes() } else { Vec::new() };
        let bytes = EVENT_BYTES + if is_kept { json.len() } else { length(&data) };
        let event = SessionEvent { seq: 0, at_ms, turn: turn.map(str::to_owned), kind, data };
        let seq = {
            let mut state = self.state.lock();
            let Some(seq) = state.number() else {
                return state.next.saturating_sub(1);
            };
            let event = Arc::new(SessionEvent { seq, ..event });
            state.ring.push_back(LoggedEvent { event: Arc::clone(&event), bytes, is_kept });
            state.ring_bytes += bytes;
            if is_kept {
                let row = EventRow {
                    session: self.session.clone(),
                    seq,
                    at_ms,
                    turn: event.turn.clone(),
                    kind,
                    data: json,
                };
                state.pending.events.push(row);
                state.pending.last_seq = seq;
                state.add_history(bytes);
                // Holds both back until they are durable: a turn that a subscriber has seen is
                // found and ended after a crash, and a subscriber that sees a turn's end can read
                // all of the turn.
                let is_border =
                    matches!(kind, SessionEventKind::TurnStart | SessionEventKind::Done);
                if is_border {
                    state.held.push_back(seq);
                }
                self.ask(&mut state, bytes, is_border);
            } else if state.durable + 1 == seq {
                // A partial event needs no write.
                state.durable = seq;
            }
            state.trim();
            self.ask_ceiling(&mut state);
            seq
        };
        self.tell();
        seq
    }

    /// Records a message of the conversation, `role` being `user` or `assistant`, and returns its
    /// number. Subscribers do not receive messages, but they share the number sequence of the
    /// events.
    pub(crate) fn message(&self, role: &str, turn: Option<&str>, content: Value) -> u64 {
        let bytes = EVENT_BYTES + length(&content);
        let mut state = self.state.lock();
        let Some(seq) = state.number() else {
            return state.next.saturating_sub(1);
        };
        state.pending.messages.push(MessageRow {
            session: self.session.clone(),
            seq,
            at_ms: clock::wall_ms(),
            turn: turn.map(str::to_owned),
            role: role.to_owned(),
            content,
        });
        state.add_history(bytes);
        self.ask(&mut state, bytes, false);
        self.ask_ceiling(&mut state);
        seq
    }

    /// Records the usage of a turn, once for each turn.
    pub(crate) fn usage(&self, usage: UsageRow) {
        let mut state = self.state.lock();
        if let LogLife::Here(_) = state.life {
            state.pending.usage.push(usage);
            self.ask(&mut state, EVENT_BYTES, false);
        }
    }

    /// Schedules a write of the row without its settings and chain (see [`SessionLog::save`]). The
    /// row's epoch and numbers are ignored.
    pub(crate) fn mark(&self, row: Arc<SessionRow>) {
        self.change_row(row, false);
    }

    /// Writes the whole row, and returns when it and everything before it are durable.
    ///
    /// # Errors
    /// If this server does not own the session any more.
    pub(crate) async fn save(&self, row: Arc<SessionRow>) -> Result<(), SessionError> {
        self.save_row(row, true).await
    }

    /// Like [`SessionLog::save`], for a row whose settings and chain have not changed since the
    /// last write.
    ///
    /// # Errors
    /// If this server does not own the session any more.
    pub(crate) async fn save_life(&self, row: Arc<SessionRow>) -> Result<(), SessionError> {
        self.save_row(row, false).await
    }

    async fn save_row(&self, row: Arc<SessionRow>, is_whole: bool) -> Result<(), SessionError> {
        if matches!(self.state.lock().life, LogLife::Elsewhere) {
            // The writer would skip it, which must not look like success.
            return Err(SessionError::Away(TAKEN.to_owned()));
        }
        self.change_row(row, is_whole);
        self.settle().await
    }

    fn change_row(&self, row: Arc<SessionRow>, is_whole: bool) {
        let mut state = self.state.lock();
        if let LogLife::Here(_) = state.life {
            state.pending.row = Some(row);
            state.pending.is_whole |= is_whole;
            self.ask(&mut state, EVENT_BYTES, is_whole);
            state.row_asked = state.asked;
        }
    }

    /// Returns whether the row has a change that is not written yet.
    pub(crate) fn has_row_to_write(&self) -> bool {
        let state = self.state.lock();
        matches!(state.life, LogLife::Here(_)) && state.written < state.row_asked
    }

    /// Waits until the current row is written, for callers that then query the store by state.
    ///
    /// # Errors
    /// If this server does not own the session any more.
    pub(crate) async fn settle_row(&self) -> Result<(), SessionError> {
        let asked = {
            let mut state = self.state.lock();
            if state.written < state.row_asked {
                self.ask(&mut state, 0, true);
            }
            state.row_asked
        };
        self.wait(|state| state.written >= asked).await
    }

    /// Waits until every event numbered up to `seq` is durable.
    ///
    /// # Errors
    /// If this server does not own the session any more.
    #[cfg(test)]
    pub(crate) async fn flushed(&self, seq: u64) -> Result<(), SessionError> {
        {
            let mut state = self.state.lock();
            if state.durable < seq.min(state.next.saturating_sub(1)) {
                self.ask(&mut state, 0, true);
            }
        }
        self.wait(|state| state.durable >= seq.min(state.next.saturating_sub(1))).await
    }

    /// Waits until all appended events, messages, row changes and usage are durable.
    ///
    /// # Errors
    /// If this server does not own the session any more.
    pub(crate) async fn settle(&self) -> Result<(), SessionError> {
        let asked = {
            let mut state = self.state.lock();
            if state.written < state.asked {
                self.ask(&mut state, 0, true);
            }
            state.asked
        };
        self.wait(|state| state.written >= asked).await
    }

    async fn wait(
        &self,
        is_reached: impl Fn(&SessionLogState) -> bool,
    ) -> Result<(), SessionError> {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            {
                let state = self.state.lock();
                if is_reached(&state) {
                    return Ok(());
                }
                if !matches!(state.life, LogLife::Here(_)) {
                    return Err(SessionError::Away(TAKEN.to_owned()));
                }
            }
            // Cannot fail: `self` owns the sender.
            drop(changed.changed().await);
        }
    }

    /// Waits until there is room for more events; callers await it before they read the agent's
    /// next line.
    pub(crate) async fn room(&self) {
        loop {
            let made = self.shared.room.notified();
            tokio::pin!(made);
            // From here on no notification is missed.
            made.as_mut().enable();
            if self.has_room() {
                return;
            }
            made.await;
        }
    }

    fn has_room(&self) -> bool {
        let state = self.state.lock();
        !matches!(state.life, LogLife::Here(_))
            || (state.waiting < LOG_WAITING_MAX
                && self.shared.waiting.load(Ordering::Acquire) < WAITING_MAX)
    }

    /// Subscribes to the events after `after`, starting with those in the store.
    pub(crate) fn subscribe(self: &Arc<SessionLog>, after: u64) -> SessionSubscription {
        SessionSubscription::new(Arc::clone(self), self.changed.subscribe(), after)
    }

    /// Ends turns that a crashed server left open: appends an `error` and a `done` to each.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn end_open_turns(&self, message: &str) -> Result<Vec<String>, SessionError> {
        let open = self.shared.store.open_turns(&self.session).await?;
        for turn in &open {
            self.push(SessionEventKind::Error, Some(turn), json!({ "error": message }));
            self.push(SessionEventKind::Done, Some(turn), json!({}));
        }
        Ok(open)
    }

    /// Stops appending because the session goes to rest: after [`SessionLog::settle`], before its
    /// row is released. Subscriptions stay open.
    pub(crate) fn leave(&self) {
        self.stop(LogLife::Elsewhere);
    }

    /// Stops appending for good. Subscribers receive the remaining events and then the end of the
    /// stream.
    pub(crate) fn close(&self) {
        self.stop(LogLife::Over);
    }

    fn stop(&self, life: LogLife) {
        {
            let mut state = self.state.lock();
            if state.life != LogLife::Over {
                state.life = life;
            }
            state.drop_pending(&self.shared);
        }
        self.shared.room.notify_waiters();
        self.tell();
    }

    /// Returns the next events for a subscriber that has seen everything up to `after`; a number
    /// that does not exist yet is lowered to the latest one.
    pub(super) fn next(&self, after: &mut u64) -> NextEvent {
        let state = self.state.lock();
        match state.life {
            LogLife::Here(_) => {}
            LogLife::Elsewhere => return NextEvent::Stored { up_to: None, is_over: false },
            LogLife::Over => return NextEvent::Stored { up_to: None, is_over: true },
        }
        *after = state.next.saturating_sub(1).min(*after);
        if *after < state.evicted {
            return NextEvent::Stored { up_to: Some(state.evicted), is_over: false };
        }
        let visible = state.visible();
        let from = state.ring.partition_point(|entry| entry.event.seq <= *after);
        let told = state.ring.range(from..).take(TAKE_MAX);
        let told = told.take_while(|entry| entry.event.seq <= visible);
        NextEvent::Live(told.map(|entry| Arc::clone(&entry.event)).collect())
    }

    pub(super) fn shared(&self) -> &EventWriterShared {
        &self.shared
    }

    /// Adds work for the writer.
    fn ask(&self, state: &mut SessionLogState, bytes: usize, is_urgent: bool) {
        if bytes > 0 {
            state.asked += 1;
            state.pending_bytes += bytes;
            state.waiting += bytes;
            self.shared.waiting.fetch_add(bytes, Ordering::AcqRel);
        }
        let is_new = !std::mem::replace(&mut state.is_queued, true);
        self.shared.queue(if is_new { self.itself.upgrade() } else { None }, is_urgent);
    }

    /// Requests a higher ceiling once half of the numbers are used, so that appends do not wait for
    /// it. The block is as large as the count used so far, which keeps writes few and gaps small.
    fn ask_ceiling(&self, state: &mut SessionLogState) {
        let block = state.next.saturating_sub(state.begun).clamp(SEQ_BLOCK, SEQ_BLOCK_MAX);
        if state.next + block / 2 > state.ceiling_asked {
            state.ceiling_asked = state.next + block;
            state.pending.ceiling = state.ceiling_asked;
            let is_urgent = state.next > state.ceiling;
            self.ask(state, EVENT_BYTES, is_urgent);
        }
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Takes the pending part, if there is one.
    pub(super) fn take(&self) -> Option<PendingWrite> {
        let mut state = self.state.lock();
        state.is_queued = false;
        let LogLife::Here(epoch) = state.life else { return None };
        if state.pending_bytes == 0 {
            return None;
        }
        let mut part = std::mem::take(&mut state.pending);
        part.session.clone_from(&self.session);
        part.epoch = epoch;
        let bytes = std::mem::take(&mut state.pending_bytes);
        Some(PendingWrite { part, bytes, up_to: state.next.saturating_sub(1), asked: state.asked })
    }

    /// Records that a part is in the store.
    pub(super) fn written(&self, taken: &PendingWrite, part: &SessionBatch) {
        {
            let mut state = self.state.lock();
            state.waiting = state.waiting.saturating_sub(taken.bytes);
            if state.life != LogLife::Here(part.epoch) {
                return;
            }
            state.written = state.written.max(taken.asked);
            // Events appended since then that need no write are covered by this transaction.
            let is_all = state.pending.events.is_empty() && state.pending.messages.is_empty();
            let up_to = if is_all { state.next.saturating_sub(1) } else { taken.up_to };
            state.durable = state.durable.max(up_to);
            state.ceiling = state.ceiling.max(part.ceiling);
            while state.held.front().is_some_and(|seq| *seq <= state.durable) {
                state.held.pop_front();
            }
            state.trim();
        }
        self.tell();
    }

    /// Records that a part was discarded because this server does not own the session any more.
    pub(super) fn lost(&self, taken: &PendingWrite, part: &SessionBatch) {
        {
            let mut state = self.state.lock();
            state.waiting = state.waiting.saturating_sub(taken.bytes);
            if state.life != LogLife::Here(part.epoch) {
                return;
            }
            state.life = LogLife::Elsewhere;
            state.drop_pending(&self.shared);
        }
        self.tell();
    }
}

/// Next events for a subscriber.
pub(super) enum NextEvent {
    /// Events from the ring; empty if there is none yet.
    Live(Vec<Arc<SessionEvent>>),
    /// Read from the store, up to this number or to the end.
    Stored {
        /// Last number to read from the store.
        up_to: Option<u64>,
        /// True if no event can follow those.
        is_over: bool,
    },
}

const TAKEN: &str = "the session is not on this server any more";

impl SessionLogState {
    /// Counts bytes to store.
    fn add_history(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.history_bytes = self.history_bytes.saturating_add(bytes);
        self.pending.history_bytes = self.history_bytes;
    }

    /// Assigns the next number, if this server may append.
    fn number(&mut self) -> Option<u64> {
        let LogLife::Here(_) = self.life else { return None };
        let seq = self.next;
        self.next += 1;
        Some(seq)
    }

    /// Returns the highest number that subscribers may see.
    fn visible(&self) -> u64 {
        let told = self.ceiling.min(self.next.saturating_sub(1));
        self.held.front().map_or(told, |held| told.min(held.saturating_sub(1)))
    }

    /// Evicts the oldest events from the ring, except stored kinds that are not durable yet.
    fn trim(&mut self) {
        while self.ring_bytes > RING_BYTES_MAX
            && let Some(oldest) = self.ring.front()
            && (!oldest.is_kept || oldest.event.seq <= self.durable)
        {
            self.ring_bytes -= oldest.bytes;
            self.evicted = oldest.event.seq;
            self.ring.pop_front();
        }
    }

    fn drop_pending(&mut self, shared: &EventWriterShared) {
        let bytes = std::mem::take(&mut self.pending_bytes);
        self.waiting = self.waiting.saturating_sub(bytes);
        shared.waiting.fetch_sub(bytes, Ordering::AcqRel);
        self.pending = SessionBatch::default();
        self.ring.clear();
        self.ring_bytes = 0;
        self.held.clear();
    }
}

/// Returns the length of a value as JSON, in bytes.
fn length(value: &Value) -> usize {
    struct EventCounter(usize);
    impl io::Write for EventCounter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = EventCounter(0);
    // Cannot fail: JSON object keys are strings, and the counter accepts every write.
    match serde_json::to_writer(&mut counter, value) {
        Ok(()) | Err(_) => counter.0,
    }
}
