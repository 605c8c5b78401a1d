//! MySQL and MariaDB: pooling rules for the two conversations of a client and a server.
//!
//! Nothing here owns a socket, a timer or a thread. The central module is `link`: its input is
//! bytes of one side, its output bytes for the other side and a decision.

/// The collation with which sessions begin by default: `utf8mb4_general_ci`, which both MySQL and
/// MariaDB have.
pub const COLLATION: u8 = 45;

pub mod client;
pub mod dial;
pub mod link;
pub mod literal;
pub mod login;
pub mod mark;
pub mod own_key;
mod pins;
pub mod server;
pub mod settings;
pub mod state;
pub mod statements;
mod texts;
mod warnings;

#[cfg(test)]
mod hostile;
