//! An Iceberg REST catalog: the existing tables and views, and the current metadata of each.
//!
//! It never reads or writes data: only metadata documents, and manifests for planning scans. Parts
//! written by clients are never rebuilt: a document is ids and the bytes of its parts, so that
//! unknown content is preserved.
//!
//! Documents, commits and scans, which need no clock, file or name of a table, are in the crate
//! `iceberg`.
//!
//! # Files
//! From the top down; a file uses those below it, and `tidy` keeps it so:
//!
//! | file | what |
//! |---|---|
//! | `config.rs`, `metrics.rs` | the `[catalog]` table; figures for Prometheus |
//! | `guest.rs` | the catalog for sandboxes with a grant; `guest/session.rs` is one of them, which the layers below know |
//! | `http.rs` | the REST interface; `http/operations.rs` is the table of operations, `http/at_once.rs` answers from memory before routing, `http/polaris.rs` is Polaris's management interface |
//! | `service.rs` | every operation without HTTP, by owners of state (its table names them), which `service/catalog.rs` composes |
//! | `access.rs` | principals, credentials, tokens, OIDC, roles and rights, in memory; `access/store.rs` keeps them |
//! | `principal.rs` | principals, and the interface that decides on their rights |
//! | `store.rs` | all SQL but that of `access`: an owner for each kind of rows, such as namespaces, relations, the change log, jobs |
//! | `cache.rs` | documents and compressed answers, up to a number of bytes |
//! | `warehouse.rs` | where files may be: locations, local directories without following links |
//! | `storage.rs` | clients' access to files in buckets: vended credentials, remote signing, proxied requests |
//! | `database.rs`, `error.rs` | the database, whose failures are the catalog's |
//! | `page.rs`, `locks.rs`, `shell.rs` | pages of lists; locks by key; values of the HTTP shell |
#![forbid(unsafe_code)]

pub mod access;
pub mod cache;
pub mod config;
mod database;
mod error;
pub mod guest;
pub mod http;
mod locks;
pub mod metrics;
mod page;
mod principal;
pub mod service;
mod shell;
pub mod storage;
pub mod store;
pub mod warehouse;

pub use error::{CatalogError, ErrorReason, Result};
