//! Offer of an MCP server: tools, resources and prompts, behind one trait, and the context of a
//! call.

use std::fmt;
use std::net::SocketAddr;

use axum::http::HeaderMap;
use node::auth::TokenPrincipal;
use node::task::Boxed;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::input::NeededInput;
use crate::message::McpError;

/// Most pending notifications of a call; a tool that sends more waits.
pub(crate) const NOTICES_MAX: usize = 64;

/// Outcome of a call.
pub type McpOutcome = Result<McpReply, McpError>;

/// Tools, resources and prompts of one server. Its capabilities determine the supported methods;
/// lists are complete, in the order in which clients see them.
pub trait McpOffer: fmt::Debug + Send + Sync {
    /// `Implementation` object: name, title and version.
    fn server_info(&self) -> Value;

    /// Instructions for a model, about the server as a whole.
    fn instructions(&self) -> &str;

    /// `ServerCapabilities` object.
    fn capabilities(&self) -> Value;

    /// Tools that a caller may use.
    fn tools(&self, principal: &TokenPrincipal) -> Vec<Value>;

    /// Calls a tool.
    fn call_tool<'a>(
        &'a self,
        call: &'a McpCall,
        name: &'a str,
        arguments: Map<String, Value>,
    ) -> Boxed<'a, McpOutcome>;

    /// Returns the arguments of a tool that a header repeats (`x-mcp-header` in its schema), each
    /// with the part of the header's name after `Mcp-Param-`.
    fn header_arguments(&self, _tool: &str) -> &[(&str, &str)] {
        &[]
    }

    /// Handles `tasks/get`, `tasks/update` or `tasks/cancel`, if the extension is offered.
    fn task<'a>(
        &'a self,
        _call: &'a McpCall,
        _method: &'a str,
        id: &'a str,
    ) -> Boxed<'a, McpOutcome> {
        Box::pin(async move { Err(McpError::params(format!("unknown task \"{id}\""))) })
    }

    /// Resources with a fixed address.
    fn resources(&self) -> Vec<Value> {
        Vec::new()
    }

    /// Templates of the addresses of all other resources.
    fn resource_templates(&self) -> Vec<Value> {
        Vec::new()
    }

    /// Reads a resource: a result with `contents`.
    fn read_resource<'a>(&'a self, call: &'a McpCall, uri: &'a str) -> Boxed<'a, McpOutcome>;

    /// Prompts.
    fn prompts(&self) -> Vec<Value> {
        Vec::new()
    }

    /// Fills in a prompt: a result with `messages`.
    fn get_prompt<'a>(
        &'a self,
        _call: &'a McpCall,
        name: &'a str,
        _arguments: Map<String, Value>,
    ) -> Boxed<'a, McpOutcome> {
        Box::pin(async move { Err(McpError::params(format!("unknown prompt \"{name}\""))) })
    }

    /// Completes the argument of a prompt or template: a `completion` object.
    fn complete(&self, _params: &Map<String, Value>) -> Value {
        json!({ "values": [], "total": 0, "hasMore": false })
    }
}

/// Result of a successful call.
#[derive(Clone, Debug, PartialEq)]
pub enum McpReply {
    /// The result.
    Complete(Value),
    /// The client has to answer questions first, and then to repeat its request.
    InputRequired(NeededInput),
    /// A `CreateTaskResult`: the client polls the task for its result. Only for clients that have
    /// declared the extension.
    Task(Value),
}

/// Context of a request to the offer.
#[derive(Debug)]
pub struct McpCall {
    /// Caller.
    pub principal: TokenPrincipal,
    /// Headers of the request.
    pub headers: HeaderMap,
    /// Address that the request came from.
    pub peer: Option<SocketAddr>,
    /// Capabilities that the client declared with this request.
    pub(crate) capabilities: Map<String, Value>,
    /// The client's answers to questions of an earlier round.
    pub(crate) inputs: Map<String, Value>,
    /// State of the earlier round, with its seal verified.
    pub(crate) state: Option<String>,
    pub(crate) notices: NoticeSender,
}

impl McpCall {
    /// Returns whether the client has declared a capability; always false in revisions in which
    /// capabilities are declared once, in the handshake.
    #[must_use]
    pub fn has_capability(&self, name: &str) -> bool {
        self.capabilities.contains_key(name)
    }

    /// Returns whether the client has declared an extension.
    #[must_use]
    pub fn has_extension(&self, name: &str) -> bool {
        let extensions = self.capabilities.get("extensions").and_then(Value::as_object);
        extensions.is_some_and(|extensions| extensions.contains_key(name))
    }

    /// Returns the client's answer to a question of an earlier round.
    #[must_use]
    pub fn input(&self, key: &str) -> Option<&Map<String, Value>> {
        self.inputs.get(key)?.as_object()
    }

    /// Returns the state of the earlier round.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Reports the progress of the call, if the client has requested that.
    pub async fn report_progress(&self, progress: u64, total: u64) {
        let Some(token) = &self.notices.progress_token else { return };
        let params = json!({ "progressToken": token, "progress": progress, "total": total });
        self.notices.send("notifications/progress", params).await;
    }

    /// Sends a log message, if the client has requested them.
    pub async fn log(&self, level: &str, data: Value) {
        if self.notices.wants_log {
            let params = json!({ "level": level, "data": data });
            self.notices.send("notifications/message", params).await;
        }
    }
}

/// Sender of a running call's notifications to its client.
#[derive(Clone, Debug)]
pub(crate) struct NoticeSender {
    /// `None` if the client accepts no stream.
    pub(crate) sender: Option<mpsc::Sender<Value>>,
    /// Token by which the client names the progress of the call.
    pub(crate) progress_token: Option<Value>,
    pub(crate) wants_log: bool,
}

impl NoticeSender {
    async fn send(&self, method: &str, params: Value) {
        if let Some(sender) = &self.sender {
            let notice = json!({ "jsonrpc": "2.0", "method": method, "params": params });
            // A disconnected client reads nothing.
            let _gone = sender.send(notice).await;
        }
    }
}
