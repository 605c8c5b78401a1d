//! Repetition of a batch after a plan kept by the server no longer fits.
//!
//! A server refuses to run a prepared statement whose result has other columns than when it was
//! prepared ("cached plan must not change result type"). A client that prepared it long ago, or
//! shares it with others, cannot avoid that; so the statement is prepared again and the batch is
//! repeated. That is transparent only if nothing of the batch was executed or answered, and if the
//! client requests the columns before the rows: otherwise it would misread rows with other columns,
//! and the error is preferable.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-EXT-QUERY>

use wire::pg::exchange::{ExchangeRequest, ReplyAudience};
use wire::pg::frame::frontend;
use wire::pg::notice::ServerNotice;

use crate::pg::client::PgClientSession;
use crate::pg::server::{PgRequestPurpose, PgServerSession};
use crate::pg::statements::{PgStatementId, write_close, write_parse};

/// Maximum bytes of a batch that are kept; a longer one is not repeated.
pub const REPLAY_BYTES_MAX: usize = 16 * 1024;

/// Messages of a batch that may be repeated.
#[derive(Debug, Default)]
pub(crate) struct BatchReplay {
    on: bool,
    /// Messages from the first request on that runs a statement; earlier prepares are done.
    bytes: Vec<u8>,
    /// True if the batch requests columns.
    describes: bool,
    /// Offset from which the output belongs to the batch.
    from: usize,
}

impl BatchReplay {
    /// Begins a batch, outside of a transaction. `at` is the length of the output before it.
    #[inline]
    pub(crate) fn begin(&mut self, at: usize) {
        self.on = true;
        self.bytes.clear();
        self.describes = false;
        self.from = at;
    }

    /// Gives up: the batch cannot be repeated.
    #[inline]
    pub(crate) fn stop(&mut self) {
        self.on = false;
    }

    /// Records a request: `sent` is the output for the server, with the request from `before` on.
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
            // Prepares before all other requests will have been done.
            frontend::PARSE | frontend::CLOSE | frontend::FLUSH if first => return,
            // Its statement was prepared in this batch, so it cannot be outdated.
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

    /// Records that a request was answered.
    #[inline]
    pub(super) fn answered(&mut self, request: ExchangeRequest) {
        self.on &= matches!(
            request,
            ExchangeRequest::Parse | ExchangeRequest::Close | ExchangeRequest::Local
        );
    }
}

/// Returns the statement whose plan no longer fits, if this error reports one.
pub(super) fn stale(server: &PgServerSession, body: &[u8]) -> Option<PgStatementId> {
    let id = match server.exchange.front()?.note {
        PgRequestPurpose::Bind { id, .. } => id?,
        PgRequestPurpose::Describe { id } => id,
        _ => return None,
    };
    let notice = ServerNotice::parse(body);
    let says_so = notice.code() == "0A000" && notice.routine() == Some("RevalidateCachedQuery");
    says_so.then_some(id)
}

/// Repeats the batch, if that is transparent.
pub(super) fn replay(
    client: &PgClientSession,
    server: &mut PgServerSession,
    id: PgStatementId,
    schema: u64,
    to_server: &mut Vec<u8>,
) -> bool {
    let Some(statement) = client.statements.by_id(id) else { return false };
    let syncs =
        server.exchange.iter().filter(|entry| entry.request == ExchangeRequest::Sync).count();
    let ends = server.exchange.iter().next_back().map(|entry| entry.request);
    if !server.replay.on || syncs != 1 || ends != Some(ExchangeRequest::Sync) {
        return false;
    }
    server.replay.stop();
    write_close(to_server, id);
    write_parse(to_server, statement.server_name(), statement);
    to_server.extend_from_slice(&server.replay.bytes);
    if let Some(PgRequestPurpose::Bind { facts, .. }) =
        server.exchange.front_mut().map(|front| &mut front.note)
    {
        *facts = Some(statement.facts.clone());
    }
    let prepare = PgRequestPurpose::Prepare { id, undo: None };
    server.exchange.push_front(ExchangeRequest::Parse, ReplyAudience::Nobody, prepare);
    server.exchange.push_front(
        ExchangeRequest::Close,
        ReplyAudience::Nobody,
        PgRequestPurpose::Plain,
    );
    // The failed batch still ends with its own `Sync`.
    server.exchange.push_front(
        ExchangeRequest::Sync,
        ReplyAudience::Nobody,
        PgRequestPurpose::Plain,
    );
    server.statements.coming(id, server.batch, schema);
    true
}
