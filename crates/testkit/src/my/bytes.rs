//! Numbers and strings of MySQL's protocol, which is little-endian.

/// Parser of a byte slice.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(first)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// Reads a length-encoded number; `None` is NULL or malformed.
    pub(super) fn number(&mut self) -> Option<u64> {
        match self.u8()? {
            byte @ 0..=0xFA => Some(byte.into()),
            0xFC => self.u16().map(u64::from),
            0xFD => {
                let [a, b, c] = self.take()?;
                Some(u32::from_le_bytes([a, b, c, 0]).into())
            }
            0xFE => self.u64(),
            _ => None,
        }
    }

    /// Reads length-prefixed bytes.
    pub(super) fn counted(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.number()?).ok()?;
        self.bytes(count)
    }

    /// Reads a value of a text row, which may be NULL.
    pub(super) fn value(&mut self) -> Option<Option<Vec<u8>>> {
        if self.0.first() == Some(&0xFB) {
            self.0 = &self.0[1..];
            return Some(None);
        }
        self.counted().map(|bytes| Some(bytes.to_vec()))
    }

    /// Reads bytes up to the next zero.
    pub(super) fn terminated(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let bytes = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Some(bytes)
    }
}

/// Writes a length-encoded number.
pub(super) fn put_number(out: &mut Vec<u8>, number: u64) {
    let bytes = number.to_le_bytes();
    match number {
        0..=0xFA => out.push(bytes[0]),
        0xFB..=0xFFFF => {
            out.push(0xFC);
            out.extend(&bytes[..2]);
        }
        0x1_0000..=0xFF_FFFF => {
            out.push(0xFD);
            out.extend(&bytes[..3]);
        }
        _ => {
            out.push(0xFE);
            out.extend(bytes);
        }
    }
}

/// Writes length-prefixed bytes.
pub(super) fn put_counted(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, u64::try_from(bytes.len()).expect("64 bits"));
    out.extend(bytes);
}

/// Returns bytes as text.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
