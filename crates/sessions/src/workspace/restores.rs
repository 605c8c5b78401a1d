//! Limits on concurrent restores from the object store, and their order.
//!
//! When a node is lost, the remaining nodes need the disks of hundreds of sessions. If all were
//! restored concurrently, each would be complete only with the last one. Therefore only a few are
//! restored at a time, most recently used sessions first. To prevent starvation, every
//! [`LONGEST_EVERY`]th restore is the one that has waited longest.
//!
//! | resource | concurrently |
//! |---|---|
//! | images | [`IMAGES_PER_PROCESSOR`] for each processor, and no fewer than [`IMAGES_MIN`] |
//! | pieces in transfer or in memory | [`PIECES_MAX`], of one image [`PIECES_PER_IMAGE`] |
//! | pieces being unpacked and verified | one for each processor: the rest is left to requests |

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

/// Images restored concurrently per processor. A restore mostly waits for the store and for this
/// machine's disk.
const IMAGES_PER_PROCESSOR: usize = 2;
/// Minimum images restored concurrently: a distant store has a higher latency.
const IMAGES_MIN: usize = 8;
/// Pieces of all images in transfer or in memory; each takes up to 2 MiB.
const PIECES_MAX: usize = 32;
/// Pieces of one image in transfer.
pub(super) const PIECES_PER_IMAGE: usize = 16;
/// Of this many freed places, one goes to the longest waiting image.
const LONGEST_EVERY: u64 = 4;

/// Limits on restores from the object store.
#[derive(Debug)]
pub(super) struct RestoreLimits {
    images: Arc<Mutex<ImageQueue>>,
    images_max: usize,
    pieces: Semaphore,
    unpacked: Semaphore,
}

/// Priority of an image: the greatest waiting one is restored first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RestoreRank {
    /// Disk of a session, with the time of its last use in milliseconds since 1970.
    Disk(u64),
    /// Layer, which many sessions may use.
    Layer,
}

/// Place of an image that is being restored. Dropping it passes the place on.
#[derive(Debug)]
pub(super) struct RestorePlace {
    /// None once the place was passed on.
    queue: Option<Arc<Mutex<ImageQueue>>>,
}

/// Waiting images, in both orders.
#[derive(Debug)]
struct ImageQueue {
    free: usize,
    /// Number of the next arrival.
    next: u64,
    /// Number of places that were passed to waiting images.
    given: u64,
    /// By rank, then by arrival, with the earliest arrival last.
    by_rank: BTreeMap<(RestoreRank, std::cmp::Reverse<u64>), oneshot::Sender<RestorePlace>>,
    by_arrival: BTreeMap<u64, RestoreRank>,
}

impl ImageQueue {
    /// Removes the next waiting image.
    fn pop(&mut self) -> Option<oneshot::Sender<RestorePlace>> {
        if self.by_arrival.is_empty() {
            return None;
        }
        self.given += 1;
        let number = match self.given.is_multiple_of(LONGEST_EVERY) {
            true => *self.by_arrival.first_key_value()?.0,
            false => self.by_rank.last_key_value()?.0.1.0,
        };
        let rank = self.by_arrival.remove(&number)?;
        self.by_rank.remove(&(rank, std::cmp::Reverse(number)))
    }
}

impl RestoreLimits {
    pub(super) fn new() -> RestoreLimits {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let images = IMAGES_MIN.max(processors * IMAGES_PER_PROCESSOR);
        RestoreLimits::with(images, processors)
    }

    pub(super) fn with(images: usize, processors: usize) -> RestoreLimits {
        RestoreLimits {
            images: Arc::new(Mutex::new(ImageQueue {
                free: images,
                next: 0,
                given: 0,
                by_rank: BTreeMap::new(),
                by_arrival: BTreeMap::new(),
            })),
            images_max: images,
            pieces: Semaphore::new(PIECES_MAX),
            unpacked: Semaphore::new(processors),
        }
    }

    /// Waits for a place to restore an image; higher ranks take precedence.
    pub(super) async fn image(&self, rank: RestoreRank) -> RestorePlace {
        let waiting = {
            let mut queue = self.images.lock();
            if queue.free > 0 {
                queue.free -= 1;
                return RestorePlace::of(&self.images);
            }
            let number = queue.next;
            queue.next += 1;
            let (given, waiting) = oneshot::channel();
            queue.by_rank.insert((rank, std::cmp::Reverse(number)), given);
            queue.by_arrival.insert(number, rank);
            waiting
        };
        match waiting.await {
            Ok(place) => place,
            // Does not happen: the queue outlives its waiters.
            Err(_) => RestorePlace { queue: None },
        }
    }

    /// Returns whether images are being restored or wait for a place.
    pub(super) fn is_busy(&self) -> bool {
        self.images.lock().free < self.images_max
    }

    /// Waits until `count` images wait for a place.
    #[cfg(test)]
    pub(super) async fn until_waiting(&self, count: usize) {
        while self.images.lock().by_arrival.len() < count {
            tokio::task::yield_now().await;
        }
    }

    /// Waits for a place to read a piece and hold it until it is written.
    pub(super) async fn piece(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.pieces.acquire().await.ok()
    }

    /// Waits for a place to unpack a piece.
    pub(super) async fn unpack(&self) -> Option<SemaphorePermit<'_>> {
        self.unpacked.acquire().await.ok()
    }
}

impl RestorePlace {
    fn of(queue: &Arc<Mutex<ImageQueue>>) -> RestorePlace {
        RestorePlace { queue: Some(Arc::clone(queue)) }
    }
}

impl Drop for RestorePlace {
    fn drop(&mut self) {
        let Some(queue) = self.queue.take() else { return };
        loop {
            let next = {
                let mut waiting = queue.lock();
                let next = waiting.pop();
                if next.is_none() {
                    waiting.free += 1;
                }
                next
            };
            let Some(next) = next else { return };
            // A cancelled waiter returns the place, which passes to the next one.
            match next.send(RestorePlace::of(&queue)) {
                Ok(()) => return,
                Err(mut unwanted) => drop(unwanted.queue.take()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// Passes places to all waiting images, one at a time, and returns their ranks in that order.
    async fn order(limits: &RestoreLimits, ranks: &[RestoreRank]) -> Vec<RestoreRank> {
        let mut held = vec![limits.image(RestoreRank::Layer).await];
        let mut waiting: Vec<_> =
            ranks.iter().map(|rank| (*rank, Box::pin(limits.image(*rank)))).collect();
        assert!(waiting.iter_mut().all(|(_, place)| place.now_or_never().is_none()));
        let mut order = Vec::new();
        while !waiting.is_empty() {
            held.clear();
            let ready: Vec<_> = waiting
                .iter_mut()
                .enumerate()
                .filter_map(|(at, (_, place))| Some((at, place.now_or_never()?)))
                .collect();
            assert_eq!(ready.len(), 1, "one place goes to one");
            for (at, place) in ready {
                held.push(place);
                order.push(waiting.remove(at).0);
            }
        }
        order
    }

    #[tokio::test]
    async fn what_was_used_last_comes_first_and_nobody_waits_for_ever() {
        use RestoreRank::{Disk, Layer};
        let limits = RestoreLimits::with(1, 1);
        let ranks = [Disk(1), Disk(5), Disk(3), Disk(2), Layer, Disk(4), Disk(6)];
        let expected = [Layer, Disk(6), Disk(5), Disk(1), Disk(4), Disk(3), Disk(2)];
        assert_eq!(order(&limits, &ranks).await, expected);
        // No image waits, and the place is free again.
        let place = limits.image(Disk(0)).now_or_never();
        assert!(place.is_some());
        assert!(limits.image(Layer).now_or_never().is_none());
        drop(place);
        assert!(limits.image(Layer).now_or_never().is_some());
    }

    #[tokio::test]
    async fn whoever_goes_away_takes_no_place() {
        let limits = RestoreLimits::with(2, 1);
        let (first, second) =
            (limits.image(RestoreRank::Disk(1)).await, limits.image(RestoreRank::Disk(1)).await);
        let mut waiting: Vec<_> =
            (0..5).map(|used| Box::pin(limits.image(RestoreRank::Disk(used)))).collect();
        assert!(waiting.iter_mut().all(|place| place.now_or_never().is_none()));
        let last = waiting.swap_remove(0);
        drop(waiting);
        drop(first);
        let third = last.now_or_never().expect("the only one that is left");
        // Passed to a waiter that does not take it.
        let mut gone = Box::pin(limits.image(RestoreRank::Disk(7)));
        assert!((&mut gone).now_or_never().is_none());
        drop(second);
        drop(gone);
        assert!(limits.image(RestoreRank::Disk(1)).now_or_never().is_some());
        drop(third);
        assert_eq!(limits.images.lock().free, 2);
        assert!(limits.images.lock().by_rank.is_empty());
    }
}
