//! The catalog of the real binary, and clients that others wrote.
//!
//! | file | claim |
//! |---|---|
//! | `commands.rs` | `cove catalog` does what is typed, and says what was refused |
//! | `guests.rs` | PyIceberg works with an address and nothing else, and reaches what was granted |
//! | `managing.rs` | who may do what, what was done, and jobs are managed by what is typed |
//! | `pyiceberg.rs` | PyIceberg finds a catalog as it knows it, and no update is lost |
//! | `rck.rs` | Iceberg's compatibility kit and its own client find no fault |
//! | `readers.rs` | a follower of the log that does not read costs little, and is cut |
//! | `servers.rs` | two servers with one store and one warehouse are one catalog |
//! | `serving.rs` | what is served where, to whom, and what is there after a kill |
#![allow(
    clippy::unwrap_used,
    reason = "a failed step is a failed test; clippy exempts only functions marked #[test]"
)]

mod commands;
mod guests;
#[path = "../java.rs"]
mod java;
mod managing;
mod pyiceberg;
mod rck;
mod readers;
mod servers;
mod serving;
#[expect(dead_code, reason = "the other binaries need more of it")]
#[path = "../shared.rs"]
mod shared;
