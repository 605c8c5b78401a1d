//! The control groups of one command.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use super::group::OpenGroup;
use super::{HierarchyRole, UnlimitedResources};
use crate::sys;

/// Share of a new command (version 1).
const SHARES_WHOLE: u32 = 1024;
/// Weight of a new command (version 2).
const WEIGHT_WHOLE: u32 = 100;
/// Least share that both versions accept: 2 in version 1, 1 in version 2.
const SHARE_MIN: u32 = 2;
/// Share of a command that has backed off, an eighth of a new one's (version 1, where 1024 is
/// whole).
const SHARES_BACKED_OFF: &[u8] = b"128";
/// Weight of a command that has backed off (version 2, where 100 is whole).
const WEIGHT_BACKED_OFF: &[u8] = b"12";

/// Processor share of a group relative to others (`cpu.shares` in
/// <https://docs.kernel.org/scheduler/sched-design-CFS.html>, `cpu.weight` in
/// <https://docs.kernel.org/admin-guide/cgroup-v2.html>).
#[derive(Debug)]
pub(crate) struct CpuShare {
    file: OwnedFd,
    /// Value of a whole share.
    whole: u32,
    /// Value of the share of a command that has backed off.
    backed_off: &'static [u8],
}

impl CpuShare {
    /// Gives the group one of `parts` equal parts of a whole share.
    pub(crate) fn divide(&self, parts: u32) -> io::Result<()> {
        let share = (self.whole / parts.max(1)).max(SHARE_MIN);
        sys::write_all(self.file.as_fd(), share.to_string().as_bytes())
    }
}

/// The open groups of one command, one in each hierarchy.
#[derive(Debug)]
pub(crate) struct CommandGroups<'a> {
    /// Groups of the slot.
    slot: &'a [OpenGroup],
    /// Groups that were created for the command.
    own: Vec<OpenGroup>,
    pub(super) unified_limits: bool,
}

/// Result of removing the groups of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupRemoval {
    /// No groups existed.
    Absent,
    /// The groups are removed.
    Done,
    /// A process is still dying in one of them.
    Busy,
}

/// The kernel's counters of a command.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupCounts {
    pub(crate) memory_peak: u64,
    pub(crate) oom_kills: u64,
    pub(crate) processes_peak: u64,
}

impl<'a> CommandGroups<'a> {
    /// Creates the groups named `name` below those parents for which the slot has none.
    pub(crate) fn create(
        parents: &[(HierarchyRole, OwnedFd)],
        slot: &'a [OpenGroup],
        unified_limits: bool,
        name: &CStr,
    ) -> io::Result<CommandGroups<'a>> {
        let missing = |role: HierarchyRole| slot.iter().all(|group| group.role != role);
        let own = parents
            .iter()
            .filter(|(role, _)| missing(*role))
            .map(|(role, parent)| OpenGroup::make(*role, parent.as_fd(), name))
            .collect::<io::Result<_>>()?;
        Ok(CommandGroups { slot, own, unified_limits })
    }

    /// Removes the groups named `name` that were created for a command.
    pub(crate) fn remove(
        parents: &[(HierarchyRole, OwnedFd)],
        unified_limits: bool,
        name: &CStr,
    ) -> GroupRemoval {
        remove(parents.iter().filter(|(role, _)| !role.is_standing(unified_limits)), name)
    }

    fn all(&self) -> impl Iterator<Item = &OpenGroup> {
        self.slot.iter().chain(&self.own)
    }

    pub(super) fn group(&self, role: HierarchyRole) -> Option<&OpenGroup> {
        self.all().find(|group| group.role == role)
    }

    /// Returns whether there are no groups: no control group is usable here.
    pub(crate) fn is_empty(&self) -> bool {
        self.slot.is_empty() && self.own.is_empty()
    }

    /// Returns the resources that the groups do not limit.
    pub(crate) fn unlimited(&self) -> UnlimitedResources {
        UnlimitedResources {
            memory: self.group(HierarchyRole::Memory).is_none() && !self.unified_limits,
            processes: self.group(HierarchyRole::Pids).is_none() && !self.unified_limits,
        }
    }

    /// Returns the numbers of their descriptors, for callers that close all others.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.all().flat_map(OpenGroup::descriptors)
    }

    /// Returns the version 2 group, to start a process in.
    pub(crate) fn unified(&self) -> Option<BorrowedFd<'_>> {
        self.group(HierarchyRole::Unified).map(OpenGroup::dir)
    }

    /// Returns whether the CPU time of all processes together can be read.
    pub(crate) fn counts_cpu(&self) -> bool {
        self.group(HierarchyRole::Unified).or(self.group(HierarchyRole::CpuAccount)).is_some()
    }

    /// Sets the limits of a command. Swap is never allowed beside memory.
    pub(crate) fn set_limits(&self, memory_bytes: u64, processes: u64) -> io::Result<()> {
        self.set_memory_limit(memory_bytes)?;
        let processes = processes.to_string();
        if let Some(group) = self.group(HierarchyRole::Pids) {
            group.write(c"pids.max", &processes)?;
        }
        if let (Some(group), true) = (self.group(HierarchyRole::Unified), self.unified_limits) {
            group.write(c"memory.oom.group", "1")?;
            group.write(c"pids.max", &processes)?;
        }
        Ok(())
    }

    /// Sets the memory limit alone. `EBUSY` if more is in use (version 1); version 2 kills.
    pub(crate) fn set_memory_limit(&self, bytes: u64) -> io::Result<()> {
        let bytes = bytes.to_string();
        if let Some(group) = self.group(HierarchyRole::Memory) {
            group.write(c"memory.limit_in_bytes", &bytes)?;
            optional(group.write(c"memory.memsw.limit_in_bytes", &bytes))?;
        }
        if let (Some(group), true) = (self.group(HierarchyRole::Unified), self.unified_limits) {
            group.write(c"memory.max", &bytes)?;
            optional(group.write(c"memory.swap.max", "0"))?;
        }
        Ok(())
    }

    /// Returns the file and the text to write to it, to lower the command's processor share; None
    /// if groups do not share the processor.
    ///
    /// Also sets the whole share to begin with, because an earlier command of the slot may have
    /// backed off.
    pub(crate) fn backing_off(&self) -> io::Result<Option<(OwnedFd, &'static [u8])>> {
        let Some(share) = self.cpu_share()? else { return Ok(None) };
        let backed_off = share.backed_off;
        Ok(Some((share.file, backed_off)))
    }

    /// Opens the file with the group's processor share, and sets a whole share; None if groups do
    /// not share the processor.
    pub(crate) fn cpu_share(&self) -> io::Result<Option<CpuShare>> {
        let v1 = self.group(HierarchyRole::Cpu).or(self.group(HierarchyRole::CpuAccount));
        let v1 = v1.map(|dir| (dir, c"cpu.shares", SHARES_WHOLE, SHARES_BACKED_OFF));
        let v2 = self.group(HierarchyRole::Unified).filter(|_| self.unified_limits);
        let v2 = v2.map(|dir| (dir, c"cpu.weight", WEIGHT_WHOLE, WEIGHT_BACKED_OFF));
        for (dir, name, whole, backed_off) in v1.into_iter().chain(v2) {
            // Without the `cpu` controller beside `cpuacct`, and in version 2, the file may be
            // missing.
            if let Ok(file) = dir.file(name, libc::O_WRONLY) {
                let share = CpuShare { file, whole, backed_off };
                share.divide(1)?;
                return Ok(Some(share));
            }
        }
        Ok(None)
    }

    /// Opens the files that a single-threaded process must write `0` to in order to enter the
    /// version 1 groups. These are `tasks`: to move a whole process, the kernel waits until no
    /// other forks or exits, which takes about ten milliseconds if no process was moved recently.
    pub(crate) fn entrances(&self) -> io::Result<Vec<OwnedFd>> {
        self.all()
            .filter(|group| group.role != HierarchyRole::Unified)
            .map(|group| group.file(c"tasks", libc::O_WRONLY))
            .collect()
    }

    /// Returns the entrance of the version 2 group, if there is one, for a process that was not
    /// started in it. Version 2 moves only whole processes.
    pub(crate) fn unified_entrance(&self) -> io::Result<Option<OwnedFd>> {
        let open = |group: &OpenGroup| group.file(c"cgroup.procs", libc::O_WRONLY);
        self.group(HierarchyRole::Unified).map(open).transpose()
    }

    /// Returns the entrances of all groups.
    pub(crate) fn all_entrances(&self) -> io::Result<Vec<OwnedFd>> {
        let mut all = self.entrances()?;
        all.extend(self.unified_entrance()?);
        Ok(all)
    }

    /// Returns whether the version 2 group limits memory and processes.
    pub(crate) fn has_unified_limits(&self) -> bool {
        self.unified_limits
    }

    /// Returns the CPU time of all processes of the group so far, including those of earlier
    /// commands.
    pub(crate) fn cpu(&self) -> io::Result<Duration> {
        if let Some(dir) = self.group(HierarchyRole::Unified) {
            let micros = field(&dir.read(c"cpu.stat")?, "usage_usec");
            return micros
                .map(Duration::from_micros)
                .ok_or_else(|| io::Error::other("cpu.stat has no usage_usec"));
        }
        if let Some(dir) = self.group(HierarchyRole::CpuAccount) {
            return Ok(Duration::from_nanos(number(&dir.read(c"cpuacct.usage")?)));
        }
        Err(io::Error::other("no control group counts CPU time"))
    }

    /// Returns the number of processes killed for lack of memory so far.
    pub(crate) fn oom_kills(&self) -> u64 {
        if let Some(dir) = self.group(HierarchyRole::Memory) {
            return dir
                .read(c"memory.oom_control")
                .ok()
                .and_then(|t| field(&t, "oom_kill"))
                .unwrap_or(0);
        }
        if let (Some(dir), true) = (self.group(HierarchyRole::Unified), self.unified_limits) {
            return dir.read(c"memory.events").map_or(0, |events| killed(&events));
        }
        0
    }

    /// Returns peaks and counts after the command has ended; 0 for values that the kernel does not
    /// have.
    pub(crate) fn counted(&self) -> GroupCounts {
        let mut counted = GroupCounts { oom_kills: self.oom_kills(), ..GroupCounts::default() };
        let get = |dir: &OpenGroup, name| dir.read(name).map_or(0, |text| number(&text));
        if let Some(dir) = self.group(HierarchyRole::Memory) {
            counted.memory_peak = get(dir, c"memory.max_usage_in_bytes");
        }
        if let Some(dir) = self.group(HierarchyRole::Pids) {
            counted.processes_peak = get(dir, c"pids.peak");
        }
        if let (Some(dir), true) = (self.group(HierarchyRole::Unified), self.unified_limits) {
            counted.memory_peak = get(dir, c"memory.peak");
            counted.processes_peak = get(dir, c"pids.peak");
        }
        counted
    }
}

/// Ignores a missing file: a kernel without swap accounting has none, and then there is no swap to
/// limit.
pub(super) fn optional(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

pub(super) fn write(dir: BorrowedFd<'_>, name: &CStr, value: &str) -> io::Result<()> {
    let fd = sys::openat(dir, name, libc::O_WRONLY, 0)?;
    sys::write_all(fd.as_fd(), value.as_bytes())
}

pub(super) fn read(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<String> {
    read_all(sys::openat(dir, name, libc::O_RDONLY, 0)?.as_fd())
}

/// Reads the whole text of a file of a group, from its start.
pub(super) fn read_all(file: BorrowedFd<'_>) -> io::Result<String> {
    let mut buf = [0u8; 1024];
    let n = sys::pread(file, &mut buf, 0)?;
    Ok(String::from_utf8_lossy(buf.get(..n).unwrap_or(&[])).into_owned())
}

/// Returns the number after `name ` in a file of such lines.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| number(value))
    })
}

/// Returns the number of processes killed for lack of memory by `memory.events`. If all processes
/// of a group are killed together, the kernel counts the one that it had chosen twice.
pub(super) fn killed(events: &str) -> u64 {
    let twice = field(events, "oom_group_kill").unwrap_or(0);
    match field(events, "oom_kill").unwrap_or(0) {
        0 => 0,
        counted => counted.saturating_sub(twice).max(1),
    }
}

pub(super) fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or(0)
}

/// Removes the groups named `name` below these parents.
pub(super) fn remove<'p>(
    parents: impl Iterator<Item = &'p (HierarchyRole, OwnedFd)>,
    name: &CStr,
) -> GroupRemoval {
    let mut removal = GroupRemoval::Absent;
    for (_, parent) in parents {
        match sys::rmdirat(parent.as_fd(), name) {
            Ok(()) if removal == GroupRemoval::Absent => removal = GroupRemoval::Done,
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => removal = GroupRemoval::Busy,
        }
    }
    removal
}
