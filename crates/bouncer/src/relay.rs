//! The relay: threads that own the sockets of clients and servers and carry bytes between them.

mod buffers;
mod slots;
mod socket;
pub mod stats;
mod timers;
