//! The operations on agents and sessions; those on files of a session and on related objects are in
//! `workspace`, those on data behind its grants in `data`.

mod contexts;
mod data;
mod templates;
mod workspace;

use api::operations::ApiOperation;
use api::operations::sessions as table;
use serde_json::{Value, json};

use super::super::Operation;

/// Ids for examples.
const SESSION: &str = "ses_01M8043SZTDJQ6VZDQQ834JB4F";
const AGENT: &str = "ag_01M8043SMSCXSHCZWNQ1ZXC72M";
const TENANT: &str = "tok_GGMGM9JB47";
const TURN: &str = "turn_01M8044N3PBZAP9SH39ZM0327E";
const SNAPSHOT: &str = "snap_01M8044RG542EBSAESYSKCR7WW";
const CREDENTIAL: &str = "cred_01M8044RKXF06PMRPRBSBKXEVT";
const ATTACHMENT: &str = "att_01M8044RHM2X2MJSWG1QB86H2C";
const CONTEXT: &str = "ctx_01M8044T3W9XQ6H2JQ5V8K7D1N";
const TERMINAL: &str = "tm_01M8044V5QH3Z7R2K9D4W6B8XE";
const TIME: &str = "2026-11-21T22:37:28.954Z";
const MS: u64 = 1_795_300_676_726;

/// Returns all operations, in the order of the page.
pub(super) fn all() -> Vec<Operation> {
    let mut all = agents();
    all.extend(lifecycle());
    all.extend(conversation());
    all.extend(commands());
    all.extend(data::all());
    all.extend(contexts::all());
    all.extend(workspace::all());
    all.extend(templates::all());
    all
}

fn operation(entry: &'static ApiOperation, description: &'static str) -> Operation {
    Operation::of(entry, description).with_parameters(in_path(entry.path))
}

/// Returns the parameters in the path.
fn in_path(path: &str) -> Value {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let parameter = |name: &str| {
        let name = name.trim_start_matches('*');
        let (description, example) = match name {
            "name" if path.contains("/grants/") => {
                ("The grant: its label, or its port inside.", "postgres:shop")
            }
            "name" if path.starts_with("/v1/templates") => ("Name or id of the template.", "web"),
            "name" => ("Name of the agent.", "echo"),
            "build" => ("Id of the build, or one of its tags.", "default"),
            "tag" => ("The tag.", "stable"),
            "archive" => (
                "SHA-256 of the archive, in hexadecimal digits.",
                "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
            ),
            "path" => (
                "Path of a file, from `/workspace` on; one that begins with `%2F` is absolute, \
                 `~/` is `/home/user`.",
                "src/main.py",
            ),
            "context" => (
                "Id of the context; or `python`, `javascript`, `typescript` or `bash` for the \
                 language's default one.",
                CONTEXT,
            ),
            "terminal" => ("Id of the terminal.", TERMINAL),
            _ if path.contains("/snapshots/") => ("Id of the snapshot.", SNAPSHOT),
            _ if path.contains("/credentials/") => ("Id of the credential.", CREDENTIAL),
            _ if path.starts_with("/v1/attachments/") => ("Id of the attachment.", ATTACHMENT),
            _ => ("Id of the session.", SESSION),
        };
        json!({
            "name": name, "in": "path", "required": true, "example": example,
            "description": description, "schema": { "type": "string" }
        })
    };
    names.map(parameter).collect()
}

fn command() -> Value {
    json!({ "type": "command", "argv": ["python3", "agent.py"] })
}

fn agent() -> Value {
    json!({
        "id": AGENT, "name": "echo", "tenant": TENANT, "version": 1, "runtime": command(),
        "limits": {}, "settings": { "prewarm_sandboxes": 0, "prewarm_agents": 0, "lazy": false },
        "options": {}, "env": ["LOG_LEVEL"], "created_at": TIME, "updated_at": TIME
    })
}

fn agents() -> Vec<Operation> {
    let version = json!({
        "version": 1, "runtime": command(), "created_at": TIME, "active": true, "files": 1,
        "bytes": 2692
    });
    vec![
        operation(
            &table::DEPLOY_AGENT,
            "Makes an agent, or a new version of one, of a folder: complete, so that what an \
             earlier version had and this one has not is gone. `install.sh` runs once, in a \
             sandbox, and the answer waits for it. New sessions get the new version; those that \
             exist keep theirs.",
        )
        .takes(
            "command",
            "A program that speaks the agent protocol",
            json!({
                "name": "echo",
                "files": [{ "path": "agent.py", "content": "import sys\n…" }],
                "runtime": command(),
                "env": { "LOG_LEVEL": "info" }
            }),
        )
        .answers(201, "Deployed.", agent()),
        operation(&table::LIST_AGENTS, "Those of this token's tenant.").answers(
            200,
            "Sorted by name.",
            json!({ "agents": [agent()] }),
        ),
        operation(&table::GET_AGENT, "Values of its environment are never shown.").answers(
            200,
            "The full record.",
            agent(),
        ),
        operation(
            &table::UPDATE_AGENT,
            "Without a new version: description, environment, limits, settings, options, grants, \
             or which version is active. Sessions that exist keep what they have.",
        )
        .takes(
            "warm",
            "Keep two sandboxes ready",
            json!({
                "settings": { "prewarm_sandboxes": 2, "prewarm_agents": 0, "lazy": false }
            }),
        )
        .answers(200, "The record after the change.", agent()),
        operation(&table::DELETE_AGENT, "With all its versions. Its sessions keep their files.")
            .gives(204, "Removed."),
        operation(&table::LIST_AGENT_VERSIONS, "With the end of what `install.sh` wrote.").answers(
            200,
            "Newest first.",
            json!({ "versions": [version] }),
        ),
        operation(&table::LIST_AGENT_FILES, "As they were deployed.")
            .asks("version", "integer", "Those of this version instead of the active one.")
            .answers(
                200,
                "Sorted by path.",
                json!({
                    "files": [{ "path": "agent.py", "size": 2692, "executable": false }]
                }),
            ),
        operation(&table::GET_AGENT_FILE, "As it was deployed.")
            .asks("version", "integer", "Version; the active one if absent.")
            .gives(200, "The content."),
    ]
}

fn session() -> Value {
    json!({
        "id": SESSION, "tenant": TENANT, "agent": "echo", "agent_version": 1, "state": "active",
        "sandbox": "warm", "options": {},
        "limits": {
            "memory_bytes": 2_147_483_648_u64, "processes": 256, "disk_bytes": 1_073_741_824,
            "disk_inodes": 131_072, "tmp_bytes": 268_435_456, "open_files": 4096
        },
        "metadata": { "user": "7" }, "on_disconnect": "continue", "created_at": TIME,
        "last_active_at": TIME, "last_seq": 1
    })
}

fn in_state(state: &str, sandbox: &str) -> Value {
    let mut session = session();
    session["state"] = json!(state);
    session["sandbox"] = json!(sandbox);
    session
}

#[expect(clippy::too_many_lines, reason = "a list: one operation after the other")]
fn lifecycle() -> Vec<Operation> {
    let mut copy = session();
    copy["parent"] = json!(SESSION);
    let metrics = json!({
        "at_ms": MS, "cpu_ms": 76, "memory_bytes": 5_242_880, "memory_peak_bytes": 6_291_456,
        "processes": 4, "oom_kills": 0, "disk_bytes": 36864, "disk_total_bytes": 1_042_000_000
    });
    let counts = json!({
        "total": 3, "warming": 0, "warm": 2, "running": 0, "waiting": 1, "cold": 0,
        "capacity": 1000, "resumed_warm": 12, "resumed_local": 3, "resumed_remote": 0,
        "prewarm_hits": 40
    });
    let verb = |entry, description, state: (&str, &str)| {
        operation(entry, description).answers(
            200,
            "The session after the change.",
            in_state(state.0, state.1),
        )
    };
    vec![
        operation(
            &table::CREATE_SESSION,
            "One sandbox, one workspace, one conversation. Answered when it is durable and its \
             sandbox is ready; the agent starts meanwhile, unless it is `lazy`. Without an \
             `agent` it is a workspace.",
        )
        .takes(
            "agent",
            "A session of an agent",
            json!({
                "agent": "echo", "metadata": { "user": "7" },
                "grants": [{ "kind": "postgres", "tenant": "shop", "access": "read_only" }]
            }),
        )
        .answers(201, "The session accepts messages.", session()),
        operation(
            &table::LIST_SESSIONS,
            "Those of this token's tenant. `metadata.NAME=VALUE` asks for those with this entry.",
        )
        .asks("state", "string", "Only those in one of these states, separated by commas.")
        .asks("agent", "string", "Only those of this agent.")
        .asks("limit", "integer", "Maximum number on a page: 1 to 200, 50 if absent.")
        .asks("cursor", "string", "`next_cursor` of the previous page.")
        .answers(
            200,
            "Newest first.",
            json!({
                "sessions": [session()], "next_cursor": SESSION
            }),
        ),
        operation(&table::GET_SESSION, "Where it is, and where its sandbox is.").answers(
            200,
            "The full record.",
            session(),
        ),
        operation(
            &table::UPDATE_SESSION,
            "What it is found by, what its agent is told and what its sandbox may reach. The \
             agent hears of options when it is started next; grants hold at once.",
        )
        .takes(
            "metadata",
            "Other metadata",
            json!({
                "metadata": { "user": "8" }, "on_disconnect": "interrupt"
            }),
        )
        .answers(200, "The record after the change.", session()),
        operation(
            &table::END_SESSION,
            "For ever: its turn, its processes, its files. Its events and messages can still be \
             read.",
        )
        .answers(200, "Ended.", in_state("ended", "cold")),
        verb(
            &table::PAUSE_SESSION,
            "It takes no messages until it is resumed. The turn that runs goes on; the sandbox \
             stays while there is room.",
            ("paused", "waiting"),
        ),
        verb(
            &table::STOP_SESSION,
            "Its turn is interrupted, its sandbox ends, its files go to the object store. Any \
             server may resume it.",
            ("stopped", "cold"),
        ),
        verb(
            &table::RESUME_SESSION,
            "It takes messages again, with its files and its conversation, under the same id.",
            ("active", "warm"),
        ),
        operation(
            &table::FORK_SESSION,
            "Its files, its conversation and its settings, as they are now. The session itself \
             goes on untouched.",
        )
        .takes("two", "Two copies", json!({ "count": 2 }))
        .answers(
            201,
            "All copies; if one fails, none remains.",
            json!({ "sessions": [copy.clone(), copy] }),
        ),
        operation(&table::GET_SESSION_METRICS, "One that has no sandbox at present is a 409.")
            .answers(200, "The current values.", metrics),
        operation(
            &table::COUNT_SANDBOXES,
            "Of the token's tenant; of all tenants for an operator. Of all nodes of a cluster \
             together.",
        )
        .asks("here", "boolean", "Only those of the queried node.")
        .answers(200, "The figures.", counts),
    ]
}

fn conversation() -> Vec<Operation> {
    let event = json!({
        "seq": 5, "at_ms": MS, "turn": TURN, "type": "text", "data": { "text": "You said: hello" }
    });
    let answer = json!({
        "session": SESSION, "turn": TURN, "seq": 10, "result": "You said: hello",
        "is_error": false, "num_turns": 1
    });
    let message = json!({
        "seq": 4, "at_ms": MS, "turn": TURN, "role": "user", "content": "hello"
    });
    vec![
        operation(
            &table::SEND_MESSAGE,
            "Answered with the events of its turn, as server-sent events, up to `done`; every \
             stream ends with that. Messages of one session wait for each other. A listener that \
             goes away can come back at `…/events`; `on_disconnect` says what becomes of the turn \
             meanwhile.",
        )
        .asks("wait", "boolean", "Answer with one document when the turn is over.")
        .takes("text", "A message", json!({ "content": "hello" }))
        .tells_or(
            "Every event of the turn: `id` is the number, `event` the type; or, with `wait=true`, \
             the result of the turn.",
            event.clone(),
            answer,
        ),
        operation(&table::LIST_MESSAGES, "Whole messages, the caller's and the agent's.")
            .asks("after", "integer", "Number of the last line already read.")
            .asks("limit", "integer", "Maximum number: 1 to 1000, 200 if absent.")
            .answers(200, "Oldest first.", json!({ "messages": [message] })),
        operation(
            &table::FOLLOW_SESSION,
            "Everything that happens, from the event after `after` on, until the session ends. \
             With `accept: application/json` a page of what is kept (`SessionEventList`).",
        )
        .asks("after", "integer", "Number of the last event already seen, like `Last-Event-ID`.")
        .asks("types", "string", "Only these types, separated by commas.")
        .asks("limit", "integer", "Maximum number on a page.")
        .tells_or(
            "Server-sent events: `id` is the number, `event` the type; or a page.",
            event.clone(),
            json!({ "events": [event], "next_after": 5 }),
        ),
        operation(
            &table::INTERRUPT_SESSION,
            "The turn that runs comes to its end; the session goes on.",
        )
        .answers(200, "Whether a turn was interrupted.", json!({ "interrupted": true })),
        operation(
            &table::GET_SESSION_LOGS,
            "What it wrote to its standard error since the server started.",
        )
        .asks("from", "integer", "Number of the first line.")
        .answers(
            200,
            "Oldest first.",
            json!({
                "lines": [{ "index": 0, "level": "stderr", "text": "ready", "at_ms": MS }],
                "next": 1
            }),
        ),
    ]
}

fn commands() -> Vec<Operation> {
    let result = json!({
        "exit_code": 0, "timed_out": false, "stdout": "agent.py\n", "stderr": "",
        "truncated": false
    });
    vec![
        operation(
            &table::EXEC_IN_SESSION,
            "Beside the agent, in the same sandbox. Answered when it has ended; with `accept: \
             text/event-stream` its output comes as it is written, as `SessionExecEvent`s. A \
             caller that goes away takes it along.",
        )
        .takes("line", "A line for the shell", json!({ "command": "ls" }))
        .tells_or(
            "The command has ended, with any exit code; or its output as events.",
            json!({ "type": "stdout", "data_base64": "YQo=" }),
            result,
        ),
        operation(
            &table::OPEN_TERMINAL,
            "A program with a terminal, on a WebSocket: binary messages are typed as they are. It \
             hangs up with the WebSocket, unless it was opened with `detach_s`: then it goes on \
             without a client for so long, and `attach` takes it up again. A client that attaches \
             takes over from the one before. A browser gives its token as the subprotocol \
             `bearer.<token>`.",
        )
        .opens(
            "A WebSocket. Output comes as binary messages, `SessionExecEvent`s as text. Closed \
             with 1000 after the end, 1001 when the server shuts down, 4400 for an invalid \
             message, 4409 when another client has attached.",
        )
        .asks("argv", "string", "Program and arguments, one for each `argv`; a shell if absent.")
        .asks("cwd", "string", "Working directory; `/workspace` if absent.")
        .asks("rows", "integer", "Rows of the terminal; 24 if absent.")
        .asks("cols", "integer", "Columns of the terminal; 80 if absent.")
        .asks(
            "detach_s",
            "integer",
            "Seconds for which the terminal stays open without a client, at most 3600; 0 if \
             absent.",
        )
        .asks(
            "attach",
            "string",
            "Id of a terminal that was opened with `detach_s`, in place of a program to start.",
        )
        .asks(
            "from",
            "integer",
            "With `attach`: number of bytes of output that the client has already. The last 256 \
             KiB are repeated when absent.",
        )
        .asks(
            "window",
            "integer",
            "Bytes of output, 4096 to 262144, that may be unacknowledged: the client says by \
             messages `ack` how many it has shown, and the program waits beyond that. Without it, \
             all that the connection takes is on its way.",
        ),
        operation(
            &table::LIST_TERMINALS,
            "Those that were opened with `detach_s`, oldest first. Listing them wakes no \
             sandbox.",
        )
        .answers(
            200,
            "Terminals that can be attached to.",
            json!({
                "terminals": [{
                    "id": TERMINAL, "pid": 7, "argv": ["/bin/bash", "-l"], "state": "detached",
                    "detach_s": 600, "created_at": TIME, "expires_at": "2026-11-21T22:47:28.954Z",
                    "output_bytes": 1024, "kept_bytes": 1024
                }]
            }),
        ),
        operation(&table::END_TERMINAL, "It hangs up, whoever is attached.").gives(204, "Removed."),
    ]
}
