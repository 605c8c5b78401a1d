//! Splits a byte stream into lines of bounded length.

use bytes::{Buf as _, BytesMut};

/// Maximum capacity kept while the buffer is empty.
const IDLE_BYTES_MAX: usize = 64 << 10;
/// Room reserved for one read.
const READ_BYTES: usize = 16 << 10;

/// Error of a line that exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Bytes that were read and form no complete line yet.
#[derive(Debug)]
pub(super) struct LineBuffer {
    bytes: BytesMut,
    /// Leading bytes that were searched and contain no line break.
    searched: usize,
    line_bytes_max: usize,
}

impl LineBuffer {
    /// Creates an empty buffer with a limit on lines.
    pub(super) fn new(line_bytes_max: usize) -> LineBuffer {
        LineBuffer { bytes: BytesMut::new(), searched: 0, line_bytes_max }
    }

    /// Returns the buffer to read into.
    pub(super) fn room(&mut self) -> &mut BytesMut {
        if self.bytes.is_empty() && self.bytes.capacity() > IDLE_BYTES_MAX {
            self.bytes = BytesMut::new();
        }
        self.bytes.reserve(READ_BYTES);
        &mut self.bytes
    }

    /// Returns the next complete line, without its line break.
    ///
    /// # Errors
    /// If the line, complete or not, is too long. Later bytes are not examined.
    pub(super) fn next(&mut self) -> Result<Option<BytesMut>, TooLong> {
        let new = self.bytes.get(self.searched..).unwrap_or_default();
        let Some(at) = new.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.bytes.len();
            return if self.searched > self.line_bytes_max { Err(TooLong) } else { Ok(None) };
        };
        let line = self.bytes.split_to(self.searched + at);
        self.bytes.advance(1);
        self.searched = 0;
        if line.len() > self.line_bytes_max { Err(TooLong) } else { Ok(Some(line)) }
    }

    /// Returns the unterminated last line at the end of the stream.
    pub(super) fn rest(&mut self) -> Option<BytesMut> {
        self.searched = 0;
        (!self.bytes.is_empty()).then(|| self.bytes.split())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the lines of split input, with `!` for a line that is too long.
    fn cut(pieces: &[&[u8]], line_bytes_max: usize) -> Vec<String> {
        let mut lines = LineBuffer::new(line_bytes_max);
        let mut out = Vec::new();
        for piece in pieces {
            lines.room().extend_from_slice(piece);
            loop {
                match lines.next() {
                    Ok(Some(line)) => out.push(String::from_utf8_lossy(&line).into_owned()),
                    Ok(None) => break,
                    Err(TooLong) => {
                        out.push("!".to_owned());
                        return out;
                    }
                }
            }
        }
        out.extend(lines.rest().map(|line| String::from_utf8_lossy(&line).into_owned() + "…"));
        out
    }

    #[test]
    fn lines_are_cut_at_their_ends_only() {
        let check = |pieces: &[&[u8]], expected: &[&str]| assert_eq!(cut(pieces, 8), expected);
        check(&[], &[]);
        check(&[b"a\nb\n"], &["a", "b"]);
        check(&[b"a", b"b\n", b"", b"\nc"], &["ab", "", "c…"]);
        check(&[b"12345678\n"], &["12345678"]);
        check(&[b"1234", b"56789"], &["!"]);
        check(&[b"123456789\nok\n"], &["!"]);
        // A character split across two pieces stays one character.
        check(
            &["\u{e9}".as_bytes().split_at(1).0, "\u{e9}\n".as_bytes().split_at(1).1],
            &["\u{e9}"],
        );
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), b'a'..b'e'], 0..80),
            size in 1_usize..9,
        ) {
            let whole = cut(&[&bytes], 100);
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            prop_assert_eq!(cut(&pieces, 100), whole);
        }
    }
}
