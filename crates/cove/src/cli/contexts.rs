//! Command-line definitions of cells and their contexts: `cove session run` and
//! `cove session context`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::common::HELP_TEMPLATE;
use super::sessions::name;
use crate::values;

/// `cove session run`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    override_usage = "cove session run [OPTIONS] ID [FILE]",
    after_help = "\
A cell is read from FILE, --code, or standard input. Its definitions are available to the next \
cell of the same context.

Examples:
  cove session run $id --code 'x = 20'
  cove session run $id --code 'x + 1'
  cove session run $id --language bash < setup.sh
  cove session run $id --context ctx_1 analysis.py
  cove session run $id --json --code 'df' | jq '.results[0].data'

Exit codes: 0 the cell ended well, 1 it failed or Cove did, 124 its time was up, 137 it had too \
much memory or output, or its context ended; 2 wrong usage or refused."
)]
pub(crate) struct SessionRunArgs {
    /// Id of the session
    #[arg(value_name = "ID", value_parser = name)]
    pub(crate) id: String,
    /// File that contains the cell; `-` is standard input [default: -]
    #[arg(value_name = "FILE", conflicts_with = "code")]
    pub(crate) file: Option<std::path::PathBuf>,
    /// The cell itself
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) code: Option<String>,
    /// Id of a context [default: that of the language]
    #[arg(long, value_name = "ID", value_parser = name, conflicts_with = "language")]
    pub(crate) context: Option<String>,
    /// python, javascript, typescript or bash [default: python]
    #[arg(long, short, value_name = "LANGUAGE", value_parser = name)]
    pub(crate) language: Option<String>,
    /// Environment variable for this cell
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = values::variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Time after which it is interrupted, such as 30s [default: 30m]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,
}

/// `cove session context`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
A context is a process that keeps the definitions of its cells. A fork starts with all of them, \
and is independent from then on. CONTEXT may also be the name of a language, for its default \
context.

Examples:
  cove session context list $id
  cove session context create $id --cwd /workspace/src
  copy=$(cove session context fork $id python)
  cove session run $id --context $copy --code 'x + 1'
  cove session context interrupt $id python
  cove session context restart $id python
  cove session context delete $id $copy

Exit codes: 0 done, 2 wrong usage or refused, 125 no server answers."
)]
pub(crate) struct ContextArgs {
    #[command(subcommand)]
    pub(crate) command: ContextCommand,
}

/// Commands about contexts.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// List the contexts of a session, oldest first
    #[command(help_template = HELP_TEMPLATE)]
    List {
        /// Id of the session
        #[arg(value_name = "ID", value_parser = name)]
        id: String,
    },
    /// Create a context and start it; prints its id
    #[command(help_template = HELP_TEMPLATE)]
    Create {
        /// Id of the session
        #[arg(value_name = "ID", value_parser = name)]
        id: String,
        /// python, javascript, typescript or bash [default: python]
        #[arg(long, short, value_name = "LANGUAGE", value_parser = name)]
        language: Option<String>,
        /// Directory that it starts in [default: /workspace]
        #[arg(long, value_name = "DIR")]
        cwd: Option<String>,
        /// Environment variable
        #[arg(long, short, value_name = "NAME=VALUE", value_parser = values::variable)]
        env: Vec<(String, String)>,
    },
    /// Fork a context of Python with its definitions; prints the id of the copy
    #[command(help_template = HELP_TEMPLATE)]
    Fork {
        #[command(flatten)]
        one: OneContextArgs,
        /// Fork it although threads run in it: the copy does not have them
        #[arg(long)]
        force: bool,
    },
    /// Kill the process of a context and start a new one, with nothing defined
    #[command(help_template = HELP_TEMPLATE)]
    Restart(OneContextArgs),
    /// Interrupt the running cell of a context; its definitions are kept
    #[command(help_template = HELP_TEMPLATE)]
    Interrupt(OneContextArgs),
    /// Delete a context and kill its process
    #[command(help_template = HELP_TEMPLATE)]
    Delete(OneContextArgs),
}

/// A context of a session.
#[derive(Clone, Debug, Args)]
pub(crate) struct OneContextArgs {
    /// Id of the session
    #[arg(value_name = "ID", value_parser = name)]
    pub(crate) id: String,
    /// Id of the context, or the name of a language
    #[arg(value_name = "CONTEXT", value_parser = name)]
    pub(crate) context: String,
}
