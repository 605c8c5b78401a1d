//! Hostile input in arbitrary pieces: an answer or a refusal, no panic and no endless reading.

use proptest::prelude::*;

use super::auth::{AuthNonce, AuthPlugin, MysqlSecret, NativeHash, Sha2Crypt};
use super::capabilities::{CapabilityFlags, StatusFlags};
use super::command::Command;
use super::frame::{HEADER_BYTES, PacketHeader, put_packet};
use super::lenenc::PacketReader;
use super::packet::{ResultColumn, put_err, put_result, status_and_warnings};
use super::reply::{CommandReplyState, ReplyKind};

const MODERN: CapabilityFlags = CapabilityFlags(
    CapabilityFlags::PROTOCOL_41.0
        | CapabilityFlags::DEPRECATE_EOF.0
        | CapabilityFlags::SESSION_TRACK.0,
);

const KINDS: [ReplyKind; 8] = [
    ReplyKind::Simple,
    ReplyKind::Query,
    ReplyKind::Execute,
    ReplyKind::Prepare,
    ReplyKind::FieldList,
    ReplyKind::Text,
    ReplyKind::Rows,
    ReplyKind::None,
];

/// Returns two results and an error, as a server sends them.
fn conversation(caps: CapabilityFlags) -> Vec<u8> {
    let (mut out, mut seq) = (Vec::new(), 1);
    let columns = [ResultColumn::text(b"a"), ResultColumn::text(b"b")];
    let rows = vec![vec![Some(&b""[..]), None], vec![Some(&b"\xfe\xfb"[..]), Some(&b"x"[..])]];
    let more = StatusFlags::AUTOCOMMIT.union(StatusFlags::MORE_RESULTS);
    put_result(&mut out, &mut seq, caps, &columns, &rows, more);
    put_result(&mut out, &mut seq, caps, &columns, &[], more);
    put_err(&mut out, &mut seq, 1064, *b"42000", b"no");
    out
}

/// Parses a stream by the grammar of a reply, as far as possible, and returns the number of
/// packets.
fn read(mut bytes: &[u8], mut reply: CommandReplyState) -> usize {
    let mut packets = 0;
    while let Some(header) = PacketHeader::parse(bytes) {
        let Some(payload) = bytes.get(HEADER_BYTES..header.total()) else { break };
        if reply.is_done() {
            break;
        }
        let first = payload.first().copied().unwrap_or(0);
        let _whole = reply.holds_whole(first, payload.len());
        packets += 1;
        if reply.packet(payload, payload.len()).is_err() {
            break;
        }
        bytes = &bytes[header.total()..];
    }
    packets
}

#[test]
fn the_conversation_is_read_to_its_end() {
    // For each result its header, two columns, its rows, its ends; then the error.
    assert_eq!(read(&conversation(MODERN), CommandReplyState::new(ReplyKind::Query, MODERN)), 11);
    let old = CapabilityFlags::PROTOCOL_41;
    assert_eq!(read(&conversation(old), CommandReplyState::new(ReplyKind::Query, old)), 13);
}

proptest! {
    #[test]
    fn a_damaged_conversation_ends(
        kind in 0..KINDS.len(),
        is_modern: bool,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut: prop::sample::Index,
    ) {
        let caps = if is_modern { MODERN } else { CapabilityFlags::PROTOCOL_41 };
        let mut bytes = conversation(caps);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        prop_assert!(read(&bytes, CommandReplyState::new(KINDS[kind], caps)) <= bytes.len());
    }

    #[test]
    fn a_reader_never_leaves_its_bytes(
        bytes in proptest::collection::vec(any::<u8>(), 0..40),
        steps in proptest::collection::vec(0_u8..11, 1..20),
    ) {
        let mut reader = PacketReader::new(&bytes);
        for step in steps {
            let left = reader.peek_rest().len();
            let _ = match step {
                0 => reader.u8().map(u64::from),
                1 => reader.u16().map(u64::from),
                2 => reader.u24().map(u64::from),
                3 => reader.u32().map(u64::from),
                4 => reader.u64(),
                5 => reader.lenenc_int(),
                6 => reader.lenenc_bytes().map(|_| 0),
                7 => reader.value().map(|_| 0),
                8 => reader.nul_bytes().map(|_| 0),
                9 => reader.array::<7>().map(|_| 0),
                _ => reader.bytes(left + 1).map(|_| 0),
            };
            let rest = reader.peek_rest();
            prop_assert!(rest.len() <= left);
            prop_assert!(bytes.ends_with(rest));
        }
    }

    #[test]
    fn heads_of_packets_say_no_more_than_they_can(bytes: [u8; HEADER_BYTES], more in 0_usize..3) {
        let header = PacketHeader::parse(&bytes).expect("four bytes are a head");
        prop_assert!(header.len <= super::frame::PAYLOAD_MAX);
        prop_assert_eq!(header.total(), header.len + HEADER_BYTES);
        prop_assert_eq!(PacketHeader::parse(&bytes[..more]), None);
        let _command = Command::of(bytes[0]);
    }

    #[test]
    fn what_is_put_into_packets_comes_out_of_them(
        payload in proptest::collection::vec(any::<u8>(), 0..300), seq: u8,
    ) {
        let (mut out, mut next) = (Vec::new(), seq);
        put_packet(&mut out, &mut next, &payload);
        let header = PacketHeader::parse(&out).expect("a head");
        prop_assert_eq!((header.len, header.seq), (payload.len(), seq));
        prop_assert_eq!(&out[HEADER_BYTES..], &payload[..]);
        prop_assert_eq!(next, seq.wrapping_add(1));
    }

    #[test]
    fn secrets_of_any_text_are_secrets_or_none(text in ".{0,90}", bytes: Vec<u8>) {
        drop((NativeHash::parse(&text), Sha2Crypt::parse(&text), MysqlSecret::parse(&text)));
        for prefix in ["*", "$A$005$", "$5$", "plain:"] {
            let text = format!("{prefix}{text}");
            drop((NativeHash::parse(&text), Sha2Crypt::parse(&text), MysqlSecret::parse(&text)));
        }
        let _ = (AuthNonce::parse(&bytes), AuthPlugin::of(&bytes), status_and_warnings(&bytes));
    }
}
