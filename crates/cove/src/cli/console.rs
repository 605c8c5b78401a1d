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
The URL has a single-use code after `#`, valid for 5 minutes. Opening it signs the browser in
for 12 hours, with the scopes of the token that `cove` uses here, or until that token expires.
See `cove exec --help` for the sources of the token.

Examples:
  cove console
  cove console --open
  cove console --scope executions,sessions     sign in for less than the token is for
  cove console --json | jq -r .url
  cove console --server https://cove.example.com --token-file team.token

Exit codes: 0 done, 2 wrong usage or refused, 125 no server answers."
)]
pub(crate) struct ConsoleArgs {
    /// Also open it in this machine's browser
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
