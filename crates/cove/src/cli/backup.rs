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
The server keeps serving. The archive contains its store, objects, local tables, disks of
sessions, keys and tokens: protect it like a password. Data stored elsewhere, such as in
buckets and PostgreSQL, is not included, and the command lists it. It needs an operator's
token with every scope. See `cove exec --help` for the sources of the token.

The archive is verified while it is received, and gets its name when it is complete.

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
    /// File to write, or `-` for standard output [default: cove-TIME.tar.gz]
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
    /// Check that an archive is complete, and list its contents
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
It needs no server. The directory must be new or empty; if the archive is incomplete,
nothing is left in it. The server that is started on it has an id of its own, and the
tokens, keys, executions, sessions, tenants and tables of the first one.

Tables refer to their files by path: restore them to the directory that they were in.
Executions that waited or ran at the time of the backup run at the first start; use
--pause-queue if the first server may still be running them.

Examples:
  cove restore cove.tar.gz --data-dir /var/lib/cove
  cove restore cove.tar.gz --verify
  cove restore cove.tar.gz --data-dir /tmp/trial --pause-queue

Exit codes: 0 restored, 2 wrong usage, or the directory is not empty, 125 the archive is
not whole, or of a newer version."
)]
pub(crate) struct RestoreArgs {
    /// Archive of `cove backup`
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Check the archive without unpacking it
    #[arg(long)]
    pub(crate) verify: bool,
    /// Pause the queue: executions wait until `cove queue resume`
    #[arg(long, conflicts_with = "verify")]
    pub(crate) pause_queue: bool,
    /// Print a description of the archive as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}
