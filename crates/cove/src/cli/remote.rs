//! Command-line definitions of `cove exec` and `cove queue`.

use std::path::PathBuf;
use std::time::Duration;

use api::{Grant, OutputComparison};
use clap::{Args, Subcommand};

use super::common::{ConfigArgs, HELP_TEMPLATE, LimitArgs, ProgramArgs};
use super::grants::parse_grant;
use crate::values;

/// Server to talk to, and the token for it.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// Address of the server, or name of a context [default: COVE_URL, COVE_CONTEXT, the current
    /// context, or the server of the data directory]
    #[arg(long, value_name = "URL|CONTEXT", global = true, help_heading = "Server")]
    pub(crate) server: Option<String>,
    /// File with the token [default: COVE_TOKEN, or the data directory's for a local server]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Server")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// `cove exec`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
The server is the first of: --server, COVE_URL, COVE_CONTEXT or the current context
(`cove context`), addresses.json of the data directory, http://127.0.0.1:4100. The token
is the first of: --token-file, the context, COVE_TOKEN, the data directory if the server
is on this machine.

Examples:
  id=$(cove exec submit --label homework-7 main.py)
  cove exec watch $id
  cove exec submit --wait main.c --tests cases/
  cove exec list --state queued,running

Exit codes: 0 done, 2 wrong usage or a request that the server refuses, 125 no server
answers or it cannot do it now; `watch` and `submit --wait` exit like `cove run`."
)]
pub(crate) struct ExecArgs {
    #[command(subcommand)]
    pub(crate) command: ExecCommand,
}

/// Commands about executions.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ExecCommand {
    /// Submit a program to the server and print the execution's id
    Submit(Box<SubmitArgs>),
    /// Show executions
    Get(GetArgs),
    /// Follow an execution to its end and print its output
    Watch(WatchArgs),
    /// End executions
    Cancel(CancelArgs),
    /// List executions, the newest first
    List(ListArgs),
}

impl ExecCommand {
    /// Returns the server options of the command.
    pub(crate) fn server(&self) -> &ServerArgs {
        match self {
            ExecCommand::Submit(args) => &args.server,
            ExecCommand::Get(args) => &args.server,
            ExecCommand::Watch(args) => &args.server,
            ExecCommand::Cancel(args) => &args.server,
            ExecCommand::List(args) => &args.server,
        }
    }
}

/// `cove exec submit`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    override_usage = "cove exec submit [OPTIONS] FILE [-- ARGUMENTS...]
       cove exec submit [OPTIONS] --lang LANGUAGE - [-- ARGUMENTS...]
       cove exec submit [OPTIONS] -- COMMAND [ARGUMENTS...]
       cove exec submit [OPTIONS] --request FILE",
    after_help = "\
Standard output is the execution's id and nothing else; --json prints its record
instead. Without --stdin-file the program reads an empty input.

Examples:
  cove exec submit main.py --stdin-file in.txt
  cove exec submit main.c --tests cases/ --comparison float:1e-6 --wait
  cove exec submit main.cpp --tests cases/ --checker check.cpp
  cove exec submit --priority 10 --deadline 5m --idempotency-key job-17 main.py
  cove exec submit --grant postgres:shop --wait report.py
  cove exec submit --template science --wait report.py
  cove exec submit --request job.json --watch

A directory of tests holds pairs of files: 1.in and 1.out, 2.in and 2.out, ...

Exit codes: 0 submitted, 2 wrong usage or a request that the server refuses, 125 no
server answers or it has no room; with --wait or --watch those of `cove run`."
)]
pub(crate) struct SubmitArgs {
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// File with the whole request as JSON, `-` for standard input
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["file", "lang", "rest", "stdin_file", "files", "env", "tests",
            "comparison", "checker", "interactor", "stop_at_first_failure"],
        conflicts_with_all = ["cpu", "wall", "memory", "processes", "output", "disk", "disk_files",
            "file_size", "open_files", "stack", "compile_cpu", "compile_wall", "compile_memory"]
    )]
    pub(crate) request: Option<PathBuf>,
    /// Test cases: a directory of N.in and N.out, or a JSON file with the array `tests`
    #[arg(long, value_name = "DIR|FILE")]
    pub(crate) tests: Option<PathBuf>,
    /// Comparison of outputs: exact, trailing_space, tokens or float[:ABSOLUTE[,RELATIVE]]
    #[arg(long, value_name = "HOW", requires = "tests", value_parser = comparison)]
    pub(crate) comparison: Option<OutputComparison>,
    /// Program that judges outputs
    #[arg(long, value_name = "FILE", requires = "tests", conflicts_with = "comparison")]
    pub(crate) checker: Option<PathBuf>,
    /// Program that interacts with the program and judges it
    #[arg(long, value_name = "FILE")]
    pub(crate) interactor: Option<PathBuf>,
    /// Skip the tests after the first that fails
    #[arg(long, requires = "tests")]
    pub(crate) stop_at_first_failure: bool,
    /// Grants: postgres:TENANT, mysql:TENANT or catalog:WAREHOUSE, with :rw to write,
    /// http:HOST[,HOST...], model, @FILE.json or a JSON object
    #[arg(long = "grant", value_name = "GRANT", value_parser = parse_grant)]
    pub(crate) grants: Vec<Grant>,
    /// Priority among your waiting executions, from -100 to 100; the highest runs first
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(-100..=100))]
    pub(crate) priority: Option<i32>,
    /// Time within which it must have started, such as 30s or 10m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = values::duration)]
    pub(crate) deadline: Option<Duration>,
    /// Label to filter by
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Idempotency key: a second submission with the same key returns the first one's id
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// URL to which the result is posted
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Option<String>,
    /// Use neither the compile cache nor an interpreter started in advance
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Wait for the verdict
    #[arg(long)]
    pub(crate) wait: bool,
    /// Follow it like `cove exec watch`; the id is printed to standard error
    #[arg(long, conflicts_with = "wait")]
    pub(crate) watch: bool,
    /// Print the record as one JSON document; with --wait or --watch, the final one
    #[arg(long)]
    pub(crate) json: bool,
    /// Print neither progress nor the verdict
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    // Last, because the help heading of `LimitArgs` applies to all arguments after it.
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// `cove exec get`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Examples:
  cove exec get ex_01J9ZQ4M7T0000000000000000
  cove exec get --wait --json $id | jq .result.verdict
  cove exec get --output $id > out.txt

Exit codes: 0 shown, 2 wrong usage or no such execution, 125 no server answers."
)]
pub(crate) struct GetArgs {
    /// Ids of the executions
    #[arg(required = true, value_name = "ID", value_parser = id)]
    pub(crate) ids: Vec<String>,
    /// Wait until they have ended
    #[arg(long)]
    pub(crate) wait: bool,
    /// Print the program's output instead of the result
    #[arg(long, conflicts_with = "json")]
    pub(crate) output: bool,
    /// Print each record as a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// `cove exec watch`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Prints the program's standard output and error on its own. A lost connection is reopened.
Ctrl-C ends this command, not the execution.

Examples:
  cove exec watch ex_01J9ZQ4M7T0000000000000000
  cove exec watch $(cove exec submit main.py) > out.txt

Exit codes: those of `cove run`; 125 also when it ended without a verdict."
)]
pub(crate) struct WatchArgs {
    /// Id of the execution
    #[arg(value_name = "ID", value_parser = id)]
    pub(crate) id: String,
    /// Print only the final record, as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Print neither progress nor the verdict
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// `cove exec cancel`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
A running execution is killed, a waiting one never starts, and an ended one does not change.

Examples:
  cove exec cancel ex_01J9ZQ4M7T0000000000000000
  cove exec list --state queued --label homework-7 --json --all-pages | jq -r .id |
    xargs cove exec cancel

Exit codes: 0 done, 2 wrong usage or no such execution, 125 no server answers."
)]
pub(crate) struct CancelArgs {
    /// Ids of the executions
    #[arg(required = true, value_name = "ID", value_parser = id)]
    pub(crate) ids: Vec<String>,
    /// Print each record as a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// `cove exec list`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Examples:
  cove exec list
  cove exec list --state dead --all-pages
  cove exec list --label homework-7 --json | jq -r .id

States: queued, running, finished, cancelled, expired, dead.

Exit codes: 0 listed, 2 wrong usage, 125 no server answers."
)]
pub(crate) struct ListArgs {
    /// Only those in one of these states, separated by commas
    #[arg(long, value_name = "STATES")]
    pub(crate) state: Option<String>,
    /// Only those in this language
    #[arg(long, short, value_name = "LANGUAGE")]
    pub(crate) language: Option<String>,
    /// Only those with this label
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Only those with this verdict, such as OK or TLE
    #[arg(long, value_name = "VERDICT")]
    pub(crate) verdict: Option<String>,
    /// Only those whose label contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Only those whose id has this prefix
    #[arg(long, value_name = "PREFIX")]
    pub(crate) id: Option<String>,
    /// Only those accepted at this time or later, in milliseconds since 1970
    #[arg(long, value_name = "MS")]
    pub(crate) from_ms: Option<u64>,
    /// Only those accepted before this time
    #[arg(long, value_name = "MS")]
    pub(crate) to_ms: Option<u64>,
    /// Oldest first
    #[arg(long)]
    pub(crate) oldest_first: bool,
    /// Show executions of the token with this id, or of all with `*`; for operators
    #[arg(long, value_name = "TOKEN")]
    pub(crate) tenant: Option<String>,
    /// Executions on a page [default: 50]
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u32>,
    /// Fetch all pages
    #[arg(long)]
    pub(crate) all_pages: bool,
    /// Print each record as a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// `cove queue`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
See `cove exec --help` for the choice of the server and the token. Commands on executions of
all tokens (pause, resume, --all) need an operator's token.

Examples:
  cove queue stats
  cove queue pause
  cove queue resume
  cove queue retry --all
  cove queue drain --yes

Exit codes: 0 done, 2 wrong usage or refused, 125 no server answers."
)]
pub(crate) struct QueueArgs {
    #[command(subcommand)]
    pub(crate) command: QueueCommand,
}

/// Commands about the queue.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// Show how many executions wait, run and have ended
    #[command(help_template = HELP_TEMPLATE)]
    Stats {
        #[command(flatten)]
        scope: ScopeArgs,
    },
    /// Start no executions; running ones continue, and submissions are accepted
    #[command(help_template = HELP_TEMPLATE)]
    Pause {
        /// Print the figures of the queue as one JSON document
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Start waiting executions again
    #[command(help_template = HELP_TEMPLATE)]
    Resume {
        /// Print the figures of the queue as one JSON document
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Queue dead executions again: one or all
    #[command(
        help_template = HELP_TEMPLATE,
        after_help = "\
Examples:
  cove queue retry ex_01J9ZQ4M7T0000000000000000
  cove queue retry            every dead execution of yours
  cove queue retry --all      everybody's

Exit codes: 0 done, 2 wrong usage or refused, 125 no server answers."
    )]
    Retry {
        /// Id of one execution
        #[arg(value_name = "ID", value_parser = id, conflicts_with = "all")]
        id: Option<String>,
        #[command(flatten)]
        scope: ScopeArgs,
    },
    /// Cancel waiting executions; running ones continue
    #[command(
        help_template = HELP_TEMPLATE,
        after_help = "\
Asks for confirmation on a terminal; otherwise it needs --yes.

Exit codes: 0 done, 2 wrong usage or refused, 125 no server answers."
    )]
    Drain {
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        scope: ScopeArgs,
    },
}

/// Executions that are meant, and the form of the answer.
#[derive(Clone, Debug, Args)]
pub(crate) struct ScopeArgs {
    /// Executions of all tenants; needs an operator's token
    #[arg(long)]
    pub(crate) all: bool,
    /// Print the answer as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

impl QueueCommand {
    /// Returns the server options of the command.
    pub(crate) fn server(&self) -> &ServerArgs {
        match self {
            QueueCommand::Pause { server, .. } | QueueCommand::Resume { server, .. } => server,
            QueueCommand::Stats { scope }
            | QueueCommand::Retry { scope, .. }
            | QueueCommand::Drain { scope, .. } => &scope.server,
        }
    }
}

/// Maximum length of an id.
const ID_BYTES_MAX: usize = 64;

/// Parses the id of an execution. Accepts only letters, digits, `_` and `-`, because the id becomes
/// part of a URL path.
fn id(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if text.is_empty() || text.len() > ID_BYTES_MAX || !text.bytes().all(plain) {
        return Err("it is not the id of an execution, such as ex_01J9ZQ4M7T...".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses a comparison, such as `exact`, `float:1e-6` or `float:0,1e-9`.
fn comparison(text: &str) -> Result<OutputComparison, String> {
    let (mode, tolerance) = match text.split_once(':') {
        Some((mode, tolerance)) => (mode, Some(tolerance)),
        None => (text, None),
    };
    let tolerances = |text: &str| {
        let number = |text: &str| {
            let number = text.parse::<f64>().ok();
            let number = number.filter(|number| number.is_finite() && *number >= 0.0);
            number.ok_or_else(|| format!("`{text}` is not a tolerance such as 1e-6"))
        };
        let (absolute, relative) = text.split_once(',').unwrap_or((text, "0"));
        Ok::<_, String>(OutputComparison::Float {
            absolute: number(absolute)?,
            relative: number(relative)?,
        })
    };
    match (mode, tolerance) {
        ("exact", None) => Ok(OutputComparison::Exact),
        ("trailing_space", None) => Ok(OutputComparison::TrailingSpace),
        ("tokens", None) => Ok(OutputComparison::Tokens),
        ("float", tolerance) => tolerances(tolerance.unwrap_or("0")),
        _ => {
            Err("there are exact, trailing_space, tokens and float[:ABSOLUTE[,RELATIVE]]"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    //! Tests of the parsers that are not clap's own.

    use super::*;

    #[test]
    fn comparisons() {
        let float = |absolute, relative| OutputComparison::Float { absolute, relative };
        for (text, expected) in [
            ("exact", Some(OutputComparison::Exact)),
            ("trailing_space", Some(OutputComparison::TrailingSpace)),
            ("tokens", Some(OutputComparison::Tokens)),
            ("float", Some(float(0.0, 0.0))),
            ("float:1e-6", Some(float(1e-6, 0.0))),
            ("float:0,1e-9", Some(float(0.0, 1e-9))),
            ("float:-1", None),
            ("float:1,", None),
            ("float:nan", None),
            ("exact:1", None),
            ("checker", None),
            ("", None),
        ] {
            assert_eq!(comparison(text).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn ids_are_nothing_but_ids() {
        assert_eq!(id("ex_01J9ZQ4M7T0000000000000000").unwrap(), "ex_01J9ZQ4M7T0000000000000000");
        for bad in ["", "a/b", "..", "a?b", "a b", &"x".repeat(65)] {
            assert!(id(bad).is_err(), "{bad:?}");
        }
    }
}
