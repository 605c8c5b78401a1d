//! State machine of one agent process's turns: the transition for each event in each state.
//!
//! A turn ends exactly once, whatever the agent does: with its own result, or with the end of its
//! process, which is killed if it does not respond. There is no clock, I/O or task here; the driver
//! is `agent/task.rs`.

/// State of an agent process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentState {
    /// Idle.
    Idle,
    /// A turn is running.
    Running,
    /// The turn was asked to stop and has not ended yet.
    Stopping(StopReason, SignalForce),
    /// Input closed, so that the process ends by itself. It may finish its turn first.
    Closing {
        /// True if a turn was running.
        in_turn: bool,
        /// True if the process was killed because it did not end by itself.
        killed: bool,
    },
    /// The process has ended, or is treated as if it had.
    Ended,
}

/// Why a turn should stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// Interrupted by a caller.
    Interrupted,
    /// Out of time.
    TimedOut,
    /// Over the limit of requests to the model.
    Exhausted,
}

/// Force with which a process was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalForce {
    /// By a request that the agent can read.
    Asked,
    /// By a signal that the process can handle.
    Signalled,
    /// By a signal that it cannot handle.
    Killed,
}

/// Input of the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentInput {
    /// A message is ready to send.
    Begin,
    /// The agent wrote the result of the running turn.
    Result {
        /// True if the agent answered, rather than failed.
        is_ok: bool,
    },
    /// The turn should stop.
    Stop(StopReason),
    /// The grace period is over.
    GraceOver,
    /// The agent did not become ready in time.
    StartOver,
    /// The agent violated the protocol: its later output cannot be trusted.
    Fault,
    /// The process should end after its current turn.
    Close,
    /// The process should end now.
    Kill,
    /// The process has ended.
    Gone,
}

/// Action on the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentAction {
    /// Write the message to it.
    WriteTurn,
    /// Request that it stop its turn, and start a grace period.
    Ask,
    /// Send the interrupt signal, and start a grace period.
    Signal,
    /// Send the kill signal, and start a grace period.
    Kill,
    /// Close its input, and start a grace period.
    CloseInput,
}

/// End of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    /// The agent has answered.
    Completed,
    /// Stopped on request.
    Stopped(StopReason),
    /// The process ended.
    Died,
    /// Ended because it broke the protocol.
    Broken,
    /// Ended because it did not become ready in time.
    NeverReady,
}

/// Result of a transition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentStep {
    /// Action on the process.
    pub(crate) act: Option<AgentAction>,
    /// End of the running turn. Occurs once for each turn that began.
    pub(crate) finish: Option<TurnEnd>,
}

/// Error of a message that arrives while the agent is busy or after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotIdle;

impl AgentState {
    /// Returns whether a turn is running.
    pub(crate) fn is_in_turn(self) -> bool {
        match self {
            AgentState::Running | AgentState::Stopping(..) => true,
            AgentState::Closing { in_turn, .. } => in_turn,
            AgentState::Idle | AgentState::Ended => false,
        }
    }

    /// Applies an input and returns the resulting action.
    ///
    /// # Errors
    /// If a message arrives while the agent is not idle; the state does not change.
    pub(crate) fn next(&mut self, input: AgentInput) -> Result<AgentStep, NotIdle> {
        let (state, step) = match input {
            AgentInput::Begin if *self == AgentState::Idle => {
                (AgentState::Running, act(AgentAction::WriteTurn))
            }
            AgentInput::Begin => return Err(NotIdle),
            AgentInput::Result { is_ok } => self.result(is_ok),
            AgentInput::Stop(reason) => match *self {
                AgentState::Running => {
                    (AgentState::Stopping(reason, SignalForce::Asked), act(AgentAction::Ask))
                }
                unchanged => (unchanged, AgentStep::default()),
            },
            AgentInput::GraceOver => self.grace_over(),
            AgentInput::StartOver => self.abort(TurnEnd::NeverReady),
            AgentInput::Fault => self.abort(TurnEnd::Broken),
            AgentInput::Close => self.close(),
            AgentInput::Kill => self.abort(TurnEnd::Stopped(StopReason::Interrupted)),
            AgentInput::Gone => {
                (AgentState::Ended, AgentStep { act: None, finish: self.end(TurnEnd::Died) })
            }
        };
        *self = state;
        Ok(step)
    }

    /// Returns how the running turn ends if the process ends now; none if no turn runs.
    fn end(self, otherwise: TurnEnd) -> Option<TurnEnd> {
        match self {
            AgentState::Stopping(reason, _) => Some(TurnEnd::Stopped(reason)),
            state => state.is_in_turn().then_some(otherwise),
        }
    }

    fn result(self, is_ok: bool) -> (AgentState, AgentStep) {
        let finish = |end| AgentStep { act: None, finish: Some(end) };
        match self {
            AgentState::Running => (AgentState::Idle, finish(TurnEnd::Completed)),
            // A killed process may have written this earlier; it takes no further turn.
            AgentState::Stopping(reason, SignalForce::Killed) => (
                AgentState::Closing { in_turn: false, killed: true },
                finish(stopped(reason, is_ok)),
            ),
            AgentState::Stopping(reason, SignalForce::Asked) => {
                (AgentState::Idle, finish(stopped(reason, is_ok)))
            }
            // Many programs exit after the interrupt signal even if they write a result. Replacing
            // the process costs a start; reusing one that is about to exit would fail the next
            // turn.
            AgentState::Stopping(reason, SignalForce::Signalled) => (
                AgentState::Closing { in_turn: false, killed: false },
                AgentStep {
                    act: Some(AgentAction::CloseInput),
                    finish: Some(stopped(reason, is_ok)),
                },
            ),
            AgentState::Closing { in_turn: true, killed } => {
                (AgentState::Closing { in_turn: false, killed }, finish(TurnEnd::Completed))
            }
            // The result belongs to no turn and changes nothing.
            AgentState::Idle | AgentState::Closing { in_turn: false, .. } | AgentState::Ended => {
                (self, AgentStep::default())
            }
        }
    }

    fn grace_over(self) -> (AgentState, AgentStep) {
        match self {
            AgentState::Stopping(reason, SignalForce::Asked) => {
                (AgentState::Stopping(reason, SignalForce::Signalled), act(AgentAction::Signal))
            }
            AgentState::Stopping(reason, SignalForce::Signalled) => {
                (AgentState::Stopping(reason, SignalForce::Killed), act(AgentAction::Kill))
            }
            // The kernel has not released the process yet; the turn does not wait for that.
            AgentState::Stopping(reason, SignalForce::Killed) => {
                let finish = Some(TurnEnd::Stopped(reason));
                (AgentState::Ended, AgentStep { act: None, finish })
            }
            AgentState::Closing { in_turn, killed: false } => {
                (AgentState::Closing { in_turn, killed: true }, act(AgentAction::Kill))
            }
            AgentState::Closing { killed: true, .. } => {
                (AgentState::Ended, AgentStep { act: None, finish: self.end(TurnEnd::Died) })
            }
            AgentState::Idle | AgentState::Running | AgentState::Ended => {
                (self, AgentStep::default())
            }
        }
    }

    /// Kills the process and ends its turn at once, without waiting for the process to exit.
    fn abort(self, end: TurnEnd) -> (AgentState, AgentStep) {
        match self {
            AgentState::Ended => (self, AgentStep::default()),
            AgentState::Closing { in_turn: false, killed: true } => (self, AgentStep::default()),
            AgentState::Idle
            | AgentState::Running
            | AgentState::Stopping(..)
            | AgentState::Closing { .. } => {
                let finish = self.end(end);
                let state = AgentState::Closing { in_turn: false, killed: true };
                (state, AgentStep { act: Some(AgentAction::Kill), finish })
            }
        }
    }

    fn close(self) -> (AgentState, AgentStep) {
        match self {
            AgentState::Idle | AgentState::Running => {
                let in_turn = self.is_in_turn();
                (AgentState::Closing { in_turn, killed: false }, act(AgentAction::CloseInput))
            }
            // Its turn ends soon, and the process with it.
            AgentState::Stopping(..) => self.abort(TurnEnd::Died),
            AgentState::Closing { .. } | AgentState::Ended => (self, AgentStep::default()),
        }
    }
}

fn act(act: AgentAction) -> AgentStep {
    AgentStep { act: Some(act), finish: None }
}

/// Returns the end of a turn that was told to stop, but may have answered first.
fn stopped(reason: StopReason, is_ok: bool) -> TurnEnd {
    if is_ok { TurnEnd::Completed } else { TurnEnd::Stopped(reason) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    use AgentAction as A;
    use AgentInput as I;
    use AgentState as S;
    use SignalForce::{Asked, Killed, Signalled};
    use StopReason::{Interrupted, TimedOut};
    use TurnEnd as E;

    const CLOSING: AgentState = S::Closing { in_turn: false, killed: false };
    const CLOSING_TURN: AgentState = S::Closing { in_turn: true, killed: false };
    const DYING: AgentState = S::Closing { in_turn: false, killed: true };
    const DYING_TURN: AgentState = S::Closing { in_turn: true, killed: true };
    const OK: AgentInput = I::Result { is_ok: true };
    const GAVE_UP: AgentInput = I::Result { is_ok: false };

    type Row = (AgentState, AgentInput, AgentState, Option<AgentAction>, Option<TurnEnd>);

    /// Checks that `state` and `input` lead to `next`, `act` and `finish`.
    fn check(rows: &[Row]) {
        for (state, input, next, act, finish) in rows {
            let mut now = *state;
            let step = now.next(*input).unwrap_or_else(|_| panic!("{state:?} refuses {input:?}"));
            let expected = (*next, AgentStep { act: *act, finish: *finish });
            assert_eq!((now, step), expected, "{state:?} + {input:?}");
        }
    }

    #[test]
    fn a_turn_ends_by_its_result() {
        check(&[
            (S::Idle, I::Begin, S::Running, Some(A::WriteTurn), None),
            (S::Running, OK, S::Idle, None, Some(E::Completed)),
            (S::Running, GAVE_UP, S::Idle, None, Some(E::Completed)),
            (S::Idle, OK, S::Idle, None, None),
            (CLOSING, OK, CLOSING, None, None),
            (S::Ended, OK, S::Ended, None, None),
        ]);
    }

    #[test]
    fn a_turn_that_is_to_stop_is_stopped_by_growing_force() {
        let stop = I::Stop(Interrupted);
        let asked = S::Stopping(Interrupted, Asked);
        let signalled = S::Stopping(Interrupted, Signalled);
        let killed = S::Stopping(Interrupted, Killed);
        let end = Some(E::Stopped(Interrupted));
        check(&[
            (S::Running, stop, asked, Some(A::Ask), None),
            (asked, I::Stop(TimedOut), asked, None, None),
            (asked, GAVE_UP, S::Idle, None, end),
            (asked, OK, S::Idle, None, Some(E::Completed)),
            (asked, I::GraceOver, signalled, Some(A::Signal), None),
            (signalled, GAVE_UP, CLOSING, Some(A::CloseInput), end),
            (signalled, I::GraceOver, killed, Some(A::Kill), None),
            (killed, GAVE_UP, DYING, None, end),
            (killed, I::GraceOver, S::Ended, None, end),
            (asked, I::Gone, S::Ended, None, end),
            (S::Idle, stop, S::Idle, None, None),
        ]);
    }

    #[test]
    fn a_process_that_ends_ends_its_turn() {
        let timed_out = S::Stopping(TimedOut, Asked);
        check(&[
            (S::Running, I::Gone, S::Ended, None, Some(E::Died)),
            (S::Idle, I::Gone, S::Ended, None, None),
            (CLOSING_TURN, I::Gone, S::Ended, None, Some(E::Died)),
            (timed_out, I::Gone, S::Ended, None, Some(E::Stopped(TimedOut))),
            (S::Running, I::Fault, DYING, Some(A::Kill), Some(E::Broken)),
            (S::Running, I::StartOver, DYING, Some(A::Kill), Some(E::NeverReady)),
            (S::Running, I::Kill, DYING, Some(A::Kill), Some(E::Stopped(Interrupted))),
            (S::Idle, I::Fault, DYING, Some(A::Kill), None),
            (DYING, I::Fault, DYING, None, None),
            (DYING, I::GraceOver, S::Ended, None, None),
        ]);
    }

    #[test]
    fn a_process_whose_input_is_closed_may_finish_its_turn() {
        check(&[
            (S::Idle, I::Close, CLOSING, Some(A::CloseInput), None),
            (S::Running, I::Close, CLOSING_TURN, Some(A::CloseInput), None),
            (CLOSING_TURN, OK, CLOSING, None, Some(E::Completed)),
            (CLOSING_TURN, I::GraceOver, DYING_TURN, Some(A::Kill), None),
            (DYING_TURN, OK, DYING, None, Some(E::Completed)),
            (DYING_TURN, I::GraceOver, S::Ended, None, Some(E::Died)),
            (CLOSING, I::GraceOver, DYING, Some(A::Kill), None),
            (CLOSING, I::Close, CLOSING, None, None),
        ]);
    }

    #[test]
    fn a_message_needs_an_idle_agent() {
        for state in [S::Running, S::Stopping(TimedOut, Asked), CLOSING, DYING_TURN, S::Ended] {
            let mut now = state;
            assert_eq!((now.next(I::Begin), now), (Err(NotIdle), state));
        }
    }

    fn input() -> impl Strategy<Value = AgentInput> {
        prop_oneof![
            4 => Just(I::Begin),
            3 => any::<bool>().prop_map(|is_ok| I::Result { is_ok }),
            2 => prop_oneof![Just(I::Stop(Interrupted)), Just(I::Stop(TimedOut))],
            3 => Just(I::GraceOver),
            1 => prop_oneof![Just(I::StartOver), Just(I::Fault), Just(I::Kill)],
            1 => prop_oneof![Just(I::Close), Just(I::Gone)],
        ]
    }

    proptest! {
        #[test]
        fn every_turn_ends_exactly_once(inputs in proptest::collection::vec(input(), 0..60)) {
            let mut state = S::Idle;
            let (mut begun, mut finished) = (0, 0);
            for input in inputs {
                let was = state;
                match state.next(input) {
                    Ok(step) => {
                        begun += u32::from(step.act == Some(A::WriteTurn));
                        finished += u32::from(step.finish.is_some());
                        // An ended process stays ended and receives no action.
                        if was == S::Ended {
                            prop_assert_eq!((state, step), (S::Ended, AgentStep::default()));
                        }
                    }
                    Err(NotIdle) => prop_assert_eq!(state, was),
                }
                prop_assert_eq!(begun - finished, u32::from(state.is_in_turn()));
            }
            // In any state, a stopped process ends after a bounded number of grace periods.
            state.next(I::Stop(TimedOut)).unwrap();
            for _ in 0..3 {
                let step = state.next(I::GraceOver).unwrap();
                finished += u32::from(step.finish.is_some());
            }
            prop_assert_eq!(begun, finished);
        }
    }
}
