//! The service with the real engine, for properties that a script cannot reproduce: the access of
//! programs in sandboxes.
//!
//! Not libtest's `main`: the engine starts this binary again as its spawners, and must do so before
//! there is a second thread. Arguments are parts of names, as in libtest.
#![expect(
    clippy::unwrap_used,
    reason = "Clippy knows tests by libtest's attributes, which this binary does without"
)]

mod gateway;
mod grants;

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use executions::{ExecutionService, ExecutionsConfig, HostCapacity, Languages, ToolHost};
use node::telemetry::Registry;
use sandbox::{Engine, EngineConfig, HostImage};
use tokio::time;

use gateway::Echo;
use grants::{Fixture, TESTS};

/// First user id of the sandboxes, different from those of other tests and of servers.
const UID_BASE: u32 = 1_400_000_000;
/// Timeout of a test. Far above its duration, on a machine that others use as well.
const TEST_TIMEOUT: Duration = Duration::from_secs(90);
/// A language whose programs can only run where they were compiled. Its compiler fails if it can
/// reach a port, or create a socket for one.
const TABLE: &str = r#"
[tools.bash]
executable = "bin/bash"
directories = ["/usr"]
version = ["--version"]

[languages.stays]
extensions = ["stays"]
entry = "main.stays"
ways = [{ version = "bash", compile = ["{bash}", "-c", "if : <>/dev/tcp/127.0.0.1/5432; then exit 9; fi; echo '#!/bin/bash' | cat - main.stays > program; chmod +x program"], run = ["./program", "{args}"] }]
"#;

fn main() -> ExitCode {
    if let Some(code) = sandbox::spawner_main_if_asked() {
        return code;
    }
    let scratch = testkit::Scratch::new();
    let table = scratch.path().join("languages.toml");
    fs::write(&table, TABLE).unwrap();
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w));
    let failed = run(&table, is_wanted);
    let mut out = std::io::stdout();
    writeln!(out, "\ntest result: {failed} failed").unwrap();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the tests with these names; returns the number of failures.
fn run(table: &Path, is_wanted: impl Fn(&str) -> bool) -> usize {
    let languages = Languages::load(Some(table), &ToolHost { home: None, cache: None }).unwrap();
    let capacity = HostCapacity { cores: 2, memory_bytes: 4 << 30 };
    let config = ExecutionsConfig::default();
    let runtimes = languages
        .warm_runtimes(&config, config.memory_budget(capacity.memory_bytes), Some(1))
        .unwrap();
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let launched = Engine::launch(EngineConfig {
        slots: 8,
        warm: 1,
        sessions: 0,
        sessions_ready: 0,
        spawners: 1,
        uid_base: UID_BASE,
        image: HostImage { toolchains: languages.toolchains() },
        runtimes,
        insecure_no_limits: !is_root,
    })
    .unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = Engine::attach(launched).unwrap();
        let service = |registry: &mut Registry| {
            let engine = engine.clone();
            ExecutionService::new(engine, languages.clone(), config.clone(), capacity, registry)
                .unwrap()
        };
        let mut out = std::io::stdout();
        let mut failed = 0;
        for (name, test) in TESTS.iter().filter(|(name, _)| is_wanted(name)) {
            let gateway = Arc::new(Echo::default());
            let fixture = Fixture {
                alone: service(&mut Registry::default()),
                service: service(&mut Registry::default()).with_gateway(gateway.clone()),
                gateway,
            };
            let verdict = match time::timeout(TEST_TIMEOUT, tokio::spawn(test(fixture))).await {
                Ok(Ok(())) => "ok",
                Ok(Err(_panicked)) => "FAILED",
                Err(_) => "FAILED: takes too long",
            };
            failed += usize::from(verdict != "ok");
            writeln!(out, "test grants::{name} ... {verdict}").unwrap();
        }
        engine.close().await;
        failed
    })
}
