//! Parts that a session is made from.

use std::collections::BTreeMap;

use api::{AgentOptions, AgentRuntime, Grant, SessionLimits};

use super::environment::LaunchEnvironment;
use crate::store::rows::{AgentRow, SessionTemplate, VersionRow};

/// Parts that a session is made from.
pub(super) struct SessionBase {
    pub(super) agent: Option<(AgentRow, VersionRow)>,
    pub(super) chain: Vec<String>,
    pub(super) limits: SessionLimits,
    pub(super) options: AgentOptions,
    pub(super) launch: LaunchEnvironment,
    /// Grants of its sandbox.
    pub(super) grants: Vec<Grant>,
    /// Template that it starts from, and the environment that this adds to its own.
    pub(super) template: Option<(SessionTemplate, BTreeMap<String, String>)>,
}

/// Returns whether there is an agent to speak of.
pub(super) fn has_agent(runtime: &AgentRuntime) -> bool {
    match runtime {
        AgentRuntime::Claude | AgentRuntime::Command { .. } => true,
        AgentRuntime::None => false,
    }
}
