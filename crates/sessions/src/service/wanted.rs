//! Signal that a caller waits for a session whose files are being uploaded to the object store.

use tokio::sync::watch;

/// Number of waiting callers.
#[derive(Debug, Default)]
pub(crate) struct WantedSignal(watch::Sender<usize>);

/// A waiting caller. Dropping it lowers the signal.
#[derive(Debug)]
pub(super) struct RaisedSignal<'a>(&'a WantedSignal);

impl WantedSignal {
    /// Registers a waiting caller.
    pub(super) fn raise(&self) -> RaisedSignal<'_> {
        self.0.send_modify(|count| *count += 1);
        RaisedSignal(self)
    }

    /// Resolves once a caller waits.
    pub(super) async fn raised(&self) {
        // Cannot fail: `self` owns the sender.
        drop(self.0.subscribe().wait_for(|count| *count > 0).await);
    }
}

impl Drop for RaisedSignal<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    //! One waiting caller, several, and none.

    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn the_signal_stands_for_as_long_as_somebody_waits() {
        let wanted = WantedSignal::default();
        assert!(wanted.raised().now_or_never().is_none());
        let (first, second) = (wanted.raise(), wanted.raise());
        drop(first);
        assert!(wanted.raised().now_or_never().is_some());
        drop(second);
        assert!(wanted.raised().now_or_never().is_none());
    }
}
