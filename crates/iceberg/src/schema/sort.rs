//! Sort orders, bound to a schema.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#sorting>

use std::fmt;

use super::columns::SchemaColumns;
use super::transform::TransformTerm;
use super::{fields_of, members_of_field};
use crate::error::{illegal, invalid};
use crate::json::RawJson;
use crate::{CatalogError, ErrorReason, Result};

/// Most fields of an order.
pub const SORT_FIELDS_MAX: usize = 1_000;

/// A sort field.
#[derive(Debug, PartialEq, Eq)]
struct SortField {
    term: TransformTerm,
    is_descending: bool,
    nulls_last: bool,
}

impl SortField {
    fn read(field: &RawJson) -> Result<SortField> {
        let [direction, nulls] = members_of_field(field, ["direction", "null-order"])?;
        let text = |value: &Option<RawJson>, name| {
            let lower = value.as_ref().and_then(RawJson::as_str).map(|it| it.to_ascii_lowercase());
            lower.ok_or_else(|| illegal(format!("Cannot parse missing string: {name}")))
        };
        let is_descending = match &*text(&direction, "direction")? {
            "asc" => false,
            "desc" => true,
            other => return Err(illegal(format!("Invalid sort direction: {other:.40}"))),
        };
        let nulls_last = match &*text(&nulls, "null-order")? {
            "nulls-first" => false,
            "nulls-last" => true,
            other => return Err(illegal(format!("Unexpected null order: {other:.40}"))),
        };
        Ok(SortField { term: TransformTerm::read(field)?, is_descending, nulls_last })
    }
}

impl fmt::Display for SortField {
    /// Formats it as messages of the reference do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.is_descending { "DESC" } else { "ASC" };
        let nulls = if self.nulls_last { "LAST" } else { "FIRST" };
        write!(f, "{} {direction} NULLS {nulls}", self.term)
    }
}

/// Returns whether both sort by the same columns, transforms and directions, in the same order.
#[must_use]
pub fn same_order(a: &RawJson, b: &RawJson) -> bool {
    let read = |order: &RawJson| -> Result<Vec<SortField>> {
        fields_of(order)?.iter().map(SortField::read).collect()
    };
    match (read(a), read(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

/// Returns the order, after checking its columns.
///
/// # Errors
/// `Validation` if a field has no source column in `schema`, or none of a suitable type;
/// `IllegalArgument` if a direction is missing.
pub fn bind_order(order: &RawJson, schema: &RawJson) -> Result<RawJson> {
    let raws = fields_of(order)?;
    if raws.len() > SORT_FIELDS_MAX {
        let message = format!("a sort order may have {SORT_FIELDS_MAX} fields at the most");
        return Err(CatalogError::new(ErrorReason::TooLarge, message));
    }
    if raws.is_empty() {
        return Ok(order.clone());
    }
    let columns = SchemaColumns::read(schema)?;
    for raw in &raws {
        let field = SortField::read(raw)?;
        let TransformTerm { sources, transform } = &field.term;
        if sources.len() > 1 && !transform.takes_several() {
            return Err(invalid(format!("Invalid sort field {field}: it has one column")));
        }
        for &id in sources {
            let column = columns.get(id).ok_or_else(|| {
                invalid(format!("Cannot find source column for sort field: {field}"))
            })?;
            let written = column.written.text();
            if !column.kind.is_primitive() {
                return Err(invalid(format!(
                    "Cannot sort by non-primitive source field: {written:.80}"
                )));
            }
            if !transform.takes(&column.kind) {
                let kind = written.trim_matches('"');
                return Err(invalid(format!(
                    "Invalid source type {kind:.80} for transform: {transform}"
                )));
            }
        }
    }
    Ok(order.clone())
}
