//! The helper in a thread, with requests like the server's: its effects on real files.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time;

use crate::session::files::{
    EntryKind, FilesError, LinkMode, ListDepth, MissingParents, SandboxFileEntry, SandboxFiles,
    WATCHES_MAX, Watch, WatchEvent, WatchKind, WriteMode,
};
use crate::sys;
use crate::tar::{self, HeaderReader, MemberKind, SparseMap, TarMember};

mod barrier;

/// User id of the helper when the tests run as root.
const USER: u32 = 1000;
/// Longest wait, far above the usual time.
const PATIENCE: Duration = Duration::from_secs(30);

/// A directory of the user's, and a helper for it.
struct Place {
    dir: PathBuf,
    files: SandboxFiles,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ignored = fs::remove_dir_all(&self.dir);
    }
}

impl Place {
    fn new() -> Place {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("cove-files-{}-{}", std::process::id(), next(&NEXT));
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).unwrap();
        let is_root = sys::effective_ids().0 == 0;
        if is_root {
            std::os::unix::fs::chown(&dir, Some(USER), Some(USER)).unwrap();
        }
        let (ours, theirs) = sys::message_pair().unwrap();
        std::thread::spawn(move || {
            if is_root {
                sys::setfsids(USER, USER);
            }
            super::main(theirs)
        });
        Place { dir, files: SandboxFiles::new(ours).unwrap() }
    }

    fn at(&self, name: &str) -> Vec<u8> {
        self.dir.join(name).as_os_str().as_bytes().to_vec()
    }

    async fn write(&self, name: &str, content: &str) -> SandboxFileEntry {
        self.try_write(name, content, WriteMode::Replace).await.unwrap()
    }

    async fn try_write(
        &self,
        name: &str,
        content: &str,
        mode: WriteMode,
    ) -> Result<SandboxFileEntry, FilesError> {
        let mut writer = self.files.write(self.at(name), MissingParents::Make, mode).await?;
        writer.write_all(content.as_bytes()).await.unwrap();
        writer.finish().await
    }

    async fn read(&self, name: &str) -> Result<String, FilesError> {
        let mut open = self.files.read(self.at(name)).await?;
        let mut content = String::new();
        open.file.read_to_string(&mut content).await.unwrap();
        assert_eq!(open.len, content.len() as u64);
        Ok(content)
    }

    async fn names(&self, name: &str, depth: u32) -> Vec<String> {
        let listing = self.files.list(self.at(name), depth, 1000).await.unwrap();
        assert!(!listing.cut);
        let base = String::from_utf8(self.at(name)).unwrap();
        let base = format!("{}/", base.trim_end_matches('/'));
        let path = |entry: &SandboxFileEntry| entry.path.strip_prefix(&base).unwrap().to_owned();
        listing.entries.iter().map(path).collect()
    }

    async fn import(&self, name: &str, archive: &[u8]) -> Result<(u64, u64), FilesError> {
        let done = self.files.import_tar(self.at(name), archive).await?;
        Ok((done.entries, done.bytes))
    }

    async fn export(&self, name: &str) -> Vec<u8> {
        let mut archive = Vec::new();
        let mut reader = self.files.export_tar(self.at(name)).await.unwrap();
        reader.read_to_end(&mut archive).await.unwrap();
        archive
    }
}

fn next(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::Relaxed)
}

/// Returns the kind of an error, without its text.
fn kind<T: std::fmt::Debug>(result: Result<T, FilesError>) -> String {
    let error = format!("{:?}", result.unwrap_err());
    error.split('(').next().unwrap().to_owned()
}

#[tokio::test]
async fn what_is_written_is_read_and_told() {
    let place = Place::new();
    let entry = place.write("a/b/c.txt", "hello").await;
    assert_eq!((entry.name.as_str(), entry.kind, entry.size), ("c.txt", EntryKind::File, 5));
    assert_eq!((entry.uid, entry.gid, entry.mode), (1000, 1000, 0o644));
    assert_eq!(place.read("a/b/c.txt").await.unwrap(), "hello");
    symlink("c.txt", place.dir.join("a/b/link")).unwrap();
    let link = place.files.stat(place.at("a/b/link"), LinkMode::Nothing).await.unwrap();
    assert_eq!(link.kind, EntryKind::Symlink);
    assert_eq!(link.symlink_target.as_deref(), Some("c.txt"));
    let followed = place.files.stat(place.at("a/b/link"), LinkMode::Links).await.unwrap();
    assert_eq!((followed.kind, followed.size), (EntryKind::File, 5));
    let target = String::from_utf8(place.at("a/b/c.txt")).unwrap();
    assert_eq!((link.resolved, followed.resolved), (None, Some(target)));
    assert_eq!(place.names("", 1).await, ["a"]);
    assert_eq!(place.names("", 2).await, ["a", "a/b"]);
    assert_eq!(place.names("", 3).await, ["a", "a/b", "a/b/c.txt", "a/b/link"]);
    let cut = place.files.list(place.at(""), 3, 2).await.unwrap();
    assert_eq!((cut.entries.len(), cut.cut), (2, true));
    let root = place.files.stat("/", LinkMode::Links).await.unwrap();
    assert_eq!((root.name.as_str(), root.path.as_str(), root.uid), ("/", "/", 0));
}

#[tokio::test]
async fn errors_say_what_is_wrong() {
    let place = Place::new();
    place.write("file", "x").await;
    fs::create_dir(place.dir.join("roots")).unwrap();
    let files = &place.files;
    let at = |name: &str| place.at(name);
    assert_eq!(kind(files.stat(at("none"), LinkMode::Links).await), "NotFound");
    assert_eq!(kind(files.stat(at("file/x"), LinkMode::Links).await), "NotADirectory");
    assert_eq!(kind(files.list(at("file"), 1, 9).await), "NotADirectory");
    assert_eq!(kind(files.list(at("none"), 1, 9).await), "NotFound");
    assert_eq!(kind(files.list(at(""), 0, 9).await), "Invalid");
    assert_eq!(kind(files.read(at("")).await), "IsADirectory");
    assert_eq!(kind(place.try_write("", "x", WriteMode::Replace).await), "IsADirectory");
    assert_eq!(kind(place.try_write("file", "x", WriteMode::Create).await), "Exists");
    assert_eq!(kind(place.try_write("file/x", "x", WriteMode::Create).await), "NotADirectory");
    let missing = files.write(at("no/x"), MissingParents::Expect, WriteMode::Replace).await;
    assert_eq!(kind(missing), "NotFound");
    assert_eq!(kind(files.make_dir(at("file"), MissingParents::Make).await), "Exists");
    assert_eq!(kind(files.make_dir(at("x/y"), MissingParents::Expect).await), "NotFound");
    assert_eq!(kind(files.remove(at("none"), ListDepth::Recursive).await), "NotFound");
    assert_eq!(kind(files.rename(at("none"), at("x")).await), "NotFound");
    assert_eq!(kind(files.stat("", LinkMode::Links).await), "Invalid");
    assert_eq!(kind(files.stat("a\0b", LinkMode::Links).await), "Invalid");
    assert_eq!(kind(files.stat("x".repeat(5000), LinkMode::Links).await), "Invalid");
    assert_eq!(kind(files.stat(at(&"x".repeat(300)), LinkMode::Links).await), "Invalid");
    symlink("loop", place.dir.join("loop")).unwrap();
    assert_eq!(kind(files.read(at("loop")).await), "Invalid");
    assert_eq!(kind(place.try_write("loop", "x", WriteMode::Replace).await), "Invalid");
    assert_eq!(kind(files.export_tar(at("none")).await), "NotFound");
    assert_eq!(kind(files.watch(at("none"), ListDepth::Recursive).await), "NotFound");
    assert_eq!(kind(files.disk_usage(at("none")).await), "NotFound");
    if sys::effective_ids().0 == 0 {
        // The tests' own user made this one, and the helper runs as another.
        let denied = place.try_write("roots/x", "x", WriteMode::Replace).await;
        assert_eq!(kind(denied), "PermissionDenied");
        assert_eq!(kind(files.chmod(at("roots"), 0o777).await), "PermissionDenied");
    }
}

#[tokio::test]
async fn nothing_is_opened_that_waits_or_is_the_helpers_own() {
    let place = Place::new();
    let fifo = place.dir.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert_eq!(kind(place.files.read(place.at("fifo")).await), "Invalid");
    assert_eq!(kind(place.try_write("fifo", "x", WriteMode::Replace).await), "Invalid");
    assert_eq!(kind(place.try_write("fifo", "x", WriteMode::Append).await), "Invalid");
    assert_eq!(kind(place.files.read("/dev/zero").await), "Invalid");
    let denied = "PermissionDenied";
    for (path, expected) in [
        ("/proc", denied),
        ("/proc/self", denied),
        ("/proc/self/mem", denied),
        ("/proc/self/environ", denied),
        // Links of the kernel to a process's open files are never followed.
        ("/proc/self/fd/0", "Invalid"),
        ("/proc/self/exe", "Invalid"),
    ] {
        assert_eq!(kind(place.files.stat(path, LinkMode::Links).await), expected, "{path}");
        assert_eq!(kind(place.files.read(path).await), expected, "{path}");
        assert_eq!(kind(place.files.chmod(path, 0o777).await), expected, "{path}");
    }
    symlink("/proc/self/mem", place.dir.join("mem")).unwrap();
    assert_eq!(kind(place.files.read(place.at("mem")).await), "PermissionDenied");
    let append =
        place.files.write(place.at("mem"), MissingParents::Expect, WriteMode::Append).await;
    assert_eq!(kind(append), "PermissionDenied");
    let through = place.files.list("/proc/self/cwd/src", 1, 9).await;
    assert_eq!(kind(through), "Invalid");
}

#[tokio::test]
async fn new_content_appears_at_once_or_never() {
    let place = Place::new();
    place.write("file", "old").await;
    fs::set_permissions(place.dir.join("file"), fs::Permissions::from_mode(0o640)).unwrap();
    let write = |name: &str, mode| place.files.write(place.at(name), MissingParents::Expect, mode);
    let mut writer = write("file", WriteMode::Replace).await.unwrap();
    writer.write_all(b"new content").await.unwrap();
    writer.flush().await.unwrap();
    assert_eq!(place.read("file").await.unwrap(), "old");
    assert_eq!(place.names("", 1).await, ["file"]);
    drop(writer);
    assert_eq!(place.names("", 1).await, ["file"]);

    let mut writer = write("file", WriteMode::Replace).await.unwrap();
    writer.write_all(b"new content").await.unwrap();
    assert_eq!(writer.finish().await.unwrap().mode, 0o640);
    assert_eq!(place.read("file").await.unwrap(), "new content");
    // Another writer was faster.
    let writer = write("two", WriteMode::Create).await.unwrap();
    place.write("two", "first").await;
    assert_eq!(kind(writer.finish().await), "Exists");
    assert_eq!(place.read("two").await.unwrap(), "first");
    let writer = write("dir", WriteMode::Replace).await.unwrap();
    fs::create_dir(place.dir.join("dir")).unwrap();
    assert_eq!(kind(writer.finish().await), "IsADirectory");
    // Through links, also dangling ones.
    symlink("file", place.dir.join("link")).unwrap();
    symlink("later", place.dir.join("dangling")).unwrap();
    place.write("link", "by link").await;
    place.write("dangling", "made").await;
    assert_eq!(place.read("file").await.unwrap(), "by link");
    assert_eq!(place.read("later").await.unwrap(), "made");
    assert!(fs::symlink_metadata(place.dir.join("link")).unwrap().is_symlink());
    place.try_write("log", "one ", WriteMode::Append).await.unwrap();
    let appended = place.try_write("log", "two", WriteMode::Append).await.unwrap();
    assert_eq!((appended.size, place.read("log").await.unwrap().as_str()), (7, "one two"));
    let names = place.names("", 1).await;
    assert_eq!(names, ["dangling", "dir", "file", "later", "link", "log", "two"]);
}

#[tokio::test]
async fn directories_are_made_moved_and_removed() {
    let place = Place::new();
    let (files, at) = (&place.files, |name: &str| place.at(name));
    assert!(files.make_dir(at("a/b/c"), MissingParents::Make).await.unwrap());
    assert!(!files.make_dir(at("a/b/c"), MissingParents::Make).await.unwrap());
    assert!(!files.make_dir(at("a/b"), MissingParents::Expect).await.unwrap());
    place.write("a/b/c/file", "1").await;
    assert_eq!(kind(files.remove(at("a"), ListDepth::Single).await), "NotEmpty");
    files.rename(at("a/b"), at("d")).await.unwrap();
    assert_eq!(place.names("", 3).await, ["a", "d", "d/c", "d/c/file"]);
    files.remove(at("a"), ListDepth::Single).await.unwrap();
    // A link is removed, and its target stays.
    symlink("d", place.dir.join("link")).unwrap();
    files.remove(at("link"), ListDepth::Recursive).await.unwrap();
    symlink("../d", place.dir.join("d/c/up")).unwrap();
    for i in 0..300 {
        place.write(&format!("d/many/{i}"), "").await;
    }
    files.chmod(at("d/c/file"), 0o400).await.unwrap();
    assert_eq!(files.stat(at("d/c/file"), LinkMode::Links).await.unwrap().mode, 0o400);
    let usage = files.disk_usage(at("d")).await.unwrap();
    assert_eq!(usage.entries, 305);
    assert!(usage.bytes > 0);
    files.remove(at("d"), ListDepth::Recursive).await.unwrap();
    assert_eq!(place.names("", 1).await, [""; 0]);
}

#[tokio::test]
async fn a_tree_moves_between_file_systems() {
    let place = Place::new();
    let other = Path::new("/dev/shm");
    let devices = [&place.dir, other].map(|dir| fs::metadata(dir).unwrap().dev());
    assert_ne!(devices[0], devices[1], "the test needs two file systems");
    place.write("tree/a/file", "content").await;
    symlink("a/file", place.dir.join("tree/link")).unwrap();
    let name = format!("cove-moved-{}", std::process::id());
    let there = other.join(&name);
    let there_bytes = there.as_os_str().as_bytes();
    place.files.rename(place.at("tree"), there_bytes).await.unwrap();
    assert_eq!(place.names("", 1).await, [""; 0]);
    assert_eq!(fs::read_to_string(there.join("link")).unwrap(), "content");
    place.files.rename(there_bytes, place.at("back")).await.unwrap();
    assert!(!there.exists());
    assert_eq!(place.names("", 3).await, ["back", "back/a", "back/a/file", "back/link"]);
    place.write("single", "one").await;
    place.files.rename(place.at("single"), there_bytes).await.unwrap();
    place.files.rename(there_bytes, place.at("back/a/file")).await.unwrap();
    assert_eq!(place.read("back/a/file").await.unwrap(), "one");
    let leftovers = fs::read_dir(other).unwrap().filter_map(Result::ok);
    let leftovers = leftovers.filter(|e| e.file_name().as_bytes().starts_with(b".cove-"));
    assert_eq!(leftovers.count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_at_a_time_are_not_mixed() {
    let place = std::sync::Arc::new(Place::new());
    let all: Vec<_> = (0..400)
        .map(|i| {
            let place = place.clone();
            tokio::spawn(async move {
                let (name, text) = (format!("d{}/f{i}", i % 7), format!("content of {i}"));
                place.write(&name, &text).await;
                assert_eq!(place.read(&name).await.unwrap(), text);
                let entry = place.files.stat(place.at(&name), LinkMode::Links).await.unwrap();
                assert_eq!((entry.name, entry.size), (format!("f{i}"), text.len() as u64));
            })
        })
        .collect();
    for one in all {
        time::timeout(PATIENCE, one).await.unwrap().unwrap();
    }
    assert_eq!(place.names("", 2).await.len(), 407);
}

#[tokio::test]
async fn who_does_not_read_holds_up_nobody() {
    let place = Place::new();
    let big = fs::File::create(place.dir.join("big")).unwrap();
    (&big).write_all(&vec![7; 4 << 20]).unwrap();
    let mut readers = Vec::new();
    for _ in 0..4 {
        readers.push(place.files.export_tar(place.at("")).await.unwrap());
    }
    time::timeout(PATIENCE, place.write("small", "x")).await.unwrap();
    // A fifth waits for one of them, and a list does not.
    time::timeout(PATIENCE, place.names("", 1)).await.unwrap();
    drop(readers.pop());
    let fifth = time::timeout(PATIENCE, place.export("")).await.unwrap();
    assert!(fifth.len() > 4 << 20);
}

/// The caller waits only for this answer.
#[test]
fn a_request_that_fails_unforeseen_is_answered() {
    let refused = super::answered(|| panic!("on purpose")).unwrap_err();
    assert_eq!(refused, super::FileRefusal::new(libc::EIO, "the file helper failed"));
}

#[tokio::test]
async fn attributes_are_kept() {
    let place = Place::new();
    place.write("file", "x").await;
    let (files, at) = (&place.files, place.at("file"));
    assert_eq!(kind(files.attribute(&at, "a").await), "NotFound");
    files.set_attribute(&at, "a", Some(b"1\0\xff")).await.unwrap();
    files.set_attribute(&at, "b.c", Some(b"")).await.unwrap();
    assert_eq!(files.attribute(&at, "a").await.unwrap(), b"1\0\xff");
    let mut names = files.attributes(&at).await.unwrap();
    names.sort();
    assert_eq!(names, ["a", "b.c"]);
    files.set_attribute(&at, "a", None).await.unwrap();
    assert_eq!(files.attributes(&at).await.unwrap(), ["b.c"]);
    assert_eq!(kind(files.set_attribute(&at, "a", Some(&[0; 70_000])).await), "TooLarge");
    assert_eq!(kind(files.set_attribute(&at, "", Some(b"")).await), "Invalid");
}

/// Waits until this event is reported, and returns those before it.
async fn until(watch: &mut Watch, kind: WatchKind, path: &str) -> Vec<WatchEvent> {
    let wanted = WatchEvent { kind, path: path.to_owned() };
    let mut before = Vec::new();
    loop {
        let event = time::timeout(PATIENCE, watch.next()).await;
        let event = event.unwrap_or_else(|_| panic!("no {wanted:?} after {before:?}"));
        let event = event.unwrap_or_else(|| panic!("the end and no {wanted:?} after {before:?}"));
        if event == wanted {
            return before;
        }
        before.push(event);
    }
}

#[tokio::test]
async fn a_watch_tells_what_happens() {
    let place = Place::new();
    place.write("old/file", "1").await;
    let mut watch = place.files.watch(place.at(""), ListDepth::Recursive).await.unwrap();
    fs::write(place.dir.join("new"), "content").unwrap();
    assert_eq!(until(&mut watch, WatchKind::Create, "new").await, []);
    until(&mut watch, WatchKind::Write, "new").await;
    fs::set_permissions(place.dir.join("new"), fs::Permissions::from_mode(0o600)).unwrap();
    until(&mut watch, WatchKind::Chmod, "new").await;
    fs::rename(place.dir.join("new"), place.dir.join("old/moved")).unwrap();
    until(&mut watch, WatchKind::Rename, "new").await;
    until(&mut watch, WatchKind::Create, "old/moved").await;
    fs::remove_file(place.dir.join("old/file")).unwrap();
    until(&mut watch, WatchKind::Remove, "old/file").await;
    // Later directories are watched, including their earlier content.
    fs::create_dir_all(place.dir.join("x/y/z")).unwrap();
    until(&mut watch, WatchKind::Create, "x/y/z").await;
    fs::write(place.dir.join("x/y/z/deep"), "").unwrap();
    until(&mut watch, WatchKind::Create, "x/y/z/deep").await;
    fs::rename(place.dir.join("x/y"), place.dir.join("y")).unwrap();
    until(&mut watch, WatchKind::Create, "y").await;
    fs::write(place.dir.join("y/z/again"), "").unwrap();
    until(&mut watch, WatchKind::Create, "y/z/again").await;
    fs::remove_dir_all(&place.dir).unwrap();
    until(&mut watch, WatchKind::Remove, "").await;
    assert_eq!(time::timeout(PATIENCE, watch.next()).await.unwrap(), None);
}

#[tokio::test]
async fn watches_are_bounded_and_end_when_they_are_dropped() {
    let place = Place::new();
    let mut watches = Vec::new();
    for _ in 0..WATCHES_MAX {
        watches.push(place.files.watch(place.at(""), ListDepth::Single).await.unwrap());
    }
    assert_eq!(kind(place.files.watch(place.at(""), ListDepth::Single).await), "TooMany");
    // More often than the maximum at a time.
    for _ in 0..100 {
        drop(watches.pop());
        watches.push(place.files.watch(place.at(""), ListDepth::Single).await.unwrap());
    }
    fs::create_dir_all(place.dir.join("d/e")).unwrap();
    fs::write(place.dir.join("last"), "").unwrap();
    let before = until(watches.last_mut().unwrap(), WatchKind::Create, "last").await;
    assert_eq!(before, [WatchEvent { kind: WatchKind::Create, path: "d".to_owned() }]);
}

// ---- archives ----------------------------------------------------------------------------------

/// Runs GNU tar, with which our archives must be compatible in both directions.
fn gnu_tar(dir: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("tar")
        .args(arguments)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writing = std::thread::spawn(move || {
        // Data after the end of the archive is not read.
        let _closed = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    assert!(output.status.success(), "tar {arguments:?}: {}", output.status);
    output.stdout
}

/// Path, kind, mode, size, time, link, content, whether it has holes, and the number of names.
type Described = (Vec<u8>, u32, u64, i64, i64, Vec<u8>, Vec<u8>, bool, u64);

/// Describes everything below a directory.
fn describe(dir: &Path) -> Vec<Described> {
    fn walk(dir: &Path, base: &Path, all: &mut Vec<Described>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let link = fs::read_link(&path).unwrap_or_default();
            let is_file = metadata.is_file();
            let content = if is_file && metadata.len() < 1 << 20 {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            all.push((
                path.strip_prefix(base).unwrap().as_os_str().as_bytes().to_vec(),
                metadata.mode(),
                if is_file { metadata.len() } else { 0 },
                metadata.mtime(),
                metadata.mtime_nsec(),
                link.as_os_str().as_bytes().to_vec(),
                content,
                is_file && metadata.blocks() * 512 < metadata.len(),
                if is_file { metadata.nlink() } else { 1 },
            ));
            if metadata.is_dir() {
                walk(&path, base, all);
            }
        }
    }
    let mut all = Vec::new();
    walk(dir, dir, &mut all);
    all.sort();
    all
}

/// Reduces descriptions to the parts that an archive's format can store.
type Normal<'a> = &'a dyn Fn(&[Described]) -> Vec<Described>;

/// Checks that two descriptions are equal, one file after the other.
fn assert_same(got: &[Described], expected: &[Described], what: &str) {
    for (got, expected) in got.iter().zip(expected) {
        // Not the bytes: there are many.
        let facts = |d: &Described| (d.1, d.2, d.3, d.4, d.6.len(), d.7, d.8);
        let name = String::from_utf8_lossy(&expected.0);
        assert_eq!(got.0, expected.0, "{what}: {name}");
        assert_eq!(facts(got), facts(expected), "{what}: {name}");
        assert!(got.5 == expected.5 && got.6 == expected.6, "{what}: {name} has other content");
    }
    assert_eq!(got.len(), expected.len(), "{what}");
}

/// Makes a tree with everything that an archive can contain.
fn make_tree(dir: &Path) {
    let path = |name: &str| dir.join(name);
    let long = ["long".repeat(40), "deep".repeat(30)].join("/");
    for name in ["empty", ".hidden/.git", "node_modules/.bin", long.as_str()] {
        fs::create_dir_all(path(name)).unwrap();
    }
    let bytes: Vec<u8> = (0..70_000u32).map(|i| i.to_le_bytes()[0]).collect();
    fs::write(path(".hidden/.env"), "SECRET=1").unwrap();
    fs::write(path(".hidden/.git/index.lock"), "").unwrap();
    fs::write(path("blocks"), &bytes[..1024]).unwrap();
    fs::write(path("bytes"), &bytes).unwrap();
    fs::write(dir.join(std::ffi::OsStr::from_bytes(b"not\xffutf8 \n")), "odd").unwrap();
    fs::write(path(&format!("{long}/file")), "far below").unwrap();
    fs::hard_link(path("bytes"), path(".hidden/same")).unwrap();
    symlink("bytes", path("link")).unwrap();
    symlink("../../outside", path("empty/dangling")).unwrap();
    symlink("x".repeat(300), path("long link")).unwrap();
    assert!(Command::new("mkfifo").arg(path("fifo")).status().unwrap().success());
    let sparse = fs::File::create(path("sparse")).unwrap();
    sparse.set_len(3 << 30).unwrap();
    for (offset, text) in [(0, "head"), (1 << 30, "middle"), ((3 << 30) - 4096, "tail")] {
        std::os::unix::fs::FileExt::write_all_at(&sparse, text.as_bytes(), offset).unwrap();
    }
    fs::File::create(path("holes")).unwrap().set_len(1 << 20).unwrap();
    for (name, mode) in [("bytes", 0o751), ("blocks", 0o444), ("empty", 0o500)] {
        fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let set_time = |name: &str, seconds: i64, nanos: u32| {
        let dir = fs::File::open(dir).unwrap();
        let name = std::ffi::CString::new(name).unwrap();
        sys::files::set_times(std::os::fd::AsFd::as_fd(&dir), &name, seconds, nanos).unwrap();
    };
    set_time("bytes", 1_000_000_000, 123_456_789);
    set_time("link", 1_100_000_000, 1);
    set_time("blocks", -2, 500_000_000);
    set_time("empty", 1_200_000_000, 0);
    set_time("node_modules", 4_000_000_000, 999_999_999);
    if sys::effective_ids().0 == 0 {
        let owner = format!("{USER}:{USER}");
        let chown = Command::new("chown").args(["-hR", &owner]).arg(dir).status();
        assert!(chown.unwrap().success());
        // Writing has reset this one.
        set_time("bytes", 1_000_000_000, 123_456_789);
    }
}

#[tokio::test]
async fn nothing_of_a_tree_is_lost_in_an_archive() {
    let place = Place::new();
    let (tree, there) = (place.dir.join("tree"), place.dir.join("gnu"));
    fs::create_dir(&tree).unwrap();
    fs::create_dir(&there).unwrap();
    make_tree(&tree);
    let archive = place.export("tree").await;
    assert!(archive.len() < 1 << 20, "holes were written: {} bytes", archive.len());
    let expected = describe(&tree);
    assert!(expected.iter().any(|one| one.7) && expected.iter().any(|one| one.8 > 1));
    let (entries, _) = place.import("back", &archive).await.unwrap();
    assert_eq!(entries, expected.len() as u64);
    assert_same(&describe(&place.dir.join("back")), &expected, "unpacked");
    // Again, over existing files.
    place.import("back", &archive).await.unwrap();
    assert_same(&describe(&place.dir.join("back")), &expected, "unpacked again");
    gnu_tar(&there, &["-xpf", "-"], &archive);
    assert_same(&describe(&there), &expected, "unpacked by GNU tar");
}

#[tokio::test]
async fn what_gnu_tar_packs_is_unpacked() {
    let place = Place::new();
    let tree = place.dir.join("tree");
    fs::create_dir(&tree).unwrap();
    make_tree(&tree);
    fs::remove_file(tree.join("sparse")).unwrap();
    let expected = describe(&tree);
    let exact = |all: &[Described]| all.to_vec();
    // Formats before pax have whole seconds, and GNU tar only stores holes on request.
    let coarse = |all: &[Described]| -> Vec<Described> {
        let without = |one: &Described| {
            let mut one = one.clone();
            (one.4, one.7) = (0, false);
            one
        };
        all.iter().map(without).collect()
    };
    let cases: [(&[&str], Normal<'_>); 3] = [
        (&["--format=pax", "--sparse", "--sparse-version=1.0"], &exact),
        (&["--format=gnu"], &coarse),
        (&["--format=oldgnu", "-b", "1"], &coarse),
    ];
    for (i, (form, normal)) in cases.into_iter().enumerate() {
        let arguments = [form, &["-cf", "-", "."]].concat();
        let archive = gnu_tar(&tree, &arguments, b"");
        let name = format!("back{i}");
        place.import(&name, &archive).await.unwrap();
        let got = normal(&describe(&place.dir.join(&name)));
        assert_same(&got, &normal(&expected), &format!("{form:?}"));
    }
}

fn member(name: &str, kind: MemberKind, link: &str, content: &[u8]) -> Vec<u8> {
    let member = TarMember {
        name: name.as_bytes().to_vec(),
        kind,
        mode: 0o644,
        size: content.len() as u64,
        mtime: (0, 0),
        link: link.as_bytes().to_vec(),
        sparse: None,
    };
    let mut bytes = [member.header().as_slice(), content].concat();
    bytes.resize(bytes.len() + tar::padding(member.size), 0);
    bytes
}

fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    [members.concat(), tar::trailer()].concat()
}

#[tokio::test]
async fn no_archive_writes_outside_of_its_target() {
    let place = Place::new();
    fs::create_dir(place.dir.join("out")).unwrap();
    fs::set_permissions(place.dir.join("out"), fs::Permissions::from_mode(0o777)).unwrap();
    place.write("secret", "mine").await;
    let outside = place.dir.join("out").display().to_string();
    let secret = place.dir.join("secret").display().to_string();
    let file = |name: &str| member(name, MemberKind::File, "", b"x");
    let link = |name: &str, to: &str| member(name, MemberKind::Symlink, to, b"");
    let hard = |name: &str, to: &str| member(name, MemberKind::HardLink, to, b"");
    let mut device = member("dev", MemberKind::Fifo, "", b"");
    device[156] = b'3';
    device[148..156].copy_from_slice(b"        ");
    let sum: u32 = device[..512].iter().map(|b| u32::from(*b)).sum();
    device[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let cases: [(&str, Vec<Vec<u8>>); 11] = [
        ("Invalid", vec![file("../out/x")]),
        ("Invalid", vec![file("a/../../out/x")]),
        ("Invalid", vec![link("a", "../out"), file("a/x")]),
        ("Invalid", vec![link("a", &outside), file("a/x")]),
        ("Invalid", vec![link("a", &outside), file("a/b/c/x")]),
        ("Invalid", vec![link("a", ".."), hard("h", "a/secret")]),
        ("Invalid", vec![hard("h", "../secret")]),
        ("NotFound", vec![hard("h", &secret)]),
        ("Invalid", vec![device]),
        // A directory in place of the link, and the link is replaced.
        ("ok", vec![link("a", &outside), member("a", MemberKind::Dir, "", b""), file("a/x")]),
        // The target of a link is not written to.
        ("ok", vec![link("s", &secret), file("s"), file("/abs/x")]),
    ];
    for (i, (expected, members)) in cases.iter().enumerate() {
        let target = format!("t/{i}");
        let done = place.import(&target, &archive(members)).await;
        let got = if done.is_ok() { "ok".to_owned() } else { kind(done) };
        assert_eq!((got.as_str(), i), (*expected, i));
        assert_eq!(fs::read_dir(place.dir.join("out")).unwrap().count(), 0, "case {i}");
        assert_eq!(place.read("secret").await.unwrap(), "mine", "case {i}");
    }
    assert_eq!(place.read("t/10/abs/x").await.unwrap(), "x");
    assert_eq!(fs::metadata(place.dir.join("secret")).unwrap().nlink(), 1);
}

#[tokio::test]
async fn a_bad_archive_is_an_error_that_says_so() {
    let place = Place::new();
    let good = archive(&[member("file", MemberKind::File, "", &[1; 5000])]);
    for end in [0, 100, 512, 3000, 5119] {
        let done = place.import("t", &good[..end]).await;
        let error = done.unwrap_err().to_string();
        assert!(error.contains("cut off"), "{end}: {error}");
    }
    let mut wrong = good.clone();
    wrong[0] ^= 1;
    let error = place.import("t", &wrong).await.unwrap_err().to_string();
    assert!(error.contains("checksum"), "{error}");
    let text = vec![b'x'; 10_000];
    assert_eq!(kind(place.import("t", &text).await), "Invalid");
    // Data after the end of an archive is ignored.
    let more = [good, vec![9; 1 << 20]].concat();
    assert_eq!(place.import("t", &more).await.unwrap(), (1, 5000));
    assert_eq!(place.import("t", &tar::trailer()).await.unwrap(), (0, 0));
}

/// Returns all members of an archive, skipping their content.
fn read_all(bytes: &[u8]) -> Result<Vec<TarMember>, tar::BadArchive> {
    let mut headers = HeaderReader { source: bytes };
    let mut all = Vec::new();
    while let Some(member) = headers.next()? {
        let skip = member.size + tar::padding(member.size) as u64;
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        headers.source = headers.source.get(skip..).unwrap_or(&[]);
        all.push(member);
    }
    Ok(all)
}

fn members() -> impl Strategy<Value = TarMember> {
    let extents = proptest::collection::vec((0..1u64 << 40, 0..1u64 << 20), 0..9);
    let kinds = [
        MemberKind::File,
        MemberKind::HardLink,
        MemberKind::Symlink,
        MemberKind::Dir,
        MemberKind::Fifo,
    ];
    let kind = proptest::sample::select(kinds.to_vec());
    // Often as long as the field of a header, and with slashes at its end.
    let byte = || prop_oneof![6 => 1u8..=255, 1 => Just(b'/')];
    let len = prop_oneof![1usize..300, 98usize..104];
    let bytes = || {
        let len = len.clone();
        len.prop_flat_map(move |len| proptest::collection::vec(byte(), len))
    };
    let time = (-(1i64 << 40)..1 << 40, 0..1_000_000_000u32);
    (bytes(), kind, 0..0o10000u32, 0..1u64 << 50, time, bytes(), any::<bool>(), extents).prop_map(
        |(mut name, kind, mode, size, mtime, link, is_sparse, gaps)| {
            // A trailing slash makes a directory, in the oldest format.
            while name.last() == Some(&b'/') {
                name.pop();
            }
            name.push(if kind == MemberKind::Dir { b'/' } else { b'n' });
            let is_file = kind == MemberKind::File;
            let mut at = 0;
            let extents: Vec<(u64, u64)> = gaps
                .iter()
                .map(|(gap, len)| {
                    let extent = (at + gap, *len);
                    at = extent.0 + len;
                    extent
                })
                .collect();
            let data = gaps.iter().map(|(_, len)| len).sum();
            let is_sparse = is_file && is_sparse;
            let sparse = is_sparse.then_some(SparseMap { extents, real_size: at });
            let size = if is_sparse { data } else { size };
            TarMember {
                name,
                kind,
                mode,
                size: if is_file { size } else { 0 },
                mtime,
                link: if matches!(kind, MemberKind::HardLink | MemberKind::Symlink) {
                    link
                } else {
                    vec![]
                },
                sparse,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_header_is_read_as_it_was_written(member in members()) {
        let bytes = [member.header(), tar::trailer()].concat();
        let read = HeaderReader { source: bytes.as_slice() }.next().unwrap();
        prop_assert_eq!(read, Some(member));
    }

    /// Readers without support for sparse files find a file under its own name as well.
    #[test]
    fn a_name_that_is_cut_at_a_slash_is_no_directory(member in members()) {
        let name = [&[b'd'; 99][..], b"/", &member.name].concat();
        let member = TarMember { name, ..member };
        let bytes = [member.header(), tar::trailer()].concat();
        let read = HeaderReader { source: bytes.as_slice() }.next().unwrap().unwrap();
        prop_assert_eq!(read.kind, member.kind);
        let header = String::from_utf8_lossy(&bytes).into_owned();
        prop_assert!(header.contains(" path=dddd"));
        prop_assert_eq!(read, member);
    }

    #[test]
    fn no_bytes_break_the_reader(
        members in proptest::collection::vec(members(), 1..4),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        noise in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        let mut bytes: Vec<u8> = members.iter().flat_map(TarMember::header).collect();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
            // So that not every change is rejected by the checksum.
            let block = at / 512 * 512;
            if bytes.len() >= block + 512 {
                bytes[block + 148..block + 156].copy_from_slice(b"        ");
                let sum: u32 = bytes[block..block + 512].iter().map(|b| u32::from(*b)).sum();
                bytes[block + 148..block + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            }
        }
        for member in read_all(&bytes).unwrap_or_default() {
            if let Some(sparse) = member.sparse {
                let total: u64 = sparse.extents.iter().map(|(_, len)| len).sum();
                prop_assert_eq!(total, member.size);
            }
        }
        prop_assert!(read_all(&noise).is_ok_and(|all| all.is_empty()) || read_all(&noise).is_err());
    }
}
