//! Arguments of `cove worker`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::common::HELP_TEMPLATE;
use super::grants::GrantOptions;
use super::remote::ServerArgs;
use crate::values;

/// Version of Anthropic's beta API that the worker's types follow: value of the header
/// `anthropic-beta`. See
/// <https://platform.claude.com/docs/en/managed-agents/self-hosted-sandboxes>.
const API_VERSION: &str = "managed-agents-2026-04-01";
/// Maximum number of concurrent work items.
const CONCURRENCY_MAX: usize = 256;

/// `cove worker`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
The agent loop runs elsewhere, and the agents' tools run in sessions of a Cove server. The
token needs the scope `sessions`: see `cove exec --help` for the choice of server and token.

Examples:
  cove worker anthropic --environment env_01J9ZQ --environment-key-file ~/.env-key"
)]
pub(crate) struct WorkerArgs {
    #[command(subcommand)]
    pub(crate) command: WorkerCommand,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Commands of the worker, by whose agents it serves.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// Serve a self-hosted environment of Claude Managed Agents (beta)
    Anthropic(Box<WorkerAnthropicArgs>),
}

/// `cove worker anthropic`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Each Managed Agents session has a Cove session of its own, which is identified by its
metadata (anthropic_session), paused when idle, and keeps its files. The environment's key
stays in this process and never enters a sandbox. SIGTERM finishes running calls and returns
unfinished work; a second one exits at once.

Examples:
  cove worker anthropic --environment env_01J9ZQ --environment-key-file ~/.env-key
  ANTHROPIC_ENVIRONMENT_KEY=... cove worker anthropic --environment env_01J9ZQ --json
  cove worker anthropic --environment env_01J9ZQ --agent toolbox --grant postgres:shop
  cove worker anthropic --environment env_01J9ZQ --once         until the queue is empty

Exit codes: 0 stopped by a signal or the queue is empty, 2 wrong usage or refused, 125 no
Cove server answers or the control plane refuses the key."
)]
pub(crate) struct WorkerAnthropicArgs {
    /// Id of the environment [default: ANTHROPIC_ENVIRONMENT_ID]
    #[arg(long, value_name = "ID")]
    pub(crate) environment: Option<String>,
    /// File with the environment's key [default: ANTHROPIC_ENVIRONMENT_KEY]
    #[arg(long, value_name = "FILE")]
    pub(crate) environment_key_file: Option<PathBuf>,
    /// Address of the control plane [default: ANTHROPIC_BASE_URL, or https://api.anthropic.com]
    #[arg(long, value_name = "URL")]
    pub(crate) control_plane: Option<String>,
    /// Version of the beta API
    #[arg(long, value_name = "NAME", default_value = API_VERSION)]
    pub(crate) api_version: String,
    /// Maximum number of concurrent sessions, up to 256
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = concurrency)]
    pub(crate) concurrency: usize,
    /// Time that a session may be idle before its Cove session is paused
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::duration)]
    pub(crate) max_idle: Duration,
    /// Time limit of a command that does not set one
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = values::duration)]
    pub(crate) tool_timeout: Duration,
    /// Time in which calls may finish when the worker is stopped
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = values::duration)]
    pub(crate) drain: Duration,
    /// End when the queue is empty and all claimed sessions are finished
    #[arg(long)]
    pub(crate) once: bool,
    /// Agent with the disk, limits and grants of new Cove sessions; it should have no runtime
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Id of a snapshot with the files of new Cove sessions
    #[arg(long, value_name = "ID")]
    pub(crate) snapshot: Option<String>,
    #[command(flatten)]
    pub(crate) grants: GrantOptions,
    /// Print each event as a JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

fn concurrency(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=CONCURRENCY_MAX).contains(count));
    count.ok_or_else(|| format!("must be 1 to {CONCURRENCY_MAX}"))
}
