//! Errors that servers sent to clients, counted by code.
//!
//! A client can choose codes (`RAISE … USING ERRCODE`, `SIGNAL SQLSTATE`), so the number of
//! distinct codes is limited. A reply without an error costs nothing here.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/errcodes-appendix.html>
//! - <https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html>

use std::collections::BTreeMap;
use std::fmt;

/// Maximum distinct codes of one tenant. Errors with further codes are counted together.
pub const ERROR_CODES_MAX: usize = 64;

/// Name under which errors of codes beyond [`ERROR_CODES_MAX`] are counted.
const OTHER_ERRORS: &str = "other";

/// Code of an error, in the form of its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerErrorCode {
    /// SQLSTATE of PostgreSQL.
    SqlState([u8; 5]),
    /// Error number of MySQL.
    Number(u16),
}

impl ServerErrorCode {
    /// Returns the code of a text that [`wire::pg::notice::ServerNotice::code`] has checked.
    pub(crate) fn sql_state(code: &str) -> Option<ServerErrorCode> {
        code.as_bytes().try_into().ok().map(ServerErrorCode::SqlState)
    }
}

impl fmt::Display for ServerErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerErrorCode::SqlState(code) => f.write_str(&String::from_utf8_lossy(code)),
            ServerErrorCode::Number(code) => write!(f, "{code}"),
        }
    }
}

/// Number of errors, by code. Allocates with the first error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorTally {
    codes: BTreeMap<ServerErrorCode, u64>,
    /// Errors whose codes exceed the maximum.
    others: u64,
}

impl ErrorTally {
    /// Returns whether it contains no errors.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty() && self.others == 0
    }

    /// Counts `count` errors of a code.
    pub fn add(&mut self, code: ServerErrorCode, count: u64) {
        let has_room = self.codes.len() < ERROR_CODES_MAX;
        let sum = match self.codes.get_mut(&code) {
            Some(sum) => sum,
            None if has_room => self.codes.entry(code).or_default(),
            None => &mut self.others,
        };
        *sum = sum.saturating_add(count);
    }

    /// Adds the counts of another tally.
    pub fn absorb(&mut self, other: &ErrorTally) {
        for (code, count) in &other.codes {
            self.add(*code, *count);
        }
        self.others = self.others.saturating_add(other.others);
    }

    /// Returns the total number of errors.
    pub fn count(&self) -> u64 {
        self.codes.values().fold(self.others, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the counts by the texts of their codes, including [`OTHER_ERRORS`] if there are any.
    pub fn by_text(&self) -> BTreeMap<String, u64> {
        let codes = self.codes.iter().map(|(code, count)| (code.to_string(), *count));
        let others = (self.others > 0).then(|| (OTHER_ERRORS.to_owned(), self.others));
        codes.chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_beyond_the_limit_are_counted_together() {
        let mut tally = ErrorTally::default();
        assert!(tally.is_empty());
        let codes = u16::try_from(ERROR_CODES_MAX).unwrap();
        for number in 0..codes + 3 {
            tally.add(ServerErrorCode::Number(1000 + number), 1);
        }
        tally.add(ServerErrorCode::Number(1000), 4);
        let mut sum = tally.clone();
        sum.absorb(&tally);
        for (tally, times) in [(tally, 1), (sum, 2)] {
            let texts = tally.by_text();
            assert_eq!(texts.len(), ERROR_CODES_MAX + 1);
            assert_eq!(texts["1000"], 5 * times);
            assert_eq!(texts["1001"], times);
            assert_eq!(texts[OTHER_ERRORS], 3 * times);
        }
    }

    #[test]
    fn a_code_is_shown_as_its_protocol_writes_it() {
        let mut tally = ErrorTally::default();
        tally.add(ServerErrorCode::sql_state("40P01").unwrap(), 2);
        assert_eq!(tally.by_text(), BTreeMap::from([("40P01".to_owned(), 2)]));
        assert_eq!(ServerErrorCode::sql_state("4001"), None);
    }
}
