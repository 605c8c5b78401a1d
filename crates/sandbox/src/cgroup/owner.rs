//! Owners of parent groups: which server a group is of, and whether that server is alive.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::sys::mounts::{LockMode, try_lock};

/// Beginning of the name of every parent group of a Cove server.
const PARENT_PREFIX: &str = "cove-";

/// The server that a parent group belongs to, as the group's name has it:
/// `cove-PID-START-NAMESPACE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParentOwner {
    pub(super) pid: u32,
    pub(super) started: u64,
    /// Inode of the PID namespace that the number is from (`pid_namespaces(7)`): containers that
    /// see the same control groups have the same numbers for other processes.
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

    /// Tells whether it is alive. `own` is a process of the namespace that is seen here; of others
    /// only the lock tells that is on the group for as long as its owner lives.
    pub(super) fn is_alive(self, own: ParentOwner, group: &Path) -> bool {
        if self.pid_namespace == own.pid_namespace {
            return start_time(self.pid).is_ok_and(|now| now == self.started);
        }
        let locked =
            fs::File::open(group).and_then(|group| try_lock(group.as_fd(), LockMode::Exclusive));
        // A group that cannot be asked is not removed.
        !locked.unwrap_or(false)
    }
}

/// Start time of a process in clock ticks since boot, which with its pid names it for good.
pub(super) fn start_time(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may contain anything; the fields after it are plain. It is field 22.
    stat.rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().nth(19))
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| io::Error::other("unexpected form of /proc/PID/stat"))
}
