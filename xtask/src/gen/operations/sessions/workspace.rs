//! The operations on files of sessions, and on what is kept beside sessions.

use serde_json::{Value, json};

use super::{ATTACHMENT, CREDENTIAL, MS, Operation, SESSION, SNAPSHOT, TIME, TURN, operation};

/// All of them, in the order of the page.
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
    let one = "/v1/sessions/{id}/files/{path}";
    vec![
        operation(
            "get",
            "/v1/sessions/{id}/files",
            "listFiles",
            "List files",
            "Below a \
            directory. A session without a sandbox gets one for this; it stays paused or stopped.",
        )
        .asks("path", "string", "The directory; `/workspace` when absent.")
        .asks("depth", "integer", "How deep: 1 when absent.")
        .asks("limit", "integer", "How many: 1 to 50000, 1000 when absent.")
        .answers(
            200,
            "FileList",
            "By path.",
            json!({
                "entries": [entry()], "truncated": false
            }),
        )
        .fails(&[400, 403, 404, 409, 410]),
        operation(
            "get",
            one,
            "readFile",
            "Fetch a file",
            "Its bytes as they come; one `range` is \
            heeded.",
        )
        .asks("stat", "boolean", "What is known of it, as a `FileEntry`, instead.")
        .gives(200, "application/octet-stream", "Its bytes.")
        .gives(206, "application/octet-stream", "The range that was asked for.")
        .fails(&[400, 403, 404, 409, 410, 416]),
        operation(
            "put",
            one,
            "writeFile",
            "Write a file",
            "The body is its content, of any \
            length. Nothing is seen of it before all is there, except with `append`; directories \
            on the way are made. 201 when there was none before.",
        )
        .asks("create", "boolean", "It must be new; otherwise 409.")
        .asks("append", "boolean", "It comes behind what is there.")
        .asks("directory", "boolean", "Makes a directory; without a body.")
        .asks("mode", "string", "Permissions, in octal digits.")
        .answers(200, "FileEntry", "It is written.", entry())
        .answers(201, "FileEntry", "It is new.", entry())
        .fails(&[400, 403, 404, 409, 410, 413]),
        operation("delete", one, "removeFile", "Remove a file", "Or an empty directory.")
            .asks("recursive", "boolean", "A directory with everything in it.")
            .gives(204, "text/plain", "It is gone.")
            .fails(&[400, 403, 404, 409, 410]),
        operation(
            "post",
            one,
            "moveFile",
            "Move a file",
            "At `files/move`, whatever `path` \
            else could be.",
        )
        .takes(
            "MoveFile",
            "move",
            "To another directory",
            json!({
                "from": "main.py", "to": "src/main.py"
            }),
        )
        .answers(200, "FileEntry", "Where it is now.", entry())
        .fails(&[400, 403, 404, 405, 409, 410, 415]),
    ]
}

fn archives() -> Vec<Operation> {
    let archive = "/v1/sessions/{id}/archive";
    vec![
        operation(
            "get",
            archive,
            "exportArchive",
            "Fetch a directory as tar",
            "With links, hidden \
            files, permissions and times, as it comes.",
        )
        .asks("path", "string", "The directory; `/workspace` when absent.")
        .gives(200, "application/x-tar", "The archive.")
        .fails(&[400, 403, 404, 409, 410]),
        operation(
            "put",
            archive,
            "importArchive",
            "Unpack a tar",
            "The body is an archive that \
            is not compressed, of any length. No entry leads out of the directory.",
        )
        .asks("path", "string", "Where to; `/workspace` when absent.")
        .answers(
            200,
            "ArchiveImported",
            "It is unpacked.",
            json!({
                "entries": 32, "bytes": 197_641
            }),
        )
        .fails(&[400, 403, 404, 409, 410, 413]),
        operation(
            "get",
            "/v1/sessions/{id}/watch",
            "watchFiles",
            "Watch a directory",
            "Every \
            change from the answer on. `overflow` says that some were lost.",
        )
        .asks("path", "string", "The directory; `/workspace` when absent.")
        .asks("recursive", "boolean", "Everything below, too.")
        .tells(
            "FileChange",
            "Server-sent events; `event` is the type.",
            json!({
                "type": "write", "path": "src/main.py"
            }),
        )
        .fails(&[400, 403, 404, 409, 410, 429]),
    ]
}

#[expect(clippy::too_many_lines, reason = "a list: one operation after the other")]
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
            .answers(200, "SnapshotList", "Newest first.", json!({ "snapshots": [snapshot] }))
    };
    let of_session = "/v1/sessions/{id}/snapshots";
    let credentials = "/v1/credentials";
    vec![
        operation(
            "post",
            of_session,
            "createSnapshot",
            "Take a snapshot",
            "Keeps the files of a \
            session as they are now; `snapshot` of a new session starts from them.",
        )
        .takes("SnapshotRequest", "named", "With a name", json!({ "name": "before" }))
        .answers(201, "Snapshot", "It is kept.", snapshot.clone())
        .fails(&[400, 404, 409, 410, 415]),
        page(operation(
            "get",
            of_session,
            "listSnapshotsOfSession",
            "List snapshots of a session",
            "Those that were taken of it.",
        )),
        page(operation(
            "get",
            "/v1/snapshots",
            "listSnapshots",
            "List snapshots",
            "Those of this \
            token's tenant.",
        )),
        operation(
            "delete",
            "/v1/snapshots/{id}",
            "deleteSnapshot",
            "Delete a snapshot",
            "Sessions that were made from it go on.",
        )
        .gives(204, "text/plain", "It is gone."),
        operation(
            "post",
            credentials,
            "createCredential",
            "Keep a secret for agents",
            "Stored \
            encrypted, never shown. That of the kind `anthropic` is added to requests to the \
            model outside of the sandbox.",
        )
        .takes(
            "CreateCredential",
            "key",
            "A key for the model",
            json!({
                "kind": "anthropic", "label": "team", "secret": "sk-…"
            }),
        )
        .answers(201, "Credential", "It is kept.", credential.clone())
        .fails(&[400, 415, 429]),
        operation("get", credentials, "listCredentials", "List secrets", "Without their values.")
            .answers(
                200,
                "CredentialList",
                "All of the tenant.",
                json!({
                    "credentials": [credential]
                }),
            ),
        operation(
            "delete",
            "/v1/credentials/{id}",
            "deleteCredential",
            "Delete a secret",
            "Agents that run keep what they have.",
        )
        .gives(204, "text/plain", "It is gone."),
        operation(
            "get",
            "/v1/usage",
            "getUsage",
            "What turns used",
            "Tokens as the agents count \
            them; of the tenant, a session or an agent.",
        )
        .asks("session", "string", "Only of this session.")
        .asks("agent", "string", "Only of this agent.")
        .asks("from_ms", "integer", "Not before (milliseconds since 1970).")
        .asks("to_ms", "integer", "Before.")
        .asks("limit", "integer", "How many turns are listed: 1 to 1000, none when absent.")
        .answers(
            200,
            "UsageReport",
            "Together, and turn by turn.",
            json!({
                "total": usage,
                "turns": [{ "session": SESSION, "turn": TURN, "agent": "echo", "at_ms": MS,
                    "usage": usage }]
            }),
        )
        .fails(&[400]),
    ]
}

fn attachments() -> Vec<Operation> {
    let attachment = json!({
        "id": ATTACHMENT, "session": SESSION, "name": "plan.pdf",
        "media_type": "application/pdf", "bytes": 48_213, "created_ms": MS
    });
    let of_session = "/v1/sessions/{id}/attachments";
    let one = "/v1/attachments/{id}";
    vec![
        operation(
            "post",
            of_session,
            "addAttachment",
            "Keep a file with a session",
            "The body is \
            its content, at most 50 MiB. It is beside the workspace, for whoever talks to the \
            agent, and goes with the session.",
        )
        .asks("name", "string", "What it is called; needed.")
        .answers(201, "SessionAttachment", "It is kept.", attachment.clone())
        .fails(&[400, 404, 413, 429]),
        operation("get", of_session, "listAttachments", "List attachments", "Of a session.")
            .answers(
                200,
                "SessionAttachmentList",
                "All of them.",
                json!({
                    "attachments": [attachment]
                }),
            ),
        operation(
            "get",
            one,
            "getAttachment",
            "Fetch an attachment",
            "With the media type that \
            it was given.",
        )
        .gives(200, "application/octet-stream", "Its bytes."),
        operation("delete", one, "deleteAttachment", "Delete an attachment", "For ever.").gives(
            204,
            "text/plain",
            "It is gone.",
        ),
    ]
}
