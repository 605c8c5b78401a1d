//! Limits on concurrent restores from the object store, and their order.
//!
//! When a node is lost, the remaining nodes need the disks of hundreds of sessions. If all were
//! restored concurrently, each would be complete only when the last one is. So there are few at a
//! time, most recently used sessions first; and so that none waits for ever, every
//! [`LONGEST_EVERY`]th restore is that of the one that has waited longest.
//!
//! | what | at a time |
//! |---|---|
//! | images | [`IMAGES_PER_PROCESSOR`] for each processor, and no fewer than [`IMAGES_MIN`] |
//! | pieces of all images, on their way or in memory | [`PIECES_MAX`], of one image [`PIECES_PER_IMAGE`] |
//! | pieces that are unpacked and checked | one for each processor: the rest is left to requests |

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

/// Images that are brought at a time, for each processor. Most of the time one waits for the store,
/// and for this machine's disk.
const IMAGES_PER_PROCESSOR: usize = 2;
/// Images that are brought at a time, at least: a store that is far away is waited for longer.
const IMAGES_MIN: usize = 8;
/// Pieces of all images that are on their way or in memory; each takes up to 2 MiB.
const PIECES_MAX: usize = 32;
/// Pieces of one image that are on their way at a time.
pub(super) const PIECES_PER_IMAGE: usize = 16;
/// Of so many places that become free, one goes to whoever has waited longest.
const LONGEST_EVERY: u64 = 4;

/// Bounds on what is brought from the object store.
#[derive(Debug)]
pub(super) struct RestoreLimits {
    images: Arc<Mutex<ImageQueue>>,
    images_max: usize,
    pieces: Semaphore,
    unpacked: Semaphore,
}

/// Importance of an image: of those that wait, the greatest is brought first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RestoreRank {
    /// Disk of a session that was last used then, in milliseconds since 1970.
    Disk(u64),
    /// Layer, on which many sessions stand.
    Layer,
}

/// Place of an image that is being brought. Dropping it gives the place to the next one.
#[derive(Debug)]
pub(super) struct RestorePlace {
    /// None once somebody else has the place.
    queue: Option<Arc<Mutex<ImageQueue>>>,
}

/// Images that wait, in both orders.
#[derive(Debug)]
struct ImageQueue {
    free: usize,
    /// Number of the next one that comes.
    next: u64,
    /// Places that were given to somebody who waited.
    given: u64,
    /// By rank, and those of one rank by arrival, the first one last.
    by_rank: BTreeMap<(RestoreRank, std::cmp::Reverse<u64>), oneshot::Sender<RestorePlace>>,
    by_arrival: BTreeMap<u64, RestoreRank>,
}

impl ImageQueue {
    /// Takes out the one that comes next.
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

    /// Waits for a place to bring an image, those of a higher rank first.
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
            // The queue outlives whoever waits in it, so that this does not happen.
            Err(_) => RestorePlace { queue: None },
        }
    }

    /// Returns whether images are being brought, or wait for that.
    pub(super) fn is_busy(&self) -> bool {
        self.images.lock().free < self.images_max
    }

    /// Waits until so many images wait for a place.
    #[cfg(test)]
    pub(super) async fn until_waiting(&self, count: usize) {
        while self.images.lock().by_arrival.len() < count {
            tokio::task::yield_now().await;
        }
    }

    /// Waits for a place to read a piece, and to keep it until it is written.
    pub(super) async fn piece(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.pieces.acquire().await.ok()
    }

    /// Waits for a place to unpack a piece that was read.
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
            // Who has gone away meanwhile gives it back, and the one behind has it.
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

    /// Gives all places to those who wait, one at a time, and answers their ranks in this order.
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
        // Nothing is left, and the place is free again.
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
        // Given, and not taken.
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
