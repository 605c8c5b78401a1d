//! Command-line definitions of `cove catalog`.

mod access;
mod tables;
mod upkeep;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

pub(crate) use self::access::{
    AuditArgs, KeyArgs, KeyCommand, PolicyArgs, PolicyCommand, RoleArgs, RoleCommand, SetPolicyArgs,
};
pub(crate) use self::tables::{CreateTableArgs, RowsArgs, TableArgs, TableCommand, TableStatsArgs};
pub(crate) use self::upkeep::{
    FunctionArgs, FunctionCommand, JobArgs, MaintainArgs, MaintainCommand, MaintainedArgs,
    ProtectionArgs, ProtectionCommand, RetentionArgs, RetentionCommand, ThingArgs,
};
use super::common::{HELP_TEMPLATE, SharedKeyArgs};
use super::remote::ServerArgs;
use crate::catalog::names::{CatalogName, column, levels, relation};
use crate::percent::escaped;
use crate::values;

/// `cove catalog`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Namespaces and names are separated by dots: `shop.eu.orders`. A dot within a name is
written `\\.`: `shop.v1\\.5` is `v1.5` in `shop`. Without --warehouse, commands use the
server's first one.

See `cove exec --help` for the choice of the server and the token; a client's access
token works, too.

Examples:
  cove catalog serve
  cove catalog namespace create shop
  cove catalog table create shop.orders --column id:long:required --column note:string
  cove catalog table show shop.orders
  cove catalog principal add spark && cove catalog grant add client:ID write --namespace shop
  cove catalog table list shop --json | jq .identifiers

Exit codes: 0 done, 2 wrong usage or refused, 125 no server answers or it will not do it."
)]
pub(crate) struct CatalogArgs {
    #[command(subcommand)]
    pub(crate) command: CatalogCommand,
    /// Warehouse [default: the server's first]
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) warehouse: Option<String>,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Commands about a catalog.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum CatalogCommand {
    /// Run only the catalog: no sandboxes, no bouncer
    Serve(CatalogServeArgs),
    /// Create namespaces; list, show, change and drop them
    Namespace(NamespaceArgs),
    /// Create tables; list, show, rename, register, change and drop them
    Table(TableArgs),
    /// Create views; list, show, rename, change and drop them
    View(ViewArgs),
    /// Create warehouses; list, show, change and remove them
    Warehouse(WarehouseArgs),
    /// Create clients of the catalog, list and remove them, change their secrets
    Principal(PrincipalArgs),
    /// Create API keys of a client, list and remove them, change their secrets
    Key(KeyArgs),
    /// Create roles, list and remove them, assign them to principals
    Role(RoleArgs),
    /// Grant privileges, list and revoke them
    Grant(GrantArgs),
    /// Restrict principals to some rows or columns of a table
    Policy(PolicyArgs),
    /// Show the audit log, and follow it
    Audit(AuditArgs),
    /// Create functions; list, show and remove them
    Function(FunctionArgs),
    /// Expire snapshots, and remove unreferenced files
    Maintain(MaintainArgs),
    /// Protect namespaces, tables and views from being dropped
    Protection(ProtectionArgs),
    /// Set how long dropped tables and views can be restored
    Retention(RetentionArgs),
    /// List dropped tables and views; restore them or remove them permanently
    Undrop(UndropArgs),
    /// Show the log of changes, and follow it
    Changes(ChangesArgs),
    /// Find namespaces, tables, views and columns by their names
    Search(CatalogSearchArgs),
}

/// `cove catalog warehouse`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
A warehouse is the directory or the bucket that contains namespaces and tables. That of the
configuration always exists. A bucket's key comes from a JSON file: access-key-id,
secret-access-key, session-token. Keys of --storage: see docs/catalog-warehouses.md.

Examples:
  cove catalog warehouse add lake --root s3://bucket/lake --credentials-file key.json \\
    --storage region=eu-west-1 --storage vended-credentials=true
  cove catalog warehouse list
  cove catalog warehouse show lake
  cove catalog warehouse set lake --status read-only
  cove catalog warehouse remove lake"
)]
pub(crate) struct WarehouseArgs {
    #[command(subcommand)]
    pub(crate) command: WarehouseCommand,
}

/// Commands about warehouses.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum WarehouseCommand {
    /// List warehouses
    #[command(help_template = HELP_TEMPLATE)]
    List,
    /// Show a warehouse: its location, status and contents
    #[command(help_template = HELP_TEMPLATE)]
    Show {
        /// Name of the warehouse
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Create a warehouse; it can be used at once
    #[command(help_template = HELP_TEMPLATE)]
    Add {
        /// Name of the new warehouse
        #[arg(value_name = "NAME")]
        name: String,
        /// Location: s3://BUCKET/PREFIX, or file:///DIRECTORY
        #[arg(long, value_name = "LOCATION")]
        root: String,
        #[command(flatten)]
        settings: WarehouseSettings,
    },
    /// Change a warehouse; omitted settings stay
    #[command(help_template = HELP_TEMPLATE)]
    Set {
        /// Name of the warehouse
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        settings: WarehouseSettings,
    },
    /// Remove warehouses that are empty; no file is removed
    #[command(help_template = HELP_TEMPLATE)]
    Remove {
        /// Names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Remove it even if it is protected
        #[arg(long)]
        force: bool,
    },
}

/// Settings of a warehouse beside its name and location.
#[derive(Clone, Debug, Args)]
pub(crate) struct WarehouseSettings {
    /// Additional location below which tables may be
    #[arg(long, value_name = "LOCATION")]
    pub(crate) location: Vec<String>,
    /// Status, which says whether it can be changed and removed
    #[arg(long, value_name = "STATUS", value_parser = ["active", "read-only", "protected"])]
    pub(crate) status: Option<String>,
    /// A setting of its bucket, such as region=eu-west-1
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::variable)]
    pub(crate) storage: Vec<(String, String)>,
    /// File with the key of its bucket, as JSON; `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) credentials_file: Option<PathBuf>,
    /// File with the complete definition, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
}

/// `cove catalog undrop`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Examples:
  cove catalog undrop list
  cove catalog undrop restore tb_4Q2M8V3T5W --name shop.orders_again
  cove catalog undrop purge tb_4Q2M8V3T5W"
)]
pub(crate) struct UndropArgs {
    #[command(subcommand)]
    pub(crate) command: UndropCommand,
}

/// Commands about what was dropped.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum UndropCommand {
    /// List the objects that can be restored, and their deadlines
    #[command(help_template = HELP_TEMPLATE)]
    List {
        /// Only relations of this namespace
        #[arg(value_name = "NAMESPACE", value_parser = levels)]
        namespace: Option<CatalogName>,
    },
    /// Restore a table or view
    #[command(help_template = HELP_TEMPLATE)]
    Restore {
        /// Id of the dropped object, as `list` shows it
        #[arg(value_name = "ID")]
        id: String,
        /// New name [default: its former name]
        #[arg(long, value_name = "NAME", value_parser = relation)]
        name: Option<CatalogName>,
    },
    /// Remove dropped tables and views permanently, with their files
    #[command(help_template = HELP_TEMPLATE)]
    Purge {
        /// Ids
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

/// `cove catalog changes`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Each change is one line: number, time, action, object. With --follow the command runs until
Ctrl-C, also across restarts of the server; with --json each change is one document.

Examples:
  cove catalog changes --table shop.orders
  cove catalog changes --after latest --follow
  cove catalog changes --after 1200 --follow --json | jq -r .action"
)]
pub(crate) struct ChangesArgs {
    /// Number of the last change already seen, or `latest` [default: the log's beginning]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) after: Option<String>,
    /// Only changes of this namespace and its contents
    #[arg(long, value_name = "NAMESPACE", value_parser = levels)]
    pub(crate) namespace: Option<CatalogName>,
    /// Only changes of this table or view
    #[arg(long, value_name = "TABLE", value_parser = relation, conflicts_with = "namespace")]
    pub(crate) table: Option<CatalogName>,
    /// Maximum number of entries
    #[arg(long, value_name = "COUNT")]
    pub(crate) limit: Option<u64>,
    /// Follow new changes
    #[arg(long)]
    pub(crate) follow: bool,
}

/// `cove catalog search`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Searches the objects that the token may list, ignoring case: namespaces, then tables and
views, then columns. The columns of at most 100 tables are searched.

Examples:
  cove catalog search order
  cove catalog search mail --json | jq -r 'select(.kind == \"column\").column'"
)]
pub(crate) struct CatalogSearchArgs {
    /// Part of the name
    #[arg(value_name = "TEXT")]
    pub(crate) text: String,
    /// Maximum number of entries, up to 500
    #[arg(long, value_name = "COUNT", default_value = "50")]
    pub(crate) limit: usize,
}

/// `cove catalog serve`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Settings are those of `cove serve`: the file, the environment, then these flags; only
[catalog], [store], [limits], [log], http and drain_s matter. The first start makes an
API token, which `cove token` prints. A data directory has one server at a time.

Examples:
  cove catalog serve
  cove catalog serve --http 0.0.0.0:8181 --config cove.toml
  COVE_STORE__URL=postgres://cove@db/cove cove catalog serve

Exit codes: 0 stopped by a signal, 1 cannot start, 2 wrong usage."
)]
pub(crate) struct CatalogServeArgs {
    /// Address to listen at for HTTP; port 0 takes any free one [default: 127.0.0.1:4100]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) http: Option<String>,
    /// Least severe log lines to write: off, error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// Form of log lines: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
    #[command(flatten)]
    pub(crate) keys: SharedKeyArgs,
}

/// `cove catalog namespace`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Examples:
  cove catalog namespace create shop --property owner=sales
  cove catalog namespace create shop.eu
  cove catalog namespace list shop
  cove catalog namespace show shop
  cove catalog namespace properties shop --set owner=eu --unset old
  cove catalog namespace drop shop.eu"
)]
pub(crate) struct NamespaceArgs {
    #[command(subcommand)]
    pub(crate) command: NamespaceCommand,
}

/// Commands about namespaces.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum NamespaceCommand {
    /// List namespaces of the first level, or those in a namespace
    #[command(help_template = HELP_TEMPLATE)]
    List {
        /// Parent namespace
        #[arg(value_name = "NAMESPACE", value_parser = levels)]
        parent: Option<CatalogName>,
        #[command(flatten)]
        as_of: AsOfArgs,
    },
    /// Create a namespace; its parent must exist
    #[command(help_template = HELP_TEMPLATE)]
    Create {
        /// Name of the namespace
        #[arg(value_name = "NAMESPACE", value_parser = levels)]
        name: CatalogName,
        /// A property
        #[arg(long, value_name = "NAME=VALUE", value_parser = values::variable)]
        property: Vec<(String, String)>,
    },
    /// Show a namespace's properties
    #[command(help_template = HELP_TEMPLATE)]
    Show {
        /// Name of the namespace
        #[arg(value_name = "NAMESPACE", value_parser = levels)]
        name: CatalogName,
    },
    /// Set and unset properties of a namespace in one commit
    #[command(help_template = HELP_TEMPLATE)]
    Properties {
        /// Name of the namespace
        #[arg(value_name = "NAMESPACE", value_parser = levels)]
        name: CatalogName,
        #[command(flatten)]
        change: PropertyArgs,
    },
    /// Drop empty namespaces
    #[command(help_template = HELP_TEMPLATE)]
    Drop {
        /// Names
        #[arg(required = true, value_name = "NAMESPACE", value_parser = levels)]
        names: Vec<CatalogName>,
    },
}

/// The moment that is asked about.
#[derive(Clone, Debug, Args)]
pub(crate) struct AsOfArgs {
    /// State after the change of this number, or at this time: 2026-11-21T03:05:09Z
    #[arg(long, value_name = "MOMENT")]
    pub(crate) as_of: Option<String>,
}

impl AsOfArgs {
    /// Appends the moment, if there is one, to a path as the query parameter `as-of`.
    pub(crate) fn laid_on(&self, mut path: String) -> String {
        if let Some(moment) = &self.as_of {
            let sign = if path.contains('?') { '&' } else { '?' };
            path.push_str(&format!("{sign}as-of={}", escaped(moment)));
        }
        path
    }
}

/// Properties to be set and unset.
#[derive(Clone, Debug, Args)]
pub(crate) struct PropertyArgs {
    /// A property to set
    #[arg(
        long,
        value_name = "NAME=VALUE",
        value_parser = values::variable,
        required_unless_present = "unset"
    )]
    pub(crate) set: Vec<(String, String)>,
    /// Name of a property to remove
    #[arg(long, value_name = "NAME")]
    pub(crate) unset: Vec<String>,
}

/// `cove catalog view`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Examples:
  cove catalog view create shop.recent --sql 'select id from shop.orders' --column id:long
  cove catalog view list shop
  cove catalog view show shop.recent
  cove catalog view properties shop.recent --set owner=sales
  cove catalog view register shop.old file:///data/old/metadata/00001-….metadata.json
  cove catalog view rename shop.recent shop.latest
  cove catalog view drop shop.latest"
)]
pub(crate) struct ViewArgs {
    #[command(subcommand)]
    pub(crate) command: ViewCommand,
}

/// Commands about views.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ViewCommand {
    /// List the views of a namespace
    #[command(help_template = HELP_TEMPLATE)]
    List {
        /// Name of the namespace
        #[arg(value_name = "NAMESPACE", value_parser = levels)]
        namespace: CatalogName,
        #[command(flatten)]
        as_of: AsOfArgs,
    },
    /// Create a view
    #[command(help_template = HELP_TEMPLATE)]
    Create {
        /// Name of the view
        #[arg(value_name = "VIEW", value_parser = relation)]
        name: CatalogName,
        /// Query of the view
        #[arg(long, value_name = "TEXT")]
        sql: String,
        /// Dialect of the SQL
        #[arg(long, value_name = "NAME", default_value = "spark")]
        dialect: String,
        /// A column of its result
        #[arg(long, required = true, value_name = "NAME:TYPE", value_parser = column)]
        column: Vec<(String, String, bool)>,
        /// A property
        #[arg(long, value_name = "NAME=VALUE", value_parser = values::variable)]
        property: Vec<(String, String)>,
    },
    /// Show a view: its columns, its query in each dialect, properties
    #[command(help_template = HELP_TEMPLATE)]
    Show {
        /// Name of the view
        #[arg(value_name = "VIEW", value_parser = relation)]
        name: CatalogName,
        #[command(flatten)]
        as_of: AsOfArgs,
    },
    /// Register an existing metadata file as a view
    #[command(help_template = HELP_TEMPLATE)]
    Register {
        /// Name of the new view
        #[arg(value_name = "VIEW", value_parser = relation)]
        name: CatalogName,
        /// Location of the metadata file
        #[arg(value_name = "LOCATION")]
        location: String,
    },
    /// Set and unset properties of a view in one commit
    #[command(help_template = HELP_TEMPLATE)]
    Properties {
        /// Name of the view
        #[arg(value_name = "VIEW", value_parser = relation)]
        name: CatalogName,
        #[command(flatten)]
        change: PropertyArgs,
    },
    /// Rename a view
    #[command(help_template = HELP_TEMPLATE)]
    Rename {
        /// Name of the view
        #[arg(value_name = "VIEW", value_parser = relation)]
        from: CatalogName,
        /// New name
        #[arg(value_name = "VIEW", value_parser = relation)]
        to: CatalogName,
    },
    /// Drop views
    #[command(help_template = HELP_TEMPLATE)]
    Drop {
        /// Names
        #[arg(required = true, value_name = "VIEW", value_parser = relation)]
        names: Vec<CatalogName>,
    },
}

/// `cove catalog principal`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
A client of the catalog has an id and a secret, and exchanges them for access tokens with
OAuth 2. `add` and `rotate` print `ID:SECRET` on standard output, which is the `credential`
of Iceberg's clients. The secret is shown only once.

Examples:
  credential=$(cove catalog principal add spark)
  cove catalog principal rotate cl_4Q2M8V3T5W --grace 1h
  cove catalog principal list
  cove catalog principal remove cl_4Q2M8V3T5W"
)]
pub(crate) struct PrincipalArgs {
    #[command(subcommand)]
    pub(crate) command: PrincipalCommand,
}

/// Commands about clients.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PrincipalCommand {
    /// Create a client and print its id and secret; the secret is not shown again
    #[command(help_template = HELP_TEMPLATE)]
    Add {
        /// Name of the new client
        #[arg(value_name = "NAME")]
        name: String,
        /// Grant it all privileges
        #[arg(long)]
        operator: bool,
    },
    /// List clients, without secrets
    #[command(help_template = HELP_TEMPLATE)]
    List,
    /// Replace a client's secret and print the new one; it is not shown again
    #[command(help_template = HELP_TEMPLATE)]
    Rotate {
        /// Id of the client, as `list` shows it
        #[arg(value_name = "ID")]
        id: String,
        /// Time for which the old secret stays valid, such as 1h [default: none]
        #[arg(long, value_name = "TIME", value_parser = values::duration)]
        grace: Option<Duration>,
    },
    /// Remove clients with their tokens and grants
    #[command(help_template = HELP_TEMPLATE)]
    Remove {
        /// Ids
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

/// `cove catalog grant`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Privileges are read, write (includes read), manage (includes write), and grant: to grant
one's own privileges. A privilege on an object includes all objects in it; without
--namespace, --table or --view it is on the whole warehouse. Principals are `client:ID` and
`tenant:NAME`.

Examples:
  cove catalog grant add client:cl_4Q2M8V3T5W read,write --namespace shop
  cove catalog grant add tenant:team read --table shop.orders
  cove catalog grant list --principal tenant:team
  cove catalog grant revoke tenant:team read --table shop.orders"
)]
pub(crate) struct GrantArgs {
    #[command(subcommand)]
    pub(crate) command: GrantCommand,
}

/// Commands about rights.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum GrantCommand {
    /// Grant privileges
    #[command(help_template = HELP_TEMPLATE)]
    Add(GrantedArgs),
    /// List the privileges granted in a warehouse
    #[command(help_template = HELP_TEMPLATE)]
    List {
        /// Only those of this principal
        #[arg(long, value_name = "PRINCIPAL")]
        principal: Option<String>,
    },
    /// Revoke privileges that were granted on exactly this object
    #[command(help_template = HELP_TEMPLATE)]
    Revoke(GrantedArgs),
}

/// Rights of a principal on an object.
#[derive(Clone, Debug, Args)]
pub(crate) struct GrantedArgs {
    /// Principal
    #[arg(value_name = "PRINCIPAL")]
    pub(crate) principal: String,
    /// Privileges, separated by commas: read, write, manage, grant
    #[arg(value_name = "RIGHT", required = true, value_delimiter = ',',
        value_parser = ["read", "write", "manage", "grant"])]
    pub(crate) rights: Vec<String>,
    /// On a namespace and its contents
    #[arg(long, value_name = "NAMESPACE", value_parser = levels)]
    pub(crate) namespace: Option<CatalogName>,
    /// On a table
    #[arg(long, value_name = "TABLE", value_parser = relation, conflicts_with = "namespace")]
    pub(crate) table: Option<CatalogName>,
    /// On a view
    #[arg(long, value_name = "VIEW", value_parser = relation,
        conflicts_with_all = ["namespace", "table"])]
    pub(crate) view: Option<CatalogName>,
}
