//! Grants: what the code in a sandbox may reach. Nothing unless it is said here.
//!
//! A grant is no credential: it is a socket inside the sandbox that the server listens on. What
//! comes in there is known by where it comes in, so that there is nothing to steal.

use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A thing that a sandbox may reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Grant {
    /// A tenant of the bouncer that speaks PostgreSQL's protocol, at `localhost:5432`.
    Postgres(DatabaseGrant),
    /// Database that speaks MySQL's protocol, at `localhost:3306`.
    Mysql(DatabaseGrant),
    /// A warehouse of the catalog, at `http://localhost:8181`.
    Catalog(CatalogGrant),
    /// Servers outside, through a proxy at `http://localhost:3128`.
    Http(HttpGrant),
    /// The model, at `http://localhost:8100`.
    Model(ModelGrant),
}

/// Kinds of access that a grant allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GrantAccess {
    /// To read.
    #[default]
    ReadOnly,
    /// To read and to write.
    ReadWrite,
}

/// A database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DatabaseGrant {
    /// Tenant of the bouncer.
    pub tenant: String,
    /// Access that is allowed.
    #[serde(default)]
    pub access: GrantAccess,
    /// User of the tenant whose role on the server is used; the tenant's `server_user` when absent,
    /// or its only user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Schema that names without one mean: `search_path` of PostgreSQL, the database of MySQL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// Port inside; 5432 or 3306 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Limits; those left out are the server's.
    #[serde(default, deserialize_with = "crate::object::one")]
    pub limits: DatabaseGrantLimits,
}

/// Limits of a sandbox on a database. What is left out is as the server's `[gateway]` says; 0 is
/// for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DatabaseGrantLimits {
    /// Connections at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Seconds that a statement may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statement_s: Option<f64>,
    /// Seconds that a transaction may be open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_s: Option<f64>,
    /// Seconds that nothing may happen in an open transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_in_transaction_s: Option<f64>,
    /// Rows that one statement may return.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Bytes of rows that one statement may return.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// A warehouse of the catalog.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CatalogGrant {
    /// Name of the warehouse.
    pub warehouse: String,
    /// Namespaces that are there, with all that is below them, levels divided by `.`; all of the
    /// warehouse when there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Access that is allowed.
    #[serde(default)]
    pub access: GrantAccess,
    /// Port inside; 8181 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// Servers outside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HttpGrant {
    /// The first one that fits a request decides; what fits none is refused.
    #[serde(deserialize_with = "crate::object::many")]
    pub rules: Vec<HttpRule>,
    /// Port inside; 3128 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Limits; those left out are the server's.
    #[serde(default, deserialize_with = "crate::object::one")]
    pub limits: HttpGrantLimits,
}

/// Rule on requests to servers outside. What is left out fits everything, but for the hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HttpRule {
    /// Treatment of a request that matches.
    #[serde(default)]
    pub effect: HttpEffect,
    /// Names of hosts: `example.com`, `*.example.com` for all below it, `*` for all; or addresses.
    pub hosts: Vec<String>,
    /// Ports; 80 and 443 when there is none, and all for a rule that denies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Methods, in upper case. A rule that allows some does not match a tunnel (`CONNECT`), whose
    /// requests are encrypted, unless it names `CONNECT`; a rule that denies some matches every
    /// tunnel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Paths: `/v1/items`, or `/v1/*` for all that begin so. A rule that allows some does not fit
    /// a tunnel; one that denies some fits every tunnel. A path that servers read in different
    /// ways, such as one with `%2f`, `//` or `;`, is refused where a rule looks at paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Headers that are put into each request outside, in place of those that it has: a text, or
    /// the name of one of the server's secrets. A rule that has some does not fit a tunnel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, HeaderSource>,
    /// True if the request goes on over TLS although it came without, which is how headers are put
    /// into requests to `https` servers: `http://api.example.com/` is asked for inside, and
    /// `https://api.example.com/` outside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tls: bool,
    /// True if requests of a session's sandbox carry `cove-session`, its id, and `cove-epoch`, a
    /// number that grows with each server that takes the session over, so that the host can refuse
    /// what a former one has sent. A rule that has it does not fit a tunnel. No program inside can
    /// set these headers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub session_headers: bool,
    /// Networks of internal addresses that its hosts may have, such as `10.1.0.0/16`. Others are
    /// refused, whatever their names are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub internal: Vec<String>,
    /// Networks of addresses that its hosts may not have, such as `8.8.8.0/24`; `0.0.0.0/0` and
    /// `::/0` are all. Looked at when a name has been resolved. Only of a rule that allows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny_networks: Vec<String>,
    /// Networks of addresses that its hosts may have although `deny_networks` has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_networks: Vec<String>,
}

/// Treatment of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HttpEffect {
    /// Sent.
    #[default]
    Allow,
    /// Refused.
    Deny,
}

/// Source of a header's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HeaderSource {
    /// This text, which is not secret: it is shown with the grant.
    Text(String),
    /// The secret of this name in the server's `[gateway.secrets]`.
    Secret(String),
}

/// Limits of a sandbox on its proxy. What is left out is as the server's `[gateway]` says; 0 is for
/// no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct HttpGrantLimits {
    /// Connections at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Requests and tunnels in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Bytes of bodies and tunnels in all, in both directions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// The model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ModelGrant {
    /// Models that may be asked for; every one when there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Tokens that may be used, those of questions and answers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Dollars that may be spent, by the server's table of prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dollars: Option<f64>,
    /// Port inside; 8100 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// Record of what a sandbox did at one of its sockets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AuditRecord {
    /// Number of the record. Numbers grow and may have gaps.
    pub seq: u64,
    /// When it ended (RFC 3339, milliseconds, UTC).
    pub at: String,
    /// Tenant that owns the sandbox.
    pub tenant: String,
    /// The session or execution.
    pub holder: String,
    /// The grant: `postgres:shop`, `http`.
    pub grant: String,
    /// Kind of event.
    pub event: AuditEvent,
    /// Outcome.
    pub outcome: AuditOutcome,
    /// Request: a statement, or a method with a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Why it failed or was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Duration in microseconds.
    pub took_us: u64,
    /// Rows of a statement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Bytes that went out of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<u64>,
    /// Bytes that came into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_in: Option<u64>,
}

/// Kinds of events at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AuditEvent {
    /// A grant was given.
    Granted,
    /// A grant was revoked.
    Revoked,
    /// A connection was made, or refused.
    Connect,
    /// A connection ended.
    Disconnect,
    /// A statement ran.
    Statement,
    /// A request was made, or a tunnel was there.
    Request,
    /// Others were too many to be kept: `rows` of them, from `took_us` before `at` until then.
    Missing,
}

/// Outcomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AuditOutcome {
    /// Succeeded.
    Done,
    /// Failed at the other end.
    Failed,
    /// Refused, because it was not allowed or a limit was reached.
    Refused,
}

/// Answer of `GET /v1/audit`: oldest first, or newest first where that is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AuditRecordList {
    /// This page.
    pub records: Vec<AuditRecord>,
    /// Value of `after` for the next page; none on the last one, and where the newest come first.
    /// A page may be empty and have one: a request looks at 20,000 records at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_after: Option<u64>,
    /// Value of `before` for the next page, where the newest come first; none on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_before: Option<u64>,
    /// Greatest number of a record when this was read: value of `after` for those that come later.
    #[serde(default)]
    pub newest: u64,
}

/// Property by which records of the audit are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AuditSummaryKey {
    /// The host of a request, or else the grant: what was reached.
    #[default]
    Target,
    /// The session or execution.
    Holder,
    /// The grant.
    Grant,
}

/// Answer of `GET /v1/audit/summary`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AuditSummaryReport {
    /// Groups, those with most records first.
    pub groups: Vec<AuditSummaryGroup>,
    /// Records of groups that are not listed.
    pub others: u64,
    /// Value of `before` for the records that were not looked at: a request looks at 20,000. None
    /// where all were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_before: Option<u64>,
}

/// Records of the audit that have something in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AuditSummaryGroup {
    /// Name that they have in common: a target, a session or execution, a grant.
    pub name: String,
    /// Tenant that owns the sandboxes.
    pub tenant: String,
    /// Records.
    pub records: u64,
    /// Records of what was refused.
    pub refused: u64,
    /// Records of what failed.
    pub failed: u64,
    /// Records that were too many to be kept.
    pub missing: u64,
    /// Rows of statements.
    pub rows: u64,
    /// Bytes that went out of sandboxes.
    pub bytes_out: u64,
    /// Bytes that came into them.
    pub bytes_in: u64,
    /// When the first one ended (Unix milliseconds).
    pub first_ms: u64,
    /// When the last one ended.
    pub last_ms: u64,
    /// Distinct targets that were reached or refused, counted up to 1,000.
    pub targets_count: u64,
    /// Some of them, by name.
    pub targets: Vec<String>,
}

/// Values of a grant that all kinds have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantSummary<'a> {
    /// Kind, as in JSON.
    pub kind: &'static str,
    /// Tenant or warehouse that is granted; none where there is only one.
    pub name: Option<&'a str>,
    /// Access that is allowed; none of kinds that know no difference.
    pub access: Option<GrantAccess>,
    /// Port inside.
    pub port: u16,
}

impl Grant {
    /// Returns the values that all kinds have in common.
    #[must_use]
    pub fn summary(&self) -> GrantSummary<'_> {
        let of = |kind, name, access, port| GrantSummary { kind, name, access, port };
        match self {
            Grant::Postgres(it) => {
                of("postgres", Some(&*it.tenant), Some(it.access), it.port.unwrap_or(5432))
            }
            Grant::Mysql(it) => {
                of("mysql", Some(&*it.tenant), Some(it.access), it.port.unwrap_or(3306))
            }
            Grant::Catalog(it) => {
                of("catalog", Some(&*it.warehouse), Some(it.access), it.port.unwrap_or(8181))
            }
            Grant::Http(it) => of("http", None, None, it.port.unwrap_or(3128)),
            Grant::Model(it) => of("model", None, None, it.port.unwrap_or(8100)),
        }
    }

    /// Port inside.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.summary().port
    }

    /// Returns the name in records and messages: `postgres:shop`, `http`.
    #[must_use]
    pub fn label(&self) -> String {
        let GrantSummary { kind, name, .. } = self.summary();
        name.map_or_else(|| kind.to_owned(), |name| format!("{kind}:{name}"))
    }
}
