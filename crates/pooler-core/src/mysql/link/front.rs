//! Input from a client.

use api::PoolMode;
use wire::mysql::command::Command;
use wire::mysql::frame::{HEADER_BYTES, PacketHeader, put_header};
use wire::mysql::sql::is_system_schema;

use super::end::release;
use super::{COMMAND_BYTES_MAX, MysqlLinkContext, change};
use crate::link::{ClientNext, FromClient, LinkOutputs};
use crate::mysql::client::{CommandRefusal, MysqlClientSession, NextInput};
use crate::mysql::server::{
    MysqlPartialPacket, MysqlReplyAudience, MysqlRequestPurpose, MysqlServerSession,
};

/// Bytes of the pooler's own replies after which a client must read them before it gets more: a
/// request is much shorter than the possible reply.
pub(super) const ANSWERED_BYTES_MAX: usize = 64 * 1024;

/// Outcome of one packet.
pub(super) enum MysqlPacketOutcome {
    /// This many bytes were processed; the packet's rest is streamed.
    Bytes(usize),
    /// Nothing was processed: at least this many bytes are needed.
    More(usize),
    /// Nothing was processed: output of the server is needed.
    Wait,
    NeedServer,
    /// This many bytes were processed, and this step is requested.
    Next(usize, ClientNext),
}

/// Processes input from a client, as far as possible. `server` is the connection that
/// [`super::attach`] attached.
pub fn from_client(
    shared: &mut MysqlLinkContext,
    client: &mut MysqlClientSession,
    mut server: Option<&mut MysqlServerSession>,
    input: &[u8],
    out: &mut LinkOutputs<'_>,
) -> FromClient {
    debug_assert_eq!(client.attached, server.is_some());
    let mut consumed = 0;
    let begun = out.to_client.len();
    let (next, want) = loop {
        let rest = input.get(consumed..).unwrap_or_default();
        if client.body.left > 0 {
            consumed += passed(client, rest, out.to_server);
            if client.body.left > 0 {
                break (ClientNext::Read, 1);
            }
            ended(client, out.to_client);
        }
        // The command that was answered here, or has no reply, may have been the last that needs
        // the connection.
        if let Some(held) = server.as_deref_mut()
            && consumed > 0
            && release(client, held, out.to_server)
        {
            break (ClientNext::Released, 0);
        }
        let rest = input.get(consumed..).unwrap_or_default();
        let Some(header) = PacketHeader::parse(rest) else {
            break (ClientNext::Read, HEADER_BYTES);
        };
        if client.body.goes_on || client.turn != NextInput::Command {
            follows(client, server.as_deref_mut(), header, out);
            consumed += HEADER_BYTES;
            continue;
        }
        if out.to_client.len() - begun >= ANSWERED_BYTES_MAX {
            break (ClientNext::Drain, 0);
        }
        let is_owed = server.as_deref().is_some_and(MysqlServerSession::is_waited_for);
        let taken = command(shared, client, server.as_deref_mut(), header, rest, out);
        match &taken {
            // The rest of a command may take long to arrive.
            MysqlPacketOutcome::Bytes(_)
            | MysqlPacketOutcome::Next(..)
            | MysqlPacketOutcome::More(_) => client.waits_here = false,
            // The request that it waits for was sent on its behalf.
            MysqlPacketOutcome::Wait => client.waits_here |= !is_owed,
            MysqlPacketOutcome::NeedServer => {}
        }
        match taken {
            MysqlPacketOutcome::Bytes(bytes) => consumed += bytes,
            MysqlPacketOutcome::More(want) => break (ClientNext::Read, want),
            MysqlPacketOutcome::Wait => break (ClientNext::Wait, 0),
            MysqlPacketOutcome::NeedServer => break (ClientNext::NeedServer, 0),
            MysqlPacketOutcome::Next(bytes, next) => {
                consumed += bytes;
                break (next, 0);
            }
        }
    };
    FromClient { consumed, want, next }
}

/// Forwards the next part of a client's packet.
fn passed(client: &mut MysqlClientSession, rest: &[u8], to: &mut Vec<u8>) -> usize {
    let Some(reframe) = client.reframe.as_mut().filter(|_| client.body.pass) else {
        return stream(&mut client.body, rest, to);
    };
    let part = rest.get(..client.body.left).unwrap_or(rest);
    reframe.bytes(part, to);
    client.body.left -= part.len();
    part.len()
}

/// Forwards the next part of a packet whose header was processed.
#[inline]
pub(super) fn stream(body: &mut MysqlPartialPacket, rest: &[u8], to: &mut Vec<u8>) -> usize {
    let part = rest.get(..body.left).unwrap_or(rest);
    if body.pass {
        to.extend_from_slice(part);
    }
    body.left -= part.len();
    part.len()
}

/// Handles the end of a packet, and of the command, unless another packet continues it.
fn ended(client: &mut MysqlClientSession, to_client: &mut Vec<u8>) {
    if client.body.goes_on {
        return;
    }
    client.reframe = None;
    if let Some(refusal) = client.refused.take() {
        client.put_error(refusal.code, &refusal.state, &refusal.message, to_client);
        client.seq = 0;
        client.diagnostics.failed(refusal.code, refusal.message.as_bytes(), false);
    }
}

/// Handles the header of a packet that continues another, or contains a part of a file.
fn follows(
    client: &mut MysqlClientSession,
    server: Option<&mut MysqlServerSession>,
    header: PacketHeader,
    out: &mut LinkOutputs<'_>,
) {
    client.seq = header.seq.wrapping_add(1);
    let pass = match client.turn {
        NextInput::File { pass } => pass,
        NextInput::Command => client.body.pass,
    };
    if let (true, Some(reframe)) = (pass, &mut client.reframe) {
        reframe.packet(header.len, !header.is_continued(), out.to_server);
    } else if pass {
        put_header(out.to_server, header.len, client.to_seq);
        client.to_seq = client.to_seq.wrapping_add(1);
    }
    let ends_file = client.turn != NextInput::Command && header.len == 0 && !client.body.goes_on;
    client.body = MysqlPartialPacket { left: header.len, pass, goes_on: header.is_continued() };
    if ends_file {
        client.turn = NextInput::Command;
        if let Some(server) = server {
            server.wants_file = false;
        }
    }
    if header.len == 0 {
        ended(client, out.to_client);
    }
}

/// Handles the header of a command.
#[inline]
fn command(
    shared: &mut MysqlLinkContext,
    client: &mut MysqlClientSession,
    server: Option<&mut MysqlServerSession>,
    header: PacketHeader,
    rest: &[u8],
    out: &mut LinkOutputs<'_>,
) -> MysqlPacketOutcome {
    if server.as_deref().is_some_and(MysqlServerSession::is_waited_for) {
        return MysqlPacketOutcome::Wait;
    }
    client.seq = header.seq.wrapping_add(1);
    if header.seq != 0 {
        let refusal = CommandRefusal::new(1156, b"08S01", "the packets are out of order");
        return dismiss(client, &refusal, out);
    }
    let Some(first) = rest.get(HEADER_BYTES) else {
        if header.len > 0 {
            return MysqlPacketOutcome::More(HEADER_BYTES + 1);
        }
        return refuse(client, header, rest, CommandRefusal::unknown_command(), out);
    };
    let command = match Command::of(*first) {
        Some(command) if header.len > 0 => command,
        _ => return refuse(client, header, rest, CommandRefusal::unknown_command(), out),
    };
    match command {
        Command::Quit => {
            return MysqlPacketOutcome::Next(header.total().min(rest.len()), ClientNext::Terminate);
        }
        Command::Query | Command::StmtExecute => {}
        _ => {
            if let Some(taken) = super::commands::without_server(client, command, header, rest, out)
            {
                if let (MysqlPacketOutcome::Bytes(_), true) = (&taken, client.body.left == 0) {
                    client.seq = 0;
                }
                return taken;
            }
        }
    }
    match server {
        Some(server) => {
            let taken = MysqlLink { shared, client, server, out }.take(command, header, rest);
            if command.is_without_reply() {
                client.seq = 0;
            }
            taken
        }
        None if command == Command::Query => super::query::alone(shared, client, header, rest, out),
        None => super::commands::alone(client, command, header, rest, out),
    }
}

/// Returns the whole payload of a short command, without its first byte.
pub(super) fn whole(header: PacketHeader, rest: &[u8], max: usize) -> Result<&[u8], Option<usize>> {
    if header.len > max {
        return Err(None);
    }
    rest.get(HEADER_BYTES + 1..header.total()).ok_or(Some(header.total()))
}

/// Answers a command with an error, once the command is complete.
pub(super) fn refuse(
    client: &mut MysqlClientSession,
    header: PacketHeader,
    rest: &[u8],
    refusal: CommandRefusal,
    out: &mut LinkOutputs<'_>,
) -> MysqlPacketOutcome {
    let taken = pass_over(client, header, rest);
    client.refused = Some(Box::new(refusal));
    if client.body.left == 0 {
        ended(client, out.to_client);
    }
    taken
}

/// Consumes a command whose content does not matter.
pub(super) fn pass_over(
    client: &mut MysqlClientSession,
    header: PacketHeader,
    rest: &[u8],
) -> MysqlPacketOutcome {
    let part = rest.get(..header.total()).unwrap_or(rest);
    let goes_on = header.is_continued();
    client.body = MysqlPartialPacket { left: header.total() - part.len(), pass: false, goes_on };
    MysqlPacketOutcome::Bytes(part.len())
}

/// Sends a client the error with which it is disconnected.
pub(super) fn dismiss(
    client: &mut MysqlClientSession,
    refusal: &CommandRefusal,
    out: &mut LinkOutputs<'_>,
) -> MysqlPacketOutcome {
    client.put_error(refusal.code, &refusal.state, &refusal.message, out.to_client);
    MysqlPacketOutcome::Next(0, ClientNext::Refuse)
}

/// A client and its server connection.
pub(super) struct MysqlLink<'a, 'o> {
    pub(super) shared: &'a mut MysqlLinkContext,
    pub(super) client: &'a mut MysqlClientSession,
    pub(super) server: &'a mut MysqlServerSession,
    pub(super) out: &'a mut LinkOutputs<'o>,
}

impl MysqlLink<'_, '_> {
    /// Handles a command of a client that holds a server connection, and waits for nothing.
    fn take(&mut self, command: Command, header: PacketHeader, rest: &[u8]) -> MysqlPacketOutcome {
        change::mark(self.client, self.server, self.out.to_server);
        match command {
            Command::Query => self.query(header, rest),
            Command::StmtExecute => self.stmt_execute(header, rest),
            Command::StmtPrepare => self.stmt_prepare(header, rest),
            Command::StmtSendLongData => self.stmt_long_data(header, rest),
            Command::StmtClose => self.stmt_close(header, rest),
            Command::StmtReset => self.stmt_reset(header, rest),
            Command::StmtFetch => self.stmt_fetch(header, rest),
            Command::InitDb => self.init_db(header, rest),
            Command::ResetConnection => self.reset_session(header, rest),
            _ => self.simple(command, header, rest),
        }
    }

    /// Forwards a command unchanged whose reply changes nothing.
    fn simple(
        &mut self,
        command: Command,
        header: PacketHeader,
        rest: &[u8],
    ) -> MysqlPacketOutcome {
        if !self.settle() {
            return MysqlPacketOutcome::Wait;
        }
        self.server.push(command.reply(), MysqlReplyAudience::Client, MysqlRequestPurpose::Plain);
        self.pass(header, rest)
    }

    /// Handles the selection of a schema.
    fn init_db(&mut self, header: PacketHeader, rest: &[u8]) -> MysqlPacketOutcome {
        let name = match whole(header, rest, COMMAND_BYTES_MAX) {
            Ok(name) => name,
            Err(Some(want)) => return MysqlPacketOutcome::More(want),
            Err(None) => {
                let refusal =
                    CommandRefusal::new(1102, b"42000", "the name of the database is too long");
                return refuse(self.client, header, rest, refusal, self.out);
            }
        };
        if self.client.is_sandbox && is_system_schema(name) {
            let refusal = CommandRefusal::not_for_sandboxes("a database of the server's own");
            return refuse(self.client, header, rest, refusal, self.out);
        }
        if !self.settle() {
            return MysqlPacketOutcome::Wait;
        }
        let name = String::from_utf8_lossy(name).into();
        self.server.push(
            Command::InitDb.reply(),
            MysqlReplyAudience::Client,
            MysqlRequestPurpose::Use(name),
        );
        self.pass(header, rest)
    }

    /// Handles a reset of the client's session.
    fn reset_session(&mut self, header: PacketHeader, rest: &[u8]) -> MysqlPacketOutcome {
        let reply = Command::ResetConnection.reply();
        put_header(self.out.to_server, 1, 0);
        self.out.to_server.push(Command::ResetConnection.code());
        self.server.push(reply, MysqlReplyAudience::Client, MysqlRequestPurpose::ResetSession);
        change::trackers(self.server, self.out.to_server);
        pass_over(self.client, header, rest)
    }

    /// Changes the server's session to the client's settings, as far as needed. False: a reply must
    /// arrive first, and nothing of the client's may be sent.
    #[inline]
    #[must_use]
    pub(super) fn settle(&mut self) -> bool {
        change::settings(self.shared, self.client, self.server, self.out);
        !self.server.is_waited_for()
    }

    /// Forwards a command unchanged.
    #[inline]
    pub(super) fn pass(&mut self, header: PacketHeader, rest: &[u8]) -> MysqlPacketOutcome {
        let part = rest.get(..header.total()).unwrap_or(rest);
        self.out.to_server.extend_from_slice(part);
        let goes_on = header.is_continued();
        self.client.body =
            MysqlPartialPacket { left: header.total() - part.len(), pass: true, goes_on };
        self.client.to_seq = 1;
        MysqlPacketOutcome::Bytes(part.len())
    }

    /// Answers a command with an error.
    pub(super) fn refuse(
        &mut self,
        header: PacketHeader,
        rest: &[u8],
        refusal: CommandRefusal,
    ) -> MysqlPacketOutcome {
        refuse(self.client, header, rest, refusal, self.out)
    }
}

/// Returns whether a client in this mode returns its server connection after a transaction.
pub(super) fn shares(mode: PoolMode) -> bool {
    match mode {
        PoolMode::Session => false,
        PoolMode::Transaction | PoolMode::Statement => true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use api::VerifyMode;
    use wire::mysql::capabilities::CapabilityFlags;
    use wire::mysql::frame::put_packet;

    use super::*;
    use crate::link::ClientId;
    use crate::mysql::client::MysqlClientSetup;
    use crate::mysql::settings::MysqlSettings;
    use crate::mysql::warnings::{ServerWarnings, WARNING_BYTES_MAX};
    use crate::pg::statements::HashKey;

    /// Returns the result of a single call with these bytes.
    fn once(
        shared: &mut MysqlLinkContext,
        client: &mut MysqlClientSession,
        input: &[u8],
    ) -> (FromClient, Vec<u8>) {
        let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
        let mut out = LinkOutputs { to_client: &mut to_client, to_server: &mut to_server };
        let result = from_client(shared, client, None, input, &mut out);
        assert!(to_server.is_empty());
        (result, to_client)
    }

    #[test]
    fn who_asks_much_is_answered_as_fast_as_it_takes_the_answers() {
        const QUESTIONS: usize = 1_000;
        let mut shared = MysqlLinkContext::new(HashKey::new(), Arc::new(AtomicU64::new(0)));
        let mut client = MysqlClientSession::new(MysqlClientSetup {
            id: ClientId(1),
            mode: PoolMode::Transaction,
            verify: VerifyMode::Unknown,
            read_only: false,
            local_infile: false,
            capabilities: CapabilityFlags::NONE,
            settings: MysqlSettings::default(),
            forced: Arc::new(MysqlSettings::default()),
        });
        let message = vec![b'x'; WARNING_BYTES_MAX / 2];
        client.diagnostics.warnings = Some(Box::new(ServerWarnings::of_error(1054, &message)));
        let mut question = Vec::new();
        put_packet(&mut question, &mut 0, b"\x03SHOW WARNINGS");
        let (result, answer) = once(&mut shared, &mut client, &question);
        assert_eq!((result.consumed, result.next), (question.len(), ClientNext::Read));
        assert!(answer.len() > message.len());

        let questions = question.repeat(QUESTIONS);
        let (mut asked, mut answered) = (0, 0);
        while asked < questions.len() {
            let (result, answers) = once(&mut shared, &mut client, &questions[asked..]);
            assert!(answers.len() < ANSWERED_BYTES_MAX + answer.len());
            assert_eq!(answers.len(), answer.len() * (result.consumed / question.len()));
            (asked, answered) = (asked + result.consumed, answered + answers.len());
            let is_last = asked == questions.len();
            assert_eq!(result.next, if is_last { ClientNext::Read } else { ClientNext::Drain });
            assert_eq!(result.want, if is_last { HEADER_BYTES } else { 0 });
        }
        assert_eq!(answered, answer.len() * QUESTIONS);
    }
}
