//! Rules of a schema, with the messages of the reference where it has any.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#schema-evolution>

use std::collections::BTreeSet;

use super::columns::{SchemaColumn, SchemaColumns, members};
use super::defaults::check_defaults;
use super::types::ColumnType;
use crate::Result;
use crate::error::{bad, illegal, invalid};
use crate::json::RawJson;

/// Highest id of a column; greater ones are reserved for columns that every table has (the table
/// format, §Reserved Field IDs).
pub const COLUMN_ID_MAX: i32 = 2_147_483_447;
/// First version of the format whose columns may have defaults.
const FORMAT_VERSION_DEFAULTS: u8 = 3;

/// Checks that a table of this version may have a schema.
///
/// # Errors
/// If it is no schema, two columns share an id or a name, an identifier field is invalid, or a type
/// or a default is not allowed in this version.
pub fn check_schema(schema: &RawJson, format_version: u8) -> Result<()> {
    check_columns(schema, None, format_version)
}

/// Like [`check_schema`], for a schema whose columns may already be parsed.
///
/// # Errors
/// Those of [`check_schema`].
pub(crate) fn check_columns(
    schema: &RawJson,
    columns: Option<&SchemaColumns>,
    format_version: u8,
) -> Result<()> {
    let [kind, identifiers] = members(schema, ["type", "identifier-field-ids"])?;
    if kind.is_none() {
        return Err(bad("Cannot parse missing string: type"));
    }
    let read_columns;
    let columns = match columns {
        Some(columns) => columns,
        None => {
            read_columns = SchemaColumns::read(schema)?;
            &read_columns
        }
    };
    if let Some((name, first, second)) = &columns.same_name {
        return Err(invalid(format!(
            "Invalid schema: multiple fields for name {name:.80}: {first} and {second}"
        )));
    }
    for column in &columns.list {
        if !(0..=COLUMN_ID_MAX).contains(&column.id) {
            let id = column.id;
            return Err(invalid(format!("a column cannot have the id {id}: it is reserved")));
        }
        check_type(column)?;
        check_defaults(column)?;
    }
    check_version(columns, format_version)?;
    if let Some(identifiers) = identifiers {
        let ids: BTreeSet<i32> = identifiers.decode()?;
        ids.into_iter().try_for_each(|id| check_identifier(id, columns))?;
    }
    Ok(())
}

fn check_type(column: &SchemaColumn) -> Result<()> {
    if let Some(text) = column.written.as_str() {
        check_type_name(&text, column)?;
    }
    if column.kind == ColumnType::Unknown && column.is_required {
        let name = &column.name;
        return Err(illegal(format!("Cannot create required field with unknown type: {name:.80}")));
    }
    Ok(())
}

/// Rejects type names that not all clients can read, so that no client creates a table that others
/// cannot load: unknown ones, and those not in the format's spelling.
fn check_type_name(text: &str, column: &SchemaColumn) -> Result<()> {
    let name = &column.name;
    if matches!(ColumnType::parse(text).map_err(illegal)?, ColumnType::Other(_)) {
        let message =
            format!("Cannot parse type string to primitive: {text:.80} (of the column {name:.80})");
        return Err(illegal(message));
    }
    let word = text.split(['(', '[']).next().unwrap_or_default();
    if word.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(illegal(format!(
            "the type {text:.80} of the column {name:.80} has to be written in lower case"
        )));
    }
    Ok(())
}

/// Rejects everything that is too new for this version, in one message.
fn check_version(columns: &SchemaColumns, format_version: u8) -> Result<()> {
    /// Number of names in the message.
    const SHOWN_MAX: usize = 20;
    let mut problems = Vec::new();
    let mut in_order: Vec<&SchemaColumn> = columns.list.iter().collect();
    in_order.sort_unstable_by_key(|column| column.id);
    for column in in_order {
        let (name, first) = (&column.name, column.kind.first_version());
        if first > format_version {
            let kind = column.written.text().trim_matches('"');
            problems.push(format!(
                "Invalid type for {name:.80}: {kind:.80} is not supported until v{first}"
            ));
        }
        let defaults = [("initial", &column.initial_default), ("write", &column.write_default)];
        for (which, default) in defaults {
            let Some(default) = default else { continue };
            if format_version < FORMAT_VERSION_DEFAULTS {
                let default = default.text().trim_matches('"');
                problems.push(format!(
                    "Invalid {which} default for {name:.80}: non-null default ({default:.80}) is \
                     not supported until v{FORMAT_VERSION_DEFAULTS}"
                ));
            }
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    problems.truncate(SHOWN_MAX);
    let problems = problems.join("\n- ");
    Err(invalid(format!("Invalid schema for v{format_version}:\n- {problems}")))
}

fn check_identifier(id: i32, columns: &SchemaColumns) -> Result<()> {
    let Some(column) = columns.get(id) else {
        return Err(illegal(format!(
            "Cannot add fieldId {id} as an identifier field: field does not exist"
        )));
    };
    let name = column.name.rsplit('.').next().unwrap_or_default();
    let refuse = |why: String| {
        Err(illegal(format!("Cannot add field {name:.80} as an identifier field: {why}")))
    };
    if !column.kind.is_primitive() {
        return refuse("not a primitive type field".to_owned());
    }
    if !column.is_required {
        return refuse("not a required field".to_owned());
    }
    if matches!(column.kind, ColumnType::Float | ColumnType::Double) {
        return refuse("must not be float or double field".to_owned());
    }
    for parent in columns.around(column) {
        let outer = &parent.name;
        if parent.kind != ColumnType::Struct {
            return refuse(format!("must not be nested in {outer:.80}"));
        }
        if !parent.is_required {
            return refuse(format!("must not be nested in an optional field {outer:.80}"));
        }
    }
    Ok(())
}
