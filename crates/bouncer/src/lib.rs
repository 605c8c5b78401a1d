//! A multi-tenant pooler for PostgreSQL.
//!
//! It never parses a byte that `wire` could parse.
#![forbid(unsafe_code)]

pub mod config;
pub mod pgbouncer;
pub mod relay;
pub mod secrets;
pub mod tenants;
