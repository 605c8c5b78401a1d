//! Queries of the client's last statement's state, answered here because the connection that had it
//! may serve another client.
//!
//! # References
//! - <https://dev.mysql.com/doc/refman/8.4/en/information-functions.html>

use wire::mysql::packet::{ColumnKind, ResultColumn};
use wire::mysql::sql::{QuestionTopic, SessionQuestion};

use crate::mysql::client::MysqlClientSession;
use crate::mysql::warnings::{self, PutResult};

/// Returns whether the client's connection knows less about the query than is known here: the state
/// comes from another connection, and no later statement has changed it.
pub(super) fn is_known(client: &MysqlClientSession, asked: &SessionQuestion) -> bool {
    match asked.what {
        QuestionTopic::RowCount => !client.diagnostics.rows_here,
        QuestionTopic::FoundRows => !client.diagnostics.found_here,
        QuestionTopic::WarningCount
        | QuestionTopic::ErrorCount
        | QuestionTopic::Warnings(_)
        | QuestionTopic::Errors(_) => !client.diagnostics.warnings_here,
    }
}

/// Answers a query with a result in this protocol.
pub(super) fn answer(
    client: &mut MysqlClientSession,
    asked: &SessionQuestion,
    put_result: PutResult,
    out: &mut Vec<u8>,
) {
    let warnings = client.diagnostics.warnings.as_deref();
    match asked.what {
        QuestionTopic::RowCount => {
            let value = client.diagnostics.row_count.to_string();
            number(client, asked, put_result, &value, out);
            client.diagnostics.found_rows = 1;
        }
        QuestionTopic::FoundRows => {
            let value = client.diagnostics.found_rows.to_string();
            number(client, asked, put_result, &value, out);
            client.diagnostics.found_rows = 1;
        }
        QuestionTopic::WarningCount => {
            let value = warnings.map_or(0, |warnings| warnings.count()).to_string();
            number(client, asked, put_result, &value, out);
        }
        QuestionTopic::ErrorCount => {
            let value = warnings.map_or(0, |warnings| warnings.errors()).to_string();
            number(client, asked, put_result, &value, out);
        }
        QuestionTopic::Warnings(limit) | QuestionTopic::Errors(limit) => {
            let errors_only = matches!(asked.what, QuestionTopic::Errors(_));
            let (caps, status) = (client.capabilities, client.status);
            let seq = &mut client.seq;
            let what = (errors_only, limit);
            warnings::put(warnings, what, (caps, status), (put_result, seq), out);
        }
    }
    client.diagnostics.counted(-1, false);
    client.seq = 0;
}

/// Appends a result of one number.
fn number(
    client: &mut MysqlClientSession,
    asked: &SessionQuestion,
    put_result: PutResult,
    value: &str,
    out: &mut Vec<u8>,
) {
    let column = ResultColumn { name: asked.column.as_bytes(), kind: ColumnKind::Integer };
    let (caps, status) = (client.capabilities, client.status);
    let rows = [vec![Some(value.as_bytes())]];
    put_result(out, &mut client.seq, caps, &[column], &rows, status);
}
