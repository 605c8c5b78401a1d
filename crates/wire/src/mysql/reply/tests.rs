//! Replies of every kind, packet by packet.

use super::*;

use proptest::prelude::*;

use crate::mysql::frame::{HEADER_BYTES, PacketContinuation, PacketHeader, put_packet};

const CLASSIC: CapabilityFlags = CapabilityFlags::NONE;
const MODERN: CapabilityFlags = CapabilityFlags::DEPRECATE_EOF;
const BOTH: [CapabilityFlags; 2] = [CLASSIC, MODERN];

const OK_PACKET: &[u8] = b"\0\0\0\x02\0\0\0";
const OK_MORE: &[u8] = b"\0\x01\0\x0a\0\0\0";
const EOF_PACKET: &[u8] = b"\xfe\x01\0\x02\0";
const EOF_MORE: &[u8] = b"\xfe\0\0\x0a\0";
const OK_EOF: &[u8] = b"\xfe\0\0\x02\0\x01\0";
const OK_EOF_MORE: &[u8] = b"\xfe\0\0\x0a\0\0\0";
const ERROR: &[u8] = b"\xff\x28\x04#42000no";
const COLUMN: &[u8] = b"\x03def\0\0\0\x011\0\x0c\x3f\0\x01\0\0\0\x08\x81\0\0\0\0";

const PLAIN: StatusFlags = StatusFlags(2);
const MORE: StatusFlags = StatusFlags(10);

/// Presents each payload to a new reply. The reply must end with the last one, not before.
#[track_caller]
fn check(kind: ReplyKind, caps: CapabilityFlags, packets: &[(&[u8], ReplyEvent)]) {
    let mut reply = CommandReplyState::new(kind, caps);
    for (payload, wanted) in packets {
        assert!(!reply.is_done(), "{kind:?}: over before {wanted:?}");
        let event = reply.packet(payload, payload.len());
        assert_eq!(event, Ok(*wanted), "{kind:?}, {caps:?}: {payload:?}");
    }
    assert!(reply.is_done(), "{kind:?}, {caps:?}");
}

/// Checks that the last packet is refused, with its position in the error.
#[track_caller]
fn check_refused(kind: ReplyKind, caps: CapabilityFlags, packets: &[&[u8]], wanted: &str) {
    let mut reply = CommandReplyState::new(kind, caps);
    let (last, before) = packets.split_last().unwrap();
    for payload in before {
        reply.packet(payload, payload.len()).unwrap();
    }
    let error = reply.packet(last, last.len()).unwrap_err().to_string();
    assert!(error.contains(wanted), "{kind:?}, {caps:?}: {error}");
}

#[test]
fn only_before_its_first_packet_a_reply_is_before_its_first_result() {
    for caps in BOTH {
        for before in [&[OK_MORE][..], &[b"\x01"], &[b"\x01", COLUMN], &[OK_PACKET], &[ERROR]] {
            let mut reply = CommandReplyState::new(ReplyKind::Execute, caps);
            assert!(reply.is_before_first_result());
            for payload in before {
                reply.packet(payload, payload.len()).unwrap();
                assert!(!reply.is_before_first_result(), "{caps:?}: {before:?}");
            }
        }
    }
}

#[test]
fn simple_commands_are_answered_by_one_packet() {
    for caps in BOTH {
        check(ReplyKind::Simple, caps, &[(OK_PACKET, ReplyEvent::Ok(PLAIN))]);
        check(ReplyKind::Simple, caps, &[(ERROR, ReplyEvent::Error)]);
        // As for COM_SET_OPTION. No OK packet has five bytes, so this is an EOF in any case.
        check(ReplyKind::Simple, caps, &[(EOF_PACKET, ReplyEvent::End(PLAIN))]);
        check(ReplyKind::Simple, caps, &[(OK_MORE, ReplyEvent::Ok(MORE))]);
        check(ReplyKind::None, caps, &[]);
        check(ReplyKind::Foreign, caps, &[]);
        check(ReplyKind::Text, caps, &[(b"Uptime: 1", ReplyEvent::Text)]);
        check(ReplyKind::Text, caps, &[(b"", ReplyEvent::Text)]);
        check(ReplyKind::Text, caps, &[(ERROR, ReplyEvent::Error)]);
    }
    check(ReplyKind::Simple, MODERN, &[(OK_EOF, ReplyEvent::End(PLAIN))]);
}

#[test]
fn a_result_ends_as_it_was_agreed_on() {
    let begin = [
        (&b"\x02"[..], ReplyEvent::Columns(2)),
        (COLUMN, ReplyEvent::Column),
        (COLUMN, ReplyEvent::Column),
    ];
    let row = (&b"\x011\xfb"[..], ReplyEvent::Row);
    let columns_end = [(EOF_PACKET, ReplyEvent::ColumnsEnd(PLAIN))];
    for rows in [0, 1, 3] {
        let rows = vec![row; rows];
        let modern = [&begin[..], &rows, &[(OK_EOF, ReplyEvent::End(PLAIN))]].concat();
        check(ReplyKind::Query, MODERN, &modern);
        let end = [(EOF_PACKET, ReplyEvent::End(PLAIN))];
        check(ReplyKind::Query, CLASSIC, &[&begin[..], &columns_end, &rows, &end].concat());
        let failed = [(ERROR, ReplyEvent::Error)];
        check(ReplyKind::Query, MODERN, &[&begin[..], &rows, &failed].concat());
        check(ReplyKind::Query, CLASSIC, &[&begin[..], &columns_end, &rows, &failed].concat());
    }
    for caps in BOTH {
        check(ReplyKind::Query, caps, &[(OK_PACKET, ReplyEvent::Ok(PLAIN))]);
        check(ReplyKind::Query, caps, &[(ERROR, ReplyEvent::Error)]);
        check(
            ReplyKind::Query,
            caps,
            &[(b"\x01", ReplyEvent::Columns(1)), (ERROR, ReplyEvent::Error)],
        );
    }
}

#[test]
fn rows_are_not_taken_for_ends_by_their_first_byte() {
    let begin = [(&b"\x01"[..], ReplyEvent::Columns(1)), (COLUMN, ReplyEvent::Column)];
    // An empty text, NULL, and a row with the first byte of an EOF but another length.
    let short = b"\xfe\x01\0\0\0\0\0\0\0a".as_slice();
    let texts = [b"\0".as_slice(), b"\xfb", b"\x00\x01a", b"\x05hello"];
    for text in texts {
        let modern =
            [&begin[..], &[(text, ReplyEvent::Row), (OK_EOF, ReplyEvent::End(PLAIN))]].concat();
        check(ReplyKind::Query, MODERN, &modern);
        let rest = [
            (EOF_PACKET, ReplyEvent::ColumnsEnd(PLAIN)),
            (text, ReplyEvent::Row),
            (EOF_PACKET, ReplyEvent::End(PLAIN)),
        ];
        check(ReplyKind::Query, CLASSIC, &[&begin[..], &rest].concat());
    }
    let rest = [
        (EOF_PACKET, ReplyEvent::ColumnsEnd(PLAIN)),
        (short, ReplyEvent::Row),
        (EOF_PACKET, ReplyEvent::End(PLAIN)),
    ];
    check(ReplyKind::Query, CLASSIC, &[&begin[..], &rest].concat());
    // A value of 16 MiB: the first packet is full. Only its first bytes are presented.
    for caps in BOTH {
        let mut reply = CommandReplyState::new(ReplyKind::Query, caps);
        for (payload, event) in begin {
            assert_eq!(reply.packet(payload, payload.len()), Ok(event));
        }
        if caps == CLASSIC {
            reply.packet(EOF_PACKET, EOF_PACKET.len()).unwrap();
        }
        assert!(!reply.holds_whole(EOF, PAYLOAD_MAX));
        assert_eq!(reply.packet(b"\xfe", PAYLOAD_MAX), Ok(ReplyEvent::Row));
        // With DEPRECATE_EOF, one byte less is an OK packet, which has to be whole and short.
        assert_eq!(reply.holds_whole(EOF, PAYLOAD_MAX - 1), caps == MODERN);
        if caps == MODERN {
            let refused = Err(ReplyError::TooLong(PAYLOAD_MAX - 1));
            assert_eq!(reply.packet(b"\xfe", PAYLOAD_MAX - 1), refused);
        }
    }
}

#[test]
fn binary_rows_begin_with_a_zero() {
    let begin = [(&b"\x01"[..], ReplyEvent::Columns(1)), (COLUMN, ReplyEvent::Column)];
    let rest = [(&b"\0\0\x01"[..], ReplyEvent::Row), (OK_EOF, ReplyEvent::End(PLAIN))];
    check(ReplyKind::Execute, MODERN, &[&begin[..], &rest].concat());
    check(ReplyKind::Rows, MODERN, &rest);
    check(ReplyKind::Rows, CLASSIC, &[rest[0], (EOF_PACKET, ReplyEvent::End(PLAIN))]);
    check(ReplyKind::Rows, MODERN, &[(ERROR, ReplyEvent::Error)]);
    check_refused(ReplyKind::Rows, MODERN, &[b"\x01a"], "0x01 in rows");
    check_refused(ReplyKind::Execute, MODERN, &[b"\x01", COLUMN, b"\xfb"], "0xfb in rows");
}

#[test]
fn a_cursor_ends_the_reply_behind_the_columns() {
    let begin = [(&b"\x01"[..], ReplyEvent::Columns(1)), (COLUMN, ReplyEvent::Column)];
    let status = StatusFlags(0x42);
    let eof = (&b"\xfe\0\0\x42\0"[..], ReplyEvent::End(status));
    check(ReplyKind::Cursor, CLASSIC, &[&begin[..], &[eof]].concat());
    let ok = (&b"\xfe\0\0\x42\0\0\0"[..], ReplyEvent::End(status));
    check(ReplyKind::Cursor, MODERN, &[&begin[..], &[ok]].concat());
    // Without a request for a cursor there is none, whatever the flag.
    let columns_end = (eof.0, ReplyEvent::ColumnsEnd(status));
    let rest = [columns_end, (EOF_PACKET, ReplyEvent::End(PLAIN))];
    for kind in [ReplyKind::Query, ReplyKind::Execute] {
        check(kind, CLASSIC, &[&begin[..], &rest].concat());
    }
    let last = (&b"\xfe\0\0\xc2\0"[..], ReplyEvent::End(StatusFlags(0xc2)));
    check(ReplyKind::Rows, CLASSIC, &[(b"\0\0a", ReplyEvent::Row), last]);
}

#[test]
fn several_results_follow_each_other() {
    let result = [(&b"\x01"[..], ReplyEvent::Columns(1)), (COLUMN, ReplyEvent::Column)];
    let row = (&b"\0\0"[..], ReplyEvent::Row);
    for kind in [ReplyKind::Query, ReplyKind::Execute, ReplyKind::Cursor] {
        let modern = [(OK_EOF_MORE, ReplyEvent::End(MORE)), (OK_MORE, ReplyEvent::Ok(MORE))];
        let packets = [&modern[1..], &result, &[row], &modern[..1], &result, &modern[..1]].concat();
        check(kind, MODERN, &[&packets[..], &[(OK_PACKET, ReplyEvent::Ok(PLAIN))]].concat());
        check(kind, MODERN, &[&packets[..], &[(ERROR, ReplyEvent::Error)]].concat());
        let classic =
            [(EOF_MORE, ReplyEvent::ColumnsEnd(MORE)), row, (EOF_MORE, ReplyEvent::End(MORE))];
        let packets = [&result[..], &classic, &[(OK_PACKET, ReplyEvent::Ok(PLAIN))]].concat();
        check(kind, CLASSIC, &packets);
    }
}

#[test]
fn a_file_of_the_clients_is_asked_for_before_the_result() {
    let ask = (&b"\xfb/etc/passwd"[..], ReplyEvent::LocalInfile);
    for caps in BOTH {
        check(ReplyKind::Query, caps, &[ask, (OK_PACKET, ReplyEvent::Ok(PLAIN))]);
        check(ReplyKind::Query, caps, &[ask, (ERROR, ReplyEvent::Error)]);
        let more = [ask, (OK_MORE, ReplyEvent::Ok(MORE)), ask, (OK_PACKET, ReplyEvent::Ok(PLAIN))];
        check(ReplyKind::Query, caps, &more);
        check_refused(ReplyKind::Query, caps, &[ask.0, b"\x01"], "in the reply to a file");
        check_refused(ReplyKind::Simple, caps, &[ask.0], "0xfb in the reply to a simple");
    }
}

fn prepared(columns: u8, params: u8) -> (Vec<u8>, ReplyEvent) {
    let bytes = vec![0, 7, 0, 0, 0, columns, 0, params, 0, 0, 3, 0];
    let (columns, params) = (u16::from(columns), u16::from(params));
    (bytes, ReplyEvent::Prepared { id: 7, columns, params, warnings: 3 })
}

#[test]
fn a_preparation_has_two_blocks_of_definitions() {
    for (columns, params) in [(0, 0), (2, 0), (0, 3), (1, 1), (2, 3)] {
        let (bytes, event) = prepared(columns, params);
        for caps in BOTH {
            let mut packets = vec![(&bytes[..], event)];
            for block in [params, columns].map(usize::from) {
                packets.extend(vec![(COLUMN, ReplyEvent::Column); block]);
                if block > 0 && caps == CLASSIC {
                    packets.push((EOF_PACKET, ReplyEvent::ColumnsEnd(PLAIN)));
                }
            }
            check(ReplyKind::Prepare, caps, &packets);
            let (_, before) = packets.split_last().unwrap();
            check(ReplyKind::Prepare, caps, &[before, &[(ERROR, ReplyEvent::Error)]].concat());
        }
    }
}

#[test]
fn blocks_of_definitions_tell_when_they_end() {
    let (bytes, _) = prepared(1, 2);
    let mut reply = CommandReplyState::new(ReplyKind::Prepare, MODERN);
    let ends = [bytes.as_slice(), COLUMN, COLUMN, COLUMN].map(|payload| {
        reply.packet(payload, payload.len()).unwrap();
        reply.is_block_end()
    });
    assert_eq!(ends, [false, false, true, true]);
    let mut reply = CommandReplyState::new(ReplyKind::Query, CLASSIC);
    let ends = [b"\x02".as_slice(), COLUMN, COLUMN].map(|payload| {
        reply.packet(payload, payload.len()).unwrap();
        reply.is_block_end()
    });
    assert_eq!(ends, [false, false, true]);
}

#[test]
fn a_list_of_fields_has_no_number() {
    let field = (COLUMN, ReplyEvent::Column);
    check(ReplyKind::FieldList, CLASSIC, &[field, field, (EOF_PACKET, ReplyEvent::End(PLAIN))]);
    check(ReplyKind::FieldList, CLASSIC, &[(EOF_PACKET, ReplyEvent::End(PLAIN))]);
    check(ReplyKind::FieldList, MODERN, &[field, (OK_EOF, ReplyEvent::End(PLAIN))]);
    check(ReplyKind::FieldList, MODERN, &[field, (ERROR, ReplyEvent::Error)]);
}

#[test]
fn what_cannot_come_is_refused() {
    for caps in BOTH {
        let query = ReplyKind::Query;
        check_refused(query, caps, &[b""], "an empty packet in the beginning of a result");
        check_refused(query, caps, &[EOF_PACKET], "does not make sense in the beginning");
        check_refused(query, caps, &[b"\0\0\0\x02\0\0"], "does not make sense");
        check_refused(query, caps, &[b"\xfc\0\0"], "does not make sense");
        check_refused(query, caps, &[b"\x01\x01"], "does not make sense");
        check_refused(query, caps, &[b"\xfd\0\0\x01"], "65536 columns");
        check_refused(query, caps, &[b"\x01", EOF_PACKET], "0xfe in the columns of a result");
        check_refused(ReplyKind::Simple, caps, &[b"\x01"], "0x01 in the reply to a simple");
        check_refused(ReplyKind::Prepare, caps, &[b"\x01"], "in the reply to a preparation");
        check_refused(ReplyKind::Prepare, caps, &[b"\0\0\0\0\0\0\0"], "does not make sense");
        check_refused(ReplyKind::None, caps, &[OK_PACKET], "0x00 in no reply");
        check_refused(ReplyKind::None, caps, &[ERROR], "0xff in no reply");
        check_refused(ReplyKind::Foreign, caps, &[OK_PACKET], "0x00 in no reply");
        check_refused(ReplyKind::Simple, caps, &[OK_PACKET, OK_PACKET], "0x00 in no reply");
    }
    check_refused(ReplyKind::Query, CLASSIC, &[b"\x01", COLUMN, OK_PACKET], "the columns");
    check_refused(ReplyKind::Simple, CLASSIC, &[OK_EOF], "does not make sense");
    check_refused(ReplyKind::Rows, CLASSIC, &[b"\xfe\0\0\x02\0\0\0"], "does not make sense");
    let (bytes, _) = prepared(0, 1);
    check_refused(ReplyKind::Prepare, CLASSIC, &[&bytes, COLUMN, COLUMN], "the parameters");
}

#[test]
fn what_must_be_whole_is_short_and_whole() {
    for kind in [ReplyKind::Simple, ReplyKind::Query, ReplyKind::Prepare, ReplyKind::Execute] {
        let mut reply = CommandReplyState::new(kind, MODERN);
        for first in [OK, ERR] {
            assert!(reply.holds_whole(first, 100));
            let too_long = HELD_BYTES_MAX + 1;
            assert_eq!(reply.packet(&[first], too_long), Err(ReplyError::TooLong(too_long)));
            assert!(matches!(reply.packet(&[first], 100), Err(ReplyError::Malformed(_))));
        }
    }
}

/// Reads a stream like a relay: bytes arrive in pieces, and packets are presented to the reply as
/// soon as enough of them has arrived.
struct Feed {
    reply: CommandReplyState,
    held: Vec<u8>,
    continuation: PacketContinuation,
    /// Remaining bytes of a packet that was presented and need not be examined.
    passing: usize,
    events: Vec<ReplyEvent>,
}

impl Feed {
    fn new(kind: ReplyKind, caps: CapabilityFlags) -> Self {
        Self {
            reply: CommandReplyState::new(kind, caps),
            held: Vec::new(),
            continuation: PacketContinuation::default(),
            passing: 0,
            events: Vec::new(),
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), ReplyError> {
        self.held.extend_from_slice(bytes);
        loop {
            let passed = self.passing.min(self.held.len());
            self.held.drain(..passed);
            self.passing -= passed;
            let Some(header) = PacketHeader::parse(&self.held) else { return Ok(()) };
            let payload = &self.held[HEADER_BYTES..];
            if self.continuation.is_inside() {
                self.continuation.begins(header);
            } else {
                let here = payload.len().min(header.len);
                let Some(first) = payload.first().filter(|_| here > 0).copied() else {
                    if header.len > 0 {
                        return Ok(());
                    }
                    self.events.push(self.reply.packet(&[], 0)?);
                    self.held.drain(..HEADER_BYTES);
                    self.continuation.begins(header);
                    continue;
                };
                let whole = self.reply.holds_whole(first, header.len);
                if whole && here < header.len && header.len <= HELD_BYTES_MAX {
                    return Ok(());
                }
                self.events.push(self.reply.packet(&payload[..here], header.len)?);
                self.continuation.begins(header);
            }
            self.passing = header.total();
        }
    }
}

/// Generates a random valid reply, as a server would write it.
fn legal(
    kind: ReplyKind,
    caps: CapabilityFlags,
    choices: &[u8],
) -> (Vec<Vec<u8>>, Vec<ReplyEvent>) {
    let mut choices = choices.iter().copied().chain(std::iter::repeat(0));
    let (mut packets, mut events) = (Vec::new(), Vec::new());
    let mut say = |payload: &[u8], event| {
        packets.push(payload.to_vec());
        events.push(event);
    };
    let binary = kind == ReplyKind::Execute;
    loop {
        let more = choices.next().unwrap() % 3 == 2;
        let status = if more { MORE } else { PLAIN };
        match choices.next().unwrap() % 4 {
            0 => say(if more { OK_MORE } else { OK_PACKET }, ReplyEvent::Ok(status)),
            1 => {
                say(ERROR, ReplyEvent::Error);
                break;
            }
            _ => {
                let columns = choices.next().unwrap() % 3 + 1;
                say(&[columns], ReplyEvent::Columns(u64::from(columns)));
                (0..columns).for_each(|_| say(COLUMN, ReplyEvent::Column));
                if caps == CLASSIC {
                    say(EOF_PACKET, ReplyEvent::ColumnsEnd(PLAIN));
                }
                for _ in 0..choices.next().unwrap() % 4 {
                    let text = [b"\0".as_slice(), b"\xfb", b"\x011", b"\x03a\xfe\xff"];
                    let text = text[usize::from(choices.next().unwrap() % 4)];
                    say(if binary { b"\0\xfe\xff" } else { text }, ReplyEvent::Row);
                }
                let end = match (caps == CLASSIC, more) {
                    (true, true) => EOF_MORE,
                    (true, false) => EOF_PACKET,
                    (false, true) => OK_EOF_MORE,
                    (false, false) => OK_EOF,
                };
                say(end, ReplyEvent::End(status));
            }
        }
        if !more {
            break;
        }
    }
    (packets, events)
}

fn stream(packets: &[Vec<u8>]) -> Vec<u8> {
    let (mut out, mut seq) = (Vec::new(), 1);
    packets.iter().for_each(|payload| put_packet(&mut out, &mut seq, payload));
    out
}

proptest! {
    #[test]
    fn legal_replies_are_followed_wherever_they_are_split(
        choices in proptest::collection::vec(any::<u8>(), 0..40), binary: bool, modern: bool
    ) {
        let kind = if binary { ReplyKind::Execute } else { ReplyKind::Query };
        let caps = if modern { MODERN } else { CLASSIC };
        let (packets, events) = legal(kind, caps, &choices);
        let bytes = stream(&packets);
        for at in 0..=bytes.len() {
            let mut feed = Feed::new(kind, caps);
            feed.push(&bytes[..at]).unwrap();
            feed.push(&bytes[at..]).unwrap();
            prop_assert_eq!(&feed.events, &events, "split at {}", at);
            prop_assert!(feed.reply.is_done());
        }
        let mut feed = Feed::new(kind, caps);
        bytes.iter().for_each(|byte| feed.push(&[*byte]).unwrap());
        prop_assert_eq!(&feed.events, &events);
        prop_assert!(feed.held.is_empty() && feed.passing == 0);
    }

    #[test]
    fn random_packets_never_panic_and_are_refused_after_the_end(
        packets in proptest::collection::vec(
            (prop_oneof![Just(0_u8), Just(0xFB), Just(0xFE), Just(0xFF), any::<u8>()],
             proptest::collection::vec(any::<u8>(), 0..20)), 0..30),
        kind in 0_usize..9, modern: bool, len: usize,
    ) {
        let kinds = [
            ReplyKind::None, ReplyKind::Simple, ReplyKind::Query, ReplyKind::Execute,
            ReplyKind::Prepare, ReplyKind::FieldList, ReplyKind::Text, ReplyKind::Rows,
            ReplyKind::Foreign,
        ];
        let caps = if modern { MODERN } else { CLASSIC };
        let mut reply = CommandReplyState::new(kinds[kind], caps);
        for (first, rest) in &packets {
            let payload = [&[*first][..], rest].concat();
            let was_done = reply.is_done();
            let mut lying = reply.clone();
            let _ = lying.packet(&payload, len);
            let event = reply.packet(&payload, payload.len());
            prop_assert!(!was_done || event.is_err());
        }
    }

    #[test]
    fn random_streams_never_panic(bytes: Vec<u8>, kind in 0_usize..3, modern: bool) {
        let kinds = [ReplyKind::Query, ReplyKind::Execute, ReplyKind::Prepare];
        let mut feed = Feed::new(kinds[kind], if modern { MODERN } else { CLASSIC });
        for chunk in bytes.chunks(7) {
            if feed.push(chunk).is_err() {
                break;
            }
        }
    }
}

#[test]
fn a_message_of_several_packets_is_told_of_once() {
    for extra in [0, 5] {
        // The continuation of the row looks like an error, an end and a beginning.
        let mut row = vec![0xFF; PAYLOAD_MAX + extra];
        row[..9].copy_from_slice(b"\xfe\xf6\xff\xff\0\0\0\0\0");
        let packets = [b"\x01".to_vec(), COLUMN.to_vec(), row, b"\x01a".to_vec(), OK_EOF.to_vec()];
        let bytes = stream(&packets);
        let mut feed = Feed::new(ReplyKind::Query, MODERN);
        for chunk in bytes.chunks(1 << 20) {
            feed.push(chunk).unwrap();
        }
        let rest = [ReplyEvent::Row, ReplyEvent::Row, ReplyEvent::End(PLAIN)];
        assert_eq!(
            feed.events,
            [&[ReplyEvent::Columns(1), ReplyEvent::Column][..], &rest].concat()
        );
        assert!(feed.reply.is_done());
    }
}
