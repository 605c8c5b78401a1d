//! Streams of events: of one turn, and of a whole session.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::{OnDisconnect, SessionEvent, SessionEventKind};
use node::cluster::SubjectMoved;

use crate::events::SessionSubscription;
use crate::service::entry::SessionEntry;
use crate::service::open_turns::OpenTurn;

/// Stream of the events of one turn.
pub struct MessageStream {
    pub(super) turn: Arc<OpenTurn>,
    pub(super) entry: Arc<SessionEntry>,
    pub(super) events: SessionSubscription,
    pub(super) is_over: bool,
}

impl fmt::Debug for MessageStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageStream").field("turn", &self.turn.id).finish_non_exhaustive()
    }
}

impl MessageStream {
    /// Returns the id of the turn.
    pub fn turn(&self) -> &str {
        &self.turn.id
    }

    /// Returns the session's id.
    pub fn session(&self) -> &str {
        &self.entry.id
    }

    /// Returns the turn's next events, at least one; none after `done`.
    pub async fn next(&mut self) -> Option<Vec<Arc<SessionEvent>>> {
        while !self.is_over {
            let Some(events) = self.events.next().await else {
                self.is_over = true;
                return None;
            };
            let mut of_turn = Vec::with_capacity(events.len());
            for event in events {
                if event.turn.as_deref() != Some(&*self.turn.id) {
                    continue;
                }
                self.is_over |= event.kind == SessionEventKind::Done;
                of_turn.push(event);
            }
            if !of_turn.is_empty() {
                return Some(of_turn);
            }
        }
        None
    }
}

impl Drop for MessageStream {
    fn drop(&mut self) {
        if self.turn.listeners.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.entry.unheard();
        }
    }
}

/// Stream of the events of a whole session.
pub struct EventStream {
    /// None if the session is not in use on this server, where subscribers are not counted.
    pub(super) entry: Option<Arc<SessionEntry>>,
    pub(super) events: SessionSubscription,
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventStream")
    }
}

impl EventStream {
    /// Returns the next events, at least one; none if no event can follow.
    ///
    /// # Errors
    /// If the session was handed over to another server, which has the next events.
    pub async fn next(&mut self) -> Result<Option<Vec<Arc<SessionEvent>>>, SubjectMoved> {
        let Some(entry) = &self.entry else { return Ok(self.events.next().await) };
        let mut handed_over = entry.handed_over.subscribe();
        tokio::select! {
            biased;
            _ = handed_over.wait_for(|is_over| *is_over) => Err(SubjectMoved),
            events = self.events.next() => Ok(events),
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        if let Some(entry) = &self.entry
            && entry.listeners.fetch_sub(1, Ordering::AcqRel) == 1
        {
            entry.unheard();
        }
    }
}

impl SessionEntry {
    /// Interrupts turns that require subscribers and have none.
    fn unheard(&self) {
        let unwanted: Vec<Arc<OpenTurn>> = {
            let state = self.state.lock();
            let waiting = state.turns.waiting.iter().map(|queued| &queued.turn);
            let all = waiting.chain(&state.turns.current);
            let is_unwanted = |turn: &&Arc<OpenTurn>| {
                turn.policy == OnDisconnect::Interrupt
                    && turn.listeners.load(Ordering::Acquire) == 0
                    && self.listeners.load(Ordering::Acquire) == 0
            };
            all.filter(is_unwanted).cloned().collect()
        };
        for turn in unwanted {
            turn.stop();
        }
    }
}
