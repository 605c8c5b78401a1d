//! go-judge's REST interface. A C program takes two requests, as its documentation shows: one that
//! compiles and keeps the executable under an id, one that runs it. A repeated program is compiled
//! once per batch, and its kept executable is run: go-judge supports no further reuse.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Rival, json_body, json_reply, timed};
use crate::http::Client;
use crate::language::Tools;
use crate::spec::Limits;
use crate::workload::{Answer, Ending, Job, Program, Source};

const NANOSECONDS_PER_MS: u64 = 1_000_000;

/// Ids of kept executables, by their source.
pub(crate) type Compiled = Mutex<BTreeMap<String, String>>;

/// A client of go-judge.
#[derive(Debug)]
pub(crate) struct GoJudge {
    http: Client,
    limits: Limits,
    env: Vec<String>,
    tools: Tools,
    /// Shared by the clients of a batch; taken on drop.
    compiled: Option<Arc<Compiled>>,
}

impl GoJudge {
    /// Creates a client with `env` as the environment of its programs, in addition to their
    /// language's.
    pub(crate) fn new(
        http: Client,
        limits: Limits,
        env: Vec<String>,
        tools: Tools,
        compiled: Arc<Compiled>,
    ) -> GoJudge {
        GoJudge { http, limits, env, tools, compiled: Some(compiled) }
    }

    /// Builds a request of one command, with `copy_in` as its files.
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
        let mut results = json_reply(&reply, 200)?;
        match results.get_mut(0) {
            Some(result) => Ok((result.take(), took)),
            None => Err(format!("find a result in {results}")),
        }
    }

    /// Builds a request of one command of `source`'s language.
    fn command(
        &self,
        source: &Source,
        args: &[String],
        stdin: &str,
        copy_in: &Value,
    ) -> Result<Value, String> {
        let mut body = self.body(args, stdin, copy_in);
        let env = [self.env.clone(), source.language.env(&self.tools)?].concat();
        body["cmd"][0]["env"] = json!(env);
        Ok(body)
    }

    fn source(&mut self, source: &Source, stdin: &str) -> Result<(Answer, Duration), String> {
        let language = source.language;
        let run = language.run(&self.tools, &source.args)?;
        let Some(compile) = language.compile(&self.tools)? else {
            let copy_in = json!({ language.file: { "content": source.text } });
            let body = self.command(source, &run, stdin, &copy_in)?;
            let (result, took) = self.post(&body)?;
            return Ok((answer(result), took));
        };
        let shared = self.compiled.clone().filter(|_| source.repeated);
        let mut known = shared.as_ref().map(|c| c.lock().unwrap_or_else(PoisonError::into_inner));
        let kept = known.as_ref().and_then(|known| known.get(&source.text).cloned());
        let (id, compile_took) = match kept {
            Some(id) => (id, Duration::ZERO),
            None => match self.compile(source, &compile)? {
                (Ok(id), took) => (id, took),
                (Err(failed), took) => return Ok((failed, took)),
            },
        };
        if let Some(known) = known.as_mut() {
            known.insert(source.text.clone(), id.clone());
        }
        drop(known);
        let copy_in = json!({ language.artifact: { "fileId": id } });
        let body = self.command(source, &run, stdin, &copy_in)?;
        let (ran, run_took) = self.post(&body)?;
        if !source.repeated {
            // Otherwise executables would fill its memory. No client waits for this request, so it
            // is not timed.
            self.http.send("DELETE", &format!("/file/{id}"), b"")?;
        }
        Ok((answer(ran), compile_took + run_took))
    }

    /// Compiles and keeps the executable. Returns its id, or the answer of a failed compiler.
    fn compile(
        &mut self,
        source: &Source,
        args: &[String],
    ) -> Result<(Result<String, Answer>, Duration), String> {
        let language = source.language;
        let copy_in = json!({ language.file: { "content": source.text } });
        let mut body = self.command(source, args, "", &copy_in)?;
        body["cmd"][0]["copyOutCached"] = json!([language.artifact]);
        let (compiled, took) = self.post(&body)?;
        let id = compiled["fileIds"][language.artifact].as_str().map(str::to_owned);
        Ok((id.ok_or_else(|| answer(compiled)), took))
    }
}

impl Drop for GoJudge {
    fn drop(&mut self) {
        // Exactly one client of the batch drops the last reference.
        let Some(compiled) = self.compiled.take().and_then(Arc::into_inner) else { return };
        for id in compiled.into_inner().unwrap_or_else(PoisonError::into_inner).values() {
            // A file that stays only takes a little of the rival's memory.
            let _ = self.http.send("DELETE", &format!("/file/{id}"), b"");
        }
    }
}

impl Rival for GoJudge {
    fn run(&mut self, job: &Job) -> Result<(Answer, Duration), String> {
        match &job.program {
            Program::Argv(argv) => {
                let (result, took) = self.post(&self.body(argv, &job.stdin, &json!({})))?;
                Ok((answer(result), took))
            }
            Program::Source(source) => self.source(source, &job.stdin),
        }
    }
}

fn answer(mut result: Value) -> Answer {
    let nanoseconds_cpu = result["time"].as_f64();
    let ending = match result["status"].as_str().unwrap_or_default() {
        "Accepted" => Ending::Success,
        // The wall limits of these workloads are much larger, so this is the CPU limit.
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
    Answer { ending, stdout, cpu_ms: nanoseconds_cpu.map(|ns| ns / 1e6), mode: None }
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
