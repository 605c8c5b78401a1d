//! Bytes from a server.

use std::sync::atomic::Ordering;

use wire::mysql::capabilities::StatusFlags;
use wire::mysql::frame::{HEADER_BYTES, PacketHeader, put_header};
use wire::mysql::packet::{ERR, ErrPacket};
use wire::mysql::reply::{CommandReplyState, ReplyEvent, ReplyKind};

use super::front::stream;
use super::give::{ReplyTranslation, packet};
use super::gone::clean;
use super::{MysqlLinkContext, SERVER_PACKET_BYTES_MAX, prepared};
use crate::link::{FromServer, LinkOutputs, ServerErrorCode, ServerFailure, ServerNext};
use crate::mysql::client::{MysqlClientSession, NextInput};
use crate::mysql::server::{
    MysqlCleanup, MysqlPartialPacket, MysqlReplyAudience, MysqlRequestPurpose, MysqlServerSession,
};

/// Error for a client whose server requests a file that is not allowed: MySQL's own number.
const NO_FILES: (u16, &[u8; 5], &str) =
    (1148, b"42000", "loading local files is not allowed for this tenant");

/// Packets up to this length are not forwarded in parts, so that they can be parsed: rows of one
/// number are among them.
const SHORT_BYTES: usize = 16;

/// Processes input from a server. `client` is the holder of the connection, if there is one; it is
/// not accessed any more once the result is [`ServerNext::Released`].
pub fn from_server(
    shared: &mut MysqlLinkContext,
    server: &mut MysqlServerSession,
    client: Option<&mut MysqlClientSession>,
    input: &[u8],
    out: &mut LinkOutputs<'_>,
) -> FromServer {
    debug_assert_eq!(server.attached, client.as_ref().map(|client| client.id));
    let mut back =
        MysqlReplyHandler { shared, server, client, out, released: false, failed: false };
    let mut consumed = 0;
    let next = loop {
        let rest = input.get(consumed..).unwrap_or_default();
        if back.server.body.left > 0 {
            consumed += stream(&mut back.server.body, rest, back.out.to_client);
            if back.server.body.left > 0 {
                break None;
            }
            continue;
        }
        match back.packet(rest) {
            Ok(Some(0)) => break None,
            Ok(Some(bytes)) => consumed += bytes,
            Ok(None) => break Some(ServerNext::Failed),
            Err(broken) => break Some(ServerNext::Broken(broken)),
        }
    };
    let next = next.unwrap_or_else(|| back.verdict());
    FromServer { consumed, next }
}

pub(super) struct MysqlReplyHandler<'a, 'o> {
    pub(super) shared: &'a mut MysqlLinkContext,
    pub(super) server: &'a mut MysqlServerSession,
    pub(super) client: Option<&'a mut MysqlClientSession>,
    pub(super) out: &'a mut LinkOutputs<'o>,
    pub(super) released: bool,
    /// True if the client got an error that it cannot be served.
    pub(super) failed: bool,
}

impl MysqlReplyHandler<'_, '_> {
    /// Processes one packet; returns its number of bytes. Zero: the packet is incomplete. `None`:
    /// the client could not be served, and got an error.
    fn packet(&mut self, rest: &[u8]) -> Result<Option<usize>, ServerFailure> {
        let Some(header) = PacketHeader::parse(rest) else { return Ok(Some(0)) };
        if self.server.body.goes_on {
            return Ok(Some(self.follows(header)));
        }
        let part = rest.get(HEADER_BYTES..header.total().min(rest.len())).unwrap_or_default();
        if part.is_empty() && header.len > 0 {
            return Ok(Some(0));
        }
        let caps = self.server.capabilities;
        let Some(front) = self.server.front() else { return self.unasked(header, part) };
        let (kind, is_read) = (front.kind, is_read(&front.note));
        let mut reply =
            self.server.reply.take().unwrap_or_else(|| CommandReplyState::new(kind, caps));
        let first = part.first().copied().unwrap_or_default();
        // The last packet of a reply must be complete before the reply ends.
        let held = is_read
            || kind == ReplyKind::Text
            || header.len <= SHORT_BYTES
            || reply.holds_whole(first, header.len);
        if held && header.len > SERVER_PACKET_BYTES_MAX {
            return Err(ServerFailure::Malformed { tag: first, bytes: header.len });
        }
        if held && part.len() < header.len {
            self.server.reply = Some(reply);
            return Ok(Some(0));
        }
        let is_first = reply.is_before_first_result();
        let event = reply
            .packet(part, header.len)
            .map_err(|error| ServerFailure::Protocol(error.to_string().into()))?;
        if event == ReplyEvent::Row && !is_read && self.is_heard() {
            return Ok(Some(self.rows(reply, header, rest)));
        }
        if event == ReplyEvent::Error && is_first && self.is_sent_again(part) {
            return Ok(Some(HEADER_BYTES + part.len()));
        }
        self.event(reply, event, header, part)?;
        if self.server.closing && self.client.is_none() {
            return Err(ServerFailure::Reset {
                message: "the server closes the connection".into(),
            });
        }
        if self.failed {
            return Ok(None);
        }
        Ok(Some(HEADER_BYTES + part.len()))
    }

    /// Handles one packet of the reply to the front request.
    fn event(
        &mut self,
        reply: CommandReplyState,
        event: ReplyEvent,
        header: PacketHeader,
        part: &[u8],
    ) -> Result<(), ServerFailure> {
        self.server.body = MysqlPartialPacket {
            left: header.len - part.len(),
            pass: self.is_heard(),
            goes_on: header.is_continued(),
        };
        match event {
            ReplyEvent::LocalInfile => self.file(reply, header, part),
            ReplyEvent::Ok(status) | ReplyEvent::End(status) => {
                self.server.status = status;
                let is_done = reply.is_done();
                let warnings = reply.warnings();
                self.server.reply = Some(reply);
                self.result(event, header, part, warnings);
                if is_done { self.done(None) } else { Ok(()) }
            }
            ReplyEvent::Error => {
                let error = ErrPacket::parse(part)
                    .ok_or(ServerFailure::Malformed { tag: ERR, bytes: header.len })?;
                self.failed(&error, header, part)?;
                self.done(Some(&error))
            }
            ReplyEvent::Columns(_)
            | ReplyEvent::Column
            | ReplyEvent::ColumnsEnd(_)
            | ReplyEvent::Row
            | ReplyEvent::Prepared { .. }
            | ReplyEvent::Text => {
                let is_done = reply.is_done();
                self.server.rows += u64::from(event == ReplyEvent::Row);
                self.server.reply = Some(reply);
                self.keep(event, header, part)?;
                let number = self.number_for_client(event);
                let at = self.out.to_client.len() + HEADER_BYTES + 1;
                self.give(event, header, part);
                if let Some(number) = number
                    && let Some(place) = self.out.to_client.get_mut(at..at + 4)
                {
                    place.copy_from_slice(&number.to_le_bytes());
                }
                if is_done { self.done(None) } else { Ok(()) }
            }
        }
    }

    /// Returns whether the front request's reply is for a client that is attached.
    #[inline]
    pub(super) fn is_heard(&self) -> bool {
        self.client.is_some()
            && !self.server.is_refused
            && self.server.front().is_some_and(|entry| entry.audience == MysqlReplyAudience::Client)
    }

    /// Forwards a packet to the client, if it is for the client.
    #[inline]
    pub(super) fn give(&mut self, event: ReplyEvent, header: PacketHeader, part: &[u8]) {
        if !self.is_heard() {
            return;
        }
        let caps = self.server.capabilities;
        let Some(kind) = self.server.front().map(|front| front.kind) else { return };
        if let Some(client) = &mut self.client {
            let mut giving = ReplyTranslation { kind, caps, columns: &mut self.server.columns };
            giving.give(client, event, header, part, self.out.to_client);
        }
    }

    /// Handles rows: all complete ones are forwarded at once.
    #[inline]
    fn rows(&mut self, reply: CommandReplyState, header: PacketHeader, rest: &[u8]) -> usize {
        let part = rest.get(HEADER_BYTES..header.total()).unwrap_or_default();
        self.look_for_lock(part);
        self.server.rows += 1;
        let total = header.total();
        if total > rest.len() || header.is_continued() {
            let part = rest.get(HEADER_BYTES..).unwrap_or_default();
            let part = part.get(..header.len).unwrap_or(part);
            let (left, goes_on) = (header.len - part.len(), header.is_continued());
            self.server.body = MysqlPartialPacket { left, pass: true, goes_on };
            self.give(ReplyEvent::Row, header, part);
            self.server.reply = Some(reply);
            return HEADER_BYTES + part.len();
        }
        self.give(ReplyEvent::Row, header, part);
        let mut bytes = total;
        if let Some(client) = &mut self.client {
            let run = run(&reply, client.seq, rest.get(bytes..).unwrap_or_default());
            if run.bytes > 0 {
                let rows = rest.get(bytes..bytes + run.bytes).unwrap_or_default();
                append(self.out.to_client, rows, &mut client.seq, run.is_numbered);
                self.server.rows += run.rows;
                bytes += run.bytes;
            }
        }
        self.server.reply = Some(reply);
        bytes
    }

    /// Checks a row of one value, which may be the result of a lock function: 1 is success.
    #[inline]
    fn look_for_lock(&mut self, part: &[u8]) {
        if self.server.rows > 0 {
            return;
        }
        self.server.lock_row = match part {
            [1, value] => Some(*value == b'1'),
            [0xFB] => Some(false),
            [0, nulls, rest @ ..] if rest.len() <= 8 => {
                Some(nulls & 4 == 0 && rest.first() == Some(&1))
            }
            _ => None,
        };
    }

    /// Handles the header of a packet that continues another.
    fn follows(&mut self, header: PacketHeader) -> usize {
        let pass = self.server.body.pass;
        self.server.body =
            MysqlPartialPacket { left: header.len, pass, goes_on: header.is_continued() };
        if pass && let Some(client) = &mut self.client {
            put_header(self.out.to_client, header.len, client.seq);
            client.seq = client.seq.wrapping_add(1);
        }
        HEADER_BYTES
    }

    /// Handles the server's request for a file.
    fn file(
        &mut self,
        reply: CommandReplyState,
        header: PacketHeader,
        part: &[u8],
    ) -> Result<(), ServerFailure> {
        self.server.reply = Some(reply);
        if self.is_heard()
            && let Some(client) = &mut self.client
            && client.local_infile
        {
            client.turn = NextInput::File { pass: true };
            client.to_seq = header.seq.wrapping_add(1);
            self.server.wants_file = true;
            self.give(ReplyEvent::LocalInfile, header, part);
            return Ok(());
        }
        // The server gets an empty one, and its reply goes to no client.
        put_header(self.out.to_server, 0, header.seq.wrapping_add(1));
        if self.is_heard()
            && let Some(client) = &mut self.client
        {
            let (code, state, message) = NO_FILES;
            client.put_error(code, state, message, self.out.to_client);
            self.server.is_refused = true;
        }
        Ok(())
    }

    /// Handles a packet outside of any request: the server reports why it closes.
    fn unasked(
        &mut self,
        header: PacketHeader,
        part: &[u8],
    ) -> Result<Option<usize>, ServerFailure> {
        if part.len() < header.len {
            return match header.len {
                0..=SERVER_PACKET_BYTES_MAX => Ok(Some(0)),
                bytes => Err(ServerFailure::Malformed { tag: ERR, bytes }),
            };
        }
        let tag = part.first().copied().unwrap_or_default();
        let error = ErrPacket::parse(part);
        let Some(error) = error else {
            return Err(ServerFailure::Malformed { tag, bytes: header.len });
        };
        self.server.closing = true;
        if let Some(client) = &mut self.client {
            self.server.errors.add(ServerErrorCode::Number(error.code), 1);
            packet(client, header, part, self.out.to_client);
        }
        Err(ServerFailure::Closing {
            code: error.code.to_string().into(),
            message: String::from_utf8_lossy(error.message).into(),
        })
    }

    /// Keeps a packet of a reply that is parsed here.
    fn keep(
        &mut self,
        event: ReplyEvent,
        header: PacketHeader,
        part: &[u8],
    ) -> Result<(), ServerFailure> {
        let Some(front) = self.server.front_mut() else { return Ok(()) };
        match &mut front.note {
            MysqlRequestPurpose::Prepare(preparing) => {
                preparing.packet(event, header, part);
            }
            MysqlRequestPurpose::AskWarnings(warnings) if event == ReplyEvent::Row => {
                warnings.row(part)
            }
            MysqlRequestPurpose::AskInsertId(found) if event == ReplyEvent::Row => {
                let digits = part.get(1..).unwrap_or_default();
                *found = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the client's number for the statement that was prepared for it.
    fn number_for_client(&mut self, event: ReplyEvent) -> Option<u32> {
        if !matches!(event, ReplyEvent::Prepared { .. }) || !self.is_heard() {
            return None;
        }
        let client = self.client.as_deref_mut()?;
        match &self.server.front()?.note {
            MysqlRequestPurpose::Prepare(preparing) => {
                Some(prepared::client_number(client, preparing))
            }
            _ => None,
        }
    }

    /// Returns whether a prepared statement no longer exists at the server, or does not fit, and
    /// was sent again. The server reports that before anything else; a later error has another
    /// cause.
    fn is_sent_again(&mut self, part: &[u8]) -> bool {
        let Some(error) = ErrPacket::parse(part) else { return false };
        if !self.is_heard() {
            return false;
        }
        let generation = self.shared.schema.load(Ordering::Relaxed);
        prepared::again(generation, self.server, &error, self.out)
    }

    /// Returns the decision after all input was processed.
    fn verdict(&mut self) -> ServerNext {
        if self.released {
            return ServerNext::Released;
        }
        let server = &mut *self.server;
        if self.client.is_none() && server.cleanup != MysqlCleanup::None && server.is_quiet() {
            return clean(server, self.out).unwrap_or(ServerNext::Read);
        }
        ServerNext::Read
    }
}

/// Returns whether rows and definitions of the reply are parsed here.
#[inline]
fn is_read(note: &MysqlRequestPurpose) -> bool {
    matches!(
        note,
        MysqlRequestPurpose::Prepare(_)
            | MysqlRequestPurpose::AskInsertId(_)
            | MysqlRequestPurpose::AskWarnings(_)
    )
}

/// A run of complete rows.
struct RowRun {
    bytes: usize,
    rows: u64,
    /// True if they have the numbers that the client expects.
    is_numbered: bool,
}

/// Returns the run of complete rows at the beginning of `rest`.
#[inline]
fn run(reply: &CommandReplyState, mut seq: u8, rest: &[u8]) -> RowRun {
    let mut run = RowRun { bytes: 0, rows: 0, is_numbered: true };
    while let Some(next) = rest.get(run.bytes..)
        && let Some(header) = PacketHeader::parse(next)
        && let Some(first) = next.get(HEADER_BYTES)
        && header.total() <= next.len()
        && header.len > 0
        && !header.is_continued()
        && !reply.holds_whole(*first, header.len)
    {
        run.is_numbered &= header.seq == seq;
        seq = seq.wrapping_add(1);
        run.bytes += header.total();
        run.rows += 1;
    }
    run
}

/// Appends whole packets, numbered from `seq` on.
#[inline]
fn append(to: &mut Vec<u8>, packets: &[u8], seq: &mut u8, is_numbered: bool) {
    let mut at = to.len();
    to.extend_from_slice(packets);
    while let Some(header) = to.get(at..).and_then(PacketHeader::parse) {
        if !is_numbered && let Some(place) = to.get_mut(at + HEADER_BYTES - 1) {
            *place = *seq;
        }
        *seq = seq.wrapping_add(1);
        at += header.total();
    }
}

/// Returns whether the status announces another result.
#[inline]
pub(super) fn has_more(status: StatusFlags) -> bool {
    status.contains(StatusFlags::MORE_RESULTS)
}
