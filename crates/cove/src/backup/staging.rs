//! Holds the files of a data directory for a backup while the services continue.
//!
//! Files of objects, layers and tables are written once, beside their place, and never changed. The
//! backup makes a hard link to each in its own directory. The link keeps the file until the end of
//! the backup even if a service removes it, and takes no space. A file that cannot be linked, for
//! example on a file system mounted below the data directory, is copied.
//!
//! Clients write into the warehouse as well and are not trusted: directories are opened one by one
//! without following links, and anything but a regular file is skipped and reported by name.

use std::ffi::{CStr, OsStr};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::manifest::{BackupPart, DATA_PREFIX, SkippedFiles};
use super::unpack::is_plain_part;

/// Directory of the backup in a data directory.
pub(super) const STAGE: &str = "backup";
/// Size from which a file is expected to have holes.
const HOLES_BYTES_MIN: u64 = 1 << 20;
/// Maximum depth of directories.
const DEPTH_MAX: usize = 64;

/// Directory with the files of one backup. Dropping the value removes it.
#[derive(Debug)]
pub(super) struct StagedFiles {
    directory: PathBuf,
    pub(super) skipped: SkippedFiles,
}

impl Drop for StagedFiles {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.directory) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "failed to remove the files of a backup; the next start does");
        }
    }
}

/// Removes the files that an earlier backup left behind.
pub(super) fn remove(stage: &Path) -> io::Result<()> {
    match fs::remove_dir_all(stage) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl StagedFiles {
    /// Creates the directory, and replaces one that was left behind.
    pub(super) fn begin(data_dir: &Path) -> Result<StagedFiles> {
        let directory = data_dir.join(STAGE);
        remove(&directory).context("remove what an earlier backup left behind")?;
        let staged = StagedFiles { directory, skipped: SkippedFiles::default() };
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        for path in [staged.directory.clone(), staged.data()] {
            let made = builder.create(&path);
            made.with_context(|| format!("make the directory `{}`", path.display()))?;
        }
        Ok(staged)
    }

    /// Returns the directory of the files that go below `data/`.
    pub(super) fn data(&self) -> PathBuf {
        self.directory.join(DATA_PREFIX.trim_end_matches('/'))
    }

    /// Returns a path for a temporary file that is not in the archive.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Holds one file if it exists.
    pub(super) fn hold_file(&self, from: &Path, name: &str) -> Result<BackupPart> {
        let mut part = BackupPart { name: String::new(), files: 0, bytes: 0 };
        let to = self.data().join(name);
        let (Some(from), Some(to), Some(file)) = (from.parent(), to.parent(), from.file_name())
        else {
            return Ok(part);
        };
        fs::create_dir_all(to)?;
        let (Some(from), Some(to)) = (open_directory(from)?, open_directory(to)?) else {
            return Ok(part);
        };
        let entry = StagedEntry { from: from.as_fd(), to: to.as_fd(), name: &c_name(file)? };
        entry.hold(&mut part).with_context(|| format!("hold `{name}`"))?;
        Ok(part)
    }

    /// Holds the files of a directory and its subdirectories, except the entries of the top
    /// directory that `leave` names.
    pub(super) fn hold_tree(
        &mut self,
        from: &Path,
        name: &str,
        leave: &[&str],
    ) -> Result<BackupPart> {
        let mut part = BackupPart { name: name.to_owned(), files: 0, bytes: 0 };
        let to = self.data().join(name);
        fs::create_dir_all(&to)?;
        // Only the top directory may be a link, because the operator made it.
        let Some(from) = open_directory(from)? else { return Ok(part) };
        let to = open_directory(&to)?.context("the directory of the backup is gone")?;
        let mut walk = StagedTreeWalk { part: &mut part, skipped: &mut self.skipped, leave };
        walk.hold(from, to.as_fd(), &format!("{DATA_PREFIX}{name}"), 0)?;
        Ok(part)
    }
}

/// Opens a directory; returns `None` if it does not exist.
fn open_directory(path: &Path) -> Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        opened => Ok(Some(opened.with_context(|| format!("open `{}`", path.display()))?)),
    }
}

fn c_name(name: &OsStr) -> Result<std::ffi::CString> {
    Ok(std::ffi::CString::new(name.as_bytes())?)
}

/// Walk through a tree of files.
struct StagedTreeWalk<'a> {
    part: &'a mut BackupPart,
    skipped: &'a mut SkippedFiles,
    /// Names that are left out of the first directory.
    leave: &'a [&'a str],
}

impl StagedTreeWalk<'_> {
    fn hold(
        &mut self,
        from: OwnedFd,
        to: BorrowedFd<'_>,
        path_text: &str,
        depth: usize,
    ) -> Result<()> {
        for entry in Dir::read_from(&from).with_context(|| format!("read `{path_text}`"))? {
            let entry = entry.with_context(|| format!("read `{path_text}`"))?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let plain = name.to_str().ok().filter(|name| is_plain_part(name));
            let below = format!("{path_text}/{}", name.to_string_lossy().escape_debug());
            let Some(plain) = plain else {
                self.skipped.add(below);
                continue;
            };
            if depth == 0 && self.leave.contains(&plain) {
                continue;
            }
            let stat = match rustix::fs::statat(&from, name, AtFlags::SYMLINK_NOFOLLOW) {
                // Clients may remove their files at any time.
                Err(Errno::NOENT) => continue,
                stat => stat.with_context(|| format!("look at `{below}`"))?,
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => {
                    let entry = StagedEntry { from: from.as_fd(), to, name };
                    let held = entry.hold(self.part);
                    held.with_context(|| format!("hold `{below}`"))?;
                }
                FileType::Directory if depth < DEPTH_MAX => {
                    let Some((from, to)) = entered(from.as_fd(), to, name)
                        .with_context(|| format!("open `{below}`"))?
                    else {
                        continue;
                    };
                    self.hold(from, to.as_fd(), &below, depth + 1)?;
                }
                _ => self.skipped.add(below),
            }
        }
        Ok(())
    }
}

/// Opens a directory and creates the one of the same name in the other tree; returns `None` if the
/// directory no longer exists.
fn entered(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    name: &CStr,
) -> io::Result<Option<(OwnedFd, OwnedFd)>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let from = match rustix::fs::openat(from, name, flags, Mode::empty()) {
        // Removed or replaced since `statat`.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        opened => opened?,
    };
    rustix::fs::mkdirat(to, name, Mode::RWXU)?;
    Ok(Some((from, rustix::fs::openat(to, name, flags, Mode::empty())?)))
}

/// File in a directory, and the directory of the backup that it is linked into.
struct StagedEntry<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
    name: &'a CStr,
}

impl StagedEntry<'_> {
    /// Links the file, or copies it, and counts it.
    fn hold(&self, part: &mut BackupPart) -> io::Result<()> {
        let StagedEntry { from, to, name } = *self;
        match rustix::fs::linkat(from, name, to, name, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::XDEV | Errno::PERM | Errno::MLINK) => {
                let Some(mut source) = open_regular(from, name)? else { return Ok(()) };
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let copy = rustix::fs::openat(to, name, flags, Mode::RUSR | Mode::WUSR)?;
                io::copy(&mut source, &mut File::from(copy))?;
            }
            Err(error) => return Err(error.into()),
        }
        // A client may have replaced the file by a link before it was linked.
        let Some(held) = open_regular(to, name)? else {
            return Ok(rustix::fs::unlinkat(to, name, AtFlags::empty())?);
        };
        let metadata = held.metadata()?;
        part.files += 1;
        part.bytes += match metadata.len() {
            // Disk images have more holes than data.
            bytes @ HOLES_BYTES_MIN.. => bytes.min(metadata.blocks().saturating_mul(512)),
            bytes => bytes,
        };
        Ok(())
    }
}

/// Opens a regular file; returns `None` if it does not exist or is no regular file.
fn open_regular(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
        opened => File::from(opened?),
    };
    Ok(file.metadata()?.is_file().then_some(file))
}

/// Opens a held file, in a directory that no other program has open.
pub(super) fn open_held(path: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    Ok(File::from(opened.with_context(|| format!("open `{}`", path.display()))?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use testkit::Scratch;

    use super::*;

    #[test]
    fn files_stay_as_they_were_and_links_lead_nowhere() {
        let scratch = Scratch::new();
        let (data, outside) = (scratch.path().join("d"), scratch.path().join("outside"));
        let tables = data.join("warehouse/main");
        fs::create_dir_all(tables.join("t")).unwrap();
        fs::create_dir_all(data.join("warehouse/.new")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "secret").unwrap();
        fs::write(tables.join("t/1.json"), "one").unwrap();
        fs::write(tables.join("t/2.json"), "second").unwrap();
        fs::write(tables.join("t/a\nb"), "x").unwrap();
        fs::write(data.join("warehouse/.new/x"), "x").unwrap();
        fs::write(data.join("token"), "t").unwrap();
        symlink(&outside, tables.join("directory")).unwrap();
        symlink(outside.join("secret"), tables.join("file")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, tables.join("fifo"), Mode::RWXU).unwrap();

        let mut staged = StagedFiles::begin(&data).unwrap();
        let part = staged.hold_tree(&data.join("warehouse"), "warehouse", &[".new"]).unwrap();
        assert_eq!((part.files, part.bytes), (2, 9));
        assert_eq!(staged.skipped.count, 4, "{:?}", staged.skipped);
        let token = staged.hold_file(&data.join("token"), "token").unwrap();
        let nothing = staged.hold_file(&data.join("absent"), "absent").unwrap();
        assert_eq!((token.files, nothing.files), (1, 0));
        let nothing = staged.hold_tree(&data.join("none"), "none", &[]).unwrap();
        assert_eq!(nothing.files, 0);

        fs::remove_dir_all(&tables).unwrap();
        let held = staged.data().join("warehouse/main/t/2.json");
        assert_eq!(fs::read_to_string(&held).unwrap(), "second");
        assert!(open_held(&held).is_ok() && open_held(&held.with_file_name("9")).is_err());
        assert!(!staged.data().join("warehouse/main/file").exists());
        drop(staged);
        // A later backup replaces one that was cut off.
        fs::create_dir_all(data.join(STAGE).join("data")).unwrap();
        drop(StagedFiles::begin(&data).unwrap());
        assert!(!data.join(STAGE).exists());
    }
}
