//! Sites in the version 2 hierarchy with controllers, and their setup.
//!
//! # References
//! - <https://docs.kernel.org/admin-guide/cgroup-v2.html>

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use super::command::{optional, read, write};
use super::{REMOVAL_INTERVAL, REMOVAL_TRIES};
use crate::sys;

/// Group of the server itself, because version 2 requires processes to be in leaves.
const LEAF: &CStr = c"cove-server";

/// Controllers of version 2 that limit commands.
const WANTED: [&str; 3] = ["memory", "pids", "cpu"];
/// Controllers without which untrusted code cannot be confined.
pub(super) const LIMITS: [&str; 2] = ["memory", "pids"];

/// A group below which a parent group could be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParentSite {
    pub(super) path: PathBuf,
    pub(super) way: ControllerSetup,
}

/// Setup that a site needs before its groups have controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControllerSetup {
    /// None: the groups already have all available controllers.
    AsIs,
    /// Enable the controllers.
    Enable,
    /// Move this process into a leaf, then enable the controllers.
    Leaf,
}

/// Returns the possible sites of the parent group in version 2, the best first.
///
/// The last resort is the group of this process without setup: no limits, but exact CPU time. It is
/// the only site if the controllers belong to version 1.
pub(super) fn sites(base: &Path, top: &Path) -> io::Result<Vec<ParentSite>> {
    let list = |group: &Path, file: &str| -> io::Result<Vec<String>> {
        let text = fs::read_to_string(group.join(file))?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    };
    let limits = |list: &[String]| LIMITS.iter().all(|c| list.iter().any(|have| have == c));
    let mut sites = Vec::new();
    let mut add = |path: &Path, way| sites.push(ParentSite { path: path.to_path_buf(), way });
    for group in base.ancestors().take_while(|group| group.starts_with(top)) {
        let is_very_top = !group.join("cgroup.type").exists();
        if is_very_top {
            if group == base || limits(&list(group, "cgroup.controllers")?) {
                add(group, ControllerSetup::Enable);
            }
        } else if limits(&list(group, "cgroup.subtree_control")?) {
            add(group, ControllerSetup::AsIs);
        } else if group == base && limits(&list(group, "cgroup.controllers")?) {
            // With other processes in the group the kernel would refuse the controllers, and the
            // server may not move those.
            let own = [std::process::id().to_string()];
            if list(group, "cgroup.procs")? == own {
                add(group, ControllerSetup::Leaf);
            }
        }
    }
    add(base, ControllerSetup::AsIs);
    Ok(sites)
}

/// Performs the setup of a site.
pub(super) fn prepare(base: BorrowedFd<'_>, way: ControllerSetup) -> io::Result<()> {
    match way {
        ControllerSetup::AsIs => Ok(()),
        ControllerSetup::Enable => enable(base),
        ControllerSetup::Leaf => enter_leaf(base).and_then(|()| enable(base)),
    }
}

/// Enables the available controllers for the children of a group. Its file lists only these.
pub(super) fn enable(group: BorrowedFd<'_>) -> io::Result<()> {
    let (available, enabled) = (read(group, c"cgroup.controllers")?, subtree(group)?);
    for controller in available.split_whitespace().filter(|c| WANTED.contains(c)) {
        if !enabled.iter().any(|have| have == controller) {
            write(group, c"cgroup.subtree_control", &format!("+{controller}"))?;
        }
    }
    Ok(())
}

/// Returns the wanted controllers that are enabled for children of a group.
pub(super) fn subtree(group: BorrowedFd<'_>) -> io::Result<Vec<String>> {
    let enabled = read(group, c"cgroup.subtree_control")?;
    Ok(enabled.split_whitespace().filter(|c| WANTED.contains(c)).map(str::to_owned).collect())
}

/// Moves this process into the leaf below a group.
fn enter_leaf(base: BorrowedFd<'_>) -> io::Result<()> {
    match sys::mkdirat(base, LEAF, 0o755) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let leaf = sys::openat(base, LEAF, libc::O_DIRECTORY | libc::O_RDONLY, 0)?;
    write(leaf.as_fd(), c"cgroup.procs", "0").inspect_err(|_| {
        let _another_one_uses_it = sys::rmdirat(base, LEAF);
    })
}

/// Reverts [`enter_leaf`]: disables the controllers, moves this process out of the leaf, kills the
/// other processes in it, and removes it. Does nothing if this process is not in a leaf, or while
/// another server has groups here: that server does it at its end.
///
/// Otherwise no process could be started in the group again: it accepts none while its children
/// have controllers.
pub(crate) fn leave_leaf(base: BorrowedFd<'_>) -> io::Result<()> {
    let leaf = match sys::openat(base, LEAF, libc::O_DIRECTORY | libc::O_RDONLY, 0) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let list = sys::openat(leaf.as_fd(), c"cgroup.procs", libc::O_RDONLY, 0)?;
    let inside = io::read_to_string(fs::File::from(list))?;
    let own = std::process::id().to_string();
    if !inside.lines().any(|process| process == own) {
        return Ok(());
    }
    for controller in subtree(base)? {
        match write(base, c"cgroup.subtree_control", &format!("-{controller}")) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Ok(()),
            other => other?,
        }
    }
    write(base, c"cgroup.procs", "0")?;
    let mut last = None;
    for _ in 0..REMOVAL_TRIES {
        match sys::rmdirat(base, LEAF) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => last = Some(error),
            _ => return Ok(()),
        }
        // Remaining spawners have no more work: the groups of their sandboxes are removed.
        optional(write(leaf.as_fd(), c"cgroup.kill", "1"))?;
        sys::poll(&[], Some(REMOVAL_INTERVAL))?;
    }
    Err(last.unwrap_or_else(|| io::Error::other("not removed")))
}
