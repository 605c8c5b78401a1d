//! New ids for the columns of a new table, in the reference's order: first all columns of a struct,
//! then the children of each.

use std::collections::{BTreeSet, HashMap};
use std::mem;

use super::columns::{SchemaColumns, members, type_of};
use super::types::ColumnType;
use crate::Result;
use crate::error::{bad, invalid};
use crate::json::{RawJson, put_comma, put_integer, put_name};

/// A schema whose columns have new ids.
#[derive(Debug)]
pub struct RenumberedSchema {
    /// The schema with the new ids.
    pub raw: RawJson,
    /// Columns of the schema, whose types are in their original form.
    pub columns: SchemaColumns,
    /// Highest new id; one less than the first if there is no column.
    pub last_column_id: i32,
    /// New ids by old id.
    pub ids: HashMap<i32, i32>,
}

/// Assigns ids from `first` on.
///
/// # Errors
/// If it is no schema, two columns share an id, or an identifier field does not exist.
pub fn fresh_ids(schema: &RawJson, first: i32) -> Result<RenumberedSchema> {
    let mut columns = SchemaColumns::read(schema)?;
    let mut ids = HashMap::with_capacity(columns.list.len());
    let mut next = first;
    // The list has parents before children: the children of one parent, in order, get consecutive
    // ids. Parents are then visited depth first.
    let mut outermost = Vec::with_capacity(columns.list.len());
    let mut children = vec![Vec::new(); columns.list.len()];
    for (place, column) in columns.list.iter().enumerate() {
        match column.parent.and_then(|parent| children.get_mut(parent)) {
            Some(children) => children.push(place),
            None => outermost.push(place),
        }
    }
    let mut waiting = vec![outermost];
    while let Some(within) = waiting.pop() {
        for column in within.iter().filter_map(|&place| columns.list.get(place)) {
            ids.insert(column.id, next);
            next = next.checked_add(1).ok_or_else(|| invalid("the column ids are used up"))?;
        }
        for place in within.into_iter().rev() {
            let inner = children.get_mut(place).map(mem::take).unwrap_or_default();
            if !inner.is_empty() {
                waiting.push(inner);
            }
        }
    }
    let raw = rewritten(schema, &ids)?;
    columns.renumber(&ids);
    Ok(RenumberedSchema { raw, columns, last_column_id: next.saturating_sub(1), ids })
}

fn rewritten(schema: &RawJson, ids: &HashMap<i32, i32>) -> Result<RawJson> {
    let mut out = Vec::with_capacity(schema.as_bytes().len());
    put_struct(&mut out, schema, ids)?;
    let schema = RawJson::written(out).compact();
    let [identifiers] = members(&schema, ["identifier-field-ids"])?;
    let Some(identifiers) = identifiers else { return Ok(schema) };
    let identifiers: Vec<i32> = identifiers.decode()?;
    let fresh = |id: &i32| {
        let id = ids.get(id).copied();
        id.ok_or_else(|| bad("Cannot add an identifier field: there is no column that has its id"))
    };
    let fresh: BTreeSet<i32> = identifiers.iter().map(fresh).collect::<Result<_>>()?;
    let fresh: Vec<i32> = fresh.into_iter().collect();
    Ok(schema.with("identifier-field-ids", &RawJson::of(&fresh)?)?)
}

fn put_struct(out: &mut Vec<u8>, value: &RawJson, ids: &HashMap<i32, i32>) -> Result<()> {
    out.push(b'{');
    for (name, value) in value.members()? {
        put_name(out, &name);
        if name != "fields" {
            out.extend_from_slice(value.as_bytes());
            continue;
        }
        out.push(b'[');
        for field in value.items()? {
            put_comma(out);
            put_field(out, &field, ids)?;
        }
        out.push(b']');
    }
    out.push(b'}');
    Ok(())
}

fn put_field(out: &mut Vec<u8>, field: &RawJson, ids: &HashMap<i32, i32>) -> Result<()> {
    out.push(b'{');
    for (name, value) in field.members()? {
        // A null default is left out: the reference cannot read one.
        if value.is_null() && matches!(&*name, "initial-default" | "write-default") {
            continue;
        }
        put_name(out, &name);
        match &*name {
            "id" => put_id(out, &value, ids),
            "type" => put_type(out, &value, ids)?,
            _ => out.extend_from_slice(value.as_bytes()),
        }
    }
    out.push(b'}');
    Ok(())
}

fn put_type(out: &mut Vec<u8>, value: &RawJson, ids: &HashMap<i32, i32>) -> Result<()> {
    let is_list = match value.members() {
        Err(_) => None,
        Ok(_) => match type_of(value)? {
            ColumnType::Struct => return put_struct(out, value, ids),
            kind => Some(kind == ColumnType::List),
        },
    };
    let Some(is_list) = is_list else {
        out.extend_from_slice(value.as_bytes());
        return Ok(());
    };
    out.push(b'{');
    for (name, value) in value.members()? {
        put_name(out, &name);
        match (&*name, is_list) {
            ("element-id", true) | ("key-id" | "value-id", false) => put_id(out, &value, ids),
            ("element", true) | ("key" | "value", false) => put_type(out, &value, ids)?,
            _ => out.extend_from_slice(value.as_bytes()),
        }
    }
    out.push(b'}');
    Ok(())
}

fn put_id(out: &mut Vec<u8>, value: &RawJson, ids: &HashMap<i32, i32>) {
    match value.as_i32().and_then(|id| ids.get(&id)) {
        Some(id) => put_integer(out, (*id).into()),
        None => out.extend_from_slice(value.as_bytes()),
    }
}
