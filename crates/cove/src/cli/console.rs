//! Command-line definitions of `cove console`.

use clap::Args;
use node::auth::TokenScope;

use super::common::HELP_TEMPLATE;
use super::remote::ServerArgs;

/// `cove console`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
The address has a code behind `#` that works once, within 5 minutes. Whoever opens it is
signed in for 12 hours, with the rights of the token that `cove` uses here, and for as long
as that token lasts. `cove exec --help` says where the token is from.

Examples:
  cove console
  cove console --open
  cove console --scope executions,sessions     sign in for less than the token is for
  cove console --json | jq -r .url
  cove console --server https://cove.example.com --token-file team.token

Exit codes: 0 done, 2 wrong usage or refused, 125 no server answers."
)]
pub(crate) struct ConsoleArgs {
    /// Open it in this machine's browser as well
    #[arg(long)]
    pub(crate) open: bool,
    /// Scopes of the sign-in: executions, sessions, agents, tokens, tenants, catalog [default: all
    /// of the token]
    #[arg(long, value_name = "SCOPE", value_delimiter = ',')]
    pub(crate) scope: Vec<TokenScope>,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}
