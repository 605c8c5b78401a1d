//! Tests of parsing the kernel's files and of the decisions based on them.

use super::command::{field, killed};
use super::owner::start_time;
use super::*;
use crate::sys::mounts::{LockMode, try_lock};

fn check(mounts: &str, own: &str, expected: &[(HierarchyRole, &str)]) {
    let found: Vec<(HierarchyRole, String)> =
        parse(mounts, own).into_iter().map(|h| (h.role, h.base.display().to_string())).collect();
    let expected: Vec<(HierarchyRole, String)> =
        expected.iter().map(|(r, p)| (*r, (*p).to_owned())).collect();
    assert_eq!(found, expected);
}

#[test]
fn hierarchies_are_found_in_every_layout() {
    check(
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
        "0::/system.slice/cove.service\n",
        &[(HierarchyRole::Unified, "/sys/fs/cgroup/system.slice/cove.service")],
    );
    check(
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
         35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
         39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
         41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        "8:pids:/\n4:memory:/api/1\n2:cpu,cpuacct:/\n0::/\n",
        &[
            (HierarchyRole::Cpu, "/sys/fs/cgroup/cpu,cpuacct/"),
            (HierarchyRole::CpuAccount, "/sys/fs/cgroup/cpu,cpuacct/"),
            (HierarchyRole::Memory, "/sys/fs/cgroup/memory/api/1"),
            (HierarchyRole::Pids, "/sys/fs/cgroup/pids/"),
            (HierarchyRole::Unified, "/sys/fs/cgroup/unified/"),
        ],
    );
    // A container that sees its own part of the tree as the root of the mount.
    check(
        "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
        "4:memory:/docker/abc\n",
        &[(HierarchyRole::Memory, "/sys/fs/cgroup/memory/")],
    );
    check("", "", &[]);
}

#[test]
fn counters_are_read_by_name() {
    let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
    assert_eq!(field(text, "oom_kill"), Some(3));
    assert_eq!(field(text, "oom"), None);
}

#[test]
fn a_group_killed_at_once_counts_its_victim_once() {
    assert_eq!(killed("oom 1\noom_kill 4\noom_group_kill 1\n"), 3);
    // The victim had ended before the others were killed.
    assert_eq!(killed("oom 1\noom_kill 1\noom_group_kill 1\n"), 1);
    assert_eq!(killed("oom 1\noom_kill 2\n"), 2);
    assert_eq!(killed("oom 0\noom_kill 0\noom_group_kill 0\n"), 0);
}

/// The files of a group that are read to find a site: path, processes, controllers, those enabled
/// for children.
type Group<'a> = (&'a str, &'a str, &'a str, &'a str);

/// All groups, the server's own, and the expected sites.
type Check<'a> = (&'a [Group<'a>], &'a str, &'a [(&'a str, ControllerSetup)]);

fn tree(groups: &[Group<'_>]) -> PathBuf {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let top = std::env::temp_dir().join(format!("cove-sites-{}-{number}", std::process::id()));
    for (path, processes, controllers, enabled) in groups {
        let group = top.join(path);
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("cgroup.procs"), processes).unwrap();
        fs::write(group.join("cgroup.controllers"), controllers).unwrap();
        fs::write(group.join("cgroup.subtree_control"), enabled).unwrap();
        if !path.is_empty() {
            fs::write(group.join("cgroup.type"), "domain\n").unwrap();
        }
    }
    top
}

#[test]
fn a_site_with_limits_is_found_next_to_the_server() {
    let own = format!("{}\n", std::process::id());
    let shared = format!("1\n{own}");
    let all = "cpuset cpu memory pids\n";
    let checks: [Check<'_>; 6] = [
        (&[("", &own, all, "")], "", &[("", ControllerSetup::Enable), ("", ControllerSetup::AsIs)]),
        // Version 1 has the controllers.
        (&[("", "", "", ""), ("a", &own, "", "")], "a", &[("a", ControllerSetup::AsIs)]),
        // A service that is alone in its group.
        (
            &[("", "", all, all), ("a", &own, all, "")],
            "a",
            &[
                ("a", ControllerSetup::Leaf),
                ("", ControllerSetup::Enable),
                ("a", ControllerSetup::AsIs),
            ],
        ),
        // A login shell is in it as well.
        (
            &[("", "", all, all), ("a", "", all, "memory pids\n"), ("a/b", &shared, all, "")],
            "a/b",
            &[
                ("a", ControllerSetup::AsIs),
                ("", ControllerSetup::Enable),
                ("a/b", ControllerSetup::AsIs),
            ],
        ),
        // It has no controllers to delegate, nor has the one above.
        (
            &[("", "", all, "cpu\n"), ("a", "", "cpu\n", ""), ("a/b", &own, "", "")],
            "a/b",
            &[("", ControllerSetup::Enable), ("a/b", ControllerSetup::AsIs)],
        ),
        // One of two limits is not enough.
        (
            &[("", "", all, all), ("a", "", all, "pids\n"), ("a/b", &own, "pids\n", "")],
            "a/b",
            &[("", ControllerSetup::Enable), ("a/b", ControllerSetup::AsIs)],
        ),
    ];
    for (groups, base, expected) in checks {
        let top = tree(groups);
        // Joining an empty path would add a slash.
        let at = |path: &str| if path.is_empty() { top.clone() } else { top.join(path) };
        let expected: Vec<ParentSite> =
            expected.iter().map(|(path, way)| ParentSite { path: at(path), way: *way }).collect();
        let found = sites(&at(base), &top);
        fs::remove_dir_all(&top).unwrap();
        assert_eq!(found.unwrap(), expected);
    }
}

#[test]
fn a_process_is_named_by_pid_and_start() {
    let pid = std::process::id();
    assert_eq!(start_time(pid).unwrap(), start_time(pid).unwrap());
    assert!(start_time(u32::MAX).is_err());
}

#[test]
fn a_group_is_stale_when_its_owner_is_gone_in_whatever_namespace() {
    let own = ParentOwner::this_process().unwrap();
    assert_eq!(ParentOwner::parse(&own.group_name()), Some(own));
    for other in ["cove-1", "cove-1-2", "cove-1-2-3-4", "cove-x-2-3", "other-1-2-3"] {
        assert_eq!(ParentOwner::parse(other), None, "{other}");
    }
    let group = std::env::temp_dir().join(format!("cove-group-{}", own.pid));
    fs::create_dir(&group).unwrap();
    assert!(own.is_alive(own, &group));
    assert!(!ParentOwner { started: own.started + 1, ..own }.is_alive(own, &group));
    // The same numbers in another namespace are another process, which only its lock shows.
    let elsewhere = ParentOwner { pid_namespace: own.pid_namespace + 1, ..own };
    assert!(!elsewhere.is_alive(own, &group));
    let held = fs::File::open(&group).unwrap();
    assert!(try_lock(held.as_fd(), LockMode::Exclusive).unwrap());
    assert!(elsewhere.is_alive(own, &group));
    drop(held);
    assert!(!elsewhere.is_alive(own, &group));
    fs::remove_dir(&group).unwrap();
    assert!(elsewhere.is_alive(own, &group), "what cannot be opened is left alone");
}
