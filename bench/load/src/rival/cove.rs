//! Cove's native interface: one synchronous request per job, compiled or not.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Rival, json_body, json_reply, timed};
use crate::http::Client;
use crate::spec::Limits;
use crate::workload::{Answer, Ending, Job, Program};

/// One client of `cove serve`.
#[derive(Debug)]
pub(crate) struct Cove {
    http: Client,
    limits: Limits,
    env: BTreeMap<String, String>,
}

impl Cove {
    /// A client that adds `env` to what the server gives every program.
    pub(crate) fn new(http: Client, limits: Limits, env: BTreeMap<String, String>) -> Cove {
        Cove { http, limits, env }
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
            Program::Python(source) => {
                json!({ "language": "python", "source": source, "limits": limits })
            }
            Program::C(source) => json!({
                "language": "c", "source": source,
                "limits": limits, "compile_limits": limits,
            }),
        };
        body["env"] = json!(self.env);
        if !job.stdin.is_empty() {
            body["stdin"] = json!(job.stdin);
        }
        body
    }
}

impl Rival for Cove {
    fn run(&mut self, job: &Job) -> Result<(Answer, Duration), String> {
        let body = json_body(&self.body(job))?;
        let (reply, took) = timed(|| self.http.send("POST", "/v1/executions?wait=true", &body))?;
        Ok((answer(json_reply(&reply)?), took))
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
    Answer { ending, stdout, cpu_ms }
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
