//! Effects that a text may leave behind in the session that runs it, as a set of bits.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// A set of things that a text may do to its session. No bit means that it leaves nothing behind,
/// as far as its words can tell.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
pub struct MysqlEffects(u64);

/// Makes the constants, and the names that [`fmt::Debug`] shows.
macro_rules! effects {
    ($($(#[$doc:meta])* $name:ident = $bit:literal,)*) => {
        impl MysqlEffects {
            $($(#[$doc])* pub const $name: MysqlEffects = MysqlEffects(1 << $bit);)*
        }

        const NAMES: &[(&str, MysqlEffects)] = &[$((stringify!($name), MysqlEffects::$name),)*];
    };
}

effects! {
    /// `BEGIN`, `START TRANSACTION`, and an end of a transaction `AND CHAIN`.
    TRANSACTION_BEGIN = 0,
    /// `COMMIT`.
    COMMIT = 1,
    /// `ROLLBACK` of the whole transaction.
    ROLLBACK = 2,
    /// `SAVEPOINT`, `RELEASE SAVEPOINT`, `ROLLBACK TO`.
    SAVEPOINT = 3,
    /// `COMMIT RELEASE`, `ROLLBACK RELEASE`: the server ends the connection.
    CLOSES = 4,
    /// `SET TRANSACTION` without a scope: it holds for the next transaction, and only for that.
    NEXT_TRANSACTION = 5,
    /// Gives a variable of the session a value.
    SET = 6,
    /// A `SET` gives a value that only the server knows.
    SET_EXPRESSION = 7,
    /// A `SET` of something that was not understood.
    SET_UNKNOWN = 8,
    /// Sets a variable of the session that no other connection can be given (`timestamp`,
    /// `insert_id`, `sql_log_bin` …).
    SET_FIXED = 9,
    /// Sets `autocommit`.
    AUTOCOMMIT = 10,
    /// `SET NAMES`, `SET CHARACTER SET`.
    NAMES = 11,
    /// Sets something of the server, not of the session.
    GLOBAL = 12,
    /// `USE`.
    USE = 13,
    /// Gives a user variable (`@x`) a value, or may.
    USER_VARIABLE_WRITE = 14,
    /// Mentions a user variable, or a host behind `@`.
    USER_VARIABLE_READ = 15,
    /// Creates a temporary table or sequence.
    TEMP_CREATE = 16,
    /// Drops tables or sequences, which may be temporary.
    TEMP_DROP = 17,
    /// Renames tables, which may be temporary: whoever counts them by name has lost count.
    TEMP_RENAME = 18,
    /// Calls `GET_LOCK`.
    GET_LOCK = 19,
    /// Calls `RELEASE_LOCK`.
    RELEASE_LOCK = 20,
    /// Calls `RELEASE_ALL_LOCKS`.
    RELEASE_ALL_LOCKS = 21,
    /// `LOCK TABLES`, `FLUSH TABLES … WITH READ LOCK`, `FLUSH TABLES … FOR EXPORT`.
    LOCK_TABLES = 22,
    /// `UNLOCK TABLES`.
    UNLOCK_TABLES = 23,
    /// `BACKUP STAGE`, `BACKUP LOCK`, `LOCK INSTANCE`.
    BACKUP_LOCK = 24,
    /// `BACKUP STAGE END`, `BACKUP UNLOCK`, `UNLOCK INSTANCE`.
    BACKUP_UNLOCK = 25,
    /// `HANDLER`.
    HANDLER = 26,
    /// `PREPARE` in SQL.
    SQL_PREPARE = 27,
    /// `DEALLOCATE PREPARE`, `DROP PREPARE`.
    SQL_DEALLOCATE = 28,
    /// `EXECUTE` and `EXECUTE IMMEDIATE`: what it does is what the prepared text does.
    SQL_EXECUTE = 29,
    /// `CALL` of a procedure.
    CALL = 30,
    /// Calls a function that is none of the server's own.
    UNKNOWN_FUNCTION = 31,
    /// Mentions the last inserted id, by function or variable.
    LAST_INSERT_ID = 32,
    /// Calls `ROW_COUNT`.
    ROW_COUNT = 33,
    /// Calls `FOUND_ROWS`.
    FOUND_ROWS = 34,
    /// `SQL_CALC_FOUND_ROWS`.
    CALC_FOUND_ROWS = 35,
    /// Asks for warnings and errors of the statement before it, or for their number.
    SHOW_WARNINGS = 36,
    /// `GET DIAGNOSTICS`.
    DIAGNOSTICS = 37,
    /// `KILL`.
    KILL = 38,
    /// Asks for the number of its connection.
    CONNECTION_ID = 39,
    /// `LOAD DATA LOCAL`, `LOAD XML LOCAL`: the server asks the client for a file.
    LOCAL_INFILE = 40,
    /// `SET ROLE`.
    ROLE = 41,
    /// `XA` of any kind.
    XA = 42,
    /// Reads the last value that this session took from a sequence.
    SEQUENCE = 43,
    /// Takes the next value of a sequence.
    SEQUENCE_NEXT = 44,
    /// Changes what exists, or who may use it; commits.
    DDL = 45,
    /// Defines a routine, trigger or event, whose body is not run now.
    ROUTINE = 46,
    /// Changes rows or writes files.
    WRITES = 47,
    /// Asks for a transaction, or for a session, that may write, or may do so in text that is not
    /// there.
    READ_WRITE = 48,
    /// Uses a table, view or procedure: warnings of earlier statements are gone, and triggers may
    /// run.
    TABLES = 49,
    /// A statement of administration or replication, which leaves nothing in its session.
    ADMIN = 50,
    /// More than one statement.
    MULTI = 51,
    /// The text, or a part that matters, was not understood: anything may happen.
    UNPARSED = 52,
    /// Calls `GET_LOCK` more than once, or for each of several rows: how many locks there are then
    /// is not known.
    GET_LOCKS = 53,
    /// Sets a variable of the session by `@@name` without a scope, of which `MariaDB`'s trackers do
    /// not tell.
    SET_UNTOLD = 54,
    /// `XA COMMIT`, `XA ROLLBACK`. Of a session without autocommit they end no transaction but
    /// their own.
    XA_END = 55,
    /// Inserts rows into a table, which may give them numbers: `INSERT`, `REPLACE`, `LOAD`.
    INSERTS = 56,
    /// Inserts rows, and the reply does not say which number was given: `LOAD`.
    LOADS = 57,
}

impl MysqlEffects {
    /// No effects.
    pub const NONE: MysqlEffects = MysqlEffects(0);

    /// Effects of code that is not in the text, or that was not understood: whatever a session can
    /// keep, it may keep afterwards, and only the server's trackers tell of some of it.
    pub const UNKNOWN: MysqlEffects = MysqlEffects(
        MysqlEffects::CALL.0
            | MysqlEffects::UNKNOWN_FUNCTION.0
            | MysqlEffects::SQL_EXECUTE.0
            | MysqlEffects::SET_UNKNOWN.0
            | MysqlEffects::UNPARSED.0,
    );

    /// The bits as a number, for a table.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns whether all of `other` are in it.
    #[must_use]
    pub const fn contains(self, other: MysqlEffects) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether any of `other` are in it.
    #[must_use]
    pub const fn intersects(self, other: MysqlEffects) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Both.
    #[must_use]
    pub const fn with(self, other: MysqlEffects) -> MysqlEffects {
        MysqlEffects(self.0 | other.0)
    }

    /// Returns these effects without `other`.
    #[must_use]
    pub const fn without(self, other: MysqlEffects) -> MysqlEffects {
        MysqlEffects(self.0 & !other.0)
    }
}

impl BitOr for MysqlEffects {
    type Output = MysqlEffects;

    fn bitor(self, other: MysqlEffects) -> MysqlEffects {
        self.with(other)
    }
}

impl BitOrAssign for MysqlEffects {
    fn bitor_assign(&mut self, other: MysqlEffects) {
        *self = self.with(other);
    }
}

impl fmt::Debug for MysqlEffects {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = NAMES.iter().filter(|(_, bit)| self.contains(*bit)).map(|(name, _)| *name);
        to.write_str(names.next().unwrap_or("NONE"))?;
        names.try_for_each(|name| write!(to, " | {name}"))
    }
}
