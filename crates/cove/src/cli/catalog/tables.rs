//! Command-line definitions of tables.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::super::HELP_TEMPLATE;
use super::{AsOfArgs, PropertyArgs};
use crate::catalog::names::{CatalogName, column, levels, relation};
use crate::values;

/// `cove catalog table`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Examples:
  cove catalog table create shop.orders --column id:long:required --column 'price:decimal(9,2)'
  cove catalog table show shop.orders
  cove catalog table show shop.orders --as-of 2026-11-21T03:05:09Z
  cove catalog table columns shop.orders
  cove catalog table snapshots shop.orders
  cove catalog table history shop.orders --json
  cove catalog table refs shop.orders
  cove catalog table files shop.orders --snapshot 7258950548773449607 --csv > files.csv
  cove catalog table stats shop.orders
  cove catalog table properties shop.orders --set write.format.default=parquet
  cove catalog table register shop.old file:///data/old/metadata/00007-….metadata.json
  cove catalog table rename shop.orders shop.sold
  cove catalog table unregister shop.old
  cove catalog table drop shop.orders --purge"
)]
pub(crate) struct TableArgs {
    #[command(subcommand)]
    pub(crate) command: TableCommand,
}

/// Commands about tables.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TableCommand {
    /// List the tables of a namespace
    #[command(help_template = HELP_TEMPLATE)]
    List {
        /// Name of the namespace
        #[arg(value_name = "NAMESPACE", value_parser = levels)]
        namespace: CatalogName,
        #[command(flatten)]
        as_of: AsOfArgs,
    },
    /// Create an empty table
    Create(Box<CreateTableArgs>),
    /// Show a table: its location, columns, branches, tags and properties
    #[command(help_template = HELP_TEMPLATE)]
    Show {
        /// Name of the table
        #[arg(value_name = "TABLE", value_parser = relation)]
        name: CatalogName,
        #[command(flatten)]
        as_of: AsOfArgs,
    },
    /// List a table's snapshots that have not expired
    #[command(help_template = HELP_TEMPLATE)]
    Snapshots(RowsArgs),
    /// List the times at which each snapshot became the current one
    #[command(help_template = HELP_TEMPLATE)]
    History {
        #[command(flatten)]
        rows: RowsArgs,
        /// List its metadata files instead
        #[arg(long, conflicts_with = "csv")]
        metadata: bool,
    },
    /// List a table's branches and tags
    #[command(help_template = HELP_TEMPLATE)]
    Refs(RowsArgs),
    /// List the data and delete files of a snapshot
    #[command(help_template = HELP_TEMPLATE)]
    Files {
        #[command(flatten)]
        rows: RowsArgs,
        /// Snapshot [default: the current one]
        #[arg(long, value_name = "ID")]
        snapshot: Option<i64>,
    },
    /// Show the health of a table: sizes of files, deletes, partitions, snapshots, recommendations
    #[command(help_template = HELP_TEMPLATE, after_help = "\
Reads only manifests, no data files. Recommends maintenance, and names what performs it:
`cove catalog maintain`, or an engine such as Spark, because Cove writes no data.

Examples:
  cove catalog table stats shop.orders
  cove catalog table stats shop.orders --ref main --json | jq .recommendations")]
    Stats(TableStatsArgs),
    /// List a table's columns, including nested ones
    #[command(help_template = HELP_TEMPLATE)]
    Columns(RowsArgs),
    /// Set and unset properties of a table in one commit
    #[command(help_template = HELP_TEMPLATE)]
    Properties {
        /// Name of the table
        #[arg(value_name = "TABLE", value_parser = relation)]
        name: CatalogName,
        #[command(flatten)]
        change: PropertyArgs,
    },
    /// Rename a table, within its namespace or to another one
    #[command(help_template = HELP_TEMPLATE)]
    Rename {
        /// Name of the table
        #[arg(value_name = "TABLE", value_parser = relation)]
        from: CatalogName,
        /// New name
        #[arg(value_name = "TABLE", value_parser = relation)]
        to: CatalogName,
    },
    /// Register an existing metadata file as a table
    #[command(help_template = HELP_TEMPLATE)]
    Register {
        /// Name of the new table
        #[arg(value_name = "TABLE", value_parser = relation)]
        name: CatalogName,
        /// Location of the metadata file
        #[arg(value_name = "LOCATION")]
        location: String,
        /// Replace the metadata of an existing table of this name
        #[arg(long)]
        overwrite: bool,
    },
    /// Unregister a table: its files stay, and the location of its metadata file is printed
    #[command(help_template = HELP_TEMPLATE)]
    Unregister {
        /// Name of the table
        #[arg(value_name = "TABLE", value_parser = relation)]
        name: CatalogName,
    },
    /// Drop tables
    #[command(help_template = HELP_TEMPLATE)]
    Drop {
        /// Names
        #[arg(required = true, value_name = "TABLE", value_parser = relation)]
        names: Vec<CatalogName>,
        /// Also remove their files
        #[arg(long)]
        purge: bool,
    },
}

/// `cove catalog table stats`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TableStatsArgs {
    /// Name of the table
    #[arg(value_name = "TABLE", value_parser = relation)]
    pub(crate) name: CatalogName,
    /// Snapshot [default: the current one]
    #[arg(long, value_name = "ID", conflicts_with = "reference")]
    pub(crate) snapshot: Option<i64>,
    /// Branch or tag whose snapshot it is
    #[arg(long = "ref", value_name = "NAME")]
    pub(crate) reference: Option<String>,
    #[command(flatten)]
    pub(crate) as_of: AsOfArgs,
}

/// Metadata of a table, in rows.
#[derive(Clone, Debug, Args)]
pub(crate) struct RowsArgs {
    /// Name of the table
    #[arg(value_name = "TABLE", value_parser = relation)]
    pub(crate) name: CatalogName,
    /// Print all fields of each row, as CSV
    #[arg(long)]
    pub(crate) csv: bool,
    #[command(flatten)]
    pub(crate) as_of: AsOfArgs,
}

/// `cove catalog table create`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Types are Iceberg's: boolean, int, long, float, double, decimal(P,S), date, time, timestamp,
timestamptz, string, uuid, fixed[N], binary, and more with --format-version 3. Nested
columns, partitions and orders come from a file: the body of Iceberg's createTable, whose
name may be left out.

Examples:
  cove catalog table create shop.orders --column id:long:required --column at:timestamptz
  cove catalog table create shop.orders --from orders.json --property owner=sales"
)]
pub(crate) struct CreateTableArgs {
    /// Name of the new table
    #[arg(value_name = "TABLE", value_parser = relation)]
    pub(crate) name: CatalogName,
    /// Column; append `:required` to its type if it may not be null
    #[arg(
        long,
        value_name = "NAME:TYPE",
        value_parser = column,
        required_unless_present = "from",
        conflicts_with = "from"
    )]
    pub(crate) column: Vec<(String, String, bool)>,
    /// File with the complete definition, as JSON; `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
    /// A property
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::variable)]
    pub(crate) property: Vec<(String, String)>,
    /// Location of its files [default: below its namespace's or warehouse's location]
    #[arg(long, value_name = "LOCATION")]
    pub(crate) location: Option<String>,
    /// Version of Iceberg's format: 1, 2 or 3 [default: 2]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=3))]
    pub(crate) format_version: Option<u8>,
}
