//! A multi-tenant pooler for PostgreSQL.
//!
//! It never parses a byte that `wire` could parse.
#![forbid(unsafe_code)]

pub mod auth_query;
pub mod config;
pub mod control;
mod error;
pub mod faces;
pub mod guest;
pub mod health;
pub mod http;
mod keyring;
pub mod link;
pub mod metrics;
pub mod mysql;
pub mod pg;
pub mod pgbouncer;
pub mod rate;
pub mod relay;
pub mod secrets;
pub mod service;
mod store;
pub mod tenants;
mod texts;
pub mod tls;

pub use error::BouncerError;
pub use service::Bouncer;
