//! Sites where controllers of version 2 are available, and their setup.
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

/// Group of the server itself, where version 2 wants processes in leaves only.
const LEAF: &CStr = c"cove-server";

/// Controllers of version 2 that commands are limited by.
const WANTED: [&str; 3] = ["memory", "pids", "cpu"];
/// Controllers without which untrusted code cannot be held.
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
    /// None: they have all that they will ever have.
    AsIs,
    /// Ask for them.
    Enable,
    /// Move this process into a leaf, then ask for them.
    Leaf,
}

/// Returns where in version 2 the parent group could be made, the best first.
///
/// The last resort is the group of this process as it is: no limits, but exact CPU time. It is all
/// there is where the controllers are version 1's.
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
            // With others in the group the controllers would be refused, and they are not ours to
            // move.
            let own = [std::process::id().to_string()];
            if list(group, "cgroup.procs")? == own {
                add(group, ControllerSetup::Leaf);
            }
        }
    }
    add(base, ControllerSetup::AsIs);
    Ok(sites)
}

/// Does what it takes before groups at a site have controllers.
pub(super) fn prepare(base: BorrowedFd<'_>, way: ControllerSetup) -> io::Result<()> {
    match way {
        ControllerSetup::AsIs => Ok(()),
        ControllerSetup::Enable => enable(base),
        ControllerSetup::Leaf => enter_leaf(base).and_then(|()| enable(base)),
    }
}

/// Gives the children of a group the controllers that it has. Absent ones are absent from its file.
pub(super) fn enable(group: BorrowedFd<'_>) -> io::Result<()> {
    let (available, enabled) = (read(group, c"cgroup.controllers")?, subtree(group)?);
    for controller in available.split_whitespace().filter(|c| WANTED.contains(c)) {
        if !enabled.iter().any(|have| have == controller) {
            write(group, c"cgroup.subtree_control", &format!("+{controller}"))?;
        }
    }
    Ok(())
}

/// The wanted controllers that children of a group have.
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

/// Makes a group as it was before [`enter_leaf`]: takes the controllers back, moves this process
/// out of the leaf, ends what else is in there, and removes it. Does nothing where this process is
/// not in a leaf, nor while another server has groups here: that one does it at its end.
///
/// Without this nothing could be started in the group again: it takes no process while its children
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
        // Spawners, which have nothing left to do: the groups of their sandboxes are gone.
        optional(write(leaf.as_fd(), c"cgroup.kill", "1"))?;
        sys::poll(&[], Some(REMOVAL_INTERVAL))?;
    }
    Err(last.unwrap_or_else(|| io::Error::other("not removed")))
}
