//! A multi-tenant pooler for PostgreSQL, MySQL and MariaDB.
//!
//! It never parses a byte that `wire` could parse, and the pooling rules of the protocols are in
//! `pooler-core`, without sockets.
//!
//! # Files
//! | file | what |
//! |---|---|
//! | `auth.rs` | authentication of clients and at servers, for each protocol |
//! | `relay.rs` | the threads with sockets, timers and pools; it lists its own files |
//! | `tenants.rs` | definitions of tenants, immutable snapshots, routing |
//! | `service.rs`, `store.rs` | the control plane: changes of tenants, and their storage |
//! | `http.rs`, `faces.rs`, `pgbouncer.rs` | the native interface, DBBouncer's, and PgBouncer's console and configuration files |
//! | `auth_query.rs`, `control.rs`, `health.rs` | the pooler's own queries to a server: user secrets, health checks |
//! | `guest.rs` | unauthenticated sandbox clients: their access and their audit records |
//! | `keyring.rs`, `secrets.rs`, `tls.rs` | secrets of users and certificates, on both sides |
//! | `rate.rs`, `metrics.rs`, `config.rs`, `error.rs` | rate limits, metrics, settings, errors |
#![forbid(unsafe_code)]

pub mod auth;
pub mod auth_query;
pub mod config;
pub mod control;
mod error;
pub mod faces;
pub mod guest;
pub mod health;
pub mod http;
mod keyring;
pub mod metrics;
pub mod pgbouncer;
pub mod rate;
pub mod relay;
pub mod secrets;
pub mod service;
mod store;
pub mod tenants;
pub mod tls;

pub use error::BouncerError;
pub use service::Bouncer;
