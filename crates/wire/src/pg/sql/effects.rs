//! Effects that a text may leave behind in the session that runs it, as a set of bits.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// A set of things that a text may do to its session. No bit means that it leaves nothing behind,
/// as far as its words can tell.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
pub struct PgEffects(u64);

/// Makes the constants, and the names that [`fmt::Debug`] shows.
macro_rules! effects {
    ($($(#[$doc:meta])* $name:ident = $bit:literal,)*) => {
        impl PgEffects {
            $($(#[$doc])* pub const $name: PgEffects = PgEffects(1 << $bit);)*
        }

        const NAMES: &[(&str, PgEffects)] = &[$((stringify!($name), PgEffects::$name),)*];
    };
}

effects! {
    /// `SET` of the session, also `SET SESSION CHARACTERISTICS`, and a call of `set_config` that
    /// was understood.
    SET = 0,
    /// `SET LOCAL` and what else ends with the transaction.
    SET_LOCAL = 1,
    /// `RESET` of one setting or of all.
    RESET = 2,
    /// `SET ROLE`, `SET SESSION AUTHORIZATION`, and their ends.
    ROLE = 3,
    /// `LISTEN`.
    LISTEN = 4,
    /// `UNLISTEN`.
    UNLISTEN = 5,
    /// `NOTIFY` or `pg_notify`; leaves nothing behind.
    NOTIFY = 6,
    /// Makes something temporary, or names the schema of temporary things.
    TEMP = 7,
    /// Takes or gives back an advisory lock of the session.
    ADVISORY = 8,
    /// Declares a cursor `WITH HOLD`, or closes cursors.
    HOLD = 9,
    /// `PREPARE` in SQL.
    PREPARE = 10,
    /// `EXECUTE` in SQL: what it does is what the prepared text does.
    EXECUTE = 11,
    /// `DEALLOCATE`.
    DEALLOCATE = 12,
    /// `DISCARD`.
    DISCARD = 13,
    /// `LOAD`: there is no way back.
    LOAD = 14,
    /// Seeds the session's random numbers: there is no way back, and no way to ask.
    SEED = 15,
    /// Reads `currval` or `lastval`, which are the session's.
    SEQUENCE_READ = 16,
    /// A `DO` block.
    DO = 17,
    /// A `CALL` of a procedure.
    CALL = 18,
    /// Calls a function that is not known to be harmless.
    FUNCTION = 19,
    /// Calls `set_config` for the session with what was not understood.
    SET_CONFIG = 20,
    /// Begins or ends a transaction or a savepoint.
    TRANSACTION = 21,
    /// `ROLLBACK TO`: of what came before in the transaction, some is undone.
    ROLLBACK_TO = 22,
    /// `COPY`.
    COPY = 23,
    /// More than one statement.
    MULTI = 24,
    /// The text, or a part that matters, was not understood: anything may happen.
    UNPARSED = 25,
    /// Asks for a transaction, or for a session, that may write.
    READ_WRITE = 26,
    /// Touches tables, types or operators of the database, so that code may run that is not in the
    /// text: triggers, views, rules, casts.
    HIDDEN = 27,
    /// Calls a function of the server's own by its plain name.
    BUILTIN = 28,
    /// `CREATE` of anything.
    CREATE = 29,
    /// `DROP` or `ALTER` of anything.
    DROP = 30,
    /// A statement stands behind one that may end the transaction: it runs in the next one.
    AFTER_END = 31,
    /// Calls a function that leaves something which lasts as long as the session: no statement
    /// takes it back. A connection of dblink is one.
    LASTING = 32,
    /// Gives a setting the value that the session began with, or may: `RESET` has a bit of its own.
    DEFAULT = 33,
    /// Calls `nextval` or `setval`, whose value the session keeps for `currval` and `lastval`.
    SEQUENCE_WRITE = 34,
}

impl PgEffects {
    /// No effects.
    pub const NONE: PgEffects = PgEffects(0);

    /// Effects of code that is not in the text, or that was not understood: whatever a session can
    /// keep, it may keep afterwards.
    pub const UNKNOWN: PgEffects = PgEffects(
        PgEffects::DO.0
            | PgEffects::CALL.0
            | PgEffects::FUNCTION.0
            | PgEffects::SET_CONFIG.0
            | PgEffects::EXECUTE.0
            | PgEffects::UNPARSED.0,
    );

    /// The bits as a number, for a table.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns whether all of `other` are in it.
    #[must_use]
    pub const fn contains(self, other: PgEffects) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether any of `other` are in it.
    #[must_use]
    pub const fn intersects(self, other: PgEffects) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Both.
    #[must_use]
    pub const fn with(self, other: PgEffects) -> PgEffects {
        PgEffects(self.0 | other.0)
    }

    /// Returns these effects without `other`.
    #[must_use]
    pub const fn without(self, other: PgEffects) -> PgEffects {
        PgEffects(self.0 & !other.0)
    }

    /// Returns what has to be assumed once the client chose its own `search_path`. A plain name of
    /// a function of the server's own may then be another function's, and a plain name of a new
    /// table may be that of a temporary one.
    #[must_use]
    pub const fn with_own_search_path(self) -> PgEffects {
        let mut all = self;
        if all.intersects(PgEffects::BUILTIN) {
            all = all.with(PgEffects::FUNCTION);
        }
        if all.intersects(PgEffects::CREATE) {
            all = all.with(PgEffects::TEMP);
        }
        all
    }
}

impl BitOr for PgEffects {
    type Output = PgEffects;

    fn bitor(self, other: PgEffects) -> PgEffects {
        self.with(other)
    }
}

impl BitOrAssign for PgEffects {
    fn bitor_assign(&mut self, other: PgEffects) {
        *self = self.with(other);
    }
}

impl fmt::Debug for PgEffects {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = NAMES.iter().filter(|(_, bit)| self.contains(*bit)).map(|(name, _)| *name);
        to.write_str(names.next().unwrap_or("NONE"))?;
        names.try_for_each(|name| write!(to, " | {name}"))
    }
}
