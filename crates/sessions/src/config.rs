//! The `[sessions]` table: limits and durations.

use serde::{Deserialize, Serialize};

/// Settings of sessions, including every limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionsConfig {
    /// Maximum number of resident sandboxes of sessions.
    pub resident_max: usize,
    /// Maximum number of resident sandboxes of one tenant, at work or not; 0 is half of
    /// `resident_max` if tokens are configured, and all of it otherwise.
    pub resident_max_per_tenant: usize,
    /// Maximum number of sandboxes and cold sessions on this server's disk; beyond it, the least
    /// recently used cold session is moved to the object store, then idle ones are stopped.
    pub capacity: usize,
    /// Maximum number of sessions of one tenant that are not ended.
    pub sessions_max_per_tenant: usize,
    /// Maximum number of agents of one tenant.
    pub agents_max_per_tenant: usize,
    /// Maximum number of snapshots of one tenant.
    pub snapshots_max_per_tenant: usize,
    /// Maximum sum of the disk sizes of one tenant's sessions that are not ended, in bytes.
    pub disk_bytes_max_per_tenant: u64,
    /// Maximum bytes that one tenant's disks on this server, agents, snapshots and attachments
    /// take.
    pub stored_bytes_max_per_tenant: u64,
    /// Bytes to keep free on the file system of the data directory: below it, nothing new is
    /// created there. 0 disables the check.
    pub disk_free_bytes_min: u64,
    /// Seconds of idleness after which a session's sandbox ends.
    pub idle_s: u32,
    /// Seconds after which the disk of a cold session is moved to the object store.
    pub cold_s: u32,
    /// Seconds for which an ended session is kept with its events and messages; its usage stays on
    /// record.
    pub keep_ended_s: u32,
    /// Number of sandboxes, and of disks of the default size, that are prepared for any session.
    pub ready: usize,
    /// Default memory of a session, in bytes.
    pub memory_bytes: u64,
    /// Maximum memory that a session may request.
    pub memory_bytes_max: u64,
    /// Default number of processes and threads of a session.
    pub processes: u64,
    /// Maximum number of processes that a session may request.
    pub processes_max: u64,
    /// Default size of a session's disk, in bytes.
    pub disk_bytes: u64,
    /// Maximum disk size that a session may request.
    pub disk_bytes_max: u64,
    /// Default number of files and directories on a disk.
    pub disk_inodes: u64,
    /// Size of `/tmp` and `/dev/shm` together.
    pub tmp_bytes: u64,
    /// Open file descriptors of one process.
    pub open_files: u64,
    /// Maximum number of queued messages in one session.
    pub messages_waiting_max: usize,
    /// Maximum bytes of one message.
    pub message_bytes_max: usize,
    /// Maximum stored bytes of a session's events and messages. A turn that exceeds it is ended,
    /// and the session accepts no more messages; a fork begins with none.
    pub history_bytes_max: u64,
    /// Maximum bytes of one line of an agent.
    pub line_bytes_max: usize,
    /// Maximum seconds for the start of an agent.
    pub agent_start_s: u32,
    /// Maximum seconds of one turn.
    pub turn_s: u32,
    /// Maximum seconds for `install.sh`.
    pub install_s: u32,
    /// When files are uploaded to the object store, so that another server can continue sessions if
    /// this one is lost.
    pub snapshots: SnapshotPolicy,
    /// Seconds between two snapshots of a session, with [`SnapshotPolicy::Every`].
    pub snapshot_every_s: u32,
    /// Bytes of other nodes' session files that this server prefetches, to take sessions over
    /// faster if their node is lost; 0 disables it.
    pub prefetch_bytes_max: u64,
    /// Older setting: true selects [`SnapshotPolicy::Turn`] if `snapshots` has its default value.
    pub snapshot_after_turn: bool,
    /// True to park an interpreter when a session without an agent is created, rather than with its
    /// first context; agents use `settings.park_interpreter`.
    pub park_interpreter: bool,
    /// Endpoint of the model: see [`ModelEndpointConfig`].
    pub model: ModelEndpointConfig,
    /// Directory of Claude's command line on this host; looked for on `PATH` when absent.
    pub claude: Option<String>,
    /// Templates: see [`TemplatesConfig`].
    pub templates: TemplatesConfig,
}

/// When files of sessions are uploaded, in addition to when a session stops or rests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotPolicy {
    /// At no other time.
    #[default]
    Stop,
    /// After each turn.
    Turn,
    /// After each turn; the end of the turn is sent once they are stored.
    TurnSync,
    /// At intervals, while a sandbox lives.
    Every,
}

impl SnapshotPolicy {
    /// Returns whether the object store is sufficiently up to date that a takeover need not wait
    /// for a lost server to return with newer files.
    pub(crate) fn moves_at_once(self) -> bool {
        match self {
            SnapshotPolicy::Stop => false,
            SnapshotPolicy::Turn | SnapshotPolicy::TurnSync | SnapshotPolicy::Every => true,
        }
    }
}

impl SessionsConfig {
    /// Returns the effective policy of both settings.
    pub(crate) fn snapshot_policy(&self) -> SnapshotPolicy {
        match (self.snapshots, self.snapshot_after_turn) {
            (SnapshotPolicy::Stop, true) => SnapshotPolicy::Turn,
            (policy, _) => policy,
        }
    }
}

/// Templates and their builds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TemplatesConfig {
    /// Maximum number of templates of one tenant.
    pub count_max_per_tenant: u64,
    /// Maximum number of running builds of one tenant.
    pub builds_max_per_tenant: u64,
    /// Maximum seconds of a build.
    pub build_s: u32,
    /// Maximum seconds for a template's start command until its ready command succeeds.
    pub ready_s: u32,
    /// Size of the disk that a step writes to, in bytes.
    pub disk_bytes: u64,
    /// Maximum bytes of one uploaded archive.
    pub archive_bytes_max: u64,
    /// URL of a package index for `pip`, such as `https://pypi.example.com/simple`, which builds
    /// may reach.
    pub pip_index: Option<String>,
    /// URL of a registry for `npm`, such as `https://npm.example.com`, which builds may reach.
    pub npm_registry: Option<String>,
    /// Other hosts that builds may reach, such as `files.pythonhosted.org` or `*.example.com:8443`.
    pub hosts: Vec<String>,
    /// Networks of internal addresses that those hosts may have.
    pub internal: Vec<String>,
}

impl Default for TemplatesConfig {
    fn default() -> TemplatesConfig {
        TemplatesConfig {
            count_max_per_tenant: 1000,
            builds_max_per_tenant: 4,
            build_s: 30 * 60,
            ready_s: 60,
            disk_bytes: 4 << 30,
            archive_bytes_max: 512 << 20,
            pip_index: None,
            npm_registry: None,
            hosts: Vec::new(),
            internal: Vec::new(),
        }
    }
}

/// Model endpoint that agents reach through a port on their loopback interface. The server adds the
/// key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelEndpointConfig {
    /// `https://api.anthropic.com`, or another endpoint of the Messages API. Without it, agents
    /// reach no model.
    pub url: Option<String>,
    /// Key that is added to requests of sessions without a credential: a reference (`env:NAME`,
    /// `file:PATH`).
    #[serde(deserialize_with = "api::secret_setting")]
    pub api_key: Option<String>,
}

impl Default for SessionsConfig {
    fn default() -> SessionsConfig {
        SessionsConfig {
            resident_max: 200,
            resident_max_per_tenant: 0,
            capacity: 1000,
            sessions_max_per_tenant: 10_000,
            agents_max_per_tenant: 1000,
            snapshots_max_per_tenant: 1000,
            disk_bytes_max_per_tenant: 16 << 40,
            stored_bytes_max_per_tenant: 256 << 30,
            disk_free_bytes_min: 1 << 30,
            idle_s: 30 * 60,
            cold_s: 2 * 60 * 60,
            keep_ended_s: 30 * 24 * 60 * 60,
            ready: 2,
            memory_bytes: 2 << 30,
            memory_bytes_max: 16 << 30,
            processes: 256,
            processes_max: 4096,
            disk_bytes: 1 << 30,
            disk_bytes_max: 64 << 30,
            disk_inodes: 131_072,
            tmp_bytes: 256 << 20,
            open_files: 4096,
            messages_waiting_max: 16,
            message_bytes_max: 16 << 20,
            history_bytes_max: 1 << 30,
            line_bytes_max: 64 << 20,
            agent_start_s: 60,
            turn_s: 60 * 60,
            install_s: 300,
            snapshots: SnapshotPolicy::Stop,
            snapshot_every_s: 60,
            prefetch_bytes_max: 4 << 30,
            snapshot_after_turn: false,
            park_interpreter: false,
            model: ModelEndpointConfig::default(),
            claude: None,
            templates: TemplatesConfig::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_name_of_a_policy_is_the_newer_one_unless_that_says_something() {
        for (settings, expected, moves_at_once) in [
            (r#"{}"#, SnapshotPolicy::Stop, false),
            (r#"{"snapshot_after_turn": true}"#, SnapshotPolicy::Turn, true),
            (r#"{"snapshots": "turn"}"#, SnapshotPolicy::Turn, true),
            (r#"{"snapshots": "turn_sync"}"#, SnapshotPolicy::TurnSync, true),
            (r#"{"snapshots": "every", "snapshot_after_turn": true}"#, SnapshotPolicy::Every, true),
        ] {
            let config: SessionsConfig = serde_json::from_str(settings).unwrap();
            let policy = config.snapshot_policy();
            assert_eq!((policy, policy.moves_at_once()), (expected, moves_at_once), "{settings}");
        }
        let error = serde_json::from_str::<SessionsConfig>(r#"{"snapshots": "always"}"#);
        assert!(error.unwrap_err().to_string().contains("turn_sync"));
    }
}
