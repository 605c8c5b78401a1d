//! Integers and strings as MySQL writes them: little endian, and *length-encoded*.
//!
//! A length-encoded integer is one byte below 0xFB, or a first byte that determines how many
//! follow: 0xFC two, 0xFD three, 0xFE eight. 0xFB (`NULL` in a row) and 0xFF (an error) are not
//! integers. A length is not trusted until the bytes are there.
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_dt_integers.html>

/// The first byte of a `NULL` in a row of the text protocol.
pub const NULL: u8 = 0xFB;

/// Reads from the beginning of bytes. A read beyond the end returns `None`, and leaves the reader
/// at its position.
#[derive(Clone, Copy, Debug)]
pub struct PacketReader<'a> {
    rest: &'a [u8],
}

impl<'a> PacketReader<'a> {
    /// Creates a reader at the beginning of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the unread bytes, without consuming them.
    #[inline]
    pub const fn peek_rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns whether no bytes are left.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads the next `len` bytes.
    #[inline]
    pub const fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else { return None };
        self.rest = rest;
        Some(taken)
    }

    /// Reads the next `N` bytes.
    #[inline]
    pub const fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else { return None };
        self.rest = rest;
        Some(*taken)
    }

    /// Reads all remaining bytes.
    #[inline]
    pub const fn rest(&mut self) -> &'a [u8] {
        let rest = self.rest;
        self.rest = &[];
        rest
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads two bytes.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Reads three bytes.
    #[inline]
    pub fn u24(&mut self) -> Option<u32> {
        self.array().map(|[a, b, c]| u32::from_le_bytes([a, b, c, 0]))
    }

    /// Reads four bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a length-encoded integer. Longer forms than needed are accepted, as by servers.
    #[inline]
    pub fn lenenc_int(&mut self) -> Option<u64> {
        let mut ahead = *self;
        let value = match ahead.u8()? {
            first @ 0..NULL => u64::from(first),
            0xFC => u64::from(ahead.u16()?),
            0xFD => u64::from(ahead.u24()?),
            0xFE => ahead.u64()?,
            NULL | 0xFF => return None,
        };
        *self = ahead;
        Some(value)
    }

    /// Reads a string after its length-encoded length.
    #[inline]
    pub fn lenenc_bytes(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let len = usize::try_from(ahead.lenenc_int()?).ok()?;
        let bytes = ahead.bytes(len)?;
        *self = ahead;
        Some(bytes)
    }

    /// Reads a value in a row of the text protocol: a string, or `None` for `NULL`.
    #[inline]
    pub fn value(&mut self) -> Option<Option<&'a [u8]>> {
        if self.rest.first() == Some(&NULL) {
            self.bytes(1)?;
            return Some(None);
        }
        self.lenenc_bytes().map(Some)
    }

    /// Reads a string that ends with a zero, without the zero.
    #[inline]
    pub fn nul_bytes(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.iter().position(|byte| *byte == 0)?;
        let bytes = self.bytes(end)?;
        self.bytes(1)?;
        Some(bytes)
    }
}

/// Appends a length-encoded integer in its shortest form.
#[inline]
pub fn put_int(out: &mut Vec<u8>, value: u64) {
    let bytes = value.to_le_bytes();
    let [a, b, c, ..] = bytes;
    match value {
        0..=0xFA => out.push(a),
        0xFB..=0xFFFF => out.extend_from_slice(&[0xFC, a, b]),
        0x1_0000..=0xFF_FFFF => out.extend_from_slice(&[0xFD, a, b, c]),
        _ => {
            out.push(0xFE);
            out.extend_from_slice(&bytes);
        }
    }
}

/// Appends a string after its length.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_int(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a value of a row of the text protocol.
#[inline]
pub fn put_value(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        Some(bytes) => put_bytes(out, bytes),
        None => out.push(NULL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn check_int(bytes: &[u8], wanted: Option<(u64, usize)>) {
        let mut reader = PacketReader::new(bytes);
        let read = reader.lenenc_int().map(|value| (value, bytes.len() - reader.rest().len()));
        assert_eq!(read, wanted, "{bytes:?}");
    }

    #[test]
    fn a_first_byte_tells_how_long_an_integer_is() {
        check_int(b"", None);
        check_int(b"\0", Some((0, 1)));
        check_int(b"\xfa\x01", Some((250, 1)));
        check_int(b"\xfb\x01\0\0", None);
        check_int(b"\xfc\xfb\0", Some((251, 3)));
        check_int(b"\xfc\xfb", None);
        check_int(b"\xfd\x01\x02\x03", Some((0x03_0201, 4)));
        check_int(b"\xfd\x01\x02", None);
        check_int(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff", Some((u64::MAX, 9)));
        check_int(b"\xfe\xff\xff\xff\xff\xff\xff\xff", None);
        check_int(b"\xff\0\0\0\0\0\0\0\0\0", None);
        // Longer than needed, which servers accept as well.
        check_int(b"\xfc\x01\0", Some((1, 3)));
    }

    #[test]
    fn a_length_beyond_the_end_is_refused() {
        for bytes in [
            b"\x02a".as_slice(),
            b"\xfc\xff\xffabc",
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\xffabc",
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7fabc",
            b"\xfb",
        ] {
            let mut reader = PacketReader::new(bytes);
            assert_eq!(reader.lenenc_bytes(), None, "{bytes:?}");
            assert_eq!(reader.rest(), bytes, "nothing was read");
        }
    }

    #[test]
    fn values_are_strings_or_null() {
        let mut out = Vec::new();
        for value in [Some(b"one".as_slice()), None, Some(b"")] {
            put_value(&mut out, value);
        }
        assert_eq!(out, b"\x03one\xfb\0");
        let mut reader = PacketReader::new(&out);
        assert_eq!(reader.value(), Some(Some(&b"one"[..])));
        assert_eq!(reader.value(), Some(None));
        assert_eq!(reader.value(), Some(Some(&b""[..])));
        assert_eq!(reader.value(), None);
    }

    #[test]
    fn fixed_lengths_are_little_endian() {
        let mut reader = PacketReader::new(b"\x01\x02\x03\x04\x05\x06a\0\0b");
        assert_eq!(reader.u8(), Some(1));
        assert_eq!(reader.u16(), Some(0x0302));
        assert_eq!(reader.u24(), Some(0x06_0504));
        assert_eq!(reader.nul_bytes(), Some(&b"a"[..]));
        assert_eq!(reader.nul_bytes(), Some(&b""[..]));
        assert_eq!(reader.nul_bytes(), None);
        assert_eq!((reader.u16(), reader.u32(), reader.u64()), (None, None, None));
        assert_eq!((reader.peek_rest(), reader.is_empty()), (&b"b"[..], false));
        assert_eq!((reader.rest(), reader.rest()), (&b"b"[..], &b""[..]));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value: u64, shift in 0_u32..64, bytes: Vec<u8>) {
            let value = value >> shift;
            let mut out = Vec::new();
            put_int(&mut out, value);
            put_bytes(&mut out, &bytes);
            let mut reader = PacketReader::new(&out);
            prop_assert_eq!(reader.lenenc_int(), Some(value));
            prop_assert_eq!(reader.lenenc_bytes(), Some(&bytes[..]));
            prop_assert!(reader.is_empty());
            for end in 0..out.len() {
                let mut cut = PacketReader::new(&out[..end]);
                prop_assert!(cut.lenenc_int().and_then(|_| cut.lenenc_bytes()).is_none());
            }
        }
    }
}
