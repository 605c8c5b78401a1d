//! A server connection's session, as far as the protocol goes: what is outstanding, what it has,
//! and what has to happen before somebody else may have it.

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
    /// Runs a text; taken when the first reply comes.
    Text(Option<PgStatementFacts>),
    /// Runs a text, or a portal of one, that is not the one which the client sent.
    Rewritten(Box<RewrittenRequest>),
    /// Gives settings the values that the client started with, behind its `RESET ALL`.
    Restore,
    /// Calls a function by its number; taken when the first reply comes.
    Call(bool),
    /// Runs a portal.
    Run,
    /// A `Parse` of a shared statement.
    Prepare { id: PgStatementId, undo: Option<NameUndo> },
    /// A `Parse` of the statement without a name.
    Unnamed { undo: Option<NameUndo> },
    /// Describes a statement.
    Describe { id: PgStatementId },
    /// Makes a portal, of this statement if it is one that was prepared here. What its text does is
    /// taken when the first reply comes.
    Bind { id: Option<PgStatementId>, facts: Option<PgStatementFacts> },
    /// `ParseComplete`, said here.
    Prepared { undo: NameUndo },
    /// `CloseComplete`, said here.
    Closed { undo: Option<NameUndo> },
    /// A request that must fail, so that this error can be given in its place.
    Refused(Box<[u8]>),
    /// Makes the settings those of the attached client.
    Settings,
    /// Asks what the client left behind.
    Probe,
    /// Asks for connections of dblink.
    Connections,
    /// Ends the transaction of a client that left.
    Rollback,
    /// Takes the values of sequences away that another client's statements gave.
    Sequences,
    /// Brings everything back to how it was.
    Reset,
}

impl PgRequestPurpose {
    /// Returns what the request changed in the client's names.
    pub(crate) fn undo(&mut self) -> Option<&mut NameUndo> {
        match self {
            PgRequestPurpose::Prepare { undo, .. }
            | PgRequestPurpose::Unnamed { undo }
            | PgRequestPurpose::Closed { undo } => undo.as_mut(),
            PgRequestPurpose::Prepared { undo } => Some(undo),
            _ => None,
        }
    }

    /// The name that the request changed.
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

/// Differences between a text as the client sent it and as the server has it.
#[derive(Debug, Default)]
pub(crate) struct TextRewrite {
    /// Channels that it begins or ends listening to.
    pub(crate) actions: Vec<ListenAction>,
    /// Command tags that are not passed as they are.
    pub(crate) tags: Vec<TagChange>,
    /// A text that has to run behind it.
    pub(crate) restores: Option<Box<[u8]>>,
}

/// A command tag that the client is not to see.
#[derive(Debug)]
pub(crate) struct TagChange {
    /// Number of the statement in the server's text, from 0.
    pub(crate) statement: usize,
    /// In its place; none if the client did not send that statement.
    pub(crate) shown: Option<&'static str>,
}

/// A request whose text is not the client's.
#[derive(Debug)]
pub(crate) struct RewrittenRequest {
    /// Further facts about its text; taken when the first reply comes.
    pub(crate) facts: Option<PgStatementFacts>,
    pub(crate) rewrite: Arc<TextRewrite>,
    /// Statements of it that are done.
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
    /// The number of its process.
    pub pid: u32,
    /// Cancel key.
    pub key: Box<[u8]>,
    /// Pool that it belongs to: what is learnt about texts stays within.
    pub pool: u32,
    /// User that logged in.
    pub user: Box<str>,
    /// The parameters it reported.
    pub parameters: ReportedParameters,
    /// The settings it was started with, which `RESET` brings back: those that the tenant demands
    /// of every client.
    pub settings: Arc<PgSettings>,
    /// Limits and rules of its links.
    pub limits: LinkLimits,
}

/// Cleanup of a server connection whose client left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PgCleanup {
    /// None.
    None,
    /// Replies that nobody wants are still to come.
    Draining,
    /// The client's transaction is being rolled back.
    RollingBack,
    /// Being reset.
    Resetting,
}

/// Progress of a batch towards the end of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchEnds {
    /// No end in it.
    No,
    /// Ended perhaps by what would be executed next.
    Bound,
    /// Ended perhaps: what followed would run in the next one.
    Run,
}

/// A server connection's side of the protocol.
#[derive(Debug)]
pub struct PgServerSession {
    pub(crate) exchange: PgExchange<PgRequestPurpose>,
    pub(crate) body: PgPartialMessage,
    pub(crate) statements: PgServerStatements,
    /// Settings on top of what the session started with.
    pub(crate) applied: Arc<PgSettings>,
    /// The settings it started with.
    pub(crate) startup: Arc<PgSettings>,
    /// The parameters it reports.
    pub(crate) parameters: Arc<ReportedParameters>,
    /// Client that holds it.
    pub(crate) attached: Option<ClientId>,
    /// Client that held it last.
    pub(crate) last_client: Option<ClientId>,
    /// Requests of the extended protocol were sent since the last `Sync`.
    pub(crate) unsynced: bool,
    /// True if what follows a portal of this batch may have to wait for its result.
    pub(crate) batch_waits: bool,
    /// True if the batch has the end of its transaction, of a client that may only read.
    pub(crate) batch_ends: BatchEnds,
    /// Counts batches, so that an error is known to have spoilt a request.
    pub(crate) batch: u32,
    pub(crate) cleanup: PgCleanup,
    /// True if it must be reset before another client gets it.
    pub(crate) dirty: bool,
    /// State that its client may have left behind.
    pub(crate) dirt: SessionDirt,
    /// The answer to a question about that, as far as it has come.
    pub(crate) answer: Option<Box<ProbeReader>>,
    /// True if its client chose its own `search_path`.
    pub(crate) own_search_path: bool,
    /// True if its client has requests under way that change settings.
    pub(crate) settings_in_doubt: bool,
    /// True if its client may only read, and code that no text shows may run that allows it more.
    pub(crate) may_lift: bool,
    /// Requests that were sent, and how many when a name was given a meaning last.
    pushed: u64,
    renamed: u64,
    /// The statement without a name is a text of the attached client that is too long to be kept.
    pub(crate) unseen_unnamed: bool,
    /// A transaction may have begun that no `ReadyForQuery` told of yet.
    pub(crate) may_begin: bool,
    /// The batch under way, for the case that it has to be sent again.
    pub(crate) replay: BatchReplay,
    /// The last portal's text is not the client's.
    pub(crate) portal_rewrite: Option<Arc<TextRewrite>>,
    /// The client's name and the statement that a `DEALLOCATE` under way is about.
    pub(crate) deallocating: Option<(NameId, PgStatementId)>,
    /// The values that `currval` gives may be another client's.
    pub(crate) foreign_sequences: bool,
    pub(crate) pool: u32,
    pub(crate) user: Box<str>,
    /// True if it announced that it is about to close.
    pub(crate) closing: bool,
    /// `ReadyForQuery` was passed on this often.
    pub(crate) queries: u64,
    /// Number of these outside of a transaction.
    pub(crate) transactions: u64,
    /// Errors that clients got and that the relay has not counted yet.
    pub(crate) errors: ErrorTally,
    /// Limits and rules of its links.
    pub(crate) limits: LinkLimits,
    pid: u32,
    key: Box<[u8]>,
}

impl PgServerSession {
    /// A connection that has logged in, clean.
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

    /// Returns whether it may be given to a client: nobody has it, and nothing is outstanding.
    pub fn is_idle(&self) -> bool {
        self.attached.is_none()
            && self.exchange.is_empty()
            && self.cleanup == PgCleanup::None
            && !self.dirty
            && !self.closing
    }

    /// Returns whether it was started to read only, and tells when that changes: before it is ready
    /// for the next transaction, whatever code changed it.
    pub(crate) fn reports_read_only(&self) -> bool {
        self.startup.value(READ_ONLY) == Some("on") && self.parameters.value(READ_ONLY).is_some()
    }

    /// A parameter has this value now. That it may write is known at once, so that it is taken back
    /// before anybody asks for more.
    pub(crate) fn reported(&mut self, name: &str, value: &str) {
        let is_news = name == READ_ONLY && self.applied.value(READ_ONLY) != Some(value);
        if is_news && self.reports_read_only() {
            let _room = Arc::make_mut(&mut self.applied).put(READ_ONLY, Some(value));
        }
    }

    /// Returns who holds it.
    pub fn client(&self) -> Option<ClientId> {
        self.attached
    }

    /// Returns who held it last.
    pub fn last_client(&self) -> Option<ClientId> {
        self.last_client
    }

    /// Returns whether requests of the extended protocol were sent since the last `Sync`.
    pub fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    /// Returns whether the attached client waits for a reply: only then may a cancellation be sent.
    pub fn has_client_entries(&self) -> bool {
        self.exchange.has_client_entries()
    }

    /// Returns whether the attached client waits for a reply that comes without more from it:
    /// replies of a batch come with its `Sync`.
    pub fn owes_reply(&self) -> bool {
        let awaits_data = matches!(self.exchange.copying(), CopyState::In | CopyState::Both);
        self.has_client_entries() && !awaits_data && !self.unsynced
    }

    /// Returns whether the attached client waits for a reply, has one of which a part was sent, or
    /// is in the middle of a batch.
    pub fn is_in_request(&self) -> bool {
        self.has_client_entries() || self.unsynced || self.body.left > 0
    }

    /// The state of its transaction.
    pub fn status(&self) -> TransactionStatus {
        self.exchange.status()
    }

    /// The number of the server's process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns what a cancellation has to know.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The settings it has; equal ones of a client mean that nothing has to change.
    pub fn settings(&self) -> &Arc<PgSettings> {
        &self.applied
    }

    /// The parameters that it reports.
    pub fn parameters(&self) -> &Arc<ReportedParameters> {
        &self.parameters
    }

    /// Returns how many statements it has prepared.
    pub fn statement_count(&self) -> usize {
        self.statements.len()
    }

    /// Returns whether it said that it is about to close; the attached client has been told why.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Why it stays with its client beyond a transaction, for those who look on.
    pub fn pins(&self) -> impl Iterator<Item = &'static str> {
        self.dirt.pins().names()
    }

    /// Returns how often a client was told that it may go on, and how often of these outside of a
    /// transaction.
    pub fn counts(&self) -> (u64, u64) {
        (self.queries, self.transactions)
    }

    /// Appends a request of nobody's in the simple protocol.
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

    /// Appends a call of a function of the server's that takes nothing.
    pub(crate) fn call(&mut self, function: u32, note: PgRequestPurpose, out: &mut Vec<u8>) {
        // The formats of no arguments, no arguments, and text as the format of the result.
        const NOTHING: [u8; 6] = [0; 6];
        put_header(out, frontend::FUNCTION_CALL, NOTHING.len() + 4);
        out.extend_from_slice(&function.to_be_bytes());
        out.extend_from_slice(&NOTHING);
        self.sent(ExchangeRequest::FunctionCall, ReplyAudience::Nobody, note);
    }

    /// Appends a `Sync` of somebody's.
    pub(crate) fn sync(&mut self, audience: ReplyAudience, out: &mut Vec<u8>) {
        put_header(out, frontend::SYNC, 0);
        self.sent(ExchangeRequest::Sync, audience, PgRequestPurpose::Plain);
    }

    /// Returns whether what a name of the client's means depends on an earlier batch that may have
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
                // After a text of the simple protocol there is no statement without a name.
                ExchangeRequest::Query if name.is_none() => return false,
                ExchangeRequest::Query | ExchangeRequest::Sync | ExchangeRequest::FunctionCall => {
                    earlier = true
                }
                _ => {}
            }
        }
        false
    }

    /// A request was passed over: the name means what it did before, for what comes after it.
    /// Called for the last one first. None: something later gave it a meaning of its own.
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

    /// A request was appended to what goes to the server.
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
