//! A command that becomes longer than its packets: the same bytes in packets of other lengths.
//!
//! Every packet but the last is full, so inserting bytes into the first one shifts the borders of
//! all that follow. The length of a packet must be known when it begins; bytes whose packet is not
//! known yet are carried over until the client's next packet begins, never more than were inserted.
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_packets.html>

use wire::mysql::frame::{PAYLOAD_MAX, put_header};

/// Packets to a server, built from a client's.
#[derive(Debug, Default)]
pub(crate) struct PacketReframer {
    /// Sequence number of the next packet to the server.
    seq: u8,
    /// Bytes that still fit into the packet to the server.
    room: usize,
    /// Bytes after that packet, once the client's last one has begun.
    behind: Option<usize>,
    /// True if the last packet to the server has begun.
    ends: bool,
    /// Bytes of a packet that has not begun.
    carry: Vec<u8>,
}

impl PacketReframer {
    /// Begins a client's packet of `bytes` bytes; the first one includes the inserted bytes.
    /// `ends`: it is the last one.
    pub(crate) fn packet(&mut self, bytes: usize, ends: bool, out: &mut Vec<u8>) {
        let carry = std::mem::take(&mut self.carry);
        if ends {
            self.behind = Some(carry.len() + bytes);
            self.next(out);
        } else {
            // It is full, and so is the packet to the server.
            self.open(PAYLOAD_MAX, out);
        }
        self.bytes(&carry, out);
    }

    /// Adds bytes of the current packet.
    pub(crate) fn bytes(&mut self, mut part: &[u8], out: &mut Vec<u8>) {
        loop {
            let (now, later) = part.split_at(part.len().min(self.room));
            out.extend_from_slice(now);
            self.room -= now.len();
            part = later;
            if self.room > 0 || self.ends {
                debug_assert!(part.is_empty(), "more bytes than were announced");
                return;
            }
            if self.behind.is_none() {
                self.carry.extend_from_slice(part);
                return;
            }
            self.next(out);
        }
    }

    /// Begins the next packet of known length.
    fn next(&mut self, out: &mut Vec<u8>) {
        let behind = self.behind.unwrap_or_default();
        let len = behind.min(PAYLOAD_MAX);
        self.behind = Some(behind - len);
        // A full packet is followed by another one, which may be empty.
        self.ends = len < PAYLOAD_MAX;
        self.open(len, out);
    }

    fn open(&mut self, len: usize, out: &mut Vec<u8>) {
        put_header(out, len, self.seq);
        self.seq = self.seq.wrapping_add(1);
        self.room = len;
    }
}

#[cfg(test)]
mod tests {
    use wire::mysql::frame::{HEADER_BYTES, PacketHeader};

    use super::*;

    /// Returns the lengths of the packets of a payload, as a client has to send them.
    fn packets(payload: usize) -> Vec<usize> {
        let mut lens = vec![PAYLOAD_MAX; payload / PAYLOAD_MAX];
        lens.push(payload % PAYLOAD_MAX);
        lens
    }

    /// Returns the byte at an offset of the payload.
    fn byte(at: usize) -> u8 {
        u8::try_from(at % 251).unwrap()
    }

    fn check(client: usize, put_in: usize, step: usize) {
        let mut reframe = PacketReframer::default();
        let mut out = Vec::new();
        let mut carried = 0;
        let lens = packets(client);
        let mut sent = 0_usize;
        for (at, len) in lens.iter().enumerate() {
            let ends = at + 1 == lens.len();
            let bytes = len + if at == 0 { put_in } else { 0 };
            reframe.packet(bytes, ends, &mut out);
            let body: Vec<u8> = (sent..sent + bytes).map(byte).collect();
            sent += bytes;
            for part in body.chunks(step) {
                reframe.bytes(part, &mut out);
                carried = carried.max(reframe.carry.len());
            }
        }
        assert!(carried <= put_in, "{carried} bytes carried");
        let mut rest = &out[..];
        let (mut found, mut payload) = (Vec::new(), 0_usize);
        while let Some(header) = PacketHeader::parse(rest) {
            assert_eq!(usize::from(header.seq), found.len());
            let body = &rest[HEADER_BYTES..header.total()];
            assert!(body.iter().enumerate().all(|(n, b)| byte(payload + n) == *b));
            payload += body.len();
            found.push(header.len);
            rest = &rest[header.total()..];
        }
        assert!(rest.is_empty());
        assert_eq!(found, packets(client + put_in));
    }

    #[test]
    fn packets_are_as_long_as_a_server_wants_them() {
        for client in [
            PAYLOAD_MAX - 8,
            PAYLOAD_MAX - 4,
            PAYLOAD_MAX - 1,
            PAYLOAD_MAX,
            PAYLOAD_MAX + 1,
            2 * PAYLOAD_MAX - 4,
            2 * PAYLOAD_MAX - 3,
            2 * PAYLOAD_MAX,
        ] {
            for step in [1 << 20, 65_537] {
                check(client, 4, step);
            }
        }
        check(100, 4, 1);
        check(0, 4, 1);
    }
}
