//! A result set of the console: all columns are texts.

use wire::pg::frame::TransactionStatus;
use wire::pg::message::backend;

/// The type `text`.
const TEXT_OID: u32 = 25;

/// Columns with rows of values; `None` is null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    columns: &'static [&'static str],
    rows: Vec<Vec<Option<String>>>,
}

impl Table {
    /// Without rows.
    #[must_use]
    pub fn new(columns: &'static [&'static str]) -> Table {
        Table { columns, rows: Vec::new() }
    }

    /// Adds a row, which has a value for each column.
    pub fn push(&mut self, row: Vec<Option<String>>) {
        debug_assert_eq!(row.len(), self.columns.len(), "{:?}", self.columns);
        self.rows.push(row);
    }

    /// The same with other rows, for chains.
    #[must_use]
    pub fn with(mut self, rows: impl IntoIterator<Item = Vec<Option<String>>>) -> Table {
        rows.into_iter().for_each(|row| self.push(row));
        self
    }

    /// Writes it as the answer to one simple query, with what ends it.
    pub fn write(&self, out: &mut Vec<u8>) {
        let columns: Vec<_> = self.columns.iter().map(|name| (*name, TEXT_OID)).collect();
        backend::row_description(out, &columns);
        for row in &self.rows {
            let values: Vec<_> = row.iter().map(Option::as_deref).collect();
            backend::data_row(out, &values);
        }
        backend::command_complete(out, "SHOW");
        backend::ready_for_query(out, TransactionStatus::Idle);
    }
}

/// A value of a row.
pub(crate) fn of(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}
