//! Reading along with PostgreSQL's protocol (version 3.0, chapter "Frontend/Backend Protocol").

use std::collections::HashMap;
use std::sync::Arc;

use wire::pg::exchange::{Audience, Copying, Exchange, Request, Step};
use wire::pg::frame::{HEADER_BYTES, TransactionStatus, backend, frontend, split_string};
use wire::pg::notice::Notice;

use super::frames::{Frame, Frames, Heads};
use super::{Pending, Reporter, Violation};
use crate::guest::TEXT_BYTES_MAX;

/// Names of statements and portals that are remembered; the texts of more are not known.
const NAMES_MAX: usize = 4096;
/// Bytes of a message that may have to be read: a name, and the text.
const KEPT_BYTES_MAX: usize = TEXT_BYTES_MAX + 256;
/// Bytes of an error that are read.
const ERROR_BYTES_MAX: usize = 4096;

/// See [`super::Watch`].
#[derive(Debug, Default)]
pub(super) struct PgWatch {
    from_client: Frames<HEADER_BYTES>,
    to_client: Frames<HEADER_BYTES>,
    follower: Follower,
}

#[derive(Debug, Default)]
struct Follower {
    exchange: Exchange<Option<Pending>>,
    statements: HashMap<Box<[u8]>, Arc<[u8]>>,
    portals: HashMap<Box<[u8]>, Arc<[u8]>>,
}

struct PgHeads;

impl Heads<HEADER_BYTES> for PgHeads {
    fn body_len(head: &[u8; HEADER_BYTES]) -> Option<usize> {
        let [_, len @ ..] = head;
        usize::try_from(u32::from_be_bytes(*len)).ok()?.checked_sub(4)
    }
}

impl PgWatch {
    pub(super) fn sent(&mut self, bytes: &[u8], now_us: u64) {
        let keep = |_: &Follower, head: &[u8; HEADER_BYTES], _| match head[0] {
            frontend::QUERY | frontend::PARSE | frontend::BIND | frontend::EXECUTE => {
                KEPT_BYTES_MAX
            }
            frontend::DESCRIBE | frontend::CLOSE => 256,
            _ => 0,
        };
        // The link has cut the same bytes into messages before.
        let on = |follower: &mut Follower, frame: Frame<'_, HEADER_BYTES>| {
            follower.asked(frame.head[0], frame.body, now_us);
            true
        };
        let _is_stream = self.from_client.feed::<PgHeads, _>(bytes, &mut self.follower, keep, on);
    }

    pub(super) fn received(
        &mut self,
        bytes: &[u8],
        reporter: &mut Reporter,
    ) -> Result<(), (usize, Violation)> {
        let keep = |_: &Follower, head: &[u8; HEADER_BYTES], _| match head[0] {
            backend::ERROR => ERROR_BYTES_MAX,
            backend::READY_FOR_QUERY => 1,
            _ => 0,
        };
        let mut followed = Ok(());
        let on = |follower: &mut Follower, frame: Frame<'_, HEADER_BYTES>| {
            followed = follower.answered(&frame, reporter);
            followed.is_ok()
        };
        let fed = self.to_client.feed::<PgHeads, _>(bytes, &mut self.follower, keep, on);
        fed.map_err(|taken| (taken, followed.err().unwrap_or(Violation::Blind)))
    }

    pub(super) fn take_pending(&mut self) -> Vec<Pending> {
        let exchange = std::mem::take(&mut self.follower.exchange);
        let mut exchange = exchange;
        let mut pending = Vec::new();
        while let Some(entry) = exchange.pop() {
            pending.extend(entry.note);
        }
        pending
    }
}

impl Follower {
    /// The client asks for something.
    fn asked(&mut self, tag: u8, body: &[u8], now_us: u64) {
        let push = |exchange: &mut Exchange<_>, request, pending| {
            exchange.push(request, Audience::Client, pending);
        };
        match tag {
            frontend::QUERY => {
                let text = split_string(body).map_or(body, |(text, _)| text);
                let pending = Pending::new(text.into(), now_us);
                push(&mut self.exchange, Request::Query, Some(pending));
            }
            frontend::FUNCTION_CALL => {
                let pending = Pending::new(b"FunctionCall".as_slice().into(), now_us);
                push(&mut self.exchange, Request::FunctionCall, Some(pending));
            }
            frontend::PARSE => {
                let (name, rest) = split_string(body).unwrap_or((body, &[]));
                let text = split_string(rest).map_or(rest, |(text, _)| text);
                let text: Arc<[u8]> = text.into();
                remember(&mut self.statements, name, Arc::clone(&text));
                // What cannot be parsed is told as a statement that failed.
                push(&mut self.exchange, Request::Parse, Some(Pending::new(text, now_us)));
            }
            frontend::BIND => {
                if let Some((portal, rest)) = split_string(body)
                    && let Some((statement, _)) = split_string(rest)
                {
                    let text = self.statements.get(statement).cloned();
                    remember(&mut self.portals, portal, text.unwrap_or_else(unknown));
                }
                push(&mut self.exchange, Request::Bind, None);
            }
            frontend::EXECUTE => {
                let portal = split_string(body).map_or(body, |(portal, _)| portal);
                let text = self.portals.get(portal).cloned().unwrap_or_else(unknown);
                push(&mut self.exchange, Request::Execute, Some(Pending::new(text, now_us)));
            }
            frontend::DESCRIBE => {
                let is_statement = body.first() == Some(&b'S');
                let of = [Request::DescribePortal, Request::DescribeStatement];
                push(&mut self.exchange, of[usize::from(is_statement)], None);
            }
            frontend::CLOSE => {
                let name = body.get(1..).and_then(split_string).map(|(name, _)| name);
                match (body.first(), name) {
                    (Some(b'S'), Some(name)) => drop(self.statements.remove(name)),
                    (_, Some(name)) => drop(self.portals.remove(name)),
                    (_, None) => {}
                }
                push(&mut self.exchange, Request::Close, None);
            }
            frontend::SYNC => match self.exchange.copying() {
                Copying::In | Copying::Both => self.exchange.copy_sync(),
                Copying::None | Copying::Out => push(&mut self.exchange, Request::Sync, None),
            },
            frontend::COPY_DATA => self.exchange.copy_data(),
            frontend::COPY_DONE | frontend::COPY_FAIL => self.exchange.copy_ended(),
            _ => {}
        }
    }

    /// The client is answered.
    fn answered(
        &mut self,
        frame: &Frame<'_, HEADER_BYTES>,
        reporter: &mut Reporter,
    ) -> Result<(), Violation> {
        let tag = frame.head[0];
        let step = self.exchange.step(tag).map_err(|_| Violation::Blind)?;
        if tag == backend::ERROR {
            let notice = Notice::parse(frame.body);
            let error = reporter.error(notice.code(), &notice.message());
            if let Some(front) = self.exchange.front_mut()
                && let Some(pending) = &mut front.note
            {
                pending.error = Some(error);
            }
        }
        match step {
            Step::Part if matches!(tag, backend::DATA_ROW | backend::COPY_DATA) => {
                if let Some(front) = self.exchange.front_mut()
                    && let Some(pending) = &mut front.note
                {
                    reporter.row(pending, frame.len)?;
                }
            }
            Step::Part | Step::Unasked => {}
            Step::Last => {
                if let Some(entry) = self.exchange.pop()
                    && entry.request != Request::Parse
                    && let Some(pending) = entry.note
                {
                    reporter.ended(&pending);
                }
            }
            Step::Failed => {
                if let Some(pending) = self.exchange.front_mut().and_then(|it| it.note.take()) {
                    reporter.ended(&pending);
                }
                // Those behind it were passed over: they never ran.
                if self.exchange.fail(|_| {}) {
                    self.exchange.push(Request::Sync, Audience::Client, None);
                }
            }
            Step::Ready => {
                let status = frame.body.first().copied();
                let status = status.and_then(TransactionStatus::from_byte);
                let entry = self.exchange.ready(status.ok_or(Violation::Blind)?);
                if let Some(pending) = entry.and_then(|entry| entry.note) {
                    reporter.ended(&pending);
                }
            }
        }
        Ok(())
    }
}

fn remember(names: &mut HashMap<Box<[u8]>, Arc<[u8]>>, name: &[u8], text: Arc<[u8]>) {
    if let Some(known) = names.get_mut(name) {
        *known = text;
    } else if names.len() < NAMES_MAX {
        names.insert(name.into(), text);
    }
}

/// In place of a text that is not known.
fn unknown() -> Arc<[u8]> {
    b"(prepared)".as_slice().into()
}
