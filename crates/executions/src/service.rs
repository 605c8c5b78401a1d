//! Every operation on executions, without a word of HTTP.

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

/// Patient callers that wait at one time. Their requests are in memory, which the shell bounds.
const PATIENT_MAX: usize = 4096;
/// Patient callers of one tenant that wait at one time: one tenant can not fill the queue alone.
const PATIENT_MAX_PER_TENANT: usize = PATIENT_MAX / 4 * 3;

/// Places of executions at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionPlaces {
    /// Executions that run.
    pub running: usize,
    /// Most that run at one time.
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
    /// Empty where nothing is traced.
    tracer: OnceLock<Tracer>,
}

/// Follows an execution while it runs. Called on the task that runs it: do not block long.
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
    /// Returns whether more output can be taken in. While it is pending, the program's output is
    /// not read.
    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

/// Follows nothing; the whole output is in the result anyway.
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

/// Input that reaches a program while it runs, besides that of its request.
#[derive(Debug, Default)]
pub struct ProgramIo {
    /// Takes the place of the request's own standard input.
    pub stdin: Option<StdinSource>,
    /// Signals, sizes of the terminal, and the end, for the run stage.
    pub control: Option<mpsc::Receiver<ProgramControl>>,
}

/// Caller that waits for an execution.
#[derive(Clone, Copy, Debug)]
enum ExecutionWaiter {
    /// A caller that is turned away when too many wait.
    Caller,
    /// A caller that waits up to this long.
    PatientCaller {
        /// Longest wait for a place.
        wait_max: Duration,
    },
    /// A job, which waits without end.
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
    /// A service that runs programs in `engine`'s sandboxes and registers its metrics.
    ///
    /// # Errors
    /// When the configuration contradicts itself or asks for more than `capacity`.
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

    /// Puts other limits of requests and of what waits in force, for requests that come from now
    /// on. Settings that say how much runs at one time have to be the same as before, as those of
    /// answers and of the cache.
    ///
    /// # Errors
    /// When the configuration contradicts itself or asks for more than `capacity`; what held before
    /// goes on to hold.
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

    /// Adds the gateway that serves grants. Without, every grant is refused.
    #[must_use]
    pub fn with_gateway(self, gateway: Arc<dyn GrantGateway>) -> ExecutionService {
        self.inner.gateways.set(gateway);
        self
    }

    /// Traces executions of jobs, whose requests have ended when they run.
    #[must_use]
    pub fn traced_by(self, tracer: Option<Tracer>) -> ExecutionService {
        if let Some(tracer) = tracer {
            // The first one stays.
            let _there_is_one = self.inner.tracer.set(tracer);
        }
        self
    }

    /// Returns who makes spans; none where nothing is traced.
    #[must_use]
    pub fn tracer(&self) -> Option<&Tracer> {
        self.inner.tracer.get()
    }

    /// Adds the provider of templates. Without, every template is refused.
    pub fn set_templates(&self, source: Arc<dyn TemplateSource>) {
        self.inner.templates.set(source);
    }

    /// Adds the tokens, so that places are kept for others where there is more than one.
    #[must_use]
    pub fn with_tokens(self, tokens: TokenRegistry) -> ExecutionService {
        self.inner.admission.share_by(tokens);
        self
    }

    /// Has the limit on executions of one tenant hold over all nodes, where it is set. Then
    /// [`ExecutionService::follow_limits`] has to run.
    #[must_use]
    pub fn with_shared_limits(self, shares: Option<LimitShares>) -> ExecutionService {
        if let Some(shares) = shares {
            self.inner.admission.share_limits(shares);
        }
        self
    }

    /// Keeps this node's parts of limits that hold over all nodes. Never ends.
    pub async fn follow_limits(&self) {
        self.inner.admission.follow_limits().await;
    }

    /// Returns whether limits of tenants hold over all nodes.
    #[must_use]
    pub fn shares_limits(&self) -> bool {
        self.inner.admission.shares_limits()
    }

    /// Returns the nodes that executions of a tenant are to run at, because its limit lives there;
    /// none where that is none, or lives at every node. Looks at nothing but memory.
    #[must_use]
    pub fn limit_homes(&self, tenant: &str) -> Option<Vec<String>> {
        self.inner.admission.limit_homes(tenant)
    }

    /// Returns how many executions run and wait now.
    #[must_use]
    pub fn places(&self) -> ExecutionPlaces {
        let load = self.inner.admission.load();
        let running_max = self.inner.admission.bounds().running_max;
        ExecutionPlaces { running: load.running, running_max, waiting: load.waiting }
    }

    /// Checks that somebody may have this run: its grants must be his to give, and its template is
    /// one of his tenant, which the request says from then on. To be asked by whoever knows him,
    /// before the request goes on; all else about it is said then.
    ///
    /// # Errors
    /// When they are not.
    pub fn authorize(
        &self,
        who: &TokenPrincipal,
        request: &mut ExecutionRequest,
    ) -> Result<(), ExecutionError> {
        self.inner.gateways.authorize(who, &request.grants)?;
        Ok(self.inner.templates.authorize(who, request)?)
    }

    /// Every language, available or not, with its version.
    pub async fn languages(&self) -> api::LanguageList {
        self.inner.languages.list_with_versions().await
    }

    /// Runs one request to its end. `tenant` is who asks: any valid token may run, and limits go by
    /// it; whether its grants are its to give was asked before ([`ExecutionService::authorize`]).
    /// `io` is what reaches the program while it runs.
    ///
    /// Dropping the future kills what runs and gives back everything it holds.
    ///
    /// # Errors
    /// When nothing was run: the request cannot be run as it is, or there is no room for it. Once
    /// it runs, everything that can happen is an [`Execution`]; what Cove itself fails at has the
    /// verdict `IE`.
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

    /// [`ExecutionService::execute`] for what is answered to a client: with the memory of its
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

    /// [`ExecutionService::execute_held`] for a caller that waits for a place up to `wait_max`,
    /// however many wait, rather than to be turned away at once.
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

    /// Checks a request as [`ExecutionService::execute`] would, and runs nothing. Gives the
    /// canonical name of its language, or `argv`.
    ///
    /// # Errors
    /// When it cannot be run as it is.
    pub async fn check(
        &self,
        id: &ExecutionId,
        tenant: &str,
        request: ExecutionRequest,
    ) -> Result<String, ExecutionError> {
        Ok(self.inner.plan(id, tenant, request, None).await?.plan.language)
    }

    /// Returns what was counted of executions, for the history of the server.
    #[must_use]
    pub fn activity(&self) -> ExecutionActivity {
        let of_all = self.inner.admission.load();
        let loads = self.inner.admission.tenant_loads();
        self.inner.machine.metrics.activity.read(of_all, &loads, clock::now())
    }

    /// Returns how many run at one time.
    pub(crate) fn running_max(&self) -> usize {
        self.inner.admission.bounds().running_max
    }

    /// Returns who may run now; for what runs programs without being an execution.
    pub(crate) fn admission(&self) -> &Admission {
        &self.inner.admission
    }

    /// Memory of answers.
    pub(crate) fn answers(&self) -> &Arc<AnswerBudget> {
        &self.inner.answers
    }

    /// Returns where sandboxes come from, for the same.
    pub(crate) fn sandboxes(&self) -> &dyn SandboxProvider {
        &*self.inner.machine.sandboxes
    }

    /// The limits that hold now.
    pub(crate) fn planner(&self) -> Arc<ExecutionPlanner> {
        self.inner.planner.now()
    }

    /// A new id.
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
        // Boxed: it holds everything that one of several ways of running needs.
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
        // The sandboxes are gone by now; only then is their memory somebody else's.
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

/// An execution that was planned.
struct PlannedExecution {
    plan: ExecutionPlan,
    granted: Option<ExecutionGrants>,
    template: Option<OwnedTemplate>,
}

impl ServiceInner {
    /// Waits for a place and for memory for what the program may write, as long as the caller does.
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

    /// Waits for a place and for memory. Nobody has a place and waits for memory: what holds memory
    /// may be a client that does not read. Cancel-safe.
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

    /// Returns what is to be run, what it may reach, and what it begins with.
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

    /// The language of this name, which stands in `field`.
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
