//! The service over sandboxes that follow a script: what runs, in which order, and what is left.

use std::collections::VecDeque;
use std::time::Duration;

use api::{Companion, ErrorCode, LimitSpec, TestCase, Verdict};
use node::telemetry;
use parking_lot::Mutex;
use sandbox::{Command, Exit, Output, OutputSink};
use tokio::sync::oneshot;

use super::*;
use crate::sandboxes::{Pending, Sandbox};
use crate::testing::{self, Directory};

/// What one command does.
enum Act {
    /// It ends so.
    End(Exit),
    /// Cove fails at it.
    Fail(Failure),
    /// It says that it began, and never ends.
    Hang(oneshot::Sender<()>),
}

/// What of a command a test looks at: its program, and the names of its files.
type Seen = (String, Vec<String>);

#[derive(Default)]
struct Script {
    acts: Mutex<VecDeque<Act>>,
    /// The commands that were run.
    commands: Mutex<Vec<Seen>>,
    sandboxes: Mutex<usize>,
    runtimes: Vec<sandbox::WarmRuntime>,
    has_warm: bool,
}

/// The engine.
struct Engine(Arc<Script>);

/// One of its sandboxes; counted while it exists.
struct Scripted(Arc<Script>);

impl Sandboxes for Engine {
    fn sandbox(&self) -> Pending<'_, Box<dyn Sandbox>> {
        *self.0.sandboxes.lock() += 1;
        let sandbox: Box<dyn Sandbox> = Box::new(Scripted(Arc::clone(&self.0)));
        Box::pin(async { Ok(sandbox) })
    }

    fn runtimes(&self) -> &[sandbox::WarmRuntime] {
        &self.0.runtimes
    }

    fn warm<'a>(&'a self, name: &'a str) -> Pending<'a, Option<Box<dyn Sandbox>>> {
        self.0.commands.lock().push((format!("warm {name}"), Vec::new()));
        let is_there = self.0.has_warm;
        Box::pin(async move {
            if is_there { Ok(Some(self.sandbox().await?)) } else { Ok(None) }
        })
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        *self.0.sandboxes.lock() -= 1;
    }
}

impl Sandbox for Scripted {
    fn run<'a>(&'a mut self, command: Command, sink: &'a mut dyn OutputSink) -> Pending<'a, Exit> {
        let name = String::from_utf8_lossy(&command.argv[0]).into_owned();
        let files = command.files.iter().map(|file| file.path.clone()).collect();
        self.0.commands.lock().push((name, files));
        let act = self.0.acts.lock().pop_front();
        Box::pin(async move {
            match act.expect("the script has an act for every command") {
                Act::End(exit) => {
                    sink.chunk(Stream::Stdout, &exit.stdout);
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
    service: Service,
    script: Arc<Script>,
    metrics: telemetry::Metrics,
    _home: Directory,
}

fn fixture(acts: Vec<Act>) -> Fixture {
    let config = Config { running_max: Some(1), queue_max: 1, ..Config::default() };
    let (home, languages) = testing::languages();
    let script = Arc::new(Script { acts: Mutex::new(acts.into()), ..Script::default() });
    let mut registry = Registry::default();
    let capacity = Capacity { cores: 1, memory_bytes: 4 << 30 };
    let sandboxes = Box::new(Engine(Arc::clone(&script)));
    let service = Service::with(sandboxes, languages, config, capacity, &mut registry).unwrap();
    Fixture { service, script, metrics: telemetry::Metrics::new(registry), _home: home }
}

impl Fixture {
    async fn run(&self, request: ExecutionRequest) -> Result<Execution, Error> {
        self.service.execute("tenant", request, Io::default(), &mut ()).await
    }

    #[track_caller]
    fn check_metric(&self, line: &str) {
        let text = self.metrics.render().unwrap();
        assert!(text.lines().any(|other| other == line), "no `{line}` in\n{text}");
    }

    /// Nothing is held by anybody.
    #[track_caller]
    fn check_idle(&self) {
        assert_eq!(self.service.inner.admission.load(), crate::admission::Load::default());
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
    Act::End(Exit { code: Some(code), stdout: stdout.into(), ..Exit::default() })
}

fn infrastructure() -> Act {
    Act::Fail(Failure::Infrastructure("/secret/path is broken".into()))
}

/// `name verdict` of every stage, then the verdict of the whole.
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
    assert_eq!((execution.outcome.stdout.as_str(), execution.mode), ("r", Mode::Fresh));
    assert_eq!(execution.stages[0].outcome.stdout, "c");
    check(vec![exit(0, ""), exit(3, "")], "Compile OK, Run RE, RE").await;
    check(vec![exit(1, "")], "Compile CE, CE").await;
}

#[tokio::test]
async fn what_cove_fails_at_is_ie_and_tells_nothing() {
    let execution = check(vec![infrastructure()], "Compile IE, IE").await;
    assert!(!format!("{execution:?}").contains("secret"));
    check(vec![exit(0, ""), infrastructure()], "Compile OK, Run IE, IE").await;
    check(vec![Act::End(Exit::default())], "Compile IE, IE").await;
}

#[tokio::test]
async fn files_that_do_not_fit_are_the_caller_s_fault() {
    let fixture = fixture(vec![Act::Fail(Failure::NoRoom)]);
    let error = fixture.run(argv()).await.unwrap_err();
    assert_eq!(error.detail().field.as_deref(), Some("limits.disk_bytes"));
    fixture.check_idle();
}

#[tokio::test]
async fn output_files_come_back_in_the_order_they_were_asked_for() {
    let outputs = vec![Ok(b"1".to_vec()), Err("missing".to_owned())];
    let ended = Act::End(Exit { code: Some(0), outputs, ..Exit::default() });
    let fixture = fixture(vec![ended, exit(1, "")]);
    let with = |request| ExecutionRequest { outputs: vec!["a".into(), "b".into()], ..request };
    let files = fixture.run(with(argv())).await.unwrap().files;
    assert_eq!(files[0].content.as_deref(), Some("1"));
    assert_eq!((files[1].name.as_str(), files[1].error.as_deref()), ("b", Some("missing")));
    // A program that was not even compiled has none, and that is said.
    let files = fixture.run(with(source("built"))).await.unwrap().files;
    assert!(files.len() == 2 && files.iter().all(|file| file.error.is_some()), "{files:?}");
}

#[tokio::test]
async fn progress_follows_stages_and_output() {
    #[derive(Default)]
    struct Log(String);
    impl Progress for Log {
        fn stage(&mut self, stage: StageName, _test: Option<u32>) {
            self.0 += &format!("{stage:?} ");
        }
        fn exit(&mut self, _: StageName, _: Option<u32>, _: Mode, outcome: &Outcome) {
            self.0 += &format!("{} ", outcome.verdict);
        }
        fn chunk(&mut self, stream: Stream, bytes: &[u8]) {
            self.0 += &format!("{stream:?} {} ", String::from_utf8_lossy(bytes));
        }
    }
    let fixture = fixture(vec![exit(0, "c"), exit(0, "r")]);
    let mut log = Log::default();
    fixture.service.execute("tenant", source("built"), Io::default(), &mut log).await.unwrap();
    assert_eq!(log.0, "Compile Stdout c Run Stdout r ");
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
        service.execute("tenant", argv(), Io::default(), &mut ()).await.unwrap();
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
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("it ran beside the other one"),
        () = std::future::ready(()) => {}
    }
    fixture.check_metric("cove_executions_waiting 1");
    let error = fixture.run(argv()).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Overloaded);
    assert!(error.detail().retry && error.retry_after().is_some());
    running.abort();
    assert_eq!(waiting.await.unwrap().outcome.verdict, Verdict::Ok);
    fixture.check_idle();
    fixture.check_metric("cove_executions_refused_total{code=\"overloaded\"} 1");
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
