//! Isolation mechanisms of a machine, and the consequences of missing ones.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::LanguageView;

/// Result of a check of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// Present.
    Ok,
    /// Absent; a feature is lost, but not safety.
    Note,
    /// Absent; untrusted code cannot be run.
    Missing,
}

/// A check of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct DoctorCheck {
    /// Name of the check.
    pub name: String,
    /// Result.
    pub status: CheckStatus,
    /// Findings, in words.
    pub found: String,
    /// Consequence and remedy, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<String>,
}

/// Report about a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct DoctorReport {
    /// True if untrusted code can be run here.
    pub ok: bool,
    /// Version of Cove.
    pub version: String,
    /// True if the checks ran as root.
    pub root: bool,
    /// Checks, in the order in which they were made.
    pub checks: Vec<DoctorCheck>,
    /// Languages, and which of them can be used.
    pub languages: Vec<LanguageView>,
}

/// Report that a server made of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct DoctorRun {
    /// Id of the server.
    pub node: String,
    /// When the checks began, in milliseconds since 1970.
    pub started_ms: u64,
    /// Time that they took, in milliseconds.
    pub took_ms: u64,
    /// The report.
    pub report: DoctorReport,
}

/// Checks of a server: those that are under way, and the last report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Doctor"))]
pub struct DoctorView {
    /// True while checks are under way.
    pub running: bool,
    /// The last report; absent until the first is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<DoctorRun>,
}
