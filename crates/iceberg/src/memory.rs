//! Memory that values take: what the allocator sets aside for them, which is more than what is
//! asked for.
//!
//! # References
//! - <https://sourceware.org/glibc/wiki/MallocInternals>

use bytes::Bytes;

/// Bytes before each block, for the allocator itself.
const HEADER_BYTES: usize = 8;
/// Blocks are multiples of this, header included.
const STEP_BYTES: usize = 16;
/// Smallest block, header included.
const BLOCK_BYTES_MIN: usize = 32;
/// What several [`Bytes`] of one buffer share beside it: its address, its size and a counter.
const SHARED_BYTES: usize = 24;
/// Fraction of a buffer's content up to which room that is left over stays where it is.
const ROOM_PART: usize = 16;
/// Longest buffer that is copied to be rid of that room. To cut it off instead leaves pieces behind
/// that are too short for the next buffer.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// Bytes that the allocator sets aside for a block of this size, as glibc does it; others differ
/// little.
#[must_use]
pub const fn of_block(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    let whole = (bytes + HEADER_BYTES).next_multiple_of(STEP_BYTES);
    if whole < BLOCK_BYTES_MIN { BLOCK_BYTES_MIN } else { whole }
}

/// Bytes that the allocator sets aside for the items of a list, not counting what those own.
#[must_use]
pub const fn of_items<T>(list: &Vec<T>) -> usize {
    of_block(list.capacity() * size_of::<T>())
}

/// Bytes that the allocator sets aside for a text.
#[must_use]
pub const fn of_text(text: &String) -> usize {
    of_block(text.capacity())
}

/// Bytes that the allocator sets aside for a buffer of this length that several [`Bytes`] share.
#[must_use]
pub const fn of_shared(bytes: usize) -> usize {
    of_block(bytes) + of_block(SHARED_BYTES)
}

/// A buffer that is not written to any more, without the room that was left over.
#[must_use]
pub fn frozen(mut buffer: Vec<u8>) -> Bytes {
    if buffer.capacity() - buffer.len() <= buffer.len() / ROOM_PART {
        return buffer.into();
    }
    if buffer.len() <= COPIED_BYTES_MAX {
        return Bytes::copy_from_slice(&buffer);
    }
    buffer.shrink_to_fit();
    buffer.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_a_header_and_is_a_multiple_of_16_bytes() {
        for (bytes, expected) in [(0, 0), (1, 32), (24, 32), (25, 48), (40, 48), (41, 64)] {
            assert_eq!(of_block(bytes), expected, "{bytes}");
        }
        assert_eq!(of_items::<u64>(&Vec::with_capacity(5)), 48);
        assert_eq!(of_text(&String::from("x")), 32);
        assert_eq!(of_shared(40), 48 + 32);
    }

    #[test]
    fn what_is_frozen_is_the_same_bytes() {
        for (length, room) in [(0, 100), (100, 0), (100, 5), (100, 1000), (100_000, 10_000)] {
            let mut buffer = Vec::with_capacity(length + room);
            buffer.resize(length, b'x');
            assert_eq!(frozen(buffer.clone()), buffer);
        }
    }
}
