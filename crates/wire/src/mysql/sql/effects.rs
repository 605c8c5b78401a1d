//! Effects that a text may leave behind in the session that runs it, as a set of bits.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// A set of a text's possible effects on its session. Without any bit it leaves no state behind, as
/// far as its words show.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
pub struct MysqlEffects(u64);

/// Defines the constants, and the names that [`fmt::Debug`] shows.
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
    /// `SET TRANSACTION` without a scope: it holds only for the next transaction.
    NEXT_TRANSACTION = 5,
    /// Assigns a variable of the session.
    SET = 6,
    /// A `SET` assigns a value that only the server knows.
    SET_EXPRESSION = 7,
    /// A `SET` that was not understood.
    SET_UNKNOWN = 8,
    /// Sets a variable of the session that cannot be set at another connection (`timestamp`,
    /// `insert_id`, `sql_log_bin` …).
    SET_FIXED = 9,
    /// Sets `autocommit`.
    AUTOCOMMIT = 10,
    /// `SET NAMES`, `SET CHARACTER SET`.
    NAMES = 11,
    /// Sets a variable of the server, not of the session.
    GLOBAL = 12,
    /// `USE`.
    USE = 13,
    /// Assigns a user variable (`@x`), or may.
    USER_VARIABLE_WRITE = 14,
    /// Mentions a user variable, or a host after `@`.
    USER_VARIABLE_READ = 15,
    /// Creates a temporary table or sequence.
    TEMP_CREATE = 16,
    /// Drops tables or sequences, which may be temporary.
    TEMP_DROP = 17,
    /// Renames tables, which may be temporary: names of temporary tables are unreliable afterwards.
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
    /// `EXECUTE` and `EXECUTE IMMEDIATE`: has the effects of the prepared text.
    SQL_EXECUTE = 29,
    /// `CALL` of a procedure.
    CALL = 30,
    /// Calls a function that is not built in.
    UNKNOWN_FUNCTION = 31,
    /// Mentions the last insert id, by function or variable.
    LAST_INSERT_ID = 32,
    /// Calls `ROW_COUNT`.
    ROW_COUNT = 33,
    /// Calls `FOUND_ROWS`.
    FOUND_ROWS = 34,
    /// `SQL_CALC_FOUND_ROWS`.
    CALC_FOUND_ROWS = 35,
    /// Queries warnings and errors of the previous statement, or their number.
    SHOW_WARNINGS = 36,
    /// `GET DIAGNOSTICS`.
    DIAGNOSTICS = 37,
    /// `KILL`.
    KILL = 38,
    /// Queries the number of its connection.
    CONNECTION_ID = 39,
    /// `LOAD DATA LOCAL`, `LOAD XML LOCAL`: the server requests a file from the client.
    LOCAL_INFILE = 40,
    /// `SET ROLE`.
    ROLE = 41,
    /// `XA` of any kind.
    XA = 42,
    /// Reads the last value that this session took from a sequence.
    SEQUENCE = 43,
    /// Takes the next value of a sequence.
    SEQUENCE_NEXT = 44,
    /// Changes objects or privileges; commits.
    DDL = 45,
    /// Defines a routine, trigger or event, whose body is not run now.
    ROUTINE = 46,
    /// Changes rows or writes files.
    WRITES = 47,
    /// Requests a transaction or session that may write, or may do so in code that is not in the
    /// text.
    READ_WRITE = 48,
    /// Uses a table, view or procedure: warnings of earlier statements are cleared, and triggers
    /// may run.
    TABLES = 49,
    /// An administration or replication statement, which leaves no state in its session.
    ADMIN = 50,
    /// More than one statement.
    MULTI = 51,
    /// The text, or a relevant part of it, was not understood: any effect is possible.
    UNPARSED = 52,
    /// Calls `GET_LOCK` more than once, or for each of several rows: the resulting number of locks
    /// is unknown.
    GET_LOCKS = 53,
    /// Sets a variable of the session by `@@name` without a scope, which `MariaDB`'s trackers do
    /// not report.
    SET_UNTOLD = 54,
    /// `XA COMMIT`, `XA ROLLBACK`. In a session without autocommit they end only their own
    /// transaction.
    XA_END = 55,
    /// Inserts rows into a table, which may generate ids: `INSERT`, `REPLACE`, `LOAD`.
    INSERTS = 56,
    /// Inserts rows whose generated id the reply does not contain: `LOAD`.
    LOADS = 57,
}

impl MysqlEffects {
    /// No effects.
    pub const NONE: MysqlEffects = MysqlEffects(0);

    /// Effects of code that is not in the text, or that was not understood: any session state may
    /// be left, and only the server's trackers report some of it.
    pub const UNKNOWN: MysqlEffects = MysqlEffects(
        MysqlEffects::CALL.0
            | MysqlEffects::UNKNOWN_FUNCTION.0
            | MysqlEffects::SQL_EXECUTE.0
            | MysqlEffects::SET_UNKNOWN.0
            | MysqlEffects::UNPARSED.0,
    );

    /// Returns the bits as a number, for a table.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns whether it contains all of `other`.
    #[must_use]
    pub const fn contains(self, other: MysqlEffects) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether it contains any of `other`.
    #[must_use]
    pub const fn intersects(self, other: MysqlEffects) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether it is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the union.
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
