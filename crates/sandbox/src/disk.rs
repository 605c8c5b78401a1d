//! Disks of sessions: files with a file system in them, mounted in no mount namespace.
//!
//! A *disk* is a sparse file, its *image*, with an ext4 file system of a fixed size. So its limits
//! are exact, deleted files free their space, and the file system is consistent after a power
//! failure. A *layer* is an image that does not change any more; any number of sessions can use it
//! as a lower directory.
//!
//! To *attach* an image, Cove locks the file, makes it a loop device through that same open file,
//! and mounts the device in no mount namespace. The kernel releases the lock when the last mount of
//! the image goes away, however its owner ended: no image is ever attached twice, no cleanup is
//! necessary, and an attempt to attach an image whose owner has just died waits for the lock.
//! Images must be on a local file system, because locks on a network file system do not give these
//! guarantees.
//!
//! Every disk contains `u`, which becomes the upper directory of a session's file system, with
//! `workspace` and `home` in it; `uw`, the overlay's work directory; and `e`, which is empty. Files
//! on the disk belong to [`DISK_USER`]; each mount maps that owner to another.
//!
//! All functions here block, and so does dropping a value. All of them require root.

mod image;
mod loops;
mod users;

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::sys;
use crate::sys::mounts::{self as kernel, LockMode};

use image::CopyFate;
use loops::ImageAccess;

pub use image::{ImageExtents, ImageWriter, is_zero};
pub(crate) use users::slot_users;

/// Owner, on disks, of all files of a session's programs. Mounts map the session's user to it.
pub(crate) const DISK_USER: u32 = 1000;
/// Owner, on disks, of files that the guest init makes, above all whiteouts of deleted files.
pub(crate) const DISK_INIT: u32 = 0;
/// Upper directory of an overlay, with the directories that sessions see.
pub(crate) const UPPER: &str = "u";
/// Work directory of the overlay.
pub(crate) const UPPER_WORK: &str = "uw";
/// Lower directory of an overlay without layers.
pub(crate) const EMPTY: &str = "e";
/// Directories in [`UPPER`] that sessions see, at `/workspace` and `/home/user`.
pub(crate) const SHOWN: [&str; 2] = ["workspace", "home"];

/// Smallest room for files of a disk, in bytes. The journal alone takes a quarter of that.
pub const DISK_BYTES_MIN: u64 = 16 << 20;
/// Largest room for files of a disk, in bytes.
pub const DISK_BYTES_MAX: u64 = 1 << 40;
/// Fewest files that a disk can have room for.
pub const DISK_INODES_MIN: u64 = 64;

/// Unit of everything on a disk, of its loop device, and of its image.
const BLOCK_BYTES: u32 = 4096;
/// Bytes that a disk needs for each inode: a file that is not empty takes a block.
pub const DISK_BYTES_PER_INODE: u64 = BLOCK_BYTES as u64;
/// Size of the journal: the minimum of ext4. A larger journal would only occupy the page cache.
const JOURNAL_BYTES: u64 = 4 << 20;
const INODE_BYTES: u64 = 256;
/// Inodes that are always in use: the ten inodes with fixed numbers, among them the root; our five
/// directories, and the directory that an overlay makes in its work directory.
const OWN_INODES: u64 = 16;
/// Maximum of the space that ext4 reserves for its own writes, which is a fiftieth of the disk.
const KEPT_FREE_BYTES_MAX: u64 = 16 << 20;
/// Granularity of image sizes.
const IMAGE_BYTES_UNIT: u64 = 1 << 20;
/// Version of the content of blank disks; templates of other versions are not used.
const TEMPLATE_VERSION: u32 = 2;
/// Directories in which `mkfs.ext4` is searched.
const TOOL_DIRECTORIES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin"];
/// All features of the file system, independent of the defaults of the tool.
const FEATURES: &str = "none,has_journal,ext_attr,dir_index,filetype,extent,64bit,flex_bg,\
     sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum";
/// First kernel in which overlays accept idmapped mounts.
const KERNEL_MIN: (u32, u32) = (5, 19);
/// Maximum number of templates; on most servers all disks have one of a few sizes.
const TEMPLATES_MAX: usize = 32;
/// Maximum number of attempts to copy a disk while programs write to it.
const COPY_TRIES_MAX: u32 = 8;
/// Longest wait for the lock of an image of our own after it was detached.
const DETACH_WAIT: Duration = Duration::from_secs(10);
/// Characters of the tool's output that an error includes.
const TOOL_CHARS_MAX: usize = 500;
/// Free extents shorter than this are not trimmed, because they free little space.
const TRIM_BYTES_MIN: u64 = 64 << 10;

/// Size of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DiskSize {
    /// Bytes of files and directories, at least; ext4's own structures come on top.
    pub bytes: u64,
    /// Files and directories, at least: ext4 rounds up.
    pub inodes: u64,
}

/// Usage of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes in use by files and directories.
    pub bytes: u64,
    /// Bytes available to files and directories in total.
    pub bytes_total: u64,
    /// Number of files and directories.
    pub inodes: u64,
    /// Maximum number of files and directories.
    pub inodes_total: u64,
}

/// Why a disk could not be made, attached, copied or read.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// This machine lacks something that disks need; the request itself is valid.
    #[error("{missing}; {remedy}")]
    Unsupported {
        /// The missing component.
        missing: String,
        /// Remedy.
        remedy: &'static str,
    },
    /// The requested size is out of range.
    #[error("`{field}` must be between {least} and {most}, not {value}")]
    Size {
        /// The field of [`DiskSize`].
        field: &'static str,
        /// Value.
        value: u64,
        /// Smallest valid value.
        least: u64,
        /// Largest valid value.
        most: u64,
    },
    /// The image stayed attached elsewhere for the whole wait of the caller.
    #[error("the disk image {} is in use", path.display())]
    InUse {
        /// The image.
        path: PathBuf,
    },
    /// Programs wrote to the disk during every attempt to copy it.
    #[error("programs write to the disk {} all the time", path.display())]
    Busy {
        /// The image.
        path: PathBuf,
    },
    /// An image with this name exists already.
    #[error("the disk image {} exists already", path.display())]
    Exists {
        /// The image.
        path: PathBuf,
    },
    /// The file is not a disk image, or only a part of one.
    #[error("the disk image {} is damaged: {detail}", path.display())]
    Damaged {
        /// The image.
        path: PathBuf,
        /// Kind of damage.
        detail: String,
    },
    /// The kernel refused a step.
    #[error("{step} {}", path.display())]
    Io {
        /// Step that was tried, as a verb phrase.
        step: &'static str,
        /// File that the step was tried with.
        path: PathBuf,
        /// Error of the kernel.
        #[source]
        source: io::Error,
    },
    /// The tool that makes file systems failed.
    #[error("mkfs.ext4 failed: {detail}")]
    Tool {
        /// Output of the tool, or why it did not start.
        detail: String,
    },
}

/// Names the step and the file that a result belongs to.
pub(crate) trait DiskErrorContext<T> {
    /// `step` as a verb phrase.
    fn at(self, step: &'static str, path: &Path) -> Result<T, DiskError>;
}

impl<T> DiskErrorContext<T> for io::Result<T> {
    fn at(self, step: &'static str, path: &Path) -> Result<T, DiskError> {
        self.map_err(|source| DiskError::Io { step, path: path.to_owned(), source })
    }
}

/// Creates blank disks from templates.
#[derive(Clone, Debug)]
pub struct Disks(Arc<DisksInner>);

#[derive(Debug)]
struct DisksInner {
    templates: PathBuf,
    mkfs: PathBuf,
    /// Held while a template is made, so that one is made once.
    making: Mutex<()>,
}

impl Disks {
    /// Checks that the machine has everything that disks need, and creates the directory
    /// `templates` for templates of blank disks.
    pub fn open(templates: &Path) -> Result<Disks, DiskError> {
        if sys::effective_ids().0 != 0 {
            let missing = "disks of sessions need root".to_owned();
            return Err(DiskError::Unsupported { missing, remedy: "start the server as root" });
        }
        check_kernel()?;
        loops::check()?;
        let mkfs = TOOL_DIRECTORIES.iter().map(|dir| Path::new(dir).join("mkfs.ext4"));
        let Some(mkfs) = mkfs.into_iter().find(|tool| tool.is_file()) else {
            let missing = format!("mkfs.ext4 is not in {}", TOOL_DIRECTORIES.join(", "));
            return Err(DiskError::Unsupported { missing, remedy: "install e2fsprogs" });
        };
        fs::create_dir_all(templates).at("make the directory of templates", templates)?;
        let inner = DisksInner { templates: templates.to_owned(), mkfs, making: Mutex::new(()) };
        Ok(Disks(Arc::new(inner)))
    }

    /// Free bytes of the file system with the templates, which is also the one with the disks.
    pub fn free_bytes(&self) -> Result<u64, DiskError> {
        let templates = &self.0.templates;
        let directory = File::open(templates).at("open", templates)?;
        let space = kernel::space(directory.as_fd()).at("measure", templates)?;
        Ok(space.blocks_available.saturating_mul(space.block_bytes))
    }

    /// Creates a blank disk, completely or not at all, and never replaces another. It is durable
    /// after [`AttachedDiskImage::sync`].
    pub fn create(&self, path: &Path, size: DiskSize) -> Result<(), DiskError> {
        check_size(size)?;
        let from = self.template(size)?;
        let to = image::unnamed(path)?;
        if !image::share(&from, &to) {
            image::copy(&from, &to, CopyFate::Any).at("copy the template to", path)?;
        }
        image::name(&to, path)
    }

    /// Returns the template of disks of this size; creates it if it does not exist.
    fn template(&self, size: DiskSize) -> Result<File, DiskError> {
        let name = format!("v{TEMPLATE_VERSION}-{}-{}.img", size.bytes, size.inodes);
        let path = self.0.templates.join(name);
        let open = || match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some).at("open the template", &path),
        };
        if let Some(template) = open()? {
            return Ok(template);
        }
        let _making = self.0.making.lock();
        match open()? {
            Some(template) => Ok(template),
            None => self.make_template(&path, size),
        }
    }

    fn make_template(&self, template: &Path, size: DiskSize) -> Result<File, DiskError> {
        self.make_room_for_template().at("tidy up", &self.0.templates)?;
        let made = image::unnamed(template)?;
        made.set_len(image_bytes(size)).at("give a size to", template)?;
        self.run_mkfs(&made, size)?;
        AttachedDiskImage::attach_unnamed(&made, |disk| {
            disk.furnish().at("make the directories of", template)
        })?;
        // On some file systems mkfs allocates space for its empty tables (tens of MiB for many
        // inodes). Space that is only reserved counts as data once a page of it is in memory, and
        // every disk would inherit it.
        let image = image::unnamed(template)?;
        image::copy_without_zeros(&made, &image).at("store", template)?;
        match image::name_durably(&image, template) {
            // Another server has created the same template.
            Ok(()) | Err(DiskError::Exists { .. }) => Ok(image),
            Err(error) => Err(error),
        }
    }

    /// Removes the least recently used templates above the maximum: callers choose the size of
    /// disks, so the number of sizes is not bounded.
    fn make_room_for_template(&self) -> io::Result<()> {
        let mut templates = Vec::new();
        for entry in fs::read_dir(&self.0.templates)? {
            let path = entry?.path();
            let used = fs::metadata(&path).and_then(|it| it.accessed());
            templates.extend(used.ok().map(|used| (used, path)));
        }
        templates.sort();
        let superfluous = (templates.len() + 1).saturating_sub(TEMPLATES_MAX);
        for (_, path) in templates.iter().take(superfluous) {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn run_mkfs(&self, image: &File, size: DiskSize) -> Result<(), DiskError> {
        // The image has no other path yet.
        let name = format!("/proc/{}/fd/{}", std::process::id(), image.as_raw_fd());
        let output = Command::new(&self.0.mkfs)
            .args(["-q", "-F", "-m", "0", "-O", FEATURES])
            .args(["-b", &BLOCK_BYTES.to_string(), "-I", &INODE_BYTES.to_string()])
            .args(["-N", &(size.inodes + OWN_INODES).to_string()])
            .args(["-J", &format!("size={}", JOURNAL_BYTES >> 20)])
            // A file without content reads as zeros already, and must stay sparse.
            .args(["-E", "lazy_itable_init=0,lazy_journal_init=1,nodiscard,root_owner=0:0"])
            .arg(name)
            // Ignores the host's configuration of mke2fs.
            .env("MKE2FS_CONFIG", "/dev/null")
            .output();
        match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => {
                let stderr = String::from_utf8_lossy(&output.stderr);
                let detail = stderr.trim().chars().take(TOOL_CHARS_MAX).collect();
                Err(DiskError::Tool { detail })
            }
            Err(error) => Err(DiskError::Tool { detail: error.to_string() }),
        }
    }
}

/// Bytes of the image of a disk of this size.
fn image_bytes(size: DiskSize) -> u64 {
    let tables = (size.inodes + OWN_INODES).next_multiple_of(1024) * INODE_BYTES;
    // Bitmaps, descriptors of block groups and the copies of them; the few blocks at the beginning.
    let structures = size.bytes / 128 + IMAGE_BYTES_UNIT;
    let content = size.bytes + tables + JOURNAL_BYTES + structures;
    (content + (content / 50).min(KEPT_FREE_BYTES_MAX)).next_multiple_of(IMAGE_BYTES_UNIT)
}

fn check_size(size: DiskSize) -> Result<(), DiskError> {
    let inodes_max = (size.bytes / DISK_BYTES_PER_INODE).min(u64::from(u32::MAX) / 2);
    for (field, value, least, most) in [
        ("bytes", size.bytes, DISK_BYTES_MIN, DISK_BYTES_MAX),
        ("inodes", size.inodes, DISK_INODES_MIN, inodes_max),
    ] {
        if !(least..=most).contains(&value) {
            return Err(DiskError::Size { field, value, least, most });
        }
    }
    Ok(())
}

fn check_kernel() -> Result<(), DiskError> {
    let unsupported = |missing, remedy| Err(DiskError::Unsupported { missing, remedy });
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if kernel_version(&release).is_none_or(|version| version < KERNEL_MIN) {
        let missing = format!("overlays need a newer kernel than {}", release.trim());
        return unsupported(missing, "use Linux 5.19 or later");
    }
    for kind in [c"ext4", c"overlay"] {
        // Loads the file system's module if it is built as a module.
        if let Err(error) = kernel::fs_open(kind) {
            let missing = format!("the kernel does not open {}: {error}", kind.to_string_lossy());
            let remedy = "load the kernel's modules ext4 and overlay, and give CAP_SYS_ADMIN";
            return unsupported(missing, remedy);
        }
    }
    Ok(())
}

/// The first two numbers of a kernel's release.
fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// A disk that is attached exclusively, for reading and writing. Dropping it detaches the disk as
/// soon as no sandbox has it mounted any more.
#[derive(Debug)]
pub struct AttachedDiskImage {
    /// Root directory. Keeps the file system mounted.
    root: OwnedFd,
    device: CString,
    /// The image: the open file that holds the lock.
    image: File,
    path: PathBuf,
}

impl AttachedDiskImage {
    /// Attaches an image exclusively, waiting for at most `wait` until it is detached elsewhere.
    pub fn attach(path: &Path, wait: Duration) -> Result<AttachedDiskImage, DiskError> {
        let image = loops::open_locked(path, LockMode::Exclusive, wait)?;
        let (device, root) = loops::attach(&image, path, ImageAccess::Change)?;
        Ok(AttachedDiskImage { root, device, image, path: path.to_owned() })
    }

    /// Attaches an image that has no name yet, for the duration of `with`. It is detached when the
    /// function returns.
    fn attach_unnamed(
        image: &File,
        with: impl FnOnce(&AttachedDiskImage) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        // Opened again, so that the lock belongs to the device and not to the caller's file.
        let path = PathBuf::from(format!("/proc/self/fd/{}", image.as_raw_fd()));
        let disk = AttachedDiskImage::attach(&path, Duration::ZERO)?;
        with(&disk)?;
        drop(disk);
        // A process that was just started can have the file open for a moment.
        loops::open_locked(&path, LockMode::Exclusive, DETACH_WAIT).map(drop)
    }

    /// Creates the directories of a blank disk.
    fn furnish(&self) -> io::Result<()> {
        let make = |dir: BorrowedFd<'_>, name: &str, owner: u32| {
            let name = CString::new(name)?;
            sys::mkdirat(dir, &name, 0o755)?;
            let made = sys::openat(dir, &name, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
            sys::fchmod(made.as_fd(), 0o755)?;
            sys::fchown(made.as_fd(), owner, owner)?;
            Ok::<OwnedFd, io::Error>(made)
        };
        let root = self.root.as_fd();
        let upper = make(root, UPPER, DISK_INIT)?;
        make(root, UPPER_WORK, DISK_INIT)?;
        make(root, EMPTY, DISK_INIT)?;
        for name in SHOWN {
            make(upper.as_fd(), name, DISK_USER)?;
        }
        // Directory for the finds of a repair; these disks are never repaired.
        sys::rmdirat(root, c"lost+found")
    }

    /// Makes a copy of the disk as it is at one moment, while programs continue to use it. The copy
    /// is durable when the function returns, and never replaces another file. Returns
    /// [`DiskError::Busy`] if programs continuously sync what they write: then they have to be
    /// paused.
    ///
    /// The copy is consistent because nothing is written to the image while it is being copied.
    /// That is the usual case: the kernel keeps writes in memory for seconds. `FIFREEZE` would
    /// guarantee it, but a freeze outlasts a server that is killed, and then blocks all writers for
    /// good.
    pub fn copy_to(&self, to: &Path) -> Result<(), DiskError> {
        let copy = image::unnamed(to)?;
        for _ in 0..COPY_TRIES_MAX {
            // Dirty pages would be written soon, during the copy; this writes them before it. It
            // also lets `trim` free deleted blocks, so that those are not copied.
            self.sync()?;
            // Empties the journal, so that the copy needs no recovery. If that fails, the copy
            // shows it.
            let _is_seen_below = kernel::checkpoint_journal(self.root.as_fd());
            self.trim()?;
            if self.try_copy(&copy).at("copy to", to)? {
                if image::needs_recovery(&copy, to)? {
                    // Programs have changed something since. Attaching replays the journal.
                    AttachedDiskImage::attach_unnamed(&copy, |_| Ok(()))?;
                }
                return image::name_durably(&copy, to);
            }
        }
        Err(DiskError::Busy { path: self.path.clone() })
    }

    /// Copies the image; returns whether the copy is of one moment.
    fn try_copy(&self, copy: &File) -> io::Result<bool> {
        copy.set_len(0)?;
        if image::share(&self.image, copy) {
            return Ok(true);
        }
        let before = loops::writes(&self.device)?;
        image::copy(&self.image, copy, CopyFate::Durable)?;
        Ok(before.is_all_until(loops::writes(&self.device)?))
    }

    /// Returns when everything written so far is durable in the image.
    pub fn sync(&self) -> Result<(), DiskError> {
        kernel::sync_fs(self.root.as_fd()).at("write everything to", &self.path)
    }

    /// Returns when files deleted before the last [`AttachedDiskImage::sync`] occupy no space in
    /// the image. The first call examines the whole disk: milliseconds for each gigabyte.
    pub fn trim(&self) -> Result<(), DiskError> {
        kernel::trim(self.root.as_fd(), TRIM_BYTES_MIN).at("free what is unused of", &self.path)
    }

    /// Waits, for at most `wait`, until an image is attached nowhere, as after its last
    /// [`AttachedDiskImage`] was dropped. Returns whether its data is then durable and needs no
    /// journal recovery, so that the image can be stored without attaching it again.
    pub fn wait_until_detached(path: &Path, wait: Duration) -> Result<bool, DiskError> {
        let image = loops::open_locked(path, LockMode::Shared, wait)?;
        Ok(!image::needs_recovery(&image, path)?)
    }

    /// Returns the usage of the disk.
    pub fn usage(&self) -> Result<DiskUsage, DiskError> {
        let space = kernel::space(self.root.as_fd()).at("measure", &self.path)?;
        // Space that the file system reserves for itself counts as neither used nor available.
        let used = space.blocks.saturating_sub(space.blocks_free);
        let inodes = space.inodes.saturating_sub(space.inodes_free);
        Ok(DiskUsage {
            bytes: used * space.block_bytes,
            bytes_total: (used + space.blocks_available) * space.block_bytes,
            inodes: inodes.saturating_sub(OWN_INODES),
            inodes_total: space.inodes.saturating_sub(OWN_INODES),
        })
    }

    /// Returns a new mount of the disk, in no namespace, which a guest may modify at will.
    pub(crate) fn mount(&self) -> io::Result<OwnedFd> {
        loops::mount(&self.device, ImageAccess::Change)
    }
}

/// An image that is attached for reading; other attachments for reading can exist at the same time,
/// in this process and in others.
#[derive(Debug)]
pub struct AttachedLayer {
    /// Keeps the file system mounted.
    _root: OwnedFd,
    device: CString,
}

impl AttachedLayer {
    /// Attaches an image for reading, waiting for at most `wait` until no disk has it attached.
    pub fn attach(path: &Path, wait: Duration) -> Result<AttachedLayer, DiskError> {
        let mut image = loops::open_locked(path, LockMode::Shared, wait)?;
        if image::needs_recovery(&image, path)? {
            // The last user of the image ended without detaching it. The journal has the missing
            // writes, but the kernel only replays it if it may write.
            drop(image);
            drop(AttachedDiskImage::attach(path, wait)?);
            image = loops::open_locked(path, LockMode::Shared, wait)?;
        }
        let (device, root) = loops::attach(&image, path, ImageAccess::Read)?;
        Ok(AttachedLayer { _root: root, device })
    }

    /// Returns a new mount of the layer, in no namespace, which a guest may modify at will.
    pub(crate) fn mount(&self) -> io::Result<OwnedFd> {
        loops::mount(&self.device, ImageAccess::Read)
    }
}

#[cfg(test)]
pub(crate) mod tests;
