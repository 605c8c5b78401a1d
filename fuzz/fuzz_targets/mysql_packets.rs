//! Packets of MySQL's protocol: a packet that was read and written again reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::mysql::capabilities::CapabilityFlags;
use wire::mysql::changes::changes;
use wire::mysql::command::Command;
use wire::mysql::frame::{HEADER_BYTES, PacketHeader};
use wire::mysql::handshake::{AuthChallenge, ChangeUser, FirstReply, ServerHello};
use wire::mysql::packet::{
    EofPacket, ErrPacket, OkPacket, put_ok, status_and_warnings, status_flags,
};
use wire::mysql::reply::CommandReplyState;

fuzz_target!(|bytes: &[u8]| {
    let Some((&[a, b, c, d, command], payload)) = bytes.split_first_chunk() else { return };
    let caps = CapabilityFlags(u64::from(u32::from_le_bytes([a, b, c, d])));
    handshake(payload, caps);
    ok(payload, caps);
    if let Some(error) = ErrPacket::parse(payload) {
        assert!(error.message.len() < payload.len());
    }
    let _ = EofPacket::parse(payload);
    let entries = changes(payload).take(payload.len() + 1).count();
    assert!(entries <= payload.len(), "changes without an end");
    if let Some(command) = Command::of(command) {
        replies(payload, CommandReplyState::new(command.reply(), caps));
    }
});

fn handshake(payload: &[u8], caps: CapabilityFlags) {
    if let Ok(hello) = ServerHello::parse(payload) {
        let mut written = Vec::new();
        hello.write(&mut written);
        assert_eq!(ServerHello::parse(&written).expect("a greeting of ours"), hello);
    }
    for is_encrypted in [false, true] {
        let Ok(FirstReply::Response(response)) = FirstReply::parse(payload, is_encrypted) else {
            continue;
        };
        let pairs = response.attributes.pairs().take(payload.len() + 1).count();
        assert!(pairs <= payload.len(), "attributes without an end");
    }
    let _ = ChangeUser::parse(payload, caps);
    let _ = AuthChallenge::parse(payload);
}

fn ok(payload: &[u8], caps: CapabilityFlags) {
    let Some(ok) = OkPacket::parse(payload, caps) else { return };
    assert_eq!(status_flags(payload), Some(ok.status));
    assert_eq!(status_and_warnings(payload), Some((ok.status, ok.warnings)));
    let (mut written, mut seq) = (Vec::new(), 0);
    put_ok(&mut written, &mut seq, &ok, caps);
    let body = written.get(HEADER_BYTES..).expect("a packet has a head");
    let second = OkPacket::parse(body, caps).expect("an OK packet of ours");
    assert_eq!((second.affected_rows, second.warnings), (ok.affected_rows, ok.warnings));
    assert_eq!((second.last_insert_id, second.info), (ok.last_insert_id, ok.info));
    assert_eq!(second.changes, ok.changes);
}

/// Takes complete packets as a relay does, because all bytes are available.
fn replies(mut bytes: &[u8], mut state: CommandReplyState) {
    while let Some(header) = PacketHeader::parse(bytes) {
        let Some(packet) = bytes.get(HEADER_BYTES..header.total()) else { return };
        if state.is_done() || state.packet(packet, header.len).is_err() {
            return;
        }
        bytes = &bytes[header.total()..];
    }
}
