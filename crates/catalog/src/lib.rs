//! An Iceberg REST catalog: which tables and views there are, and which metadata each has now.
//!
//! It never reads or writes data: only metadata documents, and manifests where a scan is planned.
//! It never rebuilds what a client wrote: a document is ids and the bytes of its parts, so that
//! what nobody here knows comes back as it came.
//!
//! What needs neither clock nor file nor the name of a table is the crate `iceberg`: documents,
//! commits, scans.
//!
//! # Files
//! In the order of a request:
//!
//! | file | what |
//! |---|---|
//! | `http.rs` | the REST interface; `http/operations.rs` is the table of operations, `http/at_once.rs` answers from memory before routing, `http/polaris.rs` is Polaris's management interface |
//! | `access.rs` | principals, credentials, tokens, OIDC, roles and rights, in memory; `access/store.rs` keeps them |
//! | `service.rs` | every operation without HTTP; `service/commit.rs`, `service/tables.rs`, `service/plans.rs` … one file per kind |
//! | `cache.rs` | documents and compressed answers, up to a number of bytes |
//! | `warehouse.rs` | where files may be: locations, local directories without following links |
//! | `database.rs`, `error.rs` | the database, whose failures are the catalog's |
//! | `storage.rs` | clients' access to files in buckets: vended credentials, remote signing, proxied requests |
//! | `store.rs` | all SQL but that of `access`: relations, namespaces, the change log, jobs |
//! | `guest.rs` | the catalog for sandboxes with a grant |
//! | `config.rs`, `metrics.rs` | the `[catalog]` table; figures for Prometheus |
#![forbid(unsafe_code)]

pub mod access;
pub mod cache;
pub mod config;
mod database;
mod error;
pub mod guest;
pub mod http;
pub mod metrics;
pub mod service;
pub mod storage;
pub mod store;
pub mod warehouse;

pub use error::{CatalogError, ErrorReason, Result};
