//! Languages that the server can run.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Answer of `GET /v1/languages`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct LanguageList {
    /// Every configured language, available or not, by name.
    pub languages: Vec<LanguageView>,
}

/// A language and whether it can be used on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Language"))]
pub struct LanguageView {
    /// Canonical name, as given in `ExecutionRequest.language`.
    pub name: String,
    /// Other names that are accepted.
    pub aliases: Vec<String>,
    /// File name extensions that select it on the command line, without the dot.
    pub extensions: Vec<String>,
    /// First line of what the tool prints for its version, when it is available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// True if a compile stage precedes the run stage.
    pub compiled: bool,
    /// True if programs in it can be run here.
    pub available: bool,
    /// True while files that its compiler uses, such as a standard library, are being prepared.
    /// Compiling is slow until then.
    #[serde(default, skip_serializing_if = "is_false")]
    pub preparing: bool,
    /// Why not, when it is not available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references to predicates")]
fn is_false(value: &bool) -> bool {
    !value
}
