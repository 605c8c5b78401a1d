//! Host invariants: state outside the sandboxes that no program may change.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::eventually;
use crate::process;

/// Allowed growth of shared memory: no program's file, but some use by other processes.
const SHARED_SLACK_BYTES: u64 = 16 << 20;
/// Allowed growth of memory in use: the server's caches, and the kernel's records of removed
/// control groups, which it frees when it needs the memory.
const HELD_SLACK_BYTES: u64 = 64 << 20;
/// Memory that the kernel cannot reclaim, by the names of `/proc/meminfo`. Not `MemAvailable`,
/// which varies by hundreds of megabytes with the page cache of preceding compilations.
const HELD: [&str; 6] = ["AnonPages", "Shmem", "SUnreclaim", "KernelStack", "PageTables", "Percpu"];
/// Network namespaces are reused, one per place, and places are filled on demand: a few more than
/// before are no leak, one per run would be.
const NAMESPACES_SLACK: usize = 8;
/// Hierarchies in which Cove creates groups: version 1 controllers, and both locations of version
/// 2.
const HIERARCHIES: &[&str] = &["memory", "pids", "cpu", "cpuacct", "freezer", "unified", "."];

/// Scope of the comparison.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// The server, whose descriptors and descendants count. Without one, only the host's state
    /// counts.
    pub server: Option<u32>,
    /// Files that no run may change.
    pub markers: Vec<PathBuf>,
}

/// State of the host at one time.
#[derive(Clone, Debug)]
pub struct Host {
    watch: Watch,
    groups: BTreeSet<PathBuf>,
    mounts: usize,
    namespaces: usize,
    processes: usize,
    descriptors: usize,
    /// Unreclaimable memory, without that of processes other than the server's.
    held_bytes: u64,
    shared_bytes: u64,
    hostname: String,
    markers: Vec<Option<Vec<u8>>>,
}

impl Host {
    /// Records the current state.
    #[must_use]
    pub fn snapshot(watch: &Watch) -> Host {
        Host {
            groups: groups(watch.server),
            mounts: lines("/proc/self/mountinfo"),
            namespaces: process::network_namespaces(watch.server).len(),
            processes: watch.server.map_or(0, |pid| process::descendants(pid).len()),
            descriptors: watch.server.map_or(0, process::descriptors),
            // Memory of other processes is subtracted.
            held_bytes: HELD
                .iter()
                .map(|name| meminfo(name))
                .sum::<u64>()
                .saturating_sub(process::anonymous_bytes_of_others(watch.server)),
            shared_bytes: meminfo("Shmem"),
            hostname: fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default(),
            markers: watch.markers.iter().map(|path| fs::read(path).ok()).collect(),
            watch: watch.clone(),
        }
    }

    /// Waits until the host is back in the state of this snapshot.
    ///
    /// # Errors
    /// The differences that remain after `limit`.
    pub fn returns(&self, limit: Duration) -> Result<(), String> {
        eventually(limit, || {
            let differences = self.differences(&Host::snapshot(&self.watch));
            if differences.is_empty() { Ok(()) } else { Err(differences.join("; ")) }
        })
    }

    /// Waits for the state of this snapshot; panics with the differences.
    pub fn wait_for_return(&self, limit: Duration) {
        if let Err(differences) = self.returns(limit) {
            panic!("the host is not as it was before: {differences}");
        }
    }

    /// Returns the additions in `now`, and the removals that matter.
    ///
    /// Counts may be lower: fewer processes, mounts or namespaces than before mean that a warm
    /// sandbox is being replaced, not that anything was left behind.
    #[must_use]
    pub fn differences(&self, now: &Host) -> Vec<String> {
        let mut found = Vec::new();
        let left: Vec<_> = now.groups.difference(&self.groups).collect();
        if now.groups.len() > self.groups.len() {
            found.push(format!("control groups left: {left:?}"));
        }
        let namespaces = (self.namespaces + NAMESPACES_SLACK, now.namespaces);
        for (what, (before, after)) in [
            ("mounts", (self.mounts, now.mounts)),
            ("network namespaces", namespaces),
            ("processes of the server", (self.processes, now.processes)),
            ("descriptors of the server", (self.descriptors, now.descriptors)),
        ] {
            if after > before {
                found.push(format!("{what}: at most {before} expected, {after} now"));
            }
        }
        let held = now.held_bytes.saturating_sub(self.held_bytes);
        if held > HELD_SLACK_BYTES {
            found.push(format!("memory held: {held} bytes more"));
        }
        let shared = now.shared_bytes.saturating_sub(self.shared_bytes);
        if shared > SHARED_SLACK_BYTES {
            found.push(format!("shared memory: {shared} bytes more"));
        }
        if now.hostname != self.hostname {
            found.push(format!("host name: {:?} now {:?}", self.hostname, now.hostname));
        }
        for (path, (before, after)) in
            self.watch.markers.iter().zip(self.markers.iter().zip(&now.markers))
        {
            if before != after {
                found.push(format!("{} changed", path.display()));
            }
        }
        found
    }

    /// Returns Cove's control groups at this time.
    #[must_use]
    pub fn groups(&self) -> &BTreeSet<PathBuf> {
        &self.groups
    }
}

/// Returns all groups of Cove (`cove-PID-…`) and their descendants, in every hierarchy, except
/// those of other running servers.
fn groups(server: Option<u32>) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for hierarchy in HIERARCHIES {
        let root = Path::new("/sys/fs/cgroup").join(hierarchy);
        for path in directories(&root) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let owner = name.strip_prefix("cove-").and_then(|rest| rest.split('-').next());
            let Some(owner) = owner.and_then(|owner| owner.parse().ok()) else { continue };
            if Some(owner) == server || !is_running(owner) {
                collect(path, &mut found);
            }
        }
    }
    // Like network namespaces, standing groups are created as places are filled. They belong to a
    // running server, and are left behind only by a stopped one.
    if server.is_some_and(is_running) {
        found.retain(|path| !path.to_string_lossy().contains("-slot"));
    }
    found
}

fn is_running(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn collect(path: PathBuf, found: &mut BTreeSet<PathBuf>) {
    for below in directories(&path) {
        collect(below, found);
    }
    found.insert(path);
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn lines(path: &str) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

fn meminfo(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = value.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_else(|| panic!("no {name} in /proc/meminfo")) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;

    #[test]
    fn a_changed_marker_and_lost_memory_are_differences() {
        let scratch = Scratch::new();
        let marker = scratch.file("marker", "before");
        let before = Host::snapshot(&Watch { server: None, markers: vec![marker.clone()] });
        fs::write(&marker, "after").unwrap();
        let mut after = Host::snapshot(&before.watch);
        after.held_bytes = before.held_bytes + HELD_SLACK_BYTES + 1;
        after.groups.insert(PathBuf::from("cove-1"));
        after.mounts = before.mounts + 1;
        let found = before.differences(&after);
        assert_eq!(found.len(), 4, "{found:?}");
    }
}
