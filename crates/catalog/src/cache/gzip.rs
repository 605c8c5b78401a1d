//! A gzip member whose long prefix is compressed once and whose short end differs between
//! principals.
//!
//! The prefix is flushed to a whole byte, the end follows as a stored block, and the checksums of
//! both are combined (RFC 1951, RFC 1952).
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc1952>

use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use iceberg::memory;

use crate::error::{CatalogError, Result};

/// Magic number, deflate, no flags, no time, no hints, unknown system (RFC 1952, section 2.3).
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// Longest end, in bytes: the capacity of one stored block.
pub(super) const END_BYTES_MAX: u16 = u16::MAX;

/// A compressed prefix.
#[derive(Debug)]
pub(super) struct CompressedPrefix {
    /// Header and blocks, none of them the last.
    pub(super) bytes: Bytes,
    crc: u32,
    length: u32,
}

/// Compresses a prefix that consists of these parts.
pub(super) fn begin(pieces: &[&[u8]], level: u32) -> Result<CompressedPrefix> {
    let whole: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut out = Vec::with_capacity(HEADER.len() + whole / 4 + 64);
    out.extend_from_slice(&HEADER);
    let (mut deflate, mut crc) = (Compress::new(Compression::new(level), false), Crc::new());
    for (index, piece) in pieces.iter().enumerate() {
        crc.update(piece);
        let is_last = index + 1 == pieces.len();
        let flush = if is_last { FlushCompress::Sync } else { FlushCompress::None };
        let mut rest = *piece;
        loop {
            out.reserve(rest.len() / 4 + 256);
            let before = deflate.total_in();
            let status =
                deflate.compress_vec(rest, &mut out, flush).map_err(CatalogError::internal)?;
            let taken =
                usize::try_from(deflate.total_in() - before).map_err(CatalogError::internal)?;
            rest = rest.get(taken..).unwrap_or_default();
            // If there is room left in the output, all of the input is in it.
            let is_done = rest.is_empty() && (out.len() < out.capacity() || !is_last);
            if is_done || status == Status::StreamEnd {
                break;
            }
        }
    }
    // The length is kept modulo 2^32, as the format requires.
    Ok(CompressedPrefix { bytes: memory::frozen(out), crc: crc.sum(), length: crc.amount() })
}

/// Returns the rest of the member whose text ends with `end`, of at most [`END_BYTES_MAX`].
pub(super) fn end(beginning: &CompressedPrefix, end: &[u8]) -> Result<Bytes> {
    let refuse =
        || CatalogError::internal(format!("the end of an answer has over {END_BYTES_MAX} bytes"));
    let length = u16::try_from(end.len()).map_err(|_| refuse())?;
    let mut crc = Crc::new();
    crc.update(end);
    let sum = combine(beginning.crc, crc.sum(), end.len());
    let mut out = Vec::with_capacity(end.len() + 13);
    // The last block, stored: its length, and the complement of it.
    out.push(1);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(!length).to_le_bytes());
    out.extend_from_slice(end);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(&beginning.length.wrapping_add(u32::from(length)).to_le_bytes());
    Ok(out.into())
}

/// Combines the checksums of two consecutive texts, the second of this length.
///
/// A checksum is a polynomial over GF(2), modulo [`POLYNOMIAL`], with its lowest coefficient in the
/// highest bit: text that follows multiplies it by `x` for each bit.
fn combine(first: u32, second: u32, length: usize) -> u32 {
    // x^8, then its square, and so on: bytes by powers of two.
    let (mut power, mut shift, mut left) = (1 << (31 - 8), 1 << 31, length);
    while left > 0 {
        if left & 1 == 1 {
            shift = multiply(shift, power);
        }
        power = multiply(power, power);
        left >>= 1;
    }
    multiply(first, shift) ^ second
}

/// The polynomial of CRC-32, reflected (RFC 1952, section 8).
const POLYNOMIAL: u32 = 0xedb8_8320;

fn multiply(one: u32, other: u32) -> u32 {
    let (mut product, mut factor) = (0, other);
    for bit in (0..32).rev() {
        if one >> bit & 1 == 1 {
            product ^= factor;
        }
        factor = if factor & 1 == 1 { factor >> 1 ^ POLYNOMIAL } else { factor >> 1 };
    }
    product
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn check(pieces: &[&[u8]], ending: &[u8]) {
        for level in [1, 6] {
            let beginning = begin(pieces, level).unwrap();
            let mut member = beginning.bytes.to_vec();
            member.extend_from_slice(&end(&beginning, ending).unwrap());
            let mut decoder = GzDecoder::new(&member[..]);
            let mut text = Vec::new();
            decoder.read_to_end(&mut text).unwrap();
            assert!(decoder.into_inner().is_empty(), "one member and nothing after it");
            assert!(text == [&pieces.concat()[..], ending].concat(), "{level}: {}", ending.len());
        }
    }

    #[test]
    fn a_member_with_another_end_is_read_as_one_text() {
        let mut random = 1_u32;
        let noise: Vec<u8> = (0..300_000)
            .map(|_| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                random.to_be_bytes()[0]
            })
            .collect();
        let even = "{\"snapshot-id\":1}".repeat(40_000);
        for ending in
            [&b""[..], b"}", br#","config":{"token":"x"}}"#, &noise[..usize::from(END_BYTES_MAX)]]
        {
            check(&[b"{"], ending);
            check(&[b"{", b"{}"], ending);
            check(&[b"{\"metadata\":", even.as_bytes()], ending);
            check(&[b"{\"metadata\":", &noise], ending);
            check(&[&noise[..100], b""], ending);
        }
        assert!(end(&begin(&[b"x"], 6).unwrap(), &[0; 1 + END_BYTES_MAX as usize]).is_err());
    }
}
