//! Partition specifications: bound to a schema, with an id for each field.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#partitioning>

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::columns::SchemaColumns;
use super::transform::{FieldTransform, TransformTerm};
use super::{fields_of, members_of_field, with_id};
use crate::doc::{LAST_PARTITION_ID_NONE, TableDoc};
use crate::error::{illegal, invalid};
use crate::json::{RawJson, put_comma};
use crate::{CatalogError, ErrorReason, Result};

/// Most fields of a specification.
pub const PARTITION_FIELDS_MAX: usize = 1_000;
/// First version of the format with transforms of several columns.
const FORMAT_VERSION_SEVERAL: u8 = 3;
/// First version of the format in which the ids of fields are unique.
const FORMAT_VERSION_IDS: u8 = 2;

/// A partition field.
#[derive(Debug)]
struct PartitionField {
    id: Option<i32>,
    name: String,
    term: TransformTerm,
}

impl PartitionField {
    fn read(field: &RawJson) -> Result<PartitionField> {
        let [id, name] = members_of_field(field, ["field-id", "name"])?;
        let name = name.as_ref().and_then(RawJson::as_str);
        let name = name.ok_or_else(|| illegal("Cannot parse missing string: name"))?;
        let id = match id {
            Some(id) => Some(
                id.as_i32().ok_or_else(|| illegal("Cannot parse to an integer value: field-id"))?,
            ),
            None => None,
        };
        Ok(PartitionField { id, name: name.into_owned(), term: TransformTerm::read(field)? })
    }
}

impl fmt::Display for PartitionField {
    /// Formats it as messages of the reference do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(id) = self.id {
            write!(f, "{id}: ")?;
        }
        write!(f, "{:.80}: {}", self.name, self.term)
    }
}

/// Returns whether both partition by the same columns, transforms and names, in the same order,
/// regardless of the ids of the fields.
#[must_use]
pub fn same_spec(a: &RawJson, b: &RawJson) -> bool {
    let read = |spec: &RawJson| -> Result<Vec<PartitionField>> {
        fields_of(spec)?.iter().map(PartitionField::read).collect()
    };
    match (read(a), read(b)) {
        (Ok(a), Ok(b)) => {
            a.len() == b.len()
                && a.iter().zip(&b).all(|(a, b)| a.name == b.name && a.term == b.term)
        }
        _ => a == b,
    }
}

/// Returns the specification with an id for each field: that of the same field in another
/// specification of the table, or the next one. Also returns the highest id of its fields.
///
/// An existing specification of the table is checked against `schema` only, which may now have
/// columns with the names of its fields.
///
/// # Errors
/// `Validation` if a field has no source column in `schema`, or none of a suitable type;
/// `IllegalArgument` if its name is not unique.
pub fn bind_spec(spec: &RawJson, schema: &RawJson, doc: &TableDoc) -> Result<(RawJson, i32)> {
    let raws = fields_of(spec)?;
    if raws.len() > PARTITION_FIELDS_MAX {
        let message =
            format!("a partition spec may have {PARTITION_FIELDS_MAX} fields at the most");
        return Err(CatalogError::new(ErrorReason::TooLarge, message));
    }
    if raws.is_empty() {
        // The most frequent case: no column is looked up.
        return Ok((
            spec.with("fields", &RawJson::written(b"[]".to_vec()))?,
            LAST_PARTITION_ID_NONE,
        ));
    }
    let columns = SchemaColumns::read(schema)?;
    let mut fields: Vec<PartitionField> =
        raws.iter().map(PartitionField::read).collect::<Result<_>>()?;
    let is_new = !doc.specs.iter().any(|it| it.raw == *spec);
    if is_new {
        give_ids(&mut fields, doc)?;
    }
    let mut names = HashSet::new();
    for field in &fields {
        check_term(field, &columns, doc.format_version)?;
        if is_new {
            check_name(field, &columns)?;
            if !names.insert(field.name.as_str()) {
                let name = &field.name;
                return Err(illegal(format!(
                    "Cannot use partition name more than once: {name:.80}"
                )));
            }
        }
    }
    let mut out = vec![b'['];
    let mut last = LAST_PARTITION_ID_NONE;
    for (raw, field) in raws.iter().zip(&fields) {
        put_comma(&mut out);
        match field.id {
            Some(id) => {
                last = last.max(id);
                out.extend_from_slice(with_id(raw, "field-id", id).as_bytes());
            }
            None => out.extend_from_slice(raw.as_bytes()),
        }
    }
    out.push(b']');
    Ok((spec.with("fields", &RawJson::written(out))?, last))
}

/// Assigns an id to each field without one, and rejects ids that other fields have.
fn give_ids(fields: &mut [PartitionField], doc: &TableDoc) -> Result<()> {
    let has_own_ids = doc.format_version >= FORMAT_VERSION_IDS;
    let (mut ids, mut terms) = (HashMap::new(), HashMap::new());
    if has_own_ids {
        // An unreadable field cannot be equal to a new one.
        let raws = doc.specs.iter().filter_map(|spec| fields_of(&spec.raw).ok()).flatten();
        for known in raws.filter_map(|raw| PartitionField::read(&raw).ok()) {
            let Some(id) = known.id else { continue };
            terms.entry(known.term.clone()).or_insert(id);
            let of_id: &mut (HashSet<TransformTerm>, bool) = ids.entry(id).or_default();
            of_id.1 |= known.term.transform == FieldTransform::Void;
            of_id.0.insert(known.term);
        }
    }
    let mut used: HashSet<i32> = HashSet::new();
    for field in fields.iter() {
        let Some(id) = field.id else { continue };
        if !used.insert(id) {
            return Err(invalid(format!("Cannot use partition field id more than once: {id}")));
        }
        // Version 1 made a field void instead of dropping it.
        let is_of_another = ids.get(&id).is_some_and(|(terms, has_void)| {
            !has_void
                && field.term.transform != FieldTransform::Void
                && !terms.contains(&field.term)
        });
        if is_of_another {
            return Err(invalid(format!(
                "Cannot use partition field id {id}: it is the id of another field"
            )));
        }
    }
    let mut next = LAST_PARTITION_ID_NONE;
    if has_own_ids {
        next = next.max(doc.last_partition_id);
        next = next.max(used.iter().copied().max().unwrap_or(next));
    }
    for field in fields.iter_mut().filter(|field| field.id.is_none()) {
        let known = terms.get(&field.term).copied().filter(|id| !used.contains(id));
        let id = match known {
            Some(id) => id,
            None => {
                next = next.checked_add(1).ok_or_else(|| invalid("the field ids are used up"))?;
                next
            }
        };
        if !used.insert(id) {
            return Err(invalid(format!("Cannot use partition field id more than once: {id}")));
        }
        field.id = Some(id);
    }
    Ok(())
}

fn check_term(field: &PartitionField, columns: &SchemaColumns, format_version: u8) -> Result<()> {
    let TransformTerm { sources, transform } = &field.term;
    if sources.len() > 1 {
        if format_version < FORMAT_VERSION_SEVERAL {
            return Err(invalid(format!(
                "Invalid partition field {field}: transforms of several columns are not \
                 supported until v{FORMAT_VERSION_SEVERAL}"
            )));
        }
        if !transform.takes_several() {
            return Err(invalid(format!("Invalid partition field {field}: it has one column")));
        }
    }
    if *transform == FieldTransform::Void {
        // Its column may be removed.
        return Ok(());
    }
    for &id in sources {
        let column = columns.get(id).ok_or_else(|| {
            invalid(format!("Cannot find source column for partition field: {field}"))
        })?;
        let written = column.written.text();
        if !column.kind.is_primitive() {
            return Err(invalid(format!(
                "Cannot partition by non-primitive source field: {written:.80}"
            )));
        }
        if !transform.takes(&column.kind) {
            let kind = written.trim_matches('"');
            return Err(invalid(format!(
                "Invalid source type {kind:.80} for transform: {transform}"
            )));
        }
        let list = columns.around(column).find(|it| it.kind != super::types::ColumnType::Struct);
        if let Some(parent) = list {
            return Err(invalid(format!("Invalid partition field parent: {:.80}", parent.name)));
        }
    }
    Ok(())
}

/// Partition values appear as columns when data is read: a field may have the name of its own
/// source column, but of no other column.
fn check_name(field: &PartitionField, columns: &SchemaColumns) -> Result<()> {
    let name = &field.name;
    if name.is_empty() {
        return Err(illegal(format!("Cannot use empty partition name: {name}")));
    }
    let Some(column) = columns.named(name) else { return Ok(()) };
    let is_gone = field.term.sources.iter().all(|id| columns.get(*id).is_none());
    if is_gone || field.term.sources.contains(&column.id) {
        return Ok(());
    }
    Err(illegal(format!(
        "Cannot create identity partition sourced from different field in schema: {name:.80}"
    )))
}
