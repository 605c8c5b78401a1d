//! Reads of the audit log: pages in either direction, and summaries, at a bounded cost.
//!
//! The rows that an index finds are limited to [`ROWS_MAX`] first; the rest of a filter is applied
//! to those. So a filter that matches few records costs no more than one that matches many: it ends
//! early with a cursor for the continuation.

use api::{AuditRecord, AuditSummaryKey};
use node::store::{SqlStoreError, SqlValue, StoreTransaction};

use super::{AuditStore, EVENTS, OUTCOMES, event_of, name_of, number, outcome_of, record};
use crate::audit::{AuditFilter, AuditSummary};

/// Most rows that one request examines.
pub(crate) const ROWS_MAX: u64 = 20_000;

/// Characters of a record's text that a summary examines: the part of a URL with the host.
const TARGET_CHARS: usize = 512;

/// Longest delay between an event and its record for which a time range finds the record without
/// examining much older ones.
const LATE_MS: u64 = 10 * 60 * 1000;

/// Records around the beginning of a time range whose numbers are examined.
const BEGINNING_ROWS: u64 = 1000;

/// A page of records, and the start of the next one.
pub(crate) struct AuditRecordPage {
    pub(crate) records: Vec<AuditRecord>,
    /// Number of the last examined row, if there may be more after it.
    pub(crate) next: Option<u64>,
    /// Greatest number in the log.
    pub(crate) newest: u64,
}

/// SQL conditions with their parameters.
struct AuditConditions {
    /// Conditions that use an index.
    base: String,
    /// All other conditions.
    rest: String,
    parameters: Vec<SqlValue>,
}

impl AuditConditions {
    fn of(filter: &AuditFilter, beginning: Option<u64>) -> AuditConditions {
        let mut conditions = AuditConditions {
            base: String::from("seq > $1"),
            rest: String::from("1 = 1"),
            parameters: vec![number(filter.after.max(beginning.unwrap_or(0).saturating_sub(1)))],
        };
        if let Some(before) = filter.before {
            let place = conditions.add(number(before));
            conditions.base.push_str(&format!(" AND seq < {place}"));
        }
        // One of them has its own index; the other one narrows the result.
        let texts = [
            ("holder", filter.holder.clone()),
            ("tenant", filter.tenant.clone()),
            ("granted", filter.grant.clone()),
            ("event", filter.event.map(|it| name_of(&EVENTS, &it).to_owned())),
            ("outcome", filter.outcome.map(|it| name_of(&OUTCOMES, &it).to_owned())),
        ];
        let mut has_index = false;
        for (column, text) in texts {
            let Some(text) = text else { continue };
            let place = conditions.add(SqlValue::from(&text));
            let is_base = !has_index && matches!(column, "holder" | "tenant");
            has_index |= is_base;
            let place = format!(" AND {column} = {place}");
            if is_base { &mut conditions.base } else { &mut conditions.rest }.push_str(&place);
        }
        for (operator, at_ms) in [(">=", filter.from_ms), ("<", filter.to_ms)] {
            let Some(at_ms) = at_ms else { continue };
            let place = conditions.add(number(at_ms));
            conditions.rest.push_str(&format!(" AND at_ms {operator} {place}"));
        }
        if let Some(text) = &filter.text {
            let place = conditions.add(SqlValue::from(&contains(text)));
            conditions.rest.push_str(&format!(
                " AND (LOWER(said) LIKE LOWER({place}) ESCAPE '!' \
                 OR LOWER(error) LIKE LOWER({place}) ESCAPE '!')"
            ));
        }
        conditions
    }

    /// Adds a parameter. Returns its placeholder.
    fn add(&mut self, value: SqlValue) -> String {
        self.parameters.push(value);
        format!("${}", self.parameters.len())
    }

    /// Returns the examined rows, as a table expression.
    fn rows(&self, columns: &str, order: &str) -> String {
        let base = &self.base;
        format!(
            "(SELECT {columns} FROM gateway_audit WHERE {base} \
             ORDER BY seq {order} LIMIT {ROWS_MAX}) AS looked"
        )
    }
}

/// Returns a `LIKE` pattern for texts that contain this one.
fn contains(text: &str) -> String {
    let mut pattern = String::from("%");
    for character in text.chars() {
        if matches!(character, '%' | '_' | '!') {
            pattern.push('!');
        }
        pattern.push(character);
    }
    pattern.push('%');
    pattern
}

/// Returns a lower bound for the numbers of records from this time on: the smallest number of those
/// at about that time, or up to [`LATE_MS`] before. A late record has a greater number.
fn beginning(
    it: &mut dyn StoreTransaction,
    from_ms: Option<u64>,
) -> Result<Option<u64>, SqlStoreError> {
    let Some(from_ms) = from_ms else { return Ok(None) };
    let sql = format!(
        "SELECT MIN(seq) FROM (SELECT seq FROM gateway_audit WHERE at_ms >= $1 \
         ORDER BY at_ms LIMIT {BEGINNING_ROWS}) AS first"
    );
    let rows = it.query(&sql, &[number(from_ms.saturating_sub(LATE_MS))])?;
    let smallest: Option<u64> = rows.first().map(|row| row.get(0)).transpose()?.flatten();
    // There are no later records: the result is empty.
    Ok(Some(smallest.unwrap_or(u64::MAX >> 1)))
}

/// Returns the number of the last examined row, if there may be more after it.
fn end_of_rows(
    it: &mut dyn StoreTransaction,
    conditions: &AuditConditions,
    is_newest_first: bool,
) -> Result<Option<u64>, SqlStoreError> {
    let (order, last) = if is_newest_first { ("DESC", "MIN") } else { ("ASC", "MAX") };
    // Parameters of the other conditions are used too, or PostgreSQL cannot infer their types.
    let rows = conditions.rows("*", order);
    let sql = format!(
        "SELECT COUNT(*), {last}(seq), SUM(CASE WHEN {} THEN 1 ELSE 0 END) FROM {rows}",
        conditions.rest
    );
    let found = it.query(&sql, &conditions.parameters)?;
    let Some(row) = found.first() else { return Ok(None) };
    let (count, last): (u64, Option<u64>) = (row.get(0)?, row.get(1)?);
    Ok(last.filter(|_| count >= ROWS_MAX))
}

impl AuditStore {
    /// Returns matching records, oldest or newest first.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) async fn read(&self, filter: AuditFilter) -> Result<AuditRecordPage, SqlStoreError> {
        let read = self.0.read("gateway.audit", move |it| {
            // Read first, so that a record written meanwhile has a greater number.
            let newest = it.query("SELECT COALESCE(MAX(seq), 0) FROM gateway_audit", &[])?;
            let newest = newest.first().map(|row| row.get(0)).transpose()?.unwrap_or(0);
            let beginning = beginning(it, filter.from_ms)?;
            let mut conditions = AuditConditions::of(&filter, beginning);
            let order = if filter.is_newest_first { "DESC" } else { "ASC" };
            let rows = conditions.rows("*", order);
            let wanted = filter.limit.saturating_add(1);
            let limit = conditions.add(number(u64::try_from(wanted).unwrap_or(u64::MAX)));
            let sql = format!(
                "SELECT seq, at_ms, tenant, holder, granted, event, outcome, said, error, \
                 took_us, returned, bytes_out, bytes_in FROM {rows} \
                 WHERE {} ORDER BY seq {order} LIMIT {limit}",
                conditions.rest
            );
            let found = it.query(&sql, &conditions.parameters)?;
            let records: Result<Vec<AuditRecord>, _> = found.iter().map(record).collect();
            let mut records = records?;
            conditions.parameters.pop();
            let next = match records.len() > filter.limit {
                true => {
                    records.truncate(filter.limit);
                    records.last().map(|last| last.seq)
                }
                false => end_of_rows(it, &conditions, filter.is_newest_first)?,
            };
            Ok(AuditRecordPage { records, next, newest })
        });
        read.await
    }

    /// Adds the newest matching records to a summary. Returns the number of the last examined row,
    /// if there may be more after it.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) async fn summarize(
        &self,
        by: AuditSummaryKey,
        filter: AuditFilter,
    ) -> Result<(AuditSummary, Option<u64>), SqlStoreError> {
        let read = self.0.read("gateway.audit_summary", move |it| {
            let beginning = beginning(it, filter.from_ms)?;
            let conditions = AuditConditions::of(&filter, beginning);
            let rows = conditions.rows("*", "DESC");
            let sql = format!(
                "SELECT tenant, holder, granted, event, outcome, SUBSTR(said, 1, {TARGET_CHARS}), \
                 at_ms, returned, bytes_out, bytes_in FROM {rows} WHERE {} ORDER BY seq DESC",
                conditions.rest
            );
            let mut summary = AuditSummary::new(by);
            for row in it.query(&sql, &conditions.parameters)? {
                let (event, outcome): (String, String) = (row.get(3)?, row.get(4)?);
                let (Some(event), Some(outcome)) = (event_of(&event), outcome_of(&outcome)) else {
                    continue; // A newer version wrote this row.
                };
                let text: Option<String> = row.get(5)?;
                let names: [String; 3] = [row.get(0)?, row.get(1)?, row.get(2)?];
                summary.add(crate::audit::SummarizedRecord {
                    names,
                    event,
                    outcome,
                    text: text.as_deref(),
                    at_ms: row.get(6)?,
                    rows: row.get(7)?,
                    bytes: [row.get(8)?, row.get(9)?],
                });
            }
            let next = end_of_rows(it, &conditions, true)?;
            Ok((summary, next))
        });
        read.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_for_is_no_pattern() {
        for (text, expected) in
            [("drop", "%drop%"), ("100%", "%100!%%"), ("a_b!", "%a!_b!!%"), ("", "%%")]
        {
            assert_eq!(contains(text), expected);
        }
    }

    #[test]
    fn an_index_finds_what_the_rest_is_applied_to() {
        let filter = AuditFilter {
            holder: Some("ses_1".to_owned()),
            tenant: Some("team".to_owned()),
            text: Some("x".to_owned()),
            before: Some(9),
            to_ms: Some(5),
            after: 3,
            ..AuditFilter::default()
        };
        let AuditConditions { base, rest, parameters } = AuditConditions::of(&filter, Some(7));
        assert_eq!(base, "seq > $1 AND seq < $2 AND holder = $3");
        assert!(rest.starts_with("1 = 1 AND tenant = $4 AND at_ms < $5 AND (LOWER(said)"));
        assert_eq!((parameters.len(), &parameters[0]), (6, &SqlValue::Int(6)));
    }
}
