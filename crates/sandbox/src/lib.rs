//! Fresh Linux sandboxes with exact limits.
//!
//! A sandbox is a set of fresh namespaces around one pid 1 of ours, the *guest init*, which runs
//! programs one after the other, supervises them and reports their results. Each sandbox has one
//! user and is then discarded: there is no reset step to get wrong. Sandboxes are prepared ahead of
//! demand, so that a caller waits for little more than the start of a process.
//!
//! ```text
//!  server (many threads)          spawner (one thread, one per core)      guest init (pid 1)
//!  Engine ── prepare ───────────► fork into fresh namespaces ───────────► mounts, identity, ready
//!    ▲  └── pool of prepared ◄─── connection ◄──────────────────────────┘    │
//!    │                            waits, removes groups, frees slot          │ fork
//!    └─ Sandbox::run ── start, streams ────────────────────────────────────► ▼
//!                   ◄─ report ───────────────────────────────────── supervises the program
//! ```
//!
//! A *session* is a sandbox that lives longer: its guest init starts many programs, at any time and
//! concurrently, with a disk and a loopback of its own, until its last handle is dropped
//! ([`SandboxedSession`]).
//!
//! What this crate never does: know of HTTP, SQL, tenants or languages; open a path in storage that
//! sandboxed code controls by name (only beneath a descriptor, following no link); fork the server.
//!
//! Terms. A *slot* is a reusable place for one sandbox: two user ids and network namespaces. A
//! *spawner* is this binary, executed again with a hidden argument before the runtime starts
//! ([`spawner_main_if_asked`]). *Groups* are control groups; version 1, 2 and hybrid layouts work.
//!
//! Principal types: [`EngineConfig`] → [`Engine::launch`] → [`LaunchedSpawners`] →
//! [`Engine::attach`] → [`Engine`] → [`Sandbox`]; [`SandboxCommand`] in, [`ProgramExit`] out.
//! [`Sandbox::into_session`] → [`SandboxedSession`]; [`SessionProgram`] in, [`SessionProcess`] out.
//!
//! ```no_run
//! # async fn example(config: sandbox::EngineConfig) -> Result<(), Box<dyn std::error::Error>> {
//! let launched = sandbox::Engine::launch(config)?; // before the runtime
//! let engine = sandbox::Engine::attach(launched)?; // inside it
//! let mut sandbox = engine.sandbox().await?;
//! let command = sandbox::SandboxCommand {
//!     argv: vec![b"/bin/echo".to_vec(), b"hello".to_vec()],
//!     last: true,
//!     ..Default::default()
//! };
//! let exit = sandbox.run(command, &mut ()).await?;
//! assert_eq!(exit.stdout, b"hello\n");
//! # Ok(()) }
//! ```
//!
//! Files, in the order of a request: `spec` (commands and results), `engine` (the pool of prepared
//! sandboxes, the spawners), `run` (one program on the server's side), `spawner`, `image` (the root
//! file system), `guest` (pid 1), `workspace` (its writable directories), `payload` (the last steps
//! before a program), `cgroup`, `seccomp` (the policy as data), `landlock`, `tied` (tools of the
//! host), `codec`, `failure`, `layers` (active isolation), and `sys`, which holds all `unsafe` of
//! Cove. Shared content is in `shared`, the format of archives in `tar`, terminals in `terminal`,
//! interpreters started ahead in `warm`.
//!
//! For sessions: `session` in the server, `guest/session` as pid 1, whose child `fork_server`
//! starts the programs, and `codec/session` between them. Their files are in `disk`: [`Disks`] →
//! [`AttachedDiskImage`] and [`AttachedLayer`].

mod cgroup;
mod codec;
mod disk;
mod engine;
mod failure;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod guest;
mod image;
mod landlock;
mod layers;
mod payload;
mod run;
mod seccomp;
mod session;
mod shared;
mod spawner;
mod spec;
mod sys;
pub mod tar;
mod terminal;
mod tied;
mod warm;
mod workspace;

pub use cgroup::{CgroupSupport, HierarchyRole};
pub use disk::{
    AttachedDiskImage, AttachedLayer, DISK_BYTES_MAX, DISK_BYTES_MIN, DISK_BYTES_PER_INODE,
    DISK_INODES_MIN, DiskError, DiskSize, DiskUsage, Disks, ImageExtents, ImageWriter, is_zero,
};
pub use engine::{
    Engine, EngineStartError, EngineStats, LaunchedSpawners, Sandbox, spawner_main_if_asked,
};
pub use failure::StepFailure;
pub use layers::IsolationLayers;
pub use run::{OUTPUTS_MAX, SandboxError, SandboxLayers};
pub use seccomp::denied_calls;
pub use session::files::{
    ATTRIBUTE_BYTES_MAX, DirectoryListing, EntryKind, FileWriter, FilesError, LIST_ENTRIES_MAX,
    LinkMode, ListDepth, MissingParents, OpenFile, SandboxFileEntry, SandboxFiles, TarReader,
    TreeUsage, Watch, WatchBarrier, WatchEvent, WatchKind, WriteMode,
};
pub use session::{
    ProcessEnd, ProcessHandle, ProcessPipes, ProcessStreams, ProcessTerminal, ProgramChannel,
    SandboxUsage, SandboxedSession, SessionProcess, SessionProgram, SessionSandboxLimits,
    SessionSetup, output_pipe, send_with_descriptors,
};
pub use shared::SharedFile;
pub use spec::{
    ChunkStream, EXTRA_MAX, EngineConfig, HostImage, LimitBreach, LoopbackListen, OutputMode,
    OutputSink, PORT_MIN, PORTS_MAX, ProgramControl, ProgramExit, ProgramLimits, SandboxCommand,
    SeccompProfile, StdinSource, TerminalDimensions, Toolchain, WarmKind, WarmRuntime,
    WorkspaceContent, WorkspaceFile,
};
pub use sys::memory::return_large_blocks;
pub use tied::tied;
pub use warm::STACK_BYTES_MAX as WARM_STACK_BYTES_MAX;
