//! Parsers of grants such as `postgres:shop:rw`, `http:api.example.com` or `model`, and
//! command-line definitions of `cove grants`.

use std::fs;

use api::{CatalogGrant, DatabaseGrant, Grant, GrantAccess, HttpGrant, HttpRule, ModelGrant};
use clap::{Args, Subcommand};

use super::common::HELP_TEMPLATE;
use super::remote::ServerArgs;

/// Parser of the part of a short form after its colon.
type FormParser = fn(&str) -> Result<Grant, String>;

/// Short forms with a name: kind, syntax of the rest, and its parser.
const NAMED_FORMS: [(&str, &str, FormParser); 4] = [
    ("postgres", "TENANT[:rw]", |rest| database(rest).map(Grant::Postgres)),
    ("mysql", "TENANT[:rw]", |rest| database(rest).map(Grant::Mysql)),
    ("catalog", "WAREHOUSE[:rw]", catalog),
    ("http", "HOST[,HOST...]", http),
];
/// Short form of the model, which has no name.
const MODEL_FORM: &str = "model";
/// Suffix of a grant with write access.
const READ_WRITE: &str = ":rw";
/// Largest size of a file with a grant, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// `cove grants`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Grants give code in a sandbox access to databases, warehouses, external servers and the model.
A token may create those that the server's [[gateway.offers]] have for its tenant; an
operator's token with the scope `tenants` may create all. `cove session create --grant` and
`cove session grants` create them. See `cove exec --help` for the sources of the token.

Examples:
  cove grants offers
  cove grants check postgres:shop:rw model

Exit codes: 0 done, 1 a grant would be refused, 2 wrong usage or refused, 125 no server answers."
)]
pub(crate) struct SandboxGrantArgs {
    #[command(subcommand)]
    pub(crate) command: SandboxGrantCommand,
}

/// Questions about grants.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SandboxGrantCommand {
    /// List the grants that the token may create, and their limits
    #[command(help_template = HELP_TEMPLATE, after_help = "\
Examples:
  cove grants offers
  cove grants offers --json | jq -r '.offers[] | select(.kind == \"postgres\").tenant'")]
    Offers(SandboxGrantOffersArgs),
    /// Check whether each grant would be accepted, and why not; creates nothing
    #[command(help_template = HELP_TEMPLATE, after_help = "\
Examples:
  cove grants check postgres:shop
  cove grants check postgres:shop:rw catalog:lake http:api.example.com model
  cove grants check '{\"kind\": \"postgres\", \"tenant\": \"shop\", \"limits\": {\"rows\": 10}}'
  cove grants check @grant.json --json | jq .environment

Exit codes: 0 all would be given, 1 one would be refused, 2 wrong usage, 125 no server answers.")]
    Check(SandboxGrantCheckArgs),
}

/// `cove grants offers`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SandboxGrantOffersArgs {
    #[command(flatten)]
    pub(crate) output: SandboxGrantOutputArgs,
}

/// `cove grants check`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SandboxGrantCheckArgs {
    /// Grants of one sandbox: postgres:TENANT, mysql:TENANT or catalog:WAREHOUSE, with :rw to
    /// write, http:HOST[,HOST...], model, @FILE.json or a JSON object
    #[arg(value_name = "GRANT", value_parser = parse_grant, required = true)]
    pub(crate) grants: Vec<Grant>,
    #[command(flatten)]
    pub(crate) output: SandboxGrantOutputArgs,
}

/// Form of the answer, and which server is asked.
#[derive(Clone, Debug, Args)]
pub(crate) struct SandboxGrantOutputArgs {
    /// Print the answer as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

impl SandboxGrantCommand {
    /// Returns the output options and the server of the command.
    pub(crate) fn output(&self) -> &SandboxGrantOutputArgs {
        match self {
            SandboxGrantCommand::Offers(args) => &args.output,
            SandboxGrantCommand::Check(args) => &args.output,
        }
    }
}

/// Options about grants.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct GrantOptions {
    /// Grants of sandboxes, instead of those set elsewhere: postgres:TENANT, mysql:TENANT or
    /// catalog:WAREHOUSE, with :rw to write, http:HOST[,HOST...], model, @FILE.json or a JSON
    /// object
    #[arg(long = "grant", value_name = "GRANT", value_parser = parse_grant)]
    grants: Vec<Grant>,
    /// No grants, regardless of those set elsewhere
    #[arg(long, conflicts_with = "grants")]
    no_grants: bool,
}

impl GrantOptions {
    /// Returns the grants; `None` if neither grants nor `--no-grants` were specified.
    pub(crate) fn chosen(&self) -> Option<Vec<Grant>> {
        (self.no_grants || !self.grants.is_empty()).then(|| self.grants.clone())
    }
}

/// Parses a grant: a short form, or the JSON of the API for options that the short form lacks.
pub(crate) fn parse_grant(text: &str) -> Result<Grant, String> {
    if let Some(path) = text.strip_prefix('@') {
        let reading = |error| format!("read `{path}`: {error}");
        if fs::metadata(path).map_err(reading)?.len() > FILE_BYTES_MAX {
            return Err(format!("`{path}` has more than {FILE_BYTES_MAX} bytes"));
        }
        let content = fs::read_to_string(path).map_err(reading)?;
        return json(&content).map_err(|problem| format!("`{path}`: {problem}"));
    }
    if text.trim_start().starts_with('{') {
        return json(text);
    }
    let (kind, rest) = text.split_once(':').map_or((text, None), |(kind, it)| (kind, Some(it)));
    let form = NAMED_FORMS.iter().find(|(known, _, _)| *known == kind);
    match (form, rest) {
        (Some((_, _, parse)), Some(rest)) => parse(rest),
        (None, None) if kind == MODEL_FORM => Ok(Grant::Model(ModelGrant::default())),
        _ => Err(format!("must be one of {}", forms())),
    }
}

/// Lists all forms of a grant, for an error message.
fn forms() -> String {
    let named = NAMED_FORMS.map(|(kind, rest, _)| format!("{kind}:{rest}")).join(", ");
    format!("{named}, {MODEL_FORM}, @FILE.json or a JSON object")
}

fn catalog(text: &str) -> Result<Grant, String> {
    let (warehouse, access) = named(text, "a warehouse")?;
    Ok(Grant::Catalog(CatalogGrant { warehouse, access, ..CatalogGrant::default() }))
}

fn http(text: &str) -> Result<Grant, String> {
    let hosts: Result<Vec<String>, String> = text.split(',').map(host).collect();
    let rule = HttpRule { hosts: hosts?, ..HttpRule::default() };
    Ok(Grant::Http(HttpGrant { rules: vec![rule], ..HttpGrant::default() }))
}

fn json(text: &str) -> Result<Grant, String> {
    serde_json::from_str(text).map_err(|error| format!("invalid grant: {error}"))
}

fn database(text: &str) -> Result<DatabaseGrant, String> {
    let (tenant, access) = named(text, "a tenant")?;
    Ok(DatabaseGrant { tenant, access, ..DatabaseGrant::default() })
}

/// Parses a name and the access to it.
fn named(text: &str, what: &str) -> Result<(String, GrantAccess), String> {
    let (name, access) = match text.strip_suffix(READ_WRITE) {
        Some(name) => (name, GrantAccess::ReadWrite),
        None => (text, GrantAccess::ReadOnly),
    };
    if name.is_empty() || name.contains(':') {
        return Err(format!("`{text}` is not {what}, or {what} and {READ_WRITE}"));
    }
    Ok((name.to_owned(), access))
}

/// Parses a host. A colon may only be part of an IP address: ports are specified in JSON.
fn host(text: &str) -> Result<String, String> {
    let is_address = text.parse::<std::net::IpAddr>().is_ok();
    if text.is_empty() || text.contains([':', '/']) && !is_address {
        return Err(format!("`{text}` is not a host name; specify ports and paths in JSON"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn grants_are_said_in_short_and_in_json() {
        let scratch = testkit::Scratch::new();
        let file = scratch.path().join("grant.json");
        fs::write(&file, r#"{"kind": "mysql", "tenant": "blog", "port": 3307}"#).unwrap();
        let file = format!("@{}", file.display());
        let database = |kind: &str, tenant: &str, access: &str| {
            Some(json!({"kind": kind, "tenant": tenant, "access": access, "limits": {}}))
        };
        let catalog =
            |access: &str| Some(json!({"kind": "catalog", "warehouse": "lake", "access": access}));
        let http = |hosts: &[&str]| {
            let rule = json!({"effect": "allow", "hosts": hosts});
            Some(json!({"kind": "http", "rules": [rule], "limits": {}}))
        };
        let file_says = json!({
            "kind": "mysql", "tenant": "blog", "access": "read_only", "port": 3307, "limits": {}
        });
        for (text, expected) in [
            ("postgres:shop", database("postgres", "shop", "read_only")),
            ("postgres:shop:rw", database("postgres", "shop", "read_write")),
            ("mysql:blog:rw", database("mysql", "blog", "read_write")),
            ("catalog:lake", catalog("read_only")),
            ("catalog:lake:rw", catalog("read_write")),
            ("http:example.com", http(&["example.com"])),
            ("http:a.example,*.b.example,::1", http(&["a.example", "*.b.example", "::1"])),
            ("model", Some(json!({"kind": "model"}))),
            (&file, Some(file_says)),
            (r#"{"kind":"model","tokens":7}"#, Some(json!({"kind": "model", "tokens": 7}))),
            (r#"{"kind":"model","tokns":7}"#, None),
            (r#"{"kind":"redis"}"#, None),
            ("@/nowhere/at/all.json", None),
            ("postgres", None),
            ("postgres:", None),
            ("postgres::rw", None),
            ("postgres:shop:ro", None),
            ("postgres:a:b:rw", None),
            ("http", None),
            ("http:", None),
            ("http:a,,b", None),
            ("http:a:80", None),
            ("http:a/b", None),
            ("model:opus", None),
            ("redis:x", None),
            ("", None),
        ] {
            let parsed = parse_grant(text).ok().map(|grant| json!(grant));
            assert_eq!(parsed, expected, "{text:?}");
        }
    }
}
