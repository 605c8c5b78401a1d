//! Table definitions, and the stored form of values.
//!
//! One SQL text for SQLite, PostgreSQL and CockroachDB wherever possible: no sequences, no
//! triggers, no foreign keys, no collations. Each migration creates one table with its indexes, or
//! adds a column, which is null in older rows.

use std::collections::BTreeMap;

use api::{OnDisconnect, SessionEventKind, SessionState};
use node::store::{FromValue, MigrationStep, SqlRow, SqlStoreError, SqlValue};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::rows::OnDeadline;

/// Service that the tables belong to.
pub(super) const SERVICE: &str = "sessions";

/// Migrations to the newest version; append-only.
pub(super) const MIGRATIONS: &[MigrationStep] = &[
    MigrationStep::Same(
        "CREATE TABLE agents (
            id TEXT NOT NULL PRIMARY KEY,
            tenant TEXT NOT NULL,
            name TEXT NOT NULL,
            description TEXT,
            active_version BIGINT NOT NULL,
            last_version BIGINT NOT NULL,
            settings BYTEA NOT NULL,
            limits BYTEA NOT NULL,
            options BYTEA NOT NULL,
            env BYTEA,
            env_names BYTEA NOT NULL,
            created_ms BIGINT NOT NULL,
            updated_ms BIGINT NOT NULL
        );
        CREATE UNIQUE INDEX agents_name ON agents (tenant, name)",
    ),
    MigrationStep::Same(
        "CREATE TABLE agent_versions (
            agent_id TEXT NOT NULL,
            version BIGINT NOT NULL,
            runtime BYTEA NOT NULL,
            chain BYTEA NOT NULL,
            folder TEXT,
            listing BYTEA NOT NULL,
            files BIGINT NOT NULL,
            bytes BIGINT NOT NULL,
            install_output TEXT,
            created_ms BIGINT NOT NULL,
            PRIMARY KEY (agent_id, version)
        )",
    ),
    MigrationStep::Same(
        "CREATE TABLE sessions (
            id TEXT NOT NULL PRIMARY KEY,
            tenant TEXT NOT NULL,
            agent_id TEXT,
            agent_name TEXT,
            agent_version BIGINT,
            parent TEXT,
            face TEXT,
            created_ms BIGINT NOT NULL,
            options BYTEA NOT NULL,
            limits BYTEA NOT NULL,
            metadata BYTEA NOT NULL,
            env BYTEA,
            credential TEXT,
            on_disconnect TEXT NOT NULL,
            idle_s BIGINT,
            on_deadline TEXT NOT NULL,
            extra BYTEA NOT NULL,
            state TEXT NOT NULL,
            chain BYTEA NOT NULL,
            disk TEXT,
            disk_server TEXT,
            manifest TEXT,
            agent_session TEXT,
            turns BIGINT NOT NULL,
            last_seq BIGINT NOT NULL,
            last_active_ms BIGINT NOT NULL,
            deadline_ms BIGINT,
            message TEXT,
            owner TEXT,
            epoch BIGINT NOT NULL,
            seq_start BIGINT NOT NULL,
            seq_ceiling BIGINT NOT NULL
        );
        CREATE INDEX sessions_tenant ON sessions (tenant, id);
        CREATE INDEX sessions_owner ON sessions (owner, id) WHERE owner IS NOT NULL;
        CREATE INDEX sessions_disk ON sessions (disk_server, id) WHERE disk_server IS NOT NULL;
        CREATE INDEX sessions_deadline ON sessions (deadline_ms) WHERE deadline_ms IS NOT NULL;
        CREATE INDEX sessions_ended ON sessions (last_active_ms, id) WHERE state = 'ended'",
    ),
    MigrationStep::Same(
        "CREATE TABLE session_metadata (
            tenant TEXT NOT NULL,
            name TEXT NOT NULL,
            value TEXT NOT NULL,
            session TEXT NOT NULL,
            PRIMARY KEY (tenant, name, value, session)
        );
        CREATE INDEX session_metadata_session ON session_metadata (session)",
    ),
    // Without a row id, SQLite stores the rows in the order of their key.
    MigrationStep::Each {
        sqlite: "CREATE TABLE session_events (
            session TEXT NOT NULL,
            seq BIGINT NOT NULL,
            at_ms BIGINT NOT NULL,
            turn TEXT,
            kind TEXT NOT NULL,
            data BYTEA NOT NULL,
            PRIMARY KEY (session, seq)
        ) WITHOUT ROWID;
        CREATE INDEX session_events_turns ON session_events (session, turn, kind)
            WHERE kind IN ('turn_start', 'done')",
        postgres: "CREATE TABLE session_events (
            session TEXT NOT NULL,
            seq BIGINT NOT NULL,
            at_ms BIGINT NOT NULL,
            turn TEXT,
            kind TEXT NOT NULL,
            data BYTEA NOT NULL,
            PRIMARY KEY (session, seq)
        );
        CREATE INDEX session_events_turns ON session_events (session, turn, kind)
            WHERE kind IN ('turn_start', 'done')",
    },
    MigrationStep::Each {
        sqlite: "CREATE TABLE session_messages (
            session TEXT NOT NULL,
            seq BIGINT NOT NULL,
            at_ms BIGINT NOT NULL,
            turn TEXT,
            role TEXT NOT NULL,
            content BYTEA NOT NULL,
            PRIMARY KEY (session, seq)
        ) WITHOUT ROWID",
        postgres: "CREATE TABLE session_messages (
            session TEXT NOT NULL,
            seq BIGINT NOT NULL,
            at_ms BIGINT NOT NULL,
            turn TEXT,
            role TEXT NOT NULL,
            content BYTEA NOT NULL,
            PRIMARY KEY (session, seq)
        )",
    },
    MigrationStep::Same(
        "CREATE TABLE session_layers (
            id TEXT NOT NULL PRIMARY KEY,
            tenant TEXT NOT NULL,
            bytes BIGINT NOT NULL,
            created_ms BIGINT NOT NULL
        )",
    ),
    // One row for each layer of each chain; unused layers have none.
    MigrationStep::Same(
        "CREATE TABLE session_layer_uses (
            layer TEXT NOT NULL,
            used_by TEXT NOT NULL,
            PRIMARY KEY (layer, used_by)
        );
        CREATE INDEX session_layer_uses_by ON session_layer_uses (used_by)",
    ),
    MigrationStep::Same(
        "CREATE TABLE session_snapshots (
            id TEXT NOT NULL PRIMARY KEY,
            tenant TEXT NOT NULL,
            session TEXT NOT NULL,
            name TEXT,
            chain BYTEA NOT NULL,
            bytes BIGINT NOT NULL,
            extra BYTEA NOT NULL,
            created_ms BIGINT NOT NULL
        );
        CREATE INDEX session_snapshots_tenant ON session_snapshots (tenant, id)",
    ),
    MigrationStep::Same(
        "CREATE TABLE session_credentials (
            id TEXT NOT NULL PRIMARY KEY,
            tenant TEXT NOT NULL,
            kind TEXT NOT NULL,
            label TEXT NOT NULL,
            secret BYTEA NOT NULL,
            created_ms BIGINT NOT NULL,
            last_used_ms BIGINT
        );
        CREATE INDEX session_credentials_tenant ON session_credentials (tenant, id)",
    ),
    MigrationStep::Same(
        "CREATE TABLE session_attachments (
            id TEXT NOT NULL PRIMARY KEY,
            tenant TEXT NOT NULL,
            session TEXT NOT NULL,
            name TEXT NOT NULL,
            media_type TEXT,
            bytes BIGINT NOT NULL,
            object TEXT NOT NULL,
            created_ms BIGINT NOT NULL
        );
        CREATE INDEX session_attachments_session ON session_attachments (session, id)",
    ),
    MigrationStep::Same(
        "CREATE TABLE session_usage (
            session TEXT NOT NULL,
            turn TEXT NOT NULL,
            tenant TEXT NOT NULL,
            agent TEXT,
            at_ms BIGINT NOT NULL,
            model TEXT,
            input_tokens BIGINT NOT NULL,
            output_tokens BIGINT NOT NULL,
            cache_read_tokens BIGINT NOT NULL,
            cache_write_tokens BIGINT NOT NULL,
            cost_usd DOUBLE PRECISION NOT NULL,
            tool_calls BIGINT NOT NULL,
            duration_ms BIGINT NOT NULL,
            PRIMARY KEY (session, turn)
        );
        CREATE INDEX session_usage_tenant ON session_usage (tenant, at_ms)",
    ),
    MigrationStep::Same(
        "CREATE TABLE session_servers (
            id TEXT NOT NULL PRIMARY KEY,
            address TEXT,
            heartbeat_ms BIGINT NOT NULL
        )",
    ),
    MigrationStep::Same(
        "CREATE TABLE session_documents (
            tenant TEXT NOT NULL,
            kind TEXT NOT NULL,
            id TEXT NOT NULL,
            parent TEXT,
            body BYTEA NOT NULL,
            created_ms BIGINT NOT NULL,
            updated_ms BIGINT NOT NULL,
            PRIMARY KEY (tenant, kind, id)
        );
        CREATE INDEX session_documents_parent ON session_documents (tenant, kind, parent, id)",
    ),
    MigrationStep::Same("ALTER TABLE agents ADD COLUMN grants BYTEA"),
    MigrationStep::Same("ALTER TABLE sessions ADD COLUMN grants BYTEA"),
    MigrationStep::Same(
        "CREATE INDEX session_layers_tenant ON session_layers (tenant);
        CREATE INDEX session_attachments_tenant ON session_attachments (tenant)",
    ),
    MigrationStep::Same("ALTER TABLE sessions ADD COLUMN history_bytes BIGINT"),
    MigrationStep::Same("ALTER TABLE session_servers ADD COLUMN incarnation TEXT"),
    MigrationStep::Same("ALTER TABLE session_servers ADD COLUMN home TEXT"),
    // Nodes have a table of their own now, which includes nodes without sessions.
    MigrationStep::Contract("DROP TABLE session_servers"),
    MigrationStep::Same(
        "CREATE TABLE session_templates (
            id TEXT NOT NULL PRIMARY KEY,
            tenant TEXT NOT NULL,
            name TEXT NOT NULL,
            created_ms BIGINT NOT NULL,
            updated_ms BIGINT NOT NULL
        );
        CREATE UNIQUE INDEX session_templates_name ON session_templates (tenant, name)",
    ),
    MigrationStep::Same(
        "CREATE TABLE session_template_builds (
            id TEXT NOT NULL PRIMARY KEY,
            template TEXT NOT NULL,
            tenant TEXT NOT NULL,
            status TEXT NOT NULL,
            detail BYTEA NOT NULL,
            chain BYTEA NOT NULL,
            env BYTEA,
            log BYTEA,
            owner TEXT,
            created_ms BIGINT NOT NULL,
            updated_ms BIGINT NOT NULL,
            finished_ms BIGINT
        );
        CREATE INDEX session_template_builds_of ON session_template_builds (template, created_ms);
        CREATE INDEX session_template_builds_building ON session_template_builds (tenant)
            WHERE status = 'building'",
    ),
    MigrationStep::Same(
        "CREATE TABLE session_template_tags (
            template TEXT NOT NULL,
            tag TEXT NOT NULL,
            build TEXT NOT NULL,
            created_ms BIGINT NOT NULL,
            PRIMARY KEY (template, tag)
        )",
    ),
    // Steps by the hash of all inputs of their layer.
    MigrationStep::Same(
        "CREATE TABLE session_template_steps (
            tenant TEXT NOT NULL,
            step TEXT NOT NULL,
            layer TEXT NOT NULL,
            PRIMARY KEY (tenant, step)
        );
        CREATE INDEX session_template_steps_layer ON session_template_steps (layer)",
    ),
    MigrationStep::Same(
        "CREATE TABLE session_template_archives (
            tenant TEXT NOT NULL,
            name TEXT NOT NULL,
            objects TEXT NOT NULL,
            pieces BIGINT NOT NULL,
            bytes BIGINT NOT NULL,
            used_ms BIGINT NOT NULL,
            PRIMARY KEY (tenant, name)
        );
        CREATE INDEX session_template_archives_used ON session_template_archives (used_ms)",
    ),
    MigrationStep::Same("ALTER TABLE sessions ADD COLUMN template BYTEA"),
    MigrationStep::Same(
        "CREATE TABLE session_waiting_messages (
            session TEXT NOT NULL,
            turn TEXT NOT NULL,
            request BYTEA NOT NULL,
            at_ms BIGINT NOT NULL,
            PRIMARY KEY (session, turn)
        )",
    ),
];

/// Escape character in stored texts: the control character "substitute".
const SUBSTITUTE: char = '\u{1a}';

/// Encodes a text: PostgreSQL does not support NUL, which external texts may contain.
pub(super) fn text(original: &str) -> SqlValue {
    if !original.contains(['\0', SUBSTITUTE]) {
        return SqlValue::Text(original.to_owned());
    }
    let doubled = original.replace(SUBSTITUTE, "\u{1a}\u{1a}");
    SqlValue::Text(doubled.replace('\0', "\u{1a}0"))
}

/// Encodes a text; null if it is missing.
pub(super) fn text_or_null(original: Option<&str>) -> SqlValue {
    original.map_or(SqlValue::Null, text)
}

/// Decodes a stored text.
pub(super) fn original(stored: String) -> String {
    if !stored.contains(SUBSTITUTE) {
        return stored;
    }
    let mut text = String::with_capacity(stored.len());
    let mut characters = stored.chars();
    while let Some(character) = characters.next() {
        if character != SUBSTITUTE {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('0') => text.push('\0'),
            Some(other) => text.push(other),
            // Encoded texts never end like this.
            None => {}
        }
    }
    text
}

/// Encodes a count or a time; saturates at the maximum.
pub(super) fn number(value: u64) -> SqlValue {
    SqlValue::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

/// Encodes a count; null if it is missing.
pub(super) fn number_or_null(value: Option<u64>) -> SqlValue {
    value.map_or(SqlValue::Null, number)
}

/// Encodes a value as JSON bytes, which the databases do not interpret.
pub(super) fn json<T: Serialize>(value: &T) -> Result<SqlValue, SqlStoreError> {
    serde_json::to_vec(value).map(SqlValue::Blob).map_err(SqlStoreError::refuse)
}

/// Returns a page size as a parameter, capped at the maximum.
pub(super) fn limit(wanted: usize) -> SqlValue {
    SqlValue::Int(i64::try_from(wanted.min(super::access::PAGE_MAX)).unwrap_or(i64::MAX))
}

pub(super) fn state(name: &str) -> Option<SessionState> {
    use SessionState as S;
    let all = [S::Starting, S::Active, S::Paused, S::Stopped, S::Ended, S::Error];
    all.into_iter().find(|state| state.as_str() == name)
}

pub(super) fn kind(name: &str) -> Option<SessionEventKind> {
    use SessionEventKind as K;
    let all = [
        K::TurnStart,
        K::TextDelta,
        K::ThinkingDelta,
        K::InputJsonDelta,
        K::Text,
        K::Reasoning,
        K::ToolUse,
        K::ToolResult,
        K::Message,
        K::TurnComplete,
        K::Error,
        K::Done,
        K::Lifecycle,
    ];
    all.into_iter().find(|kind| kind.as_str() == name)
}

pub(super) fn on_disconnect(policy: OnDisconnect) -> &'static str {
    match policy {
        OnDisconnect::Continue => "continue",
        OnDisconnect::Interrupt => "interrupt",
    }
}

pub(super) fn on_deadline(policy: OnDeadline) -> &'static str {
    match policy {
        OnDeadline::Kill => "kill",
        OnDeadline::Pause => "pause",
        OnDeadline::Rest => "rest",
    }
}

/// Reads the columns of a row in order.
pub(super) struct SessionColumns<'a> {
    row: &'a SqlRow,
    next: usize,
}

impl<'a> SessionColumns<'a> {
    pub(super) fn of(row: &'a SqlRow) -> SessionColumns<'a> {
        SessionColumns { row, next: 0 }
    }

    /// Reads the next column.
    pub(super) fn take<T: FromValue>(&mut self) -> Result<T, SqlStoreError> {
        let value = self.row.get(self.next);
        self.next += 1;
        value
    }

    /// Reads the next column as an external text.
    pub(super) fn text(&mut self) -> Result<String, SqlStoreError> {
        self.take().map(original)
    }

    /// Reads the next column as an external text that may be null.
    pub(super) fn text_or_null(&mut self) -> Result<Option<String>, SqlStoreError> {
        Ok(self.take::<Option<String>>()?.map(original))
    }

    /// Reads the next column as JSON.
    pub(super) fn json<T: DeserializeOwned>(&mut self) -> Result<T, SqlStoreError> {
        let bytes: Vec<u8> = self.take()?;
        serde_json::from_slice(&bytes).map_err(|_| self.wrong("JSON of its type"))
    }

    /// Reads the next column as JSON; the default for null, as in rows older than the column.
    pub(super) fn json_or_default<T: DeserializeOwned + Default>(
        &mut self,
    ) -> Result<T, SqlStoreError> {
        let bytes: Option<Vec<u8>> = self.take()?;
        let read = bytes.map(|bytes| serde_json::from_slice(&bytes));
        read.transpose().map_err(|_| self.wrong("JSON of its type")).map(Option::unwrap_or_default)
    }

    /// Reads the next column as one of a fixed set of words.
    pub(super) fn word<T>(
        &mut self,
        expected: &'static str,
        find: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, SqlStoreError> {
        let word: String = self.take()?;
        find(&word).ok_or_else(|| self.wrong(expected))
    }

    fn wrong(&self, expected: &'static str) -> SqlStoreError {
        SqlStoreError::Column { index: self.next - 1, expected, found: "something else" }
    }
}

/// Conditions and parameters of a dynamic statement.
#[derive(Default)]
pub(super) struct QueryConditions {
    pub(super) sql: String,
    pub(super) parameters: Vec<SqlValue>,
}

impl QueryConditions {
    /// Starts with the condition that a column equals a value.
    pub(super) fn equal(column: &str, value: SqlValue) -> QueryConditions {
        QueryConditions { sql: format!("{column} = $1"), parameters: vec![value] }
    }

    /// Adds a condition, with `$` as the placeholder; adds nothing without a value.
    pub(super) fn and(&mut self, condition: &str, value: Option<SqlValue>) {
        if let Some(value) = value {
            let place = self.place(value);
            self.sql.push_str(" AND ");
            self.sql.push_str(&condition.replace('$', &place));
        }
    }

    /// Adds a parameter; returns `$n`.
    pub(super) fn place(&mut self, value: SqlValue) -> String {
        self.parameters.push(value);
        format!("${}", self.parameters.len())
    }
}

/// Returns metadata as rows of names and values.
pub(super) fn pairs(metadata: &BTreeMap<String, String>) -> impl Iterator<Item = [SqlValue; 2]> {
    metadata.iter().map(|(name, value)| [text(name), text(value)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_and_is_stored_without_nul() {
        for before in ["", "a", "\0", "\u{1a}", "\u{1a}0", "\0\u{1a}\u{1a}e\0", "é'\"\u{1f980}"] {
            let SqlValue::Text(stored) = text(before) else { panic!("no text") };
            assert!(!stored.contains('\0'), "{before:?}");
            assert_eq!(original(stored), before);
        }
    }
}
