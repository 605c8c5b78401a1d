//! The `[executions]` table of cove.toml.

use std::path::PathBuf;
use std::time::Duration;

use api::LimitSpec;
use node::client::{AllowedNetwork, NotAllowed};
use serde::Deserialize;

use crate::plan::ExecutionPlanner;
use crate::queue::QueueConfig;

/// The `[executions.jobs]` table: executions that outlive their request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobsConfig {
    /// Back end of the queue: by default the server's own store; `redis://…` for a Redis server, in
    /// BullMQ's layout. May be a reference (`env:NAME`, `file:PATH`).
    #[serde(deserialize_with = "api::secret_address")]
    pub redis: Option<String>,
    /// Prefix of all keys in Redis: BullMQ's `prefix`.
    pub redis_prefix: String,
    /// Name of the BullMQ queue, and prefix of the names of the tenants' own queues.
    pub redis_queue: String,
    /// Name of the tenant that owns jobs of foreign BullMQ producers.
    pub redis_tenant: String,
    /// Maximum number of waiting jobs, over all tenants.
    pub queued_max: u64,
    /// Maximum number of waiting jobs of one token.
    pub queued_max_per_tenant: u64,
    /// Maximum bytes of waiting requests, over all tenants.
    pub queued_bytes_max: u64,
    /// Maximum bytes of one token's waiting requests.
    pub queued_bytes_max_per_tenant: u64,
    /// Maximum number of executions in one batch.
    pub batch_max: usize,
    /// Maximum number of attempts of an execution when the server fails at it.
    pub attempts_max: u32,
    /// Time without a sign of a server after which its executions go to another, in seconds.
    pub lease_s: u64,
    /// Waiting time that counts as one step of priority, in seconds.
    pub ageing_s: u64,
    /// Time for which results are kept, in seconds.
    pub keep_s: u64,
    /// Maximum number of results that are kept; the oldest is removed first.
    pub kept_max: u64,
    /// Maximum bytes of requests and results of ended jobs; the oldest job is removed first.
    pub kept_bytes_max: u64,
    /// Secret that the keys of webhooks are derived from: 64 hexadecimal digits, or a reference
    /// (`env:NAME`, `file:PATH`). By default a secret of this data directory. Servers that share a
    /// store need the same.
    #[serde(deserialize_with = "api::secret_setting")]
    pub webhook_key: Option<String>,
    /// Internal networks and hosts that webhooks may reach: `10.1.0.0/16`,
    /// `hooks.example.internal`.
    pub webhook_allow: Vec<String>,
    /// Maximum number of attempts to deliver a webhook.
    pub webhook_attempts_max: u32,
    /// Timeout for the receiver's answer, in seconds.
    pub webhook_timeout_s: u64,
}

impl Default for JobsConfig {
    fn default() -> JobsConfig {
        let queue = QueueConfig::default();
        JobsConfig {
            redis: None,
            redis_prefix: "bull".to_owned(),
            redis_queue: "cove".to_owned(),
            redis_tenant: "bullmq".to_owned(),
            queued_max: queue.queued_max,
            queued_max_per_tenant: queue.queued_max_per_tenant,
            queued_bytes_max: queue.queued_bytes_max,
            queued_bytes_max_per_tenant: queue.queued_bytes_max_per_tenant,
            batch_max: 100,
            attempts_max: queue.attempts_max,
            lease_s: queue.lease.as_secs(),
            ageing_s: queue.ageing.as_secs(),
            keep_s: queue.keep.as_secs(),
            kept_max: queue.kept_max,
            kept_bytes_max: queue.kept_bytes_max,
            webhook_key: None,
            webhook_allow: Vec::new(),
            webhook_attempts_max: 8,
            webhook_timeout_s: 10,
        }
    }
}

impl JobsConfig {
    /// Returns the networks that webhooks may reach beside the public Internet.
    pub(crate) fn allowed_networks(&self) -> Result<Vec<AllowedNetwork>, ConfigError> {
        let allowed = self.webhook_allow.iter().map(|entry| entry.parse());
        let allowed: Result<Vec<AllowedNetwork>, NotAllowed> = allowed.collect();
        allowed.map_err(|error| ConfigError(format!("jobs.webhook_allow: {error}")))
    }

    /// Returns the configuration of the queue.
    pub fn queue(&self) -> QueueConfig {
        QueueConfig {
            queued_max: self.queued_max,
            queued_max_per_tenant: self.queued_max_per_tenant,
            queued_bytes_max: self.queued_bytes_max,
            queued_bytes_max_per_tenant: self.queued_bytes_max_per_tenant,
            lease: self.lease(),
            attempts_max: self.attempts_max.max(1),
            ageing: Duration::from_secs(self.ageing_s.max(1)),
            keep: self.keep(),
            kept_max: self.kept_max,
            kept_bytes_max: self.kept_bytes_max,
        }
    }

    pub(crate) fn lease(&self) -> Duration {
        Duration::from_secs(self.lease_s.max(3))
    }

    pub(crate) fn webhook_timeout(&self) -> Duration {
        Duration::from_secs(self.webhook_timeout_s.max(1))
    }

    pub(crate) fn keep(&self) -> Duration {
        Duration::from_secs(self.keep_s)
    }
}

/// Limits and queue of executions.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExecutionsConfig {
    /// A file in the format of the built-in `languages.toml`, whose entries replace or add to it.
    pub languages: Option<PathBuf>,
    /// Executions that outlive their request.
    pub jobs: JobsConfig,
    /// Maximum number of running executions. Default: twice the cores, at least 4.
    pub running_max: Option<usize>,
    /// Maximum number of running executions of one token, if there are other tokens. 0: all but a
    /// quarter of the places, and at most all but one.
    pub running_max_per_tenant: usize,
    /// Maximum number of executions that wait for a place.
    pub queue_max: usize,
    /// Maximum number of waiting executions of one token.
    pub queue_max_per_tenant: usize,
    /// Maximum sum of the memory limits of running programs. Default: 80 % of the host's memory.
    pub memory_budget_bytes: Option<u64>,
    /// Defaults of the run stage.
    pub limits: LimitSpec,
    /// Maximum limits that a request may ask for its run stage.
    pub limits_max: LimitSpec,
    /// Defaults of the compile stage.
    pub compile_limits: LimitSpec,
    /// Maximum limits that a request may ask for its compile stage.
    pub compile_limits_max: LimitSpec,
    /// Maximum number of files of one request.
    pub files_max: usize,
    /// Maximum bytes of all files of one request together.
    pub files_bytes_max: u64,
    /// Maximum bytes of standard input of one request.
    pub stdin_bytes_max: u64,
    /// Maximum number of output files of one request.
    pub outputs_max: usize,
    /// Maximum bytes of all output files of one request together.
    pub outputs_bytes_max: u64,
    /// Maximum number of test cases of one request.
    pub tests_max: usize,
    /// Maximum bytes of input and of expected output of all test cases of one request together.
    pub tests_bytes_max: u64,
    /// Maximum bytes of output of all test cases of one request in the answer.
    pub tests_output_bytes_max: u64,
    /// Maximum bytes that a solution may send to its interactor in one run.
    pub interaction_bytes_max: u64,
    /// Maximum bytes of answers that clients have not read, and of possible output of running
    /// programs.
    pub answers_bytes_max: u64,
    /// Maximum bytes of answers to one token.
    pub answers_bytes_max_per_tenant: u64,
    /// Time that a request waits for room in these, in seconds.
    pub answers_wait_s: u64,
    /// Maximum bytes of the compile cache, in memory; 0 disables it.
    pub compile_cache_bytes_max: u64,
    /// True if tokens share compiled programs. The response time then reveals whether another token
    /// sent the same program before.
    pub compile_cache_shared: bool,
}

impl Default for ExecutionsConfig {
    fn default() -> ExecutionsConfig {
        ExecutionsConfig {
            languages: None,
            jobs: JobsConfig::default(),
            running_max: None,
            running_max_per_tenant: 0,
            queue_max: 256,
            // One tenant cannot fill the queue alone.
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
            tests_max: 1000,
            tests_bytes_max: 32 << 20,
            tests_output_bytes_max: 16 << 20,
            interaction_bytes_max: 16 << 20,
            answers_bytes_max: 512 << 20,
            // One tenant cannot take all of it.
            answers_bytes_max_per_tenant: 256 << 20,
            answers_wait_s: 10,
            compile_cache_bytes_max: 256 << 20,
            compile_cache_shared: false,
        }
    }
}

/// Resources of the host that executions share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCapacity {
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory that this process and its sandboxes may use, in bytes, within its cgroup's limit.
    pub memory_bytes: u64,
}

impl ExecutionsConfig {
    /// Returns the maximum number of running executions, for which a sandbox engine needs slots.
    pub fn running_max(&self, cores: usize) -> usize {
        self.running_max.unwrap_or_else(|| cores.saturating_mul(2).max(4)).max(1)
    }

    /// Returns the maximum number of running executions of one token, if there are others.
    pub fn running_max_per_tenant(&self, cores: usize) -> usize {
        let running_max = self.running_max(cores);
        match self.running_max_per_tenant {
            0 => running_max.saturating_sub(running_max.div_ceil(4)).max(1),
            most => most,
        }
    }

    /// Returns the maximum sum of the memory limits of running executions.
    pub fn memory_budget(&self, memory_bytes: u64) -> u64 {
        self.memory_budget_bytes.unwrap_or(memory_bytes / 5 * 4)
    }

    /// Checks the settings that a service on this host would refuse at its start.
    ///
    /// # Errors
    /// If limits exclude each other or exceed the host's resources, or an entry of
    /// `jobs.webhook_allow` is invalid.
    pub fn check(&self, host: HostCapacity) -> Result<(), ConfigError> {
        self.jobs.allowed_networks()?;
        let budget = self.memory_budget(host.memory_bytes);
        ExecutionPlanner::new(self.clone(), budget, "").map(drop)
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
        assert_eq!(toml::from_str::<ExecutionsConfig>("").unwrap(), ExecutionsConfig::default());
        assert!(toml::from_str::<ExecutionsConfig>("quee_max = 1").is_err());
        assert!(toml::from_str::<ExecutionsConfig>("[limits]\ncpu = 1").is_err());
        let config: ExecutionsConfig =
            toml::from_str("queue_max = 7\n[limits]\ncpu_ms = 5").unwrap();
        assert_eq!((config.queue_max, config.limits.cpu_ms), (7, Some(5)));
    }

    #[test]
    fn capacity_follows_the_host_unless_configured() {
        let config = ExecutionsConfig::default();
        assert_eq!((config.running_max(1), config.running_max(8)), (4, 16));
        let of_tenant = |cores| config.running_max_per_tenant(cores);
        assert_eq!((of_tenant(1), of_tenant(8)), (3, 12));
        assert_eq!(config.memory_budget(1000), 800);
        let config = ExecutionsConfig {
            running_max: Some(0),
            memory_budget_bytes: Some(5),
            ..ExecutionsConfig::default()
        };
        assert_eq!((config.running_max(8), config.memory_budget(1000)), (1, 5));
        assert_eq!(config.running_max_per_tenant(8), 1);
    }
}
