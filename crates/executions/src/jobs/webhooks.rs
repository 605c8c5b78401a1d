//! Notifies owners of the ends of their executions: signed, with retries, and never into a network
//! that only the server can reach.
//!
//! A delivery is durable: it becomes due in the same step that publishes the end, and is settled
//! only when the receiver has answered with 2xx or all attempts have failed. So a receiver may see
//! one twice; `webhook-id` identifies it.
//!
//! Signatures are those of Standard Webhooks 1.0 (standardwebhooks.com): `v1,` and the base64 of
//! HMAC-SHA-256 over `id.timestamp.body`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use hmac::{Hmac, Mac as _};
use node::client::{ClientRequest, HttpClient};
use node::clock;
use node::traces::{Span, SpanKind};
use sha2::Sha256;
use tokio::task::JoinSet;
use tokio::time;

use super::{Jobs, granted};
use crate::answers::AnswerPatience;
use crate::aside::aside;
use crate::error::ExecutionError;
use crate::faces::judge0;
use crate::queue::{JobParts, WebhookDelivery};

/// Interval of polls for deliveries that this server does not know of: those that another server
/// did not make. Deliveries that become due here trigger a poll.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of concurrent deliveries.
const DELIVERIES_MAX: usize = 256;
/// The pause after the first failure; it doubles with each.
const PAUSE: Duration = Duration::from_secs(2);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// Maximum bytes that are read of a receiver's answer, which is ignored.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Prefix of a secret in base64.
const SECRET_PREFIX: &str = "whsec_";

/// Sender of webhooks.
#[derive(Debug)]
pub(super) struct WebhookSender {
    pub(super) client: HttpClient,
    /// Key from which the tenants' keys are derived.
    pub(super) key: [u8; 32],
}

impl WebhookSender {
    /// Returns the key that a tenant's webhooks are signed with, unless a request has its own.
    pub(super) fn secret(&self, tenant: &str) -> String {
        let derived = mac(&self.key, &[b"webhook:", tenant.as_bytes()]);
        format!("{SECRET_PREFIX}{}", BASE64.encode(derived))
    }
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    // HMAC takes keys of any length (RFC 2104 §2).
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

/// Returns the value of `webhook-signature`.
pub(super) fn signature(secret: &str, id: &str, timestamp: u64, body: &[u8]) -> String {
    let decoded = secret.strip_prefix(SECRET_PREFIX).and_then(|text| BASE64.decode(text).ok());
    let key = decoded.unwrap_or_else(|| secret.as_bytes().to_vec());
    let timestamp = timestamp.to_string();
    let signed = mac(&key, &[id.as_bytes(), b".", timestamp.as_bytes(), b".", body]);
    format!("v1,{}", BASE64.encode(signed))
}

/// Returns the pause before the next attempt after a number of failures.
fn pause(failures: u32) -> Duration {
    PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(PAUSE_MAX)
}

/// Reason why a webhook was not sent: writing its body failed.
const UNWRITTEN: &str = "failed to write the body";

impl Jobs {
    /// Delivers due webhooks while it is polled.
    pub(super) async fn deliver_webhooks(&self) {
        let mut under_way = JoinSet::new();
        // Times of retries of this server that are before the next poll.
        let mut retries: BinaryHeap<Reverse<Instant>> = BinaryHeap::new();
        loop {
            while retries.peek().is_some_and(|Reverse(at)| *at <= clock::now()) {
                retries.pop();
            }
            let room = DELIVERIES_MAX - under_way.len();
            if room > 0 {
                // Hidden from other servers for the maximum duration of a delivery.
                let hide = self.inner.config.webhook_timeout() * 2 + LOOK_INTERVAL;
                match self.inner.queue.due_webhooks(room, hide, self.inner.queue.now_ms()).await {
                    Ok(due) => {
                        for delivery in due {
                            let jobs = self.clone();
                            under_way.spawn(async move { jobs.deliver(delivery).await });
                        }
                    }
                    Err(error) => {
                        tracing::error!(
                            error = &error as &dyn std::error::Error,
                            "webhooks that are due cannot be read"
                        );
                    }
                }
            }
            let wait = retries.peek().map_or(LOOK_INTERVAL, |Reverse(at)| {
                at.saturating_duration_since(clock::now()).min(LOOK_INTERVAL)
            });
            tokio::select! {
                () = self.inner.webhooks.notified(), if room > 0 => {}
                Some(tried) = under_way.join_next() => {
                    let pause = tried.ok().flatten().filter(|pause| *pause <= LOOK_INTERVAL);
                    retries.extend(pause.map(|pause| Reverse(clock::now() + pause)));
                }
                () = time::sleep(wait) => {}
            }
        }
    }

    /// Attempts one delivery and settles it. Returns the pause before the next attempt.
    async fn deliver(&self, delivery: WebhookDelivery) -> Option<Duration> {
        let WebhookDelivery { id, attempt } = delivery;
        let again = match self.send(&id, attempt).await {
            Ok(()) => None,
            Err(why) if attempt >= self.inner.config.webhook_attempts_max => {
                tracing::warn!(execution = %id, attempt, why, "a webhook is abandoned");
                None
            }
            Err(why) => {
                let pause = pause(attempt);
                tracing::info!(execution = %id, attempt, why, ?pause, "a webhook failed");
                Some(pause)
            }
        };
        let again_ms = again.map(|pause| {
            self.inner.queue.now_ms() + u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)
        });
        if let Err(error) = self.inner.queue.settle_webhook(id.clone(), again_ms).await {
            // It is due again when it is no longer hidden.
            let error = error.to_string();
            tracing::error!(execution = %id, error, "a webhook cannot be settled");
        }
        again
    }

    async fn send(&self, id: &api::ExecutionId, attempt: u32) -> Result<(), String> {
        let parts = JobParts { request: true, result: true };
        // The memory is held until the receiver has answered.
        let fetched = self.fetch_traced(None, id, parts, AnswerPatience::Caller).await;
        let (job, trace, _room) = match fetched {
            Ok(fetched) => fetched,
            // The job was removed meanwhile; then there is nothing to report.
            Err(ExecutionError::NotFound) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        let request = job.request.as_deref().unwrap_or_default();
        let request = granted::request(&self.inner.sender.key, &job.tenant, request)?;
        let Some(webhook) = request.webhook else { return Ok(()) };
        let secret = match webhook.secret {
            Some(secret) => secret,
            None => self.inner.sender.secret(&job.tenant),
        };
        // A face has its own form of a result; the native one stores nothing in `face`.
        let bytes = job.stored_bytes();
        let render = move || (judge0::callback_body(&job), job);
        let (method, body) = match aside(bytes, render).await.map_err(|_| UNWRITTEN)? {
            (Some(body), _) => (Method::PUT, body),
            (None, job) => {
                let document = self.webhook_body(job).await.map_err(|error| error.to_string())?;
                (Method::POST, document.into_bytes())
            }
        };
        let timestamp = self.inner.queue.now_ms() / 1000;
        let signed = id.0.clone();
        let sign = move || (signature(&secret, &signed, timestamp, &body), body);
        let (signature, body) = aside(bytes, sign).await.map_err(|_| UNWRITTEN)?;
        let mut request = ClientRequest::new(method, webhook.url);
        request.timeout = self.inner.config.webhook_timeout();
        request.response_bytes_max = ANSWER_BYTES_MAX;
        request.headers = headers(&[
            ("webhook-id", &id.0),
            ("webhook-timestamp", &timestamp.to_string()),
            ("webhook-signature", &signature),
            ("webhook-attempt", &attempt.to_string()),
        ]);
        request.body = Bytes::from(body);
        let scope = trace.zip(self.inner.service.tracer()).map(|(it, tracer)| it.scope(tracer));
        let mut span = scope.map_or_else(Span::none, |it| it.span("webhook", SpanKind::Client));
        span.set("cove.attempt", attempt);
        if let Some(scope) = span.scope() {
            scope.context().write(&mut request.headers);
        }
        let answer = self.inner.sender.client.send(request).await.map_err(|it| it.to_string());
        let answer = answer.inspect_err(|_| span.fail("no answer"))?;
        span.set("http.response.status_code", answer.status.as_u16());
        match answer.status {
            status if status.is_success() => Ok(()),
            status => {
                span.fail("refused by the receiver");
                Err(format!("the receiver answered {status}"))
            }
        }
    }
}

fn headers(own: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let agent = concat!("cove/", env!("CARGO_PKG_VERSION"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
    for (name, value) in own {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks specification's reference libraries.
    #[test]
    fn signatures_are_those_of_the_standard() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let body = br#"{"test": 2432232314}"#;
        let signed = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn pauses_grow_and_stop_growing() {
        let seconds: Vec<u64> = (1..=13).map(|failures| pause(failures).as_secs()).collect();
        assert_eq!(seconds, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600]);
        assert_eq!(pause(u32::MAX), PAUSE_MAX);
    }
}
