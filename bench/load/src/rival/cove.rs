//! Cove's native interface: one synchronous request per job, or one that is accepted and followed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Rival, json_body, json_reply, timed};
use crate::http::Client;
use crate::live::{self, Events, Socket};
use crate::spec::{Limits, Via};
use crate::workload::{Answer, Ending, Job, Program};

/// A client of `cove serve`.
#[derive(Debug)]
pub(crate) struct Cove {
    http: Client,
    /// Client for following a job: its connection is kept separately, or is used up.
    follow: Client,
    via: Via,
    fresh: bool,
    limits: Limits,
    env: BTreeMap<String, String>,
}

impl Cove {
    /// Creates a client that adds `env` to the environment that the server gives every program.
    pub(crate) fn new(
        client: impl Fn() -> Client,
        (via, fresh): (Via, bool),
        limits: Limits,
        env: BTreeMap<String, String>,
    ) -> Cove {
        Cove { http: client(), follow: client(), via, fresh, limits, env }
    }

    fn body(&self, job: &Job) -> Value {
        let limits = json!({
            "cpu_ms": self.limits.cpu_ms,
            "wall_ms": self.limits.wall_ms,
            "memory_bytes": self.limits.memory_bytes,
            "processes": self.limits.processes,
            "output_bytes": self.limits.output_bytes,
        });
        let mut body = match &job.program {
            Program::Argv(argv) => json!({ "argv": argv, "limits": limits }),
            Program::Source(source) => json!({
                "language": source.language.name, "source": source.text, "args": source.args,
                "limits": limits, "compile_limits": limits,
            }),
        };
        body["env"] = json!(self.env);
        if !job.stdin.is_empty() {
            body["stdin"] = json!(job.stdin);
        }
        if self.fresh {
            body["fresh"] = json!(true);
        }
        body
    }

    /// Submits a job and returns the path that follows it.
    fn submit(&mut self, body: &[u8]) -> Result<String, String> {
        let reply = self.http.send("POST", "/v1/executions", body)?;
        let record = json_reply(&reply, 202)?;
        match record["id"].as_str() {
            Some(id) => Ok(format!("/v1/executions/{id}")),
            None => Err(format!("find an id in {record}")),
        }
    }

    /// Submits a job and waits for its end by long polling.
    fn poll(&mut self, body: &[u8]) -> Result<Value, String> {
        let path = format!("{}?wait=true", self.submit(body)?);
        loop {
            let mut record = json_reply(&self.follow.send("GET", &path, b"")?, 200)?;
            match record["state"].as_str() {
                Some("finished") => return Ok(record["result"].take()),
                Some("queued" | "running") => {}
                _ => return Err(format!("get a result: {record}")),
            }
        }
    }
}

impl Rival for Cove {
    fn run(&mut self, job: &Job) -> Result<(Answer, Duration), String> {
        let body = json_body(&self.body(job))?;
        let (result, took) = match self.via {
            Via::Answer => {
                let (reply, took) =
                    timed(|| self.http.send("POST", "/v1/executions?wait=true", &body))?;
                (json_reply(&reply, 200)?, took)
            }
            Via::Websocket => {
                let ((socket, event), took) = timed(|| {
                    let path = format!("{}/events", self.submit(&body)?);
                    let mut socket = Socket::connect(&mut self.follow, &path)?;
                    let event = socket.last_event()?;
                    Ok((socket, event))
                })?;
                socket.close()?;
                (live::result(&event)?, took)
            }
            Via::Events => {
                let ((events, event), took) = timed(|| {
                    let path = format!("{}/events", self.submit(&body)?);
                    let mut events = Events::open(&mut self.follow, &path)?;
                    let event = events.last_event()?;
                    Ok((events, event))
                })?;
                events.close(&mut self.follow)?;
                (live::result(&event)?, took)
            }
            Via::Poll => timed(|| self.poll(&body))?,
        };
        Ok((answer(result), took))
    }
}

fn answer(mut execution: Value) -> Answer {
    let verdict = execution["verdict"].as_str().unwrap_or_default();
    let ending = match (verdict, execution["limit"].as_str()) {
        ("OK", _) => Ending::Success,
        ("TLE", Some("cpu")) => Ending::CpuLimit,
        _ => Ending::Other(format!(
            "{verdict}, limit {}, exit code {}, stderr {}, message {}",
            execution["limit"], execution["exit_code"], execution["stderr"], execution["message"]
        )),
    };
    let cpu_ms = execution["cpu_ms"].as_f64();
    let stdout = match execution["stdout"].take() {
        Value::String(text) => text,
        _ => String::new(),
    };
    let mode = execution["mode"].as_str().map(str::to_owned);
    Answer { ending, stdout, cpu_ms, mode }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_cpu_limit_counts_as_the_cpu_limit() {
        let of = |limit: &str| answer(json!({"verdict": "TLE", "limit": limit, "cpu_ms": 300.5}));
        assert_eq!(of("cpu").ending, Ending::CpuLimit);
        assert_eq!(of("cpu").cpu_ms, Some(300.5));
        assert!(matches!(of("wall").ending, Ending::Other(_)));
        assert!(matches!(answer(json!({})).ending, Ending::Other(_)));
    }
}
