//! The service over scripted sandboxes: the programs that run, their order, and the remaining
//! state.

use std::collections::VecDeque;
use std::time::Duration;

use api::{ErrorCode, JudgeProgram, LimitSpec, TestCase, Verdict};
use node::telemetry;
use parking_lot::Mutex;
use sandbox::{OutputSink, ProgramExit, SandboxCommand};
use tokio::sync::oneshot;

use super::*;
use crate::sandboxes::{LeasedSandbox, Pending};
use crate::testing::{self, ScratchDirectory};

/// Behaviour of one command.
enum Act {
    /// Ends with this exit.
    End(ProgramExit),
    /// Fails because of Cove.
    Fail(SandboxFailure),
    /// Reports that it began, and never ends.
    Hang(oneshot::Sender<()>),
}

/// The parts of a command that a test compares: its program, and the names of its files.
type Seen = (String, Vec<String>);

#[derive(Default)]
struct Script {
    acts: Mutex<VecDeque<Act>>,
    /// Commands that were run.
    commands: Mutex<Vec<Seen>>,
    sandboxes: Mutex<usize>,
    runtimes: Vec<sandbox::WarmRuntime>,
    has_warm: bool,
}

/// Scripted engine.
struct Engine(Arc<Script>);

/// A sandbox of the engine; counted while it exists.
struct Scripted(Arc<Script>);

impl SandboxProvider for Engine {
    fn sandbox(&self) -> Pending<'_, Box<dyn LeasedSandbox>> {
        *self.0.sandboxes.lock() += 1;
        let sandbox: Box<dyn LeasedSandbox> = Box::new(Scripted(Arc::clone(&self.0)));
        Box::pin(async { Ok(sandbox) })
    }

    fn connected(&self) -> Pending<'_, Box<dyn LeasedSandbox>> {
        self.0.commands.lock().push(("connected".to_owned(), Vec::new()));
        self.sandbox()
    }

    fn layered<'a>(
        &'a self,
        _is_connected: bool,
        _layers: &'a sandbox::SandboxLayers,
    ) -> Pending<'a, Box<dyn LeasedSandbox>> {
        self.sandbox()
    }

    fn runtimes(&self) -> &[sandbox::WarmRuntime] {
        &self.0.runtimes
    }

    fn warm<'a>(&'a self, name: &'a str) -> Pending<'a, Option<Box<dyn LeasedSandbox>>> {
        self.0.commands.lock().push((format!("warm {name}"), Vec::new()));
        let is_there = self.0.has_warm;
        Box::pin(async move { if is_there { Ok(Some(self.sandbox().await?)) } else { Ok(None) } })
    }

    fn connected_warm<'a>(&'a self, name: &'a str) -> Pending<'a, Option<Box<dyn LeasedSandbox>>> {
        self.0.commands.lock().push(("connected".to_owned(), Vec::new()));
        self.warm(name)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        *self.0.sandboxes.lock() -= 1;
    }
}

impl LeasedSandbox for Scripted {
    fn run<'a>(
        &'a mut self,
        command: SandboxCommand,
        sink: &'a mut dyn OutputSink,
    ) -> Pending<'a, ProgramExit> {
        let name = String::from_utf8_lossy(&command.argv[0]).into_owned();
        let files = command.files.iter().map(|file| file.path.clone()).collect();
        self.0.commands.lock().push((name, files));
        let act = self.0.acts.lock().pop_front();
        Box::pin(async move {
            match act.expect("the script has an act for every command") {
                Act::End(exit) => {
                    sink.chunk(ChunkStream::Stdout, &exit.stdout);
                    Ok(exit)
                }
                Act::Fail(failure) => Err(failure),
                Act::Hang(began) => {
                    began.send(()).ok();
                    std::future::pending().await
                }
            }
        })
    }
}

struct Fixture {
    service: ExecutionService,
    script: Arc<Script>,
    metrics: telemetry::MetricsRegistry,
    _home: ScratchDirectory,
}

fn fixture(acts: Vec<Act>) -> Fixture {
    fixture_with(Script { acts: Mutex::new(acts.into()), ..Script::default() })
}

fn fixture_with(script: Script) -> Fixture {
    let config =
        ExecutionsConfig { running_max: Some(1), queue_max: 1, ..ExecutionsConfig::default() };
    let (home, languages) = testing::languages();
    let script = Arc::new(script);
    let mut registry = Registry::default();
    let capacity = HostCapacity { cores: 1, memory_bytes: 4 << 30 };
    let sandboxes = Box::new(Engine(Arc::clone(&script)));
    let service =
        ExecutionService::with(sandboxes, languages, config, capacity, &mut registry).unwrap();
    Fixture { service, script, metrics: telemetry::MetricsRegistry::new(registry), _home: home }
}

impl Fixture {
    async fn run(&self, request: ExecutionRequest) -> Result<Execution, ExecutionError> {
        self.service.execute("tenant", request, ProgramIo::default(), &mut ()).await
    }

    #[track_caller]
    fn check_metric(&self, line: &str) {
        let text = self.metrics.render().unwrap();
        assert!(text.lines().any(|other| other == line), "no `{line}` in\n{text}");
    }

    /// Checks that no resources are held.
    #[track_caller]
    fn check_idle(&self) {
        assert_eq!(self.service.inner.admission.load(), crate::admission::AdmissionLoad::default());
        assert_eq!(*self.script.sandboxes.lock(), 0);
    }
}

fn source(language: &str) -> ExecutionRequest {
    ExecutionRequest {
        language: Some(language.to_owned()),
        source: Some(String::new()),
        ..Default::default()
    }
}

fn argv() -> ExecutionRequest {
    ExecutionRequest { argv: Some(vec!["x".to_owned()]), ..Default::default() }
}

fn exit(code: i32, stdout: &str) -> Act {
    Act::End(ProgramExit { code: Some(code), stdout: stdout.into(), ..ProgramExit::default() })
}

fn infrastructure() -> Act {
    Act::Fail(SandboxFailure::Infrastructure("/secret/path is broken".into()))
}

/// Returns `name verdict` of every stage, then the verdict of the whole.
fn verdicts(execution: &Execution) -> String {
    let stages = execution.stages.iter();
    let stages = stages.map(|stage| format!("{:?} {}, ", stage.name, stage.outcome.verdict));
    stages.collect::<String>() + execution.outcome.verdict.as_str()
}

/// Runs `acts` as the stages of a compiled program.
async fn check(acts: Vec<Act>, expected: &str) -> Execution {
    let fixture = fixture(acts);
    let execution = fixture.run(source("built")).await.unwrap();
    assert_eq!(verdicts(&execution), expected);
    assert!(execution.id.0.starts_with("ex_"));
    fixture.check_idle();
    execution
}

#[tokio::test]
async fn stages_run_in_order_until_one_is_not_ok() {
    let execution = check(vec![exit(0, "c"), exit(0, "r")], "Compile OK, Run OK, OK").await;
    assert_eq!((execution.outcome.stdout.as_str(), execution.mode), ("r", ExecutionMode::Fresh));
    assert_eq!(execution.stages[0].outcome.stdout, "c");
    check(vec![exit(0, ""), exit(3, "")], "Compile OK, Run RE, RE").await;
    check(vec![exit(1, "")], "Compile CE, CE").await;
}

#[tokio::test]
async fn what_cove_fails_at_is_ie_and_tells_nothing() {
    let execution = check(vec![infrastructure()], "Compile IE, IE").await;
    assert!(!format!("{execution:?}").contains("secret"));
    check(vec![exit(0, ""), infrastructure()], "Compile OK, Run IE, IE").await;
    check(vec![Act::End(ProgramExit::default())], "Compile IE, IE").await;
}

#[tokio::test]
async fn files_that_do_not_fit_are_the_caller_s_fault() {
    let fixture = fixture(vec![Act::Fail(SandboxFailure::NoRoom)]);
    let error = fixture.run(argv()).await.unwrap_err();
    assert_eq!(error.detail().field.as_deref(), Some("limits.disk_bytes"));
    fixture.check_idle();
}

#[tokio::test]
async fn output_files_come_back_in_the_order_they_were_asked_for() {
    let outputs = vec![Ok(b"1".to_vec()), Err("missing".to_owned())];
    let ended = Act::End(ProgramExit { code: Some(0), outputs, ..ProgramExit::default() });
    let fixture = fixture(vec![ended, exit(1, "")]);
    let with = |request| ExecutionRequest { outputs: vec!["a".into(), "b".into()], ..request };
    let files = fixture.run(with(argv())).await.unwrap().files;
    assert_eq!(files[0].content.as_deref(), Some("1"));
    assert_eq!((files[1].name.as_str(), files[1].error.as_deref()), ("b", Some("missing")));
    // A program that was not even compiled has no files, and that is reported.
    let files = fixture.run(with(source("built"))).await.unwrap().files;
    assert!(files.len() == 2 && files.iter().all(|file| file.error.is_some()), "{files:?}");
}

#[tokio::test]
async fn progress_follows_stages_and_output() {
    #[derive(Default)]
    struct Log(String);
    impl ProgressObserver for Log {
        fn stage(&mut self, stage: StageName, _test: Option<u32>) {
            self.0 += &format!("{stage:?} ");
        }
        fn exit(&mut self, _: StageName, _: Option<u32>, _: ExecutionMode, outcome: &StageOutcome) {
            self.0 += &format!("{} ", outcome.verdict);
        }
        fn chunk(&mut self, stream: ChunkStream, bytes: &[u8]) {
            self.0 += &format!("{stream:?} {} ", String::from_utf8_lossy(bytes));
        }
    }
    let fixture = fixture(vec![exit(0, "c"), exit(0, "r")]);
    let mut log = Log::default();
    fixture
        .service
        .execute("tenant", source("built"), ProgramIo::default(), &mut log)
        .await
        .unwrap();
    assert_eq!(log.0, "Compile Stdout c OK Run Stdout r OK ");
}

#[tokio::test]
async fn a_refused_request_takes_no_sandbox() {
    let fixture = fixture(vec![]);
    for request in [source("cobol"), ExecutionRequest::default()] {
        fixture.run(request).await.unwrap_err();
    }
    let limits = LimitSpec { memory_bytes: Some(u64::MAX), ..Default::default() };
    fixture.run(ExecutionRequest { limits, ..argv() }).await.unwrap_err();
    assert_eq!(*fixture.script.commands.lock(), Vec::<Seen>::new());
    fixture.check_idle();
    fixture.check_metric("cove_executions_refused_total{code=\"invalid_request\"} 2");
    fixture.check_metric("cove_executions_refused_total{code=\"unknown_language\"} 1");
}

/// Starts an execution that hangs; returns once it runs.
async fn hang(fixture: &Fixture, began: oneshot::Receiver<()>) -> tokio::task::JoinHandle<()> {
    let service = fixture.service.clone();
    let running = tokio::spawn(async move {
        service.execute("tenant", argv(), ProgramIo::default(), &mut ()).await.unwrap();
    });
    tokio::time::timeout(Duration::from_secs(10), began).await.unwrap().unwrap();
    running
}

#[tokio::test]
async fn dropping_the_future_drops_the_sandbox_and_frees_the_place() {
    let (sender, began) = oneshot::channel();
    let fixture = fixture(vec![Act::Hang(sender), exit(0, "")]);
    let running = hang(&fixture, began).await;
    fixture.check_metric("cove_executions_running 1");
    fixture.check_metric("cove_executions_memory_reserved_bytes 536870912");
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    fixture.check_idle();
    assert_eq!(fixture.run(argv()).await.unwrap().outcome.verdict, Verdict::Ok);
}

#[tokio::test]
async fn beyond_the_queue_is_an_error_that_may_be_retried() {
    let (sender, began) = oneshot::channel();
    let fixture = fixture(vec![Act::Hang(sender), exit(0, "")]);
    let running = hang(&fixture, began).await;
    let mut waiting = Box::pin(fixture.run(argv()));
    begin(&mut waiting).await;
    fixture.check_metric("cove_executions_waiting 1");
    let error = fixture.run(argv()).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Overloaded);
    assert!(error.detail().retry && error.retry_after().is_some());
    running.abort();
    assert_eq!(waiting.await.unwrap().outcome.verdict, Verdict::Ok);
    fixture.check_idle();
    fixture.check_metric("cove_executions_refused_total{code=\"overloaded\"} 1");
}

/// Polls an execution until it waits.
async fn begin<F: Future + Unpin>(waiting: &mut F) {
    tokio::select! {
        biased;
        _ = waiting => panic!("it ran beside the other one"),
        () = std::future::ready(()) => {}
    }
}

/// The maximum number of one caller's requests wait; another caller's job still runs second.
#[tokio::test]
async fn a_job_takes_its_turn_although_the_queue_of_callers_is_full() {
    let (sender, began) = oneshot::channel();
    let (job_sender, job_began) = oneshot::channel();
    let acts = vec![Act::Hang(sender), exit(0, ""), Act::Hang(job_sender), exit(0, "")];
    let fixture = fixture(acts);
    let running = hang(&fixture, began).await;
    let mut waiting = Box::pin(fixture.run(argv()));
    begin(&mut waiting).await;
    assert_eq!(fixture.run(argv()).await.unwrap_err().code(), ErrorCode::Overloaded);
    let id = ExecutionId("ex_1".to_owned());
    let mut progress = ();
    let job = fixture.service.execute_as(id, "other", argv(), ProgramIo::default(), &mut progress);
    let mut job = Box::pin(job);
    begin(&mut job).await;
    fixture.check_metric("cove_executions_waiting 2");
    running.abort();
    assert_eq!(waiting.await.unwrap().outcome.verdict, Verdict::Ok);
    tokio::select! {
        _ = job => panic!("it hangs"),
        began = job_began => began.unwrap(),
    }
    assert_eq!(fixture.run(argv()).await.unwrap().outcome.verdict, Verdict::Ok);
    fixture.check_idle();
}

#[tokio::test]
async fn what_ended_is_counted_by_language_and_verdict() {
    let fixture = fixture(vec![exit(0, ""), exit(1, ""), exit(0, "")]);
    for request in [source("script"), source("sc"), argv()] {
        fixture.run(request).await.unwrap();
    }
    fixture.check_metric("cove_executions_total{language=\"script\",verdict=\"OK\"} 1");
    fixture.check_metric("cove_executions_total{language=\"script\",verdict=\"RE\"} 1");
    fixture.check_metric("cove_executions_total{language=\"argv\",verdict=\"OK\"} 1");
    for (stage, count) in [("queue", 3), ("sandbox", 3), ("compile", 0), ("run", 3), ("total", 3)] {
        fixture.check_metric(&format!(
            "cove_execution_stage_duration_seconds_count{{stage=\"{stage}\"}} {count}"
        ));
    }
}

/// Returns the commands that were run: `program file file`, in order.
fn commands(fixture: &Fixture) -> Vec<String> {
    let commands = std::mem::take(&mut *fixture.script.commands.lock());
    let show = |(program, files): Seen| [vec![program], files].concat().join(" ");
    let short = |text: String| text.replace("/opt/compiler/bin/", "");
    commands.into_iter().map(show).map(short).collect()
}

/// Returns a command that succeeds and makes these files.
fn makes(outputs: &[&str]) -> Act {
    let outputs = outputs.iter().map(|content| match *content {
        "" => Err("missing".to_owned()),
        content => Ok(content.as_bytes().to_vec()),
    });
    let stderr = b"warning".to_vec();
    let cpu = Duration::from_secs(1);
    Act::End(ProgramExit {
        code: Some(0),
        outputs: outputs.collect(),
        stderr,
        cpu,
        ..ProgramExit::default()
    })
}

fn modes(execution: &Execution) -> (ExecutionMode, Vec<ExecutionMode>) {
    (execution.mode, execution.stages.iter().map(|stage| stage.mode).collect())
}

#[tokio::test]
async fn an_equal_compilation_is_done_once_for_each_tenant() {
    let run = || exit(0, "r");
    let made = || makes(&["P", "D"]);
    let fixture = fixture(vec![made(), run(), run(), made(), run(), made(), run()]);
    let first = fixture.run(source("made")).await.unwrap();
    let again = fixture.run(source("made")).await.unwrap();
    let fresh = ExecutionRequest { fresh: true, ..source("made") };
    let fresh = fixture.run(fresh).await.unwrap();
    let io = ProgramIo::default();
    let other = fixture.service.execute("other", source("made"), io, &mut ()).await.unwrap();
    let compiled = ["compiler main.mk", "./program main.mk program data"];
    assert_eq!(commands(&fixture), [&compiled[..], &compiled[1..], &compiled, &compiled].concat());
    assert_eq!(
        modes(&first),
        (ExecutionMode::Fresh, vec![ExecutionMode::Fresh, ExecutionMode::Fresh])
    );
    assert_eq!(
        modes(&again),
        (ExecutionMode::Cached, vec![ExecutionMode::Cached, ExecutionMode::Fresh])
    );
    assert_eq!((modes(&fresh), modes(&other)), (modes(&first), modes(&first)));
    // The compiler's output is repeated; its time is not.
    let stage = |execution: &Execution| execution.stages[0].outcome.clone();
    assert_eq!((stage(&first).cpu_ms, stage(&again).cpu_ms), (1000.0, 0.0));
    assert_eq!(StageOutcome { cpu_ms: 0.0, ..stage(&first) }, stage(&again));
    fixture.check_idle();
    for (result, count) in [("hit", 1), ("joined", 0), ("miss", 2)] {
        let line = format!("cove_compile_cache_lookups_total{{result=\"{result}\"}} {count}");
        fixture.check_metric(&line);
    }
    fixture.check_metric("cove_compile_cache_entries 2");
    fixture.check_metric("cove_executions_mode_total{mode=\"cached\"} 1");
}

#[tokio::test]
async fn what_was_not_compiled_or_not_taken_out_is_not_kept() {
    let fixture =
        fixture(vec![exit(1, ""), exit(1, ""), makes(&["P", ""]), exit(0, ""), exit(1, "")]);
    for expected in ["Compile CE, CE", "Compile CE, CE", "Compile OK, Run OK, OK", "Compile CE, CE"]
    {
        assert_eq!(verdicts(&fixture.run(source("made")).await.unwrap()), expected);
    }
    // The third ran where it was compiled, where its files exist already.
    let ran = commands(&fixture);
    assert_eq!(ran[3], "./program");
    assert_eq!(ran.iter().filter(|command| command.starts_with("compiler")).count(), 4);
    fixture.check_idle();
}

#[tokio::test]
async fn files_of_unknown_names_are_listed_and_checked() {
    let list = |names: &str| exit(0, names);
    let run = || exit(0, "");
    let listed = vec![makes(&[]), list("./a\0b/c\0"), makes(&["A", "C"]), run(), run()];
    let fixture = fixture(listed);
    for _ in 0..2 {
        fixture.run(source("listed")).await.unwrap();
    }
    let placed = "./run main.ls a b/c";
    assert_eq!(commands(&fixture), ["compiler main.ls", "list", "list", placed, placed]);
    for names in ["../a\0", "/etc/passwd\0", "a/./b\0", "\u{fffd}/\0", ""] {
        fixture.script.acts.lock().extend([makes(&[]), list(names), run()]);
        let request = ExecutionRequest { fresh: true, ..source("listed") };
        fixture.run(request).await.unwrap();
        assert_eq!(commands(&fixture), ["compiler main.ls", "list", "./run"], "{names:?}");
    }
    fixture.check_idle();
}

/// Returns a request with these inputs and expected outputs.
fn with_tests(language: &str, tests: &[(&str, &str)]) -> ExecutionRequest {
    let tests = tests.iter().map(|(stdin, expected)| TestCase {
        stdin: Some((*stdin).to_owned()),
        expected: Some((*expected).to_owned()),
        ..Default::default()
    });
    ExecutionRequest { tests: tests.collect(), ..source(language) }
}

/// Returns `name verdict` of every test case, then the verdict of the whole.
fn test_verdicts(execution: &Execution) -> String {
    let tests = execution.tests.iter();
    let tests = tests.map(|test| format!("{} {}, ", test.name, test.outcome.verdict));
    tests.collect::<String>() + execution.outcome.verdict.as_str()
}

#[tokio::test]
async fn test_cases_share_one_compilation_and_nothing_else() {
    let fixture = fixture(vec![
        makes(&["P", "D"]),
        exit(0, "1 \n"),
        exit(0, "2"),
        exit(3, "3"),
        exit(0, "x"),
    ]);
    let tests = [("", "1"), ("", "2"), ("", "3"), ("", "x")];
    let execution = fixture.run(with_tests("made", &tests)).await.unwrap();
    assert_eq!(test_verdicts(&execution), "1 OK, 2 OK, 3 RE, 4 OK, RE");
    assert_eq!(
        (verdicts(&execution).as_str(), execution.outcome.exit_code),
        ("Compile OK, RE", Some(3))
    );
    let run = "./program main.mk program data";
    assert_eq!(commands(&fixture), ["compiler main.mk", run, run, run, run]);
    fixture.check_idle();

    // Cached now, and stopped at the first wrong one.
    fixture.script.acts.lock().extend([exit(0, "1"), exit(0, "wrong")]);
    let request =
        ExecutionRequest { stop_at_first_failure: true, ..with_tests("made", &tests[..3]) };
    let execution = fixture.run(request).await.unwrap();
    assert_eq!(test_verdicts(&execution), "1 OK, 2 WA, WA");
    assert_eq!(execution.mode, ExecutionMode::Cached);
    let message = execution.outcome.message.unwrap();
    assert_eq!(message, "differs from what is expected in line 1");
}

#[tokio::test]
async fn test_cases_of_what_does_not_compile_are_not_run() {
    for (made, expected) in [(exit(1, ""), "Compile CE, CE"), (makes(&["P", ""]), "Compile CE, CE")]
    {
        let fixture = fixture(vec![made]);
        let execution = fixture.run(with_tests("made", &[("", "")])).await.unwrap();
        assert_eq!(verdicts(&execution), expected);
        assert!(execution.tests.is_empty());
        fixture.check_idle();
    }
    let fixture = fixture(vec![exit(0, ""), infrastructure()]);
    let execution =
        fixture.run(with_tests("script", &[("", ""), ("", ""), ("", "")])).await.unwrap();
    assert_eq!(test_verdicts(&execution), "1 OK, 2 IE, IE");
    fixture.check_idle();
}

fn companion() -> JudgeProgram {
    JudgeProgram { argv: Some(vec!["judge".to_owned()]), ..Default::default() }
}

#[tokio::test]
async fn a_checker_is_run_for_each_answer_that_came() {
    let fixture = fixture(vec![
        exit(0, "a"),
        exit(0, "fine"),
        exit(0, "b"),
        exit(1, "no"),
        exit(9, ""),
        exit(0, "c"),
        exit(3, ""),
    ]);
    let request = ExecutionRequest {
        comparison: Some(OutputComparison::Checker(Box::new(companion()))),
        ..with_tests("script", &[("", ""), ("", ""), ("", ""), ("", "")])
    };
    let execution = fixture.run(request).await.unwrap();
    assert_eq!(test_verdicts(&execution), "1 OK, 2 WA, 3 RE, 4 JF, WA");
    assert_eq!(execution.outcome.message.as_deref(), Some("no"));
    assert_eq!(execution.tests[1].outcome.stdout, "b");
    assert_eq!(execution.tests[3].judge.as_ref().unwrap().exit_code, Some(3));
    let (run, judge) = ("/opt/interp/bin/interp main.sc", "judge input.txt output.txt answer.txt");
    assert_eq!(commands(&fixture), [run, judge, run, judge, run, run, judge]);
    fixture.check_idle();
}

#[tokio::test]
async fn a_judge_that_does_not_compile_is_its_author_s_failure() {
    let checker = JudgeProgram {
        language: Some("made".to_owned()),
        source: Some(String::new()),
        ..Default::default()
    };
    let fixture = fixture(vec![exit(1, "bad"), exit(1, "bad")]);
    let request = ExecutionRequest {
        comparison: Some(OutputComparison::Checker(Box::new(checker.clone()))),
        ..with_tests("script", &[("", "")])
    };
    assert_eq!(verdicts(&fixture.run(request).await.unwrap()), "Checker JF, JF");
    let request = ExecutionRequest { interactor: Some(checker), ..source("script") };
    let execution = fixture.run(request).await.unwrap();
    assert_eq!(verdicts(&execution), "Interactor JF, JF");
    assert_eq!(execution.outcome.stdout, "bad");
    fixture.check_idle();
}

#[tokio::test]
async fn a_program_and_its_interactor_are_judged_together() {
    for (program, interactor, expected) in [
        (exit(0, ""), exit(0, ""), "Interactor OK, Run OK, OK"),
        (exit(0, ""), exit(1, ""), "Interactor RE, Run WA, WA"),
        (exit(0, ""), exit(3, ""), "Interactor RE, Run JF, JF"),
        (exit(0, ""), infrastructure(), "Run IE, IE"),
    ] {
        let fixture = fixture(vec![program, interactor]);
        let request = ExecutionRequest { interactor: Some(companion()), ..source("script") };
        assert_eq!(verdicts(&fixture.run(request).await.unwrap()), expected);
        fixture.check_idle();
    }
    let fixture = fixture(vec![exit(0, ""), exit(0, ""), exit(0, ""), exit(2, "")]);
    let request = ExecutionRequest {
        interactor: Some(companion()),
        ..with_tests("script", &[("", ""), ("", "")])
    };
    assert_eq!(test_verdicts(&fixture.run(request).await.unwrap()), "1 OK, 2 WA, WA");
    let (run, judge) = ("/opt/interp/bin/interp main.sc", "judge input.txt answer.txt");
    assert_eq!(commands(&fixture), [run, judge, run, judge]);
}

#[tokio::test]
async fn a_runtime_that_waits_is_used_unless_it_is_absent_or_not_wanted() {
    let bytes_of =
        |bytes_of: &[&str]| bytes_of.iter().map(|word| word.as_bytes().to_vec()).collect();
    let runtime = || sandbox::WarmRuntime {
        name: "script".to_owned(),
        kind: sandbox::WarmKind::ForkPython,
        argv: bytes_of(&["/opt/interp/bin/interp", "main.sc"]),
        env: bytes_of(&["HOME=/home/user", "LANG=C.UTF-8"]),
        limits: sandbox::ProgramLimits::default(),
        ready: 1,
        forks_max: 1,
    };
    for (has_warm, fresh, expected) in [
        (true, false, ExecutionMode::Zygote),
        (false, false, ExecutionMode::Fresh),
        (true, true, ExecutionMode::Fresh),
    ] {
        let fixture = fixture_with(Script {
            acts: Mutex::new([exit(0, ""), exit(0, "")].into()),
            runtimes: vec![runtime()],
            has_warm,
            ..Script::default()
        });
        let execution = fixture.run(ExecutionRequest { fresh, ..source("sc") }).await.unwrap();
        assert_eq!(modes(&execution), (expected, vec![expected]));
        let request = ExecutionRequest { fresh, ..with_tests("sc", &[("", "")]) };
        let execution = fixture.run(request).await.unwrap();
        assert_eq!((execution.mode, execution.tests[0].mode), (expected, expected));
        fixture.check_idle();
    }
}
