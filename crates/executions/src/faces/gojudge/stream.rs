//! `/stream`: one request whose streams go over the connection while its programs run.
//!
//! Messages are binary; the first byte says what they are. From the client: 1 the request, 2 a new
//! size of a terminal, 3 input, 4 cancel. To the client: 1 the answer, which is the last one, and 2
//! output. Input and output have a tag before their bytes: the program's index and the descriptor,
//! four bits each. Input without bytes ends its stream; go-judge has no way to say that.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use futures_util::stream::{SplitSink, SplitStream};
use node::auth::Principal;
use node::drain::Drain;
use sandbox::TerminalSize;
use tokio::sync::mpsc;
use tokio::time;

use super::run::{Asked, Remote, Runner};
use super::socket::{self, SHUTTING_DOWN, SILENCE_MAX};
use super::wire;

/// First bytes of messages.
const REQUEST: u8 = 1;
const RESIZE: u8 = 2;
const INPUT: u8 = 3;
const CANCEL: u8 = 4;
const ANSWER: u8 = 1;
const OUTPUT: u8 = 2;
/// Largest index and descriptor that a tag has room for.
const TAG_PART_MAX: usize = 15;
/// Chunks of output that wait for the client. With them full, programs wait.
const OUTPUT_CHUNKS_MAX: usize = 4;
/// Chunks of input on their way into a program.
const INPUT_CHUNKS_MAX: usize = 4;
/// Bytes of input that wait for programs that do not read. Beyond them, the socket is not read.
const PENDING_BYTES_MAX: usize = 1 << 20;
/// What a client may have asked for and the runner has not looked at.
const ASKED_MAX: usize = 16;

/// A piece of output for the client.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) tag: u8,
    pub(super) bytes: Vec<u8>,
}

/// What names a stream in messages. The parts were checked when the request came.
pub(super) fn tag(index: usize, fd: usize) -> u8 {
    u8::try_from((index & TAG_PART_MAX) << 4 | (fd & TAG_PART_MAX)).unwrap_or(u8::MAX)
}

pub(super) async fn connect(
    State(runner): State<Arc<Runner>>,
    who: Principal,
    drain: Drain,
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

/// Why a conversation is over before its answer.
enum Over {
    /// The client is gone.
    Gone,
    /// The server ends.
    Drained,
    /// It sent what is no message here.
    Malformed(String),
}

async fn serve(runner: &Runner, tenant: &str, drain: Drain, socket: WebSocket) {
    let (mut sink, mut stream) = socket.split();
    let conversation = async {
        let request = first_request(&mut stream).await?;
        talk(runner, tenant, request, &mut sink, stream).await
    };
    let ended = tokio::select! {
        ended = conversation => ended,
        () = drain.cancelled() => Err(Over::Drained),
    };
    match ended {
        Ok(answer) => {
            let mut message = vec![ANSWER];
            // Our own types with text keys, which always can be JSON.
            message.extend(serde_json::to_vec(&answer).unwrap_or_default());
            if socket::send(&mut sink, Message::Binary(message.into())).await {
                socket::close(&mut sink, close_code::NORMAL, "").await;
            }
        }
        Err(Over::Malformed(why)) => socket::close(&mut sink, close_code::POLICY, &why).await,
        Err(Over::Drained) => socket::close(&mut sink, close_code::AWAY, SHUTTING_DOWN).await,
        Err(Over::Gone) => {}
    }
}

async fn first_request(stream: &mut SplitStream<WebSocket>) -> Result<wire::Request, Over> {
    let bytes = next(stream).await?;
    match bytes.split_first() {
        Some((&REQUEST, json)) => {
            let request: wire::Request = serde_json::from_slice(json)
                .map_err(|error| Over::Malformed(format!("the request is malformed: {error}")))?;
            check_tags(&request)?;
            Ok(request)
        }
        _ => Err(Over::Malformed("the first stream request must be exec request".to_owned())),
    }
}

/// Every stream must have a tag.
fn check_tags(request: &wire::Request) -> Result<(), Over> {
    for (index, cmd) in request.cmd.iter().enumerate() {
        for (fd, file) in cmd.files.iter().enumerate() {
            let is_stream = file.as_ref().is_some_and(|file| file.stream_in || file.stream_out);
            if is_stream && (index > TAG_PART_MAX || fd > TAG_PART_MAX) {
                let message = format!("cmd[{index}].files[{fd}]: has no place in a message");
                return Err(Over::Malformed(message));
            }
        }
    }
    Ok(())
}

/// Runs the request, with everything that goes to and fro meanwhile.
async fn talk(
    runner: &Runner,
    tenant: &str,
    request: wire::Request,
    sink: &mut SplitSink<WebSocket, Message>,
    stream: SplitStream<WebSocket>,
) -> Result<wire::Response, Over> {
    let (ask, asked) = mpsc::channel(ASKED_MAX);
    let (output, chunks) = mpsc::channel(OUTPUT_CHUNKS_MAX);
    let mut incoming = Incoming { ask, inputs: HashMap::new(), terminals: HashSet::new() };
    let mut inputs = HashMap::new();
    for (index, cmd) in request.cmd.iter().enumerate() {
        for (fd, file) in cmd.files.iter().enumerate() {
            if file.as_ref().is_some_and(|file| file.stream_in) {
                let (sender, receiver) = mpsc::channel(INPUT_CHUNKS_MAX);
                inputs.insert(tag(index, fd), receiver);
                incoming.inputs.insert(tag(index, fd), Some(sender));
                if cmd.tty {
                    incoming.terminals.insert(tag(index, fd));
                }
            }
        }
    }
    let remote = Remote { asked: Some(asked), inputs, output: Some(output) };
    let id = request.request_id.clone();
    let running = async { Ok(Box::pin(runner.run(tenant, request, remote)).await) };
    let both = async { tokio::try_join!(running, send_chunks(sink, chunks)) };
    tokio::select! {
        ended = both => ended.map(|(ended, ())| socket::response(id, ended)),
        over = incoming.run(stream) => Err(over),
    }
}

/// Sends output until there can be no more.
async fn send_chunks(
    sink: &mut SplitSink<WebSocket, Message>,
    mut chunks: mpsc::Receiver<Chunk>,
) -> Result<(), Over> {
    let mut pings = socket::pings();
    loop {
        let message = tokio::select! {
            chunk = chunks.recv() => match chunk {
                Some(Chunk { tag, bytes }) => {
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
            return Err(Over::Gone);
        }
    }
}

/// The next message that is not about the connection.
async fn next(stream: &mut SplitStream<WebSocket>) -> Result<Vec<u8>, Over> {
    loop {
        match time::timeout(SILENCE_MAX, stream.next()).await {
            Err(_) | Ok(None | Some(Err(_) | Ok(Message::Close(_)))) => return Err(Over::Gone),
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
            Ok(Some(Ok(Message::Binary(bytes)))) => return Ok(bytes.into()),
            Ok(Some(Ok(Message::Text(text)))) => return Ok(text.as_bytes().to_vec()),
        }
    }
}

/// What comes from the client.
struct Incoming {
    ask: mpsc::Sender<Asked>,
    /// Where input goes, by tag; `None` once it has ended.
    inputs: HashMap<u8, Option<mpsc::Sender<Vec<u8>>>>,
    /// Those of them that are terminals.
    terminals: HashSet<u8>,
}

/// Input that waits to reach its program, in order. Empty bytes are the end of a stream.
#[derive(Default)]
struct Pending {
    chunks: VecDeque<(u8, Vec<u8>)>,
    bytes: usize,
}

impl Incoming {
    async fn run(mut self, mut stream: SplitStream<WebSocket>) -> Over {
        let mut pending = Pending::default();
        loop {
            tokio::select! {
                message = next(&mut stream), if pending.bytes < PENDING_BYTES_MAX => {
                    let taken = match message {
                        Ok(message) => self.take(&message, &mut pending).await,
                        Err(over) => return over,
                    };
                    if let Err(why) = taken {
                        return Over::Malformed(why);
                    }
                }
                () = pending.hand_on(&mut self.inputs) => {}
            }
        }
    }

    async fn take(&self, message: &[u8], pending: &mut Pending) -> Result<(), String> {
        match message {
            [INPUT, tag, bytes @ ..] => {
                if !self.inputs.contains_key(tag) {
                    let (index, fd) = (tag >> 4, tag & 15);
                    return Err(format!("input does not exist: {index}/{fd}"));
                }
                pending.bytes += bytes.len();
                pending.chunks.push_back((*tag, bytes.to_vec()));
            }
            [RESIZE, json @ ..] => {
                let wire::Resize { index, fd, rows, cols } = serde_json::from_slice(json)
                    .map_err(|error| format!("the size is malformed: {error}"))?;
                let (index, fd) = (usize::from(index), usize::from(fd));
                let is_known = index.max(fd) <= TAG_PART_MAX;
                if !is_known || !self.terminals.contains(&tag(index, fd)) {
                    return Err(format!("resize {index}/{fd}: stream is not a tty"));
                }
                let size = TerminalSize { rows, cols };
                // Refused only after the end, which is as good.
                self.ask.send(Asked::Resize(index, size)).await.ok();
            }
            [CANCEL, ..] => {
                self.ask.send(Asked::Cancel).await.ok();
            }
            [first, ..] => return Err(format!("invalid type code: {first}")),
            [] => return Err("the message is empty".to_owned()),
        }
        Ok(())
    }
}

impl Pending {
    /// Hands the first chunk to its program; waits while there is none. Cancel-safe.
    async fn hand_on(&mut self, inputs: &mut HashMap<u8, Option<mpsc::Sender<Vec<u8>>>>) {
        let Some((tag, bytes)) = self.chunks.front_mut() else {
            return std::future::pending().await;
        };
        if let Some(input) = inputs.get_mut(tag) {
            match input {
                Some(_) if bytes.is_empty() => *input = None,
                // A program that has closed its input is within its rights.
                Some(sender) => {
                    if let Ok(room) = sender.reserve().await {
                        self.bytes -= bytes.len();
                        room.send(std::mem::take(bytes));
                    } else {
                        self.bytes -= bytes.len();
                    }
                }
                None => self.bytes -= bytes.len(),
            }
        }
        self.chunks.pop_front();
    }
}
