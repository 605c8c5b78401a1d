//! PostgreSQL's frontend/backend protocol, versions 3.0 and 3.2.
//!
//! Source: PostgreSQL 18 documentation, chapter "Frontend/Backend Protocol".

pub mod frame;
pub mod message;
pub mod notice;
pub mod startup;
