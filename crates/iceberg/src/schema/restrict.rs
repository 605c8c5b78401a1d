//! Read restrictions of a table: row filters and column masks, bound to a schema.
//!
//! Columns are bound by their ids, so that a renamed column stays restricted.

use serde_json::{Map, Value, json};

use super::columns::{SchemaColumn, SchemaColumns};
use super::types::ColumnType;
use crate::error::bad;
use crate::json::RawJson;
use crate::{CatalogError, Result};

/// Most predicates of a filter.
pub const FILTER_PREDICATES_MAX: usize = 1000;

/// Mask of a column for a reader that may not see its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MaskAction {
    /// The year of a time.
    TruncateToYear,
    /// The month of a time.
    TruncateToMonth,
    /// The first four characters.
    ShowFirst4,
    /// The last four characters.
    ShowLast4,
    /// Replaces letters and digits.
    MaskAlphanum,
    /// A hash that is the same everywhere.
    Sha256Global,
    /// A hash that differs between queries.
    Sha256QueryLocal,
    /// A constant value.
    MaskToFixedValue,
    /// Null.
    ReplaceWithNull,
}

/// All actions with their names, from the least to the most strict.
const ACTIONS: [(MaskAction, &str); 9] = [
    (MaskAction::TruncateToMonth, "truncate-to-month"),
    (MaskAction::TruncateToYear, "truncate-to-year"),
    (MaskAction::ShowFirst4, "show-first-4"),
    (MaskAction::ShowLast4, "show-last-4"),
    (MaskAction::MaskAlphanum, "mask-alphanum"),
    (MaskAction::Sha256Global, "sha-256-global"),
    (MaskAction::Sha256QueryLocal, "sha-256-query-local"),
    (MaskAction::MaskToFixedValue, "mask-to-fixed-value"),
    (MaskAction::ReplaceWithNull, "replace-with-null"),
];

impl MaskAction {
    /// Returns the action of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<MaskAction> {
        ACTIONS.iter().find(|(_, known)| *known == name).map(|(action, _)| *action)
    }

    /// Returns the name in Iceberg's interface.
    #[must_use]
    pub fn name(self) -> &'static str {
        ACTIONS.iter().find(|(action, _)| *action == self).map_or("", |(_, name)| name)
    }

    /// Returns the stricter of two actions.
    #[must_use]
    pub fn stricter(self, other: MaskAction) -> MaskAction {
        let place = |wanted| ACTIONS.iter().position(|(action, _)| *action == wanted);
        if place(self) < place(other) { other } else { self }
    }

    fn takes(self, column: &SchemaColumn) -> bool {
        let is_string = column.kind == ColumnType::String;
        match self {
            MaskAction::ReplaceWithNull => !column.is_required,
            MaskAction::MaskToFixedValue => column.kind.is_primitive(),
            MaskAction::Sha256Global | MaskAction::Sha256QueryLocal => {
                is_string || column.kind == ColumnType::Binary
            }
            MaskAction::MaskAlphanum | MaskAction::ShowFirst4 | MaskAction::ShowLast4 => is_string,
            MaskAction::TruncateToYear | MaskAction::TruncateToMonth => {
                column.kind == ColumnType::Date || column.kind.is_timestamp()
            }
        }
    }
}

/// The columns of a table that restrictions are bound to.
#[derive(Debug)]
pub struct RestrictableColumns(SchemaColumns);

impl RestrictableColumns {
    /// Returns the columns of a schema.
    pub fn of(schema: &RawJson) -> Result<RestrictableColumns> {
        Ok(RestrictableColumns(SchemaColumns::read(schema)?))
    }

    /// Returns the id of a column to mask.
    ///
    /// # Errors
    /// `BadRequest` if the column does not exist, or the action does not apply to its type.
    pub fn project(&self, reference: &Value, action: MaskAction) -> Result<i32> {
        let column = self.column(reference)?;
        let is_repeated = |it: &SchemaColumn| matches!(it.kind, ColumnType::List | ColumnType::Map);
        if self.0.around(column).any(is_repeated) {
            return Err(bad(format!(
                "`column-projections`: `{:.100}` is within a list or a map",
                column.name
            )));
        }
        if !action.takes(column) {
            let what = match action {
                MaskAction::ReplaceWithNull => "required".to_owned(),
                _ => format!("of type {:.60}", column.written.text()),
            };
            let (name, action) = (&column.name, action.name());
            return Err(bad(format!(
                "`column-projections`: `{action}` is not for `{name:.100}`, which is {what}"
            )));
        }
        Ok(column.id)
    }

    /// Returns a filter with its columns by id, in the newer form of the interface.
    ///
    /// # Errors
    /// `BadRequest` if it is no predicate, names a column that does not exist, or compares one with
    /// a value of another type.
    pub fn bind(&self, filter: &Value) -> Result<Value> {
        let mut left = FILTER_PREDICATES_MAX;
        self.predicate(filter, &mut left)
    }

    fn predicate(&self, filter: &Value, left: &mut usize) -> Result<Value> {
        *left = left.checked_sub(1).ok_or_else(|| {
            wrong(&format!("there are more than {FILTER_PREDICATES_MAX} predicates"))
        })?;
        let all = match filter {
            Value::Bool(is) => return Ok(Value::Bool(*is)),
            Value::Object(all) => all,
            _ => return Err(wrong("a predicate is `true`, `false` or an object")),
        };
        let kind = all.get("type").and_then(Value::as_str).unwrap_or_default();
        match kind {
            "true" | "false" => Ok(Value::Bool(kind == "true")),
            "and" | "or" => {
                let one = self.predicate(member(all, "left")?, left)?;
                let other = self.predicate(member(all, "right")?, left)?;
                Ok(json!({"type": kind, "left": one, "right": other}))
            }
            "not" => {
                let child = self.predicate(member(all, "child")?, left)?;
                Ok(json!({"type": kind, "child": child}))
            }
            "is-null" | "not-null" | "is-nan" | "not-nan" => {
                let column = self.operand(all, "child")?;
                let is_float = matches!(column.kind, ColumnType::Float | ColumnType::Double);
                if kind.ends_with("nan") && !is_float {
                    return Err(wrong(&format!(
                        "`{:.100}` is not a floating-point column",
                        column.name
                    )));
                }
                Ok(json!({"type": kind, "child": reference(column)}))
            }
            "eq" | "not-eq" | "lt" | "lt-eq" | "gt" | "gt-eq" | "starts-with"
            | "not-starts-with" => {
                let column = self.operand(all, "left")?;
                let value = all.get("right").or_else(|| all.get("value"));
                let value = value.ok_or_else(|| wrong(&format!("`{kind}` has no `right`")))?;
                if kind.ends_with("starts-with") && column.kind != ColumnType::String {
                    return Err(wrong(&format!("`{:.100}` is not a string column", column.name)));
                }
                let value = json!({"type": "literal", "value": literal(column, value)?});
                Ok(json!({"type": kind, "left": reference(column), "right": value}))
            }
            "in" | "not-in" => {
                let column = self.operand(all, "child")?;
                let values = match member(all, "values")? {
                    Value::Object(typed) => member(typed, "values")?,
                    values => values,
                };
                let values = values.as_array().ok_or_else(|| wrong("`values` is a list"))?;
                let values = values.iter().map(|value| literal(column, value));
                let values = values.collect::<Result<Vec<_>>>()?;
                Ok(json!({"type": kind, "child": reference(column), "values": values}))
            }
            _ => Err(wrong(&format!("`{kind:.40}` is not a type of predicate"))),
        }
    }

    /// Returns the column of a predicate.
    fn operand(&self, all: &Map<String, Value>, name: &str) -> Result<&SchemaColumn> {
        let found = all.get(name).or_else(|| all.get("term"));
        let column = self.column(found.ok_or_else(|| wrong(&format!("there is no `{name}`")))?)?;
        if !column.kind.is_primitive() {
            return Err(wrong(&format!("`{:.100}` has no values to compare", column.name)));
        }
        let is_repeated = |it: &SchemaColumn| matches!(it.kind, ColumnType::List | ColumnType::Map);
        match self.0.around(column).any(is_repeated) {
            true => Err(wrong(&format!("`{:.100}` is within a list or a map", column.name))),
            false => Ok(column),
        }
    }

    /// Resolves a column by its name, its id, or a reference with either.
    fn column(&self, reference: &Value) -> Result<&SchemaColumn> {
        let named = match reference {
            Value::Object(all) => all.get("id").or_else(|| all.get("name")),
            other => Some(other),
        };
        if let Value::Object(all) = reference
            && all.get("type").and_then(Value::as_str) != Some("reference")
        {
            let message = "transforms and functions are not taken: a column is its name or a \
                `reference`";
            return Err(wrong(message));
        }
        let found = match named {
            Some(Value::String(name)) => self.0.named(name),
            Some(Value::Number(id)) => {
                let id = id.as_i64().and_then(|id| i32::try_from(id).ok());
                id.and_then(|id| self.0.get(id))
            }
            _ => return Err(wrong("a column is its name or a `reference`")),
        };
        found.ok_or_else(|| {
            let excerpt: String = reference.to_string().chars().take(100).collect();
            bad(format!("Column does not exist: {excerpt}"))
        })
    }
}

fn reference(column: &SchemaColumn) -> Value {
    json!({"type": "reference", "id": column.id})
}

/// Checks a literal for a column, in the form of filters.
fn literal(column: &SchemaColumn, value: &Value) -> Result<Value> {
    let value = match value {
        Value::Object(all) if all.get("type").and_then(Value::as_str) == Some("literal") => {
            member(all, "value")?
        }
        value => value,
    };
    let fits = match column.kind {
        ColumnType::Boolean => value.is_boolean(),
        ColumnType::Int => value.as_i64().is_some_and(|it| i32::try_from(it).is_ok()),
        ColumnType::Long => value.is_i64(),
        ColumnType::Float | ColumnType::Double => value.is_number(),
        // All other types are written as text, in a form that clients know.
        _ => value.is_string(),
    };
    if fits {
        return Ok(value.clone());
    }
    let excerpt: String = value.to_string().chars().take(60).collect();
    let (name, kind) = (&column.name, column.written.text());
    Err(wrong(&format!("`{name:.100}` of type {kind:.60} is compared with {excerpt}")))
}

fn member<'a>(all: &'a Map<String, Value>, name: &str) -> Result<&'a Value> {
    all.get(name).ok_or_else(|| wrong(&format!("a part of it has no `{name}`")))
}

fn wrong(message: &str) -> CatalogError {
    bad(format!("`row-filter`: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> RestrictableColumns {
        let schema = json!({"type": "struct", "schema-id": 0, "fields": [
            {"id": 1, "name": "id", "required": true, "type": "long"},
            {"id": 2, "name": "country", "required": false, "type": "string"},
            {"id": 3, "name": "born", "required": false, "type": "date"},
            {"id": 4, "name": "score", "required": false, "type": "double"},
            {"id": 5, "name": "tags", "required": false, "type":
                {"type": "list", "element-id": 6, "element": "string", "element-required": true}},
            {"id": 7, "name": "home", "required": false, "type": {"type": "struct", "fields": [
                {"id": 8, "name": "street", "required": false, "type": "string"}]}},
            {"id": 9, "name": "at", "required": false, "type": "timestamptz"},
        ]});
        RestrictableColumns::of(&RawJson::of(&schema).unwrap()).unwrap()
    }

    fn check(filter: &Value, expected: std::result::Result<Value, &str>) {
        match (table().bind(filter), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{filter}"),
            (Err(error), Err(expected)) => {
                assert_eq!(error.kind, crate::ErrorReason::BadRequest);
                assert!(error.message.contains(expected), "{filter} {}", error.message);
            }
            (found, expected) => panic!("{filter}: {found:?} is not {expected:?}"),
        }
    }

    fn id(id: i32) -> Value {
        json!({"type": "reference", "id": id})
    }

    #[test]
    fn a_filter_of_either_form_is_bound_to_ids() {
        let eq = json!({"type": "eq", "left": id(2), "right": {"type": "literal", "value": "DE"}});
        for filter in [
            json!({"type": "eq", "term": "country", "value": "DE"}),
            json!({"type": "eq", "left": {"type": "reference", "name": "country"}, "right": "DE"}),
            json!({"type": "eq", "left": id(2), "right": {"type": "literal", "value": "DE",
                "data-type": "string"}}),
            eq.clone(),
        ] {
            check(&filter, Ok(eq.clone()));
        }
        check(&json!({"type": "true"}), Ok(json!(true)));
        check(&json!(false), Ok(json!(false)));
        let set = json!({"type": "in", "child": id(1), "values": [1, 2]});
        check(&json!({"type": "in", "term": "id", "values": [1, 2]}), Ok(set.clone()));
        let is_set = json!({"type": "not-null", "term": "home.street"});
        check(
            &json!({"type": "or", "left": is_set, "right": {"type": "not", "child": set}}),
            Ok(json!({"type": "or", "left": {"type": "not-null", "child": id(8)},
                "right": {"type": "not", "child": set}})),
        );
    }

    #[test]
    fn what_is_no_filter_of_the_table_is_refused() {
        for (filter, expected) in [
            (json!("true"), "a predicate is"),
            (json!({"type": "like", "term": "id", "value": 1}), "`like`"),
            (json!({"type": "eq", "term": "none", "value": 1}), "Column does not exist"),
            (json!({"type": "eq", "term": id(99), "value": 1}), "Column does not exist"),
            (json!({"type": "eq", "term": "id", "value": "1"}), "compared with"),
            (json!({"type": "eq", "term": "id", "value": 1.5}), "compared with"),
            (json!({"type": "eq", "term": "id", "value": null}), "compared with"),
            (json!({"type": "eq", "term": "born", "value": 3}), "compared with"),
            (json!({"type": "eq", "term": "id"}), "no `right`"),
            (json!({"type": "is-nan", "term": "id"}), "floating-point"),
            (json!({"type": "starts-with", "term": "id", "value": 1}), "is not a string column"),
            (json!({"type": "is-null", "term": "tags.element"}), "within a list"),
            (json!({"type": "is-null", "term": "home"}), "no values"),
            (json!({"type": "in", "term": "id", "values": 1}), "`values`"),
            (json!({"type": "and", "left": true}), "`right`"),
            (
                json!({"type": "eq", "value": 1, "term":
                    {"type": "transform", "transform": "bucket[4]", "term": "id"}}),
                "transforms",
            ),
        ] {
            check(&filter, Err(expected));
        }
        let mut long = json!(true);
        for _ in 0..10 {
            long = json!({"type": "and", "left": long.clone(), "right": long});
        }
        check(&long, Err("more than"));
    }

    #[test]
    fn an_action_is_for_columns_of_its_types() {
        let table = table();
        for (column, action, expected) in [
            ("country", "mask-alphanum", Ok(2)),
            ("country", "show-first-4", Ok(2)),
            ("home.street", "show-last-4", Ok(8)),
            ("country", "sha-256-global", Ok(2)),
            ("country", "sha-256-query-local", Ok(2)),
            ("born", "truncate-to-year", Ok(3)),
            ("at", "truncate-to-month", Ok(9)),
            ("score", "replace-with-null", Ok(4)),
            ("tags", "replace-with-null", Ok(5)),
            ("id", "mask-to-fixed-value", Ok(1)),
            ("id", "replace-with-null", Err("required")),
            ("id", "mask-alphanum", Err("of type")),
            ("country", "truncate-to-year", Err("of type")),
            ("tags", "mask-to-fixed-value", Err("of type")),
            ("tags.element", "mask-alphanum", Err("within a list")),
            ("none", "mask-alphanum", Err("does not exist")),
        ] {
            let action = MaskAction::of(action).unwrap();
            let found = table.project(&json!(column), action).map_err(|error| error.message);
            match (&found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(*found, expected),
                (Err(message), Err(expected)) => assert!(message.contains(expected), "{message}"),
                _ => panic!("{column} {action:?}: {found:?}"),
            }
        }
        assert_eq!(MaskAction::of("apply-expression"), None);
        let (less, more) = (MaskAction::ReplaceWithNull, MaskAction::ShowLast4);
        assert_eq!((less.stricter(more), more.stricter(less)), (less, less));
        assert!(ACTIONS.iter().all(|(action, name)| action.name() == *name));
    }
}
