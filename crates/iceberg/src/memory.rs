//! Memory of values: the bytes that the allocator reserves, which are more than the requested ones.
//!
//! # References
//! - <https://sourceware.org/glibc/wiki/MallocInternals>

use bytes::Bytes;

/// Bytes of the allocator's header of each block.
const HEADER_BYTES: usize = 8;
/// Block sizes are multiples of this, header included.
const STEP_BYTES: usize = 16;
/// Smallest block, header included.
const BLOCK_BYTES_MIN: usize = 32;
/// Bytes shared by several [`Bytes`] of one buffer: its address, its size and a counter.
const SHARED_BYTES: usize = 24;
/// Fraction of a buffer's content up to which spare capacity is kept.
const ROOM_PART: usize = 16;
/// Longest buffer that is copied to remove spare capacity. Shrinking it in place would leave free
/// blocks behind that are too short for the next buffer.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// Returns the bytes that the allocator reserves for a block of this size, as in glibc; others
/// differ little.
#[must_use]
pub const fn of_block(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    let whole = (bytes + HEADER_BYTES).next_multiple_of(STEP_BYTES);
    if whole < BLOCK_BYTES_MIN { BLOCK_BYTES_MIN } else { whole }
}

/// Returns the bytes reserved for the items of a list, without memory that the items own.
#[must_use]
pub const fn of_items<T>(list: &Vec<T>) -> usize {
    of_block(list.capacity() * size_of::<T>())
}

/// Returns the bytes reserved for a text.
#[must_use]
pub const fn of_text(text: &String) -> usize {
    of_block(text.capacity())
}

/// Returns the bytes reserved for a buffer of this length that several [`Bytes`] share.
#[must_use]
pub const fn of_shared(bytes: usize) -> usize {
    of_block(bytes) + of_block(SHARED_BYTES)
}

/// Freezes a finished buffer, without its spare capacity.
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
