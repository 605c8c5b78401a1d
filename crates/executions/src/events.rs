//! The events of one execution, in memory: written once, read by any number of listeners.
//!
//! An [`ExecutionLog`] keeps the latest [`KEPT_BYTES_MAX`] of chunks. A slower reader receives a
//! [`EventKind::Gap`]. The log waits for no listener except the one that the execution is attached
//! to: while it is [`AHEAD_BYTES_MAX`] behind, the program's output is not read, so that the
//! program blocks in its `write` and memory stays bounded.
//!
//! Sequence numbers count from 1 in the first attempt and from `attempt - 1` times 2^32 in a later
//! one, so that they grow across a restart of the server, which loses the log of the previous
//! attempt.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use api::{EventBytes, EventKind, ExecutionEvent, ExecutionMode, StageName, StageOutcome};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use parking_lot::Mutex;
use sandbox::ChunkStream;
use tokio::sync::watch;

use crate::service::ProgressObserver;
use crate::verdict::is_costly;

/// Maximum bytes of events in one log.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// Size of an event in addition to its bytes.
const EVENT_BYTES: usize = 128;
/// Maximum bytes that an execution may be ahead of its attached listener.
const AHEAD_BYTES_MAX: usize = 256 << 10;
/// Maximum number of events that a listener takes at a time.
const BATCH_MAX: usize = 64;
/// Maximum bytes of such a batch, not counting its last event: a stalled listener holds them when
/// the log no longer does.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// Number of sequence numbers of one attempt.
const ATTEMPT_SPAN: u64 = 1 << 32;

/// Returns the number before the first one of an attempt.
pub(crate) fn base(attempt: u32) -> u64 {
    u64::from(attempt.saturating_sub(1)) * ATTEMPT_SPAN
}

/// Returns the last possible number of an attempt, for an end without a number.
pub(crate) fn last(attempt: u32) -> u64 {
    base(attempt) + ATTEMPT_SPAN - 1
}

/// Events of one execution.
#[derive(Debug)]
pub(crate) struct ExecutionLog {
    state: Mutex<ExecutionLogState>,
    /// The latest sequence number, which listeners wait for.
    latest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct ExecutionLogState {
    events: VecDeque<Arc<ExecutionEvent>>,
    bytes: usize,
    next: u64,
    /// Total bytes of all events ever written.
    written: u64,
    /// Bytes that the attached listener has taken; `None` without one.
    taken: Option<u64>,
    /// Waker of the task that waits for the attached listener to catch up.
    blocked: Option<Waker>,
    closed: bool,
}

impl ExecutionLog {
    pub(crate) fn new(attempt: u32) -> ExecutionLog {
        let next = base(attempt) + 1;
        ExecutionLog {
            state: Mutex::new(ExecutionLogState { next, ..ExecutionLogState::default() }),
            latest: watch::Sender::new(next - 1),
        }
    }

    /// Continues with the numbers of a later attempt.
    pub(crate) fn begin_attempt(&self, attempt: u32) {
        let mut state = self.state.lock();
        state.next = state.next.max(base(attempt) + 1);
    }

    /// Returns the number of the next event.
    pub(crate) fn next_seq(&self) -> u64 {
        self.state.lock().next
    }

    /// Appends an event; has no effect after the last one.
    pub(crate) fn push(&self, kind: EventKind) {
        let seq = {
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            state.closed = kind.is_last();
            let seq = state.next;
            state.next += 1;
            let weight = weight(&kind);
            state.bytes += weight;
            state.written += weight as u64;
            state.events.push_back(Arc::new(ExecutionEvent { seq, kind }));
            while state.bytes > KEPT_BYTES_MAX && state.events.len() > 1 {
                let Some(oldest) = state.events.pop_front() else { break };
                state.bytes -= weight_of(&oldest);
            }
            seq
        };
        self.latest.send_replace(seq);
    }

    /// Returns the bytes of the kept events, without the result in the last one.
    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Ends the log without a last event: listeners must query the queue for it.
    pub(crate) fn abandon(&self) {
        self.state.lock().closed = true;
        self.latest.send_modify(|_| {});
    }

    /// Listens to the events after `after`.
    pub(crate) fn listen(self: &Arc<ExecutionLog>, after: u64) -> LogListener {
        LogListener {
            log: Arc::clone(self),
            next: after.saturating_add(1),
            latest: self.latest.subscribe(),
        }
    }

    /// Returns whether the attached listener has kept up; otherwise wakes the task when it has.
    fn poll_ready(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        let behind = state.taken.map_or(0, |taken| state.written.saturating_sub(taken));
        if behind <= AHEAD_BYTES_MAX as u64 {
            return Poll::Ready(());
        }
        state.blocked = Some(context.waker().clone());
        Poll::Pending
    }

    /// Makes this execution wait, from now on, for a listener that has seen the events up to
    /// `after` and calls [`ExecutionLog::acknowledge`].
    pub(crate) fn attach(&self, after: u64) {
        let mut state = self.state.lock();
        let unseen = state.events.iter().filter(|event| event.seq > after);
        let unseen: u64 = unseen.map(|event| weight_of(event) as u64).sum();
        state.taken = Some(state.written.saturating_sub(unseen));
    }

    /// Detaches the listener: the execution waits for no listener any more.
    pub(crate) fn detach(&self) {
        let woken = {
            let mut state = self.state.lock();
            state.taken = None;
            state.blocked.take()
        };
        woken.into_iter().for_each(Waker::wake);
    }

    /// Acknowledges events that the attached listener has passed on.
    pub(crate) fn acknowledge(&self, events: &[Arc<ExecutionEvent>]) {
        let woken = {
            let mut state = self.state.lock();
            let written = state.written;
            let Some(taken) = &mut state.taken else { return };
            *taken += events.iter().map(|event| weight_of(event) as u64).sum::<u64>();
            let behind = written.saturating_sub(*taken);
            if behind <= AHEAD_BYTES_MAX as u64 { state.blocked.take() } else { None }
        };
        woken.into_iter().for_each(Waker::wake);
    }
}

fn weight_of(event: &ExecutionEvent) -> usize {
    weight(&event.kind)
}

fn weight(kind: &EventKind) -> usize {
    let bytes = match kind {
        EventKind::Stdout(chunk) | EventKind::Stderr(chunk) => {
            chunk.data.as_ref().or(chunk.data_base64.as_ref()).map_or(0, String::len)
        }
        // The result is held elsewhere too; it ends the log and is never dropped because of its
        // size.
        _ => 0,
    };
    EVENT_BYTES + bytes
}

/// A reader of a log.
#[derive(Debug)]
pub(crate) struct LogListener {
    log: Arc<ExecutionLog>,
    next: u64,
    latest: watch::Receiver<u64>,
}

impl LogListener {
    /// Returns the next events; `None` after the last one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Vec<Arc<ExecutionEvent>>> {
        loop {
            // Marked as seen before the check, so that an event during it is not missed.
            self.latest.borrow_and_update();
            let (events, closed) = self.take();
            if !events.is_empty() {
                return Some(events);
            }
            // The log owns the sender, so the channel cannot be closed.
            if closed || self.latest.changed().await.is_err() {
                return None;
            }
        }
    }

    fn take(&mut self) -> (Vec<Arc<ExecutionEvent>>, bool) {
        let state = self.log.state.lock();
        let mut events = Vec::new();
        let position = state.events.partition_point(|event| event.seq < self.next);
        if let Some(first) = state.events.get(position) {
            events.extend(gap(self.next, first.seq).map(Arc::new));
        }
        let mut bytes = 0;
        let batch = state.events.range(position..).take(BATCH_MAX).take_while(|event| {
            let is_room = bytes <= BATCH_BYTES_MAX;
            bytes += weight_of(event);
            is_room
        });
        events.extend(batch.cloned());
        if let Some(last) = events.last() {
            self.next = last.seq + 1;
        }
        (events, state.closed)
    }
}

/// Returns an event for a gap if the events from `next` up to the one before `found` are not kept
/// any more. A jump to the first number of an attempt, or to [`last`], is not a gap.
pub(crate) fn gap(next: u64, found: u64) -> Option<ExecutionEvent> {
    let into_attempt = (found - 1) % ATTEMPT_SPAN;
    if found <= next || into_attempt == 0 || into_attempt == ATTEMPT_SPAN - 2 {
        return None;
    }
    let kind = EventKind::Gap { from: next.max(found - into_attempt), to: found - 1 };
    Some(ExecutionEvent { seq: found - 1, kind })
}

/// Encodes bytes for JSON.
pub(crate) fn chunk(bytes: &[u8]) -> EventBytes {
    match std::str::from_utf8(bytes) {
        Ok(text) if !is_costly(text) => {
            EventBytes { data: Some(text.to_owned()), data_base64: None }
        }
        Ok(_) | Err(_) => EventBytes { data: None, data_base64: Some(BASE64.encode(bytes)) },
    }
}

/// Records the progress of an execution as events.
#[derive(Debug)]
pub(crate) struct EventRecorder {
    log: Arc<ExecutionLog>,
    /// The incomplete character at the end of each stream.
    partial: [Vec<u8>; 2],
}

impl EventRecorder {
    pub(crate) fn new(log: Arc<ExecutionLog>) -> EventRecorder {
        EventRecorder { log, partial: [Vec::new(), Vec::new()] }
    }

    fn write(&self, stream: ChunkStream, bytes: &[u8]) {
        let chunk = chunk(bytes);
        self.log.push(match stream {
            ChunkStream::Stdout => EventKind::Stdout(chunk),
            ChunkStream::Stderr => EventKind::Stderr(chunk),
        });
    }

    /// Writes the incomplete characters that were held back.
    fn flush(&mut self) {
        for stream in [ChunkStream::Stdout, ChunkStream::Stderr] {
            let rest = std::mem::take(&mut self.partial[index(stream)]);
            if !rest.is_empty() {
                self.write(stream, &rest);
            }
        }
    }
}

fn index(stream: ChunkStream) -> usize {
    match stream {
        ChunkStream::Stdout => 0,
        ChunkStream::Stderr => 1,
    }
}

/// Returns the start of an incomplete character at the end of `bytes`, otherwise their length.
fn cut(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    }
}

impl ProgressObserver for EventRecorder {
    fn stage(&mut self, stage: StageName, test: Option<u32>) {
        self.flush();
        self.log.push(EventKind::Stage { stage, test });
    }

    fn chunk(&mut self, stream: ChunkStream, bytes: &[u8]) {
        let partial = &mut self.partial[index(stream)];
        if partial.is_empty() {
            let end = cut(bytes);
            partial.extend_from_slice(&bytes[end..]);
            if end > 0 {
                self.write(stream, &bytes[..end]);
            }
            return;
        }
        partial.extend_from_slice(bytes);
        let joined = std::mem::take(partial);
        let end = cut(&joined);
        self.partial[index(stream)].extend_from_slice(&joined[end..]);
        if end > 0 {
            self.write(stream, &joined[..end]);
        }
    }

    fn exit(
        &mut self,
        stage: StageName,
        test: Option<u32>,
        mode: ExecutionMode,
        outcome: &StageOutcome,
    ) {
        self.flush();
        self.log.push(EventKind::from((outcome, stage, test, mode)));
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.log.poll_ready(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(events: &[Arc<ExecutionEvent>]) -> Vec<String> {
        events
            .iter()
            .map(|event| match &event.kind {
                EventKind::Stdout(EventBytes { data: Some(text), .. }) => {
                    format!("{} {text}", event.seq)
                }
                EventKind::Stdout(EventBytes { data_base64: Some(text), .. }) => {
                    format!("{} ={text}", event.seq)
                }
                EventKind::Gap { from, to } => format!("gap {from}-{to}"),
                other => format!("{} {}", event.seq, other.name()),
            })
            .collect()
    }

    fn written(log: &Arc<ExecutionLog>, chunks: &[&[u8]]) -> Vec<String> {
        let mut recorder = EventRecorder::new(Arc::clone(log));
        for bytes in chunks {
            recorder.chunk(ChunkStream::Stdout, bytes);
        }
        recorder.flush();
        texts(&log.listen(0).take().0)
    }

    #[test]
    fn characters_stay_whole_and_bytes_intact() {
        for (chunks, expected) in [
            (&[&b"a"[..], b"b"][..], vec!["1 a", "2 b"]),
            (&["ä".as_bytes(), &"ä".as_bytes()[..1], &"ä".as_bytes()[1..]], vec!["1 ä", "2 ä"]),
            (
                &[&"x€".as_bytes()[..2], &"€".as_bytes()[1..2], &"€y".as_bytes()[2..]],
                vec!["1 x", "2 €y"],
            ),
            (&[b"\xff\xfe", b"a"], vec!["1 =//4=", "2 a"]),
            // A character that is never completed.
            (&[b"a\xe2\x82"], vec!["1 a", "2 =4oI="]),
        ] {
            assert_eq!(written(&Arc::new(ExecutionLog::new(1)), chunks), expected, "{chunks:?}");
        }
    }

    #[tokio::test]
    async fn listeners_see_everything_once_and_the_end() {
        let log = Arc::new(ExecutionLog::new(1));
        let mut early = log.listen(0);
        log.push(EventKind::Queued { position: None });
        log.push(EventKind::Started { attempt: 1 });
        assert_eq!(texts(&early.next().await.unwrap()), ["1 queued", "2 started"]);
        let state = api::ExecutionState::Cancelled;
        log.push(EventKind::Ended { state, message: None });
        log.push(EventKind::Queued { position: None });
        assert_eq!(texts(&early.next().await.unwrap()), ["3 ended"]);
        assert!(early.next().await.is_none());
        assert_eq!(texts(&log.listen(2).next().await.unwrap()), ["3 ended"]);
        assert!(log.listen(3).next().await.is_none());
    }

    #[tokio::test]
    async fn who_is_too_slow_is_told_what_is_missing() {
        let log = Arc::new(ExecutionLog::new(1));
        let mut slow = log.listen(0);
        let text = vec![b'x'; KEPT_BYTES_MAX / 4];
        written(&log, &[&text, &text, &text, &text, &text]);
        let events = slow.next().await.unwrap();
        assert_eq!(texts(&events)[0], "gap 1-2");
        assert_eq!(events[1].seq, 3);
        assert!(log.state.lock().bytes <= KEPT_BYTES_MAX);
    }

    #[tokio::test]
    async fn a_later_attempt_has_higher_numbers_and_no_gap() {
        let log = Arc::new(ExecutionLog::new(1));
        let mut listener = log.listen(0);
        log.push(EventKind::Started { attempt: 1 });
        log.begin_attempt(2);
        log.push(EventKind::Started { attempt: 2 });
        let first = ATTEMPT_SPAN + 1;
        assert_eq!(
            texts(&listener.next().await.unwrap()),
            ["1 started".to_owned(), format!("{first} started")]
        );
        // Another process has only the second attempt.
        let log = Arc::new(ExecutionLog::new(2));
        log.push(EventKind::Started { attempt: 2 });
        assert_eq!(texts(&log.listen(7).next().await.unwrap()), [format!("{first} started")]);
    }

    #[tokio::test]
    async fn only_an_attached_listener_holds_a_program_back() {
        let log = Arc::new(ExecutionLog::new(1));
        let mut recorder = EventRecorder::new(Arc::clone(&log));
        let text = vec![b'x'; AHEAD_BYTES_MAX];
        let ready = |recorder: &mut EventRecorder| {
            recorder.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        recorder.chunk(ChunkStream::Stdout, &text);
        recorder.chunk(ChunkStream::Stdout, &text);
        assert!(ready(&mut recorder), "nobody is attached");
        log.attach(2);
        let mut listener = log.listen(2);
        recorder.chunk(ChunkStream::Stdout, &text);
        assert!(!ready(&mut recorder));
        let events = listener.next().await.unwrap();
        log.acknowledge(&events);
        assert!(ready(&mut recorder));
        recorder.chunk(ChunkStream::Stdout, &text);
        assert!(!ready(&mut recorder));
        log.detach();
        assert!(ready(&mut recorder));
    }
}
