//! Command-line definitions of `cove demo`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::common::HELP_TEMPLATE;
use super::remote::ServerArgs;
use crate::values::duration;

/// `cove demo`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Creates sample data on a server: an agent, sessions, executions with several verdicts,
Iceberg tables with real rows, and tenants of PostgreSQL and MariaDB if their programs
are installed. It needs no internet and no model key. Everything is named cove-demo; a second
run lists what exists, and --remove removes exactly that. A step that fails is reported with
its reason, and the other steps continue.

--serve starts a server for it in a temporary directory, until Ctrl-C ends both. With
--data-dir it uses that directory, and keeps it.

Examples:
  cove demo --serve                    a server with sample data, in one command
  cove demo                            on the server that `cove exec` would use
  cove demo --postgres postgres://app:secret@127.0.0.1:5432/shop
  cove demo --json | jq '.steps[] | select(.state == \"skipped\")'
  cove demo load                       requests to all of it, until Ctrl-C
  cove demo --remove

Exit codes: 0 done, 1 --remove left something, 2 wrong usage or refused,
125 no server answers."
)]
pub(crate) struct DemoArgs {
    #[command(subcommand)]
    pub(crate) command: Option<DemoCommand>,
    /// Start a server for the demo, which ends with this command
    #[arg(long, conflicts_with_all = ["server", "token_file", "remove"])]
    pub(crate) serve: bool,
    /// Address of the server of --serve [default: 127.0.0.1:4100]
    #[arg(long, value_name = "HOST:PORT", requires = "serve")]
    pub(crate) http: Option<String>,
    /// Remove the demo
    #[arg(long, conflicts_with = "postgres")]
    pub(crate) remove: bool,
    /// PostgreSQL database of a user who is not a superuser; by default, one is started
    #[arg(long, value_name = "postgres://USER:PASSWORD@HOST:PORT/DATABASE")]
    pub(crate) postgres: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Commands about a demo that is there.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DemoCommand {
    /// Send load to its services, and show their response times
    Load(Box<DemoLoadArgs>),
}

/// Service for which `cove demo load` can generate load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadService {
    Executions,
    Databases,
    Catalog,
    Sessions,
    Gateway,
}

impl LoadService {
    /// All services, in display order.
    pub(crate) const ALL: [LoadService; 5] = [
        LoadService::Executions,
        LoadService::Databases,
        LoadService::Catalog,
        LoadService::Sessions,
        LoadService::Gateway,
    ];

    /// Returns the name on the command line and in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            LoadService::Executions => "executions",
            LoadService::Databases => "databases",
            LoadService::Catalog => "catalog",
            LoadService::Sessions => "sessions",
            LoadService::Gateway => "gateway",
        }
    }
}

/// `cove demo load`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Puts load on every service of a server that has the demo, until Ctrl-C or for a time: programs
in several languages, transactions of many clients on the tenant's five server connections,
commits and scans of tables, messages to agents, and requests of a session with grants. Prints
the number of responses and their latency each second. No limit is changed. At the end it
removes what it created; records of executions expire by age.

Clients of the database need the data directory of the server, on this machine: specify the
--data-dir of `cove demo --serve`, or the one that it printed.

Examples:
  cove demo load
  cove demo load --for 60s --clients 500 --only databases
  cove demo load --only executions,catalog --rate 10
  cove demo load --for 1m --json

Exit codes: 0 done, 1 operations failed, 2 wrong usage or no demo, 125 no server answers or
the token has no right to what the demo has."
)]
pub(crate) struct DemoLoadArgs {
    /// End after this time [default: with Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,
    /// Clients of the database, each with a connection
    #[arg(long, value_name = "N", default_value_t = 200,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) clients: u32,
    /// Operations per second of each service [default: 1 for each client of the database, 2 to 4]
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// Services that receive load [default: all for which the demo has objects]
    #[arg(long, value_name = "SERVICE", value_delimiter = ',')]
    pub(crate) only: Vec<LoadService>,
    /// Print one JSON document at the end
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses a rate in operations per second, from 0.01 to 10000.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.01..=10_000.0).contains(&rate) => Ok(rate),
        _ => Err("it is a number from 0.01 to 10000".to_owned()),
    }
}
