//! Checks of the machine: features of the kernel, results of the engine, and whether a disk can be
//! attached. Time limit for attaching a disk that nothing else uses.

use std::fs;
use std::path::Path;
use std::time::Duration;

use api::CheckStatus;
use sandbox::IsolationLayers;

use super::{DoctorFinding, check};
use crate::host;

/// Time that attaching a disk that nobody has may take.
const DISK_WAIT: Duration = Duration::from_secs(5);

/// Returns the checks that only read files.
pub(super) fn kernel(is_root: bool) -> Vec<DoctorFinding> {
    let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
    let mut checks = Vec::new();
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_else(|_| "unknown".to_owned());
    checks.push(check("kernel", format!("Linux {release} on {}", std::env::consts::ARCH)));

    checks.push(if is_root {
        check("user", "root")
    } else {
        let id = host::user_id().map_or_else(|| "unknown".to_owned(), |id| id.to_string());
        check("user", format!("user {id}, not root")).but(
            CheckStatus::Note,
            "programs share one user id and are kept apart by namespaces and Landlock alone",
        )
    });

    let wanted = ["pid", "mnt", "ipc", "uts", "net", "cgroup"];
    let missing: Vec<_> =
        wanted.iter().filter(|it| !Path::new("/proc/self/ns").join(it).exists()).collect();
    checks.push(match missing.as_slice() {
        [] => check("namespaces", wanted.join(", ")),
        missing => check("namespaces", format!("without {missing:?}"))
            .but(CheckStatus::Missing, "programs could see each other and the host"),
    });

    checks.push(user_namespaces(is_root, read("/proc/sys/user/max_user_namespaces").ok()));

    checks.push(match read("/proc/sys/kernel/seccomp/actions_avail") {
        Ok(actions) => check("seccomp", actions.split_whitespace().collect::<Vec<_>>().join(", ")),
        Err(_) => check("seccomp", "not in this kernel")
            .but(CheckStatus::Missing, "programs could use every system call"),
    });

    checks.push(match read("/sys/kernel/security/lsm") {
        Ok(modules) if modules.split(',').any(|module| module == "landlock") => {
            check("landlock", "active")
        }
        Ok(modules) => check("landlock", format!("not among the active modules ({modules})"))
            .but(CheckStatus::Note, "without root the file system is kept by namespaces alone"),
        Err(_) => check("landlock", "unknown: securityfs is not mounted"),
    });
    checks
}

fn user_namespaces(is_root: bool, max: Option<String>) -> DoctorFinding {
    let found = match max.as_deref() {
        Some("0") => "forbidden (user.max_user_namespaces is 0)".to_owned(),
        Some(max) => format!("allowed, at most {max}"),
        None => "not in this kernel".to_owned(),
    };
    let allowed = max.is_some_and(|max| max != "0");
    match (allowed, is_root) {
        (true, _) => check("user namespaces", found),
        (false, true) => check("user namespaces", format!("{found}; not needed by root")),
        (false, false) => check("user namespaces", found)
            .but(CheckStatus::Missing, "without root nothing can be isolated; start cove as root"),
    }
}

/// Creates a disk like those of sessions in its own directory, attaches it, and removes both.
pub(super) fn session_disks(place: &Path) -> DoctorFinding {
    let image = place.join("disk.img");
    let size =
        sandbox::DiskSize { bytes: sandbox::DISK_BYTES_MIN, inodes: sandbox::DISK_INODES_MIN };
    let tried = sandbox::Disks::open(&place.join("templates"))
        .and_then(|disks| disks.create(&image, size))
        .and_then(|()| sandbox::AttachedDiskImage::attach(&image, DISK_WAIT));
    let result = match tried {
        Ok(disk) => {
            drop(disk);
            check("session disks", "created and attached one (ext4 image, loop device, id-mapped)")
        }
        Err(error) => check("session disks", format!("{:#}", anyhow::Error::from(error)))
            .but(CheckStatus::Note, "agents and sessions are not available; everything else is"),
    };
    // If the disk could not be created, there is nothing to remove.
    let _best_effort = fs::remove_dir_all(place);
    result
}

/// Returns the checks of what the engine found at its start.
pub(super) fn layer_checks(layers: &IsolationLayers) -> Vec<DoctorFinding> {
    let groups = &layers.cgroups;
    let mut checks = vec![check("control groups", groups.layout.clone())];
    let mut limit = |name, by: &Option<String>, status, follows: &str| {
        checks.push(match by {
            Some(by) => check(name, format!("by control groups {by}")),
            None => check(name, "not available").but(status, follows),
        });
    };
    let refused = "untrusted code is refused unless --insecure-no-limits is given; start cove as root, \
                   or give it a control group of its own with this controller";
    limit("memory limit", &groups.memory, CheckStatus::Missing, refused);
    limit("pids limit", &groups.pids, CheckStatus::Missing, refused);
    let share = "one program with many processes gets more of the processors than one with few";
    limit("cpu share", &groups.cpu, CheckStatus::Note, share);
    let time = "CPU time is added up from the processes that are seen, which is less exact";
    limit("cpu time", &groups.cpu_time, CheckStatus::Note, time);
    checks.push(match layers.users {
        Some((first, last)) => {
            check("user ids", format!("a separate one per sandbox, like {first} to {last}"))
        }
        None => check("user ids", "the caller's, in a user namespace"),
    });
    let rules = layers.seccomp_rules;
    checks.push(check("seccomp policy", format!("{rules} rules")));
    checks.push(match (layers.landlock, layers.root) {
        (0, true) => check("landlock rules", "not used: user ids do their work"),
        (0, false) => check("landlock rules", "not available")
            .but(CheckStatus::Note, "the file system is kept by namespaces alone"),
        (version, _) => check("landlock rules", format!("in use, version {version}")),
    });
    checks
}

#[cfg(test)]
mod tests {
    //! Consequences of the findings.

    use super::*;

    #[test]
    fn user_namespaces_matter_without_root() {
        let status =
            |is_root, max: Option<&str>| user_namespaces(is_root, max.map(str::to_owned)).status;
        assert_eq!(status(true, Some("0")), CheckStatus::Ok);
        assert_eq!(status(false, Some("0")), CheckStatus::Missing);
        assert_eq!(status(false, None), CheckStatus::Missing);
        assert_eq!(status(false, Some("100")), CheckStatus::Ok);
    }
}
