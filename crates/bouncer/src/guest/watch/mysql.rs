//! Reading along with MySQL's protocol (its source documentation, page "Command Phase").

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use wire::mysql::capabilities::Capabilities;
use wire::mysql::command::Command;
use wire::mysql::frame::PAYLOAD_MAX;
use wire::mysql::packet::ErrPacket;
use wire::mysql::reply::{Event, HELD_BYTES_MAX, Reply, ReplyKind};

use super::frames::{Frame, Frames, Heads};
use super::{Pending, Reporter, Violation};
use crate::guest::TEXT_BYTES_MAX;

/// Prepared statements that are remembered; the texts of more are not known.
const STATEMENTS_MAX: usize = 4096;
/// Bytes before the payload of a packet.
const HEAD: usize = 4;

/// See [`super::Watch`].
#[derive(Debug)]
pub(super) struct MyWatch {
    from_client: Frames<HEAD>,
    to_client: Frames<HEAD>,
    follower: Follower,
}

#[derive(Debug)]
struct Follower {
    capabilities: Capabilities,
    /// What the client waits for, with what is prepared by it.
    awaited: VecDeque<Awaited>,
    statements: HashMap<u32, Arc<[u8]>>,
    /// The packet before went on in this one.
    is_continued: (bool, bool),
    /// Number of the packet that the client got last.
    seq: u8,
}

#[derive(Debug)]
struct Awaited {
    reply: Reply,
    pending: Option<Pending>,
    prepares: Option<Arc<[u8]>>,
}

struct MyHeads;

impl Heads<HEAD> for MyHeads {
    fn body_len(head: &[u8; HEAD]) -> Option<usize> {
        let [a, b, c, _] = *head;
        usize::try_from(u32::from_le_bytes([a, b, c, 0])).ok()
    }
}

impl MyWatch {
    pub(super) fn new(capabilities: Capabilities) -> MyWatch {
        let follower = Follower {
            capabilities,
            awaited: VecDeque::new(),
            statements: HashMap::new(),
            is_continued: (false, false),
            seq: 0,
        };
        MyWatch { from_client: Frames::default(), to_client: Frames::default(), follower }
    }

    pub(super) fn sent(&mut self, bytes: &[u8], now_us: u64) {
        let keep = |_: &Follower, _: &[u8; HEAD], _| TEXT_BYTES_MAX + 1;
        // The link has cut the same bytes into packets before.
        let on = |follower: &mut Follower, frame: Frame<'_, HEAD>| {
            let goes_on = frame.len >= PAYLOAD_MAX;
            if !std::mem::replace(&mut follower.is_continued.0, goes_on) {
                follower.asked(frame.body, now_us);
            }
            true
        };
        let _is_stream = self.from_client.feed::<MyHeads, _>(bytes, &mut self.follower, keep, on);
    }

    pub(super) fn received(
        &mut self,
        bytes: &[u8],
        reporter: &mut Reporter,
    ) -> Result<(), (usize, Violation)> {
        let keep = |follower: &Follower, head: &[u8; HEAD], first: Option<u8>| {
            let len = MyHeads::body_len(head).unwrap_or_default();
            let front = follower.awaited.front().filter(|_| !follower.is_continued.1);
            let is_whole = |it: &Awaited| it.reply.holds_whole(first.unwrap_or_default(), len);
            if front.is_some_and(is_whole) { HELD_BYTES_MAX } else { 1 }
        };
        let mut followed = Ok(());
        let on = |follower: &mut Follower, frame: Frame<'_, HEAD>| {
            let goes_on = frame.len >= PAYLOAD_MAX;
            follower.seq = frame.head[3];
            if !std::mem::replace(&mut follower.is_continued.1, goes_on) {
                followed = follower.answered(&frame, reporter);
            }
            followed.is_ok()
        };
        let fed = self.to_client.feed::<MyHeads, _>(bytes, &mut self.follower, keep, on);
        fed.map_err(|taken| (taken, followed.err().unwrap_or(Violation::Blind)))
    }

    /// Number of the next packet to the client.
    pub(super) fn next_seq(&self) -> u8 {
        self.follower.seq.wrapping_add(1)
    }

    pub(super) fn take_pending(&mut self) -> Vec<Pending> {
        self.follower.awaited.drain(..).filter_map(|it| it.pending).collect()
    }
}

impl Follower {
    /// The client asks for something.
    fn asked(&mut self, payload: &[u8], now_us: u64) {
        let Some((&first, body)) = payload.split_first() else { return };
        let Some(command) = Command::of(first) else {
            // It is answered with an error.
            return self.await_reply(ReplyKind::Simple, None, None);
        };
        let number = || Some(u32::from_le_bytes(*body.first_chunk::<4>()?));
        let known = |statements: &HashMap<u32, Arc<[u8]>>| {
            let text = number().and_then(|id| statements.get(&id).cloned());
            text.unwrap_or_else(|| b"(prepared)".as_slice().into())
        };
        let pending = |text: Arc<[u8]>| Some(Pending::new(text, now_us));
        match command {
            Command::Query => self.await_reply(ReplyKind::Query, pending(body.into()), None),
            Command::StmtPrepare => {
                // What cannot be prepared is told as a statement that failed.
                let text: Arc<[u8]> = body.into();
                self.await_reply(ReplyKind::Prepare, pending(Arc::clone(&text)), Some(text));
            }
            Command::StmtExecute => {
                let kind = ReplyKind::of_execution(body.get(4).copied().unwrap_or_default());
                let pending = pending(known(&self.statements));
                self.await_reply(kind, pending, None);
            }
            Command::StmtBulkExecute | Command::StmtFetch => {
                let pending = pending(known(&self.statements));
                self.await_reply(command.reply(), pending, None);
            }
            Command::StmtClose => {
                if let Some(id) = number() {
                    self.statements.remove(&id);
                }
            }
            Command::ResetConnection => {
                self.statements.clear();
                self.await_reply(command.reply(), None, None);
            }
            _ if command.is_without_reply() => {}
            _ => self.await_reply(command.reply(), None, None),
        }
    }

    fn await_reply(
        &mut self,
        kind: ReplyKind,
        pending: Option<Pending>,
        prepares: Option<Arc<[u8]>>,
    ) {
        let reply = Reply::new(kind, self.capabilities);
        self.awaited.push_back(Awaited { reply, pending, prepares });
    }

    /// The client is answered.
    fn answered(
        &mut self,
        frame: &Frame<'_, HEAD>,
        reporter: &mut Reporter,
    ) -> Result<(), Violation> {
        let Some(front) = self.awaited.front_mut() else {
            // A server that goes away says so at any time.
            let is_error = frame.body.first() == Some(&0xFF);
            return if is_error { Ok(()) } else { Err(Violation::Blind) };
        };
        let event = front.reply.packet(frame.body, frame.len).map_err(|_| Violation::Blind)?;
        match event {
            Event::Row => {
                if let Some(pending) = &mut front.pending {
                    reporter.row(pending, frame.len)?;
                }
            }
            Event::Error => {
                let error = ErrPacket::parse(frame.body).map_or_else(
                    || "an error".to_owned(),
                    |error| {
                        let said = String::from_utf8_lossy(error.message);
                        reporter.error(&error.code.to_string(), &said)
                    },
                );
                if let Some(pending) = &mut front.pending {
                    pending.error = Some(error);
                }
            }
            Event::Prepared { id, .. } => {
                front.pending = None;
                let text = front.prepares.take();
                if let Some(text) = text
                    && self.statements.len() < STATEMENTS_MAX
                {
                    self.statements.insert(id, text);
                }
            }
            _ => {}
        }
        if self.awaited.front().is_some_and(|it| it.reply.is_done())
            && let Some(pending) = self.awaited.pop_front().and_then(|it| it.pending)
        {
            reporter.ended(&pending);
        }
        Ok(())
    }
}
