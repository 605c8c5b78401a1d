//! What takes too long for every change: heavy clients and rivals of the catalog, unmodified.
//!
//! Plain `cargo test` leaves this binary out; `make test-full` runs it, and
//! `cargo test -p cove --test full`.
//!
//! | file | claim |
//! |---|---|
//! | `codex.rs` | OpenAI's exec-server, unmodified, works in a session |
//! | `oracle.rs` | random commits make the documents that Iceberg's own library makes |
//! | `s3.rs` | access to one table of a bucket is access to no other, by credentials or signatures |
//! | `schemathesis.rs` | no request after the description makes the server fail |
//! | `spark.rs` | Spark finds a catalog as it knows it, on tables of versions 2 and 3 |
#![allow(
    clippy::unwrap_used,
    reason = "a failed step is a failed test; clippy exempts only functions marked #[test]"
)]

mod codex;
#[path = "../go.rs"]
mod go;
#[path = "../java.rs"]
mod java;
mod oracle;
mod s3;
mod schemathesis;
#[expect(dead_code, reason = "the other binaries need more of it")]
#[path = "../shared.rs"]
mod shared;
mod spark;
