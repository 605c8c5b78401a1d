//! Follows the events of one execution, reconnecting as necessary (WHATWG HTML §9.2).

use std::time::{Duration, Instant};

use api::{ExecutionEvent, ExecutionRecord};
use axum::http::{HeaderValue, Method, header};
use node::client::ClientResponse;
use node::clock;
use tokio::time::sleep;

use super::{FailureKind, Remote, RemoteFailure};

/// Minimum and maximum wait between two connection attempts.
const BACK_OFF_MIN: Duration = Duration::from_millis(200);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// Maximum time without a server: a restart with all its checks takes less.
const AWAY_MAX: Duration = Duration::from_secs(120);
/// Longest line of a stream: the last event contains the whole result.
const LINE_BYTES_MAX: usize = 256 << 20;

/// Next step of a follower.
#[derive(Debug)]
pub(crate) enum FollowStep {
    /// An event.
    Event(Box<ExecutionEvent>),
    /// The execution has ended and its last event is unavailable; this is its record.
    Ended(Box<ExecutionRecord>),
    /// The connection was lost; reported once until it is back.
    Lost,
    /// The connection was restored.
    Back,
}

/// Follower of the events of one execution.
pub(crate) struct EventFollower {
    remote: Remote,
    id: String,
    /// Number of the last received event.
    after: u64,
    stream: Option<EventConnection>,
    /// True if there was a connection; otherwise a failure is not a lost connection.
    was_there: bool,
    /// Time since when the connection is lost, once that was reported.
    lost_at: Option<Instant>,
    back_off: Duration,
}

impl EventFollower {
    /// Follows the execution from its first event.
    pub(crate) fn new(remote: Remote, id: String) -> EventFollower {
        EventFollower {
            remote,
            id,
            after: 0,
            stream: None,
            was_there: false,
            lost_at: None,
            back_off: BACK_OFF_MIN,
        }
    }

    /// Returns the next step. Must not be called after the end.
    pub(crate) async fn next(&mut self) -> Result<FollowStep, RemoteFailure> {
        loop {
            let Some(stream) = &mut self.stream else {
                if self.lost_at.is_some() {
                    // Also if the last attempt succeeded: a server may accept and drop connections.
                    sleep(self.back_off).await;
                    self.back_off = (self.back_off * 2).min(BACK_OFF_MAX);
                    self.remote.rediscover();
                }
                match self.connect().await {
                    Ok(()) if self.lost_at.take().is_some() => return Ok(FollowStep::Back),
                    Ok(()) => {}
                    Err(failure) => self.endure(failure)?,
                }
                continue;
            };
            let failure = match stream.next().await {
                Ok(Some(event)) if event.seq <= self.after => continue,
                Ok(Some(event)) => {
                    self.after = event.seq;
                    self.back_off = BACK_OFF_MIN;
                    return Ok(FollowStep::Event(Box::new(event)));
                }
                Ok(None) => RemoteFailure::new(FailureKind::Lost, "the server ended the events"),
                Err(failure) => failure,
            };
            self.stream = None;
            if let Some(record) = self.ended().await {
                return Ok(FollowStep::Ended(Box::new(record)));
            }
            self.endure(failure)?;
            return Ok(FollowStep::Lost);
        }
    }

    async fn connect(&mut self) -> Result<(), RemoteFailure> {
        let path = format!("/v1/executions/{}/events", self.id);
        let mut request = self.remote.request(Method::GET, &path);
        let events = HeaderValue::from_static("text/event-stream");
        request.headers.insert(header::ACCEPT, events);
        request.headers.insert("last-event-id", HeaderValue::from(self.after));
        request.response_bytes_max = u64::MAX;
        let response = self.remote.open(request).await?;
        self.stream = Some(EventConnection::new(response, self.remote.clone()));
        self.was_there = true;
        Ok(())
    }

    /// Returns the record if it is final. If the request fails, reconnecting reveals the reason.
    async fn ended(&self) -> Option<ExecutionRecord> {
        let path = format!("/v1/executions/{}", self.id);
        let record = self.remote.call::<ExecutionRecord>(Method::GET, &path).await.ok()?;
        record.state.is_final().then_some(record)
    }

    /// Returns an error if another attempt is useless.
    fn endure(&mut self, failure: RemoteFailure) -> Result<(), RemoteFailure> {
        if failure.fault != FailureKind::Lost || !self.was_there {
            return Err(failure);
        }
        let now = clock::now();
        let lost_at = *self.lost_at.get_or_insert(now);
        if now.duration_since(lost_at) > AWAY_MAX { Err(failure) } else { Ok(()) }
    }
}

/// Connection that streams events.
struct EventConnection {
    response: ClientResponse,
    remote: Remote,
    lines: LineSplitter,
}

impl EventConnection {
    fn new(response: ClientResponse, remote: Remote) -> EventConnection {
        EventConnection { response, remote, lines: LineSplitter::default() }
    }

    /// Returns the next event; `None` if the server ends the stream.
    async fn next(&mut self) -> Result<Option<ExecutionEvent>, RemoteFailure> {
        let odd = |what: String| {
            let message = format!("the server's events are not those of a Cove server: {what}");
            RemoteFailure::new(FailureKind::Unavailable, message)
        };
        loop {
            while let Some(line) = self.lines.next() {
                // The document also contains the number and name.
                let Some(data) = line.strip_prefix(b"data:") else { continue };
                let event = serde_json::from_slice(data).map_err(|error| odd(error.to_string()))?;
                return Ok(Some(event));
            }
            let chunk = self.response.chunk().await;
            let Some(chunk) = chunk.map_err(|error| self.remote.explain(error))? else {
                return Ok(None);
            };
            if !self.lines.push(&chunk) {
                return Err(odd("a line is too long".to_owned()));
            }
        }
    }
}

/// Splits bytes into lines.
#[derive(Debug, Default)]
pub(crate) struct LineSplitter {
    bytes: Vec<u8>,
    /// Start of the bytes that were not returned yet.
    start: usize,
    /// Position up to which there is no line end.
    searched: usize,
}

impl LineSplitter {
    /// Adds bytes; returns `false` if a line is too long.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
        self.bytes.len() <= LINE_BYTES_MAX
    }

    /// Returns the next complete line, without its end.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        let fresh = self.bytes.get(self.searched..)?;
        let Some(length) = fresh.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.bytes.len();
            return None;
        };
        let (start, end) = (self.start, self.searched + length);
        self.start = end + 1;
        self.searched = self.start;
        let line = self.bytes.get(start..end)?;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

#[cfg(test)]
mod tests {
    //! Lines across chunk borders.

    use super::*;

    #[test]
    fn lines_are_found_over_the_borders_of_chunks() {
        let text = b"id: 1\r\ndata: {}\n\n: ping\ndata: last";
        for size in 1..=text.len() {
            let mut lines = LineSplitter::default();
            let mut found = Vec::new();
            for chunk in text.chunks(size) {
                assert!(lines.push(chunk));
                while let Some(line) = lines.next() {
                    found.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            assert_eq!(found, ["id: 1", "data: {}", "", ": ping"], "in pieces of {size}");
        }
    }
}
