//! An Iceberg REST catalog: which tables and views there are, and which metadata each has now.
//!
//! It never reads or writes data: only metadata documents, and manifests where a scan is planned.
//! It never rebuilds what a client wrote: a document is ids and the bytes of its parts, so that
//! what nobody here knows comes back as it came.
//!
//! # Files
//! Pure, without clock, file or name of a table:
//!
//! | file | what |
//! |---|---|
//! | `json.rs` | values as slices of the bytes they came in; `json/cursor.rs` checks them in one pass |
//! | `doc.rs` | a table's document: parsed, checked, and written back as it was |
//! | `schema.rs` | schemas, partition specifications and sort orders, as far as commits look into them |
//! | `update.rs` | commits: parsed, compared with their requirements, applied |
//! | `create.rs` | a new table's first document, and whether a registered one is acceptable |
//! | `view.rs`, `function.rs` | documents of views and functions |
//! | `plan.rs` | scan planning: filter expressions, Avro manifests, pruning, delete files |
//! | `ident.rs`, `error.rs` | names and UUIDs; failures, by the names that clients know |
//!
//! With state, in the order of a request:
//!
//! | file | what |
//! |---|---|
//! | `http.rs` | the REST interface; `http/operations.rs` is the table of operations, `http/at_once.rs` answers from memory before routing, `http/polaris.rs` is Polaris's management interface |
//! | `access.rs` | principals, credentials, tokens, OIDC, roles and rights, in memory; `access/store.rs` keeps them |
//! | `service.rs` | every operation without HTTP; `service/commit.rs`, `service/tables.rs`, `service/plans.rs` … one file per kind |
//! | `cache.rs` | documents and compressed answers, up to a number of bytes |
//! | `warehouse.rs` | where files may be: locations, local directories without following links |
//! | `storage.rs` | clients' access to files in buckets: vended credentials, remote signing, proxied requests |
//! | `store.rs` | all SQL but that of `access`: relations, namespaces, the change log, jobs |
//! | `guest.rs` | the catalog for sandboxes with a grant |
//! | `config.rs`, `metrics.rs` | the `[catalog]` table; figures for Prometheus |
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
