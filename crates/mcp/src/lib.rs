//! The Model Context Protocol: Cove's own interface as tools for agents.
//!
//! `POST /mcp` speaks revision 2026-07-28, which is stateless, and the revisions of 2025 without
//! sessions. A tool is a translation: its arguments become one or a few requests to the native
//! interface, made in this process with the token that came with the call. So rights, limits,
//! quotas, the passing on to other nodes and the audit are those of the native interface, and
//! nothing here decides who may do what.
//!
//! This crate keeps no state between requests, checks no token by itself and knows no service.
//!
//! # Files, in the order of a request
//! | file | what |
//! |---|---|
//! | `http.rs` | the route: headers, and the way of a message to its method |
//! | `hosts.rs` | names under which a server may be addressed, origins of pages: pure |
//! | `message.rs` | JSON-RPC messages, revisions and error codes: pure |
//! | `server.rs` | methods of the protocol |
//! | `input.rs` | questions to the client, and the seal of what travels with it: pure |
//! | `stream.rs` | one JSON answer, or a stream with progress |
//! | `offer.rs` | the trait of what a server offers, and what a call knows |
//! | `own.rs` | what Cove itself offers |
//! | `tools.rs` | the table of tools: names, schemas, the scope that each needs |
//! | `tools/` | the tools, by what they are about |
//! | `content.rs` | what a model is shown: long text cut to head and tail, images: pure |
//! | `native.rs` | requests to the native interface |
//! | `config.rs` | settings |
//!
//! # References
//! - <https://modelcontextprotocol.io/specification/2026-07-28>
//! - <https://modelcontextprotocol.io/specification/2025-11-25>
//! - <https://www.jsonrpc.org/specification>
#![forbid(unsafe_code)]

pub mod config;
mod content;
mod hosts;
mod http;
mod input;
mod message;
mod native;
mod offer;
mod own;
mod server;
mod stream;
mod tools;

pub use http::{McpEndpoint, PATH, ServedTools, routes};
pub use input::{InputMethod, NeededInput, STATE_BYTES_MAX};
pub use message::{INTERNAL_ERROR, INVALID_PARAMS, META_VERSION, McpError, PARSE_ERROR};
pub use offer::{McpCall, McpOffer, McpOutcome, McpReply};
