//! Runs programs and judges them: languages, stages, admission and verdicts.
//!
//! A request names a language or an argument list. It becomes a plan, waits for its turn, runs each
//! of its programs in a fresh sandbox, and gets a verdict for each stage. The synchronous path
//! keeps everything in memory and touches no disk.
//!
//! # What this crate never does
//! - touch a cgroup, a namespace or a process in a sandbox: `sandbox` does that;
//! - listen, authenticate or read the clock: `node` does that;
//! - retry a program that failed by itself, or hide a failure of Cove: that has verdict `IE`;
//! - know a language by name in code: languages are data, in `languages.toml`.
//!
//! # Terms
//! An *execution* is one request that is run. Its *stages* are compile (only for languages that
//! have one) and run, each with limits of its own. A *verdict* is the judgement of a stage; an
//! execution has the verdict of its last stage. A *tenant* is the owner of requests, to which
//! limits on waiting apply. A *way* is one of several tool sets that can run a language.
//!
//! # Limits
//! [`ExecutionsConfig`] has all limits: the number of running executions, of waiting ones in total
//! and per tenant, the sum of memory limits, and for each request its files, input, output,
//! arguments and stages. A request beyond one of its limits is refused before it waits, with the
//! name of the field; if the queue is full, it is refused at once, with a time to retry.
//!
//! # Files
//! | file | content |
//! |---|---|
//! | `languages.toml`, `languages` | the language table, locations and versions of tools |
//! | `limits`, `plan` | turns a request into commands, with all checks; pure |
//! | [`queue`] | the durable queue of asynchronous executions, and its back ends |
//! | `admission` | bounded queue and memory budget: a pure state machine and its wakers |
//! | `run`, `cache` | a running execution: compiled or taken from the cache, run, judged |
//! | `judge` | comparisons, checkers and interactors: the meaning of their ends, pure |
//! | `grants` | resources that a program may reach, and the gateways that serve them |
//! | `templates` | initial files of sandboxes, and their owners |
//! | `verdict` | turns the end of a program into a verdict, pure |
//! | `aside` | work on long output, away from the threads that serve requests |
//! | `service` | the operations |
//! | [`http`] | the native HTTP face |
//! | `activity` | counts for a server's history, in total and for each tenant |
//! | `metrics`, `config`, `error` | see their names |
//!
//! # Example
//! ```ignore
//! let languages = executions::Languages::load(None, &host)?;
//! let engine = sandbox::Engine::start(/* … */ languages.toolchains());
//! let service = executions::Service::new(engine, languages, config, capacity, &mut registry)?;
//! let request = api::ExecutionRequest {
//!     language: Some("python".to_owned()),
//!     source: Some("print(6 * 7)".to_owned()),
//!     ..Default::default()
//! };
//! let execution = service.execute("tenant", request, Io::default(), &mut ()).await?;
//! assert_eq!(execution.outcome.stdout, "42\n");
//! ```
#![forbid(unsafe_code)]

mod activity;
mod admission;
mod answers;
mod aside;
mod cache;
mod config;
mod error;
mod events;
pub mod faces;
mod grants;
pub mod http;
mod jobs;
mod judge;
mod languages;
mod limits;
mod metrics;
mod plan;
pub mod queue;
mod run;
mod sandboxes;
mod service;
mod templates;
mod traces;
mod verdict;

pub use activity::{ExecutionActivity, ExecutionTotals, VerdictClass};
pub use config::{ConfigError, ExecutionsConfig, HostCapacity, JobsConfig};
pub use error::{ExecutionError, RequestRefusal};
pub use jobs::{ExecutionLocation, JobSubmission, Jobs};
pub use languages::{Languages, LoadError, Tie, ToolHost};
pub use service::{
    ExecutionPlaces, ExecutionService, ProgramIo, ProgressObserver, ServiceStartError,
};
pub use templates::{ExecutionTemplate, TemplateSource};
pub use verdict::signal_number;

#[cfg(test)]
mod testing;
