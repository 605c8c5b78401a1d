//! Every operation on executions, without a word of HTTP.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use api::{
    Execution, ExecutionId, ExecutionRequest, Mode, Outcome, OutputFile, Stage, StageName, Verdict,
};
use node::clock::{self, Ids};
use node::telemetry::Registry;
use sandbox::{Command, Control, Exit, OutputSink, Stdin, Stream};
use tokio::sync::mpsc;

use crate::admission::{Admission, Bounds};
use crate::config::{Capacity, Config, ConfigError};
use crate::error::{Error, Refusal};
use crate::languages::Languages;
use crate::metrics::{Metrics, Part};
use crate::plan::{Plan, Planner};
use crate::sandboxes::{Failure, Sandboxes};
use crate::verdict;

/// Runs programs. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

struct Inner {
    sandboxes: Box<dyn Sandboxes>,
    languages: Languages,
    planner: Planner,
    admission: Admission,
    metrics: Metrics,
    ids: Ids,
}

/// Follows an execution while it runs. Called on the task that runs it: do not block long.
pub trait Progress: Send {
    /// A stage starts; `test` is the number of its test case, from 1.
    fn stage(&mut self, stage: StageName, test: Option<u32>);
    /// Output of the stage that started last, in order within its stream.
    fn chunk(&mut self, stream: Stream, bytes: &[u8]);
    /// A stage has ended.
    fn exit(&mut self, stage: StageName, test: Option<u32>, mode: Mode, outcome: &Outcome);
    /// Whether more output can be taken in. While it is pending, the program's output is not read.
    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

/// Follows nothing; the whole output is in the result anyway.
impl Progress for () {
    fn stage(&mut self, _stage: StageName, _test: Option<u32>) {}
    fn chunk(&mut self, _stream: Stream, _bytes: &[u8]) {}
    fn exit(&mut self, _stage: StageName, _test: Option<u32>, _mode: Mode, _outcome: &Outcome) {}
}

/// What reaches a program while it runs, besides what its request says.
#[derive(Debug, Default)]
pub struct Io {
    /// Takes the place of the request's own standard input.
    pub stdin: Option<Stdin>,
    /// Signals, sizes of the terminal, and the end, for the run stage.
    pub control: Option<mpsc::Receiver<Control>>,
}

/// Why a service cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration contradicts itself or the host.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kernel gives no random bytes.
    #[error("seed the id generator")]
    Random(#[source] std::io::Error),
}

impl Service {
    /// A service that runs programs in `engine`'s sandboxes and registers its metrics.
    ///
    /// # Errors
    /// When the configuration contradicts itself or asks for more than `capacity`.
    pub fn new(
        engine: sandbox::Engine,
        languages: Languages,
        config: Config,
        capacity: Capacity,
        registry: &mut Registry,
    ) -> Result<Service, StartError> {
        Service::with(Box::new(engine), languages, config, capacity, registry)
    }

    pub(crate) fn with(
        sandboxes: Box<dyn Sandboxes>,
        languages: Languages,
        config: Config,
        capacity: Capacity,
        registry: &mut Registry,
    ) -> Result<Service, StartError> {
        let memory_bytes_max = config.memory_budget(capacity.memory_bytes);
        let admission = Admission::new(Bounds {
            running_max: config.running_max(capacity.cores),
            memory_bytes_max,
            queue_max: config.queue_max,
            queue_max_per_tenant: config.queue_max_per_tenant,
        });
        let metrics = Metrics::new(registry, &admission);
        let planner = Planner::new(config, memory_bytes_max, languages.path())?;
        let ids = Ids::new().map_err(StartError::Random)?;
        let inner = Inner { sandboxes, languages, planner, admission, metrics, ids };
        Ok(Service { inner: Arc::new(inner) })
    }

    /// Every language, available or not, with its version.
    pub async fn languages(&self) -> api::LanguageList {
        self.inner.languages.list_with_versions().await
    }

    /// Runs one request to its end. `tenant` is who asks: any valid token may run, and limits go by
    /// it. `io` is what reaches the program while it runs.
    ///
    /// Dropping the future kills what runs and gives back everything it holds.
    ///
    /// # Errors
    /// When nothing was run: the request cannot be run as it is, or there is no room for it. Once
    /// it runs, everything that can happen is an [`Execution`]; what Cove itself fails at has the
    /// verdict `IE`.
    pub async fn execute(
        &self,
        tenant: &str,
        request: ExecutionRequest,
        io: Io,
        progress: &mut dyn Progress,
    ) -> Result<Execution, Error> {
        let id = ExecutionId(self.inner.ids.next("ex_"));
        self.execute_as(id, tenant, request, io, progress).await
    }

    /// Checks a request as [`Service::execute`] would, and runs nothing. Gives the canonical name
    /// of its language, or `argv`.
    ///
    /// # Errors
    /// When it cannot be run as it is.
    pub async fn check(&self, request: ExecutionRequest) -> Result<String, Error> {
        Ok(self.inner.plan(request, None).await?.language)
    }

    /// How many run at one time.
    pub(crate) fn running_max(&self) -> usize {
        self.inner.admission.bounds().running_max
    }

    /// A new id.
    pub(crate) fn next_id(&self) -> ExecutionId {
        ExecutionId(self.inner.ids.next("ex_"))
    }

    /// [`Service::execute`] under an id that is known already.
    pub(crate) async fn execute_as(
        &self,
        id: ExecutionId,
        tenant: &str,
        request: ExecutionRequest,
        io: Io,
        progress: &mut dyn Progress,
    ) -> Result<Execution, Error> {
        let inner = &*self.inner;
        let started = clock::now();
        let admitted = async {
            let mut plan = inner.plan(request, io.stdin).await?;
            if let Some((_, run)) = plan.stages.last_mut() {
                run.control = io.control;
            }
            let permit = inner.admission.enter(tenant, plan.memory_bytes).await?;
            Ok((plan, permit))
        };
        let (plan, permit) = admitted.await.inspect_err(|error| inner.metrics.refused(error))?;
        let admitted = inner.metrics.observe(Part::Queue, started);

        let language = plan.language.clone();
        let mut run = Run { inner, id: &id, stages: Vec::with_capacity(2), files: Vec::new() };
        match run.stages(plan, admitted, progress).await {
            Ok(()) => {}
            Err(Failure::NoRoom) => {
                let message = "is too small for the files of this request";
                let error = Error::Refused(Refusal::invalid("limits.disk_bytes", message));
                inner.metrics.refused(&error);
                return Err(error);
            }
            Err(Failure::Infrastructure(error)) => {
                tracing::error!(execution = %id, error = &*error, "failed to run");
                run.fail();
            }
        }
        let Run { stages, files, .. } = run;
        // The sandbox is gone by now; only then is its memory somebody else's.
        drop(permit);

        let outcome = match stages.last() {
            Some(stage) => stage.outcome.clone(),
            None => verdict::infrastructure_failure(),
        };
        inner.metrics.finished(&language, outcome.verdict);
        let ended = inner.metrics.observe(Part::Total, started);
        tracing::debug!(
            execution = %id, tenant, language, verdict = %outcome.verdict,
            took = ?ended.duration_since(started), "executed"
        );
        Ok(Execution { id, outcome, mode: Mode::Fresh, stages, files, tests: Vec::new(), last_seq: 0 })
    }
}

impl Inner {
    async fn plan(&self, request: ExecutionRequest, stdin: Option<Stdin>) -> Result<Plan, Error> {
        let program = match &request.language {
            Some(name) => Some(self.languages.choose(name).await?),
            None => None,
        };
        Ok(self.planner.plan(request, program.as_ref(), stdin)?)
    }
}

/// One execution under way.
struct Run<'a> {
    inner: &'a Inner,
    id: &'a ExecutionId,
    /// The stages that began; the last one may still be without its outcome when Cove fails.
    stages: Vec<Stage>,
    files: Vec<OutputFile>,
}

impl Run<'_> {
    /// Runs the stages until one is not `OK`, all in one sandbox.
    async fn stages(
        &mut self,
        plan: Plan,
        admitted: Instant,
        progress: &mut dyn Progress,
    ) -> Result<(), Failure> {
        let mut sandbox = self.inner.sandboxes.sandbox().await?;
        let mut since = self.inner.metrics.observe(Part::Sandbox, admitted);
        let mut outputs = plan.outputs;
        for (name, command) in plan.stages {
            progress.stage(name, None);
            let program = program_name(&command);
            let mut sink = Sink(&mut *progress);
            let ran = sandbox.run(command, &mut sink).await;
            since = self.inner.metrics.observe(part(name), since);
            let mut exit: Exit = match ran {
                Ok(exit) => exit,
                Err(failure) => {
                    self.push(name, verdict::infrastructure_failure());
                    return Err(failure);
                }
            };
            let contents = std::mem::take(&mut exit.outputs);
            let outcome = verdict::outcome(name, &program, exit);
            progress.exit(name, None, Mode::Fresh, &outcome);
            let stop = outcome.verdict != Verdict::Ok;
            if outcome.verdict == Verdict::Ie {
                tracing::error!(execution = %self.id, "the engine lost a program");
            }
            self.push(name, outcome);
            if name == StageName::Run {
                let files = outputs.drain(..).zip(contents);
                self.files.extend(files.map(|(name, content)| verdict::output_file(name, content)));
            }
            if stop {
                break;
            }
        }
        // What was asked for and never came to be is said so, too.
        let missing = || Err("the program did not run to its end".to_owned());
        self.files.extend(outputs.into_iter().map(|name| verdict::output_file(name, missing())));
        Ok(())
    }

    fn push(&mut self, name: StageName, outcome: Outcome) {
        self.stages.push(Stage { name, mode: Mode::Fresh, outcome });
    }

    /// Makes the result one of Cove's own failures, unless the last stage says so already.
    fn fail(&mut self) {
        let failed = self.stages.last().is_some_and(|stage| stage.outcome.verdict == Verdict::Ie);
        if !failed {
            self.push(StageName::Run, verdict::infrastructure_failure());
        }
    }
}

fn program_name(command: &Command) -> Vec<u8> {
    command.argv.first().cloned().unwrap_or_default()
}

fn part(stage: StageName) -> Part {
    match stage {
        StageName::Compile => Part::Compile,
        StageName::Run | StageName::Interactor | StageName::Checker => Part::Run,
    }
}

/// Hands output on.
struct Sink<'a>(&'a mut dyn Progress);

impl OutputSink for Sink<'_> {
    fn chunk(&mut self, stream: Stream, bytes: &[u8]) {
        self.0.chunk(stream, bytes);
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_ready(context)
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("load", &self.inner.admission.load())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
