//! Schemas, partition specifications and sort orders, as far as an update needs to look into them.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use crate::doc::{LAST_PARTITION_ID_NONE, TableDoc};
use crate::json::{Fragment, JsonKind, put_comma};
use crate::{Error, Kind, Result};

/// The part with its id set to `id`, all else as it was.
#[must_use]
pub fn with_id(raw: &Fragment, key: &str, id: i32) -> Fragment {
    if raw.get(key).and_then(|old| old.as_i32()) == Some(id) {
        return raw.clone();
    }
    // What is no object has no members, and becomes one of this member.
    let object = if raw.kind() == JsonKind::Object { raw.clone() } else { empty() };
    object.with(key, &Fragment::integer(id.into())).unwrap_or(object)
}

/// The highest id of a schema's columns, those within columns included. 0 if it has none.
///
/// # Errors
/// When it is no schema.
pub fn last_column_id_of(schema: &Fragment) -> Result<i32> {
    Ok(columns(schema)?.keys().copied().max().unwrap_or(0))
}

/// Checks that a schema can be one of a table of this version.
///
/// # Errors
/// When it is no schema, or an id stands for two columns.
pub fn check_schema(schema: &Fragment, _format_version: u8) -> Result<()> {
    columns(schema).map(drop)
}

/// Whether both have the same columns and the same identifier fields; ids of the schemas and the
/// order of members do not matter.
#[must_use]
pub fn same_schema(a: &Fragment, b: &Fragment) -> bool {
    let fields = |it: &Fragment| it.get("fields").and_then(|it| it.decode::<Value>().ok());
    let identifiers = |it: &Fragment| -> BTreeSet<i32> {
        let ids = it.get("identifier-field-ids");
        ids.and_then(|ids| ids.decode().ok()).unwrap_or_default()
    };
    a == b || fields(a) == fields(b) && identifiers(a) == identifiers(b)
}

/// Whether both partition by the same columns, transforms and names, in the same order; ids of the
/// fields do not matter.
#[must_use]
pub fn same_spec(a: &Fragment, b: &Fragment) -> bool {
    same_fields(a, b, &["source-id", "source-ids", "transform", "name"])
}

/// Whether both sort by the same columns, transforms and directions, in the same order.
#[must_use]
pub fn same_order(a: &Fragment, b: &Fragment) -> bool {
    same_fields(a, b, &["source-id", "source-ids", "transform", "direction", "null-order"])
}

/// The specification with an id for each field that has none: that of the same field in another
/// specification of the table, or the next. Also the highest id of its fields.
///
/// # Errors
/// [`Kind::Validation`] when a field has no column in `schema`.
pub fn bind_spec(spec: &Fragment, schema: &Fragment, doc: &TableDoc) -> Result<(Fragment, i32)> {
    let columns = columns(schema)?;
    let known: Vec<Fragment> = doc.specs.iter().flat_map(|spec| fields_of(&spec.raw)).collect();
    let (mut out, mut last, mut next) = (vec![b'['], LAST_PARTITION_ID_NONE, doc.last_partition_id);
    for field in fields_of(spec) {
        check_sources(&field, &columns, "partition")?;
        let given = field.get("field-id").and_then(|id| id.as_i32());
        let same =
            |it: &&Fragment| same_members(it, &field, &["source-id", "source-ids", "transform"]);
        let known = || known.iter().find(same)?.get("field-id")?.as_i32();
        let id = match given.or_else(known) {
            Some(id) => id,
            None => {
                next = next.checked_add(1).ok_or_else(|| invalid("there are no more field ids"))?;
                next
            }
        };
        (last, next) = (last.max(id), next.max(id));
        put_comma(&mut out);
        out.extend_from_slice(with_id(&field, "field-id", id).as_bytes());
    }
    out.push(b']');
    Ok((spec.with("fields", &Fragment::written(out))?, last))
}

/// The order, once all it sorts by is known to be there.
///
/// # Errors
/// [`Kind::Validation`] when a field has no column in `schema`.
pub fn bind_order(order: &Fragment, schema: &Fragment) -> Result<Fragment> {
    let columns = columns(schema)?;
    fields_of(order).iter().try_for_each(|field| check_sources(field, &columns, "sort"))?;
    Ok(order.clone())
}

/// Whether each column is a primitive, by its id.
fn columns(schema: &Fragment) -> Result<HashMap<i32, bool>> {
    let mut found = HashMap::new();
    visit_struct(schema, &mut found)?;
    Ok(found)
}

fn visit_struct(value: &Fragment, found: &mut HashMap<i32, bool>) -> Result<()> {
    let fields = value.get("fields").ok_or_else(|| invalid("a struct has no `fields`"))?;
    for field in fields.items()? {
        let id = field.get("id").and_then(|id| id.as_i32());
        visit(id, field.get("type"), found)?;
    }
    Ok(())
}

fn visit(id: Option<i32>, kind: Option<Fragment>, found: &mut HashMap<i32, bool>) -> Result<()> {
    let id = id.ok_or_else(|| invalid("a column has no id"))?;
    let kind = kind.ok_or_else(|| invalid(format!("column {id} has no type")))?;
    if found.insert(id, kind.kind() == JsonKind::String).is_some() {
        return Err(invalid(format!("Multiple entries with same key: {id}")));
    }
    if kind.kind() != JsonKind::Object {
        return Ok(());
    }
    let id_of = |name: &str| kind.get(name).and_then(|id| id.as_i32());
    match kind.get("type").as_ref().and_then(Fragment::as_str).as_deref() {
        Some("list") => visit(id_of("element-id"), kind.get("element"), found),
        Some("map") => {
            visit(id_of("key-id"), kind.get("key"), found)?;
            visit(id_of("value-id"), kind.get("value"), found)
        }
        _ => visit_struct(&kind, found),
    }
}

fn check_sources(field: &Fragment, columns: &HashMap<i32, bool>, what: &str) -> Result<()> {
    let several = field.get("source-ids").and_then(|ids| ids.decode::<Vec<i32>>().ok());
    let one = field.get("source-id").and_then(|id| id.as_i32());
    let sources = several.unwrap_or_else(|| one.into_iter().collect());
    if sources.is_empty() {
        return Err(invalid(format!("a {what} field has no `source-id`")));
    }
    for id in sources {
        match columns.get(&id) {
            Some(true) => {}
            Some(false) => {
                return Err(invalid(format!("Cannot {what} by non-primitive source field: {id}")));
            }
            None => {
                return Err(invalid(format!("Cannot find source column for {what} field: {id}")));
            }
        }
    }
    Ok(())
}

fn fields_of(part: &Fragment) -> Vec<Fragment> {
    let fields = part.get("fields");
    fields.as_ref().and_then(|fields| fields.items().ok()).into_iter().flatten().collect()
}

fn same_fields(a: &Fragment, b: &Fragment, names: &[&str]) -> bool {
    let (a, b) = (fields_of(a), fields_of(b));
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| same_members(a, b, names))
}

fn same_members(a: &Fragment, b: &Fragment, names: &[&str]) -> bool {
    let value = |it: &Fragment, name| it.get(name).and_then(|it| it.decode::<Value>().ok());
    names.iter().all(|name| value(a, name) == value(b, name))
}

fn empty() -> Fragment {
    Fragment::written(b"{}".to_vec())
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Kind::Validation, message)
}
