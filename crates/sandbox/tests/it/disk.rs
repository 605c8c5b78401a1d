//! Disks and layers as programs of sessions see them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sandbox::{
    AttachedDiskImage, AttachedLayer, DiskError, DiskSize, Disks, Engine, ProcessStreams,
    SandboxedSession, SessionProgram, SessionSandboxLimits, SessionSetup,
};
use tokio::io::AsyncReadExt;
use tokio::time;

use crate::support::{tests, text};

tests![
    a_live_session_is_forked_and_goes_on,
    tools_work_on_what_is_in_layers,
    a_busy_disk_can_be_copied_while_its_programs_are_paused,
    a_disk_is_free_when_its_session_has_ended,
];

const SOON: Duration = Duration::from_secs(30);
const SIZE: DiskSize = DiskSize { bytes: 64 << 20, inodes: 4096 };

/// A directory of one test, with its disks.
struct Place {
    disks: Disks,
    directory: PathBuf,
}

impl Place {
    fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let own = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(format!("cove-it-disks-{}-{}", own.0, own.1));
        let disks = Disks::open(&directory.join("templates")).unwrap();
        Place { disks, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn disk(&self, name: &str) -> AttachedDiskImage {
        self.disks.create(&self.path(name), SIZE).unwrap();
        AttachedDiskImage::attach(&self.path(name), SOON).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.directory).unwrap();
    }
}

fn layer(path: &Path) -> Arc<AttachedLayer> {
    Arc::new(AttachedLayer::attach(path, SOON).unwrap())
}

async fn session(
    engine: &Engine,
    disk: &AttachedDiskImage,
    layers: &[Arc<AttachedLayer>],
) -> SandboxedSession {
    let sandbox = engine.session_sandbox().await.unwrap();
    let setup = SessionSetup { disk, layers, limits: SessionSandboxLimits::default() };
    sandbox.into_session(setup).await.unwrap()
}

fn bash(script: &str) -> SessionProgram {
    let bytes_of = |list: &[&str]| list.iter().map(|word| word.as_bytes().to_vec()).collect();
    SessionProgram {
        argv: bytes_of(&["/bin/bash", "-ec", script]),
        env: bytes_of(&["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/user", "LANG=C.UTF-8"]),
        merged: true,
        ..SessionProgram::default()
    }
}

/// Returns the output of a script, which must not fail.
async fn run(session: &SandboxedSession, script: &str) -> String {
    let mut process = session.start(bash(script)).await.unwrap();
    let ProcessStreams::Pipes(pipes) = &mut process.streams else { panic!("a terminal") };
    let mut output = Vec::new();
    time::timeout(SOON, pipes.stdout.read_to_end(&mut output)).await.unwrap().unwrap();
    let end = time::timeout(SOON, process.wait()).await.unwrap().unwrap();
    let output = text(&output);
    assert_eq!(end.code, Some(0), "{script}: {output}");
    output
}

async fn a_live_session_is_forked_and_goes_on(engine: Engine) {
    let place = Place::new();
    let parent_disk = place.disk("parent");
    let parent = session(&engine, &parent_disk, &[]).await;
    run(&parent, "echo before > a; echo home > ~/b; mkdir -m 700 own; echo x > own/x").await;
    // Runs all the time, also while the disk is copied.
    let mut writer = parent.start(bash("while :; do echo more >> log; done")).await.unwrap();
    let copied = {
        let to = place.path("frozen");
        parent_disk.copy_to(&to).unwrap();
        layer(&to)
    };
    let children = [place.disk("one"), place.disk("two")];
    for (number, disk) in children.iter().enumerate() {
        let child = session(&engine, disk, std::slice::from_ref(&copied)).await;
        let seen = run(&child, "cat a ~/b own/x; stat -c %a:%U own; ls").await;
        assert!(seen.starts_with("before\nhome\nx\n700:user\na\n"), "{number}: {seen}");
        run(&child, &format!("echo {number} > a; rm -r own; echo {number} > new")).await;
        let seen = run(&child, "cat a new; [ ! -e own ] && df --output=size -k . | tail -1").await;
        assert!(seen.starts_with(&format!("{number}\n{number}\n")), "{seen}");
    }
    assert_eq!(run(&parent, "cat a own/x; [ ! -e new ]").await, "before\nx\n");
    let grows = "n=$(wc -l < log); until [ $(wc -l < log) != $n ]; do :; done; echo grows";
    assert_eq!(run(&parent, grows).await, "grows\n");
    drop(parent);
    time::timeout(SOON, writer.wait()).await.unwrap().unwrap_err();
}

async fn tools_work_on_what_is_in_layers(engine: Engine) {
    let place = Place::new();
    let mut chain: Vec<Arc<AttachedLayer>> = Vec::new();
    let steps = [
        "mkdir -p src/deep && echo 1 > src/deep/file && ln src/deep/file hard && ln -s src link",
        // Directories of a layer can be renamed as a whole, replaced, deleted and created again.
        "mv src moved && [ ! -e src ] && echo 2 >> moved/deep/file && sed -i s/1/one/ hard",
        "cat moved/deep/file && rm -r moved && mkdir moved && [ -z \"$(ls moved)\" ] && mv moved src",
        "find . -xdev | sort | tr '\\n' ' ' && cat hard && tar cf /tmp/t . && tar tf /tmp/t | wc -l",
    ];
    let mut seen = String::new();
    for (number, script) in steps.iter().enumerate() {
        let name = number.to_string();
        let disk = place.disk(&name);
        let it = session(&engine, &disk, &chain).await;
        seen.push_str(&run(&it, script).await);
        drop((it, disk));
        chain.insert(0, layer(&place.path(&name)));
    }
    assert_eq!(seen, "1\n2\n. ./hard ./link ./src one\n4\n");
}

async fn a_busy_disk_can_be_copied_while_its_programs_are_paused(engine: Engine) {
    let place = Place::new();
    let disk = place.disk("a");
    let it = session(&engine, &disk, &[]).await;
    let script = "echo begun; while :; do echo x >> log; sync log; done";
    let mut writer = it.start(bash(script)).await.unwrap();
    let ProcessStreams::Pipes(pipes) = &mut writer.streams else { panic!("a terminal") };
    let mut begun = [0; 6];
    time::timeout(SOON, pipes.stdout.read_exact(&mut begun)).await.unwrap().unwrap();
    match disk.copy_to(&place.path("lucky")) {
        Ok(()) => drop(layer(&place.path("lucky"))),
        Err(error) => assert!(matches!(error, DiskError::Busy { .. }), "{error:?}"),
    }
    it.freeze().await.unwrap();
    disk.copy_to(&place.path("copy")).unwrap();
    it.thaw().await.unwrap();
    let before = run(&it, "wc -l < log").await;
    let other_disk = place.disk("b");
    let other = session(&engine, &other_disk, &[layer(&place.path("copy"))]).await;
    let copied: u64 = run(&other, "wc -l < log").await.trim().parse().unwrap();
    assert!((1..=before.trim().parse().unwrap()).contains(&copied), "{copied} of {before}");
}

async fn a_disk_is_free_when_its_session_has_ended(engine: Engine) {
    let place = Place::new();
    let path = place.path("a");
    let disk = place.disk("a");
    let it = session(&engine, &disk, &[]).await;
    run(&it, "echo kept > a; sleep 1000 > /dev/null 2>&1 < /dev/null &").await;
    drop(disk);
    let held = AttachedDiskImage::attach(&path, Duration::ZERO);
    assert!(matches!(held, Err(DiskError::InUse { .. })), "{held:?}");
    drop(it);
    // As soon as the kernel has removed the sandbox, of which there is no notification.
    let disk = AttachedDiskImage::attach(&path, SOON).unwrap();
    let it = session(&engine, &disk, &[]).await;
    assert_eq!(run(&it, "cat a").await, "kept\n");
}
