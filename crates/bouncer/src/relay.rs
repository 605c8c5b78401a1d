//! The relay: threads that own the sockets of clients and servers and carry bytes between them.

mod accept;
mod buffers;
pub mod orders;
mod pools;
mod slots;
pub mod snapshot;
mod socket;
pub mod stats;
mod timers;
