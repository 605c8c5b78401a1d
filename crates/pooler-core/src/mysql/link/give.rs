//! Forwarding of a server's reply to the client, in the client's dialect.
//!
//! The two legs negotiated their capabilities independently. Where they differ, ends of lists and
//! of results have other forms, and some packets exist on one side only; so each packet to a client
//! is numbered here.

use wire::mysql::capabilities::{CapabilityFlags, StatusFlags};
use wire::mysql::frame::{HEADER_BYTES, PacketHeader, put_header};
use wire::mysql::packet::{self, EOF_LEN, EofPacket, OkPacket};
use wire::mysql::reply::{CommandReplyState, ReplyEvent, ReplyKind};

use crate::mysql::client::MysqlClientSession;
use crate::mysql::server::ColumnProgress;

/// Forwards a packet unchanged, of which `part` has arrived.
#[inline]
pub(super) fn packet(
    client: &mut MysqlClientSession,
    header: PacketHeader,
    part: &[u8],
    to: &mut Vec<u8>,
) {
    put_header(to, header.len, client.seq);
    to.extend_from_slice(part);
    client.seq = client.seq.wrapping_add(1);
}

/// A server's dialect, and the position in the reply.
pub(super) struct ReplyTranslation<'a> {
    pub(super) kind: ReplyKind,
    /// Capabilities of the server's leg.
    pub(super) caps: CapabilityFlags,
    pub(super) columns: &'a mut ColumnProgress,
}

impl ReplyTranslation<'_> {
    /// Forwards one packet, of which `part` has arrived: all of it if it had to be parsed whole.
    #[inline]
    pub(super) fn give(
        &mut self,
        client: &mut MysqlClientSession,
        event: ReplyEvent,
        header: PacketHeader,
        part: &[u8],
        to: &mut Vec<u8>,
    ) {
        if self.columns.owes_eof {
            self.columns.owes_eof = false;
            let has_cursor = |status: StatusFlags| status.contains(StatusFlags::CURSOR_EXISTS);
            let is_cursor = self.kind == ReplyKind::Cursor
                && matches!(event, ReplyEvent::End(status) if has_cursor(status));
            if !is_cursor {
                eof(client, to);
            }
        }
        match event {
            ReplyEvent::Row | ReplyEvent::Error | ReplyEvent::LocalInfile | ReplyEvent::Text => {
                packet(client, header, part, to);
            }
            ReplyEvent::Columns(count) => {
                self.columns.left = count;
                packet(client, header, part, to);
            }
            ReplyEvent::Prepared { columns, params, .. } => {
                (self.columns.left, self.columns.behind) = match params {
                    0 => (columns.into(), 0),
                    _ => (params.into(), columns.into()),
                };
                packet(client, header, part, to);
            }
            ReplyEvent::Column => {
                packet(client, header, part, to);
                self.column(client, to);
            }
            ReplyEvent::ColumnsEnd(_) => {
                if !client.capabilities.contains(CapabilityFlags::DEPRECATE_EOF) {
                    packet(client, header, part, to);
                }
            }
            ReplyEvent::Ok(_) => self.ok(client, header, part, to),
            ReplyEvent::End(_) => self.end(client, header, part, to),
        }
    }

    /// Handles a forwarded definition; in the old dialect an EOF follows the last one of a list.
    fn column(&mut self, client: &mut MysqlClientSession, to: &mut Vec<u8>) {
        let columns = &mut *self.columns;
        if columns.left == 0 {
            return;
        }
        columns.left -= 1;
        if columns.left > 0 {
            return;
        }
        columns.left = std::mem::take(&mut columns.behind);
        let is_missing = self.caps.contains(CapabilityFlags::DEPRECATE_EOF)
            && !client.capabilities.contains(CapabilityFlags::DEPRECATE_EOF);
        if is_missing && self.kind == ReplyKind::Prepare {
            eof(client, to);
        } else {
            // A cursor's result has only the one at its end.
            columns.owes_eof = is_missing;
        }
    }

    /// Forwards an OK packet.
    #[inline]
    fn ok(
        &self,
        client: &mut MysqlClientSession,
        header: PacketHeader,
        part: &[u8],
        to: &mut Vec<u8>,
    ) {
        let tracks = CapabilityFlags::SESSION_TRACK;
        if self.caps.contains(tracks) == client.capabilities.contains(tracks) || is_short(part) {
            return packet(client, header, part, to);
        }
        match OkPacket::parse(part, self.caps) {
            Some(ok) => packet::put_ok(to, &mut client.seq, &ok, client.capabilities),
            None => packet(client, header, part, to),
        }
    }

    /// Forwards the end of a result.
    #[inline]
    fn end(
        &self,
        client: &mut MysqlClientSession,
        header: PacketHeader,
        part: &[u8],
        to: &mut Vec<u8>,
    ) {
        let deprecates = client.capabilities.contains(CapabilityFlags::DEPRECATE_EOF);
        let is_eof = part.len() == EOF_LEN;
        if is_eof && !deprecates {
            return packet(client, header, part, to);
        }
        if !is_eof && deprecates {
            let tracks = CapabilityFlags::SESSION_TRACK;
            if self.caps.contains(tracks) == client.capabilities.contains(tracks) || is_short(part)
            {
                return packet(client, header, part, to);
            }
        }
        let ok = match EofPacket::parse(part) {
            Some(EofPacket { warnings, status }) => {
                Some(OkPacket { warnings, status, ..OkPacket::default() })
            }
            None => OkPacket::parse(part, self.caps),
        };
        match ok {
            Some(ok) => packet::put_end(to, &mut client.seq, &ok, client.capabilities),
            None => packet(client, header, part, to),
        }
    }
}

/// Returns whether an OK packet has neither an info text nor changes, and so is the same in every
/// dialect.
#[inline]
fn is_short(part: &[u8]) -> bool {
    match part {
        [_, 0..=0xFA, 0..=0xFA, _, high, _, _] => high & 0x40 == 0,
        _ => false,
    }
}

fn eof(client: &mut MysqlClientSession, to: &mut Vec<u8>) {
    let eof = EofPacket { warnings: 0, status: client.status };
    packet::put_eof(to, &mut client.seq, eof);
}

/// Sends a client a reply that was kept, in the dialect of a server with these capabilities. `id`,
/// if present, replaces the bytes after the first one of the first packet.
pub(super) fn play(
    client: &mut MysqlClientSession,
    kind: ReplyKind,
    caps: CapabilityFlags,
    mut kept: &[u8],
    id: Option<u32>,
    to: &mut Vec<u8>,
) {
    let mut columns = ColumnProgress::default();
    let mut reply = CommandReplyState::new(kind, caps);
    let mut giving = ReplyTranslation { kind, caps, columns: &mut columns };
    let mut patch = id.map(u32::to_le_bytes);
    while let Some(header) = PacketHeader::parse(kept) {
        let Some(part) = kept.get(HEADER_BYTES..header.total()) else { return };
        let Ok(event) = reply.packet(part, header.len) else { return };
        let at = to.len() + HEADER_BYTES + 1;
        giving.give(client, event, header, part, to);
        if let Some(id) = patch.take()
            && let Some(place) = to.get_mut(at..at + id.len())
        {
            place.copy_from_slice(&id);
        }
        kept = kept.get(header.total()..).unwrap_or_default();
    }
    client.seq = 0;
}
