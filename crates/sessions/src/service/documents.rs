//! Small documents that faces store.

use node::clock;
use serde_json::Value;

use crate::error::SessionError;
use crate::store::rows::{DocumentFilter, DocumentRow};
use crate::store::{DocumentTable, PAGE_MAX};

/// Maximum bytes of one document of a face.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

/// Small document that a face stores.
#[derive(Clone, Debug, PartialEq)]
pub struct FaceDocument {
    /// Kind, such as `ash.eval_case`.
    pub kind: String,
    /// Id, unique for its tenant and kind.
    pub id: String,
    /// Parent that it belongs to.
    pub parent: Option<String>,
    /// Content.
    pub body: Value,
    /// Time of creation, in milliseconds since 1970.
    pub created_ms: u64,
    /// Time of the last change, likewise.
    pub updated_ms: u64,
}

/// Documents of faces.
#[derive(Debug)]
pub struct FaceDocuments {
    table: DocumentTable,
}

impl FaceDocuments {
    pub(super) fn new(table: DocumentTable) -> FaceDocuments {
        FaceDocuments { table }
    }

    /// Stores a document, replacing the one with this kind and id.
    ///
    /// # Errors
    /// If it is too large.
    pub async fn put(
        &self,
        tenant: &str,
        kind: &str,
        id: &str,
        parent: Option<&str>,
        body: Value,
    ) -> Result<(), SessionError> {
        let text = serde_json::to_string(&body).map_err(SessionError::internal)?;
        if text.len() > DOCUMENT_BYTES_MAX {
            return Err(SessionError::invalid(
                "body",
                format!("more than {DOCUMENT_BYTES_MAX} bytes"),
            ));
        }
        let now_ms = clock::wall_ms();
        let row = DocumentRow {
            tenant: tenant.to_owned(),
            kind: kind.to_owned(),
            id: id.to_owned(),
            parent: parent.map(str::to_owned),
            body,
            created_ms: now_ms,
            updated_ms: now_ms,
        };
        self.table.put(row).await
    }

    /// Changes a document unless it has changed since `known` was read; returns `None` then.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(crate) async fn replace(
        &self,
        tenant: &str,
        known: &FaceDocument,
        parent: Option<&str>,
        body: Value,
    ) -> Result<Option<FaceDocument>, SessionError> {
        let updated_ms = clock::wall_ms().max(known.updated_ms + 1);
        let parent = parent.map(str::to_owned);
        let changed = FaceDocument { parent, body, updated_ms, ..known.clone() };
        let row = DocumentRow {
            tenant: tenant.to_owned(),
            kind: changed.kind.clone(),
            id: changed.id.clone(),
            parent: changed.parent.clone(),
            body: changed.body.clone(),
            created_ms: changed.created_ms,
            updated_ms,
        };
        let is_done = self.table.replace(row, known.updated_ms).await?;
        Ok(is_done.then_some(changed))
    }

    /// Returns the number of documents of one kind, of one parent or of all.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn count(
        &self,
        tenant: &str,
        kind: &str,
        parent: Option<&str>,
    ) -> Result<u64, SessionError> {
        self.table.count(tenant, kind, parent).await
    }

    /// Returns the tenants with documents of one kind that belong to one parent.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn tenants(
        &self,
        kind: &str,
        parent: &str,
    ) -> Result<Vec<String>, SessionError> {
        self.table.tenants(kind, parent).await
    }

    /// Returns a document.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn find(
        &self,
        tenant: &str,
        kind: &str,
        id: &str,
    ) -> Result<Option<FaceDocument>, SessionError> {
        Ok(self.table.find(tenant, kind, id).await?.map(document))
    }

    /// Returns documents of one kind by id, of one parent or of all, after one id.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn list(
        &self,
        tenant: &str,
        kind: &str,
        parent: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<FaceDocument>, SessionError> {
        let filter = DocumentFilter {
            kind: kind.to_owned(),
            parent: parent.map(str::to_owned),
            after: after.map(str::to_owned),
            limit: limit.clamp(1, PAGE_MAX),
        };
        let rows = self.table.list(tenant, filter).await?;
        Ok(rows.into_iter().map(document).collect())
    }

    /// Removes a document. Returns whether it existed.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub async fn delete(&self, tenant: &str, kind: &str, id: &str) -> Result<bool, SessionError> {
        self.table.delete(tenant, kind, id).await
    }
}

fn document(row: DocumentRow) -> FaceDocument {
    FaceDocument {
        kind: row.kind,
        id: row.id,
        parent: row.parent,
        body: row.body,
        created_ms: row.created_ms,
        updated_ms: row.updated_ms,
    }
}
