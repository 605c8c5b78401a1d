//! Arguments of `cove mcp`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::common::HELP_TEMPLATE;
use super::remote::ServerArgs;

/// `cove mcp`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Serves the Model Context Protocol on standard input and output, for clients that start
a program: an agent then runs code, keeps sessions and edits files in them on the
server. Clients that use HTTP need no program: they connect to http://127.0.0.1:4100/mcp
with a token. See `cove exec --help` for the choice of the server and the token.

Examples:
  cove mcp install claude                 for Claude Code in this directory
  cove mcp install cursor
  cove mcp install vscode --print         what would be written
  cove mcp --server https://cove.example --token-file ~/.cove-token

Exit codes: 0 the client has left, 2 wrong usage, 125 no server or a failure."
)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(subcommand)]
    pub(crate) command: Option<McpCommand>,
}

/// Commands beside serving.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Add the server to the configuration of a client
    Install(McpInstallArgs),
}

/// `cove mcp install`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  cove mcp install claude
  cove mcp install vscode --print
  cove mcp install cursor --server https://cove.example --token-file ~/.cove-token")]
pub(crate) struct McpInstallArgs {
    /// Client to configure
    #[arg(value_enum)]
    pub(crate) client: McpClient,
    /// Configuration file of the client [default: where the client looks: in this directory for
    /// claude and vscode]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Print the entry and write nothing
    #[arg(long)]
    pub(crate) print: bool,
}

/// Clients that `cove mcp install` can configure. The values have no help, because clap would then
/// change the layout of all arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum McpClient {
    // Claude Code: .mcp.json
    Claude,
    // Claude Desktop
    ClaudeDesktop,
    // Cursor
    Cursor,
    // Visual Studio Code: .vscode/mcp.json
    Vscode,
    // Windsurf
    Windsurf,
}
