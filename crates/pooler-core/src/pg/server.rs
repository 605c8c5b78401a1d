//! A server connection's session in the protocol: its outstanding requests, its state, and what has
//! to be done before another client may use it.

use std::sync::Arc;

use wire::pg::exchange::{CopyState, ExchangeRequest, PgExchange, ReplyAudience};
use wire::pg::frame::{HEADER_BYTES, TransactionStatus, frontend, put_header};
use wire::pg::sql::ListenAction;

use super::client::{ClientId, PgPartialMessage};
use super::dirt::SessionDirt;
use super::link::LinkLimits;
use super::link::replay::BatchReplay;
use super::probe::ProbeReader;
use super::settings::{PgSettings, READ_ONLY, ReportedParameters};
use super::statements::{Name, NameId, NameUndo, PgServerStatements, PgStatementId};
use super::texts::PgStatementFacts;
use crate::link::ErrorTally;

/// Why an outstanding request was sent, and what its reply changes.
#[derive(Debug)]
pub(crate) enum PgRequestPurpose {
    /// No effect on the state here.
    Plain,
    /// Runs a text; the facts are taken at the first reply.
    Text(Option<PgStatementFacts>),
    /// Runs a text, or a portal of one, that differs from the text that the client sent.
    Rewritten(Box<RewrittenRequest>),
    /// Sets settings to the values that the client started with, after its `RESET ALL`.
    Restore,
    /// Calls a function by its number; the flag is taken at the first reply.
    Call(bool),
    /// Runs a portal.
    Run,
    /// A `Parse` of a shared statement.
    Prepare { id: PgStatementId, undo: Option<NameUndo> },
    /// A `Parse` of the unnamed statement.
    Unnamed { undo: Option<NameUndo> },
    /// Describes a statement.
    Describe { id: PgStatementId },
    /// Creates a portal, with the statement's identity if it was prepared here. The facts about its
    /// text are taken at the first reply.
    Bind { id: Option<PgStatementId>, facts: Option<PgStatementFacts> },
    /// A `ParseComplete` that is sent locally.
    Prepared { undo: NameUndo },
    /// A `CloseComplete` that is sent locally.
    Closed { undo: Option<NameUndo> },
    /// A request that must fail, so that this error is sent instead.
    Refused(Box<[u8]>),
    /// Sets the settings to those of the attached client.
    Settings,
    /// Probes the state that the client left behind.
    Probe,
    /// Queries connections of dblink.
    Connections,
    /// Ends the transaction of a client that left.
    Rollback,
    /// Clears the sequence values of another client's statements.
    Sequences,
    /// Resets the session.
    Reset,
}

impl PgRequestPurpose {
    /// Returns the request's change of the client's names.
    pub(crate) fn undo(&mut self) -> Option<&mut NameUndo> {
        match self {
            PgRequestPurpose::Prepare { undo, .. }
            | PgRequestPurpose::Unnamed { undo }
            | PgRequestPurpose::Closed { undo } => undo.as_mut(),
            PgRequestPurpose::Prepared { undo } => Some(undo),
            _ => None,
        }
    }

    /// Returns the name that the request changed.
    pub(crate) fn renames(&self) -> Option<Name> {
        match self {
            PgRequestPurpose::Prepare { undo, .. }
            | PgRequestPurpose::Unnamed { undo }
            | PgRequestPurpose::Closed { undo } => undo.as_ref().map(|undo| undo.name),
            PgRequestPurpose::Prepared { undo } => Some(undo.name),
            _ => None,
        }
    }
}

/// Differences between a text as the client sent it and as the server received it.
#[derive(Debug, Default)]
pub(crate) struct TextRewrite {
    /// Subscriptions that it starts or ends.
    pub(crate) actions: Vec<ListenAction>,
    /// Command tags that are not forwarded unchanged.
    pub(crate) tags: Vec<TagChange>,
    /// A text that has to run after it.
    pub(crate) restores: Option<Box<[u8]>>,
}

/// A command tag that the client must not receive.
#[derive(Debug)]
pub(crate) struct TagChange {
    /// Number of the statement in the server's text, from 0.
    pub(crate) statement: usize,
    /// Tag to send instead; `None` if the client did not send that statement.
    pub(crate) shown: Option<&'static str>,
}

/// A request whose text differs from the client's.
#[derive(Debug)]
pub(crate) struct RewrittenRequest {
    /// Further facts about its text; taken at the first reply.
    pub(crate) facts: Option<PgStatementFacts>,
    pub(crate) rewrite: Arc<TextRewrite>,
    /// Number of its completed statements.
    pub(crate) done: usize,
}

impl RewrittenRequest {
    pub(crate) fn note(
        facts: Option<PgStatementFacts>,
        rewrite: Arc<TextRewrite>,
    ) -> PgRequestPurpose {
        PgRequestPurpose::Rewritten(Box::new(RewrittenRequest { facts, rewrite, done: 0 }))
    }
}

/// Facts about a server connection at its start.
#[derive(Debug)]
pub struct PgServerSetup {
    /// Process id.
    pub pid: u32,
    /// Cancel key.
    pub key: Box<[u8]>,
    /// Pool that it belongs to: lessons about texts stay within it.
    pub pool: u32,
    /// User that logged in.
    pub user: Box<str>,
    /// Parameters that the server reported.
    pub parameters: ReportedParameters,
    /// Initial settings, which `RESET` restores: those that the tenant enforces for every client.
    pub settings: Arc<PgSettings>,
    /// Limits and rules of its links.
    pub limits: LinkLimits,
}

/// Cleanup of a server connection whose client left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PgCleanup {
    /// None.
    None,
    /// Waits for replies that are not needed.
    Draining,
    /// The client's transaction is being rolled back.
    RollingBack,
    /// Being reset.
    Resetting,
}

/// Progress of a batch towards the end of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchEnds {
    /// The batch does not end it.
    No,
    /// The next `Execute` may end it.
    Bound,
    /// It may have ended: following requests would run in the next one.
    Run,
}

/// A server connection's side of the protocol.
#[derive(Debug)]
pub struct PgServerSession {
    pub(crate) exchange: PgExchange<PgRequestPurpose>,
    pub(crate) body: PgPartialMessage,
    pub(crate) statements: PgServerStatements,
    /// Settings in addition to the initial ones.
    pub(crate) applied: Arc<PgSettings>,
    /// Initial settings.
    pub(crate) startup: Arc<PgSettings>,
    /// Parameters that the server reports.
    pub(crate) parameters: Arc<ReportedParameters>,
    /// Client that holds it.
    pub(crate) attached: Option<ClientId>,
    /// Client that held it last.
    pub(crate) last_client: Option<ClientId>,
    /// True if requests of the extended protocol were sent since the last `Sync`.
    pub(crate) unsynced: bool,
    /// True if requests after a portal of this batch may have to wait for its result.
    pub(crate) batch_waits: bool,
    /// For a read-only client: progress of the batch towards the end of its transaction.
    pub(crate) batch_ends: BatchEnds,
    /// Number of the batch, which tells whether an error has affected a request.
    pub(crate) batch: u32,
    pub(crate) cleanup: PgCleanup,
    /// True if it must be reset before another client gets it.
    pub(crate) dirty: bool,
    /// State that its client may have left behind.
    pub(crate) dirt: SessionDirt,
    /// The partial answer to a probe.
    pub(crate) answer: Option<Box<ProbeReader>>,
    /// True if its client chose its own `search_path`.
    pub(crate) own_search_path: bool,
    /// True if its client has requests in progress that change settings.
    pub(crate) settings_in_doubt: bool,
    /// True if its client is read-only, and code that no text shows may lift that restriction.
    pub(crate) may_lift: bool,
    /// Number of requests that were sent, and the number at the last change of a name's meaning.
    pushed: u64,
    renamed: u64,
    /// True if the unnamed statement is a text of the attached client that is too long to be kept.
    pub(crate) unseen_unnamed: bool,
    /// True if a transaction may have begun that no `ReadyForQuery` has reported yet.
    pub(crate) may_begin: bool,
    /// The current batch, in case it has to be repeated.
    pub(crate) replay: BatchReplay,
    /// Differences of the last portal's text from the client's, if any.
    pub(crate) portal_rewrite: Option<Arc<TextRewrite>>,
    /// The client's name and the statement of a `DEALLOCATE` in progress.
    pub(crate) deallocating: Option<(NameId, PgStatementId)>,
    /// True if the values of `currval` may be another client's.
    pub(crate) foreign_sequences: bool,
    pub(crate) pool: u32,
    pub(crate) user: Box<str>,
    /// True if the server announced that it closes.
    pub(crate) closing: bool,
    /// Number of `ReadyForQuery` messages that were forwarded.
    pub(crate) queries: u64,
    /// Number of those outside of a transaction.
    pub(crate) transactions: u64,
    /// Errors sent to clients that the relay has not counted yet.
    pub(crate) errors: ErrorTally,
    /// Limits and rules of its links.
    pub(crate) limits: LinkLimits,
    pid: u32,
    key: Box<[u8]>,
}

impl PgServerSession {
    /// Creates the session of a connection that has just logged in.
    pub fn new(setup: PgServerSetup) -> PgServerSession {
        PgServerSession {
            exchange: PgExchange::default(),
            body: PgPartialMessage::default(),
            statements: PgServerStatements::default(),
            applied: setup.settings.clone(),
            startup: setup.settings,
            parameters: Arc::new(setup.parameters),
            attached: None,
            last_client: None,
            unsynced: false,
            batch_ends: BatchEnds::No,
            batch_waits: false,
            batch: 0,
            cleanup: PgCleanup::None,
            dirty: false,
            dirt: SessionDirt::default(),
            answer: None,
            own_search_path: false,
            settings_in_doubt: false,
            may_lift: false,
            pushed: 0,
            renamed: 0,
            unseen_unnamed: false,
            may_begin: false,
            replay: BatchReplay::default(),
            portal_rewrite: None,
            deallocating: None,
            foreign_sequences: false,
            limits: setup.limits,
            pool: setup.pool,
            user: setup.user,
            closing: false,
            queries: 0,
            transactions: 0,
            errors: ErrorTally::default(),
            pid: setup.pid,
            key: setup.key,
        }
    }

    /// Returns whether it may be given to a client: it has none, and nothing is outstanding.
    pub fn is_idle(&self) -> bool {
        self.attached.is_none()
            && self.exchange.is_empty()
            && self.cleanup == PgCleanup::None
            && !self.dirty
            && !self.closing
    }

    /// Returns whether it was started read-only and the server reports changes of that: the report
    /// arrives before the server is ready for the next transaction, whatever code made the change.
    pub(crate) fn reports_read_only(&self) -> bool {
        self.startup.value(READ_ONLY) == Some("on") && self.parameters.value(READ_ONLY).is_some()
    }

    /// Records the reported value of a parameter. A lifted restriction to read-only is noted at
    /// once, so that it is restored before the next request.
    pub(crate) fn reported(&mut self, name: &str, value: &str) {
        let is_news = name == READ_ONLY && self.applied.value(READ_ONLY) != Some(value);
        if is_news && self.reports_read_only() {
            let _room = Arc::make_mut(&mut self.applied).put(READ_ONLY, Some(value));
        }
    }

    /// Returns the client that holds it.
    pub fn client(&self) -> Option<ClientId> {
        self.attached
    }

    /// Returns the client that held it last.
    pub fn last_client(&self) -> Option<ClientId> {
        self.last_client
    }

    /// Returns whether requests of the extended protocol were sent since the last `Sync`.
    pub fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    /// Returns whether the attached client waits for a reply: only then may a cancel request be
    /// sent.
    pub fn has_client_entries(&self) -> bool {
        self.exchange.has_client_entries()
    }

    /// Returns whether the attached client waits for a reply that needs no more input from it:
    /// replies of a batch arrive after its `Sync`.
    pub fn owes_reply(&self) -> bool {
        let awaits_data = matches!(self.exchange.copying(), CopyState::In | CopyState::Both);
        self.has_client_entries() && !awaits_data && !self.unsynced
    }

    /// Returns whether the attached client waits for a reply, has sent a part of a request, or is
    /// in the middle of a batch.
    pub fn is_in_request(&self) -> bool {
        self.has_client_entries() || self.unsynced || self.body.left > 0
    }

    /// Returns its transaction status.
    pub fn status(&self) -> TransactionStatus {
        self.exchange.status()
    }

    /// Returns the server's process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the cancel key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns its settings; a client with equal ones needs no change.
    pub fn settings(&self) -> &Arc<PgSettings> {
        &self.applied
    }

    /// Returns the parameters that the server reports.
    pub fn parameters(&self) -> &Arc<ReportedParameters> {
        &self.parameters
    }

    /// Returns the number of its prepared statements.
    pub fn statement_count(&self) -> usize {
        self.statements.len()
    }

    /// Returns whether the server announced that it closes; the attached client was informed.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Returns the reasons why it stays with its client beyond a transaction, for views.
    pub fn pins(&self) -> impl Iterator<Item = &'static str> {
        self.dirt.pins().names()
    }

    /// Returns the numbers of `ReadyForQuery` messages to clients, in total and outside of a
    /// transaction.
    pub fn counts(&self) -> (u64, u64) {
        (self.queries, self.transactions)
    }

    /// Appends a request of the pooler in the simple protocol.
    pub(crate) fn query(&mut self, text: &[&[u8]], note: PgRequestPurpose, out: &mut Vec<u8>) {
        let bytes: usize = text.iter().map(|part| part.len()).sum();
        out.reserve(bytes + HEADER_BYTES + 1);
        put_header(out, frontend::QUERY, bytes + 1);
        for part in text {
            out.extend_from_slice(part);
        }
        out.push(0);
        self.statements.unnamed = None;
        self.unseen_unnamed = false;
        self.sent(ExchangeRequest::Query, ReplyAudience::Nobody, note);
    }

    /// Appends a call of a server function without arguments.
    pub(crate) fn call(&mut self, function: u32, note: PgRequestPurpose, out: &mut Vec<u8>) {
        // No argument formats, no arguments, and text as the format of the result.
        const NOTHING: [u8; 6] = [0; 6];
        put_header(out, frontend::FUNCTION_CALL, NOTHING.len() + 4);
        out.extend_from_slice(&function.to_be_bytes());
        out.extend_from_slice(&NOTHING);
        self.sent(ExchangeRequest::FunctionCall, ReplyAudience::Nobody, note);
    }

    /// Appends a `Sync`, whose reply is for `audience`.
    pub(crate) fn sync(&mut self, audience: ReplyAudience, out: &mut Vec<u8>) {
        put_header(out, frontend::SYNC, 0);
        self.sent(ExchangeRequest::Sync, audience, PgRequestPurpose::Plain);
    }

    /// Returns whether the meaning of a client's name depends on an earlier batch that may have
    /// failed.
    pub(crate) fn is_uncertain(&self, name: Name) -> bool {
        let answered = self.pushed.saturating_sub(self.exchange.len() as u64);
        if self.renamed <= answered {
            return false;
        }
        let mut earlier = false;
        for entry in self.exchange.iter().rev() {
            if entry.note.renames() == Some(name) {
                return earlier;
            }
            match entry.request {
                // After a text of the simple protocol there is no unnamed statement.
                ExchangeRequest::Query if name.is_none() => return false,
                ExchangeRequest::Query | ExchangeRequest::Sync | ExchangeRequest::FunctionCall => {
                    earlier = true
                }
                _ => {}
            }
        }
        false
    }

    /// Handles a skipped request: the name has its former meaning for later requests. Called for
    /// the last request first. `None`: a later request gave the name another meaning.
    pub(crate) fn rewind(&mut self, undo: NameUndo) -> Option<NameUndo> {
        for entry in self.exchange.iter_mut() {
            if entry.request == ExchangeRequest::Query && undo.name.is_none() {
                return None;
            }
            if let Some(later) = entry.note.undo()
                && later.name == undo.name
            {
                later.before = undo.before;
                return None;
            }
        }
        Some(undo)
    }

    /// Records a request that was appended to the output for the server.
    pub(crate) fn sent(
        &mut self,
        request: ExchangeRequest,
        audience: ReplyAudience,
        note: PgRequestPurpose,
    ) {
        match request {
            ExchangeRequest::Query | ExchangeRequest::Sync | ExchangeRequest::FunctionCall => {
                self.unsynced = false;
                self.batch_ends = BatchEnds::No;
                self.batch_waits = false;
                self.batch = self.batch.wrapping_add(1);
            }
            ExchangeRequest::Local => {}
            _ => self.unsynced = true,
        }
        self.pushed += 1;
        if note.renames().is_some() {
            self.renamed = self.pushed;
        }
        self.exchange.push(request, audience, note);
    }
}
