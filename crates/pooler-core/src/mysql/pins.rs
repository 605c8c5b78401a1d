//! Why a server connection stays with its client beyond a transaction.
//!
//! Each is something that the server keeps for the session, that cannot be given to another one,
//! and that the next client must not meet. A pin ends when what it stands for has provably ended.

/// A reason to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PinReason {
    /// A temporary table is there.
    TempTable,
    /// A user variable was set.
    UserVariable,
    /// A lock with a name is held.
    UserLock,
    /// Tables are locked.
    TableLock,
    /// A table is open for `HANDLER`.
    Handler,
    /// A statement was prepared by SQL.
    SqlPrepare,
    /// A cursor is open.
    Cursor,
    /// A parameter's value has been sent in parts, and its statement not been executed.
    LongData,
    /// A variable was set that cannot be set elsewhere to the same effect.
    Variable,
    /// The role was changed.
    Role,
    /// A distributed transaction is under way.
    Xa,
    /// A value was taken from a sequence, or the last one asked for: the session remembers it, and
    /// nothing can have another session do so.
    Sequence,
    /// The server says that the session changed, and the text does not tell how.
    State,
    /// `SQL_CALC_FOUND_ROWS`: the next statement may ask how many there were.
    FoundRows,
    /// The next statement may ask what this one did.
    Diagnostics,
    /// The next transaction was given characteristics.
    NextTransaction,
    /// A setting was changed that is not kept.
    Settings,
    /// The session is in a schema that cannot be chosen elsewhere, or in none any more.
    Schema,
    /// The server is locked for a backup.
    Backup,
    /// The server has recorded statements for `SHOW PROFILES`.
    Profile,
}

/// All of them, in the order of their bits.
const PINS: [(PinReason, &str); 20] = [
    (PinReason::TempTable, "temp_table"),
    (PinReason::UserVariable, "user_variable"),
    (PinReason::UserLock, "user_lock"),
    (PinReason::TableLock, "table_lock"),
    (PinReason::Handler, "handler"),
    (PinReason::SqlPrepare, "sql_prepare"),
    (PinReason::Cursor, "cursor"),
    (PinReason::LongData, "long_data"),
    (PinReason::Variable, "variable"),
    (PinReason::Role, "role"),
    (PinReason::Xa, "xa"),
    (PinReason::Sequence, "sequence"),
    (PinReason::State, "state"),
    (PinReason::FoundRows, "found_rows"),
    (PinReason::Diagnostics, "diagnostics"),
    (PinReason::NextTransaction, "next_transaction"),
    (PinReason::Settings, "settings"),
    (PinReason::Schema, "schema"),
    (PinReason::Backup, "backup"),
    (PinReason::Profile, "profile"),
];

/// Pins that outlast a `COM_RESET_CONNECTION` (MariaDB 10.11): roles, and statements that were
/// recorded. A routine may have changed the role.
const LASTING: u32 =
    1 << PinReason::Role as u32 | 1 << PinReason::State as u32 | 1 << PinReason::Profile as u32;

/// Has the server record statements, which it shows also after it was switched off.
const PROFILING: &[u8] = b"profiling";

/// Has the server record a single statement, which it shows until a reset.
const OPTIMIZER_TRACE: &[u8] = b"optimizer_trace";

/// Names and locks that are told apart; beyond it nothing unpins but a reset.
const NAMES_MAX: usize = 64;

/// The reasons that hold now.
#[derive(Debug, Default)]
pub(crate) struct ActivePins {
    bits: u32,
    /// Number of times that named locks were taken and not given back.
    locks: u32,
    temp_tables: PinnedNames,
    prepared: PinnedNames,
    variables: PinnedNames,
    handlers: PinnedNames,
}

/// Names of what is there; `None` once there are too many, or one is not known.
#[derive(Debug)]
struct PinnedNames(Option<Vec<Box<[u8]>>>);

impl Default for PinnedNames {
    fn default() -> Self {
        PinnedNames(Some(Vec::new()))
    }
}

impl PinnedNames {
    fn insert(&mut self, name: Option<&[u8]>) {
        match (&mut self.0, name) {
            (Some(names), Some(name)) if names.len() < NAMES_MAX => {
                if !names.iter().any(|known| **known == *name) {
                    names.push(name.into());
                }
            }
            _ => self.0 = None,
        }
    }

    /// Says whether nothing is left.
    fn remove(&mut self, name: &[u8]) -> bool {
        let Some(names) = &mut self.0 else { return false };
        names.retain(|known| **known != *name);
        names.is_empty()
    }
}

impl ActivePins {
    /// Returns whether nothing holds the connection.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bits == 0
    }

    /// Returns what those who look on are told.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        let bits = self.bits;
        PINS.iter().filter(move |(pin, _)| bits & (1 << *pin as u32) != 0).map(|(_, name)| *name)
    }

    /// Returns whether this one holds.
    #[inline]
    pub(crate) fn has(&self, pin: PinReason) -> bool {
        self.bits & (1 << pin as u32) != 0
    }

    /// This holds from now on.
    #[inline]
    pub(crate) fn set(&mut self, pin: PinReason) {
        self.bits |= 1 << pin as u32;
    }

    /// This has ended.
    #[inline]
    pub(crate) fn end(&mut self, pin: PinReason) {
        self.bits &= !(1 << pin as u32);
    }

    /// The session was reset: nothing of it is there any more, but for what a reset leaves.
    pub(crate) fn reset(&mut self) {
        let left = self.bits & LASTING;
        *self = ActivePins::default();
        self.bits = left;
    }

    /// Returns whether there is something that a reset leaves.
    pub(crate) fn outlasts_reset(&self) -> bool {
        self.bits & LASTING != 0
    }

    /// A named lock was taken.
    pub(crate) fn locked(&mut self, times: u32) {
        self.locks = self.locks.saturating_add(times);
        self.set(PinReason::UserLock);
    }

    /// Named locks were given back; says whether none is left.
    pub(crate) fn unlocked(&mut self, times: u32) {
        self.locks = self.locks.saturating_sub(times);
        if self.locks == 0 {
            self.end(PinReason::UserLock);
        }
    }

    /// A temporary table was made; none: of an unknown name.
    pub(crate) fn temp_table(&mut self, name: Option<&[u8]>) {
        self.temp_tables.insert(name);
        self.set(PinReason::TempTable);
    }

    /// A table of this name is there no more.
    pub(crate) fn dropped(&mut self, name: &[u8]) {
        if self.has(PinReason::TempTable) && self.temp_tables.remove(name) {
            self.end(PinReason::TempTable);
        }
    }

    /// A statement was prepared by SQL; none: of an unknown name.
    pub(crate) fn prepared(&mut self, name: Option<&[u8]>) {
        self.prepared.insert(name);
        self.set(PinReason::SqlPrepare);
    }

    /// A statement that SQL prepared is there no more.
    pub(crate) fn deallocated(&mut self, name: &[u8]) {
        if self.has(PinReason::SqlPrepare) && self.prepared.remove(name) {
            self.end(PinReason::SqlPrepare);
        }
    }

    /// A table was opened for `HANDLER`; none: under an unknown name.
    pub(crate) fn opened(&mut self, name: Option<&[u8]>) {
        self.handlers.insert(name);
        self.set(PinReason::Handler);
    }

    /// A table of `HANDLER`'s was closed.
    pub(crate) fn closed(&mut self, name: &[u8]) {
        if self.has(PinReason::Handler) && self.handlers.remove(name) {
            self.end(PinReason::Handler);
        }
    }

    /// A variable has a value that only this session can have.
    pub(crate) fn variable(&mut self, name: &[u8]) {
        self.variables.insert(Some(name));
        self.set(PinReason::Variable);
        if name == PROFILING {
            self.set(PinReason::Profile);
        }
    }

    /// A variable has its default again.
    pub(crate) fn variable_default(&mut self, name: &[u8]) {
        if name != OPTIMIZER_TRACE && self.has(PinReason::Variable) && self.variables.remove(name) {
            self.end(PinReason::Variable);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(does: impl FnOnce(&mut ActivePins), left: &[&str]) {
        let mut pins = ActivePins::default();
        does(&mut pins);
        assert_eq!(pins.names().collect::<Vec<_>>(), left);
        assert_eq!(pins.is_empty(), left.is_empty());
        let lasts = pins.outlasts_reset();
        pins.reset();
        assert_eq!(pins.is_empty(), !lasts);
    }

    #[test]
    fn a_pin_ends_when_the_last_of_its_kind_is_gone() {
        check(|_| {}, &[]);
        for (number, (pin, name)) in PINS.iter().enumerate() {
            assert_eq!(*pin as usize, number);
            check(|pins| pins.set(*pin), &[name]);
            check(
                |pins| {
                    pins.set(*pin);
                    pins.end(*pin);
                },
                &[],
            );
        }
        check(
            |pins| {
                pins.locked(2);
                pins.unlocked(1);
            },
            &["user_lock"],
        );
        check(
            |pins| {
                pins.locked(2);
                pins.unlocked(2);
            },
            &[],
        );
        check(
            |pins| {
                pins.temp_table(Some(b"A"));
                pins.temp_table(Some(b"a"));
                pins.dropped(b"a");
            },
            &["temp_table"],
        );
        check(
            |pins| {
                pins.temp_table(Some(b"a"));
                pins.temp_table(Some(b"a"));
                pins.dropped(b"other");
                pins.dropped(b"a");
            },
            &[],
        );
        check(
            |pins| {
                pins.prepared(Some(b"s"));
                pins.deallocated(b"s");
                pins.variable(b"timestamp");
                pins.variable_default(b"timestamp");
            },
            &[],
        );
    }

    #[test]
    fn what_was_recorded_outlasts_the_recording() {
        check(
            |pins| {
                pins.variable(PROFILING);
                pins.variable_default(PROFILING);
            },
            &["profile"],
        );
        check(
            |pins| {
                pins.variable(OPTIMIZER_TRACE);
                pins.variable_default(OPTIMIZER_TRACE);
            },
            &["variable"],
        );
    }

    #[test]
    fn what_is_not_known_does_not_end() {
        check(
            |pins| {
                pins.temp_table(None);
                pins.temp_table(Some(b"a"));
                pins.dropped(b"a");
            },
            &["temp_table"],
        );
        check(
            |pins| {
                for number in 0..=NAMES_MAX {
                    pins.prepared(Some(number.to_string().as_bytes()));
                }
                for number in 0..=NAMES_MAX {
                    pins.deallocated(number.to_string().as_bytes());
                }
            },
            &["sql_prepare"],
        );
        check(|pins| pins.dropped(b"a"), &[]);
    }
}
