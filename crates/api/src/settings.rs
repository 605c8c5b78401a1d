//! Settings of a server as its operators see them, and the mark of those that are secret.

use std::fmt;
use std::marker::PhantomData;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name under which [`secret_setting`] asks for a value, so that whoever describes settings by
/// their types knows which must not be shown.
pub const SECRET_SETTING: &str = "cove::SecretSetting";

/// Counterpart of [`SECRET_SETTING`] for [`secret_address`].
pub const SECRET_ADDRESS: &str = "cove::SecretAddress";

/// Reads a field of the configuration that is a secret. What is read is the same as without it:
/// `#[serde(deserialize_with = "api::secret_setting")]` marks the field for the commands that show
/// the configuration.
///
/// # Errors
/// Those of the value.
pub fn secret_setting<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_newtype_struct(SECRET_SETTING, MarkedValue(PhantomData))
}

/// Reads a field of the configuration that is an address and may hold a password.
///
/// # Errors
/// Those of the value.
pub fn secret_address<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_newtype_struct(SECRET_ADDRESS, MarkedValue(PhantomData))
}

/// Visitor that reads the value as if it had no mark.
struct MarkedValue<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for MarkedValue<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a secret")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<T, D::Error> {
        T::deserialize(value)
    }
}

/// Source of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SettingOriginKind {
    /// The default: no source sets it.
    Default,
    /// The configuration file.
    File,
    /// A variable of the environment.
    Environment,
    /// A flag of the command line.
    Flag,
}

/// Place where a setting's value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SettingOrigin {
    /// Kind of the place.
    pub kind: SettingOriginKind,
    /// Path of the file, name of the variable, or the flag; absent for a default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Line in the file, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}

/// A setting in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Setting"))]
pub struct SettingView {
    /// Path of the setting, such as `executions.queue_max`.
    pub key: String,
    /// Value; null where nothing is set and the server decides. In place of a secret stands `…`; a
    /// reference to one (`env:NAME`, `file:PATH`) is shown.
    pub value: Value,
    /// Default value; null if the server chooses it.
    pub default: Value,
    /// Source of the value.
    pub origin: SettingOrigin,
    /// True if the value, or a part of it, is a secret that is not shown.
    pub masked: bool,
    /// True if a change is taken over while the server runs; false if it needs a restart.
    pub reloadable: bool,
}

/// Configuration of a server that is in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Config"))]
pub struct ConfigView {
    /// Configuration file that was read; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Settings, in the order of the documentation.
    pub settings: Vec<SettingView>,
}

/// Answer of `POST /v1/reload`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ConfigReloaded {
    /// Settings whose new values are in force from now on, and `tls.cert` when its files changed.
    pub taken_over: Vec<String>,
    /// Settings that changed and are taken over only by a restart.
    pub restart_needed_for: Vec<String>,
}

/// An API token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Token"))]
pub struct TokenView {
    /// Id, by which it is revoked.
    pub id: String,
    /// Name given by its owner.
    pub name: String,
    /// When it was made (RFC 3339).
    pub created: String,
    /// True if it is an operator's token, which may use operations on all tenants.
    pub operator: bool,
    /// Tenant that it belongs to; null for a tenant of its own, named like the id.
    pub tenant: Option<String>,
    /// Scopes: `executions`, `sessions`, `agents`, `tokens`, `tenants`, `catalog`.
    pub scopes: Vec<String>,
    /// When it ends by itself (RFC 3339); null when it lasts until it is revoked.
    pub expires: Option<String>,
    /// True if it has ended by itself.
    pub expired: bool,
}

/// All API tokens of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TokenList {
    /// Tokens, the oldest first.
    pub tokens: Vec<TokenView>,
}
