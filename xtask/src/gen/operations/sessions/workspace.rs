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
        .asks("path", "string", "The directory; `/workspace` when absent.")
        .asks("depth", "integer", "How deep: 1 when absent.")
        .asks("limit", "integer", "How many: 1 to 50000, 1000 when absent.")
        .answers(
            200,
            "By path.",
            json!({
                "entries": [entry()], "truncated": false
            }),
        ),
        operation(&table::READ_FILE, "Its bytes as they come; one `range` is heeded.")
            .asks("stat", "boolean", "What is known of it, as a `FileEntry`, instead.")
            .gives(200, "Its bytes.")
            .gives(206, "The range that was asked for."),
        operation(
            &table::WRITE_FILE,
            "The body is its content, of any length. Nothing is seen of it before all is there, \
             except with `append`; directories on the way are made. 201 when there was none \
             before.",
        )
        .asks("create", "boolean", "It must be new; otherwise 409.")
        .asks("append", "boolean", "It comes behind what is there.")
        .asks("directory", "boolean", "Makes a directory; without a body.")
        .asks("mode", "string", "Permissions, in octal digits.")
        .answers(200, "It is written.", entry())
        .answers(201, "It is new.", entry()),
        operation(&table::REMOVE_FILE, "Or an empty directory.")
            .asks("recursive", "boolean", "A directory with everything in it.")
            .gives(204, "It is gone."),
        operation(&table::MOVE_FILE, "At `files/move`, whatever `path` else could be.")
            .takes(
                "move",
                "To another directory",
                json!({
                    "from": "main.py", "to": "src/main.py"
                }),
            )
            .answers(200, "Where it is now.", entry()),
    ]
}

fn archives() -> Vec<Operation> {
    vec![
        operation(
            &table::EXPORT_ARCHIVE,
            "With links, hidden files, permissions and times, as it comes.",
        )
        .asks("path", "string", "The directory; `/workspace` when absent.")
        .gives(200, "The archive."),
        operation(
            &table::IMPORT_ARCHIVE,
            "The body is an archive that is not compressed, of any length. No entry leads out of \
             the directory.",
        )
        .asks("path", "string", "Where to; `/workspace` when absent.")
        .answers(
            200,
            "It is unpacked.",
            json!({
                "entries": 32, "bytes": 197_641
            }),
        ),
        operation(
            &table::WATCH_FILES,
            "Every change from the answer on. `overflow` says that some were lost.",
        )
        .asks("path", "string", "The directory; `/workspace` when absent.")
        .asks("recursive", "boolean", "Everything below, too.")
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
        it.asks("limit", "integer", "How many on a page: 1 to 200, 50 when it is not said.")
            .asks("cursor", "string", "`next_cursor` of the page before.")
            .answers(200, "Newest first.", json!({ "snapshots": [snapshot] }))
    };
    vec![
        operation(
            &table::CREATE_SNAPSHOT,
            "Keeps the files of a session as they are now; `snapshot` of a new session starts \
             from them.",
        )
        .takes("named", "With a name", json!({ "name": "before" }))
        .answers(201, "It is kept.", snapshot.clone()),
        page(operation(&table::LIST_SNAPSHOTS_OF_SESSION, "Those that were taken of it.")),
        page(operation(&table::LIST_SNAPSHOTS, "Those of this token's tenant.")),
        operation(&table::DELETE_SNAPSHOT, "Sessions that were made from it go on.")
            .gives(204, "It is gone."),
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
        .answers(201, "It is kept.", credential.clone()),
        operation(&table::LIST_CREDENTIALS, "Without their values.").answers(
            200,
            "All of the tenant.",
            json!({
                "credentials": [credential]
            }),
        ),
        operation(&table::DELETE_CREDENTIAL, "Agents that run keep what they have.")
            .gives(204, "It is gone."),
        operation(
            &table::GET_USAGE,
            "Tokens as the agents count them; of the tenant, a session or an agent.",
        )
        .asks("session", "string", "Only of this session.")
        .asks("agent", "string", "Only of this agent.")
        .asks("from_ms", "integer", "Not before (milliseconds since 1970).")
        .asks("to_ms", "integer", "Before.")
        .asks("limit", "integer", "How many turns are listed: 1 to 1000, none when absent.")
        .answers(
            200,
            "Together, and turn by turn.",
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
        .asks("name", "string", "What it is called; needed.")
        .answers(201, "It is kept.", attachment.clone()),
        operation(&table::LIST_ATTACHMENTS, "Of a session.").answers(
            200,
            "All of them.",
            json!({
                "attachments": [attachment]
            }),
        ),
        operation(&table::GET_ATTACHMENT, "With the media type that it was given.")
            .gives(200, "Its bytes."),
        operation(&table::DELETE_ATTACHMENT, "For ever.").gives(204, "It is gone."),
    ]
}
