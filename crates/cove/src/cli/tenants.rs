//! Command-line definitions of `cove tenant` and `cove bouncer`.

use std::path::PathBuf;
use std::time::Duration;

use api::{PoolMode, TenantEngine};
use clap::{Args, Subcommand, ValueEnum};

use super::common::HELP_TEMPLATE;
use super::remote::ServerArgs;
use crate::values;

/// Maximum length of a tenant's name.
const NAME_BYTES_MAX: usize = 63;

/// `cove tenant`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
A tenant is a database behind the bouncer. These commands need an operator's token with the
scope `tenants`, such as that of the data directory. Tenants of the configuration file are
listed, but can be changed only in the file.

Examples:
  cove tenant add shop --postgres db:5432 --user app --password-file app.password
  psql 'host=127.0.0.1 port=6432 dbname=shop user=app'
  cove tenant add blog --mysql db:3306 --user app --password-file app.password
  mariadb -h 127.0.0.1 -P 6433 -u app -p blog
  cove tenant list
  cove tenant show shop --connections
  cove tenant pause shop && cove tenant resume shop
  cove tenant drain shop
  cove tenant reconnect shop
  cove tenant remove blog

Exit codes: 0 done, 2 wrong usage or refused, 125 no server answers."
)]
pub(crate) struct TenantArgs {
    #[command(subcommand)]
    pub(crate) command: TenantCommand,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Commands about tenants.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Create or change a tenant
    Add(Box<AddTenantArgs>),
    /// List tenants with their figures
    List,
    /// Show a tenant's definition, activity and health
    #[command(help_template = HELP_TEMPLATE)]
    Show {
        /// Name of the tenant
        #[arg(value_name = "NAME", value_parser = name)]
        name: String,
        /// Also list its clients and server connections
        #[arg(long)]
        connections: bool,
    },
    /// Make clients wait before their next transaction
    #[command(help_template = HELP_TEMPLATE)]
    Pause {
        /// Names of tenants
        #[arg(required = true, value_name = "NAME", value_parser = name)]
        names: Vec<String>,
        /// Reject clients instead of making them wait
        #[arg(long)]
        refuse: bool,
    },
    /// Accept work again, after a pause or a drain
    Resume(NamesArgs),
    /// Accept no new clients, and disconnect the others after their transactions
    Drain(NamesArgs),
    /// Reopen all server connections, as they become idle
    Reconnect(NamesArgs),
    /// Remove tenants; their clients and server connections are closed at once
    Remove(NamesArgs),
}

/// Names of tenants.
#[derive(Clone, Debug, Args)]
#[command(help_template = HELP_TEMPLATE)]
pub(crate) struct NamesArgs {
    /// Names of tenants
    #[arg(required = true, value_name = "NAME", value_parser = name)]
    pub(crate) names: Vec<String>,
}

/// `cove tenant add`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Passwords come from files, because every user can read a command line; `-` is standard
input. A password may be given as the server stores it: a SCRAM secret or an MD5 hash of
PostgreSQL, or the hash of mysql_native_password.
--from reads the definition from a file, in the format of a [[bouncer.tenants]] table (.toml)
or of the API (.json); other options override it.

Examples:
  cove tenant add shop --postgres db:5432 --user app --password-file app.password
  cove tenant add shop --postgres /run/postgresql --database shop_2 --mode session \\
    --user app --password-file - --limit server_connections_max=40 --limit wait_s=5
  cove tenant add shop --replace --from shop.toml"
)]
pub(crate) struct AddTenantArgs {
    /// Name of the tenant
    #[arg(value_name = "NAME", value_parser = name)]
    pub(crate) name: String,
    /// Address of the PostgreSQL server, directory of its socket, or a server of the configuration
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) postgres: Option<String>,
    /// Address of the MySQL or MariaDB server, its socket, or a server of the configuration
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "postgres")]
    pub(crate) mysql: Option<String>,
    /// Protocol of the server, if --from does not name it: postgres, or mysql, also for MariaDB
    #[arg(long, value_name = "ENGINE", hide_possible_values = true, conflicts_with_all = ["postgres", "mysql"])]
    pub(crate) engine: Option<DatabaseEngine>,
    /// Database there [default: the tenant's name]
    #[arg(long, value_name = "DATABASE")]
    pub(crate) database: Option<String>,
    /// When a server connection returns to the pool: after each transaction, after each statement,
    /// or when its client disconnects (session)
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<PoolModeArg>,
    /// User that may log in
    #[arg(long, value_name = "USER", requires = "password_file")]
    pub(crate) user: Option<String>,
    /// File with its password
    #[arg(long, value_name = "FILE", requires = "user")]
    pub(crate) password_file: Option<PathBuf>,
    /// Role of all users on the server
    #[arg(long, value_name = "ROLE")]
    pub(crate) server_user: Option<String>,
    /// File with the password of that role
    #[arg(long, value_name = "FILE", requires = "server_user")]
    pub(crate) server_password_file: Option<PathBuf>,
    /// Make all transactions read-only
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Weight among the tenants of a shared server
    #[arg(long, value_name = "NUMBER")]
    pub(crate) weight: Option<u32>,
    /// A limit, such as server_connections_max=40
    #[arg(long, value_name = "NAME=NUMBER", value_parser = values::variable)]
    pub(crate) limit: Vec<(String, String)>,
    /// A setting of every server connection, such as statement_timeout=5s
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::variable)]
    pub(crate) set: Vec<(String, String)>,
    /// File with the complete definition
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
    /// Change the tenant of this name
    #[arg(long)]
    pub(crate) replace: bool,
}

/// Protocol of a database server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DatabaseEngine {
    Postgres,
    Mysql,
}

impl From<DatabaseEngine> for TenantEngine {
    fn from(engine: DatabaseEngine) -> TenantEngine {
        match engine {
            DatabaseEngine::Postgres => TenantEngine::Postgres,
            DatabaseEngine::Mysql => TenantEngine::Mysql,
        }
    }
}

/// Pool mode: when a server connection returns to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PoolModeArg {
    Session,
    Transaction,
    Statement,
}

impl From<PoolModeArg> for PoolMode {
    fn from(mode: PoolModeArg) -> PoolMode {
        match mode {
            PoolModeArg::Session => PoolMode::Session,
            PoolModeArg::Transaction => PoolMode::Transaction,
            PoolModeArg::Statement => PoolMode::Statement,
        }
    }
}

/// `cove bouncer`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Without a command it runs only the bouncer: tenants of the [bouncer] table, no HTTP, no
sandboxes, no data directory. `cove serve` includes it, with everything else.

SIGHUP reads the configuration again. SIGTERM stops it when running transactions have
ended; a second one stops it at once.

Examples:
  cove bouncer --config cove.toml
  cove bouncer --pgbouncer-ini pgbouncer.ini
  cove bouncer top
  cove bouncer reload

Exit codes: 0 stopped by a signal, 1 cannot start, 2 wrong usage."
)]
pub(crate) struct BouncerArgs {
    #[command(subcommand)]
    pub(crate) command: Option<BouncerCommand>,
    /// Read a configuration file of PgBouncer instead, and handle signals as PgBouncer does
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "data_dir"])]
    pub(crate) pgbouncer_ini: Option<PathBuf>,
    /// Take over the listeners and clients of the bouncer that was started with the same FILE, a
    /// socket, if there is one; and let the next one do so
    #[arg(long, value_name = "FILE", conflicts_with = "pgbouncer_ini")]
    pub(crate) takeover: Option<PathBuf>,
    /// With --pgbouncer-ini: write log lines to its logfile only
    #[arg(long, short, requires = "pgbouncer_ini")]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Commands about a bouncer.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BouncerCommand {
    /// Run only the bouncer; the same as without a command
    #[command(
        help_template = HELP_TEMPLATE,
        after_help = "\
Examples:
  cove bouncer serve --config cove.toml

Exit codes: 0 stopped by a signal, 1 cannot start, 2 wrong usage."
    )]
    Serve,
    /// Hold a server's handover until the next server, at standard input, takes it
    #[command(hide = true)]
    KeepHandover {
        /// Socket of the server that hands over
        socket: PathBuf,
    },
    /// Watch a server's tenants: clients, connections, transactions and their times
    Top(BouncerTopArgs),
    /// Reload a server's configuration
    #[command(help_template = HELP_TEMPLATE)]
    Reload {
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
    },
}

/// `cove bouncer top`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
On a terminal the figures are updated in place until Ctrl-C. Elsewhere they are printed
once."
)]
pub(crate) struct BouncerTopArgs {
    /// Interval of the display
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::duration)]
    pub(crate) interval: Duration,
    /// Print the current state as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses a name. Accepts only letters, digits, `_` and `-`, because the name becomes part of a URL
/// path.
fn name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.bytes().all(plain) {
        return Err("names are up to 63 letters, digits, `_` and `-`".to_owned());
    }
    Ok(text.to_owned())
}
