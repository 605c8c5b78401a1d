//! The traffic of a guest, statement by statement.
//!
//! A watch reads along: the bytes that a client sent and the link took, and those that it gets. It
//! changes nothing but the end of an answer that is too long. From that it knows which statement
//! an answer is to, how many rows it had, how long it took and whether it failed; and when an
//! answer is longer than it may be.

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

/// Why a guest's connection has to end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GuestViolation {
    /// A statement returned more rows than it may.
    #[error("the statement returned more than {0} rows, which is the limit of the grant")]
    Rows(u64),
    /// The answer had more bytes than allowed.
    #[error("the statement returned more than {0} bytes, which is the limit of the grant")]
    Bytes(u64),
    /// The answers could not be followed, so that no limit holds.
    #[error("the server's reply could not be parsed")]
    Blind,
}

impl GuestViolation {
    /// Returns what clients match on.
    pub(crate) fn sqlstate(&self) -> &'static str {
        match self {
            // configuration_limit_exceeded
            GuestViolation::Rows(_) | GuestViolation::Bytes(_) => "53400",
            GuestViolation::Blind => "XX000",
        }
    }
}

/// Size of answers.
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

/// An answer that has not ended.
#[derive(Debug, Default)]
struct OpenReply {
    counts: ReplyCounts,
    /// Size of answers before it that count as one with it: of the same portal or cursor.
    before: ReplyCounts,
    /// Error of the statement.
    error: Option<String>,
}

/// Reporting that both protocols have in common.
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
    /// More of an answer begins to come.
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

    /// The text that the scribe has read. If it cannot be kept until its answer comes, it is told
    /// now.
    fn text(&mut self) -> ReportedText {
        let (bytes, trace) = self.scribe.finish();
        if let Some(text) = self.ledger.text(bytes, trace) {
            return text;
        }
        let text = format!("{TOLD} {}", String::from_utf8_lossy(bytes));
        self.tell(&text, 0, None, &OpenReply::default());
        ReportedText::Missing(TOLD)
    }

    /// A statement may be run later, and it will not be known then which one it is.
    fn forget(&self, text: &ReportedText) {
        if text.tell() {
            let text = format!("{UNKNOWN} {}", String::from_utf8_lossy(text.bytes()));
            self.tell(&text, 0, None, &OpenReply::default());
        }
    }

    /// The answer to a statement has ended, or never will.
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

    /// An error as it is recorded: its message may contain values.
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
    /// A violation: the rest of it is the last that it gets.
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

    /// Creates the observer of a client of PostgreSQL that connected at `begun_us` and has logged
    /// in now.
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

    /// Creates the observer of a client of MySQL that has logged in likewise and agreed on these
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

    /// The client was in the queue for a server connection for this long.
    pub(crate) fn waited(&mut self, waited_us: u64) {
        let all = self.reporter.waited_us.get_mut();
        *all = all.saturating_add(waited_us);
    }

    /// The client has sent this, and it was taken.
    pub(crate) fn sent(&mut self, bytes: &[u8], now_us: u64) {
        let ConnectionObserver { reporter, protocol, .. } = self;
        reporter.now_us = now_us;
        reporter.sent += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        match protocol {
            ObservedProtocol::Pg(watch) => watch.sent(bytes, reporter),
            ObservedProtocol::My(watch) => watch.sent(bytes, reporter),
        }
    }

    /// The client gets this. If it may not, it gets less, and is told why it has to go: then it is
    /// [`ReplyAction::Violation`], and again whenever it would get more.
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
            // In the middle of a message nothing can be said.
            _ if !stop.is_between => {}
            ObservedProtocol::Pg(_) => backend::error(bytes, &fields),
            ObservedProtocol::My(watch) => put_mysql_error(&mut watch.next_seq(), &fields, bytes),
        }
        *violation = Some(found);
        ReplyAction::Violation
    }

    /// Forwards the client's bytes while the server's lease holds.
    ///
    /// # Errors
    /// When the lease has ended, and another server may have the sandbox's session.
    pub(crate) fn check_lease(&self) -> Result<(), LeaseLost> {
        self.reporter.guest.check_lease()
    }

    /// Why it has to go.
    pub(crate) fn violation(&self) -> Option<&GuestViolation> {
        self.violation.as_ref()
    }

    /// Reports that it is disconnected.
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
