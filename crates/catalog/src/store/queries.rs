//! Helpers that queries of several tables share.

use node::store::{SqlStoreError, SqlValue, StoreTransaction};

use crate::error::{CatalogError, ErrorReason};

/// Rows per query when all rows are read.
const ROWS_AT_A_TIME: usize = 10_000;

/// Returns the error for invalid stored data.
pub(crate) fn broken(what: &'static str) -> SqlStoreError {
    SqlStoreError::refuse(CatalogError::internal(what))
}

/// Returns the error for a warehouse that does not exist, or no longer exists.
pub(crate) fn no_such_warehouse(name: &str) -> CatalogError {
    let excerpt: String = name.chars().take(100).collect();
    CatalogError::new(ErrorReason::NoSuchWarehouse, format!("Warehouse does not exist: {excerpt}"))
}

/// Converts a time to a column value.
pub(super) fn ms(ms: u64) -> SqlValue {
    SqlValue::Int(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// Returns the only column of all rows of a query, in several steps. Parameter 3 is the value that
/// the rows come after, parameter 4 their maximum number.
pub(super) fn page_all(
    it: &mut dyn StoreTransaction,
    sql: &str,
    first: &[SqlValue; 2],
    after: Option<String>,
    limit: Option<usize>,
) -> std::result::Result<Vec<String>, SqlStoreError> {
    let (mut names, mut after) = (Vec::new(), after.unwrap_or_default());
    let limit = limit.unwrap_or(usize::MAX);
    while names.len() < limit {
        let step = ROWS_AT_A_TIME.min(limit - names.len());
        let wanted = i64::try_from(step).unwrap_or(i64::MAX);
        let [one, two] = first.clone();
        let rows = it.query(sql, &[one, two, SqlValue::from(&after), SqlValue::Int(wanted)])?;
        for row in &rows {
            names.push(row.get::<String>(0)?);
        }
        match names.last() {
            Some(last) if rows.len() == step => after.clone_from(last),
            _ => break,
        }
    }
    Ok(names)
}
