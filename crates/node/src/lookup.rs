//! Lookups shared by all waiting callers: for lookups that untrusted callers may request often.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::clock;

/// A shared lookup of changes, which runs once at a time. Each caller is served by a lookup that
/// began after its call.
#[derive(Debug)]
pub struct SharedLookup {
    /// Shortest time between the beginnings of two lookups.
    interval: Duration,
    /// Start and success of the last lookup; locked while one runs.
    last: Mutex<Option<(Instant, bool)>>,
}

/// Reason why there is no new result.
#[derive(Debug)]
pub enum SharedLookupError<E> {
    /// The lookup failed.
    Failed(E),
    /// Another caller's lookup failed, which would have served this one.
    OfAnother,
}

impl SharedLookup {
    /// Creates a shared lookup whose runs begin at least `interval` apart.
    #[must_use]
    pub fn new(interval: Duration) -> SharedLookup {
        SharedLookup { interval, last: Mutex::new(None) }
    }

    /// Runs `lookup`, or waits for one that another caller begins meanwhile.
    ///
    /// # Errors
    /// If the lookup failed, for this caller or for another.
    pub async fn run<E>(
        &self,
        lookup: impl Future<Output = Result<(), E>>,
    ) -> Result<(), SharedLookupError<E>> {
        let arrived = clock::now();
        let mut last = self.last.lock().await;
        if let Some((began, succeeded)) = *last {
            if began >= arrived {
                return if succeeded { Ok(()) } else { Err(SharedLookupError::OfAnother) };
            }
            tokio::time::sleep_until((began + self.interval).into()).await;
        }
        let began = clock::now();
        // A lookup that ends early, because its caller is dropped, serves no other.
        *last = None;
        let result = lookup.await;
        *last = Some((began, result.is_ok()));
        result.map_err(SharedLookupError::Failed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_who_wait_share_one_and_learn_how_it_ended() {
        let lookup = Arc::new(SharedLookup::new(Duration::from_millis(50)));
        let runs = Arc::new(AtomicUsize::new(0));
        for (fails, expected) in [(false, 200), (true, 0)] {
            let waiting: Vec<_> = (0..200)
                .map(|_| {
                    let (lookup, runs) = (Arc::clone(&lookup), Arc::clone(&runs));
                    tokio::spawn(async move {
                        let fetch = async {
                            runs.fetch_add(1, Ordering::Relaxed);
                            tokio::time::sleep(Duration::from_millis(5)).await;
                            if fails { Err(()) } else { Ok(()) }
                        };
                        lookup.run(fetch).await.is_ok()
                    })
                })
                .collect();
            let mut succeeded = 0;
            for one in waiting {
                succeeded += usize::from(one.await.unwrap());
            }
            assert_eq!(succeeded, expected);
            // Callers that arrived before the first one began are served by the second.
            assert!(runs.swap(0, Ordering::Relaxed) <= 2);
        }
    }
}
