//! Tests that take too long for every change: heavy clients and comparisons of the catalog.
//!
//! Plain `cargo test` leaves this binary out; `make test-full` runs it, and so does `cargo test -p
//! cove --test full`.
//!
//! | file | claim |
//! |---|---|
//! | `codex.rs` | OpenAI's exec-server, unmodified, works in a session |
//! | `oracle.rs` | random commits result in the same documents as with Iceberg's own library |
//! | `s3.rs` | credentials and signatures for one table give no access to other tables |
//! | `schemathesis.rs` | no request that follows the API description makes the server fail |
//! | `spark.rs` | Spark works unchanged, on tables of versions 2 and 3 |
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
