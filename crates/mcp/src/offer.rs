//! Offer of a server of the protocol: tools, resources and prompts, behind one trait, and what a
//! call of one of them knows about its caller.

use std::fmt;
use std::net::SocketAddr;

use axum::http::HeaderMap;
use node::auth::TokenPrincipal;
use node::task::Boxed;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::input::NeededInput;
use crate::message::McpError;

/// Notifications of a call that wait to be sent at most; a tool that sends more waits.
pub(crate) const NOTICES_MAX: usize = 64;

/// Outcome of a call.
pub type McpOutcome = Result<McpReply, McpError>;

/// Tools, resources and prompts of one server. The names of its capabilities decide which methods
/// there are; lists are the whole list, in the order in which clients see it.
pub trait McpOffer: fmt::Debug + Send + Sync {
    /// `Implementation` object: name, title and version.
    fn server_info(&self) -> Value;

    /// Instructions for a model, about all of it together.
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

    /// Arguments of a tool that a header repeats (`x-mcp-header` in its schema), each with the name
    /// of the header behind `Mcp-Param-`.
    fn header_arguments(&self, _tool: &str) -> &[(&str, &str)] {
        &[]
    }

    /// Answers `tasks/get`, `tasks/update` or `tasks/cancel`, where the extension is offered.
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

    /// Templates of addresses of all others.
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

/// Result of a call that reached what it names.
#[derive(Clone, Debug, PartialEq)]
pub enum McpReply {
    /// The result.
    Complete(Value),
    /// The client has to answer questions first, and then repeats its request.
    InputRequired(NeededInput),
    /// A `CreateTaskResult`: the client asks for the result of the task. Only for clients that have
    /// declared the extension.
    Task(Value),
}

/// A request to what is offered.
#[derive(Debug)]
pub struct McpCall {
    /// Caller.
    pub principal: TokenPrincipal,
    /// Headers of the request.
    pub headers: HeaderMap,
    /// Address that the request came from.
    pub peer: Option<SocketAddr>,
    /// Capabilities that the client has declared with this request.
    pub(crate) capabilities: Map<String, Value>,
    /// Answers of the client to questions of an earlier round.
    pub(crate) inputs: Map<String, Value>,
    /// State that the earlier round left, its seal verified.
    pub(crate) state: Option<String>,
    pub(crate) notices: NoticeSender,
}

impl McpCall {
    /// Returns whether the client has declared a capability; always false in revisions in which
    /// that is said once, in the handshake.
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

    /// Answer of the client to a question of an earlier round.
    #[must_use]
    pub fn input(&self, key: &str) -> Option<&Map<String, Value>> {
        self.inputs.get(key)?.as_object()
    }

    /// State that the earlier round left.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Tells a client that wants to know how far the call is.
    pub async fn report_progress(&self, progress: u64, total: u64) {
        let Some(token) = &self.notices.progress_token else { return };
        let params = json!({ "progressToken": token, "progress": progress, "total": total });
        self.notices.send("notifications/progress", params).await;
    }

    /// Sends a line of a log to a client that wants them.
    pub async fn log(&self, level: &str, data: Value) {
        if self.notices.wants_log {
            let params = json!({ "level": level, "data": data });
            self.notices.send("notifications/message", params).await;
        }
    }
}

/// Way of a call to its client while it runs.
#[derive(Clone, Debug)]
pub(crate) struct NoticeSender {
    /// None where the client takes no stream.
    pub(crate) sender: Option<mpsc::Sender<Value>>,
    /// Token by which the client names the progress of the call.
    pub(crate) progress_token: Option<Value>,
    pub(crate) wants_log: bool,
}

impl NoticeSender {
    async fn send(&self, method: &str, params: Value) {
        if let Some(sender) = &self.sender {
            let notice = json!({ "jsonrpc": "2.0", "method": method, "params": params });
            // A client that has gone reads nothing.
            let _gone = sender.send(notice).await;
        }
    }
}
