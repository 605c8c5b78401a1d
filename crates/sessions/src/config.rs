//! The `[sessions]` table: what there may be, and for how long.

use serde::{Deserialize, Serialize};

/// Settings of sessions. Every limit has its name here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionsConfig {
    /// Sandboxes of sessions that may be resident at one time, in all.
    pub resident_max: usize,
    /// Part of them that one tenant may have, at work or not; 0 is for half of them where others
    /// have tokens, and all where nobody has.
    pub resident_max_per_tenant: usize,
    /// Sandboxes of sessions and cold sessions on this server's disk; beyond it the least recently
    /// used cold one is moved to the object store, then what waits is stopped.
    pub capacity: usize,
    /// Sessions of one tenant that are not ended.
    pub sessions_max_per_tenant: usize,
    /// Agents of one tenant.
    pub agents_max_per_tenant: usize,
    /// Snapshots of one tenant.
    pub snapshots_max_per_tenant: usize,
    /// Sizes of the disks of one tenant's sessions that are not ended, added up, in bytes: what
    /// they could grow to.
    pub disk_bytes_max_per_tenant: u64,
    /// Bytes that one tenant's disks on this server, agents, snapshots and attachments take.
    pub stored_bytes_max_per_tenant: u64,
    /// Bytes that stay free on the file system of the data directory: with fewer nothing new is
    /// made there. 0 is for no such bound.
    pub disk_free_bytes_min: u64,
    /// Seconds without work after which a session gives up its sandbox.
    pub idle_s: u32,
    /// Seconds after which the disk of a cold session is moved to the object store.
    pub cold_s: u32,
    /// Seconds for which a session that has ended is kept with its events and messages; what it
    /// used stays on record.
    pub keep_ended_s: u32,
    /// Sandboxes with a disk that are kept ready for any session.
    pub ready: usize,
    /// Memory of one session, and most that one may ask for, in bytes.
    pub memory_bytes: u64,
    /// Most memory that a session may ask for.
    pub memory_bytes_max: u64,
    /// Processes and threads of one session.
    pub processes: u64,
    /// Most processes that a session may ask for.
    pub processes_max: u64,
    /// Size of a session's disk, in bytes.
    pub disk_bytes: u64,
    /// Largest disk that a session may ask for.
    pub disk_bytes_max: u64,
    /// Files and directories on a disk.
    pub disk_inodes: u64,
    /// Size of `/tmp` and `/dev/shm` together.
    pub tmp_bytes: u64,
    /// Open file descriptors of one process.
    pub open_files: u64,
    /// Messages that wait for their turn in one session.
    pub messages_waiting_max: usize,
    /// Bytes of one message.
    pub message_bytes_max: usize,
    /// Bytes of the events and messages that are kept of one session. A turn that goes beyond it is
    /// ended, and the session takes no more messages; a fork begins with none.
    pub history_bytes_max: u64,
    /// Bytes of one line of an agent.
    pub line_bytes_max: usize,
    /// Seconds that an agent may take to start.
    pub agent_start_s: u32,
    /// Seconds that one turn may take.
    pub turn_s: u32,
    /// Seconds that `install.sh` may take.
    pub install_s: u32,
    /// When files go to the object store, so that another server can go on with them when this one
    /// is lost.
    pub snapshots: SnapshotPolicy,
    /// Seconds between two snapshots of a session, with [`SnapshotPolicy::Every`].
    pub snapshot_every_s: u32,
    /// Bytes of files of other nodes' sessions that this server keeps at hand, so that it goes on
    /// with a session sooner when its node is lost; 0: none.
    pub prefetch_bytes_max: u64,
    /// Older name: true is for [`SnapshotPolicy::Turn`], where `snapshots` says nothing else than
    /// its default.
    pub snapshot_after_turn: bool,
    /// True if sessions without an agent begin to park an interpreter when they are created, rather
    /// than with their first context; those of agents by `settings.park_interpreter`.
    pub park_interpreter: bool,
    /// Endpoint of the model: see [`ModelEndpointConfig`].
    pub model: ModelEndpointConfig,
    /// Directory of Claude's command line on this host; looked for on `PATH` when absent.
    pub claude: Option<String>,
    /// Templates: see [`TemplatesConfig`].
    pub templates: TemplatesConfig,
}

/// When files of sessions go to the object store, beside when a session stops or rests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotPolicy {
    /// At no other time.
    #[default]
    Stop,
    /// After each turn.
    Turn,
    /// After each turn, whose end is told when they are there.
    TurnSync,
    /// At intervals, while a sandbox is there.
    Every,
}

impl SnapshotPolicy {
    /// Returns whether what is in the object store is as new as anybody may expect, so that nobody
    /// waits for a lost server to come back with something newer.
    pub(crate) fn moves_at_once(self) -> bool {
        match self {
            SnapshotPolicy::Stop => false,
            SnapshotPolicy::Turn | SnapshotPolicy::TurnSync | SnapshotPolicy::Every => true,
        }
    }
}

impl SessionsConfig {
    /// Returns when files go to the object store, whichever setting says so.
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
    /// Templates of one tenant.
    pub count_max_per_tenant: u64,
    /// Builds of one tenant that are under way.
    pub builds_max_per_tenant: u64,
    /// Seconds that a build may take.
    pub build_s: u32,
    /// Seconds that the start command of a template may take until its ready command succeeds.
    pub ready_s: u32,
    /// Size of the disk that a step writes to, in bytes.
    pub disk_bytes: u64,
    /// Bytes of one archive that steps copy from, as it is uploaded.
    pub archive_bytes_max: u64,
    /// Address of a package index for `pip`, such as `https://pypi.example.com/simple`, which builds reach.
    pub pip_index: Option<String>,
    /// Address of a registry for `npm`, such as `https://npm.example.com`, which builds reach.
    pub npm_registry: Option<String>,
    /// Other hosts that builds reach, such as `files.pythonhosted.org` or `*.example.com:8443`.
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

/// The model endpoint that agents reach, at a port of their own loopback. The key is added outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelEndpointConfig {
    /// `https://api.anthropic.com`, or any other endpoint of the Messages API. None: agents reach
    /// no model.
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
