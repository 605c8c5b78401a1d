//! Server-sent events of any kind (WHATWG HTML §9.2), as documents.

use axum::http::{HeaderValue, header};
use node::client::{ClientRequest, ClientResponse};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::follow::LineSplitter;
use super::{FailureKind, Remote, RemoteFailure, retry_after};

/// Response with server-sent events.
pub(crate) struct EventPage {
    response: ClientResponse,
    remote: Remote,
    lines: LineSplitter,
}

impl Remote {
    /// Sends a request whose response consists of events.
    pub(crate) async fn events(
        &self,
        mut request: ClientRequest,
    ) -> Result<EventPage, RemoteFailure> {
        let events = HeaderValue::from_static("text/event-stream");
        request.headers.insert(header::ACCEPT, events);
        request.response_bytes_max = u64::MAX;
        let response = self.open(request).await?;
        Ok(EventPage { response, remote: self.clone(), lines: LineSplitter::default() })
    }
}

impl EventPage {
    /// Returns the text of the next event; none at the end of the response. Cancel-safe.
    pub(crate) async fn next_text(&mut self) -> Result<Option<String>, RemoteFailure> {
        loop {
            while let Some(line) = self.lines.next() {
                // The document also contains the number and name.
                let Some(data) = line.strip_prefix(b"data:") else { continue };
                let text = std::str::from_utf8(data).map_err(|error| odd(&error.to_string()))?;
                return Ok(Some(text.trim_start().to_owned()));
            }
            let chunk = self.response.chunk().await;
            let Some(chunk) = chunk.map_err(|error| self.remote.explain(error))? else {
                return Ok(None);
            };
            if !self.lines.push(&chunk) {
                return Err(odd("a line is too long"));
            }
        }
    }

    /// Returns the next event; none at the end of the response.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, RemoteFailure> {
        let Some(text) = self.next_text().await? else { return Ok(None) };
        read(&text).map(Some)
    }
}

/// Parses one event.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, RemoteFailure> {
    serde_json::from_str(text).map_err(|error| odd(&error.to_string()))
}

/// Responses to one JSON-RPC message over HTTP: one document, or events.
pub(crate) enum RpcAnswers {
    /// A single document, until it is taken.
    One(Option<Value>),
    Events(Box<EventPage>),
}

impl Remote {
    /// Sends a JSON-RPC message. Protocol errors are returned as responses, regardless of the
    /// status.
    pub(crate) async fn rpc(
        &self,
        mut request: ClientRequest,
    ) -> Result<RpcAnswers, RemoteFailure> {
        request.response_bytes_max = u64::MAX;
        let response = self.client.send(request).await.map_err(|error| self.explain(error))?;
        let kind = response.headers.get(header::CONTENT_TYPE);
        if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream")) {
            let (remote, lines) = (self.clone(), LineSplitter::default());
            return Ok(RpcAnswers::Events(Box::new(EventPage { response, remote, lines })));
        }
        let (status, wait) = (response.status, retry_after(&response.headers));
        let body = response.bytes().await.map_err(|error| self.explain(error))?;
        if body.is_empty() && status.is_success() {
            return Ok(RpcAnswers::One(None));
        }
        match serde_json::from_slice::<Value>(&body) {
            Ok(answer) if answer.is_array() || answer.get("jsonrpc").is_some() => {
                Ok(RpcAnswers::One(Some(answer)))
            }
            _ => Err(self.refusal(status, wait, &body)),
        }
    }
}

impl RpcAnswers {
    /// Returns the next response; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, RemoteFailure> {
        match self {
            RpcAnswers::One(answer) => Ok(answer.take()),
            RpcAnswers::Events(events) => events.next().await,
        }
    }
}

fn odd(what: &str) -> RemoteFailure {
    let message = format!("the server's events are not those of a Cove server: {what}");
    RemoteFailure::new(FailureKind::Unavailable, message)
}
