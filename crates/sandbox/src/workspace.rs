//! The writable part of a sandbox: its directories, their limits, and the files placed in them.
//!
//! One tmpfs holds all files that a sandbox writes, so that one limit applies to all of them. Its
//! root is hidden: its directories are bound to their places, the last of them over the root
//! itself.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::codec::{self, PlacedFile, StoredContent};
use crate::disk;
use crate::failure::{FailureContext, StepFailure};
use crate::spec::ProgramLimits;
use crate::sys;

/// Mode of directories made for the path of a file.
const DIRECTORY_MODE: u32 = 0o755;

/// Mount flags of all writable file systems.
const LOCKED_DOWN: std::ffi::c_ulong = libc::MS_NOSUID | libc::MS_NODEV;

/// Mounts the fresh file systems of a sandbox: `/proc` and the writable directories. Returns the
/// scratch root.
pub(crate) fn mount_all(user: Option<u32>) -> Result<OwnedFd, StepFailure> {
    mount_proc()?;
    let options = disk_options(ProgramLimits::default().disk_bytes, prepared_inodes());
    sys::mount(Some(c"scratch"), c"/workspace", Some(c"tmpfs"), LOCKED_DOWN, Some(&options))
        .step("mount the scratch file system")?;
    let scratch = sys::open(c"/workspace", libc::O_RDONLY | libc::O_DIRECTORY)
        .step("open the scratch file system")?;
    bind_writable(scratch.as_fd(), 0, user, HomeContent::Fresh)?;
    make_and_bind(scratch.as_fd(), c"workspace", c"/workspace", 0o755, user)?;
    Ok(scratch)
}

/// Mounts the fresh file systems of a session: `/proc`, and one for `/tmp` and `/dev/shm`.
pub(crate) fn mount_session_scratch(user: Option<u32>) -> Result<(), StepFailure> {
    mount_proc()?;
    let options = disk_options(ProgramLimits::default().disk_bytes, prepared_inodes());
    sys::mount(Some(c"tmp"), c"/tmp", Some(c"tmpfs"), LOCKED_DOWN, Some(&options))
        .step("mount the scratch file system")?;
    let scratch = sys::open(c"/tmp", libc::O_RDONLY | libc::O_DIRECTORY)
        .step("open the scratch file system")?;
    make_and_bind(scratch.as_fd(), c"shm", c"/dev/shm", 0o1777, user)?;
    make_and_bind(scratch.as_fd(), c"tmp", c"/tmp", 0o1777, user)
}

/// Sets the common limits of bytes and files for `/tmp` and `/dev/shm` of a session.
pub(crate) fn set_session_scratch(bytes: u64, inodes: u64) -> Result<(), StepFailure> {
    let options = disk_options(bytes, inodes.saturating_add(SESSION_INODES));
    let flags = libc::MS_REMOUNT | LOCKED_DOWN;
    sys::mount(None, c"/tmp", None, flags, Some(&options)).step("set the limits of /tmp")
}

/// Mounts `/proc` with the processes of this pid namespace only, and nothing about the kernel.
fn mount_proc() -> Result<(), StepFailure> {
    sys::mount(
        Some(c"proc"),
        c"/proc",
        Some(c"proc"),
        LOCKED_DOWN | libc::MS_NOEXEC | libc::MS_RDONLY,
        Some(c"subset=pid,hidepid=invisible"),
    )
    .step("mount /proc")
}

/// Puts fresh directories of the scratch file system at `/tmp` and `/dev/shm`, and at `/home/user`
/// unless its content comes from a layer and earlier commands.
pub(crate) fn bind_writable(
    scratch: BorrowedFd<'_>,
    command: u32,
    user: Option<u32>,
    home: HomeContent,
) -> Result<(), StepFailure> {
    let home = (home == HomeContent::Fresh).then_some(("home", c"/home/user", 0o755));
    let always = [("tmp", c"/tmp", 0o1777), ("shm", c"/dev/shm", 0o1777)];
    for (kind, target, mode) in always.into_iter().chain(home) {
        let name = CString::new(format!("{kind}{command}")).map_err(|_| codec::MalformedMessage)?;
        make_and_bind(scratch, &name, target, mode, user)?;
    }
    Ok(())
}

/// Content of `/home/user` when another command starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HomeContent {
    /// An empty directory.
    Fresh,
    /// The directory unchanged.
    Kept,
}

/// Creates the directories that an overlay over layers writes to, as on every disk.
pub(crate) fn make_upper(
    scratch: BorrowedFd<'_>,
    users: Option<(u32, u32)>,
) -> Result<(), StepFailure> {
    let step = "make the directories of an overlay";
    let make = |dir: BorrowedFd<'_>, name: &str, owner: Option<u32>| {
        let name = CString::new(name)?;
        sys::mkdirat(dir, &name, DIRECTORY_MODE)?;
        let made = sys::openat(dir, &name, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
        if let Some(owner) = owner {
            sys::fchown(made.as_fd(), owner, owner)?;
        }
        Ok::<OwnedFd, io::Error>(made)
    };
    let (init, user) = (users.map(|(init, _)| init), users.map(|(_, user)| user));
    let upper = make(scratch, disk::UPPER, init).step(step)?;
    make(scratch, disk::UPPER_WORK, init).step(step)?;
    for name in disk::SHOWN {
        make(upper.as_fd(), name, user).step(step)?;
    }
    Ok(())
}

/// Opens the working directory of commands, `/workspace`, `/home/user` or below one of them, and
/// creates it if it is missing. Must be called with the file access rights of the program's user.
pub(crate) fn open_workdir(path: &[u8]) -> Result<OwnedFd, StepFailure> {
    let step = || format!("open the working directory `{}`", String::from_utf8_lossy(path));
    let opened = || {
        let outside = || io::Error::from_raw_os_error(libc::EXDEV);
        let roots = [c"/workspace", c"/home/user"];
        let below = |root: &&CStr| path.strip_prefix(root.to_bytes());
        let root = roots.iter().find(|root| below(root).is_some()).ok_or_else(outside)?;
        let rest = below(root).unwrap_or_default();
        if !rest.is_empty() && !rest.starts_with(b"/") {
            return Err(outside());
        }
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let root = sys::open(root, flags)?;
        let rest = rest.strip_prefix(b"/").unwrap_or(rest);
        let (parent, name) = make_parents(root.as_fd(), rest)?;
        if name.is_empty() {
            return Ok(parent.unwrap_or(root));
        }
        let here = parent.as_ref().map_or(root.as_fd(), AsFd::as_fd);
        match sys::mkdirat(here, &name, DIRECTORY_MODE) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        sys::open_beneath(here, &name, flags, 0)
    };
    opened().map_err(|error| StepFailure::new(&step(), &error))
}

/// Creates a directory on the common file system for a writable place, so that one limit applies to
/// all, and binds it there.
fn make_and_bind(
    scratch: BorrowedFd<'_>,
    name: &CStr,
    target: &CStr,
    mode: u32,
    user: Option<u32>,
) -> Result<(), StepFailure> {
    sys::mkdirat(scratch, name, mode).step("make a writable directory")?;
    let dir = sys::openat(scratch, name, libc::O_RDONLY | libc::O_DIRECTORY, 0)
        .step("open a writable directory")?;
    sys::fchmod(dir.as_fd(), mode).step("open up a writable directory")?;
    if let Some(user) = user {
        sys::fchown(dir.as_fd(), user, user).step("hand over a writable directory")?;
    }
    let source = CString::new(format!("/proc/self/fd/{}", dir.as_raw_fd()))
        .map_err(|_| codec::MalformedMessage)?;
    sys::mount(Some(&source), target, None, libc::MS_BIND, None).step("show a writable directory")
}

fn disk_options(bytes: u64, inodes: u64) -> CString {
    CString::new(format!("size={bytes},nr_inodes={inodes},mode=700")).unwrap_or_default()
}

/// Inodes of a fresh scratch file system: its root, four directories, and one that tmpfs reserves.
const OWN_INODES: u64 = 6;

/// Inodes of a session's scratch file system: its root and two directories.
const SESSION_INODES: u64 = 3;

/// Inodes of a scratch file system before its limits are known.
fn prepared_inodes() -> u64 {
    ProgramLimits::default().disk_inodes + OWN_INODES
}

/// Content of a scratch file system before a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScratchContent {
    /// The directories of every sandbox.
    New,
    /// More than those: files of an earlier command, or the directories of an overlay.
    Used,
}

/// Sets how much the program may store, in addition to existing files.
pub(crate) fn set_disk_limits(
    scratch: BorrowedFd<'_>,
    limits: &ProgramLimits,
    content: ScratchContent,
) -> Result<(), StepFailure> {
    let is_used = content == ScratchContent::Used;
    let (bytes, inodes) = if is_used {
        sys::usage(scratch).step("measure the scratch file system")?
    } else {
        (0, OWN_INODES)
    };
    let bytes = limits.disk_bytes.saturating_add(bytes);
    let inodes = limits.disk_inodes.saturating_add(inodes);
    if !is_used && (bytes, inodes) == (ProgramLimits::default().disk_bytes, prepared_inodes()) {
        // Mounted with these limits already.
        return Ok(());
    }
    let options = disk_options(bytes, inodes);
    let flags = libc::MS_REMOUNT | libc::MS_NOSUID | libc::MS_NODEV;
    // `/tmp` is on the same file system; `/workspace` may be an overlay.
    sys::mount(None, c"/tmp", None, flags, Some(&options)).step("set the disk limits")
}

/// Places files below a directory, and creates the directories of their paths. `shared` are the
/// descriptors of content that is not in the message.
///
/// A file replaces an existing one of a layer or of an earlier command.
pub(crate) fn place_files(
    root: BorrowedFd<'_>,
    files: &[PlacedFile<'_>],
    shared: &[OwnedFd],
) -> Result<(), StepFailure> {
    for PlacedFile { path, executable, content } in files {
        let step = || format!("place the file `{}`", String::from_utf8_lossy(path));
        let (dir, name) =
            make_parents(root, path).map_err(|error| StepFailure::new(&step(), &error))?;
        let here = dir.as_ref().map_or(root, AsFd::as_fd);
        let mode = if *executable { 0o755 } else { 0o644 };
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        let file = match sys::open_beneath(here, &name, flags, mode) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                sys::files::unlink(here, &name).step(&step())?;
                sys::open_beneath(here, &name, flags, mode)
            }
            opened => opened,
        };
        let file = file.step(&step())?;
        match content {
            StoredContent::Bytes(bytes) => sys::write_all(file.as_fd(), bytes).step(&step())?,
            StoredContent::Shared { index, len } => {
                let content = shared.get(*index).ok_or(codec::MalformedMessage)?;
                sys::copy_from_start(content.as_fd(), file.as_fd(), *len).step(&step())?;
            }
        }
    }
    Ok(())
}

/// Places symbolic links below a directory in the same way. Privileged code never follows one: it
/// opens files beneath a descriptor and through no link.
pub(crate) fn place_symlinks(
    root: BorrowedFd<'_>,
    symlinks: &[(&[u8], &[u8])],
) -> Result<(), StepFailure> {
    for (path, target) in symlinks {
        let step = || format!("place the link `{}`", String::from_utf8_lossy(path));
        let (dir, name) =
            make_parents(root, path).map_err(|error| StepFailure::new(&step(), &error))?;
        let here = dir.as_ref().map_or(root, AsFd::as_fd);
        let target = CString::new(*target).map_err(|_| codec::MalformedMessage)?;
        sys::symlinkat(&target, here, &name).step(&step())?;
    }
    Ok(())
}

/// Creates the directories of a path; returns the last one, unless it is the root, and the name in
/// it.
fn make_parents(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<(Option<OwnedFd>, CString)> {
    let mut dir: Option<OwnedFd> = None;
    let (parents, name) = match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (path.get(..at).unwrap_or(&[]), path.get(at + 1..).unwrap_or(&[])),
        None => (&[][..], path),
    };
    for part in parents.split(|b| *b == b'/').filter(|p| !p.is_empty()) {
        let part = CString::new(part)?;
        let here = dir.as_ref().map_or(root, AsFd::as_fd);
        match sys::mkdirat(here, &part, DIRECTORY_MODE) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        dir = Some(sys::open_beneath(here, &part, libc::O_RDONLY | libc::O_DIRECTORY, 0)?);
    }
    Ok((dir, CString::new(name)?))
}
