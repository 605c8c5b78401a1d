//! Owners of parent groups: the server of a group, and whether it is alive.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::sys::mounts::{LockMode, try_lock};

/// Beginning of the name of every parent group of a Cove server.
const PARENT_PREFIX: &str = "cove-";

/// The server of a parent group, as encoded in the group's name: `cove-PID-START-NAMESPACE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParentOwner {
    pub(super) pid: u32,
    pub(super) started: u64,
    /// Inode of the PID namespace of the pid (`pid_namespaces(7)`): containers that see the same
    /// control groups have the same pids for different processes.
    pub(super) pid_namespace: u64,
}

impl ParentOwner {
    pub(super) fn this_process() -> io::Result<ParentOwner> {
        let pid = std::process::id();
        let pid_namespace = fs::metadata("/proc/self/ns/pid")?.ino();
        Ok(ParentOwner { pid, started: start_time(pid)?, pid_namespace })
    }

    pub(super) fn group_name(self) -> String {
        format!("{PARENT_PREFIX}{}-{}-{}", self.pid, self.started, self.pid_namespace)
    }

    pub(super) fn parse(group: &str) -> Option<ParentOwner> {
        let mut parts = group.strip_prefix(PARENT_PREFIX)?.split('-');
        let (pid, started) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let pid_namespace = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(ParentOwner { pid, started, pid_namespace })
    }

    /// Returns whether the owner is alive. `own` is a process of the current namespace; for owners
    /// in other namespaces, the function tests the lock that the owner holds on the group while it
    /// lives.
    pub(super) fn is_alive(self, own: ParentOwner, group: &Path) -> bool {
        if self.pid_namespace == own.pid_namespace {
            return start_time(self.pid).is_ok_and(|now| now == self.started);
        }
        let locked =
            fs::File::open(group).and_then(|group| try_lock(group.as_fd(), LockMode::Exclusive));
        // If the lock cannot be tested, the owner counts as alive, and the group stays.
        !locked.unwrap_or(false)
    }
}

/// Returns the start time of a process in clock ticks since boot, which identifies it together with
/// its pid.
pub(super) fn start_time(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may contain any character; the fields after it are plain. It is field
    // 22.
    stat.rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().nth(19))
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| io::Error::other("unexpected form of /proc/PID/stat"))
}
