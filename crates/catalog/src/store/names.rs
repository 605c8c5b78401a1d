//! When names in a place have changed: counters that changes of names move on, so that a list which
//! was made earlier is known to be old.
//!
//! A counter moves twice for each change: in its transaction, and when the change is over. Who
//! reads the count, then the store, and finds the same count afterwards has read what is true
//! still: a transaction that committed meanwhile has moved the counter before its change was
//! answered.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use iceberg::ident::NamespaceIdent;

/// Counters. Places that share one make each other's lists old, which costs a read and no more.
const COUNTERS: usize = 256;

/// The counters of a catalog. Cheap to clone.
#[derive(Clone)]
pub struct NameCounters(Arc<NameCountersInner>);

struct NameCountersInner {
    hasher: RandomState,
    counters: [AtomicU64; COUNTERS],
}

/// A count of one place, as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameCount(u64);

/// A change that is under way. When it is over, whatever came of it, the counters that were moved
/// since it began move once more.
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
    /// Names directly in a namespace, or namespaces of a warehouse's first level, are other ones.
    pub fn touch(&self, warehouse: &str, namespace: Option<&NamespaceIdent>) {
        self.counter(warehouse, namespace).fetch_add(1, Ordering::SeqCst);
    }

    /// The count of a place.
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
        // Somebody reads between the transaction's statement and its commit.
        let during = count();
        assert_ne!(during, before);
        drop(changing);
        assert_ne!(count(), during);
        let after = count();
        drop(names.changing());
        assert_eq!(count(), after, "a change of no names leaves lists as they are");
    }
}
