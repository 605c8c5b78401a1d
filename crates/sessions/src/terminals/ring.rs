//! Last bytes of a stream, by position. Pure.

use std::collections::VecDeque;

use bytes::Bytes;

/// Ring of the last bytes of a stream. A byte's position is the number of bytes before it.
#[derive(Debug)]
pub(crate) struct ReplayRing {
    /// Bytes from `end - bytes.len()` up to `end`; never more than `capacity`.
    bytes: VecDeque<u8>,
    capacity: usize,
    end: u64,
}

impl ReplayRing {
    /// Creates an empty ring that grows up to `capacity` bytes.
    pub(crate) fn new(capacity: usize) -> ReplayRing {
        ReplayRing { bytes: VecDeque::new(), capacity, end: 0 }
    }

    /// Adds bytes; drops the oldest bytes if necessary.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.end += piece.len() as u64;
        let kept = piece.get(piece.len().saturating_sub(self.capacity)..).unwrap_or_default();
        let over = (self.bytes.len() + kept.len()).saturating_sub(self.capacity);
        self.bytes.drain(..over);
        self.bytes.extend(kept);
        debug_assert!(self.bytes.len() <= self.capacity, "more is kept than there is room for");
    }

    /// Returns the position of the oldest byte.
    pub(crate) fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    /// Returns the position of the next byte to arrive.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns how many bytes can be added before one of the last `count` is dropped.
    pub(crate) fn room_beside(&self, count: u64) -> usize {
        self.capacity.saturating_sub(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Returns up to `max` bytes from a position on; none if that byte was dropped or has not
    /// arrived yet.
    pub(crate) fn piece(&self, from: u64, max: usize) -> Bytes {
        let Some(at) = from.checked_sub(self.start()) else { return Bytes::new() };
        let at = usize::try_from(at).unwrap_or(usize::MAX).min(self.bytes.len());
        let end = at.saturating_add(max).min(self.bytes.len());
        self.bytes.range(at..end).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SplitMix64: small, seeded, good enough to reach every branch.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            usize::try_from((z ^ (z >> 31)) % end as u64).unwrap()
        }
    }

    #[test]
    fn readers_get_every_byte_once_from_where_they_begin() {
        for seed in 0..300 {
            let mut random = Random(seed);
            let capacity = 1 + random.below(64);
            let mut ring = ReplayRing::new(capacity);
            let mut all: Vec<u8> = Vec::new();
            // Start and received bytes of each reader.
            let mut readers: Vec<(u64, Vec<u8>)> = Vec::new();
            for _ in 0..200 {
                match random.below(3) {
                    0 => {
                        let length = random.below(2 * capacity);
                        let piece: Vec<u8> =
                            (0..length).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
                        ring.push(&piece);
                        all.extend(piece);
                        let kept = all.len().min(capacity);
                        assert_eq!(ring.end(), all.len() as u64, "seed {seed}");
                        assert!(ring.end() - ring.start() <= capacity as u64, "seed {seed}");
                        // Only the oldest bytes were dropped, and no more than necessary.
                        let tail = ring.piece(ring.start(), usize::MAX);
                        assert_eq!(tail, &all[all.len() - kept..], "seed {seed}");
                    }
                    1 => readers.push((ring.start(), Vec::new())),
                    _ => {
                        let max = 1 + random.below(16);
                        for (from, got) in &mut readers {
                            let at = *from + got.len() as u64;
                            let piece = ring.piece(at, max);
                            if at < ring.start() {
                                // The reader was too slow, and notices that.
                                assert!(piece.is_empty(), "seed {seed}");
                                *from = ring.start();
                                got.clear();
                            } else {
                                let left = usize::try_from(ring.end() - at).unwrap();
                                assert_eq!(piece.len(), max.min(left), "seed {seed}");
                                got.extend_from_slice(&piece);
                            }
                        }
                    }
                }
                for (from, got) in &readers {
                    let from = usize::try_from(*from).unwrap();
                    assert_eq!(got[..], all[from..from + got.len()], "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn positions_outside_of_it_have_nothing() {
        let mut ring = ReplayRing::new(4);
        assert_eq!((ring.start(), ring.end(), ring.piece(0, 9).len()), (0, 0, 0));
        ring.push(b"abcdef");
        assert_eq!((ring.start(), ring.end()), (2, 6));
        assert_eq!(ring.piece(1, 9), "");
        assert_eq!(ring.piece(2, 9), "cdef");
        assert_eq!(ring.piece(4, 1), "e");
        assert_eq!(ring.piece(6, 9), "");
        assert_eq!(ring.piece(u64::MAX, 9), "");
    }
}
