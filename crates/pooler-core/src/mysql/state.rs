//! State of a client's session beyond its initial state, with which another process can continue
//! it.

use std::sync::Arc;

use wire::mysql::capabilities::StatusFlags;

use super::client::MysqlClientSession;
use super::link::MysqlLinkContext;
use super::settings::MysqlSettings;
use super::statements::StatementArity;

/// State of a session between two commands.
#[derive(Debug)]
pub struct MysqlSessionState {
    /// Status flags that were last sent to the client.
    pub status: u16,
    /// True if it may send several statements in one text.
    pub multi: bool,
    /// Value of `LAST_INSERT_ID()`.
    pub insert_id: u64,
    /// Value of `ROW_COUNT()`.
    pub row_count: i64,
    /// Value of `FOUND_ROWS()`.
    pub found_rows: u64,
    /// Settings.
    pub settings: MysqlSettings,
    /// Prepared statements.
    pub statements: Vec<MysqlStatementState>,
}

/// Prepared statement of a session.
#[derive(Debug)]
pub struct MysqlStatementState {
    /// Number of the statement at the client.
    pub number: u32,
    /// Text.
    pub text: Vec<u8>,
    /// Columns of its result.
    pub columns: u16,
    /// Parameters.
    pub params: u16,
    /// Types of the parameters, as the client sent them.
    pub types: Option<Vec<u8>>,
}

impl MysqlClientSession {
    /// Returns the state of the session; `None` if it has warnings that its client may still query,
    /// a pending reply, or statements that were prepared under other settings than its current
    /// ones.
    #[must_use]
    pub fn state(&self) -> Option<MysqlSessionState> {
        let diagnostics = &self.diagnostics;
        let owes = self.statements.iter().any(|(number, _)| self.statements.has_failed(number));
        let elsewhere = self.statements.are_of_other_settings(self.settings());
        if diagnostics.warned || diagnostics.warnings.is_some() || owes || elsewhere {
            return None;
        }
        let statements = self.statements.iter().map(|(number, open)| MysqlStatementState {
            number,
            text: open.statement.text.to_vec(),
            columns: open.counts.columns,
            params: open.counts.params,
            types: open.types.as_ref().map(|types| types.to_vec()),
        });
        Some(MysqlSessionState {
            status: self.status.0,
            multi: self.multi,
            insert_id: diagnostics.insert_id,
            row_count: diagnostics.row_count,
            found_rows: diagnostics.found_rows,
            settings: (**self.settings()).clone(),
            statements: statements.collect(),
        })
    }

    /// Restores this state in a new session.
    pub fn restore(&mut self, state: MysqlSessionState, shared: &mut MysqlLinkContext) {
        self.restore_settings(state.settings);
        self.status = StatusFlags(state.status);
        self.read_as(self.status);
        self.multi = state.multi;
        self.diagnostics.insert_id = state.insert_id;
        self.diagnostics.row_count = state.row_count;
        self.diagnostics.found_rows = state.found_rows;
        for statement in state.statements {
            let wanted = Arc::clone(self.settings());
            let made = shared.texts.statement(&statement.text, self.sql_mode, &wanted);
            let counts = StatementArity { columns: statement.columns, params: statement.params };
            let types = statement.types.map(Arc::from);
            self.statements.restore(statement.number, made, counts, types, &wanted);
        }
    }
}
