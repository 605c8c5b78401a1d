//! go-judge's REST interface. A C program takes two requests, as its documentation shows: one that
//! compiles and keeps the executable under an id, one that runs it.

use std::time::Duration;

use serde_json::{Value, json};

use super::{COMPILE, PYTHON, Rival, json_body, json_reply, timed};
use crate::http::Client;
use crate::spec::Limits;
use crate::workload::{Answer, Ending, Job, Program};

const NANOSECONDS_PER_MS: u64 = 1_000_000;

/// One client of go-judge.
#[derive(Debug)]
pub(crate) struct GoJudge {
    http: Client,
    limits: Limits,
    env: Vec<String>,
}

impl GoJudge {
    /// A client with `env` as the whole environment of its programs.
    pub(crate) fn new(http: Client, limits: Limits, env: Vec<String>) -> GoJudge {
        GoJudge { http, limits, env }
    }

    /// A request of one command, with `copy_in` as its files.
    fn body(&self, args: &[String], stdin: &str, copy_in: &Value) -> Value {
        json!({ "cmd": [{
            "args": args,
            "env": self.env,
            "files": [
                { "content": stdin },
                { "name": "stdout", "max": self.limits.output_bytes },
                { "name": "stderr", "max": self.limits.output_bytes },
            ],
            "cpuLimit": self.limits.cpu_ms * NANOSECONDS_PER_MS,
            "clockLimit": self.limits.wall_ms * NANOSECONDS_PER_MS,
            "memoryLimit": self.limits.memory_bytes,
            "procLimit": self.limits.processes,
            "copyIn": copy_in,
        }]})
    }

    fn post(&mut self, body: &Value) -> Result<(Value, Duration), String> {
        let body = json_body(body)?;
        let (reply, took) = timed(|| self.http.send("POST", "/run", &body))?;
        let mut results = json_reply(&reply)?;
        match results.get_mut(0) {
            Some(result) => Ok((result.take(), took)),
            None => Err(format!("find a result in {results}")),
        }
    }

    fn compile_and_run(&mut self, source: &str, stdin: &str) -> Result<(Answer, Duration), String> {
        let args = COMPILE.map(str::to_owned);
        let mut compile = self.body(&args, "", &json!({ "main.c": { "content": source } }));
        compile["cmd"][0]["copyOutCached"] = json!(["program"]);
        let (compiled, compile_took) = self.post(&compile)?;
        let Some(id) = compiled["fileIds"]["program"].as_str().map(str::to_owned) else {
            return Ok((answer(compiled), compile_took));
        };
        let args = ["./program".to_owned()];
        let run = self.body(&args, stdin, &json!({ "program": { "fileId": id } }));
        let (ran, run_took) = self.post(&run)?;
        // Without this the executables would fill its memory; nobody waits for it: it is not timed.
        self.http.send("DELETE", &format!("/file/{id}"), b"")?;
        Ok((answer(ran), compile_took + run_took))
    }
}

impl Rival for GoJudge {
    fn run(&mut self, job: &Job) -> Result<(Answer, Duration), String> {
        let (result, took) = match &job.program {
            Program::Argv(argv) => self.post(&self.body(argv, &job.stdin, &json!({})))?,
            Program::Python(source) => {
                let copy_in = json!({ "main.py": { "content": source } });
                self.post(&self.body(&PYTHON.map(str::to_owned), &job.stdin, &copy_in))?
            }
            Program::C(source) => return self.compile_and_run(source, &job.stdin),
        };
        Ok((answer(result), took))
    }
}

fn answer(mut result: Value) -> Answer {
    let nanoseconds_cpu = result["time"].as_f64();
    let ending = match result["status"].as_str().unwrap_or_default() {
        "Accepted" => Ending::Success,
        // The wall limits of these workloads are far away, so this is the CPU limit.
        "Time Limit Exceeded" => Ending::CpuLimit,
        status => Ending::Other(format!(
            "{status}, exit status {}, stderr {}, error {}",
            result["exitStatus"], result["files"]["stderr"], result["error"]
        )),
    };
    let stdout = match result["files"]["stdout"].take() {
        Value::String(text) => text,
        _ => String::new(),
    };
    Answer { ending, stdout, cpu_ms: nanoseconds_cpu.map(|ns| ns / 1e6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read() {
        let result = json!({"status": "Accepted", "time": 1_500_000, "files": {"stdout": "x"}});
        let read = answer(result);
        assert_eq!(
            (read.ending, read.stdout, read.cpu_ms),
            (Ending::Success, "x".into(), Some(1.5))
        );
        assert!(matches!(answer(json!({"status": "Signalled"})).ending, Ending::Other(_)));
    }
}
