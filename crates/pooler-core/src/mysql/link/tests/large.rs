//! Messages longer than a packet: none of them is buffered, and no part of them is misinterpreted.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use api::{PoolMode, VerifyMode};
use wire::mysql::capabilities::StatusFlags;
use wire::mysql::command::Command;
use wire::mysql::frame::{HEADER_BYTES, PAYLOAD_MAX, PacketHeader, put_packet};
use wire::mysql::lenenc::put_bytes;

use super::codec::{self, MODERN, OLD};
use crate::link::{ClientId, ClientNext, LinkLimits, LinkOutputs, ServerNext};
use crate::mysql::client::{MysqlClientSession, MysqlClientSetup};
use crate::mysql::link::{MysqlLinkContext, attach, from_client, from_server};
use crate::mysql::server::{MysqlServerSession, MysqlServerSetup};
use crate::mysql::settings::MysqlSettings;
use crate::pg::statements::HashKey;

/// Bytes per read from a socket.
const READ_BYTES: usize = 64 * 1024;

struct Pair {
    shared: MysqlLinkContext,
    client: MysqlClientSession,
    server: MysqlServerSession,
    to_client: Vec<u8>,
    to_server: Vec<u8>,
}

impl Pair {
    fn new(read_only: bool) -> Pair {
        let mut settings = MysqlSettings::default();
        let _kept = settings.put_schema("db");
        Pair {
            shared: MysqlLinkContext::new(HashKey::new(), Arc::new(AtomicU64::new(0))),
            client: MysqlClientSession::new(MysqlClientSetup {
                id: ClientId(1),
                mode: PoolMode::Transaction,
                verify: VerifyMode::Unknown,
                read_only,
                local_infile: false,
                capabilities: OLD,
                settings,
                forced: Arc::default(),
            }),
            server: MysqlServerSession::new(MysqlServerSetup {
                thread_id: 1,
                pool: 1,
                user: "user".into(),
                capabilities: MODERN,
                status: StatusFlags::AUTOCOMMIT,
                database: Some("db".into()),
                settings: Arc::default(),
                tracks: true,
                read_only: false,
                limits: LinkLimits::default(),
            }),
            to_client: Vec::new(),
            to_server: Vec::new(),
        }
    }

    /// Presents the client's bytes, read by read; at most one read and a short header are kept.
    fn client_says(&mut self, bytes: &[u8]) {
        let mut kept = Vec::new();
        for part in bytes.chunks(READ_BYTES) {
            kept.extend_from_slice(part);
            loop {
                let mut out =
                    LinkOutputs { to_client: &mut self.to_client, to_server: &mut self.to_server };
                let server = self.client.attached.then_some(&mut self.server);
                let result =
                    from_client(&mut self.shared, &mut self.client, server, &kept, &mut out);
                drop(kept.drain(..result.consumed));
                match result.next {
                    ClientNext::NeedServer => {
                        attach(&mut self.shared, &mut self.client, &mut self.server, &mut out);
                    }
                    ClientNext::Read => break,
                    next => panic!("{next:?}"),
                }
            }
            assert!(kept.len() <= HEADER_BYTES, "{} bytes are held", kept.len());
        }
    }

    /// Presents the server's bytes in the same way. Returns whether the client was released at the
    /// end.
    fn server_says(&mut self, bytes: &[u8]) -> bool {
        let mut kept = Vec::new();
        for part in bytes.chunks(READ_BYTES) {
            kept.extend_from_slice(part);
            let mut out =
                LinkOutputs { to_client: &mut self.to_client, to_server: &mut self.to_server };
            let client = Some(&mut self.client);
            let result = from_server(&mut self.shared, &mut self.server, client, &kept, &mut out);
            drop(kept.drain(..result.consumed));
            assert!(kept.len() <= 32, "{} bytes are held", kept.len());
            match result.next {
                ServerNext::Read => {}
                ServerNext::Released => return true,
                next => panic!("{next:?}"),
            }
        }
        false
    }
}

/// Returns the numbers of packets, and the concatenation of their payloads.
fn packets(mut bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut numbers, mut payload) = (Vec::new(), Vec::new());
    while let Some(header) = PacketHeader::parse(bytes) {
        numbers.push(header.seq);
        payload.extend_from_slice(&bytes[HEADER_BYTES..header.total()]);
        bytes = &bytes[header.total()..];
    }
    assert!(bytes.is_empty());
    (numbers, payload)
}

#[test]
fn a_row_of_several_packets_streams() {
    // Its bytes look like ends and errors wherever a packet begins.
    for value_bytes in [PAYLOAD_MAX - 9, PAYLOAD_MAX, 2 * PAYLOAD_MAX + 5] {
        let mut pair = Pair::new(false);
        let mut query = Vec::new();
        put_packet(&mut query, &mut 0, b"\x03SELECT x FROM t");
        pair.client_says(&query);
        let mut row = Vec::new();
        put_bytes(&mut row, &vec![0xFE; value_bytes]);
        let (mut reply, mut seq) = (Vec::new(), 1);
        codec::put("COLS", "1", MODERN, &mut seq, &mut reply);
        codec::put("DEF", "", MODERN, &mut seq, &mut reply);
        let head = reply.len();
        put_packet(&mut reply, &mut seq, &row);
        let tail = reply.len();
        codec::put("END", "", MODERN, &mut seq, &mut reply);
        assert!(pair.server_says(&reply), "the end is seen");
        let (numbers, payload) = packets(&pair.to_client);
        let count = u8::try_from(numbers.len()).unwrap();
        assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
        // One EOF more than the server sent.
        assert_eq!(usize::from(count), packets(&reply).0.len() + 1);
        let wanted = packets(&reply[head..tail]).1;
        assert!(payload.windows(64).any(|part| part == &wanted[..64]));
        let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == 0xFE).count();
        assert_eq!(count(&payload), count(&row) + 2, "the row, and two EOFs");
    }
}

#[test]
fn a_text_of_several_packets_streams() {
    let text = [&[Command::Query.code()], vec![b' '; 2 * PAYLOAD_MAX + 9].as_slice()].concat();
    let mut query = Vec::new();
    put_packet(&mut query, &mut 0, &text);
    let mut pair = Pair::new(false);
    pair.client_says(&query);
    assert!(pair.to_server == query, "it comes as it was sent");
    let (mut reply, mut seq) = (Vec::new(), 3);
    codec::put("OK", "n1", MODERN, &mut seq, &mut reply);
    assert!(!pair.server_says(&reply), "the id of what it may have inserted is asked for");
    let (mut answer, mut seq) = (Vec::new(), 1);
    for (name, inside) in [("COLS", "1"), ("DEF", ""), ("ROW", "0"), ("END", "")] {
        codec::put(name, inside, MODERN, &mut seq, &mut answer);
    }
    assert!(pair.server_says(&answer));
    assert_eq!(packets(&pair.to_client).0, [3]);
    // A read-only client must not send an unparsed text; it gets the error at the end of the text.
    let mut pair = Pair::new(true);
    pair.client_says(&query);
    assert!(pair.to_server.is_empty());
    let (numbers, payload) = packets(&pair.to_client);
    assert_eq!((numbers.as_slice(), payload.get(..3)), (&[3][..], Some(&[0xFF, 0x0A, 0x05][..])));
}
