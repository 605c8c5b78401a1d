//! The WebSocket for a running program.
//!
//! The first message is the request. After it, the client sends input, the end of input and
//! signals, and receives stages, output and ends. When either side closes, the program is killed.
//! Buffers are bounded: a client that does not read stops the program's output, and a program that
//! does not read stops the client's input.
//!
//! # References
//! - <https://github.com/engineer-man/piston>

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use api::{ExecutionMode, StageName, StageOutcome, Verdict};
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use node::auth::TokenPrincipal;
use node::drain::DrainHandle;
use parking_lot::Mutex;
use sandbox::{ChunkStream, ProgramControl, StdinSource};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::request::{self, PistonJob};
use super::stage::StageEnd;
use super::{PistonContext, PistonFailure};
use crate::faces::excerpt;
use crate::service::{ProgramIo, ProgressObserver};
use crate::verdict::signal_number;

/// Timeout for the first message.
const INIT_MAX: Duration = Duration::from_secs(1);
/// Timeout for the client to read the last messages and to close its side.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Largest message: the first one holds a whole program. Each connection may make the server buffer
/// as much while the rest of a message arrives, so it is less than the maximum of a request.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Maximum output that waits for the client; beyond it, the program's output is not read.
const OUTBOX_BYTES_MAX: usize = 256 << 10;
/// Maximum input that waits for the program; beyond it, the client's messages are not read.
const INBOX_BYTES_MAX: usize = 1 << 20;
/// Size of a chunk of input in addition to its bytes: about its memory overhead.
const CHUNK_OVERHEAD: usize = 64;
/// Maximum number of chunks of input in transit to the program.
const STDIN_CHUNKS_MAX: usize = 16;
/// Maximum number of signals in transit to the program.
const SIGNALS_MAX: usize = 64;

/// Close code and reason of a connection.
type Close = (u16, &'static str);

const ALREADY_INITIALIZED: Close = (4000, "Already Initialized");
const INIT_TIMEOUT: Close = (4001, "Initialization Timeout");
const NOTIFIED_ERROR: Close = (4002, "Notified Error");
const NOT_INITIALIZED: Close = (4003, "Not yet initialized");
const ONLY_STDIN: Close = (4004, "Can only write to stdin");
const INVALID_SIGNAL: Close = (4005, "Invalid signal");
const COMPLETED: Close = (4999, "Job Completed");

pub(super) async fn connect(
    State(face): State<PistonContext>,
    who: TokenPrincipal,
    drain: DrainHandle,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    match upgrade {
        Err(rejection) => {
            PistonFailure::new(rejection.status(), rejection.body_text()).into_response()
        }
        Ok(upgrade) => upgrade
            .max_message_size(MESSAGE_BYTES_MAX)
            .max_frame_size(MESSAGE_BYTES_MAX)
            .on_upgrade(move |socket| serve(face, who, drain, socket)),
    }
}

/// Reason for the end of a connection.
#[derive(Debug, PartialEq, Eq)]
enum ConnectionStop {
    /// The other side has disconnected.
    Gone,
    /// Closes with this code.
    Close(Close),
    /// Closes with [`NOTIFIED_ERROR`], after a message with the reason.
    Error(String),
}

async fn serve(face: PistonContext, who: TokenPrincipal, drain: DrainHandle, socket: WebSocket) {
    let (mut sink, mut stream) = socket.split();
    let session = Box::pin(session(&face, &who, &mut sink, &mut stream));
    let stop = tokio::select! {
        stop = session => stop,
        () = drain.cancelled() => ConnectionStop::Error("the server is shutting down".to_owned()),
    };
    let (code, reason) = match stop {
        ConnectionStop::Gone => return,
        ConnectionStop::Close(close) => close,
        ConnectionStop::Error(message) => {
            let message = json!({ "type": "error", "message": message }).to_string();
            if !matches!(timeout(CLOSE_MAX, sink.send(message.into())).await, Ok(Ok(()))) {
                return;
            }
            NOTIFIED_ERROR
        }
    };
    let frame = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
    let close = async {
        if sink.send(frame).await.is_ok() {
            // Waits for the client's close; closing before it may lose the last messages.
            while let Some(Ok(_)) = stream.next().await {}
        }
    };
    // The time of a client that does not close is over.
    drop(timeout(CLOSE_MAX, close).await);
}

type Sink = SplitSink<WebSocket, Message>;
type Messages = SplitStream<WebSocket>;

async fn session(
    face: &PistonContext,
    who: &TokenPrincipal,
    sink: &mut Sink,
    stream: &mut Messages,
) -> ConnectionStop {
    let body = match timeout(INIT_MAX, init(stream)).await {
        Ok(Ok(body)) => body,
        Ok(Err(stop)) => return stop,
        Err(_) => return ConnectionStop::Close(INIT_TIMEOUT),
    };
    let languages = face.service.languages().await.languages;
    let mut job = match request::parse(&body, &languages, &face.config) {
        Ok(job) => job,
        Err(message) => return ConnectionStop::Error(message),
    };
    let outbox = PistonOutbox::default();
    outbox.push(&json!({
        "type": "runtime",
        "language": job.runtime.language,
        "version": job.runtime.version.to_string(),
    }));
    job.request.limits.output_bytes = Some(face.config.stream_max_size);
    // The standard input of the first message comes first, without an added line end.
    job.request.stdin = None;
    let first = body.get("stdin").and_then(Value::as_str).unwrap_or_default().to_owned();
    drop(body);

    let (stdin, stdin_end) = mpsc::channel(STDIN_CHUNKS_MAX);
    let (control, control_end) = mpsc::channel(SIGNALS_MAX);
    let io = ProgramIo { stdin: Some(StdinSource::Live(stdin_end)), control: Some(control_end) };
    let run = async {
        let stop = run(face, who, job, io, &outbox).await;
        outbox.close();
        Ok(stop)
    };
    let write = async {
        while let Some(message) = outbox.pop().await {
            sink.send(message.into()).await.map_err(|_| ConnectionStop::Gone)?;
        }
        Ok(())
    };
    let both = async { tokio::try_join!(run, write).map_or_else(|gone| gone, |(stop, ())| stop) };
    let mut inbox = PistonInbox::new(stdin, control, first);
    tokio::select! {
        stop = both => stop,
        // Leaving the select drops the run, which ends the program.
        stop = inbox.listen(stream) => stop,
    }
}

async fn run(
    face: &PistonContext,
    who: &TokenPrincipal,
    job: PistonJob,
    io: ProgramIo,
    outbox: &PistonOutbox,
) -> ConnectionStop {
    let mut live = PistonRecorder { outbox, text: [Utf8Stream::default(), Utf8Stream::default()] };
    let run = face.service.execute(&who.token_id, job.request, io, &mut live);
    match Box::pin(run).await {
        Err(crate::ExecutionError::Refused(refusal)) => {
            ConnectionStop::Error(request::refusal(&refusal))
        }
        Err(error) => ConnectionStop::Error(error.to_string()),
        Ok(execution) if execution.outcome.verdict == Verdict::Ie => ConnectionStop::Error(
            execution.outcome.message.unwrap_or_else(|| "internal error".to_owned()),
        ),
        Ok(_) => ConnectionStop::Close(COMPLETED),
    }
}

/// Message of a client.
#[derive(Debug, PartialEq)]
enum PistonMessage {
    Init(Value),
    Stdin(Vec<u8>),
    Eof,
    Signal(i32),
}

/// Parses one message; None for control messages (pings).
fn parse_message(message: Message) -> Result<Option<PistonMessage>, ConnectionStop> {
    let bytes = match message {
        Message::Text(text) => axum::body::Bytes::from(text),
        Message::Binary(bytes) => bytes,
        Message::Ping(_) | Message::Pong(_) => return Ok(None),
        Message::Close(_) => return Err(ConnectionStop::Gone),
    };
    let invalid = |error: serde_json::Error| {
        ConnectionStop::Error(format!("not a message: {}", node::http::plain_json_error(&error)))
    };
    let mut message: Value = serde_json::from_slice(&bytes).map_err(invalid)?;
    let text = |name: &str| message.get(name).and_then(Value::as_str);
    match text("type") {
        Some("init") => Ok(Some(PistonMessage::Init(message))),
        Some("eof") => Ok(Some(PistonMessage::Eof)),
        Some("signal") => {
            let number = text("signal").and_then(signal_number);
            number
                .map(|number| Some(PistonMessage::Signal(number)))
                .ok_or(ConnectionStop::Close(INVALID_SIGNAL))
        }
        Some("data") if text("stream") != Some("stdin") => Err(ConnectionStop::Close(ONLY_STDIN)),
        Some("data") => match message.get_mut("data").map(Value::take) {
            Some(Value::String(data)) => Ok(Some(PistonMessage::Stdin(data.into_bytes()))),
            _ => Err(ConnectionStop::Error("data is required as a string".to_owned())),
        },
        Some(other) => {
            Err(ConnectionStop::Error(format!("there is no message of type {:?}", excerpt(other))))
        }
        None => Err(ConnectionStop::Error("type is required as a string".to_owned())),
    }
}

/// Waits for the first message.
async fn init(stream: &mut Messages) -> Result<Value, ConnectionStop> {
    loop {
        let Some(Ok(message)) = stream.next().await else { return Err(ConnectionStop::Gone) };
        match parse_message(message) {
            Ok(Some(PistonMessage::Init(body))) => return Ok(body),
            Ok(Some(_)) | Err(ConnectionStop::Close(_)) => {
                return Err(ConnectionStop::Close(NOT_INITIALIZED));
            }
            Ok(None) => {}
            Err(stop) => return Err(stop),
        }
    }
}

/// Input from the client on its way to the program.
struct PistonInbox {
    /// None once the input has ended, from either side.
    stdin: Option<mpsc::Sender<Vec<u8>>>,
    control: mpsc::Sender<ProgramControl>,
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    ended: bool,
}

/// Returns the amount that a chunk counts against [`INBOX_BYTES_MAX`].
fn cost(bytes: &[u8]) -> usize {
    bytes.len().saturating_add(CHUNK_OVERHEAD)
}

impl PistonInbox {
    fn new(
        stdin: mpsc::Sender<Vec<u8>>,
        control: mpsc::Sender<ProgramControl>,
        first: String,
    ) -> PistonInbox {
        let mut inbox = PistonInbox {
            stdin: Some(stdin),
            control,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            ended: false,
        };
        inbox.keep(first.into_bytes());
        inbox
    }

    fn keep(&mut self, bytes: Vec<u8>) {
        if self.stdin.is_some() && !self.ended && !bytes.is_empty() {
            self.waiting_bytes = self.waiting_bytes.saturating_add(cost(&bytes));
            self.waiting.push_back(bytes);
        }
    }

    /// Passes input and signals on until a message of the client ends the connection.
    async fn listen(&mut self, stream: &mut Messages) -> ConnectionStop {
        loop {
            if self.ended && self.waiting.is_empty() {
                self.stdin = None;
            }
            let room = self.waiting_bytes < INBOX_BYTES_MAX;
            let sender = self.stdin.clone();
            let place = async {
                match sender {
                    Some(sender) => sender.reserve_owned().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                place = place, if !self.waiting.is_empty() => match place {
                    Ok(place) => {
                        let bytes = self.waiting.pop_front().unwrap_or_default();
                        self.waiting_bytes = self.waiting_bytes.saturating_sub(cost(&bytes));
                        drop(place.send(bytes));
                    }
                    // The program no longer reads.
                    Err(_) => {
                        self.stdin = None;
                        self.waiting.clear();
                        self.waiting_bytes = 0;
                    }
                },
                message = stream.next(), if room => {
                    let Some(Ok(message)) = message else { return ConnectionStop::Gone };
                    match parse_message(message) {
                        Ok(None) => {}
                        Ok(Some(PistonMessage::Init(_))) => {
                            return ConnectionStop::Close(ALREADY_INITIALIZED);
                        }
                        Ok(Some(PistonMessage::Stdin(bytes))) => self.keep(bytes),
                        Ok(Some(PistonMessage::Eof)) => self.ended = true,
                        // Signals do not queue up in a kernel either: if there are too many, the
                        // same ones are already in transit.
                        Ok(Some(PistonMessage::Signal(number))) => {
                            self.control.try_send(ProgramControl::Signal(number)).ok();
                        }
                        Err(stop) => return stop,
                    }
                }
            }
        }
    }
}

/// Messages on their way to the client.
#[derive(Debug, Default)]
struct PistonOutbox {
    state: Mutex<WaitingMessages>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct WaitingMessages {
    messages: VecDeque<String>,
    bytes: usize,
    closed: bool,
    /// Waker of the run that waits for room.
    waker: Option<Waker>,
}

impl PistonOutbox {
    fn push(&self, message: &Value) {
        let message = message.to_string();
        let mut waiting = self.state.lock();
        waiting.bytes = waiting.bytes.saturating_add(message.len());
        waiting.messages.push_back(message);
        drop(waiting);
        self.changed.notify_one();
    }

    /// Closes the outbox, after the last message.
    fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_one();
    }

    /// Returns the next message; None when it is closed and empty. For one task only.
    async fn pop(&self) -> Option<String> {
        loop {
            {
                let mut waiting = self.state.lock();
                if let Some(message) = waiting.messages.pop_front() {
                    waiting.bytes = waiting.bytes.saturating_sub(message.len());
                    let waker = waiting.waker.take();
                    drop(waiting);
                    waker.into_iter().for_each(Waker::wake);
                    return Some(message);
                }
                if waiting.closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    fn poll_room(&self, context: &Context<'_>) -> Poll<()> {
        let mut waiting = self.state.lock();
        if waiting.bytes < OUTBOX_BYTES_MAX {
            return Poll::Ready(());
        }
        waiting.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Writes progress into the outbox.
struct PistonRecorder<'a> {
    outbox: &'a PistonOutbox,
    /// Decoders of standard output and standard error.
    text: [Utf8Stream; 2],
}

impl PistonRecorder<'_> {
    fn data(&self, stream: ChunkStream, text: &str) {
        if !text.is_empty() {
            let stream = match stream {
                ChunkStream::Stdout => "stdout",
                ChunkStream::Stderr => "stderr",
            };
            self.outbox.push(&json!({ "type": "data", "stream": stream, "data": text }));
        }
    }

    fn text(&mut self, stream: ChunkStream) -> &mut Utf8Stream {
        match stream {
            ChunkStream::Stdout => &mut self.text[0],
            ChunkStream::Stderr => &mut self.text[1],
        }
    }
}

fn stage_name(stage: StageName) -> &'static str {
    if stage == StageName::Compile { "compile" } else { "run" }
}

impl ProgressObserver for PistonRecorder<'_> {
    fn stage(&mut self, stage: StageName, _test: Option<u32>) {
        self.outbox.push(&json!({ "type": "stage", "stage": stage_name(stage) }));
    }

    fn chunk(&mut self, stream: ChunkStream, bytes: &[u8]) {
        let text = self.text(stream).push(bytes);
        self.data(stream, &text);
    }

    fn exit(
        &mut self,
        stage: StageName,
        _test: Option<u32>,
        _mode: ExecutionMode,
        outcome: &StageOutcome,
    ) {
        for stream in [ChunkStream::Stdout, ChunkStream::Stderr] {
            let rest = self.text(stream).end();
            self.data(stream, &rest);
        }
        let end = StageEnd::of(outcome);
        let mut message = json!({
            "type": "exit", "stage": stage_name(stage), "code": end.code, "signal": end.signal,
        });
        // Only if Cove, and not the program, caused the end.
        if outcome.limit.is_some() || end.status == Some("XX") {
            message["error"] = end.message.into();
        }
        self.outbox.push(&message);
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.outbox.poll_room(context)
    }
}

/// Decodes chunks of text without cutting characters: an incomplete one waits for its rest.
#[derive(Debug, Default)]
struct Utf8Stream {
    /// Up to 3 bytes.
    rest: Vec<u8>,
}

impl Utf8Stream {
    fn push(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let begins = |at: &usize| {
            let incomplete = std::str::from_utf8(&all[*at..]);
            incomplete.is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        };
        if let Some(at) = (all.len().saturating_sub(3)..all.len()).find(begins) {
            self.rest = all.split_off(at);
        }
        String::from_utf8(all)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    fn end(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole_wherever_the_chunks_end() {
        let text = "a€😀é\u{7ff}z";
        for size in 1..=text.len() {
            let mut whole = Utf8Stream::default();
            let mut out = String::new();
            for chunk in text.as_bytes().chunks(size) {
                let part = whole.push(chunk);
                assert!(!part.contains('\u{fffd}'), "{size}: {part:?}");
                out += &part;
            }
            out += &whole.end();
            assert_eq!(out, text, "{size}");
        }
    }

    #[test]
    fn what_is_no_text_is_replaced_and_holds_nothing_up() {
        let mut text = Utf8Stream::default();
        assert_eq!(text.push(b"a\xffb\xc3"), "a\u{fffd}b");
        assert_eq!(text.push(b"(\xf0\x9f\x98"), "\u{fffd}(");
        assert_eq!(text.end(), "\u{fffd}");
        assert_eq!(text.end(), "");
        // A surrogate never becomes a character, so waiting for more bytes is useless.
        assert_eq!(text.push(b"\xed\xa0"), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn messages_are_told_apart() {
        let text = |text: &str| parse_message(Message::Text(text.into()));
        assert_eq!(
            text(r#"{"type":"data","stream":"stdin","data":"x"}"#),
            Ok(Some(PistonMessage::Stdin(b"x".to_vec())))
        );
        assert_eq!(
            text(r#"{"type":"signal","signal":"SIGINT"}"#),
            Ok(Some(PistonMessage::Signal(2)))
        );
        assert_eq!(text(r#"{"type":"eof"}"#), Ok(Some(PistonMessage::Eof)));
        for (message, close) in [
            (r#"{"type":"data","stream":"stdout","data":"x"}"#, ONLY_STDIN),
            (r#"{"type":"data","data":"x"}"#, ONLY_STDIN),
            (r#"{"type":"signal","signal":"SIGNOPE"}"#, INVALID_SIGNAL),
            (r#"{"type":"signal","signal":2}"#, INVALID_SIGNAL),
        ] {
            assert_eq!(text(message), Err(ConnectionStop::Close(close)), "{message}");
        }
        for message in [
            "",
            "[]",
            "{}",
            "null",
            "{",
            r#"{"type":7}"#,
            r#"{"type":"x"}"#,
            r#"{"type":"data","stream":"stdin"}"#,
        ] {
            assert!(matches!(text(message), Err(ConnectionStop::Error(_))), "{message}");
        }
        assert_eq!(parse_message(Message::Ping(Vec::new().into())), Ok(None));
        assert_eq!(parse_message(Message::Close(None)), Err(ConnectionStop::Gone));
    }

    #[tokio::test]
    async fn input_without_bytes_is_no_chunk_and_small_chunks_fill_the_inbox() {
        let (stdin, _stdin_end) = mpsc::channel(1);
        let (control, _control_end) = mpsc::channel(1);
        let mut inbox = PistonInbox::new(stdin, control, String::new());
        inbox.keep(Vec::new());
        assert_eq!(inbox.waiting.len(), 0);
        while inbox.waiting_bytes < INBOX_BYTES_MAX {
            inbox.keep(vec![b'x']);
        }
        assert_eq!(inbox.waiting.len(), INBOX_BYTES_MAX.div_ceil(1 + CHUNK_OVERHEAD));
    }

    #[tokio::test]
    async fn a_full_outbox_makes_the_run_wait_until_something_is_taken() {
        let outbox = PistonOutbox::default();
        let large = json!("x".repeat(OUTBOX_BYTES_MAX));
        assert!(std::future::poll_fn(|cx| Poll::Ready(outbox.poll_room(cx))).await.is_ready());
        outbox.push(&large);
        assert!(std::future::poll_fn(|cx| Poll::Ready(outbox.poll_room(cx))).await.is_pending());
        let (taken, ()) =
            tokio::join!(outbox.pop(), std::future::poll_fn(|cx| outbox.poll_room(cx)));
        assert_eq!(taken.map(|text| text.len()), Some(OUTBOX_BYTES_MAX + 2));
        outbox.close();
        assert_eq!(outbox.pop().await, None);
    }
}
