//! One open control group, and the groups that stay with a slot.

use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use super::command::{GroupRemoval, field, number, read, read_all, remove, write};
use super::{HierarchyRole, optional};
use crate::sys;

/// An open control group in one hierarchy.
#[derive(Debug)]
pub(crate) struct OpenGroup {
    pub(super) role: HierarchyRole,
    dir: OwnedFd,
    /// Files that stay open as long as the group: opening one costs as much as reading it.
    files: Vec<(&'static CStr, OwnedFd)>,
}

impl OpenGroup {
    /// Creates the group named `name` below a parent.
    pub(super) fn make(
        role: HierarchyRole,
        parent: BorrowedFd<'_>,
        name: &CStr,
    ) -> io::Result<OpenGroup> {
        sys::mkdirat(parent, name, 0o755)?;
        OpenGroup::open(role, parent, name)
    }

    fn open(role: HierarchyRole, parent: BorrowedFd<'_>, name: &CStr) -> io::Result<OpenGroup> {
        let dir = sys::openat(parent, name, libc::O_DIRECTORY | libc::O_RDONLY, 0)?;
        Ok(OpenGroup { role, dir, files: Vec::new() })
    }

    /// Opens the files that every command needs, except those that this kernel lacks.
    fn with_files(mut self) -> OpenGroup {
        for (name, flags) in files_of(self.role) {
            let opened = sys::openat(self.dir.as_fd(), name, *flags, 0);
            self.files.extend(opened.ok().map(|file| (*name, file)));
        }
        self
    }

    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    fn kept(&self, name: &CStr) -> Option<&OwnedFd> {
        self.files.iter().find(|(kept, _)| *kept == name).map(|(_, file)| file)
    }

    /// Returns a descriptor of a file of the group.
    pub(super) fn file(&self, name: &CStr, flags: c_int) -> io::Result<OwnedFd> {
        match self.kept(name) {
            Some(file) => file.try_clone(),
            None => sys::openat(self.dir(), name, flags, 0),
        }
    }

    /// Reads a file of the group.
    pub(super) fn read(&self, name: &CStr) -> io::Result<String> {
        match self.kept(name) {
            Some(file) => read_all(file.as_fd()),
            None => read(self.dir(), name),
        }
    }

    /// Writes to a file of the group.
    pub(super) fn write(&self, name: &CStr, value: &str) -> io::Result<()> {
        match self.kept(name) {
            Some(file) => sys::write_all(file.as_fd(), value.as_bytes()),
            None => write(self.dir(), name, value),
        }
    }

    /// Returns the numbers of its descriptors, for callers that close all others.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        std::iter::once(&self.dir)
            .chain(self.files.iter().map(|(_, file)| file))
            .map(AsRawFd::as_raw_fd)
    }

    /// Returns whether a limiting group has no remains of its last command, and resets it in that
    /// case. Counters that cannot be reset must be at zero.
    fn is_as_new(&self) -> io::Result<bool> {
        match self.role {
            HierarchyRole::Memory => {
                let kills = field(&self.read(c"memory.oom_control")?, "oom_kill");
                let bytes = number(&self.read(c"memory.usage_in_bytes")?);
                if kills != Some(0) || bytes > KEPT_BYTES_MAX {
                    return Ok(false);
                }
                // The kernel requires that the limit of memory never exceeds that of memory and
                // swap.
                optional(self.write(c"memory.memsw.limit_in_bytes", "-1"))?;
                self.write(c"memory.limit_in_bytes", "-1")?;
                self.write(c"memory.max_usage_in_bytes", "0")?;
                Ok(true)
            }
            HierarchyRole::Pids => {
                let current = number(&self.read(c"pids.current")?);
                // Without this file, no command reports a peak of processes.
                let peak = self.read(c"pids.peak").map_or(0, |text| number(&text));
                if current > 0 || peak > 1 {
                    return Ok(false);
                }
                self.write(c"pids.max", "max").map(|()| true)
            }
            HierarchyRole::Unified | HierarchyRole::Cpu | HierarchyRole::CpuAccount => Ok(true),
        }
    }
}

/// Maximum remaining charge of a memory group that is reset, in bytes. The kernel charges in steps
/// of 64 pages for each processor and keeps the rest of a step (256 KiB); the remainder covers its
/// own records of directories that the command accessed. Reported memory peaks are wrong by at most
/// this amount, and always by the first part.
const KEPT_BYTES_MAX: u64 = 2 * (256 << 10) + (128 << 10);

/// Files of a group that are kept open.
fn files_of(role: HierarchyRole) -> &'static [(&'static CStr, c_int)] {
    match role {
        HierarchyRole::Unified => &[(c"cpu.stat", libc::O_RDONLY)],
        HierarchyRole::Cpu => &[(c"tasks", libc::O_WRONLY), (c"cpu.shares", libc::O_WRONLY)],
        HierarchyRole::CpuAccount => &[
            (c"tasks", libc::O_WRONLY),
            (c"cpu.shares", libc::O_WRONLY),
            (c"cpuacct.usage", libc::O_RDONLY),
        ],
        HierarchyRole::Memory => &[
            (c"tasks", libc::O_WRONLY),
            (c"memory.limit_in_bytes", libc::O_WRONLY),
            (c"memory.memsw.limit_in_bytes", libc::O_WRONLY),
            (c"memory.oom_control", libc::O_RDONLY),
            (c"memory.usage_in_bytes", libc::O_RDONLY),
            (c"memory.max_usage_in_bytes", libc::O_RDWR),
        ],
        HierarchyRole::Pids => &[
            (c"tasks", libc::O_WRONLY),
            (c"pids.max", libc::O_WRONLY),
            (c"pids.current", libc::O_RDONLY),
            (c"pids.peak", libc::O_RDONLY),
        ],
    }
}

/// Groups that stay with a slot: those that limit nothing, and version 1's limits of memory and
/// processes, as long as they can be reset after a command. Making and removing one of those costs
/// more than a system call of the program that runs in it.
#[derive(Debug)]
pub(crate) struct SlotGroups {
    /// The standing groups come first.
    groups: Vec<OpenGroup>,
    standing: usize,
}

impl SlotGroups {
    /// Creates the standing groups, which keep no state of one command for the next.
    pub(crate) fn create(
        parents: &[(HierarchyRole, OwnedFd)],
        unified_limits: bool,
        name: &CStr,
    ) -> io::Result<SlotGroups> {
        let groups: Vec<OpenGroup> = parents
            .iter()
            .filter(|(role, _)| role.is_standing(unified_limits))
            .map(|(role, parent)| match OpenGroup::make(*role, parent.as_fd(), name) {
                // Left by a spawner that was killed, or by a failed attempt. It limits nothing and
                // is ours by its name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    OpenGroup::open(*role, parent.as_fd(), name)
                }
                made => made,
            })
            .map(|made| made.map(OpenGroup::with_files))
            .collect::<io::Result<_>>()?;
        let standing = groups.len();
        let slot = SlotGroups { groups, standing };
        // Groups of a killed spawner may still be frozen.
        slot.thaw()?;
        Ok(slot)
    }

    /// Creates the missing limiting groups for a command.
    pub(crate) fn complete(
        &mut self,
        parents: &[(HierarchyRole, OwnedFd)],
        name: &CStr,
    ) -> io::Result<()> {
        let limiting = parents.iter().filter(|(role, _)| role.is_kept());
        for (role, parent) in limiting {
            if self.groups.iter().any(|group| group.role == *role) {
                continue;
            }
            let group = match OpenGroup::make(*role, parent.as_fd(), name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    sys::rmdirat(parent.as_fd(), name)?;
                    OpenGroup::make(*role, parent.as_fd(), name)
                }
                made => made,
            };
            self.groups.push(group?.with_files());
        }
        Ok(())
    }

    /// Returns the groups for the first command of a sandbox.
    pub(crate) fn for_command(&self) -> &[OpenGroup] {
        &self.groups
    }

    /// Returns the groups for all later commands.
    pub(crate) fn standing(&self) -> &[OpenGroup] {
        self.groups.get(..self.standing).unwrap_or(&[])
    }

    /// Resets the limiting groups after a command where possible, and removes the others. Returns
    /// whether a process is still dying in one: then the caller must call this again.
    pub(crate) fn renew(&mut self, parents: &[(HierarchyRole, OwnedFd)], name: &CStr) -> bool {
        let mut is_busy = false;
        for group in self.groups.split_off(self.standing) {
            if !matches!(group.is_as_new(), Ok(true)) {
                let parent = parents.iter().filter(|(role, _)| *role == group.role);
                if remove(parent, name) != GroupRemoval::Busy {
                    continue;
                }
                is_busy = true;
            }
            self.groups.push(group);
        }
        is_busy
    }

    /// Removes the groups of a slot whose last sandbox has ended.
    pub(crate) fn remove(parents: &[(HierarchyRole, OwnedFd)], name: &CStr) -> GroupRemoval {
        remove(parents.iter(), name)
    }

    /// Thaws the groups, which an ended session may have left frozen.
    pub(crate) fn thaw(&self) -> io::Result<()> {
        self.standing()
            .iter()
            .filter(|group| group.role == HierarchyRole::Unified)
            .try_for_each(|group| optional(group.write(c"cgroup.freeze", "0")))
    }
}
