//! Methods of the protocol, for the caller of one request.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::input::{self, StateSealer};
use crate::message::{
    HEADER_MISMATCH, METHOD_NOT_FOUND, McpError, RpcRequest, STATELESS, WITH_HANDSHAKE,
};
use crate::offer::{McpCall, McpOffer, McpReply};
use crate::tasks::TASKS_EXTENSION;

/// Time for which a client may cache lists, in milliseconds: they change with the token and with
/// the version of the server.
const LIST_TTL_MS: u64 = 300_000;

/// Levels of a log (RFC 5424), by their names in the protocol.
const LOG_LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Rules of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum McpRevision {
    /// [`STATELESS`]: results state their type, lists their time to live.
    Stateless,
    /// A revision of [`WITH_HANDSHAKE`].
    WithHandshake,
}

impl McpRevision {
    /// Adds the fields that the revision requires in a result.
    fn complete(self, mut result: Value) -> Value {
        if let (McpRevision::Stateless, Some(fields)) = (self, result.as_object_mut()) {
            fields.insert("resultType".to_owned(), json!("complete"));
        }
        result
    }

    /// Adds the fields that the revision requires in a cacheable result.
    fn complete_cacheable(self, mut result: Value) -> Value {
        if let (McpRevision::Stateless, Some(fields)) = (self, result.as_object_mut()) {
            fields.insert("ttlMs".to_owned(), json!(LIST_TTL_MS));
            fields.insert("cacheScope".to_owned(), json!("private"));
        }
        self.complete(result)
    }
}

/// An MCP server: the protocol's methods over an offer.
#[derive(Clone, Debug)]
pub(crate) struct McpServer {
    offer: Arc<dyn McpOffer>,
    sealer: StateSealer,
}

impl McpServer {
    /// Creates a server of this offer, which seals states with this key.
    pub(crate) fn new(offer: Arc<dyn McpOffer>, key: &[u8; 32]) -> McpServer {
        McpServer { offer, sealer: StateSealer::new(key) }
    }

    /// Answers a request.
    ///
    /// # Errors
    /// If its revision has no such method, or its parameters cannot be read.
    pub(crate) async fn answer(
        &self,
        revision: McpRevision,
        request: &RpcRequest,
        mut call: McpCall,
    ) -> Result<Value, McpError> {
        let params = &request.params;
        let method = request.method.as_str();
        self.require_capability(method)?;
        if revision == McpRevision::Stateless {
            call.inputs = input::answers(params)?;
            call.state = self.sealer.open(request, &call.principal.tenant)?;
        }
        let one_page = |name: &str, list: Vec<Value>| {
            check_cursor(params)?;
            Ok(revision.complete_cacheable(json!({ name: list })))
        };
        match (method, revision) {
            ("server/discover", McpRevision::Stateless) => {
                Ok(revision.complete_cacheable(self.discover()))
            }
            ("initialize", McpRevision::WithHandshake) => self.initialize(params),
            ("ping", McpRevision::WithHandshake) => Ok(json!({})),
            ("logging/setLevel", McpRevision::WithHandshake) => set_level(params),
            ("tools/list", _) => one_page("tools", self.offer.tools(&call.principal)),
            ("resources/list", _) => one_page("resources", self.offer.resources()),
            ("resources/templates/list", _) => {
                one_page("resourceTemplates", self.offer.resource_templates())
            }
            ("prompts/list", _) => one_page("prompts", self.offer.prompts()),
            ("completion/complete", _) => {
                Ok(revision.complete(json!({ "completion": self.offer.complete(params) })))
            }
            ("tools/call" | "prompts/get" | "resources/read", _) => {
                self.call(revision, request, &call).await
            }
            ("tasks/get" | "tasks/update" | "tasks/cancel", McpRevision::Stateless) => {
                self.task(request, &call).await
            }
            ("subscriptions/listen", McpRevision::Stateless) => Err(no_subscriptions()),
            (method, _) => Err(unknown_method(method)),
        }
    }

    /// Answers a task request of a client that has declared the extension.
    async fn task(&self, request: &RpcRequest, call: &McpCall) -> Result<Value, McpError> {
        let method = request.method.as_str();
        if self.offer.capabilities()["extensions"].get(TASKS_EXTENSION).is_none() {
            return Err(unknown_method(method));
        }
        if !call.has_extension(TASKS_EXTENSION) {
            let needed = json!({ TASKS_EXTENSION: {} });
            let needed = Map::from_iter([("extensions".to_owned(), needed)]);
            return Err(McpError::missing_capability(needed));
        }
        let id = request.subject().ok_or_else(|| McpError::params("`taskId` is missing"))?;
        match self.offer.task(call, method, id).await? {
            McpReply::Complete(result) | McpReply::Task(result) => {
                Ok(McpRevision::Stateless.complete(result))
            }
            McpReply::InputRequired(_) => Err(unknown_method(method)),
        }
    }

    /// Rejects methods of capabilities that are not offered.
    fn require_capability(&self, method: &str) -> Result<(), McpError> {
        let needed = match method.split('/').next().unwrap_or_default() {
            name @ ("tools" | "resources" | "prompts" | "logging") => name,
            "completion" => "completions",
            _ => return Ok(()),
        };
        match self.offer.capabilities().get(needed) {
            Some(_) => Ok(()),
            None => Err(unknown_method(method)),
        }
    }

    fn discover(&self) -> Value {
        let versions: Vec<&str> = [STATELESS].into_iter().chain(WITH_HANDSHAKE).collect();
        // Each call requests its log itself.
        let capabilities = without(self.offer.capabilities(), "logging");
        json!({
            "supportedVersions": versions,
            "capabilities": capabilities,
            "instructions": self.offer.instructions(),
            "_meta": { "io.modelcontextprotocol/serverInfo": self.offer.server_info() },
        })
    }

    fn initialize(&self, params: &Map<String, Value>) -> Result<Value, McpError> {
        let Some(wanted) = params.get("protocolVersion").and_then(Value::as_str) else {
            return Err(McpError::params("`protocolVersion` is missing"));
        };
        // A client that does not support the returned version disconnects.
        let known = WITH_HANDSHAKE.into_iter().find(|version| *version == wanted);
        Ok(json!({
            "protocolVersion": known.unwrap_or(WITH_HANDSHAKE[0]),
            "capabilities": without(self.offer.capabilities(), "extensions"),
            "serverInfo": self.offer.server_info(),
            "instructions": self.offer.instructions(),
        }))
    }

    /// Answers a request that may need input from the client.
    async fn call(
        &self,
        revision: McpRevision,
        request: &RpcRequest,
        call: &McpCall,
    ) -> Result<Value, McpError> {
        let params = &request.params;
        let text = |name: &str| {
            let found = params.get(name).and_then(Value::as_str);
            found.ok_or_else(|| McpError::params(format!("`{name}` is missing")))
        };
        let arguments = match params.get("arguments") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(arguments)) => arguments.clone(),
            Some(_) => return Err(McpError::params("`arguments` must be an object")),
        };
        let is_read = request.method == "resources/read";
        if let ("tools/call", McpRevision::Stateless) = (request.method.as_str(), revision) {
            self.check_header_arguments(call, text("name")?, &arguments)?;
        }
        let reply = match request.method.as_str() {
            "tools/call" => self.offer.call_tool(call, text("name")?, arguments).await?,
            "prompts/get" => self.offer.get_prompt(call, text("name")?, arguments).await?,
            _ => self.offer.read_resource(call, text("uri")?).await?,
        };
        match reply {
            McpReply::Complete(result) if is_read => Ok(revision.complete_cacheable(result)),
            McpReply::Complete(result) => Ok(revision.complete(result)),
            McpReply::InputRequired(needed) => needed.into_result(
                &call.capabilities,
                &self.sealer,
                request,
                &call.principal.tenant,
            ),
            McpReply::Task(task) => Ok(task),
        }
    }

    /// Rejects a call whose headers contradict its arguments.
    fn check_header_arguments(
        &self,
        call: &McpCall,
        tool: &str,
        arguments: &Map<String, Value>,
    ) -> Result<(), McpError> {
        for (argument, header) in self.offer.header_arguments(tool) {
            let name = format!("mcp-param-{}", header.to_ascii_lowercase());
            let sent = call.headers.get(&name).and_then(|value| value.to_str().ok());
            let expected = arguments.get(*argument).and_then(header_text);
            if sent.map(crate::http::decoded) != expected {
                let message = format!("the header {name} must repeat the argument `{argument}`");
                return Err(McpError::new(HEADER_MISMATCH, message));
            }
        }
        Ok(())
    }
}

/// Returns the capabilities without one, which only other revisions have.
fn without(mut capabilities: Value, name: &str) -> Value {
    capabilities.as_object_mut().map(|fields| fields.remove(name));
    capabilities
}

/// Formats a value as a header value.
fn header_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn unknown_method(method: &str) -> McpError {
    McpError::new(METHOD_NOT_FOUND, format!("unknown method \"{method}\""))
}

/// No capability that can be subscribed to is declared (`listChanged`, `resources.subscribe`), so
/// the server does not support the method.
fn no_subscriptions() -> McpError {
    let message = "this server has no subscriptions: its lists hold for `ttlMs`, and tasks are \
                   asked for by `tasks/get`";
    McpError::new(METHOD_NOT_FOUND, message)
}

/// All lists have one page.
fn check_cursor(params: &Map<String, Value>) -> Result<(), McpError> {
    match params.get("cursor").is_some_and(|cursor| !cursor.is_null()) {
        true => Err(McpError::params("invalid cursor: the list has one page")),
        false => Ok(()),
    }
}

/// Accepts a level. It is not stored, since there are no sessions: such a client receives all logs
/// of its tools.
fn set_level(params: &Map<String, Value>) -> Result<Value, McpError> {
    let level = params.get("level").and_then(Value::as_str).unwrap_or_default();
    match LOG_LEVELS.contains(&level) {
        true => Ok(json!({})),
        false => Err(McpError::params(format!("`level` is one of {}", LOG_LEVELS.join(", ")))),
    }
}
