//! Size of the sandbox engine, and its Prometheus metrics.

use std::fmt;

use executions::HostCapacity;
use node::telemetry::Registry;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use sandbox::{Engine, EngineConfig, HostImage, Toolchain, WarmRuntime};

use crate::config::{CoveConfig, SandboxConfig};

/// First user id of `cove run`, two for each possible process id, so that programs that run
/// concurrently, and those of a server, never share one.
const RUN_UID_BASE: u32 = 1_900_000_000;

/// Prepared sandboxes per core of a server. One runs while the next one is being prepared.
const WARM_PER_CORE: usize = 2;

/// Returns the engine of a server: slots for the maximum of executions, and for prepared sandboxes.
pub(crate) fn for_server(
    config: &CoveConfig,
    capacity: HostCapacity,
    toolchains: Vec<Toolchain>,
    runtimes: Vec<WarmRuntime>,
    is_root: bool,
) -> EngineConfig {
    let SandboxConfig { warm, spawners, uid_base, insecure_no_limits, .. } = config.sandbox;
    let running_max = config.executions.running_max(capacity.cores);
    let warm = warm.unwrap_or_else(|| capacity.cores.saturating_mul(WARM_PER_CORE));
    let ready: usize = runtimes.iter().map(|runtime| runtime.ready).sum();
    // They require loop devices, mounts and network namespaces.
    let sessions = if is_root { config.sessions.resident_max } else { 0 };
    EngineConfig {
        slots: running_max.saturating_add(warm).saturating_add(ready),
        sessions,
        sessions_ready: config.sessions.ready.min(sessions),
        warm,
        spawners: spawners.unwrap_or(capacity.cores),
        uid_base,
        image: HostImage { toolchains },
        insecure_no_limits,
        runtimes,
    }
}

/// Returns the engine for one program.
pub(crate) fn for_one_program(
    toolchains: Vec<Toolchain>,
    insecure_no_limits: bool,
) -> EngineConfig {
    // A process id is below 2^22 (PID_MAX_LIMIT), so this stays below 2^31.
    let own = std::process::id().saturating_mul(2);
    EngineConfig {
        slots: 1,
        sessions: 0,
        sessions_ready: 0,
        warm: 1,
        spawners: 1,
        uid_base: RUN_UID_BASE.saturating_add(own),
        image: HostImage { toolchains },
        insecure_no_limits,
        runtimes: Vec::new(),
    }
}

/// Registers the engine's metrics.
pub(crate) fn register(engine: &Engine, registry: &mut Registry) {
    registry.register_collector(Box::new(EngineFigures(engine.clone())));
}

/// Read on collection, because only the engine keeps the counts.
#[derive(Debug)]
struct EngineFigures(Engine);

impl Collector for EngineFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stats = self.0.stats();
        let mut gauge = |name: &str, help: &str, value: usize| {
            let value = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            value.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
        };
        gauge("cove_sandboxes_prepared", "Sandboxes that wait for a program", stats.prepared)?;
        gauge("cove_sandboxes_preparing", "Sandboxes being prepared", stats.preparing)?;
        gauge("cove_sandboxes_leased", "Sandboxes in use", stats.leased)?;
        gauge("cove_sandboxes_awaited", "Callers that wait for a sandbox", stats.waiting)?;
        let mut counter = |name: &str, help: &str, value: u64| {
            let value = ConstCounter::new(value);
            value.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
        };
        counter("cove_sandboxes_created", "Sandboxes created since the start", stats.created)?;
        let help = "Spawner processes that died and were replaced";
        counter("cove_spawners_replaced", help, stats.spawners_replaced)
    }
}
