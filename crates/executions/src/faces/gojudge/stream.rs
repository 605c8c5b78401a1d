//! `/stream`: one request whose streams go over the connection while its programs run.
//!
//! Messages are binary; the first byte is the type. From the client: 1 the request, 2 a new size of
//! a terminal, 3 input, 4 cancel. To the client: 1 the answer, which is the last one, and 2 output.
//! Input and output have a tag before their bytes: the program's index and the descriptor, four
//! bits each. Input without bytes ends its stream; go-judge has no message for that.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::SplitSink;
use futures_util::{Stream, StreamExt as _};
use node::auth::TokenPrincipal;
use node::drain::DrainHandle;
use sandbox::TerminalDimensions;
use tokio::sync::{mpsc, oneshot};
use tokio::time;

use super::inputs::StreamInputs;
use super::run::{CallerHandle, CallerRequest, GojudgeRunner};
use super::socket::{self, SHUTTING_DOWN, SILENCE_MAX};
use super::wire;
use crate::aside::aside;

/// First bytes of messages.
const REQUEST: u8 = 1;
const RESIZE: u8 = 2;
const INPUT: u8 = 3;
const CANCEL: u8 = 4;
const ANSWER: u8 = 1;
const OUTPUT: u8 = 2;
/// Largest index and descriptor in a tag.
const TAG_PART_MAX: usize = 15;
/// Maximum number of chunks of output that wait for the client. Beyond it, programs block.
const OUTPUT_CHUNKS_MAX: usize = 4;
/// Maximum number of chunks of input in transit to a program.
const INPUT_CHUNKS_MAX: usize = 4;
/// Maximum wait of a chunk of input for room, while its program does not read. No other message is
/// read meanwhile, neither a cancel nor a close.
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for the first message, which is the request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of every message after the request.
const LATER_MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of requests of a client that the runner has not handled yet.
const ASKED_MAX: usize = 16;

/// A piece of output for the client.
#[derive(Debug)]
pub(super) struct OutputChunk {
    pub(super) tag: u8,
    pub(super) bytes: Vec<u8>,
}

/// Returns the tag of a stream in messages. Its parts were checked with the request.
pub(super) fn tag(index: usize, fd: usize) -> u8 {
    u8::try_from((index & TAG_PART_MAX) << 4 | (fd & TAG_PART_MAX)).unwrap_or(u8::MAX)
}

pub(super) async fn connect(
    State(runner): State<Arc<GojudgeRunner>>,
    who: TokenPrincipal,
    drain: DrainHandle,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let upgrade = match socket::accept(&runner, upgrade) {
        Ok(upgrade) => upgrade,
        Err(why) => return (StatusCode::BAD_REQUEST, Json(why)).into_response(),
    };
    upgrade.on_upgrade(move |socket| async move {
        Box::pin(serve(&runner, &who.token_id, drain, socket)).await;
    })
}

/// Reason why a connection ends before its answer.
enum StreamEnd {
    /// The client has disconnected.
    Gone,
    /// The server shuts down.
    Drained,
    /// The client sent a malformed message.
    Malformed(String),
    /// The client sent more input than can be buffered.
    TooMuch(&'static str),
}

/// Stream of messages from a client.
trait MessageSource: Stream<Item = Result<Message, axum::Error>> + Unpin {}

impl<S: Stream<Item = Result<Message, axum::Error>> + Unpin> MessageSource for S {}

async fn serve(runner: &GojudgeRunner, tenant: &str, drain: DrainHandle, socket: WebSocket) {
    let (mut sink, mut stream) = socket.split();
    let conversation = async {
        let request = time::timeout(REQUEST_TIMEOUT, first_request(&mut stream)).await;
        let request = request.map_err(|_| StreamEnd::Malformed("no request came".to_owned()))??;
        talk(runner, tenant, request, &mut sink, stream).await
    };
    let ended = tokio::select! {
        ended = conversation => ended,
        () = drain.cancelled() => Err(StreamEnd::Drained),
    };
    match ended {
        Ok(answer) => {
            let bytes = answer.content_bytes();
            let write = move || {
                let mut message = vec![ANSWER];
                // Our own types with text keys, which always serialize.
                message.extend(serde_json::to_vec(&answer).unwrap_or_default());
                // The memory is held until the message is sent.
                (message, answer.room)
            };
            let Ok((message, _room)) = aside(bytes, write).await else { return };
            if socket::send(&mut sink, Message::Binary(message.into())).await {
                socket::close(&mut sink, close_code::NORMAL, "").await;
            }
        }
        Err(StreamEnd::Malformed(why)) => socket::close(&mut sink, close_code::POLICY, &why).await,
        Err(StreamEnd::TooMuch(why)) => socket::close(&mut sink, close_code::SIZE, why).await,
        Err(StreamEnd::Drained) => socket::close(&mut sink, close_code::AWAY, SHUTTING_DOWN).await,
        Err(StreamEnd::Gone) => {}
    }
}

async fn first_request(stream: &mut impl MessageSource) -> Result<wire::GojudgeRequest, StreamEnd> {
    let bytes = next(stream).await?;
    match bytes.split_first() {
        Some((&REQUEST, json)) => {
            let request: wire::GojudgeRequest = serde_json::from_slice(json).map_err(|error| {
                let error = node::http::plain_json_error(&error);
                StreamEnd::Malformed(format!("the request is malformed: {error}"))
            })?;
            check_tags(&request)?;
            Ok(request)
        }
        _ => Err(StreamEnd::Malformed("the first stream request must be exec request".to_owned())),
    }
}

/// Checks that every stream can have a tag.
fn check_tags(request: &wire::GojudgeRequest) -> Result<(), StreamEnd> {
    for (index, cmd) in request.cmd.iter().enumerate() {
        for (fd, file) in cmd.files.iter().enumerate() {
            let is_stream = file.as_ref().is_some_and(|file| file.stream_in || file.stream_out);
            if is_stream && (index > TAG_PART_MAX || fd > TAG_PART_MAX) {
                let message = format!("cmd[{index}].files[{fd}]: has no place in a message");
                return Err(StreamEnd::Malformed(message));
            }
        }
    }
    Ok(())
}

/// Runs the request, and transfers input and output meanwhile.
async fn talk(
    runner: &GojudgeRunner,
    tenant: &str,
    request: wire::GojudgeRequest,
    sink: &mut SplitSink<WebSocket, Message>,
    stream: impl MessageSource,
) -> Result<wire::GojudgeResponse, StreamEnd> {
    let (ask, requests) = mpsc::channel(ASKED_MAX);
    let (output, chunks) = mpsc::channel(OUTPUT_CHUNKS_MAX);
    let mut incoming = StreamMessage {
        ask,
        inputs: StreamInputs::default(),
        terminals: HashSet::new(),
        room_timeout: ROOM_TIMEOUT,
    };
    let mut inputs = HashMap::new();
    for (index, cmd) in request.cmd.iter().enumerate() {
        for (fd, file) in cmd.files.iter().enumerate() {
            if file.as_ref().is_some_and(|file| file.stream_in) {
                let (sender, receiver) = mpsc::channel(INPUT_CHUNKS_MAX);
                inputs.insert(tag(index, fd), receiver);
                incoming.inputs.add(tag(index, fd), sender);
                if cmd.tty {
                    incoming.terminals.insert(tag(index, fd));
                }
            }
        }
    }
    let remote = CallerHandle { requests: Some(requests), inputs, output: Some(output) };
    let id = request.request_id.clone();
    let running = async { Ok(Box::pin(runner.run(tenant, request, remote)).await) };
    let both = async { tokio::try_join!(running, send_chunks(sink, chunks)) };
    tokio::select! {
        ended = both => ended.map(|(ended, ())| socket::response(id, ended)),
        over = incoming.run(stream) => Err(over),
    }
}

/// Sends output until its end.
async fn send_chunks(
    sink: &mut SplitSink<WebSocket, Message>,
    mut chunks: mpsc::Receiver<OutputChunk>,
) -> Result<(), StreamEnd> {
    let mut pings = socket::pings();
    loop {
        let message = tokio::select! {
            chunk = chunks.recv() => match chunk {
                Some(OutputChunk { tag, bytes }) => {
                    let mut message = Vec::with_capacity(bytes.len() + 2);
                    message.extend([OUTPUT, tag]);
                    message.extend(bytes);
                    Message::Binary(message.into())
                }
                None => return Ok(()),
            },
            _ = pings.tick() => Message::Ping(Vec::new().into()),
        };
        if !socket::send(sink, message).await {
            return Err(StreamEnd::Gone);
        }
    }
}

/// Returns the next message that is not a control frame.
async fn next(stream: &mut impl MessageSource) -> Result<Vec<u8>, StreamEnd> {
    loop {
        match time::timeout(SILENCE_MAX, stream.next()).await {
            Err(_) | Ok(None | Some(Err(_) | Ok(Message::Close(_)))) => {
                return Err(StreamEnd::Gone);
            }
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
            Ok(Some(Ok(Message::Binary(bytes)))) => return Ok(bytes.into()),
            Ok(Some(Ok(Message::Text(text)))) => return Ok(text.as_bytes().to_vec()),
        }
    }
}

/// Reader of messages from the client.
struct StreamMessage {
    ask: mpsc::Sender<CallerRequest>,
    inputs: StreamInputs,
    /// Streams that are terminals.
    terminals: HashSet<u8>,
    /// See [`ROOM_TIMEOUT`].
    room_timeout: Duration,
}

/// Input for a stream.
struct StreamData {
    tag: u8,
    bytes: Vec<u8>,
}

impl StreamMessage {
    /// Reads until the conversation ends. If there is no room for input, the client's messages are
    /// not read for a while, so that a slow program need not buffer all of it; after that, the
    /// client is disconnected.
    async fn run(mut self, mut stream: impl MessageSource) -> StreamEnd {
        let mut held: Option<StreamData> = None;
        let mut held_until = time::Instant::now();
        loop {
            if let Some(StreamData { tag, bytes }) =
                held.take_if(|data| self.inputs.has_room(data.tag))
            {
                self.inputs.push(tag, bytes);
            }
            tokio::select! {
                message = next(&mut stream), if held.is_none() => {
                    let message = match message {
                        Ok(message) if message.len() > LATER_MESSAGE_BYTES_MAX => {
                            return StreamEnd::TooMuch("the message is too large");
                        }
                        Ok(message) => message,
                        Err(over) => return over,
                    };
                    held = match self.take(&message).await {
                        Ok(data) => data,
                        Err(why) => return StreamEnd::Malformed(why),
                    };
                    held_until = time::Instant::now() + self.room_timeout;
                }
                () = self.inputs.hand_on() => {}
                () = time::sleep_until(held_until), if held.is_some() => {
                    return StreamEnd::TooMuch("the program does not read its input");
                }
            }
        }
    }

    /// Handles a message, except input, which it returns.
    #[expect(
        clippy::needless_pass_by_ref_mut,
        reason = "a shared reference could not cross threads while it waits"
    )]
    async fn take(&mut self, message: &[u8]) -> Result<Option<StreamData>, String> {
        match message {
            [INPUT, tag, bytes @ ..] => {
                if !self.inputs.contains(*tag) {
                    let (index, fd) = (tag >> 4, tag & 15);
                    return Err(format!("input does not exist: {index}/{fd}"));
                }
                return Ok(Some(StreamData { tag: *tag, bytes: bytes.to_vec() }));
            }
            [RESIZE, json @ ..] => {
                let wire::GojudgeResize { index, fd, rows, cols } = serde_json::from_slice(json)
                    .map_err(|error| {
                        let error = node::http::plain_json_error(&error);
                        format!("the size is malformed: {error}")
                    })?;
                let (index, fd) = (usize::from(index), usize::from(fd));
                let is_known = index.max(fd) <= TAG_PART_MAX;
                if !is_known || !self.terminals.contains(&tag(index, fd)) {
                    return Err(format!("resize {index}/{fd}: stream is not a tty"));
                }
                let size = TerminalDimensions { rows, cols };
                let (noted, is_noted) = oneshot::channel();
                // Fails only after the end, when the size no longer matters.
                self.ask.send(CallerRequest::Resize(index, size, noted)).await.ok();
                // Input takes another path, and later input could overtake the size.
                is_noted.await.ok();
            }
            [CANCEL, ..] => {
                self.ask.send(CallerRequest::Cancel).await.ok();
            }
            [first, ..] => return Err(format!("invalid type code: {first}")),
            [] => return Err("the message is empty".to_owned()),
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    fn incoming(input: mpsc::Sender<Vec<u8>>) -> (StreamMessage, mpsc::Receiver<CallerRequest>) {
        let (ask, requests) = mpsc::channel(ASKED_MAX);
        let mut inputs = StreamInputs::default();
        inputs.add(0, input);
        let room_timeout = Duration::from_millis(10);
        (StreamMessage { ask, inputs, terminals: HashSet::new(), room_timeout }, requests)
    }

    fn input(bytes: usize) -> Vec<u8> {
        let mut message = vec![INPUT, 0];
        message.resize(2 + bytes, b'x');
        message
    }

    /// Returns these messages, and then a client that is silent.
    fn messages(all: Vec<Vec<u8>>) -> impl MessageSource {
        let all = all.into_iter().map(|bytes| Ok(Message::Binary(bytes.into())));
        stream::iter(all).chain(stream::pending())
    }

    #[tokio::test]
    async fn a_cancel_behind_input_that_nobody_reads_is_seen() {
        let (sender, _unread) = mpsc::channel(1);
        let (incoming, mut requests) = incoming(sender);
        let half = LATER_MESSAGE_BYTES_MAX / 2;
        let stream = messages(vec![input(half), input(half), input(half), vec![CANCEL]]);
        tokio::select! {
            _ = incoming.run(stream) => panic!("it is not over"),
            requests = requests.recv() => assert!(matches!(requests, Some(CallerRequest::Cancel)), "{requests:?}"),
        }
    }

    #[tokio::test]
    async fn input_does_not_overtake_a_size() {
        let (sender, mut reader) = mpsc::channel(1);
        let (mut incoming, mut requests) = incoming(sender);
        incoming.terminals.insert(0);
        let size = br#"{"index": 0, "fd": 0, "rows": 33, "cols": 101}"#;
        let all = vec![[&[RESIZE][..], size].concat(), input(1)];
        let runner = async {
            let Some(CallerRequest::Resize(0, _, noted)) = requests.recv().await else {
                panic!("no size")
            };
            for _ in 0..100 {
                tokio::task::yield_now().await;
                assert!(reader.try_recv().is_err(), "the input is quicker");
            }
            noted.send(()).unwrap();
            reader.recv().await
        };
        tokio::select! {
            _ = incoming.run(messages(all)) => panic!("it is over"),
            input = runner => assert_eq!(input.map(|bytes| bytes.len()), Some(1)),
        }
    }

    #[tokio::test]
    async fn a_client_that_sends_too_much_has_to_go() {
        for (all, says) in [
            (vec![input(LATER_MESSAGE_BYTES_MAX - 2); 4], "does not read"),
            (vec![input(LATER_MESSAGE_BYTES_MAX)], "too large"),
        ] {
            let (sender, _unread) = mpsc::channel(1);
            let (incoming, _requests) = incoming(sender);
            match incoming.run(messages(all)).await {
                StreamEnd::TooMuch(why) => assert!(why.contains(says), "{why}"),
                _ => panic!("{says}"),
            }
        }
    }

    #[tokio::test]
    async fn a_program_that_reads_gets_more_than_is_kept() {
        let (sender, mut reader) = mpsc::channel(1);
        let (mut incoming, _requests) = incoming(sender);
        incoming.room_timeout = ROOM_TIMEOUT;
        let part = LATER_MESSAGE_BYTES_MAX - 2;
        let mut all = vec![input(part); 20];
        all.push(input(0));
        let read = async {
            let mut bytes = 0;
            while let Some(chunk) = reader.recv().await {
                bytes += chunk.len();
            }
            bytes
        };
        tokio::select! {
            _ = incoming.run(messages(all)) => panic!("it is not over"),
            bytes = read => assert_eq!(bytes, 20 * part),
        }
    }
}
