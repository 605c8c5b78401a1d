//! Control groups: limits on all processes of a command together.
//!
//! Three layouts exist in the wild and all are supported: version 2 alone, version 1 alone, and
//! *hybrid*, where controllers live on version 1 and an empty version 2 tree stands beside them.
//! Hybrid takes the best of both: limits from version 1, exact CPU time and start inside the group
//! (`CLONE_INTO_CGROUP`) from version 2.
//!
//! Cove creates one parent group per server (`cove-<pid>-<start>`) below the server's own group, so
//! that a limit on the service also applies to its sandboxes, and one group per command below that.
//! It touches nothing else in the hierarchies, and leaves nothing behind.
//!
//! Version 2 gives controllers only to children of a group without processes of its own, the root
//! excepted. A server that is alone in its group moves into a leaf below it, and back at its end. A
//! server that shares its group, with a login shell for example, uses the nearest group above that
//! already delegates the controllers, or else the root; see [`sites`].
//!
//! # References
//! - <https://docs.kernel.org/admin-guide/cgroup-v1/cgroups.html>
//! - <https://docs.kernel.org/admin-guide/cgroup-v1/memory.html>

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sys;
use crate::sys::mounts::{LockMode, try_lock};

mod command;
mod group;
mod owner;
mod session;
mod unified;

use command::optional;
pub(crate) use command::{CommandGroups, CpuShare, GroupRemoval};
pub(crate) use group::{OpenGroup, SlotGroups};
use owner::ParentOwner;
pub(crate) use unified::leave_leaf;
use unified::{ControllerSetup, LIMITS, ParentSite, enable, prepare, sites, subtree};

/// Resources that no control group limits here: only per-process and per-user limits apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnlimitedResources {
    pub(crate) memory: bool,
    /// Counted by user on the whole host: two servers with the same user ids would share the count.
    /// So it is the last resort.
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
    /// Version 1 `cpuacct`: CPU time, if there is no version 2.
    CpuAccount,
}

impl HierarchyRole {
    /// Roles in the order of their numbers in messages.
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

    /// Returns whether groups of this role stay with a slot: they share out and count the
    /// processor, and limit nothing.
    fn is_standing(self, unified_limits: bool) -> bool {
        match self {
            HierarchyRole::Unified => !unified_limits,
            HierarchyRole::Cpu | HierarchyRole::CpuAccount => true,
            HierarchyRole::Memory | HierarchyRole::Pids => false,
        }
    }

    /// Returns whether groups of this role stay with a slot although they limit, as long as they
    /// can be reset. Groups of version 2 do not: their peak cannot be reset, and Linux before 6.12
    /// has no means for it at all.
    fn is_kept(self) -> bool {
        matches!(self, HierarchyRole::Memory | HierarchyRole::Pids)
    }

    pub(crate) fn from_number(number: u8) -> Option<HierarchyRole> {
        HierarchyRole::ALL.get(usize::from(number)).copied()
    }
}

/// A hierarchy in which this process may create groups.
#[derive(Clone, Debug)]
struct CgroupHierarchy {
    role: HierarchyRole,
    /// Mount point: the topmost visible group.
    top: PathBuf,
    /// Group that this process is in.
    base: PathBuf,
}

/// Limits that the kernel can enforce here, and the version that enforces each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupSupport {
    /// `v2`, `v1`, `hybrid` or `none`.
    pub layout: String,
    /// Version that limits memory: `v1`, `v2` or nothing.
    pub memory: Option<String>,
    /// Version that limits the number of processes.
    pub pids: Option<String>,
    /// Version that gives each command an equal share of the processor.
    pub cpu: Option<String>,
    /// Version that measures CPU time.
    pub cpu_time: Option<String>,
}

impl CgroupSupport {
    /// Returns whether untrusted code can be confined: memory and number of processes are limited.
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
    /// Directory that contains the group.
    base: OwnedFd,
    /// Controllers that version 2 gives to groups of commands.
    controllers: Vec<String>,
}

/// The open parent groups of one server. Dropping them removes them with all groups below.
#[derive(Debug)]
pub(crate) struct ParentGroups {
    dirs: Vec<ParentGroup>,
    name: String,
    /// True if version 2 carries the memory and pids controllers here.
    pub(crate) unified_limits: bool,
    pub(crate) support: CgroupSupport,
}

impl ParentGroups {
    /// Finds the hierarchies, removes groups of dead servers, and creates the parent groups.
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
                // No permission: an ordinary user, or a container without delegation.
                Err(error) => {
                    tracing::debug!(path = %hierarchy.base.display(), %error, "control group not usable");
                }
            }
        }
        // With version 2 the CPU account of version 1 is not needed; reading both would cost twice.
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

    /// Returns the open parent groups and their parent directories, to pass to a spawner.
    pub(crate) fn handles(&self) -> Vec<(HierarchyRole, BorrowedFd<'_>, BorrowedFd<'_>)> {
        self.dirs.iter().map(|d| (d.role, d.fd.as_fd(), d.base.as_fd())).collect()
    }

    /// Name of the parent groups, the same in every hierarchy.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Kills and removes the groups of a dead spawner.
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
    /// Removes the parent groups with everything in them. Harmless if they do not exist any more.
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

/// The pure part of [`discover`]: computes bases from `/proc/self/mountinfo` and
/// `/proc/self/cgroup`.
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

/// Returns this process's group in the hierarchy with that controller; the empty name is version 2.
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

/// Creates and opens the parent group at a site. Undoes its steps on failure: another process may
/// have entered the group meanwhile.
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

/// Creates and opens a parent group. Also returns the controllers available to its children.
fn make_parent(role: HierarchyRole, path: &Path) -> io::Result<(OwnedFd, Vec<String>)> {
    fs::create_dir(path)?;
    let fd: OwnedFd = fs::File::open(path)?.into();
    // Held for the life of this process; no other process competes, because the name is unique to
    // this one.
    if !try_lock(fd.as_fd(), LockMode::Exclusive)? {
        return Err(io::Error::from(io::ErrorKind::WouldBlock));
    }
    let controllers = match role {
        // The children receive the controllers of the parent.
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

/// Processor share of all sandboxes of a server together, for each core (version 1): equal to one
/// busy process of the host. The kernel's default is one such process in total.
const SHARES_PER_CORE: u64 = 1024;

/// Removes parent groups of dead servers.
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

/// Kills the processes of a group and removes it. Tries for [`REMOVAL_TRIES`] rounds, because
/// processes may still be dying.
fn remove_group(path: &Path) -> io::Result<()> {
    let mut last = None;
    for _ in 0..REMOVAL_TRIES {
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => last = Some(error),
        }
        // Version 2 kills with one write; version 1 has no such file, but its processes die with
        // the pid namespace, which ended with the spawner.
        let _absent_on_v1 = fs::write(path.join("cgroup.kill"), "1");
        sys::poll(&[], Some(REMOVAL_INTERVAL))?;
    }
    Err(last.unwrap_or_else(|| io::Error::other("not removed")))
}

/// Maximum number of attempts to remove a group.
const REMOVAL_TRIES: u32 = 600;
/// Interval between two attempts.
const REMOVAL_INTERVAL: Duration = Duration::from_millis(5);

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
