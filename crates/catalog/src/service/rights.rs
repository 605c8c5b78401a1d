//! Rights and restrictions of principals, as checked by every operation.

use std::sync::Arc;

use iceberg::ident::{NamespaceIdent, TableIdent};
use iceberg::json::RawJson;
use iceberg::plan::{FilterExpression, ReadRestriction, ScanRequest};

use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{
    AccessRight, CatalogPrincipal, RightAuthority, RightTarget, TableRestrictions, VisibleNames,
};
use crate::warehouse::{Warehouse, WarehouseStatus};

/// Decides on a principal's actions and visible objects, by the authority on rights and the state
/// of the warehouse. Operators may do everything. Cheap to clone.
#[derive(Clone)]
pub struct RightGuard {
    authority: Arc<dyn RightAuthority>,
}

impl std::fmt::Debug for RightGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RightGuard").finish_non_exhaustive()
    }
}

impl RightGuard {
    pub(super) fn new(authority: Arc<dyn RightAuthority>) -> RightGuard {
        RightGuard { authority }
    }

    /// Rejects an action that a principal may not perform.
    ///
    /// # Errors
    /// `Forbidden`.
    pub fn allow(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        right: AccessRight,
        object: RightTarget<'_>,
    ) -> Result<()> {
        self.has_right(who, warehouse, right, object)?;
        let changes = matches!(right, AccessRight::Write | AccessRight::Manage);
        if changes && warehouse.status() == WarehouseStatus::ReadOnly {
            let message = format!("the warehouse `{}` is read-only", warehouse.name());
            return Err(CatalogError::new(ErrorReason::Forbidden, message));
        }
        Ok(())
    }

    /// Rejects a principal without the right, regardless of the warehouse's status.
    pub(super) fn has_right(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        right: AccessRight,
        object: RightTarget<'_>,
    ) -> Result<()> {
        if who.operator { Ok(()) } else { self.authority.check(who, warehouse, right, object) }
    }

    /// Returns the names directly in a namespace or warehouse that a principal may list.
    ///
    /// # Errors
    /// `Forbidden` if there are none.
    pub(super) fn listed_names(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        parent: Option<&NamespaceIdent>,
    ) -> Result<VisibleNames> {
        match self.visible(who, warehouse, parent) {
            VisibleNames::Nothing => {
                let object = parent.map_or(RightTarget::Warehouse, RightTarget::Namespace);
                self.allow(who, warehouse, AccessRight::Read, object).map(|()| VisibleNames::All)
            }
            visible => Ok(visible),
        }
    }

    pub(super) fn visible(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        parent: Option<&NamespaceIdent>,
    ) -> VisibleNames {
        if who.operator {
            return VisibleNames::All;
        }
        self.authority.visible(who, warehouse, parent)
    }

    /// Returns whether a principal sees the same list of a place as all others that may read there.
    pub(crate) fn sees_all(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        parent: Option<&NamespaceIdent>,
    ) -> bool {
        !matches!(self.visible(who, warehouse, parent), VisibleNames::Part { .. })
    }

    /// Refreshes rights after a rename or drop, before the name is available to others.
    pub(crate) async fn follow_moves(&self) {
        if let Err(error) = self.authority.refresh().await {
            // The rights are read again soon.
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "failed to read rights after something was moved");
        }
    }

    /// Returns the restrictions of a principal on a table; `None` if it may read all of it.
    /// Operators are not restricted.
    #[must_use]
    pub fn restrictions_for(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        ident: &TableIdent,
    ) -> Option<Arc<TableRestrictions>> {
        if who.operator { None } else { self.authority.restrictions(who, warehouse, ident) }
    }

    /// Rejects operations that would reveal more of a table than the principal may read:
    /// credentials for its files, signatures, values of its columns.
    ///
    /// # Errors
    /// `Forbidden` if the principal is restricted, and not trusted to apply the restrictions
    /// itself.
    pub fn require_unrestricted(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        ident: &TableIdent,
    ) -> Result<()> {
        match self.restrictions_for(who, warehouse, ident) {
            Some(restrictions) if !restrictions.is_trusted => {
                let message = format!(
                    "`{}` may read only a part of {ident}, so it gets no access to its files",
                    who.name
                );
                Err(CatalogError::new(ErrorReason::Forbidden, message))
            }
            _ => Ok(()),
        }
    }

    /// Limits a scan to the rows that a principal may read. Column statistics would reveal more.
    ///
    /// # Errors
    /// `Internal` if a policy's filter can no longer be read.
    pub(crate) fn restricted_scan(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        ident: &TableIdent,
        request: &ScanRequest,
    ) -> Result<ScanRequest> {
        let request = request.clone();
        let Some(restrictions) = self.restrictions_for(who, warehouse, ident) else {
            return Ok(request);
        };
        let filter = match &restrictions.row_filter {
            Some(filter) => {
                let filter = RawJson::of(filter).map_err(CatalogError::internal)?;
                FilterExpression::parse(&filter).map_err(CatalogError::internal)?
            }
            None => FilterExpression::everything(),
        };
        let hidden = restrictions.projections.keys().copied().collect();
        let is_trusted = restrictions.is_trusted;
        Ok(request.restricted(ReadRestriction { filter, hidden, is_trusted }))
    }
}
