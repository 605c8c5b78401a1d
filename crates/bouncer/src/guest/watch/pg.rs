//! Observation of PostgreSQL's protocol for the audit (version 3.0, chapter "Frontend/Backend
//! Protocol").
//!
//! The meaning of a name changes when the server confirms it, not when the client requests it: a
//! change stays with its request until the reply arrives. So a request that fails or is skipped
//! changes nothing.

use std::collections::HashMap;

use wire::pg::exchange::{
    CopyState, ExchangeEntry, ExchangeRequest, ExchangeStep, PgExchange, ReplyAudience,
};
use wire::pg::frame::{HEADER_BYTES, TransactionStatus, backend, frontend, split_string};
use wire::pg::notice::ServerNotice;

use super::frames::{FrameHandler, FrameSplitter, ObservedFrame, StreamStop};
use super::texts::{CountedBytes, ReportedText, UNKNOWN};
use super::{ActionReporter, GuestViolation, OpenReply, ReplyCounts};

/// Maximum bytes of names that are read.
const NAMES_BYTES_MAX: usize = 1024;
/// Bytes of a portal's name that are significant to the server (`NAMEDATALEN`).
const PORTAL_BYTES_MAX: usize = 63;
/// Maximum bytes of an error that are read.
const ERROR_BYTES_MAX: usize = 4096;
/// Maximum bytes of a command tag that are read.
const COMMAND_BYTES_MAX: usize = 32;

/// See [`super::ConnectionObserver`].
#[derive(Debug, Default)]
pub(super) struct PgWatch {
    from_client: FrameSplitter<HEADER_BYTES>,
    to_client: FrameSplitter<HEADER_BYTES>,
    follower: PgFollower,
}

#[derive(Debug, Default)]
struct PgFollower {
    exchange: PgExchange<PgObservedRequest>,
    statements: HashMap<CountedBytes, ReportedText>,
    portals: HashMap<CountedBytes, ObservedPortal>,
    /// Rows that unknown portals returned since the last transaction ended.
    stray: ReplyCounts,
    /// Reply to the request at the front.
    answer: Option<OpenReply>,
    reading: TextProgress,
}

#[derive(Debug)]
struct ObservedPortal {
    text: ReportedText,
    counts: ReplyCounts,
}

/// Request that is not answered yet. Names that could not be kept are absent.
#[derive(Debug)]
enum PgObservedRequest {
    Nothing,
    Run { text: ReportedText, begun_us: u64 },
    Parse { name: Option<CountedBytes>, text: ReportedText, begun_us: u64 },
    Bind { portal: Option<CountedBytes>, statement: Option<CountedBytes> },
    Execute { portal: Option<CountedBytes>, begun_us: u64 },
    Close { is_statement: bool, name: Option<CountedBytes> },
}

/// Progress in reading the text of a message.
#[derive(Debug, Default)]
struct TextProgress {
    is_begun: bool,
    /// Names before the text that have not ended.
    names: u8,
    is_over: bool,
}

impl PgWatch {
    pub(super) fn sent(&mut self, bytes: &[u8], reporter: &mut ActionReporter) {
        let mut asking = PgRequestFrames { follower: &mut self.follower, reporter };
        // The link has already split the same bytes into messages.
        let _is_stream = self.from_client.feed(bytes, &mut asking);
    }

    pub(super) fn received(
        &mut self,
        bytes: &[u8],
        reporter: &ActionReporter,
    ) -> Result<(), (StreamStop, GuestViolation)> {
        let mut answering =
            PgReplyFrames { follower: &mut self.follower, reporter, violation: None };
        let fed = self.to_client.feed(bytes, &mut answering);
        fed.map_err(|stop| (stop, answering.violation.unwrap_or(GuestViolation::Blind)))
    }

    /// Returns whether the statement with this name is known.
    #[cfg(test)]
    pub(super) fn knows(&self, name: &[u8]) -> bool {
        self.follower.statements.contains_key(name)
    }

    /// Reports the waiting statements, as if they had succeeded so far: no more replies will
    /// arrive.
    pub(super) fn abandon(&mut self, reporter: &ActionReporter, reason: &str) {
        let follower = &mut self.follower;
        let mut is_skipped = false;
        while let Some(entry) = follower.exchange.pop() {
            let mut answer = follower.answer.take().unwrap_or_default();
            answer.error.get_or_insert_with(|| reason.to_owned());
            is_skipped &= entry.request != ExchangeRequest::Sync;
            if is_skipped {
                continue;
            }
            if let PgObservedRequest::Parse { name, text, begun_us } = &entry.note {
                reporter.ended(text, *begun_us, &answer);
                // It will fail, because the name is in use.
                let known = name.as_ref().filter(|it| !it.is_empty());
                is_skipped = known.is_some_and(|it| follower.statements.contains_key(it));
            }
            if !is_skipped {
                follower.completed(entry.note, &answer, reporter);
            }
        }
    }
}

/// Observes bytes from the client.
struct PgRequestFrames<'a> {
    follower: &'a mut PgFollower,
    reporter: &'a mut ActionReporter,
}

impl PgRequestFrames<'_> {
    fn read_text(&mut self, tag: u8, kept: &[u8], more: &[u8]) {
        let reading = &mut self.follower.reading;
        if !reading.is_begun {
            let names = u8::from(tag == frontend::PARSE);
            *reading = TextProgress { is_begun: true, names, is_over: false };
            self.reporter.scribe.begin();
            reading.take(kept, self.reporter);
        }
        reading.take(more, self.reporter);
    }
}

impl TextProgress {
    fn take(&mut self, mut bytes: &[u8], reporter: &mut ActionReporter) {
        while self.names > 0 {
            let Some((_, rest)) = split_string(bytes) else { return };
            self.names -= 1;
            bytes = rest;
        }
        if !self.is_over {
            let text = split_string(bytes).map(|(text, _)| text);
            self.is_over = text.is_some();
            reporter.scribe.feed(text.unwrap_or(bytes));
        }
    }
}

fn body_len(head: &[u8; HEADER_BYTES]) -> Option<usize> {
    let [_, len @ ..] = head;
    usize::try_from(u32::from_be_bytes(*len)).ok()?.checked_sub(4)
}

impl FrameHandler<HEADER_BYTES> for PgRequestFrames<'_> {
    fn body_len(head: &[u8; HEADER_BYTES]) -> Option<usize> {
        body_len(head)
    }

    fn begins(&mut self, head: &[u8; HEADER_BYTES], _: usize, _: Option<u8>) -> Option<usize> {
        self.follower.reading.is_begun = false;
        Some(match head[0] {
            frontend::PARSE | frontend::BIND | frontend::EXECUTE => NAMES_BYTES_MAX,
            frontend::DESCRIBE | frontend::CLOSE => 1 + NAMES_BYTES_MAX,
            _ => 0,
        })
    }

    fn goes_on(&mut self, head: &[u8; HEADER_BYTES], kept: &[u8], more: &[u8]) {
        if matches!(head[0], frontend::QUERY | frontend::PARSE) {
            self.read_text(head[0], kept, more);
        }
    }

    fn ends(&mut self, frame: ObservedFrame<'_, HEADER_BYTES>) -> bool {
        let tag = frame.head[0];
        if matches!(tag, frontend::QUERY | frontend::PARSE) && !self.follower.reading.is_begun {
            self.read_text(tag, frame.body, &[]);
        }
        self.follower.asked(tag, frame.body, self.reporter);
        true
    }
}

/// Observes bytes to the client.
struct PgReplyFrames<'a> {
    follower: &'a mut PgFollower,
    reporter: &'a ActionReporter,
    violation: Option<GuestViolation>,
}

impl FrameHandler<HEADER_BYTES> for PgReplyFrames<'_> {
    fn body_len(head: &[u8; HEADER_BYTES]) -> Option<usize> {
        body_len(head)
    }

    /// Checks limits when a header arrives, before any of the body has passed; only the byte count
    /// is checked later.
    fn begins(&mut self, head: &[u8; HEADER_BYTES], len: usize, _: Option<u8>) -> Option<usize> {
        let tag = head[0];
        // A notification is caused by another client.
        let is_own = !matches!(tag, backend::NOTIFICATION | backend::PARAMETER_STATUS);
        if is_own && let Some(answer) = self.follower.answer() {
            let is_row = matches!(tag, backend::DATA_ROW | backend::COPY_DATA);
            self.violation = self.reporter.count(answer, is_row, HEADER_BYTES + len).err();
        }
        self.violation.is_none().then_some(match tag {
            backend::ERROR => ERROR_BYTES_MAX,
            backend::COMMAND_COMPLETE => COMMAND_BYTES_MAX,
            backend::READY_FOR_QUERY => 1,
            _ => 0,
        })
    }

    fn goes_on(&mut self, _: &[u8; HEADER_BYTES], _: &[u8], _: &[u8]) {}

    fn ends(&mut self, frame: ObservedFrame<'_, HEADER_BYTES>) -> bool {
        self.violation = self.follower.answered(&frame, self.reporter).err();
        self.violation.is_none()
    }
}

impl PgFollower {
    /// Handles a request of the client.
    fn asked(&mut self, tag: u8, body: &[u8], reporter: &mut ActionReporter) {
        let begun_us = reporter.now_us;
        let ledger = &reporter.ledger;
        let (request, note) = match tag {
            frontend::QUERY => {
                (ExchangeRequest::Query, PgObservedRequest::Run { text: reporter.text(), begun_us })
            }
            frontend::FUNCTION_CALL => {
                let text = ReportedText::Missing("FunctionCall");
                (ExchangeRequest::FunctionCall, PgObservedRequest::Run { text, begun_us })
            }
            frontend::PARSE => {
                let name = split_string(body).and_then(|(name, _)| ledger.name(name));
                let text = reporter.text();
                (ExchangeRequest::Parse, PgObservedRequest::Parse { name, text, begun_us })
            }
            frontend::BIND => {
                let statement = split_string(body).and_then(|(_, rest)| split_string(rest));
                let statement = statement.and_then(|(name, _)| ledger.name(name));
                let portal = ledger.name(portal_name(body));
                (ExchangeRequest::Bind, PgObservedRequest::Bind { portal, statement })
            }
            frontend::EXECUTE => {
                let portal = ledger.name(portal_name(body));
                (ExchangeRequest::Execute, PgObservedRequest::Execute { portal, begun_us })
            }
            frontend::DESCRIBE if body.first() == Some(&b'S') => {
                (ExchangeRequest::DescribeStatement, PgObservedRequest::Nothing)
            }
            frontend::DESCRIBE => (ExchangeRequest::DescribePortal, PgObservedRequest::Nothing),
            frontend::CLOSE => {
                let rest = body.get(1..).unwrap_or_default();
                let is_statement = body.first() == Some(&b'S');
                let name = match is_statement {
                    true => split_string(rest).and_then(|(name, _)| ledger.name(name)),
                    false => ledger.name(portal_name(rest)),
                };
                (ExchangeRequest::Close, PgObservedRequest::Close { is_statement, name })
            }
            frontend::SYNC => match self.exchange.copying() {
                CopyState::In | CopyState::Both => return self.exchange.copy_sync(),
                CopyState::None | CopyState::Out => {
                    (ExchangeRequest::Sync, PgObservedRequest::Nothing)
                }
            },
            frontend::COPY_DATA => return self.exchange.copy_data(),
            frontend::COPY_DONE | frontend::COPY_FAIL => return self.exchange.copy_ended(),
            _ => return,
        };
        self.exchange.push(request, ReplyAudience::Client, note);
    }

    /// Returns the answer to the request at the front, if there is one.
    fn answer(&mut self) -> Option<&mut OpenReply> {
        let front = self.exchange.front()?;
        if self.answer.is_none() {
            let before = match &front.note {
                PgObservedRequest::Execute { portal, .. } => {
                    let portal = portal.as_ref().and_then(|it| self.portals.get(it));
                    portal.map_or(self.stray, |portal| portal.counts)
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
        frame: &ObservedFrame<'_, HEADER_BYTES>,
        reporter: &ActionReporter,
    ) -> Result<(), GuestViolation> {
        let tag = frame.head[0];
        let step = self.exchange.step(tag).map_err(|_| GuestViolation::Blind)?;
        if tag == backend::ERROR
            && let Some(answer) = self.answer()
        {
            let notice = ServerNotice::parse(frame.body);
            answer.error = Some(reporter.error(notice.code(), &notice.message()));
        }
        match step {
            ExchangeStep::Part | ExchangeStep::Unasked => {}
            ExchangeStep::Last => {
                let entry = self.exchange.pop();
                self.answer_ended(entry, reporter);
            }
            ExchangeStep::Failed => {
                let answer = self.answer.take().unwrap_or_default();
                if let Some(front) = self.exchange.front_mut() {
                    let note = std::mem::replace(&mut front.note, PgObservedRequest::Nothing);
                    self.failed(&note, &answer, reporter);
                }
                // The server skipped the requests after it; they never ran.
                if self.exchange.fail(|_| {}) {
                    self.exchange.push(
                        ExchangeRequest::Sync,
                        ReplyAudience::Client,
                        PgObservedRequest::Nothing,
                    );
                }
            }
            ExchangeStep::Ready => {
                let status = frame.body.first().copied();
                let status = status.and_then(TransactionStatus::from_byte);
                let entry = self.exchange.ready(status.ok_or(GuestViolation::Blind)?);
                self.answer_ended(entry, reporter);
                if status == Some(TransactionStatus::Idle) {
                    self.portals.clear();
                    self.stray = ReplyCounts::default();
                }
            }
        }
        if tag == backend::COMMAND_COMPLETE {
            self.commanded(frame.body, reporter);
        }
        Ok(())
    }

    fn answer_ended(
        &mut self,
        entry: Option<ExchangeEntry<PgObservedRequest>>,
        reporter: &ActionReporter,
    ) {
        let answer = self.answer.take().unwrap_or_default();
        if let Some(entry) = entry {
            self.completed(entry.note, &answer, reporter);
        }
    }

    /// Handles a request that succeeded, or a simple query that may have failed.
    fn completed(
        &mut self,
        note: PgObservedRequest,
        answer: &OpenReply,
        reporter: &ActionReporter,
    ) {
        match note {
            PgObservedRequest::Nothing => {}
            PgObservedRequest::Run { text, begun_us } => reporter.ended(&text, begun_us, answer),
            PgObservedRequest::Parse { name, text, .. } => self.parsed(name, text, reporter),
            PgObservedRequest::Bind { portal, statement } => {
                self.bound(portal, statement, reporter)
            }
            PgObservedRequest::Execute { portal, begun_us } => {
                self.executed(portal.as_ref(), begun_us, answer, reporter);
            }
            PgObservedRequest::Close { is_statement: true, name: Some(name) } => {
                self.statements.remove(&name);
            }
            PgObservedRequest::Close { is_statement: false, name: Some(name) } => {
                self.portals.remove(&name);
            }
            // Its former meaning is void; keeping the entry does no harm.
            PgObservedRequest::Close { name: None, .. } => {}
        }
    }

    /// Handles a failed request of the extended protocol. Texts that cannot be parsed are recorded,
    /// too.
    fn failed(&mut self, note: &PgObservedRequest, answer: &OpenReply, reporter: &ActionReporter) {
        match note {
            PgObservedRequest::Run { text, begun_us }
            | PgObservedRequest::Parse { text, begun_us, .. } => {
                reporter.ended(text, *begun_us, answer);
            }
            PgObservedRequest::Execute { portal, begun_us } => {
                self.executed(portal.as_ref(), *begun_us, answer, reporter);
            }
            PgObservedRequest::Nothing
            | PgObservedRequest::Bind { .. }
            | PgObservedRequest::Close { .. } => {}
        }
    }

    fn parsed(
        &mut self,
        name: Option<CountedBytes>,
        text: ReportedText,
        reporter: &ActionReporter,
    ) {
        let Some(name) = name else {
            // The statement that it replaced is not known.
            self.forget_statements(reporter);
            return reporter.forget(&text);
        };
        self.statements.remove(&name);
        if name.is_empty() || reporter.ledger.can_remember() {
            self.statements.insert(name, text);
        } else {
            reporter.forget(&text);
        }
    }

    fn bound(
        &mut self,
        portal: Option<CountedBytes>,
        statement: Option<CountedBytes>,
        reporter: &ActionReporter,
    ) {
        if statement.is_none() {
            self.statements.values().for_each(|text| reporter.forget(text));
        }
        let text = statement.and_then(|it| self.statements.get(&it)).cloned();
        let text = text.unwrap_or(ReportedText::Missing(UNKNOWN));
        let Some(name) = portal else {
            self.forget_portals(reporter);
            return reporter.forget(&text);
        };
        self.portals.remove(&name);
        if name.is_empty() || reporter.ledger.can_remember() {
            self.portals.insert(name, ObservedPortal { text, counts: ReplyCounts::default() });
        } else {
            reporter.forget(&text);
        }
    }

    fn executed(
        &mut self,
        portal: Option<&CountedBytes>,
        begun_us: u64,
        answer: &OpenReply,
        reporter: &ActionReporter,
    ) {
        if portal.is_none() {
            self.forget_portals(reporter);
        }
        let all = answer.before.and(answer.counts);
        match portal.and_then(|it| self.portals.get_mut(it)) {
            Some(portal) => {
                portal.counts = all;
                reporter.ended(&portal.text, begun_us, answer);
            }
            None => {
                self.stray = all;
                reporter.ended(&ReportedText::Missing(UNKNOWN), begun_us, answer);
            }
        }
    }

    /// Handles the completion of a command that may change the meaning of names, which SQL uses,
    /// too.
    fn commanded(&mut self, tag: &[u8], reporter: &ActionReporter) {
        let tag = split_string(tag).map_or(tag, |(tag, _)| tag);
        match tag {
            b"PREPARE" | b"DEALLOCATE ALL" | b"DISCARD ALL" => self.forget_statements(reporter),
            b"DEALLOCATE" => self.deallocated(),
            b"DECLARE CURSOR" | b"DO" | b"CALL" => self.forget_portals(reporter),
            _ => {}
        }
    }

    /// Handles a `DEALLOCATE`, which drivers with bounded caches send. If the statement's name was
    /// not observed, its entry takes room and does no harm: the name cannot be reused unobserved.
    fn deallocated(&mut self) {
        if let Some(ExchangeEntry { note: PgObservedRequest::Run { text, .. }, .. }) =
            self.exchange.front()
            && let Some(name) = deallocated_name(text.bytes())
        {
            self.statements.remove(name.as_slice());
        }
    }

    fn forget_statements(&mut self, reporter: &ActionReporter) {
        self.statements.drain().for_each(|(_, text)| reporter.forget(&text));
    }

    /// Forgets the texts of portals, but not the rows that they returned.
    fn forget_portals(&mut self, reporter: &ActionReporter) {
        for portal in self.portals.values_mut() {
            reporter.forget(&portal.text);
            portal.text = ReportedText::Missing(UNKNOWN);
        }
    }
}

/// Returns the name in a text that consists of a single `DEALLOCATE`.
fn deallocated_name(text: &[u8]) -> Option<Vec<u8>> {
    let words = text.split(|byte| *byte == b' ');
    let mut words = words.skip_while(|word| word.eq_ignore_ascii_case(b"DEALLOCATE"));
    let (name, None) = (words.next()?, words.next()) else { return None };
    let name = name.strip_suffix(b";").unwrap_or(name);
    match name.strip_prefix(b"\"") {
        Some(quoted) => quoted.strip_suffix(b"\"").filter(|it| !it.contains(&b'"')).map(Vec::from),
        None => Some(name.to_ascii_lowercase()).filter(|it| !it.contains(&b';')),
    }
}

/// Returns the significant part of a name at the start of `bytes`.
fn portal_name(bytes: &[u8]) -> &[u8] {
    let name = split_string(bytes).map_or(bytes, |(name, _)| name);
    name.get(..PORTAL_BYTES_MAX).unwrap_or(name)
}
