//! Command-line definitions of `cove audit`: records of the use of grants by sandboxes.

use std::num::NonZeroUsize;

use api::{AuditEvent, AuditOutcome, AuditSummaryKey};
use clap::{Args, ValueEnum};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::common::HELP_TEMPLATE;
use super::remote::ServerArgs;
use crate::values;

/// `cove audit`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
Prints every grant that was created or revoked, every connection, statement, catalog call
and request of a sandbox, and every refusal; oldest first, or newest first with --order desc.
Missing records are shown by number. --follow runs until Ctrl-C; --summary counts accesses.
Statements are recorded without their values unless the server is configured otherwise. A
token sees the records of its tenant's sandboxes, an operator's token all records. See
`cove exec --help` for the sources of the token.

Events: granted, revoked, connect, disconnect, statement, request, missing.
Outcomes: done, failed, refused.

Examples:
  cove audit --holder $id
  cove audit --outcome refused --all
  cove audit --order desc --since 2h --text DROP
  cove audit --holder $id --follow
  cove audit --summary target --since 1d
  cove audit --all --csv > audit.csv
  cove audit --holder $id --event statement --json | jq -r 'select(.took_us > 1e6).text'

Exit codes: 0 shown, 2 wrong usage or refused, 125 no server answers."
)]
pub(crate) struct SandboxAuditArgs {
    /// Only records of this session or execution
    #[arg(long, value_name = "ID")]
    pub(crate) holder: Option<String>,
    /// Only records of this tenant's sandboxes; needs an operator's token
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// Only records of this kind
    #[arg(long, value_name = "EVENT", value_parser = event)]
    pub(crate) event: Option<AuditEvent>,
    /// Only records with this outcome
    #[arg(long, value_name = "OUTCOME", value_parser = outcome)]
    pub(crate) outcome: Option<AuditOutcome>,
    /// Only records of this grant, such as postgres:shop
    #[arg(long, value_name = "GRANT")]
    pub(crate) grant: Option<String>,
    /// Only records with this in the text or the error
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Start: a time such as 2026-11-21T03:05:09Z, or an age such as 1h
    #[arg(long, value_name = "TIME", value_parser = values::moment_ms)]
    pub(crate) since: Option<u64>,
    /// End: a time, or an age
    #[arg(long, value_name = "TIME", value_parser = values::moment_ms)]
    pub(crate) until: Option<u64>,
    /// Order of the records: the oldest or the newest first
    #[arg(long, value_enum, default_value_t = RecordOrder::Asc, hide_default_value = true)]
    pub(crate) order: RecordOrder,
    /// Only records after the one with this number
    #[arg(long, value_name = "NUMBER")]
    pub(crate) after: Option<u64>,
    /// Only records before the one with this number
    #[arg(long, value_name = "NUMBER")]
    pub(crate) before: Option<u64>,
    /// Follow new records, or those after --after
    #[arg(long, conflicts_with_all = ["limit", "all", "before", "until", "order", "summary"])]
    pub(crate) follow: bool,
    /// Count records by target, holder or grant instead of showing them
    #[arg(long, value_name = "BY", value_parser = summary,
        conflicts_with_all = ["order", "all", "csv"])]
    pub(crate) summary: Option<AuditSummaryKey>,
    /// Number of records to show
    #[arg(long, value_name = "COUNT", default_value = "100")]
    pub(crate) limit: NonZeroUsize,
    /// Fetch all pages
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
    /// Print each record as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print records as comma-separated values with a heading (RFC 4180)
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Order of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordOrder {
    // The option's help describes the values: help of a value would make clap use its long layout.
    Asc,
    Desc,
}

fn summary(text: &str) -> Result<AuditSummaryKey, String> {
    parse_word(text).ok_or_else(|| "there are target, holder and grant".to_owned())
}

fn event(text: &str) -> Result<AuditEvent, String> {
    parse_word(text).ok_or_else(|| {
        "there are granted, revoked, connect, disconnect, statement, request and missing".to_owned()
    })
}

fn outcome(text: &str) -> Result<AuditOutcome, String> {
    parse_word(text).ok_or_else(|| "there are done, failed and refused".to_owned())
}

/// Parses a value from its name in the API.
fn parse_word<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_value(Value::from(text)).ok()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, CliCommand};

    #[test]
    fn what_is_asked_for_is_known() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        let line = "cove audit --holder ses_1 --event statement --outcome refused --limit 7";
        let CliCommand::Audit(args) = parse(line).unwrap().command else { panic!("{line}") };
        assert_eq!((args.event, args.limit.get()), (Some(AuditEvent::Statement), 7));
        assert_eq!(args.outcome, Some(AuditOutcome::Refused));
        for (line, expected) in [
            ("cove audit --event query", "statement"),
            ("cove audit --outcome ok", "done"),
            ("cove audit --limit 0", "--limit"),
            ("cove audit --limit 5 --all", "--all"),
            ("cove audit --follow --order desc", "--order"),
            ("cove audit --summary tenant", "holder"),
            ("cove audit --csv --json", "--json"),
            ("cove audit --since yesterday", "--since"),
        ] {
            let message = parse(line).unwrap_err().to_string();
            assert!(message.contains(expected), "{line}: {message}");
        }
    }
}
