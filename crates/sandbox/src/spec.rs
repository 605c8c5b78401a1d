//! Requests to a sandbox and its answers: plain data, no kernel in reach.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use crate::shared::SharedFile;

/// Configuration of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Sandboxes that may exist at one time, prepared ones included.
    pub slots: usize,
    /// Sandboxes kept prepared ahead of demand; at most `slots`.
    pub warm: usize,
    /// Sessions that may exist at one time, prepared sandboxes for them included; beside `slots`. 0
    /// where there are none.
    pub sessions: usize,
    /// Sandboxes for sessions kept prepared ahead of demand; at most `sessions`.
    pub sessions_ready: usize,
    /// Spawner processes; one per core is right.
    pub spawners: usize,
    /// First of the user ids that sandboxes run under (two per slot); ignored without root.
    pub uid_base: u32,
    /// Root file system that a sandbox sees.
    pub image: HostImage,
    /// Interpreters that are started ahead of their programs.
    pub runtimes: Vec<WarmRuntime>,
    /// Run although the kernel gives no memory or process limits here.
    pub insecure_no_limits: bool,
}

/// The default image: the host's `/usr`, read-only, with a minimal private `/etc`.
#[derive(Clone, Debug, Default)]
pub struct HostImage {
    /// Directories outside `/usr` that are shown read-only at a neutral path.
    pub toolchains: Vec<Toolchain>,
}

/// A directory of the host shown inside every sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// Path on the host.
    pub source: PathBuf,
    /// Name below `/opt` inside: one path component.
    pub name: String,
}

/// An interpreter that is started ahead of its programs. See [`crate::Engine::warm`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmRuntime {
    /// Name by which it is requested.
    pub name: String,
    /// Interpreter, and how it is kept.
    pub kind: WarmKind,
    /// Beginning of every command for it: an absolute path, and arguments up to the fixed name of
    /// the program's file. A command may have more after these.
    pub argv: Vec<Vec<u8>>,
    /// The environment that it starts with. That of a command may differ in what the interpreter
    /// reads only when a program asks for it.
    pub env: Vec<Vec<u8>>,
    /// Limits while it waits.
    pub limits: ProgramLimits,
    /// Sandboxes kept prepared with it. They make room when others need their slots.
    pub ready: usize,
    /// Copies after which a zygote is replaced by a new one, so that its layout of memory and its
    /// hash seed are not shared for ever.
    pub forks_max: u32,
}

/// Kind of a warm runtime's interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmKind {
    /// CPython 3, forked from one that has started. Needs its `ctypes` module.
    ForkPython,
    /// Node.js, started in each sandbox that waits. Its streams are made then, so that a command
    /// for it has [`OutputMode::Capture`] only, and its own pipe for input.
    StartNode,
    /// A Java virtual machine, started in each sandbox that waits. Its streams are like Node.js's,
    /// and a command for it has no further arguments and exactly the environment that it was
    /// started with. The first of its own arguments is the program, options follow.
    StartJava,
}

/// A program to run inside a sandbox.
#[derive(Debug, Default)]
pub struct SandboxCommand {
    /// Program and arguments. A program without `/` is looked up in `PATH` of `env`. No NUL bytes.
    pub argv: Vec<Vec<u8>>,
    /// Environment as `NAME=value`, complete: nothing is inherited. No NUL bytes.
    pub env: Vec<Vec<u8>>,
    /// Files to place below `/workspace` first.
    pub files: Vec<WorkspaceFile>,
    /// Symbolic links to place there after them: path as in [`WorkspaceFile::path`], target as it
    /// is. Only the program follows them, and sees its own root when it does.
    pub symlinks: Vec<(String, String)>,
    /// Standard input.
    pub stdin: StdinSource,
    /// Target of standard output. With a `terminal` it is [`OutputMode::Capture`].
    pub stdout: OutputMode,
    /// Target of standard error. With a `terminal` it is [`OutputMode::Capture`], and comes as part
    /// of standard output.
    pub stderr: OutputMode,
    /// Further descriptors with the numbers under which the program has them, 3 to 255; at most
    /// [`EXTRA_MAX`].
    pub extra: Vec<(u32, OwnedFd)>,
    /// Gives the program a terminal of this size as its three standard streams.
    pub terminal: Option<TerminalDimensions>,
    /// Controls for the running program. Dropping the sender means nothing.
    pub control: Option<mpsc::Receiver<ProgramControl>>,
    /// Ports at which the caller listens, on the sandbox's loopback, which the program may use
    /// then. Only in a sandbox that has one ([`crate::Engine::connected_sandbox`]), and with
    /// [`SeccompProfile::Run`].
    pub listen: Option<LoopbackListen>,
    /// Bytes of each stream that are kept for [`ProgramExit`], below the limit; all of
    /// `output_bytes` when absent. The sink gets everything within the limit.
    pub kept_bytes: Option<u64>,
    /// Files below `/workspace` to hand over afterwards.
    pub outputs: Vec<String>,
    /// Total bytes of `outputs` that are handed over; what comes after gets an error.
    pub outputs_bytes_max: u64,
    /// Limits of this program.
    pub limits: ProgramLimits,
    /// System call policy.
    pub profile: SeccompProfile,
    /// True if it is run by the runtime that waits in this sandbox, whose arguments `argv` begins
    /// with. Only as the first command of a sandbox of [`crate::Engine::warm`].
    pub warm: bool,
    /// True if no further command follows in this sandbox. The guest init gives up its privileges
    /// before the last command starts.
    pub last: bool,
}

/// A file to place in the workspace.
#[derive(Clone, Debug, Default)]
pub struct WorkspaceFile {
    /// Relative path, `/`-separated, without empty, `.` or `..` parts.
    pub path: String,
    /// Content.
    pub content: WorkspaceContent,
    /// Mode 0755 rather than 0644.
    pub executable: bool,
}

/// Content of a file.
#[derive(Clone, Debug)]
pub enum WorkspaceContent {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Content of this file, from its beginning, copied by the kernel.
    Shared(Arc<SharedFile>),
}

impl WorkspaceContent {
    /// Number of bytes.
    pub fn len(&self) -> u64 {
        match self {
            WorkspaceContent::Bytes(bytes) => bytes.len() as u64,
            WorkspaceContent::Shared(file) => file.len(),
        }
    }

    /// Returns whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        match self {
            WorkspaceContent::Bytes(bytes) => Ok(bytes.clone()),
            WorkspaceContent::Shared(file) => file.read(),
        }
    }
}

impl Default for WorkspaceContent {
    fn default() -> Self {
        WorkspaceContent::Bytes(Vec::new())
    }
}

impl From<Vec<u8>> for WorkspaceContent {
    fn from(bytes: Vec<u8>) -> Self {
        WorkspaceContent::Bytes(bytes)
    }
}

/// Source of standard input.
#[derive(Debug, Default)]
pub enum StdinSource {
    /// End of file at once.
    #[default]
    Empty,
    /// These bytes, then end of file.
    Bytes(Vec<u8>),
    /// Chunks as they come; end of file when the sender is dropped.
    Live(mpsc::Receiver<Vec<u8>>),
    /// The read end of a pipe, or a file, handed to the program as it is. The program may change
    /// its flags and position, so nobody else should go on using it. Not with a terminal.
    Handle(OwnedFd),
}

/// Target of a program's output.
#[derive(Debug, Default)]
pub enum OutputMode {
    /// Read by the server, kept up to the limit, given to the sink.
    #[default]
    Capture,
    /// The write end of a pipe, handed to the program as it is: to another sandbox, for example.
    /// The output limit does not hold for it.
    Handle(OwnedFd),
    /// For standard error only: where standard output goes, in the same pipe, so that the order is
    /// kept (`2>&1`).
    Stdout,
}

/// Control of a running program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramControl {
    /// A signal, 1 to 31, to the process group that the program leads. Anything else, and any after
    /// its end, does nothing.
    Signal(i32),
    /// A new size of its terminal; nothing when it has none.
    Resize(TerminalDimensions),
    /// End it now; [`ProgramExit::stopped`] says so.
    Stop,
}

/// Size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalDimensions {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub cols: u16,
}

/// Port at which a caller listens inside a sandbox.
#[derive(Debug)]
pub struct LoopbackListen {
    /// Ports of `127.0.0.1` there, from 1024 on, each once; 1 to [`PORTS_MAX`].
    pub ports: Vec<u16>,
    /// Gets the sockets, in the order of the ports, before the program starts: who connects waits
    /// until they are served. Nothing comes when the program cannot be started.
    pub opened: oneshot::Sender<Vec<TcpListener>>,
}

/// Most ports of one sandbox on which its caller may listen.
pub const PORTS_MAX: usize = 32;
/// The first port on which a caller may listen: those below need a privilege.
pub const PORT_MIN: u16 = 1024;
/// Most descriptors that a program may be given beside its three standard streams.
pub const EXTRA_MAX: usize = 16;
/// Largest number of such a descriptor.
pub(crate) const EXTRA_NUMBER_MAX: u32 = 255;

/// Limits of one program with all its descendants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramLimits {
    /// CPU time of all processes together.
    pub cpu: Duration,
    /// Time from start to end.
    pub wall: Duration,
    /// Memory of all processes together, page cache of their files included, in bytes.
    pub memory_bytes: u64,
    /// Processes and threads at one time.
    pub processes: u64,
    /// Bytes kept of standard output and standard error, each.
    pub output_bytes: u64,
    /// Open file descriptors of one process.
    pub open_files: u64,
    /// Size of one written file, in bytes.
    pub file_size_bytes: u64,
    /// Bytes in all writable directories together.
    pub disk_bytes: u64,
    /// Files and directories there.
    pub disk_inodes: u64,
    /// Main thread's stack, in bytes.
    pub stack_bytes: u64,
}

impl Default for ProgramLimits {
    /// Generous for a small program: 10 s of CPU, 512 MiB, 64 processes, 64 KiB of output.
    fn default() -> Self {
        ProgramLimits {
            cpu: Duration::from_secs(10),
            wall: Duration::from_secs(20),
            memory_bytes: 512 << 20,
            processes: 64,
            output_bytes: 64 << 10,
            open_files: 256,
            file_size_bytes: 64 << 20,
            disk_bytes: 64 << 20,
            disk_inodes: 4096,
            stack_bytes: 8 << 20,
        }
    }
}

/// System call policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeccompProfile {
    /// For programs.
    #[default]
    Run,
    /// For compilers: additionally lets them lock their own files.
    Compile,
}

/// Stream of a chunk of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Takes output while it comes, within the limit. Runs on the engine's task: do not block long.
pub trait OutputSink: Send {
    /// A chunk, in order within its stream.
    fn chunk(&mut self, stream: ChunkStream, bytes: &[u8]);

    /// Returns whether there is room for another chunk. While it is pending, nothing is read, and
    /// the program waits as soon as its pipe is full; its limits go on to hold. Wake `cx` when
    /// there is room.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let _always_room = cx;
        Poll::Ready(())
    }
}

/// Keeps nothing; the whole output is in [`ProgramExit`] anyway.
impl OutputSink for () {
    fn chunk(&mut self, _stream: ChunkStream, _bytes: &[u8]) {}
}

/// The limit that ended a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitBreach {
    /// `Limits::cpu`.
    Cpu,
    /// `Limits::wall`.
    Wall,
    /// `Limits::memory_bytes`.
    Memory,
    /// `Limits::output_bytes`.
    Output,
}

/// End of a program. Raw figures; the verdict is the caller's business.
#[derive(Clone, Debug, Default)]
pub struct ProgramExit {
    /// Exit code, when it exited.
    pub code: Option<i32>,
    /// Signal number, when a signal ended it.
    pub signal: Option<i32>,
    /// Errno of `execve`, when the program could not be started at all.
    pub exec_errno: Option<i32>,
    /// Every limit that was breached, strongest verdict first (output, time, memory).
    pub breaches: Vec<LimitBreach>,
    /// CPU time of all processes.
    pub cpu: Duration,
    /// From start to end.
    pub wall: Duration,
    /// When it ended, on the machine's monotonic clock: tells which of two programs ended first.
    pub ended: Duration,
    /// Largest memory use in bytes; 0 where the kernel does not tell.
    pub memory_peak_bytes: u64,
    /// Largest number of processes and threads; 0 where the kernel does not tell.
    pub processes_peak: u64,
    /// Processes killed for lack of memory.
    pub oom_kills: u64,
    /// [`ProgramControl::Stop`] ended it.
    pub stopped: bool,
    /// Standard output, at most `output_bytes` and `kept_bytes`.
    pub stdout: Vec<u8>,
    /// Standard error, likewise.
    pub stderr: Vec<u8>,
    /// More than `output_bytes` was written to standard output, or the sink took no more of it.
    pub stdout_truncated: bool,
    /// True if standard error was cut.
    pub stderr_truncated: bool,
    /// Content of each of `Command::outputs`, or why there is none.
    pub outputs: Vec<Result<Vec<u8>, String>>,
}
