//! The guest init's part of executions with a loopback: it listens there for the server.
//!
//! It does so before the program starts, in the sandbox's own network namespace, whose loopback is
//! unreachable from outside. The sockets go to the server as soon as they listen; no copy stays
//! here.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man7/netdevice.7.html>

use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::GuestSetup;
use crate::codec::{MalformedMessage, StartMessage, from_guest};
use crate::failure::{FailureContext, StepFailure};
use crate::seccomp::FilterSubject;
use crate::spec::SeccompProfile;
use crate::sys::session as sys_session;

/// Maximum number of connections of one port that wait for the server to accept them.
pub(super) const BACKLOG: c_int = 128;

/// Returns the filter subject of a command's program.
pub(super) fn holder_of(start: &StartMessage<'_>) -> FilterSubject {
    match start.profile {
        SeccompProfile::Compile => FilterSubject::Compile,
        SeccompProfile::Run if start.ports.is_empty() => FilterSubject::Run,
        SeccompProfile::Run => FilterSubject::Connected,
    }
}

impl GuestSetup<'_> {
    /// Returns the most likely filter subject of this sandbox's program.
    pub(super) fn holder(&self) -> FilterSubject {
        if self.has_loopback { FilterSubject::Connected } else { FilterSubject::Run }
    }

    /// Listens on ports of the loopback and sends the sockets to the server. Does nothing without
    /// ports.
    pub(super) fn listen(&self, ports: &[u16]) -> Result<(), StepFailure> {
        if ports.is_empty() {
            return Ok(());
        }
        if !self.has_loopback {
            return Err(MalformedMessage.into());
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
