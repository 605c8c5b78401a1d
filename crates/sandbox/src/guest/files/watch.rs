//! Events in a directory, reported as they happen.
//!
//! Temporary names of this helper are not reported: an unnamed file, which the kernel calls
//! `#INODE`, and the name of a file before it replaces another one.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man7/inotify.7.html>

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::paths;
use super::trees::{DirectoryNames, TreeStep, TreeVisit, TreeWalk};
use super::{FileJob, FileRefusal, Outcome, ops};
use crate::session::files::wire;
use crate::sys;
use crate::sys::files::{self, ResolveMode};

/// Maximum number of directories of one recursive watch; beyond it, an overflow is reported.
const DIRECTORIES_MAX: usize = 8192;
/// Bytes of events that are read at a time.
const EVENTS_BYTES: usize = 16 << 10;
/// Reads before a mark is sent: more than the kernel's queue of events holds (`inotify(7)`,
/// `max_queued_events` is 16,384), so that a program cannot delay the mark indefinitely.
const MARK_READS_MAX: usize = 128;
/// Requests for marks that are read at a time.
const MARKS_BYTES: usize = 64;

const EVENTS: u32 = libc::IN_CREATE
    | libc::IN_MODIFY
    | libc::IN_DELETE
    | libc::IN_MOVED_FROM
    | libc::IN_MOVED_TO
    | libc::IN_ATTRIB
    | libc::IN_DELETE_SELF
    | libc::IN_MOVE_SELF
    | libc::IN_EXCL_UNLINK;

// Event kinds on the wire, as the server decodes them.
const CREATE: u8 = 1;
const WRITE: u8 = 2;
const REMOVE: u8 = 3;
const RENAME: u8 = 4;
const CHMOD: u8 = 5;
const OVERFLOW: u8 = 6;

/// An event from the kernel.
#[derive(Debug)]
struct InotifyEvent {
    watch: i32,
    mask: u32,
    name: Vec<u8>,
}

/// A watch of one path.
#[derive(Debug)]
pub(super) struct PathWatcher {
    inotify: OwnedFd,
    /// Not kept open, because an open directory is not deleted when it is removed.
    top: CString,
    top_id: (u64, u64),
    top_watch: i32,
    is_recursive: bool,
    /// Path of each watched directory, relative to the top.
    paths: HashMap<i32, Vec<u8>>,
    out: Vec<u8>,
    is_full: bool,
}

impl PathWatcher {
    pub(super) fn new(path: &CStr, is_recursive: bool) -> Outcome<PathWatcher> {
        let top = paths::open(path, true)?;
        let inotify = files::inotify()?;
        let stat = files::stat(top.as_fd(), c"")?;
        let is_directory = stat.kind() == libc::S_IFDIR;
        let top_watch =
            files::inotify_watch(inotify.as_fd(), &paths::own_link(top.as_fd()), EVENTS)?;
        drop(top);
        let mut watcher = PathWatcher {
            inotify,
            top: path.to_owned(),
            top_id: (stat.dev, stat.ino),
            top_watch,
            is_recursive: is_recursive && is_directory,
            paths: HashMap::from([(top_watch, Vec::new())]),
            // No event is missed from here on; an empty record reports that to the server.
            out: wire::record(&[]),
            is_full: false,
        };
        if watcher.is_recursive {
            watcher.add_below(b"", false)?;
        }
        Ok(watcher)
    }

    /// Reports events until the reader closes the stream or the watched path is removed. For each
    /// byte received from the reader, sends a mark after all events that preceded the byte.
    pub(super) fn report(mut self, stream: OwnedFd) {
        let mut stream = UnixStream::from(stream);
        let mut buf = vec![0; EVENTS_BYTES];
        let mut marks = 0_u64;
        let Ok(inotify) = self.inotify.try_clone() else { return };
        let mut inotify = File::from(inotify);
        // Events found while the watch was set up are sent first.
        if stream.write_all(&std::mem::take(&mut self.out)).is_err() {
            return;
        }
        loop {
            let ready = match sys::poll(&[inotify.as_fd(), stream.as_fd()], None) {
                Ok(ready) => ready,
                Err(_) => return,
            };
            let has_marks = ready.get(1).copied().unwrap_or(true);
            if has_marks {
                match stream.read(&mut [0; MARKS_BYTES]) {
                    Ok(count @ 1..) => marks += count as u64,
                    Ok(_) | Err(_) => return,
                }
            }
            let reads_max = if has_marks { MARK_READS_MAX } else { 1 };
            if !self.relay(&mut inotify, &mut buf, reads_max, &mut stream) {
                return;
            }
            if has_marks && stream.write_all(&wire::mark(marks)).is_err() {
                return;
            }
        }
    }

    /// Forwards the kernel's queued events, in at most `reads_max` reads. Returns whether the watch
    /// continues.
    fn relay(
        &mut self,
        inotify: &mut File,
        buf: &mut [u8],
        reads_max: usize,
        stream: &mut UnixStream,
    ) -> bool {
        for _ in 0..reads_max {
            let n = match inotify.read(buf) {
                Ok(n) => n,
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            };
            let mut rest = buf.get(..n).unwrap_or(&[]);
            let mut goes_on = true;
            while goes_on && let Some(event) = take_event(&mut rest) {
                goes_on = self.handle(&event);
            }
            if stream.write_all(&std::mem::take(&mut self.out)).is_err() || !goes_on {
                return false;
            }
        }
        true
    }

    fn tell(&mut self, kind: u8, path: &[u8]) {
        let mut event = [&[kind], path].concat();
        if event.len() > wire::RECORD_BYTES_MAX {
            // Programs can make paths of any length, one directory at a time.
            event = vec![OVERFLOW];
        }
        self.out.extend_from_slice(&wire::record(&event));
    }

    /// Handles one event. Returns whether the watch continues.
    fn handle(&mut self, event: &InotifyEvent) -> bool {
        let has = |bits: u32| event.mask & bits != 0;
        if has(libc::IN_Q_OVERFLOW) {
            self.tell(OVERFLOW, b"");
            return true;
        }
        let is_top = event.watch == self.top_watch;
        if event.name.is_empty() {
            // For a directory below the top, its parent reports the same.
            if !is_top {
                if has(libc::IN_IGNORED) {
                    self.paths.remove(&event.watch);
                }
                return true;
            }
            return self.handle_top(event.mask);
        }
        let Some(dir) = self.paths.get(&event.watch) else { return true };
        let mut path = dir.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&event.name);
        let kind = if has(libc::IN_CREATE | libc::IN_MOVED_TO) {
            CREATE
        } else if has(libc::IN_MODIFY) {
            WRITE
        } else if has(libc::IN_DELETE) {
            REMOVE
        } else if has(libc::IN_MOVED_FROM) {
            RENAME
        } else if has(libc::IN_ATTRIB) {
            CHMOD
        } else {
            return true;
        };
        if self.is_own(kind, &event.name, &path) {
            return true;
        }
        self.tell(kind, &path);
        if self.is_recursive && has(libc::IN_ISDIR) {
            match kind {
                CREATE => {
                    // The directory is gone again or not readable: then it is not watched.
                    let _unwatched = self.add(&path, true);
                }
                RENAME => self.forget_below(&path),
                _ => {}
            }
        }
        true
    }

    /// Returns whether an event is about a name that only this helper has used.
    fn is_own(&self, kind: u8, name: &[u8], path: &[u8]) -> bool {
        if ops::is_temporary(name) {
            return true;
        }
        // The kernel's name for an unnamed file (`d_tmpfile` in its `fs/dcache.c`). Programs may
        // have files with such names, too; those exist.
        let is_inode = name
            .strip_prefix(b"#")
            .is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit));
        matches!(kind, WRITE | CHMOD) && is_inode && !self.is_there(path)
    }

    fn is_there(&self, path: &[u8]) -> bool {
        let Ok(name) = CString::new(path) else { return false };
        let Ok(top) = self.open_top() else { return false };
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        files::openat2(Some(top.as_fd()), &name, flags, 0, ResolveMode::Beneath).is_ok()
    }

    fn handle_top(&mut self, mask: u32) -> bool {
        let has = |bits: u32| mask & bits != 0;
        if has(libc::IN_DELETE_SELF) {
            self.tell(REMOVE, b"");
        } else if has(libc::IN_MOVE_SELF) {
            self.tell(RENAME, b"");
        } else if has(libc::IN_MODIFY) {
            self.tell(WRITE, b"");
            return true;
        } else if has(libc::IN_ATTRIB) {
            self.tell(CHMOD, b"");
            return true;
        } else {
            return !has(libc::IN_IGNORED | libc::IN_UNMOUNT);
        }
        false
    }

    /// Watches a directory below the top and all directories in it. If `is_new`, also reports its
    /// existing content, whose creation was not observed.
    fn add(&mut self, path: &[u8], is_new: bool) -> Outcome<()> {
        let name = CString::new(path).map_err(io::Error::from)?;
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let top = self.open_top()?;
        let dir = files::openat2(Some(top.as_fd()), &name, flags, 0, ResolveMode::Beneath)?;
        drop(top);
        if self.watch(dir.as_fd(), path) { self.add_below(path, is_new) } else { Ok(()) }
    }

    fn add_below(&mut self, path: &[u8], is_new: bool) -> Outcome<()> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let name = if path.is_empty() { b"." } else { path };
        let name = CString::new(name).map_err(io::Error::from)?;
        let top = self.open_top()?;
        let dir = files::openat2(Some(top.as_fd()), &name, flags, 0, ResolveMode::Beneath)?;
        drop(top);
        let job = FileJob::own();
        let walk = TreeWalk { job: &job, skip_unreadable: true };
        walk.run(DirectoryNames::new(dir), &mut |visit: &TreeVisit<'_>| {
            if ops::is_temporary(visit.name.to_bytes()) {
                return Ok(TreeStep::Over);
            }
            let below = match path {
                b"" => visit.path.to_vec(),
                path => [path, b"/", visit.path].concat(),
            };
            if is_new {
                self.tell(CREATE, &below);
            }
            if visit.stat.kind() != libc::S_IFDIR {
                return Ok(TreeStep::Over);
            }
            let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
            let dir = Some(visit.dir);
            let Ok(dir) = files::openat2(dir, visit.name, flags, 0, ResolveMode::Ordinary) else {
                return Ok(TreeStep::Over);
            };
            Ok(if self.watch(dir.as_fd(), &below) { TreeStep::Into } else { TreeStep::Over })
        })
    }

    /// Opens the top directory temporarily; fails if its name now refers to another one.
    fn open_top(&self) -> Outcome<OwnedFd> {
        let top = paths::open(&self.top, true)?;
        let stat = files::stat(top.as_fd(), c"")?;
        if (stat.dev, stat.ino) != self.top_id {
            return Err(FileRefusal::new(libc::ENOENT, Vec::new()));
        }
        Ok(top)
    }

    /// Adds one directory; returns false if there is no room for it, which is reported once.
    fn watch(&mut self, dir: BorrowedFd<'_>, path: &[u8]) -> bool {
        let link = paths::own_link(dir);
        let added = if self.paths.len() < DIRECTORIES_MAX {
            files::inotify_watch(self.inotify.as_fd(), &link, EVENTS)
        } else {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        };
        match added {
            Ok(watch) => {
                self.paths.insert(watch, path.to_vec());
                true
            }
            Err(error) => {
                if error.raw_os_error() == Some(libc::ENOSPC) && !self.is_full {
                    self.is_full = true;
                    self.tell(OVERFLOW, b"");
                }
                false
            }
        }
    }

    /// Stops watching a directory that was moved away, since its paths have changed.
    fn forget_below(&mut self, path: &[u8]) {
        let prefix = [path, b"/"].concat();
        let gone: Vec<i32> = self
            .paths
            .iter()
            .filter(|(_, dir)| dir.as_slice() == path || dir.starts_with(&prefix))
            .map(|(watch, _)| *watch)
            .collect();
        for watch in gone {
            self.paths.remove(&watch);
            // The kernel has removed the watch already if the directory is gone.
            let _gone = files::inotify_forget(self.inotify.as_fd(), watch);
        }
    }
}

/// Decodes the first of the kernel's events: watch, mask, cookie, length, name.
fn take_event(bytes: &mut &[u8]) -> Option<InotifyEvent> {
    let (head, rest) = bytes.split_first_chunk::<16>()?;
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(head.get(at..at + 4)?.try_into().ok()?))
    };
    let (watch, mask, len) = (word(0)?.cast_signed(), word(4)?, usize::try_from(word(12)?).ok()?);
    let (name, rest) = rest.split_at_checked(len)?;
    *bytes = rest;
    // The kernel pads the name with NULs.
    let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]).to_vec();
    Some(InotifyEvent { watch, mask, name })
}
