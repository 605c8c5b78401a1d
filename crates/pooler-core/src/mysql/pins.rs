//! Reasons why a server connection stays with its client beyond a transaction.
//!
//! Each is state that the server keeps for the session, that cannot be moved to another session,
//! and that the next client must not encounter. A pin ends when its state has provably ended.

/// A pin's reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PinReason {
    /// A temporary table exists.
    TempTable,
    /// A user variable was set.
    UserVariable,
    /// A named lock is held.
    UserLock,
    /// Tables are locked.
    TableLock,
    /// A table is open for `HANDLER`.
    Handler,
    /// A statement was prepared by SQL.
    SqlPrepare,
    /// A cursor is open.
    Cursor,
    /// A parameter's value was sent in parts, and its statement was not executed.
    LongData,
    /// A variable was set that cannot be set elsewhere with the same effect.
    Variable,
    /// The role was changed.
    Role,
    /// A distributed transaction is in progress.
    Xa,
    /// A value was taken from a sequence, or the last one was queried: the session remembers it,
    /// and this cannot be reproduced in another session.
    Sequence,
    /// The server reports a change of the session, which the text does not explain.
    State,
    /// `SQL_CALC_FOUND_ROWS`: the next statement may query the number of rows.
    FoundRows,
    /// The next statement may query the outcome of this one.
    Diagnostics,
    /// Characteristics were set for the next transaction.
    NextTransaction,
    /// A setting was changed that is not replayed.
    Settings,
    /// The session is in a schema that cannot be selected elsewhere, or in a dropped one.
    Schema,
    /// The server is locked for a backup.
    Backup,
    /// The server has recorded statements for `SHOW PROFILES`.
    Profile,
}

/// All reasons, in the order of their bits.
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

/// Pins that outlast a `COM_RESET_CONNECTION` (MariaDB 10.11): roles, and recorded statements. A
/// routine may have changed the role.
const LASTING: u32 =
    1 << PinReason::Role as u32 | 1 << PinReason::State as u32 | 1 << PinReason::Profile as u32;

/// Makes the server record statements, which it shows even after recording was disabled.
const PROFILING: &[u8] = b"profiling";

/// Makes the server record a single statement, which it shows until a reset.
const OPTIMIZER_TRACE: &[u8] = b"optimizer_trace";

/// Maximum distinct names; beyond it only a reset ends the pins.
const NAMES_MAX: usize = 64;

/// The current pins.
#[derive(Debug, Default)]
pub(crate) struct ActivePins {
    bits: u32,
    /// Number of named locks that were taken and not released.
    locks: u32,
    temp_tables: PinnedNames,
    prepared: PinnedNames,
    variables: PinnedNames,
    handlers: PinnedNames,
}

/// Names of existing objects; `None` once there are too many, or one is unknown.
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

    /// Removes a name. Returns whether none is left.
    fn remove(&mut self, name: &[u8]) -> bool {
        let Some(names) = &mut self.0 else { return false };
        names.retain(|known| **known != *name);
        names.is_empty()
    }
}

impl ActivePins {
    /// Returns whether there is no pin.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bits == 0
    }

    /// Returns the names of the pins, for views.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        let bits = self.bits;
        PINS.iter().filter(move |(pin, _)| bits & (1 << *pin as u32) != 0).map(|(_, name)| *name)
    }

    /// Returns whether this pin is set.
    #[inline]
    pub(crate) fn has(&self, pin: PinReason) -> bool {
        self.bits & (1 << pin as u32) != 0
    }

    /// Sets a pin.
    #[inline]
    pub(crate) fn set(&mut self, pin: PinReason) {
        self.bits |= 1 << pin as u32;
    }

    /// Ends a pin.
    #[inline]
    pub(crate) fn end(&mut self, pin: PinReason) {
        self.bits &= !(1 << pin as u32);
    }

    /// Records a reset of the session, which ends all pins except those that outlast it.
    pub(crate) fn reset(&mut self) {
        let left = self.bits & LASTING;
        *self = ActivePins::default();
        self.bits = left;
    }

    /// Returns whether there is a pin that outlasts a reset.
    pub(crate) fn outlasts_reset(&self) -> bool {
        self.bits & LASTING != 0
    }

    /// Records taken named locks.
    pub(crate) fn locked(&mut self, times: u32) {
        self.locks = self.locks.saturating_add(times);
        self.set(PinReason::UserLock);
    }

    /// Records released named locks; ends the pin if none is left.
    pub(crate) fn unlocked(&mut self, times: u32) {
        self.locks = self.locks.saturating_sub(times);
        if self.locks == 0 {
            self.end(PinReason::UserLock);
        }
    }

    /// Records a created temporary table; `None` if its name is unknown.
    pub(crate) fn temp_table(&mut self, name: Option<&[u8]>) {
        self.temp_tables.insert(name);
        self.set(PinReason::TempTable);
    }

    /// Records a dropped table.
    pub(crate) fn dropped(&mut self, name: &[u8]) {
        if self.has(PinReason::TempTable) && self.temp_tables.remove(name) {
            self.end(PinReason::TempTable);
        }
    }

    /// Records a statement that was prepared by SQL; `None` if its name is unknown.
    pub(crate) fn prepared(&mut self, name: Option<&[u8]>) {
        self.prepared.insert(name);
        self.set(PinReason::SqlPrepare);
    }

    /// Records a deallocated statement of SQL.
    pub(crate) fn deallocated(&mut self, name: &[u8]) {
        if self.has(PinReason::SqlPrepare) && self.prepared.remove(name) {
            self.end(PinReason::SqlPrepare);
        }
    }

    /// Records a table that was opened for `HANDLER`; `None` if its name is unknown.
    pub(crate) fn opened(&mut self, name: Option<&[u8]>) {
        self.handlers.insert(name);
        self.set(PinReason::Handler);
    }

    /// Records a closed table of `HANDLER`.
    pub(crate) fn closed(&mut self, name: &[u8]) {
        if self.has(PinReason::Handler) && self.handlers.remove(name) {
            self.end(PinReason::Handler);
        }
    }

    /// Records a variable with a value that only this session can have.
    pub(crate) fn variable(&mut self, name: &[u8]) {
        self.variables.insert(Some(name));
        self.set(PinReason::Variable);
        if name == PROFILING {
            self.set(PinReason::Profile);
        }
    }

    /// Records a variable that has its default again.
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
