//! The task that owns an agent process: writes to it, reads from it, and performs the actions that
//! `crate::turn` returns.
//!
//! No other task touches the process. All waits are in one `select!`, so an agent that does not
//! read still gets read, and one that never stops writing can still be killed.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use api::SessionEventKind as Kind;
use bytes::{Buf as _, BytesMut};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::driver::{AgentDriver, line_of, set_model, uuid_of};
use super::lines::{LineBuffer, TooLong};
use super::translate::{LineMeaning, LineTranslator};
use super::{
    AgentEnd, AgentLimits, AgentOutlet, AgentProcess, AgentSignal, AgentStatus, LaunchPlan,
    TurnCost, TurnId, TurnInput, TurnOutcome,
};
use crate::turn::{AgentAction, AgentInput, AgentState, AgentStep, StopReason, TurnEnd};

/// Bytes kept from the end of its standard error, for an error message.
const STDERR_TAIL_BYTES: usize = 4 << 10;
/// Longest line of standard error; longer lines are split.
const STDERR_LINE_BYTES_MAX: usize = 8 << 10;
/// Time for which the streams of an ended process are read: a child may hold them open.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Maximum bytes of queued answers to the agent's own requests.
const ANSWERS_BYTES_MAX: usize = 1 << 20;
/// Maximum number of unanswered requests to an agent.
const REQUESTS_MAX: usize = 256;

/// Receiver of a request's answer.
type Told = oneshot::Sender<Result<(), String>>;

/// Command from a handle.
pub(super) enum AgentTaskCommand {
    /// Send a message.
    Turn(Box<TurnInput>, oneshot::Sender<TurnOutcome>),
    /// Stop the turn.
    Stop(StopReason),
    /// Send a request.
    Control(Map<String, Value>, Told),
    /// Let the process end by itself.
    Close,
    /// Kill the process.
    Kill,
}

/// The running turn.
struct RunningTurn {
    id: TurnId,
    told: oneshot::Sender<TurnOutcome>,
    time: Duration,
    /// Maximum number of the model's messages.
    rounds_max: Option<u64>,
    /// Error, set with its result.
    error: Option<String>,
    usage: TurnCost,
}

/// Deadlines of the pending waits.
#[derive(Default)]
struct AgentTimers {
    start: Option<Instant>,
    turn: Option<Instant>,
    grace: Option<Instant>,
    last_words: Option<Instant>,
}

pub(super) struct AgentTask {
    process: AgentProcess,
    driver: AgentDriver,
    session: String,
    limits: AgentLimits,
    outlet: Arc<AgentOutlet>,
    status: watch::Sender<AgentStatus>,
    state: AgentState,
    translator: LineTranslator,
    lines: LineBuffer,
    stderr: BytesMut,
    stderr_tail: BytesMut,
    /// Bytes to write to the process.
    out: BytesMut,
    is_input_open: bool,
    /// True if its input closes once everything is written.
    is_input_ending: bool,
    is_stdout_open: bool,
    is_stderr_open: bool,
    /// Description of the process's end, once it has ended.
    ended: Option<String>,
    /// Violation of the protocol.
    fault: Option<String>,
    turn: Option<RunningTurn>,
    timers: AgentTimers,
    /// Unanswered requests with the receivers of their answers; requests of the start have none.
    requests: HashMap<String, Option<Told>>,
    request_number: u64,
    /// Request whose answer shows that the agent has started.
    ready_request: Option<String>,
    model: Option<String>,
}

impl AgentTask {
    pub(super) fn new(
        process: AgentProcess,
        plan: &LaunchPlan,
        limits: AgentLimits,
        outlet: Arc<AgentOutlet>,
        status: watch::Sender<AgentStatus>,
    ) -> AgentTask {
        let mut task = AgentTask {
            process,
            driver: plan.driver,
            session: plan.session.clone(),
            limits,
            outlet,
            status,
            state: AgentState::Idle,
            translator: LineTranslator::new(plan.driver),
            lines: LineBuffer::new(limits.line_bytes_max),
            stderr: BytesMut::new(),
            stderr_tail: BytesMut::new(),
            out: BytesMut::new(),
            is_input_open: true,
            is_input_ending: false,
            is_stdout_open: true,
            is_stderr_open: true,
            ended: None,
            fault: None,
            turn: None,
            timers: AgentTimers::default(),
            requests: HashMap::new(),
            request_number: 0,
            ready_request: None,
            model: plan.options.model.clone(),
        };
        if let Some(line) = &plan.start_line {
            task.out.extend_from_slice(&line_of(line));
        }
        for request in &plan.requests {
            task.ready_request = Some(task.request(request.clone(), None));
        }
        task.timers.start = Some(Instant::now() + limits.start);
        task
    }

    /// Runs until the process has ended.
    pub(super) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<AgentTaskCommand>) {
        let mut is_wanted = true;
        while !self.is_over() {
            tokio::select! {
                biased;
                command = inbox.recv(), if is_wanted => match command {
                    Some(command) => self.command(command),
                    None => {
                        is_wanted = false;
                        self.input(AgentInput::Kill);
                    }
                },
                () = at(self.timers.next()) => self.time_is_up(),
                how = &mut self.process.ended, if self.ended.is_none() => {
                    self.ended = Some(how);
                    self.timers.last_words = Some(Instant::now() + LAST_WORDS);
                }
                wrote = self.process.stdin.write(&self.out),
                    if self.is_input_open && !self.out.is_empty() =>
                {
                    match wrote {
                        Ok(count) if count > 0 => self.out.advance(count),
                        // The agent has stopped reading; its exit status shows the reason.
                        Ok(_) | Err(_) => self.close_input(),
                    }
                    if self.out.is_empty() {
                        self.out = BytesMut::new();
                        if self.is_input_ending {
                            self.close_input();
                        }
                    }
                }
                read = self.process.stderr.read_buf(&mut self.stderr), if self.is_stderr_open => {
                    self.is_stderr_open = matches!(read, Ok(count) if count > 0);
                    self.take_stderr();
                }
                read = async {
                    self.outlet.room().await;
                    self.process.stdout.read_buf(self.lines.room()).await
                }, if self.is_stdout_open => {
                    let count = read.unwrap_or(0);
                    self.is_stdout_open = count > 0;
                    self.outlet.read(count);
                    self.take_lines();
                    if !self.is_stdout_open && self.ended.is_none() {
                        // An agent without output is of no further use.
                        self.input(AgentInput::Close);
                    }
                }
            }
        }
        self.finish();
    }

    /// Returns whether there is nothing left to wait for.
    fn is_over(&self) -> bool {
        let has_said_all = !self.is_stdout_open && !self.is_stderr_open;
        self.state == AgentState::Ended || (self.ended.is_some() && has_said_all)
    }

    fn finish(mut self) {
        if let Some(line) = self.lines.rest() {
            self.line(&line);
        }
        self.input(AgentInput::Gone);
        let reason = match (self.fault.take(), self.ended.take()) {
            (Some(fault), _) => fault,
            (None, Some(how)) => format!("the agent {how}"),
            (None, None) => "the agent was killed".to_owned(),
        };
        let end = AgentEnd {
            reason,
            stderr: String::from_utf8_lossy(&self.stderr_tail).into_owned(),
            conversation_lost: self.translator.conversation_lost,
        };
        // Set before the inbox is dropped: callers whose answer is dropped read it here.
        self.status.send_replace(AgentStatus::Ended(end));
    }

    fn command(&mut self, command: AgentTaskCommand) {
        match command {
            AgentTaskCommand::Turn(input, told) => self.begin(*input, told),
            AgentTaskCommand::Stop(reason) => self.input(AgentInput::Stop(reason)),
            AgentTaskCommand::Control(request, told) => {
                if !self.translator.has_control {
                    told.send(Err("the agent takes no requests".to_owned())).ok();
                } else if self.requests.len() >= REQUESTS_MAX {
                    told.send(Err("the agent does not answer its requests".to_owned())).ok();
                } else {
                    self.request(request, Some(told));
                }
            }
            AgentTaskCommand::Close => self.input(AgentInput::Close),
            AgentTaskCommand::Kill => self.input(AgentInput::Kill),
        }
    }

    fn begin(&mut self, input: TurnInput, told: oneshot::Sender<TurnOutcome>) {
        let Ok(step) = self.state.next(AgentInput::Begin) else {
            let is_ending = match self.state {
                AgentState::Running | AgentState::Stopping(..) => false,
                AgentState::Idle | AgentState::Closing { .. } | AgentState::Ended => true,
            };
            // Dropping the sender makes the handle wait for the end.
            if !is_ending {
                let outcome = TurnOutcome {
                    end: TurnEnd::Died,
                    error: Some("the agent is working on another message".to_owned()),
                    usage: TurnCost::default(),
                    conversation_lost: false,
                    is_untold: true,
                };
                told.send(outcome).ok();
            }
            return;
        };
        if self.driver == AgentDriver::Claude
            && let Some(model) = &input.model
            && self.model.as_ref() != Some(model)
        {
            self.request(set_model(model), None);
            self.model = Some(model.clone());
        }
        let uuid = uuid_of(&input.turn);
        let line = self.driver.user_line(&input, &self.session, &uuid);
        self.out.extend_from_slice(&line);
        self.translator.begin(uuid, input.partial);
        self.timers.turn = Some(Instant::now() + input.time);
        let rounds_max = input.extra.get("max_turns").and_then(Value::as_u64);
        let rounds_max = rounds_max.filter(|_| self.driver == AgentDriver::Claude);
        let (id, time) = (input.turn, input.time);
        let usage = TurnCost::default();
        self.turn = Some(RunningTurn { id, told, time, rounds_max, error: None, usage });
        self.perform(step);
    }

    /// Writes a request and returns its id.
    fn request(&mut self, request: Map<String, Value>, told: Option<Told>) -> String {
        self.request_number += 1;
        let id = format!("cove-{}", self.request_number);
        let line = json!({"type": "control_request", "request_id": id, "request": request});
        self.out.extend_from_slice(&line_of(&line));
        self.requests.insert(id.clone(), told);
        id
    }

    /// Feeds an input to the state machine; only messages can be rejected, and they are handled
    /// elsewhere.
    fn input(&mut self, input: AgentInput) {
        if let Ok(step) = self.state.next(input) {
            self.perform(step);
        }
    }

    fn perform(&mut self, step: AgentStep) {
        match step.act {
            None | Some(AgentAction::WriteTurn) => {}
            Some(AgentAction::Ask) if self.translator.has_control => {
                let interrupt = [("subtype".to_owned(), json!("interrupt"))];
                self.request(interrupt.into_iter().collect(), None);
            }
            Some(AgentAction::Ask | AgentAction::Signal) => {
                (self.process.signal)(AgentSignal::Interrupt)
            }
            Some(AgentAction::Kill) => (self.process.signal)(AgentSignal::Kill),
            Some(AgentAction::CloseInput) => {}
        }
        if step.act.is_some_and(|act| act != AgentAction::WriteTurn) {
            self.timers.grace = Some(Instant::now() + self.limits.grace);
        }
        if let Some(end) = step.finish {
            self.end_turn(end);
        }
        match self.state {
            AgentState::Stopping(..) => {}
            AgentState::Idle | AgentState::Running => self.timers.grace = None,
            AgentState::Closing { killed: false, .. } => {
                self.timers.start = None;
                self.is_input_ending = true;
                if self.out.is_empty() {
                    self.close_input();
                }
            }
            AgentState::Closing { killed: true, .. } | AgentState::Ended => {
                self.timers.start = None;
                self.close_input();
            }
        }
    }

    /// Closes its input; unwritten bytes are dropped.
    fn close_input(&mut self) {
        if self.is_input_open {
            self.is_input_open = false;
            self.process.stdin = Box::new(tokio::io::sink());
        }
    }

    fn end_turn(&mut self, end: TurnEnd) {
        self.translator.end();
        self.timers.turn = None;
        let Some(turn) = self.turn.take() else { return };
        let error = match end {
            TurnEnd::Completed => turn.error,
            TurnEnd::Stopped(StopReason::Interrupted) => {
                Some("the turn was interrupted".to_owned())
            }
            TurnEnd::Stopped(StopReason::TimedOut) => {
                Some(format!("the turn took more than {} s", turn.time.as_secs()))
            }
            TurnEnd::Stopped(StopReason::Exhausted) => {
                let max = turn.rounds_max.unwrap_or_default();
                Some(format!("the turn needed more than {max} answers of the model"))
            }
            TurnEnd::NeverReady => Some(self.never_ready()),
            TurnEnd::Broken => Some(self.fault.clone().unwrap_or_default()),
            TurnEnd::Died => Some(self.died()),
        };
        let conversation_lost = self.translator.conversation_lost;
        // The sender of the message reports the outcome, because it may send the message again.
        let usage = turn.usage;
        let outcome = TurnOutcome { end, error, usage, conversation_lost, is_untold: false };
        // The sender may be gone; the turn is over regardless.
        turn.told.send(outcome).ok();
    }

    fn died(&self) -> String {
        let how = self.ended.as_deref().unwrap_or("closed its output");
        let tail = String::from_utf8_lossy(&self.stderr_tail);
        match tail.trim() {
            "" => format!("the agent {how}"),
            tail => format!("the agent {how}: {tail}"),
        }
    }

    fn never_ready(&self) -> String {
        format!("the agent was not ready within {} s", self.limits.start.as_secs())
    }

    fn fault(&mut self, fault: String) {
        if self.fault.is_none() && self.state != AgentState::Ended {
            if self.turn.is_none() {
                self.outlet.event(None, Kind::Error, json!({"error": fault}));
            }
            self.fault = Some(fault);
        }
        self.input(AgentInput::Fault);
    }

    fn time_is_up(&mut self) {
        let now = Instant::now();
        let over = |timer: &mut Option<Instant>| timer.take_if(|at| *at <= now).is_some();
        if over(&mut self.timers.start) {
            self.fault = Some(self.never_ready());
            self.input(AgentInput::StartOver);
        }
        if over(&mut self.timers.turn) {
            self.input(AgentInput::Stop(StopReason::TimedOut));
        }
        if over(&mut self.timers.grace) {
            self.input(AgentInput::GraceOver);
        }
        if over(&mut self.timers.last_words) {
            self.is_stdout_open = false;
            self.is_stderr_open = false;
        }
    }

    fn take_stderr(&mut self) {
        while let Some(end) = line_end(&self.stderr, self.is_stderr_open) {
            let line = self.stderr.split_to(end);
            self.outlet.stderr(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']));
            self.stderr_tail.extend_from_slice(&line);
            let surplus = self.stderr_tail.len().saturating_sub(STDERR_TAIL_BYTES);
            self.stderr_tail.advance(surplus);
        }
    }

    fn take_lines(&mut self) {
        loop {
            match self.lines.next() {
                Ok(Some(line)) => {
                    self.line(&line);
                    if let Some(why) = self.outlet.full() {
                        self.fault(why);
                    }
                }
                Ok(None) => return,
                Err(TooLong) => {
                    let max = self.limits.line_bytes_max;
                    self.is_stdout_open = false;
                    return self.fault(format!("the agent wrote a line of more than {max} bytes"));
                }
            }
            if self.fault.is_some() {
                // Nothing after the violation is processed, and no more output is read.
                self.is_stdout_open = false;
                return;
            }
        }
    }

    fn line(&mut self, line: &[u8]) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let (outlet, turn) = (&self.outlet, self.turn.as_ref().map(|turn| &turn.id));
        let said = self.translator.line(line, &mut |in_turn, kind, data| {
            outlet.event(turn.filter(|_| in_turn), kind, data);
        });
        if let Some(conversation) = self.translator.new_conversation() {
            self.outlet.conversation(conversation);
        }
        let rounds_max = self.turn.as_ref().and_then(|turn| turn.rounds_max);
        if rounds_max.is_some_and(|max| self.translator.rounds() > max) {
            self.input(AgentInput::Stop(StopReason::Exhausted));
        }
        match said {
            LineMeaning::Nothing => {}
            LineMeaning::Ready => self.ready(),
            LineMeaning::Result(outcome) => {
                let is_ok = outcome.error.is_none();
                if let Some(turn) = &mut self.turn {
                    turn.error = outcome.error;
                    turn.usage = outcome.usage;
                }
                self.input(AgentInput::Result { is_ok });
            }
            LineMeaning::Answer(id, answer) => self.answered(&id, answer),
            LineMeaning::Request(id, what) => self.refuse(&id, &what),
            LineMeaning::Malformed(what) => self.fault(format!("the agent wrote {what}")),
        }
    }

    fn ready(&mut self) {
        self.timers.start = None;
        let has_control = self.translator.has_control;
        self.status.send_if_modified(|status| {
            let is_new = *status == AgentStatus::Starting;
            if is_new {
                *status = AgentStatus::Ready { has_control };
            }
            is_new
        });
    }

    fn answered(&mut self, id: &str, answer: Result<(), String>) {
        let is_ready = self.ready_request.as_deref() == Some(id);
        match self.requests.remove(id) {
            Some(Some(told)) => drop(told.send(answer)),
            // A request of the start, for a turn's model, or to interrupt.
            Some(None) => {
                if let Err(reason) = answer {
                    let error = format!("the agent refused a request: {reason}");
                    let turn = self.turn.as_ref().map(|turn| &turn.id);
                    self.outlet.event(turn, Kind::Error, json!({"error": error}));
                }
            }
            // An answer without a request.
            None => {}
        }
        if is_ready {
            self.ready();
        }
    }

    /// Rejects a request of the agent, such as to use a tool: no user is present to decide.
    fn refuse(&mut self, id: &str, what: &str) {
        let response = if what == "can_use_tool" {
            let denial =
                json!({"behavior": "deny", "message": "no user is present to permit this"});
            json!({"subtype": "success", "request_id": id, "response": denial})
        } else {
            json!({"subtype": "error", "request_id": id, "error": "not supported"})
        };
        let line = line_of(&json!({"type": "control_response", "response": response}));
        if self.out.len() + line.len() > ANSWERS_BYTES_MAX && self.turn.is_none() {
            self.fault("the agent does not read the answers to its requests".to_owned());
        } else if self.is_input_open {
            self.out.extend_from_slice(&line);
        }
    }
}

impl AgentTimers {
    fn next(&self) -> Option<Instant> {
        [self.start, self.turn, self.grace, self.last_words].into_iter().flatten().min()
    }
}

/// Resolves at `instant`, or never without one.
async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => pending().await,
    }
}

/// Returns the end of the next line of standard error, including its line break.
fn line_end(bytes: &[u8], has_more: bool) -> Option<usize> {
    let end = bytes.iter().take(STDERR_LINE_BYTES_MAX).position(|byte| *byte == b'\n');
    match end {
        Some(at) => Some(at + 1),
        None if bytes.len() >= STDERR_LINE_BYTES_MAX => Some(STDERR_LINE_BYTES_MAX),
        None if !has_more && !bytes.is_empty() => Some(bytes.len()),
        None => None,
    }
}
