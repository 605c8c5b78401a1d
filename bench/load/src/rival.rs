//! Rivals, which run jobs. Every client has its own rival, with its own connection or directory.

mod cove;
mod go_judge;
mod process;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::http;
use crate::spec::{RivalSpec, Spec};
use crate::workload::{Answer, Job};

/// A runner of one job after the other.
pub(crate) trait Rival: Send + Debug {
    /// Runs `job` and returns its time, without the time that this program takes to build a request
    /// or to parse an answer's JSON.
    fn run(&mut self, job: &Job) -> Result<(Answer, Duration), String>;
}

/// Returns one rival for each client of `spec`.
pub(crate) fn for_clients(spec: &Spec) -> Result<Vec<Box<dyn Rival>>, String> {
    let mut rivals: Vec<Box<dyn Rival>> = Vec::with_capacity(spec.clients);
    let gate = match &spec.rival {
        RivalSpec::Process { parallelism, .. } => Arc::new(process::Gate::new(*parallelism)),
        _ => Arc::new(process::Gate::new(spec.clients)),
    };
    let compiled = Arc::new(go_judge::Compiled::default());
    for client in 0..spec.clients {
        rivals.push(match &spec.rival {
            RivalSpec::Cove { address, token, via, fresh } => Box::new(cove::Cove::new(
                || http::Client::new(address, token),
                (*via, *fresh),
                spec.limits,
                spec.env.clone(),
            )),
            RivalSpec::GoJudge { address, token } => Box::new(go_judge::GoJudge::new(
                http::Client::new(address, token),
                spec.limits,
                environment(&spec.env),
                spec.tools.clone(),
                Arc::clone(&compiled),
            )),
            RivalSpec::Process { launcher, scratch, .. } => {
                let directory = scratch.join(format!("{}-{client}", spec.nonce));
                let gate = Arc::clone(&gate);
                let env = environment(&spec.env);
                let launch =
                    process::Launch::new(launcher.clone(), directory, env, spec.tools.clone())?;
                Box::new(process::Process::new(launch, gate))
            }
        });
    }
    Ok(rivals)
}

/// Returns `NAME=value` pairs for rivals that add no variables of their own.
fn environment(env: &BTreeMap<String, String>) -> Vec<String> {
    env.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// Runs `f` and returns its time.
fn timed<T>(f: impl FnOnce() -> Result<T, String>) -> Result<(T, Duration), String> {
    let start = Instant::now();
    let value = f()?;
    Ok((value, start.elapsed()))
}

/// Returns a JSON answer with that status, or an error with the server's text.
fn json_reply(reply: &http::Reply, status: u16) -> Result<serde_json::Value, String> {
    if reply.status != status {
        let text = String::from_utf8_lossy(&reply.body);
        let text: String = text.chars().take(200).collect();
        return Err(format!("get a result: status {} {text}", reply.status));
    }
    serde_json::from_slice(&reply.body).map_err(|e| format!("understand an answer: {e}"))
}

/// Serialises a body; only a map with keys that are not strings could fail.
fn json_body(value: &serde_json::Value) -> Result<Vec<u8>, String> {
    serde_json::to_vec(value).map_err(|e| format!("write a request: {e}"))
}
