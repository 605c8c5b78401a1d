//! Messages of JSON-RPC 2.0 as MCP uses them, its revisions and its error codes. Pure.
//!
//! # References
//! - <https://www.jsonrpc.org/specification>
//! - <https://modelcontextprotocol.io/specification/2026-07-28/basic>

use node::auth::TokenScope;
use serde_json::{Map, Value, json};

/// Revision without handshake and sessions.
pub(crate) const STATELESS: &str = "2026-07-28";

/// Revisions that begin with `initialize`, newest first.
pub(crate) const WITH_HANDSHAKE: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// Field of `_meta` with the revision of a stateless request.
pub const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// Field of `_meta` with the client capabilities of a stateless request.
pub(crate) const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// Field of `_meta` in which a stateless request enables logging.
const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// Most messages of one batch.
pub(crate) const BATCH_MAX: usize = 32;

/// Longest string id, in bytes.
const ID_BYTES_MAX: usize = 256;

/// Invalid JSON.
pub const PARSE_ERROR: i64 = -32_700;
/// Not a JSON-RPC message.
pub(crate) const INVALID_REQUEST: i64 = -32_600;
/// Unknown method.
pub(crate) const METHOD_NOT_FOUND: i64 = -32_601;
/// Invalid parameters of a method.
pub const INVALID_PARAMS: i64 = -32_602;
/// Internal error of Cove.
pub const INTERNAL_ERROR: i64 = -32_603;
/// Headers that contradict the body.
pub(crate) const HEADER_MISMATCH: i64 = -32_020;
/// A required client capability is not declared.
pub(crate) const MISSING_CAPABILITY: i64 = -32_021;
/// Unsupported revision.
pub(crate) const UNSUPPORTED_VERSION: i64 = -32_022;

/// Error of the protocol: the request was not carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct McpError {
    /// Code, of JSON-RPC or of the protocol.
    pub code: i64,
    /// Sentence for the model.
    pub message: String,
    /// Details for programs.
    pub data: Option<Value>,
    /// Scope that the caller's token lacks.
    pub(crate) missing_scope: Option<TokenScope>,
}

impl McpError {
    /// Creates an error without details for programs.
    pub fn new(code: i64, message: impl Into<String>) -> McpError {
        McpError { code, message: message.into(), data: None, missing_scope: None }
    }

    /// Creates an error about parameters; the message names the invalid one.
    pub fn params(message: impl Into<String>) -> McpError {
        McpError::new(INVALID_PARAMS, message)
    }

    /// Creates an error for an unsupported revision; it lists the supported ones.
    pub(crate) fn unsupported_version(requested: &str) -> McpError {
        let supported: Vec<&str> = [STATELESS].into_iter().chain(WITH_HANDSHAKE).collect();
        McpError {
            data: Some(json!({ "supported": supported, "requested": requested })),
            ..McpError::new(
                UNSUPPORTED_VERSION,
                format!("protocol version \"{requested}\" is not supported"),
            )
        }
    }

    /// Creates an error for a request that requires undeclared capabilities: `required` has a field
    /// for each of them.
    #[must_use]
    pub fn missing_capability(required: Map<String, Value>) -> McpError {
        let names: Vec<&str> = required.keys().map(String::as_str).collect();
        let message = format!("the client has not declared: {}", names.join(", "));
        McpError {
            data: Some(json!({ "requiredCapabilities": required })),
            ..McpError::new(MISSING_CAPABILITY, message)
        }
    }

    /// Sets the scope that the caller's token lacks.
    pub(crate) fn lacking(self, scope: TokenScope) -> McpError {
        McpError { missing_scope: Some(scope), ..self }
    }

    /// Returns the HTTP status, for revisions in which it reflects the kind of error.
    pub(crate) fn http_status(&self) -> u16 {
        match self.code {
            METHOD_NOT_FOUND => 404,
            INTERNAL_ERROR => 500,
            PARSE_ERROR | INVALID_REQUEST | HEADER_MISMATCH | UNSUPPORTED_VERSION
            | MISSING_CAPABILITY => 400,
            // Errors about parameters are reported in the protocol, not in the HTTP status.
            _ => 200,
        }
    }
}

/// Id of a request, repeated in its response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MessageId(Value);

/// A message from a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClientRpc {
    /// Expects a response.
    Request(RpcRequest),
    /// Expects no response.
    Notification {
        /// Method.
        method: String,
    },
    /// A response, although the server sends no requests.
    Answer,
}

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RpcRequest {
    pub(crate) id: MessageId,
    pub(crate) method: String,
    pub(crate) params: Map<String, Value>,
}

impl RpcRequest {
    /// Returns the `_meta` object of the parameters.
    pub(crate) fn meta(&self) -> Option<&Map<String, Value>> {
        self.params.get("_meta")?.as_object()
    }

    /// Returns the revision that a stateless request names.
    pub(crate) fn stateless_version(&self) -> Option<&str> {
        self.meta()?.get(META_VERSION)?.as_str()
    }

    /// Returns the client's capabilities, if the request declares them.
    pub(crate) fn client_capabilities(&self) -> Option<&Map<String, Value>> {
        self.meta()?.get(META_CAPABILITIES)?.as_object()
    }

    /// Returns whether the client requests logging.
    pub(crate) fn wants_log(&self) -> bool {
        self.meta().is_some_and(|meta| meta.contains_key(META_LOG_LEVEL))
    }

    /// Returns the text that the header `mcp-name` has to repeat: the name of the tool, the address
    /// of the resource or the id of the task.
    pub(crate) fn subject(&self) -> Option<&str> {
        let field = match self.method.as_str() {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
            _ => return None,
        };
        self.params.get(field)?.as_str()
    }
}

/// Body of a `POST`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClientBody {
    One(Result<ClientRpc, (Value, McpError)>),
    /// Several messages, as in revision 2025-03-26.
    Batch(Vec<Result<ClientRpc, (Value, McpError)>>),
}

/// Parses a body.
///
/// # Errors
/// If it is no JSON, or a batch that is empty or too large.
pub(crate) fn read(body: &[u8]) -> Result<ClientBody, McpError> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| McpError::new(PARSE_ERROR, format!("the body is not JSON: {error}")))?;
    match value {
        Value::Array(messages) if messages.is_empty() || messages.len() > BATCH_MAX => {
            let message = format!("a batch has 1 to {BATCH_MAX} messages, not {}", messages.len());
            Err(McpError::new(INVALID_REQUEST, message))
        }
        Value::Array(messages) => {
            Ok(ClientBody::Batch(messages.into_iter().map(read_message).collect()))
        }
        one => Ok(ClientBody::One(read_message(one))),
    }
}

/// Parses one message. An error contains the id for the response, or `null`.
fn read_message(value: Value) -> Result<ClientRpc, (Value, McpError)> {
    let Value::Object(mut fields) = value else {
        return Err(invalid(Value::Null, "a message is a JSON object"));
    };
    let id = fields.remove("id");
    let valid_id = match &id {
        Some(Value::String(text)) if text.len() <= ID_BYTES_MAX => id.clone(),
        Some(Value::Number(_)) => id.clone(),
        _ => None,
    };
    let to = valid_id.clone().unwrap_or(Value::Null);
    if fields.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(invalid(to, "`jsonrpc` must be \"2.0\""));
    }
    let method = match fields.remove("method") {
        Some(Value::String(method)) => method,
        Some(_) => return Err(invalid(to, "`method` must be a text")),
        None if fields.contains_key("result") || fields.contains_key("error") => {
            return Ok(ClientRpc::Answer);
        }
        None => return Err(invalid(to, "`method` is missing")),
    };
    let params = match fields.remove("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => {
            return Err((to, McpError::params("`params` must be an object")));
        }
    };
    match (id, valid_id) {
        (None, _) => Ok(ClientRpc::Notification { method }),
        (Some(_), Some(id)) => {
            Ok(ClientRpc::Request(RpcRequest { id: MessageId(id), method, params }))
        }
        (Some(_), None) => {
            let message =
                format!("`id` must be a number or a text of at most {ID_BYTES_MAX} bytes");
            Err(invalid(Value::Null, &message))
        }
    }
}

fn invalid(id: Value, message: &str) -> (Value, McpError) {
    (id, McpError::new(INVALID_REQUEST, message))
}

/// Returns the response to a request.
pub(crate) fn answer(id: &MessageId, outcome: Result<Value, McpError>) -> Value {
    match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id.0, "result": result }),
        Err(error) => failure(&id.0, error),
    }
}

/// Returns the error response to an invalid message.
pub(crate) fn failure(id: &Value, error: McpError) -> Value {
    let McpError { code, message, data, .. } = error;
    let mut error = json!({ "code": code, "message": message });
    if let (Some(data), Some(fields)) = (data, error.as_object_mut()) {
        fields.insert("data".to_owned(), data);
    }
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}

/// Returns a progress notification. `token` is the client's progress token.
pub(crate) fn progress(token: &Value, seconds: u64) -> Value {
    json!({
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {
            "progressToken": token,
            "progress": seconds,
            "message": format!("running for {seconds} s"),
        },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn code(text: &str) -> Option<i64> {
        match read(text.as_bytes()) {
            Err(error) => Some(error.code),
            Ok(ClientBody::One(Err((_, error)))) => Some(error.code),
            Ok(_) => None,
        }
    }

    #[test]
    fn what_is_no_message_is_refused_with_the_code_of_json_rpc() {
        for (text, expected) in [
            ("{", Some(PARSE_ERROR)),
            ("1", Some(INVALID_REQUEST)),
            ("[]", Some(INVALID_REQUEST)),
            ("{}", Some(INVALID_REQUEST)),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, Some(INVALID_REQUEST)),
            (r#"{"jsonrpc":"2.0","id":1}"#, Some(INVALID_REQUEST)),
            (r#"{"jsonrpc":"2.0","id":1,"method":3}"#, Some(INVALID_REQUEST)),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Some(INVALID_REQUEST)),
            (r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, Some(INVALID_REQUEST)),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, Some(INVALID_PARAMS)),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, None),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None),
        ] {
            assert_eq!(code(text), expected, "{text}");
        }
        let batch = format!("[{}]", vec!["{}"; BATCH_MAX + 1].join(","));
        assert_eq!(code(&batch), Some(INVALID_REQUEST));
    }

    #[test]
    fn an_answer_repeats_the_id_as_it_came() {
        for id in ["7", "\"a\"", "-1", "1.5"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            let Ok(ClientBody::One(Ok(ClientRpc::Request(request)))) = read(text.as_bytes()) else {
                panic!("{text}");
            };
            let reply = answer(&request.id, Ok(json!({})));
            assert_eq!(reply["id"].to_string(), id);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(body: Vec<u8>) {
            let _read = read(&body);
        }
    }
}
