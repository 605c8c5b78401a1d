//! Sessions: many programs in one sandbox, and what they cannot do to it.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sandbox::{
    Disk, DiskSize, Disks, Engine, Process, ProcessEnd, Program, SandboxError, Session,
    SessionLimits, SessionSetup, Streams,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time;

use crate::support::{tests, text};

tests![a_program_starts_and_ends];

/// How long anything may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// A session with a disk of its own, in a directory that goes with it.
struct Live {
    session: Session,
    disk: Option<Disk>,
    directory: PathBuf,
}

impl Live {
    async fn new(engine: &Engine) -> Live {
        Live::with(engine, SessionLimits::default()).await
    }

    async fn with(engine: &Engine, limits: SessionLimits) -> Live {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let own = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(format!("cove-session-{}-{}", own.0, own.1));
        std::fs::create_dir(&directory).unwrap();
        let disks = Disks::open(&std::env::temp_dir().join("cove-session-templates")).unwrap();
        let image = directory.join("disk");
        disks.create(&image, DiskSize { bytes: 64 << 20, inodes: 4096 }).unwrap();
        let disk = Disk::attach(&image, SOON).unwrap();
        let sandbox = engine.session_sandbox().await.unwrap();
        let setup = SessionSetup { disk: &disk, layers: &[], limits };
        let session = sandbox.into_session(setup).await.unwrap();
        Live { session, disk: Some(disk), directory }
    }

    async fn start(&self, program: Program) -> Process {
        self.session.start(program).await.unwrap()
    }

    async fn shell(&self, script: &str) -> Output {
        Output::of(self.start(shell(script)).await).await
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.disk = None;
        std::fs::remove_dir_all(&self.directory).unwrap();
    }
}

struct Output {
    end: ProcessEnd,
    stdout: String,
    stderr: String,
}

impl Output {
    async fn of(mut process: Process) -> Output {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let Streams::Pipes(pipes) = &mut process.streams else { panic!("a terminal") };
        drop(pipes.stdin.take());
        time::timeout(SOON, pipes.stdout.read_to_end(&mut stdout)).await.unwrap().unwrap();
        if let Some(errors) = &mut pipes.stderr {
            time::timeout(SOON, errors.read_to_end(&mut stderr)).await.unwrap().unwrap();
        }
        let end = time::timeout(SOON, process.wait()).await.unwrap().unwrap();
        Output { end, stdout: text(&stdout), stderr: text(&stderr) }
    }
}

fn program(argv: &[&str]) -> Program {
    let words = |list: &[&str]| list.iter().map(|word| word.as_bytes().to_vec()).collect();
    Program {
        argv: words(argv),
        env: words(&["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/user", "LANG=C.UTF-8"]),
        ..Program::default()
    }
}

fn shell(script: &str) -> Program {
    program(&["/bin/bash", "-c", script])
}

async fn a_program_starts_and_ends(engine: Engine) {
    let live = Live::new(&engine).await;
    let output = live.shell("echo out; echo err >&2; pwd; id -u; exit 3").await;
    assert_eq!(output.end.code, Some(3), "{:?}", output.end);
    assert!(output.stdout.starts_with("out\n/workspace\n"), "{}", output.stdout);
    assert_eq!(output.stderr, "err\n");
}
