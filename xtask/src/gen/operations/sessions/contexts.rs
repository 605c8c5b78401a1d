//! The operations on contexts of a session's code interpreter.

use api::operations::sessions as table;
use serde_json::{Value, json};

use super::{CONTEXT, Operation, operation};

/// Returns all operations, in the order of the page.
pub(super) fn all() -> Vec<Operation> {
    let mut all = contexts();
    all.extend(cells());
    all
}

fn context() -> Value {
    json!({
        "id": CONTEXT, "language": "python", "cwd": "/workspace", "state": "idle",
        "executions": 0, "default": false
    })
}

fn copy() -> Value {
    let mut copy = context();
    copy["id"] = json!("ctx_01M8044T3W9XQ6H2JQ5V8K7D2P");
    copy["forked_from"] = json!(CONTEXT);
    copy["executions"] = json!(3);
    copy
}

fn contexts() -> Vec<Operation> {
    vec![
        operation(
            &table::CREATE_CODE_CONTEXT,
            "A process that runs cells and keeps what they define. It ends with the session's \
             sandbox.",
        )
        .takes("python", "A context for Python", json!({ "cwd": "/workspace" }))
        .answers(201, "The context is ready for a cell.", context()),
        operation(
            &table::LIST_CODE_CONTEXTS,
            "Oldest first. Those of Python and JavaScript are there from the beginning, and start \
             with their first cell.",
        )
        .answers(200, "The complete list.", json!({ "contexts": [context()] })),
        operation(&table::GET_CODE_CONTEXT, "The record after the change.").answers(
            200,
            "The context.",
            context(),
        ),
        operation(
            &table::DELETE_CODE_CONTEXT,
            "Its process is killed; a cell that runs in it says that it ended.",
        )
        .gives(204, "Removed."),
    ]
}

fn cells() -> Vec<Operation> {
    let end = json!({
        "verdict": "OK", "wall_ms": 2, "cpu_ms": 1, "memory_bytes": 127_025_152,
        "context_ended": false
    });
    let mut report = end;
    for (name, value) in [
        ("execution_count", json!(1)),
        ("stdout", json!("")),
        ("stderr", json!("")),
        ("results", json!([{ "is_main_result": true, "data": { "text/plain": "2" } }])),
        ("truncated", json!(false)),
    ] {
        report[name] = value;
    }
    vec![
        operation(
            &table::EXECUTE_CELL,
            "Cells of a context run one after the other. Answered when it has ended; with \
             `accept: text/event-stream` what comes of it comes at once, as `CellEvent`s. A \
             caller that goes away has it interrupted.",
        )
        .takes("cell", "An expression", json!({ "code": "1 + 1" }))
        .tells_or(
            "The cell has ended, successfully or not; or its output as events.",
            json!({ "type": "stdout", "text": "a\n" }),
            report,
        ),
        operation(
            &table::INTERRUPT_CODE_CONTEXT,
            "The cell that runs gets an interrupt, as from the keyboard. What was defined is kept.",
        )
        .answers(200, "Whether a cell was running.", json!({ "interrupted": true })),
        operation(
            &table::FORK_CODE_CONTEXT,
            "A context of Python whose process is forked from this one, in its turn among the \
             cells: it has all that is defined, and from then on the two know nothing of each \
             other. Refused while threads run in it, unless `force` is true.",
        )
        .takes("plain", "A copy", json!({ "force": false }))
        .answers(201, "The context is ready for a cell.", copy()),
        operation(
            &table::RESTART_CODE_CONTEXT,
            "Its process is killed and a new one started, under the same id and with nothing \
             defined.",
        )
        .answers(200, "The context is ready for a cell.", context()),
    ]
}
