//! `COM_STMT_EXECUTE`: a header that is parsed, and values that are streamed.
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_stmt_execute.html>

use std::sync::Arc;

use wire::mysql::frame::{HEADER_BYTES, PAYLOAD_MAX, PacketHeader, put_header};
use wire::mysql::packet::put_binary_result;
use wire::mysql::reply::ReplyKind;

use super::reframe::PacketReframer;
use super::{PrepareOutcome, malformed, unknown_statement, wrong_arguments};
use crate::link::LinkOutputs;
use crate::mysql::client::CommandRefusal;
use crate::mysql::link::front::{MysqlLink, MysqlPacketOutcome, pass_over};
use crate::mysql::link::local;
use crate::mysql::link::query::refusal;
use crate::mysql::server::{
    MysqlPartialPacket, MysqlReplyAudience, MysqlRequestPurpose, MysqlServerSession,
};
use crate::mysql::statements::{MysqlStatementId, PendingExecution};

/// Maximum bytes of an execution that is kept, to be repeated if the server lost the statement: of
/// the packet, without inserted types.
const KEPT_BYTES_MAX: usize = 4 * 1024;

/// Bytes at the beginning of every execution: code, number, flags, and the iteration count, which
/// is always 1.
const EXECUTE_BYTES: usize = 10;

/// Offset of the flags in an execution.
const FLAGS_AT: usize = 5;

/// Offset of the number in a packet.
const NUMBER_AT: usize = HEADER_BYTES + 1;

/// The header of an execution: everything before the parameters' values.
struct ExecuteHeader<'a> {
    /// Bytes before the types; the last byte is the flag for types.
    before_types: &'a [u8],
    /// The types, if they were sent.
    types: Option<&'a [u8]>,
    /// Bytes of the payload up to the values.
    len: usize,
}

impl ExecuteHeader<'_> {
    /// Returns the kind of the reply.
    fn reply(&self) -> ReplyKind {
        ReplyKind::of_execution(self.before_types.get(FLAGS_AT).copied().unwrap_or_default())
    }
}

/// Parses the header of an execution with `params` parameters.
fn head<'a>(
    params: usize,
    header: PacketHeader,
    rest: &'a [u8],
) -> Result<ExecuteHeader<'a>, Result<MysqlPacketOutcome, ()>> {
    let take = |to: usize| -> Result<&'a [u8], Result<MysqlPacketOutcome, ()>> {
        if header.len < to {
            return Err(Err(()));
        }
        rest.get(HEADER_BYTES..HEADER_BYTES + to)
            .ok_or(Ok(MysqlPacketOutcome::More(HEADER_BYTES + to)))
    };
    if params == 0 {
        let before_types = take(EXECUTE_BYTES)?;
        return Ok(ExecuteHeader { before_types, types: None, len: EXECUTE_BYTES });
    }
    // The bitmap of NULL values, and the flag for types.
    let to = EXECUTE_BYTES + params.div_ceil(8) + 1;
    let before_types = take(to)?;
    if before_types.last() == Some(&0) {
        return Ok(ExecuteHeader { before_types, types: None, len: to });
    }
    let len = to + 2 * params;
    let types = take(len)?.get(to..);
    Ok(ExecuteHeader { before_types, types, len })
}

impl MysqlLink<'_, '_> {
    /// Handles `COM_STMT_EXECUTE`.
    #[inline]
    pub(in crate::mysql::link) fn stmt_execute(
        &mut self,
        header: PacketHeader,
        rest: &[u8],
    ) -> MysqlPacketOutcome {
        let number = match super::number(header, rest) {
            Ok(Some(number)) => number,
            Ok(None) => return self.refuse(header, rest, malformed()),
            Err(taken) => return taken,
        };
        let Some((number, open)) = self.client.statements.find(number) else {
            return self.refuse(header, rest, unknown_statement());
        };
        if header.total() <= KEPT_BYTES_MAX && rest.len() < header.total() {
            return MysqlPacketOutcome::More(header.total());
        }
        let params = usize::from(open.counts.params);
        let statement = open.statement.clone();
        let types = open.types.is_some();
        let head = match head(params, header, rest) {
            Ok(head) => head,
            Err(Ok(taken)) => return taken,
            Err(Err(())) => return self.refuse(header, rest, malformed()),
        };
        if params > 0 && head.types.is_none() && !types {
            // The server may have types, but they are another client's.
            return self.refuse(header, rest, wrong_arguments());
        }
        if let Some(failure) = self.client.statements.take_failure(number) {
            if !failure.until_reset {
                self.remember_types(number, head.types);
            }
            return self.refuse(header, rest, CommandRefusal::of(failure));
        }
        if let Some(refusal) = refusal(self.client, &statement.facts) {
            return self.refuse(header, rest, refusal);
        }
        if let Some(asked) = &statement.facts.asked
            && params == 0
            && local::is_known(self.client, asked)
        {
            // The client's current connection does not have the state of that statement. A
            // requested cursor is not opened: servers do not open one for every statement either.
            local::answer(self.client, asked, put_binary_result, self.out.to_client);
            return pass_over(self.client, header, rest);
        }
        // The statement may have to be prepared under other settings than those of its execution;
        // and `before` may insert a reset, which removes it again.
        if let Err(taken) = self.placed(number) {
            return taken;
        }
        if !self.before(&statement.facts) {
            return MysqlPacketOutcome::Wait;
        }
        let (place, server_number) = match self.placed(number) {
            Ok(placed) => placed,
            Err(taken) => return taken,
        };
        let start = self.out.to_server.len();
        let put_in = self.types(number, place, head.types);
        let taken = match put_in {
            None => self.pass(header, rest),
            Some(types) => self.pass_with_types(header, rest, &head, &types),
        };
        if let Some(at) = self.out.to_server.get_mut(start + NUMBER_AT..start + NUMBER_AT + 4) {
            at.copy_from_slice(&server_number.to_le_bytes());
        }
        self.server.statements.kept.clear();
        if header.total() <= KEPT_BYTES_MAX {
            self.keep(number, header, rest, &head);
        }
        let reply = head.reply();
        let executing = PendingExecution { number, statement, place, reply, is_second: false };
        self.server.push(
            reply,
            MysqlReplyAudience::Client,
            MysqlRequestPurpose::Execute(executing),
        );
        taken
    }

    /// Keeps an execution in case it has to be repeated: with its types, which a newly prepared
    /// statement does not have.
    fn keep(&mut self, number: u32, header: PacketHeader, rest: &[u8], head: &ExecuteHeader<'_>) {
        let types = match (head.types, self.client.statements.find(number)) {
            (None, Some((_, open))) => open.types.as_deref().unwrap_or_default(),
            (Some(_), _) | (None, None) => &[],
        };
        let kept = &mut self.server.statements.kept;
        put_header(kept, header.len + types.len(), 0);
        if types.is_empty() {
            kept.extend_from_slice(rest.get(HEADER_BYTES..header.total()).unwrap_or_default());
            return;
        }
        let (_flag, before_flag) = head.before_types.split_last().unwrap_or((&0, &[]));
        let values = rest.get(HEADER_BYTES + head.len..header.total()).unwrap_or_default();
        for part in [before_flag, &[1], types, values] {
            kept.extend_from_slice(part);
        }
    }

    fn remember_types(&mut self, number: u32, told: Option<&[u8]>) {
        if let (Some(told), Some((_, open))) = (told, self.client.statements.find_mut(number))
            && open.types.as_deref() != Some(told)
        {
            open.types = Some(told.into());
        }
    }

    /// Records the types of an execution, and those that the server will have; returns them if the
    /// execution relies on types that the server does not have.
    fn types(
        &mut self,
        number: u32,
        place: MysqlStatementId,
        told: Option<&[u8]>,
    ) -> Option<Arc<[u8]>> {
        self.remember_types(number, told);
        let (_, open) = self.client.statements.find(number)?;
        let types = open.types.as_ref()?;
        let place = self.server.statements.place_mut(place)?;
        if place.bound.as_ref().is_some_and(|bound| Arc::ptr_eq(bound, types) || bound == types) {
            return None;
        }
        place.bound = Some(types.clone());
        told.is_none().then(|| types.clone())
    }

    /// Forwards an execution with types that the client did not send again.
    fn pass_with_types(
        &mut self,
        header: PacketHeader,
        rest: &[u8],
        head: &ExecuteHeader<'_>,
        types: &[u8],
    ) -> MysqlPacketOutcome {
        let part = rest.get(..header.total()).unwrap_or(rest);
        let values = part.get(HEADER_BYTES + head.len..).unwrap_or_default();
        let len = header.len + types.len();
        let goes_on = header.is_continued();
        let body = MysqlPartialPacket { left: header.total() - part.len(), pass: true, goes_on };
        let mut reframe = (goes_on || len >= PAYLOAD_MAX).then(Box::<PacketReframer>::default);
        let out = &mut *self.out.to_server;
        let (flag, before_flag) = head.before_types.split_last().unwrap_or((&0, &[]));
        debug_assert_eq!(*flag, 0);
        match &mut reframe {
            None => {
                put_header(out, len, 0);
                for part in [before_flag, &[1], types, values] {
                    out.extend_from_slice(part);
                }
            }
            Some(reframe) => {
                reframe.packet(len, !goes_on, out);
                for part in [before_flag, &[1], types, values] {
                    reframe.bytes(part, out);
                }
            }
        }
        self.client.reframe = reframe.filter(|_| body.left > 0 || goes_on);
        self.client.body = body;
        self.client.to_seq = 1;
        MysqlPacketOutcome::Bytes(part.len())
    }
}

/// Repeats an execution, with a statement that was prepared again.
pub(super) fn resend(
    server: &mut MysqlServerSession,
    executing: PendingExecution,
    out: &mut LinkOutputs<'_>,
) -> PrepareOutcome {
    let Some(place) = server.statements.use_place(executing.place) else {
        return PrepareOutcome::Done;
    };
    let number = place.number.to_le_bytes();
    let start = out.to_server.len();
    out.to_server.extend_from_slice(&server.statements.kept);
    if let Some(at) = out.to_server.get_mut(start + NUMBER_AT..start + NUMBER_AT + number.len()) {
        at.copy_from_slice(&number);
    }
    server.push(
        executing.reply,
        MysqlReplyAudience::Client,
        MysqlRequestPurpose::Execute(executing),
    );
    PrepareOutcome::Resent
}
