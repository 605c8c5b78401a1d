//! Iceberg documents that tests of several crates use.

use serde_json::{Value, json};

/// Returns the metadata of a function that adds one.
#[must_use]
pub fn function_metadata() -> Value {
    json!({
        "format-version": 1,
        "definitions": [{
            "definition-id": "int",
            "parameters": [{"type": "int", "name": "x"}],
            "return-type": "int",
            "versions": [{
                "version-id": 1, "timestamp-ms": 1, "deterministic": true,
                "representations": [{"type": "sql", "dialect": "spark", "sql": "x + 1"}],
            }],
            "current-version-id": 1,
            "function-type": "udf",
            "nobody-knows": {"this": 1.50},
        }],
        "definition-log": [{"timestamp-ms": 1, "definition-versions": [
            {"definition-id": "int", "version-id": 1},
        ]}],
    })
}
