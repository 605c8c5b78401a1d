//! Blocks of container files, unpacked by the codecs that writers of manifests choose.
//!
//! What is packed says little of what it becomes: no codec makes more than it is allowed.
//!
//! # References
//! - <https://avro.apache.org/docs/1.11.1/specification/#required-codecs>

use std::borrow::Cow;
use std::io::Read as _;

use flate2::Crc;
use flate2::read::DeflateDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use super::{AvroError, Read};

/// Bytes that a frame of zstandard may look back on, and so takes beside what it becomes: what
/// RFC 8878 (3.1.1.1.2) asks of readers.
const WINDOW_BYTES_MAX: u64 = 8 << 20;

/// Frames of zstandard in one block: writers make one.
const FRAMES_MAX: usize = 1_000;

/// Bytes that one of snappy's can become: its shortest way to say so copies 64 by 3.
const SNAPPY_BYTES_OF_BYTE_MAX: usize = 22;

/// Bytes behind a block of snappy: the checksum of what was packed, which Avro adds.
const CHECKSUM_BYTES: usize = 4;

const DAMAGED: AvroError = AvroError("a block cannot be unpacked");
const TOO_LONG: AvroError = AvroError("the file is too long unpacked");

/// Codec of a file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AvroCodec {
    Null,
    Deflate,
    Snappy,
    Zstandard,
}

impl AvroCodec {
    /// The codec that the header of a file names.
    ///
    /// # Errors
    /// When it is none that manifests are written with.
    pub(super) fn named(name: Option<&[u8]>) -> Read<AvroCodec> {
        Ok(match name {
            None | Some(b"null") => AvroCodec::Null,
            Some(b"deflate") => AvroCodec::Deflate,
            Some(b"snappy") => AvroCodec::Snappy,
            Some(b"zstandard") => AvroCodec::Zstandard,
            Some(_) => {
                return Err(AvroError(
                    "its codec is not `null`, `deflate`, `snappy` or `zstandard`",
                ));
            }
        })
    }
}

/// Unpacks the blocks of a file.
pub(super) struct BlockUnpacker {
    codec: AvroCodec,
    /// Decoder, whose window is allocated once for all blocks, however short they are.
    zstandard: FrameDecoder,
}

impl BlockUnpacker {
    pub(super) fn new(codec: AvroCodec) -> BlockUnpacker {
        let mut zstandard = FrameDecoder::new();
        zstandard.set_max_window_size(WINDOW_BYTES_MAX);
        BlockUnpacker { codec, zstandard }
    }

    /// A block, as it is when it is not packed.
    ///
    /// # Errors
    /// When it is damaged, or what was packed has more than `bytes_max`.
    pub(super) fn unpack<'a>(&mut self, packed: &'a [u8], bytes_max: usize) -> Read<Cow<'a, [u8]>> {
        let mut out = Vec::new();
        match self.codec {
            AvroCodec::Null => return Ok(packed.into()),
            AvroCodec::Deflate => append(&mut out, DeflateDecoder::new(packed), bytes_max)?,
            AvroCodec::Snappy => out = snappy(packed, bytes_max)?,
            AvroCodec::Zstandard => self.frames(&mut out, packed, bytes_max)?,
        }
        Ok(out.into())
    }

    /// Appends what frames hold, one after the other.
    fn frames(&mut self, out: &mut Vec<u8>, mut packed: &[u8], bytes_max: usize) -> Read<()> {
        for _ in 0..FRAMES_MAX {
            if packed.is_empty() {
                return Ok(());
            }
            let frame = StreamingDecoder::new_with_decoder(&mut packed, &mut self.zstandard);
            append(out, frame.map_err(|_| DAMAGED)?, bytes_max)?;
        }
        if packed.is_empty() { Ok(()) } else { Err(AvroError("a block has too many frames")) }
    }
}

/// Appends what is unpacked, until there is too much of it.
fn append(out: &mut Vec<u8>, unpacked: impl std::io::Read, bytes_max: usize) -> Read<()> {
    // One byte more shows that there is more.
    let left = bytes_max.saturating_sub(out.len()).saturating_add(1);
    let left = u64::try_from(left).map_err(|_| TOO_LONG)?;
    unpacked.take(left).read_to_end(out).map_err(|_| DAMAGED)?;
    if out.len() > bytes_max { Err(TOO_LONG) } else { Ok(()) }
}

fn snappy(packed: &[u8], bytes_max: usize) -> Read<Vec<u8>> {
    let (packed, checksum) = packed.split_last_chunk::<CHECKSUM_BYTES>().ok_or(DAMAGED)?;
    // It is all taken at once, so it is not to be believed.
    let length = snap::raw::decompress_len(packed).map_err(|_| DAMAGED)?;
    if length > packed.len().saturating_mul(SNAPPY_BYTES_OF_BYTE_MAX) {
        return Err(DAMAGED);
    }
    if length > bytes_max {
        return Err(TOO_LONG);
    }
    let out = snap::raw::Decoder::new().decompress_vec(packed).map_err(|_| DAMAGED)?;
    let mut crc = Crc::new();
    crc.update(&out);
    if crc.sum() == u32::from_be_bytes(*checksum) { Ok(out) } else { Err(DAMAGED) }
}

#[cfg(test)]
pub(in crate::plan) mod tests;
