//! The `[executions]` table of cove.toml.

use std::path::PathBuf;

use api::LimitSpec;
use serde::Deserialize;

/// How executions are limited and queued.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// A file of the shape of the built-in `languages.toml` whose entries replace or join it.
    pub languages: Option<PathBuf>,
    /// Executions that run at one time. Left out: twice the cores, at least 4.
    pub running_max: Option<usize>,
    /// Executions that may wait for a place.
    pub queue_max: usize,
    /// Executions that one token may have waiting.
    pub queue_max_per_tenant: usize,
    /// Sum of the memory limits of what runs. Left out: 80 % of what the host has.
    pub memory_budget_bytes: Option<u64>,
    /// Defaults of the run stage.
    pub limits: LimitSpec,
    /// The most a request may ask for its run stage.
    pub limits_max: LimitSpec,
    /// Defaults of the compile stage.
    pub compile_limits: LimitSpec,
    /// The most a request may ask for its compile stage.
    pub compile_limits_max: LimitSpec,
    /// Files of one request.
    pub files_max: usize,
    /// Bytes of all files of one request together.
    pub files_bytes_max: u64,
    /// Bytes of standard input of one request.
    pub stdin_bytes_max: u64,
    /// Output files of one request.
    pub outputs_max: usize,
    /// Bytes of all output files of one request together.
    pub outputs_bytes_max: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            languages: None,
            running_max: None,
            queue_max: 256,
            // One tenant can not fill the queue alone.
            queue_max_per_tenant: 192,
            memory_budget_bytes: None,
            limits: LimitSpec::default(),
            limits_max: LimitSpec::default(),
            compile_limits: LimitSpec::default(),
            compile_limits_max: LimitSpec::default(),
            files_max: 256,
            files_bytes_max: 16 << 20,
            stdin_bytes_max: 16 << 20,
            outputs_max: 64,
            outputs_bytes_max: 16 << 20,
        }
    }
}

/// What there is to share among executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Cores this process may use.
    pub cores: usize,
    /// Memory this process and its sandboxes may use, in bytes, its cgroup's limit respected.
    pub memory_bytes: u64,
}

impl Config {
    /// Executions that run at one time: what a sandbox engine needs slots for.
    pub fn running_max(&self, cores: usize) -> usize {
        self.running_max.unwrap_or_else(|| cores.saturating_mul(2).max(4)).max(1)
    }

    /// What the memory limits of running executions may add up to.
    pub fn memory_budget(&self, memory_bytes: u64) -> u64 {
        self.memory_budget_bytes.unwrap_or(memory_bytes / 5 * 4)
    }
}

/// Why the configuration contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("executions: {0}")]
pub struct ConfigError(pub(crate) String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_table_is_the_default_and_unknown_keys_are_errors() {
        assert_eq!(toml::from_str::<Config>("").unwrap(), Config::default());
        assert!(toml::from_str::<Config>("quee_max = 1").is_err());
        assert!(toml::from_str::<Config>("[limits]\ncpu = 1").is_err());
        let config: Config = toml::from_str("queue_max = 7\n[limits]\ncpu_ms = 5").unwrap();
        assert_eq!((config.queue_max, config.limits.cpu_ms), (7, Some(5)));
    }

    #[test]
    fn capacity_follows_the_host_unless_configured() {
        let config = Config::default();
        assert_eq!((config.running_max(1), config.running_max(8)), (4, 16));
        assert_eq!(config.memory_budget(1000), 800);
        let config =
            Config { running_max: Some(0), memory_budget_bytes: Some(5), ..Config::default() };
        assert_eq!((config.running_max(8), config.memory_budget(1000)), (1, 5));
    }
}
