//! The state that a text leaves behind in its session, as far as the text shows it.

use api::VerifyMode;
use wire::mysql::capabilities::StatusFlags;
use wire::mysql::sql::{
    AssignedValue, MysqlEffects, MysqlNameAction, MysqlNameUse, MysqlTextDetails, VariableScope,
};

use crate::mysql::pins::PinReason;
use crate::mysql::server::MysqlServerSession;
use crate::mysql::settings::is_replayable;
use crate::mysql::texts::MysqlStatementFacts;

/// Effects that the text itself shows, so that no tracker is needed.
const EXPLAINED: MysqlEffects = SETTINGS
    .with(MysqlEffects::USER_VARIABLE_WRITE)
    .with(MysqlEffects::TEMP_CREATE)
    .with(MysqlEffects::TEMP_DROP)
    .with(MysqlEffects::TEMP_RENAME)
    .with(MysqlEffects::SQL_PREPARE)
    .with(MysqlEffects::SQL_DEALLOCATE)
    .with(MysqlEffects::NEXT_TRANSACTION)
    .with(MysqlEffects::SET_FIXED)
    .with(MysqlEffects::DDL)
    .with(MysqlEffects::ROLE);

/// Settings that trackers report one by one.
const SETTINGS: MysqlEffects = MysqlEffects::SET
    .with(MysqlEffects::SET_EXPRESSION)
    .with(MysqlEffects::AUTOCOMMIT)
    .with(MysqlEffects::NAMES)
    .with(MysqlEffects::USE);

/// Returns whether a text itself shows how its session's state changes.
pub(super) fn explains(effects: MysqlEffects) -> bool {
    effects.intersects(EXPLAINED)
        && !effects.intersects(MysqlEffects::UNKNOWN)
        // A trigger may change more than the text shows.
        && !effects.intersects(MysqlEffects::WRITES)
}

/// Effects with which a lock function may run more or less often than reported.
const LOCKS_UNSEEN: MysqlEffects =
    MysqlEffects::MULTI.with(MysqlEffects::TABLES).with(MysqlEffects::UNKNOWN);

/// More locks than are ever released one by one.
const LOCKS_UNKNOWN: u32 = u32::MAX / 2;

/// Returns whether a failed statement may have made changes before its error, which no server
/// reports then.
pub(super) fn may_change_before_it_fails(effects: MysqlEffects) -> bool {
    effects.intersects(
        MysqlEffects::UNKNOWN | MysqlEffects::WRITES | MysqlEffects::TABLES | MysqlEffects::MULTI,
    )
}

/// Returns whether a text only assigns settings: it begins no transaction.
#[inline]
pub(super) fn is_only_settings(effects: MysqlEffects) -> bool {
    const ONLY: MysqlEffects = SETTINGS
        .with(MysqlEffects::GLOBAL)
        .with(MysqlEffects::SET_FIXED)
        .with(MysqlEffects::NEXT_TRANSACTION)
        .with(MysqlEffects::READ_WRITE)
        .with(MysqlEffects::MULTI);
    !effects.is_empty() && ONLY.contains(effects)
}

/// Returns whether reported variables are those that the text sets. If not, they may have been set
/// for this one statement, and be restored after it.
pub(super) fn sets(effects: MysqlEffects) -> bool {
    effects.intersects(SETTINGS | MysqlEffects::SET_FIXED)
}

/// Returns the collation that a `SET NAMES` specified, which no server reports.
pub(super) fn collation(facts: &MysqlStatementFacts) -> Option<&str> {
    if !facts.effects.intersects(MysqlEffects::NAMES) {
        return None;
    }
    let details = facts.details.as_deref()?;
    let last = details.assignments.iter().rev().find(|assignment| {
        assignment.scope == VariableScope::Session && assignment.name == "collation_connection"
    })?;
    match &last.value {
        AssignedValue::Literal(collation) => Some(collation),
        AssignedValue::Default | AssignedValue::Expression => None,
    }
}

/// Changes of settings by a text.
#[derive(Debug, Default)]
pub(super) struct SettingChanges<'a> {
    /// `None` as a value means the default.
    pub(super) variables: Vec<(&'a str, Option<&'a str>)>,
    pub(super) schema: Option<&'a str>,
    /// True if some values are known only to the server.
    pub(super) asks: bool,
}

impl SettingChanges<'_> {
    pub(super) fn is_nothing(&self) -> bool {
        self.variables.is_empty() && self.schema.is_none()
    }
}

/// Returns a text's changes of settings, except for those that the server has reported, if it
/// reports any; `None` if the text cannot be understood.
pub(super) fn settings<'a>(
    facts: &'a MysqlStatementFacts,
    told: Option<&Vec<Box<str>>>,
) -> Option<SettingChanges<'a>> {
    let mut understood = SettingChanges::default();
    let effects = facts.effects;
    // Changes by code elsewhere are reported, or cannot be known.
    let unknown = if told.is_some() { MysqlEffects::SET_UNKNOWN } else { MysqlEffects::UNKNOWN };
    if effects.intersects(unknown) {
        return None;
    }
    if !effects.intersects(SETTINGS) {
        return Some(understood);
    }
    let details = facts.details.as_deref().filter(|details| !details.lost)?;
    for assignment in &details.assignments {
        if assignment.scope != VariableScope::Session
            || !is_replayable(&assignment.name)
            || told.is_some_and(|told| is_told(&assignment.name, told, effects))
        {
            continue;
        }
        let value = match &assignment.value {
            AssignedValue::Literal(value) => Some(value.as_str()),
            AssignedValue::Default => None,
            AssignedValue::Expression => {
                understood.asks = true;
                None
            }
        };
        understood.variables.push((&assignment.name, value));
    }
    if told.is_none() {
        understood.schema = details.use_database();
    }
    Some(understood)
}

/// Returns whether a server has reported a variable, under any of its names.
fn is_told(name: &str, told: &[Box<str>], effects: MysqlEffects) -> bool {
    let alias = match name {
        "transaction_isolation" => "tx_isolation",
        "transaction_read_only" => "tx_read_only",
        // All variables that it sets, or equivalent ones.
        "character_set_client"
        | "character_set_connection"
        | "character_set_results"
        | "collation_connection"
            if effects.intersects(MysqlEffects::NAMES) =>
        {
            "character_set_client"
        }
        _ => name,
    };
    told.iter().any(|told| **told == *name || **told == *alias)
}

/// Sets and ends pins. A failed text may have acquired state; only a successful one has certainly
/// released it.
#[cold]
pub(super) fn behind(
    server: &mut MysqlServerSession,
    facts: &MysqlStatementFacts,
    went_well: bool,
    lock_row: Option<bool>,
    verify: VerifyMode,
) {
    let effects = facts.effects;
    let has = |effect| effects.intersects(effect);
    // These last for one further statement, which was this one.
    server.pins.end(PinReason::FoundRows);
    server.pins.end(PinReason::Diagnostics);
    if went_well {
        ends(server, facts, lock_row);
    }
    if has(MysqlEffects::UNKNOWN) {
        // Locks, user variables and `SET @@x` in a routine are not reported.
        server.reset_due |= verify != VerifyMode::Never;
        server.has_sequences = true;
    }
    // Bytes that were not parsed, or not understood.
    if has(MysqlEffects::UNPARSED) {
        server.reset_due |= verify != VerifyMode::Never;
        if !server.tracks {
            server.pins.set(PinReason::State);
        }
    }
    for (effect, pin) in [
        (MysqlEffects::USER_VARIABLE_WRITE, PinReason::UserVariable),
        (MysqlEffects::LOCK_TABLES, PinReason::TableLock),
        (MysqlEffects::BACKUP_LOCK, PinReason::Backup),
        (MysqlEffects::NEXT_TRANSACTION, PinReason::NextTransaction),
        (MysqlEffects::ROLE, PinReason::Role),
        (MysqlEffects::SEQUENCE.with(MysqlEffects::SEQUENCE_NEXT), PinReason::Sequence),
        (MysqlEffects::CALC_FOUND_ROWS, PinReason::FoundRows),
        (MysqlEffects::ROW_COUNT, PinReason::Diagnostics),
        (MysqlEffects::FOUND_ROWS, PinReason::Diagnostics),
        (MysqlEffects::DIAGNOSTICS, PinReason::Diagnostics),
    ] {
        if has(effect) && facts.asked.is_none() {
            server.pins.set(pin);
        }
    }
    if has(MysqlEffects::XA) && !(went_well && is_xa_over(server, effects)) {
        server.pins.set(PinReason::Xa);
    }
    if has(MysqlEffects::GET_LOCK) {
        match lock_row.filter(|_| !has(LOCKS_UNSEEN | MysqlEffects::GET_LOCKS)) {
            // The lock was not available.
            Some(false) if facts.is_lock_alone => {}
            Some(true) => server.pins.locked(1),
            // The value is that of another expression: `GET_LOCK('a', 1) = 0`.
            Some(false) | None => server.pins.locked(LOCKS_UNKNOWN),
        }
    }
    // A column's default may be a sequence's next value.
    server.has_sequences |= has(MysqlEffects::SEQUENCE_NEXT | MysqlEffects::WRITES);
    insert_id(server, effects, went_well);
    server.closing |= went_well && has(MysqlEffects::CLOSES);
    names(server, facts, went_well);
}

/// Handles effects on `LAST_INSERT_ID()` that no reply reports: a procedure's values become its
/// caller's, `CREATE TABLE … SELECT` generates numbers, and an error hides those of earlier rows.
fn insert_id(server: &mut MysqlServerSession, effects: MysqlEffects, went_well: bool) {
    const UNTOLD: MysqlEffects = MysqlEffects::LAST_INSERT_ID
        .with(MysqlEffects::UNKNOWN.without(MysqlEffects::UNKNOWN_FUNCTION))
        .with(MysqlEffects::LOADS)
        .with(MysqlEffects::DDL)
        .with(MysqlEffects::SET_FIXED);
    let is_told = went_well && !effects.intersects(MysqlEffects::MULTI);
    if effects.intersects(UNTOLD) || (effects.intersects(MysqlEffects::INSERTS) && !is_told) {
        server.insert_id = None;
        server.asks_insert_id = true;
    }
    // A view may call `LAST_INSERT_ID(expression)`. After a stored function the server restores the
    // value.
    server.insert_id_is_doubtful |=
        effects.intersects(MysqlEffects::TABLES | MysqlEffects::UNKNOWN_FUNCTION);
}

fn is_xa_over(server: &MysqlServerSession, effects: MysqlEffects) -> bool {
    effects.intersects(MysqlEffects::XA_END)
        && !effects.intersects(MysqlEffects::MULTI)
        && !server.status.contains(StatusFlags::IN_TRANS)
}

/// Ends pins that a successful text released. The order of several statements' effects is unknown.
fn ends(server: &mut MysqlServerSession, facts: &MysqlStatementFacts, lock_row: Option<bool>) {
    let effects = facts.effects;
    if effects.intersects(MysqlEffects::MULTI | MysqlEffects::UNPARSED) {
        return;
    }
    let pins = &mut server.pins;
    let has = |effect| effects.intersects(effect);
    if has(MysqlEffects::RELEASE_ALL_LOCKS) {
        pins.unlocked(u32::MAX);
        // The function may not have been called: `IF(0, RELEASE_ALL_LOCKS(), 1)`.
        server.unlock_due = true;
    } else if has(MysqlEffects::RELEASE_LOCK) && !has(LOCKS_UNSEEN) && lock_row == Some(true) {
        pins.unlocked(1);
        // The value may be that of another expression.
        server.unlock_due = true;
    }
    if has(MysqlEffects::UNLOCK_TABLES) {
        pins.end(PinReason::TableLock);
    }
    if has(MysqlEffects::BACKUP_UNLOCK) {
        pins.end(PinReason::Backup);
    }
    let in_transaction = server.status.contains(StatusFlags::IN_TRANS);
    if has(MysqlEffects::COMMIT | MysqlEffects::ROLLBACK) && !in_transaction {
        pins.end(PinReason::NextTransaction);
    }
    if has(MysqlEffects::XA) && is_xa_over(server, effects) {
        server.pins.end(PinReason::Xa);
    }
}

/// Records a text's effects on named objects.
fn names(server: &mut MysqlServerSession, facts: &MysqlStatementFacts, went_well: bool) {
    const NAMED: MysqlEffects = MysqlEffects::TEMP_CREATE
        .with(MysqlEffects::TEMP_DROP)
        .with(MysqlEffects::TEMP_RENAME)
        .with(MysqlEffects::HANDLER)
        .with(MysqlEffects::SQL_PREPARE)
        .with(MysqlEffects::SQL_DEALLOCATE)
        .with(MysqlEffects::SET_FIXED);
    let effects = facts.effects;
    if !effects.intersects(NAMED) {
        return;
    }
    let pins = &mut server.pins;
    if effects.intersects(MysqlEffects::TEMP_RENAME) && pins.has(PinReason::TempTable) {
        pins.temp_table(None);
    }
    let Some(details) = facts.details.as_deref().filter(|details| !details.lost) else {
        return unnamed(server, effects);
    };
    let ends = went_well && !effects.intersects(MysqlEffects::MULTI);
    let moves = effects.contains(MysqlEffects::MULTI | MysqlEffects::USE);
    let schema = server.applied.schema().unwrap_or_default().to_owned();
    for name in &details.names {
        let bytes = name.name.as_bytes();
        match name.act {
            // The schema is not known.
            MysqlNameAction::CreateTemporary | MysqlNameAction::CreateTemporarySequence
                if moves =>
            {
                pins.temp_table(None)
            }
            MysqlNameAction::CreateTemporary => pins.temp_table(Some(&table(name, &schema))),
            MysqlNameAction::CreateTemporarySequence => {
                pins.temp_table(Some(&sequence(name, &schema)))
            }
            MysqlNameAction::Drop if ends => pins.dropped(&table(name, &schema)),
            MysqlNameAction::DropSequence if ends => pins.dropped(&sequence(name, &schema)),
            MysqlNameAction::Prepare => pins.prepared(Some(bytes)),
            MysqlNameAction::Deallocate if ends => pins.deallocated(bytes),
            MysqlNameAction::OpenHandler => pins.opened(Some(bytes)),
            MysqlNameAction::CloseHandler if ends => pins.closed(bytes),
            MysqlNameAction::Drop
            | MysqlNameAction::DropSequence
            | MysqlNameAction::Deallocate
            | MysqlNameAction::CloseHandler
            | MysqlNameAction::Use
            | MysqlNameAction::Execute
            | MysqlNameAction::ExecuteImmediate => {}
        }
    }
    variables(server, details, ends);
}

/// Returns the qualified name of a table.
fn table(name: &MysqlNameUse, schema: &str) -> Vec<u8> {
    let schema = name.schema.as_deref().unwrap_or(schema);
    [schema.as_bytes(), b"\0", name.name.as_bytes()].concat()
}

/// Returns the qualified name of a sequence, distinct from a table's: dropping one does not drop
/// the other.
fn sequence(name: &MysqlNameUse, schema: &str) -> Vec<u8> {
    [&table(name, schema)[..], b"\0"].concat()
}

/// Records variables that cannot be set at another connection.
fn variables(server: &mut MysqlServerSession, details: &MysqlTextDetails, ends: bool) {
    for assignment in &details.assignments {
        if assignment.scope != VariableScope::Session || is_replayable(&assignment.name) {
            continue;
        }
        let name = assignment.name.as_bytes();
        match assignment.value {
            AssignedValue::Default if ends => server.pins.variable_default(name),
            AssignedValue::Default => {}
            AssignedValue::Literal(_) | AssignedValue::Expression => server.pins.variable(name),
        }
    }
}

/// Does the same for unknown names: only a reset ends the pins.
fn unnamed(server: &mut MysqlServerSession, effects: MysqlEffects) {
    let pins = &mut server.pins;
    if effects.intersects(MysqlEffects::TEMP_CREATE) {
        pins.temp_table(None);
    }
    if effects.intersects(MysqlEffects::SQL_PREPARE) {
        pins.prepared(None);
    }
    if effects.intersects(MysqlEffects::HANDLER) {
        pins.opened(None);
    }
    if effects.intersects(MysqlEffects::SET_FIXED) {
        pins.variable(b"");
    }
}
