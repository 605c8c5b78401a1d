//! Disks against the kernel, as root. Their content is examined through mounts of their own.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;

/// Longest wait for an image that is being detached.
const SOON: Duration = Duration::from_secs(20);
const NOT_AT_ALL: Duration = Duration::ZERO;
pub(crate) const SIZE: DiskSize = DiskSize { bytes: 32 << 20, inodes: 1000 };
/// Variable that makes this binary the process that holds an image, with the path of the image.
const HOLD: &str = "COVE_TEST_HOLD";

/// A directory of one test, with its disks.
pub(crate) struct Place {
    pub(crate) disks: Disks,
    directory: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cove-disks-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let disks = Disks::open(&directory.join("templates")).unwrap();
        Place { disks, directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn disk(&self, name: &str) -> AttachedDiskImage {
        let path = self.path(name);
        self.disks.create(&path, SIZE).unwrap();
        AttachedDiskImage::attach(&path, NOT_AT_ALL).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let ours = |device: fs::DirEntry| {
            let file = fs::read_to_string(device.path().join("loop/backing_file"));
            file.is_ok_and(|file| Path::new(&file).starts_with(&self.directory))
        };
        // A thread can be joined before its namespace is removed.
        let is_left = || {
            let _interval = sys::poll(&[], Some(Duration::from_millis(1)));
            fs::read_dir("/sys/block").unwrap().map(Result::unwrap).any(ours)
        };
        let is_clean = std::thread::panicking() || !(0..SOON.as_millis()).all(|_| is_left());
        let removed = fs::remove_dir_all(&self.directory);
        if !std::thread::panicking() {
            removed.unwrap();
            assert!(is_clean, "loop devices are left");
        }
    }
}

/// Returns the path of a file of the disk, through the mount.
fn file(mount: &OwnedFd, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{UPPER}/workspace/{name}", mount.as_raw_fd()))
}

fn write(disk: &AttachedDiskImage, name: &str, content: &[u8]) {
    fs::write(file(&disk.root, name), content).unwrap();
}

fn read(path: &Path, name: &str) -> Vec<u8> {
    let disk = AttachedDiskImage::attach(path, SOON).unwrap();
    fs::read(file(&disk.root, name)).unwrap()
}

fn allocated(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&fs::metadata(path).unwrap()) * 512
}

#[test]
fn a_disk_has_the_room_that_was_asked_for_and_little_more() {
    let place = Place::new();
    for (index, (mib, inodes)) in
        [(16, 64), (32, 1000), (32, 8000), (1024, 65_536), (10_240, 100_000), (100_000, 1 << 20)]
            .into_iter()
            .enumerate()
    {
        let path = place.path(&index.to_string());
        let size = DiskSize { bytes: mib << 20, inodes };
        place.disks.create(&path, size).unwrap();
        let disk = AttachedDiskImage::attach(&path, NOT_AT_ALL).unwrap();
        let usage = disk.usage().unwrap();
        let most = size.bytes + size.bytes / 50 + (3 << 20);
        assert!((size.bytes..=most).contains(&usage.bytes_total), "{size:?}: {usage:?}");
        assert!(usage.inodes_total >= inodes, "{size:?}: {usage:?}");
        // A group of blocks has a multiple of sixteen.
        let groups = image_bytes(size).div_ceil(128 << 20);
        assert!(usage.inodes_total <= inodes + 32 * groups, "{size:?}: {usage:?}");
        assert!(usage.bytes < 64 << 10 && usage.inodes == 0, "{size:?}: {usage:?}");
        drop(disk);
        assert!(allocated(&path) < 4 << 20, "{mib} MiB take {}", allocated(&path));
    }
}

/// Room for 131072 files is 32 MiB of empty tables: they must not become data, not even after
/// another program (a backup) has read the whole template and its pages are in memory.
#[test]
fn an_empty_disk_takes_less_than_a_mebibyte_however_it_is_made() {
    let place = Place::new();
    let size = DiskSize { bytes: 1 << 30, inodes: 131_072 };
    place.disks.create(&place.path("first"), size).unwrap();
    for template in fs::read_dir(place.path("templates")).unwrap() {
        let template = template.unwrap().path();
        assert!(fs::read(&template).unwrap().len() > 1 << 30);
        assert!(allocated(&template) < 1 << 20, "the template takes {}", allocated(&template));
    }
    place.disks.create(&place.path("second"), size).unwrap();
    let disk = AttachedDiskImage::attach(&place.path("second"), NOT_AT_ALL).unwrap();
    write(&disk, "a", b"a");
    disk.copy_to(&place.path("fork")).unwrap();
    drop(disk);
    let restored = place.path("restored");
    let image = ImageExtents::open(&place.path("fork"), 1 << 20).unwrap();
    let writer = ImageWriter::create(&restored, image.bytes(), 1 << 20).unwrap();
    let mut piece = Vec::new();
    for chunk in image.chunks().unwrap() {
        image.read(chunk, &mut piece).unwrap();
        writer.write(chunk, &piece).unwrap();
    }
    writer.finish().unwrap();
    for name in ["first", "second", "fork", "restored"] {
        let path = place.path(name);
        assert!(allocated(&path) < 1 << 20, "{name} takes {}", allocated(&path));
    }
    assert_eq!(read(&restored, "a"), b"a");
}

#[test]
fn sizes_that_no_disk_can_have_are_refused() {
    let place = Place::new();
    for (bytes, inodes, wrong) in [
        (DISK_BYTES_MIN - 1, 64, "bytes"),
        (DISK_BYTES_MAX + 1, 64, "bytes"),
        (u64::MAX, 64, "bytes"),
        (DISK_BYTES_MIN, DISK_INODES_MIN - 1, "inodes"),
        (DISK_BYTES_MIN, 4097, "inodes"),
        (DISK_BYTES_MAX, u64::MAX, "inodes"),
    ] {
        let made = place.disks.create(&place.path("a"), DiskSize { bytes, inodes });
        let is_right = matches!(&made, Err(DiskError::Size { field, .. }) if *field == wrong);
        assert!(is_right, "{bytes} {inodes}: {made:?}");
    }
    assert!(!place.path("a").exists());
}

#[test]
fn a_disk_takes_the_place_of_no_file() {
    let place = Place::new();
    let path = place.path("a");
    fs::write(&path, "mine").unwrap();
    let made = place.disks.create(&path, SIZE);
    assert!(matches!(made, Err(DiskError::Exists { .. })), "{made:?}");
    let disk = place.disk("b");
    let copied = disk.copy_to(&path);
    assert!(matches!(copied, Err(DiskError::Exists { .. })), "{copied:?}");
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}

#[test]
fn an_image_is_attached_once_as_a_disk_or_many_times_as_a_layer() {
    let place = Place::new();
    let in_use = |error: DiskError| matches!(error, DiskError::InUse { .. });
    let disk = place.disk("a");
    let path = place.path("a");
    assert!(in_use(AttachedDiskImage::attach(&path, Duration::from_millis(150)).unwrap_err()));
    assert!(in_use(AttachedLayer::attach(&path, NOT_AT_ALL).unwrap_err()));
    assert!(in_use(ImageExtents::open(&path, 4096).unwrap_err()));
    write(&disk, "a", b"here");
    // A guest's mount holds the image as long as the guest lives.
    let mount = disk.mount().unwrap();
    drop(disk);
    assert!(in_use(AttachedDiskImage::attach(&path, NOT_AT_ALL).unwrap_err()));
    drop(mount);

    let layers: Vec<AttachedLayer> =
        (0..3).map(|_| AttachedLayer::attach(&path, SOON).unwrap()).collect();
    assert!(in_use(AttachedDiskImage::attach(&path, NOT_AT_ALL).unwrap_err()));
    for layer in &layers {
        let mount = layer.mount().unwrap();
        assert_eq!(fs::read(file(&mount, "a")).unwrap(), b"here");
        for change in [
            fs::write(file(&mount, "b"), ""),
            fs::remove_file(file(&mount, "a")),
            OpenOptions::new().append(true).open(file(&mount, "a")).map(drop),
        ] {
            assert_eq!(change.unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
        }
    }
    drop(layers);
    assert_eq!(read(&path, "a"), b"here");
}

#[test]
fn a_name_that_gets_another_image_while_one_waits_is_the_other_image() {
    let place = Place::new();
    let (path, moved) = (place.path("a"), place.path("b"));
    let disk = place.disk("a");
    write(&disk, "which", b"first");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| AttachedDiskImage::attach(&path, SOON));
        fs::rename(&path, &moved).unwrap();
        let second = place.disk("c");
        write(&second, "which", b"second");
        drop(second);
        fs::rename(place.path("c"), &path).unwrap();
        // It can be faster than the new image, but never slower than the lock of the old one.
        if let Ok(attached) = waiting.join().unwrap() {
            assert_eq!(fs::read(file(&attached.root, "which")).unwrap(), b"second");
        }
    });
    drop(disk);
    assert_eq!(read(&moved, "which"), b"first");
}

#[test]
fn an_image_outlives_a_holder_that_is_killed() {
    check_holder("an_image_outlives_a_holder_that_is_killed", |_| hold_until_killed());
}

#[test]
fn an_image_outlives_a_holder_that_is_killed_while_it_copies_and_writes() {
    let name = "an_image_outlives_a_holder_that_is_killed_while_it_copies_and_writes";
    for _ in 0..4 {
        check_holder(name, |disk| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for number in 0u64.. {
                        write(disk, "busy", &number.to_le_bytes().repeat(10_000));
                    }
                });
                scope.spawn(hold_until_killed);
                // The parent that would kill it lives for a shorter time than this takes.
                for number in 0..1000 {
                    let _busy = disk.copy_to(&disk.path.with_extension(number.to_string()));
                }
            });
        });
    }
}

/// Reports that the image is held, and waits to be killed, or for the end of the parent.
fn hold_until_killed() {
    println!("\nholds");
    let _parent_gone = io::stdin().read_line(&mut String::new());
}

/// Starts this test again as a process that holds an image and calls `hold`, kills it, and attaches
/// the image. `name` is the test's.
fn check_holder(name: &str, hold: impl FnOnce(&AttachedDiskImage)) {
    if let Some(path) = std::env::var_os(HOLD) {
        let disk = AttachedDiskImage::attach(Path::new(&path), NOT_AT_ALL).unwrap();
        write(&disk, "a", b"written before the end");
        return hold(&disk);
    }
    let place = Place::new();
    let path = place.path("a");
    place.disks.create(&path, SIZE).unwrap();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("disk::tests::{name}"), "--nocapture"])
        .env(HOLD, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "holds"));
    assert!(matches!(AttachedDiskImage::attach(&path, NOT_AT_ALL), Err(DiskError::InUse { .. })));
    holder.kill().unwrap();
    // A process frozen in it ends only when the image is attached again.
    assert_eq!(read(&path, "a"), b"written before the end");
    holder.wait().unwrap();
}

#[test]
fn a_copy_is_of_one_moment_while_a_writer_goes_on() {
    for durably in [false, true] {
        check_copies(durably);
    }
}

/// Copies a disk while a program writes, and syncs each write if `durably`.
fn check_copies(durably: bool) {
    let place = Place::new();
    let disk = place.disk("a");
    let done = AtomicBool::new(false);
    let mut copied = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Each number is in the second file only if it is in the first.
            for number in 0u64..200_000 {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                for name in ["first", "second"] {
                    let path = file(&disk.root, name);
                    let it = OpenOptions::new().create(true).append(true).open(path).unwrap();
                    (&it).write_all(&number.to_le_bytes()).unwrap();
                    if durably {
                        it.sync_all().unwrap();
                    }
                }
            }
        });
        let stop = StopOnDrop(&done);
        for number in 0..6 {
            let copy = place.path(&format!("copy-{number}"));
            match disk.copy_to(&copy) {
                Ok(()) => copied += 1,
                Err(DiskError::Busy { .. }) if durably => {
                    assert!(!copy.exists());
                    continue;
                }
                Err(error) => panic!("{error:?}"),
            }
            // A copy needs no repair: it can be a layer at once.
            let image = File::open(&copy).unwrap();
            assert!(!image::needs_recovery(&image, &copy).unwrap());
            let layer = AttachedLayer::attach(&copy, SOON).unwrap();
            let mount = layer.mount().unwrap();
            let lens = ["first", "second"]
                .map(|name| fs::read(file(&mount, name)).map_or(0, |content| content.len()));
            // The kernel chooses the order of writes that were not synced.
            let in_order = lens[0] == lens[1] || lens[0] == lens[1] + 8;
            assert!(in_order || !durably, "{lens:?}");
            assert!(lens.iter().all(|len| len % 8 == 0), "{lens:?}");
        }
        drop(stop);
    });
    let last = file(&disk.root, "first");
    assert!(fs::metadata(last).unwrap().len() > 0, "nothing was written meanwhile");
    assert!(copied > 0 || durably);
    disk.copy_to(&place.path("last")).unwrap();
    let (copy, disk) = (read(&place.path("last"), "first"), file(&disk.root, "first"));
    assert!(copy == fs::read(disk).unwrap());
}

#[test]
fn it_is_noticed_what_is_written_to_an_image() {
    let place = Place::new();
    let disk = place.disk("a");
    write(&disk, "a", b"1");
    disk.sync().unwrap();
    let before = loops::writes(&disk.device).unwrap();
    let read = fs::read(file(&disk.root, "a")).unwrap();
    assert_eq!(read, b"1");
    assert!(before.is_all_until(loops::writes(&disk.device).unwrap()));
    write(&disk, "a", b"2");
    disk.sync().unwrap();
    assert!(!before.is_all_until(loops::writes(&disk.device).unwrap()));
}

/// Also if the test fails: the writer would never end.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Attaching a copy costs more than the rest of a fork if files share content.
#[test]
fn a_copy_that_nobody_has_attached_is_a_layer() {
    let place = Place::new();
    let disk = place.disk("a");
    write(&disk, "a", b"in its place");
    let copy = place.path("copy");
    disk.copy_to(&copy).unwrap();
    // Detaching an image clears the flag of a disk in use.
    let image = File::open(&copy).unwrap();
    let mut incompatible = [0; 1];
    image.read_exact_at(&mut incompatible, 1024 + 0x60).unwrap();
    assert_eq!(incompatible[0] & 4, 4, "the copy was attached");
    assert!(!image::needs_recovery(&image, &copy).unwrap());
    let layer = AttachedLayer::attach(&copy, NOT_AT_ALL).unwrap();
    assert_eq!(fs::read(file(&layer.mount().unwrap(), "a")).unwrap(), b"in its place");
    drop(layer);
    assert_eq!(read(&copy, "a"), b"in its place");
}

#[test]
fn whoever_waits_for_an_image_is_told_whether_it_is_whole() {
    let place = Place::new();
    let (path, copy) = (place.path("a"), place.path("copy"));
    let disk = place.disk("a");
    write(&disk, "a", b"in the journal");
    disk.sync().unwrap();
    image::copy(&disk.image, &File::create(&copy).unwrap(), CopyFate::Any).unwrap();
    let waited = AttachedDiskImage::wait_until_detached(&path, NOT_AT_ALL);
    assert!(matches!(waited, Err(DiskError::InUse { .. })), "{waited:?}");
    drop(disk);
    assert!(AttachedDiskImage::wait_until_detached(&path, SOON).unwrap());
    assert!(!AttachedDiskImage::wait_until_detached(&copy, NOT_AT_ALL).unwrap());
    assert_eq!(read(&copy, "a"), b"in the journal");
    assert!(AttachedDiskImage::wait_until_detached(&copy, SOON).unwrap());
}

#[test]
fn an_image_whose_journal_was_not_replayed_is_a_layer_all_the_same() {
    let place = Place::new();
    let disk = place.disk("a");
    write(&disk, "a", b"in the journal");
    kernel::sync_fs(disk.root.as_fd()).unwrap();
    // As after a power failure: the current content of the file, without an unmount.
    let copy = place.path("copy");
    fs::copy(place.path("a"), &copy).unwrap();
    assert!(image::needs_recovery(&File::open(&copy).unwrap(), &copy).unwrap());
    // A program that another test starts has a copy of this one's descriptors for a moment.
    let layer = AttachedLayer::attach(&copy, SOON).unwrap();
    assert_eq!(fs::read(file(&layer.mount().unwrap(), "a")).unwrap(), b"in the journal");
}

#[test]
fn what_is_no_whole_image_is_said_to_be_damaged() {
    let place = Place::new();
    let whole = place.path("whole");
    place.disks.create(&whole, SIZE).unwrap();
    let content = fs::read(&whole).unwrap();
    let mut broken = content.clone();
    // The descriptors of the first groups.
    broken[4096..4096 + 512].fill(0x5a);
    for (name, bytes) in [
        ("empty", &[][..]),
        ("short", &content[..1 << 20]),
        ("odd", &content[..content.len() - 12_345]),
        ("zeros", &[0; 1 << 20]),
        ("text", &b"not a file system ".repeat(10_000)),
        ("broken", &broken),
    ] {
        let path = place.path(name);
        fs::write(&path, bytes).unwrap();
        for error in [
            AttachedDiskImage::attach(&path, NOT_AT_ALL).unwrap_err(),
            AttachedLayer::attach(&path, SOON).unwrap_err(),
        ] {
            assert!(matches!(error, DiskError::Damaged { .. }), "{name}: {error:?}");
        }
    }
    let missing = AttachedDiskImage::attach(&place.path("missing"), SOON).unwrap_err();
    let is_not_found = matches!(&missing, DiskError::Io { source, .. }
        if source.kind() == io::ErrorKind::NotFound);
    assert!(is_not_found, "{missing:?}");
}

#[test]
fn what_is_deleted_leaves_the_image() {
    let place = Place::new();
    let disk = place.disk("a");
    let path = place.path("a");
    disk.sync().unwrap();
    // Space that was trimmed once is trimmed again.
    disk.trim().unwrap();
    let before = allocated(&path);
    write(&disk, "big", &vec![7; 20 << 20]);
    disk.sync().unwrap();
    assert!(allocated(&path) >= before + (20 << 20));
    fs::remove_file(file(&disk.root, "big")).unwrap();
    disk.sync().unwrap();
    disk.trim().unwrap();
    let after = allocated(&path);
    assert!(after <= before + (1 << 20), "{before} before, {after} after");
}

#[test]
fn an_image_goes_through_chunks_and_back() {
    let place = Place::new();
    let disk = place.disk("a");
    write(&disk, "a", &b"content ".repeat(300_000));
    drop(disk);
    let path = place.path("a");
    let original = fs::read(&path).unwrap();
    for chunk_bytes in [4096, 1 << 20, 3_000_001, u32::MAX] {
        let extents = ImageExtents::open(&path, chunk_bytes).unwrap();
        let copy = place.path(&format!("copy-{chunk_bytes}"));
        let writer = ImageWriter::create(&copy, extents.bytes(), chunk_bytes).unwrap();
        let chunks = extents.chunks().unwrap();
        assert!(chunks.is_sorted() && !chunks.is_empty());
        let mut buf = Vec::new();
        for chunk in chunks {
            extents.read(chunk, &mut buf).unwrap();
            writer.write(chunk, &buf).unwrap();
        }
        assert!(!copy.exists(), "it is there before it is whole");
        writer.finish().unwrap();
        assert!(fs::read(&copy).unwrap() == original, "{chunk_bytes}: not the same");
        assert!(allocated(&copy) < original.len() as u64 / 2);
        drop(extents);
        assert_eq!(read(&copy, "a").len(), 2_400_000);
    }
}

#[test]
fn a_chunk_of_another_size_or_place_is_refused() {
    let place = Place::new();
    let writer = ImageWriter::create(&place.path("a"), 10_000, 4096).unwrap();
    for (chunk, len, fits) in
        [(0, 4096, true), (2, 1808, true), (2, 4096, false), (0, 1, false), (3, 0, false)]
    {
        assert_eq!(writer.write(chunk, &vec![1; len]).is_ok(), fits, "{chunk} {len}");
    }
    assert!(writer.write(u64::MAX, &[1]).is_err());
    drop(writer);
    assert!(!place.path("a").exists(), "what is not finished leaves nothing");
}

#[test]
fn holes_stay_holes_in_copies() {
    let place = Place::new();
    let (from, to) = (place.path("from"), place.path("to"));
    let file = File::create_new(&from).unwrap();
    file.set_len(50 << 20).unwrap();
    for at in [0, 10 << 20, (50 << 20) - 5000] {
        file.write_all_at(&[9; 5000], at).unwrap();
    }
    let copy = File::options().read(true).write(true).create_new(true).open(&to).unwrap();
    image::copy(&File::open(&from).unwrap(), &copy, CopyFate::Durable).unwrap();
    assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap());
    assert!(allocated(&to) <= 64 << 10);
}

#[test]
fn kernels_are_old_or_new_enough() {
    for (release, version) in [
        ("6.18.44-fc-v669\n", Some((6, 18))),
        ("5.19.0-rc1", Some((5, 19))),
        ("7.0", Some((7, 0))),
        ("", None),
        ("linux", None),
    ] {
        assert_eq!(kernel_version(release), version, "{release}");
    }
}

#[test]
fn no_more_templates_are_kept_than_there_may_be() {
    let place = Place::new();
    let of = |index: u64| DiskSize { bytes: DISK_BYTES_MIN, inodes: 64 + index };
    for index in 0..TEMPLATES_MAX as u64 + 3 {
        place.disks.create(&place.path(&index.to_string()), of(index)).unwrap();
    }
    let templates = fs::read_dir(place.path("templates")).unwrap().count();
    assert_eq!(templates, TEMPLATES_MAX);
    // The first template was removed, and is created again.
    place.disks.create(&place.path("again"), of(0)).unwrap();
    drop(AttachedDiskImage::attach(&place.path("again"), NOT_AT_ALL).unwrap());
}
