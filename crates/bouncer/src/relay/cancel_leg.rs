//! A connection to a server that carries nothing but a cancel request.

use pooler_core::link::ServerDialer;

use super::conn::RelayConnection;

/// A connection that carries a cancel request.
#[derive(Debug)]
pub(super) struct CancelLeg {
    pub(super) conn: RelayConnection,
    pub(super) dial: ServerDialer,
    pub(super) connects: bool,
    pub(super) is_in_handshake: bool,
    /// Place and serial of the server connection that is meant.
    pub(super) server: (u32, u64),
    pub(super) begun_us: u64,
}
