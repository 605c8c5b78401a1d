//! Files of a session, on the file systems that sessions have: an overlay on a disk, and a tmpfs.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sandbox::{
    AttachedDiskImage, DiskSize, Disks, Engine, EntryKind, FilesError, LinkMode, ListDepth,
    MissingParents, ProcessStreams, SandboxFiles, SandboxedSession, SessionProgram,
    SessionSandboxLimits, SessionSetup, Watch, WatchKind, WriteMode,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time;

use crate::support::{tests, text};

tests![
    what_the_server_writes_is_the_programs_own,
    a_file_is_replaced_in_one_step_while_programs_read_it,
    a_full_disk_is_told_and_nothing_is_left,
    a_watch_tells_what_programs_do,
    a_workspace_goes_through_an_archive,
    what_a_layer_has_is_moved_and_replaced,
    programs_cannot_reach_the_helper,
];

/// Longest wait on a busy machine.
const SOON: Duration = Duration::from_secs(30);
const DISK_BYTES: u64 = 64 << 20;

/// A session with a disk of its own, in a directory that is removed with it.
struct Live {
    session: SandboxedSession,
    files: SandboxFiles,
    disk: Option<AttachedDiskImage>,
    directory: PathBuf,
}

impl Live {
    async fn new(engine: &Engine) -> Live {
        Live::above(engine, &[]).await
    }

    async fn above(engine: &Engine, layers: &[std::sync::Arc<sandbox::AttachedLayer>]) -> Live {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let own = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(format!("cove-files-{}-{}", own.0, own.1));
        std::fs::create_dir(&directory).unwrap();
        let disks = Disks::open(&directory.join("templates")).unwrap();
        let image = directory.join("disk");
        disks.create(&image, DiskSize { bytes: DISK_BYTES, inodes: 4096 }).unwrap();
        let disk = AttachedDiskImage::attach(&image, SOON).unwrap();
        let sandbox = engine.session_sandbox().await.unwrap();
        let limits = SessionSandboxLimits::default();
        let session = sandbox.into_session(SessionSetup { disk: &disk, layers, limits });
        let session = session.await.unwrap();
        let files = session.files().await.unwrap();
        Live { session, files, disk: Some(disk), directory }
    }

    /// Returns the output of a script, which must succeed.
    async fn shell(&self, script: &str) -> String {
        let bytes_of = |list: &[&str]| list.iter().map(|word| word.as_bytes().to_vec()).collect();
        let program = SessionProgram {
            argv: bytes_of(&["/bin/bash", "-c", script]),
            env: bytes_of(&["PATH=/usr/bin:/bin", "HOME=/home/user", "LANG=C.UTF-8"]),
            merged: true,
            ..SessionProgram::default()
        };
        let mut process = self.session.start(program).await.unwrap();
        let mut output = Vec::new();
        let ProcessStreams::Pipes(pipes) = &mut process.streams else { panic!("a terminal") };
        time::timeout(SOON, pipes.stdout.read_to_end(&mut output)).await.unwrap().unwrap();
        let end = time::timeout(SOON, process.wait()).await.unwrap().unwrap();
        assert_eq!(end.code, Some(0), "{script}: {end:?}: {}", text(&output));
        text(&output)
    }

    async fn write(&self, path: &str, content: &[u8]) -> Result<(), FilesError> {
        let mut writer = self.files.write(path, MissingParents::Make, WriteMode::Replace).await?;
        writer.write_all(content).await?;
        writer.finish().await.map(drop)
    }

    async fn read(&self, path: &str) -> String {
        let mut open = self.files.read(path).await.unwrap();
        let mut content = String::new();
        open.file.read_to_string(&mut content).await.unwrap();
        content
    }

    async fn names(&self, path: &str) -> Vec<String> {
        let listing = self.files.list(path, 3, 1000).await.unwrap();
        listing.entries.into_iter().map(|entry| entry.path).collect()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.disk = None;
        std::fs::remove_dir_all(&self.directory).unwrap();
    }
}

async fn what_the_server_writes_is_the_programs_own(engine: Engine) {
    let live = Live::new(&engine).await;
    for path in ["a/b/file", "~/.config/x", "/tmp/t/file"] {
        live.write(path, b"hello").await.unwrap();
        assert_eq!(live.read(path).await, "hello");
        let entry = live.files.stat(path, LinkMode::Nothing).await.unwrap();
        assert_eq!((entry.kind, entry.size, entry.mode), (EntryKind::File, 5, 0o644), "{path}");
        assert_eq!((entry.uid, entry.gid), (1000, 1000), "{path}");
    }
    assert_eq!(live.names("/tmp").await, ["/tmp/t", "/tmp/t/file"]);
    let script = "set -e; [ -O a/b/file -a -O a/b -a -O /tmp/t ]; cat a/b/file ~/.config/x; \
        echo more >> a/b/file; chmod 600 a/b/file; rm -r ~/.config; mkdir made; ln -s /etc made/l";
    assert_eq!(live.shell(script).await, "hellohello");
    assert_eq!(live.read("a/b/file").await, "hellomore\n");
    live.files.remove("made", ListDepth::Recursive).await.unwrap();
    assert_eq!(live.names(".").await, ["/workspace/a", "/workspace/a/b", "/workspace/a/b/file"]);
    assert_eq!(live.names("~").await, [""; 0]);
    // The helper has no more access than the user.
    for path in ["/etc/x", "/usr/x", "/x"] {
        let denied = live.write(path, b"x").await;
        assert!(matches!(denied, Err(FilesError::PermissionDenied)), "{path}: {denied:?}");
    }
    live.files.set_attribute("a/b/file", "meta", Some(b"data")).await.unwrap();
    assert_eq!(live.files.attribute("a/b/file", "meta").await.unwrap(), b"data");
    assert_eq!(live.files.attributes("a/b/file").await.unwrap(), ["meta"]);
    assert!(live.files.disk_usage("/workspace").await.unwrap().entries >= 4);
    // From one file system to the other, and back over an existing file.
    live.files.rename("a", "/tmp/a").await.unwrap();
    live.files.rename("/tmp/a/b/file", "file").await.unwrap();
    assert_eq!(live.read("file").await, "hellomore\n");
    assert_eq!(live.names(".").await, ["/workspace/file"]);
}

async fn a_file_is_replaced_in_one_step_while_programs_read_it(engine: Engine) {
    let live = Live::new(&engine).await;
    live.write("file", &[b'0'; 10_000]).await.unwrap();
    let reading = live.shell(
        "for i in $(seq 100); do c=$(tr -d '\\n' < file); d=${c:0:1}; \
            [ ${#c} = 10000 -a -z \"${c//$d}\" ] || { echo \"mixed: ${#c}\"; exit 1; }; done",
    );
    let writing = async {
        for round in 1..200u32 {
            let digit = b'0' + u8::try_from(round % 10).unwrap();
            live.write("file", &[digit; 10_000]).await.unwrap();
        }
    };
    tokio::join!(reading, writing);
    let writer =
        live.files.write("never", MissingParents::Expect, WriteMode::Create).await.unwrap();
    drop(writer);
    assert_eq!(live.names(".").await, ["/workspace/file"]);
}

async fn a_full_disk_is_told_and_nothing_is_left(engine: Engine) {
    let live = Live::new(&engine).await;
    let before = live.disk.as_ref().unwrap().usage().unwrap();
    let chunk = vec![7; 1 << 20];
    let mut writer =
        live.files.write("big", MissingParents::Expect, WriteMode::Create).await.unwrap();
    let mut written = Ok(());
    for _ in 0..2 * (DISK_BYTES >> 20) {
        written = writer.write_all(&chunk).await;
        if written.is_err() {
            break;
        }
    }
    assert_eq!(written.unwrap_err().raw_os_error(), Some(28), "ENOSPC");
    drop(writer);
    assert_eq!(live.names(".").await, [""; 0]);
    // The space is free as soon as the file is closed, which another thread does.
    let disk = live.disk.as_ref().unwrap();
    let room_is_back = async {
        while disk.usage().unwrap().bytes > before.bytes + (1 << 20) {
            tokio::task::yield_now().await;
        }
    };
    time::timeout(SOON, room_is_back).await.unwrap();
    live.write("small", b"x").await.unwrap();
    // Of inodes, too, and inside of an archive.
    live.shell("mkdir n; for i in $(seq 5000); do : > n/$i || exit 0; done 2>/dev/null").await;
    let full = live.write("one more", b"x").await;
    assert!(matches!(full, Err(FilesError::NoSpace)), "{full:?}");
    live.files.remove("n", ListDepth::Recursive).await.unwrap();
    live.write("one more", b"x").await.unwrap();
}

/// Waits until this event of this file is reported.
async fn until(watch: &mut Watch, kind: WatchKind, path: &str) {
    let found = async {
        while let Some(event) = watch.next().await {
            if event.kind == kind && event.path == path {
                return;
            }
        }
        panic!("the watch has ended without {kind:?} of {path}");
    };
    let found = time::timeout(SOON, found).await;
    found.unwrap_or_else(|_| panic!("nothing tells of {kind:?} of {path}"));
}

async fn a_watch_tells_what_programs_do(engine: Engine) {
    let live = Live::new(&engine).await;
    live.shell("mkdir -p d/e").await;
    let mut watch = live.files.watch("d", ListDepth::Recursive).await.unwrap();
    live.shell("echo 1 > d/e/f; mv d/e/f d/g; chmod 600 d/g; mkdir -p d/x/y; echo 2 > d/x/y/z")
        .await;
    until(&mut watch, WatchKind::Create, "e/f").await;
    until(&mut watch, WatchKind::Write, "e/f").await;
    until(&mut watch, WatchKind::Rename, "e/f").await;
    until(&mut watch, WatchKind::Create, "g").await;
    until(&mut watch, WatchKind::Chmod, "g").await;
    until(&mut watch, WatchKind::Create, "x/y/z").await;
    live.shell("rm d/x/y/z").await;
    until(&mut watch, WatchKind::Remove, "x/y/z").await;
    // More events at a time than can be reported: an overflow is reported, and the watch continues.
    live.shell("for i in $(seq 1000); do : > d/$i; rm d/$i; done; : > d/last").await;
    until(&mut watch, WatchKind::Create, "last").await;
    live.shell("rm -r d").await;
    until(&mut watch, WatchKind::Remove, "").await;
    assert!(time::timeout(SOON, watch.next()).await.unwrap().is_none());
}

async fn a_workspace_goes_through_an_archive(engine: Engine) {
    let (one, other) = (Live::new(&engine).await, Live::new(&engine).await);
    let tree = "find . -printf '%p %y %m %s %n %T@ %l\\n' | grep -v '^\\. ' | sort; \
        find . -type f -size -1000 | sort | xargs md5sum";
    one.shell(
        "mkdir -p .git node_modules/a; echo k > .git/index.lock; echo s > .env; \
            echo x > node_modules/a/i.js; ln node_modules/a/i.js same; ln -s same link; \
            truncate -s 1G sparse; echo end >> sparse; chmod 700 node_modules; mkfifo fifo",
    )
    .await;
    let archive = one.files.export_tar("/workspace").await.unwrap();
    let usage = other.files.import_tar("/workspace", archive).await.unwrap();
    assert_eq!(usage.entries, 10);
    assert_eq!(other.shell(tree).await, one.shell(tree).await);
    assert!(other.disk.as_ref().unwrap().usage().unwrap().bytes < 32 << 20);
}

async fn what_a_layer_has_is_moved_and_replaced(engine: Engine) {
    let below = Live::new(&engine).await;
    below.shell("mkdir -p d/sub; echo low > d/file; echo two > d/sub/two; echo gone > gone").await;
    let image = below.directory.join("frozen");
    below.disk.as_ref().unwrap().copy_to(&image).unwrap();
    let layer = std::sync::Arc::new(sandbox::AttachedLayer::attach(&image, SOON).unwrap());
    let live = Live::above(&engine, std::slice::from_ref(&layer)).await;
    assert_eq!(live.read("d/file").await, "low\n");
    live.write("d/file", b"high").await.unwrap();
    live.files.remove("gone", ListDepth::Single).await.unwrap();
    // An overlay may not be able to rename a directory of a layer; then it is copied.
    live.files.rename("d", "moved").await.unwrap();
    assert_eq!(live.read("moved/file").await, "high");
    assert_eq!(live.read("moved/sub/two").await, "two\n");
    let names = ["moved", "moved/file", "moved/sub", "moved/sub/two"];
    assert_eq!(live.names(".").await, names.map(|name| format!("/workspace/{name}")));
    live.files.remove("moved", ListDepth::Recursive).await.unwrap();
    assert_eq!(live.names(".").await, [""; 0]);
    assert_eq!(below.read("d/file").await, "low\n");
    drop(live);
}

async fn programs_cannot_reach_the_helper(engine: Engine) {
    let live = Live::new(&engine).await;
    live.write("file", b"x").await.unwrap();
    // Processes of other users are not even visible in /proc.
    let seen = live.shell("cat /proc/[0-9]*/comm | sort -u; kill -9 -1; true").await;
    assert!(!seen.contains("cove"), "{seen}");
    let script = "for pid in $(seq 2 60); do [ $pid = $$ ] || kill -9 $pid 2>/dev/null; done; \
        for pid in $(seq 60); do cat /proc/$pid/environ /proc/$pid/maps; done 2>/dev/null | \
        grep -c cove; true";
    assert_eq!(live.shell(script).await, "0\n");
    assert!(live.files.is_alive());
    assert_eq!(live.read("file").await, "x");
    // The helper does not expose itself either, or its open files.
    for path in ["/proc/self/mem", "/proc/self/environ", "/proc/self/maps", "/proc/1/status"] {
        assert!(live.files.read(path).await.is_err(), "{path}");
    }
    // A program that blocks the requested file delays no request.
    live.shell("mkfifo pipe; (exec 3<>pipe; sleep 1000) > log 2>&1 & disown").await;
    let refused = time::timeout(SOON, live.files.read("pipe")).await.unwrap();
    assert!(matches!(refused, Err(FilesError::Invalid(_))), "{refused:?}");
}
