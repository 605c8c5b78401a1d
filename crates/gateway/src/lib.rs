//! The gateway: it serves the sockets inside sandboxes.
//!
//! A sandbox that was granted something has a socket on its loopback that this crate accepts from.
//! The socket says whose it is; nothing secret is inside. What each grant leads to is known by
//! others, who are plugged in ([`doors`]): databases, warehouses, the model. Servers outside are
//! reached by the proxy in [`egress`]. What was done is written down ([`audit`]).
//!
//! | file | what |
//! |---|---|
//! | `service.rs` | [`GatewayService`]: who may give grants, and who reads the audit |
//! | `resolve.rs` | from grants that are asked for to what they mean |
//! | `shared.rs` | what the gates of all sandboxes have in common |
//! | `kinds.rs` | the kinds of grants, each in a file: offers, limits, checks, variables, how it opens |
//! | `offers.rs` | what holders of tokens may give, pure |
//! | `offered.rs` | what a token may give, listed; and whether grants would be given |
//! | `schema.rs` | which schemas of databases a grant can name, pure |
//! | `environment.rs` | what clients inside look for in their environment, pure |
//! | `gate.rs` | the listeners of one sandbox |
//! | `reader.rs` | reading what is behind a grant from the server's side, through its own door |
//! | `doors.rs` | what others implement, and what they are given |
//! | `egress.rs` | the proxy, with its rules |
//! | `audit.rs`, `store.rs` | what was done: in memory, at rest |
//! | `traces.rs` | spans of what was done |
//! | `http.rs` | `GET /v1/audit`, and what may be granted |
#![forbid(unsafe_code)]

pub mod audit;
pub mod config;
pub mod doors;
pub mod egress;
mod environment;
mod gate;
pub mod http;
mod kinds;
mod metrics;
mod offered;
mod offers;
mod reader;
mod resolve;
mod schema;
mod service;
mod shared;
mod store;
mod traces;

pub use self::config::GatewayConfig;
pub use self::resolve::GRANTS_MAX;
pub use self::service::{GatewayActivity, GatewayParts, GatewayService};

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub use self::reader::fuzzing as replies;

#[cfg(test)]
mod tests;
