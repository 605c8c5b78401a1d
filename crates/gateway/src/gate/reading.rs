//! Access of a reader's program to a warehouse whose grant may write: a second, read-only listener
//! beside that of the grant.

use std::fmt;
use std::sync::Arc;

use api::{CatalogGrant, Grant, GrantAccess};
use node::gateway::{GrantHolder, HolderSandbox};
use node::http::HttpError;
use node::task;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::{AcceptTask, RevocableListener, open_door};
use crate::doors::AuditSink;
use crate::kinds::GrantListener;
use crate::reader::ReaderRooms;
use crate::shared::{GatewayShared, TenantShare};

/// Listener for programs of readers. It is opened with the first statement and stays open as long
/// as the grant is valid, so that statements do not use up the sandbox's ports.
pub(crate) struct ReadingListener {
    pub(super) shared: Arc<GatewayShared>,
    pub(super) tenant: Arc<TenantShare>,
    pub(super) holder: GrantHolder,
    pub(super) grant: CatalogGrant,
    pub(super) witness: Arc<dyn AuditSink>,
    pub(super) rooms: ReaderRooms,
    /// The served access, once it is open. Never held over an await.
    pub(super) opened: Mutex<Option<OpenedListener>>,
}

/// A listener in service.
pub(super) struct OpenedListener {
    port: u16,
    slot: RevocableListener,
    task: AbortHandle,
}

impl fmt::Debug for ReadingListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadingListener").field("holder", &self.holder).finish_non_exhaustive()
    }
}

impl Drop for OpenedListener {
    fn drop(&mut self) {
        // Closed immediately, not when the task is dropped.
        drop(self.slot.0.lock().take());
        self.task.abort();
    }
}

impl ReadingListener {
    /// Returns the port in the sandbox, and opens the listener if necessary.
    ///
    /// # Errors
    /// If the sandbox has ended, or the warehouse was removed.
    pub(crate) async fn port(&self, inside: &dyn HolderSandbox) -> Result<u16, HttpError> {
        if let Some(opened) = &*self.opened.lock() {
            return Ok(opened.port);
        }
        let listener = inside.listen().await?;
        let address = listener.local_addr().map_err(|error| {
            tracing::warn!(%error, "a listener of a sandbox has no address");
            HttpError::internal()
        })?;
        let port = address.port();
        // The address for requests of files is part of loaded tables.
        let grant =
            CatalogGrant { access: GrantAccess::ReadOnly, port: Some(port), ..self.grant.clone() };
        let (shared, tenant) = (&self.shared, &self.tenant);
        let door = open_door(shared, tenant, &self.holder, &Grant::Catalog(grant), &self.witness)?;
        let GrantListener::Stream(door) = door else { return Err(HttpError::internal()) };
        let slot = RevocableListener(Arc::new(Mutex::new(Some(listener))));
        let accepting = AcceptTask {
            rooms: self.rooms.connections.clone(),
            logins: Arc::clone(&self.rooms.logins),
            slot: slot.clone(),
            witness: Arc::clone(&self.witness),
            turns: self.shared.turns.clone(),
            caller: Arc::clone(&self.holder.tenant),
        };
        let task = task::spawn(accepting.serve(door)).abort_handle();
        let opened = OpenedListener { port, slot, task };
        // If another statement was faster, its listener is kept, and this one is closed.
        Ok(self.opened.lock().get_or_insert(opened).port)
    }
}
