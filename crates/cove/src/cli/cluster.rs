//! Command-line definitions of `cove cluster`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::common::{ConfigArgs, HELP_TEMPLATE};
use crate::values;

/// `cove cluster`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Servers are the nodes of a cluster when they share a store (`store.url`), an object store
and two keys. `init` creates the keys on the first server; a single-use token transfers them
to another server through the store, encrypted. See docs/cluster.md for all steps.

Examples:
  cove cluster init
  cove cluster token
  cove cluster join cove_join_9Vd0l3hN6bT1m5o8rQ2xYw7c4zK0pA3sF6uJ9eL1gBk
  cove node list

Exit codes: 0 done, 1 failed, 2 wrong usage."
)]
pub(crate) struct ClusterArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Print the answer as one JSON document
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: ClusterCommand,
}

/// Action on a cluster.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Create the keys and the tables of a cluster, on its first server
    Init,
    /// Create a token with which one server can join, on a server of the cluster
    Token {
        /// Time for which it is valid
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = values::duration)]
        expires: Duration,
    },
    /// Fetch the keys of a cluster, on a server that joins it
    Join {
        /// The token that `cove cluster token` printed
        token: String,
    },
}
