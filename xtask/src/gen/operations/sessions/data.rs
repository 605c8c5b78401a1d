//! The operations on data behind the grants of a session.

use api::operations::sessions as table;
use serde_json::json;

use super::{Operation, operation};

/// Returns all operations, in the order of the page.
pub(super) fn all() -> Vec<Operation> {
    vec![query(), describe()]
}

fn query() -> Operation {
    operation(
        &table::QUERY_GRANT,
        "One statement over a `postgres` or `mysql` grant of an active session. It goes through \
         the grant's own door, as that of a program inside would: limits, masking and the audit \
         are the same. It only reads, whatever the grant's access is. A caller that goes away \
         ends it in the database.",
    )
    .takes(
        "parameters",
        "With a parameter",
        json!({
            "sql": "SELECT id, total FROM orders WHERE customer = $1", "parameters": [7],
            "max_rows": 100
        }),
    )
    .answers(
        200,
        "Its rows. Integers beyond 2^53, `numeric`, times and what JSON has no form for are text; \
         bytes are Base64.",
        json!({
            "columns": [{ "name": "id", "type": "int4" }, { "name": "total", "type": "numeric" }],
            "rows": [[1, "12.50"], [2, null]], "row_count": 2, "truncated": false,
            "seconds": 0.004
        }),
    )
}

fn describe() -> Operation {
    operation(
        &table::DESCRIBE_GRANT,
        "What a `postgres`, `mysql` or `catalog` grant of an active session may read: tables, \
         views and namespaces, at most 500; with `name` one of them with its columns.",
    )
    .asks("name", "string", "A table, as in a statement, or a namespace of a warehouse.")
    .answers(
        200,
        "The databases and tables.",
        json!({
            "grant": "postgres:shop", "truncated": false, "objects": [{
                "name": "public.orders", "kind": "table",
                "columns": [{ "name": "id", "type": "integer", "nullable": false }],
                "constraints": ["PRIMARY KEY (id)"]
            }]
        }),
    )
}
