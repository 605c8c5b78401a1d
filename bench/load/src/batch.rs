//! The closed loop: each client sends its next job after the answer to the previous one.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cpu;
use crate::rival::{self, Rival};
use crate::spec::Spec;
use crate::workload::Job;

/// Maximum number of mistakes that are described; further ones are only counted.
const EXAMPLES_MAX: usize = 3;

/// Figures of one batch, as printed on standard output.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    /// Jobs with a right answer.
    jobs: u64,
    /// Jobs that failed or had a wrong answer; no other figure includes them.
    failures: u64,
    /// Descriptions of the first failures.
    failure_examples: Vec<String>,
    /// Time from the first job's start to the last one's end.
    seconds: f64,
    /// Latency of each right answer, in the order of the clients.
    latencies_us: Vec<u64>,
    /// CPU time of each right answer's program, if the rival reports it.
    reported_cpu_ms: Vec<f64>,
    /// Number of right answers by mode, if the rival reports one.
    modes: BTreeMap<String, u64>,
    /// CPU time that the machine used during the batch, without this program.
    others_cpu_ms: f64,
    /// CPU time of this program during the batch.
    own_cpu_ms: f64,
    /// CPU time that the host took away during the batch.
    stolen_cpu_ms: f64,
}

/// Results of one client.
#[derive(Debug, Default)]
struct Seen {
    latencies: Vec<Duration>,
    reported_cpu_ms: Vec<f64>,
    modes: BTreeMap<String, u64>,
    failures: u64,
    failure_examples: Vec<String>,
}

/// Runs the batch that `spec` describes.
pub(crate) fn run(spec: &Spec) -> Result<Figures, String> {
    let rivals = rival::for_clients(spec)?;
    let next = AtomicU64::new(0);
    // Clients wait here after their warm-up, and again until the first reading is taken.
    let (warm, go) = (Barrier::new(spec.clients + 1), Barrier::new(spec.clients + 1));
    std::thread::scope(|scope| {
        let clients: Vec<_> = rivals
            .into_iter()
            .enumerate()
            .map(|(client, rival)| {
                let (next, warm, go) = (&next, &warm, &go);
                scope.spawn(move || client_loop(spec, client, rival, next, (warm, go)))
            })
            .collect();
        warm.wait();
        let before = cpu::Reading::now();
        let start = Instant::now();
        go.wait();
        let mut seen = Vec::with_capacity(spec.clients);
        for client in clients {
            seen.push(client.join().map_err(|_| "finish a client: it panicked")?);
        }
        let took = start.elapsed();
        let usage = cpu::Reading::now()?.since(&before?);
        Ok(figures(seen, took, usage))
    })
}

fn client_loop(
    spec: &Spec,
    client: usize,
    mut rival: Box<dyn Rival>,
    next: &AtomicU64,
    (warm, go): (&Barrier, &Barrier),
) -> Seen {
    let programs = spec.programs.to_string_lossy();
    let mut seen = Seen::default();
    let job = |name: String| Job::new(spec.workload, &programs, &spec.nonce, name);
    let once = if client == 0 { spec.warmup_once } else { 0 };
    for n in 0..spec.warmup_per_client + once {
        let job = job(format!("{}-w{client}-{n}", spec.nonce));
        // A wrong answer during the warm-up is wrong too: count it, but not its time.
        seen.take(&job, rival.run(&job));
    }
    seen.latencies.clear();
    seen.reported_cpu_ms.clear();
    seen.modes.clear();
    warm.wait();
    go.wait();
    let start = Instant::now();
    // Every client runs at least one job, however short the batch is.
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        let first = seen.latencies.is_empty() && seen.failures == 0;
        if !first && (n >= spec.jobs || start.elapsed().as_secs_f64() >= spec.seconds) {
            break;
        }
        if !first {
            std::thread::sleep(Duration::from_millis(spec.pause_ms));
        }
        let job = job(format!("{}-{n}", spec.nonce));
        seen.take(&job, rival.run(&job));
    }
    seen
}

impl Seen {
    fn take(&mut self, job: &Job, result: Result<(crate::workload::Answer, Duration), String>) {
        let mistake = match result {
            Ok((answer, took)) => match job.mistake(&answer) {
                None => {
                    self.latencies.push(took);
                    self.reported_cpu_ms.extend(answer.cpu_ms);
                    if let Some(mode) = answer.mode {
                        *self.modes.entry(mode).or_default() += 1;
                    }
                    return;
                }
                Some(mistake) => mistake,
            },
            Err(error) => format!("{}: failed to {error}", job.name),
        };
        self.failures += 1;
        if self.failure_examples.len() < EXAMPLES_MAX {
            self.failure_examples.push(mistake);
        }
    }
}

fn figures(seen: Vec<Seen>, took: Duration, usage: cpu::Usage) -> Figures {
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let mut figures = Figures {
        jobs: 0,
        failures: 0,
        failure_examples: Vec::new(),
        seconds: took.as_secs_f64(),
        latencies_us: Vec::new(),
        reported_cpu_ms: Vec::new(),
        modes: BTreeMap::new(),
        others_cpu_ms: ms(usage.others),
        own_cpu_ms: ms(usage.own),
        stolen_cpu_ms: ms(usage.stolen),
    };
    for client in seen {
        figures.jobs += client.latencies.len() as u64;
        figures.failures += client.failures;
        figures.failure_examples.extend(client.failure_examples);
        // A latency of half a million years would not fit; SILENCE_MAX is two minutes.
        let us = client.latencies.iter().map(|d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX));
        figures.latencies_us.extend(us);
        figures.reported_cpu_ms.extend(client.reported_cpu_ms);
        for (mode, jobs) in client.modes {
            *figures.modes.entry(mode).or_default() += jobs;
        }
    }
    figures.failure_examples.truncate(EXAMPLES_MAX);
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(expression: &str) -> Spec {
        serde_json::from_str(
            &expression.replace("SCRATCH", &std::env::temp_dir().to_string_lossy()),
        )
        .unwrap()
    }

    fn bare(workload: &str, jobs: u64, clients: usize) -> Spec {
        spec(&format!(
            r#"{{"rival": {{"kind": "process", "launcher": {{"kind": "bare"}}, "scratch": "SCRATCH",
                "parallelism": 2}}, "workload": "{workload}", "clients": {clients}, "jobs": {jobs},
                "seconds": 60, "warmup_per_client": 1, "programs": "/nonexistent",
                "nonce": "load-{}-{workload}", "limits": {{"cpu_ms": 1, "wall_ms": 1,
                "memory_bytes": 1, "processes": 1, "output_bytes": 1}}, "env": {{}}}}"#,
            std::process::id()
        ))
    }

    #[test]
    fn as_many_jobs_are_measured_as_were_asked_for() {
        let figures = run(&bare("true", 10, 3)).unwrap();
        assert_eq!((figures.jobs, figures.failures), (10, 0));
        assert_eq!(figures.latencies_us.len(), 10, "the warm-up is not among them");
    }

    #[test]
    fn failures_are_counted_and_told() {
        let figures = run(&bare("noop", 4, 1)).unwrap();
        assert_eq!((figures.jobs, figures.failures), (0, 5), "four and the warm-up's");
        assert!(figures.failure_examples[0].contains("/nonexistent/noop"));
    }
}
