//! Packets: a length of three bytes, a sequence number, a payload.
//!
//! A payload of [`PAYLOAD_MAX`] bytes continues in the next packet, so that one message of the
//! protocol may consist of several packets; a message whose length is an exact multiple ends with
//! an empty packet. A packet that continues another must never be parsed as the beginning of a
//! message: streaming code keeps a [`PacketContinuation`].
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_packets.html>

/// Bytes of a packet's header: the length and the sequence number.
pub const HEADER_BYTES: usize = 4;

/// Maximum payload of one packet. A payload of exactly this length continues in the next packet.
pub const PAYLOAD_MAX: usize = 0xFF_FFFF;

/// The header of a packet. Any four bytes are valid: no length is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHeader {
    /// Bytes of the payload, at most [`PAYLOAD_MAX`].
    pub len: usize,
    /// The packet's number within its exchange; wraps.
    pub seq: u8,
}

impl PacketHeader {
    /// Parses a header; `None` while there are fewer than [`HEADER_BYTES`].
    #[inline]
    pub const fn parse(bytes: &[u8]) -> Option<PacketHeader> {
        let [a, b, c, seq, ..] = *bytes else { return None };
        Some(PacketHeader { len: u32::from_le_bytes([a, b, c, 0]) as usize, seq })
    }

    /// Returns all bytes of the packet on the wire, including the header.
    #[inline]
    pub const fn total(&self) -> usize {
        self.len.saturating_add(HEADER_BYTES)
    }

    /// Returns whether the message continues in the next packet.
    #[inline]
    pub const fn is_continued(&self) -> bool {
        self.len >= PAYLOAD_MAX
    }
}

/// State of a stream: whether the next packet begins a message or continues one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketContinuation {
    inside: bool,
}

impl PacketContinuation {
    /// Processes the next packet's header; returns whether the packet begins a message.
    #[inline]
    pub const fn begins(&mut self, header: PacketHeader) -> bool {
        let begins = !self.inside;
        self.inside = header.is_continued();
        begins
    }

    /// Returns whether the current message has more packets.
    #[inline]
    pub const fn is_inside(self) -> bool {
        self.inside
    }
}

/// Appends the header of a packet with a payload of `len` bytes.
///
/// A payload beyond [`PAYLOAD_MAX`] does not fit into one packet: see [`put_packet`].
#[inline]
pub fn put_header(out: &mut Vec<u8>, len: usize, seq: u8) {
    out.extend_from_slice(&header_bytes(len, seq));
}

/// Returns the header as bytes.
#[inline]
pub const fn header_bytes(len: usize, seq: u8) -> [u8; HEADER_BYTES] {
    debug_assert!(len <= PAYLOAD_MAX, "a payload that does not fit into a packet");
    let [a, b, c, ..] = len.to_le_bytes();
    [a, b, c, seq]
}

/// Appends a message, in as many packets as needed. `seq` is the number of the first, and becomes
/// the one after the last.
pub fn put_packet(out: &mut Vec<u8>, seq: &mut u8, payload: &[u8]) {
    let mut rest = payload;
    loop {
        let len = rest.len().min(PAYLOAD_MAX);
        let (part, behind) = rest.split_at(len);
        put_header(out, len, *seq);
        out.extend_from_slice(part);
        *seq = seq.wrapping_add(1);
        // A full packet is always followed by another one, even an empty one.
        if len < PAYLOAD_MAX {
            return;
        }
        rest = behind;
    }
}

/// Appends a message that `body` writes, at most [`PAYLOAD_MAX`] - 1 bytes, as one packet.
///
/// A longer one is split into packets afterwards, which moves it once.
pub fn put_built(out: &mut Vec<u8>, seq: &mut u8, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    body(out);
    let begins = start.saturating_add(HEADER_BYTES);
    let len = out.len().saturating_sub(begins);
    if len >= PAYLOAD_MAX {
        let payload = out.split_off(begins);
        out.truncate(start);
        put_packet(out, seq, &payload);
        return;
    }
    if let Some(place) = out.get_mut(start..begins) {
        place.copy_from_slice(&header_bytes(len, *seq));
    }
    *seq = seq.wrapping_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], wanted: Option<(usize, u8)>) {
        let wanted = wanted.map(|(len, seq)| PacketHeader { len, seq });
        assert_eq!(PacketHeader::parse(bytes), wanted, "{bytes:?}");
    }

    #[test]
    fn a_head_says_how_long_the_packet_is() {
        check(b"", None);
        check(b"\x01\0\0", None);
        check(b"\x01\0\0\0", Some((1, 0)));
        check(b"\0\0\0\xff", Some((0, 255)));
        check(b"\x01\x02\x03\x04\x05", Some((0x03_0201, 4)));
        check(b"\xff\xff\xff\x07", Some((PAYLOAD_MAX, 7)));
        assert_eq!(PacketHeader { len: PAYLOAD_MAX, seq: 0 }.total(), PAYLOAD_MAX + 4);
        assert!(PacketHeader { len: PAYLOAD_MAX, seq: 0 }.is_continued());
        assert!(!PacketHeader { len: PAYLOAD_MAX - 1, seq: 0 }.is_continued());
    }

    /// Returns the reassembled messages in `bytes`, and the sequence numbers of their packets.
    fn messages(mut bytes: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
        let (mut found, mut numbers) = (Vec::new(), Vec::new());
        let mut continuation = PacketContinuation::default();
        while let Some(header) = PacketHeader::parse(bytes) {
            if continuation.begins(header) {
                found.push(Vec::new());
            }
            found.last_mut().unwrap().extend_from_slice(&bytes[HEADER_BYTES..header.total()]);
            numbers.push(header.seq);
            bytes = &bytes[header.total()..];
        }
        assert!(!continuation.is_inside() && bytes.is_empty());
        (found, numbers)
    }

    #[test]
    fn a_message_of_any_length_is_read_as_it_was_written() {
        for (len, packets) in [
            (0, 1),
            (1, 1),
            (70_000, 1),
            (PAYLOAD_MAX - 1, 1),
            (PAYLOAD_MAX, 2),
            (PAYLOAD_MAX + 1, 2),
            (2 * PAYLOAD_MAX, 3),
        ] {
            // The continuation of a message looks like an error packet.
            let payload = vec![0xFF; len];
            for built in [false, true] {
                let (mut out, mut seq) = (b"kept".to_vec(), 254);
                if built {
                    put_built(&mut out, &mut seq, |out| out.extend_from_slice(&payload));
                } else {
                    put_packet(&mut out, &mut seq, &payload);
                }
                assert_eq!(&out[..4], b"kept");
                let (found, numbers) = messages(&out[4..]);
                assert!(found == [payload.clone()], "{len} bytes");
                assert_eq!(numbers, [254, 255, 0][..packets], "{len} bytes");
                assert_eq!(seq, numbers.last().unwrap().wrapping_add(1));
            }
        }
    }

    #[test]
    fn packets_behind_each_other_are_told_apart() {
        let (mut out, mut seq) = (Vec::new(), 0);
        for payload in [b"one".as_slice(), b"", b"three"] {
            put_packet(&mut out, &mut seq, payload);
        }
        let (found, numbers) = messages(&out);
        assert_eq!(found, [b"one".to_vec(), Vec::new(), b"three".to_vec()]);
        assert_eq!(numbers, [0, 1, 2]);
    }
}
