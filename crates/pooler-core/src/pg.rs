//! PostgreSQL: pooling rules for the two conversations of a client and a server.
//!
//! Nothing here owns a socket, a timer or a thread. The central module is [`link`]: its input is
//! bytes of one side, its output bytes for the other side and a decision.

pub mod client;
pub mod dial;
mod dirt;
pub mod link;
mod listening;
pub mod login;
mod probe;
pub mod server;
pub mod settings;
pub mod statements;
mod texts;
