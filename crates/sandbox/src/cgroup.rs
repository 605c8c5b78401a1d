//! Control groups: where limits on all processes of a command together come from.
//!
//! Three layouts exist in the wild and all are supported: version 2 alone, version 1 alone, and
//! *hybrid*, where controllers live on version 1 and an empty version 2 tree stands beside them.
//! Hybrid takes the best of both: limits from version 1, exact CPU time and start inside the group
//! (`CLONE_INTO_CGROUP`) from version 2.
//!
//! Cove creates one parent group per server (`cove-<pid>-<start>`) below the group the server
//! itself is in, so that a limit on the service holds for what it runs, and one group per command
//! below that. Nothing else in the hierarchies is touched, and nothing is left behind.
//!
//! Version 2 gives controllers only to children of a group without processes of its own, the very
//! top excepted. A server that has its group to itself moves into a leaf below it, and back at its
//! end. One that shares its group, with a login shell above all, goes to the nearest group above
//! that hands out the limits already, and if there is none to the top; see [`sites`].
//!
//! # References
//! - <https://docs.kernel.org/admin-guide/cgroup-v1/cgroups.html>
//! - <https://docs.kernel.org/admin-guide/cgroup-v1/memory.html>

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sys;
use crate::sys::mounts::{LockMode, try_lock};

mod owner;
mod session;
mod unified;

use owner::ParentOwner;
pub(crate) use session::thaw_standing;
pub(crate) use unified::leave_leaf;
use unified::{ControllerSetup, LIMITS, ParentSite, enable, prepare, sites, subtree};

/// Resources that no control group limits here, so that only limits of each process and user do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnlimitedResources {
    pub(crate) memory: bool,
    /// Counted by user all over the host: two servers with the same user ids would take from each
    /// other. So it is the last resort.
    pub(crate) processes: bool,
}

/// Role of a hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HierarchyRole {
    /// Version 2: CPU time, start inside the group, and every controller it has.
    Unified,
    /// Version 1 `memory`.
    Memory,
    /// Version 1 `pids`.
    Pids,
    /// Version 1 `cpu`: an equal share of the processor for each command.
    Cpu,
    /// Version 1 `cpuacct`: CPU time, where there is no version 2.
    CpuAccount,
}

impl HierarchyRole {
    /// Roles by the number they have in messages.
    pub(crate) const ALL: [HierarchyRole; 5] = [
        HierarchyRole::Unified,
        HierarchyRole::Memory,
        HierarchyRole::Pids,
        HierarchyRole::Cpu,
        HierarchyRole::CpuAccount,
    ];

    pub(crate) fn number(self) -> u8 {
        match self {
            HierarchyRole::Unified => 0,
            HierarchyRole::Memory => 1,
            HierarchyRole::Pids => 2,
            HierarchyRole::Cpu => 3,
            HierarchyRole::CpuAccount => 4,
        }
    }

    /// Returns whether its groups stay with a slot: they share out and count the processor, and
    /// limit nothing.
    fn is_standing(self, unified_limits: bool) -> bool {
        match self {
            HierarchyRole::Unified => !unified_limits,
            HierarchyRole::Cpu | HierarchyRole::CpuAccount => true,
            HierarchyRole::Memory | HierarchyRole::Pids => false,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<HierarchyRole> {
        HierarchyRole::ALL.get(usize::from(number)).copied()
    }
}

/// A hierarchy in which this process may make groups.
#[derive(Clone, Debug)]
struct CgroupHierarchy {
    role: HierarchyRole,
    /// Mount point: the topmost group to be seen.
    top: PathBuf,
    /// Group that this process is in.
    base: PathBuf,
}

/// Limits that the kernel can enforce here, and by which version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupSupport {
    /// `v2`, `v1`, `hybrid` or `none`.
    pub layout: String,
    /// By what memory is limited: `v1`, `v2` or nothing.
    pub memory: Option<String>,
    /// By what the number of processes is limited.
    pub pids: Option<String>,
    /// By what each command gets an equal share of the processor.
    pub cpu: Option<String>,
    /// By what CPU time is measured.
    pub cpu_time: Option<String>,
}

impl CgroupSupport {
    /// Returns whether untrusted code can be held: memory and number of processes.
    pub fn is_sufficient(&self) -> bool {
        self.memory.is_some() && self.pids.is_some()
    }
}

/// The parent group of a server in one hierarchy.
#[derive(Debug)]
struct ParentGroup {
    role: HierarchyRole,
    path: PathBuf,
    fd: OwnedFd,
    /// The group that it is in.
    base: OwnedFd,
    /// Controllers that version 2 gives to groups of commands.
    controllers: Vec<String>,
}

/// The parent groups of one server, open. Removed with everything below when dropped.
#[derive(Debug)]
pub(crate) struct ParentGroups {
    dirs: Vec<ParentGroup>,
    name: String,
    /// True if version 2 carries the memory and pids controllers here.
    pub(crate) unified_limits: bool,
    pub(crate) support: CgroupSupport,
}

impl ParentGroups {
    /// Finds the hierarchies, removes what dead servers have left, and makes the parent groups.
    pub(crate) fn create() -> io::Result<ParentGroups> {
        let name = ParentOwner::this_process()?.group_name();
        let mut parents = ParentGroups {
            dirs: Vec::new(),
            name: name.clone(),
            unified_limits: false,
            support: CgroupSupport::default(),
        };
        let hierarchies = discover()?;
        let mut twins = false;
        for hierarchy in hierarchies {
            // `cpu` and `cpuacct` are commonly mounted as one: one group then serves both.
            let twin = parents.dirs.iter_mut().find(|d| d.path.parent() == Some(&hierarchy.base));
            if let (Some(twin), HierarchyRole::CpuAccount) = (twin, hierarchy.role) {
                twin.role = HierarchyRole::CpuAccount;
                twins = true;
                parents.support.cpu_time = Some("v1".into());
                continue;
            }
            match open_parent(&hierarchy, &name) {
                Ok(parent) => {
                    parents.note(&parent);
                    parents.dirs.push(parent);
                }
                // Not ours to write: an ordinary user, or a container without delegation.
                Err(error) => {
                    tracing::debug!(path = %hierarchy.base.display(), %error, "control group not usable");
                }
            }
        }
        // With version 2 the CPU account of version 1 is not needed; two sources would cost twice.
        if parents.dirs.iter().any(|d| d.role == HierarchyRole::Unified) {
            let spare = parents.dirs.iter().position(|d| d.role == HierarchyRole::CpuAccount);
            if let (Some(at), false) = (spare, twins) {
                fs::remove_dir(parents.dirs.swap_remove(at).path)?;
            }
            parents.support.cpu_time = Some("v2".into());
        }
        let v1 = parents.dirs.iter().any(|d| d.role != HierarchyRole::Unified);
        let v2 = parents.dirs.iter().any(|d| d.role == HierarchyRole::Unified);
        parents.support.layout = match (v1, v2) {
            (true, true) => "hybrid",
            (true, false) => "v1",
            (false, true) => "v2",
            (false, false) => "none",
        }
        .into();
        Ok(parents)
    }

    fn note(&mut self, parent: &ParentGroup) {
        let has = |wanted: &str| parent.controllers.iter().any(|have| have == wanted);
        let support = &mut self.support;
        match parent.role {
            HierarchyRole::Unified => {
                self.unified_limits = LIMITS.iter().all(|controller| has(controller));
                if self.unified_limits {
                    support.memory = Some("v2".into());
                    support.pids = Some("v2".into());
                }
                if has("cpu") {
                    support.cpu = Some("v2".into());
                }
                support.cpu_time = Some("v2".into());
            }
            HierarchyRole::Memory => support.memory = Some("v1".into()),
            HierarchyRole::Pids => support.pids = Some("v1".into()),
            HierarchyRole::Cpu => support.cpu = Some("v1".into()),
            HierarchyRole::CpuAccount => {
                support.cpu_time.get_or_insert_with(|| "v1".into());
            }
        }
    }

    /// The open parent groups and what they are in, to hand to a spawner.
    pub(crate) fn handles(&self) -> Vec<(HierarchyRole, BorrowedFd<'_>, BorrowedFd<'_>)> {
        self.dirs.iter().map(|d| (d.role, d.fd.as_fd(), d.base.as_fd())).collect()
    }

    /// Name of the parent groups, the same in every hierarchy.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Kills and removes the groups of one spawner, which is dead.
    pub(crate) fn remove_spawner(&self, spawner: u32) {
        let prefix = format!("s{spawner}-");
        for parent in &self.dirs {
            remove_children(&parent.path, &prefix);
        }
    }
}

impl Drop for ParentGroups {
    fn drop(&mut self) {
        self.remove();
    }
}

impl ParentGroups {
    /// Removes the parent groups with everything in them. Harmless when they are gone.
    pub(crate) fn remove(&self) {
        for parent in &self.dirs {
            remove_children(&parent.path, "");
            if let Err(error) = remove_group(&parent.path) {
                tracing::warn!(path = %parent.path.display(), %error, "control group left behind");
            }
            if let (HierarchyRole::Unified, Err(error)) =
                (parent.role, leave_leaf(parent.base.as_fd()))
            {
                tracing::warn!(%error, "control group of the server left behind");
            }
        }
    }
}

/// Finds the mounted hierarchies and this process's own group in each.
fn discover() -> io::Result<Vec<CgroupHierarchy>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let own = fs::read_to_string("/proc/self/cgroup")?;
    Ok(parse(&mounts, &own))
}

/// The pure part of [`discover`]: `/proc/self/mountinfo` and `/proc/self/cgroup` in, bases out.
fn parse(mounts: &str, own: &str) -> Vec<CgroupHierarchy> {
    let mut found: Vec<CgroupHierarchy> = Vec::new();
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let before: Vec<&str> = before.split(' ').collect();
        let after: Vec<&str> = after.split(' ').collect();
        let (Some(root), Some(point), Some(kind)) = (before.get(3), before.get(4), after.first())
        else {
            continue;
        };
        let options: Vec<&str> = after.get(2).map_or(Vec::new(), |o| o.split(',').collect());
        let roles: &[(HierarchyRole, &str)] = match *kind {
            "cgroup2" => &[(HierarchyRole::Unified, "")],
            "cgroup" => &[
                (HierarchyRole::Memory, "memory"),
                (HierarchyRole::Pids, "pids"),
                (HierarchyRole::Cpu, "cpu"),
                (HierarchyRole::CpuAccount, "cpuacct"),
            ],
            _ => &[],
        };
        for (role, controller) in roles {
            let matches = *role == HierarchyRole::Unified || options.contains(controller);
            if !matches || found.iter().any(|h| h.role == *role) {
                continue;
            }
            let Some(group) = own_group(own, controller) else { continue };
            // In a container the mount may show only a part of the tree, named by `root`.
            let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
            let base = Path::new(point).join(below.strip_prefix("/").unwrap_or(below));
            found.push(CgroupHierarchy { role: *role, top: PathBuf::from(point), base });
        }
    }
    found
}

/// This process's group in the hierarchy with that controller; the empty name is version 2.
fn own_group<'a>(own: &'a str, controller: &str) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_it = if controller.is_empty() {
            controllers.is_empty()
        } else {
            controllers.split(',').any(|c| c == controller)
        };
        is_it.then_some(path)
    })
}

/// Makes and opens the parent group in a hierarchy, at the first site where that is possible.
fn open_parent(hierarchy: &CgroupHierarchy, name: &str) -> io::Result<ParentGroup> {
    let sites = match hierarchy.role {
        HierarchyRole::Unified => sites(&hierarchy.base, &hierarchy.top)?,
        HierarchyRole::Memory
        | HierarchyRole::Pids
        | HierarchyRole::Cpu
        | HierarchyRole::CpuAccount => {
            vec![ParentSite { path: hierarchy.base.clone(), way: ControllerSetup::AsIs }]
        }
    };
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for site in sites {
        match open_at(hierarchy.role, &site, name) {
            Ok(parent) => return Ok(parent),
            Err(error) => {
                tracing::debug!(path = %site.path.display(), %error, "no group can be made here");
                last = error;
            }
        }
    }
    Err(last)
}

/// Makes and opens the parent group at a site. What was begun is undone when that fails: another
/// process may have come into the group meanwhile.
fn open_at(role: HierarchyRole, site: &ParentSite, name: &str) -> io::Result<ParentGroup> {
    sweep(&site.path);
    let base: OwnedFd = fs::File::open(&site.path)?.into();
    let path = site.path.join(name);
    let made = prepare(base.as_fd(), site.way).and_then(|()| make_parent(role, &path));
    match made {
        Ok((fd, controllers)) => Ok(ParentGroup { role, path, fd, base, controllers }),
        Err(error) => {
            if path.exists() {
                remove_group(&path)?;
            }
            if site.way == ControllerSetup::Leaf {
                leave_leaf(base.as_fd())?;
            }
            Err(error)
        }
    }
}

/// Makes and opens a parent group. Also returns the controllers that groups of commands have in it.
fn make_parent(role: HierarchyRole, path: &Path) -> io::Result<(OwnedFd, Vec<String>)> {
    fs::create_dir(path)?;
    let fd: OwnedFd = fs::File::open(path)?.into();
    // Held as long as this process lives, and by nobody else: the name is this process's.
    if !try_lock(fd.as_fd(), LockMode::Exclusive)? {
        return Err(io::Error::from(io::ErrorKind::WouldBlock));
    }
    let controllers = match role {
        // They get what the parent got.
        HierarchyRole::Unified => enable(fd.as_fd()).and_then(|()| subtree(fd.as_fd()))?,
        HierarchyRole::Memory
        | HierarchyRole::Pids
        | HierarchyRole::Cpu
        | HierarchyRole::CpuAccount => Vec::new(),
    };
    if path.join("cpu.shares").exists() {
        fs::write(path.join("cpu.shares"), (SHARES_PER_CORE * u64::from(sys::cpus())).to_string())?;
    }
    Ok((fd, controllers))
}

/// Share of the processor of all sandboxes of a server together, for each core (version 1): as much
/// as one process of the host that is always busy. The kernel's default is one such process in
/// total.
const SHARES_PER_CORE: u64 = 1024;
/// Share of a command that begins (version 1).
const SHARES_WHOLE: u32 = 1024;
/// Whole weight of version 2.
const WEIGHT_WHOLE: u32 = 100;
/// Least share that both versions accept: 2 in version 1, 1 in version 2.
const SHARE_MIN: u32 = 2;
/// Share of a command that has had its turn, an eighth of a new one's (version 1, where 1024 is
/// whole).
const SHARES_BACKED_OFF: &[u8] = b"128";
/// Reduced weight of version 2, where 100 is whole.
const WEIGHT_BACKED_OFF: &[u8] = b"12";

/// Part of the processor that a group gets beside others (`cpu.shares` in
/// <https://docs.kernel.org/scheduler/sched-design-CFS.html>, `cpu.weight` in
/// <https://docs.kernel.org/admin-guide/cgroup-v2.html>).
#[derive(Debug)]
pub(crate) struct CpuShare {
    file: OwnedFd,
    /// Value of a whole share.
    whole: u32,
    /// Value of one that has had its turn.
    backed_off: &'static [u8],
}

impl CpuShare {
    /// Gives the group one of `parts` equal parts of a whole share.
    pub(crate) fn divide(&self, parts: u32) -> io::Result<()> {
        let share = (self.whole / parts.max(1)).max(SHARE_MIN);
        sys::write_all(self.file.as_fd(), share.to_string().as_bytes())
    }
}

/// Removes parent groups of servers that are no longer alive.
fn sweep(base: &Path) {
    let (Ok(entries), Ok(own)) = (fs::read_dir(base), ParentOwner::this_process()) else { return };
    for entry in entries.flatten() {
        let owner = entry.file_name().to_str().and_then(ParentOwner::parse);
        if owner.is_none_or(|owner| owner.is_alive(own, &entry.path())) {
            continue;
        }
        remove_children(&entry.path(), "");
        if let Err(error) = remove_group(&entry.path()) {
            tracing::warn!(path = %entry.path().display(), %error, "stale control group not removed");
        }
    }
}

/// Removes the groups directly below `parent` whose names begin with `prefix`.
fn remove_children(parent: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_group = entry.file_type().is_ok_and(|t| t.is_dir());
        if is_group && entry.file_name().to_str().is_some_and(|n| n.starts_with(prefix)) {
            let path = entry.path();
            if let Err(error) = remove_group(&path) {
                tracing::warn!(path = %path.display(), %error, "control group not removed");
            }
        }
    }
}

/// Kills what is in a group and removes it. Its processes may still be dying, so it is tried for
/// [`REMOVAL_TRIES`] rounds.
fn remove_group(path: &Path) -> io::Result<()> {
    let mut last = None;
    for _ in 0..REMOVAL_TRIES {
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => last = Some(error),
        }
        // Version 2 kills by one write; version 1 has no such file, and its processes die with the
        // pid namespace that the dead spawner's end has already torn down.
        let _absent_on_v1 = fs::write(path.join("cgroup.kill"), "1");
        sys::poll(&[], Some(REMOVAL_INTERVAL))?;
    }
    Err(last.unwrap_or_else(|| io::Error::other("not removed")))
}

/// Number of times that the removal of a group is tried.
const REMOVAL_TRIES: u32 = 600;
/// Time between two attempts.
const REMOVAL_INTERVAL: Duration = Duration::from_millis(5);

// ---- one command -------------------------------------------------------------------------------

/// The groups of one command, one in each hierarchy, open.
#[derive(Debug)]
pub(crate) struct CommandGroups {
    dirs: Vec<(HierarchyRole, OwnedFd)>,
    unified_limits: bool,
}

/// Result of removing the groups of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupRemoval {
    /// There were none.
    Absent,
    /// They are gone.
    Done,
    /// A process is still dying in one of them.
    Busy,
}

/// Counters of the kernel for a command.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupCounts {
    pub(crate) memory_peak: u64,
    pub(crate) oom_kills: u64,
    pub(crate) processes_peak: u64,
}

impl CommandGroups {
    /// Makes the groups named `name` below the given parents, beside the standing ones of the slot.
    pub(crate) fn create(
        parents: &[(HierarchyRole, OwnedFd)],
        standing: &[(HierarchyRole, OwnedFd)],
        unified_limits: bool,
        name: &CStr,
    ) -> io::Result<CommandGroups> {
        let mut groups = CommandGroups { dirs: Vec::with_capacity(parents.len()), unified_limits };
        for (role, parent) in parents.iter().filter(|(role, _)| !role.is_standing(unified_limits)) {
            groups.dirs.push((*role, make(parent.as_fd(), name)?));
        }
        for (role, group) in standing {
            groups.dirs.push((*role, group.try_clone()?));
        }
        Ok(groups)
    }

    /// Makes the groups that stay with a slot: those that limit nothing, so that nothing of one
    /// command is left in them for the next.
    pub(crate) fn create_standing(
        parents: &[(HierarchyRole, OwnedFd)],
        unified_limits: bool,
        name: &CStr,
    ) -> io::Result<Vec<(HierarchyRole, OwnedFd)>> {
        parents
            .iter()
            .filter(|(role, _)| role.is_standing(unified_limits))
            .map(|(role, parent)| match make(parent.as_fd(), name) {
                // Left by a spawner that was killed, or by an attempt that failed half-way. It
                // limits nothing and is ours by its name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    Ok((*role, open(parent.as_fd(), name)?))
                }
                made => Ok((*role, made?)),
            })
            .collect()
    }

    /// Removes the groups named `name`.
    pub(crate) fn remove(parents: &[(HierarchyRole, OwnedFd)], name: &CStr) -> GroupRemoval {
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

    fn dir(&self, role: HierarchyRole) -> Option<BorrowedFd<'_>> {
        self.dirs.iter().find(|(r, _)| *r == role).map(|(_, fd)| fd.as_fd())
    }

    /// Returns whether there are none: no control group is usable here.
    pub(crate) fn is_empty(&self) -> bool {
        self.dirs.is_empty()
    }

    /// Returns what they do not limit.
    pub(crate) fn unlimited(&self) -> UnlimitedResources {
        UnlimitedResources {
            memory: self.dir(HierarchyRole::Memory).is_none() && !self.unified_limits,
            processes: self.dir(HierarchyRole::Pids).is_none() && !self.unified_limits,
        }
    }

    /// Their descriptors' numbers, for who closes all others.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.dirs.iter().map(|(_, fd)| fd.as_raw_fd())
    }

    /// The version 2 group, to start a process in.
    pub(crate) fn unified(&self) -> Option<BorrowedFd<'_>> {
        self.dir(HierarchyRole::Unified)
    }

    /// Returns whether CPU time of all processes together can be read.
    pub(crate) fn counts_cpu(&self) -> bool {
        self.dir(HierarchyRole::Unified).or(self.dir(HierarchyRole::CpuAccount)).is_some()
    }

    /// Sets the limits of a command. Swap is never allowed beside memory.
    pub(crate) fn set_limits(&self, memory_bytes: u64, processes: u64) -> io::Result<()> {
        let memory = memory_bytes.to_string();
        let processes = processes.to_string();
        if let Some(dir) = self.dir(HierarchyRole::Memory) {
            write(dir, c"memory.limit_in_bytes", &memory)?;
            optional(write(dir, c"memory.memsw.limit_in_bytes", &memory))?;
        }
        if let Some(dir) = self.dir(HierarchyRole::Pids) {
            write(dir, c"pids.max", &processes)?;
        }
        if let (Some(dir), true) = (self.dir(HierarchyRole::Unified), self.unified_limits) {
            write(dir, c"memory.max", &memory)?;
            optional(write(dir, c"memory.swap.max", "0"))?;
            write(dir, c"memory.oom.group", "1")?;
            write(dir, c"pids.max", &processes)?;
        }
        Ok(())
    }

    /// Returns where to write what, for a command to take less of the processor than younger ones;
    /// nothing where the processor is not shared by groups.
    ///
    /// Also gives the command its whole share to begin with, because an earlier one of the slot may
    /// have backed off.
    pub(crate) fn backing_off(&self) -> io::Result<Option<(OwnedFd, &'static [u8])>> {
        let Some(share) = self.cpu_share()? else { return Ok(None) };
        let backed_off = share.backed_off;
        Ok(Some((share.file, backed_off)))
    }

    /// Opens the file that says which part of the processor the group gets beside others, and gives
    /// it a whole one; none where the processor is not shared by groups.
    pub(crate) fn cpu_share(&self) -> io::Result<Option<CpuShare>> {
        let v1 = self.dir(HierarchyRole::Cpu).or(self.dir(HierarchyRole::CpuAccount));
        let v1 = v1.map(|dir| (dir, c"cpu.shares", SHARES_WHOLE, SHARES_BACKED_OFF));
        let v2 = self.dir(HierarchyRole::Unified).filter(|_| self.unified_limits);
        let v2 = v2.map(|dir| (dir, c"cpu.weight", WEIGHT_WHOLE, WEIGHT_BACKED_OFF));
        for (dir, name, whole, backed_off) in v1.into_iter().chain(v2) {
            // Where `cpuacct` stands alone, and in version 2, the file may be missing.
            if let Ok(file) = sys::openat(dir, name, libc::O_WRONLY, 0) {
                let share = CpuShare { file, whole, backed_off };
                share.divide(1)?;
                return Ok(Some(share));
            }
        }
        Ok(None)
    }

    /// Opens what a process with one thread must write `0` to in order to enter the version 1
    /// groups. That is `tasks`: to move a whole process, the kernel waits until no other forks or
    /// ends, which takes about ten milliseconds when nobody has asked for that lately.
    pub(crate) fn entrances(&self) -> io::Result<Vec<OwnedFd>> {
        self.dirs
            .iter()
            .filter(|(role, _)| *role != HierarchyRole::Unified)
            .map(|(_, dir)| sys::openat(dir.as_fd(), c"tasks", libc::O_WRONLY, 0))
            .collect()
    }

    /// Returns the entrance of the version 2 group, where there is one, for a process that was not
    /// started in it. There only whole processes move.
    pub(crate) fn unified_entrance(&self) -> io::Result<Option<OwnedFd>> {
        let open = |dir| sys::openat(dir, c"cgroup.procs", libc::O_WRONLY, 0);
        self.dir(HierarchyRole::Unified).map(open).transpose()
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

    /// CPU time of all processes of the group so far, those of earlier commands included.
    pub(crate) fn cpu(&self) -> io::Result<Duration> {
        if let Some(dir) = self.dir(HierarchyRole::Unified) {
            let micros = field(&read(dir, c"cpu.stat")?, "usage_usec");
            return micros
                .map(Duration::from_micros)
                .ok_or_else(|| io::Error::other("cpu.stat has no usage_usec"));
        }
        if let Some(dir) = self.dir(HierarchyRole::CpuAccount) {
            return Ok(Duration::from_nanos(number(&read(dir, c"cpuacct.usage")?)));
        }
        Err(io::Error::other("no control group counts CPU time"))
    }

    /// Processes killed for lack of memory so far.
    pub(crate) fn oom_kills(&self) -> u64 {
        if let Some(dir) = self.dir(HierarchyRole::Memory) {
            return read(dir, c"memory.oom_control")
                .ok()
                .and_then(|t| field(&t, "oom_kill"))
                .unwrap_or(0);
        }
        if let (Some(dir), true) = (self.dir(HierarchyRole::Unified), self.unified_limits) {
            return read(dir, c"memory.events").map_or(0, |events| killed(&events));
        }
        0
    }

    /// Peaks and counts, when the command has ended. What the kernel does not tell is 0.
    pub(crate) fn counted(&self) -> GroupCounts {
        let mut counted = GroupCounts { oom_kills: self.oom_kills(), ..GroupCounts::default() };
        let get = |dir, name| read(dir, name).map_or(0, |text| number(&text));
        if let Some(dir) = self.dir(HierarchyRole::Memory) {
            counted.memory_peak = get(dir, c"memory.max_usage_in_bytes");
        }
        if let Some(dir) = self.dir(HierarchyRole::Pids) {
            counted.processes_peak = get(dir, c"pids.peak");
        }
        if let (Some(dir), true) = (self.dir(HierarchyRole::Unified), self.unified_limits) {
            counted.memory_peak = get(dir, c"memory.peak");
            counted.processes_peak = get(dir, c"pids.peak");
        }
        counted
    }
}

fn make(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    sys::mkdirat(parent, name, 0o755)?;
    open(parent, name)
}

fn open(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    sys::openat(parent, name, libc::O_DIRECTORY | libc::O_RDONLY, 0)
}

/// A kernel without swap accounting has no such file; then there is no swap to limit either.
fn optional(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn write(dir: BorrowedFd<'_>, name: &CStr, value: &str) -> io::Result<()> {
    let fd = sys::openat(dir, name, libc::O_WRONLY, 0)?;
    sys::write_all(fd.as_fd(), value.as_bytes())
}

fn read(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<String> {
    let fd = sys::openat(dir, name, libc::O_RDONLY, 0)?;
    let mut buf = [0u8; 1024];
    let n = sys::read(fd.as_fd(), &mut buf)?;
    Ok(String::from_utf8_lossy(buf.get(..n).unwrap_or(&[])).into_owned())
}

/// The number behind `name ` in a file of such lines.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| number(value))
    })
}

/// Processes killed for lack of memory by `memory.events`. Where all of a group are killed
/// together, the kernel counts the one that it had chosen twice.
fn killed(events: &str) -> u64 {
    let twice = field(events, "oom_group_kill").unwrap_or(0);
    match field(events, "oom_kill").unwrap_or(0) {
        0 => 0,
        counted => counted.saturating_sub(twice).max(1),
    }
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or(0)
}

/// Name of the standing groups of a slot.
pub(crate) fn standing_name(spawner: u32, slot: u32) -> CString {
    CString::new(format!("s{spawner}-slot{slot}")).unwrap_or_default()
}

/// Name of the group of a command: spawner, sandbox, command.
pub(crate) fn group_name(spawner: u32, sandbox: u64, command: u32) -> CString {
    CString::new(format!("s{spawner}-{sandbox}-{command}")).unwrap_or_default()
}

#[cfg(test)]
mod tests;
