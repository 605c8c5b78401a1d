//! The columns of a schema in one list, including nested ones.

use std::collections::HashMap;

use super::types::ColumnType;
use crate::error::{bad, invalid};
use crate::json::{JsonKind, RawJson};
use crate::{CatalogError, ErrorReason, Result};

/// Most columns of a schema, including nested ones.
pub const COLUMNS_MAX: usize = 100_000;
/// Most bytes of the full names of a schema's columns, each including the names of its parents.
pub const NAMES_BYTES_MAX: usize = 64 << 20;

/// A column, the element of a list, or the key or value of a map.
#[derive(Clone, Debug)]
pub struct SchemaColumn {
    /// Field id.
    pub id: i32,
    /// Full name, including the names of its parents, divided by dots.
    pub name: String,
    /// Index of the parent in the list.
    pub(crate) parent: Option<usize>,
    pub(crate) kind: ColumnType,
    /// The type in its original form.
    pub written: RawJson,
    /// True if no value may be null.
    pub is_required: bool,
    pub(crate) initial_default: Option<RawJson>,
    pub(crate) write_default: Option<RawJson>,
}

/// All columns of a schema, parents before their children.
#[derive(Debug, Default)]
pub struct SchemaColumns {
    /// The columns, in the order of the schema.
    pub list: Vec<SchemaColumn>,
    by_id: HashMap<i32, usize>,
    by_name: HashMap<String, usize>,
    /// The first name that two columns share, and their ids.
    pub(crate) same_name: Option<(String, i32, i32)>,
    name_bytes: usize,
}

impl SchemaColumns {
    /// Reads the columns of a schema. Unknown types and duplicate names are accepted, since
    /// documents of other versions and other writers may have them.
    pub fn read(schema: &RawJson) -> Result<SchemaColumns> {
        let [kind, fields] = members(schema, ["type", "fields"])?;
        if let Some(kind) = kind.filter(|kind| kind.as_str().as_deref() != Some("struct")) {
            return Err(bad(format!(
                "Cannot create schema, not a struct type: {:.80}",
                kind.text()
            )));
        }
        let mut columns = SchemaColumns::default();
        columns.add_fields(fields, None)?;
        Ok(columns)
    }

    /// Replaces the ids of the columns.
    pub(super) fn renumber(&mut self, ids: &HashMap<i32, i32>) {
        let fresh = |id: i32| ids.get(&id).copied().unwrap_or(id);
        self.by_id.clear();
        for (place, column) in self.list.iter_mut().enumerate() {
            column.id = fresh(column.id);
            self.by_id.insert(column.id, place);
        }
        if let Some((_, first, second)) = &mut self.same_name {
            (*first, *second) = (fresh(*first), fresh(*second));
        }
    }

    /// Returns the column with this id.
    pub(crate) fn get(&self, id: i32) -> Option<&SchemaColumn> {
        self.list.get(*self.by_id.get(&id)?)
    }

    /// Returns the column with this full name.
    pub(crate) fn named(&self, name: &str) -> Option<&SchemaColumn> {
        self.list.get(*self.by_name.get(name)?)
    }

    /// Returns the parents of a column, nearest first.
    pub(crate) fn around(&self, column: &SchemaColumn) -> impl Iterator<Item = &SchemaColumn> {
        let parent = |it: &SchemaColumn| it.parent.and_then(|place| self.list.get(place));
        std::iter::successors(parent(column), move |it| parent(it))
    }

    fn add_fields(&mut self, fields: Option<RawJson>, parent: Option<usize>) -> Result<()> {
        let fields = fields.ok_or_else(|| bad("a struct has no `fields`"))?;
        let items = fields.items().map_err(|_| {
            bad(format!("Cannot parse struct fields from non-array: {:.80}", fields.text()))
        })?;
        for field in items {
            let names = ["id", "name", "required", "type", "initial-default", "write-default"];
            let [id, name, required, kind, initial_default, write_default] =
                members(&field, names)?;
            let name = name.as_ref().and_then(RawJson::as_str);
            let name = name.ok_or_else(|| bad("Cannot parse missing string: name"))?;
            let part = ColumnPart { id, name: &name, kind, required };
            let place = self.add(part, parent)?;
            if let Some(column) = self.list.get_mut(place) {
                column.initial_default = initial_default;
                column.write_default = write_default;
            }
            self.add_within(place)?;
        }
        Ok(())
    }

    /// Adds the children of the column at this index.
    fn add_within(&mut self, place: usize) -> Result<()> {
        let Some(column) = self.list.get(place) else { return Ok(()) };
        let (kind, written) = (column.kind.clone(), column.written.clone());
        match kind {
            ColumnType::Struct => {
                let [fields] = members(&written, ["fields"])?;
                self.add_fields(fields, Some(place))
            }
            ColumnType::List => {
                let [id, kind, required] =
                    members(&written, ["element-id", "element", "element-required"])?;
                let place =
                    self.add(ColumnPart { id, name: "element", kind, required }, Some(place))?;
                self.add_within(place)
            }
            ColumnType::Map => {
                let names = ["key-id", "key", "value-id", "value", "value-required"];
                let [key_id, key, value_id, value, required] = members(&written, names)?;
                let always = Some(RawJson::written(b"true".to_vec()));
                let key = ColumnPart { id: key_id, name: "key", kind: key, required: always };
                let key = self.add(key, Some(place))?;
                self.add_within(key)?;
                let value = ColumnPart { id: value_id, name: "value", kind: value, required };
                let value = self.add(value, Some(place))?;
                self.add_within(value)
            }
            _ => Ok(()),
        }
    }

    fn add(&mut self, part: ColumnPart<'_>, parent: Option<usize>) -> Result<usize> {
        let id = part.id.as_ref().and_then(RawJson::as_i32);
        let id = id.ok_or_else(|| bad(format!("the column `{:.80}` has no id", part.name)))?;
        let written = part.kind.ok_or_else(|| bad(format!("column {id} has no type")))?;
        let kind = type_of(&written)?;
        let required = part.required.as_ref().and_then(RawJson::as_bool);
        let is_required = required
            .ok_or_else(|| bad(format!("column {id} does not say whether it is required")))?;
        let name = match parent.and_then(|place| self.list.get(place)) {
            Some(parent) => format!("{}.{}", parent.name, part.name),
            None => part.name.to_owned(),
        };
        self.name_bytes = self.name_bytes.saturating_add(name.len());
        if self.list.len() == COLUMNS_MAX || self.name_bytes > NAMES_BYTES_MAX {
            let message = format!(
                "a schema may have {COLUMNS_MAX} columns at the most, and names of \
                 {NAMES_BYTES_MAX} bytes"
            );
            return Err(CatalogError::new(ErrorReason::TooLarge, message));
        }
        let place = self.list.len();
        if self.by_id.insert(id, place).is_some() {
            return Err(invalid(format!("Multiple entries with same key: {id}")));
        }
        let first = *self.by_name.entry(name.clone()).or_insert(place);
        if first != place && self.same_name.is_none() {
            let first = self.list.get(first).map_or(id, |first| first.id);
            self.same_name = Some((name.clone(), first, id));
        }
        let (initial_default, write_default) = (None, None);
        self.list.push(SchemaColumn {
            id,
            name,
            parent,
            kind,
            written,
            is_required,
            initial_default,
            write_default,
        });
        Ok(place)
    }
}

/// Definition of a column in a schema.
struct ColumnPart<'a> {
    id: Option<RawJson>,
    name: &'a str,
    kind: Option<RawJson>,
    required: Option<RawJson>,
}

pub(crate) fn type_of(written: &RawJson) -> Result<ColumnType> {
    if let Some(text) = written.as_str() {
        return Ok(ColumnType::read(&text));
    }
    if written.kind() != JsonKind::Object {
        return Err(bad(format!("Cannot parse type from json: {:.80}", written.text())));
    }
    let [kind] = members(written, ["type"])?;
    match kind.as_ref().and_then(RawJson::as_str).as_deref() {
        Some("struct") => Ok(ColumnType::Struct),
        Some("list") => Ok(ColumnType::List),
        Some("map") => Ok(ColumnType::Map),
        // It may have nested columns whose ids would be missed.
        _ => Err(bad(format!("Cannot parse type from json: {:.80}", written.text()))),
    }
}

/// Returns these members of an object; null counts as absent.
///
/// Each may occur once: readers disagree on which of two duplicates counts.
pub(crate) fn members<const N: usize>(
    object: &RawJson,
    names: [&str; N],
) -> Result<[Option<RawJson>; N]> {
    let mut found = [const { None }; N];
    let all = object
        .members()
        .map_err(|_| bad(format!("{} where an object is expected", object.kind())))?;
    for (name, value) in all {
        let place = names.iter().position(|it| *it == name);
        let Some(slot) = place.and_then(|place| found.get_mut(place)) else { continue };
        if slot.replace(value).is_some() {
            return Err(bad(format!("`{name}` occurs twice")));
        }
    }
    Ok(found.map(|it| it.filter(|value| !value.is_null())))
}
