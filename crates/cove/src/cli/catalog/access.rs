//! Command-line definitions of access control: roles, keys of clients, policies, and the audit.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::super::HELP_TEMPLATE;
use crate::catalog::names::{CatalogName, ColumnCondition, comparison, relation};
use crate::values;

/// `cove catalog role`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Grants to `role:NAME` apply to all members of the role. Members are principals:
`client:ID`, `tenant:NAME`, `oidc:ISSUER:SUBJECT` and `group:ISSUER:GROUP`.

Examples:
  cove catalog role add etl --member client:cl_4Q2M8V3T5W
  cove catalog grant add role:etl write --namespace shop
  cove catalog role give etl tenant:team group:okta:engineers
  cove catalog role take etl tenant:team
  cove catalog role show etl
  cove catalog role list
  cove catalog role remove etl"
)]
pub(crate) struct RoleArgs {
    #[command(subcommand)]
    pub(crate) command: RoleCommand,
}

/// Commands about roles.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RoleCommand {
    /// List roles and the number of their members
    #[command(help_template = HELP_TEMPLATE)]
    List,
    /// Create a role
    #[command(help_template = HELP_TEMPLATE)]
    Add {
        /// Name of the new role
        #[arg(value_name = "ROLE")]
        name: String,
        /// Initial members
        #[arg(long, value_name = "PRINCIPAL")]
        member: Vec<String>,
    },
    /// Show the members of a role, and its privileges in a warehouse
    #[command(help_template = HELP_TEMPLATE)]
    Show {
        /// Name of the role
        #[arg(value_name = "ROLE")]
        name: String,
    },
    /// Assign a role to principals
    #[command(help_template = HELP_TEMPLATE)]
    Give {
        /// Name of the role
        #[arg(value_name = "ROLE")]
        name: String,
        /// Members to add
        #[arg(required = true, value_name = "PRINCIPAL")]
        members: Vec<String>,
    },
    /// Revoke a role from principals
    #[command(help_template = HELP_TEMPLATE)]
    Take {
        /// Name of the role
        #[arg(value_name = "ROLE")]
        name: String,
        /// Members to remove
        #[arg(required = true, value_name = "PRINCIPAL")]
        members: Vec<String>,
    },
    /// Remove roles with their grants
    #[command(help_template = HELP_TEMPLATE)]
    Remove {
        /// Names
        #[arg(required = true, value_name = "ROLE")]
        names: Vec<String>,
    },
}

/// `cove catalog key`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
An API key authenticates its client, and is sent as a bearer token. `add` and `rotate` print
the key on standard output. It is shown only once.

Examples:
  key=$(cove catalog key add cl_4Q2M8V3T5W ci --expires 90d)
  cove catalog key list cl_4Q2M8V3T5W
  cove catalog key rotate cl_4Q2M8V3T5W ck_7H3M9Q --grace 1h
  cove catalog key remove cl_4Q2M8V3T5W ck_7H3M9Q"
)]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    pub(crate) command: KeyCommand,
}

/// Commands about API keys.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// List a client's keys with their expiry and last use
    #[command(help_template = HELP_TEMPLATE)]
    List {
        /// The client's id, as `principal list` shows it
        #[arg(value_name = "CLIENT")]
        client: String,
    },
    /// Create a key and print it; it is not shown again
    #[command(help_template = HELP_TEMPLATE)]
    Add {
        /// The client's id
        #[arg(value_name = "CLIENT")]
        client: String,
        /// Name of the new key
        #[arg(value_name = "NAME")]
        name: String,
        /// Time for which it is valid, such as 90d [default: until it is removed]
        #[arg(long, value_name = "TIME", value_parser = values::duration)]
        expires: Option<Duration>,
    },
    /// Replace a key's secret and print the new one; it is not shown again
    #[command(help_template = HELP_TEMPLATE)]
    Rotate {
        /// The client's id
        #[arg(value_name = "CLIENT")]
        client: String,
        /// The key's id, as `list` shows it
        #[arg(value_name = "KEY")]
        key: String,
        /// Time for which the old secret stays valid, such as 1h [default: none]
        #[arg(long, value_name = "TIME", value_parser = values::duration)]
        grace: Option<Duration>,
    },
    /// Remove keys
    #[command(help_template = HELP_TEMPLATE)]
    Remove {
        /// The client's id
        #[arg(value_name = "CLIENT")]
        client: String,
        /// The keys' ids
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
    },
}

/// `cove catalog policy`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
A policy restricts a principal to a part of a table: it filters rows and masks columns. The
principal gets no credentials for the table's files unless --trusted, because the files
contain everything. Operators are never restricted.

Examples:
  cove catalog policy set eu-only --principal role:bi --table shop.orders \\
    --where region=EU --where 'price<1000' --column email=sha-256-global
  cove catalog policy set eu-only --principal '*' --table shop.orders --filter filter.json
  cove catalog policy list
  cove catalog policy show eu-only
  cove catalog policy remove eu-only"
)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

/// Commands about policies.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// List the policies of a warehouse
    #[command(help_template = HELP_TEMPLATE)]
    List {
        /// Only those of this principal
        #[arg(long, value_name = "PRINCIPAL")]
        principal: Option<String>,
        /// Only those of this table
        #[arg(long, value_name = "TABLE", value_parser = relation)]
        table: Option<CatalogName>,
    },
    /// Show a policy
    #[command(help_template = HELP_TEMPLATE)]
    Show {
        /// Name of the policy
        #[arg(value_name = "POLICY")]
        name: String,
    },
    /// Create or replace a policy
    Set(Box<SetPolicyArgs>),
    /// Remove policies: the principals they restricted have their full privileges again
    #[command(help_template = HELP_TEMPLATE)]
    Remove {
        /// Names
        #[arg(required = true, value_name = "POLICY")]
        names: Vec<String>,
    },
}

/// `cove catalog policy set`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
A condition is a column, one of = != < <= > >= and a value; several are joined by `and`. A
value that looks like a number, true or false is one: quote it if it is text, as in
--where 'zip=\"01067\"'. Other filters come from a file, in Iceberg's JSON format.

Masks of a column: mask-alphanum, show-first-4, show-last-4, sha-256-global,
sha-256-query-local, truncate-to-year, truncate-to-month, mask-to-fixed-value and
replace-with-null.

Examples:
  cove catalog policy set eu-only --principal role:bi --table shop.orders --where region=EU
  cove catalog policy set no-mail --principal '*' --table shop.people \\
    --column email=sha-256-global --column phone=show-last-4"
)]
pub(crate) struct SetPolicyArgs {
    /// Name of the policy
    #[arg(value_name = "POLICY")]
    pub(crate) name: String,
    /// Restricted principal: a principal, a role, or `*` for all
    #[arg(long, value_name = "PRINCIPAL")]
    pub(crate) principal: String,
    /// Table
    #[arg(long, value_name = "TABLE", value_parser = relation)]
    pub(crate) table: CatalogName,
    /// Condition of the rows that the principal may read
    #[arg(long = "where", value_name = "CONDITION", value_parser = comparison)]
    pub(crate) conditions: Vec<ColumnCondition>,
    /// File with this condition, as JSON; `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "conditions")]
    pub(crate) filter: Option<PathBuf>,
    /// Column, and the way it is masked
    #[arg(long, value_name = "NAME=HOW", value_parser = values::variable)]
    pub(crate) column: Vec<(String, String)>,
    /// Vend credentials for the table's files: the principal's engine enforces the policy
    #[arg(long)]
    pub(crate) trusted: bool,
}

/// `cove catalog audit`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Each line is one request that changed something, issued credentials, or was refused: time,
principal, operation, outcome and path, newest last. With --follow the command runs until
Ctrl-C; with --json each line is one document.

Examples:
  cove catalog audit --since 1h --outcome refused
  cove catalog audit --principal client:cl_4Q2M8V3T5W --operation drop-table
  cove catalog audit --path /catalog/v1/main/namespaces/shop --follow
  cove catalog audit --since 2026-11-21T00:00:00Z --limit 100000 --json > audit.jsonl"
)]
pub(crate) struct AuditArgs {
    /// Only records of this principal
    #[arg(long, value_name = "PRINCIPAL")]
    pub(crate) principal: Option<String>,
    /// Only this operation, such as drop-table
    #[arg(long, value_name = "NAME")]
    pub(crate) operation: Option<String>,
    /// Only records with this outcome: done, refused or failed
    #[arg(long, value_name = "OUTCOME", value_parser = ["done", "refused", "failed"])]
    pub(crate) outcome: Option<String>,
    /// Only paths with this prefix
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// Start: a time such as 2026-11-21T03:05:09Z, or an age such as 1h
    #[arg(long, value_name = "TIME", value_parser = values::moment_ms)]
    pub(crate) since: Option<u64>,
    /// End: a time, or an age
    #[arg(long, value_name = "TIME", value_parser = values::moment_ms,
        conflicts_with = "follow")]
    pub(crate) until: Option<u64>,
    /// Maximum number of records; the newest are shown
    #[arg(long, value_name = "COUNT", default_value = "100")]
    pub(crate) limit: usize,
    /// Follow new records
    #[arg(long)]
    pub(crate) follow: bool,
}
