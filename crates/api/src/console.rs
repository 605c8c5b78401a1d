//! Identity of a caller, and sign-ins at the console.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Credential that a caller showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CredentialKind {
    /// An API token.
    Token,
    /// A sign-in of the console.
    Console,
    /// A token of an identity provider.
    Issued,
}

/// Services that a server has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct EnabledServices {
    /// Programs that are run once.
    pub executions: bool,
    /// Asynchronous executions.
    pub queue: bool,
    /// Sessions and agents.
    pub sessions: bool,
    /// The pooler of databases.
    pub bouncer: bool,
    /// The Iceberg catalog.
    pub catalog: bool,
    /// Grants of sandboxes.
    pub gateway: bool,
}

/// Caller of a request, and what the server has for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Whoami"))]
pub struct WhoamiView {
    /// Name of the token.
    pub name: String,
    /// Credential that was shown.
    pub kind: CredentialKind,
    /// Tenant that the token belongs to.
    pub tenant: String,
    /// Scopes: `executions`, `sessions`, `agents`, `tokens`, `tenants`, `catalog`.
    pub scopes: Vec<String>,
    /// True if it is an operator's token, which may use operations on all tenants.
    pub operator: bool,
    /// When it ends by itself, in milliseconds since 1970; absent when it lasts until it is
    /// revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// Version of Cove.
    pub version: String,
    /// Id of the server that answers.
    pub node: String,
    /// Services that it has.
    pub services: EnabledServices,
}

/// Request for a code that lets one page of the console sign in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "CreateConsoleCode"))]
#[serde(deny_unknown_fields)]
pub struct ConsoleCodeRequest {
    /// Scopes of the sign-in, at most those of the token; left out, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
}

/// A code that lets one page of the console sign in, once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ConsoleCode"))]
pub struct ConsoleCodeView {
    /// The code.
    pub code: String,
    /// When it ends, in milliseconds since 1970.
    pub expires_ms: u64,
    /// Path of the console with the code in the fragment, which browsers do not send.
    pub url_path: String,
}

impl std::fmt::Debug for ConsoleCodeView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsoleCodeView")
            .field("expires_ms", &self.expires_ms)
            .finish_non_exhaustive()
    }
}

/// Redemption of a code.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ConsoleLogin {
    /// The code.
    pub code: String,
}

impl std::fmt::Debug for ConsoleLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConsoleLogin(..)")
    }
}

/// A sign-in of the console.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ConsoleSession"))]
pub struct ConsoleLoginAnswer {
    /// The token of the sign-in, to be sent as any other.
    pub token: String,
    /// When it ends by itself, in milliseconds since 1970.
    pub expires_ms: u64,
}

impl std::fmt::Debug for ConsoleLoginAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsoleLoginAnswer")
            .field("expires_ms", &self.expires_ms)
            .finish_non_exhaustive()
    }
}
