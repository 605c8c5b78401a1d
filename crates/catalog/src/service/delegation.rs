//! Access of clients to a table's files: permissions, locations, and the check that no other table
//! has files there.

use std::sync::Arc;

use iceberg::ident::TableIdent;

use super::entries::RelationEntries;
use super::rights::RightGuard;
use crate::cache::CachedVersion;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::guest::session::StagedTable;
use crate::principal::{AccessRight, CatalogPrincipal, RightTarget};
use crate::storage::{
    BucketStorage, FilePermission, SignRequest, SignResult, TableScope, TemporaryCredentials,
};
use crate::store::{LocationStore, RelationKind};
use crate::warehouse::{TableLocation, Warehouse};

/// Credentials for a table's files.
#[derive(Clone, Debug)]
pub struct VendedCredentials {
    /// The credentials.
    pub temporary: Arc<TemporaryCredentials>,
    /// Prefixes of the locations that they cover, as the table writes them.
    pub prefixes: Vec<String>,
}

/// Gives clients access to the files of tables: credentials, signatures, and checks of single
/// files.
pub struct FileAccess {
    location_store: LocationStore,
    rights: RightGuard,
    entries: RelationEntries,
}

impl std::fmt::Debug for FileAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileAccess").finish_non_exhaustive()
    }
}

impl FileAccess {
    pub(super) fn new(
        location_store: LocationStore,
        rights: RightGuard,
        entries: RelationEntries,
    ) -> FileAccess {
        FileAccess { location_store, rights, entries }
    }

    /// Returns credentials for a table that a principal sees; `None` if its warehouse vends none.
    ///
    /// # Errors
    /// `ServiceUnavailable` if the token service returns none; `Forbidden` if another table has
    /// files in the same location.
    pub async fn vend(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        ident: &TableIdent,
        entry: &CachedVersion,
    ) -> Result<Option<VendedCredentials>> {
        let storage = warehouse.storage().filter(|it| it.settings().vended_credentials);
        let (Some(storage), Some(doc)) = (storage, entry.table()) else { return Ok(None) };
        let scope = self.scope(who, warehouse, storage, entry).await?;
        let scheme = doc.location.split("://").next().unwrap_or_default();
        let prefixes = scope.prefixes().map(|(bucket, key)| format!("{scheme}://{bucket}/{key}"));
        let prefixes = prefixes.collect();
        let permission = self.permission(who, warehouse, ident);
        let temporary = storage.vend(scope, permission).await?;
        Ok(Some(VendedCredentials { temporary, prefixes }))
    }

    /// Returns credentials for a table by its name.
    ///
    /// # Errors
    /// `NoSuchTable`; `Forbidden` if the caller may read only a part of it; those of
    /// [`FileAccess::vend`].
    pub async fn credentials(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        ident: &TableIdent,
    ) -> Result<Option<VendedCredentials>> {
        self.rights.allow(who, warehouse, AccessRight::Read, RightTarget::Relation(ident))?;
        self.rights.require_unrestricted(who, warehouse, ident)?;
        let entry = self.entries.entry(warehouse, RelationKind::Table, ident).await?;
        self.vend(who, warehouse, ident, &entry).await
    }

    /// Signs a request to the object store for a table's files.
    ///
    /// # Errors
    /// `NoSuchTable`; `BadRequest` if the warehouse is not in a bucket, or the request is invalid;
    /// `Forbidden` if the warehouse signs no requests, or the request needs a right that the caller
    /// lacks.
    pub async fn sign(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        ident: &TableIdent,
        request: impl FnOnce() -> Result<SignRequest>,
    ) -> Result<SignResult> {
        self.rights.allow(who, warehouse, AccessRight::Read, RightTarget::Relation(ident))?;
        self.rights.require_unrestricted(who, warehouse, ident)?;
        let entry = self.entries.entry(warehouse, RelationKind::Table, ident).await?;
        let Some(storage) = warehouse.storage() else {
            let message = "the warehouse is not in a bucket: there is nothing to sign";
            return Err(CatalogError::new(ErrorReason::BadRequest, message));
        };
        if !storage.settings().remote_signing {
            return Err(CatalogError::new(
                ErrorReason::Forbidden,
                "the warehouse signs no requests",
            ));
        }
        let request = request()?;
        let scope = self.scope(who, warehouse, storage, &entry).await?;
        storage.sign(scope, self.permission(who, warehouse, ident), &request).await
    }

    /// Returns the locations of the table that an object belongs to, and the principal's permission
    /// for its files. `staged` is a table that the principal has staged there.
    ///
    /// # Errors
    /// `Forbidden` if no table there is fully visible to the principal, whether one exists or not.
    pub(crate) async fn files_at(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        bucket: &str,
        key: &str,
        staged: Option<StagedTable>,
    ) -> Result<(TableScope, FilePermission)> {
        let storage = warehouse.storage().ok_or_else(no_table_around)?;
        let object = format!("s3://{bucket}/{key}");
        for ident in self.location_store.tables_around(warehouse.id(), &object).await? {
            let Some(entry) = self.whole_table(who, warehouse, &ident).await? else { continue };
            let scope = self.scope(who, warehouse, storage, &entry).await?;
            if scope.covers(bucket, key) {
                return Ok((scope, self.permission(who, warehouse, &ident)));
            }
        }
        let Some(StagedTable { ident, scope }) = staged else { return Err(no_table_around()) };
        self.rights.allow(who, warehouse, AccessRight::Write, RightTarget::Relation(&ident))?;
        for place in scope.texts() {
            // Another table may have been created there since.
            if self.location_store.is_shared(&place, "").await? {
                return Err(no_table_around());
            }
        }
        Ok((scope, FilePermission::Write))
    }

    /// Allows reading a file in a directory of this machine to a principal that may read the whole
    /// of the table that the file is of.
    ///
    /// # Errors
    /// `Forbidden` if no table there is fully visible to the principal, whether one exists or not.
    pub(crate) async fn allow_local_read(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        file: &TableLocation,
    ) -> Result<()> {
        for ident in self.location_store.tables_around(warehouse.id(), &file.to_string()).await? {
            let Some(entry) = self.whole_table(who, warehouse, &ident).await? else { continue };
            let doc = entry.table().ok_or_else(|| CatalogError::internal("a view has no files"))?;
            let scope = TableScope::in_directories(warehouse, doc)?;
            if !scope.contains(file) {
                continue;
            }
            let id = entry.pointer.as_ref().map_or("", |it| &*it.id);
            for place in scope.texts() {
                if !who.operator && self.location_store.is_shared(&place, id).await? {
                    return Err(shared_place());
                }
            }
            return Ok(());
        }
        Err(no_table_around())
    }

    /// Returns a table that a principal may read fully; `None` if it no longer exists or may not be
    /// read.
    async fn whole_table(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        ident: &TableIdent,
    ) -> Result<Option<Arc<CachedVersion>>> {
        let may_read =
            self.rights.allow(who, warehouse, AccessRight::Read, RightTarget::Relation(ident));
        let may_see_all =
            may_read.and_then(|()| self.rights.require_unrestricted(who, warehouse, ident));
        if may_see_all.is_err() {
            return Ok(None);
        }
        match self.entries.entry(warehouse, RelationKind::Table, ident).await {
            Ok(entry) => Ok(Some(entry)),
            // It was dropped meanwhile.
            Err(error) if error.kind == ErrorReason::NoSuchTable => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the permission for a table's files of a principal that sees the table.
    fn permission(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        ident: &TableIdent,
    ) -> FilePermission {
        match self.rights.allow(who, warehouse, AccessRight::Write, RightTarget::Relation(ident)) {
            Ok(()) => FilePermission::Write,
            Err(_) => FilePermission::Read,
        }
    }

    /// Returns the locations of a table. Except for operators, none if another table has files
    /// there: locations that operators chose may overlap.
    async fn scope(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        storage: &BucketStorage,
        entry: &CachedVersion,
    ) -> Result<TableScope> {
        let doc = entry.table().ok_or_else(|| CatalogError::internal("a view has no files"))?;
        let scope = TableScope::of(warehouse, doc)?;
        let id = entry.pointer.as_ref().map_or("", |it| &*it.id);
        if who.operator || storage.is_known_apart(id, &scope) {
            return Ok(scope);
        }
        for place in scope.texts() {
            if self.location_store.is_shared(&place, id).await? {
                return Err(shared_place());
            }
        }
        storage.note_apart(id, &scope);
        Ok(scope)
    }
}

fn no_table_around() -> CatalogError {
    let message = "no table with accessible files has this location";
    CatalogError::new(ErrorReason::Forbidden, message)
}

fn shared_place() -> CatalogError {
    let message = "another table's files are in the same place";
    CatalogError::new(ErrorReason::Forbidden, message)
}
