//! Asynchronous executions over a real queue, in sandboxes whose programs behave as their names
//! say.

use std::sync::atomic::{AtomicU32, Ordering};

use api::{EventKind, Grant, ModelGrant, TerminalSize, Verdict, WebhookTarget};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use node::drain::DrainHandle;
use node::gateway::{GrantGate, GrantGateway, GrantHolder, GrantOpening};
use node::http;
use node::store::{SqlStore, StoreConfig, StoreUrl};
use node::telemetry::Registry;
use parking_lot::Mutex;
use sandbox::{ChunkStream, OutputSink, ProgramExit, SandboxCommand, StdinSource};
use testkit::Scratch;
use tokio::task::JoinHandle;

use super::*;
use crate::config::{ExecutionsConfig, HostCapacity};
use crate::queue::sql::SqlQueue;
use crate::sandboxes::{LeasedSandbox, Pending, SandboxFailure, SandboxProvider};
use crate::testing::{self, ScratchDirectory};

const TENANT: &str = "tok_a";

/// Programs by name: `echo` writes its arguments, `cat` its input, `hang` never ends, `lost` is a
/// failure of Cove, `flaky` is one the first time.
#[derive(Clone, Default)]
struct Programs {
    started: Arc<AtomicU32>,
}

struct Place(Programs);

impl SandboxProvider for Programs {
    fn sandbox(&self) -> Pending<'_, Box<dyn LeasedSandbox>> {
        let place: Box<dyn LeasedSandbox> = Box::new(Place(self.clone()));
        Box::pin(async { Ok(place) })
    }

    fn connected(&self) -> Pending<'_, Box<dyn LeasedSandbox>> {
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
        &[]
    }

    fn warm<'a>(&'a self, _name: &'a str) -> Pending<'a, Option<Box<dyn LeasedSandbox>>> {
        Box::pin(async { Ok(None) })
    }

    fn connected_warm<'a>(&'a self, name: &'a str) -> Pending<'a, Option<Box<dyn LeasedSandbox>>> {
        self.warm(name)
    }
}

impl LeasedSandbox for Place {
    fn run<'a>(
        &'a mut self,
        command: SandboxCommand,
        sink: &'a mut dyn OutputSink,
    ) -> Pending<'a, ProgramExit> {
        let count = self.0.started.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let argv: Vec<String> =
                command.argv.iter().map(|word| String::from_utf8(word.clone()).unwrap()).collect();
            let mut stdout = Vec::new();
            match argv[0].as_str() {
                "hang" => std::future::pending().await,
                "lost" => return Err(SandboxFailure::Infrastructure("lost".into())),
                "flaky" if count == 0 => return Err(SandboxFailure::Infrastructure("lost".into())),
                "cat" => {
                    if let StdinSource::Live(mut input) = command.stdin {
                        while let Some(bytes) = input.recv().await {
                            sink.chunk(ChunkStream::Stdout, &bytes);
                            stdout.extend(bytes);
                        }
                    }
                }
                _ => {
                    stdout = argv[1..].join(" ").into_bytes();
                    sink.chunk(ChunkStream::Stdout, &stdout);
                }
            }
            Ok(ProgramExit { code: Some(0), stdout, ..ProgramExit::default() })
        })
    }
}

struct Fixture {
    jobs: Jobs,
    drain: DrainHandle,
    programs: Programs,
    working: Option<JoinHandle<()>>,
    store: SqlStore,
    _scratch: Scratch,
    _home: ScratchDirectory,
}

impl Fixture {
    /// Creates executions in a new queue, without running workers.
    async fn idle() -> Fixture {
        Fixture::idle_with(|service| service).await
    }

    /// The same, after a change to the service.
    async fn idle_with(change: impl FnOnce(ExecutionService) -> ExecutionService) -> Fixture {
        let scratch = Scratch::new();
        let (home, languages) = testing::languages();
        let mut registry = Registry::default();
        let config = ExecutionsConfig { running_max: Some(2), ..ExecutionsConfig::default() };
        let capacity = HostCapacity { cores: 1, memory_bytes: 4 << 30 };
        let programs = Programs::default();
        let sandboxes = Box::new(programs.clone());
        let service =
            ExecutionService::with(sandboxes, languages, config, capacity, &mut registry).unwrap();
        let service = change(service);
        let url = StoreUrl::Sqlite(scratch.path().join("db"));
        let store = SqlStore::open(StoreConfig::new(url), &mut registry).await.unwrap();
        let config = JobsConfig {
            webhook_allow: vec!["127.0.0.1".to_owned()],
            batch_max: 3,
            ..JobsConfig::default()
        };
        let queue = SqlQueue::open(store.clone(), config.queue(), store.now_ms()).await.unwrap();
        let jobs = Jobs::new(service, Arc::new(queue), config, [7; 32], &mut registry).unwrap();
        let drain = DrainHandle::new();
        Fixture { jobs, drain, programs, working: None, store, _scratch: scratch, _home: home }
    }

    async fn new() -> Fixture {
        let mut fixture = Fixture::idle().await;
        fixture.work();
        fixture
    }

    fn work(&mut self) {
        let (jobs, drain) = (self.jobs.clone(), self.drain.clone());
        self.working = Some(tokio::spawn(async move {
            jobs.work(&drain, tokio::sync::watch::Sender::new(true).subscribe()).await
        }));
    }

    async fn submit(&self, request: ExecutionRequest) -> ExecutionRecord {
        let submission = JobSubmission { request, ..JobSubmission::default() };
        self.jobs.submit(TENANT, vec![submission]).await.unwrap().remove(0)
    }

    async fn ended(&self, id: &ExecutionId) -> ExecutionRecord {
        self.jobs.ended(TENANT, id).await.unwrap();
        self.jobs.get(TENANT, id).await.unwrap()
    }

    /// Returns the names of all events, with their content.
    async fn events(&self, id: &ExecutionId, after: u64) -> Vec<String> {
        let mut subscription = self.jobs.subscribe(TENANT, id, after).await.unwrap();
        let mut names = Vec::new();
        while let Some(events) = subscription.next().await {
            names.extend(events.iter().map(|event| match &event.kind {
                EventKind::Stdout(chunk) => format!("stdout {}", chunk.data.clone().unwrap()),
                EventKind::Verdict { verdict, .. } => format!("verdict {verdict}"),
                EventKind::Ended { state, .. } => format!("ended {}", state.as_str()),
                kind => kind.name().to_owned(),
            }));
        }
        names
    }

    async fn until(&self, id: &ExecutionId, state: ExecutionState) {
        while self.jobs.get(TENANT, id).await.unwrap().state != state {
            tokio::task::yield_now().await;
        }
    }

    async fn stop(mut self) {
        self.drain.begin();
        self.drain.cancel();
        if let Some(working) = self.working.take() {
            working.await.unwrap();
        }
        self.store.close().await;
    }
}

fn argv(line: &str) -> ExecutionRequest {
    let line = line.split(' ').map(str::to_owned).collect();
    ExecutionRequest { argv: Some(line), ..ExecutionRequest::default() }
}

#[tokio::test]
async fn what_is_accepted_runs_and_can_be_followed_at_any_time() {
    let fixture = Fixture::idle().await;
    let record = fixture.submit(argv("echo hello")).await;
    assert_eq!((record.state, record.position), (ExecutionState::Queued, Some(0)));
    let mut early = fixture.jobs.subscribe(TENANT, &record.id, 0).await.unwrap();
    let queued = early.next().await.unwrap();
    assert_eq!(queued[0].kind.name(), "queued");

    let mut fixture = fixture;
    fixture.work();
    let ended = fixture.ended(&record.id).await;
    assert_eq!((ended.state, ended.attempts), (ExecutionState::Finished, 1));
    let result = ended.result.unwrap();
    assert_eq!((result.outcome.verdict, &*result.outcome.stdout), (Verdict::Ok, "hello"));
    let all = ["queued", "started", "stage", "stdout hello", "exit", "verdict OK"];
    assert_eq!(fixture.events(&record.id, 0).await, all);
    // From the middle, from before the end, and from after it.
    assert_eq!(fixture.events(&record.id, 4).await, all[4..]);
    assert_eq!(result.last_seq, 6);
    assert_eq!(fixture.events(&record.id, 6).await, Vec::<String>::new());
    // After the events are dropped, the end is still known, under its number.
    fixture.jobs.inner.lives.forget(&record.id);
    assert_eq!(fixture.events(&record.id, 5).await, ["verdict OK"]);
    assert_eq!(fixture.events(&record.id, 2).await, ["gap", "verdict OK"]);
    assert_eq!(fixture.events(&record.id, 6).await, Vec::<String>::new());
    fixture.stop().await;
}

#[tokio::test]
async fn another_tenant_knows_nothing_of_it() {
    let fixture = Fixture::new().await;
    let id = fixture.submit(argv("echo x")).await.id;
    fixture.ended(&id).await;
    let jobs = &fixture.jobs;
    assert_eq!(jobs.get("tok_b", &id).await.unwrap_err(), ExecutionError::NotFound);
    assert_eq!(jobs.cancel("tok_b", &id).await.unwrap_err(), ExecutionError::NotFound);
    assert_eq!(jobs.delete("tok_b", &id).await.unwrap_err(), ExecutionError::NotFound);
    assert_eq!(jobs.replay(Some("tok_b"), Some(&id)).await.unwrap_err(), ExecutionError::NotFound);
    assert_eq!(jobs.subscribe("tok_b", &id, 0).await.unwrap_err(), ExecutionError::NotFound);
    let of_other = JobFilter { tenant: Some("tok_b".to_owned()), ..JobFilter::default() };
    assert!(jobs.list(of_other).await.unwrap().executions.is_empty());
    fixture.stop().await;
}

#[tokio::test]
async fn bad_submissions_are_refused_before_they_are_stored() {
    let fixture = Fixture::idle().await;
    let submission = |request| JobSubmission { request, ..JobSubmission::default() };
    let webhook = |url: &str| ExecutionRequest {
        webhook: Some(WebhookTarget { url: url.to_owned(), secret: None }),
        ..argv("echo")
    };
    for (submissions, field) in [
        (vec![], "executions"),
        (vec![submission(argv("echo")); 4], "executions"),
        (vec![submission(ExecutionRequest::default())], "language"),
        (
            vec![submission(argv("echo")), submission(ExecutionRequest::default())],
            "executions[1].language",
        ),
        (vec![submission(webhook("ftp://example.org/"))], "webhook.url"),
        (vec![submission(webhook("http://169.254.169.254/"))], "webhook.url"),
        (
            vec![JobSubmission {
                idempotency_key: Some("k".repeat(256)),
                ..submission(argv("echo"))
            }],
            "idempotency-key",
        ),
    ] {
        let error = fixture.jobs.submit(TENANT, submissions).await.unwrap_err();
        assert_eq!(error.detail().field.as_deref(), Some(field), "{error}");
    }
    assert_eq!(fixture.jobs.stats(None).await.unwrap().queued, 0);
    fixture.stop().await;
}

#[tokio::test]
async fn a_key_makes_a_second_submission_harmless() {
    let fixture = Fixture::new().await;
    let submit = async |request| {
        let submission = JobSubmission {
            request,
            idempotency_key: Some("key".to_owned()),
            ..JobSubmission::default()
        };
        fixture.jobs.submit(TENANT, vec![submission]).await
    };
    let first = submit(argv("echo 1")).await.unwrap().remove(0);
    fixture.ended(&first.id).await;
    let second = submit(argv("echo 1")).await.unwrap().remove(0);
    assert_eq!((second.id, second.state), (first.id, ExecutionState::Finished));
    let error = submit(argv("echo 2")).await.unwrap_err();
    assert_eq!(error.detail().field.as_deref(), Some("idempotency-key"));
    assert_eq!(fixture.programs.started.load(Ordering::SeqCst), 1);
    fixture.stop().await;
}

#[tokio::test]
async fn only_failures_of_cove_are_tried_again() {
    let fixture = Fixture::new().await;
    let flaky = fixture.submit(argv("flaky it")).await.id;
    let ended = fixture.ended(&flaky).await;
    assert_eq!((ended.state, ended.attempts), (ExecutionState::Finished, 2));
    let names = fixture.events(&flaky, 0).await;
    assert_eq!(names.iter().filter(|name| *name == "started").count(), 2, "{names:?}");
    assert_eq!(names.last().unwrap(), "verdict OK");

    let lost = fixture.submit(argv("lost")).await.id;
    let ended = fixture.ended(&lost).await;
    assert_eq!((ended.state, ended.attempts, ended.result), (ExecutionState::Dead, 2, None));
    assert!(ended.message.is_some());
    assert_eq!(fixture.events(&lost, 0).await.last().unwrap(), "ended dead");
    // Replayed, it fails again; and a job that is not dead is not replayed.
    assert_eq!(fixture.jobs.replay(Some(TENANT), Some(&lost)).await.unwrap(), 1);
    assert_eq!(fixture.ended(&lost).await.state, ExecutionState::Dead);
    let error = fixture.jobs.replay(Some(TENANT), Some(&flaky)).await.unwrap_err();
    assert!(matches!(error, ExecutionError::Conflict(_)), "{error}");
    fixture.stop().await;
}

#[tokio::test]
async fn what_waits_and_what_runs_can_be_cancelled() {
    let fixture = Fixture::new().await;
    let running = [fixture.submit(argv("hang")).await.id, fixture.submit(argv("hang")).await.id];
    for id in &running {
        fixture.until(id, ExecutionState::Running).await;
    }
    let waiting = fixture.submit(argv("echo")).await.id;
    let record = fixture.jobs.cancel(TENANT, &waiting).await.unwrap();
    assert_eq!(record.state, ExecutionState::Cancelled);
    assert_eq!(fixture.events(&waiting, 0).await.last().unwrap(), "ended cancelled");
    for id in &running {
        fixture.jobs.cancel(TENANT, id).await.unwrap();
        let ended = fixture.ended(id).await;
        assert_eq!((ended.state, ended.result), (ExecutionState::Cancelled, None));
        assert_eq!(fixture.events(id, 0).await.last().unwrap(), "ended cancelled");
    }
    let error = fixture.jobs.cancel(TENANT, &waiting).await.unwrap_err();
    assert!(matches!(error, ExecutionError::Conflict(_)), "{error}");
    fixture.jobs.delete(TENANT, &waiting).await.unwrap();
    assert_eq!(fixture.jobs.get(TENANT, &waiting).await.unwrap_err(), ExecutionError::NotFound);
    // There is room again.
    let last = fixture.submit(argv("echo")).await.id;
    assert_eq!(fixture.ended(&last).await.state, ExecutionState::Finished);
    fixture.stop().await;
}

#[tokio::test]
async fn a_paused_queue_starts_nothing() {
    let fixture = Fixture::new().await;
    fixture.jobs.set_paused(true).await.unwrap();
    let id = fixture.submit(argv("echo")).await.id;
    let other = fixture.submit(argv("echo")).await.id;
    let stats = fixture.jobs.stats(None).await.unwrap();
    assert!(stats.paused && stats.queued == 2, "{stats:?}");
    fixture.jobs.cancel(TENANT, &other).await.unwrap();
    fixture.jobs.set_paused(false).await.unwrap();
    assert_eq!(fixture.ended(&id).await.state, ExecutionState::Finished);
    assert_eq!(fixture.programs.started.load(Ordering::SeqCst), 1);
    fixture.stop().await;
}

#[tokio::test]
async fn an_interactive_execution_lives_with_its_caller() {
    let fixture = Fixture::new().await;
    let interactive = |line| ExecutionRequest { interactive: true, ..argv(line) };
    let id = fixture.submit(interactive("cat")).await.id;
    let mut subscription = fixture.jobs.subscribe(TENANT, &id, 0).await.unwrap();
    let mut attachment = fixture.jobs.attach(&id, 0).unwrap();
    assert!(matches!(fixture.jobs.attach(&id, 0), Err(ExecutionError::Conflict(_))));
    attachment.room().await.unwrap().send(b"one".to_vec());
    let mut seen = String::new();
    while !seen.contains("one") {
        for event in subscription.next().await.unwrap() {
            if let EventKind::Stdout(chunk) = &event.kind {
                seen += chunk.data.as_deref().unwrap();
            }
        }
    }
    attachment.close_stdin();
    let ended = fixture.ended(&id).await;
    assert_eq!(
        (ended.state, &*ended.result.unwrap().outcome.stdout),
        (ExecutionState::Finished, "one")
    );

    // A terminal implies it; and a disconnect ends it.
    let terminal = Some(TerminalSize { rows: 24, cols: 80 });
    let id = fixture.submit(ExecutionRequest { terminal, ..argv("cat") }).await.id;
    let _subscription = fixture.jobs.subscribe(TENANT, &id, 0).await.unwrap();
    let attachment = fixture.jobs.attach(&id, 0).unwrap();
    fixture.until(&id, ExecutionState::Running).await;
    drop(attachment);
    let ended = fixture.ended(&id).await;
    assert_eq!(ended.state, ExecutionState::Cancelled);
    assert_eq!(ended.message.as_deref(), Some("its caller went away"));
    fixture.stop().await;
}

#[tokio::test]
async fn a_lease_that_is_lost_to_a_step_of_the_clock_costs_one_attempt() {
    let fixture = Fixture::new().await;
    let id = fixture.submit(argv("hang")).await.id;
    fixture.until(&id, ExecutionState::Running).await;
    let swept = fixture.jobs.queue().sweep(fixture.jobs.queue().now_ms() + 120_000).await.unwrap();
    assert_eq!(swept.requeued, std::slice::from_ref(&id));
    // The same server claims it again; the first attempt gives way and leaves the events intact.
    while fixture.jobs.get(TENANT, &id).await.unwrap().attempts < 2
        || fixture.jobs.inner.held.count() != 1
    {
        tokio::task::yield_now().await;
    }
    // It is running from the claim on; its program starts a moment later.
    let mut subscription = fixture.jobs.subscribe(TENANT, &id, 0).await.unwrap();
    let mut started = 0;
    while started < 2 {
        let events = subscription.next().await.unwrap();
        started += events.iter().filter(|event| event.kind.name() == "started").count();
    }
    drop(subscription);
    assert!(fixture.jobs.renew_leases().await);
    fixture.jobs.cancel(TENANT, &id).await.unwrap();
    assert_eq!(fixture.ended(&id).await.state, ExecutionState::Cancelled);
    let names = fixture.events(&id, 0).await;
    assert_eq!(names.iter().filter(|name| *name == "started").count(), 2, "{names:?}");
    assert_eq!(names.last().unwrap(), "ended cancelled");
    fixture.stop().await;
}

#[tokio::test]
async fn what_has_ended_is_not_kept_whatever_it_weighs() {
    let fixture = Fixture::new().await;
    let id = fixture.submit(argv("echo x")).await.id;
    fixture.ended(&id).await;
    let lives = &fixture.jobs.inner.lives;
    assert!(lives.get(&id).is_some());
    let kind = || EventKind::Ended { state: ExecutionState::Finished, message: None };
    let other = ExecutionId("ex_other".to_owned());
    drop(lives.get_or_create(&other, 1));
    lives.end(&other, Some(kind()), 1 << 30);
    assert!(lives.get(&id).is_none() && lives.get(&other).is_none());
    // Its end is still known.
    assert_eq!(fixture.events(&id, 5).await, ["verdict OK"]);
    fixture.stop().await;
}

#[tokio::test]
async fn what_runs_when_the_server_stops_runs_again() {
    let mut fixture = Fixture::new().await;
    let id = fixture.submit(argv("hang")).await.id;
    fixture.until(&id, ExecutionState::Running).await;
    fixture.drain.begin();
    fixture.drain.cancel();
    fixture.working.take().unwrap().await.unwrap();
    let job = fixture.jobs.get(TENANT, &id).await.unwrap();
    // The attempt does not count: its end was neither caused by the program nor a failure.
    assert_eq!((job.state, job.attempts), (ExecutionState::Queued, 0));
    fixture.stop().await;
}

/// Requests that a receiver of webhooks got.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<(HeaderMap, Bytes)>>>);

async fn receive(
    Shared(received): Shared<Received>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let mut received = received.0.lock();
    received.push((headers, body));
    // The first attempt of each fails.
    if received.len() == 1 { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NO_CONTENT }
}

#[tokio::test]
async fn webhooks_are_signed_and_tried_again() {
    let fixture = Fixture::new().await;
    let received = Received::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let router = Router::new().route("/hook", post(receive)).with_state(received.clone());
    let receiver = tokio::spawn(async move { axum::serve(listener, router).await });
    let webhook = Some(WebhookTarget { url, secret: None });
    let id = fixture.submit(ExecutionRequest { webhook, ..argv("echo told") }).await.id;
    while received.0.lock().len() < 2 {
        tokio::task::yield_now().await;
    }
    for (index, (headers, body)) in received.0.lock().iter().enumerate() {
        let header = |name: &str| headers[name].to_str().unwrap().to_owned();
        assert_eq!(header("webhook-id"), id.0);
        assert_eq!(header("webhook-attempt"), (index + 1).to_string());
        let record: ExecutionRecord = serde_json::from_slice(body).unwrap();
        assert_eq!((record.state, record.attempts), (ExecutionState::Finished, 1));
        let secret = fixture.jobs.webhook_secret(TENANT);
        let timestamp = header("webhook-timestamp").parse().unwrap();
        let signature = webhooks::signature(&secret, &id.0, timestamp, body);
        assert_eq!(header("webhook-signature"), signature);
    }
    assert_ne!(fixture.jobs.webhook_secret(TENANT), fixture.jobs.webhook_secret("tok_b"));
    receiver.abort();
    fixture.stop().await;
}

/// A gateway that allows everything, and provides nothing.
#[derive(Debug)]
struct Generous(std::collections::BTreeMap<String, String>);

impl GrantGateway for Generous {
    fn authorize(
        &self,
        _: &node::auth::TokenPrincipal,
        _: &[Grant],
    ) -> Result<(), http::HttpError> {
        Ok(())
    }

    fn resolve(
        &self,
        holder: &GrantHolder,
        _: &[Grant],
    ) -> Result<Box<dyn GrantOpening>, http::HttpError> {
        match &*holder.tenant {
            TENANT => Ok(Box::new(Generous(self.0.clone()))),
            _ => Err(http::HttpError::internal()),
        }
    }
}

impl GrantOpening for Generous {
    fn ports(&self) -> &[u16] {
        &[8100]
    }

    fn environment(&self) -> &std::collections::BTreeMap<String, String> {
        &self.0
    }

    fn open(self: Box<Self>, _: Vec<tokio::net::TcpListener>) -> Box<dyn GrantGate> {
        unreachable!("no sandbox here has a port")
    }
}

#[tokio::test]
async fn a_job_has_the_grants_that_it_was_accepted_with_and_no_others() {
    let gateway = Arc::new(Generous(std::collections::BTreeMap::default()));
    let mut fixture = Fixture::idle_with(|service| service.with_gateway(gateway)).await;
    let grants = vec![Grant::Model(ModelGrant::default())];
    let request = ExecutionRequest { grants, ..argv("echo granted") };
    let submission = JobSubmission { request: request.clone(), ..JobSubmission::default() };
    let CheckedSubmission(mut planted) =
        fixture.jobs.check(TENANT, submission.clone()).await.unwrap();
    // A writer of the queue adds them to a job of its own.
    planted.request = serde_json::to_vec(&request).unwrap();
    let planted_id = planted.id.clone();
    fixture.jobs.accept(TENANT, vec![CheckedSubmission(planted)]).await.unwrap();
    let accepted = fixture.jobs.submit(TENANT, vec![submission]).await.unwrap().remove(0);
    fixture.work();
    let ended = fixture.ended(&accepted.id).await;
    assert_eq!(ended.result.unwrap().outcome.stdout, "granted");
    let ended = fixture.ended(&planted_id).await;
    assert_eq!(ended.state, ExecutionState::Dead);
    let message = ended.message.unwrap();
    assert!(message.starts_with("grants: the job was not submitted"), "{message}");
    fixture.stop().await;
}

#[tokio::test]
async fn grants_that_nobody_serves_are_refused_before_they_wait() {
    let fixture = Fixture::idle().await;
    let grants = vec![Grant::Model(ModelGrant::default())];
    let request = ExecutionRequest { grants, ..argv("echo granted") };
    let submission = JobSubmission { request, ..JobSubmission::default() };
    let error = fixture.jobs.submit(TENANT, vec![submission]).await.unwrap_err();
    assert_eq!(error.detail().field.as_deref(), Some("grants"));
    fixture.stop().await;
}
