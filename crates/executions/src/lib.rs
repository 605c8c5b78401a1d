//! A program goes in, a verdict comes out: languages, stages, admission and verdicts.
//!
//! A request names a language or an argument list. It becomes a plan, waits for its turn, is given
//! a fresh sandbox for every program that is started, and every stage that runs is judged. The
//! synchronous path keeps everything in memory and touches no disk.
//!
//! # What it never does
//! - touch a cgroup, a namespace or a process inside: that is `sandbox`'s;
//! - listen, authenticate or read the clock: that is `node`'s;
//! - retry a program that failed by itself, or hide that Cove failed: that is verdict `IE`;
//! - know a language by name in code: languages are data, in `languages.toml`.
//!
//! # Terms
//! An *execution* is one request that is run. Its *stages* are compile (only where the language has
//! one) and run, each with limits of its own. A *verdict* is the judgement of a stage; the
//! execution's is that of its last stage. A *tenant* is who asks; limits on waiting go by it. A
//! *way* is one of several tool sets that can run a language.
//!
//! # Limits
//! [`ExecutionsConfig`] names them all: what runs at one time, what waits, in all and per tenant,
//! the sum of memory limits, and for each request its files, input, output, arguments and stages. A
//! request beyond one of its limits is refused before it waits, with the name of the field; one
//! that finds the queue full is refused at once, with a time to try again.
//!
//! # Files
//! | file | what it is |
//! |---|---|
//! | `languages.toml`, `languages` | the language table, where tools are on this host, their versions |
//! | `limits`, `plan` | from a request to commands: every check there is, pure |
//! | [`queue`] | the durable queue of asynchronous executions, and its back ends |
//! | `admission` | bounded queue and memory budget: a pure state machine and its wakers |
//! | `run`, `cache` | one execution under way: compiled or found, run, judged |
//! | `judge` | comparisons, checkers and interactors: what their ends mean, pure |
//! | `grants` | what a program may reach, and who serves it |
//! | `templates` | what its sandboxes begin with, and whose that is |
//! | `verdict` | from how a program ended to what is said about it, pure |
//! | `aside` | work on long output, away from the threads that serve requests |
//! | `service` | the operations |
//! | [`http`] | the native HTTP face |
//! | `activity` | what a server's history is made of, of all and of each tenant |
//! | `metrics`, `config`, `error` | what their names say |
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
