//! Gate for removals of a server's files, which a backup holds closed.
//!
//! The store lists the files. Services write a file before the row that names it, and remove it
//! after that row was removed. A copy of the store therefore names files that services may remove a
//! moment later: a backup closes the gate, copies the store and takes its own hold of every file,
//! and opens the gate again. Removals wait meanwhile, reads and writes do not.

use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// Gate that all removals of one server pass. Cheap to clone; clones share the gate.
#[derive(Clone, Debug, Default)]
pub struct RemovalGate(Arc<RwLock<()>>);

/// Permit to remove files, for as long as it lives.
#[derive(Debug)]
pub struct RemovalPermit {
    _open: OwnedRwLockReadGuard<()>,
}

/// Closed gate: no file is removed until it is dropped.
#[derive(Debug)]
pub struct RemovalHold {
    _closed: OwnedRwLockWriteGuard<()>,
}

impl RemovalGate {
    /// Waits until the gate is open. The caller holds the permit until its removals are done.
    pub async fn permit(&self) -> RemovalPermit {
        RemovalPermit { _open: Arc::clone(&self.0).read_owned().await }
    }

    /// Closes the gate, and waits for running removals.
    pub async fn close(&self) -> RemovalHold {
        RemovalHold { _closed: Arc::clone(&self.0).write_owned().await }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_ready<T>(future: impl Future<Output = T>) -> bool {
        let poll = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
        matches!(poll, Poll::Ready(_))
    }

    #[tokio::test]
    async fn removals_wait_for_a_closed_gate_and_it_waits_for_them() {
        let gate = RemovalGate::default();
        let (one, other) = (gate.permit().await, gate.clone().permit().await);
        assert!(!is_ready(gate.close()));
        drop((one, other));
        let hold = gate.close().await;
        assert!(!is_ready(gate.permit()));
        drop(hold);
        assert!(is_ready(gate.permit()));
    }
}
