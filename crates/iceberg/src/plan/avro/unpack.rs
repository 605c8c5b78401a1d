//! Blocks of container files, decompressed by the codecs that writers of manifests use.
//!
//! Compressed data does not limit its decompressed size: every codec stops at the allowed size.
//!
//! # References
//! - <https://avro.apache.org/docs/1.11.1/specification/#required-codecs>

use std::borrow::Cow;
use std::io::Read as _;

use flate2::Crc;
use flate2::read::DeflateDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use super::{AvroError, Read};

/// Largest window of a zstandard frame, which takes memory beside the output: the size that RFC
/// 8878 (3.1.1.1.2) recommends that decoders support.
const WINDOW_BYTES_MAX: u64 = 8 << 20;

/// Most zstandard frames in one block: writers create one.
const FRAMES_MAX: usize = 1_000;

/// Most output bytes of one snappy byte: its shortest copy yields 64 bytes from 3.
const SNAPPY_BYTES_OF_BYTE_MAX: usize = 22;

/// Bytes after a snappy block: the checksum of the decompressed data, which Avro adds.
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
    /// Returns the codec that a file's header names.
    ///
    /// # Errors
    /// If manifests are not written with it.
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

/// Decompresses the blocks of a file.
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

    /// Decompresses a block.
    ///
    /// # Errors
    /// If it is damaged, or its content exceeds `bytes_max`.
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

    /// Appends the content of consecutive frames.
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

/// Appends decompressed data, up to the limit.
fn append(out: &mut Vec<u8>, unpacked: impl std::io::Read, bytes_max: usize) -> Read<()> {
    // One extra byte detects an excess.
    let left = bytes_max.saturating_sub(out.len()).saturating_add(1);
    let left = u64::try_from(left).map_err(|_| TOO_LONG)?;
    unpacked.take(left).read_to_end(out).map_err(|_| DAMAGED)?;
    if out.len() > bytes_max { Err(TOO_LONG) } else { Ok(()) }
}

fn snappy(packed: &[u8], bytes_max: usize) -> Read<Vec<u8>> {
    let (packed, checksum) = packed.split_last_chunk::<CHECKSUM_BYTES>().ok_or(DAMAGED)?;
    // It is allocated at once, so the stated length is not trusted.
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
