//! A client's session in the protocol: what it may send next, and the state that it assumes.

use std::sync::Arc;

use api::{PoolMode, VerifyMode};
use wire::pg::frame::TransactionStatus;

use super::link::PgLinkContext;
use super::listening::ClientChannels;
use super::settings::{PgSettings, ReportedParameters};
use super::statements::{NameId, PgClientStatements};

pub use crate::link::ClientId;

/// Parameters of a new session.
#[derive(Debug)]
pub struct PgClientSetup {
    /// Client.
    pub id: ClientId,
    /// Pool mode: when its server connection may serve another client.
    pub mode: PoolMode,
    /// Verification of the state that its texts leave behind.
    pub verify: VerifyMode,
    /// True if its tenant is read-only: texts that do more are refused.
    pub read_only: bool,
    /// Settings that the client requested at its start. Parameters that are not settings are left
    /// out.
    pub settings: PgSettings,
    /// Settings that the tenant enforces.
    pub forced: Arc<PgSettings>,
    /// Parameters that were reported to the client at its login.
    pub seen: Arc<ReportedParameters>,
}

/// A message of which a part was processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PgPartialMessage {
    /// Remaining bytes.
    pub(crate) left: usize,
    /// True if they are forwarded to the other side.
    pub(crate) pass: bool,
}

/// A client's side of the protocol.
#[derive(Debug)]
pub struct PgClientSession {
    pub(crate) id: ClientId,
    pub(crate) mode: PoolMode,
    pub(crate) verify: VerifyMode,
    pub(crate) read_only: bool,
    /// True for code in a sandbox: texts that show passwords are refused.
    pub(crate) is_sandbox: bool,
    /// True if it has read the value of a sequence in its session before.
    pub(crate) reads_sequences: bool,
    /// Channels that it listens to; `None` if it never did.
    pub(crate) listening: Option<Box<ClientChannels>>,
    pub(crate) body: PgPartialMessage,
    /// True if nothing more may be sent to the server before it is known whether the last request
    /// copies, or which settings it reset.
    pub(crate) barrier: bool,
    pub(crate) attached: bool,
    /// Transaction status of the last `ReadyForQuery` that it received.
    pub(crate) status: TransactionStatus,
    pub(crate) statements: PgClientStatements,
    /// Settings that it wants for its session.
    pub(crate) wanted: Arc<PgSettings>,
    /// Settings that `RESET` restores.
    pub(crate) startup: Arc<PgSettings>,
    pub(crate) forced: Arc<PgSettings>,
    /// Parameters that were reported to the client.
    pub(crate) seen: Arc<ReportedParameters>,
}

impl PgClientSession {
    /// Creates the session of a client that has logged in and has no server connection.
    pub fn new(setup: PgClientSetup) -> PgClientSession {
        let startup = Arc::new(setup.settings.overlaid(&setup.forced));
        PgClientSession {
            id: setup.id,
            mode: setup.mode,
            verify: setup.verify,
            read_only: setup.read_only,
            is_sandbox: false,
            reads_sequences: false,
            listening: None,
            body: PgPartialMessage::default(),
            barrier: false,
            attached: false,
            status: TransactionStatus::Idle,
            statements: PgClientStatements::default(),
            wanted: startup.clone(),
            startup,
            forced: setup.forced,
            seen: setup.seen,
        }
    }

    /// Shares its start settings with other clients by `known`.
    pub fn share_startup(&mut self, known: impl FnOnce(Arc<PgSettings>) -> Arc<PgSettings>) {
        if Arc::ptr_eq(&self.wanted, &self.startup) {
            self.wanted = known(std::mem::take(&mut self.startup));
            self.startup = Arc::clone(&self.wanted);
        }
    }

    /// Returns its application name, for views.
    pub fn application_name(&self) -> Option<&str> {
        self.wanted.value("application_name").filter(|name| !name.is_empty())
    }

    /// Marks it as code in a sandbox, before any of its input is processed.
    pub fn confine(&mut self) {
        self.is_sandbox = true;
    }

    /// Returns its id.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Returns whether it holds a server connection.
    pub fn is_attached(&self) -> bool {
        self.attached
    }

    /// Returns the transaction status that was last sent to it.
    pub fn status(&self) -> TransactionStatus {
        self.status
    }

    /// Returns the settings that it wants; a server connection with the same ones needs no change.
    pub fn settings(&self) -> &Arc<PgSettings> {
        &self.wanted
    }

    /// Returns the number of its named statements.
    pub fn statement_count(&self) -> usize {
        self.statements.len()
    }

    /// Returns whether a message of it is incomplete, of which a part was forwarded already.
    pub fn is_in_message(&self) -> bool {
        self.body.left > 0
    }

    /// Returns the channels that the relay must subscribe to before this client's input is
    /// presented again; then [`PgClientSession::channels_confirmed`] must be called.
    pub fn wanted_channels(&self) -> &[Box<str>] {
        self.listening.as_ref().map_or(&[], |listening| listening.wanted())
    }

    /// Records that the relay has subscribed to the wanted channels.
    pub fn channels_confirmed(&mut self) {
        if let Some(listening) = &mut self.listening {
            listening.heard();
        }
    }

    /// Returns the channels whose notifications it receives.
    pub fn channels(&self) -> &[Box<str>] {
        self.listening.as_ref().map_or(&[], |listening| listening.active())
    }

    /// Returns whether it needs the relay's subscription to a channel.
    pub fn needs_channel(&self, channel: &str) -> bool {
        self.listening.as_ref().is_some_and(|listening| listening.needs(channel))
    }

    /// Returns a counter of changes of [`PgClientSession::channels`] and
    /// [`PgClientSession::needs_channel`].
    pub fn channels_version(&self) -> u32 {
        self.listening.as_ref().map_or(0, |listening| listening.version())
    }

    /// Returns the settings that it requested at its start, with those that its tenant enforces.
    pub fn requested(&self) -> &PgSettings {
        &self.startup
    }

    /// Returns the parameters that were reported to the client.
    pub fn seen(&self) -> &ReportedParameters {
        &self.seen
    }

    /// Returns the client's prepared statements: name, text and types. `None` if it cannot continue
    /// in another process, because it listens or has listened.
    pub fn statements(&self) -> Option<impl Iterator<Item = (&[u8], &[u8], &[u8])>> {
        self.listening.is_none().then(|| self.statements.iter())
    }

    /// Restores the settings of a session that began in another process.
    pub fn restore_settings(&mut self, wanted: PgSettings) {
        self.wanted = Arc::new(wanted);
    }

    /// Restores a statement that was prepared in another process.
    pub fn restore_statement(
        &mut self,
        shared: &mut PgLinkContext,
        name: &[u8],
        text: &[u8],
        types: &[u8],
    ) {
        let plan_key = self.wanted.plan_key();
        let (statement, _) = shared.texts.statement(text, types, plan_key);
        let _undo = if name.is_empty() {
            self.statements.put_unnamed(Some(statement))
        } else {
            let id = NameId::of(&shared.key, name);
            self.statements.remember(id, name);
            self.statements.put(id, Some(statement))
        };
    }

    /// Records the loss of its server connection. Only a client without a transaction can continue.
    pub fn server_lost(&mut self) {
        self.attached = false;
        self.barrier = false;
        self.body.pass = false;
    }
}
