//! A server connection's session in the protocol: its outstanding requests, its state, and what has
//! to be done before another client may use it.

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

/// Capacity that a connection's queue keeps.
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
    /// Prepares a statement: the client's own request, or one inserted before its `EXECUTE`.
    Prepare(Box<PendingPrepare>),
    /// Runs a prepared statement.
    Execute(PendingExecution),
    /// Fetches rows of the cursor of this client statement.
    Fetch(u32),
    /// Resets this client statement.
    ResetStatement(u32),
    /// The client selects a schema.
    Use(Box<str>),
    /// The client resets its session.
    ResetSession,
    /// Sets the session's variables to those of the attached client.
    Settings,
    /// Sets the session's schema to that of the attached client, which waits for it.
    Schema,
    /// Enables or disables several statements in a text.
    Multi,
    /// Sets `LAST_INSERT_ID()` to the client's value, or 0.
    InsertId,
    /// Clears warnings and row counts of another client.
    Forget,
    /// Queries `LAST_INSERT_ID()`, which the client may query elsewhere.
    AskInsertId(Option<u64>),
    /// Queries the warnings that the client may query elsewhere.
    AskWarnings(Box<ServerWarnings>),
    /// Releases locks that no text has shown.
    Unlock,
    /// Marks the server connection as working for a session.
    Mark,
    /// Removes the mark.
    Unmark,
    /// Enables the server's trackers again, after a reset.
    Trackers,
    /// Makes the server report pending changes.
    Flush,
    /// Resets the session.
    Reset,
}

impl MysqlRequestPurpose {
    /// Returns whether the client's next command must wait for the reply.
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

/// A request that was sent and not fully answered.
#[derive(Debug)]
pub(crate) struct OutstandingRequest {
    pub(crate) kind: ReplyKind,
    pub(crate) audience: MysqlReplyAudience,
    pub(crate) note: MysqlRequestPurpose,
}

/// Facts about a server connection at its start.
#[derive(Debug)]
pub struct MysqlServerSetup {
    /// Number of its thread, for `KILL`.
    pub thread_id: u32,
    /// Pool that it belongs to.
    pub pool: u32,
    /// User that logged in.
    pub user: Box<str>,
    /// Capabilities of both sides.
    pub capabilities: CapabilityFlags,
    /// Status at the end of the login.
    pub status: StatusFlags,
    /// Current schema.
    pub database: Option<Box<str>>,
    /// Settings from its login.
    pub settings: Arc<MysqlSettings>,
    /// True if it reports changes of the session's state.
    pub tracks: bool,
    /// True if its sessions are read-only, which a reset clears.
    pub read_only: bool,
    /// Limits and rules of its links.
    pub limits: LinkLimits,
}

/// Cleanup of a server connection whose client left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MysqlCleanup {
    /// None.
    None,
    /// Waits for replies that are not needed.
    Draining,
    /// Being reset.
    Resetting,
}

/// A packet of the server of which a part was processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MysqlPartialPacket {
    /// Remaining bytes.
    pub(crate) left: usize,
    /// True if they are forwarded to the other side.
    pub(crate) pass: bool,
    /// True if the next packet continues this one.
    pub(crate) goes_on: bool,
}

/// State of translating a reply to the client's dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ColumnProgress {
    /// Remaining definitions before the end of the list.
    pub(crate) left: u64,
    /// Definitions of a second list after it.
    pub(crate) behind: u64,
    /// True if a list has ended: an EOF is due before the next packet, if the client expects one.
    pub(crate) owes_eof: bool,
}

/// A server connection's side of the protocol.
#[derive(Debug)]
pub struct MysqlServerSession {
    queue: VecDeque<OutstandingRequest>,
    /// Outstanding requests of the attached client.
    asked: u32,
    /// Outstanding requests for which the client's next command waits.
    barriers: u32,
    /// State of the reply to the front request.
    pub(crate) reply: Option<CommandReplyState>,
    pub(crate) columns: ColumnProgress,
    pub(crate) body: MysqlPartialPacket,
    /// Value of the reply's first row for a lock function, if it has one value: whether that is 1.
    pub(crate) lock_row: Option<bool>,
    /// Variables that the reply has reported.
    pub(crate) told: Vec<Box<str>>,
    /// Status of the last reply.
    pub(crate) status: StatusFlags,
    /// True if a statement ran without autocommit, and was not committed.
    pub(crate) uncommitted: bool,
    pub(crate) statements: MysqlServerStatements,
    /// Its current settings.
    pub(crate) applied: Arc<MysqlSettings>,
    /// Settings after a reset.
    pub(crate) fresh: Arc<MysqlSettings>,
    /// Its initial SQL mode, if known.
    pub(crate) own_mode: Option<Box<str>>,
    /// True if a text may contain several statements.
    pub(crate) multi: bool,
    /// Value of `LAST_INSERT_ID()`, if known.
    pub(crate) insert_id: Option<u64>,
    /// True if that is the attached client's value.
    pub(crate) insert_id_is_own: bool,
    /// True if a view may have changed it since.
    pub(crate) insert_id_is_doubtful: bool,
    /// True if warnings and row counts may be those of another client.
    pub(crate) has_others_diagnostics: bool,
    pub(crate) pins: ActivePins,
    /// Client that holds it.
    pub(crate) attached: Option<ClientId>,
    /// Client that held it last, with the number of its session.
    pub(crate) last_session: Option<(ClientId, u64)>,
    pub(crate) cleanup: MysqlCleanup,
    /// True if it must be reset before any client gets it.
    pub(crate) dirty: bool,
    /// True if it must be reset before another client gets it.
    pub(crate) reset_due: bool,
    /// True if locks may exist that no text has shown: they are released before another client uses
    /// it.
    pub(crate) unlock_due: bool,
    /// True if the server can release all locks at once.
    pub(crate) unlocks: bool,
    /// Mark of the session for which it works, or worked last: it stays until a client of another
    /// session uses it, or it is idle for a while.
    pub(crate) mark: Option<Arc<SessionMark>>,
    /// True if the server supports marks.
    pub(crate) takes_marks: bool,
    /// True if the server may have changes that it has not reported.
    pub(crate) is_untold: bool,
    /// Variables whose values are among them.
    pub(crate) asks_values: Vec<Box<str>>,
    /// True if `LAST_INSERT_ID()` has to be queried before the client leaves.
    pub(crate) asks_insert_id: bool,
    /// True if the server is about to close.
    pub(crate) closing: bool,
    /// True if a data file of the client is being sent to it.
    pub(crate) wants_file: bool,
    /// True if the client received an error and the rest of the reply is discarded.
    pub(crate) is_refused: bool,
    /// Rows of the current result.
    pub(crate) rows: u64,
    /// True if its session has taken values from sequences, which `LASTVAL` would show to another
    /// client.
    pub(crate) has_sequences: bool,
    pub(crate) capabilities: CapabilityFlags,
    pub(crate) tracks: bool,
    pub(crate) read_only: bool,
    pub(crate) limits: LinkLimits,
    /// Replies to commands of clients.
    pub(crate) queries: u64,
    /// Number of those replies outside of a transaction.
    pub(crate) transactions: u64,
    /// Errors sent to clients that the relay has not counted yet.
    pub(crate) errors: ErrorTally,
    thread_id: u32,
}

impl MysqlServerSession {
    /// Creates the session of a connection that has just logged in.
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

    /// Returns whether it may be given to a client: it has none, and only requests are outstanding
    /// that may precede any client's.
    pub fn is_idle(&self) -> bool {
        self.attached.is_none()
            && self.queue.iter().all(|it| matches!(it.note, MysqlRequestPurpose::Unmark))
            && self.cleanup == MysqlCleanup::None
            && !self.dirty
            && !self.closing
    }

    /// Returns the client that holds it.
    pub fn client(&self) -> Option<ClientId> {
        self.attached
    }

    /// Returns the client that held it last.
    pub fn last_client(&self) -> Option<ClientId> {
        self.last_session.map(|(client, _)| client)
    }

    /// Returns whether the attached client waits for a reply: only then may a cancel request be
    /// sent.
    pub fn has_client_entries(&self) -> bool {
        self.asked > 0
    }

    /// Returns whether the attached client waits for a reply that needs no more input from it.
    pub fn owes_reply(&self) -> bool {
        self.asked > 0 && !self.wants_file
    }

    /// Returns whether the attached client waits for a reply, or a part of its request was
    /// forwarded.
    pub fn is_in_request(&self) -> bool {
        self.asked > 0 || self.body.left > 0
    }

    /// Returns whether its client has received only whole packets.
    pub fn is_between_messages(&self) -> bool {
        self.body.left == 0
    }

    /// Returns whether its transaction is open.
    pub fn is_in_transaction(&self) -> bool {
        self.status.contains(StatusFlags::IN_TRANS) || self.uncommitted
    }

    /// Returns the number of the server's thread, for `KILL`.
    pub fn pid(&self) -> u32 {
        self.thread_id
    }

    /// Returns its settings; a client with equal ones needs no change.
    pub fn settings(&self) -> &Arc<MysqlSettings> {
        &self.applied
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
        self.pins.names()
    }

    /// Returns the number of replies to clients, and how many of these were outside of a
    /// transaction.
    pub fn counts(&self) -> (u64, u64) {
        (self.queries, self.transactions)
    }

    /// Returns the request whose reply is next.
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

    /// Returns whether other replies follow the next one.
    #[inline]
    pub(crate) fn has_more_outstanding(&self) -> bool {
        self.queue.len() > 1
    }

    /// Returns whether some settings of its session are unknown, so that statements prepared
    /// elsewhere may have another meaning here.
    #[inline]
    pub(crate) fn has_unknown_settings(&self) -> bool {
        self.pins.has(PinReason::Settings)
            || self.pins.has(PinReason::Schema)
            || self.pins.has(PinReason::Variable)
    }

    /// Returns whether a reply must arrive before the client's next command can be sent.
    #[inline]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.asked > 0 || self.barriers > 0
    }

    /// Records a request that was appended to the output for the server.
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

    /// Removes the front request, which was answered in full.
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

    /// Records the departure of the client: its requests' replies are discarded.
    pub(crate) fn orphan(&mut self) {
        for entry in &mut self.queue {
            entry.audience = MysqlReplyAudience::Nobody;
        }
        self.asked = 0;
    }

    /// Appends a text of the pooler's own.
    pub(crate) fn ask(&mut self, note: MysqlRequestPurpose, text: &str, out: &mut Vec<u8>) {
        put_built(out, &mut 0, |out| {
            out.push(Command::Query.code());
            out.extend_from_slice(text.as_bytes());
        });
        self.push(ReplyKind::Query, MysqlReplyAudience::Nobody, note);
    }

    /// Appends a command of the pooler's own.
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
