//! What the protocols of PostgreSQL and MySQL mean for a pooler: pure state machines between a
//! client's session and a server connection's.
//!
//! Bytes of one side go in, bytes for the other side and a decision come out. Nothing here owns a
//! socket, a file, a clock or a thread; the `bouncer` does, and `wire` has the formats.
//!
//! # Files
//! | file | what |
//! |---|---|
//! | `link.rs` | both protocols behind one interface: links, logins of clients, logins at servers |
//! | `pg.rs` | PostgreSQL: logins, links, statements, settings, session state |
//! | `mysql.rs` | MySQL and MariaDB: the same |
//! | `epoch.rs` | the session of a sandbox for which a connection works, and how servers see it |
//! | `texts.rs` | known statement texts |
#![forbid(unsafe_code)]

pub mod epoch;
pub mod link;
pub mod mysql;
pub mod pg;
mod texts;
