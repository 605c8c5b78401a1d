//! File requests other than watches and cancellation, from their paths to their answers.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use super::paths::{self, ResolvedName};
use super::trees::{self, DirectoryNames, TreeVisit, TreeWalk};
use super::{FileJob, FileRefusal, FileReply, Outcome, export, import};
use crate::codec::MessageWriter;
use crate::session::files::SHOWN_USER;
use crate::session::files::wire::{self, FileRequest};
use crate::sys;
use crate::sys::files::{self, FileStat, ResolveMode};

/// Mode of a new file, before the umask.
const FILE_MODE: u32 = 0o666;
/// Bytes of records that are written to a pipe at a time.
const BATCH_BYTES: usize = 32 << 10;
/// The overflow user id (`nobody`), for files of any other owner.
const NOBODY: u32 = 65_534;

/// Prefix of the temporary name of a file or a directory.
const TEMPORARY_PREFIX: &[u8] = b".cove-";
/// Suffix of the names of temporary directories for copies.
const MOVED_SUFFIX: &[u8] = b"moved";

/// Returns whether a name is a temporary name of this helper: `.cove-INODE-NUMBER`, or
/// `.cove-INODE-moved`.
pub(super) fn is_temporary(name: &[u8]) -> bool {
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let mut parts = match name.strip_prefix(TEMPORARY_PREFIX) {
        Some(rest) => rest.splitn(2, |byte| *byte == b'-'),
        None => return false,
    };
    let (inode, rest) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    is_number(inode) && (rest == MOVED_SUFFIX || is_number(rest))
}

/// Performs a request.
pub(super) fn perform(job: &mut FileJob) -> Outcome<FileReply> {
    match job.request.clone() {
        FileRequest::Stat { path, follow } => {
            let fd = paths::open(&path, follow)?;
            let stat = files::stat(fd.as_fd(), c"")?;
            // The kernel's name of the file: with all links resolved.
            let name = files::readlink(fd.as_fd(), &paths::own_link(fd.as_fd()))?;
            Ok(FileReply::payload(
                entry(MessageWriter::new(0), fd.as_fd(), c"", &stat).bytes(&name),
            ))
        }
        FileRequest::List { path, depth, limit } => {
            let pipe = job.descriptor()?;
            list(job, &path, depth, limit, pipe)
        }
        FileRequest::Read { path } => read(&path),
        FileRequest::Write { path, parents, create } => begin(&path, parents, create),
        FileRequest::Finish { path, create } => finish(&path, create, &job.descriptor()?),
        FileRequest::Append { path, parents } => append(&path, parents),
        FileRequest::MakeDir { path, parents } => make_dir(&path, parents),
        FileRequest::Rename { from, to } => rename(job, &from, &to),
        FileRequest::Remove { path, recursive } => {
            let place = paths::locate(&path, false, false)?;
            remove(job, &place, recursive)?;
            Ok(FileReply::default())
        }
        FileRequest::Chmod { path, mode } => {
            let fd = paths::open(&path, true)?;
            files::chmod(&paths::own_link(fd.as_fd()), mode)?;
            Ok(FileReply::default())
        }
        FileRequest::Export { path } => {
            let pipe = job.descriptor()?;
            export::export(job, &path, File::from(pipe))?;
            Ok(FileReply::default())
        }
        FileRequest::Import { path } => {
            let pipe = job.descriptor()?;
            let dir = paths::make_directories(None, path.to_bytes())?;
            let (entries, bytes) = import::import(job, dir, File::from(pipe))?;
            Ok(FileReply::payload(MessageWriter::new(0).u64(entries).u64(bytes)))
        }
        FileRequest::ListAttributes { path } => {
            let fd = paths::open(&path, true)?;
            let mut names = vec![0; wire::FRAME_BYTES_MAX - 4096];
            let n = files::list_attributes(&paths::own_link(fd.as_fd()), &mut names)?;
            names.truncate(n);
            Ok(FileReply { payload: names, fds: Vec::new() })
        }
        FileRequest::GetAttribute { path, name } => {
            let fd = paths::open(&path, true)?;
            let mut value = vec![0; wire::FRAME_BYTES_MAX - 4096];
            let n = files::attribute(&paths::own_link(fd.as_fd()), &name, &mut value)?;
            value.truncate(n);
            Ok(FileReply { payload: value, fds: Vec::new() })
        }
        FileRequest::SetAttribute { path, name, value } => {
            let link = paths::open(&path, true)?;
            let link = paths::own_link(link.as_fd());
            match value {
                Some(value) => files::set_attribute(&link, &name, &value)?,
                None => files::remove_attribute(&link, &name)?,
            }
            Ok(FileReply::default())
        }
        FileRequest::Usage { path } => usage(job, &path),
        // Handled elsewhere.
        FileRequest::Watch { .. } | FileRequest::Cancel => {
            Err(FileRefusal::new(libc::EINVAL, Vec::new()))
        }
    }
}

/// Encodes an entry: a name in a directory, or, with an empty name, the open file itself.
fn entry(w: MessageWriter, dir: BorrowedFd<'_>, name: &CStr, stat: &FileStat) -> MessageWriter {
    let (uid, gid) = files::fsids();
    let guest_id = |id: u32, own: u32| match id {
        id if id == own => SHOWN_USER,
        0 => 0,
        _ => NOBODY,
    };
    let kind = match stat.kind() {
        libc::S_IFREG => 0,
        libc::S_IFDIR => 1,
        libc::S_IFLNK => 2,
        _ => 3,
    };
    let target = match kind {
        // A link that was removed meanwhile has no target.
        2 => files::readlink(dir, name).unwrap_or_default(),
        _ => Vec::new(),
    };
    let modified = stat
        .mtime
        .checked_mul(1_000_000_000)
        .and_then(|nanos| nanos.checked_add(stat.mtime_nanos.into()))
        .unwrap_or(if stat.mtime < 0 { i64::MIN } else { i64::MAX });
    w.u8(kind)
        .u64(stat.size)
        .u32(stat.mode)
        .u32(guest_id(stat.uid, uid))
        .u32(guest_id(stat.gid, gid))
        .u64(modified.cast_unsigned())
        .bytes(&target)
}

fn place_entry(place: &mut ResolvedName) -> Outcome<FileReply> {
    let stat = place.refresh()?;
    Ok(FileReply::payload(entry(MessageWriter::new(0), place.dir.as_fd(), &place.name, &stat)))
}

fn list(job: &FileJob, path: &CStr, depth: u32, limit: u64, pipe: OwnedFd) -> Outcome<FileReply> {
    let mut pipe = File::from(pipe);
    let names = DirectoryNames::new(paths::open_directory(path)?);
    let (mut batch, mut listed, mut is_cut) = (Vec::new(), 0, false);
    let walk = TreeWalk { job, skip_unreadable: true };
    walk.run(names, &mut |visit: &TreeVisit<'_>| {
        if listed >= limit {
            is_cut = true;
            return Ok(trees::TreeStep::Stop);
        }
        listed += 1;
        let w = MessageWriter::new(0).bytes(visit.path);
        let record = entry(w, visit.dir, visit.name, &visit.stat).finish();
        let record = wire::record(record.get(1..).unwrap_or(&[]));
        if record.len() > wire::RECORD_BYTES_MAX {
            is_cut = true;
            return Ok(trees::TreeStep::Over);
        }
        batch.extend_from_slice(&record);
        if batch.len() >= BATCH_BYTES {
            // If the reader has closed the pipe, its caller no longer waits for the answer either.
            pipe.write_all(&batch)?;
            batch.clear();
        }
        Ok(if visit.depth < depth { trees::TreeStep::Into } else { trees::TreeStep::Over })
    })?;
    pipe.write_all(&batch)?;
    Ok(FileReply { payload: vec![is_cut.into()], fds: Vec::new() })
}

/// Returns an error unless the file is a regular one; others, such as pipes and devices, could
/// block and are never opened.
fn regular(stat: &FileStat) -> Outcome<()> {
    match stat.kind() {
        libc::S_IFREG => Ok(()),
        libc::S_IFDIR => Err(FileRefusal::new(libc::EISDIR, Vec::new())),
        _ => Err(FileRefusal::new(libc::EINVAL, "not a regular file")),
    }
}

fn read(path: &CStr) -> Outcome<FileReply> {
    let fd = paths::open(path, true)?;
    let stat = files::stat(fd.as_fd(), c"")?;
    regular(&stat)?;
    let file = paths::reopen(fd.as_fd(), libc::O_RDONLY)?;
    let mut done = FileReply::payload(entry(MessageWriter::new(0), fd.as_fd(), c"", &stat));
    done.fds.push(file);
    Ok(done)
}

/// Opens an unnamed file in the directory of its future name, so that a crash leaves no file
/// behind.
fn begin(path: &CStr, parents: bool, create: bool) -> Outcome<FileReply> {
    let place = paths::locate(path, !create, parents)?;
    if let Some(stat) = &place.stat {
        if create {
            return Err(FileRefusal::new(libc::EEXIST, Vec::new()));
        }
        regular(stat)?;
    }
    let flags = libc::O_TMPFILE | libc::O_WRONLY;
    let dir = Some(place.dir.as_fd());
    let file = match files::openat2(dir, c".", flags, FILE_MODE, ResolveMode::Ordinary) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            let why = "the file system has no files without a name; overlays have since Linux 6.1";
            return Err(FileRefusal::new(libc::EOPNOTSUPP, why));
        }
        other => other?,
    };
    Ok(FileReply { payload: Vec::new(), fds: vec![file] })
}

fn finish(path: &CStr, create: bool, file: &OwnedFd) -> Outcome<FileReply> {
    let mut place = paths::locate(path, !create, false)?;
    let link = paths::own_link(file.as_fd());
    if let Some(stat) = place.stat.filter(|_| !create) {
        regular(&stat)?;
        sys::fchmod(file.as_fd(), stat.mode & 0o7777)?;
    } else {
        match files::link_nameless(&link, place.dir.as_fd(), &place.name) {
            Err(error) if !create && error.raw_os_error() == Some(libc::EEXIST) => {}
            other => {
                other?;
                return place_entry(&mut place);
            }
        }
    }
    // link(2) never replaces a name, so the file gets a temporary name first, and is then renamed.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let stat = files::stat(file.as_fd(), c"")?;
    let other = CString::new(format!(".cove-{}-{id}", stat.ino)).map_err(io::Error::from)?;
    files::link_nameless(&link, place.dir.as_fd(), &other)?;
    let renamed = files::rename(place.dir.as_fd(), &other, place.dir.as_fd(), &place.name);
    if let Err(error) = renamed {
        files::unlink(place.dir.as_fd(), &other)?;
        return Err(error.into());
    }
    place_entry(&mut place)
}

fn append(path: &CStr, parents: bool) -> Outcome<FileReply> {
    let place = paths::locate(path, true, parents)?;
    let flags = libc::O_WRONLY | libc::O_APPEND;
    let file = match &place.stat {
        Some(stat) => {
            regular(stat)?;
            let flags_here = libc::O_PATH | libc::O_NOFOLLOW;
            let dir = Some(place.dir.as_fd());
            let fd = files::openat2(dir, &place.name, flags_here, 0, ResolveMode::Ordinary)?;
            // The name can refer to another file by now.
            regular(&files::stat(fd.as_fd(), c"")?)?;
            paths::reopen(fd.as_fd(), flags)?
        }
        None => {
            let flags = flags | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
            let dir = Some(place.dir.as_fd());
            files::openat2(dir, &place.name, flags, FILE_MODE, ResolveMode::Ordinary)?
        }
    };
    Ok(FileReply { payload: Vec::new(), fds: vec![file] })
}

fn make_dir(path: &CStr, parents: bool) -> Outcome<FileReply> {
    let done = |is_new: bool| Ok(FileReply { payload: vec![is_new.into()], fds: Vec::new() });
    if let Ok(fd) = paths::open(path, true) {
        let stat = files::stat(fd.as_fd(), c"")?;
        return match stat.kind() {
            libc::S_IFDIR => done(false),
            _ => Err(FileRefusal::new(libc::EEXIST, Vec::new())),
        };
    }
    let place = paths::locate(path, false, parents)?;
    match sys::mkdirat(place.dir.as_fd(), &place.name, 0o777) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => match place.stat {
            // Another process made it meanwhile.
            None => done(false),
            Some(_) => Err(error.into()),
        },
        other => {
            other?;
            done(true)
        }
    }
}

fn rename(job: &FileJob, from: &CStr, to: &CStr) -> Outcome<FileReply> {
    let from = paths::locate(from, false, false)?;
    from.existing()?;
    let to = paths::locate(to, false, false)?;
    match files::rename(from.dir.as_fd(), &from.name, to.dir.as_fd(), &to.name) {
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => move_across(job, &from, &to)?,
        other => other?,
    }
    Ok(FileReply::default())
}

/// Moves between file systems, or moves a file that an overlay cannot rename: packs it, unpacks it
/// beside its new place, and then renames it, so that the new place never has a partial copy.
fn move_across(job: &FileJob, from: &ResolvedName, to: &ResolvedName) -> Outcome<()> {
    let stat = from.existing()?;
    let other = CString::new(format!(".cove-{}-moved", stat.ino)).map_err(io::Error::from)?;
    sys::mkdirat(to.dir.as_fd(), &other, 0o700)?;
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let aside = files::openat2(Some(to.dir.as_fd()), &other, flags, 0, ResolveMode::Ordinary)?;
    let moved = (|| {
        let (read, write) = sys::pipe()?;
        let unpacked = aside.try_clone()?;
        std::thread::scope(|scope| -> Outcome<()> {
            let unpacking = std::thread::Builder::new()
                .stack_size(super::STACK_BYTES)
                .spawn_scoped(scope, || import::import(job, unpacked, File::from(read)))?;
            let packed = export::export_one(job, from, File::from(write));
            let unpacked = unpacking
                .join()
                .unwrap_or_else(|_| Err(FileRefusal::new(libc::EIO, "the copy failed")));
            packed?;
            unpacked.map(drop)
        })?;
        Ok(files::rename(aside.as_fd(), &from.name, to.dir.as_fd(), &to.name)?)
    })();
    let aside = ResolvedName { dir: to.dir.try_clone()?, name: other, stat: None };
    let cleaned = clear(aside);
    moved.and(cleaned)?;
    remove(job, from, true)
}

/// Removes a temporary directory of this helper, even if the request was cancelled.
fn clear(mut place: ResolvedName) -> Outcome<()> {
    place.refresh()?;
    remove(&FileJob::own(), &place, true)
}

fn remove(job: &FileJob, place: &ResolvedName, recursive: bool) -> Outcome<()> {
    let stat = place.existing()?;
    if stat.kind() != libc::S_IFDIR {
        return Ok(files::unlink(place.dir.as_fd(), &place.name)?);
    }
    if !recursive {
        return Ok(sys::rmdirat(place.dir.as_fd(), &place.name)?);
    }
    trees::remove(job, place.dir.as_fd(), &place.name)
}

fn usage(job: &FileJob, path: &CStr) -> Outcome<FileReply> {
    let fd = paths::open(path, true)?;
    let stat = files::stat(fd.as_fd(), c"")?;
    let (mut entries, mut blocks) = (1u64, stat.blocks);
    if stat.kind() == libc::S_IFDIR {
        let names = DirectoryNames::new(paths::open_directory(path)?);
        TreeWalk { job, skip_unreadable: true }.run(names, &mut |visit: &TreeVisit<'_>| {
            entries += 1;
            blocks = blocks.saturating_add(visit.stat.blocks);
            Ok(trees::TreeStep::Into)
        })?;
    }
    Ok(FileReply::payload(MessageWriter::new(0).u64(entries).u64(blocks.saturating_mul(512))))
}
