//! All operations on executions, independent of HTTP.

use node::task::Boxed;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use api::{
    Execution, ExecutionId, ExecutionMode, ExecutionRequest, OutputComparison, StageName,
    StageOutcome,
};
use node::auth::{TokenPrincipal, TokenRegistry};
use node::clock::{self, IdGenerator};
use node::cluster::LimitShares;
use node::current::CurrentSettings;
use node::gateway::GrantGateway;
use node::telemetry::Registry;
use node::traces::Tracer;
use sandbox::{ChunkStream, ProgramControl, StdinSource};
use tokio::sync::{Semaphore, mpsc};
use tokio::time;

use crate::activity::ExecutionActivity;
use crate::admission::{Admission, AdmissionBounds, AdmissionOrigin, RunPermit};
use crate::answers::{AnswerBounds, AnswerBudget, AnswerMemory, AnswerPatience};
use crate::cache::{CacheSharing, CompileCache};
use crate::config::{ConfigError, ExecutionsConfig, HostCapacity};
use crate::error::{ExecutionError, RequestRefusal};
use crate::grants::{ExecutionGrants, GatewayCell};
use crate::languages::{LanguageProgram, Languages};
use crate::metrics::{ExecutionMetrics, TimedPart};
use crate::plan::{ExecutionPlan, ExecutionPlanner};
use crate::run::{ExecutionOutcome, ExecutionRun, RunEnvironment};
use crate::sandboxes::{SandboxFailure, SandboxProvider};
use crate::templates::{OwnedTemplate, TemplateCell, TemplateSource};
use crate::traces;

/// Maximum number of waiting patient callers. Their requests are in memory, which the shell bounds.
const PATIENT_MAX: usize = 4096;
/// Maximum number of waiting patient callers of one tenant, so that one tenant cannot fill the
/// queue alone.
const PATIENT_MAX_PER_TENANT: usize = PATIENT_MAX / 4 * 3;

/// Current use of execution places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionPlaces {
    /// Running executions.
    pub running: usize,
    /// Maximum number of running executions.
    pub running_max: usize,
    /// Executions that wait for a place.
    pub waiting: usize,
}

/// Runs programs. Cheap to clone.
#[derive(Clone)]
pub struct ExecutionService {
    inner: Arc<ServiceInner>,
}

struct ServiceInner {
    languages: Languages,
    planner: CurrentSettings<ExecutionPlanner>,
    admission: Admission,
    answers: Arc<AnswerBudget>,
    machine: RunEnvironment,
    gateways: GatewayCell,
    templates: TemplateCell,
    ids: IdGenerator,
    /// Unset if tracing is disabled.
    tracer: OnceLock<Tracer>,
}

/// Follows a running execution. Called on the task that runs it, so it must not block for long.
pub trait ProgressObserver: Send {
    /// A stage starts; `test` is the number of its test case, from 1.
    fn stage(&mut self, stage: StageName, test: Option<u32>);
    /// Output of the stage that started last, in order within its stream.
    fn chunk(&mut self, stream: ChunkStream, bytes: &[u8]);
    /// A stage has ended.
    fn exit(
        &mut self,
        stage: StageName,
        test: Option<u32>,
        mode: ExecutionMode,
        outcome: &StageOutcome,
    );
    /// Returns whether more output can be accepted. While it is pending, the program's output is
    /// not read.
    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

/// Discards everything; the whole output is in the result anyway.
impl ProgressObserver for () {
    fn stage(&mut self, _stage: StageName, _test: Option<u32>) {}
    fn chunk(&mut self, _stream: ChunkStream, _bytes: &[u8]) {}
    fn exit(
        &mut self,
        _stage: StageName,
        _test: Option<u32>,
        _mode: ExecutionMode,
        _outcome: &StageOutcome,
    ) {
    }
}

/// Input that reaches a program while it runs, in addition to that of its request.
#[derive(Debug, Default)]
pub struct ProgramIo {
    /// Replaces the request's own standard input.
    pub stdin: Option<StdinSource>,
    /// Signals, terminal sizes, and stop requests, for the run stage.
    pub control: Option<mpsc::Receiver<ProgramControl>>,
}

/// Kind of caller that waits for an execution.
#[derive(Clone, Copy, Debug)]
enum ExecutionWaiter {
    /// A caller that is refused when too many wait.
    Caller,
    /// A caller that waits up to this long.
    PatientCaller {
        /// Longest wait for a place.
        wait_max: Duration,
    },
    /// A job, which waits indefinitely.
    Job,
}

/// Why a service cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ServiceStartError {
    /// The configuration contradicts itself or the host.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kernel gives no random bytes.
    #[error("seed the id generator")]
    Random(#[source] std::io::Error),
}

impl ExecutionService {
    /// Creates a service that runs programs in `engine`'s sandboxes and registers its metrics.
    ///
    /// # Errors
    /// If the configuration contradicts itself or requires more than `capacity`.
    pub fn new(
        engine: sandbox::Engine,
        languages: Languages,
        config: ExecutionsConfig,
        capacity: HostCapacity,
        registry: &mut Registry,
    ) -> Result<ExecutionService, ServiceStartError> {
        ExecutionService::with(Box::new(engine), languages, config, capacity, registry)
    }

    pub(crate) fn with(
        sandboxes: Box<dyn SandboxProvider>,
        languages: Languages,
        config: ExecutionsConfig,
        capacity: HostCapacity,
        registry: &mut Registry,
    ) -> Result<ExecutionService, ServiceStartError> {
        let memory_bytes_max = config.memory_budget(capacity.memory_bytes);
        let admission = Admission::new(AdmissionBounds {
            running_max: config.running_max(capacity.cores),
            running_max_per_tenant: config.running_max_per_tenant(capacity.cores),
            limits_tenants: config.running_max_per_tenant != 0,
            memory_bytes_max,
            queue_max: config.queue_max,
            queue_max_per_tenant: config.queue_max_per_tenant,
            patient_max: PATIENT_MAX,
            patient_max_per_tenant: PATIENT_MAX_PER_TENANT,
        });
        let answers = AnswerBudget::new(AnswerBounds {
            bytes_max: config.answers_bytes_max,
            bytes_max_per_tenant: config.answers_bytes_max_per_tenant,
            wait_max: Duration::from_secs(config.answers_wait_s),
        });
        let tenants =
            if config.compile_cache_shared { CacheSharing::Together } else { CacheSharing::Apart };
        let cache = CompileCache::new(config.compile_cache_bytes_max, tenants);
        let machine = RunEnvironment {
            sandboxes,
            metrics: ExecutionMetrics::new(registry, &admission, &cache),
            cache,
            pairs: Semaphore::new(1),
            tests_output_bytes_max: config.tests_output_bytes_max,
            interaction_bytes_max: config.interaction_bytes_max,
        };
        let planner = ExecutionPlanner::new(config, memory_bytes_max, languages.path())?;
        let ids = IdGenerator::new().map_err(ServiceStartError::Random)?;
        let inner = ServiceInner {
            languages,
            planner: CurrentSettings::new(planner),
            admission,
            answers,
            machine,
            gateways: GatewayCell::default(),
            templates: TemplateCell::default(),
            ids,
            tracer: OnceLock::new(),
        };
        Ok(ExecutionService { inner: Arc::new(inner) })
    }

    /// Replaces the limits of requests and of waiting ones, for later requests. Settings for the
    /// number of running executions must be unchanged, and so must those of answers and of the
    /// cache.
    ///
    /// # Errors
    /// If the configuration contradicts itself or requires more than `capacity`; the previous
    /// limits then stay in force.
    pub fn replace_config(
        &self,
        config: ExecutionsConfig,
        capacity: HostCapacity,
    ) -> Result<(), ConfigError> {
        let running_max_per_tenant = config.running_max_per_tenant(capacity.cores);
        let limits_tenants = config.running_max_per_tenant != 0;
        let ExecutionsConfig { queue_max, queue_max_per_tenant, .. } = config;
        let memory_bytes_max = config.memory_budget(capacity.memory_bytes);
        let path = self.inner.languages.path();
        self.inner.planner.replace(ExecutionPlanner::new(config, memory_bytes_max, path)?);
        self.inner.admission.change_bounds(|bounds| AdmissionBounds {
            running_max_per_tenant,
            limits_tenants,
            queue_max,
            queue_max_per_tenant,
            ..bounds
        });
        Ok(())
    }

    /// Adds the gateway that serves grants. Without it, every grant is refused.
    #[must_use]
    pub fn with_gateway(self, gateway: Arc<dyn GrantGateway>) -> ExecutionService {
        self.inner.gateways.set(gateway);
        self
    }

    /// Enables tracing of executions of jobs, whose requests have ended when they run.
    #[must_use]
    pub fn traced_by(self, tracer: Option<Tracer>) -> ExecutionService {
        if let Some(tracer) = tracer {
            // The first tracer stays.
            let _there_is_one = self.inner.tracer.set(tracer);
        }
        self
    }

    /// Returns the tracer; None if tracing is disabled.
    #[must_use]
    pub fn tracer(&self) -> Option<&Tracer> {
        self.inner.tracer.get()
    }

    /// Adds the provider of templates. Without it, every template is refused.
    pub fn set_templates(&self, source: Arc<dyn TemplateSource>) {
        self.inner.templates.set(source);
    }

    /// Adds the tokens, so that places are reserved for other tenants if there is more than one.
    #[must_use]
    pub fn with_tokens(self, tokens: TokenRegistry) -> ExecutionService {
        self.inner.admission.share_by(tokens);
        self
    }

    /// Makes the limit on executions of one tenant, if configured, apply across all nodes. Then
    /// [`ExecutionService::follow_limits`] must run.
    #[must_use]
    pub fn with_shared_limits(self, shares: Option<LimitShares>) -> ExecutionService {
        if let Some(shares) = shares {
            self.inner.admission.share_limits(shares);
        }
        self
    }

    /// Maintains this node's parts of limits that apply across all nodes. Never returns.
    pub async fn follow_limits(&self) {
        self.inner.admission.follow_limits().await;
    }

    /// Returns whether limits of tenants apply across all nodes.
    #[must_use]
    pub fn shares_limits(&self) -> bool {
        self.inner.admission.shares_limits()
    }

    /// Returns the nodes at which executions of a tenant must run, because its limit has its homes
    /// there; None if there is no limit, or all nodes are homes. Reads only memory.
    #[must_use]
    pub fn limit_homes(&self, tenant: &str) -> Option<Vec<String>> {
        self.inner.admission.limit_homes(tenant)
    }

    /// Returns the number of running and waiting executions.
    #[must_use]
    pub fn places(&self) -> ExecutionPlaces {
        let load = self.inner.admission.load();
        let running_max = self.inner.admission.bounds().running_max;
        ExecutionPlaces { running: load.running, running_max, waiting: load.waiting }
    }

    /// Checks that a token may run this request: it must have the right to give the grants, and the
    /// template must belong to its tenant, which is then recorded in the request. Must be called
    /// while the token is known, before the request is passed on; other checks follow later.
    ///
    /// # Errors
    /// If the token lacks one of these rights.
    pub fn authorize(
        &self,
        who: &TokenPrincipal,
        request: &mut ExecutionRequest,
    ) -> Result<(), ExecutionError> {
        self.inner.gateways.authorize(who, &request.grants)?;
        Ok(self.inner.templates.authorize(who, request)?)
    }

    /// Returns every language, available or not, with its version.
    pub async fn languages(&self) -> api::LanguageList {
        self.inner.languages.list_with_versions().await
    }

    /// Runs one request to its end. `tenant` is the owner of the request: any valid token may run,
    /// and limits apply per tenant; its right to give the grants was checked before
    /// ([`ExecutionService::authorize`]). `io` is input to the running program.
    ///
    /// Dropping the future kills the running programs and releases all their resources.
    ///
    /// # Errors
    /// If no program was run: the request cannot be run as specified, or there is no room for it.
    /// Once it runs, every outcome is an [`Execution`]; a failure of Cove itself has the verdict
    /// `IE`.
    pub fn execute<'a>(
        &'a self,
        tenant: &'a str,
        request: ExecutionRequest,
        io: ProgramIo,
        progress: &'a mut dyn ProgressObserver,
    ) -> Boxed<'a, Result<Execution, ExecutionError>> {
        Box::pin(async move {
            let held = self.execute_held(tenant, request, io, progress).await;
            held.map(|(execution, _room)| execution)
        })
    }

    /// [`ExecutionService::execute`] for an answer to a client: also returns the memory of its
    /// output, to be held until the answer is written.
    pub(crate) async fn execute_held(
        &self,
        tenant: &str,
        request: ExecutionRequest,
        io: ProgramIo,
        progress: &mut dyn ProgressObserver,
    ) -> Result<(Execution, AnswerMemory), ExecutionError> {
        let id = ExecutionId(self.inner.ids.next("ex_"));
        self.run(ExecutionWaiter::Caller, id, tenant, request, io, progress).await
    }

    /// [`ExecutionService::execute_held`] for a caller that prefers to wait for a place up to
    /// `wait_max`, however many wait, over being refused at once.
    pub(crate) async fn execute_patiently(
        &self,
        wait_max: Duration,
        tenant: &str,
        request: ExecutionRequest,
    ) -> Result<(Execution, AnswerMemory), ExecutionError> {
        let id = ExecutionId(self.inner.ids.next("ex_"));
        let waiter = ExecutionWaiter::PatientCaller { wait_max };
        self.run(waiter, id, tenant, request, ProgramIo::default(), &mut ()).await
    }

    /// Checks a request like [`ExecutionService::execute`], and runs nothing. Returns the canonical
    /// name of its language, or `argv`.
    ///
    /// # Errors
    /// If it cannot be run as specified.
    pub async fn check(
        &self,
        id: &ExecutionId,
        tenant: &str,
        request: ExecutionRequest,
    ) -> Result<String, ExecutionError> {
        Ok(self.inner.plan(id, tenant, request, None).await?.plan.language)
    }

    /// Returns the counts of executions for the server's history.
    #[must_use]
    pub fn activity(&self) -> ExecutionActivity {
        let of_all = self.inner.admission.load();
        let loads = self.inner.admission.tenant_loads();
        self.inner.machine.metrics.activity.read(of_all, &loads, clock::now())
    }

    /// Returns the maximum number of running executions.
    pub(crate) fn running_max(&self) -> usize {
        self.inner.admission.bounds().running_max
    }

    /// Returns the admission, for programs that run outside of executions.
    pub(crate) fn admission(&self) -> &Admission {
        &self.inner.admission
    }

    /// Returns the memory budget of answers.
    pub(crate) fn answers(&self) -> &Arc<AnswerBudget> {
        &self.inner.answers
    }

    /// Returns the provider of sandboxes, for the same purpose.
    pub(crate) fn sandboxes(&self) -> &dyn SandboxProvider {
        &*self.inner.machine.sandboxes
    }

    /// Returns the planner with the current limits.
    pub(crate) fn planner(&self) -> Arc<ExecutionPlanner> {
        self.inner.planner.now()
    }

    /// Creates a new id.
    pub(crate) fn next_id(&self) -> ExecutionId {
        ExecutionId(self.inner.ids.next("ex_"))
    }

    /// [`ExecutionService::execute`] of a job, which has an id already and was accepted: it waits
    /// for its turn however many callers wait.
    pub(crate) async fn execute_as(
        &self,
        id: ExecutionId,
        tenant: &str,
        request: ExecutionRequest,
        io: ProgramIo,
        progress: &mut dyn ProgressObserver,
    ) -> Result<(Execution, AnswerMemory), ExecutionError> {
        self.run(ExecutionWaiter::Job, id, tenant, request, io, progress).await
    }

    async fn run(
        &self,
        waiter: ExecutionWaiter,
        id: ExecutionId,
        tenant: &str,
        request: ExecutionRequest,
        io: ProgramIo,
        progress: &mut dyn ProgressObserver,
    ) -> Result<(Execution, AnswerMemory), ExecutionError> {
        let mut span = node::traces::span(traces::EXECUTION);
        span.set_text("cove.execution.id", &id);
        span.set_text("cove.language", request.language.as_deref().unwrap_or("argv"));
        let running = self.run_planned(waiter, id, tenant, request, io, progress);
        let ended = span.within(running).await;
        traces::describe_execution(&mut span, &ended);
        ended
    }

    async fn run_planned(
        &self,
        waiter: ExecutionWaiter,
        id: ExecutionId,
        tenant: &str,
        request: ExecutionRequest,
        io: ProgramIo,
        progress: &mut dyn ProgressObserver,
    ) -> Result<(Execution, AnswerMemory), ExecutionError> {
        let inner = &*self.inner;
        let started = clock::now();
        let admitted = async {
            let planned = inner.plan(&id, tenant, request, io.stdin).await?;
            let span = node::traces::span(traces::ADMISSION);
            let (permit, room) = inner.admit(waiter, tenant, &planned.plan).await?;
            span.end();
            let template = match &planned.template {
                Some(template) => Some(template.attach().await?),
                None => None,
            };
            Ok((planned, template, permit, room))
        };
        let metrics = &inner.machine.metrics;
        let (planned, template, permit, room) =
            admitted.await.inspect_err(|error| metrics.refused(tenant, error))?;
        let PlannedExecution { plan, granted, .. } = planned;
        let admitted = metrics.observe(TimedPart::Queue, started);
        metrics.activity.started(tenant, admitted);

        let language = plan.language.clone();
        let refuse = |refusal| {
            let error = ExecutionError::Refused(refusal);
            metrics.refused(tenant, &error);
            error
        };
        let mut run = ExecutionRun::new(&inner.machine, &id, tenant, &plan, admitted, progress);
        run.granted = granted.as_ref();
        run.template = template.as_ref();
        // Boxed: it holds the state of whichever mode of running is used.
        match Box::pin(run.all(plan, io.control)).await {
            Ok(()) => {}
            Err(SandboxFailure::NoRoom) => {
                let message = "is too small for the files of this request";
                return Err(refuse(RequestRefusal::invalid("limits.disk_bytes", message)));
            }
            Err(SandboxFailure::Refused(refusal)) => return Err(refuse(refusal)),
            Err(SandboxFailure::Infrastructure(error)) => {
                tracing::error!(execution = %id, error = &*error, "failed to run");
                run.fail();
            }
        }
        // The sandboxes have ended by now; only then may others use their memory.
        drop(permit);

        let ExecutionOutcome { outcome, mode, stages, files, tests } = run.done();
        metrics.finished(tenant, &language, outcome.verdict);
        let ended = metrics.observe(TimedPart::Total, started);
        tracing::debug!(
            execution = %id, tenant, language, verdict = %outcome.verdict,
            took = ?ended.duration_since(started), "executed"
        );
        Ok((Execution { id, outcome, mode, stages, files, tests, last_seq: 0 }, room))
    }
}

/// A planned execution.
struct PlannedExecution {
    plan: ExecutionPlan,
    granted: Option<ExecutionGrants>,
    template: Option<OwnedTemplate>,
}

impl ServiceInner {
    /// Waits for a place and for memory for the program's output, as long as the caller is willing
    /// to.
    async fn admit(
        &self,
        waiter: ExecutionWaiter,
        tenant: &str,
        plan: &ExecutionPlan,
    ) -> Result<(RunPermit, AnswerMemory), ExecutionError> {
        match waiter {
            ExecutionWaiter::Caller => {
                self.enter(AdmissionOrigin::Caller, AnswerPatience::Caller, tenant, plan).await
            }
            ExecutionWaiter::PatientCaller { wait_max } => {
                let origin = AdmissionOrigin::PatientCaller;
                let entered = self.enter(origin, AnswerPatience::Endless, tenant, plan);
                let entered = time::timeout(wait_max, entered).await;
                entered.unwrap_or(Err(ExecutionError::WaitedTooLong { wait_max }))
            }
            ExecutionWaiter::Job => {
                self.enter(AdmissionOrigin::Job, AnswerPatience::Endless, tenant, plan).await
            }
        }
    }

    /// Waits for a place and for memory. Never waits for memory while it holds a place, because a
    /// client that does not read can hold memory indefinitely. Cancel-safe.
    async fn enter(
        &self,
        origin: AdmissionOrigin,
        patience: AnswerPatience,
        tenant: &str,
        plan: &ExecutionPlan,
    ) -> Result<(RunPermit, AnswerMemory), ExecutionError> {
        loop {
            let deadline = self.answers.deadline(patience);
            self.answers.wait(tenant, plan.answer_bytes, deadline).await?;
            let permit = self.admission.enter_as(origin, tenant, plan.memory_bytes).await?;
            if let Some(room) = self.answers.try_enter(tenant, plan.answer_bytes) {
                return Ok((permit, room));
            }
        }
    }

    /// Returns the plan of a request, with its grants and its template.
    async fn plan(
        &self,
        id: &ExecutionId,
        tenant: &str,
        mut request: ExecutionRequest,
        stdin: Option<StdinSource>,
    ) -> Result<PlannedExecution, ExecutionError> {
        let template = self.templates.take(&mut request).await?;
        let granted = self.gateways.take(id, tenant, &mut request)?;
        let program = self.program(request.language.as_deref(), "language").await?;
        let companion = match (&request.interactor, &request.comparison) {
            (Some(interactor), _) => Some((interactor, "interactor.language")),
            (None, Some(OutputComparison::Checker(checker))) => {
                Some((&**checker, "comparison.language"))
            }
            (None, _) => None,
        };
        let companion = match companion {
            Some((companion, field)) => self.program(companion.language.as_deref(), field).await?,
            None => None,
        };
        let start = template.as_ref().map(|it| &it.template);
        let plan =
            self.planner.now().plan(request, program.as_ref(), companion.as_ref(), stdin, start)?;
        Ok(PlannedExecution { plan, granted, template })
    }

    /// Returns the program of the language with this name, which is in `field`.
    async fn program(
        &self,
        name: Option<&str>,
        field: &str,
    ) -> Result<Option<LanguageProgram>, RequestRefusal> {
        let Some(name) = name else { return Ok(None) };
        let named = |refusal| RequestRefusal { field: field.to_owned(), ..refusal };
        self.languages.choose(name).await.map(Some).map_err(named)
    }
}

impl fmt::Debug for ExecutionService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("load", &self.inner.admission.load())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
