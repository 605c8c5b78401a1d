//! The console, as the relay knows it.

use std::fmt;
use std::sync::Arc;

use pooler_core::pg::login::{PgLoginRefusal, PgStartupRequest};
use tokio::sync::oneshot;

use super::dialect::ErrorDialect;
use super::orders::{ThreadInbox, ThreadMessageKind};
use crate::tenants::TenantUser;

/// Rights of a console user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleRights {
    /// All commands.
    Admin,
    /// Look.
    Stats,
}

/// The console, as the relay knows it.
pub trait ConsoleBackend: fmt::Debug + Send + Sync {
    /// Returns who somebody is here, and may do, once it has proved it.
    ///
    /// # Errors
    /// When it may do nothing.
    fn guest(
        &self,
        requested: &PgStartupRequest,
    ) -> Result<(TenantUser, ConsoleRights), PgLoginRefusal>;

    /// Returns how many clients there may be that only look, of all names together and of this one.
    fn watchers_max(&self, user: &str) -> (Option<u32>, Option<u32>);

    /// In whose words clients are told what goes wrong.
    fn words(&self) -> ErrorDialect;

    /// Begins to answer; the answer may come at any time from any thread. `left` ends when nobody
    /// waits for it any more.
    fn ask(
        &self,
        text: String,
        rights: ConsoleRights,
        reply: ConsoleReplySlot,
        left: oneshot::Receiver<()>,
    );
}

/// Recipient of an answer.
#[derive(Debug)]
pub struct ConsoleReplySlot {
    pub(super) inbox: Arc<ThreadInbox>,
    pub(super) client: u32,
    pub(super) serial: u64,
}

impl ConsoleReplySlot {
    /// Gives it, whole: as messages, with what ends them.
    pub fn give(self, answer: Vec<u8>) {
        let ConsoleReplySlot { inbox, client, serial } = self;
        inbox.push(ThreadMessageKind::ConsoleAnswer { client, serial, answer });
    }
}
