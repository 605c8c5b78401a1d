//! Command-line definitions of `cove agent`, `cove session` and `cove top`.

use std::path::PathBuf;
use std::time::Duration;

use api::Grant;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use super::common::HELP_TEMPLATE;
use super::contexts::{ContextArgs, SessionRunArgs};
use super::grants::{GrantOptions, parse_grant};
use super::remote::ServerArgs;
use super::terminals::{SessionTerminalArgs, SessionTerminalsArgs};
use crate::values;

/// Maximum length of an id or name.
const NAME_BYTES_MAX: usize = 128;

/// `cove agent`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
An agent is a folder. With a CLAUDE.md in it, sessions start Claude's command line; an
agent.toml specifies another program, environment, limits and options.
See `cove exec --help` for the choice of the server and the token.

Examples:
  cove agent deploy examples/agents/echo
  cove agent deploy . --name helper -e LOG_LEVEL=debug
  cove agent list
  cove agent info echo --files
  cove agent update helper --grant postgres:shop --grant http:api.example.com
  cove agent delete echo

Exit codes: 0 done, 2 wrong usage or refused, 125 no server answers."
)]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    pub(crate) command: AgentCommand,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Commands about agents.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Upload a folder: a new agent, or a new version of one
    Deploy(DeployArgs),
    /// List agents
    List,
    /// Show an agent and its versions
    #[command(help_template = HELP_TEMPLATE)]
    Info {
        /// Name of the agent
        #[arg(value_name = "NAME", value_parser = name)]
        name: String,
        /// Also list the files of its folder
        #[arg(long)]
        files: bool,
        /// Show the files of an earlier version
        #[arg(long, value_name = "NUMBER", requires = "files")]
        version: Option<u32>,
    },
    /// Change an agent's settings without a new version
    Update(AgentUpdateArgs),
    /// Remove agents with all their versions; their sessions keep their files
    #[command(help_template = HELP_TEMPLATE)]
    Delete {
        /// Names
        #[arg(required = true, value_name = "NAME", value_parser = name)]
        names: Vec<String>,
    },
}

/// `cove agent deploy`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Uploads every file of the folder except agent.toml, repositories (.git, .hg, .svn), files
that usually contain secrets (.env, .env.*, .netrc, .pgpass, .pypirc, .ssh, .aws, .gnupg),
and files matched by .coveignore: one pattern per line; `*` matches within a name, a `/` in
it or at its front anchors it to the folder, one at its end matches directories, and a `!`
at its front includes files again. The upload has to fit into one request: see
limits.body_bytes_max of the server. A file install.sh is run once, in a sandbox, and its
results are part of the version. A file grants.json is the list of grants of the agent's
sessions; --grant overrides it. Without either, sessions reach nothing.

agent.toml; all lines are optional:
  name = \"echo\"
  description = \"repeats messages\"
  runtime = { type = \"command\", argv = [\"python3\", \"agent.py\"] }
  template = \"python-tools\"
  env = { LOG_LEVEL = \"info\" }
  limits = { memory_bytes = 1073741824, processes = 128 }
  settings = { prewarm_sandboxes = 2, prewarm_agents = 1 }
  options = { model = \"sonnet\", system_prompt = \"be brief\" }

Examples:
  cove agent deploy examples/agents/echo
  cove agent deploy . --name helper -e LOG_LEVEL=debug --json | jq .version
  cove agent deploy . --grant postgres:shop --grant catalog:lake"
)]
pub(crate) struct DeployArgs {
    /// The folder
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Name of the agent [default: that of agent.toml, or of the folder]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) name: Option<String>,
    /// Environment variable of its sessions
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = values::variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Description
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    #[command(flatten)]
    pub(crate) grants: GrantOptions,
}

/// `cove agent update`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    override_usage = "cove agent update [OPTIONS] NAME",
    group = ArgGroup::new("change").required(true).multiple(true).args(["grants", "no_grants"]),
    after_help = "\
Changes apply to new sessions; `cove session grants` changes an existing one. Grants replace
all previous grants of the agent.

Examples:
  cove agent update helper --grant postgres:shop:rw --grant model
  cove agent update helper --no-grants
  cove agent update helper --active-version 3"
)]
pub(crate) struct AgentUpdateArgs {
    /// Name of the agent
    #[arg(value_name = "NAME", value_parser = name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) grants: GrantOptions,
    /// Description
    #[arg(long, value_name = "TEXT", group = "change")]
    pub(crate) description: Option<String>,
    /// Number of the version that new sessions get
    #[arg(long, value_name = "NUMBER", group = "change")]
    pub(crate) active_version: Option<u32>,
}

/// `cove session`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
See `cove exec --help` for the choice of the server and the token.

Examples:
  id=$(cove session create echo)
  cove session send $id 'hello'
  cove session chat --agent echo
  cove session list; cove session info $id
  cove session exec $id -- ls -la
  cove session exec --tty $id
  cove session files put data.csv $id:in/data.csv
  cove session grants $id --set postgres:shop
  cove session sql $id postgres:shop 'SELECT count(*) FROM orders'
  cove session logs $id
  cove session pause $id; cove session resume $id
  cove session stop $id; cove session resume $id
  cove session fork $id --count 3
  cove session end $id

Exit codes: 0 done, 1 the turn failed, 2 wrong usage or refused, 125 no server answers or
it has no room; `exec` exits like the command."
)]
pub(crate) struct SessionArgs {
    #[command(subcommand)]
    pub(crate) command: SessionCommand,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Print answers as JSON: one document, or one per line for a stream
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Commands about sessions.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Create a session and print its id
    Create(CreateArgs),
    /// Send a message to a session's agent and show its response
    Send(SendArgs),
    /// Chat with an agent, line by line; Ctrl-C interrupts its turn
    Chat(ChatArgs),
    /// List sessions, the newest first
    List(SessionListArgs),
    /// Show a session
    Info(OneArgs),
    /// Show or change the grants of a session
    Grants(GrantsArgs),
    /// Run a read-only statement over a session's grant; without one, list the tables
    Sql(SqlArgs),
    /// Accept no messages until resumed; the sandbox stays while there is room
    Pause(ManyArgs),
    /// Accept no messages and end the sandbox; files and conversation are kept
    Stop(ManyArgs),
    /// Resume paused or stopped sessions
    Resume(ManyArgs),
    /// Copy a session with its files and its conversation; prints the ids
    #[command(help_template = HELP_TEMPLATE)]
    Fork {
        /// Id of the session
        #[arg(value_name = "ID", value_parser = name)]
        id: String,
        /// Number of copies
        #[arg(long, value_name = "COUNT", default_value_t = 1)]
        count: u32,
    },
    /// End sessions permanently, and remove their files
    End(ManyArgs),
    /// Run a command in a session, with this command's input, output and exit code
    Exec(SessionExecArgs),
    /// Open a terminal, or attach to one
    Terminal(SessionTerminalArgs),
    /// List terminals that can be attached to, or end one
    Terminals(SessionTerminalsArgs),
    /// Run a cell in a context that keeps the definitions of cells
    Run(SessionRunArgs),
    /// List, create, fork, restart and delete contexts of cells
    Context(ContextArgs),
    /// List, fetch, write and remove files of a session
    Files(FilesArgs),
    /// Show the agent's standard error
    Logs(OneArgs),
    /// Follow everything that happens in a session
    Tail(TailArgs),
}

/// `cove session sql`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
It only reads, even if the grant lets programs inside write. Ctrl-C cancels it in the database.

Examples:
  cove session sql $id postgres:shop
  cove session sql $id postgres:shop --describe orders
  cove session sql $id postgres:shop 'SELECT count(*) FROM orders'
  cove session sql $id catalog:lake 'SELECT * FROM shop.orders LIMIT 10'
  cove session sql $id mysql:judge 'SELECT * FROM runs WHERE id = ?' 7 --json

Exit codes: 0 done, 2 wrong usage or refused, 125 no server answers."
)]
pub(crate) struct SqlArgs {
    /// Id of the session
    #[arg(value_name = "ID", value_parser = name)]
    pub(crate) id: String,
    /// The grant, such as postgres:shop, or its port inside
    #[arg(value_name = "GRANT")]
    pub(crate) grant: String,
    /// A single statement; without it tables are listed
    #[arg(value_name = "SQL")]
    pub(crate) sql: Option<String>,
    /// Values of the statement's parameters: JSON if they are valid JSON, otherwise text
    #[arg(value_name = "VALUE")]
    pub(crate) parameters: Vec<String>,
    /// Maximum number of rows
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_rows: Option<u32>,
    /// Show the columns of a table, or the contents of a namespace
    #[arg(long, value_name = "NAME", conflicts_with_all = ["sql", "max_rows"])]
    pub(crate) describe: Option<String>,
}

/// Arguments that name one session.
#[derive(Clone, Debug, Args)]
#[command(help_template = HELP_TEMPLATE)]
pub(crate) struct OneArgs {
    /// Id of the session
    #[arg(value_name = "ID", value_parser = name)]
    pub(crate) id: String,
}

/// Several sessions.
#[derive(Clone, Debug, Args)]
#[command(help_template = HELP_TEMPLATE)]
pub(crate) struct ManyArgs {
    /// Ids of the sessions
    #[arg(required = true, value_name = "ID", value_parser = name)]
    pub(crate) ids: Vec<String>,
}

/// Policy for a turn without listeners.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DisconnectPolicy {
    Continue,
    Interrupt,
}

/// Options of a new session; the same for `create` and `chat`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "The new session")]
pub(crate) struct NewArgs {
    /// Environment variable
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = values::variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Label to filter by
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::variable)]
    pub(crate) metadata: Vec<(String, String)>,
    /// Id of a credential for the agent
    #[arg(long, value_name = "ID", value_parser = name)]
    pub(crate) credential: Option<String>,
    /// Id of a snapshot to take its files from
    #[arg(long, value_name = "ID", value_parser = name)]
    pub(crate) snapshot: Option<String>,
    /// Template to start from: a name, name:tag or an id
    #[arg(long, value_name = "TEMPLATE", value_parser = super::templates::name)]
    pub(crate) template: Option<String>,
    /// Model that the agent uses
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// System prompt, instead of the agent's own
    #[arg(long, value_name = "TEXT")]
    pub(crate) system_prompt: Option<String>,
    /// Permission mode: bypassPermissions, acceptEdits, plan or default
    #[arg(long, value_name = "MODE")]
    pub(crate) permission_mode: Option<String>,
    /// Memory of all its processes, such as 512M
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub(crate) memory: Option<u64>,
    /// Size of its disk, such as 2G
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub(crate) disk: Option<u64>,
    /// Concurrent processes and threads
    #[arg(long, value_name = "COUNT")]
    pub(crate) processes: Option<u64>,
    /// Idle time after which its sandbox ends, such as 10m
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) idle: Option<Duration>,
    /// Effect of the last listener disconnecting on a turn: continue, interrupt [default: continue]
    #[arg(long, value_name = "WHAT", hide_possible_values = true)]
    pub(crate) on_disconnect: Option<DisconnectPolicy>,
    #[command(flatten)]
    pub(crate) grants: GrantOptions,
}

/// `cove session create`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Standard output is the session's id and nothing else; --json prints the session instead.

Examples:
  id=$(cove session create echo --metadata user=7)
  cove session create --disk 4G                  a workspace without an agent
  cove session create helper --model opus --credential cred_01J9ZQ4M7T
  id=$(cove session create --grant postgres:shop --grant http:packages.example.com)
  cove session exec $id -- psql -c 'SELECT 1'    no host, no user, no password"
)]
pub(crate) struct CreateArgs {
    /// Name of the agent; none for a workspace without one
    #[arg(value_name = "AGENT", value_parser = name)]
    pub(crate) agent: Option<String>,
    #[command(flatten)]
    pub(crate) new: NewArgs,
}

/// `cove session send`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
The agent's text goes to standard output, its actions to standard error. --json
prints one document at the end, --raw every event as it arrives.

Examples:
  cove session send $id 'what is in this directory?'
  cove session send $id - < question.txt
  cove session send --raw $id 'hello' | jq -r 'select(.type == \"text\").data.text'

Exit codes: 0 answered, 1 the turn failed, 2 wrong usage or refused, 125 no server answers."
)]
pub(crate) struct SendArgs {
    /// Id of the session
    #[arg(value_name = "ID", value_parser = name)]
    pub(crate) id: String,
    /// Text of the message; `-` reads it from standard input
    #[arg(required = true, value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// Model from this message on
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Print every event as a line of JSON
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
    /// Show only the agent's text
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// `cove session chat`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    override_usage = "cove session chat [OPTIONS] ID
       cove session chat [OPTIONS] --agent NAME",
    after_help = "\
Every line is a message. Ctrl-C interrupts the agent while it works, otherwise it ends the
chat, like Ctrl-D. The session stays; `cove session end` ends it.

Examples:
  cove session chat --agent echo
  cove session chat ses_01J9ZQ4M7T0000000000000000"
)]
pub(crate) struct ChatArgs {
    /// Id of the session; one that is paused or stopped is resumed
    #[arg(
        value_name = "ID",
        value_parser = name,
        required_unless_present = "agent",
        conflicts_with_all = ["agent", "env", "metadata", "credential", "snapshot", "model",
            "system_prompt", "permission_mode", "memory", "disk", "processes", "idle",
            "on_disconnect", "grants", "no_grants"]
    )]
    pub(crate) id: Option<String>,
    /// Create a session of this agent
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) agent: Option<String>,
    #[command(flatten)]
    pub(crate) new: NewArgs,
}

/// `cove session grants`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Grants that are not among the new ones are revoked at once: their connections get an error and
are closed. New grants can be used at once, but running programs keep the environment that
they were started with. An unchanged grant keeps its connections.

Examples:
  cove session grants $id
  cove session grants $id --set postgres:shop --set model
  cove session grants $id --set '{\"kind\": \"postgres\", \"tenant\": \"shop\", \"limits\": {\"rows\": 1000}}'
  cove session grants $id --none"
)]
pub(crate) struct GrantsArgs {
    /// Id of the session
    #[arg(value_name = "ID", value_parser = name)]
    pub(crate) id: String,
    /// Grants from now on, instead of all present ones: as --grant of `cove session create`
    #[arg(long, value_name = "GRANT", value_parser = parse_grant)]
    pub(crate) set: Vec<Grant>,
    /// Revoke all grants
    #[arg(long, conflicts_with = "set")]
    pub(crate) none: bool,
}

/// `cove session list`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
States: starting, active, paused, stopped, ended, error.

Examples:
  cove session list --state active,paused
  cove session list --agent echo --metadata user=7 --json | jq -r .id"
)]
pub(crate) struct SessionListArgs {
    /// Only those in one of these states, separated by commas
    #[arg(long, value_name = "STATES")]
    pub(crate) state: Option<String>,
    /// Only those of this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Only those with this metadata entry
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::variable)]
    pub(crate) metadata: Vec<(String, String)>,
    /// Sessions on a page [default: 50]
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u32>,
    /// Fetch all pages
    #[arg(long)]
    pub(crate) all_pages: bool,
}

/// `cove session exec`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    override_usage = "cove session exec [OPTIONS] ID -- COMMAND [ARGUMENTS...]
       cove session exec --tty ID [-- COMMAND [ARGUMENTS...]]",
    after_help = "\
Output is streamed, and the exit code is the command's. Ctrl-C ends it. With --tty it uses
your terminal; the default command is then a shell.

Examples:
  cove session exec $id -- ls -la
  echo 'print(6*7)' | cove session exec --stdin $id -- python3 -
  cove session exec --tty $id
  cove session exec --json $id -- make test | jq .exit_code

Exit codes: the command's; 124 timeout, 125 no server answers or the sandbox ended,
126 it cannot be executed, 127 the command does not exist, 128+N signal N ended it; 2 wrong usage
or refused."
)]
pub(crate) struct SessionExecArgs {
    /// Id of the session
    #[arg(value_name = "ID", value_parser = name)]
    pub(crate) id: String,
    /// The command
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "tty")]
    pub(crate) argv: Vec<String>,
    /// Connect it to this terminal
    #[arg(long, short, conflicts_with_all = ["json", "stdin", "env", "timeout"])]
    pub(crate) tty: bool,
    /// Pass standard input to the command
    #[arg(long, short = 'i')]
    pub(crate) stdin: bool,
    /// Environment variable
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = values::variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Directory to start in [default: /workspace]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// Time after which it is killed, such as 30s [default: 30m]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,
}

/// `cove session files`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
A file of a session is ID:PATH; a relative PATH begins in /workspace, `~/` is /home/user.

Examples:
  cove session files ls $id
  cove session files ls $id:src --depth 3
  cove session files get $id:out/report.pdf
  cove session files get $id:notes.txt -
  cove session files put data.csv $id:in/
  cove session files rm -r $id:build"
)]
pub(crate) struct FilesArgs {
    #[command(subcommand)]
    pub(crate) command: FilesCommand,
}

/// Commands about files.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum FilesCommand {
    /// List a directory
    #[command(help_template = HELP_TEMPLATE)]
    Ls {
        /// The directory [default: /workspace]
        #[arg(value_name = "ID[:PATH]", value_parser = place)]
        place: SessionFilePath,
        /// Depth of the listing
        #[arg(long, value_name = "LEVELS", default_value_t = 1)]
        depth: u32,
    },
    /// Fetch a file
    #[command(help_template = HELP_TEMPLATE)]
    Get {
        /// The file
        #[arg(value_name = "ID:PATH", value_parser = file)]
        place: SessionFilePath,
        /// Local path; `-` is standard output [default: the file's own name, here]
        #[arg(value_name = "FILE")]
        local: Option<PathBuf>,
    },
    /// Write a file
    #[command(help_template = HELP_TEMPLATE)]
    Put {
        /// The file here; `-` is standard input
        #[arg(value_name = "FILE")]
        local: PathBuf,
        /// Path in the session; a directory (`ID:`, `ID:in/`) gets the file under its own name
        #[arg(value_name = "ID[:PATH]", value_parser = place)]
        place: SessionFilePath,
    },
    /// Remove a file, or an empty directory
    #[command(help_template = HELP_TEMPLATE)]
    Rm {
        /// Path in the session
        #[arg(value_name = "ID:PATH", value_parser = file)]
        place: SessionFilePath,
        /// Remove a directory with its contents
        #[arg(long, short)]
        recursive: bool,
    },
}

/// Path in a session's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionFilePath {
    pub(crate) id: String,
    /// `None` for the workspace itself.
    pub(crate) path: Option<String>,
}

/// `cove session tail`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
A lost connection is reopened, without gaps or duplicates. Ctrl-C ends only this command.

Examples:
  cove session tail $id
  cove session tail --raw --after 0 $id | jq -c '[.seq, .type]'"
)]
pub(crate) struct TailArgs {
    /// Id of the session
    #[arg(value_name = "ID", value_parser = name)]
    pub(crate) id: String,
    /// Number of the event to begin after [default: the latest]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) after: Option<u64>,
    /// Print every event as a line of JSON
    #[arg(long)]
    pub(crate) raw: bool,
}

/// `cove top`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
On a terminal the figures are updated in place until Ctrl-C. Elsewhere they are printed
once.

Examples:
  cove top
  cove top --interval 500ms
  cove top --all
  cove top --json | jq .sandboxes

Exit codes: 0 shown, 2 wrong usage or refused, 125 no server answers."
)]
pub(crate) struct TopArgs {
    /// Interval of the display
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::duration)]
    pub(crate) interval: Duration,
    /// Maximum number of sessions
    #[arg(long, value_name = "COUNT", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) limit: u32,
    /// Also show the nodes of the cluster and their load; needs an operator's token
    #[arg(long)]
    pub(crate) all: bool,
    /// Print the current state as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Parses a name or id, which becomes part of an address unchanged.
pub(super) fn name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.bytes().all(plain) {
        return Err("ids and names are letters, digits, `_` and `-`".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses `ID` or `ID:PATH`.
fn place(text: &str) -> Result<SessionFilePath, String> {
    match text.split_once(':') {
        Some((id, path)) if !path.is_empty() => {
            Ok(SessionFilePath { id: name(id)?, path: Some(path.to_owned()) })
        }
        Some((id, _)) => Ok(SessionFilePath { id: name(id)?, path: None }),
        None => Ok(SessionFilePath { id: name(text)?, path: None }),
    }
}

/// Parses `ID:PATH`.
fn file(text: &str) -> Result<SessionFilePath, String> {
    let place = place(text)?;
    match &place.path {
        Some(_) => Ok(place),
        None => Err("a file of a session is ID:PATH".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    //! Tests of places, and of the command lines that the documentation shows.

    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, CliCommand};

    #[test]
    fn files_are_named_with_their_session() {
        let check = |text: &str, id: &str, path: Option<&str>| {
            let found = place(text).unwrap();
            assert_eq!((found.id.as_str(), found.path.as_deref()), (id, path), "{text}");
        };
        check("ses_1", "ses_1", None);
        check("ses_1:", "ses_1", None);
        check("ses_1:a:b", "ses_1", Some("a:b"));
        check("ses_1:/etc/hosts", "ses_1", Some("/etc/hosts"));
        assert!(place("a/b:c").is_err() && place(":x").is_err());
        assert!(file("ses_1").is_err() && file("ses_1:x").is_ok());
    }

    #[test]
    fn the_server_may_stand_behind_the_command() {
        for line in ["cove session list --server http://a", "cove session --server http://a list"] {
            let CliCommand::Session(args) = Cli::try_parse_from(line.split(' ')).unwrap().command
            else {
                panic!("{line} is a command for sessions");
            };
            assert_eq!(args.server.server.as_deref(), Some("http://a"), "{line}");
        }
    }

    #[test]
    fn mistakes_are_explained() {
        let check = |line: &str, expected: &str| {
            let message = Cli::try_parse_from(line.split(' ')).unwrap_err().to_string();
            assert!(message.contains(expected), "{line}: {message}");
        };
        check("cove session exec ses_1", "COMMAND");
        check("cove session chat", "ID");
        check("cove session chat ses_1 --agent a", "--agent");
        check("cove session chat ses_1 --model a", "--model");
        check("cove session send ses_1", "TEXT");
        check("cove session info a/b", "letters, digits");
        check("cove session files get ses_1", "ID:PATH");
        check("cove session grants ses_1 --set shop", "postgres:TENANT");
        check("cove session grants ses_1 --set model --none", "--none");
        check("cove session chat ses_1 --grant model", "--grant");
        check("cove session create --grant model --no-grants", "--no-grants");
        check("cove agent update helper", "--grant");
        check("cove agent update helper --grant model --no-grants", "--no-grants");
        check("cove top --limit 0", "1..=200");
    }
}
