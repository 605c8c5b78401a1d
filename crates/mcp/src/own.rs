//! Offer of Cove itself: its [tools](crate::tools), and files of sessions as resources.

use node::auth::TokenPrincipal;
use node::http::InProcessRoutes;
use node::task::Boxed;
use serde_json::{Map, Value, json};

use crate::content;
use crate::message::{INVALID_PARAMS, McpError};
use crate::native::NativeApi;
use crate::offer::{McpCall, McpOffer, McpOutcome, McpReply};
use crate::tasks::{self, TASKS_EXTENSION};
use crate::tools::{self, McpTool, TOOLS, cell};

/// Instructions for a model, about all tools together.
const INSTRUCTIONS: &str = "Cove runs untrusted code in sandboxes. For one program use run_code. For work in several \
     steps create a session, then run commands and edit files in it, and end it when you are done.";

/// Cove's own tools and resources.
#[derive(Clone, Debug)]
pub(crate) struct CoveOffer {
    native: InProcessRoutes,
    /// Version of the server.
    version: &'static str,
}

impl CoveOffer {
    pub(crate) fn new(native: InProcessRoutes, version: &'static str) -> CoveOffer {
        CoveOffer { native, version }
    }

    /// Returns the native interface on behalf of a caller.
    fn api(&self, call: &McpCall) -> NativeApi {
        NativeApi::of(self.native.clone(), &call.headers, call.peer)
    }
}

impl McpOffer for CoveOffer {
    fn server_info(&self) -> Value {
        json!({ "name": "cove", "title": "Cove", "version": self.version })
    }

    fn instructions(&self) -> &str {
        INSTRUCTIONS
    }

    fn capabilities(&self) -> Value {
        json!({ "tools": {}, "resources": {}, "extensions": { TASKS_EXTENSION: {} } })
    }

    fn tools(&self, principal: &TokenPrincipal) -> Vec<Value> {
        TOOLS.iter().filter(|tool| tool.is_for(principal)).map(McpTool::definition).collect()
    }

    fn call_tool<'a>(
        &'a self,
        call: &'a McpCall,
        name: &'a str,
        arguments: Map<String, Value>,
    ) -> Boxed<'a, McpOutcome> {
        Box::pin(async move {
            let tool = tools::find(name, &call.principal)?;
            let is_program = tool.name == "run_code" && !arguments.contains_key(cell::SESSION);
            if is_program && call.has_extension(TASKS_EXTENSION) {
                return tasks::run_code(&self.api(call), arguments).await;
            }
            Ok(McpReply::Complete(tool.call(&self.api(call), arguments).await.into_json()))
        })
    }

    fn task<'a>(
        &'a self,
        call: &'a McpCall,
        method: &'a str,
        id: &'a str,
    ) -> Boxed<'a, McpOutcome> {
        Box::pin(async move { tasks::request(&self.api(call), method, id).await })
    }

    fn resource_templates(&self) -> Vec<Value> {
        vec![json!({
            "uriTemplate": "cove://sessions/{session}/files/{+path}",
            "name": "session-file",
            "title": "File of a session",
            "description": "A file below / of a session's sandbox",
        })]
    }

    fn read_resource<'a>(&'a self, call: &'a McpCall, uri: &'a str) -> Boxed<'a, McpOutcome> {
        Box::pin(async move {
            let unknown = |message: &str| McpError {
                data: Some(json!({ "uri": uri })),
                ..McpError::new(INVALID_PARAMS, message)
            };
            let (session, path) = content::parse_file_uri(uri).ok_or_else(|| {
                unknown("unknown resource; there are cove://sessions/{session}/files/{path}")
            })?;
            let bytes = tools::fetch_file(&self.api(call), &session, &path).await;
            let bytes = bytes.map_err(|result| {
                let text = result.content.first().and_then(|block| block["text"].as_str());
                unknown(text.unwrap_or("the file cannot be read"))
            })?;
            let body = match std::str::from_utf8(&bytes) {
                Ok(text) => json!({ "uri": uri, "mimeType": "text/plain", "text": text }),
                Err(_) => {
                    use base64::Engine as _;
                    let blob = base64::prelude::BASE64_STANDARD.encode(&bytes);
                    let media_type =
                        content::image_type(&bytes).unwrap_or("application/octet-stream");
                    json!({ "uri": uri, "mimeType": media_type, "blob": blob })
                }
            };
            Ok(McpReply::Complete(json!({ "contents": [body] })))
        })
    }
}
