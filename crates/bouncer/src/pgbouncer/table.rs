//! A result set of the console. Values are written as text; drivers read numbers by their type.

use wire::pg::frame::TransactionStatus;
use wire::pg::message::backend;

/// The types `text`, `int8` and `numeric`.
const TEXT_OID: u32 = 25;
const INT8_OID: u32 = 20;
const NUMERIC_OID: u32 = 1700;

/// Columns with whole numbers, in any table.
const NUMBERS: [&str; 44] = [
    "items",
    "port",
    "local_port",
    "wait",
    "wait_us",
    "close_needed",
    "remote_pid",
    "id",
    "min_pool_size",
    "server_lifetime",
    "max_connections",
    "current_connections",
    "max_client_connections",
    "current_client_connections",
    "max_user_connections",
    "max_user_client_connections",
    "paused",
    "disabled",
    "cl_active",
    "cl_waiting",
    "cl_active_cancel_req",
    "cl_waiting_cancel_req",
    "sv_active",
    "sv_active_cancel",
    "sv_being_canceled",
    "sv_idle",
    "sv_used",
    "sv_tested",
    "sv_login",
    "maxwait",
    "maxwait_us",
    "fd",
    "cancel",
    "size",
    "used",
    "free",
    "memtotal",
    "ttl",
    "serial",
    "count",
    "peer_id",
    "client_id",
    "server_id",
    "state_ms",
];

/// Returns the type of a column of a table whose first column is `first`.
fn type_of(first: &str, name: &str) -> u32 {
    match (first, name) {
        ("database", _) if name.starts_with("total_") || name.starts_with("avg_") => NUMERIC_OID,
        ("database", _) if name.ends_with("_count") || name.ends_with("_time") => NUMERIC_OID,
        ("database", "bytes_received" | "bytes_sent") => NUMERIC_OID,
        ("name", "value") => NUMERIC_OID,
        ("name", "host") => TEXT_OID,
        _ if NUMBERS.contains(&name) => INT8_OID,
        _ => TEXT_OID,
    }
}

/// A row: a value for each column; `None` is null.
pub(super) type TableRow = Vec<Option<String>>;

/// Columns with rows of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShowTable {
    columns: &'static [&'static str],
    rows: Vec<TableRow>,
}

impl ShowTable {
    /// Creates a table without rows.
    #[must_use]
    pub fn new(columns: &'static [&'static str]) -> ShowTable {
        ShowTable { columns, rows: Vec::new() }
    }

    /// Adds a row, which has a value for each column.
    pub fn push(&mut self, row: TableRow) {
        debug_assert_eq!(row.len(), self.columns.len(), "{:?}", self.columns);
        self.rows.push(row);
    }

    /// Replaces the rows, for chains.
    #[must_use]
    pub fn with(mut self, rows: impl IntoIterator<Item = TableRow>) -> ShowTable {
        rows.into_iter().for_each(|row| self.push(row));
        self
    }

    pub(super) fn columns(&self) -> &'static [&'static str] {
        self.columns
    }

    pub(super) fn rows(&self) -> &[TableRow] {
        &self.rows
    }

    pub(super) fn rows_mut(&mut self) -> &mut [TableRow] {
        &mut self.rows
    }

    pub(super) fn into_rows(self) -> Vec<TableRow> {
        self.rows
    }

    /// Writes the table as the complete reply to one simple query.
    pub fn write(&self, out: &mut Vec<u8>) {
        let first = self.columns.first().copied().unwrap_or_default();
        // Databases always have sizes; users have them only if configured.
        let is_users = self.columns.contains(&"max_user_connections");
        let type_of = |name: &&'static str| match is_users {
            false if matches!(*name, "pool_size" | "reserve_pool_size") => INT8_OID,
            _ => type_of(first, name),
        };
        let columns: Vec<_> = self.columns.iter().map(|name| (*name, type_of(name))).collect();
        backend::row_description(out, &columns);
        for row in &self.rows {
            let values: Vec<_> = row.iter().map(Option::as_deref).collect();
            backend::data_row(out, &values);
        }
        backend::command_complete(out, "SHOW");
        backend::ready_for_query(out, TransactionStatus::Idle);
    }
}

/// Formats a value of a row.
pub(crate) fn of(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}
