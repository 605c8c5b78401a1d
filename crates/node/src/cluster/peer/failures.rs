//! Log of requests that could not be forwarded to a node.
//!
//! A dead node fails dozens of requests within the second before the others know it. The first
//! failure is logged with its cause, and the number of further ones is logged periodically.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

use super::client::{PeerError, PeerTarget};
use crate::task;

/// Interval after which the number of further failures is logged.
const MORE_TOLD_EVERY: Duration = Duration::from_secs(5);

/// Nodes that requests could not be forwarded to. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct ForwardFailureLog(Arc<Mutex<ForwardFailures>>);

/// Failures by node, since its last log line.
#[derive(Debug, Default)]
struct ForwardFailures(HashMap<String, u64>);

impl ForwardFailures {
    /// Counts a failure; returns whether it is the first.
    fn add(&mut self, node: &str) -> bool {
        match self.0.entry(node.to_owned()) {
            Entry::Occupied(mut entry) => {
                *entry.get_mut() += 1;
                false
            }
            Entry::Vacant(entry) => {
                entry.insert(0);
                true
            }
        }
    }

    /// Returns the number of failures since the last log line, for the next one. A node without any
    /// is removed, so that its next failure is a first one.
    fn take(&mut self, node: &str) -> u64 {
        match self.0.get_mut(node).map(std::mem::take) {
            Some(more @ 1..) => more,
            Some(0) | None => {
                self.0.remove(node);
                0
            }
        }
    }
}

impl ForwardFailureLog {
    /// Logs that a request could not be forwarded, or counts it with others of that node.
    pub(super) fn failed(&self, target: &PeerTarget, error: &PeerError) {
        let node = &target.id;
        if !self.0.lock().add(node) {
            return;
        }
        let error = error as &dyn std::error::Error;
        tracing::warn!(node, error, "failed to pass a request on");
        let (log, node) = (self.clone(), node.clone());
        task::spawn(async move {
            loop {
                sleep(MORE_TOLD_EVERY).await;
                match log.0.lock().take(&node) {
                    0 => return,
                    more => {
                        tracing::warn!(node, more, "failed to pass a request on, several times")
                    }
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_of_a_node_is_told_and_others_are_counted() {
        let mut failures = ForwardFailures::default();
        let told: Vec<bool> = ["a", "a", "b", "a"].map(|node| failures.add(node)).into();
        assert_eq!(told, [true, false, true, false]);
        assert_eq!((failures.take("a"), failures.take("b")), (2, 0));
        assert!(!failures.add("a"), "it goes on");
        assert!(failures.add("b"), "it begins anew");
        assert_eq!((failures.take("a"), failures.take("a")), (1, 0));
        failures.take("b");
        assert!(failures.0.is_empty(), "{failures:?}");
    }
}
