//! Pooling rules of the PostgreSQL and MySQL protocols: pure state machines between a client's
//! session and a server connection's.
//!
//! The input is bytes of one side, the output bytes for the other side and a decision. Nothing here
//! owns a socket, a file, a clock or a thread; the `bouncer` does, and `wire` has the formats.
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
