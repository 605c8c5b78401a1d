//! The guest init's part of executions with a loopback: it listens there for the server.
//!
//! Before the program starts, and in the sandbox's own network namespace, whose loopback nobody
//! else can reach. The sockets are the server's as soon as they listen; no copy stays here.

use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::Guest;
use crate::codec::{Malformed, Start, from_guest};
use crate::failure::{Failure, Step};
use crate::seccomp::Holder;
use crate::spec::Profile;
use crate::sys::session as sys_session;

/// Connections of one port that wait for the server to take them.
pub(super) const BACKLOG: c_int = 128;

/// Whom the filter of a command's program is for.
pub(super) fn holder_of(start: &Start<'_>) -> Holder {
    match start.profile {
        Profile::Compile => Holder::Compile,
        Profile::Run if start.ports.is_empty() => Holder::Run,
        Profile::Run => Holder::Connected,
    }
}

impl Guest<'_> {
    /// Whom the filter of the program is for that this sandbox most likely gets.
    pub(super) fn holder(&self) -> Holder {
        if self.has_loopback { Holder::Connected } else { Holder::Run }
    }

    /// Listens on ports of the loopback and hands the sockets to the server. Does nothing without
    /// ports.
    pub(super) fn listen(&self, ports: &[u16]) -> Result<(), Failure> {
        if ports.is_empty() {
            return Ok(());
        }
        if !self.has_loopback {
            return Err(Malformed.into());
        }
        let mut sockets: Vec<OwnedFd> = Vec::with_capacity(ports.len());
        for port in ports {
            sockets.push(sys_session::listen_loopback(*port, BACKLOG).step("listen")?);
        }
        let handles: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        self.tell(&[from_guest::LISTENING], &handles);
        Ok(())
    }
}
