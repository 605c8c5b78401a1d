//! Terminals of a session that outlive their WebSockets, by the session's id.

use std::sync::Arc;
use std::time::Duration;

use api::SessionTerminalList;
use node::auth::TokenPrincipal;
use node::http::{Share, ShareOwner};

use super::directory::SessionDirectory;
use super::files::SandboxGuard;
use super::lifecycle::SessionLifecycle;
use super::shared::SharedParts;
use crate::error::SessionError;
use crate::terminals::{
    self, DETACH_S_MAX, NewTerminal, TerminalAttachment, TerminalHold, TerminalProgram,
    TerminalTies,
};

impl SandboxGuard {
    /// Takes a place for a terminal that may be without a client for `detach_s` seconds.
    ///
    /// # Errors
    /// If the time is too long, or the session or its tenant has too many such terminals.
    pub(crate) fn place_of_terminal(&self, detach_s: u32) -> Result<Option<Share>, SessionError> {
        if detach_s == 0 {
            return Ok(None);
        }
        if detach_s > DETACH_S_MAX {
            return Err(SessionError::invalid("detach_s", format!("must be 0 to {DETACH_S_MAX}")));
        }
        self.at_work.body.terminals.check_room()?;
        let owner = ShareOwner::Tenant(Arc::clone(&self.at_work.entry.tenant));
        let place = self.inner().terminal_places.take(owner, 1).map_err(|_| {
            let message = "the tenant has as many terminals that can be detached as it may have at \
                           present; end one";
            SessionError::TooMany(message.to_owned())
        })?;
        Ok(Some(place))
    }

    /// Opens the terminal of a started program, with its first client.
    ///
    /// # Errors
    /// If the session has too many terminals by now.
    pub(crate) fn open_terminal(
        self,
        program: TerminalProgram,
        detach_s: u32,
        place: Option<Share>,
        window: Option<u32>,
        ties: TerminalTies,
    ) -> Result<TerminalAttachment, SessionError> {
        let id = self.inner().ids.next("tm_");
        let detach = Duration::from_secs(detach_s.into());
        let new = NewTerminal { id, program, detach, place, window };
        let terminals = Arc::clone(&self.at_work.body.terminals);
        let hold = TerminalHold { ended: Box::pin(self.ended()), keeps: Box::new(self) };
        terminals::open(hold, terminals, new, ties)
    }
}

/// Terminals of sessions, by session id.
pub(crate) struct SessionTerminals {
    directory: Arc<SessionDirectory>,
    lifecycle: Arc<SessionLifecycle>,
}

impl SessionTerminals {
    pub(super) fn new(shared: &SharedParts, lifecycle: Arc<SessionLifecycle>) -> SessionTerminals {
        SessionTerminals { directory: Arc::clone(&shared.directory), lifecycle }
    }

    /// Returns the terminals of a session that clients can attach to. Does not count as a use of
    /// the sandbox.
    ///
    /// # Errors
    /// If there is no such session, or it has ended.
    pub(crate) async fn list(
        &self,
        who: &TokenPrincipal,
        id: &str,
    ) -> Result<SessionTerminalList, SessionError> {
        let terminals = self.directory.terminals(&who.tenant, id).await?;
        Ok(SessionTerminalList { terminals: terminals.map_or_else(Vec::new, |it| it.list()) })
    }

    /// Attaches a client to a terminal of an active session.
    ///
    /// # Errors
    /// If there is no such terminal, or the session is not active.
    pub(crate) async fn attach(
        &self,
        who: &TokenPrincipal,
        id: &str,
        terminal: &str,
        from: Option<u64>,
        window: Option<u32>,
    ) -> Result<TerminalAttachment, SessionError> {
        // Checked before the session is used: a missing terminal must not resume its sandbox.
        let found = self.directory.terminal(&who.tenant, id, terminal).await?;
        drop(self.lifecycle.active(&who.tenant, id).await?);
        found.attach(from, window)
    }

    /// Ends a terminal: it hangs up, even if a client is attached.
    ///
    /// # Errors
    /// If there is no such terminal.
    pub(crate) async fn end(
        &self,
        who: &TokenPrincipal,
        id: &str,
        terminal: &str,
    ) -> Result<(), SessionError> {
        let found = self.directory.terminal(&who.tenant, id, terminal).await?;
        if let Some(terminals) = self.directory.terminals(&who.tenant, id).await? {
            terminals.end(&found);
        }
        Ok(())
    }
}
