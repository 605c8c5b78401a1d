//! The shell against real sockets.
