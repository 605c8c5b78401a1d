//! Calls of one session: which ones to run, which wait for a person, and whether the turn is over.
//! Pure: events go in, calls come out.

use std::collections::{HashMap, HashSet, VecDeque};

use super::protocol::{ConfirmationVerdict, ManagedEvent, ToolCall, ToolPermission};

/// Names of the tools that the worker runs. Other tools are answered by the control plane or the
/// customer's application.
pub(super) const TOOL_NAMES: [&str; 6] = ["bash", "read", "write", "edit", "glob", "grep"];

/// Maximum number of calls that are recorded per session.
const CALLS_MAX: usize = 100_000;

/// Action in response to an event, in addition to queued calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LedgerAction {
    Nothing,
    /// Cancel the running call if it belongs to this thread; without a thread, any call.
    Interrupt(Option<String>),
    /// The session has ended.
    Terminated,
    /// The session was deleted with its data.
    Deleted,
    /// There are more calls than can be recorded.
    Full,
}

/// Calls of one session.
#[derive(Debug, Default)]
pub(super) struct CallLedger {
    seen: HashSet<String>,
    answered: HashSet<String>,
    confirmations: HashMap<String, ConfirmationVerdict>,
    /// Calls that wait for a person, in order of arrival.
    held: Vec<ToolCall>,
    waiting: VecDeque<ToolCall>,
    /// Call that runs, or whose result is being sent.
    running: Option<ToolCall>,
    terminated_threads: HashSet<String>,
    turn_over: bool,
    /// Unanswered calls of tools that this worker does not run.
    foreign: HashSet<String>,
}

impl CallLedger {
    /// Handles all past events, in order. A call that a later event answers is not run.
    pub(super) fn note_history(&mut self, events: Vec<ManagedEvent>) -> LedgerAction {
        for event in &events {
            match event {
                ManagedEvent::ToolResult { tool_use_id } => {
                    self.answered.insert(tool_use_id.clone());
                }
                ManagedEvent::CustomToolResult { custom_tool_use_id } => {
                    self.answered.insert(custom_tool_use_id.clone());
                }
                ManagedEvent::Confirmation { tool_use_id, result } => {
                    self.confirmations.insert(tool_use_id.clone(), *result);
                }
                ManagedEvent::ThreadTerminated { session_thread_id } => {
                    self.terminated_threads.insert(session_thread_id.clone());
                }
                _ => {}
            }
        }
        // An interrupt applies only to earlier calls.
        let mut before = HashSet::new();
        let (mut last, mut is_interrupted) = (LedgerAction::Nothing, false);
        for event in events {
            if let ManagedEvent::Interrupt { session_thread_id } = &event {
                let thread = session_thread_id.as_deref();
                let is_hit = |call: &ToolCall| before.contains(&call.id) && is_in(call, thread);
                is_interrupted |= self.running.as_ref().is_some_and(is_hit);
                self.drop_waiting(is_hit);
                continue;
            }
            if let ManagedEvent::ToolUse(call) = &event {
                before.insert(call.id.clone());
            }
            match self.note(event) {
                LedgerAction::Nothing => {}
                action => last = action,
            }
        }
        match last {
            LedgerAction::Nothing if is_interrupted => LedgerAction::Interrupt(None),
            last => last,
        }
    }

    /// Handles a new event.
    pub(super) fn note(&mut self, event: ManagedEvent) -> LedgerAction {
        match event {
            // A confirmation and the end of a thread do not affect the turn.
            ManagedEvent::Confirmation { .. } | ManagedEvent::ThreadTerminated { .. } => {}
            ManagedEvent::Idle { ref stop_reason } => self.turn_over = stop_reason.ends_turn(),
            _ => self.turn_over = false,
        }
        match event {
            ManagedEvent::ToolUse(call) => return self.note_call(call),
            ManagedEvent::CustomToolUse { id } => {
                if !self.answered.contains(&id) {
                    self.foreign.insert(id);
                }
            }
            ManagedEvent::ToolResult { tool_use_id: id }
            | ManagedEvent::CustomToolResult { custom_tool_use_id: id } => {
                self.foreign.remove(&id);
                self.waiting.retain(|call| call.id != id);
                self.held.retain(|call| call.id != id);
                self.answered.insert(id);
            }
            ManagedEvent::Confirmation { tool_use_id, result } => {
                self.confirmations.insert(tool_use_id.clone(), result);
                if let Some(at) = self.held.iter().position(|call| call.id == tool_use_id) {
                    let call = self.held.remove(at);
                    self.route(call);
                }
            }
            ManagedEvent::Interrupt { session_thread_id } => {
                self.drop_waiting(|call| is_in(call, session_thread_id.as_deref()));
                return LedgerAction::Interrupt(session_thread_id);
            }
            ManagedEvent::ThreadTerminated { session_thread_id } => {
                let gone = Some(session_thread_id.as_str());
                self.waiting.retain(|call| call.session_thread_id.as_deref() != gone);
                self.held.retain(|call| call.session_thread_id.as_deref() != gone);
                self.terminated_threads.insert(session_thread_id);
            }
            ManagedEvent::Terminated => return LedgerAction::Terminated,
            ManagedEvent::Deleted => return LedgerAction::Deleted,
            ManagedEvent::Idle { .. } | ManagedEvent::Other | ManagedEvent::Ping => {}
        }
        LedgerAction::Nothing
    }

    /// Returns the next call, and marks it as running.
    pub(super) fn start_next(&mut self) -> Option<ToolCall> {
        if self.running.is_some() {
            return None;
        }
        self.running = self.waiting.pop_front();
        self.running.clone()
    }

    /// Marks the running call as finished: answered, or permanently abandoned.
    pub(super) fn finish(&mut self) {
        if let Some(call) = self.running.take() {
            self.answered.insert(call.id);
        }
    }

    /// Returns whether an interrupt applies to the running call.
    pub(super) fn is_running_in(&self, thread: Option<&str>) -> bool {
        self.running.as_ref().is_some_and(|call| is_in(call, thread))
    }

    /// Returns whether results of the call's thread are no longer accepted.
    pub(super) fn is_moot(&self, call: &ToolCall) -> bool {
        let thread = call.session_thread_id.as_ref();
        thread.is_some_and(|thread| self.terminated_threads.contains(thread))
    }

    /// Returns whether the turn is over and no call runs or waits.
    pub(super) fn is_idle(&self) -> bool {
        self.turn_over
            && self.running.is_none()
            && self.waiting.is_empty()
            && self.held.is_empty()
            && self.foreign.is_empty()
    }

    fn note_call(&mut self, call: ToolCall) -> LedgerAction {
        if self.seen.len() >= CALLS_MAX {
            return LedgerAction::Full;
        }
        if self.answered.contains(&call.id) || !self.seen.insert(call.id.clone()) {
            return LedgerAction::Nothing;
        }
        self.route(call);
        LedgerAction::Nothing
    }

    /// Decides about a new call, or one that a person has decided about. A call runs only if it is
    /// explicitly allowed.
    fn route(&mut self, call: ToolCall) {
        let moot = self.is_moot(&call);
        let verdict = self.confirmations.get(&call.id).copied();
        let is_denied = call.evaluated_permission == Some(ToolPermission::Deny)
            || verdict == Some(ConfirmationVerdict::Deny);
        if moot || is_denied {
            // The denial answers the call.
            self.answered.insert(call.id);
            return;
        }
        if !TOOL_NAMES.contains(&call.name.as_str()) {
            self.foreign.insert(call.id);
            return;
        }
        let is_allowed = matches!(call.evaluated_permission, None | Some(ToolPermission::Allow))
            || verdict == Some(ConfirmationVerdict::Allow);
        if is_allowed { self.waiting.push_back(call) } else { self.held.push(call) }
    }

    /// Removes calls that an interrupt has cancelled.
    fn drop_waiting(&mut self, is_hit: impl Fn(&ToolCall) -> bool) {
        let (moot, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(&is_hit);
        let (moot_held, held) = std::mem::take(&mut self.held).into_iter().partition(&is_hit);
        (self.waiting, self.held) = (waiting, held);
        let moot: VecDeque<ToolCall> = moot;
        let moot_held: Vec<ToolCall> = moot_held;
        self.answered.extend(moot.into_iter().chain(moot_held).map(|call| call.id));
    }
}

/// Returns whether a call belongs to a thread; true if no thread is named.
fn is_in(call: &ToolCall, thread: Option<&str>) -> bool {
    thread.is_none() || call.session_thread_id.as_deref() == thread
}

#[cfg(test)]
mod tests {
    //! Sequences of events, and the resulting calls.

    use serde_json::{Value, json};

    use super::*;

    fn call(id: &str, name: &str, more: Value) -> Value {
        let mut event = json!({ "type": "agent.tool_use", "id": id, "name": name, "input": {} });
        for (name, value) in more.as_object().unwrap() {
            event[name] = value.clone();
        }
        event
    }

    fn idle(reason: &str) -> Value {
        json!({ "type": "session.status_idle", "stop_reason": { "type": reason } })
    }

    fn verdict(id: &str, result: &str) -> Value {
        json!({ "type": "user.tool_confirmation", "tool_use_id": id, "result": result })
    }

    fn parsed(events: &[Value]) -> Vec<ManagedEvent> {
        events.iter().map(|event| serde_json::from_value(event.clone()).unwrap()).collect()
    }

    /// Returns the ids of the calls that run, and whether the session is idle at the end.
    fn drain(mut ledger: CallLedger) -> (Vec<String>, bool) {
        let mut run = Vec::new();
        while let Some(call) = ledger.start_next() {
            run.push(call.id);
            ledger.finish();
        }
        (run, ledger.is_idle())
    }

    /// Checks that events lead to the same calls in the history and live.
    fn check(events: &[Value], expected: &[&str], is_idle: bool) {
        let mut live = CallLedger::default();
        for event in parsed(events) {
            live.note(event);
        }
        assert_eq!(drain(live), (expected.iter().map(|id| (*id).to_owned()).collect(), is_idle));
        let mut history = CallLedger::default();
        history.note_history(parsed(events));
        // Reading the history again after a reconnection changes nothing.
        history.note_history(parsed(events));
        let (run, idle) = drain(history);
        assert_eq!((run, idle), (expected.iter().map(|id| (*id).to_owned()).collect(), is_idle));
    }

    #[test]
    fn calls_are_run_once_and_in_order() {
        let (a, b) = (call("a", "bash", json!({})), call("b", "read", json!({})));
        check(&[a.clone(), b, a, idle("requires_action")], &["a", "b"], false);
    }

    #[test]
    fn tools_of_others_are_left_to_them() {
        let search = call("w", "web_search", json!({}));
        let custom =
            json!({ "type": "agent.custom_tool_use", "id": "c", "name": "x", "input": {} });
        check(&[search.clone(), custom.clone(), idle("end_turn")], &[], false);
        let results = [
            json!({ "type": "user.tool_result", "tool_use_id": "w" }),
            json!({ "type": "user.custom_tool_result", "custom_tool_use_id": "c" }),
        ];
        let [first, second] = results;
        check(&[search, custom, first, second, idle("end_turn")], &[], true);
    }

    #[test]
    fn nothing_runs_without_permission() {
        let ask = json!({ "evaluated_permission": "ask" });
        let odd = json!({ "evaluated_permission": "newer" });
        check(&[call("a", "bash", ask.clone()), idle("end_turn")], &[], false);
        check(&[call("a", "bash", odd), idle("end_turn")], &[], false);
        let deny = json!({ "evaluated_permission": "deny" });
        check(&[call("a", "bash", deny), verdict("a", "allow"), idle("end_turn")], &[], true);
        let held = call("a", "bash", ask);
        check(&[held.clone(), verdict("a", "allow")], &["a"], false);
        check(&[held.clone(), idle("end_turn"), verdict("a", "deny")], &[], true);
        check(&[held, idle("end_turn"), verdict("a", "someday")], &[], true);
    }

    #[test]
    fn an_interrupt_drops_what_waits() {
        let interrupt = json!({ "type": "user.interrupt" });
        let (a, b) = (call("a", "bash", json!({})), call("b", "bash", json!({})));
        check(&[a.clone(), interrupt, b.clone()], &["b"], false);
        let of_thread = json!({ "type": "user.interrupt", "session_thread_id": "t" });
        let in_thread = call("c", "bash", json!({ "session_thread_id": "t" }));
        check(&[a, in_thread, of_thread, b], &["a", "b"], false);
    }

    #[test]
    fn a_thread_that_is_over_takes_no_results() {
        let over = json!({ "type": "session.thread_status_terminated", "session_thread_id": "t" });
        let inside = call("a", "bash", json!({ "session_thread_id": "t" }));
        check(&[inside.clone(), over.clone(), idle("end_turn")], &[], true);
        check(&[over, inside, idle("end_turn")], &[], true);
    }

    #[test]
    fn an_interrupt_that_was_missed_ends_the_call_that_runs() {
        let mut ledger = CallLedger::default();
        let events = [call("a", "bash", json!({})), json!({ "type": "user.interrupt" })];
        ledger.note_history(parsed(&events[..1]));
        assert_eq!(ledger.start_next().unwrap().id, "a");
        assert_eq!(ledger.note_history(parsed(&events)), LedgerAction::Interrupt(None));
        assert!(ledger.is_running_in(None) && !ledger.is_running_in(Some("t")));
    }

    #[test]
    fn the_end_of_a_session_is_an_action() {
        for (kind, expected) in [
            ("session.status_terminated", LedgerAction::Terminated),
            ("session.deleted", LedgerAction::Deleted),
        ] {
            let mut ledger = CallLedger::default();
            let [event] = <[_; 1]>::try_from(parsed(&[json!({ "type": kind })])).unwrap();
            assert_eq!(ledger.note(event), expected);
        }
    }
}
