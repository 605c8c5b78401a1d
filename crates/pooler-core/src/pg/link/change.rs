//! Requests that the relay inserts between a client's: settings, and room for statements.

use std::sync::Arc;

use wire::pg::exchange::{ExchangeRequest, ReplyAudience};
use wire::pg::message;
use wire::pg::sql::PgSettingChange;

use super::{LinkOutputs, PgLinkContext};
use crate::pg::client::PgClientSession;
use crate::pg::dirt;
use crate::pg::server::{PgRequestPurpose, PgServerSession};
use crate::pg::settings::{PgSettings, is_replayable};
use crate::pg::statements::write_close;

/// Resets state that code outside of the text may have left and that was not probed this time.
const HIDDEN_RESET: &[u8] = b"RESET SESSION AUTHORIZATION;RESET ROLE;RESET ALL;CLOSE ALL;\
UNLISTEN *;DISCARD TEMP;SELECT pg_catalog.pg_advisory_unlock_all();";

/// Changes the server's settings to the client's. Returns whether anything was sent.
///
/// The change is a transaction of its own: if it fails, the server is left in a failed transaction,
/// so that the client's following requests fail as well and nothing runs under another client's
/// settings.
pub(super) fn settings(
    shared: &mut PgLinkContext,
    client: &PgClientSession,
    server: &mut PgServerSession,
    out: &mut LinkOutputs<'_>,
) -> bool {
    let hidden = server.dirt.has_hidden_settings() && server.last_client != Some(client.id);
    if !hidden && Arc::ptr_eq(&server.applied, &client.wanted) {
        return false;
    }
    if !hidden && server.applied == client.wanted {
        // Makes the comparison above sufficient from now on.
        server.applied = client.wanted.clone();
        return false;
    }
    let mut text = std::mem::take(&mut shared.scratch);
    text.clear();
    if hidden {
        // There may be settings that cannot be queried; this resets them with all others.
        text.extend_from_slice(HIDDEN_RESET);
        server.applied = server.startup.clone();
        server.dirt.settings_reset();
    }
    server.applied.write_change(&client.wanted, &mut text);
    server.query(&[b"BEGIN;", &text, b"COMMIT"], PgRequestPurpose::Settings, out.to_server);
    shared.scratch = text;
    server.applied = client.wanted.clone();
    true
}

/// Returns a tenant's trust in texts, for [`dirt`].
pub(super) fn believed(verify: api::VerifyMode) -> dirt::VerifyPolicy {
    match verify {
        api::VerifyMode::Unknown => dirt::VerifyPolicy::Unknown,
        api::VerifyMode::Always => dirt::VerifyPolicy::Always,
        api::VerifyMode::Never => dirt::VerifyPolicy::Never,
    }
}

/// Records changes of settings by the client: the server has them, and the client wants them from
/// now on.
pub(super) fn apply(
    client: Option<&mut PgClientSession>,
    server: &mut PgServerSession,
    changes: Vec<PgSettingChange>,
) {
    if changes.is_empty() {
        return;
    }
    let mut applied = (*server.applied).clone();
    let nothing = Arc::new(PgSettings::default());
    let (mut wanted, startup, forced) = match &client {
        Some(client) => ((*client.wanted).clone(), &client.startup, &client.forced),
        None => (PgSettings::default(), &nothing, &nothing),
    };
    let mut known = true;
    for change in changes {
        match change {
            PgSettingChange::Value { name, value } => {
                known &= applied.put(&name, Some(&value));
                if forced.value(&name).is_none() {
                    known &= wanted.put(&name, Some(&value));
                }
            }
            PgSettingChange::Default { name } => {
                known &= applied.put(&name, server.startup.value(&name));
                known &= wanted.put(&name, startup.value(&name));
            }
            PgSettingChange::DefaultAll => {
                applied = (*server.startup).clone();
                wanted = (**startup).clone();
            }
        }
    }
    keep(client, server, applied, wanted, known);
}

/// Adopts the settings that a server's answer reports.
pub(super) fn adopt(
    mut client: Option<&mut PgClientSession>,
    server: &mut PgServerSession,
    found: dirt::ReportedSettings,
) {
    if let Some(all) = found.all {
        // The initial settings apply unless one of these overrides them.
        let mut applied = (*server.startup).clone();
        let mut known = true;
        // The server does not list custom settings: the known ones stay known.
        let hidden = server.applied.iter().filter(|(name, _)| name.contains('.'));
        let all = all.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in hidden.chain(all) {
            // Roles are queried separately.
            known &= !is_replayable(name) || applied.put(name, Some(value));
        }
        let forced = client.as_ref().map(|client| client.forced.clone()).unwrap_or_default();
        let mut wanted = applied.overlaid(&forced);
        if let Some(client) = &client {
            // A setting that code has reset has the client's start value for the client.
            for (name, value) in client.startup.iter().filter(|it| applied.value(it.0).is_none()) {
                known &= wanted.put(name, Some(value));
            }
            known &= postpone(&server.applied, &client.wanted, &mut wanted);
        }
        keep(client.as_deref_mut(), server, applied, wanted, known);
    }
    apply(client, server, found.changes);
}

/// Keeps settings that the client wants and the server did not have yet when it was queried.
/// Returns whether there was room.
fn postpone(had: &PgSettings, wanted: &PgSettings, now: &mut PgSettings) -> bool {
    let mut known = true;
    for (name, value) in wanted.iter().filter(|(name, value)| had.value(name) != Some(value)) {
        known &= now.put(name, Some(value));
    }
    for (name, _) in had.iter().filter(|(name, _)| wanted.value(name).is_none()) {
        known &= now.put(name, None);
    }
    known
}

/// Keeps a session whose settings are partly unknown with its client.
fn keep(
    client: Option<&mut PgClientSession>,
    server: &mut PgServerSession,
    applied: PgSettings,
    wanted: PgSettings,
    known: bool,
) {
    server.dirty |= !known;
    server.applied = Arc::new(applied);
    let Some(client) = client else { return };
    server.own_search_path = wanted.value("search_path").is_some();
    client.wanted =
        if wanted == *server.applied { server.applied.clone() } else { Arc::new(wanted) };
}

/// Reports the server's parameters to the client that it does not know.
pub(super) fn tell_parameters(
    client: &mut PgClientSession,
    server: &PgServerSession,
    out: &mut LinkOutputs<'_>,
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

/// Closes the least recently used statements, to make room. Only while nothing is outstanding:
/// after an error of the client the server would skip the request.
pub(super) fn trim_statements(server: &mut PgServerSession, out: &mut LinkOutputs<'_>) {
    if server.statements.len() <= server.limits.prepared_statements_max {
        return;
    }
    debug_assert!(server.exchange.is_empty() && !server.unsynced, "{server:?}");
    while server.statements.len() > server.limits.prepared_statements_max {
        let Some(oldest) = server.statements.oldest() else { break };
        write_close(out.to_server, oldest);
        server.sent(ExchangeRequest::Close, ReplyAudience::Nobody, PgRequestPurpose::Plain);
        server.statements.gone(oldest);
    }
    server.sync(ReplyAudience::Nobody, out.to_server);
}
