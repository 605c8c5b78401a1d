//! Cache of clients' texts, so that each is parsed once.

use std::sync::Arc;

use wire::pg::sql::{self, PgEffects, PgSettingChange, StatementVerb, TextAnalysis};
use wire::prohibitions::TextProhibitions;

use super::statements::{HashKey, PgStatement};
use crate::link::OF_UNSEEN_TEXTS;
use crate::texts::{ShapeTable, TextTable};

/// Effects on settings that are known only at the end of the transaction.
const CHANGES_SETTINGS: PgEffects = PgEffects::SET
    .with(PgEffects::SET_LOCAL)
    .with(PgEffects::RESET)
    .with(PgEffects::SET_CONFIG)
    .with(PgEffects::ROLE)
    .with(PgEffects::DISCARD)
    .with(PgEffects::DO)
    .with(PgEffects::CALL)
    .with(PgEffects::FUNCTION)
    .with(PgEffects::UNPARSED);

/// Effects that may leave a transaction open.
const MAY_BEGIN: PgEffects =
    PgEffects::TRANSACTION.with(PgEffects::EXECUTE).with(PgEffects::CALL).with(PgEffects::UNPARSED);

/// Effects that do not depend on constants: numbers and strings are ignored for these.
const OF_ANY_CONSTANTS: PgEffects =
    PgEffects::HIDDEN.with(PgEffects::BUILTIN).with(PgEffects::TRANSACTION).with(PgEffects::MULTI);

/// Facts about a text.
#[derive(Clone, Debug)]
pub(crate) struct PgStatementFacts {
    pub(crate) effects: PgEffects,
    /// Fingerprint, equal for texts that differ in constants only.
    pub(crate) fingerprint: u64,
    /// Kind of its first statement.
    pub(crate) verb: StatementVerb,
    /// True if following requests have to wait for it: it may request data, or reset names.
    pub(crate) is_barrier: bool,
    /// Complete analysis, if the text contains names or settings.
    pub(crate) look: Option<Arc<TextAnalysis>>,
    /// Parts of the text that read-only clients and sandboxes may not use.
    pub(crate) prohibitions: TextProhibitions,
}

impl PgStatementFacts {
    /// Parses a text.
    fn of(text: &[u8]) -> PgStatementFacts {
        let look = sql::analyse(text);
        let (effects, fingerprint, verb) = (look.effects, look.fingerprint, look.verb);
        let prohibitions = look.prohibitions;
        let plain = look.changes.is_empty()
            && look.names.is_empty()
            && look.unresolved.is_none()
            && look.mentions.is_empty()
            && look.defaults.is_empty();
        PgStatementFacts {
            effects,
            fingerprint,
            verb,
            is_barrier: effects
                .intersects(PgEffects::COPY | PgEffects::DISCARD | PgEffects::DEALLOCATE),
            look: if plain { None } else { Some(Arc::new(look)) },
            prohibitions,
        }
    }

    /// Returns the facts if they hold for every text that differs in its constants only.
    fn of_shape(self) -> Option<PgStatementFacts> {
        let same = self.effects.without(OF_ANY_CONSTANTS).is_empty() && self.look.is_none();
        let same = same && self.prohibitions.is_empty();
        same.then_some(self)
    }

    /// Facts about a text that was not parsed.
    pub(crate) const UNKNOWN: PgStatementFacts = PgStatementFacts {
        effects: PgEffects::UNPARSED.with(PgEffects::COPY),
        fingerprint: 0,
        verb: StatementVerb::Other,
        is_barrier: true,
        look: None,
        prohibitions: OF_UNSEEN_TEXTS,
    };

    /// Facts about the execution of a statement that was prepared by SQL.
    pub(crate) const EXECUTION: PgStatementFacts = PgStatementFacts {
        effects: PgEffects::EXECUTE,
        fingerprint: 0,
        verb: StatementVerb::Statement,
        is_barrier: true,
        look: None,
        prohibitions: TextProhibitions::NONE,
    };

    /// Returns whether it may end the transaction.
    pub(crate) fn ends_transaction(&self) -> bool {
        let effects = self.effects;
        let begins = matches!(self.verb, StatementVerb::Begin | StatementVerb::Savepoint)
            || effects.intersects(PgEffects::ROLLBACK_TO);
        effects.intersects(PgEffects::UNPARSED)
            || (effects.intersects(PgEffects::TRANSACTION) && !begins)
    }

    /// Returns the facts without some effects.
    pub(crate) fn without(&self, effects: PgEffects) -> PgStatementFacts {
        let look = self.look.as_ref().map(|look| {
            let mut look = (**look).clone();
            look.effects = look.effects.without(effects);
            Arc::new(look)
        });
        PgStatementFacts { effects: self.effects.without(effects), look, ..self.clone() }
    }

    /// Returns the facts of a text that runs with values that may name custom settings.
    pub(crate) fn with_values(&self, values: &[u8]) -> PgStatementFacts {
        if !self.effects.intersects(FOREIGN) {
            return self.clone();
        }
        let mentions = mentions_in(values);
        if mentions.is_empty() {
            return self.clone();
        }
        let unseen = || TextAnalysis {
            effects: self.effects,
            fingerprint: self.fingerprint,
            verb: self.verb,
            ..TextAnalysis::default()
        };
        let mut look = self.look.as_deref().cloned().unwrap_or_else(unseen);
        look.mentions.extend(mentions);
        PgStatementFacts { look: Some(Arc::new(look)), ..self.clone() }
    }

    /// Returns the facts of `text`, in which resets were rewritten so that it makes these changes.
    pub(crate) fn restoring(
        &self,
        text: &[u8],
        changes: Vec<PgSettingChange>,
        blocks: bool,
    ) -> PgStatementFacts {
        let mut look = sql::analyse(text);
        if blocks {
            // The effects of the blocks are known: they are in `changes`.
            look.effects = self.effects | PgEffects::SET;
        }
        look.fingerprint = self.fingerprint;
        look.changes = changes;
        PgStatementFacts { effects: look.effects, look: Some(Arc::new(look)), ..self.clone() }
    }

    /// Returns whether the settings may differ from the known ones while this runs, or afterwards.
    pub(crate) fn changes_settings(&self) -> bool {
        self.effects.intersects(CHANGES_SETTINGS)
    }

    /// Returns whether it may leave a transaction open.
    pub(crate) fn may_begin(&self) -> bool {
        self.effects.intersects(MAY_BEGIN)
    }

    /// Returns whether it changes the lookup of names.
    pub(crate) fn changes_search_path(&self) -> bool {
        let of_path = |change: &PgSettingChange| change.name() == Some("search_path");
        self.effects.intersects(PgEffects::SET_CONFIG)
            || self.look.as_ref().is_some_and(|look| look.changes.iter().any(of_path))
    }
}

/// Effects of code that is not in a text.
const FOREIGN: PgEffects =
    PgEffects::DO.with(PgEffects::CALL).with(PgEffects::FUNCTION).with(PgEffects::UNPARSED);

/// Maximum values of one `Bind` that may name custom settings.
const MENTIONS_MAX: usize = 4;

/// Returns the values of a `Bind` that may name settings. `values` is the available input after the
/// names.
fn mentions_in(values: &[u8]) -> Vec<String> {
    let mut mentions = Vec::new();
    let count = |rest: &[u8]| rest.first_chunk().map(|it| usize::from(u16::from_be_bytes(*it)));
    let Some(formats) = count(values) else { return mentions };
    let Some(rest) = values.get(2 + 2 * formats..) else { return mentions };
    let Some(parameters) = count(rest) else { return mentions };
    let mut rest = rest.get(2..).unwrap_or_default();
    for _ in 0..parameters {
        let Some((length, after)) = rest.split_first_chunk::<4>() else { break };
        // A negative length is NULL.
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
        let Some((value, after)) = after.split_at_checked(length) else { break };
        mentions.extend(sql::custom_setting_name(value));
        if mentions.len() >= MENTIONS_MAX {
            break;
        }
        rest = after;
    }
    mentions
}

#[derive(Debug)]
struct PgCachedStatement {
    facts: PgStatementFacts,
    /// The statement of this text that was prepared last, with the settings on which it depends.
    statement: Option<(u64, Arc<PgStatement>)>,
}

/// The cache's tables; each thread has its own.
#[derive(Debug)]
pub(crate) struct PgStatementCache {
    texts: TextTable<PgCachedStatement>,
    shapes: ShapeTable<PgStatementFacts>,
}

impl PgStatementCache {
    pub(crate) fn new(key: HashKey) -> PgStatementCache {
        PgStatementCache { shapes: ShapeTable::new(key.clone()), texts: TextTable::new(key) }
    }

    /// Returns the facts about a text of the simple protocol.
    pub(crate) fn facts(&mut self, text: &[u8]) -> PgStatementFacts {
        if let Some(facts) = self.shapes.known(text, 0, || PgStatementFacts::of(text).of_shape()) {
            return facts;
        }
        match self.known(text) {
            Some(known) => known.facts.clone(),
            None => PgStatementFacts::of(text),
        }
    }

    /// Returns the statement of a `Parse`, and whether the text was seen before.
    pub(crate) fn statement(
        &mut self,
        text: &[u8],
        types: &[u8],
        plan_key: u64,
    ) -> (Arc<PgStatement>, bool) {
        let key = self.texts.key().clone();
        let Some(known) = self.known(text) else {
            return (
                PgStatement::new(&key, text, types, plan_key, PgStatementFacts::of(text)),
                false,
            );
        };
        if let Some((for_key, statement)) = &known.statement
            && *for_key == plan_key
            && *statement.types == *types
        {
            return (statement.clone(), true);
        }
        let statement = PgStatement::new(&key, text, types, plan_key, known.facts.clone());
        known.statement = Some((plan_key, statement.clone()));
        (statement, true)
    }

    fn known(&mut self, text: &[u8]) -> Option<&mut PgCachedStatement> {
        self.texts.known(text, 0, || PgCachedStatement {
            facts: PgStatementFacts::of(text),
            statement: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_when_it_comes_again() {
        let mut texts = PgStatementCache::new(HashKey::new());
        let (first, known) = texts.statement(b"SELECT 1", b"\0\0", 0);
        assert!(!known);
        let (second, known) = texts.statement(b"SELECT 1", b"\0\0", 0);
        assert!(known);
        assert_eq!(first.id, second.id);
        let (third, known) = texts.statement(b"SELECT 1", b"\0\0", 0);
        assert!(known && Arc::ptr_eq(&second, &third));
    }

    #[test]
    fn types_and_settings_make_other_statements() {
        let mut texts = PgStatementCache::new(HashKey::new());
        let id = |texts: &mut PgStatementCache, text: &[u8], types: &[u8], key| {
            texts.statement(text, types, key).0.id
        };
        let plain = id(&mut texts, b"SELECT $1", b"\0\0", 0);
        assert_ne!(plain, id(&mut texts, b"SELECT $1", b"\0\x01\0\0\0\x17", 0));
        assert_ne!(plain, id(&mut texts, b"SELECT $1", b"\0\0", 1));
        assert_ne!(plain, id(&mut texts, b"SELECT $1 ", b"\0\0", 0));
        assert_eq!(plain, id(&mut texts, b"SELECT $1", b"\0\0", 0));
    }

    #[test]
    fn values_may_name_settings() {
        let mut values = vec![0, 0, 0, 4];
        for value in [&b"App.User"[..], b"1.5", b"", b"x.y"] {
            values.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
            values.extend(value);
        }
        assert_eq!(mentions_in(&values), ["app.user", "x.y"]);
        for end in 0..values.len() {
            assert!(mentions_in(&values[..end]).len() < 2);
        }
        let facts = PgStatementFacts::of(b"SELECT f($1)").with_values(&values);
        assert_eq!(facts.look.unwrap().mentions, ["app.user", "x.y"]);
        assert!(PgStatementFacts::of(b"SELECT $1").with_values(&values).look.is_none());
    }

    #[test]
    fn constants_that_matter_are_looked_at() {
        let mut texts = PgStatementCache::new(HashKey::new());
        for text in [
            "SELECT set_config('?', 'x', false)",
            "SELECT set_config('?', 'x', true), pg_catalog.set_config('role', '?', #)",
            "SET work_mem = #",
            "SET SESSION x.y = '?'",
            "DO 'SELECT ?'",
            "SELECT f('?.y', #)",
            "CALL f(#)",
            "SELECT a FROM t WHERE b = '?' AND c = #",
            "BEGIN; INSERT INTO t VALUES (#, '?'); COMMIT",
            "EXECUTE x(#, '?')",
            "NOTIFY x, '?'",
            "COMMIT PREPARED '?'",
        ] {
            for (number, string) in [("1", "role"), ("22", "seed"), ("3", "a"), ("3", "x.y")] {
                let text = text.replace('#', number).replace('?', string);
                for _ in 0..2 {
                    let (facts, read) =
                        (texts.facts(text.as_bytes()), PgStatementFacts::of(text.as_bytes()));
                    assert_eq!(format!("{facts:?}"), format!("{read:?}"), "{text}");
                }
            }
        }
    }
}
