//! PgBouncer's dialect: its configuration files and its console, so that its users, exporters and
//! test suite can be pointed here.
//!
//! Everything below is pure: text in, values or errors out. The meaning of each setting is in
//! one place ([`settings`]); one without a counterpart is reported, never silently dropped. Source:
//! PgBouncer's documentation, `config` and `usage`.
//!
//! # References
//! - <https://www.pgbouncer.org/usage.html>
//! - <https://www.pgbouncer.org/config.html>

pub mod access;
pub mod command;
pub mod console;
mod everywhere;
pub mod ini;
pub mod settings;
pub mod show;
pub mod table;
pub mod tenants;
pub mod userlist;
