//! Subscriptions of one WebSocket, and the messages queued for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::{LiveClientMessage, LiveServerMessage, LiveSubscribe};
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use futures_util::stream::SplitSink;
use futures_util::{SinkExt as _, StreamExt as _};
use node::drain::DrainHandle;
use node::http::{self, HttpError, InProcessCaller};
use node::task;
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time;

use super::source::{
    BYTES_QUEUED_MAX, FollowedFeeds, LiveOutlet, MESSAGES_QUEUED_MAX, QueuedLiveMessage,
    TopicReader,
};
use super::topics;

/// Largest message of a client, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 << 10;

/// Maximum concurrent subscriptions of one socket.
const SUBSCRIPTIONS_MAX: usize = 64;

/// Longest `id` of a subscription, in bytes.
const ID_BYTES_MAX: usize = 64;

/// Interval of pings that show that the connection is alive.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Time that a client may leave a message unread before it counts as disconnected.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// Close code after data that is not a message (RFC 6455 §7.4.2: private use).
const CLOSE_MALFORMED: u16 = 4400;

/// Followed topic. Dropping it stops the following.
struct Subscription {
    number: u64,
    reading: AbortHandle,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// Reason for the end of a conversation.
enum LiveEnd {
    /// The client disconnected.
    Gone,
    /// The server shuts down.
    Away,
    /// The client sent something that is not a message.
    Malformed(String),
}

/// WebSocket with a connected client.
pub(super) struct LiveConversation {
    caller: InProcessCaller,
    drain: DrainHandle,
    subscriptions: HashMap<Arc<str>, Subscription>,
    /// Number of the last subscription.
    last: u64,
    sender: mpsc::Sender<QueuedLiveMessage>,
    queued: mpsc::Receiver<QueuedLiveMessage>,
    room: Arc<Semaphore>,
    turn: Arc<Mutex<()>>,
    feeds: FollowedFeeds,
}

impl LiveConversation {
    pub(super) fn new(
        caller: InProcessCaller,
        drain: DrainHandle,
        feeds: FollowedFeeds,
    ) -> LiveConversation {
        let (sender, queued) = mpsc::channel(MESSAGES_QUEUED_MAX);
        LiveConversation {
            caller,
            drain,
            subscriptions: HashMap::new(),
            last: 0,
            sender,
            queued,
            room: Arc::new(Semaphore::new(BYTES_QUEUED_MAX)),
            turn: Arc::default(),
            feeds,
        }
    }

    /// Sends queued messages and handles the client's messages until one side disconnects. If the
    /// credential is revoked, the shell closes the connection.
    pub(super) async fn serve(mut self, socket: WebSocket) {
        let drain = self.drain.clone();
        let (mut sink, mut stream) = socket.split();
        // The first ping is delayed: a client that closes the socket now could not answer it.
        let mut heartbeat = time::interval_at(time::Instant::now() + HEARTBEAT, HEARTBEAT);
        let end = loop {
            let message = tokio::select! {
                message = stream.next() => match message {
                    None | Some(Err(_) | Ok(Message::Close(_))) => break LiveEnd::Gone,
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                    Some(Ok(Message::Binary(_))) => {
                        break LiveEnd::Malformed("messages are text".to_owned());
                    }
                    Some(Ok(Message::Text(text))) => match self.take(text.as_str()) {
                        Ok(None) => continue,
                        Ok(Some(answer)) => Message::text(answer),
                        Err(error) => break LiveEnd::Malformed(error.to_string()),
                    },
                },
                // The channel does not close, because this value holds a sender.
                Some(message) = self.queued.recv() => match self.current(message) {
                    Some(text) => Message::text(text),
                    None => continue,
                },
                _ = heartbeat.tick() => Message::Ping(Vec::new().into()),
                // A client that only watches reconnects to the next server.
                () = drain.begun() => break LiveEnd::Away,
            };
            if !send(&mut sink, message).await {
                break LiveEnd::Gone;
            }
        };
        self.subscriptions.clear();
        let goodbye = match end {
            LiveEnd::Gone => return,
            LiveEnd::Away => goodbye(close_code::AWAY, "the server shuts down"),
            LiveEnd::Malformed(why) => goodbye(CLOSE_MALFORMED, &why),
        };
        let _gone = send(&mut sink, goodbye).await;
    }

    /// Returns the text of a message, unless its subscription has ended meanwhile.
    fn current(&mut self, message: QueuedLiveMessage) -> Option<String> {
        let subscription = self.subscriptions.get(&message.id)?;
        if subscription.number != message.number {
            return None;
        }
        if message.is_last {
            self.subscriptions.remove(&message.id);
        }
        Some(message.text)
    }

    /// Handles a client's message. Returns the immediate reply to a rejected one.
    fn take(&mut self, text: &str) -> Result<Option<String>, HttpError> {
        match http::parse_json("the message", text.as_bytes())? {
            LiveClientMessage::Unsubscribe { id } => {
                self.subscriptions.remove(id.as_str());
                Ok(None)
            }
            LiveClientMessage::Subscribe(wanted) => {
                if !(1..=ID_BYTES_MAX).contains(&wanted.id.len()) {
                    let message = format!("must have 1 to {ID_BYTES_MAX} bytes");
                    return Err(HttpError::invalid(message).at("id"));
                }
                let id = wanted.id.clone();
                let refused = self.subscribe(wanted).err();
                Ok(refused.map(|error| {
                    let error = Some(error.detail().clone());
                    let answer = LiveServerMessage { id, error, ..LiveServerMessage::default() };
                    serde_json::to_string(&answer).unwrap_or_default()
                }))
            }
        }
    }

    fn subscribe(&mut self, wanted: LiveSubscribe) -> Result<(), HttpError> {
        let LiveSubscribe { id, topic, parameters } = wanted;
        if self.subscriptions.contains_key(id.as_str()) {
            let message = "is that of another subscription of this socket; unsubscribe it first";
            return Err(HttpError::new(api::ErrorCode::Conflict, message).at("id"));
        }
        if self.subscriptions.len() >= SUBSCRIPTIONS_MAX {
            let message = format!("a socket has at most {SUBSCRIPTIONS_MAX} subscriptions");
            return Err(HttpError::new(api::ErrorCode::TooManyRequests, message));
        }
        let source = topics::source(&topic, parameters)?;
        self.last += 1;
        let id: Arc<str> = id.into();
        let reader = TopicReader {
            caller: self.caller.clone(),
            outlet: LiveOutlet {
                id: Arc::clone(&id),
                number: self.last,
                sender: self.sender.clone(),
                room: Arc::clone(&self.room),
            },
            drain: self.drain.clone(),
            turn: Arc::clone(&self.turn),
            feeds: self.feeds.clone(),
        };
        let reading = task::spawn(reader.run(source)).abort_handle();
        self.subscriptions.insert(id, Subscription { number: self.last, reading });
        Ok(())
    }
}

fn goodbye(code: u16, reason: &str) -> Message {
    // RFC 6455 §5.5: a control frame holds 125 bytes, two of them the code.
    let mut reason = reason.to_owned();
    while reason.len() > 120 {
        reason.pop();
    }
    Message::Close(Some(CloseFrame { code, reason: reason.into() }))
}

/// Sends a message; returns false if the client is disconnected or reads nothing for too long.
async fn send(sink: &mut SplitSink<WebSocket, Message>, message: Message) -> bool {
    matches!(time::timeout(SEND_TIMEOUT, sink.send(message)).await, Ok(Ok(())))
}
