//! The Model Context Protocol: Cove's own interface as tools for agents.
//!
//! `POST /mcp` speaks revision 2026-07-28, which is stateless, and the revisions of 2025 without
//! sessions. A tool is a translation: its arguments become one or a few requests to the native
//! interface, made in this process with the token of the call. So rights, limits, quotas,
//! forwarding to other nodes and the audit are those of the native interface, and nothing here
//! authorizes requests.
//!
//! This crate keeps no state between requests, checks no token by itself and knows no service.
//!
//! # Files, in the order of a request
//! | file | what |
//! |---|---|
//! | `http.rs` | the route: headers, and the way of a message to its method |
//! | `message.rs` | JSON-RPC messages, revisions and error codes: pure |
//! | `server.rs` | methods of the protocol |
//! | `input.rs` | questions to the client, and the seal of what travels with it: pure |
//! | `stream.rs` | one JSON answer, or a stream with progress |
//! | `offer.rs` | the trait of a server's offer, and the context of a call |
//! | `own.rs` | what Cove itself offers |
//! | `tasks.rs` | programs that run for long, as tasks on the queue |
//! | `tools.rs` | the table of tools: names, schemas, the scope that each needs |
//! | `tools/` | the tools, by subject |
//! | `content.rs` | content for a model: text cut to head and tail, images: pure |
//! | `native.rs` | requests to the native interface |
//! | `resource.rs` | metadata for clients without a token, challenges: pure |
//! | `config.rs` | settings |
//!
//! # References
//! - <https://modelcontextprotocol.io/specification/2026-07-28>
//! - <https://modelcontextprotocol.io/specification/2025-11-25>
//! - <https://www.jsonrpc.org/specification>
#![forbid(unsafe_code)]

pub mod config;
mod content;
mod http;
mod input;
mod message;
mod native;
mod offer;
mod own;
mod resource;
mod server;
mod stream;
mod tasks;
mod tools;

pub use http::{McpEndpoint, PATH, routes};
pub use input::{InputMethod, NeededInput, STATE_BYTES_MAX};
pub use message::{INTERNAL_ERROR, INVALID_PARAMS, META_VERSION, McpError, PARSE_ERROR};
pub use offer::{McpCall, McpOffer, McpOutcome, McpReply};
pub use resource::{METADATA_PATH, ProtectedResource, UnusableResource};

/// Entry of the fuzz target for messages.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use axum::http::{HeaderMap, HeaderValue, header};

    use crate::message::{self, ClientBody, ClientRpc, McpError};

    /// Returns the responses to a body: none to notifications and responses, an error to each
    /// request.
    pub fn answers(body: &[u8]) -> Vec<String> {
        let messages = match message::read(body) {
            Err(error) => {
                return vec![message::failure(&serde_json::Value::Null, error).to_string()];
            }
            Ok(ClientBody::One(one)) => vec![one],
            Ok(ClientBody::Batch(all)) => all,
        };
        let answer = |message| match message {
            Ok(ClientRpc::Request(request)) => {
                let error = McpError::params(request.subject().unwrap_or_default());
                Some(message::answer(&request.id, Err(error)).to_string())
            }
            Ok(ClientRpc::Notification { .. } | ClientRpc::Answer) => None,
            Err((id, error)) => Some(message::failure(&id, error).to_string()),
        };
        messages.into_iter().filter_map(answer).collect()
    }

    /// Returns whether `host` is accepted as the server's name for a program on this machine.
    pub fn host(host: &str) -> bool {
        let Ok(host) = HeaderValue::from_str(host) else { return false };
        let headers = HeaderMap::from_iter([(header::HOST, host)]);
        let peer = Some(([127, 0, 0, 1], 1).into());
        node::http::check_hosts(&headers, peer, &[], crate::http::HOSTS_SETTING).is_ok()
    }
}
