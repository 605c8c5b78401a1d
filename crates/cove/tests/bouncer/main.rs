//! The bouncer of the real binary, between real clients and a real server of databases.
//!
//! | file | claim |
//! |---|---|
//! | `tenants.rs` | tenants, modes, limits, cancelling and operation |
//! | `pg_state.rs` | what a client of PostgreSQL has in its session is its own |
//! | `clients.rs` | drivers of PostgreSQL see no difference |
//! | `hostile.rs` | bytes that no client would send |
//! | `dbbouncer.rs` | DBBouncer's REST interface, `cove tenant`, and `cove bouncer` alone |
//! | `readers.rs` | what a read-only transaction lets happen is refused to those who may only read |
//! | `tls.rs` | encryption on both sides, and PostgreSQL 18 |
//! | `mysql_state.rs` | what a client of MySQL leaves in its session is found again, by nobody else |
//! | `mysql_protocol.rs` | statements, cursors, files, large rows and kills of MySQL |
//! | `mysql_modes.rs` | servers whose SQL mode is another than usual |
//! | `mysql_questions.rs` | what is answered without a server, and kills, are the client's own |
//! | `mysql_diagnostics.rs` | the last insert id, warnings and counts of a client are told to nobody else |
//! | `mysql_schemas.rs` | clients in many schemas on few connections are all answered |
//! | `mysql_clients.rs` | drivers of MySQL see no difference |
//! | `mysql_tenants.rs` | tenants, modes, limits and operation for MySQL; encryption |
//! | `mysql_hostile.rs` | bytes that no client of MySQL would send |
//! | `mysql_versions.rs` | MariaDB 11.4, and a server that asks for caching_sha2_password |
//! | `mysql_isolation.rs`, `mysql_model.rs`, `mysql_model/steps.rs`, `mysql_model/ids.rs` | nobody of MySQL sees anything of anybody else |
//! | `isolation.rs`, `model.rs`, `model/steps.rs` | nobody sees anything of anybody else, whatever breaks |
#![allow(
    clippy::unwrap_used,
    reason = "a failed step is a failed test; clippy exempts only functions marked #[test]"
)]

mod clients;
mod dbbouncer;
#[path = "../go.rs"]
mod go;
mod hostile;
mod isolation;
mod model;
mod mysql_clients;
mod mysql_diagnostics;
mod mysql_hostile;
mod mysql_isolation;
mod mysql_model;
mod mysql_modes;
mod mysql_places;
mod mysql_protocol;
mod mysql_questions;
mod mysql_schemas;
mod mysql_state;
mod mysql_support;
mod mysql_tenants;
mod mysql_versions;
mod pg_state;
mod readers;
#[path = "../shared.rs"]
mod shared;
mod support;
mod tenants;
mod tls;
