//! Command-line definitions, with their help.

mod audit;
mod backup;
mod catalog;
mod cluster;
mod common;
mod console;
mod contexts;
mod demo;
mod grants;
mod history;
mod mcp;
mod nodes;
mod output;
mod reference;
mod remote;
mod server_contexts;
mod sessions;
mod settings;
mod shape;
mod templates;
mod tenants;
mod terminals;
mod worker;

use std::path::PathBuf;
use std::time::Duration;

use api::Grant;
use clap::{ArgAction, Args, FromArgMatches as _, Parser, Subcommand};
use node::auth::TokenScope;

use self::common::HELP_TEMPLATE;
use self::grants::parse_grant;
pub(crate) use self::grants::{SandboxGrantArgs, SandboxGrantCommand};
use crate::values;

pub(crate) use self::audit::{RecordOrder, SandboxAuditArgs};
pub(crate) use self::backup::{BackupArgs, BackupCommand, RestoreArgs};
pub(crate) use self::catalog::{
    AsOfArgs, AuditArgs, CatalogArgs, CatalogCommand, CatalogSearchArgs, CatalogServeArgs,
    ChangesArgs, CreateTableArgs, FunctionCommand, GrantCommand, GrantedArgs, JobArgs, KeyCommand,
    MaintainCommand, MaintainedArgs, NamespaceCommand, PolicyCommand, PrincipalCommand,
    ProtectionCommand, RetentionCommand, RoleCommand, RowsArgs, SetPolicyArgs, TableCommand,
    TableStatsArgs, ThingArgs, UndropCommand, ViewCommand, WarehouseCommand, WarehouseSettings,
};
pub(crate) use self::cluster::{ClusterArgs, ClusterCommand};
pub(crate) use self::common::{ConfigArgs, LimitArgs, ProgramArgs, SharedKeyArgs};
pub(crate) use self::console::ConsoleArgs;
pub(crate) use self::contexts::{ContextCommand, OneContextArgs, SessionRunArgs};
pub(crate) use self::demo::{DemoArgs, DemoCommand, DemoLoadArgs, LoadService};
pub(crate) use self::history::HistoryArgs;
pub(crate) use self::mcp::{McpArgs, McpClient, McpCommand, McpInstallArgs};
pub(crate) use self::nodes::{NodeArgs, NodeCommand, NodeDrainArgs, OneNodeArgs};
pub(crate) use self::output::OutputChoice;
pub(crate) use self::reference::{CompletedShell, CompletionsArgs, DocsArgs, ManArgs};
pub(crate) use self::remote::{
    CancelArgs, ExecArgs, ExecCommand, GetArgs, ListArgs, QueueArgs, QueueCommand, ScopeArgs,
    ServerArgs, SubmitArgs, WatchArgs,
};
pub(crate) use self::server_contexts::{AddContextArgs, ServerContextArgs, ServerContextCommand};
pub(crate) use self::sessions::{
    AgentArgs, AgentCommand, AgentUpdateArgs, ChatArgs, CreateArgs, DeployArgs, DisconnectPolicy,
    FilesCommand, GrantsArgs, NewArgs, SendArgs, SessionArgs, SessionCommand, SessionExecArgs,
    SessionFilePath, SessionListArgs, SqlArgs, TailArgs, TopArgs,
};
pub(crate) use self::settings::{
    ConfigCommand, ConfigCommandArgs, ReloadArgs, SettingArgs, ShowConfigArgs,
};
pub(crate) use self::templates::{TemplateArgs, TemplateBuildArgs, TemplateCommand};
pub(crate) use self::tenants::{
    AddTenantArgs, BouncerArgs, BouncerCommand, BouncerTopArgs, TenantArgs, TenantCommand,
};
pub(crate) use self::terminals::{SessionTerminalArgs, SessionTerminalsArgs};
pub(crate) use self::worker::{WorkerAnthropicArgs, WorkerArgs, WorkerCommand};

/// Runs untrusted code and reports the result.
#[derive(Debug, Parser)]
#[command(
    name = "cove",
    version,
    disable_version_flag = true,
    help_template = HELP_TEMPLATE,
    after_help = "\
Examples:
  cove run hello.py                 run a file; its extension names the language
  cove run -- /bin/ls -l            run a command
  cove demo --serve                 start a server with sample data
  cove serve                        start the server and see what to try
  cove exec submit --wait hello.py  run it on a server and wait for the verdict
  cove agent deploy my-agent        deploy a folder as an agent
  cove session chat --agent my-agent
  cove doctor                       check this machine's isolation"
)]
pub(crate) struct Cli {
    /// Print the version
    #[arg(short = 'v', short_alias = 'V', long, action = ArgAction::Version)]
    version: Option<bool>,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

impl Cli {
    /// Returns the definition of the whole command line.
    pub(crate) fn definition() -> clap::Command {
        shape::command()
    }

    /// Reads the command line of this process.
    ///
    /// # Errors
    /// If the arguments are invalid, or request the help or the version.
    pub(crate) fn of_this_process() -> Result<(Cli, OutputChoice), clap::Error> {
        let mut command = shape::command();
        let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
        let output = OutputChoice::of(&matches);
        let cli = Cli::from_arg_matches_mut(&mut matches);
        Ok((cli.map_err(|error| error.format(&mut command))?, output))
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run a program in a sandbox, on this machine or on a server
    Run(Box<RunArgs>),
    /// Start the server
    Serve(ServeArgs),
    /// Submit executions to a server, watch, list and cancel them
    Exec(ExecArgs),
    /// Show a server's queue; pause it, drain it, retry dead executions
    Queue(QueueArgs),
    /// Deploy agents to a server, list, show and delete them
    Agent(AgentArgs),
    /// Build templates on a server, from which sessions start; list, show and delete them
    Template(TemplateArgs),
    /// Create sessions on a server, send them messages, run commands in them, end them
    Session(Box<SessionArgs>),
    /// Offer a server's tools to agents by the Model Context Protocol
    Mcp(McpArgs),
    /// Run the tools of remotely hosted agents in a server's sessions
    Worker(WorkerArgs),
    /// Watch a server's sessions and their sandboxes
    Top(TopArgs),
    /// Show a server's measurements of the last minutes and hours, a line for each figure
    History(HistoryArgs),
    /// List the grants that a token may create, and check grants in advance
    Grants(SandboxGrantArgs),
    /// Show the audit log of sandboxes' grants: statements, requests, refusals
    Audit(SandboxAuditArgs),
    /// Print an address that opens the console of a server in a browser, signed in
    Console(ConsoleArgs),
    /// Name servers, and select the one that commands use
    Context(ServerContextArgs),
    /// Create demo data on a server, and remove it
    Demo(Box<DemoArgs>),
    /// Join servers to a cluster: keys that they share, and tokens to join with
    Cluster(ClusterArgs),
    /// List the servers of a cluster, show one, and let it take no new work
    Node(NodeArgs),
    /// Create tenants of a server's bouncer, list, show, pause, drain and remove them
    Tenant(TenantArgs),
    /// Run only the bouncer, or watch the tenants of a server
    Bouncer(BouncerArgs),
    /// Run only the Iceberg catalog, or manage the catalog of a server
    Catalog(Box<CatalogArgs>),
    /// Reload a server's configuration: apply the settings that need no restart
    Reload(ReloadArgs),
    /// Show and check the effective configuration
    Config(Box<ConfigCommandArgs>),
    /// Back up a server to a file while it serves; check such a file
    Backup(BackupArgs),
    /// Restore a data directory from a backup
    Restore(RestoreArgs),
    /// Show, create and revoke API tokens
    Token(TokenArgs),
    /// List the languages and which of them can be used here
    Languages(LanguagesArgs),
    /// Check which isolation mechanisms this machine supports
    Doctor(DoctorArgs),
    /// Print completions of commands and options for a shell
    Completions(CompletionsArgs),
    /// Print the manual as pages for `man`
    Man(ManArgs),
    /// Write the documentation as pages that need no server
    Docs(DocsArgs),
    /// Print the version
    Version(VersionArgs),
}

/// `cove version`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  cove version
  cove version --json | jq -r .version")]
pub(crate) struct VersionArgs {
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

/// `cove serve`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Settings come from the configuration file, then from the environment (COVE_HTTP,
COVE_EXECUTIONS__QUEUE_MAX, ...), then from these flags. The first start makes an
API token; `cove token` prints it for the owner of the data directory.

SIGTERM stops the server when running programs have ended; a second one stops it
at once.

With --takeover a new server replaces a running one on the same data directory: the old one
stops, and the bouncer's clients wait for the new one instead of losing their connections.

Examples:
  cove serve
  cove serve --takeover /run/cove/takeover.sock
  cove serve --http 127.0.0.1:0 --data-dir /tmp/cove    any free port: see addresses.json there
  COVE_LOG__FORMAT=json cove serve --config cove.toml

Exit codes: 0 stopped by a signal, 1 cannot start, 2 wrong usage."
)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Take over the bouncer's listeners and clients from the server that was started with the same
    /// FILE, a socket, if there is one, which then stops; and let the next one do so
    #[arg(long, value_name = "FILE")]
    pub(crate) takeover: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: SettingArgs,
    #[command(flatten)]
    pub(crate) keys: SharedKeyArgs,
}

/// `cove token`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Without a command it prints the first token. A running server detects new and revoked
tokens within a second.

Examples:
  curl -s localhost:4100/v1/languages -H \"authorization: Bearer $(cove token)\"
  cove token create --name ci --scope executions
  cove token create --name sdk --tenant team
  E2B_API_KEY=$(cove token --e2b)
  cove token list --json | jq -r .id
  cove token revoke tok_4Q2M8V3T5W

Exit codes: 0 done, 1 failed, 2 wrong usage."
)]
pub(crate) struct TokenArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Print the token the way E2B's clients want it
    #[arg(long, global = true)]
    pub(crate) e2b: bool,
    /// Print the answer as JSON: one document, or one per line for a stream
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Option<TokenCommand>,
}

/// Commands about tokens.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token and print it; it is not shown again
    Create {
        /// Name of the new token
        #[arg(long)]
        name: String,
        /// Allow it to see, pause and drain the whole queue
        #[arg(long)]
        operator: bool,
        /// Tenant of the token; tokens of one tenant share agents and sessions [default: a new one]
        #[arg(long)]
        tenant: Option<String>,
        /// Scopes: executions, sessions, agents, tokens [default: all]
        #[arg(long, value_name = "SCOPE", value_delimiter = ',')]
        scope: Vec<TokenScope>,
        /// Time after which it expires, such as `12h` or `30d` [default: never]
        #[arg(long, value_name = "TIME", value_parser = values::duration)]
        expires: Option<Duration>,
    },
    /// List tokens: id, creation time, name; tenant, scopes and expiry unless they are the default
    List,
    /// Revoke a token
    Revoke {
        /// Id of the token, as `cove token list` shows it
        id: String,
    },
}

/// `cove languages`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Examples:
  cove languages
  cove languages --json | jq"
)]
pub(crate) struct LanguagesArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

/// `cove doctor`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Examples:
  cove doctor
  cove doctor --json | jq
  cove doctor --server http://127.0.0.1:4100    check the machine of a server, with its engine

With --server the check runs on that server, which needs an operator's token. See
`cove exec --help` for the sources of the token.

Exit codes: 0 untrusted code can be run, 1 it cannot, 2 wrong usage, 125 no server
answers or the token is not for it."
)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Run the checks on a server
    #[arg(long, value_name = "URL|CONTEXT")]
    pub(crate) server: Option<String>,
    /// File with the server's token, in place of COVE_TOKEN
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) token_file: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

/// `cove run`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    override_usage = "cove run [OPTIONS] FILE [-- ARGUMENTS...]
       cove run [OPTIONS] --lang LANGUAGE - [-- ARGUMENTS...]
       cove run [OPTIONS] -- COMMAND [ARGUMENTS...]",
    after_help = "\
Standard output and error of the program pass through as they arrive, and so does
standard input, unless the program itself is read from there. A verdict other than OK
is reported on standard error with the limit that was reached.

Examples:
  cove run examples/hello.py
  cove run main.c --stdin-file in.txt --cpu 1s --memory 64M -- arg1 arg2
  echo 'print(6*7)' | cove run --lang python -
  cove run --json -- /bin/sh -c 'yes'
  cove run --server http://judge:4100 main.py
  cove run --server http://judge:4100 --tty -- /bin/bash
  cove run --server http://judge:4100 --grant postgres:shop report.py
  cove run --server http://judge:4100 --template science report.py

With --server the program runs on that server: input, output, signals and exit codes
are the same, limits are the server's. See `cove exec --help` for the sources of its token.

Exit codes: the program's own if it exited by itself, or
    2  wrong usage, or an invalid request
  124  TLE: it reached its CPU or wall time limit
  125  IE: Cove failed, cannot isolate programs here, or no server answers
  126  CE: it did not compile
  127  the program does not exist
  128+N  SG: signal N ended it
  137  MLE or OLE: it reached its memory or output limit"
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// Print only the result, as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not print the verdict
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Run although memory and processes cannot be limited here
    #[arg(long)]
    pub(crate) insecure_no_limits: bool,
    /// Run it on a server, with this command's input, output and exit code
    #[arg(long, value_name = "URL|CONTEXT", conflicts_with = "insecure_no_limits")]
    pub(crate) server: Option<String>,
    /// File with the server's token, in place of COVE_TOKEN
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) token_file: Option<PathBuf>,
    /// Connect the program to this terminal
    #[arg(long, short, requires = "server", conflicts_with_all = ["json", "stdin_file"])]
    pub(crate) tty: bool,
    /// Grants: postgres:TENANT, mysql:TENANT or catalog:WAREHOUSE, with :rw to write,
    /// http:HOST[,HOST...], model, @FILE.json or a JSON object
    #[arg(long = "grant", value_name = "GRANT", requires = "server", value_parser = parse_grant)]
    pub(crate) grants: Vec<Grant>,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    // Last, because the help heading of `LimitArgs` applies to all arguments after it.
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

#[cfg(test)]
mod tests {
    //! Tests of the command lines that the documentation shows.

    use super::*;

    #[test]
    fn commands_that_the_tables_of_operations_name_are_there() {
        for operation in api::operations::all() {
            let words = operation.command.into_iter().flat_map(|it| it.split(' '));
            words.fold(Cli::definition(), |command, word| {
                let found = command.get_subcommands().find(|it| it.get_name() == word);
                found.unwrap_or_else(|| panic!("{}: no command `{word}`", operation.id)).clone()
            });
        }
    }

    fn run(arguments: &[&str]) -> Result<RunArgs, clap::Error> {
        let all = ["cove", "run"].iter().chain(arguments);
        let command = Cli::try_parse_from(all)?.command;
        let CliCommand::Run(run) = command else { unreachable!("`run` was asked for") };
        Ok(*run)
    }

    #[test]
    fn a_file_with_options_and_arguments() {
        let arguments = "main.c --stdin-file in.txt --cpu 1s --memory 64M -- arg1 --arg2";
        let run = run(&arguments.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!(run.program.file.unwrap(), "main.c");
        assert_eq!(run.program.rest, ["arg1", "--arg2"]);
        assert_eq!(run.limits.cpu, Some(Duration::from_secs(1)));
        assert_eq!(run.limits.memory, Some(64 << 20));
    }

    #[test]
    fn a_command() {
        let run = run(&["--json", "--", "/bin/sh", "-c", "yes"]).unwrap();
        assert_eq!((run.program.file, run.json), (None, true));
        assert_eq!(run.program.rest, ["/bin/sh", "-c", "yes"]);
    }

    #[test]
    fn source_on_standard_input() {
        let run = run(&["--lang", "python", "-"]).unwrap();
        assert_eq!(
            (run.program.file.unwrap(), run.program.lang.unwrap()),
            ("-".into(), "python".into())
        );
    }

    #[test]
    fn mistakes_are_explained() {
        let check = |arguments: &[&str], expected: &str| {
            let message = run(arguments).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        };
        check(&["--cpu", "soon", "a.py"], "`soon` is not a duration");
        check(&["--memory", "-5", "a.py"], "-5");
        check(&["--momory", "5", "a.py"], "--memory");
        check(&["--env", "A", "a.py"], "NAME=VALUE");
        check(&["a.py", "b"], "unexpected argument");
        check(&["--grant", "model", "a.py"], "--server");
        check(&["--server", "http://a", "--grant", "shop", "a.py"], "postgres:TENANT");
    }
}
