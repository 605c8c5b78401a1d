//! The outstanding requests of a server connection.
//!
//! A server replies in order, so a queue determines the request of each reply: the front entry owns
//! every message up to the one that ends its reply. Entries are a client's, or were inserted by the
//! relay; replies to the latter are dropped. Each entry carries a note of its owner.
//!
//! It is more than a queue:
//! - After an error in the extended protocol the server skips everything up to the next `Sync`;
//!   those entries never get a reply ([`PgExchange::fail`]).
//! - During `COPY … FROM STDIN` the server reads data instead of requests, and skips `Sync`.
//! - A relay may answer some requests itself. Such a *local* entry waits for its turn.
//!
//! Source: PostgreSQL 18, "Message Flow", and `tcop/postgres.c` and `commands/copyfromparse.c` for
//! details that the documentation omits.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/protocol-flow.html>

use std::collections::VecDeque;

use crate::pg::frame::{TransactionStatus, backend};

/// Maximum outstanding requests. A client that pipelines more is not read meanwhile.
pub const OUTSTANDING_MAX: usize = 16 * 1024;

/// Kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeRequest {
    /// A text in the simple protocol; ends with `ReadyForQuery`.
    Query,
    /// Prepare a statement.
    Parse,
    /// Create a portal.
    Bind,
    /// Parameters and columns of a statement.
    DescribeStatement,
    /// Columns of a portal.
    DescribePortal,
    /// Run a portal.
    Execute,
    /// Close a statement or portal.
    Close,
    /// End of a batch; ends with `ReadyForQuery`.
    Sync,
    /// A function call; ends with `ReadyForQuery`.
    FunctionCall,
    /// Answered by the relay itself at its turn.
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
    /// Note of its owner.
    pub note: N,
}

/// State of a `COPY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyState {
    /// None in progress.
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
    /// Belongs to no request: a notice, a notification, a parameter, or an error outside of any
    /// request.
    Unasked,
    /// Belongs to the reply and is not its end.
    Part,
    /// Ends the reply: [`PgExchange::pop`] must be called.
    Last,
    /// An error after which the server skips everything up to the next `Sync`: [`PgExchange::fail`]
    /// must be called.
    Failed,
    /// `ReadyForQuery`, which ends the reply: [`PgExchange::ready`] must be called.
    Ready,
}

/// The server violated the protocol: the stream cannot be trusted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// A message that is not a possible reply to the front request.
    #[error("the server sent a message of type {tag:#04x} in reply to {request:?}")]
    Unexpected {
        /// The message's first byte.
        tag: u8,
        /// The request at the front.
        request: ExchangeRequest,
    },
    /// A message without an outstanding request.
    #[error("the server sent a message of type {tag:#04x} unasked")]
    Unasked {
        /// The message's first byte.
        tag: u8,
    },
}

/// The queue, the transaction status, and the effects of `COPY` and errors on them.
#[derive(Debug)]
pub struct PgExchange<N> {
    entries: VecDeque<ExchangeEntry<N>>,
    /// Entries whose reply a client awaits.
    client_entries: usize,
    status: TransactionStatus,
    copying: CopyState,
    /// True if the client sent a `Sync` while the server read data; see [`PgExchange::copy_sync`].
    copy_synced: bool,
    /// True if an extended request failed and no `Sync` has been sent since.
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
    /// Returns whether every reply has arrived.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of outstanding requests.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no more requests may be sent before replies arrive.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.entries.len() >= OUTSTANDING_MAX
    }

    /// Returns whether a client waits for a reply.
    #[inline]
    pub fn has_client_entries(&self) -> bool {
        self.client_entries > 0
    }

    /// Returns the transaction status of the last `ReadyForQuery`.
    #[inline]
    pub fn status(&self) -> TransactionStatus {
        self.status
    }

    /// Returns the state of a `COPY`.
    #[inline]
    pub fn copying(&self) -> CopyState {
        self.copying
    }

    /// Returns whether the server skips everything until a `Sync` that was not sent yet.
    #[inline]
    pub fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// Returns the request whose reply is next.
    #[inline]
    pub fn front(&self) -> Option<&ExchangeEntry<N>> {
        self.entries.front()
    }

    /// Returns the request whose reply is next, for changes of its note.
    #[inline]
    pub fn front_mut(&mut self) -> Option<&mut ExchangeEntry<N>> {
        self.entries.front_mut()
    }

    /// Returns all outstanding requests, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &ExchangeEntry<N>> {
        self.entries.iter()
    }

    /// Returns all outstanding requests, in order, for changes of their notes.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut ExchangeEntry<N>> {
        self.entries.iter_mut()
    }

    /// Adds a request that was sent, or is answered locally. An [`ExchangeRequest::Local`] entry at
    /// the front is due now: [`PgExchange::pop_local`] must be called, at the latest before the
    /// next [`PgExchange::step`].
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

    /// Adds a request whose reply precedes all others: those failed, and are sent again after it.
    pub fn push_front(&mut self, request: ExchangeRequest, audience: ReplyAudience, note: N) {
        if audience == ReplyAudience::Client {
            self.client_entries += 1;
        }
        self.entries.push_front(ExchangeEntry { request, audience, note });
    }

    /// Returns the role of a server's message with this tag, and tracks `COPY`.
    ///
    /// # Errors
    /// If the message is invalid at this point; the connection must be closed.
    #[inline]
    pub fn step(&mut self, tag: u8) -> Result<ExchangeStep, ExchangeError> {
        if matches!(tag, backend::NOTICE | backend::NOTIFICATION | backend::PARAMETER_STATUS) {
            return Ok(ExchangeStep::Unasked);
        }
        let Some(front) = self.entries.front() else {
            // A server that shuts down may send an error at any time.
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

    /// Removes the front entry, whose reply has ended.
    #[inline]
    pub fn pop(&mut self) -> Option<ExchangeEntry<N>> {
        let entry = self.entries.pop_front()?;
        if entry.audience == ReplyAudience::Client {
            self.client_entries -= 1;
        }
        Some(entry)
    }

    /// Handles a `ReadyForQuery` with this status: the front entry's reply has ended.
    #[inline]
    pub fn ready(&mut self, status: TransactionStatus) -> Option<ExchangeEntry<N>> {
        self.status = status;
        self.copying = CopyState::None;
        self.copy_synced = false;
        self.pop()
    }

    /// Removes the next entry, if it is local and its turn has come.
    #[inline]
    pub fn pop_local(&mut self) -> Option<ExchangeEntry<N>> {
        if self.entries.front()?.request == ExchangeRequest::Local { self.pop() } else { None }
    }

    /// Returns whether only local entries are outstanding.
    #[inline]
    pub fn is_local(&self) -> bool {
        self.entries.iter().all(|entry| entry.request == ExchangeRequest::Local)
    }

    /// Handles the failure of the front entry: it and everything up to the next `Sync` are removed
    /// without a reply, the last first, so that their changes can be undone in order.
    ///
    /// Returns whether the client has already sent the `Sync` for which the server waits, but it
    /// was taken for one within a `COPY`: the relay must then send one.
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

    /// Records that the client's `CopyDone` or `CopyFail` was sent.
    pub fn copy_ended(&mut self) {
        self.copying = match self.copying {
            CopyState::Both => CopyState::Out,
            CopyState::None | CopyState::In | CopyState::Out => CopyState::None,
        };
        self.copy_synced = false;
    }

    /// Records a `Sync` of the client while the server reads data and would skip it; it was not
    /// sent, because after an error in progress the server would answer it.
    pub fn copy_sync(&mut self) {
        self.copy_synced = true;
    }

    /// Records that the client's data was sent: the server has skipped a `Sync` before it.
    #[inline]
    pub fn copy_data(&mut self) {
        self.copy_synced = false;
    }

    /// Records the departure of the client: its replies are dropped.
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
                // The server now reads the data after the request first: it skips each `Sync`. (Not
                // if it fails before it reads anything, which is why a relay sends nothing after a
                // request that may copy.)
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

/// The grammar of replies, except for errors and unsolicited messages.
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
