//! Replies of every kind, packet by packet.
