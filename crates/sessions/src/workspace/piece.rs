//! Pieces of images as objects: a compressed stream, and an index of the data in it.
//!
//! A piece is named by the SHA-256 of its content. Most of a piece is zeros, so inflating and
//! hashing all of it costs much more than processing its data, which dominates when hundreds of
//! disks are restored at once. Therefore an object lists the non-zero parts of its content, and has
//! a checksum of its stored form instead of the inflated content:
//!
//! ```text
//! stream      zlib's format (RFC 1950); each run of data begins and ends with a full flush, so
//!             that it can be inflated without the preceding data
//! runs        for each run: offset in the content, its length, offset in the stream, its length
//! footer      length of the content, number of runs, length of the stream, MAGIC
//! checksum    SHA-256 of DOMAIN, the piece's name and everything above
//! ```
//!
//! Numbers have four bytes in little-endian order. The checksum includes the name, so the object of
//! another piece is rejected. A reader that does not know the index inflates the whole stream and
//! verifies that the name matches the content: earlier versions read these objects in this way.
//! Objects of those versions, which have no index, are read in the same way, and so are objects
//! whose index or checksum is wrong.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc1950>
//! - Full flushes: <https://www.zlib.net/manual.html>, `Z_FULL_FLUSH`

use std::io::{self, Read as _};
use std::ops::Range;

use flate2::read::DeflateDecoder;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use sandbox::ImageWriter;
use sha2::{Digest as _, Sha256};

use crate::error::SessionError;

/// Bytes of an image in one object.
pub(super) const PIECE_BYTES: u32 = 1 << 20;
/// Bytes of zlib's header, before the compressed data (RFC 1950, section 2.2).
const ZLIB_HEADER_BYTES: usize = 2;
/// Granularity of data and zeros: a block of the file system in the image.
const BLOCK_BYTES: usize = 4096;
/// Minimum zeros between two runs: shorter gaps are part of one run, which is cheaper.
const GAP_BLOCKS_MIN: usize = 8;
/// Bytes of a run inflated at a time; a multiple of [`BLOCK_BYTES`].
const INFLATED_AT_ONCE: usize = 64 << 10;
/// Extra room for the compressed form of a section, including its flush.
const FLUSH_BYTES: usize = 256;
/// Last bytes of the footer of an object with an index.
const MAGIC: [u8; 4] = *b"cvp1";
/// Domain separator at the start of the checksum's input.
const DOMAIN: &[u8] = b"cove piece 1\0";
const CHECKSUM_BYTES: usize = 32;
const NUMBER_BYTES: usize = 4;
const RUN_BYTES: usize = 4 * NUMBER_BYTES;
const FOOTER_BYTES: usize = 3 * NUMBER_BYTES + MAGIC.len();

/// Returns the name of a piece with `content`.
pub(super) fn name_of(content: &[u8]) -> String {
    node::hex::encode(&Sha256::digest(content))
}

/// Index of an object with a valid checksum.
#[derive(Debug, PartialEq, Eq)]
struct PieceIndex {
    /// Bytes of the piece.
    content_bytes: u32,
    runs: Vec<PieceRun>,
}

/// Non-zero range of a piece; everything between two runs is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PieceRun {
    content: Range<usize>,
    stream: Range<usize>,
}

/// Creates the object of a piece with this name and content.
pub(super) fn pack(name: &str, content: &[u8]) -> io::Result<Vec<u8>> {
    let mut object = Vec::new();
    let mut compress = Compress::new(Compression::fast(), true);
    let mut runs = Vec::new();
    let mut end = 0;
    for run in data_runs(content) {
        let zeros = content.get(end..run.start).unwrap_or_default();
        append(&mut compress, zeros, FlushCompress::Full, &mut object)?;
        let start = object.len().max(ZLIB_HEADER_BYTES);
        let data = content.get(run.clone()).unwrap_or_default();
        append(&mut compress, data, FlushCompress::Full, &mut object)?;
        end = run.end;
        runs.push(PieceRun { content: run, stream: start..object.len() });
    }
    let zeros = content.get(end..).unwrap_or_default();
    append(&mut compress, zeros, FlushCompress::Finish, &mut object)?;
    let stream_bytes = object.len();
    let mut number = |number: usize| {
        let number = u32::try_from(number).map_err(io::Error::other)?;
        object.extend_from_slice(&number.to_le_bytes());
        Ok::<_, io::Error>(())
    };
    for PieceRun { content, stream } in &runs {
        number(content.start)?;
        number(content.len())?;
        number(stream.start)?;
        number(stream.len())?;
    }
    number(content.len())?;
    number(runs.len())?;
    number(stream_bytes)?;
    object.extend_from_slice(&MAGIC);
    let checksum = checksum(name, &object);
    object.extend_from_slice(&checksum);
    Ok(object)
}

/// Compresses a section of the content and flushes the stream.
fn append(
    compress: &mut Compress,
    section: &[u8],
    flush: FlushCompress,
    object: &mut Vec<u8>,
) -> io::Result<()> {
    if section.is_empty() && flush != FlushCompress::Finish {
        return Ok(());
    }
    let begun = compress.total_in();
    loop {
        let taken = usize::try_from(compress.total_in() - begun).map_err(io::Error::other)?;
        let left = section.get(taken..).unwrap_or_default();
        object.reserve(left.len() + FLUSH_BYTES);
        let status = compress.compress_vec(left, object, flush)?;
        let taken = usize::try_from(compress.total_in() - begun).map_err(io::Error::other)?;
        // A flush is complete only if it leaves room in the output.
        let is_flushed = taken == section.len() && object.len() < object.capacity();
        match status {
            Status::StreamEnd => return Ok(()),
            Status::Ok | Status::BufError if is_flushed && flush != FlushCompress::Finish => {
                return Ok(());
            }
            Status::Ok | Status::BufError => {}
        }
    }
}

/// Returns the non-zero ranges of a content, in whole blocks.
fn data_runs(content: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (number, block) in content.chunks(BLOCK_BYTES).enumerate() {
        if sandbox::is_zero(block) {
            continue;
        }
        let start = number * BLOCK_BYTES;
        let end = start + block.len();
        match runs.last_mut() {
            Some(last) if start - last.end < GAP_BLOCKS_MIN * BLOCK_BYTES => last.end = end,
            _ => runs.push(start..end),
        }
    }
    runs
}

fn checksum(name: &str, object: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hash = Sha256::new();
    hash.update(DOMAIN);
    hash.update(name);
    hash.update(object);
    hash.finalize().into()
}

/// Verifies a piece and writes it into an image.
pub(super) fn place(
    image: &ImageWriter,
    number: u64,
    name: &str,
    object: &[u8],
) -> Result<(), SessionError> {
    match PieceIndex::of(name, object) {
        Some(index) => index.write(image, number, name, object),
        None => place_whole(image, number, name, object),
    }
}

/// Writes a piece that must be inflated completely to verify it.
fn place_whole(
    image: &ImageWriter,
    number: u64,
    name: &str,
    object: &[u8],
) -> Result<(), SessionError> {
    let mut content = Vec::with_capacity(PIECE_BYTES as usize + 1);
    // Skips zlib's own checksum, which costs a tenth of the time: the name is a stronger one.
    let deflated = object.get(ZLIB_HEADER_BYTES..).unwrap_or_default();
    let mut decoder = DeflateDecoder::new(deflated).take(u64::from(PIECE_BYTES) + 1);
    decoder.read_to_end(&mut content).map_err(SessionError::internal)?;
    if name_of(&content) != name {
        return Err(damaged(name));
    }
    // Rejects a wrong length.
    image.write(number, &content).map_err(SessionError::internal)
}

fn damaged(name: &str) -> SessionError {
    SessionError::internal(format!("the piece `{name}` is not what was stored"))
}

impl PieceIndex {
    /// Reads the index of an object; none if it has no index, or any part of the object is not what
    /// was stored under this name.
    fn of(name: &str, object: &[u8]) -> Option<PieceIndex> {
        let (all, expected) = object.split_last_chunk::<CHECKSUM_BYTES>()?;
        let (indexed, footer) = all.split_last_chunk::<FOOTER_BYTES>()?;
        let (mut numbers, magic) = footer.split_last_chunk::<{ MAGIC.len() }>()?;
        if *magic != MAGIC || checksum(name, all) != *expected {
            return None;
        }
        let content_bytes = next_number(&mut numbers)?;
        let count = usize::try_from(next_number(&mut numbers)?).ok()?;
        let stream_bytes = usize::try_from(next_number(&mut numbers)?).ok()?;
        let (stream, mut runs) = indexed.split_at_checked(stream_bytes)?;
        if content_bytes > PIECE_BYTES || runs.len() != count.checked_mul(RUN_BYTES)? {
            return None;
        }
        let content_len = usize::try_from(content_bytes).ok()?;
        let mut end = 0;
        let mut next_run = || {
            let mut range = || {
                let start = usize::try_from(next_number(&mut runs)?).ok()?;
                let len = usize::try_from(next_number(&mut runs)?).ok()?;
                Some(start..start.checked_add(len)?)
            };
            let run = PieceRun { content: range()?, stream: range()? };
            let is_in_order = run.content.start >= end && run.content.end <= content_len;
            let is_there = run.stream.end <= stream.len();
            let is_at_block = run.content.start.is_multiple_of(BLOCK_BYTES);
            end = run.content.end;
            (is_in_order && is_there && is_at_block).then_some(run)
        };
        let runs = (0..count).map(|_| next_run()).collect::<Option<_>>()?;
        Some(PieceIndex { content_bytes, runs })
    }

    /// Writes the runs into an image whose piece is all zeros.
    fn write(
        &self,
        image: &ImageWriter,
        number: u64,
        name: &str,
        object: &[u8],
    ) -> Result<(), SessionError> {
        image.check_len(number, self.content_bytes.into()).map_err(SessionError::internal)?;
        let mut part = vec![0; INFLATED_AT_ONCE.min(self.longest_run())];
        let mut inflate = Decompress::new(false);
        for PieceRun { content, stream } in &self.runs {
            inflate.reset(false);
            let mut stream = object.get(stream.clone()).unwrap_or_default();
            let mut at = content.start;
            while at < content.end {
                let room = part.len().min(content.end - at);
                let buf = part.get_mut(..room).unwrap_or_default();
                if !fill(&mut inflate, &mut stream, buf).map_err(SessionError::internal)? {
                    return Err(damaged(name));
                }
                image.write_part(number, at as u64, buf).map_err(SessionError::internal)?;
                at += room;
            }
        }
        Ok(())
    }

    fn longest_run(&self) -> usize {
        self.runs.iter().map(|run| run.content.len()).max().unwrap_or(0)
    }
}

/// Inflates until `buf` is full; returns false if the stream is too short.
fn fill(
    inflate: &mut Decompress,
    stream: &mut &[u8],
    buf: &mut [u8],
) -> Result<bool, flate2::DecompressError> {
    let mut filled = 0;
    while filled < buf.len() {
        let (read, written) = (inflate.total_in(), inflate.total_out());
        let rest = buf.get_mut(filled..).unwrap_or_default();
        inflate.decompress(stream, rest, FlushDecompress::None)?;
        let read = usize::try_from(inflate.total_in() - read).unwrap_or(usize::MAX);
        let written = usize::try_from(inflate.total_out() - written).unwrap_or(usize::MAX);
        if read == 0 && written == 0 {
            return Ok(false);
        }
        *stream = stream.get(read..).unwrap_or_default();
        filled = filled.saturating_add(written);
    }
    Ok(true)
}

fn next_number(numbers: &mut &[u8]) -> Option<u32> {
    let (number, rest) = numbers.split_first_chunk::<NUMBER_BYTES>()?;
    *numbers = rest;
    Some(u32::from_le_bytes(*number))
}
