//! A client's session in the protocol: what it may send next, and the state that it assumes.

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
    /// Client; also the number of its connection, as sent to it.
    pub id: ClientId,
    /// Pool mode: when its server connection may serve another client.
    pub mode: PoolMode,
    /// Verification of the state that its texts leave behind.
    pub verify: VerifyMode,
    /// True if its tenant is read-only: texts that do more are refused.
    pub read_only: bool,
    /// True if a server may request files from the client.
    pub local_infile: bool,
    /// Capabilities that both sides have.
    pub capabilities: CapabilityFlags,
    /// Settings that the client requested at its start, including its schema.
    pub settings: MysqlSettings,
    /// Settings that the tenant enforces.
    pub forced: Arc<MysqlSettings>,
}

/// Why the pooler answers a command with an error.
#[derive(Debug)]
pub(crate) struct CommandRefusal {
    /// The server's number for such errors.
    pub(crate) code: u16,
    /// SQLSTATE.
    pub(crate) state: [u8; 5],
    /// Message.
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

    /// Returns the server's error from preparing the statement.
    pub(crate) fn of(failure: PrepareFailure) -> CommandRefusal {
        let message = String::from_utf8_lossy(&failure.message).into_owned();
        CommandRefusal { code: failure.code, state: failure.state, message: message.into() }
    }

    /// Refuses an unknown or malformed command.
    pub(crate) fn unknown_command() -> CommandRefusal {
        CommandRefusal::new(1047, b"08S01", "the command cannot be understood")
    }

    /// Refuses a statement that a read-only transaction would not prevent, with the error that a
    /// server sends for the others.
    pub(crate) fn not_for_readers(what: &str) -> CommandRefusal {
        CommandRefusal::new(1792, b"25006", not_for_readers(what))
    }

    /// Refuses a statement that would show a sandbox a password, its hash or another client's
    /// statement.
    pub(crate) fn not_for_sandboxes(what: &str) -> CommandRefusal {
        CommandRefusal::new(1227, b"42000", not_for_sandboxes(what))
    }

    /// Refuses a statement that a read-only tenant may not run.
    pub(crate) fn read_only() -> CommandRefusal {
        let message = "the tenant is read-only: a statement that could permit writes is refused";
        CommandRefusal::new(1290, b"HY000", message)
    }
}

/// Expected input of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextInput {
    /// A command.
    Command,
    /// Packets of a file, until an empty one.
    File {
        /// True if they are forwarded to the server.
        pass: bool,
    },
}

/// State of the last statement that the client may query after its connection serves another
/// client.
#[derive(Debug, Default)]
pub(crate) struct StatementDiagnostics {
    /// Value of `LAST_INSERT_ID()`.
    pub(crate) insert_id: u64,
    /// Value of `ROW_COUNT()`.
    pub(crate) row_count: i64,
    /// True if the client's server connection has the same value.
    pub(crate) rows_here: bool,
    /// Value of `FOUND_ROWS()`.
    pub(crate) found_rows: u64,
    /// True if the client's server connection has the same value, or a better one.
    pub(crate) found_here: bool,
    /// True if the client's server connection has the same warnings.
    pub(crate) warnings_here: bool,
    /// True if it had warnings that were not fetched yet.
    pub(crate) warned: bool,
    /// Warnings, if it had any.
    pub(crate) warnings: Option<Box<ServerWarnings>>,
}

impl StatementDiagnostics {
    /// Sets the value of `ROW_COUNT()`; `here` if the client's server connection has the same
    /// value.
    #[inline]
    pub(crate) fn counted(&mut self, rows: i64, here: bool) {
        self.row_count = rows;
        self.rows_here = here;
    }

    /// Records a failed statement; `here` if it failed at the client's server connection.
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
    /// True for code in a sandbox: texts that show passwords are refused.
    pub(crate) is_sandbox: bool,
    /// Mark for the server connections that it holds; `None` if none is needed.
    pub(crate) mark: Option<Arc<SessionMark>>,
    pub(crate) local_infile: bool,
    /// Capabilities that both sides have.
    pub capabilities: CapabilityFlags,
    /// Sequence number of the next packet to the client.
    pub(crate) seq: u8,
    pub(crate) turn: NextInput,
    pub(crate) body: MysqlPartialPacket,
    /// Sequence number of the next packet of its command to the server.
    pub(crate) to_seq: u8,
    /// Error with which its command is answered once it is complete.
    pub(crate) refused: Option<Box<CommandRefusal>>,
    /// Forwards its command in packets of other lengths.
    pub(crate) reframe: Option<Box<PacketReframer>>,
    pub(crate) attached: bool,
    /// True if no command of it has run at its server connection.
    pub(crate) is_new_here: bool,
    /// True if a command of it waits for changes or a prepare at its server connection. With
    /// another connection it would start over, and if other clients had their connections changed
    /// as well, it would never finish.
    pub(crate) waits_here: bool,
    /// Number of its current session; zero until it has a server connection.
    pub(crate) serial: u64,
    /// Session status that was last sent to it.
    pub(crate) status: StatusFlags,
    /// Facts about the text that waits for a server connection.
    pub(crate) looked: Option<MysqlStatementFacts>,
    pub(crate) statements: MysqlClientStatements,
    /// True if a text may contain several statements.
    pub(crate) multi: bool,
    pub(crate) diagnostics: StatementDiagnostics,
    /// Settings that it wants for its session.
    pub(crate) wanted: Arc<MysqlSettings>,
    /// SQL mode by which its texts are parsed.
    pub(crate) sql_mode: SqlMode,
    /// Settings that a reset restores.
    pub(crate) startup: Arc<MysqlSettings>,
    /// True if those include a SQL mode: a client that requested none gets that of its first
    /// connection.
    pub(crate) is_mode_known: bool,
    pub(crate) forced: Arc<MysqlSettings>,
    /// Payload of its request to log in again.
    pub(crate) change_user: Option<Vec<u8>>,
}

impl MysqlClientSession {
    /// Creates the session of a client that has logged in and has no server connection.
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

    /// Shares its start settings with other clients by `known`.
    pub fn share_startup(&mut self, known: impl FnOnce(Arc<MysqlSettings>) -> Arc<MysqlSettings>) {
        if Arc::ptr_eq(&self.wanted, &self.startup) {
            self.wanted = known(std::mem::take(&mut self.startup));
            self.startup = Arc::clone(&self.wanted);
        }
    }

    /// Marks it as code in a sandbox, with the mark of its session, before any of its input is
    /// processed.
    pub fn confine(&mut self, mark: Option<Arc<SessionMark>>) {
        self.is_sandbox = true;
        self.mark = mark;
    }

    /// Returns its id.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Returns whether it holds a server connection.
    pub fn is_attached(&self) -> bool {
        self.attached
    }

    /// Returns whether the last status sent to it was "in a transaction".
    pub fn is_in_transaction(&self) -> bool {
        self.status.contains(StatusFlags::IN_TRANS)
    }

    /// Returns the settings that it wants; a server connection with the same ones needs no change.
    pub fn settings(&self) -> &Arc<MysqlSettings> {
        &self.wanted
    }

    /// Returns the number of statements that it has prepared.
    pub fn statement_count(&self) -> usize {
        self.statements.len()
    }

    /// Returns whether a command or file of it is incomplete, of which a part was forwarded
    /// already.
    pub fn is_in_message(&self) -> bool {
        self.body.left > 0 || self.body.goes_on || self.turn != NextInput::Command
    }

    /// Returns its request to log in again: the payload of `COM_CHANGE_USER`.
    pub fn take_change_user(&mut self) -> Option<Vec<u8>> {
        self.change_user.take()
    }

    /// Sends it an error, as the reply to its command or, between two, unsolicited.
    pub fn put_error(&mut self, code: u16, state: &[u8; 5], message: &str, out: &mut Vec<u8>) {
        // Between two commands it counts as the reply to the next: drivers accept no other number.
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

    /// Records the loss of its server connection. Only a client without a transaction can continue.
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

    /// Adopts the parsing modes that the server's status reports: modes that a routine changed
    /// before it failed are reported in no other way. Modes without a status flag follow the
    /// settings.
    #[inline]
    pub(crate) fn read_as(&mut self, status: StatusFlags) {
        self.sql_mode = self.wanted.mode();
        self.sql_mode.ansi_quotes |= status.contains(StatusFlags::ANSI_QUOTES);
        self.sql_mode.no_backslash_escapes |= status.contains(StatusFlags::NO_BACKSLASH_ESCAPES);
    }

    /// Sets its SQL mode to the server's default, as if it had requested that: it then is the same
    /// wherever its texts run. Drivers request `IGNORE_SPACE` when they log in.
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
                // The waiting text was parsed in another mode.
                self.looked = None;
            }
        }
    }

    /// Changes the settings that it wants.
    pub(crate) fn want(&mut self, wanted: Arc<MysqlSettings>) {
        self.sql_mode = wanted.mode();
        self.wanted = wanted;
    }

    /// Returns the settings that it requested at its start, with those that its tenant enforces.
    pub fn requested(&self) -> &MysqlSettings {
        &self.startup
    }

    /// Restores the settings of a session that began in another process.
    pub(crate) fn restore_settings(&mut self, wanted: MysqlSettings) {
        self.want(Arc::new(wanted));
    }
}
