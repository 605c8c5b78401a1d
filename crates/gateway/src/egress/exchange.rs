//! A request or tunnel: its description, the bytes transferred, its outcome. It is recorded when
//! the last part of it has passed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Instant;

use api::{AuditEvent, AuditOutcome};
use hyper::StatusCode;
use node::clock;
use node::cluster::AmountRefusal;
use node::task::Boxed;
use node::traces::TraceContext;
use parking_lot::Mutex;

use super::accounts::GrantAccount;
use crate::config::HttpLimits;
use crate::doors::{AuditSink, GatewayEvent};

/// Direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteDirection {
    /// Out of the sandbox.
    Out,
    /// Into it.
    In,
}

/// Usage of one grant, and its limits.
#[derive(Debug)]
pub(super) struct GrantUsage {
    requests_max: Option<u64>,
    bytes_max: Option<u64>,
    account: Arc<GrantAccount>,
}

impl GrantUsage {
    pub(super) fn new(limits: HttpLimits, account: Arc<GrantAccount>) -> GrantUsage {
        // 0 means no limit.
        let [requests_max, bytes_max] =
            [limits.requests, limits.bytes].map(|limit| Some(limit).filter(|limit| *limit != 0));
        GrantUsage { requests_max, bytes_max, account }
    }

    /// Counts one more request; fails with the limit that does not allow it.
    pub(super) async fn request(&self) -> Result<(), LimitRefusal> {
        let GrantAccount { requests, bytes } = &*self.account;
        // Concurrently, because each of them may have to wait for the store.
        let (bytes, requests) =
            tokio::join!(bytes.check_left(self.bytes_max), requests.take(1, self.requests_max));
        bytes.map_err(|refusal| LimitRefusal::new(&OF_BYTES, refusal))?;
        requests.map_err(|refusal| LimitRefusal::new(&OF_REQUESTS, refusal))
    }

    /// Returns whether `count` more bytes may pass, as far as known.
    pub(super) fn has_room(&self, count: u64) -> bool {
        !self.account.bytes.would_exceed(count, self.bytes_max)
    }

    /// Counts bytes, or rejects them. `None` if the store has to be queried.
    fn try_bytes(&self, count: u64) -> Option<Result<(), LimitRefusal>> {
        let taken = self.account.bytes.try_take(count, self.bytes_max)?;
        Some(taken.map_err(|refusal| self.refuse_bytes(count, refusal)))
    }

    async fn bytes(&self, count: u64) -> Result<(), LimitRefusal> {
        let taken = self.account.bytes.take(count, self.bytes_max).await;
        taken.map_err(|refusal| self.refuse_bytes(count, refusal))
    }

    fn refuse_bytes(&self, count: u64, refusal: AmountRefusal) -> LimitRefusal {
        if refusal == AmountRefusal::UsedUp {
            // The bytes were received, and any further ones exceed the limit as well.
            self.account.bytes.charge(count);
        }
        LimitRefusal::new(&OF_BYTES, refusal)
    }
}

/// Reason why a limit of the grant is exceeded, or its usage unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub(super) struct LimitRefusal {
    /// A line that names the limit.
    pub(super) why: &'static str,
    /// True if the failure is temporary.
    pub(super) is_store_away: bool,
}

/// Lines about one limit of a grant.
struct LimitWords {
    used_up: &'static str,
    held_elsewhere: &'static str,
    store_away: &'static str,
}

const OF_REQUESTS: LimitWords = LimitWords {
    used_up: "requests: the grant's limit is reached",
    held_elsewhere: "requests: another server holds the rest of the grant's limit; try again",
    store_away: "requests: the store, which keeps the grant's usage, cannot be reached; try \
                 again",
};

const OF_BYTES: LimitWords = LimitWords {
    used_up: "bytes: the grant's limit is reached",
    held_elsewhere: "bytes: another server holds the rest of the grant's limit; try again",
    store_away: "bytes: the store, which keeps the grant's usage, cannot be reached; try \
                 again",
};

impl LimitRefusal {
    fn new(words: &LimitWords, refusal: AmountRefusal) -> LimitRefusal {
        let why = match refusal {
            AmountRefusal::UsedUp => words.used_up,
            AmountRefusal::HeldElsewhere => words.held_elsewhere,
            AmountRefusal::StoreAway => words.store_away,
        };
        LimitRefusal { why, is_store_away: refusal == AmountRefusal::StoreAway }
    }
}

/// A request or tunnel.
pub(super) struct ProxyExchange {
    text: String,
    /// Trace context that the program has sent.
    trace: Option<TraceContext>,
    /// Status of the response; 0 without one.
    status: AtomicU16,
    witness: Arc<dyn AuditSink>,
    usage: Arc<GrantUsage>,
    started: Instant,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    end: Mutex<Option<(AuditOutcome, String)>>,
}

impl fmt::Debug for ProxyExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("text", &self.text).finish_non_exhaustive()
    }
}

impl ProxyExchange {
    pub(super) fn new(
        text: String,
        trace: Option<TraceContext>,
        witness: Arc<dyn AuditSink>,
        usage: Arc<GrantUsage>,
    ) -> ProxyExchange {
        ProxyExchange {
            text,
            trace,
            status: AtomicU16::new(0),
            witness,
            usage,
            started: clock::now(),
            bytes_out: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            end: Mutex::default(),
        }
    }

    /// Counts bytes that are about to pass. `None` if the store has to be queried first, which
    /// [`ProxyExchange::take_bytes`] does.
    pub(super) fn try_count(
        &self,
        way: ByteDirection,
        bytes: usize,
    ) -> Option<Result<(), LimitRefusal>> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let counter = if way == ByteDirection::Out { &self.bytes_out } else { &self.bytes_in };
        counter.fetch_add(bytes, Ordering::Relaxed);
        self.usage.try_bytes(bytes)
    }

    /// Waits for the store's decision whether the bytes may pass, and counts them.
    pub(super) fn take_bytes(&self, bytes: usize) -> Boxed<'static, Result<(), LimitRefusal>> {
        let (usage, bytes) = (Arc::clone(&self.usage), u64::try_from(bytes).unwrap_or(u64::MAX));
        Box::pin(async move { usage.bytes(bytes).await })
    }

    /// Records the status of the response.
    pub(super) fn answered(&self, status: StatusCode) {
        self.status.store(status.as_u16(), Ordering::Relaxed);
    }

    /// Records a rejection.
    pub(super) fn refused(&self, why: &str) {
        self.ended(AuditOutcome::Refused, why);
    }

    /// Records a failure of the outgoing connection.
    pub(super) fn failed(&self, why: &str) {
        self.ended(AuditOutcome::Failed, why);
    }

    /// Records the outcome; the first cause is kept.
    fn ended(&self, outcome: AuditOutcome, why: &str) {
        self.end.lock().get_or_insert_with(|| (outcome, why.to_owned()));
    }
}

impl Drop for ProxyExchange {
    fn drop(&mut self) {
        let end = self.end.get_mut().take();
        let outcome = end.as_ref().map_or(AuditOutcome::Done, |(outcome, _)| *outcome);
        let happening = GatewayEvent {
            text: Some(&self.text),
            error: end.as_ref().map(|(_, why)| why.as_str()),
            took: clock::now().saturating_duration_since(self.started),
            bytes_out: Some(*self.bytes_out.get_mut()),
            bytes_in: Some(*self.bytes_in.get_mut()),
            trace: self.trace.as_ref(),
            status: Some(*self.status.get_mut()).filter(|status| *status > 0),
            ..GatewayEvent::new(AuditEvent::Request, outcome)
        };
        self.witness.saw(&happening);
    }
}
