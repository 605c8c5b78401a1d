//! An Iceberg REST catalog: which tables and views there are, and which metadata each has now.
//!
//! It never reads or writes data: only metadata documents, and manifests where a scan is planned.
//! It never rebuilds what a client wrote: a document is ids and the bytes of its parts, so that
//! what nobody here knows comes back as it came.
#![forbid(unsafe_code)]

pub mod access;
pub mod cache;
pub mod config;
pub mod create;
pub mod doc;
mod error;
pub mod function;
pub mod guest;
pub mod http;
pub mod ident;
pub mod json;
pub mod metrics;
pub mod plan;
pub mod schema;
pub mod service;
pub mod storage;
pub mod store;
pub mod update;
pub mod view;
pub mod warehouse;

pub use error::{CatalogError, ErrorReason, Result};
