//! Environment that the programs of a session are started with.

use std::collections::BTreeMap;
use std::fmt;

use api::AgentRuntime;

/// Default environment of every program.
const ENVIRONMENT: [(&str, &str); 7] = [
    // The last one has `python` where the host has `python3` alone.
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/cove/bin"),
    ("HOME", "/home/user"),
    ("USER", "user"),
    ("LOGNAME", "user"),
    ("SHELL", "/bin/bash"),
    ("LANG", "C.UTF-8"),
    ("TMPDIR", "/tmp"),
];

/// Environment that the programs of one session are started with.
#[derive(Clone)]
pub(crate) struct LaunchEnvironment {
    /// Runtime of its agent.
    pub(crate) runtime: AgentRuntime,
    /// Environment: what all have, the agent's, that of its credential, its own.
    pub(crate) env: BTreeMap<String, String>,
    /// Key of its own for the model.
    pub(crate) model_key: Option<String>,
    /// True if its agent is started with the first message.
    pub(crate) lazy: bool,
}

impl fmt::Debug for LaunchEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment has secrets.
        f.debug_struct("Launch").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}

impl LaunchEnvironment {
    /// Returns what a workspace without an agent has.
    pub(crate) fn bare() -> LaunchEnvironment {
        let env = ENVIRONMENT.map(|(name, value)| (name.to_owned(), value.to_owned()));
        LaunchEnvironment {
            runtime: AgentRuntime::None,
            env: env.into(),
            model_key: None,
            lazy: false,
        }
    }
}

/// An environment as programs get it.
pub(crate) fn environment(env: &BTreeMap<String, String>) -> Vec<Vec<u8>> {
    env.iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect()
}
