//! Environment of a session's programs.

use std::collections::BTreeMap;
use std::fmt;

use api::AgentRuntime;

/// Default environment of every program.
const ENVIRONMENT: [(&str, &str); 7] = [
    // The last directory provides `python` on hosts that have only `python3`.
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/cove/bin"),
    ("HOME", "/home/user"),
    ("USER", "user"),
    ("LOGNAME", "user"),
    ("SHELL", "/bin/bash"),
    ("LANG", "C.UTF-8"),
    ("TMPDIR", "/tmp"),
];

/// Launch environment of one session's programs.
#[derive(Clone)]
pub(crate) struct LaunchEnvironment {
    /// Runtime of its agent.
    pub(crate) runtime: AgentRuntime,
    /// Variables: the common ones, the agent's, its credential's, and the session's own.
    pub(crate) env: BTreeMap<String, String>,
    /// The session's own key for the model.
    pub(crate) model_key: Option<String>,
    /// True if its agent starts with the first message.
    pub(crate) lazy: bool,
}

impl fmt::Debug for LaunchEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the environment, which contains secrets.
        f.debug_struct("Launch").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}

impl LaunchEnvironment {
    /// Returns the environment of a workspace without an agent.
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

/// Encodes an environment as `NAME=value` strings.
pub(crate) fn environment(env: &BTreeMap<String, String>) -> Vec<Vec<u8>> {
    env.iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect()
}
