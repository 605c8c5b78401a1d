//! Client of the control plane, authorized by the environment's key or an item's own token.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use node::client::{AddressGuard, ClientError, ClientRequest, ClientResponse, HttpClient};
use node::clock::IdGenerator;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use super::protocol::{
    ControlErrorBody, HeartbeatAnswer, ManagedEvent, ManagedEventPage, ManagedSession, SentEvents,
    ToolResultEvent, WorkItem,
};
use crate::percent::escaped;
use crate::plain_text::plain;
use crate::remote::follow::LineSplitter;

/// Time that the server may hold a poll; it allows 1 to 999 ms.
const POLL_BLOCK_MS: u32 = 999;
/// Timeout of all requests except heartbeats.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest response, in bytes: a page of events, some of which contain images.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Events per page of a session's history.
const EVENTS_ON_PAGE: u32 = 1000;
/// Maximum pages of a session's history.
const PAGES_MAX: usize = 1000;
/// Silence of an event stream after which it is reopened.
const STREAM_PAUSE_MAX: Duration = Duration::from_secs(300);
/// Version of Anthropic's API, which every request names.
const ANTHROPIC_VERSION: &str = "2023-06-01";
/// Longest error message that is forwarded, in characters.
const MESSAGE_CHARS_MAX: usize = 500;
/// Minimum wait between two attempts, and maximum accepted `retry-after`.
const BACK_OFF_MIN: Duration = Duration::from_millis(500);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// Failed request to the control plane.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct ControlPlaneError {
    message: String,
    /// Status of the response, if there was one.
    pub(super) status: Option<StatusCode>,
    retry_after: Option<Duration>,
}

impl ControlPlaneError {
    fn unreachable(message: String) -> ControlPlaneError {
        ControlPlaneError { message, status: None, retry_after: None }
    }

    /// Returns the time that the control plane asked to wait.
    pub(super) fn requested_wait(&self) -> Duration {
        self.retry_after.unwrap_or_default().min(RETRY_AFTER_MAX)
    }

    /// Returns whether a retry is useless, as with an unknown key or a missing object.
    pub(super) fn is_fatal(&self) -> bool {
        let retried =
            [StatusCode::REQUEST_TIMEOUT, StatusCode::CONFLICT, StatusCode::TOO_MANY_REQUESTS];
        self.status.is_some_and(|status| status.is_client_error() && !retried.contains(&status))
    }
}

/// Growing waits between attempts, randomized so that workers do not retry simultaneously.
#[derive(Debug)]
pub(super) struct BackOff {
    next: Duration,
    max: Duration,
    chance: IdGenerator,
}

impl BackOff {
    /// Returns waits of up to `max`.
    pub(super) fn new(max: Duration) -> std::io::Result<BackOff> {
        Ok(BackOff { next: BACK_OFF_MIN, max, chance: IdGenerator::new()? })
    }

    /// Restarts with the minimum wait.
    pub(super) fn reset(&mut self) {
        self.next = BACK_OFF_MIN;
    }

    /// Returns the time until the next attempt; longer if the error requests that.
    pub(super) fn next(&mut self, error: Option<&ControlPlaneError>) -> Duration {
        let wait = self.spread(self.next);
        self.next = (self.next * 2).min(self.max);
        wait.max(error.map(ControlPlaneError::requested_wait).unwrap_or_default())
    }

    /// Returns a random time between half of `time` and all of it.
    pub(super) fn spread(&self, time: Duration) -> Duration {
        let id = self.chance.next("");
        let chance = id.bytes().last().unwrap_or_default() % 32;
        time / 2 + time / 2 * u32::from(chance) / 32
    }
}

/// Bearer token of a request: the environment's key or the token of one item.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Renewal of a lease.
pub(super) struct WorkHeartbeat<'a> {
    /// `last_heartbeat` of the previous response, unchanged.
    pub(super) expected: &'a str,
    /// Timeout of the request.
    pub(super) timeout: Duration,
    /// Requested lifetime of the lease in seconds; none for the control plane's default.
    pub(super) ttl_s: Option<u32>,
}

/// Control plane of one environment.
pub(super) struct ControlPlane {
    pub(super) client: HttpClient,
    /// Base URL without a trailing slash.
    pub(super) base: String,
    pub(super) environment: String,
    /// Value of the header with the beta version.
    pub(super) api_version: HeaderValue,
    pub(super) key: HeaderValue,
    pub(super) worker_id: HeaderValue,
}

impl ControlPlane {
    /// Returns a client that may reach any control plane: the user chose its address.
    pub(super) fn client() -> HttpClient {
        HttpClient::new(AddressGuard::Open)
    }

    /// Claims an item if there is one.
    pub(super) async fn poll(&self) -> Result<Option<WorkItem>, ControlPlaneError> {
        let path = format!("{}/poll?block_ms={POLL_BLOCK_MS}&beta=true", self.work_path());
        let mut request = self.request(Method::GET, &path, &self.key);
        request.headers.insert("anthropic-worker-id", self.worker_id.clone());
        let body = self.send(request).await?;
        if body.is_empty() {
            return Ok(None);
        }
        parsed(&body)
    }

    /// Acknowledges an item.
    pub(super) async fn acknowledge(&self, work: &str) -> Result<(), ControlPlaneError> {
        let path = format!("{}/{}/ack?beta=true", self.work_path(), escaped(work));
        self.send(self.request(Method::POST, &path, &self.key)).await.map(drop)
    }

    /// Renews the lease of an item.
    pub(super) async fn heartbeat(
        &self,
        work: &str,
        credential: &HeaderValue,
        beat: &WorkHeartbeat<'_>,
    ) -> Result<HeartbeatAnswer, ControlPlaneError> {
        let mut path = format!(
            "{}/{}/heartbeat?expected_last_heartbeat={}&beta=true",
            self.work_path(),
            escaped(work),
            escaped(beat.expected)
        );
        if let Some(ttl_s) = beat.ttl_s {
            path.push_str(&format!("&desired_ttl_seconds={ttl_s}"));
        }
        let mut request = self.request(Method::POST, &path, credential);
        request.timeout = beat.timeout;
        parsed(&self.send(request).await?)
    }

    /// Stops an item. One that has already stopped is no error.
    pub(super) async fn stop(
        &self,
        work: &str,
        credential: &HeaderValue,
    ) -> Result<(), ControlPlaneError> {
        let path = format!("{}/{}/stop?beta=true", self.work_path(), escaped(work));
        let body = &serde_json::json!({ "force": true });
        match self.send(self.request_with(&path, credential, body)?).await {
            Err(error) if error.status != Some(StatusCode::CONFLICT) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Returns the state of a session.
    pub(super) async fn session(
        &self,
        session: &str,
        credential: &HeaderValue,
    ) -> Result<ManagedSession, ControlPlaneError> {
        let path = format!("/v1/sessions/{}?beta=true", escaped(session));
        parsed(&self.send(self.request(Method::GET, &path, credential)).await?)
    }

    /// Returns all past events of a session.
    pub(super) async fn history(
        &self,
        session: &str,
        credential: &HeaderValue,
    ) -> Result<Vec<ManagedEvent>, ControlPlaneError> {
        let base =
            format!("/v1/sessions/{}/events?limit={EVENTS_ON_PAGE}&beta=true", escaped(session));
        let (mut events, mut path) = (Vec::new(), base.clone());
        for _ in 0..PAGES_MAX {
            let body = self.send(self.request(Method::GET, &path, credential)).await?;
            let page: ManagedEventPage = parsed(&body)?;
            events.extend(page.data);
            match page.next_page {
                Some(next) => path = format!("{base}&page={}", escaped(&next)),
                None => return Ok(events),
            }
        }
        let most = PAGES_MAX * usize::try_from(EVENTS_ON_PAGE).unwrap_or(usize::MAX);
        Err(ControlPlaneError {
            message: format!("session `{}` has more than {most} events", plain(session)),
            status: Some(StatusCode::PAYLOAD_TOO_LARGE),
            retry_after: None,
        })
    }

    /// Opens the stream of a session's new events.
    pub(super) async fn stream(
        &self,
        session: &str,
        credential: &HeaderValue,
    ) -> Result<ManagedEventStream, ControlPlaneError> {
        let path = format!("/v1/sessions/{}/events/stream?beta=true", escaped(session));
        let mut request = self.request(Method::GET, &path, credential);
        request.headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        request.response_bytes_max = u64::MAX;
        request.pause_max = STREAM_PAUSE_MAX;
        let response = self.open(request).await?;
        Ok(ManagedEventStream { response, lines: LineSplitter::default() })
    }

    /// Sends the result of a call.
    pub(super) async fn send_result(
        &self,
        session: &str,
        credential: &HeaderValue,
        result: &ToolResultEvent,
    ) -> Result<(), ControlPlaneError> {
        let path = format!("/v1/sessions/{}/events?beta=true", escaped(session));
        let request = self.request_with(&path, credential, &SentEvents { events: [result] })?;
        self.send(request).await.map(drop)
    }

    fn work_path(&self) -> String {
        format!("/v1/environments/{}/work", escaped(&self.environment))
    }

    fn request(&self, method: Method, path: &str, credential: &HeaderValue) -> ClientRequest {
        let mut request = ClientRequest::new(method, format!("{}{path}", self.base));
        request.timeout = ANSWER_TIMEOUT;
        request.response_bytes_max = ANSWER_BYTES_MAX;
        let headers = &mut request.headers;
        headers.insert(header::AUTHORIZATION, credential.clone());
        headers.insert("anthropic-beta", self.api_version.clone());
        headers.insert("anthropic-version", HeaderValue::from_static(ANTHROPIC_VERSION));
        let agent = concat!("cove-worker/", env!("CARGO_PKG_VERSION"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        request
    }

    fn request_with(
        &self,
        path: &str,
        credential: &HeaderValue,
        body: &impl Serialize,
    ) -> Result<ClientRequest, ControlPlaneError> {
        let mut request = self.request(Method::POST, path, credential);
        let body = serde_json::to_vec(body);
        request.body = body
            .map_err(|error| {
                ControlPlaneError::unreachable(format!("write the request down: {error}"))
            })?
            .into();
        let json = HeaderValue::from_static("application/json");
        request.headers.insert(header::CONTENT_TYPE, json);
        Ok(request)
    }

    async fn send(&self, request: ClientRequest) -> Result<Vec<u8>, ControlPlaneError> {
        let response = self.open(request).await?;
        response.bytes().await.map_err(|error| self.explain(error))
    }

    async fn open(&self, request: ClientRequest) -> Result<ClientResponse, ControlPlaneError> {
        let response = self.client.send(request).await.map_err(|error| self.explain(error))?;
        let status = response.status;
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = retry_after(&response.headers);
        let body = response.bytes().await.unwrap_or_default();
        let reason = match serde_json::from_slice::<ControlErrorBody>(&body) {
            Ok(ControlErrorBody { error }) => {
                let message: String = error.message.chars().take(MESSAGE_CHARS_MAX).collect();
                format!("{}: {}", plain(&error.kind), plain(&message))
            }
            Err(_) => "it is no error of the published form".to_owned(),
        };
        let message = format!("{} answers with status {}: {reason}", self.base, status.as_u16());
        Err(ControlPlaneError { message, status: Some(status), retry_after })
    }

    fn explain(&self, error: ClientError) -> ControlPlaneError {
        let cause = format!("{:#}", anyhow::Error::new(error));
        ControlPlaneError::unreachable(format!("no answer of {}: {cause}", self.base))
    }
}

/// Stream of a session's events.
pub(super) struct ManagedEventStream {
    response: ClientResponse,
    lines: LineSplitter,
}

impl ManagedEventStream {
    /// Returns the next event; none at the end of the stream.
    pub(super) async fn next(&mut self) -> Result<Option<ManagedEvent>, ControlPlaneError> {
        loop {
            while let Some(line) = self.lines.next() {
                let Some(data) = line.strip_prefix(b"data:") else { continue };
                // Workers ignore events in unknown formats.
                match serde_json::from_slice(data).unwrap_or(ManagedEvent::Other) {
                    ManagedEvent::Ping => {}
                    event => return Ok(Some(event)),
                }
            }
            let chunk = self.response.chunk().await;
            let chunk = chunk.map_err(|error| {
                let cause = format!("{:#}", anyhow::Error::new(error));
                ControlPlaneError::unreachable(format!("the stream of events broke off: {cause}"))
            })?;
            let Some(chunk) = chunk else { return Ok(None) };
            if !self.lines.push(&chunk) {
                return Err(ControlPlaneError::unreachable("an event is too long".to_owned()));
            }
        }
    }
}

/// Waits until the next attempt.
pub(super) async fn wait(back_off: &mut BackOff, error: &ControlPlaneError) {
    sleep(back_off.next(Some(error))).await;
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, ControlPlaneError> {
    serde_json::from_slice(body).map_err(|error| {
        ControlPlaneError::unreachable(format!(
            "the control plane's answer has another form: {error}"
        ))
    })
}

/// Returns the time after which a retry is useful: whole seconds, or milliseconds in Anthropic's
/// own header.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    let ms = number("retry-after-ms").map(Duration::from_millis);
    ms.or_else(|| number("retry-after").map(Duration::from_secs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_grows_and_is_as_long_as_the_other_side_asks() {
        let mut back_off = BackOff::new(Duration::from_secs(4)).unwrap();
        for (most_ms, seconds) in [(500, None), (1000, None), (2000, Some(30)), (4000, None)] {
            let error = ControlPlaneError {
                message: String::new(),
                status: Some(StatusCode::TOO_MANY_REQUESTS),
                retry_after: seconds.map(Duration::from_secs),
            };
            let wait = back_off.next(Some(&error));
            match seconds {
                Some(seconds) => assert_eq!(wait, Duration::from_secs(seconds)),
                None => {
                    let most = Duration::from_millis(most_ms);
                    assert!(wait >= most / 2 && wait <= most, "{wait:?}");
                }
            }
        }
        let forever = ControlPlaneError {
            message: String::new(),
            status: None,
            retry_after: Some(Duration::from_secs(1 << 40)),
        };
        assert_eq!(back_off.next(Some(&forever)), RETRY_AFTER_MAX);
    }

    #[test]
    fn only_what_stays_wrong_is_fatal() {
        for (status, fatal) in [
            (400, true),
            (401, true),
            (403, true),
            (404, true),
            (412, true),
            (408, false),
            (409, false),
            (429, false),
            (500, false),
            (529, false),
        ] {
            let status = StatusCode::from_u16(status).ok();
            let error = ControlPlaneError { message: String::new(), status, retry_after: None };
            assert_eq!(error.is_fatal(), fatal, "{status:?}");
        }
        assert!(!ControlPlaneError::unreachable(String::new()).is_fatal());
    }
}
