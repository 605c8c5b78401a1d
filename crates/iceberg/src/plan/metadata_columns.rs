//! Columns that every table has without its schema saying so (the table format, §Reserved Field
//! IDs: <https://iceberg.apache.org/spec/#reserved-field-ids>).
//!
//! Engines ask for them where they change rows: which file a row is in, and where. Manifests have
//! no statistics of them, so that nothing is left out by them.

use std::sync::LazyLock;

use super::expression::ColumnReference;
use crate::json::RawJson;
use crate::schema::{SchemaColumn, SchemaColumns};

const SCHEMA: &str = r#"{"type": "struct", "fields": [
    {"id": 2147483646, "name": "_file", "required": false, "type": "string"},
    {"id": 2147483645, "name": "_pos", "required": false, "type": "long"},
    {"id": 2147483644, "name": "_deleted", "required": false, "type": "boolean"},
    {"id": 2147483643, "name": "_spec_id", "required": false, "type": "int"},
    {"id": 2147483642, "name": "_partition", "required": false,
        "type": {"type": "struct", "fields": []}},
    {"id": 2147483543, "name": "_change_type", "required": false, "type": "string"},
    {"id": 2147483542, "name": "_change_ordinal", "required": false, "type": "int"},
    {"id": 2147483541, "name": "_commit_snapshot_id", "required": false, "type": "long"},
    {"id": 2147483540, "name": "_row_id", "required": false, "type": "long"},
    {"id": 2147483539, "name": "_last_updated_sequence_number", "required": false,
        "type": "long"}
]}"#;

static COLUMNS: LazyLock<SchemaColumns> = LazyLock::new(|| {
    // The text above is a schema: a test reads it.
    SchemaColumns::read(&RawJson::written(SCHEMA.into())).unwrap_or_default()
});

/// Finds the metadata column that a reference names; `None` where there is no such column.
pub(super) fn metadata_column(
    reference: &ColumnReference,
    is_case_sensitive: bool,
) -> Option<&'static SchemaColumn> {
    match reference {
        ColumnReference::Id(id) => COLUMNS.get(*id),
        ColumnReference::Name(name) if is_case_sensitive => COLUMNS.named(name),
        ColumnReference::Name(name) => COLUMNS.named(&name.to_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_columns_are_found_by_name_and_by_id() {
        let name = |name: &str| ColumnReference::Name(name.to_owned());
        assert_eq!(COLUMNS.list.len(), 10);
        for (reference, is_case_sensitive, expected) in [
            (name("_file"), true, Some("_file")),
            (name("_FILE"), true, None),
            (name("_FILE"), false, Some("_file")),
            (ColumnReference::Id(2_147_483_540), true, Some("_row_id")),
            (ColumnReference::Id(1), true, None),
            (name("file"), false, None),
        ] {
            let found = metadata_column(&reference, is_case_sensitive);
            assert_eq!(found.map(|it| it.name.as_str()), expected, "{reference:?}");
        }
    }
}
