//! A client's session, as far as the protocol goes: what it may send next, and what it believes.

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
    /// When its server connection may be somebody else's.
    pub mode: PoolMode,
    /// Trust in what its texts leave behind.
    pub verify: VerifyMode,
    /// True if its tenant may only read: texts that ask for more are refused.
    pub read_only: bool,
    /// Settings that the client asked for as it started. Names that are no settings are left out.
    pub settings: PgSettings,
    /// Settings that the tenant demands whatever the client wants.
    pub forced: Arc<PgSettings>,
    /// The parameters that it was told as it logged in.
    pub seen: Arc<ReportedParameters>,
}

/// A message of which a part has been taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PgPartialMessage {
    /// Bytes to come.
    pub(crate) left: usize,
    /// True if they go to the other side.
    pub(crate) pass: bool,
}

/// A client's side of the protocol.
#[derive(Debug)]
pub struct PgClientSession {
    pub(crate) id: ClientId,
    pub(crate) mode: PoolMode,
    pub(crate) verify: VerifyMode,
    pub(crate) read_only: bool,
    /// Marks code in a sandbox: texts that show passwords are refused.
    pub(crate) is_sandbox: bool,
    /// It has read a sequence's value of its session before.
    pub(crate) reads_sequences: bool,
    /// What it listens to; none if it never did.
    pub(crate) listening: Option<Box<ClientChannels>>,
    pub(crate) body: PgPartialMessage,
    /// Nothing more is sent to the server before it is known whether the last request copies, or
    /// what it forgot.
    pub(crate) barrier: bool,
    pub(crate) attached: bool,
    /// What the last `ReadyForQuery` said that it was given.
    pub(crate) status: TransactionStatus,
    pub(crate) statements: PgClientStatements,
    /// What it wants its session to be.
    pub(crate) wanted: Arc<PgSettings>,
    /// What `RESET` brings back.
    pub(crate) startup: Arc<PgSettings>,
    pub(crate) forced: Arc<PgSettings>,
    /// Parameters that the client was told.
    pub(crate) seen: Arc<ReportedParameters>,
}

impl PgClientSession {
    /// A client that has logged in and has no server connection.
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

    /// Has `known` keep what it starts with: other clients may start with the same.
    pub fn share_startup(&mut self, known: impl FnOnce(Arc<PgSettings>) -> Arc<PgSettings>) {
        if Arc::ptr_eq(&self.wanted, &self.startup) {
            self.wanted = known(std::mem::take(&mut self.startup));
            self.startup = Arc::clone(&self.wanted);
        }
    }

    /// Returns how it calls itself, for those who look at it.
    pub fn application_name(&self) -> Option<&str> {
        self.wanted.value("application_name").filter(|name| !name.is_empty())
    }

    /// Notes that it is code in a sandbox, before anything of it is taken.
    pub fn confine(&mut self) {
        self.is_sandbox = true;
    }

    /// Returns who it is.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Returns whether it holds a server connection.
    pub fn is_attached(&self) -> bool {
        self.attached
    }

    /// The state of its transaction as it was last told.
    pub fn status(&self) -> TransactionStatus {
        self.status
    }

    /// The settings that it wants; a server connection that has them needs no change.
    pub fn settings(&self) -> &Arc<PgSettings> {
        &self.wanted
    }

    /// Returns how many statements it has prepared by name.
    pub fn statement_count(&self) -> usize {
        self.statements.len()
    }

    /// Returns whether a message of it has begun and not ended, of which a part was sent already.
    pub fn is_in_message(&self) -> bool {
        self.body.left > 0
    }

    /// The channels that the relay's listener has to hear before this client's bytes are presented
    /// again; then [`PgClientSession::channels_confirmed`] is due.
    pub fn wanted_channels(&self) -> &[Box<str>] {
        self.listening.as_ref().map_or(&[], |listening| listening.wanted())
    }

    /// The relay's listener hears the channels that were wanted.
    pub fn channels_confirmed(&mut self) {
        if let Some(listening) = &mut self.listening {
            listening.heard();
        }
    }

    /// The channels whose notifications it is to get.
    pub fn channels(&self) -> &[Box<str>] {
        self.listening.as_ref().map_or(&[], |listening| listening.active())
    }

    /// Returns whether the relay's listener has to hear a channel for it.
    pub fn needs_channel(&self, channel: &str) -> bool {
        self.listening.as_ref().is_some_and(|listening| listening.needs(channel))
    }

    /// Counts changes of [`PgClientSession::channels`] and [`PgClientSession::needs_channel`].
    pub fn channels_version(&self) -> u32 {
        self.listening.as_ref().map_or(0, |listening| listening.version())
    }

    /// Returns what it asked for as it started, and what its tenant demands.
    pub fn requested(&self) -> &PgSettings {
        &self.startup
    }

    /// Parameters that the client was told.
    pub fn seen(&self) -> &ReportedParameters {
        &self.seen
    }

    /// Statements that the client has prepared: name, text and types. None when it cannot go on in
    /// another process, because it listens or did.
    pub fn statements(&self) -> Option<impl Iterator<Item = (&[u8], &[u8], &[u8])>> {
        self.listening.is_none().then(|| self.statements.iter())
    }

    /// Gives a session that began in another process the settings that it had there.
    pub fn restore_settings(&mut self, wanted: PgSettings) {
        self.wanted = Arc::new(wanted);
    }

    /// Gives a session a statement that it has prepared in another process.
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

    /// Notes that its server connection is lost. Only a client without a transaction can go on.
    pub fn server_lost(&mut self) {
        self.attached = false;
        self.barrier = false;
        self.body.pass = false;
    }
}
