//! What a relay puts between a client's requests: settings, and room for statements.

use std::sync::Arc;

use wire::pg::exchange::{Audience, Request};
use wire::pg::message;

use super::{Outputs, Shared};
use crate::pg::client::ClientSession;
use crate::pg::server::{Note, ServerSession};
use crate::pg::statements::write_close;

/// Makes the server's settings the client's. Returns whether anything had to be sent.
///
/// The change is a transaction of its own: if it fails, the server is left in a failed transaction,
/// so that what the client has sent behind it fails as well and nothing runs under settings that
/// are somebody else's.
pub(super) fn settings(
    shared: &mut Shared,
    client: &ClientSession,
    server: &mut ServerSession,
    out: &mut Outputs<'_>,
) -> bool {
    if Arc::ptr_eq(&server.applied, &client.wanted) {
        return false;
    }
    if server.applied == client.wanted {
        // From now on the comparison above is enough.
        server.applied = client.wanted.clone();
        return false;
    }
    let mut text = std::mem::take(&mut shared.scratch);
    text.clear();
    server.applied.write_change(&client.wanted, &mut text);
    server.query(&[b"BEGIN;", &text, b"COMMIT"], Note::Settings, out.to_server);
    shared.scratch = text;
    server.applied = client.wanted.clone();
    true
}

/// Tells the client the parameters of the server that it does not know.
pub(super) fn tell_parameters(
    client: &mut ClientSession,
    server: &ServerSession,
    out: &mut Outputs<'_>,
) {
    if Arc::ptr_eq(&client.seen, &server.parameters) {
        return;
    }
    for (name, value) in server.parameters.iter() {
        if client.seen.value(name) != Some(value) {
            message::backend::parameter_status(out.to_client, name, value);
        }
    }
    client.seen = server.parameters.clone();
}

/// Closes the statements that are out of use for longest, so that there is room. Only while nothing
/// is outstanding: an error of the client's would make the server pass over it.
pub(super) fn trim_statements(shared: &Shared, server: &mut ServerSession, out: &mut Outputs<'_>) {
    if server.statements.len() <= shared.limits.prepared_statements_max {
        return;
    }
    debug_assert!(server.exchange.is_empty() && !server.unsynced, "{server:?}");
    while server.statements.len() > shared.limits.prepared_statements_max {
        let Some(oldest) = server.statements.oldest() else { break };
        write_close(out.to_server, oldest);
        server.sent(Request::Close, Audience::Nobody, Note::Plain);
        server.statements.gone(oldest);
    }
    server.sync(Audience::Nobody, out.to_server);
}
