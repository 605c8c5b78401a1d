//! Plumbing that services share: clock, tokens, store, HTTP shell, telemetry, draining.
//!
//! This crate knows no service. A thing is here when two services use it and it holds no rule of
//! either. Nothing else in the workspace reads the clock, checks a token, accepts a connection,
//! sets up logging or handles a signal.
//!
//! | module | what it is |
//! |---|---|
//! | [`changes`] | which records changed, for those who follow a list |
//! | [`clock`] | the only reader of the clocks; ids that sort by time |
//! | [`current`] | settings that a reload replaces |
//! | [`data_dir`] | the directory a server keeps its state in: lock, addresses, atomic writes |
//! | [`auth`] | API tokens, hashed at rest and verified in memory; [`auth::TokenPrincipal`] |
//! | [`http`] | the server shell: limits, request ids, [`http::JsonBody`], [`http::HttpError`] |
//! | [`cluster`] | servers that share a store: who is there, and how they reach each other |
//! | [`client`] | outgoing requests, kept out of the network the server stands in |
//! | [`drain`] | from the first signal to the last byte of the last answer |
//! | [`fence`] | what sandboxes do outside ends with the lease of their server |
//! | [`gateway`] | what services with sandboxes ask of the one that serves their sockets |
//! | [`history`] | ring of what was measured in the last 24 hours |
//! | [`issuers`] | identity providers: signed tokens, verified by keys that are fetched |
//! | [`hex`] | bytes as hexadecimal digits |
//! | [`lookup`] | lookups that all who wait share |
//! | [`objects`] | objects in a directory or in a service that speaks S3's protocol |
//! | [`readiness`] | what has to be there before a server is ready |
//! | [`removals`] | gate for removals of files, which a backup holds closed |
//! | [`sealed`] | small secrets at rest, encrypted and bound to their place |
//! | [`shared_keys`] | keys that all servers on one store must have alike |
//! | [`store`] | transactions on SQLite or PostgreSQL, in one SQL text |
//! | [`task`] | tasks and blocking work, compiled once |
//! | [`telemetry`] | logs and Prometheus metrics |
//! | [`tenant_values`] | permits and counters of each tenant that uses something |
//! | [`traces`] | spans of requests, sent to a collector; W3C Trace Context |
//! | [`tls`] | whom TLS trusts, by which cryptography |
//!
//! A handler has the whole shape of a service's HTTP face:
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
