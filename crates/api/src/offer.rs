//! Offers of grants: what the holder of a token may give to sandboxes, and whether grants would be
//! given.

use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{DatabaseGrantLimits, ErrorCode, Grant, GrantAccess, HttpGrantLimits};

/// Answer of `GET /v1/gateway/offers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct GrantOfferList {
    /// Tenant of the token.
    pub tenant: String,
    /// True if the token may give every grant that this server can serve, with any limits: that of
    /// an operator with the scope `tenants`. The offers are then what the server has.
    pub unrestricted: bool,
    /// Offers, by kind and name. Two of one name differ in their access or roles, which belong
    /// together.
    pub offers: Vec<OfferedGrant>,
    /// True if there are more than are listed here: 1,000.
    pub truncated: bool,
    /// Limits of grants.
    pub limits: GrantOfferLimits,
}

/// Limits that grants have where they name none. A token that is not `unrestricted` may name less
/// and not more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct GrantOfferLimits {
    /// Grants of one sandbox.
    pub grants: u64,
    /// Limits of databases; 0 is for no limit.
    pub database: DatabaseGrantLimits,
    /// Limits of servers outside; 0 is for no limit.
    pub http: HttpGrantLimits,
    /// Tokens that all `model` grants of the tenant may use together in all; none
    /// without such a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_tokens: Option<u64>,
}

/// A grant that may be given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OfferedGrant {
    /// A tenant of the bouncer that speaks PostgreSQL's protocol.
    Postgres(OfferedDatabase),
    /// A tenant of the bouncer that speaks MySQL's protocol.
    Mysql(OfferedDatabase),
    /// A warehouse of the catalog.
    Catalog(OfferedWarehouse),
    /// Servers outside.
    Http(OfferedHosts),
    /// The model.
    Model(OfferedModel),
}

/// A database that may be granted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct OfferedDatabase {
    /// Tenant of the bouncer.
    pub tenant: String,
    /// Access that a grant may have.
    pub access: Vec<GrantAccess>,
    /// Roles that a grant may name.
    pub roles: Vec<String>,
    /// True if a grant has to name one of them: the tenant has no role of its own for sandboxes.
    #[serde(default)]
    pub role_required: bool,
    /// Port inside where a grant names none.
    pub port: u16,
    /// Reason why it cannot be granted at present; absent when it can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}

/// A warehouse that may be granted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct OfferedWarehouse {
    /// Name of the warehouse.
    pub warehouse: String,
    /// Access that a grant may have.
    pub access: Vec<GrantAccess>,
    /// Port inside where a grant names none.
    pub port: u16,
    /// Reason why it cannot be granted at present; absent when it can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}

/// Servers outside that rules of a grant may allow. What one offer lists belongs together: its
/// secrets and networks are for its hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct OfferedHosts {
    /// Patterns of hosts: rules may name them and what is below them.
    pub hosts: Vec<String>,
    /// Ports that rules may name; all when there is none.
    pub ports: Vec<u16>,
    /// Names of secrets that rules may put into headers. Their values are in no answer.
    pub secrets: Vec<String>,
    /// Networks of internal addresses that rules may name.
    pub internal: Vec<String>,
    /// Port inside where a grant names none.
    pub port: u16,
}

/// The model, where it may be granted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct OfferedModel {
    /// Models with a price, of which a grant can count `dollars`.
    pub priced_models: Vec<String>,
    /// Port inside where a grant names none.
    pub port: u16,
    /// Reason why it cannot be granted at present; absent when it can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}

/// Body of `POST /v1/gateway/offers/check`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GrantCheckRequest {
    /// Grants of one sandbox.
    #[serde(deserialize_with = "crate::object::many")]
    pub grants: Vec<Grant>,
}

/// Answer of `POST /v1/gateway/offers/check`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct GrantCheckReport {
    /// True if a sandbox would be given all of them.
    pub given: bool,
    /// Each grant, in the order of the request.
    pub grants: Vec<CheckedGrant>,
    /// Variables that programs of the sandbox would find; none unless all grants would be given.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

/// A grant that was checked. Nothing was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct CheckedGrant {
    /// Name of the grant: `postgres:shop`, `http`.
    pub grant: String,
    /// Port inside.
    pub port: u16,
    /// True if it would be given.
    pub given: bool,
    /// Reason why it would not be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<GrantRefusal>,
}

/// Reason why a grant would not be given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct GrantRefusal {
    /// `forbidden` for what is not offered to the token's tenant, `invalid_request` for what this
    /// server cannot serve as it is said.
    pub code: ErrorCode,
    /// A sentence.
    pub message: String,
    /// Part of the request that is refused: `grants[1].tenant`.
    pub field: String,
}
