//! Observation of MySQL's protocol for the audit (its source documentation, page "Command Phase").
//!
//! As with PostgreSQL, the meaning of a statement number changes when the server replies.

use std::collections::{HashMap, VecDeque};

use pooler_core::mysql::statements::LAST_PREPARED;
use wire::mysql::capabilities::CapabilityFlags;
use wire::mysql::command::Command;
use wire::mysql::frame::PAYLOAD_MAX;
use wire::mysql::packet::ErrPacket;
use wire::mysql::reply::{CommandReplyState, HELD_BYTES_MAX, ReplyEvent, ReplyKind};

use super::frames::{FrameHandler, FrameSplitter, ObservedFrame, StreamStop};
use super::texts::{ReportedText, UNKNOWN};
use super::{ActionReporter, GuestViolation, OpenReply, ReplyCounts};

/// Bytes before the payload of a packet.
const HEAD: usize = 4;
/// Bytes of a command without text: its first byte, a number, and flags.
const COMMAND_BYTES_MAX: usize = 6;

/// See [`super::ConnectionObserver`].
#[derive(Debug)]
pub(super) struct MyWatch {
    from_client: FrameSplitter<HEAD>,
    to_client: FrameSplitter<HEAD>,
    follower: MysqlFollower,
}

#[derive(Debug)]
struct MysqlFollower {
    capabilities: CapabilityFlags,
    /// Replies that are outstanding.
    awaited: VecDeque<AwaitedReply>,
    statements: HashMap<u32, ObservedStatement>,
    /// Rows that were fetched from cursors of unknown statements.
    stray: ReplyCounts,
    /// The statement that was prepared most recently.
    last: Option<u32>,
    /// Reply to the request at the front.
    answer: Option<OpenReply>,
    /// Whether the previous packet continues in this one.
    is_continued: (bool, bool),
    /// Sequence number of the last packet to the client.
    seq: u8,
}

#[derive(Debug)]
struct ObservedStatement {
    text: ReportedText,
    /// Rows that its cursor has returned.
    counts: ReplyCounts,
}

#[derive(Debug)]
struct AwaitedReply {
    reply: CommandReplyState,
    note: MysqlObservedRequest,
}

/// Request that is not answered yet.
#[derive(Debug)]
enum MysqlObservedRequest {
    Nothing,
    Run {
        text: ReportedText,
        begun_us: u64,
    },
    /// A prepare, with its text and time.
    Prepare {
        text: ReportedText,
        begun_us: u64,
    },
    Execute {
        id: Option<u32>,
        is_fetch: bool,
        begun_us: u64,
    },
    /// A close, which has no reply: it takes effect after the replies before it.
    Close(u32),
    Reset,
}

fn body_len(head: &[u8; HEAD]) -> Option<usize> {
    let [a, b, c, _] = *head;
    usize::try_from(u32::from_le_bytes([a, b, c, 0])).ok()
}

fn is_text(first: Option<u8>) -> bool {
    let command = first.and_then(Command::of);
    matches!(command, Some(Command::Query | Command::StmtPrepare))
}

impl MyWatch {
    pub(super) fn new(capabilities: CapabilityFlags) -> MyWatch {
        let follower = MysqlFollower {
            capabilities,
            awaited: VecDeque::new(),
            statements: HashMap::new(),
            stray: ReplyCounts::default(),
            last: None,
            answer: None,
            is_continued: (false, false),
            seq: 0,
        };
        MyWatch {
            from_client: FrameSplitter::default(),
            to_client: FrameSplitter::default(),
            follower,
        }
    }

    pub(super) fn sent(&mut self, bytes: &[u8], reporter: &mut ActionReporter) {
        let mut asking = MysqlRequestFrames { follower: &mut self.follower, reporter };
        // The link has already split the same bytes into packets.
        let _is_stream = self.from_client.feed(bytes, &mut asking);
    }

    pub(super) fn received(
        &mut self,
        bytes: &[u8],
        reporter: &ActionReporter,
    ) -> Result<(), (StreamStop, GuestViolation)> {
        let mut answering =
            MysqlReplyFrames { follower: &mut self.follower, reporter, violation: None };
        let fed = self.to_client.feed(bytes, &mut answering);
        fed.map_err(|stop| (stop, answering.violation.unwrap_or(GuestViolation::Blind)))
    }

    /// Returns the sequence number of the next packet to the client.
    pub(super) fn next_seq(&self) -> u8 {
        self.follower.seq.wrapping_add(1)
    }

    /// Reports the statements that wait for a reply, as no more replies will arrive.
    pub(super) fn abandon(&mut self, reporter: &ActionReporter, reason: &str) {
        while let Some(awaited) = self.follower.awaited.pop_front() {
            let mut answer = self.follower.answer.take().unwrap_or_default();
            answer.error.get_or_insert_with(|| reason.to_owned());
            self.follower.completed(awaited.note, &answer, reporter);
        }
    }
}

/// Observes bytes from the client.
struct MysqlRequestFrames<'a> {
    follower: &'a mut MysqlFollower,
    reporter: &'a mut ActionReporter,
}

impl FrameHandler<HEAD> for MysqlRequestFrames<'_> {
    fn body_len(head: &[u8; HEAD]) -> Option<usize> {
        body_len(head)
    }

    fn begins(&mut self, _: &[u8; HEAD], _: usize, first: Option<u8>) -> Option<usize> {
        if self.follower.is_continued.0 {
            return Some(0);
        }
        self.reporter.scribe.begin();
        Some(if is_text(first) { 1 } else { COMMAND_BYTES_MAX })
    }

    fn goes_on(&mut self, _: &[u8; HEAD], kept: &[u8], more: &[u8]) {
        if !self.follower.is_continued.0 && is_text(kept.first().copied()) {
            self.reporter.scribe.feed(more);
        }
    }

    fn ends(&mut self, frame: ObservedFrame<'_, HEAD>) -> bool {
        let goes_on = frame.len >= PAYLOAD_MAX;
        if !std::mem::replace(&mut self.follower.is_continued.0, goes_on) {
            if goes_on {
                self.reporter.scribe.break_off();
            }
            self.follower.asked(frame.body, self.reporter);
        }
        true
    }
}

/// Observes bytes to the client.
struct MysqlReplyFrames<'a> {
    follower: &'a mut MysqlFollower,
    reporter: &'a ActionReporter,
    violation: Option<GuestViolation>,
}

impl FrameHandler<HEAD> for MysqlReplyFrames<'_> {
    fn body_len(head: &[u8; HEAD]) -> Option<usize> {
        body_len(head)
    }

    /// Checks limits when a header arrives, before any of the body has passed; only the byte count
    /// is checked later.
    fn begins(&mut self, _: &[u8; HEAD], len: usize, first: Option<u8>) -> Option<usize> {
        let first = first.unwrap_or_default();
        let is_first = !self.follower.is_continued.1;
        let reply = self.follower.awaited.front().map(|it| &it.reply);
        let is_row = is_first && reply.is_some_and(|it| it.is_row(first, len));
        let is_held = is_first && reply.is_some_and(|it| it.holds_whole(first, len));
        if let Some(answer) = self.follower.answer() {
            self.violation = self.reporter.count(answer, is_row, HEAD + len).err();
        }
        let keep = if is_held { HELD_BYTES_MAX } else { 1 };
        self.violation.is_none().then_some(keep)
    }

    fn goes_on(&mut self, _: &[u8; HEAD], _: &[u8], _: &[u8]) {}

    fn ends(&mut self, frame: ObservedFrame<'_, HEAD>) -> bool {
        let goes_on = frame.len >= PAYLOAD_MAX;
        self.follower.seq = frame.head[3];
        if !std::mem::replace(&mut self.follower.is_continued.1, goes_on) {
            self.violation = self.follower.answered(&frame, self.reporter).err();
        }
        self.violation.is_none()
    }
}

impl MysqlFollower {
    /// Handles a request of the client.
    fn asked(&mut self, payload: &[u8], reporter: &mut ActionReporter) {
        let Some((&first, body)) = payload.split_first() else { return };
        let Some(command) = Command::of(first) else {
            // The server answers it with an error.
            return self.await_reply(ReplyKind::Simple, MysqlObservedRequest::Nothing);
        };
        let begun_us = reporter.now_us;
        let id = body.first_chunk::<4>().map(|it| u32::from_le_bytes(*it));
        match command {
            Command::Query => {
                let text = reporter.text();
                self.await_reply(ReplyKind::Query, MysqlObservedRequest::Run { text, begun_us });
            }
            Command::StmtPrepare => {
                let text = reporter.text();
                self.await_reply(
                    ReplyKind::Prepare,
                    MysqlObservedRequest::Prepare { text, begun_us },
                );
            }
            Command::StmtExecute => {
                let kind = ReplyKind::of_execution(body.get(4).copied().unwrap_or_default());
                self.await_reply(
                    kind,
                    MysqlObservedRequest::Execute { id, is_fetch: false, begun_us },
                );
            }
            Command::StmtBulkExecute | Command::StmtFetch => {
                let is_fetch = command == Command::StmtFetch;
                self.await_reply(
                    command.reply(),
                    MysqlObservedRequest::Execute { id, is_fetch, begun_us },
                );
            }
            Command::StmtClose => {
                if let Some(id) = id {
                    let reply = CommandReplyState::new(ReplyKind::None, self.capabilities);
                    self.awaited
                        .push_back(AwaitedReply { reply, note: MysqlObservedRequest::Close(id) });
                    self.close();
                }
            }
            Command::ResetConnection => {
                self.await_reply(command.reply(), MysqlObservedRequest::Reset)
            }
            _ if command.is_without_reply() => {}
            _ => {
                // The link refuses other protocols.
                let kind = command.reply();
                let kind = if kind == ReplyKind::Foreign { ReplyKind::Simple } else { kind };
                self.await_reply(kind, MysqlObservedRequest::Nothing);
            }
        }
    }

    fn await_reply(&mut self, kind: ReplyKind, note: MysqlObservedRequest) {
        self.awaited.push_back(AwaitedReply {
            reply: CommandReplyState::new(kind, self.capabilities),
            note,
        });
    }

    /// Closes the statements at the front of the queue.
    fn close(&mut self) {
        while let Some(AwaitedReply { note: MysqlObservedRequest::Close(id), .. }) =
            self.awaited.front()
        {
            self.statements.remove(id);
            self.awaited.pop_front();
        }
    }

    /// Returns the statement number that a client refers to.
    fn meant(&self, id: Option<u32>) -> Option<u32> {
        if id == Some(LAST_PREPARED) { self.last } else { id }
    }

    /// Returns the answer to the request at the front, if there is one.
    fn answer(&mut self) -> Option<&mut OpenReply> {
        let front = self.awaited.front()?;
        if self.answer.is_none() {
            let before = match &front.note {
                MysqlObservedRequest::Execute { id, is_fetch: true, .. } => {
                    let statement = self.meant(*id).and_then(|id| self.statements.get(&id));
                    statement.map_or(self.stray, |it| it.counts)
                }
                _ => ReplyCounts::default(),
            };
            self.answer = Some(OpenReply { before, ..OpenReply::default() });
        }
        self.answer.as_mut()
    }

    /// Handles a reply.
    fn answered(
        &mut self,
        frame: &ObservedFrame<'_, HEAD>,
        reporter: &ActionReporter,
    ) -> Result<(), GuestViolation> {
        let Some(front) = self.awaited.front_mut() else {
            // A server that shuts down may send an error at any time.
            let is_error = frame.body.first() == Some(&0xFF);
            return if is_error { Ok(()) } else { Err(GuestViolation::Blind) };
        };
        let event = front.reply.packet(frame.body, frame.len).map_err(|_| GuestViolation::Blind)?;
        match event {
            ReplyEvent::Error => {
                let error = ErrPacket::parse(frame.body).map_or_else(
                    || "an error".to_owned(),
                    |error| {
                        let said = String::from_utf8_lossy(error.message);
                        reporter.error(&error.code.to_string(), &said)
                    },
                );
                if let Some(answer) = self.answer() {
                    answer.error = Some(error);
                }
            }
            ReplyEvent::Prepared { id, .. } => {
                let note = std::mem::replace(&mut front.note, MysqlObservedRequest::Nothing);
                if let MysqlObservedRequest::Prepare { text, .. } = note {
                    self.prepared(id, text, reporter);
                }
            }
            _ => {}
        }
        if self.awaited.front().is_some_and(|it| it.reply.is_done()) {
            let answer = self.answer.take().unwrap_or_default();
            if let Some(awaited) = self.awaited.pop_front() {
                self.completed(awaited.note, &answer, reporter);
            }
            self.close();
        }
        Ok(())
    }

    fn prepared(&mut self, id: u32, text: ReportedText, reporter: &ActionReporter) {
        self.last = Some(id);
        self.statements.remove(&id);
        if reporter.ledger.can_remember() {
            self.statements.insert(id, ObservedStatement { text, counts: ReplyCounts::default() });
        } else {
            reporter.forget(&text);
        }
    }

    fn completed(
        &mut self,
        note: MysqlObservedRequest,
        answer: &OpenReply,
        reporter: &ActionReporter,
    ) {
        match note {
            MysqlObservedRequest::Nothing => {}
            // A statement that cannot be prepared is recorded as failed.
            MysqlObservedRequest::Run { text, begun_us }
            | MysqlObservedRequest::Prepare { text, begun_us } => {
                reporter.ended(&text, begun_us, answer);
            }
            MysqlObservedRequest::Execute { id, is_fetch, begun_us } => {
                let all = answer.before.and(answer.counts);
                let id = self.meant(id);
                if let Some(statement) = id.and_then(|id| self.statements.get_mut(&id)) {
                    statement.counts = all;
                    reporter.ended(&statement.text, begun_us, answer);
                } else {
                    if is_fetch {
                        self.stray = all;
                    }
                    reporter.ended(&ReportedText::Missing(UNKNOWN), begun_us, answer);
                }
            }
            MysqlObservedRequest::Close(id) => {
                self.statements.remove(&id);
            }
            MysqlObservedRequest::Reset if answer.error.is_none() => {
                self.statements.clear();
                (self.stray, self.last) = (ReplyCounts::default(), None);
            }
            MysqlObservedRequest::Reset => {}
        }
    }
}
