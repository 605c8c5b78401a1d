//! Information from `/proc` about processes, and signals to them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::wait::until;

/// Time within which all threads of a process must stop after SIGSTOP.
const STOPS_WITHIN: Duration = Duration::from_secs(30);

/// Process, identified so that a reused process id is not mistaken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Process id in the test's namespace.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub started: u64,
}

impl Process {
    /// Returns whether it exists and is not a zombie.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.started == self.started && stat.state != 'Z')
    }
}

struct Stat {
    state: char,
    parent: u32,
    started: u64,
}

/// Reads `/proc/PID/stat`; its command name is in parentheses and may contain any characters.
fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    // proc(5): fields 3 (state), 4 (parent) and 22 (start time), counted from the one after `)`.
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

fn pids() -> Vec<u32> {
    fs::read_dir("/proc")
        .expect("read /proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// Returns all descendants of `root`, zombies excluded.
#[must_use]
pub fn descendants(root: u32) -> BTreeSet<Process> {
    let all: Vec<(u32, Stat)> =
        pids().into_iter().filter_map(|pid| Some((pid, stat(pid)?))).collect();
    let mut family = BTreeSet::from([root]);
    let mut size = 0;
    while size != family.len() {
        size = family.len();
        family.extend(
            all.iter()
                .filter(|(_, stat)| family.contains(&stat.parent))
                .map(|p| p.0)
                .collect::<Vec<_>>(),
        );
    }
    all.iter()
        .filter(|(pid, stat)| *pid != root && family.contains(pid) && stat.state != 'Z')
        .map(|(pid, stat)| Process { pid: *pid, started: stat.started })
        .collect()
}

/// Direct children of `parent`, zombies excluded.
#[must_use]
pub fn children(parent: u32) -> BTreeSet<Process> {
    pids()
        .into_iter()
        .filter_map(|pid| Some((pid, stat(pid)?)))
        .filter(|(_, stat)| stat.parent == parent && stat.state != 'Z')
        .map(|(pid, stat)| Process { pid, started: stat.started })
        .collect()
}

/// Returns the parent of `pid`.
#[must_use]
pub fn parent(pid: u32) -> Option<u32> {
    stat(pid).map(|stat| stat.parent)
}

/// Returns the processes with `marker` in their command line.
#[must_use]
pub fn with_marker(marker: &str) -> Vec<u32> {
    pids()
        .into_iter()
        .filter(|pid| *pid != std::process::id())
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| contains(&line, marker.as_bytes()))
        })
        .filter(|pid| stat(*pid).is_some_and(|stat| stat.state != 'Z'))
        .collect()
}

/// Returns the processes with the name `name` and `marker` in their command line.
#[must_use]
pub fn named(name: &str, marker: &str) -> Vec<Process> {
    let found = with_marker(marker).into_iter().filter(|pid| self::name(*pid) == name);
    found.filter_map(|pid| Some(Process { pid, started: stat(pid)?.started })).collect()
}

/// Returns whether `needle` occurs in `haystack`; neither needs to be text.
#[must_use]
pub fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// Returns the current name of a process.
#[must_use]
pub fn name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// Returns the number of open descriptors of a process.
#[must_use]
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Returns the network namespaces that processes keep alive, by being in them or by a descriptor:
/// those of `root` and its descendants, or of the whole host.
#[must_use]
pub fn network_namespaces(root: Option<u32>) -> BTreeSet<String> {
    let holders = match root {
        Some(root) => descendants(root).iter().map(|process| process.pid).chain([root]).collect(),
        None => pids(),
    };
    let mut found = BTreeSet::new();
    for pid in holders {
        found.extend(link(Path::new(&format!("/proc/{pid}/ns/net"))));
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        let links = descriptors.filter_map(|entry| link(&entry.ok()?.path()));
        found.extend(links.filter(|target| target.starts_with("net:[")));
    }
    found
}

/// Returns the anonymous memory, in bytes, of all processes except `root` and its descendants.
#[must_use]
pub fn anonymous_bytes_of_others(root: Option<u32>) -> u64 {
    let family: BTreeSet<u32> = root
        .map(|root| descendants(root).iter().map(|process| process.pid).chain([root]).collect())
        .unwrap_or_default();
    let others = pids().into_iter().filter(|pid| !family.contains(pid));
    others.map(|pid| status_bytes(pid, "RssAnon:")).sum()
}

fn link(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.to_string_lossy().into_owned())
}

/// Returns the resident memory of a process in bytes.
#[must_use]
pub fn resident_bytes(pid: u32) -> u64 {
    status_bytes(pid, "VmRSS:")
}

fn status_bytes(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Sends a signal, named without `SIG`, through a shell, because this crate has no `unsafe`.
pub fn signal(pid: u32, name: &str) {
    let status = Command::new("/bin/sh")
        .args(["-c", &format!("kill -{name} {pid}")])
        .status()
        .expect("start a shell to send a signal");
    assert!(status.success(), "kill -{name} {pid}: {status}");
    if name == "STOP" {
        // Running threads stop only when they next enter the kernel.
        until("all threads to stand still", STOPS_WITHIN, || match thread_states(pid) {
            states if states.iter().all(|state| "TtZX".contains(*state)) => Ok(()),
            states => Err(format!("{states:?}")),
        });
    }
}

/// Returns the states of a process's threads, as in proc(5).
fn thread_states(pid: u32) -> Vec<char> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let stats =
        tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    // The name, in parentheses, may contain any character.
    let state = |stat: String| stat.rsplit_once(") ")?.1.chars().next();
    stats.filter_map(state).collect()
}

/// Kills a process unless it has ended.
pub fn end(process: Process) {
    let script = format!("kill -KILL {}", process.pid);
    let mut shell = Command::new("/bin/sh");
    let output = shell.args(["-c", &script]).output().expect("start a shell to kill a process");
    assert!(output.status.success() || !process.is_alive(), "{script}: {output:?}");
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::until;

    #[test]
    fn a_child_is_found_and_seen_to_die() {
        let mut child = Command::new("/bin/sleep").arg("61.25").spawn().unwrap();
        let found = until("the child", Duration::from_secs(5), || {
            let all = descendants(std::process::id());
            let one = all.into_iter().find(|process| process.pid == child.id());
            one.ok_or_else(|| "no such descendant".to_owned())
        });
        assert!(found.is_alive());
        assert_eq!(parent(child.id()), Some(std::process::id()));
        until("its command line", Duration::from_secs(5), || {
            let pids = with_marker("61.25");
            pids.contains(&child.id()).then_some(()).ok_or_else(|| format!("{pids:?}"))
        });
        signal(child.id(), "KILL");
        child.wait().unwrap();
        assert!(!found.is_alive());
        assert!(!children(std::process::id()).contains(&found));
    }

    #[test]
    fn own_figures_are_plausible() {
        let pid = std::process::id();
        assert!(descriptors(pid) >= 3);
        assert!(!network_namespaces(None).is_empty());
        assert!(network_namespaces(Some(pid)).is_subset(&network_namespaces(None)));
        assert!(anonymous_bytes_of_others(Some(pid)) > 0);
        assert!(resident_bytes(pid) > 100_000);
    }
}
