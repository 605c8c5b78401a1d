//! Terminals of a session's sandbox, independent of their clients.
//!
//! One task owns a program's terminal and reads it into a [`ReplayRing`]; a [`TerminalAttachment`]
//! is the one client that reads from the ring. While a client is attached, the task reads only as
//! much as fits beside the output that the client has not taken, so a slow client slows the
//! program; a client that acknowledges output limits how much may be in flight. Without a client
//! the task keeps reading, and the oldest bytes are dropped. A terminal ends with its program, its
//! sandbox, or the credential that opened it, by request, and after its time limit without a
//! client.

pub(crate) mod ring;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{SessionExecEvent, SessionTerminalState, SessionTerminalView};
use bytes::Bytes;
use node::clock::{self, rfc3339_of_ms};
use node::drain::DrainHandle;
use node::http::{CredentialBinding, Share};
use node::task::Boxed;
use parking_lot::Mutex;
use sandbox::{ProcessEnd, ProcessHandle, ProcessTerminal};
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;
use tokio::time;

use self::ring::ReplayRing;
use crate::error::SessionError;
use crate::program_end::exec_result;
use crate::traces::CommandTrace;

/// Bytes of output that can be replayed to a client.
pub(crate) const REPLAY_BYTES: usize = 256 << 10;
/// Bytes of output buffered between a program and its client, for terminals that end with the
/// client.
const WINDOW_BYTES: usize = 64 << 10;
/// Longest time that a terminal may be without a client.
pub(crate) const DETACH_S_MAX: u32 = 60 * 60;
/// Maximum number of terminals of one sandbox that outlive their clients.
const KEPT_MAX: usize = 8;
/// Maximum number of terminals in all sandboxes that outlive their clients: 64 MiB of output.
/// Tenants have shares.
pub(crate) const KEPT_IN_ALL_MAX: usize = 256;
/// Minimum room before a terminal is read again, so that a flood of output is not split into tiny
/// reads.
const ROOM_BYTES_MIN: usize = 4 << 10;
/// Allowed range of unacknowledged bytes, for clients that acknowledge output.
pub(crate) const ACKNOWLEDGED_WINDOW: RangeInclusive<u32> = 4 << 10..=256 << 10;
/// Bytes per read from a terminal, and per message to a client.
const CHUNK_BYTES: usize = 32 << 10;
/// Silence after which the output of an ended program is abandoned if a descendant keeps its
/// terminal open.
const OUTPUT_GRACE: Duration = Duration::from_millis(100);
/// Error of a program whose sandbox ended before it.
const SANDBOX_GONE: &str = "the sandbox ended";

/// Terminals of one sandbox that outlive their clients, oldest first.
#[derive(Debug, Default)]
pub(crate) struct SandboxTerminals {
    all: Mutex<Vec<Arc<SandboxTerminal>>>,
    /// True while all terminals end, including those that end with their clients.
    hung_up: watch::Sender<bool>,
}

impl SandboxTerminals {
    /// Returns all terminals.
    pub(crate) fn list(&self) -> Vec<SessionTerminalView> {
        self.all.lock().iter().map(|terminal| terminal.view()).collect()
    }

    /// Returns a terminal by its id.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<SandboxTerminal>> {
        self.all.lock().iter().find(|terminal| terminal.id == id).cloned()
    }

    fn add(&self, terminal: &Arc<SandboxTerminal>) -> Result<(), SessionError> {
        let mut all = self.all.lock();
        if all.len() >= KEPT_MAX {
            return Err(too_many_kept());
        }
        all.push(Arc::clone(terminal));
        Ok(())
    }

    /// Checks that another terminal may be opened.
    ///
    /// # Errors
    /// If the limit is reached.
    pub(crate) fn check_room(&self) -> Result<(), SessionError> {
        match self.all.lock().len() >= KEPT_MAX {
            true => Err(too_many_kept()),
            false => Ok(()),
        }
    }

    /// Ends a terminal.
    pub(crate) fn end(&self, terminal: &Arc<SandboxTerminal>) {
        self.forget(terminal);
        terminal.close(TerminalClosing::Deleted);
    }

    /// Ends all current and future terminals, or stops doing so.
    pub(crate) fn hang_up(&self, hangs_up: bool) {
        self.hung_up.send_if_modified(|now| std::mem::replace(now, hangs_up) != hangs_up);
    }

    async fn hung_up(&self) {
        let mut hung_up = self.hung_up.subscribe();
        // Cannot fail: `self` owns the sender.
        drop(hung_up.wait_for(|is_so| *is_so).await);
    }

    fn forget(&self, terminal: &Arc<SandboxTerminal>) {
        self.all.lock().retain(|it| !Arc::ptr_eq(it, terminal));
    }
}

fn too_many_kept() -> SessionError {
    let message = format!("the session has {KEPT_MAX} terminals that can be detached; end one");
    SessionError::TooMany(message)
}

/// Parts of a terminal whose program has just been started.
pub(crate) struct NewTerminal {
    pub(crate) id: String,
    pub(crate) program: TerminalProgram,
    /// Time that it may be without a client; zero for a terminal that ends with its client.
    pub(crate) detach: Duration,
    /// Place among the terminals that outlive their clients, if it is one of them.
    pub(crate) place: Option<Share>,
    /// Window of its first client, see [`SandboxTerminal::attach`].
    pub(crate) window: Option<u32>,
}

/// Program that was started with a terminal.
pub(crate) struct TerminalProgram {
    pub(crate) argv: Vec<String>,
    pub(crate) input: TerminalInput,
    /// Span that ends with the program.
    pub(crate) trace: CommandTrace,
}

/// Conditions that end a terminal regardless of its client.
pub(crate) struct TerminalTies {
    /// Credential that it was opened with.
    pub(crate) binding: CredentialBinding,
    /// Shutdown of the server.
    pub(crate) drain: DrainHandle,
}

/// A program with a terminal.
#[derive(Debug)]
pub(crate) struct SandboxTerminal {
    id: String,
    pid: u32,
    argv: Vec<String>,
    detach: Duration,
    created_ms: u64,
    /// Guards the mutable state. Never held over an await.
    state: Mutex<TerminalState>,
    /// Notifies the client of output, the end, and a takeover by another client.
    news: watch::Sender<()>,
    /// Notifies the task of clients that attach, detach and take output.
    attention: watch::Sender<()>,
    /// Taken when the terminal hangs up.
    program: Mutex<Option<TerminalInput>>,
    _place: Option<Share>,
}

/// Server side of a program's terminal, for input and signals.
#[derive(Clone, Debug)]
pub(crate) struct TerminalInput {
    pub(crate) terminal: ProcessTerminal,
    pub(crate) handle: ProcessHandle,
}

#[derive(Debug)]
struct TerminalState {
    ring: ReplayRing,
    /// The attached client.
    client: Option<AttachedClient>,
    /// Number of clients attached so far.
    clients: u64,
    /// Time at which the last client left.
    detached_at: Instant,
    detached_ms: u64,
    /// Last event, once the program has ended.
    end: Option<SessionExecEvent>,
    closing: Option<TerminalClosing>,
}

#[derive(Clone, Copy, Debug)]
struct AttachedClient {
    number: u64,
    /// Position of the first byte sent to it.
    first: u64,
    /// Position of the first byte not sent to it.
    sent: u64,
    /// Position of the first byte that it has not taken: not acknowledged, or not sent if it
    /// acknowledges nothing.
    taken: u64,
    /// Bytes that it may leave untaken, if it acknowledges output.
    window: Option<usize>,
}

/// Delivers a client's acknowledgements to its terminal.
#[derive(Clone, Debug)]
pub(crate) struct OutputAcknowledger {
    terminal: Arc<SandboxTerminal>,
    number: u64,
}

/// Reason for which a terminal ends before its program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TerminalClosing {
    /// By request, or with the credential that opened it.
    Deleted,
    /// The server shuts down.
    Away,
    /// The server drains, and the drain time for terminals is over.
    Draining,
}

/// Event of a terminal for its client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TerminalNews {
    /// Output after the bytes that it has taken.
    Output(Bytes),
    /// End of the program, after all output.
    Ended(SessionExecEvent),
    /// Another client has taken over.
    TakenOver,
    /// End of the terminal.
    Closed(TerminalClosing),
}

/// The client of a terminal. Dropping this detaches it.
#[derive(Debug)]
pub(crate) struct TerminalAttachment {
    terminal: Arc<SandboxTerminal>,
    number: u64,
    first: SessionExecEvent,
    news: watch::Receiver<()>,
}

/// Use of a sandbox while one of its terminals is served.
pub(crate) struct TerminalHold {
    /// Keeps the sandbox at work. Dropped when the program ends, or the terminal is closed or
    /// abandoned.
    pub(crate) keeps: Box<dyn Send>,
    /// Resolves when the sandbox has ended.
    pub(crate) ended: Boxed<'static, String>,
}

/// Opens a terminal for a started program, with its first client.
///
/// # Errors
/// If the sandbox has too many terminals that outlive their clients.
pub(crate) fn open(
    hold: TerminalHold,
    terminals: Arc<SandboxTerminals>,
    new: NewTerminal,
    ties: TerminalTies,
) -> Result<TerminalAttachment, SessionError> {
    let is_kept = !new.detach.is_zero();
    let capacity = if is_kept { REPLAY_BYTES } else { WINDOW_BYTES };
    let TerminalProgram { argv, input: program, trace } = new.program;
    let terminal = Arc::new(SandboxTerminal {
        id: new.id,
        pid: program.handle.pid(),
        argv,
        detach: new.detach,
        created_ms: clock::wall_ms(),
        state: Mutex::new(TerminalState {
            ring: ReplayRing::new(capacity),
            client: None,
            clients: 0,
            detached_at: clock::now(),
            detached_ms: clock::wall_ms(),
            end: None,
            closing: None,
        }),
        news: watch::Sender::new(()),
        attention: watch::Sender::new(()),
        program: Mutex::new(Some(program.clone())),
        _place: new.place,
    });
    if is_kept {
        terminals.add(&terminal)?;
    }
    let attachment = terminal.attach_first(new.window);
    let serving = Arc::clone(&terminal);
    node::task::spawn(async move {
        serving.serve(hold, program, trace, ties, &terminals).await;
        terminals.forget(&terminal);
    });
    Ok(attachment)
}

impl SandboxTerminal {
    /// Returns its public description.
    fn view(&self) -> SessionTerminalView {
        let state = self.state.lock();
        let expires_ms = state.detached_ms.saturating_add(milliseconds(self.detach));
        SessionTerminalView {
            id: self.id.clone(),
            pid: self.pid,
            argv: self.argv.clone(),
            state: match (&state.end, state.client) {
                (Some(_), _) => SessionTerminalState::Ended,
                (None, Some(_)) => SessionTerminalState::Attached,
                (None, None) => SessionTerminalState::Detached,
            },
            detach_s: u32::try_from(self.detach.as_secs()).unwrap_or(u32::MAX),
            created_at: rfc3339_of_ms(self.created_ms),
            expires_at: state.client.is_none().then(|| rfc3339_of_ms(expires_ms)),
            output_bytes: state.ring.end(),
            kept_bytes: state.ring.end() - state.ring.start(),
        }
    }

    fn attach_first(self: &Arc<Self>, window: Option<u32>) -> TerminalAttachment {
        let terminal = (!self.detach.is_zero()).then(|| self.id.clone());
        let first = SessionExecEvent::Started { pid: self.pid, terminal };
        self.attached(&mut self.state.lock(), 0, window, first)
    }

    /// Attaches a client, replacing the attached one. Its output begins at byte `from`, or with the
    /// oldest byte in the ring. With a window, the program waits while that many bytes are
    /// unacknowledged, which bounds the output in flight and in the client's own queues.
    ///
    /// # Errors
    /// If the program has not written that much, or the terminal has ended.
    pub(crate) fn attach(
        self: &Arc<Self>,
        from: Option<u64>,
        window: Option<u32>,
    ) -> Result<TerminalAttachment, SessionError> {
        let mut state = self.state.lock();
        if state.closing.is_some() {
            return Err(SessionError::NotFound("terminal"));
        }
        let (start, to) = (state.ring.start(), state.ring.end());
        if from.is_some_and(|from| from > to) {
            let message = format!("is beyond the output, of which there are {to} bytes");
            return Err(SessionError::invalid("from", message));
        }
        let from = from.unwrap_or(start).max(start);
        let terminal = self.id.clone();
        let first = SessionExecEvent::Attached { pid: self.pid, terminal, from, to };
        Ok(self.attached(&mut state, from, window, first))
    }

    fn attached(
        self: &Arc<Self>,
        state: &mut TerminalState,
        taken: u64,
        window: Option<u32>,
        first: SessionExecEvent,
    ) -> TerminalAttachment {
        state.clients += 1;
        let number = state.clients;
        let window = window.and_then(|bytes| usize::try_from(bytes).ok());
        state.client = Some(AttachedClient { number, first: taken, sent: taken, taken, window });
        let news = self.news.subscribe();
        self.news.send_replace(());
        self.attention.send_replace(());
        TerminalAttachment { terminal: Arc::clone(self), number, first, news }
    }

    fn close(&self, closing: TerminalClosing) {
        self.state.lock().closing.get_or_insert(closing);
        self.attention.send_replace(());
        self.news.send_replace(());
    }

    /// Serves the program until the terminal is no longer needed.
    async fn serve(
        self: Arc<Self>,
        hold: TerminalHold,
        program: TerminalInput,
        trace: CommandTrace,
        ties: TerminalTies,
        terminals: &SandboxTerminals,
    ) {
        let TerminalTies { binding, drain } = ties;
        let TerminalHold { keeps, ended: sandbox_ended } = hold;
        let life = async {
            let outcome = tokio::select! {
                end = self.follow(program) => Some(end),
                () = self.abandoned() => None,
            };
            // Hangs the terminal up, and releases the sandbox.
            self.program.lock().take();
            drop(keeps);
            match &outcome {
                Some(SessionExecEvent::Ended(result)) => trace.end(result),
                _ => drop(trace),
            }
            if let Some(end) = outcome {
                self.state.lock().end = Some(end);
                self.news.send_replace(());
                self.abandoned().await;
            }
        };
        let closing = tokio::select! {
            () = life => TerminalClosing::Deleted,
            () = binding.revoked() => TerminalClosing::Deleted,
            () = drain.cancelled() => TerminalClosing::Away,
            () = terminals.hung_up() => TerminalClosing::Draining,
            _ = sandbox_ended => {
                let error = SANDBOX_GONE.to_owned();
                self.state.lock().end.get_or_insert(SessionExecEvent::Error { error });
                TerminalClosing::Deleted
            }
        };
        self.program.lock().take();
        self.close(closing);
    }

    /// Reads the program's output up to its end; returns how the program ended.
    async fn follow(&self, program: TerminalInput) -> SessionExecEvent {
        let TerminalInput { mut terminal, mut handle } = program;
        let mut attention = self.attention.subscribe();
        let mut buf = vec![0; CHUNK_BYTES];
        // Bytes that were read but do not fit in the ring yet: they would drop bytes from which a
        // client that attached meanwhile begins.
        let mut held = 0;
        let mut is_open = true;
        let mut end: Option<ProcessEnd> = None;
        // Restarts with every piece of output, and while the program waits for the client.
        let mut grace = Box::pin(time::sleep(OUTPUT_GRACE));
        loop {
            if let Some(end) = end.as_ref().filter(|_| !is_open) {
                return SessionExecEvent::Ended(exec_result(end, false));
            }
            attention.borrow_and_update();
            let room = {
                let mut state = self.state.lock();
                if held > 0 && state.fits(held) {
                    state.ring.push(buf.get(..held).unwrap_or_default());
                    held = 0;
                    self.news.send_replace(());
                }
                if held == 0 { state.room() } else { 0 }
            };
            let has_room = room > 0;
            let space = buf.get_mut(..room.min(CHUNK_BYTES)).unwrap_or_default();
            tokio::select! {
                // Output takes precedence over the end.
                biased;
                read = terminal.read(space), if is_open && has_room => {
                    let count = read.unwrap_or(0);
                    if count == 0 {
                        is_open = false;
                        continue;
                    }
                    grace.as_mut().reset(time::Instant::now() + OUTPUT_GRACE);
                    held = count;
                }
                ended = handle.wait(), if end.is_none() => match ended {
                    Ok(ended) => {
                        grace.as_mut().reset(time::Instant::now() + OUTPUT_GRACE);
                        end = Some(ended);
                    }
                    Err(_) => return SessionExecEvent::Error { error: SANDBOX_GONE.to_owned() },
                },
                () = &mut grace, if end.is_some() && is_open && has_room => is_open = false,
                _ = attention.changed(), if !has_room => {
                    grace.as_mut().reset(time::Instant::now() + OUTPUT_GRACE);
                }
            }
        }
    }

    /// Returns once the terminal was closed, or without a client for its time limit.
    async fn abandoned(&self) {
        let mut attention = self.attention.subscribe();
        loop {
            attention.borrow_and_update();
            let deadline = {
                let state = self.state.lock();
                if state.closing.is_some() {
                    return;
                }
                state.client.is_none().then(|| state.detached_at + self.detach)
            };
            let expiry = async {
                match deadline {
                    Some(deadline) => time::sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = attention.changed() => {}
                () = expiry => return,
            }
        }
    }
}

impl TerminalState {
    /// Returns whether `count` more bytes would drop no byte that the client has not taken.
    fn fits(&self, count: usize) -> bool {
        let Some(client) = self.client else { return true };
        let left = self.ring.end() - client.taken.min(self.ring.end());
        self.ring.room_beside(left) >= count
    }

    /// Returns how many bytes may be read now: within the client's window, and without dropping
    /// bytes that it has not taken.
    fn room(&self) -> usize {
        let Some(client) = self.client else { return CHUNK_BYTES };
        let left = self.ring.end() - client.taken.min(self.ring.end());
        if self.ring.room_beside(left) < CHUNK_BYTES {
            return 0;
        }
        let Some(window) = client.window else { return CHUNK_BYTES };
        let room = window.saturating_sub(usize::try_from(left).unwrap_or(usize::MAX));
        if left == 0 || room >= ROOM_BYTES_MIN { room } else { 0 }
    }
}

impl TerminalAttachment {
    /// Returns the event with which a client is greeted.
    pub(crate) fn first(&self) -> &SessionExecEvent {
        &self.first
    }

    /// Returns the program's input; none if it has ended.
    pub(crate) fn input(&self) -> Option<TerminalInput> {
        self.terminal.program.lock().clone()
    }

    /// Returns the acknowledger of this client's output.
    pub(crate) fn acknowledger(&self) -> OutputAcknowledger {
        OutputAcknowledger { terminal: Arc::clone(&self.terminal), number: self.number }
    }

    /// Returns the next event; output is repeated until it is [sent](TerminalAttachment::sent).
    /// Cancel-safe.
    pub(crate) async fn next(&mut self) -> TerminalNews {
        loop {
            self.news.borrow_and_update();
            if let Some(news) = self.at_hand() {
                return news;
            }
            // Cannot fail: this attachment holds the terminal, which owns the sender.
            let _told = self.news.changed().await;
        }
    }

    fn at_hand(&self) -> Option<TerminalNews> {
        let state = self.terminal.state.lock();
        let Some(client) = state.client.filter(|client| client.number == self.number) else {
            return Some(TerminalNews::TakenOver);
        };
        let piece = state.ring.piece(client.sent, CHUNK_BYTES);
        if !piece.is_empty() {
            return Some(TerminalNews::Output(piece));
        }
        match (&state.end, state.closing) {
            (Some(end), _) => Some(TerminalNews::Ended(end.clone())),
            (None, Some(closing)) => Some(TerminalNews::Closed(closing)),
            (None, None) => None,
        }
    }

    /// Records that the client was sent `count` more bytes.
    pub(crate) fn sent(&self, count: usize) {
        let mut state = self.terminal.state.lock();
        if let Some(client) = state.client.as_mut().filter(|client| client.number == self.number) {
            client.sent += count as u64;
            if client.window.is_none() {
                client.taken = client.sent;
            }
        }
        drop(state);
        self.terminal.attention.send_replace(());
    }

    /// Closes the terminal once the client has received the program's end.
    pub(crate) fn finish(&self) {
        self.terminal.close(TerminalClosing::Deleted);
    }
}

impl OutputAcknowledger {
    /// Records that the client has shown `bytes` bytes since it was attached. Capped at the bytes
    /// sent; never decreases.
    pub(crate) fn acknowledge(&self, bytes: u64) {
        let mut state = self.terminal.state.lock();
        if let Some(client) = state.client.as_mut().filter(|client| client.number == self.number) {
            let shown = client.first.saturating_add(bytes).min(client.sent);
            client.taken = client.taken.max(shown);
        }
        drop(state);
        self.terminal.attention.send_replace(());
    }
}

impl Drop for TerminalAttachment {
    fn drop(&mut self) {
        let mut state = self.terminal.state.lock();
        if state.client.is_some_and(|client| client.number == self.number) {
            state.client = None;
            state.detached_at = clock::now();
            state.detached_ms = clock::wall_ms();
        }
        drop(state);
        self.terminal.attention.send_replace(());
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
