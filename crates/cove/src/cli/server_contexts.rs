//! Command-line definitions of `cove context`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::common::HELP_TEMPLATE;

/// `cove context`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
A context is a name for a server and its token. Every command accepts it instead of a URL:
`cove exec list --server prod`. Commands without --server use the current context;
COVE_URL, COVE_CONTEXT and --data-dir take precedence. Contexts are stored in
~/.config/cove/contexts.toml, which only its owner can read.

Examples:
  cove context add prod --server https://cove.example.com --token-file prod.token
  cove token create ci | cove context add ci --server http://127.0.0.1:4100 --token-file -
  cove context use prod
  cove context list
  cove context show
  cove context use --none
  cove context remove ci

Exit codes: 0 done, 2 wrong usage or no such context."
)]
pub(crate) struct ServerContextArgs {
    #[command(subcommand)]
    pub(crate) command: ServerContextCommand,
}

/// Commands about contexts.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ServerContextCommand {
    /// List the contexts; the current one has a star
    List(ContextOutputArgs),
    /// Show a context, the current one when none is named
    Show {
        /// Name of the context
        #[arg(value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        output: ContextOutputArgs,
    },
    /// Add a context, or change one
    Add(AddContextArgs),
    /// Make a context the current one
    Use {
        /// Name of the context
        #[arg(value_name = "NAME", required_unless_present = "none")]
        name: Option<String>,
        /// Select no context
        #[arg(long, conflicts_with = "name")]
        none: bool,
    },
    /// Remove contexts; the servers and their tokens stay as they are
    Remove {
        /// Names of the contexts
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

/// `cove context add`.
#[derive(Clone, Debug, Args)]
pub(crate) struct AddContextArgs {
    /// Name of the context: letters, digits, `-`, `_` and `.`
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Address of the server, such as https://cove.example.com
    #[arg(long, value_name = "URL")]
    pub(crate) server: String,
    /// File with the token, read at each use; `-` reads the token from standard input and stores it
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Make it the current one
    #[arg(long = "use")]
    pub(crate) make_current: bool,
}

/// Form of the output.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ContextOutputArgs {
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}
