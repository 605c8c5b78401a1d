//! The operations of the HTTP interface: what a person has to know of each beyond the types.
//!
//! Every example is checked against its type by a test. What is not here cannot be found in the
//! document, so a route that is added belongs here as well.

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

use serde_json::{Value, json};

use super::{Answer, Operation};

/// An execution that examples are about.
const ID: &str = "ex_01M7ZSJM3P2AZVFP0M84SC7SNT";

/// All of them, in the order of the page.
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
    all
}

fn id_parameter() -> Value {
    json!({
        "name": "id", "in": "path", "required": true, "example": ID,
        "description": "The `id` of its record.",
        "schema": { "type": "string" }
    })
}

/// The header by which a request that is sent twice is carried out once.
pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Operations whose work ends with the connection of its client: sent again with its key, such a
/// request is refused when the first did not come to its end.
const ENDS_WITH_CLIENT: [&str; 3] = [
    "/v1/sessions/{id}/contexts/{context}/execute",
    "/v1/sessions/{id}/exec",
    "/v1/sessions/{id}/messages",
];

/// The key of an operation that leaves it to the shell around all of them.
pub(super) fn shell_idempotency_parameter(path: &str) -> Value {
    let ends_with_client = ENDS_WITH_CLIENT.contains(&path);
    let description = match ends_with_client {
        true => {
            "For 30 minutes a request with the same key is not carried out again: it gets the \
             answer of the first, or a 409 when that was a stream or did not come to its end. \
             1 to 255 bytes; belongs to the token."
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
        // For generators of clients: not to be sent again by itself.
        parameter["x-cove-resend"] = json!(false);
    }
    parameter
}

fn idempotency_parameter() -> Value {
    json!({
        "name": IDEMPOTENCY_KEY, "in": "header", "required": false,
        "description": "Makes a second submission of the same harmless: it is answered with the \
            execution of the first for as long as that is kept. 1 to 255 bytes; belongs to the \
            token. With another request it is a 409.",
        "schema": { "type": "string" }
    })
}

fn all_parameter() -> Value {
    json!({
        "name": "all", "in": "query", "required": false,
        "description": "Everybody's executions instead of this token's; needs an operator's token.",
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
    Operation {
        method: "post",
        path: "/v1/executions",
        id: "createExecution",
        tag: "executions",
        token: true,
        summary: "Run a program",
        description: "Accepts a program and answers 202 when it is durable; what becomes of it is \
            at the address in `location`, and as it happens at `…/events`. With `wait=true` the \
            program is run at once and the answer is its result: 200, whatever the program does. \
            Nothing of that is stored, and a client that closes the connection has its program \
            killed.",
        parameters: json!([
            {
                "name": "wait", "in": "query", "required": false,
                "description": "Answer when the program has ended. Excludes `idempotency-key`, \
                    `webhook`, `deadline_ms`, `interactive` and `terminal`.",
                "schema": { "type": "boolean", "default": false }
            },
            idempotency_parameter()
        ]),
        request: Some(("ExecutionRequest", request_examples())),
        answers: vec![
            (202, Answer::json("ExecutionRecord", "It is accepted and durable.", queued())),
            (200, Answer::json("Execution", "With `wait=true`: what it did.", execution())),
        ],
        errors: &[400, 403, 409, 413, 415, 429],
    }
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
    Operation {
        method: "get",
        path: "/v1/executions",
        id: "listExecutions",
        tag: "executions",
        token: true,
        summary: "List executions",
        description: "This token's asynchronous executions that are still kept, newest first, \
            without results.",
        parameters: json!([
            text("state", "Only those in one of these states, separated by commas."),
            text("language", "Only those of this language, or `argv`."),
            text("label", "Only those with this label."),
            text("verdict", "Only those with this verdict, such as `TLE`. Refused in Redis."),
            text("id", "Only those whose id begins so."),
            text("text", "Only those whose label contains this, to the letter."),
            time("from_ms", "Only those accepted at this time or later, in milliseconds since 1970."),
            time("to_ms", "Only those accepted before this time."),
            {
                "name": "order", "in": "query", "required": false,
                "description": "Newest first, or oldest first.",
                "schema": { "type": "string", "enum": ["desc", "asc"], "default": "desc" }
            },
            text("tenant", "Those of the token with this id, or of all with `*`; for operators."),
            {
                "name": "limit", "in": "query", "required": false,
                "description": "How many on a page.",
                "schema": { "type": "integer", "minimum": 1, "maximum": 200, "default": 50 }
            },
            text("cursor", "`next_cursor` of the page before.")
        ]),
        request: None,
        answers: vec![(
            200,
            Answer::json(
                "ExecutionList",
                "A page of them.",
                json!({ "executions": [finished()], "next_cursor": ID }),
            ),
        )],
        errors: &[400],
    }
}

fn batch() -> Operation {
    Operation {
        method: "post",
        path: "/v1/executions/batch",
        id: "createBatch",
        tag: "executions",
        token: true,
        summary: "Run many programs",
        description: "Accepts all of them, in one durable step, or none. A field that is wrong is \
            named with its place: `executions[1].language`.",
        parameters: json!([idempotency_parameter()]),
        request: Some((
            "BatchRequest",
            json!({ "two": {
                "summary": "Two programs",
                "value": { "executions": [
                    { "language": "python", "source": "print(1)" },
                    { "language": "bash", "source": "echo 2" }
                ] }
            } }),
        )),
        answers: vec![(
            202,
            Answer::json(
                "BatchAnswer",
                "All are accepted and durable; in the order of the request.",
                json!({ "executions": [queued()] }),
            ),
        )],
        errors: &[400, 409, 413, 415, 429],
    }
}

fn fetch() -> Operation {
    let mut example = finished();
    example["result"] = execution();
    Operation {
        method: "get",
        path: "/v1/executions/{id}",
        id: "getExecution",
        tag: "executions",
        token: true,
        summary: "Look at an execution",
        description: "Where it is; while it waits, how many go before it and when it will about \
            start; its result once it is finished. Executions of `wait=true` are not stored and \
            not found.",
        parameters: json!([
            id_parameter(),
            {
                "name": "wait", "in": "query", "required": false,
                "description": "Answer when it has ended.",
                "schema": { "type": "boolean", "default": false }
            },
            {
                "name": "include", "in": "query", "required": false,
                "description": "`request`: the answer has the request as it was sent, too.",
                "schema": { "type": "string", "enum": ["request"] }
            }
        ]),
        request: None,
        answers: vec![(200, Answer::json("ExecutionRecord", "What is known of it.", example))],
        errors: &[400, 404],
    }
}

fn cancel() -> Operation {
    let mut example = finished();
    example["state"] = json!("cancelled");
    example["message"] = json!("cancelled by its owner");
    Operation {
        method: "delete",
        path: "/v1/executions/{id}",
        id: "cancelExecution",
        tag: "executions",
        token: true,
        summary: "Cancel an execution",
        description: "One that waits is cancelled at once. One that runs is told to end, and the \
            answer may still say `running`; a result that comes first counts. What has ended is a \
            409.",
        parameters: json!([id_parameter()]),
        request: None,
        answers: vec![(200, Answer::json("ExecutionRecord", "It is, or will be.", example))],
        errors: &[404, 409],
    }
}

fn events() -> Operation {
    Operation {
        method: "get",
        path: "/v1/executions/{id}/events",
        id: "followExecution",
        tag: "executions",
        token: true,
        summary: "Follow an execution live",
        description: "Every event as it happens, until the last one: `verdict` with the whole \
            result, or `ended`. As server-sent events, or on a WebSocket when one is asked for; \
            there each event is a text message. On a WebSocket, an attached caller also sends \
            `ClientMessage` as text, and bytes for standard input as binary messages. An \
            `interactive` execution is attached to the first WebSocket, starts then, and ends with \
            it. A browser gives its token as the subprotocol `bearer.<token>`.",
        parameters: json!([
            id_parameter(),
            {
                "name": "after", "in": "query", "required": false,
                "description": "Number of the last event that was seen; what follows is sent. \
                    `Last-Event-ID` says the same.",
                "schema": { "type": "integer", "minimum": 0, "default": 0 }
            },
            {
                "name": "attach", "in": "query", "required": false,
                "description": "Attach to an execution that is not `interactive`: it ends with \
                    this WebSocket.",
                "schema": { "type": "boolean", "default": false }
            },
            {
                "name": "last-event-id", "in": "header", "required": false,
                "description": "What an `EventSource` sends by itself when it comes back.",
                "schema": { "type": "integer", "minimum": 0 }
            }
        ]),
        request: None,
        answers: vec![
            (
                200,
                Answer::Events {
                    schema: "ExecutionEvent",
                    says: "Server-sent events: `id` is the number, `event` the type, `data` this.",
                    example: json!({ "seq": 3, "type": "stdout", "data": "42\n" }),
                },
            ),
            (
                101,
                Answer::Socket {
                    says: "A WebSocket. Closed with 1000 after the last event, 1001 when the \
                        server shuts down, 4400 for a message that is none, 4409 when somebody \
                        else is attached.",
                    receives: "ClientMessage",
                },
            ),
        ],
        errors: &[400, 404, 426],
    }
}

fn retry() -> Operation {
    Operation {
        method: "post",
        path: "/v1/executions/{id}/retry",
        id: "retryExecution",
        tag: "executions",
        token: true,
        summary: "Queue a dead execution again",
        description: "With fresh attempts and without its deadline. Only what Cove itself failed at \
            is `dead`; anything else is a 409.",
        parameters: json!([id_parameter()]),
        request: None,
        answers: vec![(200, Answer::json("ExecutionRecord", "It waits again.", queued()))],
        errors: &[404, 409],
    }
}

fn webhook_secret() -> Operation {
    Operation {
        method: "get",
        path: "/v1/webhooks/secret",
        id: "getWebhookSecret",
        tag: "executions",
        token: true,
        summary: "The key of this token's webhooks",
        description: "What webhooks are signed with, unless a request gives a `secret` of its own. \
            It stays the same for as long as the server's key of webhooks does.",
        parameters: json!([]),
        request: None,
        answers: vec![(
            200,
            Answer::json(
                "WebhookSecret",
                "The key.",
                json!({ "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" }),
            ),
        )],
        errors: &[],
    }
}

fn list_languages() -> Operation {
    Operation {
        method: "get",
        path: "/v1/languages",
        id: "listLanguages",
        tag: "executions",
        token: true,
        summary: "List languages",
        description: "Every language the server is configured for, with the version that is \
            installed or the reason why it cannot be used.",
        parameters: json!([]),
        request: None,
        answers: vec![(
            200,
            Answer::json(
                "LanguageList",
                "All of them, by name.",
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
            ),
        )],
        errors: &[],
    }
}

fn queue_stats() -> Value {
    json!({
        "backend": "sqlite", "paused": false, "queued": 12, "running": 4, "finished": 3101,
        "cancelled": 2, "expired": 0, "dead": 1, "oldest_queued_ms": 840, "tenants_waiting": 3
    })
}

fn stats() -> Operation {
    Operation {
        method: "get",
        path: "/v1/queue",
        id: "getQueue",
        tag: "queue",
        token: true,
        summary: "Figures of the queue",
        description: "How many of this token's executions are in which state.",
        parameters: json!([all_parameter()]),
        request: None,
        answers: vec![(200, Answer::json("QueueStats", "The figures.", queue_stats()))],
        errors: &[400, 403],
    }
}

fn queue_changes() -> Vec<Operation> {
    let paused = |path, id, summary, description, paused: bool| {
        let mut example = queue_stats();
        example["paused"] = json!(paused);
        Operation {
            method: "post",
            path,
            id,
            tag: "queue",
            token: true,
            summary,
            description,
            parameters: json!([]),
            request: None,
            answers: vec![(200, Answer::json("QueueStats", "Figures of all tokens.", example))],
            errors: &[403],
        }
    };
    let change = |path, id, summary, description| Operation {
        method: "post",
        path,
        id,
        tag: "queue",
        token: true,
        summary,
        description,
        parameters: json!([all_parameter()]),
        request: None,
        answers: vec![(
            200,
            Answer::json("QueueChange", "How many were changed.", json!({ "changed": 12 })),
        )],
        errors: &[400, 403],
    };
    vec![
        paused(
            "/v1/queue/pause",
            "pauseQueue",
            "Stop starting executions",
            "For all tokens, over restarts. What runs goes on, new ones are accepted, and \
             synchronous executions are not concerned. Needs an operator's token.",
            true,
        ),
        paused(
            "/v1/queue/resume",
            "resumeQueue",
            "Go on starting executions",
            "After a pause. Needs an operator's token.",
            false,
        ),
        change(
            "/v1/queue/drain",
            "drainQueue",
            "Cancel everything that waits",
            "This token's executions that wait end as `cancelled`; what runs goes on.",
        ),
        change(
            "/v1/queue/retry",
            "retryDead",
            "Queue all dead executions again",
            "This token's, with fresh attempts.",
        ),
    ]
}

/// What everybody who reaches the server may ask.
fn server() -> Vec<Operation> {
    let open = |path, id, summary, description, content_type, says| Operation {
        method: "get",
        path,
        id,
        tag: "server",
        token: false,
        summary,
        description,
        parameters: json!([]),
        request: None,
        answers: vec![(200, Answer::Text { content_type, says })],
        errors: &[],
    };
    let live = open(
        "/health/live",
        "live",
        "Is the process alive?",
        "Answers as long as the server can answer anything. Restart it when it does not.",
        "text/plain",
        "It is.",
    );
    let mut ready = open(
        "/health/ready",
        "ready",
        "Does the server take work?",
        "Answers 503 from the moment the server begins to shut down.",
        "text/plain",
        "It does.",
    );
    ready.errors = &[503];
    let metrics = open(
        "/metrics",
        "metrics",
        "Figures for Prometheus",
        "Requests, executions, the store, the sandbox engine and the process, in the OpenMetrics \
         text format.",
        "application/openmetrics-text",
        "The current figures.",
    );
    let docs = open(
        "/docs/",
        "docs",
        "Documentation",
        "All pages of the documentation, with a search; this interface is at `/docs/api`.",
        "text/html",
        "The first page.",
    );
    let openapi = open(
        "/openapi.json",
        "openapi",
        "This document",
        "The interface as an OpenAPI 3.1 document, for generating clients.",
        "application/json",
        "The document.",
    );
    vec![live, ready, metrics, docs, openapi]
}

/// What a receiver of webhooks is sent.
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
        "description": "Sent to `webhook.url` when an execution is finished, cancelled, expired or \
            dead. Any 2xx settles it; anything else is tried again with growing pauses.",
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
        // The signature proves the sender; there is no token.
        "security": [],
        "responses": { "2XX": { "description": "It was taken." } }
    } } })
}
