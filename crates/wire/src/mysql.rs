//! MySQL's client/server protocol, version 10 with `PROTOCOL_41`, as MySQL and MariaDB speak it.
//!
//! Source: MySQL's source documentation, page "Client/Server Protocol", and MariaDB's knowledge
//! base, page "Client/Server Protocol", where they differ.

pub mod auth;
pub mod capabilities;
pub mod changes;
pub mod command;
pub mod frame;
pub mod handshake;
pub mod lenenc;
pub mod packet;
pub mod reply;
pub mod sql;

#[cfg(test)]
mod hostile;
