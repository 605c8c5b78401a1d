//! Command-line definitions of maintenance, protection, retention of dropped objects, and
//! functions.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::super::HELP_TEMPLATE;
use crate::catalog::names::{CatalogName, levels, relation};
use crate::values;

/// `cove catalog maintain`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
A job runs on the server and continues when this command ends; `show` prints its progress,
`cancel` stops it. A job whose server stopped is `interrupted`: run it again to complete it.
With --dry-run nothing is changed, and the files to be removed are listed.

Examples:
  cove catalog maintain expire-snapshots --all --dry-run
  cove catalog maintain expire-snapshots shop.orders --delete-files --clean-metadata
  cove catalog maintain clean-metadata --namespace shop
  cove catalog maintain list
  cove catalog maintain show mj_0f8a3c1e-…
  cove catalog maintain cancel mj_0f8a3c1e-…"
)]
pub(crate) struct MaintainArgs {
    #[command(subcommand)]
    pub(crate) command: MaintainCommand,
}

/// Commands about maintenance of tables.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum MaintainCommand {
    /// Expire snapshots, branches and tags according to the tables' properties
    #[command(help_template = HELP_TEMPLATE)]
    ExpireSnapshots {
        #[command(flatten)]
        scope: MaintainedArgs,
        /// Also remove files that only those snapshots reference
        #[arg(long)]
        delete_files: bool,
        /// Then remove unreferenced metadata files
        #[arg(long)]
        clean_metadata: bool,
        #[command(flatten)]
        job: JobArgs,
    },
    /// Remove metadata files that neither the table nor the log of changes references
    #[command(help_template = HELP_TEMPLATE)]
    CleanMetadata {
        #[command(flatten)]
        scope: MaintainedArgs,
        #[command(flatten)]
        job: JobArgs,
    },
    /// List the jobs of a warehouse
    #[command(help_template = HELP_TEMPLATE)]
    List,
    /// Show the progress of a job, and what it removed
    #[command(help_template = HELP_TEMPLATE)]
    Show {
        /// Id of the job
        #[arg(value_name = "ID")]
        id: String,
        /// Wait until it has ended
        #[arg(long)]
        wait: bool,
    },
    /// Stop jobs; completed work is kept
    #[command(help_template = HELP_TEMPLATE)]
    Cancel {
        /// Ids
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

/// Tables that a job maintains.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct MaintainedArgs {
    /// Tables
    #[arg(value_name = "TABLE", value_parser = relation)]
    pub(crate) tables: Vec<CatalogName>,
    /// All tables of a namespace and of namespaces in it
    #[arg(long, value_name = "NAMESPACE", value_parser = levels)]
    pub(crate) namespace: Option<CatalogName>,
    /// All tables of the warehouse
    #[arg(long)]
    pub(crate) all: bool,
}

/// Options of a job's run.
#[derive(Clone, Debug, Args)]
pub(crate) struct JobArgs {
    /// Only list what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the job's id and do not wait for its end
    #[arg(long)]
    pub(crate) detach: bool,
}

/// `cove catalog protection`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
A protected object can be changed, but not dropped, renamed, unregistered or overwritten.

Examples:
  cove catalog protection on --table shop.orders
  cove catalog protection on --namespace shop
  cove catalog protection show --table shop.orders
  cove catalog protection off --table shop.orders"
)]
pub(crate) struct ProtectionArgs {
    #[command(subcommand)]
    pub(crate) command: ProtectionCommand,
}

/// Commands about protection.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ProtectionCommand {
    /// Protect a namespace, table or view
    #[command(help_template = HELP_TEMPLATE)]
    On(ThingArgs),
    /// Remove the protection that `on` set; the property `protected` is separate
    #[command(help_template = HELP_TEMPLATE)]
    Off(ThingArgs),
    /// Show whether an object is protected, and by which setting
    #[command(
        help_template = HELP_TEMPLATE,
        override_usage = "cove catalog protection show [OPTIONS] --namespace|--table|--view NAME"
    )]
    Show(ThingArgs),
}

/// Arguments that name one object of a warehouse.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ThingArgs {
    /// A namespace
    #[arg(long, value_name = "NAMESPACE", value_parser = levels)]
    pub(crate) namespace: Option<CatalogName>,
    /// A table
    #[arg(long, value_name = "TABLE", value_parser = relation)]
    pub(crate) table: Option<CatalogName>,
    /// A view
    #[arg(long, value_name = "VIEW", value_parser = relation)]
    pub(crate) view: Option<CatalogName>,
}

/// `cove catalog retention`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
How long dropped tables and views of a warehouse can be restored. The property
`undrop.retention` of a namespace overrides it.

Examples:
  cove catalog retention show
  cove catalog retention set 7d
  cove catalog retention set none
  cove catalog retention reset
  cove catalog namespace properties shop --set undrop.retention=12h"
)]
pub(crate) struct RetentionArgs {
    #[command(subcommand)]
    pub(crate) command: RetentionCommand,
}

/// Commands about the retention.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RetentionCommand {
    /// Show it
    #[command(help_template = HELP_TEMPLATE)]
    Show,
    /// Set it for future drops
    #[command(help_template = HELP_TEMPLATE)]
    Set {
        /// The time, such as 7d, or `none`: dropped tables are removed at once
        #[arg(value_name = "TIME", value_parser = keep)]
        time: Duration,
    },
    /// Use the configured value
    #[command(help_template = HELP_TEMPLATE)]
    Reset,
}

/// Parses a time; `none` and `0` are zero.
fn keep(text: &str) -> Result<Duration, String> {
    if matches!(text, "none" | "0") { Ok(Duration::ZERO) } else { values::duration(text) }
}

/// `cove catalog function`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
A function is a document that engines read: `FunctionMetadata` of Iceberg's interface.

Examples:
  cove catalog function list shop
  cove catalog function show shop.add_one
  cove catalog function add shop.add_one --from add_one.json
  cove catalog function remove shop.add_one"
)]
pub(crate) struct FunctionArgs {
    #[command(subcommand)]
    pub(crate) command: FunctionCommand,
}

/// Commands about functions.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum FunctionCommand {
    /// List the functions of a namespace
    #[command(help_template = HELP_TEMPLATE)]
    List {
        /// Name of the namespace
        #[arg(value_name = "NAMESPACE", value_parser = levels)]
        namespace: CatalogName,
    },
    /// Show a function: parameters, result and definitions
    #[command(help_template = HELP_TEMPLATE)]
    Show {
        /// Name of the function
        #[arg(value_name = "FUNCTION", value_parser = relation)]
        name: CatalogName,
    },
    /// Create a function from a document
    #[command(help_template = HELP_TEMPLATE)]
    Add {
        /// Name of the function
        #[arg(value_name = "FUNCTION", value_parser = relation)]
        name: CatalogName,
        /// File with its document, as JSON; `-` for standard input
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
        /// Replace an existing function of this name
        #[arg(long)]
        overwrite: bool,
    },
    /// Remove functions
    #[command(help_template = HELP_TEMPLATE)]
    Remove {
        /// Names
        #[arg(required = true, value_name = "FUNCTION", value_parser = relation)]
        names: Vec<CatalogName>,
    },
}
