//! Capacity and privileges of this machine.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns whether this process has root's powers: its effective user id is 0.
pub(crate) fn is_root() -> bool {
    user_id() == Some(0)
}

/// Returns the effective user id (the second number of `Uid:`, proc_pid_status(5)).
pub(crate) fn user_id() -> Option<u32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Cores and memory that this process and its sandboxes may use.
pub(crate) fn capacity() -> executions::HostCapacity {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let total = memory_total().unwrap_or(1 << 30);
    let memory_bytes = group_memory_limits().into_iter().fold(total, u64::min);
    executions::HostCapacity { cores, memory_bytes }
}

/// Returns `MemTotal` of `/proc/meminfo`, in bytes.
fn memory_total() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the memory limits of this process's control groups, of either version, and of all their
/// ancestors.
fn group_memory_limits() -> Vec<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut limits = Vec::new();
    for line in groups.lines() {
        // `hierarchy:controllers:path`, where version 2 is hierarchy 0 without controllers.
        let mut parts = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (kind, file) = match (id, controllers) {
            ("0", "") => ("cgroup2", "memory.max"),
            (_, controllers) if controllers.split(',').any(|it| it == "memory") => {
                ("cgroup", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        if let Some(mount) = mount_point(&mounts, kind) {
            limits.extend(limits_upwards(&mount, path, file));
        }
    }
    limits
}

/// Returns the mount point of the hierarchy: of version 2, or of version 1's `memory`.
fn mount_point(mounts: &str, kind: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (point, found, options) = (fields.nth(1)?, fields.next()?, fields.next()?);
        let fits = kind == "cgroup2" || options.split(',').any(|option| option == "memory");
        (found == kind && fits).then(|| PathBuf::from(point))
    })
}

fn limits_upwards(mount: &Path, path: &str, file: &str) -> Vec<u64> {
    let group = mount.join(path.trim_start_matches('/'));
    let groups = group.ancestors().take_while(|group| group.starts_with(mount));
    // `max`, or a number near 2^63, means that there is no limit; only the minimum is used.
    groups
        .filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    //! This machine, and constructed mounts.

    use super::*;

    #[test]
    fn this_machine_has_something() {
        let capacity = capacity();
        assert!(capacity.cores >= 1);
        assert!(capacity.memory_bytes > 16 << 20 && capacity.memory_bytes < 1 << 50);
        assert!(user_id().is_some());
    }

    #[test]
    fn hierarchies_are_found_among_the_mounts() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nosuid 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n";
        let at = |kind| mount_point(mounts, kind).unwrap();
        assert_eq!(at("cgroup2"), Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(at("cgroup"), Path::new("/sys/fs/cgroup/memory"));
        assert_eq!(mount_point("proc /proc proc rw 0 0\n", "cgroup2"), None);
    }

    #[test]
    fn the_limits_of_all_groups_above_count() {
        let root = std::env::temp_dir().join(format!("cove-host-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/memory.max"), "1000\n").unwrap();
        fs::write(root.join("a/b/memory.max"), "max\n").unwrap();
        assert_eq!(limits_upwards(&root, "/a/b", "memory.max"), [1000]);
        fs::remove_dir_all(&root).unwrap();
    }
}
