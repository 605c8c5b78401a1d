//! Database protocols as bytes and state machines, without sockets.
//!
//! This crate owns no socket and no clock, and knows no tenant: bytes go in, bytes and decisions
//! come out. Whatever the other side sends is hostile until it was checked here.
#![forbid(unsafe_code)]

pub mod mask;
pub mod mysql;
pub mod pg;
pub mod prohibitions;
pub mod shape;
