//! Scan requests.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

use std::collections::BTreeSet;

use serde::Deserialize;

use super::expression::FilterExpression;
use crate::error::{Result, bad};
use crate::json::RawJson;

/// Most column names in a request.
const NAMES_MAX: usize = 10_000;

/// Request to plan a scan.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// Id of the snapshot; the current one when absent.
    pub snapshot_id: Option<i64>,
    /// Filter of rows.
    pub filter: FilterExpression,
    /// Number of rows that are sufficient.
    pub min_rows: Option<i64>,
    /// True if column names are case-sensitive.
    pub is_case_sensitive: bool,
    /// True if the columns are those of the snapshot's schema.
    pub use_snapshot_schema: bool,
    /// Snapshot after which the requested files were added.
    pub start: Option<i64>,
    /// Last snapshot whose files are requested.
    pub end: Option<i64>,
    /// Columns whose statistics are requested.
    pub stats: Vec<String>,
    /// Read restriction.
    pub restriction: ReadRestriction,
}

/// Restriction of the readable part of a table.
#[derive(Clone, Debug)]
pub struct ReadRestriction {
    /// Filter of readable rows.
    pub filter: FilterExpression,
    /// Masked columns: their real values must not be used for pruning.
    pub hidden: BTreeSet<i32>,
    /// True if the reader is trusted to ignore data that it may not read.
    pub is_trusted: bool,
}

impl Default for ReadRestriction {
    /// No restriction.
    fn default() -> ReadRestriction {
        let (filter, hidden) = (FilterExpression::everything(), BTreeSet::new());
        ReadRestriction { filter, hidden, is_trusted: true }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PlanRequestBody {
    snapshot_id: Option<i64>,
    select: Option<Vec<String>>,
    min_rows_requested: Option<i64>,
    case_sensitive: Option<bool>,
    use_snapshot_schema: Option<bool>,
    start_snapshot_id: Option<i64>,
    end_snapshot_id: Option<i64>,
    stats_fields: Option<Vec<String>>,
}

impl ScanRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// `BadRequest` if it is malformed, or contradicts itself.
    pub fn parse(body: &RawJson) -> Result<ScanRequest> {
        let read: PlanRequestBody = body.decode()?;
        let filter = match body.present("filter") {
            Some(filter) => FilterExpression::parse(&filter)?,
            None => FilterExpression::everything(),
        };
        let (start, end) = (read.start_snapshot_id, read.end_snapshot_id);
        if start.is_some() && end.is_none() {
            return Err(bad("`end-snapshot-id` is needed with `start-snapshot-id`"));
        }
        if read.snapshot_id.is_some() && end.is_some() {
            return Err(bad("`snapshot-id` and `end-snapshot-id` cannot be combined"));
        }
        if read.min_rows_requested.is_some_and(|rows| rows < 0) {
            return Err(bad("`min-rows-requested` is negative"));
        }
        let names = |name: &str, all: Option<Vec<String>>| {
            let all = all.unwrap_or_default();
            match all.len() > NAMES_MAX {
                true => Err(bad(format!("`{name}` has more than {NAMES_MAX} names"))),
                false => Ok(all),
            }
        };
        // The selected columns do not affect the files. As in the reference implementation, unknown
        // names are no error: engines request columns that every table has, such as `_file`.
        names("select", read.select)?;
        Ok(ScanRequest {
            snapshot_id: read.snapshot_id,
            filter,
            min_rows: read.min_rows_requested,
            is_case_sensitive: read.case_sensitive.unwrap_or(true),
            use_snapshot_schema: read.use_snapshot_schema.unwrap_or(false),
            start,
            end,
            stats: names("stats-fields", read.stats_fields)?,
            restriction: ReadRestriction::default(),
        })
    }

    /// Restricts the request to a part of the table. A reader that is not trusted receives no
    /// statistics: they cover all rows of a file.
    #[must_use]
    pub fn restricted(mut self, restriction: ReadRestriction) -> ScanRequest {
        if !restriction.is_trusted {
            self.stats.clear();
        }
        self.restriction = restriction;
        self
    }
}
