//! A batch that is sent again, because a plan that the server kept does not fit any more.
//!
//! A server refuses to run a prepared statement whose result has other columns than when it was
//! prepared ("cached plan must not change result type"). A client that has prepared it long ago, or
//! shares it with others, can do nothing about that; so the statement is prepared anew and the
//! batch is sent once more. That is invisible only if nothing of the batch was done or answered,
//! and if the client asks for the columns before it gets rows: one that does not would read rows of
//! another shape than it knows, and rather wants the error.

use wire::pg::exchange::{Audience, Request};
use wire::pg::frame::frontend;
use wire::pg::notice::Notice;

use crate::pg::client::ClientSession;
use crate::pg::server::{Note, ServerSession};
use crate::pg::statements::{StatementId, write_close, write_parse};

/// Bytes of a batch that are kept; a longer one is not sent again.
pub const REPLAY_BYTES_MAX: usize = 16 * 1024;

/// What was sent of a batch that may be sent again.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    on: bool,
    /// From the first request that runs a statement on; what prepares some before that is done.
    bytes: Vec<u8>,
    /// The batch asks for columns.
    describes: bool,
    /// What goes to the server is of the batch from here on.
    from: usize,
}

impl Replay {
    /// A batch begins, outside of a transaction. `at` is how much goes to the server before it.
    #[inline]
    pub(crate) fn begin(&mut self, at: usize) {
        self.on = true;
        self.bytes.clear();
        self.describes = false;
        self.from = at;
    }

    /// The batch cannot be sent again.
    #[inline]
    pub(crate) fn stop(&mut self) {
        self.on = false;
    }

    /// A request was sent: `sent` is what goes to the server, from `before` on it is the request.
    #[inline]
    pub(super) fn record(&mut self, tag: u8, sent: &[u8], before: usize, whole: bool) {
        let before = before.max(std::mem::take(&mut self.from));
        if !self.on {
            return;
        }
        let Some(request) = sent.get(before..) else { return };
        let first = self.bytes.is_empty();
        match tag {
            frontend::DESCRIBE => self.describes = true,
            frontend::EXECUTE if !self.describes => self.on = false,
            // What prepares statements ahead of all others will have been done.
            frontend::PARSE | frontend::CLOSE | frontend::FLUSH if first => return,
            // A statement was prepared with it: it cannot be an old one.
            frontend::BIND if first && request.first() != Some(&tag) => self.on = false,
            frontend::BIND | frontend::PARSE | frontend::CLOSE | frontend::FLUSH => {}
            frontend::EXECUTE | frontend::SYNC => {}
            _ => self.on = false,
        }
        if first && tag == frontend::DESCRIBE && request.first() != Some(&tag) {
            self.on = false;
        }
        self.on &= whole && self.bytes.len() + request.len() <= REPLAY_BYTES_MAX;
        if self.on {
            self.bytes.extend_from_slice(request);
        }
    }

    /// A request was answered.
    #[inline]
    pub(super) fn answered(&mut self, request: Request) {
        self.on &= matches!(request, Request::Parse | Request::Close | Request::Local);
    }
}

/// The statement whose plan does not fit any more, if this error says so.
pub(super) fn stale(server: &ServerSession, body: &[u8]) -> Option<StatementId> {
    let id = match server.exchange.front()?.note {
        Note::Bind { id, .. } => id?,
        Note::Describe { id } => id,
        _ => return None,
    };
    let notice = Notice::parse(body);
    let says_so = notice.code() == "0A000" && notice.routine() == Some("RevalidateCachedQuery");
    says_so.then_some(id)
}

/// Sends the batch again, if that goes unseen.
pub(super) fn replay(
    client: &ClientSession,
    server: &mut ServerSession,
    id: StatementId,
    schema: u64,
    to_server: &mut Vec<u8>,
) -> bool {
    let Some(statement) = client.statements.by_id(id) else { return false };
    let syncs = server.exchange.iter().filter(|entry| entry.request == Request::Sync).count();
    let ends = server.exchange.iter().next_back().map(|entry| entry.request);
    if !server.replay.on || syncs != 1 || ends != Some(Request::Sync) {
        return false;
    }
    server.replay.stop();
    write_close(to_server, id);
    write_parse(to_server, statement.server_name(), statement);
    to_server.extend_from_slice(&server.replay.bytes);
    if let Some(Note::Bind { facts, .. }) = server.exchange.front_mut().map(|front| &mut front.note)
    {
        *facts = Some(statement.facts.clone());
    }
    let prepare = Note::Prepare { id, undo: None };
    server.exchange.push_front(Request::Parse, Audience::Nobody, prepare);
    server.exchange.push_front(Request::Close, Audience::Nobody, Note::Plain);
    // The failed batch still ends with its own.
    server.exchange.push_front(Request::Sync, Audience::Nobody, Note::Plain);
    server.statements.coming(id, server.batch, schema);
    true
}
