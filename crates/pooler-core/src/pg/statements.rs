//! Prepared statements: the names of clients, and the statements of server connections.
//!
//! A client's name has no meaning at the server. A statement is its text and parameter types with
//! the settings that determine its meaning; their keyed hash is its identity and its name at every
//! server, so that clients share the prepared statements of a server, and threads need not
//! communicate.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-EXT-QUERY>
//! - <https://www.postgresql.org/docs/current/sql-prepare.html>

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::Arc;

use super::server::TextRewrite;

/// Maximum named statements of one client.
pub const CLIENT_STATEMENTS_MAX: usize = 10_000;

/// Maximum bytes of their texts, with the types of their parameters.
pub const CLIENT_STATEMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum unused names that are kept, to avoid a search for them each time.
const NAMES_SPARE: usize = 16;

/// Bytes of the name of a statement at a server.
const SERVER_NAME_BYTES: usize = 37;

/// Prefix of names at servers.
pub(crate) const SERVER_NAME_PREFIX: &[u8] = b"cove_";

/// Key of hashes, a secret of this process, so that collisions cannot be constructed from outside.
#[derive(Clone, Debug, Default)]
pub struct HashKey {
    low: RandomState,
    high: RandomState,
}

impl HashKey {
    /// Creates a random key. All threads of a process use clones of one.
    pub fn new() -> HashKey {
        HashKey::default()
    }

    /// Returns 64 bits, for tables that compare their entries.
    #[inline]
    pub(crate) fn short(&self, bytes: &[u8]) -> u64 {
        self.low.hash_one(bytes)
    }

    /// Returns 128 bits, for identities.
    pub(crate) fn long(&self, parts: &[&[u8]]) -> u128 {
        let one = |state: &RandomState| {
            let mut hasher = state.build_hasher();
            for part in parts {
                hasher.write_usize(part.len());
                hasher.write(part);
            }
            hasher.finish()
        };
        (u128::from(one(&self.high)) << 64) | u128::from(one(&self.low))
    }
}

/// Hasher for keys that are hashes already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PassthroughHasher(u64);

impl Hasher for PassthroughHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn write_u128(&mut self, number: u128) {
        let [.., a, b, c, d, e, f, g, h] = number.to_be_bytes();
        self.0 = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    }
}

/// A table whose keys are hashes.
pub(crate) type HashedMap<K, V> = HashMap<K, V, BuildHasherDefault<PassthroughHasher>>;

/// Identity of a statement, in 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PgStatementId(u128);

/// Hash of a client's name for a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NameId(u128);

impl NameId {
    pub(crate) fn of(key: &HashKey, name: &[u8]) -> NameId {
        NameId(key.long(&[name]))
    }
}

/// A statement as a client prepared it.
#[derive(Debug)]
pub struct PgStatement {
    pub(crate) id: PgStatementId,
    name: [u8; SERVER_NAME_BYTES],
    /// The text, without the zero at its end.
    pub(crate) text: Box<[u8]>,
    /// Number and types of the parameters in wire format.
    pub(crate) types: Box<[u8]>,
    /// Facts about the text.
    pub(crate) facts: super::texts::PgStatementFacts,
    /// Differences from the client's text, if there are any.
    pub(crate) rewrite: Option<Arc<TextRewrite>>,
}

impl PgStatement {
    pub(crate) fn new(
        key: &HashKey,
        text: &[u8],
        types: &[u8],
        plan_key: u64,
        facts: super::texts::PgStatementFacts,
    ) -> Arc<PgStatement> {
        let id = PgStatementId(key.long(&[text, types, &plan_key.to_be_bytes()]));
        Arc::new(PgStatement {
            id,
            name: server_name(id),
            text: text.into(),
            types: types.into(),
            facts,
            rewrite: None,
        })
    }

    /// Adds the differences from the client's text.
    pub(crate) fn rewritten(mut self: Arc<PgStatement>, rewrite: TextRewrite) -> Arc<PgStatement> {
        if let Some(statement) = Arc::get_mut(&mut self) {
            statement.rewrite = Some(Arc::new(rewrite));
        }
        self
    }

    /// Returns the bytes that count toward the limit.
    fn bytes(&self) -> usize {
        self.text.len() + self.types.len()
    }

    /// Returns its name at every server.
    pub(crate) fn server_name(&self) -> &[u8] {
        &self.name
    }
}

fn server_name(id: PgStatementId) -> [u8; SERVER_NAME_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut name = [0; SERVER_NAME_BYTES];
    let (prefix, digits) = name.split_at_mut(SERVER_NAME_PREFIX.len());
    prefix.copy_from_slice(SERVER_NAME_PREFIX);
    for (pair, byte) in digits.chunks_exact_mut(2).zip(id.0.to_be_bytes()) {
        for (digit, half) in pair.iter_mut().zip([byte >> 4, byte & 15]) {
            *digit = DIGITS.get(usize::from(half)).copied().unwrap_or(b'0');
        }
    }
    name
}

/// Statements of one client by name.
#[derive(Debug, Default)]
pub(crate) struct PgClientStatements {
    named: HashedMap<NameId, Arc<PgStatement>>,
    /// Names, for the process that takes over from this one.
    names: HashedMap<NameId, Box<[u8]>>,
    pub(crate) unnamed: Option<Arc<PgStatement>>,
    /// Bytes of all named statements.
    bytes: usize,
}

/// Name of a client's statement; `None` is the unnamed one.
pub(crate) type Name = Option<NameId>;

/// Former meaning of a name that a request changed, in case the server skips the request.
#[derive(Debug)]
pub(crate) struct NameUndo {
    pub(crate) name: Name,
    pub(crate) before: Option<Arc<PgStatement>>,
}

impl PgClientStatements {
    pub(crate) fn named(&self, name: NameId) -> Option<&Arc<PgStatement>> {
        self.named.get(&name)
    }

    /// Returns the statement with this identity, under any name.
    pub(crate) fn by_id(&self, id: PgStatementId) -> Option<&Arc<PgStatement>> {
        self.unnamed.iter().chain(self.named.values()).find(|statement| statement.id == id)
    }

    pub(crate) fn len(&self) -> usize {
        self.named.len()
    }

    /// Returns whether there is room for another named statement.
    pub(crate) fn has_room_for(&self, statement: &PgStatement) -> bool {
        self.named.len() < CLIENT_STATEMENTS_MAX
            && self.bytes + statement.bytes() <= CLIENT_STATEMENT_BYTES_MAX
    }

    /// Records a name that is about to get a statement.
    pub(crate) fn remember(&mut self, id: NameId, name: &[u8]) {
        if self.names.contains_key(&id) {
            return;
        }
        if self.names.len() >= 2 * self.named.len() + NAMES_SPARE {
            let named = &self.named;
            self.names.retain(|id, _| named.contains_key(id));
        }
        self.names.insert(id, name.into());
    }

    /// Returns name, text and types of all; the unnamed one has an empty name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], &[u8])> {
        let named = self.named.iter().filter_map(|(id, it)| Some((&**self.names.get(id)?, it)));
        let unnamed = self.unnamed.iter().map(|it| (&b""[..], it));
        named.chain(unnamed).map(|(name, it)| (name, &*it.text, &*it.types))
    }

    /// Sets or removes the statement of a name.
    pub(crate) fn put(&mut self, name: NameId, statement: Option<Arc<PgStatement>>) -> NameUndo {
        let before = match statement {
            Some(statement) => {
                self.bytes += statement.bytes();
                self.named.insert(name, statement)
            }
            None => self.named.remove(&name),
        };
        self.bytes -= before.as_deref().map_or(0, PgStatement::bytes);
        NameUndo { name: Some(name), before }
    }

    pub(crate) fn put_unnamed(&mut self, statement: Option<Arc<PgStatement>>) -> NameUndo {
        NameUndo { name: None, before: std::mem::replace(&mut self.unnamed, statement) }
    }

    pub(crate) fn undo(&mut self, undo: NameUndo) {
        let _undone = match undo.name {
            Some(name) => self.put(name, undo.before),
            None => self.put_unnamed(undo.before),
        };
    }

    pub(crate) fn clear(&mut self) {
        self.bytes = 0;
        self.named = HashedMap::default();
        self.names = HashedMap::default();
        self.unnamed = None;
    }
}

/// Presence of a statement at a server connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementPresence {
    /// Confirmed by the server.
    There,
    /// A `Parse` is outstanding in this batch: if it fails, so does the batch.
    UnderWay,
    /// A `Parse` is outstanding in an earlier batch, which may have failed before it, or was
    /// skipped.
    InDoubt,
    /// Missing.
    Missing,
}

/// Certainty about a statement's presence.
#[derive(Clone, Copy, Debug)]
enum PresenceKnowledge {
    There,
    /// A `Parse` was sent in this batch.
    Coming(u32),
    /// A `Parse` was skipped; whether an earlier one succeeded is unknown.
    Doubted,
}

#[derive(Clone, Copy, Debug)]
struct ServerStatementEntry {
    known: PresenceKnowledge,
    /// Time of its last use, counted in uses.
    used: u64,
    /// Schema generation when it was prepared.
    generation: u64,
}

/// The statements of one server connection.
#[derive(Debug, Default)]
pub(crate) struct PgServerStatements {
    places: HashedMap<PgStatementId, ServerStatementEntry>,
    /// The unnamed statement, if it is one of these and not another client's.
    pub(crate) unnamed: Option<PgStatementId>,
    uses: u64,
}

impl PgServerStatements {
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the presence of the statement for a request of this batch, and counts a use.
    pub(crate) fn use_in(&mut self, id: PgStatementId, batch: u32) -> StatementPresence {
        self.uses += 1;
        let Some(place) = self.places.get_mut(&id) else { return StatementPresence::Missing };
        place.used = self.uses;
        match place.known {
            PresenceKnowledge::There => StatementPresence::There,
            PresenceKnowledge::Coming(coming) if coming == batch => StatementPresence::UnderWay,
            PresenceKnowledge::Coming(_) | PresenceKnowledge::Doubted => StatementPresence::InDoubt,
        }
    }

    /// Returns whether it exists, or a `Parse` of it is outstanding.
    pub(crate) fn has(&self, id: PgStatementId) -> bool {
        self.places.contains_key(&id)
    }

    /// Returns whether the statement was prepared in the current schema generation.
    pub(crate) fn is_current(&self, id: PgStatementId, generation: u64) -> bool {
        self.places.get(&id).is_some_and(|place| place.generation == generation)
    }

    /// Records that a `Parse` of it was sent in this batch.
    pub(crate) fn coming(&mut self, id: PgStatementId, batch: u32, generation: u64) {
        self.uses += 1;
        let place = ServerStatementEntry {
            known: PresenceKnowledge::Coming(batch),
            used: self.uses,
            generation,
        };
        let _before = self.places.insert(id, place);
    }

    /// Records that the server has prepared it.
    pub(crate) fn arrived(&mut self, id: PgStatementId) {
        if let Some(place) = self.places.get_mut(&id) {
            place.known = PresenceKnowledge::There;
        }
    }

    /// Records that the server skipped its `Parse`: it has to be closed before it is prepared
    /// again.
    pub(crate) fn doubted(&mut self, id: PgStatementId) {
        if let Some(place) = self.places.get_mut(&id) {
            place.known = PresenceKnowledge::Doubted;
        }
    }

    /// Records that the server refused its `Parse`, or has closed it.
    pub(crate) fn gone(&mut self, id: PgStatementId) {
        let _before = self.places.remove(&id);
    }

    /// Records that the server has removed all statements.
    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.unnamed = None;
    }

    /// Returns the least recently used statement.
    pub(crate) fn oldest(&self) -> Option<PgStatementId> {
        self.places.iter().min_by_key(|(_, place)| place.used).map(|(id, _)| *id)
    }
}

/// Appends a `Parse` of a statement under a name.
pub(crate) fn write_parse(out: &mut Vec<u8>, name: &[u8], statement: &PgStatement) {
    use wire::pg::frame::{frontend, put_header};
    let body = name.len() + statement.text.len() + statement.types.len() + 2;
    put_header(out, frontend::PARSE, body);
    out.extend_from_slice(name);
    out.push(0);
    out.extend_from_slice(&statement.text);
    out.push(0);
    out.extend_from_slice(&statement.types);
}

/// Appends a `Close` of a statement by its identity.
pub(crate) fn write_close(out: &mut Vec<u8>, id: PgStatementId) {
    use wire::pg::frame::{frontend, put_header};
    put_header(out, frontend::CLOSE, SERVER_NAME_BYTES + 2);
    out.push(b'S');
    out.extend_from_slice(&server_name(id));
    out.push(0);
}
