//! The requests that a server was sent and has not answered yet.
//!
//! A server answers in order, so that a queue says to whom each reply belongs: the front entry owns
//! every message until the one that ends its reply. Entries are a client's, or nobody's: requests
//! that a relay put in between, whose replies are dropped. Each carries a note of its owner's.
//!
//! What makes this more than a queue:
//! - After an error in the extended protocol the server passes over everything up to the next
//!   `Sync`; those entries never get a reply ([`PgExchange::fail`]).
//! - During `COPY … FROM STDIN` the server reads data instead of requests, and passes over `Sync`.
//! - A relay may answer some requests by itself. Such a *local* entry waits for its turn.
//!
//! Source: PostgreSQL 18, "Message Flow", and what `tcop/postgres.c` and `commands/copyfromparse.c`
//! do where the text is silent.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/protocol-flow.html>

use std::collections::VecDeque;

use crate::pg::frame::{TransactionStatus, backend};

/// Entries that may wait for replies at once. A client that pipelines more is not read meanwhile.
pub const OUTSTANDING_MAX: usize = 16 * 1024;

/// Kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeRequest {
    /// A text in the simple protocol; ends with `ReadyForQuery`.
    Query,
    /// Prepare a statement.
    Parse,
    /// Make a portal.
    Bind,
    /// Parameters and columns of a statement.
    DescribeStatement,
    /// Columns of a portal.
    DescribePortal,
    /// Run a portal.
    Execute,
    /// Forget a statement or portal.
    Close,
    /// End of a batch; ends with `ReadyForQuery`.
    Sync,
    /// A function call; ends with `ReadyForQuery`.
    FunctionCall,
    /// Answered by the relay itself when its turn comes.
    Local,
}

impl ExchangeRequest {
    /// Returns whether the reply ends with `ReadyForQuery`, so that an error in it skips nothing.
    const fn ends_ready(self) -> bool {
        matches!(self, Self::Query | Self::Sync | Self::FunctionCall)
    }
}

/// Recipient of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyAudience {
    /// The attached client.
    Client,
    /// No recipient: the reply is dropped.
    Nobody,
}

/// An outstanding request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeEntry<N> {
    /// Kind of request.
    pub request: ExchangeRequest,
    /// Recipient of the reply.
    pub audience: ReplyAudience,
    /// Note of the owner, kept with the request.
    pub note: N,
}

/// State of a `COPY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyState {
    /// None is going on.
    #[default]
    None,
    /// The server reads data.
    In,
    /// The server sends data.
    Out,
    /// Both; replication.
    Both,
}

/// Role of a server's message for the front entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeStep {
    /// Part of no request: a notice, a notification, a parameter, or an error outside of any
    /// request.
    Unasked,
    /// Belongs to the reply and is not its end.
    Part,
    /// Ends the reply: [`PgExchange::pop`] is due.
    Last,
    /// An error after which the server passes over everything up to the next `Sync`:
    /// [`PgExchange::fail`] is due.
    Failed,
    /// `ReadyForQuery`, which ends the reply: [`PgExchange::ready`] is due.
    Ready,
}

/// The server said what cannot follow: the stream cannot be trusted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// A message that the front request cannot have as a reply.
    #[error("the server sent a message of type {tag:#04x} in reply to {request:?}")]
    Unexpected {
        /// The message's first byte.
        tag: u8,
        /// The request at the front.
        request: ExchangeRequest,
    },
    /// A message while nothing was asked.
    #[error("the server sent a message of type {tag:#04x} unasked")]
    Unasked {
        /// The message's first byte.
        tag: u8,
    },
}

/// The queue, the state of the transaction, and what `COPY` and errors make of them.
#[derive(Debug)]
pub struct PgExchange<N> {
    entries: VecDeque<ExchangeEntry<N>>,
    /// Entries whose reply a client waits for.
    client_entries: usize,
    status: TransactionStatus,
    copying: CopyState,
    /// A `Sync` came from the client while the server read data; see [`PgExchange::copy_sync`].
    copy_synced: bool,
    /// An extended request failed and no `Sync` has been sent since.
    skipping: bool,
}

impl<N> Default for PgExchange<N> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            client_entries: 0,
            status: TransactionStatus::Idle,
            copying: CopyState::None,
            copy_synced: false,
            skipping: false,
        }
    }
}

impl<N> PgExchange<N> {
    /// Returns whether every reply has come.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns how many requests have no reply yet.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no more requests may be sent before replies come.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.entries.len() >= OUTSTANDING_MAX
    }

    /// Returns whether a client waits for a reply.
    #[inline]
    pub fn has_client_entries(&self) -> bool {
        self.client_entries > 0
    }

    /// The state of the transaction when the last `ReadyForQuery` came.
    #[inline]
    pub fn status(&self) -> TransactionStatus {
        self.status
    }

    /// Returns where a `COPY` stands.
    #[inline]
    pub fn copying(&self) -> CopyState {
        self.copying
    }

    /// Returns whether the server passes over everything until a `Sync` that nobody has sent yet.
    #[inline]
    pub fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// The request whose reply comes next.
    #[inline]
    pub fn front(&self) -> Option<&ExchangeEntry<N>> {
        self.entries.front()
    }

    /// Returns the request whose reply comes next, to change its note.
    #[inline]
    pub fn front_mut(&mut self) -> Option<&mut ExchangeEntry<N>> {
        self.entries.front_mut()
    }

    /// All outstanding requests, the next reply's first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &ExchangeEntry<N>> {
        self.entries.iter()
    }

    /// Returns all outstanding requests, the next reply's first, to change their notes.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut ExchangeEntry<N>> {
        self.entries.iter_mut()
    }

    /// A request was sent, or is to be answered here. The turn of a [`ExchangeRequest::Local`] one
    /// at the front is now: [`PgExchange::pop_local`] is due, at the latest before the next
    /// [`PgExchange::step`].
    #[inline]
    pub fn push(&mut self, request: ExchangeRequest, audience: ReplyAudience, note: N) {
        if request == ExchangeRequest::Sync {
            self.skipping = false;
        }
        if audience == ReplyAudience::Client {
            self.client_entries += 1;
        }
        self.entries.push_back(ExchangeEntry { request, audience, note });
    }

    /// A request was sent whose reply comes before all others: they failed, and are sent again
    /// behind it.
    pub fn push_front(&mut self, request: ExchangeRequest, audience: ReplyAudience, note: N) {
        if audience == ReplyAudience::Client {
            self.client_entries += 1;
        }
        self.entries.push_front(ExchangeEntry { request, audience, note });
    }

    /// Says what a message of the server with this tag is, and follows `COPY`.
    ///
    /// # Errors
    /// The message cannot come now; the connection is to be closed.
    #[inline]
    pub fn step(&mut self, tag: u8) -> Result<ExchangeStep, ExchangeError> {
        if matches!(tag, backend::NOTICE | backend::NOTIFICATION | backend::PARAMETER_STATUS) {
            return Ok(ExchangeStep::Unasked);
        }
        let Some(front) = self.entries.front() else {
            // A server that goes away says so at any time.
            return match tag {
                backend::ERROR => Ok(ExchangeStep::Unasked),
                _ => Err(ExchangeError::Unasked { tag }),
            };
        };
        let request = front.request;
        if tag == backend::ERROR {
            self.copying = CopyState::None;
            return Ok(if request.ends_ready() {
                ExchangeStep::Part
            } else {
                ExchangeStep::Failed
            });
        }
        reply(request, tag)
            .inspect(|step| {
                if matches!(request, ExchangeRequest::Query | ExchangeRequest::Execute) {
                    self.follow_copy(tag, *step);
                }
            })
            .ok_or(ExchangeError::Unexpected { tag, request })
    }

    /// The front entry's reply has ended.
    #[inline]
    pub fn pop(&mut self) -> Option<ExchangeEntry<N>> {
        let entry = self.entries.pop_front()?;
        if entry.audience == ReplyAudience::Client {
            self.client_entries -= 1;
        }
        Some(entry)
    }

    /// `ReadyForQuery` came, with this state: the front entry's reply has ended.
    #[inline]
    pub fn ready(&mut self, status: TransactionStatus) -> Option<ExchangeEntry<N>> {
        self.status = status;
        self.copying = CopyState::None;
        self.copy_synced = false;
        self.pop()
    }

    /// The next entry, if it is local and its turn has come.
    #[inline]
    pub fn pop_local(&mut self) -> Option<ExchangeEntry<N>> {
        if self.entries.front()?.request == ExchangeRequest::Local { self.pop() } else { None }
    }

    /// Returns whether nothing is outstanding but what is answered here.
    #[inline]
    pub fn is_local(&self) -> bool {
        self.entries.iter().all(|entry| entry.request == ExchangeRequest::Local)
    }

    /// The front entry failed: it and everything up to the next `Sync` leave the queue without a
    /// reply, the last first, so that what they changed can be undone in order.
    ///
    /// Returns whether the client has sent the `Sync` that the server now waits for, but it was
    /// taken for one within a `COPY`: the relay owes the server one.
    pub fn fail(&mut self, mut dropped: impl FnMut(ExchangeEntry<N>)) -> bool {
        let sync = self.entries.iter().position(|entry| entry.request == ExchangeRequest::Sync);
        let count = sync.unwrap_or(self.entries.len());
        for entry in self.entries.drain(..count).rev() {
            if entry.audience == ReplyAudience::Client {
                self.client_entries -= 1;
            }
            dropped(entry);
        }
        self.skipping = sync.is_none();
        let owed = self.skipping && self.copy_synced;
        self.copy_synced = false;
        owed
    }

    /// The client's `CopyDone` or `CopyFail` was sent.
    pub fn copy_ended(&mut self) {
        self.copying = match self.copying {
            CopyState::Both => CopyState::Out,
            CopyState::None | CopyState::In | CopyState::Out => CopyState::None,
        };
        self.copy_synced = false;
    }

    /// A `Sync` came from the client while the server reads data and would pass over it; it was not
    /// sent, because an error that is under way would make the server answer it after all.
    pub fn copy_sync(&mut self) {
        self.copy_synced = true;
    }

    /// The client's data was sent: the server has passed over a `Sync` before it.
    #[inline]
    pub fn copy_data(&mut self) {
        self.copy_synced = false;
    }

    /// The client is gone: its replies are nobody's.
    pub fn orphan(&mut self) {
        for entry in &mut self.entries {
            entry.audience = ReplyAudience::Nobody;
        }
        self.client_entries = 0;
    }

    fn follow_copy(&mut self, tag: u8, step: ExchangeStep) {
        match (tag, step) {
            (backend::COPY_IN, _) => {
                self.copying = CopyState::In;
                // The first thing that the server reads now is what followed the request: it
                // passes over each Sync. (It does not if it fails before it reads anything, which
                // is why a relay sends nothing behind a request that may copy.)
                while self.entries.get(1).is_some_and(|next| next.request == ExchangeRequest::Sync)
                {
                    if let Some(sync) = self.entries.remove(1)
                        && sync.audience == ReplyAudience::Client
                    {
                        self.client_entries -= 1;
                    }
                }
            }
            (backend::COPY_OUT, _) => self.copying = CopyState::Out,
            (backend::COPY_BOTH, _) => self.copying = CopyState::Both,
            (backend::COMMAND_COMPLETE, _) | (_, ExchangeStep::Last) => {
                self.copying = CopyState::None
            }
            _ => {}
        }
    }
}

/// The grammar of replies, but for errors and what comes unasked.
#[inline]
fn reply(request: ExchangeRequest, tag: u8) -> Option<ExchangeStep> {
    use backend as b;
    match (request, tag) {
        (
            ExchangeRequest::Query | ExchangeRequest::Sync | ExchangeRequest::FunctionCall,
            b::READY_FOR_QUERY,
        ) => Some(ExchangeStep::Ready),
        (
            ExchangeRequest::Query | ExchangeRequest::Execute,
            b::DATA_ROW | b::COPY_IN | b::COPY_OUT | b::COPY_BOTH | b::COPY_DATA | b::COPY_DONE,
        )
        | (ExchangeRequest::Query, b::ROW_DESCRIPTION | b::COMMAND_COMPLETE | b::EMPTY_QUERY)
        | (ExchangeRequest::DescribeStatement, b::PARAMETER_DESCRIPTION)
        | (ExchangeRequest::FunctionCall, b::FUNCTION_CALL_RESPONSE) => Some(ExchangeStep::Part),
        (ExchangeRequest::Parse, b::PARSE_COMPLETE)
        | (ExchangeRequest::Bind, b::BIND_COMPLETE)
        | (ExchangeRequest::Close, b::CLOSE_COMPLETE)
        | (
            ExchangeRequest::DescribeStatement | ExchangeRequest::DescribePortal,
            b::ROW_DESCRIPTION | b::NO_DATA,
        )
        | (ExchangeRequest::Execute, b::COMMAND_COMPLETE | b::EMPTY_QUERY)
        | (ExchangeRequest::Execute, b::PORTAL_SUSPENDED) => Some(ExchangeStep::Last),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
