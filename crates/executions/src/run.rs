//! A running execution: compile, run, judge, each in an unused sandbox.
//!
//! It owns all its resources, so that dropping it ends everything; it decides nothing about
//! verdicts.

mod build;
mod dialogue;
mod pair;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use api::{
    ExecutionId, ExecutionMode, OutputFile, StageName, StageOutcome, StageResult, TestResult,
    Verdict,
};
use node::traces::Span;
use sandbox::{
    ChunkStream, OutputMode, OutputSink, ProgramControl, ProgramExit, ProgramLimits,
    SandboxCommand, SeccompProfile, StdinSource, WarmKind, WorkspaceFile,
};
use tokio::sync::{Semaphore, mpsc};

use self::build::BuiltProgram;
use crate::aside::aside;
use crate::cache::CompileCache;
use crate::grants::{self, ExecutionGrants, GrantSockets};
use crate::judge::{self, ANSWER, INPUT, OUTPUT, SAID_BYTES_MAX, compare};
use crate::languages::warm;
use crate::metrics::{ExecutionMetrics, TimedPart};
use crate::plan::{
    self, CasePolicy, ExecutionPlan, JudgePlan, ProgramStart, RunPlan, SingleRun, TestCasePlan,
};
use crate::sandboxes::{LeasedSandbox, SandboxFailure, SandboxProvider};
use crate::service::ProgressObserver;
use crate::templates::AttachedTemplate;
use crate::traces::{self, SANDBOX};
use crate::verdict;

/// Engine, languages and limits that executions run with.
pub(crate) struct RunEnvironment {
    pub(crate) sandboxes: Box<dyn SandboxProvider>,
    pub(crate) cache: CompileCache,
    pub(crate) metrics: ExecutionMetrics,
    /// Lock for taking two sandboxes at once: without it, all executions could hold one and wait
    /// for another.
    pub(crate) pairs: Semaphore,
    /// Maximum bytes of output of all test cases in one answer.
    pub(crate) tests_output_bytes_max: u64,
    /// Maximum bytes that a solution may send to its interactor.
    pub(crate) interaction_bytes_max: u64,
}

/// Result of an execution.
pub(crate) struct ExecutionOutcome {
    pub(crate) outcome: StageOutcome,
    pub(crate) mode: ExecutionMode,
    pub(crate) stages: Vec<StageResult>,
    pub(crate) files: Vec<OutputFile>,
    pub(crate) tests: Vec<TestResult>,
}

/// A running execution.
pub(crate) struct ExecutionRun<'a> {
    machine: &'a RunEnvironment,
    id: &'a ExecutionId,
    tenant: &'a str,
    progress: &'a mut dyn ProgressObserver,
    /// End of the time that is accounted for so far.
    since: Instant,
    fresh: bool,
    merge_stderr: bool,
    /// The stages that began; the last one may have no outcome if Cove fails.
    stages: Vec<StageResult>,
    files: Vec<OutputFile>,
    tests: Vec<TestResult>,
    /// Remaining bytes of test case output for the answer.
    output_left: u64,
    /// True if the compiled program is run more than once, and so never in the sandbox of its
    /// compiler.
    needs_artifacts: bool,
    is_cached: bool,
    warm: ExecutionMode,
    /// True if the program has the environment of its interpreter's start.
    has_fixed_env: bool,
    /// Template of all sandboxes.
    pub(crate) template: Option<&'a AttachedTemplate>,
    /// Grants of the program in every run; other programs have none.
    pub(crate) granted: Option<&'a ExecutionGrants>,
}

/// A program that is ready to start.
struct ReadyProgram {
    /// Files to place before it starts.
    files: Vec<WorkspaceFile>,
    /// True if the placed files do not count for the limits, because a compiler made them.
    is_compiled: bool,
}

impl<'a> ExecutionRun<'a> {
    pub(crate) fn new(
        machine: &'a RunEnvironment,
        id: &'a ExecutionId,
        tenant: &'a str,
        plan: &ExecutionPlan,
        admitted: Instant,
        progress: &'a mut dyn ProgressObserver,
    ) -> ExecutionRun<'a> {
        ExecutionRun {
            machine,
            id,
            tenant,
            progress,
            since: admitted,
            fresh: plan.fresh,
            merge_stderr: plan.merge_stderr,
            stages: Vec::with_capacity(2),
            files: Vec::new(),
            tests: Vec::new(),
            output_left: machine.tests_output_bytes_max,
            needs_artifacts: matches!(plan.runs, RunPlan::Cases(..))
                || matches!(plan.judge, JudgePlan::Interactor(..)),
            is_cached: false,
            warm: ExecutionMode::Fresh,
            has_fixed_env: false,
            template: None,
            granted: None,
        }
    }

    /// Runs everything. If Cove fails, earlier results are kept.
    pub(crate) async fn all(
        &mut self,
        plan: ExecutionPlan,
        control: Option<mpsc::Receiver<ProgramControl>>,
    ) -> Result<(), SandboxFailure> {
        let ExecutionPlan { program, runs, judge, .. } = plan;
        let built = self.build(program, StageName::Compile).await?;
        match runs {
            RunPlan::Single(single) => self.once(built, single, judge, control).await,
            RunPlan::Cases(cases, go_on) => {
                // A program whose files cannot be placed again was refused when it was built.
                let BuiltProgram::Ready(ready) = built else { return Ok(()) };
                let judge = match judge {
                    JudgePlan::Nobody => ReadyJudge::Nobody,
                    JudgePlan::Compare(rule) => ReadyJudge::Compare(rule),
                    JudgePlan::Checker(recipe, start) => {
                        match self.build(recipe, StageName::Checker).await? {
                            BuiltProgram::Ready(ready) => ReadyJudge::Checker(ready, start),
                            BuiltProgram::Here(_) | BuiltProgram::Refused => return Ok(()),
                        }
                    }
                    JudgePlan::Interactor(recipe, start) => {
                        match self.build(recipe, StageName::Interactor).await? {
                            BuiltProgram::Ready(ready) => ReadyJudge::Interactor(ready, start),
                            BuiltProgram::Here(_) | BuiltProgram::Refused => return Ok(()),
                        }
                    }
                };
                self.cases(&ready, cases, &judge, go_on).await
            }
        }
    }

    /// Adds a failure of Cove as the result, unless the last result is one already.
    pub(crate) fn fail(&mut self) {
        let last = self.tests.last().map(|test| &test.outcome);
        let last = last.or(self.stages.last().map(|stage| &stage.outcome));
        if last.is_none_or(|outcome| outcome.verdict != Verdict::Ie) {
            self.push(StageName::Run, ExecutionMode::Fresh, verdict::infrastructure_failure());
        }
    }

    /// Returns the result.
    pub(crate) fn done(mut self) -> ExecutionOutcome {
        let failed = |outcome: &StageOutcome| outcome.verdict != Verdict::Ok;
        // A stage after the test cases is one at which Cove failed.
        let stage = match self.tests.is_empty() {
            true => self.stages.last_mut(),
            false => self.stages.iter_mut().find(|stage| failed(&stage.outcome)),
        };
        let test = self.tests.iter().position(|test| failed(&test.outcome));
        let test = test.or(self.tests.len().checked_sub(1));
        let test = test.and_then(|index| self.tests.get_mut(index));
        let outcome = match (stage, test) {
            (Some(StageResult { outcome, output_at_top, .. }), _)
            | (None, Some(TestResult { outcome, output_at_top, .. })) => {
                let (top, is_moved) = verdict::move_to_top(outcome);
                *output_at_top = is_moved;
                top
            }
            (None, None) => verdict::infrastructure_failure(),
        };
        let mode = match (self.is_cached, self.warm) {
            (true, ExecutionMode::Zygote) => ExecutionMode::CachedZygote,
            (true, ExecutionMode::Prestarted) => ExecutionMode::CachedPrestarted,
            (true, _) => ExecutionMode::Cached,
            (false, warm) => warm,
        };
        self.machine.metrics.mode(mode);
        ExecutionOutcome {
            outcome,
            mode,
            stages: self.stages,
            files: self.files,
            tests: self.tests,
        }
    }

    /// Waits for a sandbox.
    async fn sandbox(&mut self) -> Result<Box<dyn LeasedSandbox>, SandboxFailure> {
        self.sandbox_with(false).await
    }

    /// Waits for a sandbox in which a program can use its grants.
    async fn sandbox_with(
        &mut self,
        loopback: bool,
    ) -> Result<Box<dyn LeasedSandbox>, SandboxFailure> {
        let sandboxes = &self.machine.sandboxes;
        let span = node::traces::span(SANDBOX);
        let sandbox = match (self.template, loopback) {
            (Some(template), loopback) => {
                sandboxes.layered(loopback, &template.disk_layers).await?
            }
            (None, true) => sandboxes.connected().await?,
            (None, false) => sandboxes.sandbox().await?,
        };
        span.end();
        self.has_fixed_env = false;
        self.since = self.machine.metrics.observe(TimedPart::Sandbox, self.since);
        Ok(sandbox)
    }

    /// Attaches the grants of the execution to a command that runs the program.
    fn attach(&self, command: &mut SandboxCommand) -> Result<Option<GrantSockets>, SandboxFailure> {
        self.granted.map(|granted| granted.attach(command)).transpose()
    }

    /// Waits for a sandbox to run `command` in: one whose warm runtime fits the program, if there
    /// is one and the request allows it. No runtime has started over the layers of a template,
    /// which may contain modules.
    async fn enter(
        &mut self,
        command: &mut SandboxCommand,
    ) -> Result<(Box<dyn LeasedSandbox>, ExecutionMode), SandboxFailure> {
        let sandboxes = &*self.machine.sandboxes;
        let mut span = node::traces::span(SANDBOX);
        if !self.fresh
            && self.template.is_none()
            && let Some(runtime) = warm::runtime_for(sandboxes.runtimes(), command)
            && let Some(sandbox) = match command.listen {
                None => sandboxes.warm(&runtime.name).await?,
                Some(_) => sandboxes.connected_warm(&runtime.name).await?,
            }
        {
            self.since = self.machine.metrics.observe(TimedPart::Sandbox, self.since);
            command.warm = true;
            self.warm = warm::mode(runtime);
            self.has_fixed_env = runtime.kind == WarmKind::StartJava;
            span.set("cove.mode", self.warm.as_str());
            return Ok((sandbox, self.warm));
        }
        // The call below has a span of its own.
        span.discard();
        Ok((self.sandbox_with(command.listen.is_some()).await?, ExecutionMode::Fresh))
    }

    /// Runs a program without test cases.
    async fn once(
        &mut self,
        built: BuiltProgram,
        single: SingleRun,
        judge: JudgePlan,
        control: Option<mpsc::Receiver<ProgramControl>>,
    ) -> Result<(), SandboxFailure> {
        let outputs = single.outputs.clone();
        match (built, judge) {
            (BuiltProgram::Ready(ready), JudgePlan::Interactor(recipe, start)) => {
                if let BuiltProgram::Ready(other) =
                    self.build(recipe, StageName::Interactor).await?
                {
                    self.single_pair(&ready, single, &other, &start).await?;
                }
            }
            (BuiltProgram::Ready(ready), _) => self.single(None, ready, single, control).await?,
            (BuiltProgram::Here(sandbox), _) => {
                let ready = ReadyProgram { files: Vec::new(), is_compiled: true };
                self.single(Some(sandbox), ready, single, control).await?;
            }
            (BuiltProgram::Refused, _) => {}
        }
        // Requested files that were never created are reported, too.
        self.output_files(outputs, Vec::new()).await;
        Ok(())
    }

    /// Runs the program's only run, in the sandbox of its compiler if necessary.
    async fn single(
        &mut self,
        sandbox: Option<Box<dyn LeasedSandbox>>,
        ready: ReadyProgram,
        single: SingleRun,
        control: Option<mpsc::Receiver<ProgramControl>>,
    ) -> Result<(), SandboxFailure> {
        let SingleRun { start, stdin, terminal, outputs, outputs_bytes_max } = single;
        let mut command = self.command(start, ready.files, ready.is_compiled);
        command.stdin = stdin;
        command.terminal = terminal;
        command.control = control;
        command.outputs = outputs.clone();
        command.outputs_bytes_max = outputs_bytes_max;
        let serving = self.attach(&mut command)?;
        let (mut sandbox, mode) = match sandbox {
            Some(sandbox) => (sandbox, ExecutionMode::Fresh),
            None => self.enter(&mut command).await?,
        };
        let ran = self.run(&mut *sandbox, command, serving, StageName::Run, None).await;
        let (outcome, contents) = match ran {
            Ok(ran) => ran,
            Err(failure) => {
                self.push(StageName::Run, mode, verdict::infrastructure_failure());
                return Err(failure);
            }
        };
        self.progress.exit(StageName::Run, None, mode, &outcome);
        self.push(StageName::Run, mode, outcome);
        self.output_files(outputs, contents).await;
        Ok(())
    }

    /// Runs every test case, in order.
    async fn cases(
        &mut self,
        ready: &ReadyProgram,
        cases: Vec<TestCasePlan>,
        judge: &ReadyJudge,
        go_on: CasePolicy,
    ) -> Result<(), SandboxFailure> {
        for (number, case) in (1..).zip(cases) {
            let name = case.name.clone();
            let ran = self.case(ready, case, judge, number).await;
            let (mut outcome, mode, judge) = match ran {
                Ok(ran) => ran,
                Err(failure) => {
                    let outcome = verdict::infrastructure_failure();
                    let mode = ExecutionMode::Fresh;
                    let (judge, output_at_top) = (None, false);
                    self.tests.push(TestResult { name, outcome, mode, judge, output_at_top });
                    return Err(failure);
                }
            };
            let stop = outcome.verdict != Verdict::Ok;
            judge::bound_output(&mut outcome, &mut self.output_left);
            let output_at_top = false;
            self.tests.push(TestResult { name, outcome, mode, judge, output_at_top });
            if stop && go_on == CasePolicy::WhileOk {
                break;
            }
        }
        Ok(())
    }

    /// Runs one test case; returns the judged outcome of the program and that of its judge.
    async fn case(
        &mut self,
        ready: &ReadyProgram,
        case: TestCasePlan,
        judge: &ReadyJudge,
        number: u32,
    ) -> Result<(StageOutcome, ExecutionMode, Option<StageOutcome>), SandboxFailure> {
        if let ReadyJudge::Interactor(other, start) = judge {
            let input = vec![text_file(INPUT, case.stdin), expected_file(case.expected)];
            let (program, other) = ((ready, case.start), (other, start, input));
            let nothing = (Vec::new(), 0);
            let ((outcome, _), interactor_outcome) =
                self.pair(program, other, nothing, Some(number)).await?;
            return Ok((outcome, ExecutionMode::Fresh, Some(interactor_outcome)));
        }
        let mut command = self.command(case.start, ready.files.clone(), ready.is_compiled);
        let input = match judge {
            ReadyJudge::Checker(..) => case.stdin.clone(),
            ReadyJudge::Nobody | ReadyJudge::Compare(_) | ReadyJudge::Interactor(..) => Vec::new(),
        };
        if !case.stdin.is_empty() {
            command.stdin = StdinSource::Bytes(case.stdin);
        }
        let serving = self.attach(&mut command)?;
        let (mut sandbox, mode) = self.enter(&mut command).await?;
        let run = (command, serving);
        let ran = self.run(&mut *sandbox, run.0, run.1, StageName::Run, Some(number)).await;
        // Frees its memory before a checker needs as much.
        drop(sandbox);
        let (mut outcome, _) = ran?;
        let mut interactor_outcome = None;
        let is_ok = outcome.verdict == Verdict::Ok;
        match (judge, case.expected) {
            (ReadyJudge::Compare(rule), Some(expected)) if is_ok => {
                if let Some(difference) = difference(*rule, &outcome, expected).await {
                    outcome.verdict = Verdict::Wa;
                    outcome.message = Some(difference);
                }
                self.progress.exit(StageName::Run, Some(number), mode, &outcome);
            }
            (ReadyJudge::Checker(other, start), expected) if is_ok => {
                self.progress.exit(StageName::Run, Some(number), mode, &outcome);
                let output = judge::stdout_bytes(&outcome);
                let files = [text_file(INPUT, input), text_file(OUTPUT, output)];
                let files = files.into_iter().chain([expected_file(expected)]).collect();
                let checker = self.check(other, start, files, number).await?;
                judge::apply_checker(&mut outcome, &checker);
                interactor_outcome = Some(checker);
            }
            (_, _) => self.progress.exit(StageName::Run, Some(number), mode, &outcome),
        }
        Ok((outcome, mode, interactor_outcome))
    }

    /// Runs a checker on one answer.
    async fn check(
        &mut self,
        ready: &ReadyProgram,
        start: &ProgramStart,
        files: Vec<WorkspaceFile>,
        number: u32,
    ) -> Result<StageOutcome, SandboxFailure> {
        let mut sandbox = self.sandbox().await?;
        let command = self.judge_command(ready, start, files);
        let run = (command, None);
        let ran = self.run(&mut *sandbox, run.0, run.1, StageName::Checker, Some(number)).await;
        let (outcome, _) = ran?;
        self.progress.exit(StageName::Checker, Some(number), ExecutionMode::Fresh, &outcome);
        Ok(outcome)
    }

    /// Returns a command that starts a program.
    fn command(
        &self,
        start: ProgramStart,
        files: Vec<WorkspaceFile>,
        is_compiled: bool,
    ) -> SandboxCommand {
        let mut command = command(start, files, is_compiled);
        if self.merge_stderr {
            command.stderr = OutputMode::Stdout;
        }
        command
    }

    /// Returns a command that starts a checker or an interactor, with additional files.
    fn judge_command(
        &self,
        ready: &ReadyProgram,
        start: &ProgramStart,
        added: Vec<WorkspaceFile>,
    ) -> SandboxCommand {
        let mut command = command(start.clone(), ready.files.clone(), ready.is_compiled);
        make_room(&mut command.limits, &added);
        command.files.extend(added);
        command.kept_bytes = Some(SAID_BYTES_MAX);
        command
    }

    /// Runs one command to its end and judges it.
    async fn run(
        &mut self,
        sandbox: &mut dyn LeasedSandbox,
        mut command: SandboxCommand,
        serving: Option<GrantSockets>,
        stage: StageName,
        test: Option<u32>,
    ) -> Result<(StageOutcome, Vec<Result<Vec<u8>, String>>), SandboxFailure> {
        let program = program_name(&command);
        let mut span = self.stage_span(stage, test);
        if stage == StageName::Run && !self.has_fixed_env {
            traces::pass_on(&span, &mut command);
        }
        let bound = serving.as_ref().and_then(|_| span.bind(&self.id.0));
        self.progress.stage(stage, test);
        let ran =
            grants::run(sandbox, command, serving, &mut ProgramOutputSink(&mut *self.progress))
                .await;
        drop(bound);
        self.since = self.machine.metrics.observe(part(stage), self.since);
        let mut exit = ran?;
        let contents = std::mem::take(&mut exit.outputs);
        let outcome = judged(self.id, stage, program, exit).await;
        traces::describe(&mut span, &outcome);
        Ok((outcome, contents))
    }

    /// Begins the span of a stage, or of the test case with this number.
    fn stage_span(&self, stage: StageName, test: Option<u32>) -> Span {
        let mut span = node::traces::span(traces::stage_name(stage));
        if let Some(number) = test {
            span.set("cove.test", number);
        }
        span
    }

    fn push(&mut self, name: StageName, mode: ExecutionMode, outcome: StageOutcome) {
        self.stages.push(StageResult { name, mode, outcome, output_at_top: false });
    }

    /// Adds the requested files, unless they were added already.
    async fn output_files(&mut self, outputs: Vec<String>, contents: Vec<Result<Vec<u8>, String>>) {
        if !self.files.is_empty() {
            return;
        }
        let bytes = contents.iter().flatten().map(Vec::len).sum();
        let missing = || Err("the program did not run to its end".to_owned());
        let contents = contents.into_iter().chain(std::iter::repeat_with(missing));
        let files = outputs.into_iter().zip(contents);
        let made = aside(bytes, move || {
            files.map(|(name, content)| verdict::output_file(name, content)).collect()
        });
        match made.await {
            Ok(files) => self.files = files,
            Err(error) => tracing::error!(execution = %self.id, %error, "files cannot be written"),
        }
    }
}

/// Judges the end of a stage, on a blocking thread if there is much output.
async fn judged(
    id: &ExecutionId,
    stage: StageName,
    program: Vec<u8>,
    exit: ProgramExit,
) -> StageOutcome {
    let bytes = exit.stdout.len() + exit.stderr.len();
    let judged = aside(bytes, move || verdict::outcome(stage, &program, exit)).await;
    let outcome = judged.unwrap_or_else(|error| {
        tracing::error!(execution = %id, %error, "an outcome cannot be written");
        verdict::infrastructure_failure()
    });
    if outcome.verdict == Verdict::Ie {
        tracing::error!(execution = %id, "the engine lost a program");
    }
    outcome
}

/// Judge of test cases, ready to be started.
enum ReadyJudge {
    Nobody,
    Compare(compare::ComparisonRule),
    Checker(ReadyProgram, ProgramStart),
    Interactor(ReadyProgram, ProgramStart),
}

/// Compares an answer, on a blocking thread if it is long.
async fn difference(
    rule: compare::ComparisonRule,
    outcome: &StageOutcome,
    expected: Vec<u8>,
) -> Option<String> {
    let actual = judge::stdout_bytes(outcome);
    let bytes = actual.len().max(expected.len());
    let compared = aside(bytes, move || compare::difference(rule, &actual, &expected));
    // It only fails after a panic, and then the answer does not count as equal.
    compared.await.unwrap_or_else(|error| {
        tracing::error!(%error, "failed to compare an output");
        Some("the output cannot be compared".to_owned())
    })
}

fn command(start: ProgramStart, files: Vec<WorkspaceFile>, is_compiled: bool) -> SandboxCommand {
    let mut limits = start.limits;
    if is_compiled {
        make_room(&mut limits, &files);
    }
    SandboxCommand {
        argv: start.argv,
        env: start.env,
        files,
        limits,
        profile: SeccompProfile::Run,
        last: true,
        ..SandboxCommand::default()
    }
}

/// Adds the room of placed files to the limits, because the program does not store them.
fn make_room(limits: &mut ProgramLimits, files: &[WorkspaceFile]) {
    let (bytes, inodes) = plan::room(files);
    limits.disk_bytes = limits.disk_bytes.saturating_add(bytes);
    limits.disk_inodes = limits.disk_inodes.saturating_add(inodes);
}

fn text_file(name: &str, content: Vec<u8>) -> WorkspaceFile {
    WorkspaceFile { path: name.to_owned(), content: content.into(), executable: false }
}

fn expected_file(expected: Option<Vec<u8>>) -> WorkspaceFile {
    text_file(ANSWER, expected.unwrap_or_default())
}

fn program_name(command: &SandboxCommand) -> Vec<u8> {
    command.argv.first().cloned().unwrap_or_default()
}

fn part(stage: StageName) -> TimedPart {
    match stage {
        StageName::Compile => TimedPart::Compile,
        StageName::Run | StageName::Interactor | StageName::Checker => TimedPart::Run,
    }
}

/// Passes output to the observer.
struct ProgramOutputSink<'a>(&'a mut dyn ProgressObserver);

impl OutputSink for ProgramOutputSink<'_> {
    fn chunk(&mut self, stream: ChunkStream, bytes: &[u8]) {
        self.0.chunk(stream, bytes);
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_ready(context)
    }
}
