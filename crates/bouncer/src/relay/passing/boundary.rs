//! Position in a stream of messages that is carried without being parsed: whether the client has
//! received whole messages, so that another one may be appended.

use api::TenantEngine;
use pooler_core::link::put_mysql_error;
use wire::pg::message::{ErrorFields, backend};

/// Bytes of a message's header: a tag and a length, or a length and a number.
const PG_HEAD_BYTES: usize = 5;
const MYSQL_HEAD_BYTES: usize = 4;

/// Bytes of the length of a message of PostgreSQL, which includes itself.
const PG_LENGTH_BYTES: u64 = 4;

/// Both directions of the stream of a client.
#[derive(Debug)]
pub(crate) struct StreamBoundary {
    engine: TenantEngine,
    to_client: MessageCursor,
    of_client: MessageCursor,
    /// True if the client sent last, and so waits for a reply.
    is_asked: bool,
}

/// Position in one direction.
#[derive(Debug)]
struct MessageCursor {
    head: [u8; PG_HEAD_BYTES],
    have: usize,
    /// Bytes of the body that have not arrived yet.
    left: u64,
    /// Number of the last packet, of MySQL.
    number: u8,
    /// True once the stream contained an invalid message.
    is_lost: bool,
}

impl StreamBoundary {
    /// Creates a position between two messages; `number` is that of the packet that a client of
    /// MySQL waits for.
    pub(crate) fn new(engine: TenantEngine, number: u8) -> StreamBoundary {
        let cursor = |number| MessageCursor {
            head: [0; PG_HEAD_BYTES],
            have: 0,
            left: 0,
            number,
            is_lost: false,
        };
        let (to_client, of_client) = (cursor(0), cursor(number.wrapping_sub(1)));
        StreamBoundary { engine, to_client, of_client, is_asked: true }
    }

    /// Processes bytes from the client.
    pub(crate) fn sent(&mut self, bytes: &[u8]) {
        self.is_asked = true;
        // Packet numbers matter only in MySQL.
        if self.engine == TenantEngine::Mysql {
            self.of_client.advance(self.engine, bytes);
        }
    }

    /// Processes bytes to the client.
    pub(crate) fn received(&mut self, bytes: &[u8]) {
        self.is_asked = false;
        self.to_client.advance(self.engine, bytes);
    }

    /// Appends a fatal error for the client, if its stream is between two messages.
    pub(crate) fn put_fatal_error(&self, fields: &ErrorFields<'_>, out: &mut Vec<u8>) {
        if !self.to_client.is_between() {
            return;
        }
        match self.engine {
            TenantEngine::Postgres => backend::error(out, fields),
            TenantEngine::Mysql => {
                // A client that awaits no reply reads the error as the reply to its next command.
                let mut number =
                    if self.is_asked { self.of_client.number.wrapping_add(1) } else { 0 };
                put_mysql_error(&mut number, fields, out);
            }
        }
    }
}

impl MessageCursor {
    fn is_between(&self) -> bool {
        self.have == 0 && self.left == 0 && !self.is_lost
    }

    fn advance(&mut self, engine: TenantEngine, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_lost {
            if self.left > 0 {
                let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
                self.left -= count as u64;
                rest = rest.get(count..).unwrap_or_default();
                continue;
            }
            let head_bytes = match engine {
                TenantEngine::Postgres => PG_HEAD_BYTES,
                TenantEngine::Mysql => MYSQL_HEAD_BYTES,
            };
            let count = (head_bytes - self.have).min(rest.len());
            let (head, behind) = rest.split_at(count);
            self.head[self.have..self.have + count].copy_from_slice(head);
            self.have += count;
            rest = behind;
            if self.have == head_bytes {
                self.have = 0;
                self.begin(engine);
            }
        }
    }

    /// Begins a message whose header is complete.
    fn begin(&mut self, engine: TenantEngine) {
        let [one, two, three, four, five] = self.head;
        match engine {
            TenantEngine::Postgres => {
                let length = u64::from(u32::from_be_bytes([two, three, four, five]));
                match length.checked_sub(PG_LENGTH_BYTES) {
                    Some(left) => self.left = left,
                    None => self.is_lost = true,
                }
            }
            TenantEngine::Mysql => {
                self.left = u64::from(u32::from_le_bytes([one, two, three, 0]));
                self.number = four;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::mysql::frame::put_packet;

    use super::*;

    fn error(of: &StreamBoundary) -> Vec<u8> {
        let mut out = Vec::new();
        of.put_fatal_error(&ErrorFields::fatal("57P01", "gone"), &mut out);
        out
    }

    #[test]
    fn an_error_is_put_between_messages_of_postgresql_alone() {
        let mut boundary = StreamBoundary::new(TenantEngine::Postgres, 0);
        let mut message = Vec::new();
        backend::error(&mut message, &ErrorFields::error("22012", "division by zero"));
        assert_eq!(error(&boundary).first(), Some(&b'E'));
        for byte in &message[..message.len() - 1] {
            boundary.received(&[*byte]);
            assert!(error(&boundary).is_empty(), "in the middle");
        }
        boundary.received(&message[message.len() - 1..]);
        assert_eq!(error(&boundary).first(), Some(&b'E'));
        // Input of the client does not matter.
        boundary.sent(b"Q\0");
        assert_eq!(error(&boundary).first(), Some(&b'E'));
        // An invalid length: message boundaries are unknown from here on.
        boundary.received(&[b'Z', 0, 0, 0, 3]);
        boundary.received(&message);
        assert!(error(&boundary).is_empty());
    }

    #[test]
    fn an_error_of_mysql_has_the_number_that_its_client_waits_for() {
        let mut boundary = StreamBoundary::new(TenantEngine::Mysql, 4);
        let number = |of: &StreamBoundary| error(of).get(3).copied();
        assert_eq!(number(&boundary), Some(4), "the end of the login is awaited");
        let packet = |mut seq: u8, bytes: usize| {
            let mut out = Vec::new();
            put_packet(&mut out, &mut seq, &vec![0; bytes]);
            out
        };
        boundary.received(&packet(4, 7));
        assert_eq!(number(&boundary), Some(1), "the answer to the next command");
        boundary.sent(&packet(0, 3));
        assert_eq!(number(&boundary), Some(1));
        let answer = packet(1, 300);
        boundary.received(&answer[..200]);
        assert_eq!(number(&boundary), None);
        boundary.received(&answer[200..]);
        // The numbering continues in a file that the server has requested.
        boundary.sent(&packet(2, 10));
        assert_eq!(number(&boundary), Some(3));
    }

    proptest! {
        /// For any bytes, and any way to cut them.
        #[test]
        fn pieces_make_no_difference(
            bytes in prop::collection::vec(0_u8..8, 0..200),
            cuts in prop::collection::vec(1_usize..20, 1..20),
            is_mysql in any::<bool>(),
        ) {
            let engine = if is_mysql { TenantEngine::Mysql } else { TenantEngine::Postgres };
            let [mut whole, mut cut] = [2, 2].map(|number| StreamBoundary::new(engine, number));
            whole.sent(&bytes);
            whole.received(&bytes);
            let pieces = || {
                let (mut rest, mut sizes) = (&bytes[..], cuts.iter().cycle());
                std::iter::from_fn(move || {
                    let count = rest.len().min(*sizes.next()?);
                    let (piece, behind) = rest.split_at(count);
                    rest = behind;
                    (count > 0).then_some(piece)
                })
            };
            pieces().for_each(|piece| cut.sent(piece));
            pieces().for_each(|piece| cut.received(piece));
            if !bytes.is_empty() {
                prop_assert_eq!(error(&whole), error(&cut));
            }
        }
    }
}
