//! Scan requests.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

use std::collections::BTreeSet;

use serde::Deserialize;

use super::expression::FilterExpression;
use crate::error::{Result, bad};
use crate::json::RawJson;

/// Names of columns in a request at the most.
const NAMES_MAX: usize = 10_000;

/// Request to plan a scan.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// Id of the snapshot; the current one when absent.
    pub snapshot_id: Option<i64>,
    /// Filter of rows.
    pub filter: FilterExpression,
    /// Number of rows that are enough.
    pub min_rows: Option<i64>,
    /// True if names of columns differ by case.
    pub is_case_sensitive: bool,
    /// True if the columns are those of when the snapshot was made.
    pub use_snapshot_schema: bool,
    /// The snapshot after which files were added.
    pub start: Option<i64>,
    /// The last snapshot whose files are asked for.
    pub end: Option<i64>,
    /// Columns whose statistics are asked for.
    pub stats: Vec<String>,
    /// Restriction of what may be read.
    pub restriction: ReadRestriction,
}

/// Restriction of what may be read of a table.
#[derive(Clone, Debug)]
pub struct ReadRestriction {
    /// The rows.
    pub filter: FilterExpression,
    /// Columns whose values are shown in another way: nothing is left out by what they really are.
    pub hidden: BTreeSet<i32>,
    /// True if who asks is trusted to look away from what he may not read.
    pub is_trusted: bool,
}

impl Default for ReadRestriction {
    /// All of it.
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
    /// Reads a request.
    ///
    /// # Errors
    /// `BadRequest` when it is none, or contradicts itself.
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
        // Which columns are read changes nothing about the files. As in the reference
        // implementation, names that the schema does not have are no error: engines ask for
        // columns that every table has, such as `_file`.
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

    /// Restricts it to a part of the table. Who is not trusted to look away from the rest gets no
    /// statistics: they are of all rows of a file.
    #[must_use]
    pub fn restricted(mut self, restriction: ReadRestriction) -> ScanRequest {
        if !restriction.is_trusted {
            self.stats.clear();
        }
        self.restriction = restriction;
        self
    }
}
