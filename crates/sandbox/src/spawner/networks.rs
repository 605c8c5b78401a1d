//! Network namespaces of slots: made once, and reused only while they are unused.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man7/network_namespaces.7.html>

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::failure::{FailureContext, StepFailure};
use crate::sys;

/// Network of a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum NetworkMode {
    /// No interface: for executions.
    #[default]
    Nothing,
    /// A loopback, for executions whose caller listens there.
    Loopback,
    /// A loopback, for a session.
    Session,
}

impl NetworkMode {
    pub(crate) fn number(self) -> u8 {
        match self {
            NetworkMode::Nothing => 0,
            NetworkMode::Loopback => 1,
            NetworkMode::Session => 2,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<NetworkMode> {
        [NetworkMode::Nothing, NetworkMode::Loopback, NetworkMode::Session]
            .into_iter()
            .find(|network| network.number() == number)
    }
}

/// Creates network namespaces, and returns to the process's own one each time: sockets that this
/// process creates must not be in a slot's namespace.
#[derive(Debug, Default)]
pub(super) struct NetworkFactory {
    own_namespace: Option<OwnedFd>,
}

impl NetworkFactory {
    /// Creates a namespace, with a loopback or without; it has no other network.
    pub(super) fn make(
        &mut self,
        host_proc: BorrowedFd<'_>,
        with_loopback: bool,
    ) -> Result<OwnedFd, StepFailure> {
        let unshare = || sys::unshare(libc::CLONE_NEWNET).and_then(|()| current(host_proc));
        if self.own_namespace.is_none() {
            self.own_namespace = Some(unshare().step("make a network namespace")?);
        }
        let made = unshare().step("make a network namespace")?;
        if with_loopback {
            sys::session::raise_loopback().step("switch the loopback on")?;
        }
        self.return_to_own_namespace().step("leave a network namespace")?;
        Ok(made)
    }

    /// Returns whether no packet was ever sent in a namespace, and no socket of it remains: the
    /// next sandbox must not see even the remains of a connection.
    pub(super) fn is_unused(&self, host_proc: BorrowedFd<'_>, netns: BorrowedFd<'_>) -> bool {
        let check = || -> io::Result<bool> {
            sys::setns(netns, libc::CLONE_NEWNET)?;
            let devices = read(host_proc, c"self/net/dev")?;
            let sockets = read(host_proc, c"self/net/sockstat")?;
            Ok(has_no_traffic(&devices) && has_no_socket(&sockets))
        };
        let is_unused = check().unwrap_or(false);
        // Otherwise the next sockets of this process would count there.
        self.return_to_own_namespace().is_ok() && is_unused
    }

    fn return_to_own_namespace(&self) -> io::Result<()> {
        self.own_namespace
            .as_ref()
            .map_or(Ok(()), |netns| sys::setns(netns.as_fd(), libc::CLONE_NEWNET))
    }
}

fn current(host_proc: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    sys::openat(host_proc, c"self/ns/net", libc::O_RDONLY, 0)
}

fn read(host_proc: BorrowedFd<'_>, path: &std::ffi::CStr) -> io::Result<String> {
    let file = sys::openat(host_proc, path, libc::O_RDONLY, 0)?;
    let mut buf = [0u8; 2048];
    let n = sys::read(file.as_fd(), &mut buf)?;
    Ok(String::from_utf8_lossy(buf.get(..n).unwrap_or(&[])).into_owned())
}

/// Returns whether the loopback is the only device and every counter of it is 0, in
/// `/proc/net/dev`.
fn has_no_traffic(devices: &str) -> bool {
    let mut lines = devices.lines().filter_map(|line| line.split_once(':'));
    let lo = lines.next();
    let is_quiet = |counters: &str| counters.split_whitespace().all(|counter| counter == "0");
    lo.is_some_and(|(name, counters)| name.trim() == "lo" && is_quiet(counters))
        && lines.next().is_none()
}

/// Returns whether there is no socket, in `/proc/net/sockstat`.
fn has_no_socket(sockets: &str) -> bool {
    sockets.lines().next() == Some("sockets: used 0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_and_sockets_are_seen() {
        let head = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n";
        for (lines, expected) in [
            ("    lo:       0       0    0    0\n", true),
            ("    lo:      84       1    0    0\n", false),
            ("    lo: 0 0\n  eth0: 0 0\n", false),
            ("  eth0: 0 0\n", false),
            ("", false),
        ] {
            assert_eq!(has_no_traffic(&format!("{head}{lines}")), expected, "{lines}");
        }
        assert!(has_no_socket("sockets: used 0\nTCP: inuse 0\n"));
        assert!(!has_no_socket("sockets: used 1\nTCP: inuse 0\n"));
        assert!(!has_no_socket(""));
    }
}
