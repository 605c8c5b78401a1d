//! Types of PostgreSQL by their numbers, which are the same in every server. Pure.
//!
//! # References
//! - <https://github.com/postgres/postgres/blob/master/src/include/catalog/pg_type.dat>

use serde_json::Value;

use super::super::values::{self, ValueForm};

/// Number, number of the type of its lists, name and form.
const TYPES: [(u32, u32, &str, ValueForm); 36] = [
    (16, 1000, "bool", ValueForm::Boolean),
    (17, 1001, "bytea", ValueForm::HexBytes),
    (18, 1002, "char", ValueForm::Text),
    (19, 1003, "name", ValueForm::Text),
    (20, 1016, "int8", ValueForm::Integer),
    (21, 1005, "int2", ValueForm::Integer),
    (23, 1007, "int4", ValueForm::Integer),
    (25, 1009, "text", ValueForm::Text),
    (26, 1028, "oid", ValueForm::Integer),
    (114, 199, "json", ValueForm::Document),
    (142, 143, "xml", ValueForm::Text),
    (600, 1017, "point", ValueForm::Text),
    (650, 651, "cidr", ValueForm::Text),
    (700, 1021, "float4", ValueForm::Float),
    (701, 1022, "float8", ValueForm::Float),
    (705, 0, "text", ValueForm::Text),
    (790, 791, "money", ValueForm::Text),
    (829, 1040, "macaddr", ValueForm::Text),
    (869, 1041, "inet", ValueForm::Text),
    (1042, 1014, "bpchar", ValueForm::Text),
    (1043, 1015, "varchar", ValueForm::Text),
    (1082, 1182, "date", ValueForm::Text),
    (1083, 1183, "time", ValueForm::Text),
    (1114, 1115, "timestamp", ValueForm::Text),
    (1184, 1185, "timestamptz", ValueForm::Text),
    (1186, 1187, "interval", ValueForm::Text),
    (1266, 1270, "timetz", ValueForm::Text),
    (1560, 1561, "bit", ValueForm::Text),
    (1562, 1563, "varbit", ValueForm::Text),
    (1700, 1231, "numeric", ValueForm::Text),
    (2205, 2210, "regclass", ValueForm::Text),
    (2249, 2287, "record", ValueForm::Text),
    (2278, 0, "void", ValueForm::Text),
    (2950, 2951, "uuid", ValueForm::Text),
    (3614, 3643, "tsvector", ValueForm::Text),
    (3802, 3807, "jsonb", ValueForm::Document),
];

/// Type of a column.
#[derive(Clone, Copy, Debug)]
pub(super) struct PgType {
    /// None of types that are not in the table.
    name: Option<&'static str>,
    form: ValueForm,
    is_list: bool,
}

impl PgType {
    /// Returns the description of a type.
    pub(super) fn of(oid: u32) -> PgType {
        let unknown = PgType { name: None, form: ValueForm::Text, is_list: false };
        let known = TYPES.iter().find(|(one, list, ..)| oid != 0 && (*one == oid || *list == oid));
        known.map_or(unknown, |(one, _, name, form)| PgType {
            name: Some(name),
            form: *form,
            is_list: *one != oid,
        })
    }

    /// Returns its name, if it is known.
    pub(super) fn name(self) -> Option<String> {
        let mark = if self.is_list { "[]" } else { "" };
        self.name.map(|name| format!("{name}{mark}"))
    }

    /// Returns a value as JSON.
    pub(super) fn value(self, bytes: Option<&[u8]>) -> Value {
        let Some(bytes) = bytes else { return Value::Null };
        if self.is_list {
            let text = String::from_utf8_lossy(bytes);
            return values::list(self.form, &text).unwrap_or(Value::String(text.into_owned()));
        }
        values::value(self.form, bytes)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_type_has_a_name_and_a_form() {
        for (oid, name, text, expected) in [
            (23, Some("int4"), "5", json!(5)),
            (1007, Some("int4[]"), "{5,NULL}", json!([5, null])),
            (3807, Some("jsonb[]"), r#"{"{\"a\": 1}"}"#, json!([{"a": 1}])),
            (0, None, "x", json!("x")),
            (99_999, None, "{x}", json!("{x}")),
        ] {
            let known = PgType::of(oid);
            assert_eq!(known.name().as_deref(), name);
            assert_eq!(known.value(Some(text.as_bytes())), expected);
            assert_eq!(known.value(None), Value::Null);
        }
    }

    #[test]
    fn no_number_stands_for_two_types() {
        let mut all: Vec<u32> = TYPES.iter().flat_map(|(one, list, ..)| [*one, *list]).collect();
        all.retain(|oid| *oid != 0);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
