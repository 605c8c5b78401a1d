//! Feed of changed records: a service publishes the id of a changed record, and followers of a
//! list read it again. Holds no content and authorizes nothing: followers read through the
//! service's own interface.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Maximum number of ids that wait for one listener. A slower listener reads the whole list again.
const CHANGES_QUEUED_MAX: usize = 256;

/// Feed of one kind of records. Cheap to clone; without listeners, publishing does nothing.
#[derive(Clone, Debug)]
pub struct RecordFeed(broadcast::Sender<Arc<str>>);

/// Listener of a feed, from its creation on.
#[derive(Debug)]
pub struct ChangeListener(broadcast::Receiver<Arc<str>>);

/// Records that have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeScope {
    /// These records, each once, in the order of their first change.
    Records(Vec<Arc<str>>),
    /// More records than requested.
    All,
}

impl Default for RecordFeed {
    fn default() -> RecordFeed {
        RecordFeed(broadcast::Sender::new(CHANGES_QUEUED_MAX))
    }
}

impl RecordFeed {
    /// Publishes that a record was created, changed or removed. Never waits.
    pub fn publish(&self, id: &str) {
        if self.0.receiver_count() > 0 {
            // All listeners may have been dropped meanwhile.
            let _listeners = self.0.send(id.into());
        }
    }

    /// Returns a listener that receives every later change.
    #[must_use]
    pub fn listen(&self) -> ChangeListener {
        ChangeListener(self.0.subscribe())
    }
}

impl ChangeListener {
    /// Waits for a change, and returns it with those of the next `batch_window`: at most
    /// `records_max`, or [`ChangeScope::All`]. Never returns after the feed was dropped. Not
    /// cancel-safe after the first change.
    pub async fn changed(&mut self, records_max: usize, batch_window: Duration) -> ChangeScope {
        let first = match self.0.recv().await {
            Ok(id) => id,
            Err(RecvError::Lagged(_)) => return self.all(),
            Err(RecvError::Closed) => std::future::pending().await,
        };
        tokio::time::sleep(batch_window).await;
        let (mut seen, mut records) = (HashSet::from([Arc::clone(&first)]), vec![first]);
        loop {
            match self.0.try_recv() {
                Ok(id) if !seen.insert(Arc::clone(&id)) => {}
                Ok(id) if records.len() < records_max => records.push(id),
                Ok(_) | Err(TryRecvError::Lagged(_)) => return self.all(),
                Err(TryRecvError::Empty | TryRecvError::Closed) => {
                    return ChangeScope::Records(records);
                }
            }
        }
    }

    /// Discards waiting ids: the caller reads the whole list.
    fn all(&mut self) -> ChangeScope {
        self.0 = self.0.resubscribe();
        ChangeScope::All
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(ids: &[&str]) -> ChangeScope {
        ChangeScope::Records(ids.iter().map(|id| Arc::from(*id)).collect())
    }

    #[tokio::test]
    async fn a_listener_gets_each_record_once_and_all_of_them_when_it_is_slow() {
        let feed = RecordFeed::default();
        feed.publish("nobody listens");
        let mut listener = feed.listen();
        for id in ["b", "a", "b", "b"] {
            feed.publish(id);
        }
        assert_eq!(listener.changed(2, Duration::ZERO).await, records(&["b", "a"]));
        for id in ["a", "b", "c"] {
            feed.publish(id);
        }
        assert_eq!(listener.changed(2, Duration::ZERO).await, ChangeScope::All);
        feed.publish("later");
        assert_eq!(listener.changed(2, Duration::ZERO).await, records(&["later"]));
        for _ in 0..=CHANGES_QUEUED_MAX {
            feed.publish("flood");
        }
        assert_eq!(listener.changed(2, Duration::ZERO).await, ChangeScope::All);
        feed.publish("after");
        assert_eq!(listener.changed(2, Duration::ZERO).await, records(&["after"]));
    }
}
