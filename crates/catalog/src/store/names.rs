//! Counters of changes of names, by place, by which a cached list is recognised as outdated.
//!
//! A counter is incremented twice for each change: in its transaction, and when the change is
//! complete. A reader that reads the count, then the store, and then finds the same count has a
//! current result: a transaction that committed meanwhile has incremented the counter before its
//! change was acknowledged.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use iceberg::ident::NamespaceIdent;

/// Number of counters. Places that share one invalidate each other's lists, which only costs a
/// read.
const COUNTERS: usize = 256;

/// The counters of a catalog. Cheap to clone.
#[derive(Clone)]
pub struct NameCounters(Arc<NameCountersInner>);

struct NameCountersInner {
    hasher: RandomState,
    counters: [AtomicU64; COUNTERS],
}

/// The count of a place at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameCount(u64);

/// A change in progress. When it ends, with any outcome, the counters that were incremented since
/// it began are incremented again.
#[derive(Debug)]
pub struct NameChange {
    names: NameCounters,
    before: Box<[u64]>,
}

impl Default for NameCounters {
    fn default() -> NameCounters {
        let counters = [const { AtomicU64::new(0) }; COUNTERS];
        NameCounters(Arc::new(NameCountersInner { hasher: RandomState::new(), counters }))
    }
}

impl fmt::Debug for NameCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}

impl NameCounters {
    /// Records a change of names directly in a namespace, or of top-level namespaces of a
    /// warehouse.
    pub fn touch(&self, warehouse: &str, namespace: Option<&NamespaceIdent>) {
        self.counter(warehouse, namespace).fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the count of a place.
    #[must_use]
    pub fn count(&self, warehouse: &str, namespace: Option<&NamespaceIdent>) -> NameCount {
        NameCount(self.counter(warehouse, namespace).load(Ordering::SeqCst))
    }

    /// Begins a change.
    #[must_use]
    pub fn changing(&self) -> NameChange {
        let before = self.0.counters.iter().map(|it| it.load(Ordering::SeqCst)).collect();
        NameChange { names: self.clone(), before }
    }

    fn counter(&self, warehouse: &str, namespace: Option<&NamespaceIdent>) -> &AtomicU64 {
        let hash = self.0.hasher.hash_one((warehouse, namespace));
        let index = usize::try_from(hash % COUNTERS as u64).unwrap_or(0);
        &self.0.counters[index]
    }
}

impl Drop for NameChange {
    fn drop(&mut self) {
        for (counter, before) in self.names.0.counters.iter().zip(&self.before) {
            if counter.load(Ordering::SeqCst) != *before {
                counter.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_during_a_change_is_old_when_the_change_is_over() {
        let names = NameCounters::default();
        let namespace = NamespaceIdent::new(["n"]).unwrap();
        let count = || names.count("w", Some(&namespace));
        let before = count();
        let changing = names.changing();
        assert_eq!(count(), before);
        names.touch("w", Some(&namespace));
        // Another request reads between the transaction's statement and its commit.
        let during = count();
        assert_ne!(during, before);
        drop(changing);
        assert_ne!(count(), during);
        let after = count();
        drop(names.changing());
        assert_eq!(count(), after, "a change of no names leaves lists as they are");
    }
}
