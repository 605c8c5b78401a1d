//! Command-line definitions of `cove history`.

use std::time::Duration;

use clap::Args;

use super::common::HELP_TEMPLATE;
use super::remote::ServerArgs;
use crate::values;

/// `cove history`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
A server keeps 15 minutes by the second and 24 hours by ten seconds, in memory: a restart
clears them. A name may end with `*`, and `cove_` may be omitted. An operator's token
sees the whole server; another token the executions and sessions of its own tenant. A rate is
the mean of its step, a level and a p95 the maximum. Gaps are blank.

NO_COLOR disables colours; if LC_ALL, LC_CTYPE or LANG does not specify UTF-8, lines are ASCII.

Examples:
  cove history                                    everything, of the last 15 minutes
  cove history executions_running executions_waiting --window 1h
  cove history 'bouncer_*' --tenant shop          one tenant of the bouncer
  cove history 'bouncer_query_p*' --window 24h --step 10m
  cove history http_requests --json | jq '.series[0].values | max'
  watch -n 5 cove history 'process_*' --window 5m

Exit codes: 0 shown, 2 wrong usage or refused, 125 no server answers."
)]
pub(crate) struct HistoryArgs {
    /// Series to show, or prefixes of their names followed by `*` [default: all]
    #[arg(value_name = "SERIES")]
    pub(crate) series: Vec<String>,
    /// Time range that ends now, at most 24h
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = values::duration)]
    pub(crate) window: Duration,
    /// Time range of one value [default: at most 180 values]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) step: Option<Duration>,
    /// Tenant of the bouncer to show
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}
