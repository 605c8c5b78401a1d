//! Operations of control groups that only sessions need.
//!
//! # References
//! - <https://docs.kernel.org/admin-guide/cgroup-v1/freezer-subsystem.html>
//! - <https://docs.kernel.org/admin-guide/cgroup-v2.html>

use std::io;
use std::os::fd::OwnedFd;

use super::HierarchyRole;
use super::command::{CommandGroups, field, number, optional};

/// Maximum of bytes that are queued in TCP and UDP sockets of a session (version 1). A connection
/// without a reader holds up to 10 MiB with the kernel's defaults.
const SOCKET_BYTES_MAX: u64 = 64 << 20;
/// Divisor of a session's memory, of which those bytes may be this part at most.
const SOCKET_SHARE: u64 = 4;

/// Current usage in groups.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InUse {
    pub(crate) memory_bytes: u64,
    pub(crate) processes: u64,
}

impl CommandGroups<'_> {
    /// Sets the limits of a session. Like [`CommandGroups::set_limits`], but lack of memory kills
    /// one process and not all: an agent survives the end of one of its tools.
    pub(crate) fn set_session_limits(&self, memory_bytes: u64, processes: u64) -> io::Result<()> {
        self.set_limits(memory_bytes, processes)?;
        if let Some(dir) = self.group(HierarchyRole::Memory) {
            // Version 1 accounts socket memory separately, and by default does not limit it: data
            // queued in connections could fill the memory of the host. Version 2 counts it as
            // memory.
            let bytes = (memory_bytes / SOCKET_SHARE).min(SOCKET_BYTES_MAX).to_string();
            optional(dir.write(c"memory.kmem.tcp.limit_in_bytes", &bytes))?;
        }
        match (self.group(HierarchyRole::Unified), self.unified_limits) {
            (Some(dir), true) => optional(dir.write(c"memory.oom.group", "0")),
            _ => Ok(()),
        }
    }

    /// Returns the current usage; 0 for values that the kernel does not have.
    pub(crate) fn in_use(&self) -> InUse {
        let get = |role, name| {
            let text = self.group(role).map(|dir| dir.read(name));
            text.and_then(Result::ok).map_or(0, |text| number(&text))
        };
        if self.unified_limits {
            return InUse {
                memory_bytes: get(HierarchyRole::Unified, c"memory.current"),
                processes: get(HierarchyRole::Unified, c"pids.current"),
            };
        }
        InUse {
            memory_bytes: get(HierarchyRole::Memory, c"memory.usage_in_bytes"),
            processes: get(HierarchyRole::Pids, c"pids.current"),
        }
    }

    /// Returns whether every process has stopped.
    pub(crate) fn is_frozen(&self) -> bool {
        let events = self.group(HierarchyRole::Unified).map(|dir| dir.read(c"cgroup.events"));
        events.and_then(Result::ok).is_some_and(|text| field(&text, "frozen") == Some(1))
    }

    /// Returns the file that stops every process on 1 and resumes them on 0; None without version
    /// 2.
    pub(crate) fn freezer(&self) -> Option<OwnedFd> {
        let dir = self.group(HierarchyRole::Unified)?;
        dir.file(c"cgroup.freeze", libc::O_WRONLY).ok()
    }
}
