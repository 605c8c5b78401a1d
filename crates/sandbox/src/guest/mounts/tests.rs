//! The file system of sessions against the kernel, as root: on threads with a root of their own.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::{CAP_SETGID, CAP_SETUID};
use super::*;
use crate::disk::tests::{Place, SIZE};
use crate::disk::{AttachedDiskImage, AttachedLayer, DISK_INIT, DISK_USER, slot_users};

/// Ids of the guest init and of programs, far from those of other tests.
const INIT: u32 = 1_310_000_000;
const USER: u32 = INIT + 1;
const SOON: Duration = Duration::from_secs(20);

/// Enters the state of a guest init: a root of its own, with these capabilities.
fn enter_sandbox(capabilities: u64) {
    sys::unshare(libc::CLONE_NEWNS).unwrap();
    sys::mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE, None).unwrap();
    sys::mount(Some(c"root"), c"/mnt", Some(c"tmpfs"), 0, None).unwrap();
    for directory in ["run", "workspace", "home/user", "proc"] {
        fs::create_dir_all(Path::new("/mnt").join(directory)).unwrap();
    }
    sys::mount(Some(c"/proc"), c"/mnt/proc", None, libc::MS_BIND | libc::MS_REC, None).unwrap();
    std::env::set_current_dir("/mnt").unwrap();
    sys::pivot_here().unwrap();
    std::env::set_current_dir("/").unwrap();
    become_user(INIT, capabilities);
}

fn become_user(id: u32, capabilities: u64) {
    // Groups stay: the C library would drop them for all threads at once.
    sys::prctl(libc::PR_SET_KEEPCAPS, 1).unwrap();
    sys::setresgid(id).unwrap();
    sys::setresuid(id).unwrap();
    sys::set_capabilities(capabilities).unwrap();
}

fn users() -> OwnedFd {
    let proc = sys::open(c"/proc", libc::O_PATH | libc::O_DIRECTORY).unwrap();
    slot_users(proc.as_fd(), INIT, USER).unwrap()
}

/// Runs a function as a program of a session with this disk and these layers.
fn inside<T: Send>(
    disk: &AttachedDiskImage,
    layers: &[&AttachedLayer],
    work: impl FnOnce() -> T + Send,
) -> T {
    let (disk, users) = (disk.mount().unwrap(), users());
    let layers: Vec<OwnedFd> = layers.iter().map(|layer| layer.mount().unwrap()).collect();
    let program = || {
        enter_sandbox(OVERLAY_CAPABILITIES | mask(&[CAP_SETUID, CAP_SETGID]));
        mount_session(disk, layers, Some(users.as_fd())).unwrap();
        become_user(USER, 0);
        work()
    };
    std::thread::scope(|scope| scope.spawn(program).join()).unwrap()
}

fn write(path: &str, content: &str) {
    fs::write(path, content).unwrap();
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap()
}

fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
    result.map(drop).unwrap_err().kind()
}

/// Detaches a disk and attaches it as a layer.
fn as_layer(place: &Place, disk: AttachedDiskImage, name: &str) -> AttachedLayer {
    drop(disk);
    AttachedLayer::attach(&place.path(name), SOON).unwrap()
}

#[test]
fn files_are_the_programs_inside_and_the_disk_users_on_the_disk() {
    let place = Place::new();
    let disk = place.disk("a");
    inside(&disk, &[], || {
        for path in ["/workspace", "/home/user"] {
            let metadata = fs::metadata(path).unwrap();
            assert_eq!(
                (metadata.uid(), metadata.gid(), metadata.mode() & 0o777),
                (USER, USER, 0o755)
            );
            let entries = fs::read_dir(path).unwrap().count();
            assert_eq!(entries, 0, "{path} is not empty");
        }
        write("/workspace/a", "1");
        write("/home/user/b", "2");
        fs::DirBuilder::new().mode(0o700).create("/workspace/d").unwrap();
        assert_eq!(fs::metadata("/workspace/a").unwrap().uid(), USER);
    });
    let mount = disk.mount().unwrap();
    let on_disk = PathBuf::from(format!("/proc/self/fd/{}/{UPPER}", mount.as_raw_fd()));
    for name in ["workspace/a", "workspace/d", "home/b"] {
        let metadata = fs::metadata(on_disk.join(name)).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (DISK_USER, DISK_USER), "{name}");
    }
    drop(mount);
    // In another slot the files belong to that slot's user; here it is the same slot, later.
    inside(&disk, &[], || {
        assert_eq!(read("/workspace/a") + &read("/home/user/b"), "12");
        assert_eq!(fs::metadata("/workspace/d").unwrap().mode() & 0o777, 0o700);
        write("/workspace/d/more", "");
    });
}

#[test]
fn a_session_changes_what_is_in_layers_and_no_layer() {
    let place = Place::new();
    let disk = place.disk("oldest");
    inside(&disk, &[], || {
        for name in ["kept", "changed", "deleted", "again"] {
            write(&format!("/workspace/{name}"), "oldest");
        }
        fs::create_dir_all("/workspace/dir/sub").unwrap();
        write("/workspace/dir/sub/file", "oldest");
        fs::set_permissions("/workspace/kept", fs::Permissions::from_mode(0o640)).unwrap();
        fs::hard_link("/workspace/kept", "/workspace/linked").unwrap();
        std::os::unix::fs::symlink("kept", "/workspace/link").unwrap();
    });
    let oldest = as_layer(&place, disk, "oldest");
    let disk = place.disk("newer");
    inside(&disk, &[&oldest], || {
        write("/workspace/changed", "newer");
        fs::remove_file("/workspace/deleted").unwrap();
        fs::remove_file("/workspace/again").unwrap();
        fs::rename("/workspace/dir", "/workspace/renamed").unwrap();
    });
    let newer = as_layer(&place, disk, "newer");

    // Two children of the same layers, at the same time, do not see each other.
    let (one, other) = (place.disk("one"), place.disk("other"));
    for (disk, name) in [(&one, "one"), (&other, "other"), (&one, "one")] {
        inside(disk, &[&newer, &oldest], || {
            assert_eq!(read("/workspace/kept"), "oldest");
            assert_eq!(read("/workspace/link"), "oldest");
            assert_eq!(fs::metadata("/workspace/kept").unwrap().mode() & 0o777, 0o640);
            assert_eq!(read("/workspace/changed"), "newer");
            assert!(!Path::new("/workspace/deleted").exists());
            assert!(!Path::new("/workspace/dir").exists());
            assert_eq!(read("/workspace/renamed/sub/file"), "oldest");
            let again = fs::read_to_string("/workspace/again").unwrap_or_default();
            assert!(again.is_empty() || again == name, "{again} in {name}");
            write("/workspace/again", name);
        });
    }
    drop((one, other));

    let alone = place.disk("alone");
    inside(&alone, &[&oldest], || {
        assert_eq!(read("/workspace/changed") + &read("/workspace/deleted"), "oldestoldest");
        assert_eq!(read("/workspace/dir/sub/file"), "oldest");
    });
}

#[test]
fn a_disk_is_full_at_its_limit_and_has_room_again_after_a_deletion() {
    let place = Place::new();
    let disk = place.disk("a");
    let mib = vec![7; 1 << 20];
    inside(&disk, &[], || {
        for _ in 0..2 {
            // The space of the last deletions is free when the file system has committed them.
            let has_room = || {
                let _interval = sys::poll(&[], Some(Duration::from_millis(1)));
                fs::write("/workspace/big", &mib).is_ok()
            };
            assert!((0..SOON.as_millis()).any(|_| has_room()));
            let mut file = OpenOptions::new().append(true).open("/workspace/big").unwrap();
            let mut written = 1 << 20;
            let full = loop {
                match file.write_all(&mib) {
                    Ok(()) => written += 1 << 20,
                    Err(error) => break error,
                }
                assert!(written < SIZE.bytes * 2, "there is no limit");
            };
            assert_eq!(full.kind(), io::ErrorKind::StorageFull);
            assert!(written + (1 << 20) >= SIZE.bytes, "{written}");
            assert_eq!(kind(fs::write("/home/user/a", &mib)), io::ErrorKind::StorageFull);
            drop(file);
            fs::remove_file("/workspace/big").unwrap();
        }
        write("/home/user/a", "there is room");
    });
    disk.sync().unwrap();
    assert!(disk.usage().unwrap().bytes < 1 << 20, "{:?}", disk.usage());
}

#[test]
fn a_disk_has_so_many_files_and_no_more() {
    let place = Place::new();
    let disk = place.disk("a");
    let most = disk.usage().unwrap().inodes_total;
    let made = inside(&disk, &[], || {
        let make = |number: &u64| fs::write(format!("/workspace/{number}"), "").is_ok();
        let made = (0..most + 100).take_while(make).count() as u64;
        assert_eq!(kind(fs::create_dir("/home/user/d")), io::ErrorKind::StorageFull);
        fs::remove_file("/workspace/0").unwrap();
        write("/home/user/a", "");
        made
    });
    assert!((SIZE.inodes..=most + 10).contains(&made), "{made} of {most}");
}

#[test]
fn programs_learn_nothing_of_the_host_and_get_nowhere_else() {
    let place = Place::new();
    let layer = as_layer(&place, place.disk("layer"), "layer");
    let disk = place.disk("a");
    let directory = place.path("").to_string_lossy().into_owned();
    inside(&disk, &[&layer], || {
        let table = read("/proc/thread-self/mountinfo");
        // The host's /proc, which this test needs, adds mounts that are irrelevant here.
        let visible = table.lines().filter(|line| !line.contains("/proc"));
        let overlays: Vec<&str> = table.lines().filter(|line| line.contains("overlay")).collect();
        assert_eq!(overlays.len(), 2, "{table}");
        for (overlay, place) in overlays.iter().zip(["/workspace", "/home/user"]) {
            let fields: Vec<&str> = overlay.split(' ').collect();
            assert_eq!(fields[4], place);
            assert!(fields[5].contains("nosuid,nodev"), "{overlay}");
        }
        assert!(!table.contains(directory.trim_end_matches('/')), "{table}");
        assert!(!table.contains("ext4") && !table.contains("loop"), "{table}");
        assert_eq!(visible.filter(|line| line.contains("/run")).count(), 0, "{table}");
        assert_eq!(fs::read_dir("/run").unwrap().count(), 0);
        // Devices, and the kernel's own markers.
        let name = CString::new("/workspace/null").unwrap();
        assert_eq!(kind(sys::mknod_char(&name, 0o666, 1, 3)), io::ErrorKind::PermissionDenied);
        let chown = std::os::unix::fs::chown("/workspace", Some(INIT), None);
        assert_eq!(kind(chown), io::ErrorKind::PermissionDenied);
    });
}

#[test]
fn what_the_overlay_does_is_not_limited_to_what_its_user_may() {
    let place = Place::new();
    let disk = place.disk("layer");
    inside(&disk, &[], || {
        fs::create_dir("/workspace/closed").unwrap();
        write("/workspace/closed/secret", "mine");
        let mode =
            |path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode("/workspace/closed/secret", 0o400);
        mode("/workspace/closed", 0o700);
    });
    let layer = as_layer(&place, disk, "layer");
    let disk = place.disk("a");
    inside(&disk, &[&layer], || {
        // To copy it up, the overlay must read it and create it with this owner and mode.
        assert_eq!(
            kind(OpenOptions::new().write(true).open("/workspace/closed/secret")),
            io::ErrorKind::PermissionDenied
        );
        fs::set_permissions("/workspace/closed/secret", fs::Permissions::from_mode(0o600)).unwrap();
        let mut file = OpenOptions::new().append(true).open("/workspace/closed/secret").unwrap();
        file.write_all(b" more").unwrap();
        assert_eq!(read("/workspace/closed/secret"), "mine more");
        fs::remove_dir_all("/workspace/closed").unwrap();
        fs::create_dir("/workspace/closed").unwrap();
        assert_eq!(fs::read_dir("/workspace/closed").unwrap().count(), 0);
    });
}

#[test]
fn a_disk_is_not_mounted_without_what_it_takes() {
    let place = Place::new();
    let disk = place.disk("a");
    let try_with = |capabilities: u64, with_users: bool, layers: usize| {
        let (mount, users) = (disk.mount().unwrap(), users());
        let layers = (0..layers).map(|_| disk.mount().unwrap()).collect();
        let init = || {
            enter_sandbox(capabilities);
            mount_session(mount, layers, with_users.then(|| users.as_fd()))
        };
        std::thread::scope(|scope| scope.spawn(init).join()).unwrap().map_err(|it| it.errno)
    };
    let without = OVERLAY_CAPABILITIES & !mask(&[CAP_MKNOD]);
    assert_eq!(try_with(without, true, 0), Err(libc::EPERM));
    assert_eq!(try_with(OVERLAY_CAPABILITIES, false, 0), Err(libc::EPERM));
    assert_eq!(try_with(OVERLAY_CAPABILITIES, true, LAYERS_MAX + 1), Err(libc::E2BIG));
    assert_eq!(try_with(OVERLAY_CAPABILITIES, true, 0), Ok(()));
}

#[test]
fn as_many_layers_as_are_allowed_can_be_mounted() {
    let place = Place::new();
    let mut layers: Vec<AttachedLayer> = Vec::new();
    for number in 0..LAYERS_MAX {
        let name = number.to_string();
        let disk = place.disk(&name);
        let mount = disk.mount().unwrap();
        let path = format!("/proc/self/fd/{}/{UPPER}/workspace/{name}", mount.as_raw_fd());
        fs::write(path, "").unwrap();
        drop(mount);
        layers.insert(0, as_layer(&place, disk, &name));
    }
    let disk = place.disk("top");
    let chain: Vec<&AttachedLayer> = layers.iter().collect();
    inside(&disk, &chain, || {
        assert_eq!(fs::read_dir("/workspace").unwrap().count(), LAYERS_MAX);
    });
}

#[test]
fn owners_are_mapped_to_the_init_and_the_programs_and_nobody_else() {
    let place = Place::new();
    let disk = place.disk("a");
    let mount = disk.mount().unwrap();
    kernel::map_owners(mount.as_fd(), users().as_fd()).unwrap();
    let root = format!("/proc/self/fd/{}", mount.as_raw_fd());
    for (name, owner) in [("u", INIT), ("u/workspace", USER), ("e", INIT)] {
        assert_eq!(fs::metadata(format!("{root}/{name}")).unwrap().uid(), owner, "{name}");
    }
    // The host's root is not in the map, so it can create nothing here.
    let made = fs::write(format!("{root}/u/workspace/x"), "");
    assert_eq!(made.unwrap_err().raw_os_error(), Some(libc::EOVERFLOW));
    assert_eq!(DISK_INIT, 0);
}

#[test]
fn what_nobody_has_made_is_not_counted() {
    let place = Place::new();
    let disk = place.disk("a");
    // Mounts that the kernel is still removing count until they are removed.
    let comes_to = |wanted: u64| {
        (0..SOON.as_millis()).any(|_| {
            let _interval = sys::poll(&[], Some(Duration::from_millis(1)));
            disk.usage().unwrap().inodes == wanted
        })
    };
    inside(&disk, &[], || {});
    assert!(comes_to(0), "{:?}", disk.usage());
    inside(&disk, &[], || write("/workspace/a", "a"));
    assert!(comes_to(1), "{:?}", disk.usage());
}
