//! A request or tunnel: what it is called, how much of it passed, how it ended. It is written down
//! when the last part of it is gone.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Instant;

use api::{AuditEvent, AuditOutcome};
use hyper::StatusCode;
use node::clock;
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
    limits: HttpLimits,
    account: Arc<GrantAccount>,
}

impl GrantUsage {
    pub(super) fn new(limits: HttpLimits, account: Arc<GrantAccount>) -> GrantUsage {
        GrantUsage { limits, account }
    }

    /// Counts one more request; the limit that is reached when it may not be made.
    pub(super) fn request(&self) -> Result<(), &'static str> {
        if is_over(self.account.bytes.load(Ordering::Relaxed), self.limits.bytes) {
            return Err("bytes: the grant's limit is reached");
        }
        let before = self.account.requests.fetch_add(1, Ordering::Relaxed);
        if is_over(before.saturating_add(1), self.limits.requests) {
            return Err("requests: the grant's limit is reached");
        }
        Ok(())
    }

    /// Returns whether so many bytes may still pass.
    pub(super) fn has_room(&self, count: u64) -> bool {
        !is_over(
            self.account.bytes.load(Ordering::Relaxed).saturating_add(count),
            self.limits.bytes,
        )
    }

    fn bytes(&self, count: u64) -> bool {
        let before = self.account.bytes.fetch_add(count, Ordering::Relaxed);
        !is_over(before.saturating_add(count), self.limits.bytes)
    }
}

/// 0 is for no limit.
fn is_over(used: u64, limit: u64) -> bool {
    limit != 0 && used > limit
}

/// A request or tunnel.
pub(super) struct ProxyExchange {
    text: String,
    /// Context of a trace that the program has sent.
    trace: Option<TraceContext>,
    /// Status of the answer; 0 without one.
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

    /// Counts bytes that passed. False when that is more than the grant may have.
    pub(super) fn count(&self, way: ByteDirection, bytes: usize) -> bool {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let counter = if way == ByteDirection::Out { &self.bytes_out } else { &self.bytes_in };
        counter.fetch_add(bytes, Ordering::Relaxed);
        self.usage.bytes(bytes)
    }

    /// Notes the status of the answer.
    pub(super) fn answered(&self, status: StatusCode) {
        self.status.store(status.as_u16(), Ordering::Relaxed);
    }

    /// Records a refusal.
    pub(super) fn refused(&self, why: &str) {
        self.ended(AuditOutcome::Refused, why);
    }

    /// Records a failure outside, or on the way.
    pub(super) fn failed(&self, why: &str) {
        self.ended(AuditOutcome::Failed, why);
    }

    /// Records the end; the first cause counts.
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
