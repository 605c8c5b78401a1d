//! Cache of clients' texts, so that each is parsed once.
//!
//! The same text has different meanings under different SQL modes, and is cached for each.

use std::sync::Arc;

use wire::mysql::sql::{
    self, CharsetClass, MysqlEffects, MysqlTextDetails, SessionQuestion, SqlMode,
};
use wire::prohibitions::TextProhibitions;

use super::settings::MysqlSettings;
use super::statements::MysqlStatement;
use crate::link::OF_UNSEEN_TEXTS;
use crate::pg::statements::HashKey;
use crate::texts::{ShapeTable, TextTable};

/// Effects that require parsing details: names or values.
const WITH_DETAILS: MysqlEffects = MysqlEffects::SET
    .with(MysqlEffects::SET_EXPRESSION)
    .with(MysqlEffects::SET_UNKNOWN)
    .with(MysqlEffects::SET_FIXED)
    .with(MysqlEffects::NEXT_TRANSACTION)
    .with(MysqlEffects::AUTOCOMMIT)
    .with(MysqlEffects::NAMES)
    .with(MysqlEffects::GLOBAL)
    .with(MysqlEffects::USE)
    .with(MysqlEffects::TEMP_CREATE)
    .with(MysqlEffects::TEMP_DROP)
    .with(MysqlEffects::HANDLER)
    .with(MysqlEffects::SQL_PREPARE)
    .with(MysqlEffects::SQL_DEALLOCATE)
    .with(MysqlEffects::SQL_EXECUTE)
    .with(MysqlEffects::KILL);

/// Effects of texts that may be a query that can be answered here.
const WITH_QUESTION: MysqlEffects =
    MysqlEffects::SHOW_WARNINGS.with(MysqlEffects::ROW_COUNT).with(MysqlEffects::FOUND_ROWS);

/// Effects that do not depend on constants: numbers and strings are ignored for these.
const OF_ANY_CONSTANTS: MysqlEffects = MysqlEffects::TABLES
    .with(MysqlEffects::WRITES)
    .with(MysqlEffects::TRANSACTION_BEGIN)
    .with(MysqlEffects::COMMIT)
    .with(MysqlEffects::ROLLBACK);

/// Facts about a text.
#[derive(Clone, Debug)]
pub(crate) struct MysqlStatementFacts {
    pub(crate) effects: MysqlEffects,
    /// The relevant variables and names in it, if there are any.
    pub(crate) details: Option<Arc<MysqlTextDetails>>,
    /// The query that it consists of, if that can be answered here.
    pub(crate) asked: Option<Arc<SessionQuestion>>,
    /// True if it takes a named lock and does nothing else: the result's value shows whether that
    /// succeeded.
    pub(crate) is_lock_alone: bool,
    /// Parts of the text that read-only clients and sandboxes may not use.
    pub(crate) prohibitions: TextProhibitions,
}

impl MysqlStatementFacts {
    /// Facts about a text that was not parsed.
    pub(crate) const UNKNOWN: MysqlStatementFacts = MysqlStatementFacts {
        effects: MysqlEffects::UNPARSED,
        prohibitions: OF_UNSEEN_TEXTS,
        ..MysqlStatementFacts::NOTHING
    };

    /// Facts about a command without lasting effects.
    pub(crate) const NOTHING: MysqlStatementFacts = MysqlStatementFacts {
        effects: MysqlEffects::NONE,
        details: None,
        asked: None,
        is_lock_alone: false,
        prohibitions: TextProhibitions::NONE,
    };

    /// Returns the facts if they hold for every text that differs in its constants only.
    fn of_shape(self) -> Option<MysqlStatementFacts> {
        let same = self.effects.without(OF_ANY_CONSTANTS).is_empty();
        (same && self.prohibitions.is_empty()).then_some(self)
    }

    /// Parses a text.
    fn of(text: &[u8], mode: SqlMode) -> MysqlStatementFacts {
        let (effects, prohibitions) = sql::effects_and_prohibitions(text, mode);
        let details = effects.intersects(WITH_DETAILS).then(|| Arc::new(sql::details(text, mode)));
        let asked = effects.intersects(WITH_QUESTION).then(|| sql::question(text, mode)).flatten();
        let is_lock_alone =
            effects.intersects(MysqlEffects::GET_LOCK) && sql::is_lock_alone(text, mode);
        MysqlStatementFacts {
            effects,
            details,
            asked: asked.map(Arc::new),
            is_lock_alone,
            prohibitions,
        }
    }
}

#[derive(Debug)]
struct MysqlCachedStatement {
    facts: MysqlStatementFacts,
    /// The statement of this text that was prepared last, with the settings on which it depends.
    statement: Option<(u64, Arc<MysqlStatement>)>,
}

/// The cache's tables; each thread has its own.
#[derive(Debug)]
pub(crate) struct MysqlStatementCache {
    texts: TextTable<MysqlCachedStatement>,
    shapes: ShapeTable<MysqlStatementFacts>,
}

impl MysqlStatementCache {
    /// Creates empty tables, whose hashes cannot be predicted from outside.
    pub(crate) fn new(key: HashKey) -> MysqlStatementCache {
        MysqlStatementCache { shapes: ShapeTable::new(key.clone()), texts: TextTable::new(key) }
    }

    /// Returns the facts about a text in a session with this mode.
    pub(crate) fn facts(&mut self, text: &[u8], mode: SqlMode) -> MysqlStatementFacts {
        let look = || MysqlStatementFacts::of(text, mode).of_shape();
        if let Some(facts) = self.shapes.known(text, reading(mode), look) {
            return facts;
        }
        match self.known(text, mode) {
            Some(known) => known.facts.clone(),
            None => MysqlStatementFacts::of(text, mode),
        }
    }

    /// Returns the statement that preparing a text creates in a session with these settings, which
    /// is parsed in `mode`: a session without an SQL mode of its own has the server's.
    pub(crate) fn statement(
        &mut self,
        text: &[u8],
        mode: SqlMode,
        settings: &MysqlSettings,
    ) -> Arc<MysqlStatement> {
        let key = self.texts.key().clone();
        let plan_key = settings.plan_key();
        let Some(known) = self.known(text, mode) else {
            return Arc::new(MysqlStatement::new(
                &key,
                text,
                plan_key,
                MysqlStatementFacts::of(text, mode),
            ));
        };
        if let Some((for_key, statement)) = &known.statement
            && *for_key == plan_key
        {
            return statement.clone();
        }
        let statement = Arc::new(MysqlStatement::new(&key, text, plan_key, known.facts.clone()));
        known.statement = Some((plan_key, statement.clone()));
        statement
    }

    fn known(&mut self, text: &[u8], mode: SqlMode) -> Option<&mut MysqlCachedStatement> {
        let look =
            || MysqlCachedStatement { facts: MysqlStatementFacts::of(text, mode), statement: None };
        self.texts.known(text, reading(mode), look)
    }
}

/// Returns a distinct number for each mode.
fn reading(mode: SqlMode) -> u64 {
    let charset = match mode.charset {
        CharsetClass::Utf8 => 0,
        CharsetClass::AsciiSafe => 1,
        CharsetClass::Unsafe => 2,
    };
    charset | u64::from(mode.ansi_quotes) << 2 | u64::from(mode.no_backslash_escapes) << 3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(sql_mode: &str) -> MysqlSettings {
        MysqlSettings::of([("sql_mode", sql_mode)])
    }

    #[test]
    fn a_text_is_kept_when_it_comes_again() {
        let mut texts = MysqlStatementCache::new(HashKey::new());
        let plain = settings("");
        let first = texts.statement(b"SELECT 1", plain.mode(), &plain);
        let second = texts.statement(b"SELECT 1", plain.mode(), &plain);
        assert_eq!(first.id, second.id);
        assert!(!Arc::ptr_eq(&first, &second));
        assert!(Arc::ptr_eq(&second, &texts.statement(b"SELECT 1", plain.mode(), &plain)));
    }

    #[test]
    fn settings_make_other_statements() {
        let mut texts = MysqlStatementCache::new(HashKey::new());
        let mut id = |text: &[u8], settings: &MysqlSettings| {
            texts.statement(text, settings.mode(), settings).id
        };
        let plain = id(b"SELECT ?", &settings(""));
        let patient = settings("").overlaid(&MysqlSettings::of([("lock_wait_timeout", "1")]));
        let mut elsewhere = settings("");
        let _kept = elsewhere.put_schema("elsewhere");
        assert_eq!(plain, id(b"SELECT ?", &patient));
        assert_ne!(plain, id(b"SELECT ?", &elsewhere));
        assert_ne!(plain, id(b"SELECT ?", &settings("ANSI_QUOTES")));
        assert_ne!(plain, id(b"SELECT ? ", &settings("")));
        assert_eq!(plain, id(b"SELECT ?", &settings("")));
    }

    #[test]
    fn modes_have_places_of_their_own() {
        let mut texts = MysqlStatementCache::new(HashKey::new());
        let mut kept = || {
            ["", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES"].map(|sql_mode| {
                let settings = settings(sql_mode);
                texts.statement(b"SELECT 1", settings.mode(), &settings)
            })
        };
        let [_first, second, third] = [kept(), kept(), kept()];
        for (second, third) in second.iter().zip(&third) {
            assert!(Arc::ptr_eq(second, third));
        }
    }

    /// The server has an SQL mode that was not set in the session.
    #[test]
    fn statements_are_read_as_the_server_reads_them() {
        let mut texts = MysqlStatementCache::new(HashKey::new());
        let settings = MysqlSettings::default();
        let text = br#"SELECT '\', GET_LOCK("k", 0) /* ' */"#;
        for _ in 0..3 {
            for no_backslash_escapes in [false, true] {
                let mode = SqlMode { no_backslash_escapes, ..settings.mode() };
                let effects = texts.statement(text, mode, &settings).facts.effects;
                assert_eq!(effects.intersects(MysqlEffects::GET_LOCK), no_backslash_escapes);
            }
        }
    }

    #[test]
    fn constants_that_matter_are_looked_at() {
        let mut texts = MysqlStatementCache::new(HashKey::new());
        for text in [
            "SET autocommit = #",
            "SET SESSION sql_mode = '?'",
            "SELECT GET_LOCK('?', #)",
            "SELECT RELEASE_LOCK('?')",
            "KILL #",
            "PREPARE a FROM '?'",
            "SELECT LAST_INSERT_ID(#)",
            "SELECT f(#, '?')",
            "SELECT c FROM t WHERE id = # AND d = '?' LIMIT #",
            "BEGIN",
            "INSERT INTO t VALUES (#, '?'), (#, '?')",
            "SHOW WARNINGS LIMIT #",
            "USE t#",
        ] {
            for (number, string) in [("1", "a"), ("22", "ANSI_QUOTES"), ("0", "SELECT 1")] {
                let text = text.replace('#', number).replace('?', string);
                for _ in 0..2 {
                    let mode = SqlMode::default();
                    let facts = texts.facts(text.as_bytes(), mode);
                    let read = MysqlStatementFacts::of(text.as_bytes(), mode);
                    assert_eq!(format!("{facts:?}"), format!("{read:?}"), "{text}");
                }
            }
        }
    }
}
