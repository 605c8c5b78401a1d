//! Command-line definitions of `cove backup` and `cove restore`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::common::{ConfigArgs, HELP_TEMPLATE};
use super::remote::ServerArgs;

/// `cove backup`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    args_conflicts_with_subcommands = true,
    after_help = "\
The server goes on serving. The archive has its store, objects, local tables, disks of
sessions, keys and tokens: keep it like a password. What is elsewhere, such as buckets
and PostgreSQL, is not in it, and the command says so. It needs an operator's token with
every scope. `cove exec --help` says where it is from.

The archive is read again while it comes, and gets its name when it is whole.

Examples:
  cove backup
  cove backup -o /backup/cove.tar.gz
  cove backup --server https://cove.example -o - | ssh vault 'cat > cove.tar.gz'
  cove backup verify /backup/cove.tar.gz
  cove backup --json | jq -r .file

Exit codes: 0 the archive is whole, 2 wrong usage, 125 no server answers, it refuses, or
the archive is not whole."
)]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    pub(crate) command: Option<BackupCommand>,
    /// File to make, or `-` for standard output [default: cove-TIME.tar.gz]
    #[arg(long, short, value_name = "FILE|-")]
    pub(crate) output: Option<PathBuf>,
    /// Print a description of the archive as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Commands about archives.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// Check that an archive is whole, and say what is in it
    #[command(help_template = HELP_TEMPLATE)]
    Verify {
        /// Archive
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print a description of the archive as one JSON document
        #[arg(long)]
        json: bool,
    },
}

/// `cove restore`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
It needs no server. The directory is made, or is empty; nothing is left in it when the
archive turns out not to be whole. The server that is started on it has an id of its own,
the tokens and keys of the first one, and its executions, sessions, tenants and tables.

Tables name their files by their paths: restore them to the directory that they were in.
Executions that waited or ran at the time of the backup run at the first start; give
--pause-queue where the first server may still be running them.

Examples:
  cove restore cove.tar.gz --data-dir /var/lib/cove
  cove restore cove.tar.gz --verify
  cove restore cove.tar.gz --data-dir /tmp/trial --pause-queue

Exit codes: 0 restored, 2 wrong usage, or the directory is not empty, 125 the archive is
not whole, or of a newer version."
)]
pub(crate) struct RestoreArgs {
    /// Archive that `cove backup` made
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Check the archive and unpack nothing
    #[arg(long)]
    pub(crate) verify: bool,
    /// Let executions wait until `cove queue resume`
    #[arg(long, conflicts_with = "verify")]
    pub(crate) pause_queue: bool,
    /// Print a description of the archive as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}
