//! Plumbing that services share: clock, tokens, store, HTTP shell, telemetry, draining.
//!
//! This crate knows no service. A module is here if two services use it and it contains no rule of
//! either. Nothing else in the workspace reads the clock, checks a token, accepts a connection,
//! sets up logging or handles a signal.
//!
//! | module | content |
//! |---|---|
//! | [`changes`] | feed of changed records, for followers of a list |
//! | [`clock`] | the only reader of the clocks; ids that sort by time |
//! | [`current`] | settings that a reload replaces |
//! | [`data_dir`] | the directory with a server's state: lock, addresses, atomic writes |
//! | [`auth`] | API tokens, hashed at rest and verified in memory; [`auth::TokenPrincipal`] |
//! | [`http`] | the server shell: limits, request ids, [`http::JsonBody`], [`http::HttpError`] |
//! | [`cluster`] | servers that share a store: their membership and connections |
//! | [`client`] | outgoing requests, which are kept out of the server's own network |
//! | [`drain`] | shutdown, from the first signal to the last byte of the last response |
//! | [`fence`] | fence that ends external effects of sandboxes with the lease of their server |
//! | [`gateway`] | interface to the service that serves the sockets in sandboxes |
//! | [`history`] | ring of measurements of the last 24 hours |
//! | [`issuers`] | identity providers: signed tokens, verified by keys that are fetched |
//! | [`hex`] | bytes as hexadecimal digits |
//! | [`lookup`] | lookups that all waiting callers share |
//! | [`objects`] | objects in a directory or in a service with S3's protocol |
//! | [`readiness`] | conditions for a server to be ready |
//! | [`removals`] | gate for removals of files, which a backup holds closed |
//! | [`sealed`] | small secrets at rest, encrypted and bound to their place |
//! | [`shared_keys`] | keys that must be the same on all servers of a store |
//! | [`store`] | transactions on SQLite or PostgreSQL, in one SQL text |
//! | [`task`] | tasks and blocking work, compiled once |
//! | [`telemetry`] | logs and Prometheus metrics |
//! | [`tenant_values`] | permits and counters for each active tenant |
//! | [`traces`] | spans of requests, sent to a collector; W3C Trace Context |
//! | [`tls`] | trusted authorities, and the cryptography provider |
//!
//! A handler is a service's whole HTTP interface:
//!
//! ```ignore
//! async fn create(who: Principal, Json(request): Json<Request>) -> Result<Reply, http::Error> {
//!     Ok(service.create(&who, request).await?)
//! }
//! ```
#![forbid(unsafe_code)]

pub mod auth;
pub mod changes;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod current;
pub mod data_dir;
pub mod drain;
pub mod fair;
pub mod fence;
pub mod gateway;
pub mod hex;
pub mod history;
pub mod http;
pub mod issuers;
pub mod lookup;
pub mod objects;
pub mod readiness;
pub mod removals;
pub mod sealed;
pub mod shared_keys;
pub mod store;
pub mod task;
pub mod telemetry;
pub mod tenant_values;
pub mod tls;
pub mod traces;

#[cfg(test)]
mod testing;
