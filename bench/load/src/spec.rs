//! What to run, as `bench/run.py` says it on standard input.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use crate::language::Tools;

/// One batch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    /// Who runs the jobs.
    pub(crate) rival: RivalSpec,
    /// What every job does.
    pub(crate) workload: Workload,
    /// Clients, each with one job under way at any time.
    pub(crate) clients: usize,
    /// Jobs to measure at most.
    pub(crate) jobs: u64,
    /// No job starts later than this after the first one.
    pub(crate) seconds: f64,
    /// Jobs of each client before the measured ones.
    pub(crate) warmup_per_client: u64,
    /// Jobs of the first client alone, before those.
    #[serde(default)]
    pub(crate) warmup_once: u64,
    /// Milliseconds that a client waits between an answer and its next job.
    #[serde(default)]
    pub(crate) pause_ms: u64,
    /// Makes the jobs of this batch unlike those of any other.
    pub(crate) nonce: String,
    /// Where `noop`, `emit` and `spin` are; the same path inside every sandbox.
    pub(crate) programs: PathBuf,
    /// The same for every rival that has such limits.
    pub(crate) limits: Limits,
    /// Environment of the program, besides what a rival adds by itself.
    pub(crate) env: BTreeMap<String, String>,
    /// Paths of tools on this machine: `go`, `gocache`, `node`, `java`, `javac`.
    #[serde(default)]
    pub(crate) tools: Tools,
}

/// Limits of one program. A rival that lacks one of them runs without it; `bench/README.md` says
/// which.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    pub(crate) cpu_ms: u64,
    pub(crate) wall_ms: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) processes: u64,
    pub(crate) output_bytes: u64,
}

/// Who runs the jobs.
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
        /// Whether it asks for no short cut.
        #[serde(default)]
        fresh: bool,
    },
    /// go-judge's REST interface.
    GoJudge { address: String, token: String },
    /// A process started from here for each job, at most `parallelism` at one time: the servers
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
    /// On a WebSocket of its own for each job, after the job was accepted.
    Websocket,
    /// As server-sent events, in a kept connection.
    Events,
    /// By a request that is answered when there is a result, in a kept connection.
    Poll,
}

/// What stands between this program and the job's own process.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Launcher {
    /// Nothing.
    Bare,
    /// A command that takes the job's command after its own arguments. `{workdir}` in them stands
    /// for the job's directory on the host.
    Prefix { argv: Vec<String> },
    /// `runc run` on a bundle whose `config.json` is `template` with arguments, environment and
    /// the source of the mount at `workdir_inside` filled in.
    Runc { argv: Vec<String>, template: PathBuf, workdir_inside: String, cgroup_parent: String },
}

/// What every job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// W0: a static program that returns at once.
    Noop,
    /// W1: `/bin/true`.
    True,
    /// W2: a Python program of one line.
    Python,
    /// W3: a C program that was never seen before, compiled and run.
    C,
    /// A C program that its batch has compiled before, with another argument each time.
    CRepeated,
    /// W8: the seed's Go program, never seen before.
    Go,
    /// The same, compiled before, with another argument each time.
    GoRepeated,
    /// W6: one line of JavaScript, run by Node.
    Javascript,
    /// W7: a Java program, compiled before, with another argument each time.
    JavaRepeated,
    /// W10: 64 KiB of output.
    Output,
    /// W9: 1 MiB from standard input to standard output.
    Stdin,
    /// A loop that only the CPU time limit ends.
    CpuLimit,
}
