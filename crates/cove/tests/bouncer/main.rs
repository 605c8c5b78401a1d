//! The bouncer of the real binary, between real clients and a real database server.
//!
//! | file | claim |
//! |---|---|
//! | `tenants.rs` | tenants, modes, limits, cancelling and operation |
//! | `pg_state.rs` | session state of a PostgreSQL client stays with that client |
//! | `clients.rs` | PostgreSQL drivers behave as without a pooler |
//! | `hostile.rs` | bytes that no client would send |
//! | `dbbouncer.rs` | DBBouncer's REST interface, `cove tenant`, and `cove bouncer` alone |
//! | `readers.rs` | side effects that read-only transactions permit are rejected |
//! | `tls.rs` | encryption on both sides, and PostgreSQL 18 |
//! | `mysql_state.rs` | session state of a MySQL client stays with that client |
//! | `mysql_protocol.rs` | statements, cursors, files, large rows and kills of MySQL |
//! | `mysql_modes.rs` | servers with an unusual SQL mode |
//! | `mysql_questions.rs` | answers of the bouncer itself, and kills, concern only their client |
//! | `mysql_diagnostics.rs` | only the client itself sees its last insert id, warnings and counts |
//! | `mysql_schemas.rs` | clients in many schemas on few connections are all served |
//! | `mysql_clients.rs` | MySQL drivers behave as without a pooler |
//! | `mysql_tenants.rs` | tenants, modes, limits and operation for MySQL; encryption |
//! | `mysql_hostile.rs` | bytes that no MySQL client would send |
//! | `mysql_versions.rs` | MariaDB 11.4, and a server that asks for caching_sha2_password |
//! | `mysql_isolation.rs`, `mysql_model.rs`, `mysql_model/steps.rs`, `mysql_model/ids.rs` | nobody of MySQL sees anything of anybody else |
//! | `isolation.rs`, `model.rs`, `model/steps.rs` | clients see only their own data |
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
#[expect(dead_code, reason = "the other binaries need more of it")]
#[path = "../shared.rs"]
mod shared;
mod support;
mod tenants;
mod tls;
