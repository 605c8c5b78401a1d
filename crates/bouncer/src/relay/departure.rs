//! Departures of clients.

use std::io;

/// Time that a client has to read its last error, in microseconds. A connection that is closed with
/// unread bytes on it is reset, and the error is lost on the way.
pub(super) const CLOSING_US: u64 = 2_000_000;

/// Kinds of a client's departure.
#[derive(Debug)]
pub(super) enum ClientDeparture {
    /// Ended its session. What it asked for before is done nevertheless.
    Terminate,
    /// Closed its connection.
    End,
    /// Lost its connection.
    Lost(io::Error),
    /// We close it.
    Dismissed,
}
