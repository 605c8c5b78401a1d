//! Recent measurements of a server.

use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Unit of the values of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HistoryUnit {
    /// A number of things.
    Count,
    /// Events in a second.
    PerSecond,
    /// Bytes.
    Bytes,
    /// Bytes in a second.
    BytesPerSecond,
    /// Seconds.
    Seconds,
    /// Cores that are busy: seconds of CPU time in a second.
    Cores,
}

/// Series of what a server measured, with one value for each time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct HistoryReport {
    /// The server that measured: each node of a cluster has a history of its own.
    pub node: String,
    /// Tenant whose own figures these are; without it they are those of the whole server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Milliseconds of a step.
    pub step_ms: u64,
    /// Start of each step, in milliseconds since 1970. The last step is not over.
    pub times_ms: Vec<u64>,
    /// In the order of their names.
    pub series: Vec<HistorySeries>,
    /// Series that had no room in the server's memory.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

/// Series of measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct HistorySeries {
    /// Name, as in the page on history.
    pub name: String,
    /// `tenant` of the bouncer, `class` of verdicts; empty for most.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Unit of the values.
    pub unit: HistoryUnit,
    /// A value for each time; null where nothing was measured.
    pub values: Vec<Option<f32>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
