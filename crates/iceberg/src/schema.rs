//! Schemas, partition specifications and sort orders, as far as an update needs their content.
//!
//! They are parsed and checked here; the stored form is the client's, with other ids.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#schemas-and-data-types>

mod columns;
mod defaults;
mod fresh;
mod partition;
mod restrict;
mod rules;
mod sort;
#[cfg(test)]
mod tests;
mod transform;
mod types;

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use crate::Result;
use crate::doc::TableDoc;
use crate::error::{illegal, invalid};
use crate::json::{JsonKind, RawJson, put_comma, put_name};
use columns::members as members_of_field;
pub use columns::{COLUMNS_MAX, NAMES_BYTES_MAX};
pub use columns::{SchemaColumn, SchemaColumns};
pub use fresh::{RenumberedSchema, fresh_ids};
pub use partition::{PARTITION_FIELDS_MAX, bind_spec, same_spec};
pub use restrict::RestrictableColumns;
pub use restrict::{FILTER_PREDICATES_MAX, MaskAction};
pub(crate) use rules::check_columns;
pub use rules::{COLUMN_ID_MAX, check_schema};
pub use sort::{SORT_FIELDS_MAX, bind_order, same_order};
pub use transform::SOURCES_MAX;
pub(crate) use transform::{FieldTransform, TransformTerm};
pub(crate) use types::ColumnType;

/// Returns the part with its id set to `id`, otherwise unchanged.
#[must_use]
pub fn with_id(raw: &RawJson, key: &str, id: i32) -> RawJson {
    if raw.get(key).and_then(|old| old.as_i32()) == Some(id) {
        return raw.clone();
    }
    // A value that is no object becomes an object with this member only.
    let object = if raw.kind() == JsonKind::Object { raw.clone() } else { empty() };
    object.with(key, &RawJson::integer(id.into())).unwrap_or(object)
}

/// Returns the highest id of a schema's columns, including nested ones. 0 if it has none.
///
/// # Errors
/// If it is no schema.
pub fn last_column_id_of(schema: &RawJson) -> Result<i32> {
    Ok(SchemaColumns::read(schema)?.list.iter().map(|column| column.id).max().unwrap_or(0))
}

/// Returns whether both have the same columns and the same identifier fields, regardless of the
/// schemas' ids, the order of members and the spelling of types.
#[must_use]
pub fn same_schema(a: &RawJson, b: &RawJson) -> bool {
    let fields = |it: &RawJson| it.get("fields").and_then(|it| it.decode::<Value>().ok());
    let identifiers = |it: &RawJson| -> BTreeSet<i32> {
        let ids = it.get("identifier-field-ids");
        ids.and_then(|ids| ids.decode().ok()).unwrap_or_default()
    };
    if a == b {
        return true;
    }
    match (fields(a), fields(b)) {
        (Some(first), Some(second)) => {
            same_value(&first, &second) && identifiers(a) == identifiers(b)
        }
        _ => false,
    }
}

/// Returns whether both have the same meaning, regardless of the spelling of types; null counts as
/// absent.
fn same_value(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let there = |it: &serde_json::Map<String, Value>| {
                it.values().filter(|value| !value.is_null()).count()
            };
            let is_same = |(name, a): (&String, &Value)| match (b.get(name), name.as_str()) {
                (None, _) => a.is_null(),
                (Some(b), "type" | "element" | "key" | "value") => same_type(a, b),
                (Some(b), _) => same_value(a, b),
            };
            there(a) == there(b) && a.iter().all(is_same)
        }
        _ => a == b,
    }
}

fn same_type(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => ColumnType::read(a) == ColumnType::read(b),
        _ => same_value(a, b),
    }
}

/// Returns the specification of a new table, converted from the columns of the request to those of
/// the table. `ids` maps the ids, `schema` is the new schema.
///
/// # Errors
/// Those of [`bind_spec`].
pub(crate) fn fresh_spec(
    spec: &RawJson,
    schema: &RawJson,
    ids: &HashMap<i32, i32>,
    doc: &TableDoc,
) -> Result<(RawJson, i32)> {
    bind_spec(&with_sources(spec, ids, "partition")?, schema, doc)
}

/// Returns the sort order of a new table, like [`fresh_spec`].
///
/// # Errors
/// Those of [`bind_order`].
pub(crate) fn fresh_order(
    order: &RawJson,
    schema: &RawJson,
    ids: &HashMap<i32, i32>,
) -> Result<RawJson> {
    bind_order(&with_sources(order, ids, "sort")?, schema)
}

/// Returns the part with other column ids, and without field ids.
fn with_sources(part: &RawJson, ids: &HashMap<i32, i32>, what: &str) -> Result<RawJson> {
    let fresh = |id: i32| {
        let fresh = ids.get(&id).copied();
        fresh.ok_or_else(|| {
            invalid(format!("Cannot find source column for {what} field: there is no column {id}"))
        })
    };
    let mut out = vec![b'['];
    for field in fields_of(part)? {
        put_comma(&mut out);
        out.push(b'{');
        for (name, value) in field.members()? {
            let value = match (&*name, value.as_i32()) {
                ("field-id", _) => continue,
                ("source-id", Some(id)) => RawJson::integer(fresh(id)?.into()),
                ("source-ids", _) if !value.is_null() => {
                    let sources: Vec<i32> = value.decode()?;
                    let sources: Vec<i32> =
                        sources.into_iter().map(fresh).collect::<Result<_>>()?;
                    RawJson::of(&sources)?
                }
                _ => value,
            };
            put_name(&mut out, &name);
            out.extend_from_slice(value.as_bytes());
        }
        out.push(b'}');
    }
    out.push(b']');
    Ok(part.with("fields", &RawJson::written(out))?.compact())
}

fn fields_of(part: &RawJson) -> Result<Vec<RawJson>> {
    let [fields] = members_of_field(part, ["fields"])?;
    let fields = fields.ok_or_else(|| illegal("Cannot parse missing field: fields"))?;
    let items = fields.items().map_err(|_| {
        illegal(format!("Cannot parse fields, not an array: {:.80}", fields.text()))
    })?;
    Ok(items.collect())
}

fn empty() -> RawJson {
    RawJson::written(b"{}".to_vec())
}
