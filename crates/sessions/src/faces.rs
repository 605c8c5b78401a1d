//! Compatible interfaces of other systems: their paths, bodies and errors, over the same sessions.
//!
//! A face only translates: it calls the service, and answers in its own format. Data that only the
//! face knows is stored as documents.

pub mod ash;
pub mod e2b;
