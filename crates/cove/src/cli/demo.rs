//! Command-line definitions of `cove demo`.

use clap::Args;

use super::common::HELP_TEMPLATE;
use super::remote::ServerArgs;

/// `cove demo`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Makes something to look at on a server: an agent, sessions, executions of several verdicts,
Iceberg tables with real rows, and a PostgreSQL tenant where PostgreSQL is at hand. It needs
no internet and no key of a model. What it makes is named cove-demo; a second run says what
is there, and --remove takes that away and nothing else. What cannot be made is said with
its reason, and the rest goes on.

--serve starts a server for it in a directory of its own, until Ctrl-C ends both. With
--data-dir the directory is that one, and is kept.

Examples:
  cove demo --serve                    a server and something on it, in one command
  cove demo                            on the server that `cove exec` would use
  cove demo --postgres postgres://app:secret@127.0.0.1:5432/shop
  cove demo --json | jq '.steps[] | select(.state == \"skipped\")'
  cove demo --remove

Exit codes: 0 done, 1 --remove left something, 2 wrong usage or refused,
125 no server answers."
)]
pub(crate) struct DemoArgs {
    /// Start a server for it, and end it with this command
    #[arg(long, conflicts_with_all = ["server", "token_file", "remove"])]
    pub(crate) serve: bool,
    /// Where the server of --serve listens for HTTP [default: 127.0.0.1:4100]
    #[arg(long, value_name = "HOST:PORT", requires = "serve")]
    pub(crate) http: Option<String>,
    /// Take away what the demo made
    #[arg(long, conflicts_with = "postgres")]
    pub(crate) remove: bool,
    /// Database for the tenant, of a user who is no superuser; one is started when this is left out
    #[arg(long, value_name = "postgres://USER:PASSWORD@HOST:PORT/DATABASE")]
    pub(crate) postgres: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}
