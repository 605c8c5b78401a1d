//! MySQL and MariaDB: what a pooler has to know about the two conversations it stands between.
//!
//! Nothing here owns a socket, a timer or a thread. `link` is the heart: bytes of one side go in,
//! bytes for the other side and a decision come out.

/// The collation that sessions begin with where nobody asks for another: `utf8mb4_general_ci`,
/// which both MySQL and MariaDB have.
pub const COLLATION: u8 = 45;

pub mod auth;
pub mod client;
pub mod control;
pub mod dial;
pub mod link;
pub mod login;
pub(crate) mod mark;
pub mod pins;
pub mod server;
pub mod settings;
pub mod statements;
pub mod texts;
pub mod warnings;

#[cfg(test)]
mod hostile;
