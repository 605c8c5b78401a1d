//! The root file system of sandboxes: each spawner builds it once, in a mount namespace of its own,
//! and every sandbox gets a copy of that namespace.
//!
//! It is a small read-only tmpfs with the host's `/usr` bound into it, a private `/etc` of a dozen
//! files, six device nodes, and the toolchains below `/opt`. The guest init adds the writable
//! directories of each sandbox.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::failure::{FailureContext, StepFailure};
use crate::spec::Toolchain;
use crate::sys;

/// Directories in which the new root is built. Only the spawner's own mount namespace shows it
/// there.
const PLACES: [&str; 4] = ["/mnt", "/srv", "/media", "/opt"];
/// Size of the tmpfs that holds the private part; it is read-only afterwards.
const ROOT_OPTIONS: &std::ffi::CStr = c"size=32m,nr_inodes=16384,mode=755";
/// Directories that a mount or a command requires.
const DIRECTORIES: [&str; 13] = [
    "usr",
    "etc",
    "dev",
    "dev/shm",
    "dev/pts",
    "proc",
    "tmp",
    "workspace",
    "home",
    "home/user",
    "opt",
    "run",
    "var",
];
/// Parts of the host's `/etc` that programs in `/usr` require. World-readable files only.
const ETC_COPIES: [&str; 7] = [
    "alternatives",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ssl/openssl.cnf",
    "mime.types",
    "matplotlibrc",
];
/// Bundles of the public certificate authorities that the host trusts, under the names of
/// distributions; the last one is Java's.
const TRUST_BUNDLES: [&str; 6] = [
    "ssl/certs/ca-certificates.crt",
    "ssl/cert.pem",
    "ssl/ca-bundle.pem",
    "pki/tls/certs/ca-bundle.crt",
    "pki/tls/cert.pem",
    "ssl/certs/java/cacerts",
];
/// Directories in which OpenSSL finds an authority by the hash of its name: links, which lead into
/// `/usr`.
const TRUST_DIRECTORIES: [&str; 2] = ["ssl/certs", "pki/tls/certs"];
/// Maximum number of links of such a directory; distributions have some 300.
const TRUST_LINKS_MAX: usize = 4096;
/// Debian's JDKs keep their configuration at `/etc/java-N-openjdk`, with links to it from `/usr`.
const ETC_JAVA_PREFIX: &str = "java-";
/// Directory of [`COMMAND_ALIASES`], for the end of a search path.
const ALIAS_DIRECTORY: &str = "opt/cove/bin";
/// Command that programs expect, and the host's command that replaces it if the host lacks the
/// first: Debian has `python3` only.
const COMMAND_ALIASES: [(&str, &str); 1] = [("python", "python3")];
/// Depth to which directories of `/etc` are copied.
const COPY_DEPTH_MAX: u32 = 8;

const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
const NODEV: u64 = libc::MOUNT_ATTR_NODEV;

/// Name, major and minor number of each device.
///
/// `tty` is the terminal of the process that opens it; without one, opening fails.
const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

/// Builds the root and makes it this process's root. The process must be in a fresh mount
/// namespace.
///
/// `users` are the user ids that get a name in the private `/etc/passwd`; `hooks` are the start
/// hooks of warm runtimes, by their path in the root.
pub(crate) fn enter(
    toolchains: &[Toolchain],
    users: &[u32],
    may_mknod: bool,
    hooks: &[(PathBuf, &'static [u8])],
) -> Result<(), StepFailure> {
    // New namespaces inherit shared propagation from systemd hosts; without this step the mounts
    // below would appear on the host, and pivot_root would refuse.
    sys::mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE, None)
        .step("detach mounts from the host")?;
    let root = place(toolchains)?;
    let path = c_path(&root)?;
    sys::mount(Some(c"cove"), &path, Some(c"tmpfs"), libc::MS_NOSUID, Some(ROOT_OPTIONS))
        .step("mount the root of sandboxes")?;
    for directory in DIRECTORIES {
        fs::create_dir(root.join(directory)).step("make a directory of the root")?;
    }
    bind_read_only(Path::new("/usr"), &root.join("usr"))?;
    for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
        link_or_bind(name, &root)?;
    }
    symlink("/tmp", root.join("var/tmp")).step("link /var/tmp")?;
    // Working directory that programs of go-judge's callers expect.
    symlink("/workspace", root.join("w")).step("link /w")?;
    symlink("/run", root.join("var/run")).step("link /var/run")?;
    fill_etc(&root.join("etc"), users)?;
    fill_dev(&root.join("dev"), may_mknod)?;
    if !may_mknod {
        // Without root, the kernel mounts a new /proc only where a complete one is visible already.
        // Each sandbox covers this one with its own before a program runs in it.
        sys::mount(
            Some(c"/proc"),
            &c_path(&root.join("proc"))?,
            None,
            libc::MS_BIND | libc::MS_REC,
            None,
        )
        .step("keep a /proc in the root")?;
    }
    for toolchain in toolchains {
        let target = root.join("opt").join(&toolchain.name);
        fs::create_dir(&target).step("make a directory for a toolchain")?;
        show_toolchain(&toolchain.source, &target, &root.join("run"))?;
    }
    link_aliases(Path::new("/usr"), &root.join(ALIAS_DIRECTORY))?;
    for (file, text) in hooks {
        let target = root.join(file.strip_prefix("/").unwrap_or(file));
        if let Some(directory) = target.parent() {
            fs::create_dir_all(directory).step("make a directory for a start hook")?;
        }
        fs::write(target, text).step("write a start hook")?;
    }
    sys::mount_setattr_recursive(&path, RDONLY | NOSUID).step("make the root read-only")?;
    std::env::set_current_dir(&root).step("enter the root")?;
    sys::pivot_here().step("make it the root")?;
    std::env::set_current_dir("/").step("enter the root")
}

/// Returns a directory to build in that hides no toolchain.
fn place(toolchains: &[Toolchain]) -> Result<PathBuf, StepFailure> {
    PLACES
        .iter()
        .map(Path::new)
        .find(|p| p.is_dir() && !toolchains.iter().any(|t| t.source.starts_with(p)))
        .map(Path::to_path_buf)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
        .step("find a directory to build the root in (/mnt, /srv, /media)")
}

fn c_path(path: &Path) -> Result<CString, StepFailure> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| StepFailure { step: "name a path".to_owned(), errno: libc::EINVAL })
}

/// Binds a directory of the host with all mounts below it, read-only.
fn bind_read_only(source: &Path, target: &Path) -> Result<(), StepFailure> {
    let (from, to) = (c_path(source)?, c_path(target)?);
    let step = format!("show {} in sandboxes", source.display());
    sys::mount(Some(&from), &to, None, libc::MS_BIND | libc::MS_REC, None).step(&step)?;
    sys::mount_setattr_recursive(&to, RDONLY | NOSUID | NODEV).step(&step)
}

/// Shows a directory without revealing its path on the host, which the mount table would contain
/// for a bind mount: an overlay of that directory over an empty one names it `.`, the current
/// directory.
fn show_toolchain(source: &Path, target: &Path, empty: &Path) -> Result<(), StepFailure> {
    std::env::set_current_dir(source).step(&format!("enter {}", source.display()))?;
    let options = CString::new(format!("lowerdir=.:{}", empty.display()))
        .map_err(|_| StepFailure { step: "name a path".to_owned(), errno: libc::EINVAL })?;
    let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
    match sys::mount(Some(c"toolchain"), &c_path(target)?, Some(c"overlay"), flags, Some(&options))
    {
        Ok(()) => Ok(()),
        // The kernel has no overlays, or they do not support this file system: a bind mount works
        // as well, but reveals the directory's path on the host.
        Err(_) => bind_read_only(source, target),
    }
}

/// Creates `/bin` or a similar directory: a link into `/usr` if the host has merged them, otherwise
/// a bind mount.
fn link_or_bind(name: &str, root: &Path) -> Result<(), StepFailure> {
    let host = Path::new("/").join(name);
    match fs::read_link(&host) {
        Ok(target) => symlink(target, root.join(name)).step("link a directory of the root"),
        Err(_) if host.is_dir() => {
            let target = root.join(name);
            fs::create_dir(&target).step("make a directory of the root")?;
            bind_read_only(&host, &target)
        }
        Err(_) => Ok(()),
    }
}

/// Creates [`COMMAND_ALIASES`] for a host with this `/usr`.
fn link_aliases(usr: &Path, directory: &Path) -> Result<(), StepFailure> {
    fs::create_dir_all(directory).step("make a directory for commands")?;
    for (alias, command) in COMMAND_ALIASES {
        let has = |name: &str| ["bin", "local/bin"].map(|it| usr.join(it).join(name).exists());
        if !has(alias).contains(&true) && has(command).contains(&true) {
            let target = match has(command) {
                [true, _] => Path::new("/usr/bin").join(command),
                _ => Path::new("/usr/local/bin").join(command),
            };
            symlink(target, directory.join(alias)).step("link a command")?;
        }
    }
    Ok(())
}

fn fill_etc(etc: &Path, users: &[u32]) -> Result<(), StepFailure> {
    let mut passwd = String::new();
    let mut group = String::new();
    for uid in users {
        passwd.push_str(&format!("user:x:{uid}:{uid}::/home/user:/bin/sh\n"));
        group.push_str(&format!("user:x:{uid}:\n"));
    }
    passwd.push_str("nobody:x:65534:65534::/:/usr/sbin/nologin\n");
    group.push_str("nogroup:x:65534:\n");
    let files: [(&str, &str); 6] = [
        ("passwd", &passwd),
        ("group", &group),
        ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n"),
        ("hostname", "sandbox\n"),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
        ("shells", "/bin/sh\n/bin/bash\n"),
    ];
    for (name, text) in files {
        fs::write(etc.join(name), text).step("write the private /etc")?;
    }
    symlink("../usr/lib/os-release", etc.join("os-release")).step("write the private /etc")?;
    let host = Path::new("/etc");
    for name in ETC_COPIES {
        copy(&host.join(name), &etc.join(name), COPY_DEPTH_MAX).step("copy a part of /etc")?;
    }
    copy_trust(host, etc).step("copy the certificates of public authorities")?;
    for entry in fs::read_dir(host).step("list /etc")?.flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|n| n.starts_with(ETC_JAVA_PREFIX)) {
            copy(&host.join(&name), &etc.join(&name), COPY_DEPTH_MAX)
                .step("copy a JDK's configuration")?;
        }
    }
    Ok(())
}

/// Copies the certificates for verifying servers, and no other files beside them: a certificate of
/// the host itself would identify it.
///
/// Every directory made here is a real directory even if the host has a link there, so that nothing
/// is written through a link.
fn copy_trust(host: &Path, etc: &Path) -> io::Result<()> {
    for name in TRUST_BUNDLES {
        copy_file_behind(&host.join(name), &etc.join(name))?;
    }
    for name in TRUST_DIRECTORIES {
        let Ok(entries) = fs::read_dir(host.join(name)) else { continue };
        fs::create_dir_all(etc.join(name))?;
        for entry in entries.flatten().take(TRUST_LINKS_MAX) {
            let place = etc.join(name).join(entry.file_name());
            if let Ok(target) = fs::read_link(entry.path())
                && fs::symlink_metadata(&place).is_err()
            {
                symlink(target, place)?;
            }
        }
    }
    Ok(())
}

/// Copies the file that a path resolves to, if it is world-readable.
fn copy_file_behind(from: &Path, to: &Path) -> io::Result<()> {
    match fs::metadata(from) {
        Ok(it) if it.is_file() && it.permissions().mode() & 0o004 != 0 => {}
        _ => return Ok(()),
    }
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(to, fs::read(from)?)
}

/// Copies links, directories and world-readable regular files. Omits missing files and files with
/// restricted access, which the sandbox must not see.
fn copy(from: &Path, to: &Path, depth: u32) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(from) else { return Ok(()) };
    let everybody_reads = metadata.permissions().mode() & 0o004 != 0;
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    if metadata.is_symlink() {
        symlink(fs::read_link(from)?, to)?;
    } else if metadata.is_file() && everybody_reads {
        fs::write(to, fs::read(from)?)?;
    } else if metadata.is_dir() && everybody_reads && depth > 0 {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)?.flatten() {
            copy(&entry.path(), &to.join(entry.file_name()), depth - 1)?;
        }
    }
    Ok(())
}

fn fill_dev(dev: &Path, may_mknod: bool) -> Result<(), StepFailure> {
    for (name, major, minor) in DEVICES {
        let path = dev.join(name);
        if may_mknod {
            sys::mknod_char(&c_path(&path)?, 0o666, major, minor).step("make a device node")?;
            // The umask has removed the write permissions.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666))
                .step("open a device to all")?;
        } else {
            fs::write(&path, "").step("make a place for a device")?;
            let from = c_path(&Path::new("/dev").join(name))?;
            sys::mount(Some(&from), &c_path(&path)?, None, libc::MS_BIND, None)
                .step("bind a device")?;
        }
    }
    for (name, target) in
        [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")]
            .into_iter()
            // Resolves once a command has a terminal.
            .chain([("ptmx", "pts/ptmx")])
    {
        symlink(target, dev.join(name)).step("link a standard stream")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Made-up hosts, each a directory that the test removes.

    use super::*;

    #[test]
    fn a_command_stands_in_for_one_that_the_host_has_not() {
        let host = std::env::temp_dir().join(format!("cove-aliases-{}", std::process::id()));
        let made = |commands: &[&str]| {
            let usr = host.join(commands.concat().replace('/', "-"));
            for command in commands {
                let file = usr.join(command);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, "").unwrap();
            }
            let aliases = usr.join("aliases");
            link_aliases(&usr, &aliases).unwrap();
            fs::read_link(aliases.join("python")).ok()
        };
        let target = |path: &str| Some(PathBuf::from(path));
        assert_eq!(made(&["bin/python3"]), target("/usr/bin/python3"));
        assert_eq!(made(&["local/bin/python3"]), target("/usr/local/bin/python3"));
        assert_eq!(made(&["bin/python3", "local/bin/python3"]), target("/usr/bin/python3"));
        assert_eq!(made(&["bin/python3", "bin/python"]), None);
        assert_eq!(made(&["bin/python3", "local/bin/python"]), None);
        assert_eq!(made(&["bin/true"]), None);
        fs::remove_dir_all(host).unwrap();
    }

    #[test]
    fn certificates_are_copied_as_the_host_has_them_and_nothing_beside_them() {
        let top = std::env::temp_dir().join(format!("cove-trust-{}", std::process::id()));
        let (debian, fedora) = (top.join("debian"), top.join("fedora"));
        fs::create_dir_all(debian.join("ssl/certs/java")).unwrap();
        fs::write(debian.join("ssl/certs/ca-certificates.crt"), "bundle").unwrap();
        fs::write(debian.join("ssl/certs/ssl-cert-snakeoil.pem"), "the host's own").unwrap();
        fs::write(debian.join("ssl/certs/java/cacerts"), "secret").unwrap();
        let hidden = fs::Permissions::from_mode(0o640);
        fs::set_permissions(debian.join("ssl/certs/java/cacerts"), hidden).unwrap();
        symlink("/usr/share/ca-certificates/a.crt", debian.join("ssl/certs/a.pem")).unwrap();
        symlink("a.pem", debian.join("ssl/certs/0123abcd.0")).unwrap();
        // A link for a directory, and a file behind two links.
        fs::create_dir_all(fedora.join("pki/tls/certs")).unwrap();
        fs::create_dir_all(fedora.join("pki/ca-trust")).unwrap();
        fs::create_dir_all(fedora.join("ssl")).unwrap();
        fs::write(fedora.join("pki/ca-trust/all.pem"), "bundle").unwrap();
        symlink("../../ca-trust/all.pem", fedora.join("pki/tls/certs/ca-bundle.crt")).unwrap();
        symlink(fedora.join("pki/tls/certs"), fedora.join("ssl/certs")).unwrap();
        symlink("/nowhere", fedora.join("ssl/cert.pem")).unwrap();

        let check = |host: &Path, files: &[&str], absent: &[&str]| {
            let etc = host.join("inside");
            copy_trust(host, &etc).unwrap();
            for file in files {
                assert_eq!(fs::read_to_string(etc.join(file)).unwrap(), "bundle", "{file}");
            }
            for file in absent {
                assert!(fs::symlink_metadata(etc.join(file)).is_err(), "{file}");
            }
            etc
        };
        let absent = ["ssl/certs/ssl-cert-snakeoil.pem", "ssl/certs/java/cacerts", "pki"];
        let etc = check(&debian, &["ssl/certs/ca-certificates.crt"], &absent);
        let link = fs::read_link(etc.join("ssl/certs/0123abcd.0")).unwrap();
        assert_eq!(link, Path::new("a.pem"));
        let certs = debian.join("ssl/certs");
        assert_eq!(fs::read_to_string(certs.join("java/cacerts")).unwrap(), "secret");
        let etc = check(&fedora, &["pki/tls/certs/ca-bundle.crt"], &["ssl/cert.pem"]);
        assert!(fs::symlink_metadata(etc.join("ssl/certs")).unwrap().is_dir());
        check(&top, &[], &["ssl", "pki"]);
        fs::remove_dir_all(&top).unwrap();
    }
}
