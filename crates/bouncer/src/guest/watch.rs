//! Observation of a guest's traffic, statement by statement.
//!
//! The observer reads the bytes that a client sent and the link took, and those that the client
//! receives. It changes only the end of an answer that is too long. It determines which statement
//! an answer belongs to, its number of rows, its duration and its outcome, and whether an answer
//! exceeds its limits.

mod frames;
mod mysql;
mod pg;
mod texts;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use node::fence::LeaseLost;
use node::traces::TraceContext;
use pooler_core::link::put_mysql_error;
use wire::mask::SqlDialect;
use wire::mysql::capabilities::CapabilityFlags;
use wire::pg::message::{ErrorFields, backend};

use self::mysql::MyWatch;
use self::pg::PgWatch;
use self::texts::{ReportedText, TOLD, TextLedger, TextRecorder, UNKNOWN};
use super::client::{SandboxAction, SandboxClient, StatementDetail};

/// Why a guest's connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GuestViolation {
    /// A statement returned more rows than it may.
    #[error("the statement returned more than {0} rows, which is the limit of the grant")]
    Rows(u64),
    /// The answer had more bytes than allowed.
    #[error("the statement returned more than {0} bytes, which is the limit of the grant")]
    Bytes(u64),
    /// The answers could not be parsed, so that no limit can be enforced.
    #[error("the server's reply could not be parsed")]
    Blind,
}

impl GuestViolation {
    /// Returns the SQLSTATE that clients match on.
    pub(crate) fn sqlstate(&self) -> &'static str {
        match self {
            // configuration_limit_exceeded
            GuestViolation::Rows(_) | GuestViolation::Bytes(_) => "53400",
            GuestViolation::Blind => "XX000",
        }
    }
}

/// Size of a reply.
#[derive(Clone, Copy, Debug, Default)]
struct ReplyCounts {
    rows: u64,
    bytes: u64,
}

impl ReplyCounts {
    fn and(self, other: ReplyCounts) -> ReplyCounts {
        let bytes = self.bytes.saturating_add(other.bytes);
        ReplyCounts { rows: self.rows.saturating_add(other.rows), bytes }
    }
}

/// A reply that has not ended.
#[derive(Debug, Default)]
struct OpenReply {
    counts: ReplyCounts,
    /// Size of earlier answers that count together with it: those of the same portal or cursor.
    before: ReplyCounts,
    /// Error of the statement.
    error: Option<String>,
}

/// Reporting common to both protocols.
#[derive(Debug)]
struct ActionReporter {
    guest: Arc<SandboxClient>,
    scribe: TextRecorder,
    ledger: TextLedger,
    begun_us: u64,
    now_us: u64,
    /// Time in the queue for a server connection, not yet recorded with a statement.
    waited_us: Cell<u64>,
    sent: u64,
    received: u64,
}

impl ActionReporter {
    /// Counts a further part of an answer, and checks the limits.
    fn count(
        &self,
        answer: &mut OpenReply,
        is_row: bool,
        bytes: usize,
    ) -> Result<(), GuestViolation> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        answer.counts = answer.counts.and(ReplyCounts { rows: u64::from(is_row), bytes });
        let all = answer.counts.and(answer.before);
        let spec = self.guest.spec();
        match (spec.rows_max, spec.bytes_max) {
            (Some(max), _) if all.rows > max => Err(GuestViolation::Rows(max)),
            (_, Some(max)) if all.bytes > max => Err(GuestViolation::Bytes(max)),
            _ => Ok(()),
        }
    }

    /// Returns the text that the recorder has read. If it cannot be kept until its answer arrives,
    /// it is reported now.
    fn text(&mut self) -> ReportedText {
        let (bytes, trace) = self.scribe.finish();
        if let Some(text) = self.ledger.text(bytes, trace) {
            return text;
        }
        let text = format!("{TOLD} {}", String::from_utf8_lossy(bytes));
        self.tell(&text, 0, None, &OpenReply::default());
        ReportedText::Missing(TOLD)
    }

    /// Reports a statement that may be run later, when its text will not be known any more.
    fn forget(&self, text: &ReportedText) {
        if text.tell() {
            let text = format!("{UNKNOWN} {}", String::from_utf8_lossy(text.bytes()));
            self.tell(&text, 0, None, &OpenReply::default());
        }
    }

    /// Reports that the answer to a statement has ended, or will never arrive.
    fn ended(&self, text: &ReportedText, begun_us: u64, answer: &OpenReply) {
        text.tell();
        let took_us = self.now_us.saturating_sub(begun_us);
        self.tell(&String::from_utf8_lossy(text.bytes()), took_us, text.trace(), answer);
    }

    fn tell(&self, text: &str, took_us: u64, trace: Option<&TraceContext>, answer: &OpenReply) {
        let spec = self.guest.spec();
        spec.witness.saw(SandboxAction::Statement {
            text: Some(text).filter(|_| spec.texts != StatementDetail::None),
            took: Duration::from_micros(took_us),
            waited: Duration::from_micros(self.waited_us.take()),
            trace,
            rows: answer.counts.rows,
            bytes: answer.counts.bytes,
            error: answer.error.as_deref(),
        });
    }

    /// Formats an error for a record: its message may contain values.
    fn error(&self, code: &str, sentence: &str) -> String {
        match self.guest.spec().texts {
            StatementDetail::Full => format!("{code}: {sentence}"),
            StatementDetail::None | StatementDetail::Masked => code.to_owned(),
        }
    }
}

/// Action on bytes for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyAction {
    /// Sent unchanged.
    Good,
    /// A violation: the rest of these bytes is the last that the client receives.
    Violation,
}

/// Observes one connection of a guest, and reports its events to the observer.
#[derive(Debug)]
pub(crate) struct ConnectionObserver {
    reporter: ActionReporter,
    protocol: ObservedProtocol,
    violation: Option<GuestViolation>,
}

#[derive(Debug)]
enum ObservedProtocol {
    Pg(Box<PgWatch>),
    My(Box<MyWatch>),
}

impl ConnectionObserver {
    fn new(
        guest: &Arc<SandboxClient>,
        dialect: SqlDialect,
        protocol: ObservedProtocol,
        begun_us: u64,
        now_us: u64,
    ) -> Box<ConnectionObserver> {
        let took = Duration::from_micros(now_us.saturating_sub(begun_us));
        guest.spec().witness.saw(SandboxAction::Connected { took });
        let reporter = ActionReporter {
            guest: Arc::clone(guest),
            scribe: TextRecorder::new(guest.spec().texts, dialect, guest.spec().trace_comments),
            ledger: TextLedger::default(),
            begun_us: now_us,
            now_us,
            waited_us: Cell::new(0),
            sent: 0,
            received: 0,
        };
        Box::new(ConnectionObserver { reporter, protocol, violation: None })
    }

    /// Creates the observer of a client of PostgreSQL that connected at `begun_us` and has just
    /// logged in.
    pub(crate) fn pg(
        guest: &Arc<SandboxClient>,
        begun_us: u64,
        now_us: u64,
    ) -> Box<ConnectionObserver> {
        ConnectionObserver::new(
            guest,
            SqlDialect::Postgres,
            ObservedProtocol::Pg(Box::default()),
            begun_us,
            now_us,
        )
    }

    /// Creates the observer of a client of MySQL that has just logged in and agreed on these
    /// capabilities.
    pub(crate) fn mysql(
        guest: &Arc<SandboxClient>,
        capabilities: CapabilityFlags,
        begun_us: u64,
        now_us: u64,
    ) -> Box<ConnectionObserver> {
        let protocol = ObservedProtocol::My(Box::new(MyWatch::new(capabilities)));
        ConnectionObserver::new(guest, SqlDialect::Mysql, protocol, begun_us, now_us)
    }

    /// Records how long the client waited for a server connection.
    pub(crate) fn waited(&mut self, waited_us: u64) {
        let all = self.reporter.waited_us.get_mut();
        *all = all.saturating_add(waited_us);
    }

    /// Observes bytes that the client has sent and the link has taken.
    pub(crate) fn sent(&mut self, bytes: &[u8], now_us: u64) {
        let ConnectionObserver { reporter, protocol, .. } = self;
        reporter.now_us = now_us;
        reporter.sent += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        match protocol {
            ObservedProtocol::Pg(watch) => watch.sent(bytes, reporter),
            ObservedProtocol::My(watch) => watch.sent(bytes, reporter),
        }
    }

    /// Observes bytes for the client. On a violation they are cut and an error is appended; the
    /// result is then [`ReplyAction::Violation`], as for all later bytes.
    pub(crate) fn received(&mut self, bytes: &mut Vec<u8>, now_us: u64) -> ReplyAction {
        if self.violation.is_some() {
            bytes.clear();
            return ReplyAction::Violation;
        }
        let ConnectionObserver { reporter, protocol, violation } = self;
        reporter.now_us = now_us;
        reporter.received += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let followed = match protocol {
            ObservedProtocol::Pg(watch) => watch.received(bytes, reporter),
            ObservedProtocol::My(watch) => watch.received(bytes, reporter),
        };
        let Err((stop, found)) = followed else { return ReplyAction::Good };
        bytes.truncate(stop.taken);
        let sentence = format!("terminating connection: {found}");
        let fields = ErrorFields::fatal(found.sqlstate(), &sentence);
        match protocol {
            // In the middle of a message no error can be sent.
            _ if !stop.is_between => {}
            ObservedProtocol::Pg(_) => backend::error(bytes, &fields),
            ObservedProtocol::My(watch) => put_mysql_error(&mut watch.next_seq(), &fields, bytes),
        }
        *violation = Some(found);
        ReplyAction::Violation
    }

    /// Checks that the server's lease holds, so that the client's bytes may pass.
    ///
    /// # Errors
    /// When the lease has ended, and another server may have the sandbox's session.
    pub(crate) fn check_lease(&self) -> Result<(), LeaseLost> {
        self.reporter.guest.check_lease()
    }

    /// Returns the violation for which the connection must be closed.
    pub(crate) fn violation(&self) -> Option<&GuestViolation> {
        self.violation.as_ref()
    }

    /// Reports that it is disconnected for this reason.
    pub(crate) fn refused(&self, reason: &str) {
        self.reporter.guest.spec().witness.saw(SandboxAction::Refused(reason));
    }
}

impl Drop for ConnectionObserver {
    fn drop(&mut self) {
        let reason = match &self.violation {
            Some(violation) => self.reporter.error(violation.sqlstate(), &violation.to_string()),
            None => "the connection ended before the answer".to_owned(),
        };
        match &mut self.protocol {
            ObservedProtocol::Pg(watch) => watch.abandon(&self.reporter, &reason),
            ObservedProtocol::My(watch) => watch.abandon(&self.reporter, &reason),
        }
        let ActionReporter { guest, begun_us, now_us, sent, received, .. } = &self.reporter;
        guest.spec().witness.saw(SandboxAction::Disconnected {
            took: Duration::from_micros(now_us.saturating_sub(*begun_us)),
            sent: *sent,
            received: *received,
        });
    }
}

#[cfg(test)]
mod tests;
