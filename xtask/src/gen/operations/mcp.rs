//! The endpoint of the Model Context Protocol: messages of JSON-RPC, whose form differs from the
//! contract's types.
//!
//! # References
//! - <https://modelcontextprotocol.io/specification/2026-07-28/basic/transports>
//! - <https://www.jsonrpc.org/specification>

use api::operations::{ApiOperation, mcp as table};
use serde_json::{Map, Value, json};

use super::super::Operation;

/// Supported revisions, the newest first.
const REVISIONS: [&str; 4] = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"];

/// Returns the operations at `/mcp`.
pub(crate) fn all() -> Vec<Operation> {
    vec![message(), refused(&table::OPEN_MCP_STREAM), refused(&table::END_MCP_SESSION)]
}

/// Returns the schemas of the messages, by name.
pub(crate) fn schemas() -> Map<String, Value> {
    let id = json!({
        "description": "Id of the request, which its answer repeats; absent of a notification.",
        "oneOf": [{ "type": "string", "maxLength": 256 }, { "type": "integer" }]
    });
    let version = json!({ "type": "string", "const": "2.0" });
    let request = json!({
        "type": "object",
        "description": "Request or notification of JSON-RPC 2.0.",
        "required": ["jsonrpc", "method"],
        "properties": {
            "jsonrpc": version,
            "id": id,
            "method": {
                "type": "string",
                "description": "`server/discover`, `tools/list`, `tools/call`, `resources/list`, \
                                `resources/templates/list`, `resources/read`, `tasks/get`, \
                                `tasks/cancel`; of older revisions `initialize`, `ping` and \
                                `logging/setLevel` as well."
            },
            "params": {
                "type": "object",
                "description": "Parameters of the method. `_meta` has what revision 2026-07-28 \
                                says with each request.",
                "properties": { "_meta": { "$ref": "#/components/schemas/McpRequestMeta" } },
                "additionalProperties": true
            }
        }
    });
    let meta = json!({
        "type": "object",
        "description": "What revision 2026-07-28 says with each request, in place of a handshake.",
        "properties": {
            "io.modelcontextprotocol/protocolVersion": {
                "type": "string", "description": "Revision of the request."
            },
            "io.modelcontextprotocol/clientCapabilities": {
                "type": "object", "description": "What the client can do."
            },
            "io.modelcontextprotocol/logLevel": {
                "type": "string", "description": "Asks for the log of the call."
            },
            "progressToken": {
                "description": "Asks for progress.",
                "oneOf": [{ "type": "string" }, { "type": "integer" }]
            }
        },
        "additionalProperties": true
    });
    let response = json!({
        "type": "object",
        "description": "Response of JSON-RPC 2.0: a result or an error.",
        "required": ["jsonrpc", "id"],
        "properties": {
            "jsonrpc": version,
            "id": {
                "description": "Id of the request; null when it could not be read.",
                "oneOf": [{ "type": "string" }, { "type": "integer" }, { "type": "null" }]
            },
            "result": {
                "type": "object",
                "description": "Result of the method. In revision 2026-07-28 `resultType` says \
                                what it is: `complete`, `input_required` or `task`.",
                "properties": { "resultType": { "type": "string" } },
                "additionalProperties": true
            },
            "error": { "$ref": "#/components/schemas/McpFailure" }
        }
    });
    [
        ("McpRequest", request),
        ("McpRequestMeta", meta),
        ("McpResponse", response),
        ("McpFailure", failure_schema()),
    ]
    .map(|(name, schema)| (name.to_owned(), schema))
    .into_iter()
    .collect()
}

fn failure_schema() -> Value {
    json!({
        "type": "object",
        "description": "Error of JSON-RPC or of the protocol: the request was not carried out.",
        "required": ["code", "message"],
        "properties": {
            "code": {
                "type": "integer",
                "description": "-32700 and -32600 to -32603 of JSON-RPC; -32020 headers that \
                                differ from the body, -32021 a capability that the client has not \
                                declared, -32022 a revision that is not spoken."
            },
            "message": { "type": "string", "description": "Sentence for the model." },
            "data": { "description": "The same for programs." }
        }
    })
}

fn header(name: &str, description: &str, schema: &Value) -> Value {
    json!({
        "name": name, "in": "header", "required": false, "description": description,
        "schema": schema
    })
}

fn failure(code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": code, "message": message } })
}

/// Returns the headers that repeat values of the body.
fn parameters() -> Value {
    let text = json!({ "type": "string" });
    json!([
        header(
            "mcp-protocol-version",
            "Revision; must equal that of `_meta` if present.",
            &json!({ "type": "string", "enum": REVISIONS }),
        ),
        header("mcp-method", "The method, as in the body; revision 2026-07-28 requires it.", &text),
        header(
            "mcp-name",
            "`name` or `uri` of `tools/call`, `prompts/get` and `resources/read`, as in the body, \
             or `taskId` of methods of tasks; revision 2026-07-28 requires it. Values beyond \
             ASCII are `=?base64?…?=`.",
            &text,
        ),
        header(
            "accept",
            "`application/json`, and `text/event-stream` if the caller accepts progress.",
            &text,
        )
    ])
}

fn message() -> Operation {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": REVISIONS[0],
        "io.modelcontextprotocol/clientCapabilities": {}
    });
    let run = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {
            "name": "run_code", "arguments": { "language": "python", "code": "print(6*7)" },
            "_meta": meta
        }
    });
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let result = json!({
        "jsonrpc": "2.0", "id": 1,
        "result": {
            "resultType": "complete", "isError": false,
            "content": [{ "type": "text", "text": "42\n[verdict OK, exit code 0, 6 ms]" }]
        }
    });
    let operation = Operation::of(
        &table::SEND_MCP_MESSAGE,
        "One request or notification of JSON-RPC 2.0 (or a list of them in revision 2025-03-26), \
         for every token: which tools there are is decided by its scopes. Requests of revision \
         2026-07-28 name it in `_meta` and repeat parts of the body in headers, so that they can \
         be routed without reading it.",
    );
    operation
        .with_parameters(parameters())
        .takes_any_of(json!({
            "tools": { "summary": "The tools, without a handshake", "value": list },
            "call": { "summary": "A program, in revision 2026-07-28", "value": run }
        }))
        .tells_or(
            "The answer; server-sent events where it takes long and the caller accepts them: \
             notifications, and the answer last. Up to revision 2025-11-25 errors of the \
             protocol, too.",
            result.clone(),
            result,
        )
        .gives(202, "The notification is accepted; no body.")
        .answers(
            400,
            "The body is not a message, or the headers contradict it.",
            failure(-32_600, "invalid request"),
        )
        .answers(
            403,
            "The `Origin` or `Host` is not the server's; or the token lacks the scope that \
             `www-authenticate` names.",
            failure(-32_600, "the host is not among `mcp.hosts`"),
        )
        .answers(
            404,
            "There is no such method in revision 2026-07-28.",
            failure(-32_601, "unknown method"),
        )
        .answers(413, "The body is larger than 16 MiB.", failure(-32_600, "the body is too long"))
}

fn refused(entry: &'static ApiOperation) -> Operation {
    Operation::of(
        entry,
        "Clients of older revisions ask, to find out whether the server has sessions.",
    )
    .answers(405, "Always; `allow` names POST.", failure(-32_600, "send a POST"))
}

#[cfg(test)]
mod tests {
    use api::operations::RequestBody;

    use super::super::super::operation;
    use super::*;

    #[test]
    fn examples_are_of_the_schemas_they_name() {
        let schemas = schemas();
        let check = |name: &str, example: &Value| {
            let schema = &schemas[name];
            for field in schema["required"].as_array().unwrap() {
                assert!(example.get(field.as_str().unwrap()).is_some(), "{name} {field}");
            }
            for field in example.as_object().unwrap().keys() {
                assert!(schema["properties"].get(field).is_some(), "{name} {field}");
            }
        };
        for operation in all() {
            for (answer, words) in operation.described().unwrap() {
                let schemas = operation::schemas(answer.body);
                schemas.iter().zip(&words.examples).for_each(|(schema, it)| check(schema, it));
            }
            if let (RequestBody::Json(schema), Some(examples)) =
                (operation.entry.request, &operation.examples)
            {
                for example in examples.as_object().unwrap().values() {
                    check(schema, &example["value"]);
                }
            }
        }
    }
}
