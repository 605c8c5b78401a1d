//! Interface of the console to the relay.

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
    /// Read-only commands.
    Stats,
}

/// Interface of the console to the relay.
pub trait ConsoleBackend: fmt::Debug + Send + Sync {
    /// Returns the identity and rights of a user, which apply once it is authenticated.
    ///
    /// # Errors
    /// If the user has no rights.
    fn guest(
        &self,
        requested: &PgStartupRequest,
    ) -> Result<(TenantUser, ConsoleRights), PgLoginRefusal>;

    /// Returns the maximum number of read-only clients, of all names together and of this one.
    fn watchers_max(&self, user: &str) -> (Option<u32>, Option<u32>);

    /// Returns the dialect of error messages to clients.
    fn words(&self) -> ErrorDialect;

    /// Starts to execute a command; the reply may arrive at any time on any thread. `left` ends
    /// when the client leaves.
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
    /// Sends the reply, which consists of complete messages including the final one.
    pub fn give(self, answer: Vec<u8>) {
        let ConsoleReplySlot { inbox, client, serial } = self;
        inbox.push(ThreadMessageKind::ConsoleAnswer { client, serial, answer });
    }
}
