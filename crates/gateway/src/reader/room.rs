//! Size limits of one result: decides which rows are kept, and which are read and discarded. Pure.

use api::QueryLimit;

/// Default number of rows of a result.
pub(crate) const ROWS_DEFAULT: u32 = 1_000;

/// Most rows of a result.
pub(crate) const ROWS_MAX: u32 = 10_000;

/// Most bytes of values in a result, as the database sends them. JSON and Base64 enlarge them.
pub(crate) const RESULT_BYTES_MAX: usize = 4 << 20;

/// Bytes after the last kept row that are still read, so that an almost complete statement ends
/// normally. Beyond that the connection is closed, which ends the statement.
const REST_BYTES_MAX: usize = 1 << 20;

/// What to do with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowFate {
    /// Keep it.
    Keep,
    /// Read and discard it.
    Discard,
    /// Stop reading.
    Stop,
}

/// Remaining space for rows.
#[derive(Debug)]
pub(super) struct ResultRoom {
    rows: u32,
    bytes: usize,
    rest: usize,
    /// The limit that was reached.
    limit: Option<QueryLimit>,
}

impl ResultRoom {
    /// Creates limits for `rows` rows.
    pub(super) fn new(rows: u32) -> ResultRoom {
        ResultRoom { rows, bytes: RESULT_BYTES_MAX, rest: REST_BYTES_MAX, limit: None }
    }

    /// Returns the number of rows to request, if it can be set: one more than are kept, to detect
    /// whether there are more.
    pub(super) fn wanted(&self) -> u32 {
        self.rows.saturating_add(1)
    }

    /// Returns the limit that was reached, if one was.
    pub(super) fn limit(&self) -> Option<QueryLimit> {
        self.limit
    }

    /// Decides on a row of `bytes` bytes.
    pub(super) fn row(&mut self, bytes: usize) -> RowFate {
        if self.limit.is_none() {
            self.limit = match (self.rows, self.bytes.checked_sub(bytes)) {
                (0, _) => Some(QueryLimit::Rows),
                (_, None) => Some(QueryLimit::Bytes),
                (_, Some(left)) => {
                    self.rows -= 1;
                    self.bytes = left;
                    return RowFate::Keep;
                }
            };
        }
        match self.rest.checked_sub(bytes.max(1)) {
            Some(left) => {
                self.rest = left;
                RowFate::Discard
            }
            None => RowFate::Stop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_kept_then_thrown_away_then_not_read() {
        let mut room = ResultRoom::new(2);
        let fates: Vec<RowFate> = (0..4).map(|_| room.row(10)).collect();
        assert_eq!(fates, [RowFate::Keep, RowFate::Keep, RowFate::Discard, RowFate::Discard]);
        assert_eq!(room.limit(), Some(QueryLimit::Rows));
        assert_eq!(room.row(REST_BYTES_MAX), RowFate::Stop);
        let mut room = ResultRoom::new(2);
        assert_eq!(room.row(RESULT_BYTES_MAX + 1), RowFate::Stop);
        assert_eq!(room.limit(), Some(QueryLimit::Bytes));
    }

    #[test]
    fn a_result_that_fits_reaches_no_limit() {
        let mut room = ResultRoom::new(1);
        assert_eq!(room.row(RESULT_BYTES_MAX), RowFate::Keep);
        assert_eq!(room.limit(), None);
    }
}
