//! Arrival of a client that another node has passed to this one.

use std::os::unix::net::UnixStream;

use super::login::{ArrivedLogin, PassedLogin};

/// Why a client of another node is refused; that node then serves it itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PassRefusal {
    /// This node is not a home of the tenant's limits, as far as it knows.
    #[error("this node is not a home of the tenant's limits")]
    NoHome,
    /// It is stopping, or has too many connections.
    #[error("this node accepts no more clients")]
    Full,
    /// The client cannot be served here.
    #[error("the client cannot be served at this node")]
    Unfit,
}

/// A client that another node has passed, on its way to a thread.
#[derive(Debug)]
pub(crate) struct ArrivingClient {
    pub(crate) socket: UnixStream,
    pub(crate) login: PassedLogin,
    pub(crate) arrived: ArrivedLogin,
}
