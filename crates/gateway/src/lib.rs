//! The gateway: serves the listening sockets of grants inside sandboxes.
//!
//! A sandbox with grants has listening sockets on its loopback interface, and this crate accepts
//! their connections. The socket identifies the sandbox; no secret is inside. Other crates
//! implement what each grant leads to ([`doors`]): databases, warehouses, the model. External
//! servers are reached through the proxy in [`egress`]. Every use is audited ([`audit`]).
//!
//! | file | what |
//! |---|---|
//! | `service.rs` | [`GatewayService`]: authorization of grants, queries of the audit log |
//! | `resolve.rs` | resolves requested grants to their targets |
//! | `shared.rs` | state that the listeners of all sandboxes share |
//! | `kinds.rs` | the kinds of grants, each in a file: offers, limits, checks, variables, opening |
//! | `offers.rs` | grants that a token's tenant is offered, pure |
//! | `offered.rs` | lists the grants that a token may create, and checks grants in advance |
//! | `schema.rs` | database schemas that a grant can name, pure |
//! | `environment.rs` | environment variables for clients in the sandbox, pure |
//! | `gate.rs` | the listeners of one sandbox |
//! | `reader.rs` | reads the target of a grant on behalf of API callers, through its listener |
//! | `doors.rs` | interfaces that backends of grants implement, and their arguments |
//! | `egress.rs` | the proxy, with its rules |
//! | `audit.rs`, `store.rs` | the audit log: in memory, in the store |
//! | `traces.rs` | spans of grant uses |
//! | `http.rs` | `GET /v1/audit`, and the offers |
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
