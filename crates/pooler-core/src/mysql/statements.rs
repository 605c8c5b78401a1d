//! Prepared statements: the numbers of clients, and the statements of server connections.
//!
//! A client's number has no meaning at the server. A statement is its text with the settings that
//! determine its meaning; their keyed hash is its identity, so that clients share the prepared
//! statements of a server connection, and threads need not communicate.
//!
//! State of a statement between two commands cannot be shared: an open cursor, and long data. While
//! one of a client's statements has such state, statements of the same text are prepared
//! separately.

use std::sync::Arc;

use wire::mysql::frame::{HEADER_BYTES, PacketHeader, put_header};
use wire::mysql::packet::ErrPacket;
use wire::mysql::reply::{ReplyEvent, ReplyKind};

use crate::pg::statements::{HashKey, HashedMap};

use super::settings::MysqlSettings;
use super::texts::MysqlStatementFacts;

/// Maximum statements of one client.
pub const CLIENT_STATEMENTS_MAX: usize = 10_000;

/// Maximum bytes of the texts of one client's statements.
pub const CLIENT_STATEMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum bytes of a reply to a `COM_STMT_PREPARE` that is kept for other clients.
pub const REPLY_BYTES_MAX: usize = 16 * 1024;

/// The number by which some connectors refer to the statement prepared last.
pub const LAST_PREPARED: u32 = u32::MAX;

/// Identity of a statement, in 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MysqlStatementId(u128);

/// A statement as a client prepared it.
#[derive(Debug)]
pub struct MysqlStatement {
    pub(crate) id: MysqlStatementId,
    /// The text, as it is sent to a server.
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
    /// True if long data of a parameter was sent, and the statement was not executed since.
    pub(crate) long_data: bool,
}

impl StatementMemory {
    pub(crate) fn is_any(self) -> bool {
        self.cursor || self.long_data
    }
}

/// A statement of a client.
#[derive(Debug)]
pub(crate) struct OpenStatement {
    pub(crate) statement: Arc<MysqlStatement>,
    /// The client's settings when it was prepared: they determine its meaning wherever it runs.
    pub(crate) settings: Arc<MysqlSettings>,
    /// Identity at server connections: the statement's identity, unless it must not be shared.
    pub(crate) place: MysqlStatementId,
    pub(crate) counts: StatementArity,
    /// Types of its parameters as they were bound last: two bytes for each.
    pub(crate) types: Option<Arc<[u8]>>,
    pub(crate) memory: StatementMemory,
    /// Error of its next execution.
    failure: Option<Box<PrepareFailure>>,
}

/// Statements of one client by number.
#[derive(Debug, Default)]
pub struct MysqlClientStatements {
    open: HashedMap<u32, OpenStatement>,
    /// Number that was assigned last.
    last: u32,
    /// Number of the statement prepared last, if that succeeded.
    pub(crate) last_prepared: Option<u32>,
    bytes: usize,
    /// Number of statements with an open cursor or long data.
    remembering: usize,
}

impl MysqlClientStatements {
    /// Returns the number of statements.
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

    /// Returns the statement of a number, including the one that refers to the last.
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

    /// Assigns a number to a statement.
    pub(crate) fn put(
        &mut self,
        statement: Arc<MysqlStatement>,
        counts: StatementArity,
        settings: &Arc<MysqlSettings>,
    ) -> u32 {
        let mut number = self.last;
        loop {
            // Zero is not a valid number, and the highest one has a special meaning.
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

    /// Removes a number.
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

    /// Returns the combined state of all statements at the server.
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

    /// Returns whether another of the client's statements has state under this identity.
    pub(crate) fn is_taken(&self, place: MysqlStatementId, number: u32) -> bool {
        self.remembering > 0
            && self
                .open
                .iter()
                .any(|(other, it)| *other != number && it.place == place && it.memory.is_any())
    }

    /// Makes the next execution of a statement fail, whatever it is.
    pub(crate) fn fail(&mut self, number: u32, failure: PrepareFailure) {
        if let Some(open) = self.open.get_mut(&number) {
            open.failure = Some(Box::new(failure));
        }
    }

    /// Returns whether the next execution of a statement fails.
    pub(crate) fn has_failed(&self, number: u32) -> bool {
        self.open.get(&number).is_some_and(|open| open.failure.is_some())
    }

    /// Returns why the execution of a statement fails.
    pub(crate) fn take_failure(&mut self, number: u32) -> Option<PrepareFailure> {
        let place = &mut self.open.get_mut(&number)?.failure;
        match place {
            Some(failure) if failure.until_reset => Some((**failure).clone()),
            Some(_) | None => place.take().map(|failure| *failure),
        }
    }

    /// Records a reset of a statement: it can be executed again.
    pub(crate) fn forget_failure(&mut self, number: u32) {
        if let Some(open) = self.open.get_mut(&number) {
            open.failure = None;
        }
    }

    /// Records the loss or reset of the server connection.
    pub(crate) fn server_lost(&mut self) {
        if self.remembering > 0 {
            for open in self.open.values_mut() {
                open.memory = StatementMemory::default();
            }
            self.remembering = 0;
        }
    }

    /// Records a reset of the client's session.
    pub(crate) fn clear(&mut self) {
        *self = MysqlClientStatements { last: self.last, ..MysqlClientStatements::default() };
    }

    /// Returns the statements by number, for the process that takes over from this one.
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

/// Returns the identity of a client's statement that must not be shared with others.
pub(crate) fn private_place(
    key: &HashKey,
    statement: MysqlStatementId,
    client: u32,
    number: u32,
) -> MysqlStatementId {
    let parts = [&statement.0.to_be_bytes()[..], &client.to_be_bytes(), &number.to_be_bytes()];
    MysqlStatementId(key.long(&parts))
}

/// Reason for a prepare.
#[derive(Debug)]
pub(crate) enum PrepareReason {
    /// The client's request.
    Asked,
    /// The client's command for its statement of this number waits for it.
    Needed(u32),
    /// The server no longer had the statement to execute: the execution is repeated afterwards.
    Again(PendingExecution),
}

/// A prepare in progress.
#[derive(Debug)]
pub(crate) struct PendingPrepare {
    pub(crate) statement: Arc<MysqlStatement>,
    /// Identity at the server connection.
    pub(crate) place: MysqlStatementId,
    pub(crate) purpose: PrepareReason,
    /// Schema generation when it was sent.
    pub(crate) generation: u64,
    /// The server's number for it, once known.
    pub(crate) number: u32,
    pub(crate) counts: StatementArity,
    /// The reply so far, packet by packet as the server sent it; `None` once it is too long.
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

    /// Handles a whole packet of the reply.
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

    /// Returns whether it was inserted before a command of the client.
    pub(crate) fn is_injected(&self) -> bool {
        match self.purpose {
            PrepareReason::Asked => false,
            PrepareReason::Needed(_) | PrepareReason::Again(_) => true,
        }
    }
}

/// An execution in progress.
#[derive(Clone, Debug)]
pub(crate) struct PendingExecution {
    /// The client's number for the statement.
    pub(crate) number: u32,
    pub(crate) statement: Arc<MysqlStatement>,
    pub(crate) place: MysqlStatementId,
    /// Kind of the reply: whether a cursor was requested.
    pub(crate) reply: ReplyKind,
    /// True if it failed before, because the server had to prepare the statement again.
    pub(crate) is_second: bool,
}

impl PendingExecution {
    /// Returns the facts about the statement.
    pub(crate) fn facts(&self) -> &MysqlStatementFacts {
        &self.statement.facts
    }
}

/// The server's error for a statement of a client that could not be prepared where it is needed.
#[derive(Clone, Debug)]
pub(crate) struct PrepareFailure {
    pub(crate) code: u16,
    pub(crate) state: [u8; 5],
    pub(crate) message: Box<[u8]>,
    /// True if the server would repeat it until the statement is reset.
    pub(crate) until_reset: bool,
}

impl PrepareFailure {
    /// Creates it from the server's error.
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
    /// Reply of the server to its prepare, if it was not too long.
    pub(crate) reply: Option<Box<[u8]>>,
    /// The types that were bound last, if known.
    pub(crate) bound: Option<Arc<[u8]>>,
    /// The attached client's statement that has state here.
    pub(crate) user: Option<u32>,
    /// Time of its last use, counted in uses.
    used: u64,
    /// Schema generation when it was prepared.
    generation: u64,
}

/// The statements of one server connection.
#[derive(Debug, Default)]
pub struct MysqlServerStatements {
    places: HashedMap<MysqlStatementId, PreparedSlot>,
    uses: u64,
    /// The last execution as it was sent, if it was short; else empty.
    pub(crate) kept: Vec<u8>,
}

impl MysqlServerStatements {
    /// Returns the number of statements.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the statement's slot, and counts a use.
    pub(crate) fn use_place(&mut self, id: MysqlStatementId) -> Option<&mut PreparedSlot> {
        self.uses += 1;
        let place = self.places.get_mut(&id)?;
        place.used = self.uses;
        Some(place)
    }

    /// Returns the statement's slot.
    pub(crate) fn place_mut(&mut self, id: MysqlStatementId) -> Option<&mut PreparedSlot> {
        self.places.get_mut(&id)
    }

    /// Returns whether it was prepared in the current schema generation, so that the reply to its
    /// prepare is still valid.
    pub(crate) fn is_current(&self, id: MysqlStatementId, generation: u64) -> bool {
        self.places.get(&id).is_some_and(|place| place.generation == generation)
    }

    /// Records a prepared statement. Returns the number of the one that it replaces, which is no
    /// longer used.
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

    /// Sets the number of the attached client's statement that has state in this slot, or `None`.
    pub(crate) fn set_user(&mut self, id: MysqlStatementId, user: Option<u32>) {
        if let Some(place) = self.places.get_mut(&id) {
            place.user = user;
        }
    }

    /// Forgets the types that were bound last.
    pub(crate) fn unbind(&mut self, id: MysqlStatementId) {
        if let Some(place) = self.places.get_mut(&id) {
            place.bound = None;
        }
    }

    /// Removes a statement. Returns its number.
    pub(crate) fn take(&mut self, id: MysqlStatementId) -> Option<u32> {
        self.places.remove(&id).map(|place| place.number)
    }

    /// Records that the server has removed all statements.
    pub(crate) fn clear(&mut self) {
        self.places.clear();
    }

    /// Clears the state of the departing client's statements. Returns whether any had state.
    pub(crate) fn forget_users(&mut self) -> bool {
        let mut any = false;
        for place in self.places.values_mut() {
            any |= place.user.take().is_some();
        }
        any
    }

    /// Returns the least recently used statement without state.
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
