//! Questions about the client's last statement, answered here because the connection that knew is
//! somebody else's.

use wire::mysql::packet::{ColumnKind, ResultColumn, put_result};
use wire::mysql::sql::{Asked, What};

use crate::mysql::client::ClientSession;

/// Whether the connection that the client holds knows less about what is asked than is known here:
/// what was said elsewhere, and nothing since then has taken away.
pub(super) fn is_known(client: &ClientSession, asked: &Asked) -> bool {
    match asked.what {
        What::RowCount => !client.diagnostics.rows_here,
        What::FoundRows => !client.diagnostics.found_here,
        What::WarningCount | What::ErrorCount | What::Warnings(_) | What::Errors(_) => {
            !client.diagnostics.warnings_here
        }
    }
}

/// Answers a question; says whether it could.
pub(super) fn answer(client: &mut ClientSession, asked: &Asked, out: &mut Vec<u8>) -> bool {
    let warnings = client.diagnostics.warnings.as_deref();
    match asked.what {
        What::RowCount => {
            let value = client.diagnostics.row_count.to_string();
            number(client, asked, &value, out);
            client.diagnostics.found_rows = 1;
        }
        What::FoundRows => {
            let value = client.diagnostics.found_rows.to_string();
            number(client, asked, &value, out);
            client.diagnostics.found_rows = 1;
        }
        What::WarningCount => {
            let value = warnings.map_or(0, |warnings| warnings.count()).to_string();
            number(client, asked, &value, out);
        }
        What::ErrorCount => {
            let value = warnings.map_or(0, |warnings| warnings.errors()).to_string();
            number(client, asked, &value, out);
        }
        What::Warnings(limit) | What::Errors(limit) => {
            let errors_only = matches!(asked.what, What::Errors(_));
            let (caps, status) = (client.capabilities, client.status);
            let seq = &mut client.seq;
            crate::mysql::warnings::put(warnings, (errors_only, limit), (caps, status), seq, out);
        }
    }
    client.diagnostics.counted(-1, false);
    client.seq = 0;
    true
}

/// A result of one number.
fn number(client: &mut ClientSession, asked: &Asked, value: &str, out: &mut Vec<u8>) {
    let column = ResultColumn { name: asked.column.as_bytes(), kind: ColumnKind::Integer };
    let (caps, status) = (client.capabilities, client.status);
    let rows = [vec![Some(value.as_bytes())]];
    put_result(out, &mut client.seq, caps, &[column], &rows, status);
}
