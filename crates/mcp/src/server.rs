//! Methods of the protocol, for a caller of one request.

use node::auth::TokenPrincipal;
use serde_json::{Map, Value, json};

use crate::content;
use crate::message::{
    INVALID_PARAMS, METHOD_NOT_FOUND, McpError, RpcRequest, STATELESS, WITH_HANDSHAKE,
};
use crate::native::NativeApi;
use crate::tools::{self, TOOLS};

/// Time for which a client may keep what it was told of tools, in milliseconds: they change with
/// the token and with the version of the server.
const LIST_TTL_MS: u64 = 300_000;

/// What a model is told of all tools together.
const INSTRUCTIONS: &str = "Cove runs untrusted code in sandboxes. For one program use run_code. For work in several \
     steps create a session, then run commands and edit files in it, and end it when you are done.";

/// Rules of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum McpRevision {
    /// [`STATELESS`]: results say what they are, lists how long they hold.
    Stateless,
    /// One of [`WITH_HANDSHAKE`].
    WithHandshake,
}

impl McpRevision {
    /// Adds what the revision wants of a result.
    fn complete(self, mut result: Value) -> Value {
        if let (McpRevision::Stateless, Some(fields)) = (self, result.as_object_mut()) {
            fields.insert("resultType".to_owned(), json!("complete"));
        }
        result
    }

    /// Adds what the revision wants of a result that clients may keep.
    fn kept(self, mut result: Value) -> Value {
        if let (McpRevision::Stateless, Some(fields)) = (self, result.as_object_mut()) {
            fields.insert("ttlMs".to_owned(), json!(LIST_TTL_MS));
            fields.insert("cacheScope".to_owned(), json!("private"));
        }
        self.complete(result)
    }
}

/// A caller, and what it may reach.
#[derive(Clone, Debug)]
pub(crate) struct McpCaller {
    pub(crate) principal: TokenPrincipal,
    pub(crate) api: NativeApi,
    pub(crate) version: &'static str,
}

impl McpCaller {
    /// Answers a request.
    ///
    /// # Errors
    /// When there is no such method in its revision, or its parameters cannot be read.
    pub(crate) async fn answer(
        &self,
        revision: McpRevision,
        request: &RpcRequest,
    ) -> Result<Value, McpError> {
        let params = &request.params;
        match (request.method.as_str(), revision) {
            ("server/discover", McpRevision::Stateless) => Ok(revision.kept(self.discover())),
            ("initialize", McpRevision::WithHandshake) => self.initialize(params),
            ("ping", McpRevision::WithHandshake) => Ok(json!({})),
            ("tools/list", _) => Ok(revision.kept(self.list_tools(params)?)),
            ("tools/call", _) => Ok(revision.complete(self.call_tool(params).await?)),
            ("resources/list", _) => Ok(revision.kept(json!({ "resources": [] }))),
            ("resources/templates/list", _) => Ok(revision.kept(templates())),
            ("resources/read", _) => Ok(revision.kept(self.read_resource(params).await?)),
            (method, _) => {
                let message = format!("unknown method \"{method}\"");
                Err(McpError::new(METHOD_NOT_FOUND, message))
            }
        }
    }

    fn server_info(&self) -> Value {
        json!({ "name": "cove", "title": "Cove", "version": self.version })
    }

    fn discover(&self) -> Value {
        let versions: Vec<&str> = [STATELESS].into_iter().chain(WITH_HANDSHAKE).collect();
        json!({
            "supportedVersions": versions,
            "capabilities": capabilities(),
            "instructions": INSTRUCTIONS,
            "_meta": { "io.modelcontextprotocol/serverInfo": self.server_info() },
        })
    }

    fn initialize(&self, params: &Map<String, Value>) -> Result<Value, McpError> {
        let Some(wanted) = params.get("protocolVersion").and_then(Value::as_str) else {
            return Err(McpError::params("`protocolVersion` is missing"));
        };
        // A client that does not speak what it is offered leaves.
        let known = WITH_HANDSHAKE.into_iter().find(|version| *version == wanted);
        Ok(json!({
            "protocolVersion": known.unwrap_or(WITH_HANDSHAKE[0]),
            "capabilities": capabilities(),
            "serverInfo": self.server_info(),
            "instructions": INSTRUCTIONS,
        }))
    }

    fn list_tools(&self, params: &Map<String, Value>) -> Result<Value, McpError> {
        if params.get("cursor").is_some_and(|cursor| !cursor.is_null()) {
            return Err(McpError::params("invalid cursor: there is one page of tools"));
        }
        let mine = TOOLS.iter().filter(|tool| tool.is_for(&self.principal));
        let tools: Vec<Value> = mine.map(tools::McpTool::definition).collect();
        Ok(json!({ "tools": tools }))
    }

    async fn call_tool(&self, params: &Map<String, Value>) -> Result<Value, McpError> {
        let Some(name) = params.get("name").and_then(Value::as_str) else {
            return Err(McpError::params("`name` is missing: the name of a tool"));
        };
        let given = match params.get("arguments") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(given)) => given.clone(),
            Some(_) => return Err(McpError::params("`arguments` must be an object")),
        };
        let tool = tools::find(name, &self.principal)?;
        Ok(tool.call(&self.api, given).await.into_json())
    }

    async fn read_resource(&self, params: &Map<String, Value>) -> Result<Value, McpError> {
        let uri = params.get("uri").and_then(Value::as_str).unwrap_or_default();
        let unknown = |message: &str| McpError {
            data: Some(json!({ "uri": uri })),
            ..McpError::new(INVALID_PARAMS, message)
        };
        let (session, path) = content::parse_file_uri(uri).ok_or_else(|| {
            unknown("unknown resource; there are cove://sessions/{session}/files/{path}")
        })?;
        let bytes = tools::fetch_file(&self.api, &session, &path).await.map_err(|result| {
            let text = result.content.first().and_then(|block| block["text"].as_str());
            unknown(text.unwrap_or("the file cannot be read"))
        })?;
        let body = match std::str::from_utf8(&bytes) {
            Ok(text) => json!({ "uri": uri, "mimeType": "text/plain", "text": text }),
            Err(_) => {
                use base64::Engine as _;
                let blob = base64::prelude::BASE64_STANDARD.encode(&bytes);
                let media_type = content::image_type(&bytes).unwrap_or("application/octet-stream");
                json!({ "uri": uri, "mimeType": media_type, "blob": blob })
            }
        };
        Ok(json!({ "contents": [body] }))
    }
}

fn capabilities() -> Value {
    json!({ "tools": {}, "resources": {} })
}

fn templates() -> Value {
    json!({
        "resourceTemplates": [{
            "uriTemplate": "cove://sessions/{session}/files/{+path}",
            "name": "session-file",
            "title": "File of a session",
            "description": "A file below / of a session's sandbox",
        }],
    })
}
