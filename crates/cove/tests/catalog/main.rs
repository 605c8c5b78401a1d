//! The catalog of the real binary, and third-party clients.
//!
//! | file | claim |
//! |---|---|
//! | `commands.rs` | `cove catalog` runs commands, and reports errors |
//! | `followers.rs` | a follower of the log that does not read costs little, and is disconnected |
//! | `guests.rs` | PyIceberg works with an address only, and reaches only granted objects |
//! | `managing.rs` | commands manage rights, the audit and jobs |
//! | `pyiceberg.rs` | PyIceberg works unchanged, and no update is lost |
//! | `rck.rs` | Iceberg's compatibility kit and its own client find no fault |
//! | `servers.rs` | two servers with one store and one warehouse are one catalog |
//! | `serving.rs` | routes, authorization, and the state after a kill |
#![allow(
    clippy::unwrap_used,
    reason = "a failed step is a failed test; clippy exempts only functions marked #[test]"
)]

mod commands;
mod followers;
mod guests;
#[path = "../java.rs"]
mod java;
mod managing;
mod pyiceberg;
mod rck;
mod servers;
mod serving;
#[expect(dead_code, reason = "the other binaries need more of it")]
#[path = "../shared.rs"]
mod shared;
