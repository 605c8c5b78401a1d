//! Work on one item: its lease, the session's events, and its calls in sequence.

use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use axum::http::HeaderValue;
use node::clock;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::control::{BackOff, ControlPlane, ControlPlaneError, bearer, wait};
use super::lease::{LeaseEnd, WorkLease};
use super::ledger::{CallLedger, LedgerAction};
use super::protocol::{ManagedEvent, ToolCall, ToolResultEvent, WorkItem};
use super::report::WorkerReport;
use super::tools::{SessionTools, ToolOutput};
use super::workspace::{ServingSession, WorkspaceTemplate};
use crate::remote::{FailureKind, Remote, RemoteFailure};

/// Time that a Cove server may be unavailable before its work is returned.
const COVE_AWAY_MAX: Duration = Duration::from_secs(120);
/// Maximum wait between two attempts at the control plane, and at the Cove server.
const STREAM_BACK_OFF_MAX: Duration = Duration::from_secs(10);
const SEND_BACK_OFF_MAX: Duration = Duration::from_secs(30);
const COVE_BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// Maximum queued events.
const EVENTS_WAITING_MAX: usize = 100;
/// Timeout of the steps that end a session's work: killing a shell, pausing.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Phase of a worker's shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StopPhase {
    Running,
    /// Running calls are finished, and no new ones are started.
    Draining,
    /// Running calls are killed.
    Now,
}

/// Parts that all items share.
pub(super) struct ToolWorkerParts {
    pub(super) control: ControlPlane,
    pub(super) server: Remote,
    pub(super) template: WorkspaceTemplate,
    pub(super) report: WorkerReport,
    /// Time that a session may be idle before its item is finished.
    pub(super) idle_max: Duration,
    /// Default timeout of a command.
    pub(super) tool_timeout: Duration,
}

/// End of the work on an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ItemEnd {
    /// Done, for this reason.
    Finished(&'static str),
    /// Another worker, or this one later, continues with it.
    Returned(&'static str),
    /// The Cove server is unavailable, or rejects the work.
    CoveLost(String),
    /// The control plane rejects further work.
    Failed(String),
    LeaseLost,
}

impl ItemEnd {
    /// Returns the name of the end in reports.
    fn word(&self) -> &'static str {
        match self {
            ItemEnd::Finished(_) => "finished",
            ItemEnd::Returned(_) | ItemEnd::CoveLost(_) => "returned",
            ItemEnd::Failed(_) => "failed",
            ItemEnd::LeaseLost => "lease_lost",
        }
    }

    fn reason(&self) -> &str {
        match self {
            ItemEnd::Finished(reason) | ItemEnd::Returned(reason) => reason,
            ItemEnd::CoveLost(reason) | ItemEnd::Failed(reason) => reason,
            ItemEnd::LeaseLost => "another worker may have it",
        }
    }
}

/// Works on a claimed item to its end.
pub(super) async fn serve(
    parts: &ToolWorkerParts,
    work: WorkItem,
    stop: watch::Receiver<StopPhase>,
) -> ItemEnd {
    let token = work.sessions_token();
    let credential = token.as_deref().and_then(bearer);
    let credential = credential.unwrap_or_else(|| parts.control.key.clone());
    let lease = WorkLease::new(&parts.control, &work.id, &credential, parts.report);
    let end = if work.data.kind == "session" {
        let (signal, lease_end) = watch::channel(None);
        let session = ItemSession {
            parts,
            session: &work.data.id,
            credential: &credential,
            lease: &lease,
            lease_end,
            stop,
            tools_credential_is_own: token.is_some(),
        };
        let mut session = pin!(session.run());
        tokio::select! {
            biased;
            end = &mut session => end,
            ended = lease.keep() => {
                signal.send_replace(Some(ended));
                session.await
            }
        }
    } else {
        ItemEnd::Finished("it is no session")
    };
    let fields = json!({
        "work": work.id, "session": work.data.id, "reason": end.reason(),
    });
    parts.report.emit(end.word(), fields);
    match &end {
        ItemEnd::LeaseLost => {}
        ItemEnd::Returned(_) | ItemEnd::CoveLost(_) => lease.give_back().await,
        ItemEnd::Finished(_) | ItemEnd::Failed(_) => {
            if let Err(error) = parts.control.stop(&work.id, &credential).await {
                let fields = json!({ "work": work.id, "error": error.to_string() });
                parts.report.emit("stop_failed", fields);
            }
        }
    }
    end
}

/// Element of the feed of a session's events.
enum FeedItem {
    /// All past events, after each connection.
    History(Vec<ManagedEvent>),
    Event(ManagedEvent),
}

/// Result of a session's current step.
enum StepEnd {
    /// A call has run. Its tools are returned.
    Ran(Box<SessionTools>, ToolCall, Result<ToolOutput, RemoteFailure>),
    /// The result was sent, or sending it failed.
    Sent(ToolCall, Result<(), ControlPlaneError>),
}

type Step<'a> = Pin<Box<dyn Future<Output = StepEnd> + 'a>>;

/// Work on one session.
struct ItemSession<'a> {
    parts: &'a ToolWorkerParts,
    session: &'a str,
    credential: &'a HeaderValue,
    lease: &'a WorkLease<'a>,
    lease_end: watch::Receiver<Option<LeaseEnd>>,
    stop: watch::Receiver<StopPhase>,
    /// True if requests about this session use a token of the item.
    tools_credential_is_own: bool,
}

impl<'a> ItemSession<'a> {
    async fn run(self) -> ItemEnd {
        let opened = tokio::select! {
            biased;
            end = self.cut_short() => return end,
            opened = self.open() => opened,
        };
        let tools = match opened {
            Ok(tools) => tools,
            Err(end) => return end,
        };
        let (tools, end) = self.turns(tools).await;
        let Some(tools) = tools else { return end };
        if timeout(CLOSE_TIMEOUT, self.close(*tools, &end)).await.is_err() {
            self.emit("pause_failed", json!({ "error": "the Cove server does not answer" }));
        }
        end
    }

    /// Waits until the work must end at once.
    async fn cut_short(&self) -> ItemEnd {
        let (mut ended, mut stop) = (self.lease_end.clone(), self.stop.clone());
        loop {
            if let Some(end) = *ended.borrow_and_update() {
                return lease_end(end);
            }
            if *stop.borrow_and_update() == StopPhase::Now {
                return ItemEnd::Returned("the worker ends at once");
            }
            tokio::select! {
                changed = ended.changed() => if changed.is_err() {
                    return std::future::pending().await;
                },
                changed = stop.changed() => if changed.is_err() {
                    return ItemEnd::Returned("the worker ends at once");
                },
            }
        }
    }

    /// Reads the session and opens its workspace.
    async fn open(&self) -> Result<Box<SessionTools>, ItemEnd> {
        let mut back_off = back_off(STREAM_BACK_OFF_MAX)?;
        let session = loop {
            match self.parts.control.session(self.session, self.credential).await {
                Ok(session) => break session,
                Err(error) if error.is_fatal() => return Err(ItemEnd::Failed(error.to_string())),
                Err(error) => {
                    self.emit("retry", json!({ "what": "session", "error": error.to_string() }));
                    wait(&mut back_off, &error).await;
                }
            }
        };
        if session.status == "terminated" {
            return Err(ItemEnd::Finished("the session is terminated"));
        }
        // Without its memories an agent would unknowingly act as if it had none.
        if session.resources.iter().any(|resource| resource.kind == "memory_store") {
            let why = "memory stores are attached to the session, which this worker cannot mount";
            return Err(ItemEnd::Failed(why.to_owned()));
        }
        let workspace = self.open_workspace().await?;
        self.emit(
            "opened",
            json!({
                "cove_session": workspace.id, "new": workspace.is_new,
                "own_token": self.tools_credential_is_own,
            }),
        );
        let tools = SessionTools::new(workspace, self.parts.tool_timeout);
        let tools = tools.map_err(|error| ItemEnd::CoveLost(error.to_string()))?;
        Ok(Box::new(tools))
    }

    async fn open_workspace(&self) -> Result<ServingSession, ItemEnd> {
        let mut back_off = back_off(COVE_BACK_OFF_MAX)?;
        let mut server = self.parts.server.clone();
        let began = clock::now();
        loop {
            let failure =
                match ServingSession::open(&server, &self.parts.template, self.session).await {
                    Ok(workspace) => return Ok(workspace),
                    Err(failure) => failure,
                };
            let away = clock::now().saturating_duration_since(began);
            if failure.fault != FailureKind::Lost || away > COVE_AWAY_MAX {
                return Err(ItemEnd::CoveLost(failure.to_string()));
            }
            self.emit("retry", json!({ "what": "cove", "error": failure.to_string() }));
            sleep(back_off.next(None)).await;
            server.rediscover();
        }
    }

    /// Runs calls until there is a reason to end. The tools are returned unless they are lost.
    async fn turns(&self, tools: Box<SessionTools>) -> (Option<Box<SessionTools>>, ItemEnd) {
        let (sender, mut events) = mpsc::channel(EVENTS_WAITING_MAX);
        let (control, report) = (&self.parts.control, self.parts.report);
        let mut feed = pin!(feed(control, report, self.session, self.credential, sender));
        let mut progress = SessionProgress::new(tools);
        let mut stop = self.stop.clone();
        let end = loop {
            let is_running = *stop.borrow_and_update() == StopPhase::Running;
            if is_running {
                progress.begin_next(self);
            }
            if progress.step.is_none() && !is_running {
                break match progress.ledger.is_idle() {
                    true => ItemEnd::Finished("the worker ends"),
                    false => ItemEnd::Returned("the worker ends"),
                };
            }
            let idle = clock::now().saturating_duration_since(progress.quiet_since);
            let idle_left = self.parts.idle_max.saturating_sub(idle);
            let end = tokio::select! {
                biased;
                end = self.cut_short() => Some(end),
                end = &mut feed => Some(end),
                ended = next(&mut progress.step), if progress.step.is_some() => {
                    progress.step = None;
                    progress.note_step(ended, self)
                }
                Some(item) = events.recv() => progress.note_item(item, self),
                () = sleep(idle_left), if progress.ledger.is_idle() => {
                    Some(ItemEnd::Finished("the session is idle"))
                }
                _ = stop.changed() => None,
            };
            if let Some(end) = end {
                break end;
            }
        };
        (progress.stop().await, end)
    }

    /// Runs a call. Waits for a Cove server that is briefly unavailable.
    fn begin(
        &self,
        mut tools: Box<SessionTools>,
        call: ToolCall,
        mut cancel: watch::Receiver<bool>,
    ) -> Step<'a> {
        let (report, session) = (self.parts.report, self.session);
        Box::pin(async move {
            let began = clock::now();
            let ran = tokio::select! {
                biased;
                // The sender lives as long as this future.
                _ = cancel.wait_for(|is_cancelled| *is_cancelled) => None,
                ran = patiently(&mut tools, &call, report) => Some(ran),
            };
            let ran = match ran {
                Some(ran) => ran,
                None => {
                    tools.abort().await;
                    Ok(ToolOutput::error(format!("{}: interrupted", call.name)))
                }
            };
            let ms = clock::now().saturating_duration_since(began).as_millis();
            let ms = u64::try_from(ms).unwrap_or(u64::MAX);
            let is_error = ran.as_ref().map_or(true, |output| output.is_error);
            report.emit(
                "ran",
                json!({
                    "session": session, "tool": call.name, "call": call.id, "ms": ms,
                    "error": is_error,
                }),
            );
            StepEnd::Ran(tools, call, ran)
        })
    }

    /// Sends a result, for as long as this worker may still hold the lease.
    fn send(&self, call: ToolCall, output: ToolOutput) -> Step<'a> {
        let (parts, session, credential) = (self.parts, self.session, self.credential);
        let window = self.lease.ttl();
        Box::pin(async move {
            let result = ToolResultEvent::new(call.id.clone(), output.is_error, output.content);
            let Ok(mut back_off) = BackOff::new(SEND_BACK_OFF_MAX) else {
                return StepEnd::Sent(call, Ok(()));
            };
            let began = clock::now();
            let sent = loop {
                let sent = parts.control.send_result(session, credential, &result).await;
                let Err(error) = sent else { break Ok(()) };
                let since = clock::now().saturating_duration_since(began);
                if error.is_fatal() || since > window {
                    break Err(error);
                }
                let fields = json!({
                    "session": session, "what": "result", "call": call.id,
                    "error": error.to_string(),
                });
                parts.report.emit("retry", fields);
                wait(&mut back_off, &error).await;
            };
            StepEnd::Sent(call, sent)
        })
    }

    /// Pauses, stops or ends the workspace, according to the end.
    async fn close(&self, tools: SessionTools, end: &ItemEnd) {
        let workspace = tools.close().await;
        let (what, done) = match end {
            // The worker that has the item now uses the workspace.
            ItemEnd::LeaseLost => return,
            ItemEnd::Finished(DELETED) => ("ended", workspace.end().await),
            ItemEnd::Finished(TERMINATED) => ("stopped", workspace.stop().await),
            _ => ("paused", workspace.pause().await),
        };
        match done {
            Ok(()) => self.emit(what, json!({ "cove_session": workspace.id })),
            Err(failure) => {
                let fields = json!({ "cove_session": workspace.id, "error": failure.to_string() });
                self.emit("pause_failed", fields);
            }
        }
    }

    fn emit(&self, event: &str, mut fields: serde_json::Value) {
        fields["session"] = self.session.into();
        self.parts.report.emit(event, fields);
    }
}

/// Progress of the work on a session.
struct SessionProgress<'a> {
    ledger: CallLedger,
    /// None while a call uses them.
    tools: Option<Box<SessionTools>>,
    /// Current step; there is only one at a time.
    step: Option<Step<'a>>,
    /// Cancels the running call.
    cancel: watch::Sender<bool>,
    /// Time of the last activity.
    quiet_since: Instant,
}

impl<'a> SessionProgress<'a> {
    fn new(tools: Box<SessionTools>) -> SessionProgress<'a> {
        SessionProgress {
            ledger: CallLedger::default(),
            tools: Some(tools),
            step: None,
            cancel: watch::Sender::new(false),
            quiet_since: clock::now(),
        }
    }

    /// Starts the next call if none runs.
    fn begin_next(&mut self, session: &ItemSession<'a>) {
        if self.step.is_none()
            && self.tools.is_some()
            && let Some(call) = self.ledger.start_next()
            && let Some(tools) = self.tools.take()
        {
            self.cancel = watch::Sender::new(false);
            self.step = Some(session.begin(tools, call, self.cancel.subscribe()));
        }
    }

    /// Handles the end of a step. Returns a reason to end the work, if there is one.
    fn note_step(&mut self, ended: StepEnd, session: &ItemSession<'a>) -> Option<ItemEnd> {
        self.quiet_since = clock::now();
        match ended {
            StepEnd::Ran(tools, call, Ok(output)) => {
                self.tools = Some(tools);
                if self.ledger.is_moot(&call) {
                    self.ledger.finish();
                } else {
                    self.step = Some(session.send(call, output));
                }
            }
            StepEnd::Ran(tools, _, Err(failure)) => {
                self.tools = Some(tools);
                return Some(ItemEnd::CoveLost(failure.to_string()));
            }
            StepEnd::Sent(call, sent) => {
                self.ledger.finish();
                if let Err(error) = sent {
                    let fields = json!({ "call": call.id, "error": error.to_string() });
                    session.emit("result_refused", fields);
                }
            }
        }
        None
    }

    /// Handles an element of the feed. Returns a reason to end the work, if there is one.
    fn note_item(&mut self, item: FeedItem, session: &ItemSession<'a>) -> Option<ItemEnd> {
        let is_neutral = matches!(
            item,
            FeedItem::Event(
                ManagedEvent::Confirmation { .. } | ManagedEvent::ThreadTerminated { .. }
            )
        );
        if !is_neutral {
            self.quiet_since = clock::now();
        }
        let action = match item {
            FeedItem::History(events) => self.ledger.note_history(events),
            FeedItem::Event(event) => self.ledger.note(event),
        };
        match action {
            LedgerAction::Nothing => None,
            LedgerAction::Interrupt(thread) => {
                if self.ledger.is_running_in(thread.as_deref()) {
                    session.emit("interrupted", json!({}));
                    self.cancel.send_replace(true);
                }
                None
            }
            LedgerAction::Terminated => Some(ItemEnd::Finished(TERMINATED)),
            LedgerAction::Deleted => Some(ItemEnd::Finished(DELETED)),
            LedgerAction::Full => {
                let why = "the session has more calls than a worker remembers";
                Some(ItemEnd::Failed(why.to_owned()))
            }
        }
    }

    /// Kills a running call, and abandons a result that is being sent. Returns the tools.
    async fn stop(mut self) -> Option<Box<SessionTools>> {
        if let Some(step) = self.step {
            self.cancel.send_replace(true);
            if let Ok(StepEnd::Ran(tools, ..)) = timeout(CLOSE_TIMEOUT, step).await {
                self.tools = Some(tools);
            }
        }
        self.tools
    }
}

/// Reasons for which a workspace is not preserved.
const TERMINATED: &str = "the session has ended";
const DELETED: &str = "the session was deleted";

fn lease_end(end: LeaseEnd) -> ItemEnd {
    match end {
        LeaseEnd::Stopped => ItemEnd::Finished("the control plane stops it"),
        LeaseEnd::Lost => ItemEnd::LeaseLost,
        LeaseEnd::Rejected => ItemEnd::Failed("heartbeats are refused".to_owned()),
    }
}

fn back_off(max: Duration) -> Result<BackOff, ItemEnd> {
    BackOff::new(max).map_err(|error| ItemEnd::CoveLost(error.to_string()))
}

/// Returns the end of the current step.
async fn next(step: &mut Option<Step<'_>>) -> StepEnd {
    match step {
        Some(step) => step.await,
        None => std::future::pending().await,
    }
}

/// Runs a call, and retries it while the Cove server is unavailable. A call that failed this way
/// has had no effect, or one that repeating does not change.
async fn patiently(
    tools: &mut SessionTools,
    call: &ToolCall,
    report: WorkerReport,
) -> Result<ToolOutput, RemoteFailure> {
    let Ok(mut back_off) = BackOff::new(COVE_BACK_OFF_MAX) else { return tools.run(call).await };
    let began = clock::now();
    loop {
        let failure = match tools.run(call).await {
            Err(failure) if failure.fault == FailureKind::Lost => failure,
            other => return other,
        };
        if clock::now().saturating_duration_since(began) > COVE_AWAY_MAX {
            return Err(failure);
        }
        let fields = json!({ "what": "cove", "call": call.id, "error": failure.to_string() });
        report.emit("retry", fields);
        sleep(back_off.next(None)).await;
        tools.rediscover();
    }
}

/// Feeds the events of a session, and reconnects as necessary. Ends when another connection is
/// useless.
async fn feed(
    control: &ControlPlane,
    report: WorkerReport,
    session: &str,
    credential: &HeaderValue,
    sender: mpsc::Sender<FeedItem>,
) -> ItemEnd {
    let mut back_off = match back_off(STREAM_BACK_OFF_MAX) {
        Ok(back_off) => back_off,
        Err(end) => return end,
    };
    loop {
        let connected = async {
            // The stream first: events during the reading of the history are in one of them.
            let mut stream = control.stream(session, credential).await?;
            let history = control.history(session, credential).await?;
            drop(sender.send(FeedItem::History(history)).await);
            while let Some(event) = stream.next().await? {
                back_off.reset();
                drop(sender.send(FeedItem::Event(event)).await);
            }
            Ok::<(), ControlPlaneError>(())
        };
        match connected.await {
            Ok(()) => sleep(back_off.next(None)).await,
            Err(error) if error.is_fatal() => return ItemEnd::Failed(error.to_string()),
            Err(error) => {
                let fields =
                    json!({ "session": session, "what": "events", "error": error.to_string() });
                report.emit("retry", fields);
                wait(&mut back_off, &error).await;
            }
        }
    }
}
