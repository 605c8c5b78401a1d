//! The specification of a batch, which `bench/run.py` writes to standard input.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use crate::language::Tools;

/// A batch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    /// The rival that runs the jobs.
    pub(crate) rival: RivalSpec,
    /// The work of every job.
    pub(crate) workload: Workload,
    /// Clients, each with one job in flight at any time.
    pub(crate) clients: usize,
    /// Maximum number of measured jobs.
    pub(crate) jobs: u64,
    /// Time after the start of the first job from which no job starts.
    pub(crate) seconds: f64,
    /// Jobs of each client before the measured ones.
    pub(crate) warmup_per_client: u64,
    /// Jobs of the first client alone, before those.
    #[serde(default)]
    pub(crate) warmup_once: u64,
    /// Milliseconds that a client waits between an answer and its next job.
    #[serde(default)]
    pub(crate) pause_ms: u64,
    /// Makes the jobs of this batch different from those of any other.
    pub(crate) nonce: String,
    /// Directory of `noop`, `emit` and `spin`; the same path inside every sandbox.
    pub(crate) programs: PathBuf,
    /// Limits, the same for every rival that supports them.
    pub(crate) limits: Limits,
    /// Environment of the program, in addition to the rival's own variables.
    pub(crate) env: BTreeMap<String, String>,
    /// Paths of tools on this machine: `go`, `gocache`, `node`, `java`, `javac`.
    #[serde(default)]
    pub(crate) tools: Tools,
}

/// Limits of one program. A rival that lacks one of them runs without it; `bench/README.md` lists
/// these cases.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    pub(crate) cpu_ms: u64,
    pub(crate) wall_ms: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) processes: u64,
    pub(crate) output_bytes: u64,
}

/// The rival that runs the jobs.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum RivalSpec {
    /// `cove serve`.
    Cove {
        address: String,
        token: String,
        /// How a client gets its result.
        #[serde(default)]
        via: Via,
        /// Whether the client requests to run without short cuts.
        #[serde(default)]
        fresh: bool,
    },
    /// go-judge's REST interface.
    GoJudge { address: String, token: String },
    /// A process started by this program for each job, at most `parallelism` at a time: the servers
    /// admit no more either.
    Process { launcher: Launcher, scratch: PathBuf, parallelism: usize },
}

/// How a client of Cove gets its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Via {
    /// In the answer to its request.
    #[default]
    Answer,
    /// On a WebSocket for each job, after the job was accepted.
    Websocket,
    /// As server-sent events, on a kept connection.
    Events,
    /// By a request that is answered when there is a result, on a kept connection.
    Poll,
}

/// The launcher between this program and the job's own process.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Launcher {
    /// No launcher.
    Bare,
    /// A command that takes the job's command after its own arguments. `{workdir}` in them is
    /// replaced by the job's directory on the host.
    Prefix { argv: Vec<String> },
    /// `runc run` on a bundle whose `config.json` is `template` with arguments, environment and the
    /// source of the mount at `workdir_inside` filled in.
    Runc { argv: Vec<String>, template: PathBuf, workdir_inside: String, cgroup_parent: String },
}

/// The work of every job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// W0: a static program that returns at once.
    Noop,
    /// W1: `/bin/true`.
    True,
    /// W2: a Python program of one line.
    Python,
    /// W3: a new C program, compiled and run.
    C,
    /// A C program that the batch has already compiled, with a different argument each time.
    CRepeated,
    /// W8: the seed's Go program, new each time.
    Go,
    /// The same, already compiled, with a different argument each time.
    GoRepeated,
    /// W6: one line of JavaScript, run by Node.
    Javascript,
    /// W7: a Java program, already compiled, with a different argument each time.
    JavaRepeated,
    /// W10: 64 KiB of output.
    Output,
    /// W9: 1 MiB from standard input to standard output.
    Stdin,
    /// A loop that only the CPU time limit ends.
    CpuLimit,
}
