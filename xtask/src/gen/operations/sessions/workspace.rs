//! The operations on files of sessions, and on the objects that are kept beside sessions.

use api::operations::sessions as table;
use serde_json::{Value, json};

use super::{ATTACHMENT, CREDENTIAL, MS, Operation, SESSION, SNAPSHOT, TIME, TURN, operation};

/// Returns all operations, in the order of the page.
pub(super) fn all() -> Vec<Operation> {
    let mut all = files();
    all.extend(archives());
    all.extend(shelf());
    all.extend(attachments());
    all
}

fn entry() -> Value {
    json!({
        "path": "/workspace/src/main.py", "kind": "file", "size": 120, "mode": 420,
        "modified_ms": MS
    })
}

fn files() -> Vec<Operation> {
    vec![
        operation(
            &table::LIST_FILES,
            "Below a directory. A session without a sandbox gets one for this; it stays paused or \
             stopped.",
        )
        .asks("path", "string", "The directory; `/workspace` if absent.")
        .asks("depth", "integer", "Depth of the listing; 1 if absent.")
        .asks("limit", "integer", "Maximum number: 1 to 50000, 1000 if absent.")
        .answers(
            200,
            "Sorted by path.",
            json!({
                "entries": [entry()], "truncated": false
            }),
        ),
        operation(&table::READ_FILE, "Its bytes as they come; one `range` is heeded.")
            .asks("stat", "boolean", "Return its metadata as a `FileEntry` instead.")
            .gives(200, "The content.")
            .gives(206, "The requested range."),
        operation(
            &table::WRITE_FILE,
            "The body is its content, of any length. Nothing is seen of it before all is there, \
             except with `append`; directories on the way are made. 201 when there was none \
             before.",
        )
        .asks("create", "boolean", "Fail with 409 if the file exists.")
        .asks("append", "boolean", "Append to the existing content.")
        .asks("directory", "boolean", "Create a directory; without a body.")
        .asks("mode", "string", "Permissions, in octal digits.")
        .answers(200, "The file is replaced.", entry())
        .answers(201, "The file is created.", entry()),
        operation(&table::REMOVE_FILE, "Or an empty directory.")
            .asks("recursive", "boolean", "Remove a directory with its contents.")
            .gives(204, "Removed."),
        operation(&table::MOVE_FILE, "At `files/move`, whatever `path` else could be.")
            .takes(
                "move",
                "To another directory",
                json!({
                    "from": "main.py", "to": "src/main.py"
                }),
            )
            .answers(200, "The new location.", entry()),
    ]
}

fn archives() -> Vec<Operation> {
    vec![
        operation(
            &table::EXPORT_ARCHIVE,
            "With links, hidden files, permissions and times, as it comes.",
        )
        .asks("path", "string", "The directory; `/workspace` if absent.")
        .gives(200, "The archive."),
        operation(
            &table::IMPORT_ARCHIVE,
            "The body is an archive that is not compressed, of any length. No entry leads out of \
             the directory.",
        )
        .asks("path", "string", "Target directory; `/workspace` if absent.")
        .answers(
            200,
            "Unpacked.",
            json!({
                "entries": 32, "bytes": 197_641
            }),
        ),
        operation(
            &table::WATCH_FILES,
            "Every change from the answer on. `overflow` says that some were lost.",
        )
        .asks("path", "string", "The directory; `/workspace` if absent.")
        .asks("recursive", "boolean", "Include all levels below.")
        .answers(
            200,
            "Server-sent events; `event` is the type.",
            json!({
                "type": "write", "path": "src/main.py"
            }),
        ),
    ]
}

fn shelf() -> Vec<Operation> {
    let snapshot = json!({
        "id": SNAPSHOT, "session": SESSION, "name": "before the upgrade", "created_at": TIME,
        "bytes": 323_584
    });
    let credential = json!({
        "id": CREDENTIAL, "kind": "anthropic", "label": "team", "created_at": TIME
    });
    let usage = json!({
        "turns": 2, "input_tokens": 5120, "output_tokens": 210, "cache_read_tokens": 4096,
        "cache_write_tokens": 0, "cost_usd": 0.0125, "tool_calls": 3, "duration_ms": 8100
    });
    let page = |it: Operation| {
        it.asks("limit", "integer", "Maximum number on a page: 1 to 200, 50 if absent.")
            .asks("cursor", "string", "`next_cursor` of the previous page.")
            .answers(200, "Newest first.", json!({ "snapshots": [snapshot] }))
    };
    vec![
        operation(
            &table::CREATE_SNAPSHOT,
            "Keeps the files of a session as they are now; `snapshot` of a new session starts \
             from them.",
        )
        .takes("named", "With a name", json!({ "name": "before" }))
        .answers(201, "Stored.", snapshot.clone()),
        page(operation(&table::LIST_SNAPSHOTS_OF_SESSION, "Those that were taken of it.")),
        page(operation(&table::LIST_SNAPSHOTS, "Those of this token's tenant.")),
        operation(&table::DELETE_SNAPSHOT, "Sessions that were made from it go on.")
            .gives(204, "Removed."),
        operation(
            &table::CREATE_CREDENTIAL,
            "Stored encrypted, never shown. That of the kind `anthropic` is added to requests to \
             the model outside of the sandbox.",
        )
        .takes(
            "key",
            "A key for the model",
            json!({
                "kind": "anthropic", "label": "team", "secret": "sk-…"
            }),
        )
        .answers(201, "Stored.", credential.clone()),
        operation(&table::LIST_CREDENTIALS, "Without their values.").answers(
            200,
            "All secrets of the tenant.",
            json!({
                "credentials": [credential]
            }),
        ),
        operation(&table::DELETE_CREDENTIAL, "Agents that run keep what they have.")
            .gives(204, "Removed."),
        operation(
            &table::GET_USAGE,
            "Tokens as the agents count them; of the tenant, a session or an agent.",
        )
        .asks("session", "string", "Only those of this session.")
        .asks("agent", "string", "Only sessions of this agent.")
        .asks("from_ms", "integer", "At this time or later (milliseconds since 1970).")
        .asks("to_ms", "integer", "Before this time (milliseconds since 1970).")
        .asks("limit", "integer", "Number of listed turns: 1 to 1000, none if absent.")
        .answers(
            200,
            "Totals, and values of each turn.",
            json!({
                "total": usage,
                "turns": [{ "session": SESSION, "turn": TURN, "agent": "echo", "at_ms": MS,
                    "usage": usage }]
            }),
        ),
    ]
}

fn attachments() -> Vec<Operation> {
    let attachment = json!({
        "id": ATTACHMENT, "session": SESSION, "name": "plan.pdf",
        "media_type": "application/pdf", "bytes": 48_213, "created_ms": MS
    });
    vec![
        operation(
            &table::ADD_ATTACHMENT,
            "The body is its content, at most 50 MiB. It is beside the workspace, for whoever \
             talks to the agent, and goes with the session.",
        )
        .asks("name", "string", "Name of the file; required.")
        .answers(201, "Stored.", attachment.clone()),
        operation(&table::LIST_ATTACHMENTS, "Of a session.").answers(
            200,
            "The complete list.",
            json!({
                "attachments": [attachment]
            }),
        ),
        operation(&table::GET_ATTACHMENT, "With the media type that it was given.")
            .gives(200, "The content."),
        operation(&table::DELETE_ATTACHMENT, "For ever.").gives(204, "Removed."),
    ]
}
