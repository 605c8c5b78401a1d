//! Deadlines of sessions, and the signal that wakes the background work early.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Deadlines of sessions, and signals for the background work.
#[derive(Default)]
pub(crate) struct SweepTimers {
    deadlines: Mutex<SweepDeadlines>,
    /// Notified when an earlier deadline is set.
    pub(super) sooner: Notify,
    /// True if a layer may have become unused.
    pub(super) layers: AtomicBool,
    /// Notified when a prepared disk was taken.
    pub(crate) disks: Notify,
}

#[derive(Default)]
struct SweepDeadlines {
    by_time: BTreeSet<(u64, Arc<str>)>,
    by_session: HashMap<Arc<str>, u64>,
}

impl SweepTimers {
    /// Sets or removes the deadline of a session.
    pub(crate) fn deadline(&self, session: &Arc<str>, at_ms: Option<u64>) {
        {
            let all = &mut *self.deadlines.lock();
            if let Some(before) = all.by_session.remove(session) {
                all.by_time.remove(&(before, Arc::clone(session)));
            }
            if let Some(at_ms) = at_ms {
                all.by_session.insert(Arc::clone(session), at_ms);
                all.by_time.insert((at_ms, Arc::clone(session)));
            }
        }
        self.sooner.notify_one();
    }

    /// Records that layers may have become unused.
    pub(crate) fn layers(&self) {
        self.layers.store(true, Ordering::Relaxed);
    }

    /// Takes one due session; otherwise returns the time until the next deadline.
    pub(super) fn due(&self, now_ms: u64) -> Result<Arc<str>, Option<Duration>> {
        let all = &mut *self.deadlines.lock();
        match all.by_time.first() {
            Some((at_ms, _)) if *at_ms > now_ms => Err(Some(Duration::from_millis(at_ms - now_ms))),
            Some(_) => {
                let due = all.by_time.pop_first().ok_or(None)?;
                all.by_session.remove(&due.1);
                Ok(due.1)
            }
            None => Err(None),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Deadlines are handled in order, and the last one set counts.

    use super::*;

    #[test]
    fn the_earliest_deadline_is_due_first_and_only_when_it_has_come() {
        let timers = SweepTimers::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        assert_eq!(timers.due(0), Err(None));
        timers.deadline(&a, Some(10));
        timers.deadline(&b, Some(20));
        assert_eq!(timers.due(5), Err(Some(Duration::from_millis(5))));
        timers.deadline(&a, Some(30));
        assert_eq!(timers.due(25), Ok(b));
        assert_eq!(timers.due(25), Err(Some(Duration::from_millis(5))));
        timers.deadline(&a, None);
        assert_eq!(timers.due(100), Err(None));
    }
}
