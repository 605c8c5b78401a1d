//! Active layers of isolation, for reports and for `cove doctor`.
//!
//! # References
//! - <https://docs.kernel.org/filesystems/overlayfs.html>

use std::fmt;

use crate::cgroup::CgroupSupport;
use crate::seccomp;

/// Isolation of sandboxed code on this host. A missing layer is never omitted silently: its field
/// shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsolationLayers {
    /// Started as root: each sandbox has user ids of its own.
    pub root: bool,
    /// First and last user id of sandboxes; None without root.
    pub users: Option<(u32, u32)>,
    /// A user namespace replaces root.
    pub user_namespace: bool,
    /// Namespaces that are fresh in every sandbox, or empty (network).
    pub namespaces: Vec<&'static str>,
    /// Limits that the control groups enforce.
    pub cgroups: CgroupSupport,
    /// Number of rules of the system call policy.
    pub seccomp_rules: usize,
    /// Version of Landlock if it is used (rootless); 0 if user ids are used instead.
    pub landlock: u32,
    /// Untrusted code runs although memory or processes are not limited.
    pub insecure_no_limits: bool,
}

impl IsolationLayers {
    pub(crate) fn new(
        root: bool,
        users: Option<(u32, u32)>,
        cgroups: CgroupSupport,
        insecure: bool,
    ) -> Self {
        let insecure_no_limits = insecure && !cgroups.is_sufficient();
        IsolationLayers {
            root,
            users,
            user_namespace: !root,
            namespaces: vec!["pid", "mount", "ipc", "uts", "network", "cgroup"],
            cgroups,
            seccomp_rules: seccomp::POLICY.len(),
            landlock: 0,
            insecure_no_limits,
        }
    }
}

impl fmt::Display for IsolationLayers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = |what: &Option<String>| {
            what.clone().map_or("MISSING".to_owned(), |v| format!("control groups {v}"))
        };
        let mut row = |name: &str, value: String| writeln!(f, "{name:<18}{value}");
        row(
            "user",
            match self.users {
                Some((first, last)) => format!("own ids per sandbox, {first} to {last}"),
                None => "the caller's, in a user namespace".to_owned(),
            },
        )?;
        row("namespaces", self.namespaces.join(", "))?;
        row("control groups", self.cgroups.layout.clone())?;
        row("memory limit", by(&self.cgroups.memory))?;
        row("process limit", by(&self.cgroups.pids))?;
        row("cpu share", by(&self.cgroups.cpu))?;
        row("cpu time", by(&self.cgroups.cpu_time))?;
        row("system calls", format!("{} rules", self.seccomp_rules))?;
        row(
            "file system",
            match self.landlock {
                0 => "read-only root".to_owned(),
                version => format!("read-only root, Landlock {version}"),
            },
        )
    }
}
