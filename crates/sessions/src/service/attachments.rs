//! Attachments: files stored with a session, separately from its disk.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use node::clock::{self, IdGenerator};

use super::directory::SessionDirectory;
use super::objects::SessionObjects;
use super::shared::SharedParts;
use super::storage::{StorageQuota, StorageRequest};
use crate::error::SessionError;
use crate::store::AttachmentTable;
use crate::store::rows::AttachmentRow;

/// Maximum number of attachments of one session.
const ATTACHMENTS_MAX: u64 = 1000;
/// Maximum bytes of an attachment.
pub const ATTACHMENT_BYTES_MAX: usize = 50 << 20;
/// Maximum bytes of a name.
const NAME_BYTES_MAX: usize = 500;

/// A file attached to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAttachment {
    /// `att_…`.
    pub id: String,
    /// Session that it belongs to.
    pub session: String,
    /// Name of the file.
    pub name: String,
    /// Media type.
    pub media_type: Option<String>,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of creation, in milliseconds since 1970.
    pub created_ms: u64,
}

/// Attachments of sessions.
pub struct SessionAttachments {
    table: AttachmentTable,
    objects: SessionObjects,
    ids: Arc<IdGenerator>,
    directory: Arc<SessionDirectory>,
    storage: Arc<StorageQuota>,
}

impl fmt::Debug for SessionAttachments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionAttachments").finish_non_exhaustive()
    }
}

impl SessionAttachments {
    pub(super) fn new(shared: &SharedParts) -> Arc<SessionAttachments> {
        Arc::new(SessionAttachments {
            table: shared.store.attachments.clone(),
            objects: shared.objects.clone(),
            ids: Arc::clone(&shared.ids),
            directory: Arc::clone(&shared.directory),
            storage: Arc::clone(&shared.storage),
        })
    }

    /// Attaches a file to a session.
    ///
    /// # Errors
    /// If it is too large, there are too many, or there is no such session.
    pub async fn add(
        &self,
        tenant: &str,
        session: &str,
        name: &str,
        media_type: Option<&str>,
        content: Bytes,
    ) -> Result<StoredAttachment, SessionError> {
        self.directory.check_exists(tenant, session).await?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
            let message = format!("must have 1 to {NAME_BYTES_MAX} bytes, and no NUL");
            return Err(SessionError::invalid("name", message));
        }
        if content.len() > ATTACHMENT_BYTES_MAX {
            let message = format!("more than {ATTACHMENT_BYTES_MAX} bytes");
            return Err(SessionError::invalid("content", message));
        }
        let bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
        self.storage.check(tenant, StorageRequest { stored: bytes, declared: 0 }).await?;
        let id = self.ids.next("att_");
        let row = AttachmentRow {
            object: format!("attachments/{id}"),
            id,
            tenant: tenant.to_owned(),
            session: session.to_owned(),
            name: name.to_owned(),
            media_type: media_type.map(str::to_owned),
            bytes,
            created_ms: clock::wall_ms(),
        };
        self.objects.put(&row.object, content).await?;
        if let Err(error) = self.table.insert(row.clone(), ATTACHMENTS_MAX).await {
            self.objects.remove(&row.object).await;
            return Err(error);
        }
        Ok(attachment(row))
    }

    /// Returns the attachments of a session.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn list(
        &self,
        tenant: &str,
        session: &str,
    ) -> Result<Vec<StoredAttachment>, SessionError> {
        let rows = self.table.of_session(tenant, session).await?;
        Ok(rows.into_iter().map(attachment).collect())
    }

    /// Returns an attachment and its content.
    ///
    /// # Errors
    /// If there is no such attachment.
    pub async fn read(
        &self,
        tenant: &str,
        id: &str,
    ) -> Result<(StoredAttachment, Bytes), SessionError> {
        let row = self.table.find(tenant, id).await?;
        let row = row.ok_or(SessionError::NotFound("attachment"))?;
        let content = self.objects.get(&row.object).await?;
        let content = content.ok_or(SessionError::NotFound("attachment"))?;
        Ok((attachment(row), content))
    }

    /// Removes an attachment.
    ///
    /// # Errors
    /// If there is no such attachment.
    pub async fn delete(&self, tenant: &str, id: &str) -> Result<(), SessionError> {
        let row = self.table.delete(tenant, id).await?;
        let row = row.ok_or(SessionError::NotFound("attachment"))?;
        self.objects.remove(&row.object).await;
        Ok(())
    }

    /// Removes all attachments of a session.
    pub(super) async fn remove_all(&self, tenant: &str, session: &str) -> Result<(), SessionError> {
        for row in self.table.of_session(tenant, session).await? {
            if let Some(row) = self.table.delete(tenant, &row.id).await? {
                self.objects.remove(&row.object).await;
            }
        }
        Ok(())
    }
}

fn attachment(row: AttachmentRow) -> StoredAttachment {
    StoredAttachment {
        id: row.id,
        session: row.session,
        name: row.name,
        media_type: row.media_type,
        bytes: row.bytes,
        created_ms: row.created_ms,
    }
}
