//! Command-line definitions of `cove session terminal` and `cove session terminals`.

use clap::Args;

use super::common::HELP_TEMPLATE;
use super::sessions::name;

/// Maximum time that a terminal survives without a client; the server has the same limit.
const DETACH_S_MAX: i64 = 60 * 60;

/// `cove session terminal`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    override_usage = "cove session terminal [OPTIONS] ID [-- COMMAND [ARGUMENTS...]]
       cove session terminal --attach TERMINAL ID",
    after_help = "\
Runs a shell or a command on your terminal. With --detach-s it survives a lost connection or
Ctrl-] for that many seconds, and --attach continues it, with the last 256 KiB of its output.
A new client takes over from an attached one.

Examples:
  cove session terminal $id
  cove session terminal --detach-s 600 $id -- htop
  cove session terminals $id
  cove session terminal --attach tm_01M8044V5QH3Z7R2K9D4W6B8XE $id

Exit codes: the command's; 0 detached, 125 no server answers or the connection was lost, 2 wrong
usage or refused."
)]
pub(crate) struct SessionTerminalArgs {
    /// Id of the session
    #[arg(value_name = "ID", value_parser = name)]
    pub(crate) id: String,
    /// The command [default: a shell]
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) argv: Vec<String>,
    /// Directory to start in [default: /workspace]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// Seconds for which it stays open without a client [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(..=DETACH_S_MAX))]
    pub(crate) detach_s: Option<u32>,
    /// Id of a terminal that was opened with --detach-s
    #[arg(long, value_name = "TERMINAL", value_parser = name,
        conflicts_with_all = ["argv", "cwd", "detach_s"])]
    pub(crate) attach: Option<String>,
}

/// `cove session terminals`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Lists the terminals of a session that can be attached to, oldest first.

Examples:
  cove session terminals $id
  cove session terminals $id --json | jq -r '.terminals[].id'
  cove session terminals $id --end tm_01M8044V5QH3Z7R2K9D4W6B8XE"
)]
pub(crate) struct SessionTerminalsArgs {
    /// Id of the session
    #[arg(value_name = "ID", value_parser = name)]
    pub(crate) id: String,
    /// Close this terminal, even if a client is attached
    #[arg(long, value_name = "TERMINAL", value_parser = name)]
    pub(crate) end: Option<String>,
}
