//! Commands for sandboxes and their results: plain data without I/O.

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
    /// Maximum number of sandboxes, including prepared ones.
    pub slots: usize,
    /// Number of sandboxes kept prepared ahead of demand; at most `slots`.
    pub warm: usize,
    /// Maximum number of sessions, including prepared sandboxes for them; in addition to `slots`. 0
    /// disables sessions.
    pub sessions: usize,
    /// Number of sandboxes for sessions kept prepared ahead of demand; at most `sessions`.
    pub sessions_ready: usize,
    /// Number of spawner processes; one per core is best.
    pub spawners: usize,
    /// First of the user ids that sandboxes run under (two per slot); ignored without root.
    pub uid_base: u32,
    /// Root file system of sandboxes.
    pub image: HostImage,
    /// Interpreters that are started ahead of their programs.
    pub runtimes: Vec<WarmRuntime>,
    /// True if the engine runs even though the kernel provides no memory or process limits here.
    pub insecure_no_limits: bool,
}

/// The default image: the host's `/usr`, read-only, with a minimal private `/etc`.
#[derive(Clone, Debug, Default)]
pub struct HostImage {
    /// Directories outside `/usr` that sandboxes see read-only at a neutral path.
    pub toolchains: Vec<Toolchain>,
}

/// A directory of the host shown inside every sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// Path on the host.
    pub source: PathBuf,
    /// Name below `/opt` in sandboxes: one path component.
    pub name: String,
}

/// An interpreter that is started ahead of its programs. See [`crate::Engine::warm`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmRuntime {
    /// Name by which it is requested.
    pub name: String,
    /// Kind of the interpreter, which determines how it is kept.
    pub kind: WarmKind,
    /// Prefix of every command for it: an absolute path, and arguments up to the fixed name of the
    /// program's file. A command may have further arguments.
    pub argv: Vec<Vec<u8>>,
    /// Environment of its start. A command's environment may differ only in variables that the
    /// interpreter reads on a program's request.
    pub env: Vec<Vec<u8>>,
    /// Limits while it waits.
    pub limits: ProgramLimits,
    /// Number of sandboxes kept prepared with it. They are given up when other kinds need their
    /// slots.
    pub ready: usize,
    /// Number of copies after which a zygote is replaced, so that its memory layout and its hash
    /// seed are not shared indefinitely.
    pub forks_max: u32,
}

/// Kind of a warm runtime's interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmKind {
    /// CPython 3, forked from a started interpreter. Needs its `ctypes` module.
    ForkPython,
    /// Node.js, started in each sandbox where it waits. Its streams are created then, so that a
    /// command for it has only [`OutputMode::Capture`], and its own pipe for input.
    StartNode,
    /// A Java virtual machine, started in each sandbox where it waits. Its streams are like those
    /// of Node.js, and a command for it has no further arguments and exactly the environment of its
    /// start. The first of its own arguments is the program, options follow.
    StartJava,
}

/// A program to run inside a sandbox.
#[derive(Debug, Default)]
pub struct SandboxCommand {
    /// Program and arguments. A program without `/` is looked up in `PATH` of `env`. No NUL bytes.
    pub argv: Vec<Vec<u8>>,
    /// Environment as `NAME=value`, complete: nothing is inherited. No NUL bytes.
    pub env: Vec<Vec<u8>>,
    /// Files to place below `/workspace` before the start.
    pub files: Vec<WorkspaceFile>,
    /// Symbolic links to place there after the files: path as in [`WorkspaceFile::path`], target
    /// unchanged. Only the program follows them, within its own root.
    pub symlinks: Vec<(String, String)>,
    /// Standard input.
    pub stdin: StdinSource,
    /// Target of standard output. With a `terminal` it must be [`OutputMode::Capture`].
    pub stdout: OutputMode,
    /// Target of standard error. With a `terminal` it must be [`OutputMode::Capture`], and the
    /// output is part of standard output.
    pub stderr: OutputMode,
    /// Further descriptors with their numbers in the program, 3 to 255; at most [`EXTRA_MAX`].
    pub extra: Vec<(u32, OwnedFd)>,
    /// Size of a terminal that becomes the program's three standard streams; none if absent.
    pub terminal: Option<TerminalDimensions>,
    /// Requests for the running program. Dropping the sender has no effect.
    pub control: Option<mpsc::Receiver<ProgramControl>>,
    /// Ports of the sandbox's loopback at which the caller listens, and which the program may use.
    /// Only in a sandbox that has a loopback ([`crate::Engine::connected_sandbox`]), and with
    /// [`SeccompProfile::Run`].
    pub listen: Option<LoopbackListen>,
    /// Bytes of each stream that are kept for [`ProgramExit`], below the limit; all of
    /// `output_bytes` if absent. The sink receives everything within the limit.
    pub kept_bytes: Option<u64>,
    /// Files below `/workspace` to return after the end.
    pub outputs: Vec<String>,
    /// Maximum total bytes of `outputs`; further ones get an error.
    pub outputs_bytes_max: u64,
    /// Limits of this program.
    pub limits: ProgramLimits,
    /// System call policy.
    pub profile: SeccompProfile,
    /// True if the warm runtime of this sandbox runs it; `argv` must begin with the runtime's
    /// arguments. Only as the first command of a sandbox of [`crate::Engine::warm`].
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
    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        match self {
            WorkspaceContent::Bytes(bytes) => bytes.len() as u64,
            WorkspaceContent::Shared(file) => file.len(),
        }
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the whole content.
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
    /// Chunks as they arrive; end of file when the sender is dropped.
    Live(mpsc::Receiver<Vec<u8>>),
    /// The read end of a pipe, or a file, passed to the program unchanged. The program may change
    /// its flags and position, so the caller should not continue to use it. Not with a terminal.
    Handle(OwnedFd),
}

/// Target of a program's output.
#[derive(Debug, Default)]
pub enum OutputMode {
    /// Read by the server, kept up to the limit, passed to the sink.
    #[default]
    Capture,
    /// The write end of a pipe, passed to the program unchanged: to another sandbox, for example.
    /// The output limit does not apply to it.
    Handle(OwnedFd),
    /// For standard error only: the same pipe as standard output, so that the order is kept
    /// (`2>&1`).
    Stdout,
}

/// Control of a running program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramControl {
    /// A signal, 1 to 31, to the process group that the program leads. Other numbers have no
    /// effect, nor have signals after its end.
    Signal(i32),
    /// A new size of its terminal; ignored if it has none.
    Resize(TerminalDimensions),
    /// Ends the program now; [`ProgramExit::stopped`] is set.
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

/// Ports at which a caller listens inside a sandbox.
#[derive(Debug)]
pub struct LoopbackListen {
    /// Ports of the sandbox's `127.0.0.1`, from 1024 on, each once; 1 to [`PORTS_MAX`].
    pub ports: Vec<u16>,
    /// Receives the sockets, in the order of the ports, before the program starts: connections wait
    /// until the caller accepts them. Nothing is sent if the program cannot be started.
    pub opened: oneshot::Sender<Vec<TcpListener>>,
}

/// Maximum number of ports of one sandbox on which its caller may listen.
pub const PORTS_MAX: usize = 32;
/// The lowest port on which a caller may listen: lower ports require a privilege.
pub const PORT_MIN: u16 = 1024;
/// Maximum number of descriptors of a program beside its three standard streams.
pub const EXTRA_MAX: usize = 16;
/// Highest number of such a descriptor.
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
    /// Processes and threads that exist at the same time.
    pub processes: u64,
    /// Bytes kept of standard output and standard error, each.
    pub output_bytes: u64,
    /// Open file descriptors of one process.
    pub open_files: u64,
    /// Size of one written file, in bytes.
    pub file_size_bytes: u64,
    /// Bytes in all writable directories together.
    pub disk_bytes: u64,
    /// Files and directories in them.
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

/// Receives output as it arrives, within the limit. Runs on the engine's task, so it must not block
/// for long.
pub trait OutputSink: Send {
    /// Receives a chunk, in order within its stream.
    fn chunk(&mut self, stream: ChunkStream, bytes: &[u8]);

    /// Returns whether there is room for another chunk. While it is pending, nothing is read, and
    /// the program blocks as soon as its pipe is full; its limits still apply. Implementations wake
    /// `cx` when there is room.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let _always_room = cx;
        Poll::Ready(())
    }
}

/// Discards the chunks; the whole output is in [`ProgramExit`] anyway.
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

/// End of a program: raw figures, from which the caller derives a verdict.
#[derive(Clone, Debug, Default)]
pub struct ProgramExit {
    /// Exit code, if the program exited.
    pub code: Option<i32>,
    /// Signal number, if a signal killed it.
    pub signal: Option<i32>,
    /// Errno of `execve`, if the program could not be started.
    pub exec_errno: Option<i32>,
    /// Every limit that was breached, strongest verdict first (output, time, memory).
    pub breaches: Vec<LimitBreach>,
    /// CPU time of all processes.
    pub cpu: Duration,
    /// Time from start to end.
    pub wall: Duration,
    /// Time of its end on the machine's monotonic clock, to compare the ends of two programs.
    pub ended: Duration,
    /// Largest memory use in bytes; 0 if the kernel does not report it.
    pub memory_peak_bytes: u64,
    /// Largest number of processes and threads; 0 if the kernel does not report it.
    pub processes_peak: u64,
    /// Processes killed for lack of memory.
    pub oom_kills: u64,
    /// True if [`ProgramControl::Stop`] ended it.
    pub stopped: bool,
    /// Standard output, at most `output_bytes` and `kept_bytes`.
    pub stdout: Vec<u8>,
    /// Standard error, with the same limits.
    pub stderr: Vec<u8>,
    /// True if more than `output_bytes` was written to standard output, or the sink accepted no
    /// more of it.
    pub stdout_truncated: bool,
    /// True if standard error was cut in the same way.
    pub stderr_truncated: bool,
    /// Content of each of `SandboxCommand::outputs`, or why there is none.
    pub outputs: Vec<Result<Vec<u8>, String>>,
}
