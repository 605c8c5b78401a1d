//! Bodies in S3's chunk format, `aws-chunked`: chunks preceded by their length and a signature, and
//! checksums in trailers. A guest has no key, so signatures are not valid and are ignored, as are
//! trailers.

use bytes::{Buf as _, Bytes};

/// Longest chunk header, in bytes: a length and a signature.
const LINE_BYTES_MAX: usize = 256;

/// Error of a body in another format.
pub(super) const MALFORMED: &str = "the chunks of the body are malformed";

#[derive(Debug)]
enum ChunkState {
    /// In the header of a chunk.
    Line(Vec<u8>),
    /// In a chunk, with its remaining bytes.
    Piece(u64),
    /// After a chunk, with the remaining bytes of its line end.
    End(usize),
    /// After the last chunk.
    Done,
}

/// Decodes a body.
#[derive(Debug)]
pub(super) struct ChunkedDecoder(ChunkState);

impl Default for ChunkedDecoder {
    fn default() -> ChunkedDecoder {
        ChunkedDecoder(ChunkState::Line(Vec::new()))
    }
}

impl ChunkedDecoder {
    /// Returns the next decoded bytes in `input`; `None` if more input is needed first, or at the
    /// end.
    ///
    /// # Errors
    /// If the body has another format.
    pub(super) fn next(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, &'static str> {
        while !input.is_empty() {
            match &mut self.0 {
                ChunkState::Line(line) => {
                    let byte = input.get_u8();
                    if byte != b'\n' {
                        line.push(byte);
                        if line.len() > LINE_BYTES_MAX {
                            return Err(MALFORMED);
                        }
                        continue;
                    }
                    self.0 = match length(line).ok_or(MALFORMED)? {
                        0 => ChunkState::Done,
                        length => ChunkState::Piece(length),
                    };
                }
                ChunkState::Piece(left) => {
                    let room = usize::try_from(*left).unwrap_or(usize::MAX);
                    let piece = input.split_to(room.min(input.len()));
                    *left -= u64::try_from(piece.len()).unwrap_or(*left).min(*left);
                    if *left == 0 {
                        self.0 = ChunkState::End(2);
                    }
                    return Ok(Some(piece));
                }
                ChunkState::End(left) => {
                    let expected = if *left == 2 { b'\r' } else { b'\n' };
                    if input.get_u8() != expected {
                        return Err(MALFORMED);
                    }
                    *left -= 1;
                    if *left == 0 {
                        self.0 = ChunkState::Line(Vec::new());
                    }
                }
                // Trailers with checksums, which are ignored.
                ChunkState::Done => input.clear(),
            }
        }
        Ok(None)
    }

    /// Returns whether the last chunk was read.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.0, ChunkState::Done)
    }
}

/// Parses the length in a chunk header: hexadecimal digits, optionally followed by `;` and
/// extensions.
fn length(line: &[u8]) -> Option<u64> {
    let line = line.strip_suffix(b"\r")?;
    let digits = line.split(|byte| *byte == b';').next()?;
    let is_number = !digits.is_empty() && digits.len() <= 15;
    let text = std::str::from_utf8(digits).ok()?;
    let is_number = is_number && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_number.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], cut: usize) -> Result<(Vec<u8>, bool), &'static str> {
        let (mut pieces, mut all) = (ChunkedDecoder::default(), Vec::new());
        for part in text.chunks(cut) {
            let mut part = Bytes::copy_from_slice(part);
            while let Some(piece) = pieces.next(&mut part)? {
                all.extend_from_slice(&piece);
            }
        }
        Ok((all, pieces.is_done()))
    }

    #[test]
    fn what_was_cut_is_put_together_however_it_comes() {
        for (text, expected, is_done) in [
            (
                &b"5;chunk-signature=ab\r\nhello\r\n1\r\n!\r\n0;chunk-signature=c\r\n\r\n"[..],
                &b"hello!"[..],
                true,
            ),
            (b"A\r\n0123456789\r\n0\r\nx-amz-checksum-crc32:AAAA==\r\n\r\n", b"0123456789", true),
            (b"0\r\n\r\n", b"", true),
            (b"5\r\nhel", b"hel", false),
            (b"5\r\nhello\r\n", b"hello", false),
        ] {
            for cut in 1..=text.len() {
                assert_eq!(read(text, cut).unwrap(), (expected.to_vec(), is_done), "{cut}");
            }
        }
        for text in [
            &b"hello"[..].repeat(100)[..],
            b"x\r\n",
            b"\r\n",
            b"5\nhello\r\n",
            b"-5\r\nhello\r\n",
            b"+5\r\nhello\r\n",
            b"5\r\nhello!\r\n",
            b"5\r\nhello\n0\r\n",
            b"ffffffffffffffff\r\n",
        ] {
            assert_eq!(read(text, 3), Err(MALFORMED), "{text:?}");
        }
    }
}
