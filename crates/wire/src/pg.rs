//! PostgreSQL's frontend/backend protocol, versions 3.0 and 3.2.
//!
//! Source: PostgreSQL 18 documentation, chapter "Frontend/Backend Protocol".

pub mod exchange;
pub mod frame;
pub mod md5;
pub mod message;
pub mod notice;
pub mod scram;
pub mod secret;
pub mod sql;
pub mod startup;
