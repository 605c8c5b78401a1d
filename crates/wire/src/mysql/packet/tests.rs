//! OK, EOF and error packets as bytes.

use super::*;

use proptest::prelude::*;

use crate::mysql::frame::{HEADER_BYTES, PacketHeader};

const TRACK: CapabilityFlags = CapabilityFlags::SESSION_TRACK;
const NONE: CapabilityFlags = CapabilityFlags::NONE;

fn ok(status: u16, warnings: u16) -> OkPacket<'static> {
    OkPacket { status: StatusFlags(status), warnings, ..OkPacket::default() }
}

#[track_caller]
fn check_ok(payload: &[u8], caps: CapabilityFlags, wanted: Option<OkPacket<'_>>) {
    assert_eq!(OkPacket::parse(payload, caps), wanted, "{payload:?}");
    if let Some(wanted) = wanted {
        assert_eq!(status_flags(payload), Some(wanted.status), "{payload:?}");
        assert_eq!(status_and_warnings(payload), Some((wanted.status, wanted.warnings)));
    }
}

#[test]
fn an_ok_packet_is_read_as_it_was_agreed_on() {
    check_ok(b"\0\0\0\x02\0\0\0", NONE, Some(ok(2, 0)));
    check_ok(b"\xfe\0\0\x03\0\x01\0", NONE, Some(ok(3, 1)));
    let many = OkPacket { affected_rows: 251, last_insert_id: u64::MAX, ..ok(0x4002, 0x0102) };
    let bytes = b"\0\xfc\xfb\0\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x02\x40\x02\x01";
    check_ok(bytes, NONE, Some(many));
    // The info text: with a length, as servers write it, and without one, as documented.
    let with_info = OkPacket { info: b"Rows: 1", ..ok(2, 0) };
    check_ok(b"\0\0\0\x02\0\0\0\x07Rows: 1", NONE, Some(with_info));
    check_ok(b"\0\0\0\x02\0\0\0\x07Rows: 1", TRACK, Some(with_info));
    check_ok(b"\0\0\0\x02\0\0\0Rows: 1", NONE, Some(with_info));
    // Changes follow it, whether it is present or not.
    let changed = OkPacket { changes: b"\x02\x02\x011", ..ok(0x4002, 0) };
    check_ok(b"\0\0\0\x02\x40\0\0\0\x04\x02\x02\x011", TRACK, Some(changed));
    let both = OkPacket { info: b"x", ..changed };
    check_ok(b"\0\0\0\x02\x40\0\0\x01x\x04\x02\x02\x011", TRACK, Some(both));
}

#[test]
fn what_is_no_ok_packet_is_refused() {
    for payload in [
        b"".as_slice(),
        b"\0",
        b"\0\0\0\x02\0\0",
        b"\xff\0\0\x02\0\0\0",
        b"\x01\0\0\x02\0\0\0",
        b"\0\xfb\0\x02\0\0\0",
        b"\0\xfe\x01\x02\0\0\0",
    ] {
        check_ok(payload, NONE, None);
        check_ok(payload, TRACK, None);
        assert_eq!(status_and_warnings(payload), None, "{payload:?}");
    }
    // Lengths beyond the end, where lengths were negotiated.
    for payload in [
        b"\0\0\0\x02\0\0\0\x07Rows".as_slice(),
        b"\0\0\0\x02\x40\0\0",
        b"\0\0\0\x02\x40\0\0\0",
        b"\0\0\0\x02\x40\0\0\0\x05\x02\x02\x011",
        b"\0\0\0\x02\x40\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        check_ok(payload, TRACK, None);
    }
}

#[test]
fn status_flags_needs_no_more_than_the_status() {
    assert_eq!(status_flags(b"\0\0\0\x02\0"), Some(StatusFlags(2)));
    assert_eq!(status_flags(b"\0\xfd\x01\x02\x03\xfc\0\x01\x03\0"), Some(StatusFlags(3)));
    for payload in [b"\0\0\0\x02".as_slice(), b"\0\xfc\x01", b"", b"\xff\0\0\x02\0"] {
        assert_eq!(status_flags(payload), None, "{payload:?}");
    }
}

#[test]
fn ends_and_errors_are_read() {
    let eof = EofPacket { warnings: 0x0201, status: StatusFlags(0x0022) };
    assert_eq!(EofPacket::parse(b"\xfe\x01\x02\x22\0"), Some(eof));
    for payload in [b"\xfe\x01\x02\x22".as_slice(), b"\xfe\x01\x02\x22\0\0", b"\0\x01\x02\x22\0"] {
        assert_eq!(EofPacket::parse(payload), None, "{payload:?}");
    }
    for (payload, wanted) in [
        (b"\xff\x7a\x04#42S02no table".as_slice(), Some((1146, *b"42S02", "no table"))),
        (b"\xff\x10\x04Too many", Some((1040, STATE_GENERAL, "Too many"))),
        (b"\xff\x10\x04", Some((1040, STATE_GENERAL, ""))),
        (b"\xff\x10\x04#42", Some((1040, STATE_GENERAL, "#42"))),
        (b"\xff\x10", None),
        (b"\xfe\x10\x04", None),
    ] {
        let found = ErrPacket::parse(payload);
        let wanted = wanted.map(|(code, state, message)| ErrPacket {
            code,
            state,
            message: message.as_bytes(),
        });
        assert_eq!(found, wanted, "{payload:?}");
    }
}

/// Returns the payloads of packets whose numbers are consecutive from 1.
fn payloads(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while let Some(header) = PacketHeader::parse(bytes) {
        assert_eq!(usize::from(header.seq), found.len() + 1);
        let (packet, rest) = bytes.split_at(header.total());
        found.push(&packet[HEADER_BYTES..]);
        bytes = rest;
    }
    assert!(bytes.is_empty());
    found
}

#[test]
fn changes_go_only_to_who_agreed_on_them() {
    let changed = OkPacket { changes: b"\x02\x02\x011", ..ok(0x4002, 7) };
    let (mut out, mut seq) = (Vec::new(), 1);
    put_ok(&mut out, &mut seq, &changed, TRACK);
    put_ok(&mut out, &mut seq, &changed, NONE);
    put_end(&mut out, &mut seq, &changed, TRACK.union(CapabilityFlags::DEPRECATE_EOF));
    put_end(&mut out, &mut seq, &changed, NONE);
    put_err(&mut out, &mut seq, 1235, *b"42000", b"not here");
    assert_eq!(seq, 6);
    assert_eq!(
        payloads(&out),
        [
            b"\0\0\0\x02\x40\x07\0\0\x04\x02\x02\x011".as_slice(),
            b"\0\0\0\x02\0\x07\0",
            b"\xfe\0\0\x02\x40\x07\0\0\x04\x02\x02\x011",
            b"\xfe\x07\0\x02\0",
            b"\xff\xd3\x04#42000not here",
        ]
    );
}

#[test]
fn a_result_of_ours_is_what_a_server_would_send() {
    let columns = [
        ResultColumn::text(b"Level"),
        ResultColumn { name: b"Code", kind: ColumnKind::Unsigned },
        ResultColumn { name: b"n", kind: ColumnKind::Integer },
    ];
    let rows = vec![vec![Some(b"Note".as_slice()), Some(b"1051"), None]];
    for (caps, wanted) in [(CapabilityFlags::DEPRECATE_EOF, 6), (NONE, 7)] {
        let (mut out, mut seq) = (Vec::new(), 1);
        put_result(&mut out, &mut seq, caps, &columns, &rows, StatusFlags::AUTOCOMMIT);
        let found = payloads(&out);
        assert_eq!(found.len(), wanted);
        assert_eq!(usize::from(seq), wanted + 1);
        assert_eq!(found[0], b"\x03");
        let text = b"\x03def\0\0\0\x05Level\0\x0c\x2d\0\0\x10\0\0\xfd\0\0\x1f\0\0";
        assert_eq!(found[1], text);
        assert_eq!(found[2], b"\x03def\0\0\0\x04Code\0\x0c\x3f\0\x15\0\0\0\x08\xa1\0\0\0\0");
        assert_eq!(found[3], b"\x03def\0\0\0\x01n\0\x0c\x3f\0\x15\0\0\0\x08\x81\0\0\0\0");
        assert_eq!(found[wanted - 2], b"\x04Note\x041051\xfb");
        assert_eq!(found[wanted - 1].len(), if wanted == 6 { 7 } else { 5 });
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        affected_rows: u64, last_insert_id: u64, flags: u16, warnings: u16,
        info: Vec<u8>,
        changes: Vec<u8>,
        ends: bool,
    ) {
        let status = StatusFlags(flags).union(StatusFlags::SESSION_STATE_CHANGED);
        let ok = OkPacket {
            affected_rows, last_insert_id, status, warnings, info: &info, changes: &changes,
        };
        let (mut out, mut seq) = (Vec::new(), 0);
        let put = if ends { put_ok_as_eof } else { put_ok };
        put(&mut out, &mut seq, &ok, TRACK);
        let payload = &out[HEADER_BYTES..];
        prop_assert_eq!(OkPacket::parse(payload, TRACK), Some(ok));
        prop_assert_eq!(status_flags(payload), Some(status));
        for end in 0..payload.len() {
            // A truncated packet is refused or, without negotiated lengths, shorter; it never
            // panics.
            prop_assert_eq!(OkPacket::parse(&payload[..end], TRACK), None);
            let _ = OkPacket::parse(&payload[..end], NONE);
        }
    }

    #[test]
    fn random_bytes_never_panic(payload: Vec<u8>) {
        let status = OkPacket::parse(&payload, NONE).map(|ok| ok.status);
        if status.is_some() {
            prop_assert_eq!(status_flags(&payload), status);
        }
        let _ = (OkPacket::parse(&payload, TRACK), EofPacket::parse(&payload));
        let _ = ErrPacket::parse(&payload);
    }
}
