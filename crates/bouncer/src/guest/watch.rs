//! What a guest says and is told, statement by statement.
//!
//! A watch reads along: the bytes that a client sent and the link took, and those that it gets. It
//! changes nothing but the end of an answer that is too long. From that it knows which statement
//! an answer is to, how many rows it had, how long it took and whether it failed; and when an
//! answer is longer than it may be.

mod frames;
mod mysql;
mod pg;

use std::sync::Arc;
use std::time::Duration;

use wire::mask::{Dialect, mask};
use wire::mysql::capabilities::Capabilities;
use wire::pg::message::{ErrorFields, backend};

use self::mysql::MyWatch;
use self::pg::PgWatch;
use super::{Deed, Guest, TEXT_BYTES_MAX, Texts};
use crate::link::put_mysql_error;

/// Why a guest's connection has to end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    /// A statement returned more rows than it may.
    #[error("the statement returned more than {0} rows, which is the limit of the grant")]
    Rows(u64),
    /// Its rows had more bytes than they may.
    #[error("the statement returned more than {0} bytes, which is the limit of the grant")]
    Bytes(u64),
    /// The answers could not be followed, so that no limit holds.
    #[error("the answer of the server could not be followed")]
    Blind,
}

impl Violation {
    /// What clients match on.
    pub(crate) fn sqlstate(&self) -> &'static str {
        match self {
            // configuration_limit_exceeded
            Violation::Rows(_) | Violation::Bytes(_) => "53400",
            Violation::Blind => "XX000",
        }
    }
}

/// A statement whose answer is not complete.
#[derive(Debug)]
struct Pending {
    /// As it was sent, or the beginning of it.
    text: Arc<[u8]>,
    begun_us: u64,
    rows: u64,
    bytes: u64,
    /// How it failed.
    error: Option<String>,
}

impl Pending {
    fn new(text: Arc<[u8]>, begun_us: u64) -> Pending {
        Pending { text, begun_us, rows: 0, bytes: 0, error: None }
    }
}

/// What both protocols have in common.
#[derive(Debug)]
struct Reporter {
    guest: Arc<Guest>,
    dialect: Dialect,
    begun_us: u64,
    now_us: u64,
    sent: u64,
    received: u64,
    /// Room for masked texts, used again and again.
    masked: Vec<u8>,
}

impl Reporter {
    /// Another row of an answer.
    fn row(&self, pending: &mut Pending, bytes: usize) -> Result<(), Violation> {
        pending.rows += 1;
        pending.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
        let spec = self.guest.spec();
        match (spec.rows_max, spec.bytes_max) {
            (Some(max), _) if pending.rows > max => Err(Violation::Rows(max)),
            (_, Some(max)) if pending.bytes > max => Err(Violation::Bytes(max)),
            _ => Ok(()),
        }
    }

    /// The answer to a statement has ended, or never will.
    fn ended(&mut self, pending: &Pending) {
        let spec = self.guest.spec();
        let text = match spec.texts {
            Texts::None => None,
            Texts::Full => Some(&*pending.text),
            Texts::Masked => {
                self.masked.clear();
                mask(self.dialect, &pending.text, TEXT_BYTES_MAX, &mut self.masked);
                Some(self.masked.as_slice())
            }
        };
        let text = text.map(String::from_utf8_lossy);
        spec.witness.saw(Deed::Statement {
            text: text.as_deref(),
            took: Duration::from_micros(self.now_us.saturating_sub(pending.begun_us)),
            rows: pending.rows,
            bytes: pending.bytes,
            error: pending.error.as_deref(),
        });
    }

    /// An error as it is told: its sentence may have values in it.
    fn error(&self, code: &str, sentence: &str) -> String {
        match self.guest.spec().texts {
            Texts::Full => format!("{code}: {sentence}"),
            Texts::None | Texts::Masked => code.to_owned(),
        }
    }
}

/// What becomes of what a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It is sent as it is.
    Good,
    /// What is left of it is the last that it gets.
    Violation,
}

/// Reads along with one connection of a guest, and tells its witness.
#[derive(Debug)]
pub(crate) struct Watch {
    reporter: Reporter,
    protocol: Protocol,
    violation: Option<Violation>,
}

#[derive(Debug)]
enum Protocol {
    Pg(Box<PgWatch>),
    My(Box<MyWatch>),
}

impl Watch {
    fn new(guest: &Arc<Guest>, dialect: Dialect, protocol: Protocol, now_us: u64) -> Box<Watch> {
        guest.spec().witness.saw(Deed::Connected);
        let reporter = Reporter {
            guest: Arc::clone(guest),
            dialect,
            begun_us: now_us,
            now_us,
            sent: 0,
            received: 0,
            masked: Vec::new(),
        };
        Box::new(Watch { reporter, protocol, violation: None })
    }

    /// Of a client of PostgreSQL that was told it is in.
    pub(crate) fn pg(guest: &Arc<Guest>, now_us: u64) -> Box<Watch> {
        Watch::new(guest, Dialect::Postgres, Protocol::Pg(Box::default()), now_us)
    }

    /// Of a client of MySQL that was told it is in, and agreed on these capabilities.
    pub(crate) fn mysql(guest: &Arc<Guest>, capabilities: Capabilities, now_us: u64) -> Box<Watch> {
        let protocol = Protocol::My(Box::new(MyWatch::new(capabilities)));
        Watch::new(guest, Dialect::Mysql, protocol, now_us)
    }

    /// The client has sent this, and it was taken.
    pub(crate) fn sent(&mut self, bytes: &[u8], now_us: u64) {
        let Watch { reporter, protocol, .. } = self;
        reporter.now_us = now_us;
        reporter.sent += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        match protocol {
            Protocol::Pg(watch) => watch.sent(bytes, now_us),
            Protocol::My(watch) => watch.sent(bytes, now_us),
        }
    }

    /// The client gets this. If it may not, it gets less, and is told why it has to go: then it is
    /// [`Seen::Violation`], and again whenever it would get more.
    pub(crate) fn received(&mut self, bytes: &mut Vec<u8>, now_us: u64) -> Seen {
        if self.violation.is_some() {
            bytes.clear();
            return Seen::Violation;
        }
        let Watch { reporter, protocol, violation } = self;
        reporter.now_us = now_us;
        reporter.received += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let followed = match protocol {
            Protocol::Pg(watch) => watch.received(bytes, reporter),
            Protocol::My(watch) => watch.received(bytes, reporter),
        };
        let Err((taken, found)) = followed else { return Seen::Good };
        bytes.truncate(taken);
        let sentence = format!("terminating connection: {found}");
        let fields = ErrorFields::fatal(found.sqlstate(), &sentence);
        match protocol {
            Protocol::Pg(_) => backend::error(bytes, &fields),
            Protocol::My(watch) => put_mysql_error(&mut watch.next_seq(), &fields, bytes),
        }
        *violation = Some(found);
        Seen::Violation
    }

    /// Why it has to go.
    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Tells that it is sent away.
    pub(crate) fn refused(&self, reason: &str) {
        self.reporter.guest.spec().witness.saw(Deed::Refused(reason));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let reason = match &self.violation {
            Some(violation) => self.reporter.error(violation.sqlstate(), &violation.to_string()),
            None => "the connection ended before the answer".to_owned(),
        };
        let pending = match &mut self.protocol {
            Protocol::Pg(watch) => watch.take_pending(),
            Protocol::My(watch) => watch.take_pending(),
        };
        for mut statement in pending {
            statement.error.get_or_insert_with(|| reason.clone());
            self.reporter.ended(&statement);
        }
        let Reporter { guest, begun_us, now_us, sent, received, .. } = &self.reporter;
        guest.spec().witness.saw(Deed::Disconnected {
            took: Duration::from_micros(now_us.saturating_sub(*begun_us)),
            sent: *sent,
            received: *received,
        });
    }
}

#[cfg(test)]
mod tests;
