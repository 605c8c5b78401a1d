//! Bodies of requests, and representations of sandboxes.

use std::collections::BTreeMap;

use api::{SessionState, SessionView, SnapshotView};
use node::clock::rfc3339_of_ms as time;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::BASE;
use crate::faces::e2b::errors::RestError;
use crate::faces::e2b::figures::UsageSample;
use crate::faces::e2b::network;
use crate::faces::e2b::sandboxes::StoredE2bSandbox;
use crate::faces::e2b::{ENVD_VERSION, cpu_count};
use crate::service::{AgentLogLine, LogLevel};

/// Fields of a request for a new sandbox, and of its `network`. A misspelling of one of them is
/// rejected, rather than treated as a field of a later interface version.
const KNOWN_FIELDS: [&str; 18] = [
    "allowOut",
    "allowPublicTraffic",
    "allow_internet_access",
    "autoPause",
    "autoPauseMemory",
    "autoResume",
    "denyOut",
    "egressProxy",
    "envVars",
    "iam",
    "maskRequestHost",
    "mcp",
    "metadata",
    "network",
    "rules",
    "templateID",
    "timeout",
    "volumeMounts",
];

/// Request for a new sandbox.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NewSandbox {
    #[serde(rename = "templateID")]
    template_id: String,
    pub(super) timeout: Option<u64>,
    auto_pause: Option<bool>,
    auto_pause_memory: Option<bool>,
    auto_resume: Option<AutoResume>,
    pub(super) metadata: Option<BTreeMap<String, String>>,
    pub(super) env_vars: Option<BTreeMap<String, String>>,
    network: Option<Value>,
    #[serde(rename = "allow_internet_access")]
    internet: Option<bool>,
    mcp: Option<Value>,
    iam: Option<Value>,
    volume_mounts: Option<Vec<Value>>,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

/// Returns the field that an unknown one probably means: another spelling of it, or a field of
/// `network` at the wrong level. Ignoring `allow_public_traffic` would open what its sender wants
/// closed.
fn meant_field(unknown: &str) -> Option<&'static str> {
    let folded = |name: &str| name.replace(['_', '-'], "").to_ascii_lowercase();
    let unknown = folded(unknown);
    KNOWN_FIELDS.into_iter().find(|known| folded(known) == unknown)
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct AutoResume {
    enabled: bool,
}

impl NewSandbox {
    /// Rejects features that sandboxes do not have.
    ///
    /// # Errors
    /// Names the field.
    pub(super) fn check(&self) -> Result<(), RestError> {
        let meant = |name: &String| Some((name.clone(), meant_field(name)?));
        if let Some((name, meant)) = self.others.keys().find_map(meant) {
            let message = match network::FIELDS_OF_NEW.contains(&meant) {
                true => format!("{name}: unknown field; there is `network.{meant}`"),
                false => format!("{name}: unknown field; there is `{meant}`"),
            };
            return Err(RestError::invalid(message));
        }
        let drops_memory = self.auto_pause_memory == Some(false);
        if drops_memory && self.auto_resume.is_some_and(|it| it.enabled) {
            let message = "autoPauseMemory: a sandbox whose memory is dropped cannot be resumed by \
                           traffic; leave `autoResume` out";
            return Err(RestError::invalid(message));
        }
        let others = [("mcp", self.mcp.is_some()), ("iam", self.iam.is_some())];
        let has_volumes = self.volume_mounts.as_ref().is_some_and(|all| !all.is_empty());
        for (field, is_given) in others.into_iter().chain([("volumeMounts", has_volumes)]) {
            if is_given {
                return Err(RestError::invalid(format!("{field}: is not supported here")));
            }
        }
        Ok(())
    }

    /// Returns the data to store with the sandbox.
    ///
    /// # Errors
    /// Names the invalid field of `network`.
    pub(super) fn kept(&self) -> Result<StoredE2bSandbox, RestError> {
        let (network, inbound) = network::of_new(self.network.as_ref(), self.internet)?;
        let template = match self.template_id.as_str() {
            "" => BASE.to_owned(),
            other => other.to_owned(),
        };
        Ok(StoredE2bSandbox {
            template,
            auto_resume: self.auto_resume.is_some_and(|it| it.enabled),
            pauses: self.auto_pause.unwrap_or(false),
            drops_memory: self.auto_pause_memory == Some(false),
            private_ports: inbound.private_ports,
            masked_host: inbound.masked_host,
            network,
        })
    }
}

/// Body of `connect` and `resume`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConnectBody {
    pub(super) timeout: Option<u64>,
}

/// Body of `pause`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PauseBody {
    pub(super) memory: Option<bool>,
}

/// Body of `timeout`.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct TimeoutBody {
    pub(super) timeout: u64,
}

/// Body of `refreshes`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RefreshBody {
    pub(super) duration: Option<u64>,
}

/// Body of `fork`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ForkBody {
    pub(super) timeout: Option<u64>,
    pub(super) count: Option<usize>,
}

/// Body of `snapshots`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SnapshotBody {
    pub(super) name: Option<String>,
}

/// Returns a sandbox's list entry.
pub(super) fn listed(
    session: &SessionView,
    deadline_ms: Option<u64>,
    kept: &StoredE2bSandbox,
) -> Value {
    let mebibytes = |bytes: Option<u64>| bytes.unwrap_or(0) >> 20;
    // A paused sandbox has no deadline, but E2B's clients require one.
    let end_at = deadline_ms.map_or_else(|| session.last_active_at.clone(), time);
    json!({
        "templateID": kept.template,
        "alias": kept.template,
        "sandboxID": session.id,
        "clientID": "cove",
        "startedAt": session.created_at,
        "endAt": end_at,
        "envdVersion": ENVD_VERSION,
        "cpuCount": cpu_count(),
        "memoryMB": mebibytes(session.limits.memory_bytes),
        "diskSizeMB": mebibytes(session.limits.disk_bytes),
        "state": if session.state == SessionState::Active { "running" } else { "paused" },
        "metadata": session.metadata,
    })
}

/// Returns a snapshot's representation.
pub(super) fn snapshot(snapshot: &SnapshotView) -> Value {
    json!({ "snapshotID": snapshot.id, "names": snapshot.name.iter().collect::<Vec<_>>() })
}

/// Returns a sandbox's metrics.
pub(super) fn metric(sample: &UsageSample) -> Value {
    json!({
        "timestamp": time(sample.at_ms),
        "timestampUnix": sample.at_ms / 1000,
        "cpuCount": sample.cpu_count,
        "cpuUsedPct": sample.cpu_used_pct,
        "memUsed": sample.memory_used,
        "memTotal": sample.memory_total,
        "memCache": 0,
        "diskUsed": sample.disk_used,
        "diskTotal": sample.disk_total,
    })
}

/// Returns a log line for older clients.
pub(super) fn log_line(line: &AgentLogLine) -> Value {
    json!({ "timestamp": time(line.at_ms), "line": line.text })
}

/// Returns a log entry.
pub(super) fn log_entry(line: &AgentLogLine) -> Value {
    let level = match line.level {
        LogLevel::Stderr => "error",
        LogLevel::System => "info",
    };
    json!({ "timestamp": time(line.at_ms), "message": line.text, "level": level, "fields": {} })
}

#[cfg(test)]
mod tests {
    //! Every field is preserved, or rejected by name.

    use super::*;

    fn new(value: Value) -> NewSandbox {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_field_in_another_spelling_is_not_passed_over() {
        for (given, meant) in [
            (json!({ "allow_public_traffic": false }), "`network.allowPublicTraffic`"),
            (json!({ "allowPublicTraffic": false }), "`network.allowPublicTraffic`"),
            (json!({ "deny_out": ["0.0.0.0/0"] }), "`network.denyOut`"),
            (json!({ "Network": { "allowPublicTraffic": false } }), "`network`"),
            (json!({ "allowInternetAccess": false }), "`allow_internet_access`"),
            (json!({ "auto-pause": true }), "`autoPause`"),
            (json!({ "template_id": "base" }), "`templateID`"),
        ] {
            let refused = format!("{:?}", new(given.clone()).check().unwrap_err());
            assert!(refused.contains(meant), "{given}: {refused}");
        }
        // Fields of later client versions.
        assert!(new(json!({ "secure": true, "templateID": "base" })).check().is_ok());
    }

    #[test]
    fn what_is_asked_for_is_kept() {
        let kept = |value| new(value).kept().unwrap();
        let plain = StoredE2bSandbox { template: "base".to_owned(), ..StoredE2bSandbox::default() };
        assert_eq!(kept(json!({})), plain);
        assert_eq!(kept(json!({ "templateID": "base", "unknown": 1, "autoPause": null })), plain);
        let all = json!({
            "templateID": "mine", "autoPause": true, "autoResume": { "enabled": true },
            "network": { "allowPublicTraffic": false, "maskRequestHost": "a:${PORT}" },
        });
        let expected = StoredE2bSandbox {
            template: "mine".to_owned(),
            auto_resume: true,
            pauses: true,
            private_ports: true,
            masked_host: Some("a:${PORT}".to_owned()),
            ..StoredE2bSandbox::default()
        };
        assert_eq!(kept(all), expected);
    }

    #[test]
    fn what_there_is_not_is_refused() {
        for (value, is_good) in [
            (json!({ "network": { "denyOut": ["0.0.0.0/0"], "allowOut": [] } }), true),
            (json!({ "allow_internet_access": false, "volumeMounts": [] }), true),
            (json!({ "network": { "allow_public_traffic": false } }), false),
            (json!({ "autoPauseMemory": false, "autoPause": true }), true),
            (json!({ "autoPauseMemory": false, "autoResume": { "enabled": true } }), false),
            (json!({ "mcp": {} }), false),
            (json!({ "iam": {} }), false),
            (json!({ "volumeMounts": [{}] }), false),
        ] {
            let new = new(value.clone());
            assert_eq!(new.check().and_then(|()| new.kept()).is_ok(), is_good, "{value}");
        }
    }
}
