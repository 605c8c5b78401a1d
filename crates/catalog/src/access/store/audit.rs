//! Lines of the audit log in the store.

use node::clock;
use node::store::{SqlRow, SqlValue, take_numbers};

use super::{AccessStore, Stored, ms};
use crate::access::audit::{AuditLine, CatalogAuditFilter, outcome, statuses};
use crate::error::{CatalogError, Result};

/// Table of the last number of a line.
const NUMBERS: &str = "catalog_audit_numbers";

impl AccessStore {
    /// Stores lines.
    pub(in crate::access) async fn write_audit(&self, lines: Vec<AuditLine>) -> Result<()> {
        let written = self.0.transact("catalog.write_audit", move |it| {
            let first = take_numbers(it, NUMBERS, lines.len())?;
            for (seq, line) in (first..).zip(&lines) {
                let sql = "INSERT INTO catalog_audit (seq, at_ms, principal, name, key, \
                    operation, path, status, refusal, request, address) \
                    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
                let text =
                    |text: &Option<String>| text.as_ref().map_or(SqlValue::Null, SqlValue::from);
                let parameters = [
                    SqlValue::Int(i64::try_from(seq).unwrap_or(i64::MAX)),
                    ms(line.at_ms)?,
                    text(&line.principal),
                    text(&line.name),
                    text(&line.key),
                    SqlValue::from(&line.operation),
                    // PostgreSQL stores no such character.
                    line.path.replace('\0', "\u{fffd}").into(),
                    SqlValue::Int(line.status.into()),
                    text(&line.refusal),
                    text(&line.request_id),
                    text(&line.address),
                ];
                it.execute(sql, &parameters)?;
            }
            Ok(())
        });
        written.await
    }

    /// The newest lines that are wanted, one more than the page has room for.
    pub(in crate::access) async fn audit(
        &self,
        filter: CatalogAuditFilter,
    ) -> Result<Vec<AuditLine>> {
        let (from, to) = statuses(filter.outcome);
        let limit = i64::try_from(filter.limit() + 1).map_err(CatalogError::internal)?;
        let until = i64::MAX.unsigned_abs();
        let read = self.0.read("catalog.audit", move |it| {
            let sql = "SELECT seq, at_ms, principal, name, key, operation, path, status, refusal, \
                request, address FROM catalog_audit WHERE seq < $1 \
                AND (CAST($2 AS TEXT) = '' OR principal = CAST($2 AS TEXT)) \
                AND (CAST($3 AS TEXT) = '' OR operation = CAST($3 AS TEXT)) \
                AND substr(path, 1, length(CAST($4 AS TEXT))) = CAST($4 AS TEXT) \
                AND status >= $5 AND status <= $6 AND at_ms >= $7 AND at_ms < $8 \
                ORDER BY seq DESC LIMIT $9";
            let parameters = [
                SqlValue::Int(filter.before.unwrap_or(i64::MAX)),
                SqlValue::from(&filter.principal),
                SqlValue::from(&filter.operation),
                SqlValue::from(&filter.path),
                SqlValue::Int(from.into()),
                SqlValue::Int(to.into()),
                ms(filter.since_ms.unwrap_or(0).min(until))?,
                ms(filter.until_ms.unwrap_or(until).min(until))?,
                SqlValue::Int(limit),
            ];
            it.query(sql, &parameters)?.iter().map(line).collect::<Stored<Vec<_>>>()
        });
        read.await
    }

    /// Removes lines from before then, and those that are too many.
    pub(in crate::access) async fn shorten_audit(
        &self,
        before_ms: u64,
        lines_max: u64,
    ) -> Result<()> {
        let lines_max = i64::try_from(lines_max).unwrap_or(i64::MAX);
        let written = self.0.transact_idempotent("catalog.shorten_audit", move |it| {
            let sql = "DELETE FROM catalog_audit WHERE at_ms < $1 \
                OR seq <= (SELECT MAX(seq) FROM catalog_audit) - $2";
            it.execute(sql, &[ms(before_ms)?, SqlValue::Int(lines_max)]).map(drop)
        });
        written.await
    }
}

fn line(row: &SqlRow) -> Stored<AuditLine> {
    let (at_ms, status): (u64, u16) = (row.get(1)?, row.get(7)?);
    Ok(AuditLine {
        seq: row.get(0)?,
        at: clock::rfc3339_of_ms(at_ms),
        at_ms,
        principal: row.get(2)?,
        name: row.get(3)?,
        key: row.get(4)?,
        operation: row.get(5)?,
        path: row.get(6)?,
        outcome: outcome(status),
        status,
        refusal: row.get(8)?,
        request_id: row.get(9)?,
        address: row.get(10)?,
    })
}
