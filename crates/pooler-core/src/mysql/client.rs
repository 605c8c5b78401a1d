//! A client's session, as far as the protocol goes: what it may send next, and what it believes.

use std::borrow::Cow;
use std::sync::Arc;

use api::{PoolMode, VerifyMode};
use wire::mysql::capabilities::{CapabilityFlags, StatusFlags};
use wire::mysql::packet::{self, OkPacket};
use wire::mysql::sql::SqlMode;
use wire::pg::message::ErrorFields;

use super::link::PacketReframer;
use super::mark::SessionMark;
use super::server::MysqlPartialPacket;
use super::settings::{MysqlSettings, SQL_MODE, SettingsInterner};
use super::statements::{MysqlClientStatements, PrepareFailure};
use super::texts::MysqlStatementFacts;
use super::warnings::ServerWarnings;
use crate::link::{ClientId, not_for_readers, not_for_sandboxes, put_mysql_error};

/// Parameters of a new session.
#[derive(Debug)]
pub struct MysqlClientSetup {
    /// Client; also the number of its connection, as it was told.
    pub id: ClientId,
    /// When its server connection may be somebody else's.
    pub mode: PoolMode,
    /// Trust in what its texts leave behind.
    pub verify: VerifyMode,
    /// True if its tenant may only read: texts that ask for more are refused.
    pub read_only: bool,
    /// True if a server may ask for files of the client's.
    pub local_infile: bool,
    /// Capabilities that both sides have.
    pub capabilities: CapabilityFlags,
    /// Settings that the client asked for as it started, with its schema.
    pub settings: MysqlSettings,
    /// Settings that the tenant demands whatever the client wants.
    pub forced: Arc<MysqlSettings>,
}

/// Why a command is answered with an error here.
#[derive(Debug)]
pub(crate) struct CommandRefusal {
    /// The server's number for such errors.
    pub(crate) code: u16,
    /// SQLSTATE.
    pub(crate) state: [u8; 5],
    /// A sentence.
    pub(crate) message: Cow<'static, str>,
}

impl CommandRefusal {
    pub(crate) fn new(
        code: u16,
        state: &'static [u8; 5],
        message: impl Into<Cow<'static, str>>,
    ) -> CommandRefusal {
        CommandRefusal { code, state: *state, message: message.into() }
    }

    /// Returns what a server said as the statement had to be prepared.
    pub(crate) fn of(failure: PrepareFailure) -> CommandRefusal {
        let message = String::from_utf8_lossy(&failure.message).into_owned();
        CommandRefusal { code: failure.code, state: failure.state, message: message.into() }
    }

    /// A command that is none, or makes no sense.
    pub(crate) fn unknown_command() -> CommandRefusal {
        CommandRefusal::new(1047, b"08S01", "the command cannot be understood")
    }

    /// A statement that a read-only transaction would not stop; the error is the one that a server
    /// has for the others.
    pub(crate) fn not_for_readers(what: &str) -> CommandRefusal {
        CommandRefusal::new(1792, b"25006", not_for_readers(what))
    }

    /// A statement that would show a sandbox a password, its hash or another client's statement.
    pub(crate) fn not_for_sandboxes(what: &str) -> CommandRefusal {
        CommandRefusal::new(1227, b"42000", not_for_sandboxes(what))
    }

    /// Returns what a tenant that may only read must not do.
    pub(crate) fn read_only() -> CommandRefusal {
        let message = "the tenant is read-only: a statement that could permit writes is refused";
        CommandRefusal::new(1290, b"HY000", message)
    }
}

/// What comes next of a client's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextInput {
    /// A command.
    Command,
    /// Packets of a file, until an empty one.
    File {
        /// True if they go to the server.
        pass: bool,
    },
}

/// What the client may ask about its last statement after its connection is another's.
#[derive(Debug, Default)]
pub(crate) struct StatementDiagnostics {
    /// What `LAST_INSERT_ID()` gives.
    pub(crate) insert_id: u64,
    /// What `ROW_COUNT()` gives.
    pub(crate) row_count: i64,
    /// The server connection that the client holds knows that as well.
    pub(crate) rows_here: bool,
    /// What `FOUND_ROWS()` gives.
    pub(crate) found_rows: u64,
    /// The server connection that the client holds knows that as well, or better.
    pub(crate) found_here: bool,
    /// The same of its warnings.
    pub(crate) warnings_here: bool,
    /// It had warnings that were not asked for yet.
    pub(crate) warned: bool,
    /// Warnings, if it had any.
    pub(crate) warnings: Option<Box<ServerWarnings>>,
}

impl StatementDiagnostics {
    /// What `ROW_COUNT()` gives from now on, at the connection that the client holds as well or
    /// here only.
    #[inline]
    pub(crate) fn counted(&mut self, rows: i64, here: bool) {
        self.row_count = rows;
        self.rows_here = here;
    }

    /// A statement failed: at the connection that the client holds, or without one.
    pub(crate) fn failed(&mut self, code: u16, message: &[u8], here: bool) {
        self.counted(-1, here);
        self.warned = false;
        self.warnings = Some(Box::new(ServerWarnings::of_error(code, message)));
        self.warnings_here = here;
    }
}

/// A client's side of the protocol.
#[derive(Debug)]
pub struct MysqlClientSession {
    pub(crate) id: ClientId,
    pub(crate) mode: PoolMode,
    pub(crate) verify: VerifyMode,
    pub(crate) read_only: bool,
    /// Marks code in a sandbox: texts that show passwords are refused.
    pub(crate) is_sandbox: bool,
    /// Mark of the server connections that it has; none where nobody looks for one.
    pub(crate) mark: Option<Arc<SessionMark>>,
    pub(crate) local_infile: bool,
    /// Capabilities that both sides have.
    pub capabilities: CapabilityFlags,
    /// The number that the next packet to the client bears.
    pub(crate) seq: u8,
    pub(crate) turn: NextInput,
    pub(crate) body: MysqlPartialPacket,
    /// The number that the next packet of its command bears to the server.
    pub(crate) to_seq: u8,
    /// What its command is answered with once it has come to its end.
    pub(crate) refused: Option<Box<CommandRefusal>>,
    /// Its command is on its way in packets of other lengths.
    pub(crate) reframe: Option<Box<PacketReframer>>,
    pub(crate) attached: bool,
    /// No command of it has run at the connection that it holds.
    pub(crate) is_new_here: bool,
    /// A command of it waits for what is changed or prepared for it at the connection that it
    /// holds. With another connection it would begin from the start, and if others want theirs
    /// changed as well, it would never end.
    pub(crate) waits_here: bool,
    /// Which of its sessions this is; zero until it has a server connection.
    pub(crate) serial: u64,
    /// What it was last told of its session's state.
    pub(crate) status: StatusFlags,
    /// What the text does that waits for a server connection.
    pub(crate) looked: Option<MysqlStatementFacts>,
    pub(crate) statements: MysqlClientStatements,
    /// Several statements in a text are allowed.
    pub(crate) multi: bool,
    pub(crate) diagnostics: StatementDiagnostics,
    /// What it wants its session to be.
    pub(crate) wanted: Arc<MysqlSettings>,
    /// How its texts are read.
    pub(crate) sql_mode: SqlMode,
    /// What a reset brings back.
    pub(crate) startup: Arc<MysqlSettings>,
    /// True if that has a SQL mode: who did not ask for one gets that of the first connection.
    pub(crate) is_mode_known: bool,
    pub(crate) forced: Arc<MysqlSettings>,
    /// What it said as it asked to log in anew.
    pub(crate) change_user: Option<Vec<u8>>,
}

impl MysqlClientSession {
    /// A client that has logged in and has no server connection.
    pub fn new(setup: MysqlClientSetup) -> MysqlClientSession {
        let startup = Arc::new(setup.settings.overlaid(&setup.forced));
        MysqlClientSession {
            id: setup.id,
            mode: setup.mode,
            verify: setup.verify,
            read_only: setup.read_only,
            is_sandbox: false,
            mark: None,
            local_infile: setup.local_infile,
            multi: setup.capabilities.contains(CapabilityFlags::MULTI_STATEMENTS),
            capabilities: setup.capabilities,
            seq: 0,
            turn: NextInput::Command,
            body: MysqlPartialPacket::default(),
            to_seq: 0,
            refused: None,
            reframe: None,
            attached: false,
            is_new_here: true,
            waits_here: false,
            serial: 0,
            status: StatusFlags::AUTOCOMMIT,
            looked: None,
            statements: MysqlClientStatements::default(),
            diagnostics: StatementDiagnostics::default(),
            sql_mode: startup.mode(),
            is_mode_known: startup.value(SQL_MODE).is_some(),
            wanted: startup.clone(),
            startup,
            forced: setup.forced,
            change_user: None,
        }
    }

    /// Has `known` keep what it starts with: other clients may start with the same.
    pub fn share_startup(&mut self, known: impl FnOnce(Arc<MysqlSettings>) -> Arc<MysqlSettings>) {
        if Arc::ptr_eq(&self.wanted, &self.startup) {
            self.wanted = known(std::mem::take(&mut self.startup));
            self.startup = Arc::clone(&self.wanted);
        }
    }

    /// Notes that it is code in a sandbox, and of which session, before anything of it is taken.
    pub fn confine(&mut self, mark: Option<Arc<SessionMark>>) {
        self.is_sandbox = true;
        self.mark = mark;
    }

    /// Returns who it is.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Returns whether it holds a server connection.
    pub fn is_attached(&self) -> bool {
        self.attached
    }

    /// Returns whether it was last told that it is in a transaction.
    pub fn is_in_transaction(&self) -> bool {
        self.status.contains(StatusFlags::IN_TRANS)
    }

    /// The settings that it wants; a server connection that has them needs no change.
    pub fn settings(&self) -> &Arc<MysqlSettings> {
        &self.wanted
    }

    /// Returns how many statements it has prepared.
    pub fn statement_count(&self) -> usize {
        self.statements.len()
    }

    /// Returns whether a command of it, or a file, has begun and not ended, of which a part was
    /// sent already.
    pub fn is_in_message(&self) -> bool {
        self.body.left > 0 || self.body.goes_on || self.turn != NextInput::Command
    }

    /// Returns what it said as it asked to log in anew: the payload of `COM_CHANGE_USER`.
    pub fn take_change_user(&mut self) -> Option<Vec<u8>> {
        self.change_user.take()
    }

    /// Tells it of an error, as the answer to its command or, between two, unasked.
    pub fn put_error(&mut self, code: u16, state: &[u8; 5], message: &str, out: &mut Vec<u8>) {
        // Between two commands it is the answer to the next: drivers take no other number.
        self.seq = self.seq.max(1);
        packet::put_err(out, &mut self.seq, code, *state, message.as_bytes());
    }

    /// Answers a `KILL`.
    pub fn kill_answered(&mut self, found: bool, out: &mut Vec<u8>) {
        if found {
            let ok = OkPacket { status: self.status, ..OkPacket::default() };
            packet::put_ok(out, &mut self.seq, &ok, self.capabilities);
            self.diagnostics.counted(0, false);
        } else {
            const NONE: &str = "there is no such connection";
            self.put_error(1094, b"HY000", NONE, out);
            self.diagnostics.failed(1094, NONE.as_bytes(), false);
        }
        self.seq = 0;
    }

    /// Appends the error with which its connection is closed. A client that is still sending a
    /// file, or a command of several packets, gets none: only the packets that it has yet to send
    /// say which number it expects, and it takes any other for a malformed packet.
    pub(crate) fn put_fatal_error(&mut self, fields: &ErrorFields<'_>, out: &mut Vec<u8>) {
        if self.turn == NextInput::Command && !self.body.goes_on {
            put_mysql_error(&mut self.seq, fields, out);
        }
    }

    /// Notes that its server connection is lost. Only a client without a transaction can go on.
    pub fn server_lost(&mut self) {
        self.attached = false;
        self.waits_here = false;
        self.statements.server_lost();
        self.body.pass = false;
        self.looked = None;
        if self.turn != NextInput::Command {
            self.turn = NextInput::File { pass: false };
        }
    }

    /// The session in which its texts run says how it reads them: what a routine changed that then
    /// failed is told in no other way. What no server says of a mode is as the settings have it.
    #[inline]
    pub(crate) fn read_as(&mut self, status: StatusFlags) {
        self.sql_mode = self.wanted.mode();
        self.sql_mode.ansi_quotes |= status.contains(StatusFlags::ANSI_QUOTES);
        self.sql_mode.no_backslash_escapes |= status.contains(StatusFlags::NO_BACKSLASH_ESCAPES);
    }

    /// It gets the SQL mode that sessions begin with at its server, as if it had asked for that:
    /// it is the same wherever its texts run. Drivers ask for `IGNORE_SPACE` as they log in.
    #[cold]
    pub(crate) fn begin_with_mode(&mut self, own: &str, known: &mut SettingsInterner) {
        const IGNORE_SPACE: &str = "IGNORE_SPACE";
        let mut mode = own.to_owned();
        if self.capabilities.contains(CapabilityFlags::IGNORE_SPACE)
            && !own.split(',').any(|name| name == IGNORE_SPACE)
        {
            mode.push_str(if own.is_empty() { "" } else { "," });
            mode.push_str(IGNORE_SPACE);
        }
        let with_mode = |settings: &MysqlSettings| {
            let mut settings = settings.clone();
            let _kept = settings.put(SQL_MODE, Some(&mode));
            Arc::new(settings)
        };
        self.startup = known.share(with_mode(&self.startup));
        self.is_mode_known = true;
        if self.wanted.value(SQL_MODE).is_none() {
            let wanted = known.share(with_mode(&self.wanted));
            let before = self.sql_mode;
            self.want(wanted);
            if self.sql_mode != before {
                // The text that waits was not read as it will be.
                self.looked = None;
            }
        }
    }

    /// It wants its session to be like this from now on.
    pub(crate) fn want(&mut self, wanted: Arc<MysqlSettings>) {
        self.sql_mode = wanted.mode();
        self.wanted = wanted;
    }

    /// Returns what it asked for as it started, and what its tenant demands.
    pub fn requested(&self) -> &MysqlSettings {
        &self.startup
    }

    /// It wants these settings, in a session that began in another process.
    pub(crate) fn restore_settings(&mut self, wanted: MysqlSettings) {
        self.want(Arc::new(wanted));
    }
}
