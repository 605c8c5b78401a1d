//! Buffers of connections: a connection without a message in progress owns none.
//!
//! A thread reads into one scratch buffer and writes from one. Only bytes that a socket does not
//! accept at once, and incomplete messages, are copied to an [`UnsentBytes`], whose memory comes
//! from the thread's freelist and goes back there.

/// Maximum bytes per read, and so the size of the thread's scratch buffer.
pub(crate) const READ_BYTES_MAX: usize = 64 * 1024;

/// Backlog above which the relay stops reading from the other side.
pub(crate) const BACKLOG_BYTES_HIGH: usize = 64 * 1024;

/// Maximum number of buffers kept for reuse.
const STOCK_MAX: usize = 32;

/// A buffer that grew beyond this is freed instead of kept.
const STOCKED_BYTES_MAX: usize = 2 * READ_BYTES_MAX;

/// Buffers that are not in use.
#[derive(Debug, Default)]
pub(crate) struct BufferFreelist {
    free: Vec<Vec<u8>>,
}

impl BufferFreelist {
    fn take(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_default()
    }

    fn give(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity > 0 && capacity <= STOCKED_BYTES_MAX && self.free.len() < STOCK_MAX {
            buffer.clear();
            self.free.push(buffer);
        }
    }
}

/// Bytes that wait for room in a socket, or for the rest of their message.
#[derive(Debug, Default)]
pub(crate) struct UnsentBytes {
    bytes: Vec<u8>,
    start: usize,
}

impl UnsentBytes {
    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Returns whether it has no bytes.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all bytes, oldest first.
    pub(crate) fn front(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Adds `bytes` at the end.
    pub(crate) fn push(&mut self, bytes: &[u8], freelist: &mut BufferFreelist) {
        if bytes.is_empty() {
            return;
        }
        if self.bytes.capacity() == 0 {
            self.bytes = freelist.take();
        } else if self.start >= READ_BYTES_MAX {
            // Moving the remaining bytes is cheaper than unbounded growth.
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Drops the oldest `count` bytes; when none remain, the memory returns to the freelist.
    pub(crate) fn consume(&mut self, count: usize, freelist: &mut BufferFreelist) {
        self.start = (self.start + count).min(self.bytes.len());
        if self.is_empty() {
            self.clear(freelist);
        }
    }

    /// Drops all bytes.
    pub(crate) fn clear(&mut self, freelist: &mut BufferFreelist) {
        self.start = 0;
        freelist.give(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_and_memory_goes_back() {
        let mut freelist = BufferFreelist::default();
        let mut backlog = UnsentBytes::default();
        let mut expected = 0_u32;
        let mut next = 0_u32;
        for round in 0..2_000_usize {
            for _ in 0..round % 97 {
                backlog.push(&next.to_be_bytes(), &mut freelist);
                next += 1;
            }
            for _ in 0..round % 89 {
                if backlog.is_empty() {
                    break;
                }
                assert_eq!(backlog.front()[..4], expected.to_be_bytes());
                backlog.consume(4, &mut freelist);
                expected += 1;
            }
            assert_eq!(backlog.len(), 4 * (next - expected) as usize);
        }
        let left = backlog.len();
        backlog.consume(left, &mut freelist);
        assert!(backlog.is_empty());
        assert_eq!(backlog.bytes.capacity(), 0);
        assert_eq!(freelist.free.len(), 1);
    }

    #[test]
    fn a_buffer_that_grew_large_is_not_kept() {
        let mut freelist = BufferFreelist::default();
        let mut backlog = UnsentBytes::default();
        backlog.push(&vec![0; STOCKED_BYTES_MAX + 1], &mut freelist);
        backlog.clear(&mut freelist);
        assert!(freelist.free.is_empty());
    }
}
