//! Command-line definitions of `cove config`, and the settings that have a flag.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::common::{ConfigArgs, HELP_TEMPLATE};
use super::remote::ServerArgs;

/// Settings that `cove serve` takes as flags.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SettingArgs {
    /// Address to listen at for HTTP; port 0 takes any free one [default: 127.0.0.1:4100]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) http: Option<String>,
    /// Address to listen at for PostgreSQL's clients; port 0 is any free one [default:
    /// 127.0.0.1:6432]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) bouncer: Option<String>,
    /// Address to listen at for MySQL's clients; port 0 is any free one [default: 127.0.0.1:6433]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) bouncer_mysql: Option<String>,
    /// Address to listen at for E2B's clients [default: none]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) e2b: Option<String>,
    /// Read the console's files from this directory at each request, to develop the console
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) console_dir: Option<String>,
    /// Least severe log lines to write: off, error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// Form of log lines: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
    /// Run programs although their memory and processes cannot be limited here
    #[arg(long)]
    pub(crate) insecure_no_limits: bool,
}

/// `cove reload`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
The server reads file and environment again and checks them first: an invalid configuration
changes nothing. Changed settings that need a restart are listed; `cove config show --json`
shows which settings are `reloadable`. SIGHUP does the same. The command needs an operator's
token: see `cove exec --help` for its sources.

Examples:
  cove reload
  cove reload --server http://127.0.0.1:4100
  cove reload --json | jq -r '.restart_needed_for[]'

Exit codes: 0 reloaded, 2 wrong usage or nothing was reloaded, 125 no server answers."
)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Print the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `cove config`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
File, environment and flags are read as `cove serve` reads them; flags of `cove serve` that
are settings are accepted here, too. Secrets are replaced by `…`. With --server the command
shows the configuration of a running server, which needs an operator's token: see
`cove exec --help` for its sources.

Examples:
  cove config check --config cove.toml
  cove config check --json | jq -r '.problems[].message'
  cove config show --section executions
  cove config show --origin | grep -v '# default$'
  cove config show --json | jq -r '.settings[] | select(.origin.kind == \"file\") | .key'
  cove config show --server http://127.0.0.1:4100 --origin"
)]
pub(crate) struct ConfigCommandArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

/// Commands about the configuration.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Report all errors of the configuration
    #[command(after_help = "\
Each problem is a line on standard error: location, setting, problem. Contradicting settings,
missing files and unresolved references are reported once all values are valid.

Exit codes: 0 valid, 1 invalid, 2 wrong usage or no such file.")]
    Check {
        #[command(flatten)]
        settings: SettingArgs,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Show the effective configuration and the source of each value
    #[command(after_help = "\
Exit codes: 0 done, 2 wrong usage or no configuration, 125 no server answers or the token is
not for it.")]
    Show(ShowConfigArgs),
}

/// `cove config show`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ShowConfigArgs {
    /// Add the source of each value
    #[arg(long)]
    pub(crate) origin: bool,
    /// Show one table or setting, such as `executions` or `bouncer.tls`
    #[arg(long, value_name = "SECTION")]
    pub(crate) section: Option<String>,
    /// Print one JSON document, with defaults and origins
    #[arg(long)]
    pub(crate) json: bool,
    /// Show the configuration of a running server [default: COVE_URL, or the server of the data
    /// directory]
    #[arg(
        long,
        value_name = "URL|CONTEXT",
        num_args = 0..=1,
        default_missing_value = "",
        conflicts_with = "SettingArgs"
    )]
    pub(crate) server: Option<String>,
    /// File with the server's token, in place of COVE_TOKEN
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: SettingArgs,
}
