//! Descriptions and examples of the operations of the HTTP interface: what the tables and the types
//! do not contain.
//!
//! A test checks every example against its type and fails for an operation without a description.

pub(super) mod catalog;
mod doctor;
mod gateway;
mod history;
mod identity;
pub(super) mod mcp;
mod nodes;
mod sessions;
mod settings;
mod tenants;

use api::operations::{KeyedRequests, executions as table, server};
use serde_json::{Value, json};

use super::Operation;

/// An execution id for examples.
const ID: &str = "ex_01M7ZSJM3P2AZVFP0M84SC7SNT";

/// Returns all operations, in the order of the page.
pub(super) fn all() -> Vec<Operation> {
    let mut all = vec![submit(), list(), batch(), fetch(), cancel(), events(), retry()];
    all.extend([webhook_secret(), list_languages(), stats()]);
    all.extend(queue_changes());
    all.extend(sessions::all());
    all.extend(tenants::all());
    all.extend([gateway::offers(), gateway::check()]);
    all.extend([gateway::audit(), gateway::audit_summary(), gateway::live()]);
    all.extend(nodes::all());
    all.extend(doctor::all());
    all.extend(settings::all());
    all.push(history::get());
    all.extend(identity::all());
    all.extend(server());
    all.extend(mcp::all());
    all
}

fn id_parameter() -> Value {
    json!({
        "name": "id", "in": "path", "required": true, "example": ID,
        "description": "The `id` of its record.",
        "schema": { "type": "string" }
    })
}

/// The header by which a repeated request is carried out once.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Returns the key parameter of an operation that leaves idempotency to the shell.
pub(super) fn shell_idempotency_parameter(keys: KeyedRequests) -> Value {
    // Such a request is refused if it is resent with its key and the first one did not finish.
    let ends_with_client = keys == KeyedRequests::EndWithClient;
    let description = match ends_with_client {
        true => {
            "For 30 minutes a request with the same key is not carried out again: it gets the \
             answer of the first, or a 409 when that was a stream or did not come to its end. 1 \
             to 255 bytes; belongs to the token."
        }
        false => {
            "For 30 minutes a request with the same key is carried out once and gets the same \
             answer, with the header `idempotent-replayed: true`; errors are not kept. 1 to 255 \
             bytes; belongs to the token. With another request it is a 409."
        }
    };
    let mut parameter = json!({
        "name": IDEMPOTENCY_KEY, "in": "header", "required": false,
        "description": description,
        "schema": { "type": "string" }
    });
    if ends_with_client {
        // For client generators: do not resend automatically.
        parameter["x-cove-resend"] = json!(false);
    }
    parameter
}

fn idempotency_parameter() -> Value {
    json!({
        "name": IDEMPOTENCY_KEY, "in": "header", "required": false,
        "description": "Makes a second submission of the same harmless: it is answered with the \
                        execution of the first for as long as that is kept. 1 to 255 bytes; \
                        belongs to the token. With another request it is a 409.",
        "schema": { "type": "string" }
    })
}

fn all_parameter() -> Value {
    json!({
        "name": "all", "in": "query", "required": false,
        "description": "Executions of all tokens instead of the caller's; needs an operator's \
         token.",
        "schema": { "type": "boolean", "default": false }
    })
}

fn record(state: &str) -> Value {
    json!({
        "id": ID, "state": state, "language": "python", "priority": 0, "label": "demo",
        "created_at": "2026-11-21T19:33:20.118Z", "attempts": 0
    })
}

fn queued() -> Value {
    let mut queued = record("queued");
    queued["position"] = json!(3);
    queued["estimated_start_ms"] = json!(41);
    queued
}

fn finished() -> Value {
    let mut finished = record("finished");
    finished["attempts"] = json!(1);
    finished["started_at"] = json!("2026-11-21T19:33:20.119Z");
    finished["finished_at"] = json!("2026-11-21T19:33:20.129Z");
    finished["expires_at"] = json!("2026-11-22T19:33:20.129Z");
    finished
}

fn execution() -> Value {
    let outcome = json!({
        "verdict": "OK", "exit_code": 0, "signal": null,
        "stdout": "42\n", "stderr": "",
        "truncated": { "stdout": false, "stderr": false }, "limit": null,
        "cpu_ms": 1.9, "wall_ms": 2.2,
        "memory_peak_bytes": 6_291_456, "processes_peak": 1, "oom_kills": 0
    });
    let (mut execution, mut stage) = (outcome.clone(), outcome);
    stage["name"] = json!("run");
    stage["mode"] = json!("zygote");
    execution["id"] = json!(ID);
    execution["mode"] = json!("zygote");
    execution["stages"] = json!([stage]);
    execution
}

fn submit() -> Operation {
    Operation::of(
        &table::CREATE_EXECUTION,
        "Accepts a program and answers 202 when it is durable; what becomes of it is at the \
         address in `location`, and as it happens at `…/events`. With `wait=true` the program is \
         run at once and the answer is its result: 200, whatever the program does. Nothing of \
         that is stored, and a client that closes the connection has its program killed.",
    )
    .with_parameters(json!([
        {
            "name": "wait", "in": "query", "required": false,
            "description": "Answer when the program has ended. Excludes `idempotency-key`, \
                            `webhook`, `deadline_ms`, `interactive` and `terminal`.",
            "schema": { "type": "boolean", "default": false }
        },
        idempotency_parameter()
    ]))
    .takes_any_of(request_examples())
    .answers(202, "The execution is accepted and stored durably.", queued())
    .answers(200, "With `wait=true`: the result.", execution())
}

fn request_examples() -> Value {
    json!({
        "language": {
            "summary": "A Python program",
            "value": { "language": "python", "source": "print(6 * 7)", "label": "demo" }
        },
        "compiled": {
            "summary": "A C program with input, arguments and limits",
            "value": {
                "language": "c",
                "files": [{
                    "name": "main.c",
                    "content": "#include <stdio.h>\nint main(int n, char **a) { int x; scanf(\"%d\", &x); printf(\"%s %d\\n\", a[1], 2 * x); }"
                }],
                "args": ["twice"],
                "stdin": "21\n",
                "limits": { "cpu_ms": 1000, "memory_bytes": 67_108_864 }
            }
        },
        "tests": {
            "summary": "Test cases, and whom to tell",
            "value": {
                "language": "python",
                "source": "print(sum(map(int, input().split())))",
                "tests": [
                    { "stdin": "1 2\n", "expected": "3\n" },
                    { "name": "large", "stdin": "40 2\n", "expected": "42\n", "limits": { "cpu_ms": 500 } }
                ],
                "comparison": { "mode": "tokens" },
                "webhook": { "url": "https://example.com/judged" }
            }
        },
        "command": {
            "summary": "A command, and a file of it handed back",
            "value": {
                "argv": ["/bin/sh", "-c", "date > today"],
                "outputs": ["today"]
            }
        }
    })
}

fn list() -> Operation {
    let text = |name: &str, description: &str| {
        json!({
            "name": name, "in": "query", "required": false, "description": description,
            "schema": { "type": "string" }
        })
    };
    let time = |name: &str, description: &str| {
        json!({
            "name": name, "in": "query", "required": false, "description": description,
            "schema": { "type": "integer", "format": "int64", "minimum": 0 }
        })
    };
    Operation::of(
        &table::LIST_EXECUTIONS,
        "This token's asynchronous executions that are still kept, newest first, without \
         results.",
    )
    .with_parameters(json!([
        text("state", "Only those in one of these states, separated by commas."),
        text("language", "Only those of this language, or `argv`."),
        text("label", "Only those with this label."),
        text("verdict", "Only those with this verdict, such as `TLE`. Refused in Redis."),
        text("id", "Only those whose id has this prefix."),
        text("text", "Only those whose label contains exactly this text."),
        time("from_ms", "Only those accepted at this time or later, in milliseconds since 1970."),
        time("to_ms", "Only those accepted before this time."),
        {
            "name": "order", "in": "query", "required": false,
            "description": "Newest first, or oldest first.",
            "schema": { "type": "string", "enum": ["desc", "asc"], "default": "desc" }
        },
        text(
            "tenant",
            "Those of the token with this id, or of all with `*`; needs an operator's token.",
        ),
        {
            "name": "limit", "in": "query", "required": false,
            "description": "Maximum number on a page.",
            "schema": { "type": "integer", "minimum": 1, "maximum": 200, "default": 50 }
        },
        text("cursor", "`next_cursor` of the previous page.")
    ]))
    .answers(
        200,
        "A page of the list.",
        json!({ "executions": [finished()], "next_cursor": ID }),
    )
}

fn batch() -> Operation {
    Operation::of(
        &table::CREATE_BATCH,
        "Accepts all of them, in one durable step, or none. A field that is wrong is named with \
         its place: `executions[1].language`.",
    )
    .with_parameters(json!([idempotency_parameter()]))
    .takes_any_of(json!({ "two": {
                "summary": "Two programs",
                "value": { "executions": [
                    { "language": "python", "source": "print(1)" },
                    { "language": "bash", "source": "echo 2" }
                ] }
            } }))
    .answers(
        202,
        "All executions are accepted and stored durably, in the order of the request.",
        json!({ "executions": [queued()] }),
    )
}

fn fetch() -> Operation {
    let mut example = finished();
    example["result"] = execution();
    Operation::of(
        &table::GET_EXECUTION,
        "Where it is; while it waits, how many go before it and when it will about start; its \
         result once it is finished. Executions of `wait=true` are not stored and not found.",
    )
    .with_parameters(json!([
        id_parameter(),
        {
            "name": "wait", "in": "query", "required": false,
            "description": "Answer when it has ended.",
            "schema": { "type": "boolean", "default": false }
        },
        {
            "name": "include", "in": "query", "required": false,
            "description": "`request`: also return the request as it was sent.",
            "schema": { "type": "string", "enum": ["request"] }
        }
    ]))
    .answers(200, "The full record.", example)
}

fn cancel() -> Operation {
    let mut example = finished();
    example["state"] = json!("cancelled");
    example["message"] = json!("cancelled by its owner");
    Operation::of(
        &table::CANCEL_EXECUTION,
        "One that waits is cancelled at once. One that runs is told to end, and the answer may \
         still say `running`; a result that comes first counts. What has ended is a 409.",
    )
    .with_parameters(json!([id_parameter()]))
    .answers(200, "The execution is or will be cancelled.", example)
}

fn events() -> Operation {
    Operation::of(
        &table::FOLLOW_EXECUTION,
        "Every event as it happens, until the last one: `verdict` with the whole result, or \
         `ended`. As server-sent events, or on a WebSocket when one is asked for; there each \
         event is a text message. On a WebSocket, an attached caller also sends `ClientMessage` \
         as text, and bytes for standard input as binary messages. An `interactive` execution is \
         attached to the first WebSocket, starts then, and ends with it. A browser gives its \
         token as the subprotocol `bearer.<token>`.",
    )
    .with_parameters(json!([
        id_parameter(),
        {
            "name": "after", "in": "query", "required": false,
            "description": "Number of the last event that was seen; what follows is sent. \
                            `Last-Event-ID` says the same.",
            "schema": { "type": "integer", "minimum": 0, "default": 0 }
        },
        {
            "name": "attach", "in": "query", "required": false,
            "description": "Attach to an execution that is not `interactive`: it ends with this \
                            WebSocket.",
            "schema": { "type": "boolean", "default": false }
        },
        {
            "name": "last-event-id", "in": "header", "required": false,
            "description": "Sent by an `EventSource` when it reconnects.",
            "schema": { "type": "integer", "minimum": 0 }
        }
    ]))
    .answers(
        200,
        "Server-sent events: `id` is the number, `event` the type, `data` this.",
        json!({ "seq": 3, "type": "stdout", "data": "42\n" }),
    )
    .opens(
        "A WebSocket. Closed with 1000 after the last event, 1001 when the server shuts down, \
         4400 for an invalid message, 4409 when another client has attached.",
    )
}

fn retry() -> Operation {
    Operation::of(
        &table::RETRY_EXECUTION,
        "With fresh attempts and without its deadline. Only what Cove itself failed at is `dead`; \
         anything else is a 409.",
    )
    .with_parameters(json!([id_parameter()]))
    .answers(200, "The execution is queued again.", queued())
}

fn webhook_secret() -> Operation {
    Operation::of(
        &table::GET_WEBHOOK_SECRET,
        "What webhooks are signed with, unless a request gives a `secret` of its own. It stays \
         the same for as long as the server's key of webhooks does.",
    )
    .answers(200, "The key.", json!({ "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" }))
}

fn list_languages() -> Operation {
    Operation::of(
        &table::LIST_LANGUAGES,
        "Every language the server is configured for, with the version that is installed or the \
         reason why it cannot be used.",
    )
    .answers(
        200,
        "The complete list, sorted by name.",
        json!({ "languages": [
                    {
                        "name": "python", "aliases": ["python3", "py"], "extensions": ["py"],
                        "version": "Python 3.11.2", "compiled": false, "available": true
                    },
                    {
                        "name": "java", "aliases": [], "extensions": ["java"],
                        "compiled": true, "available": false,
                        "reason": "`javac` is not installed"
                    }
                ] }),
    )
}

fn queue_stats() -> Value {
    json!({
        "backend": "sqlite", "paused": false, "queued": 12, "running": 4, "finished": 3101,
        "cancelled": 2, "expired": 0, "dead": 1, "oldest_queued_ms": 840, "tenants_waiting": 3
    })
}

fn stats() -> Operation {
    Operation::of(&table::GET_QUEUE, "How many of this token's executions are in which state.")
        .with_parameters(json!([all_parameter()]))
        .answers(200, "The figures.", queue_stats())
}

fn queue_changes() -> Vec<Operation> {
    let figures = |paused: bool| {
        let mut figures = queue_stats();
        figures["paused"] = json!(paused);
        figures
    };
    let change = |entry, description| {
        let operation = Operation::of(entry, description);
        operation.with_parameters(json!([all_parameter()])).answers(
            200,
            "Number of changed executions.",
            json!({ "changed": 12 }),
        )
    };
    vec![
        Operation::of(
            &table::PAUSE_QUEUE,
            "For all tokens, over restarts. What runs goes on, new ones are accepted, and \
             synchronous executions are not concerned. Needs an operator's token.",
        )
        .answers(200, "Figures of all tokens.", figures(true)),
        Operation::of(&table::RESUME_QUEUE, "After a pause. Needs an operator's token.").answers(
            200,
            "Figures of all tokens.",
            figures(false),
        ),
        change(
            &table::DRAIN_QUEUE,
            "This token's executions that wait end as `cancelled`; what runs goes on.",
        ),
        change(&table::RETRY_DEAD, "This token's, with fresh attempts."),
    ]
}

/// Returns the operations that are open to every caller.
fn server() -> Vec<Operation> {
    vec![
        Operation::of(
            &server::LIVE,
            "Answers as long as the server can answer anything. Restart it when it does not.",
        )
        .gives(200, "The process is alive."),
        Operation::of(
            &server::READY,
            "Answers 503 from the moment the server begins to shut down.",
        )
        .gives(200, "The server accepts work."),
        Operation::of(
            &server::METRICS,
            "Requests, executions, the store, the sandbox engine and the process, in the \
             OpenMetrics text format.",
        )
        .gives(200, "The current figures."),
        Operation::of(
            &server::DOCS,
            "All pages of the documentation, with a search; this interface is at `/docs/api`.",
        )
        .gives(200, "The first page."),
        Operation::of(
            &server::OPENAPI,
            "The interface as an OpenAPI 3.1 document, for generating clients.",
        )
        .gives(200, "The document."),
    ]
}

/// Returns the requests to a receiver of webhooks.
pub(super) fn webhooks() -> Value {
    let header = |name: &str, description: &str| {
        json!({
            "name": name, "in": "header", "required": true, "description": description,
            "schema": { "type": "string" }
        })
    };
    let mut example = finished();
    example["result"] = execution();
    json!({ "executionEnded": { "post": {
        "operationId": "executionEnded",
        "tags": ["executions"],
        "summary": "An execution has ended",
        "description": "Sent to `webhook.url` when an execution is finished, cancelled, expired \
                        or dead. Any 2xx settles it; anything else is tried again with growing \
                        pauses.",
        "parameters": [
            header("webhook-id", "The execution's id; the same at every attempt."),
            header("webhook-timestamp", "When this attempt was made, in seconds since 1970."),
            header("webhook-signature", "`v1,` and the base64 of HMAC-SHA-256 over \
                                         `id.timestamp.body` (Standard Webhooks 1.0)."),
            header("webhook-attempt", "Which attempt this is, from 1.")
        ],
        "requestBody": {
            "required": true,
            "content": { "application/json": {
                "schema": super::reference("ExecutionRecord"), "example": example
            } }
        },
        // The signature authenticates the sender; there is no token.
        "security": [],
        "responses": { "2XX": { "description": "It was taken." } }
    } } })
}
