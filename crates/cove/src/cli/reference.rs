//! Command-line definitions of `cove completions`, `cove man` and `cove docs`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::common::HELP_TEMPLATE;

/// Shells for which `cove completions` prints completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompletedShell {
    Bash,
    Fish,
    Zsh,
}

/// `cove completions`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
The packages install them. Without a package, write them to where the shell looks:

Examples:
  cove completions bash > ~/.local/share/bash-completion/completions/cove
  cove completions zsh > \"${fpath[1]}/_cove\"
  cove completions fish > ~/.config/fish/completions/cove.fish
  source <(cove completions bash)                  in this shell only

Exit codes: 0 done, 1 failed, 2 wrong usage."
)]
pub(crate) struct CompletionsArgs {
    /// Shell to complete for
    pub(crate) shell: CompletedShell,
}

/// `cove man`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
One page per command: cove.1, cove-run.1, cove-session-create.1 and so on. The packages
install them.

Examples:
  cove man | man -l -                              read the first page
  cove man --directory ~/.local/share/man/man1     then `man cove-run`

Exit codes: 0 done, 1 failed, 2 wrong usage."
)]
pub(crate) struct ManArgs {
    /// Write the pages of all commands to this directory instead of printing the first one
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) directory: Option<PathBuf>,
}

/// `cove docs`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
A server has the same pages at /docs. The files need no server: a browser opens them from the
directory, including the search, and any web server can serve them.

Examples:
  cove docs --out docs                             then open docs/index.html

Exit codes: 0 done, 1 failed, 2 wrong usage."
)]
pub(crate) struct DocsArgs {
    /// Write the pages here
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) out: PathBuf,
}
