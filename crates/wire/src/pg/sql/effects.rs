//! Effects that a text may leave behind in the session that runs it, as a set of bits.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// A set of a text's possible effects on its session. Without any bit it leaves no state behind, as
/// far as its words show.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
pub struct PgEffects(u64);

/// Defines the constants, and the names that [`fmt::Debug`] shows.
macro_rules! effects {
    ($($(#[$doc:meta])* $name:ident = $bit:literal,)*) => {
        impl PgEffects {
            $($(#[$doc])* pub const $name: PgEffects = PgEffects(1 << $bit);)*
        }

        const NAMES: &[(&str, PgEffects)] = &[$((stringify!($name), PgEffects::$name),)*];
    };
}

effects! {
    /// `SET` of the session, including `SET SESSION CHARACTERISTICS`, and a call of `set_config`
    /// that was understood.
    SET = 0,
    /// `SET LOCAL` and other settings that end with the transaction.
    SET_LOCAL = 1,
    /// `RESET` of one setting or of all.
    RESET = 2,
    /// `SET ROLE`, `SET SESSION AUTHORIZATION`, and their ends.
    ROLE = 3,
    /// `LISTEN`.
    LISTEN = 4,
    /// `UNLISTEN`.
    UNLISTEN = 5,
    /// `NOTIFY` or `pg_notify`; leaves no state behind.
    NOTIFY = 6,
    /// Creates a temporary object, or names the schema of temporary objects.
    TEMP = 7,
    /// Takes or releases an advisory lock of the session.
    ADVISORY = 8,
    /// Declares a cursor `WITH HOLD`, or closes cursors.
    HOLD = 9,
    /// `PREPARE` in SQL.
    PREPARE = 10,
    /// `EXECUTE` in SQL: has the effects of the prepared text.
    EXECUTE = 11,
    /// `DEALLOCATE`.
    DEALLOCATE = 12,
    /// `DISCARD`.
    DISCARD = 13,
    /// `LOAD`: cannot be undone.
    LOAD = 14,
    /// Seeds the session's random numbers: cannot be undone, nor queried.
    SEED = 15,
    /// Reads `currval` or `lastval`, which belong to the session.
    SEQUENCE_READ = 16,
    /// A `DO` block.
    DO = 17,
    /// A `CALL` of a procedure.
    CALL = 18,
    /// Calls a function that is not known to be harmless.
    FUNCTION = 19,
    /// Calls `set_config` for the session with arguments that were not understood.
    SET_CONFIG = 20,
    /// Begins or ends a transaction or a savepoint.
    TRANSACTION = 21,
    /// `ROLLBACK TO`: undoes a part of the transaction so far.
    ROLLBACK_TO = 22,
    /// `COPY`.
    COPY = 23,
    /// More than one statement.
    MULTI = 24,
    /// The text, or a relevant part of it, was not understood: any effect is possible.
    UNPARSED = 25,
    /// Requests a transaction or session that may write.
    READ_WRITE = 26,
    /// Uses tables, types or operators of the database, so that code outside of the text may run:
    /// triggers, views, rules, casts.
    HIDDEN = 27,
    /// Calls a built-in function by its unqualified name.
    BUILTIN = 28,
    /// `CREATE` of any object.
    CREATE = 29,
    /// `DROP` or `ALTER` of any object.
    DROP = 30,
    /// A statement follows one that may end the transaction: it runs in the next one.
    AFTER_END = 31,
    /// Calls a function that leaves state which lasts as long as the session, and which no
    /// statement removes. A connection of dblink is an example.
    LASTING = 32,
    /// Sets a setting to the session's initial value, or may: `RESET` has a bit of its own.
    DEFAULT = 33,
    /// Calls `nextval` or `setval`, whose value the session keeps for `currval` and `lastval`.
    SEQUENCE_WRITE = 34,
}

impl PgEffects {
    /// No effects.
    pub const NONE: PgEffects = PgEffects(0);

    /// Effects of code that is not in the text, or that was not understood: any session state may
    /// be left.
    pub const UNKNOWN: PgEffects = PgEffects(
        PgEffects::DO.0
            | PgEffects::CALL.0
            | PgEffects::FUNCTION.0
            | PgEffects::SET_CONFIG.0
            | PgEffects::EXECUTE.0
            | PgEffects::UNPARSED.0,
    );

    /// Returns the bits as a number, for a table.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns whether it contains all of `other`.
    #[must_use]
    pub const fn contains(self, other: PgEffects) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether it contains any of `other`.
    #[must_use]
    pub const fn intersects(self, other: PgEffects) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether it is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the union.
    #[must_use]
    pub const fn with(self, other: PgEffects) -> PgEffects {
        PgEffects(self.0 | other.0)
    }

    /// Returns these effects without `other`.
    #[must_use]
    pub const fn without(self, other: PgEffects) -> PgEffects {
        PgEffects(self.0 & !other.0)
    }

    /// Returns the effects to assume once the client has chosen its own `search_path`. An
    /// unqualified name of a built-in function may then be another function's, and an unqualified
    /// name of a new table may be that of a temporary one.
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
