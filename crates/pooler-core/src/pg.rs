//! PostgreSQL: what a pooler has to know about the two conversations it stands between.
//!
//! Nothing here owns a socket, a timer or a thread. [`link`] is the heart: bytes of one side go in,
//! bytes for the other side and a decision come out.

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
