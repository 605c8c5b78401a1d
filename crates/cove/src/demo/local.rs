//! Cove server for the demo only, which ends with it.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::http::Method;
use node::clock::{self, IdGenerator};
use node::data_dir::ADDRESSES_FILE;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{database, mariadb};
use crate::cli::DemoArgs;
use crate::config::{CoveConfig, Environment};
use crate::remote::Remote;
use crate::remote::signals::EndSignals;

/// Log of the server in its directory.
const LOG_FILE: &str = "server.log";
/// Time for a server to start, which includes its checks of languages.
const START_MAX: Duration = Duration::from_secs(60);
/// Interval at which its start or end is checked.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Lines of the log that are shown if a server does not start.
const LINES_SHOWN: usize = 5;

/// The server's process. Dropping it terminates a running server.
struct DemoServer {
    child: Child,
    /// Removed with the server, unless the user named it.
    directory: PathBuf,
    keeps_directory: bool,
}

impl DemoServer {
    fn start(args: &DemoArgs) -> Result<DemoServer> {
        let named = args.server.config.data_dir.clone();
        let keeps_directory = named.is_some();
        let directory = match named {
            Some(directory) => directory,
            None => std::env::temp_dir().join(IdGenerator::new()?.next("cove-demo-")),
        };
        DirBuilder::new().recursive(keeps_directory).mode(0o700).create(&directory)?;
        let log = File::create(directory.join(LOG_FILE))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve").arg("--data-dir").arg(&directory);
        command.args(["--bouncer", "127.0.0.1:0", "--bouncer-mysql", "127.0.0.1:0"]);
        if let Some(http) = &args.http {
            command.args(["--http", http]);
        }
        if let Some(config) = &args.server.config.config {
            command.arg("--config").arg(config);
        }
        // Ctrl-C signals this process only, which ends the server later.
        command.process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("start `cove serve`")?;
        Ok(DemoServer { child, directory, keeps_directory })
    }

    /// Waits until the server responds.
    async fn ready(&mut self, config: &CoveConfig, environment: &Environment) -> Result<Remote> {
        let begun = clock::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                anyhow::bail!("`cove serve` ended ({status}): {}", self.log_end());
            }
            if let Some(base) = address(&self.directory) {
                let token = self.directory.join("token");
                let server = Remote::find(Some(&base), Some(&token), config, environment);
                if let Ok(server) = server
                    && server.call::<Value>(Method::GET, "/v1/whoami").await.is_ok()
                {
                    return Ok(server);
                }
            }
            anyhow::ensure!(
                begun.elapsed() < START_MAX,
                "`cove serve` does not answer after {} s: {}",
                START_MAX.as_secs(),
                self.log_end()
            );
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    fn log_end(&self) -> String {
        let log = fs::read_to_string(self.directory.join(LOG_FILE)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(LINES_SHOWN).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Ends the server and removes its directory.
    async fn end(mut self) -> Result<()> {
        self.terminate();
        while self.child.try_wait()?.is_none() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        database::stop(&self.directory)?;
        mariadb::stop(&self.directory).await?;
        if !self.keeps_directory {
            fs::remove_dir_all(&self.directory)
                .with_context(|| format!("remove `{}`", self.directory.display()))?;
        }
        Ok(())
    }

    fn terminate(&self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // A process that has ended needs no signal.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

impl Drop for DemoServer {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.terminate();
        }
    }
}

fn address(directory: &Path) -> Option<String> {
    let text = fs::read_to_string(directory.join(ADDRESSES_FILE)).ok()?;
    let document: Value = serde_json::from_str(&text).ok()?;
    Some(format!("http://{}", document.get("http")?.as_str()?))
}

/// Starts a server, creates the demo on it, and removes both on a signal.
pub(super) async fn serve(
    args: &DemoArgs,
    config: &CoveConfig,
    environment: &Environment,
) -> Result<u8> {
    let mut signals = EndSignals::new()?;
    let mut child = DemoServer::start(args)?;
    let config = CoveConfig { data_dir: child.directory.clone(), ..config.clone() };
    let made = async {
        let server = child.ready(&config, environment).await?;
        Box::pin(super::make(args, &config, &server)).await?;
        if !args.json {
            let directory = child.directory.display();
            let kept = if child.keeps_directory { "keeps" } else { "removes" };
            println(&format!("\nCtrl-C ends the server and {kept} its directory, {directory}"))?;
        }
        loop {
            if let Some(status) = child.child.try_wait()? {
                anyhow::bail!("the server has ended ({status}): {}", child.log_end());
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    let outcome = tokio::select! {
        outcome = made => outcome,
        _ = signals.next() => Ok(0),
    };
    child.end().await?;
    outcome
}

fn println(text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    writeln!(std::io::stdout(), "{text}")
}
