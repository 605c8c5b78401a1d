//! Lookups shared by all waiting callers: for lookups that untrusted callers may request often.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::clock;

/// A lookup of what has changed, that goes on once at a time. Whoever asks is served by one that
/// began after he asked.
#[derive(Debug)]
pub struct SharedLookup {
    /// Least time between the beginnings of two.
    interval: Duration,
    /// When the last one began, and whether it succeeded; held while it goes on.
    last: Mutex<Option<(Instant, bool)>>,
}

/// Why there is nothing new to see.
#[derive(Debug)]
pub enum SharedLookupError<E> {
    /// The lookup failed.
    Failed(E),
    /// That of somebody else failed, which would have served this one.
    OfAnother,
}

impl SharedLookup {
    /// Creates one whose lookups begin at least `interval` apart.
    #[must_use]
    pub fn new(interval: Duration) -> SharedLookup {
        SharedLookup { interval, last: Mutex::new(None) }
    }

    /// Runs `lookup`, or waits for one that another caller has begun meanwhile.
    ///
    /// # Errors
    /// When it failed, be it for this one or for another.
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
        // What ends early, because its caller leaves, serves nobody.
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
            // Those that came before the first one began are served by the second.
            assert!(runs.swap(0, Ordering::Relaxed) <= 2);
        }
    }
}
