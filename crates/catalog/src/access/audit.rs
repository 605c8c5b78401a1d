//! The audit log: every requested change and every rejection, with its outcome.
//!
//! Lines are buffered in memory, up to a number, and written in batches in the background: logging
//! never delays a request, and lines that do not fit are counted. A line contains no secrets:
//! nothing of a body, a header or a query.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use node::clock;
use parking_lot::Mutex;
use serde::Serialize;

use super::{AccessControl, only_operators};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::page::{PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX};
use crate::principal::CatalogPrincipal;

/// Most buffered lines.
pub const WAITING_MAX: usize = 10_000;

/// Most lines per second about unauthenticated clients, which could otherwise fill the buffer.
pub const STRANGERS_PER_SECOND_MAX: u32 = 20;

/// Interval at which lines are written.
pub const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// Most lines of one transaction.
pub(super) const BATCH: usize = 500;

/// Longest path in a line, in characters.
const PATH_CHARS_MAX: usize = 500;

/// Limits of the audit log.
#[derive(Clone, Copy, Debug)]
pub struct CatalogAuditLimits {
    /// Time for which a line is kept; zero disables the log.
    pub age: Duration,
    /// Most lines.
    pub lines_max: u64,
}

impl Default for CatalogAuditLimits {
    fn default() -> CatalogAuditLimits {
        CatalogAuditLimits { age: Duration::from_secs(90 * 24 * 3600), lines_max: 1_000_000 }
    }
}

/// Origin and target of a request.
#[derive(Clone, Debug, Default)]
pub struct RequestOrigin {
    /// Id that the server assigned to the request.
    pub request: Option<Arc<str>>,
    /// Remote address of its connection.
    pub address: Option<SocketAddr>,
    /// Path of the request, without a query.
    pub path: String,
}

/// Line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct AuditLine {
    /// Sequence number, which rises with every line; 0 before the line is stored.
    pub seq: i64,
    /// Time of the request (RFC 3339).
    pub at: String,
    /// Time of the request, in milliseconds since 1970.
    pub at_ms: u64,
    /// Principal; `None` for an unauthenticated client.
    pub principal: Option<String>,
    /// Display name of the principal.
    pub name: Option<String>,
    /// Id of the API key that the principal authenticated with.
    pub key: Option<String>,
    /// Operation.
    pub operation: String,
    /// Path.
    pub path: String,
    /// `done`, `refused` or `failed`.
    pub outcome: &'static str,
    /// HTTP status of the response.
    pub status: u16,
    /// Type of the error.
    pub refusal: Option<String>,
    /// Id of the request in the server's log.
    pub request_id: Option<String>,
    /// IP address of the client.
    pub address: Option<String>,
}

/// Filter of lines. Empty and absent fields match every line.
#[derive(Clone, Debug, Default)]
pub struct CatalogAuditFilter {
    /// Principal.
    pub principal: String,
    /// Operation.
    pub operation: String,
    /// Prefix of the path.
    pub path: String,
    /// `done`, `refused` or `failed`.
    pub outcome: Option<&'static str>,
    /// Earliest time, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// Time before which a line was written, in milliseconds since 1970.
    pub until_ms: Option<u64>,
    /// Exclusive upper bound of the sequence number.
    pub before: Option<i64>,
    /// Largest number of lines.
    pub size: Option<usize>,
}

/// Page of lines, newest first.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct AuditPage {
    /// The lines.
    pub lines: Vec<AuditLine>,
    /// Token of the next page.
    pub next_page_token: Option<String>,
    /// Lines that did not fit since the server started.
    pub left_out: u64,
}

/// Outcomes, with the statuses of each.
const OUTCOMES: [(&str, u16, u16); 3] =
    [("done", 0, 399), ("refused", 400, 499), ("failed", 500, u16::MAX)];

/// Returns the outcome of a request with this status.
pub(super) fn outcome(status: u16) -> &'static str {
    let found = OUTCOMES.iter().find(|(_, from, to)| (*from..=*to).contains(&status));
    found.map_or("failed", |(name, ..)| name)
}

/// Returns the statuses of an outcome; all statuses without an outcome.
pub(super) fn statuses(outcome: Option<&str>) -> (u16, u16) {
    let found = OUTCOMES.iter().find(|(name, ..)| Some(*name) == outcome);
    found.map_or((0, u16::MAX), |(_, from, to)| (*from, *to))
}

impl CatalogAuditFilter {
    /// Returns the outcome of this name.
    ///
    /// # Errors
    /// `BadRequest` if there is none.
    pub fn outcome_of(name: &str) -> Result<&'static str> {
        let found = OUTCOMES.iter().find(|(known, ..)| *known == name).map(|(known, ..)| *known);
        found.ok_or_else(|| {
            CatalogError::new(ErrorReason::BadRequest, "`outcome` is `done`, `refused` or `failed`")
        })
    }

    pub(super) fn limit(&self) -> usize {
        self.size.unwrap_or(PAGE_SIZE_DEFAULT).clamp(1, PAGE_SIZE_MAX)
    }
}

/// Buffered lines.
#[derive(Debug)]
pub(super) struct CatalogAudit {
    pub(super) limits: CatalogAuditLimits,
    waiting: Mutex<Vec<AuditLine>>,
    left_out: AtomicU64,
    /// The present second since 1970, and its number of lines about unauthenticated clients.
    strangers: Mutex<(u64, u32)>,
    /// Held while lines are written, so that readers wait for the write.
    writing: tokio::sync::Mutex<()>,
}

impl CatalogAudit {
    pub(super) fn new(limits: CatalogAuditLimits) -> CatalogAudit {
        CatalogAudit {
            limits,
            waiting: Mutex::default(),
            left_out: AtomicU64::new(0),
            strangers: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
        }
    }

    /// Buffers a line, or counts it as lost.
    fn put(&self, line: AuditLine) {
        if line.principal.is_none() && !self.has_room_for_stranger(line.at_ms / 1000) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut waiting = self.waiting.lock();
        if waiting.len() >= WAITING_MAX {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.push(line);
    }

    fn has_room_for_stranger(&self, second: u64) -> bool {
        let mut strangers = self.strangers.lock();
        if strangers.0 != second {
            *strangers = (second, 0);
        }
        strangers.1 = strangers.1.saturating_add(1);
        strangers.1 <= STRANGERS_PER_SECOND_MAX
    }

    fn take(&self) -> Vec<AuditLine> {
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Puts back lines that could not be written, as far as there is space.
    fn put_back(&self, mut lines: Vec<AuditLine>) {
        let mut waiting = self.waiting.lock();
        let room = WAITING_MAX.saturating_sub(waiting.len());
        let lost = lines.len().saturating_sub(room);
        self.left_out.fetch_add(lost.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
        lines.drain(..lost);
        lines.append(&mut waiting);
        *waiting = lines;
    }
}

/// The audit log.
#[derive(Clone, Copy, Debug)]
pub struct AccessAudit<'a>(pub(super) &'a AccessControl);

impl AccessAudit<'_> {
    /// Buffers a line for the outcome of a request.
    pub(crate) fn audit(
        self,
        who: Option<&CatalogPrincipal>,
        operation: String,
        origin: RequestOrigin,
        status: u16,
        refusal: Option<&'static str>,
    ) {
        if self.0.0.audit.limits.age.is_zero() {
            return;
        }
        let at_ms = clock::wall_ms();
        let text = |it: &Arc<str>| it.to_string();
        let claims = who.and_then(|it| it.claims.as_ref());
        self.0.0.audit.put(AuditLine {
            seq: 0,
            at: String::new(),
            at_ms,
            principal: who.map(|it| text(&it.id)),
            name: who.map(|it| text(&it.name)),
            key: claims.and_then(|it| it.key.as_ref()).map(ToString::to_string),
            operation,
            path: origin.path.chars().take(PATH_CHARS_MAX).collect(),
            outcome: outcome(status),
            status,
            refusal: refusal.map(str::to_owned),
            request_id: origin.request.as_ref().map(text),
            address: origin.address.map(|it| it.ip().to_canonical().to_string()),
        });
    }

    /// Writes buffered lines.
    ///
    /// # Errors
    /// If the store cannot be written. The lines are buffered again.
    pub async fn write_audit(self) -> Result<()> {
        let _lock = self.0.0.audit.writing.lock().await;
        let mut lines = self.0.0.audit.take();
        while !lines.is_empty() {
            let rest = lines.split_off(lines.len().min(BATCH));
            if let Err(error) = self.0.0.store.write_audit(lines.clone()).await {
                lines.extend(rest);
                self.0.0.audit.put_back(lines);
                return Err(error);
            }
            lines = rest;
        }
        Ok(())
    }

    /// Returns matching lines, newest first.
    ///
    /// # Errors
    /// `Forbidden` if the caller is no operator.
    pub async fn audit_lines(
        self,
        who: &CatalogPrincipal,
        filter: CatalogAuditFilter,
    ) -> Result<AuditPage> {
        only_operators(who)?;
        self.write_audit().await?;
        let limit = filter.limit();
        let mut lines = self.0.0.store.audit(filter).await?;
        let is_more = lines.len() > limit;
        lines.truncate(limit);
        let last = lines.last().filter(|_| is_more);
        let next_page_token = last.map(|line| line.seq.to_string());
        let left_out = self.0.0.audit.left_out.load(Ordering::Relaxed);
        Ok(AuditPage { lines, next_page_token, left_out })
    }

    /// Removes lines that are too old or too many.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(super) async fn shorten_audit(self) -> Result<()> {
        let CatalogAuditLimits { age, lines_max } = self.0.0.audit.limits;
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        self.0.0.store.shorten_audit(clock::wall_ms().saturating_sub(age_ms), lines_max).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(principal: Option<&str>, at_ms: u64) -> AuditLine {
        AuditLine {
            seq: 0,
            at: String::new(),
            at_ms,
            principal: principal.map(str::to_owned),
            name: None,
            key: None,
            operation: "drop-table".to_owned(),
            path: "/x".to_owned(),
            outcome: "done",
            status: 204,
            refusal: None,
            request_id: None,
            address: None,
        }
    }

    #[test]
    fn what_does_not_fit_is_counted_and_strangers_take_no_room_of_others() {
        let audit = CatalogAudit::new(CatalogAuditLimits::default());
        let most = STRANGERS_PER_SECOND_MAX;
        for _ in 0..most + 5 {
            audit.put(line(None, 1000));
        }
        assert_eq!(audit.waiting.lock().len(), usize::try_from(most).unwrap());
        assert_eq!(audit.left_out.load(Ordering::Relaxed), 5);
        audit.put(line(None, 2000));
        let lines = audit.take();
        assert_eq!(lines.len(), usize::try_from(most).unwrap() + 1);
        for _ in 0..WAITING_MAX + 1 {
            audit.put(line(Some("a"), 2000));
        }
        assert_eq!(audit.left_out.load(Ordering::Relaxed), 6);
        let mut written = audit.take();
        audit.put(line(Some("b"), 3000));
        written[0].at_ms = 1;
        audit.put_back(written);
        let waiting = audit.take();
        assert_eq!((waiting.len(), waiting[0].at_ms), (WAITING_MAX, 2000));
        assert_eq!(waiting.last().unwrap().principal.as_deref(), Some("b"));
        assert_eq!(audit.left_out.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn an_outcome_is_what_a_status_says() {
        for (status, expected) in
            [(200, "done"), (304, "done"), (403, "refused"), (499, "refused"), (503, "failed")]
        {
            assert_eq!(outcome(status), expected);
            let (from, to) = statuses(Some(expected));
            assert!((from..=to).contains(&status));
        }
        assert_eq!(statuses(None), (0, u16::MAX));
        assert!(CatalogAuditFilter::outcome_of("lost").is_err());
    }
}
