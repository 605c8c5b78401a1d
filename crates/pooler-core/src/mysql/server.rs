//! A server connection's session, as far as the protocol goes: what is outstanding, what it has,
//! and what has to happen before somebody else may have it.

use std::collections::VecDeque;
use std::sync::Arc;

use wire::mysql::capabilities::{CapabilityFlags, StatusFlags};
use wire::mysql::command::Command;
use wire::mysql::frame::{put_built, put_packet};
use wire::mysql::reply::{CommandReplyState, ReplyKind};

use super::mark::SessionMark;
use super::pins::{ActivePins, PinReason};
use super::settings::{MysqlSettings, SQL_MODE};
use super::statements::{MysqlServerStatements, PendingExecution, PendingPrepare};
use super::texts::MysqlStatementFacts;
use super::warnings::ServerWarnings;
use crate::link::{ClientId, ErrorTally, LinkLimits};

/// Entries of the queue that a connection keeps room for.
const OUTSTANDING_USUAL: usize = 8;

/// Receiver of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MysqlReplyAudience {
    /// The attached client.
    Client,
    /// No client: the request was inserted by the pooler.
    Nobody,
}

/// Why an outstanding request was sent, and what its reply changes.
#[derive(Debug)]
pub(crate) enum MysqlRequestPurpose {
    /// No effect on the state here.
    Plain,
    /// Runs a text.
    Text(MysqlStatementFacts),
    /// Prepares a statement: the client's own request, or one put in front of its `EXECUTE`.
    Prepare(Box<PendingPrepare>),
    /// Runs a prepared statement.
    Execute(PendingExecution),
    /// Gets rows of the cursor of this statement of the client's.
    Fetch(u32),
    /// Brings this statement of the client's back to how it was prepared.
    ResetStatement(u32),
    /// The client chooses a schema.
    Use(Box<str>),
    /// The client brings its session back to its beginning.
    ResetSession,
    /// Gives the session the variables of the attached client.
    Settings,
    /// Gives the session the schema of the attached client, who waits for it.
    Schema,
    /// Allows several statements in a text, or does no more.
    Multi,
    /// Gives `LAST_INSERT_ID()` the value that the client knows, or 0.
    InsertId,
    /// Takes away warnings and counts of rows that another client left.
    Forget,
    /// Asks for `LAST_INSERT_ID()`, which the client may ask for elsewhere.
    AskInsertId(Option<u64>),
    /// Asks for the warnings that the client may ask for elsewhere.
    AskWarnings(Box<ServerWarnings>),
    /// Gives back locks that no text told of.
    Unlock,
    /// Marks the server connection as one that works for a session.
    Mark,
    /// Takes the mark away.
    Unmark,
    /// Has the server tell of changes again, after a reset.
    Trackers,
    /// Has the server tell what it has not told yet.
    Flush,
    /// Brings everything back to how it was.
    Reset,
}

impl MysqlRequestPurpose {
    /// Returns whether nothing of the client's may be sent before the reply has come.
    fn is_barrier(&self) -> bool {
        match self {
            MysqlRequestPurpose::Schema
            | MysqlRequestPurpose::AskInsertId(_)
            | MysqlRequestPurpose::AskWarnings(_)
            | MysqlRequestPurpose::Flush => true,
            MysqlRequestPurpose::Prepare(preparing) => preparing.is_injected(),
            _ => false,
        }
    }
}

/// A request that was sent and not answered in full.
#[derive(Debug)]
pub(crate) struct OutstandingRequest {
    pub(crate) kind: ReplyKind,
    pub(crate) audience: MysqlReplyAudience,
    pub(crate) note: MysqlRequestPurpose,
}

/// Facts about a server connection at its start.
#[derive(Debug)]
pub struct MysqlServerSetup {
    /// The number of its thread, which `KILL` takes.
    pub thread_id: u32,
    /// Pool that it belongs to.
    pub pool: u32,
    /// User that logged in.
    pub user: Box<str>,
    /// Capabilities of both sides.
    pub capabilities: CapabilityFlags,
    /// Status at the end of the login.
    pub status: StatusFlags,
    /// The schema it is in.
    pub database: Option<Box<str>>,
    /// The settings that it was given as it logged in.
    pub settings: Arc<MysqlSettings>,
    /// True if it tells of changes of the session's state.
    pub tracks: bool,
    /// True if its sessions may only read, which a reset forgets.
    pub read_only: bool,
    /// Limits and rules of its links.
    pub limits: LinkLimits,
}

/// Cleanup of a server connection whose client left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MysqlCleanup {
    /// None.
    None,
    /// Replies that nobody wants are still to come.
    Draining,
    /// Being reset.
    Resetting,
}

/// A packet of the server's of which a part has been taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MysqlPartialPacket {
    /// Bytes to come.
    pub(crate) left: usize,
    /// True if they go to the other side.
    pub(crate) pass: bool,
    /// True if the next packet continues this one.
    pub(crate) goes_on: bool,
}

/// State of translating a reply to the client's dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ColumnProgress {
    /// Definitions to come before the next end of a list.
    pub(crate) left: u64,
    /// Definitions of a second list behind it.
    pub(crate) behind: u64,
    /// A list has ended: an EOF is due before what follows, if the client wants one.
    pub(crate) owes_eof: bool,
}

/// A server connection's side of the protocol.
#[derive(Debug)]
pub struct MysqlServerSession {
    queue: VecDeque<OutstandingRequest>,
    /// Entries of the attached client's.
    asked: u32,
    /// Entries that the client's next command waits for.
    barriers: u32,
    /// The reply to the front entry.
    pub(crate) reply: Option<CommandReplyState>,
    pub(crate) columns: ColumnProgress,
    pub(crate) body: MysqlPartialPacket,
    /// Value of the reply's first row about a named lock, if it has one value: 1 or not.
    pub(crate) lock_row: Option<bool>,
    /// Variables of which the reply has told.
    pub(crate) told: Vec<Box<str>>,
    /// Status of the last reply.
    pub(crate) status: StatusFlags,
    /// A statement ran without autocommit, and was not committed.
    pub(crate) uncommitted: bool,
    pub(crate) statements: MysqlServerStatements,
    /// The settings that it has.
    pub(crate) applied: Arc<MysqlSettings>,
    /// Settings that a reset leaves.
    pub(crate) fresh: Arc<MysqlSettings>,
    /// The SQL mode that it began with, if that is known.
    pub(crate) own_mode: Option<Box<str>>,
    /// Several statements in a text are allowed.
    pub(crate) multi: bool,
    /// Value of `LAST_INSERT_ID()`, as far as that is known.
    pub(crate) insert_id: Option<u64>,
    /// True if that is the value for the client that holds it.
    pub(crate) insert_id_is_own: bool,
    /// A view may have set it since it was known.
    pub(crate) insert_id_is_doubtful: bool,
    /// Warnings and counts of rows may be those of another client.
    pub(crate) has_others_diagnostics: bool,
    pub(crate) pins: ActivePins,
    /// Client that holds it.
    pub(crate) attached: Option<ClientId>,
    /// Client that held it last, and in which of its sessions.
    pub(crate) last_session: Option<(ClientId, u64)>,
    pub(crate) cleanup: MysqlCleanup,
    /// True if it must be reset before any client gets it.
    pub(crate) dirty: bool,
    /// True if it must be reset before another client gets it.
    pub(crate) reset_due: bool,
    /// Locks that no text told of may be there: they are given back before another client has it.
    pub(crate) unlock_due: bool,
    /// True if the server can release all locks at once.
    pub(crate) unlocks: bool,
    /// Mark of the session that it works for, or worked for last: it stays until a client of
    /// another one comes, or nobody for a while.
    pub(crate) mark: Option<Arc<SessionMark>>,
    /// True if the server lets itself be marked.
    pub(crate) takes_marks: bool,
    /// Changes may be known to it that it has not told.
    pub(crate) is_untold: bool,
    /// Variables whose values are among them.
    pub(crate) asks_values: Vec<Box<str>>,
    /// True if `LAST_INSERT_ID()` has to be asked before the client leaves.
    pub(crate) asks_insert_id: bool,
    /// True if it is about to close.
    pub(crate) closing: bool,
    /// A data file of the client's goes to it.
    pub(crate) wants_file: bool,
    /// The client was told of an error; the rest of the reply is for nobody.
    pub(crate) is_refused: bool,
    /// Rows of the result under way.
    pub(crate) rows: u64,
    /// True if its session has taken values from sequences, which `LASTVAL` would give to another
    /// client.
    pub(crate) has_sequences: bool,
    pub(crate) capabilities: CapabilityFlags,
    pub(crate) tracks: bool,
    pub(crate) read_only: bool,
    pub(crate) limits: LinkLimits,
    /// Replies to commands of clients'.
    pub(crate) queries: u64,
    /// Number of these outside of a transaction.
    pub(crate) transactions: u64,
    /// Errors that clients got and that the relay has not counted yet.
    pub(crate) errors: ErrorTally,
    thread_id: u32,
}

impl MysqlServerSession {
    /// A connection that has logged in, clean.
    pub fn new(setup: MysqlServerSetup) -> MysqlServerSession {
        let applied = match &setup.database {
            Some(schema) if setup.settings.schema() != Some(&**schema) => {
                let mut settings = (*setup.settings).clone();
                let _kept = settings.put_schema(schema);
                Arc::new(settings)
            }
            _ => setup.settings,
        };
        let own_mode = applied.value(SQL_MODE).map(Box::from);
        MysqlServerSession {
            queue: VecDeque::with_capacity(OUTSTANDING_USUAL),
            asked: 0,
            barriers: 0,
            reply: None,
            columns: ColumnProgress::default(),
            body: MysqlPartialPacket::default(),
            lock_row: None,
            told: Vec::new(),
            status: setup.status,
            uncommitted: false,
            statements: MysqlServerStatements::default(),
            applied,
            fresh: Arc::default(),
            own_mode,
            multi: setup.capabilities.contains(CapabilityFlags::MULTI_STATEMENTS),
            insert_id: Some(0),
            insert_id_is_own: false,
            insert_id_is_doubtful: false,
            has_others_diagnostics: false,
            pins: ActivePins::default(),
            attached: None,
            last_session: None,
            cleanup: MysqlCleanup::None,
            dirty: false,
            reset_due: false,
            unlock_due: false,
            unlocks: true,
            mark: None,
            takes_marks: true,
            is_untold: false,
            asks_values: Vec::new(),
            asks_insert_id: false,
            closing: false,
            wants_file: false,
            is_refused: false,
            rows: 0,
            has_sequences: false,
            capabilities: setup.capabilities,
            tracks: setup.tracks,
            read_only: setup.read_only,
            limits: setup.limits,
            queries: 0,
            transactions: 0,
            errors: ErrorTally::default(),
            thread_id: setup.thread_id,
        }
    }

    /// Returns whether it may be given to a client: nobody has it, and nothing is outstanding but
    /// what every client may come behind.
    pub fn is_idle(&self) -> bool {
        self.attached.is_none()
            && self.queue.iter().all(|it| matches!(it.note, MysqlRequestPurpose::Unmark))
            && self.cleanup == MysqlCleanup::None
            && !self.dirty
            && !self.closing
    }

    /// Returns who holds it.
    pub fn client(&self) -> Option<ClientId> {
        self.attached
    }

    /// Returns who held it last.
    pub fn last_client(&self) -> Option<ClientId> {
        self.last_session.map(|(client, _)| client)
    }

    /// Returns whether the attached client waits for a reply: only then may a cancellation be sent.
    pub fn has_client_entries(&self) -> bool {
        self.asked > 0
    }

    /// Returns whether the attached client waits for a reply that comes without more from it.
    pub fn owes_reply(&self) -> bool {
        self.asked > 0 && !self.wants_file
    }

    /// Returns whether the attached client waits for a reply, or has one of which a part was sent.
    pub fn is_in_request(&self) -> bool {
        self.asked > 0 || self.body.left > 0
    }

    /// Returns whether its client was not given just a part of a packet.
    pub fn is_between_messages(&self) -> bool {
        self.body.left == 0
    }

    /// Returns whether its transaction is open.
    pub fn is_in_transaction(&self) -> bool {
        self.status.contains(StatusFlags::IN_TRANS) || self.uncommitted
    }

    /// The number of the server's thread, for `KILL`.
    pub fn pid(&self) -> u32 {
        self.thread_id
    }

    /// The settings it has; equal ones of a client mean that nothing has to change.
    pub fn settings(&self) -> &Arc<MysqlSettings> {
        &self.applied
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
        self.pins.names()
    }

    /// Returns how often a client was answered, and how often of these outside of a transaction.
    pub fn counts(&self) -> (u64, u64) {
        (self.queries, self.transactions)
    }

    /// The request whose reply comes next.
    #[inline]
    pub(crate) fn front(&self) -> Option<&OutstandingRequest> {
        self.queue.front()
    }

    /// Returns the request at the front for changes.
    #[inline]
    pub(crate) fn front_mut(&mut self) -> Option<&mut OutstandingRequest> {
        self.queue.front_mut()
    }

    /// Returns whether nothing is outstanding.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether other replies come behind the next one.
    #[inline]
    pub(crate) fn has_more_outstanding(&self) -> bool {
        self.queue.len() > 1
    }

    /// Returns whether settings of its session are not all known, so that statements mean what they
    /// mean here only.
    #[inline]
    pub(crate) fn has_unknown_settings(&self) -> bool {
        self.pins.has(PinReason::Settings)
            || self.pins.has(PinReason::Schema)
            || self.pins.has(PinReason::Variable)
    }

    /// Returns whether a reply is to come before the client's next command can be sent.
    #[inline]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.asked > 0 || self.barriers > 0
    }

    /// A request was appended to what goes to the server.
    #[inline]
    pub(crate) fn push(
        &mut self,
        kind: ReplyKind,
        audience: MysqlReplyAudience,
        note: MysqlRequestPurpose,
    ) {
        self.asked += u32::from(audience == MysqlReplyAudience::Client);
        self.barriers += u32::from(note.is_barrier());
        self.queue.push_back(OutstandingRequest { kind, audience, note });
    }

    /// The front request was answered in full.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<OutstandingRequest> {
        self.reply = None;
        self.is_refused = false;
        self.lock_row = None;
        self.rows = 0;
        self.columns = ColumnProgress::default();
        let entry = self.queue.pop_front()?;
        self.asked -= u32::from(entry.audience == MysqlReplyAudience::Client);
        self.barriers -= u32::from(entry.note.is_barrier());
        Some(entry)
    }

    /// The client is gone: what it asked is nobody's.
    pub(crate) fn orphan(&mut self) {
        for entry in &mut self.queue {
            entry.audience = MysqlReplyAudience::Nobody;
        }
        self.asked = 0;
    }

    /// Appends a text of nobody's.
    pub(crate) fn ask(&mut self, note: MysqlRequestPurpose, text: &str, out: &mut Vec<u8>) {
        put_built(out, &mut 0, |out| {
            out.push(Command::Query.code());
            out.extend_from_slice(text.as_bytes());
        });
        self.push(ReplyKind::Query, MysqlReplyAudience::Nobody, note);
    }

    /// Appends a command of nobody's.
    pub(crate) fn inject(
        &mut self,
        kind: ReplyKind,
        note: MysqlRequestPurpose,
        command: &[u8],
        out: &mut Vec<u8>,
    ) {
        put_packet(out, &mut 0, command);
        self.push(kind, MysqlReplyAudience::Nobody, note);
    }
}
