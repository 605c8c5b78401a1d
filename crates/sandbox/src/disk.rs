//! Disks of sessions: files with a file system in them, mounted where nobody sees it.
//!
//! A *disk* is a sparse file, its *image*, with an ext4 file system of a fixed size. So its limits
//! are exact, deleted files give their room back, and what was there when the power went is
//! consistent. A *layer* is an image that does not change any more; any number of sessions stand on
//! it.
//!
//! To *attach* an image is to lock the file, to show it as a loop device with that very open file,
//! and to mount the device in no mount name space. The kernel gives up the lock when the last mount
//! of the image is gone, whoever had it and however that ended: no image is ever attached twice,
//! nothing has to be cleaned up, and whoever wants an image whose holder has just died waits.
//! Images belong on a file system of this machine, because locks of a network's are not these.
//!
//! On every disk there are `u`, which becomes the upper directory of a session's file system, with
//! `workspace` and `home` in it; `uw`, where the kernel prepares changes to it; and `e`, which is
//! empty. Files belong to [`DISK_USER`] there, and everywhere to whom a mount maps that.
//!
//! Everything here blocks, dropping included. None of it works without root.

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

/// Owner, on disks, of everything that programs of sessions own. Theirs is mapped to it.
pub(crate) const DISK_USER: u32 = 1000;
/// Owner, on disks, of what the guest init makes: marks of deleted files, above all.
pub(crate) const DISK_INIT: u32 = 0;
/// The directory that becomes the upper one of an overlay, with what is shown of it.
pub(crate) const UPPER: &str = "u";
/// Work directory of the overlay.
pub(crate) const UPPER_WORK: &str = "uw";
/// Lower directory of an overlay without layers.
pub(crate) const EMPTY: &str = "e";
/// Directories in [`UPPER`] that sessions see, at `/workspace` and `/home/user`.
pub(crate) const SHOWN: [&str; 2] = ["workspace", "home"];

/// Smallest room for files that a disk can have. Its journal alone takes a quarter of that.
pub const DISK_BYTES_MIN: u64 = 16 << 20;
/// Largest.
pub const DISK_BYTES_MAX: u64 = 1 << 40;
/// Fewest files that a disk can have room for.
pub const DISK_INODES_MIN: u64 = 64;

/// Unit of everything on a disk, of its loop device, and of its image.
const BLOCK_BYTES: u32 = 4096;
/// Bytes that a disk needs for each file that it has room for: one that is not empty takes a block.
pub const DISK_BYTES_PER_INODE: u64 = BLOCK_BYTES as u64;
/// The smallest that ext4 takes; a larger one would only lie in the page cache.
const JOURNAL_BYTES: u64 = 4 << 20;
const INODE_BYTES: u64 = 256;
/// Inodes that are always in use: the ten inodes with fixed numbers, among them the root; our five
/// directories, and the one that an overlay makes in its work directory.
const OWN_INODES: u64 = 16;
/// Room that ext4 keeps free for what it must be able to write: a fiftieth, and no more than this.
const KEPT_FREE_BYTES_MAX: u64 = 16 << 20;
/// Images are a multiple of this.
const IMAGE_BYTES_UNIT: u64 = 1 << 20;
/// Changes whenever blank disks do, so that no template of another version is used.
const TEMPLATE_VERSION: u32 = 2;
/// Directories in which `mkfs.ext4` is searched.
const TOOL_DIRECTORIES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin"];
/// Features of the file system, all of them, whatever the defaults of the tool are.
const FEATURES: &str = "none,has_journal,ext_attr,dir_index,filetype,extent,64bit,flex_bg,\
     sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum";
/// First kernel in which overlays take mounts that map owners.
const KERNEL_MIN: (u32, u32) = (5, 19);
/// Templates that are kept; of most servers all disks have one of few sizes.
const TEMPLATES_MAX: usize = 32;
/// Number of times that a copy is begun while programs write to the disk.
const COPY_TRIES_MAX: u32 = 8;
/// Longest that an image of our own is waited for after it was detached.
const DETACH_WAIT: Duration = Duration::from_secs(10);
/// Characters of the tool's output that are passed on.
const TOOL_CHARS_MAX: usize = 500;
/// Free stretches shorter than this are not told to the device: they are hardly worth it.
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
    /// Bytes that files and directories take.
    pub bytes: u64,
    /// Bytes that they can take.
    pub bytes_total: u64,
    /// Files and directories.
    pub inodes: u64,
    /// Files and directories that there can be.
    pub inodes_total: u64,
}

/// Why a disk could not be made, attached, copied or read.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// This machine has not what disks need. Nobody's fault who asks for one.
    #[error("{missing}; {remedy}")]
    Unsupported {
        /// Missing thing.
        missing: String,
        /// Remedy.
        remedy: &'static str,
    },
    /// No disk can have such a size.
    #[error("`{field}` must be between {least} and {most}, not {value}")]
    Size {
        /// The field of [`DiskSize`].
        field: &'static str,
        /// Value.
        value: u64,
        /// The smallest that it can be.
        least: u64,
        /// The largest.
        most: u64,
    },
    /// The image stayed attached elsewhere for as long as the caller would wait.
    #[error("the disk image {} is in use", path.display())]
    InUse {
        /// The image.
        path: PathBuf,
    },
    /// Programs wrote to the disk all the time that it was to be copied.
    #[error("programs write to the disk {} all the time", path.display())]
    Busy {
        /// The image.
        path: PathBuf,
    },
    /// There is an image already where one should be made.
    #[error("the disk image {} exists already", path.display())]
    Exists {
        /// The image.
        path: PathBuf,
    },
    /// No disk image, or not a whole one.
    #[error("the disk image {} is damaged: {detail}", path.display())]
    Damaged {
        /// The image.
        path: PathBuf,
        /// In what way.
        detail: String,
    },
    /// The kernel refused a step.
    #[error("{step} {}", path.display())]
    Io {
        /// Step that was tried, as a verb phrase.
        step: &'static str,
        /// With what.
        path: PathBuf,
        /// The kernel's answer.
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

/// Makes disks.
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
    /// Looks for everything that disks need, and says what is missing. Templates of blank disks are
    /// kept in `templates`, which is made.
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

    /// Bytes that are free where the templates are, which is where disks are kept.
    pub fn free_bytes(&self) -> Result<u64, DiskError> {
        let templates = &self.0.templates;
        let directory = File::open(templates).at("open", templates)?;
        let space = kernel::space(directory.as_fd()).at("measure", templates)?;
        Ok(space.blocks_available.saturating_mul(space.block_bytes))
    }

    /// Makes a blank disk. It is there completely or not at all, and never in place of another. It
    /// is durable after [`AttachedDiskImage::sync`].
    pub fn create(&self, path: &Path, size: DiskSize) -> Result<(), DiskError> {
        check_size(size)?;
        let from = self.template(size)?;
        let to = image::unnamed(path)?;
        if !image::share(&from, &to) {
            image::copy(&from, &to, CopyFate::Any).at("copy the template to", path)?;
        }
        image::name(&to, path)
    }

    /// The template of such a disk; made when there is none.
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
        // On some file systems mkfs allocates room for its empty tables (tens of MiB for many
        // inodes). Room that is only reserved counts as data once a page of it is in memory, and
        // every disk would get it.
        let image = image::unnamed(template)?;
        image::copy_without_zeros(&made, &image).at("store", template)?;
        match image::name_durably(&image, template) {
            // Another server has made the same one.
            Ok(()) | Err(DiskError::Exists { .. }) => Ok(image),
            Err(error) => Err(error),
        }
    }

    /// Removes templates while there are too many: who asks for disks may choose their size.
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
        // The image has no other name yet.
        let name = format!("/proc/{}/fd/{}", std::process::id(), image.as_raw_fd());
        let output = Command::new(&self.0.mkfs)
            .args(["-q", "-F", "-m", "0", "-O", FEATURES])
            .args(["-b", &BLOCK_BYTES.to_string(), "-I", &INODE_BYTES.to_string()])
            .args(["-N", &(size.inodes + OWN_INODES).to_string()])
            .args(["-J", &format!("size={}", JOURNAL_BYTES >> 20)])
            // A file without content is zero already, and must stay without.
            .args(["-E", "lazy_itable_init=0,lazy_journal_init=1,nodiscard,root_owner=0:0"])
            .arg(name)
            // Nobody's preferences.
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

/// Bytes of the image of a disk with room for so much.
fn image_bytes(size: DiskSize) -> u64 {
    let tables = (size.inodes + OWN_INODES).next_multiple_of(1024) * INODE_BYTES;
    // Bitmaps, descriptors of block groups and the copies of them; the few blocks at the begin.
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
        // Loads the module where it is one.
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

/// A disk that is attached, by nobody else and for reading and writing. Dropping it detaches it, as
/// soon as no sandbox has it mounted any more.
#[derive(Debug)]
pub struct AttachedDiskImage {
    /// Root. Keeps the file system mounted.
    root: OwnedFd,
    device: CString,
    /// The image, by the open file that is locked.
    image: File,
    path: PathBuf,
}

impl AttachedDiskImage {
    /// Attaches an image, waiting for at most so long until nobody else has it attached.
    pub fn attach(path: &Path, wait: Duration) -> Result<AttachedDiskImage, DiskError> {
        let image = loops::open_locked(path, LockMode::Exclusive, wait)?;
        let (device, root) = loops::attach(&image, path, ImageAccess::Change)?;
        Ok(AttachedDiskImage { root, device, image, path: path.to_owned() })
    }

    /// Attaches an image that has no name yet, for as long as `with` takes. When it returns nobody
    /// has it attached any more.
    fn attach_unnamed(
        image: &File,
        with: impl FnOnce(&AttachedDiskImage) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        // Opened again, so that the lock goes with the device and not with the caller's file.
        let path = PathBuf::from(format!("/proc/self/fd/{}", image.as_raw_fd()));
        let disk = AttachedDiskImage::attach(&path, Duration::ZERO)?;
        with(&disk)?;
        drop(disk);
        // A process that was just started can have had it open for a moment.
        loops::open_locked(&path, LockMode::Exclusive, DETACH_WAIT).map(drop)
    }

    /// Makes what every disk has.
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
        // The place for what a repair finds. Nobody repairs these.
        sys::rmdirat(root, c"lost+found")
    }

    /// Makes a copy of the disk as it is at one moment, while programs go on using it. Durable when
    /// it returns, and never in place of another file. [`DiskError::Busy`] when programs make
    /// everything durable that they write, without a pause: then they have to be paused.
    ///
    /// At that moment nothing was written to the image for as long as copying took, which is the
    /// rule: what programs write is in memory for seconds. `FIFREEZE` would make sure of it, but it
    /// outlasts a server that is killed, and with it everybody who waits to write, for good.
    pub fn copy_to(&self, to: &Path) -> Result<(), DiskError> {
        let copy = image::unnamed(to)?;
        for _ in 0..COPY_TRIES_MAX {
            // What is in memory would be written soon. And nothing is copied that nobody has.
            self.sync()?;
            // So that nobody has to repeat what the journal has. Where it cannot be emptied, the
            // copy shows it.
            let _is_seen_below = kernel::checkpoint_journal(self.root.as_fd());
            self.trim()?;
            if self.try_copy(&copy).at("copy to", to)? {
                if image::needs_recovery(&copy, to)? {
                    // Programs have changed something since. Ends what they were in the middle of.
                    AttachedDiskImage::attach_unnamed(&copy, |_| Ok(()))?;
                }
                return image::name_durably(&copy, to);
            }
        }
        Err(DiskError::Busy { path: self.path.clone() })
    }

    /// Copies the image; tells whether the copy is of one moment.
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

    /// Returns when what was deleted before the last [`AttachedDiskImage::sync`] takes no room in
    /// the image. The first time, this looks at the whole disk: milliseconds for each gigabyte.
    pub fn trim(&self) -> Result<(), DiskError> {
        kernel::trim(self.root.as_fd(), TRIM_BYTES_MIN).at("free what is unused of", &self.path)
    }

    /// Waits, for at most so long, until nobody has an image attached, as after the last
    /// [`AttachedDiskImage`] of it was dropped. Returns whether everything is in its place and
    /// durable then, so that nobody has to attach it before it is stored.
    pub fn wait_until_detached(path: &Path, wait: Duration) -> Result<bool, DiskError> {
        let image = loops::open_locked(path, LockMode::Shared, wait)?;
        Ok(!image::needs_recovery(&image, path)?)
    }

    /// Returns how much is on it.
    pub fn usage(&self) -> Result<DiskUsage, DiskError> {
        let space = kernel::space(self.root.as_fd()).at("measure", &self.path)?;
        // What the file system keeps for itself counts as neither.
        let used = space.blocks.saturating_sub(space.blocks_free);
        let inodes = space.inodes.saturating_sub(space.inodes_free);
        Ok(DiskUsage {
            bytes: used * space.block_bytes,
            bytes_total: (used + space.blocks_available) * space.block_bytes,
            inodes: inodes.saturating_sub(OWN_INODES),
            inodes_total: space.inodes.saturating_sub(OWN_INODES),
        })
    }

    /// A mount of it, in no name space, that a guest may do with what it likes.
    pub(crate) fn mount(&self) -> io::Result<OwnedFd> {
        loops::mount(&self.device, ImageAccess::Change)
    }
}

/// An image that is attached for reading; so may others attach it, of this process and of others.
#[derive(Debug)]
pub struct AttachedLayer {
    /// Keeps the file system mounted.
    _root: OwnedFd,
    device: CString,
}

impl AttachedLayer {
    /// Attaches an image, waiting for at most so long until nobody has it attached as a disk.
    pub fn attach(path: &Path, wait: Duration) -> Result<AttachedLayer, DiskError> {
        let mut image = loops::open_locked(path, LockMode::Shared, wait)?;
        if image::needs_recovery(&image, path)? {
            // Its last user did not get to the end. The journal has what is missing, but the kernel
            // only replays it where it may write.
            drop(image);
            drop(AttachedDiskImage::attach(path, wait)?);
            image = loops::open_locked(path, LockMode::Shared, wait)?;
        }
        let (device, root) = loops::attach(&image, path, ImageAccess::Read)?;
        Ok(AttachedLayer { _root: root, device })
    }

    /// A mount of it, in no name space, that a guest may do with what it likes.
    pub(crate) fn mount(&self) -> io::Result<OwnedFd> {
        loops::mount(&self.device, ImageAccess::Read)
    }
}

#[cfg(test)]
pub(crate) mod tests;
