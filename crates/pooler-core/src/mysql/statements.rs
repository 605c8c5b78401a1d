//! Prepared statements: the numbers that clients know, and what server connections have.
//!
//! A client's number means nothing at the server. A statement is its text and the settings under
//! which it was understood; a keyed hash of these is its identity, so that clients share what a
//! server connection has prepared, and nothing has to be told from one thread to another.
//!
//! What cannot be shared is what a statement remembers between two commands: an open cursor, and
//! long data. While one of a client's statements has that, its twins are prepared by themselves.

use std::sync::Arc;

use wire::mysql::frame::{HEADER_BYTES, PacketHeader, put_header};
use wire::mysql::packet::ErrPacket;
use wire::mysql::reply::{ReplyEvent, ReplyKind};

use crate::pg::statements::{HashKey, HashedMap};

use super::settings::MysqlSettings;
use super::texts::MysqlStatementFacts;

/// Statements that one client may have.
pub const CLIENT_STATEMENTS_MAX: usize = 10_000;

/// Bytes of the texts of one client's statements.
pub const CLIENT_STATEMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of an answer to a `COM_STMT_PREPARE` that is kept, to be given to the next client.
pub const REPLY_BYTES_MAX: usize = 16 * 1024;

/// The number by which some connectors mean the statement that was prepared last.
pub const LAST_PREPARED: u32 = u32::MAX;

/// Identity of a statement, in 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MysqlStatementId(u128);

/// A statement as some client prepared it.
#[derive(Debug)]
pub struct MysqlStatement {
    pub(crate) id: MysqlStatementId,
    /// The text, as it goes to a server.
    pub(crate) text: Box<[u8]>,
    /// Facts about the text.
    pub(crate) facts: MysqlStatementFacts,
    /// Fingerprint of the settings that its meaning depends on.
    pub(crate) plan_key: u64,
}

impl MysqlStatement {
    pub(crate) fn new(
        key: &HashKey,
        text: &[u8],
        plan_key: u64,
        facts: MysqlStatementFacts,
    ) -> MysqlStatement {
        let id = MysqlStatementId(key.long(&[text, &plan_key.to_be_bytes()]));
        MysqlStatement { id, text: text.into(), facts, plan_key }
    }
}

/// Number of parameters and columns of a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatementArity {
    pub(crate) columns: u16,
    pub(crate) params: u16,
}

/// State of a statement at the server, between two commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatementMemory {
    /// True if its cursor is open.
    pub(crate) cursor: bool,
    /// Long data of a parameter was sent, and it was not executed since.
    pub(crate) long_data: bool,
}

impl StatementMemory {
    pub(crate) fn is_any(self) -> bool {
        self.cursor || self.long_data
    }
}

/// A statement of a client's.
#[derive(Debug)]
pub(crate) struct OpenStatement {
    pub(crate) statement: Arc<MysqlStatement>,
    /// The client's settings as it was prepared: it means what it meant then, wherever it runs.
    pub(crate) settings: Arc<MysqlSettings>,
    /// Identity at server connections: the statement's identity, unless it must not be shared.
    pub(crate) place: MysqlStatementId,
    pub(crate) counts: StatementArity,
    /// The types of its parameters as they were bound last: two bytes for each.
    pub(crate) types: Option<Arc<[u8]>>,
    pub(crate) memory: StatementMemory,
    /// The answer to its next execution.
    failure: Option<Box<PrepareFailure>>,
}

/// The numbers that one client knows.
#[derive(Debug, Default)]
pub struct MysqlClientStatements {
    open: HashedMap<u32, OpenStatement>,
    /// The number given last.
    last: u32,
    /// The one that was prepared last, if that succeeded.
    pub(crate) last_prepared: Option<u32>,
    bytes: usize,
    /// Number of statements with an open cursor or long data.
    remembering: usize,
}

impl MysqlClientStatements {
    /// Returns how many statements there are.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns whether there is room for another statement of this text.
    pub(crate) fn has_room_for(&self, text: &[u8]) -> bool {
        self.open.len() < CLIENT_STATEMENTS_MAX
            && self.bytes + text.len() <= CLIENT_STATEMENT_BYTES_MAX
    }

    /// The statement of a number, also of the one that means the last.
    pub(crate) fn find(&self, number: u32) -> Option<(u32, &OpenStatement)> {
        let number = self.meant(number)?;
        Some((number, self.open.get(&number)?))
    }

    pub(crate) fn find_mut(&mut self, number: u32) -> Option<(u32, &mut OpenStatement)> {
        let number = self.meant(number)?;
        Some((number, self.open.get_mut(&number)?))
    }

    fn meant(&self, number: u32) -> Option<u32> {
        if number == LAST_PREPARED { self.last_prepared } else { Some(number) }
    }

    /// Gives a statement a number.
    pub(crate) fn put(
        &mut self,
        statement: Arc<MysqlStatement>,
        counts: StatementArity,
        settings: &Arc<MysqlSettings>,
    ) -> u32 {
        let mut number = self.last;
        loop {
            // Zero is no number, and the highest has a meaning of its own.
            number = if number >= LAST_PREPARED - 1 { 1 } else { number + 1 };
            if !self.open.contains_key(&number) {
                break;
            }
        }
        self.last = number;
        self.last_prepared = Some(number);
        self.put_as(number, statement, counts, settings);
        number
    }

    fn put_as(
        &mut self,
        number: u32,
        statement: Arc<MysqlStatement>,
        counts: StatementArity,
        settings: &Arc<MysqlSettings>,
    ) {
        self.bytes += statement.text.len();
        let place = statement.id;
        let memory = StatementMemory::default();
        let settings = settings.clone();
        let types = None;
        let open =
            OpenStatement { statement, settings, place, counts, types, memory, failure: None };
        drop(self.open.insert(number, open));
    }

    /// Takes a number away.
    pub(crate) fn close(&mut self, number: u32) -> Option<OpenStatement> {
        let number = self.meant(number)?;
        let open = self.open.remove(&number)?;
        self.bytes -= open.statement.text.len();
        self.remembering -= usize::from(open.memory.is_any());
        if self.last_prepared == Some(number) {
            self.last_prepared = None;
        }
        Some(open)
    }

    /// Records a change of a statement's state at the server.
    pub(crate) fn set_memory(&mut self, number: u32, change: impl FnOnce(&mut StatementMemory)) {
        let Some(open) = self.open.get_mut(&number) else { return };
        let before = open.memory.is_any();
        change(&mut open.memory);
        let after = open.memory.is_any();
        self.remembering = self.remembering + usize::from(after) - usize::from(before);
    }

    /// Returns what the statements remember, all together.
    pub(crate) fn memory(&self) -> StatementMemory {
        let mut all = StatementMemory::default();
        if self.remembering > 0 {
            for open in self.open.values() {
                all.cursor |= open.memory.cursor;
                all.long_data |= open.memory.long_data;
            }
        }
        all
    }

    /// Returns whether another of the client's statements remembers something at this place.
    pub(crate) fn is_taken(&self, place: MysqlStatementId, number: u32) -> bool {
        self.remembering > 0
            && self
                .open
                .iter()
                .any(|(other, it)| *other != number && it.place == place && it.memory.is_any())
    }

    /// The next execution of a statement fails, whatever it is.
    pub(crate) fn fail(&mut self, number: u32, failure: PrepareFailure) {
        if let Some(open) = self.open.get_mut(&number) {
            open.failure = Some(Box::new(failure));
        }
    }

    /// Returns whether the next execution of a statement fails.
    pub(crate) fn has_failed(&self, number: u32) -> bool {
        self.open.get(&number).is_some_and(|open| open.failure.is_some())
    }

    /// Why the execution of a statement fails.
    pub(crate) fn take_failure(&mut self, number: u32) -> Option<PrepareFailure> {
        let place = &mut self.open.get_mut(&number)?.failure;
        match place {
            Some(failure) if failure.until_reset => Some((**failure).clone()),
            Some(_) | None => place.take().map(|failure| *failure),
        }
    }

    /// A statement was reset: it can be executed again.
    pub(crate) fn forget_failure(&mut self, number: u32) {
        if let Some(open) = self.open.get_mut(&number) {
            open.failure = None;
        }
    }

    /// The server connection is another one from now on, or was brought back to how it was.
    pub(crate) fn server_lost(&mut self) {
        if self.remembering > 0 {
            for open in self.open.values_mut() {
                open.memory = StatementMemory::default();
            }
            self.remembering = 0;
        }
    }

    /// The client's session begins anew.
    pub(crate) fn clear(&mut self) {
        *self = MysqlClientStatements { last: self.last, ..MysqlClientStatements::default() };
    }

    /// Number, text, counts of columns and parameters, and types of all, for the process that takes
    /// over from this one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &OpenStatement)> {
        self.open.iter().map(|(number, open)| (*number, open))
    }

    /// Returns whether there is a statement that was prepared under other settings than these.
    pub(crate) fn are_of_other_settings(&self, settings: &MysqlSettings) -> bool {
        self.open.values().any(|open| open.statement.plan_key != settings.plan_key())
    }

    /// Restores a statement that was prepared in another process, under these settings.
    pub(crate) fn restore(
        &mut self,
        number: u32,
        statement: Arc<MysqlStatement>,
        counts: StatementArity,
        types: Option<Arc<[u8]>>,
        settings: &Arc<MysqlSettings>,
    ) {
        drop(self.close(number));
        self.put_as(number, statement, counts, settings);
        if let Some(open) = self.open.get_mut(&number) {
            open.types = types;
        }
        self.last = self.last.max(number);
    }
}

/// The identity of a statement of one client's that must not be shared with others.
pub(crate) fn private_place(
    key: &HashKey,
    statement: MysqlStatementId,
    client: u32,
    number: u32,
) -> MysqlStatementId {
    let parts = [&statement.0.to_be_bytes()[..], &client.to_be_bytes(), &number.to_be_bytes()];
    MysqlStatementId(key.long(&parts))
}

/// Reason for a preparation.
#[derive(Debug)]
pub(crate) enum PrepareReason {
    /// The client asked for it.
    Asked,
    /// The client's command with its statement of this number waits for it.
    Needed(u32),
    /// The server did not know any more what it was to execute: it is done again afterwards.
    Again(PendingExecution),
}

/// A preparation that is under way.
#[derive(Debug)]
pub(crate) struct PendingPrepare {
    pub(crate) statement: Arc<MysqlStatement>,
    /// Identity at the server connection.
    pub(crate) place: MysqlStatementId,
    pub(crate) purpose: PrepareReason,
    /// The state of the schema as it was sent.
    pub(crate) generation: u64,
    /// The server's number for it, once that is told.
    pub(crate) number: u32,
    pub(crate) counts: StatementArity,
    /// The reply so far, packet by packet as the server sent it; none once it is too long.
    pub(crate) reply: Option<Vec<u8>>,
}

impl PendingPrepare {
    pub(crate) fn new(
        statement: Arc<MysqlStatement>,
        place: MysqlStatementId,
        purpose: PrepareReason,
        generation: u64,
    ) -> PendingPrepare {
        PendingPrepare {
            statement,
            place,
            purpose,
            generation,
            number: 0,
            counts: StatementArity::default(),
            reply: Some(Vec::new()),
        }
    }

    /// A packet of the reply, whole.
    pub(crate) fn packet(&mut self, event: ReplyEvent, header: PacketHeader, part: &[u8]) {
        if let ReplyEvent::Prepared { id, columns, params, .. } = event {
            self.number = id;
            self.counts = StatementArity { columns, params };
        }
        let Some(reply) = &mut self.reply else { return };
        if reply.len() + HEADER_BYTES + part.len() > REPLY_BYTES_MAX {
            self.reply = None;
        } else {
            put_header(reply, header.len, header.seq);
            reply.extend_from_slice(part);
        }
    }

    /// Returns whether it was put in front of something of the client's.
    pub(crate) fn is_injected(&self) -> bool {
        match self.purpose {
            PrepareReason::Asked => false,
            PrepareReason::Needed(_) | PrepareReason::Again(_) => true,
        }
    }
}

/// An execution that is under way.
#[derive(Clone, Debug)]
pub(crate) struct PendingExecution {
    /// The client's number for the statement.
    pub(crate) number: u32,
    pub(crate) statement: Arc<MysqlStatement>,
    pub(crate) place: MysqlStatementId,
    /// Whether a cursor is asked for.
    pub(crate) reply: ReplyKind,
    /// True if it failed before, because the server had to prepare the statement anew.
    pub(crate) is_second: bool,
}

impl PendingExecution {
    /// Returns what the statement does.
    pub(crate) fn facts(&self) -> &MysqlStatementFacts {
        &self.statement.facts
    }
}

/// Why a statement of a client's could not be prepared where it has to be: what the server said.
#[derive(Clone, Debug)]
pub(crate) struct PrepareFailure {
    pub(crate) code: u16,
    pub(crate) state: [u8; 5],
    pub(crate) message: Box<[u8]>,
    /// The server would say so until the statement is reset.
    pub(crate) until_reset: bool,
}

impl PrepareFailure {
    /// Returns what the server said as the statement was prepared.
    pub(crate) fn of(error: &ErrPacket<'_>) -> PrepareFailure {
        let (code, state, message) = (error.code, error.state, error.message.into());
        PrepareFailure { code, state, message, until_reset: false }
    }
}

/// A statement at a server connection.
#[derive(Debug)]
pub(crate) struct PreparedSlot {
    /// Number there.
    pub(crate) number: u32,
    pub(crate) counts: StatementArity,
    /// Reply of the server to its preparation, if it was not too long.
    pub(crate) reply: Option<Box<[u8]>>,
    /// The types that were bound last, if that is known.
    pub(crate) bound: Option<Arc<[u8]>>,
    /// The attached client's statement that remembers something here.
    pub(crate) user: Option<u32>,
    /// When it was used last, in uses.
    used: u64,
    /// The state of the schema when it was prepared.
    generation: u64,
}

/// The statements that one server connection has.
#[derive(Debug, Default)]
pub struct MysqlServerStatements {
    places: HashedMap<MysqlStatementId, PreparedSlot>,
    uses: u64,
    /// The last execution as it was sent, if it was short; empty if not.
    pub(crate) kept: Vec<u8>,
}

impl MysqlServerStatements {
    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The statement's place, counted as a use.
    pub(crate) fn use_place(&mut self, id: MysqlStatementId) -> Option<&mut PreparedSlot> {
        self.uses += 1;
        let place = self.places.get_mut(&id)?;
        place.used = self.uses;
        Some(place)
    }

    /// The statement's place.
    pub(crate) fn place_mut(&mut self, id: MysqlStatementId) -> Option<&mut PreparedSlot> {
        self.places.get_mut(&id)
    }

    /// Returns whether it was prepared when the schema was as it is now: then what was said about
    /// it still holds.
    pub(crate) fn is_current(&self, id: MysqlStatementId, generation: u64) -> bool {
        self.places.get(&id).is_some_and(|place| place.generation == generation)
    }

    /// The server has prepared it. Returns the number of one that it replaces, which nobody will
    /// use any more.
    pub(crate) fn put(
        &mut self,
        id: MysqlStatementId,
        number: u32,
        counts: StatementArity,
        reply: Option<Box<[u8]>>,
        generation: u64,
    ) -> Option<u32> {
        self.uses += 1;
        let used = self.uses;
        let place =
            PreparedSlot { number, counts, reply, bound: None, user: None, used, generation };
        self.places.insert(id, place).map(|before| before.number)
    }

    /// The attached client's statement of this number remembers something at this place; none:
    /// nobody's does.
    pub(crate) fn set_user(&mut self, id: MysqlStatementId, user: Option<u32>) {
        if let Some(place) = self.places.get_mut(&id) {
            place.user = user;
        }
    }

    /// Forgets which types were bound last.
    pub(crate) fn unbind(&mut self, id: MysqlStatementId) {
        if let Some(place) = self.places.get_mut(&id) {
            place.bound = None;
        }
    }

    /// Removes a statement. Returns its number.
    pub(crate) fn take(&mut self, id: MysqlStatementId) -> Option<u32> {
        self.places.remove(&id).map(|place| place.number)
    }

    /// The server has forgotten all.
    pub(crate) fn clear(&mut self) {
        self.places.clear();
    }

    /// The client that holds the connection leaves it: nobody remembers anything. Returns whether
    /// somebody did.
    pub(crate) fn forget_users(&mut self) -> bool {
        let mut any = false;
        for place in self.places.values_mut() {
            any |= place.user.take().is_some();
        }
        any
    }

    /// The one that was not used for longest, and that nobody uses at the moment.
    pub(crate) fn oldest(&self, but: Option<MysqlStatementId>) -> Option<MysqlStatementId> {
        self.places
            .iter()
            .filter(|(id, place)| place.user.is_none() && Some(**id) != but)
            .min_by_key(|(_, place)| place.used)
            .map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests;
