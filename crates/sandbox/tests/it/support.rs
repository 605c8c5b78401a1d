//! Helpers that the tests share: an engine, a sink that records output and can refuse it, and
//! programs.

use std::future::Future;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use sandbox::{
    ChunkStream, Engine, EngineConfig, HostImage, OutputSink, ProgramControl, ProgramExit,
    ProgramLimits, Sandbox, SandboxCommand, StdinSource,
};
use tokio::sync::{mpsc, watch};
use tokio::time;

/// First user id of the sandboxes, different from those of other tests and of servers.
const UID_BASE: u32 = 1_300_000_000;
/// Timeout of a test. Far above its duration, on a machine that others use as well.
const TEST_TIMEOUT: Duration = Duration::from_secs(90);

pub(crate) type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A test with its name.
#[derive(Clone, Copy)]
pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) run: fn(Engine) -> Running,
}

/// Lists functions `async fn(Engine)` as tests.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub(crate) const TESTS: &[$crate::support::Test] = &[$($crate::support::Test {
            name: concat!(module_path!(), "::", stringify!($name)),
            run: |engine| Box::pin($name(engine)),
        }),*];
    };
}
pub(crate) use tests;

/// Runs the tests whose names contain one of the arguments.
pub(crate) fn main(tests: &[&[Test]]) -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let is_wanted =
        |test: &&Test| wanted.is_empty() || wanted.iter().any(|w| test.name.contains(w));
    let chosen: Vec<Test> = tests.iter().copied().flatten().filter(is_wanted).copied().collect();
    // As another user, it uses whatever works without root; tests that need limits then fail.
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let launched = Engine::launch(EngineConfig {
        slots: 8,
        sessions: 8,
        sessions_ready: 1,
        warm: 2,
        spawners: 2,
        uid_base: UID_BASE,
        image: HostImage::default(),
        insecure_no_limits: !is_root,
        runtimes: crate::warm::runtimes(),
    })
    .unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let failed = runtime.block_on(async {
        let engine = Engine::attach(launched).unwrap();
        let mut out = std::io::stdout();
        let descriptors_before = open_descriptors();
        let mut failed = 0;
        for test in &chosen {
            let running = time::timeout(TEST_TIMEOUT, tokio::spawn((test.run)(engine.clone())));
            let verdict = match running.await {
                Ok(Ok(())) => "ok",
                Ok(Err(_panicked)) => "FAILED",
                Err(_) => "FAILED: takes too long",
            };
            failed += usize::from(verdict != "ok");
            writeln!(out, "test {} ... {verdict}", test.name).unwrap();
        }
        engine.close().await;
        let descriptors = open_descriptors();
        assert!(
            descriptors <= descriptors_before,
            "{descriptors_before} before, {descriptors} now"
        );
        failed
    });
    let passed = chosen.len() - failed;
    let mut out = std::io::stdout();
    writeln!(out, "\ntest result: {passed} passed; {failed} failed").unwrap();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the number of descriptors of this process, including the engine's.
fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Records a program's output; other tasks can wait for it, and make the sink refuse output.
#[derive(Clone)]
pub(crate) struct Sink {
    seen: Arc<watch::Sender<Vec<u8>>>,
    room: Arc<Mutex<Room>>,
}

#[derive(Default)]
struct Room {
    none: bool,
    waiting: Option<Waker>,
}

impl Sink {
    pub(crate) fn new() -> Sink {
        Sink { seen: Arc::new(watch::channel(Vec::new()).0), room: Arc::default() }
    }

    pub(crate) fn without_room() -> Sink {
        let sink = Sink::new();
        sink.room.lock().none = true;
        sink
    }

    pub(crate) fn make_room(&self) {
        let mut room = self.room.lock();
        room.none = false;
        if let Some(waiting) = room.waiting.take() {
            waiting.wake();
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.borrow()).into_owned()
    }

    /// Waits until the output contains this text.
    pub(crate) async fn wait_for(&self, part: &str) {
        let has = |seen: &Vec<u8>| String::from_utf8_lossy(seen).contains(part);
        let mut seen = self.seen.subscribe();
        let found = time::timeout(Duration::from_secs(30), seen.wait_for(has)).await;
        if found.is_err() {
            panic!("`{part}` does not come; so far: {:?}", self.text());
        }
    }
}

impl OutputSink for Sink {
    fn chunk(&mut self, _stream: ChunkStream, bytes: &[u8]) {
        assert!(!self.room.lock().none, "a chunk without room for it");
        self.seen.send_modify(|seen| seen.extend_from_slice(bytes));
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut room = self.room.lock();
        if room.none {
            room.waiting = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

/// Returns a shell program, alone in its sandbox, with limits that no correct test reaches.
pub(crate) fn shell(script: &str) -> SandboxCommand {
    command(&["/bin/bash", "-c", script])
}

pub(crate) fn python(script: &str) -> SandboxCommand {
    command(&["/usr/bin/python3", "-u", "-c", script])
}

pub(crate) fn command(argv: &[&str]) -> SandboxCommand {
    let bytes_of = |list: &[&str]| list.iter().map(|word| word.as_bytes().to_vec()).collect();
    SandboxCommand {
        argv: bytes_of(argv),
        env: bytes_of(&["PATH=/usr/bin:/bin", "HOME=/home/user", "LANG=C.UTF-8", "TERM=dumb"]),
        limits: ProgramLimits {
            wall: Duration::from_secs(30),
            output_bytes: 1 << 20,
            ..ProgramLimits::default()
        },
        last: true,
        ..SandboxCommand::default()
    }
}

/// Runs it in a fresh sandbox.
pub(crate) async fn run(engine: &Engine, command: SandboxCommand) -> ProgramExit {
    let mut sandbox = engine.sandbox().await.unwrap();
    sandbox.run(command, &mut ()).await.unwrap()
}

/// A running program that the test interacts with.
pub(crate) struct Live {
    pub(crate) sink: Sink,
    pub(crate) control: mpsc::Sender<ProgramControl>,
    stdin: Option<mpsc::Sender<Vec<u8>>>,
    exit: tokio::task::JoinHandle<ProgramExit>,
}

impl Live {
    /// Starts it in a fresh sandbox, with live input.
    pub(crate) async fn start(engine: &Engine, command: SandboxCommand) -> Live {
        let sandbox = engine.sandbox().await.unwrap();
        Live::start_in(sandbox, command, Sink::new())
    }

    pub(crate) fn start_in(mut sandbox: Sandbox, mut command: SandboxCommand, sink: Sink) -> Live {
        let (control, requests) = mpsc::channel(8);
        let (stdin, input) = mpsc::channel(8);
        command.control = Some(requests);
        if matches!(command.stdin, StdinSource::Empty) {
            command.stdin = StdinSource::Live(input);
        }
        let mut output = sink.clone();
        let exit = tokio::spawn(async move { sandbox.run(command, &mut output).await.unwrap() });
        Live { sink, control, stdin: Some(stdin), exit }
    }

    pub(crate) async fn write(&self, text: &str) {
        self.write_bytes(text.as_bytes()).await;
    }

    pub(crate) async fn write_bytes(&self, bytes: &[u8]) {
        self.stdin.as_ref().unwrap().send(bytes.to_vec()).await.unwrap();
    }

    pub(crate) fn end_input(&mut self) {
        self.stdin = None;
    }

    pub(crate) async fn ask(&self, control: ProgramControl) {
        self.control.send(control).await.unwrap();
    }

    /// Waits for its end; the input stays open until then.
    pub(crate) async fn exit(self) -> ProgramExit {
        self.exit.await.unwrap()
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
