//! Consecutive numbers that readers can follow.

use super::{SqlStoreError, SqlValue, StoreTransaction};

/// Takes `count` consecutive numbers from a table of one row, and returns the first.
///
/// The row stays locked until the transaction ends, so that numbers become visible in their order:
/// a reader that has read up to a number misses nothing that is committed later. Numbers of a
/// sequence are assigned while a transaction runs, so one may appear after a higher one was read.
///
/// The table has the columns `id`, which is 1, and `last`.
///
/// # Errors
/// If the table cannot be changed, or has no row.
pub fn take_numbers(
    transaction: &mut dyn StoreTransaction,
    table: &'static str,
    count: usize,
) -> Result<u64, SqlStoreError> {
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    let taken = SqlValue::Int(i64::try_from(count).unwrap_or(i64::MAX));
    let sql = format!("UPDATE {table} SET last = last + $1 WHERE id = 1 RETURNING last");
    let row = transaction.query_one(&sql, &[taken])?;
    let last: u64 = row.ok_or(SqlStoreError::Spoiled)?.get(0)?;
    Ok(last.saturating_sub(count).saturating_add(1))
}
