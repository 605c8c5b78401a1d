//! Base of a new session.

use std::collections::BTreeMap;

use api::{AgentOptions, AgentRuntime, Grant, SessionLimits};

use super::environment::LaunchEnvironment;
use crate::store::rows::{AgentRow, SessionTemplate, VersionRow};

/// Parts from which a session is created.
pub(super) struct SessionBase {
    pub(super) agent: Option<(AgentRow, VersionRow)>,
    pub(super) chain: Vec<String>,
    pub(super) limits: SessionLimits,
    pub(super) options: AgentOptions,
    pub(super) launch: LaunchEnvironment,
    /// Grants of its sandbox.
    pub(super) grants: Vec<Grant>,
    /// Template of the session, and the environment that it adds.
    pub(super) template: Option<(SessionTemplate, BTreeMap<String, String>)>,
}

/// Returns whether the runtime starts an agent.
pub(super) fn has_agent(runtime: &AgentRuntime) -> bool {
    match runtime {
        AgentRuntime::Claude | AgentRuntime::Command { .. } => true,
        AgentRuntime::None => false,
    }
}
