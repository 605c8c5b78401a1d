//! Iceberg's documents and the effects of commits and scans on them: the part of the catalog
//! without clock, file, socket or name of a warehouse, so that its tests take seconds.
//!
//! Parts written by clients are never rebuilt: a document is ids and the bytes of its parts, so
//! that unknown content is preserved.
//!
//! # Files
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
//! | `ident.rs`, `error.rs`, `memory.rs` | names and UUIDs; failures, by the names that clients know; the size of blocks in memory |
//!
//! # References
//! - <https://iceberg.apache.org/spec/>
//! - <https://iceberg.apache.org/view-spec/>
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>
#![forbid(unsafe_code)]

pub mod create;
pub mod doc;
pub mod error;
pub mod function;
pub mod ident;
pub mod json;
pub mod memory;
pub mod plan;
pub mod schema;
pub mod update;
pub mod view;

pub use error::{CatalogError, ErrorReason, Result};
