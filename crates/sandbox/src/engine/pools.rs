//! The engine's pools: the kinds of sandboxes, and the number of each kept prepared.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pool::{AcquireError, KeyHandle, KeyLimits, Pool};

use super::{PreparedSandbox, now};
use crate::run::SandboxError;
use crate::spawner::{InitialFiles, NetworkMode};
use crate::spec::EngineConfig;

/// Maximum number of callers that wait for a sandbox.
const WAITERS_MAX: usize = 10_000;
/// Age at which a prepared sandbox is replaced.
const PREPARED_AGE_MAX: Duration = Duration::from_secs(3600);
/// Number of consecutive failures to prepare a sandbox with a runtime after which the runtime is
/// disabled.
const WARM_FAILURES_MAX: u32 = 5;

/// Kind of a prepared sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PreparedKind {
    /// Index of the runtime that waits in it; None for a bare process, for any program.
    pub(super) runtime: Option<usize>,
    pub(super) network: NetworkMode,
    /// Files with which it begins.
    pub(super) initial_files: InitialFiles,
}

impl PreparedKind {
    /// Kind for any program, without a loopback.
    pub(super) const PLAIN: PreparedKind = PreparedKind {
        runtime: None,
        network: NetworkMode::Nothing,
        initial_files: InitialFiles::Empty,
    };
    /// Kind for sessions.
    pub(super) const SESSION: PreparedKind =
        PreparedKind { network: NetworkMode::Session, ..PreparedKind::PLAIN };
    /// Kind for any program, with a loopback.
    pub(super) const CONNECTED: PreparedKind =
        PreparedKind { network: NetworkMode::Loopback, ..PreparedKind::PLAIN };
    /// Kinds for programs over layers, without a loopback and with one.
    pub(super) const LAYERED: [PreparedKind; 2] = [
        PreparedKind { initial_files: InitialFiles::Layers, ..PreparedKind::PLAIN },
        PreparedKind { initial_files: InitialFiles::Layers, ..PreparedKind::CONNECTED },
    ];
}

/// Sandboxes of a kind that not every server needs. None is prepared before the first request.
pub(super) struct WantedSandboxes {
    pub(super) sandboxes: KeyHandle<PreparedKind, PreparedSandbox>,
    /// Limits from the first request on.
    limits: KeyLimits,
    is_wanted: AtomicBool,
}

impl WantedSandboxes {
    /// Registers a kind.
    pub(super) fn new(
        pool: &Pool<PreparedKind, PreparedSandbox>,
        config: &EngineConfig,
        kind: PreparedKind,
    ) -> Result<WantedSandboxes, AcquireError> {
        let configured = kind.runtime.and_then(|index| config.runtimes.get(index));
        let limits = key_limits(config, configured.map_or(config.warm, |it| it.ready));
        let sandboxes = pool.key_with(&kind, KeyLimits { min_idle: 0, ..limits })?;
        Ok(WantedSandboxes { sandboxes, limits, is_wanted: AtomicBool::new(false) })
    }

    /// Returns the key for requests; from now on sandboxes of this kind are kept prepared.
    pub(super) fn wanted(&self, now: Instant) -> &KeyHandle<PreparedKind, PreparedSandbox> {
        if !self.is_wanted.load(Ordering::Relaxed) && !self.is_wanted.swap(true, Ordering::Relaxed)
        {
            self.sandboxes.set_limits(self.limits.clone(), now);
        }
        &self.sandboxes
    }

    /// Stops preparing sandboxes of this kind.
    fn give_up(&self, limits: KeyLimits, now: Instant) {
        self.is_wanted.store(true, Ordering::Relaxed);
        self.sandboxes.set_limits(limits, now);
    }
}

/// The sandboxes of one warm runtime.
pub(super) struct WarmRuntimeSandboxes {
    pub(super) sandboxes: KeyHandle<PreparedKind, PreparedSandbox>,
    pub(super) connected: WantedSandboxes,
    /// Number of consecutive failures to prepare one; at [`WARM_FAILURES_MAX`] the runtime is
    /// disabled.
    pub(super) failures: AtomicU32,
}

impl WarmRuntimeSandboxes {
    pub(super) fn is_off(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= WARM_FAILURES_MAX
    }

    /// Records the result of an attempt to prepare a sandbox with the runtime.
    pub(super) fn note(&self, name: &str, failure: Option<&SandboxError>) {
        let Some(failure) = failure else {
            return self.failures.store(0, Ordering::Relaxed);
        };
        let error = failure as &dyn std::error::Error;
        tracing::debug!(runtime = name, error, "a sandbox with a warm runtime cannot be prepared");
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 == WARM_FAILURES_MAX {
            tracing::warn!(
                runtime = name,
                error,
                "a runtime cannot be started ahead; programs start it themselves"
            );
            // Stops preparing such sandboxes.
            let limits = pool::KeyLimits { max: 0, min_idle: 0, ..pool::KeyLimits::default() };
            self.sandboxes.set_limits(limits.clone(), now());
            self.connected.give_up(limits, now());
        }
    }
}

/// Configuration of the pool of executions: keys for plain sandboxes, for those over layers and for
/// each runtime, each without a loopback and with one; each resource is used once. Prepared
/// sandboxes are given up when a request for another kind finds no free slot.
pub(super) fn pool_config(config: &EngineConfig) -> pool::PoolConfig {
    pool::PoolConfig {
        total_max: config.slots,
        keys_max: 2 * (2 + config.runtimes.len()),
        waiters_max: WAITERS_MAX,
        key: key_limits(config, config.warm),
        ..pool::PoolConfig::default()
    }
}

/// Returns the configuration of the pool of sessions, with one key.
pub(super) fn session_pool_config(config: &EngineConfig) -> pool::PoolConfig {
    let key = key_limits(config, config.sessions_ready);
    pool::PoolConfig {
        total_max: config.sessions,
        keys_max: 1,
        waiters_max: WAITERS_MAX,
        key: pool::KeyLimits { max: config.sessions, ..key },
        ..pool::PoolConfig::default()
    }
}

/// Returns limits with all slots as the maximum, and `ready` sandboxes prepared ahead.
pub(super) fn key_limits(config: &EngineConfig, ready: usize) -> pool::KeyLimits {
    pool::KeyLimits {
        max: config.slots,
        min_idle: ready,
        waiters_max: WAITERS_MAX,
        idle_timeout: PREPARED_AGE_MAX,
        lifetime_max: PREPARED_AGE_MAX,
        lifetime_jitter: PREPARED_AGE_MAX / 10,
        ..pool::KeyLimits::default()
    }
}
