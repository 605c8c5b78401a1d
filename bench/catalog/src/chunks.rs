//! Chunked bodies of answers: their content and their end.

use std::io;

/// Largest chunk, in bytes.
const CHUNK_BYTES_MAX: usize = 1 << 30;

/// Next part of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Digits of a chunk's size; the value of those that were read.
    Size(usize),
    /// The rest of the line with the size.
    SizeLine(usize),
    /// So many bytes of a chunk.
    Data(usize),
    /// The end of line after a chunk.
    DataEnd,
    /// The lines after the last chunk; whether this one is not empty.
    Trailer(bool),
    /// None: the body is complete.
    Done,
}

/// Parser of chunked bodies: RFC 9112, section 7.1.
#[derive(Clone, Copy, Debug)]
pub struct Chunks(Part);

impl Chunks {
    pub fn new() -> Chunks {
        Chunks(Part::Size(0))
    }

    /// Consumes received bytes and passes the body's part to `body`. Returns whether the answer is
    /// complete.
    pub fn take(&mut self, mut bytes: &[u8], mut body: impl FnMut(&[u8])) -> io::Result<bool> {
        while let Some(&byte) = bytes.first() {
            if let Part::Data(left) = self.0 {
                let (part, rest) = bytes.split_at(left.min(bytes.len()));
                body(part);
                bytes = rest;
                let left = left - part.len();
                self.0 = if left == 0 { Part::DataEnd } else { Part::Data(left) };
                continue;
            }
            self.0 = next(self.0, byte)?;
            bytes = &bytes[1..];
        }
        Ok(self.0 == Part::Done)
    }
}

/// Returns the part that follows a byte outside the body.
fn next(part: Part, byte: u8) -> io::Result<Part> {
    let is_line_end = byte == b'\n';
    Ok(match part {
        Part::Size(size) | Part::SizeLine(size) if is_line_end => match size {
            0 => Part::Trailer(false),
            size => Part::Data(size),
        },
        Part::Size(size) => match char::from(byte).to_digit(16) {
            Some(digit) if size < CHUNK_BYTES_MAX => Part::Size(size * 16 + digit as usize),
            Some(_) => return Err(io::Error::other("too large a chunk")),
            None => Part::SizeLine(size),
        },
        Part::DataEnd if is_line_end => Part::Size(0),
        Part::Trailer(false) if is_line_end => Part::Done,
        Part::Trailer(_) if is_line_end => Part::Trailer(false),
        Part::Trailer(seen) => Part::Trailer(seen || byte != b'\r'),
        Part::Done => return Err(io::Error::other("more than was asked for")),
        Part::SizeLine(_) | Part::DataEnd | Part::Data(_) => part,
    })
}

#[cfg(test)]
mod tests {
    use super::Chunks;

    /// Returns the body of bytes that arrive in pieces of `size`.
    fn read(bytes: &[u8], size: usize) -> Option<Vec<u8>> {
        let (mut chunks, mut body, mut is_whole) = (Chunks::new(), Vec::new(), false);
        for piece in bytes.chunks(size) {
            is_whole = chunks.take(piece, |part| body.extend_from_slice(part)).ok()?;
        }
        is_whole.then_some(body)
    }

    #[test]
    fn answers_are_whole_however_they_come() {
        let cases: [(&[u8], Option<&[u8]>); 8] = [
            (b"0\r\n\r\n", Some(b"")),
            (b"3\r\nabc\r\n0\r\n\r\n", Some(b"abc")),
            (b"A;x=1\r\n0\r\n\r\n01234\r\n0\r\n\r\n", Some(b"0\r\n\r\n01234")),
            (b"1\r\na\r\n2\r\nbc\r\n0\r\nx: y\r\n\r\n", Some(b"abc")),
            (b"3\r\nabc\r\n0\r\n", None),
            (b"3\r\nabc\r\n", None),
            (b"0\r\n\r\n0", None),
            (b"ffffffffffffffffff\r\n", None),
        ];
        for (bytes, body) in cases {
            for size in 1..=bytes.len() {
                assert_eq!(read(bytes, size).as_deref(), body, "in pieces of {size}");
            }
        }
    }
}
