//! Departures of clients.

use std::io;

/// Time that a client has to read its final error, in microseconds. Closing a connection with
/// unread bytes resets it, which loses the error.
pub(super) const CLOSING_US: u64 = 2_000_000;

/// Kinds of a client's departure.
#[derive(Debug)]
pub(super) enum ClientDeparture {
    /// The client ended its session. Its earlier requests are completed nevertheless.
    Terminate,
    /// The client closed its connection.
    End,
    /// The connection was lost.
    Lost(io::Error),
    /// The relay closes the connection.
    Dismissed,
}
