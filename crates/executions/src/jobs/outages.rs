//! Failures of the queue's back end, logged when they begin and when they end.
//!
//! Failed operations are retried twice a second. A line for each attempt would fill a log within
//! hours, perhaps on the very disk whose lack of space is the failure.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};

/// State of each task that polls the back end.
#[derive(Debug, Default)]
pub(super) struct QueueOutages {
    /// Claiming jobs.
    pub(super) claims: OutageLog,
    /// Renewing leases.
    pub(super) leases: OutageLog,
    /// Sweeping the queue.
    pub(super) sweeps: OutageLog,
}

/// Log of one task's outages: whether its last attempt failed.
#[derive(Debug, Default)]
pub(super) struct OutageLog {
    is_failing: AtomicBool,
}

impl OutageLog {
    /// Records a failure, and logs it as `what` if the previous attempt succeeded.
    pub(super) fn failed(&self, error: &(dyn Error + 'static), what: &str) {
        if self.begins() {
            tracing::error!(error, "{what}");
        }
    }

    /// Records a success, and logs it as `what` if the previous attempt failed.
    pub(super) fn works(&self, what: &str) {
        if self.ends() {
            tracing::info!("{what}");
        }
    }

    fn begins(&self) -> bool {
        !self.is_failing.swap(true, Ordering::Relaxed)
    }

    fn ends(&self) -> bool {
        // Most calls only read: a swap would take the cache line from other threads.
        self.is_failing.load(Ordering::Relaxed) && self.is_failing.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_logged_when_it_begins_and_when_it_is_over() {
        let log = OutageLog::default();
        assert!(!log.ends(), "nothing has failed yet");
        let outage = [log.begins(), log.begins(), log.begins(), log.ends(), log.ends()];
        assert_eq!(outage, [true, false, false, true, false]);
        assert!(log.begins(), "the next outage");
    }
}
