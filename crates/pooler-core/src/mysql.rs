//! MySQL and MariaDB: what a pooler has to know about the two conversations it stands between.
//!
//! Nothing here owns a socket, a timer or a thread. `link` is the heart: bytes of one side go in,
//! bytes for the other side and a decision come out.

/// The collation that sessions begin with where nobody asks for another: `utf8mb4_general_ci`,
/// which both MySQL and MariaDB have.
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
