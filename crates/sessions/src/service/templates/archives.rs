//! Archives that steps of templates copy from: stored in pieces in the object store, and removed
//! when they have not been used for long.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use node::clock::IdGenerator;
use node::current::CurrentSettings;
use node::http::UploadBody;
use sha2::{Digest as _, Sha256};

use super::plan::ArchiveHash;
use super::run;
use crate::config::SessionsConfig;
use crate::error::SessionError;
use crate::service::objects::SessionObjects;
use crate::service::shared::SharedParts;
use crate::service::storage::{StorageQuota, StorageRequest};
use crate::store::TemplateArchiveTable;
use crate::store::rows::TemplateArchiveRow;

/// Bytes of a piece of an archive in the object store.
const PIECE_BYTES: usize = 8 << 20;

/// Archive to store.
pub(crate) struct ArchiveUpload<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) kind: ArchiveHash,
    pub(crate) hash: &'a str,
}

/// Archives of tenants.
pub(crate) struct TemplateArchives {
    config: CurrentSettings<SessionsConfig>,
    table: TemplateArchiveTable,
    objects: SessionObjects,
    ids: Arc<IdGenerator>,
    storage: Arc<StorageQuota>,
}

impl TemplateArchives {
    pub(super) fn new(shared: &SharedParts) -> TemplateArchives {
        TemplateArchives {
            config: shared.config.clone(),
            table: shared.store.archives.clone(),
            objects: shared.objects.clone(),
            ids: Arc::clone(&shared.ids),
            storage: Arc::clone(&shared.storage),
        }
    }

    /// Returns an archive for a step, and marks it as used now.
    pub(super) async fn of_step(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<Option<TemplateArchiveRow>, SessionError> {
        self.table.touch(tenant, name, self.table.now_ms()).await
    }

    /// Returns whether an archive exists.
    pub(crate) async fn has(&self, upload: ArchiveUpload<'_>) -> Result<bool, SessionError> {
        let name = upload.kind.name(upload.hash)?;
        let found = self.table.touch(upload.tenant, &name, self.table.now_ms()).await?;
        Ok(found.is_some())
    }

    /// Stores an archive for steps. Returns its size.
    ///
    /// # Errors
    /// If it is too large, or does not match its hash.
    pub(crate) async fn put(
        &self,
        upload: ArchiveUpload<'_>,
        body: UploadBody,
    ) -> Result<u64, SessionError> {
        let name = upload.kind.name(upload.hash)?;
        let stored = body.declared().unwrap_or(0);
        self.storage.check(upload.tenant, StorageRequest { stored, declared: 0 }).await?;
        let mut row = TemplateArchiveRow {
            tenant: upload.tenant.to_owned(),
            name,
            objects: format!("templates/{}", self.ids.next("a_")),
            pieces: 0,
            bytes: 0,
            used_ms: self.table.now_ms(),
        };
        let expected = match upload.kind {
            ArchiveHash::Content => Some(upload.hash),
            ArchiveHash::Files => None,
        };
        if let Err(error) = self.receive(&mut row, body, expected).await {
            self.remove(&row).await;
            return Err(error);
        }
        let bytes = row.bytes;
        if let Some(before) = self.table.put(row).await? {
            self.remove(&before).await;
        }
        Ok(bytes)
    }

    /// Stores the pieces of an archive.
    async fn receive(
        &self,
        row: &mut TemplateArchiveRow,
        mut body: UploadBody,
        expected: Option<&str>,
    ) -> Result<(), SessionError> {
        let bytes_max = self.config.now().templates.archive_bytes_max;
        let too_large = || {
            let message =
                format!("more than {bytes_max} bytes (sessions.templates.archive_bytes_max)");
            let error = node::http::HttpError::new(api::ErrorCode::BodyTooLarge, message);
            SessionError::from(error)
        };
        if body.declared().is_some_and(|bytes| bytes > bytes_max) {
            return Err(too_large());
        }
        let mut hash = Sha256::new();
        let mut piece = BytesMut::new();
        while let Some(chunk) = body.chunk().await? {
            row.bytes = row.bytes.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
            if row.bytes > bytes_max {
                return Err(too_large());
            }
            hash.update(&chunk);
            piece.extend_from_slice(&chunk);
            while piece.len() >= PIECE_BYTES {
                let whole = piece.split_to(PIECE_BYTES).freeze();
                self.put_piece(row, whole).await?;
            }
        }
        if row.bytes == 0 {
            return Err(SessionError::invalid("body", "an archive has content"));
        }
        if !piece.is_empty() {
            self.put_piece(row, piece.freeze()).await?;
        }
        let found = node::hex::encode(&hash.finalize());
        if expected.is_some_and(|expected| expected != found) {
            let message = format!("the SHA-256 of the body is {found}");
            return Err(SessionError::invalid("archive", message));
        }
        Ok(())
    }

    async fn put_piece(
        &self,
        row: &mut TemplateArchiveRow,
        piece: Bytes,
    ) -> Result<(), SessionError> {
        let key = run::piece_key(row, row.pieces);
        row.pieces += 1;
        self.objects.put(&key, piece).await
    }

    async fn remove(&self, row: &TemplateArchiveRow) {
        for piece in 0..row.pieces {
            self.objects.remove(&run::piece_key(row, piece)).await;
        }
    }

    /// Removes archives that have been unused for long.
    pub(crate) async fn remove_unused(&self) -> Result<(), SessionError> {
        /// Milliseconds for which an unused archive is kept.
        const KEPT_MS: u64 = 24 * 60 * 60 * 1000;
        /// Archives removed in one round.
        const REMOVED_MAX: usize = 100;
        let before_ms = self.table.now_ms().saturating_sub(KEPT_MS);
        for row in self.table.take_unused(before_ms, REMOVED_MAX).await? {
            self.remove(&row).await;
        }
        Ok(())
    }
}
