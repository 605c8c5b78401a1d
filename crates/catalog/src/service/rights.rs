//! Rights and restrictions of principals, as every operation asks for them.

use std::sync::Arc;

use iceberg::ident::{NamespaceIdent, TableIdent};
use iceberg::json::RawJson;
use iceberg::plan::{FilterExpression, ReadRestriction, ScanRequest};

use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{
    AccessRight, CatalogPrincipal, RightAuthority, RightTarget, TableRestrictions, VisibleNames,
};
use crate::warehouse::{Warehouse, WarehouseStatus};

/// Decides what a principal may do and see, by the authority on rights and the state of a
/// warehouse. Operators may do everything. Cheap to clone.
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

    /// Refuses what a principal may not do.
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

    /// Refuses who has no right, whatever may be done with the warehouse at present.
    pub(super) fn has_right(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        right: AccessRight,
        object: RightTarget<'_>,
    ) -> Result<()> {
        if who.operator { Ok(()) } else { self.authority.check(who, warehouse, right, object) }
    }

    /// Finds out which names directly in a namespace, or in a warehouse, a principal may list.
    ///
    /// # Errors
    /// `Forbidden` when there is none.
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

    /// Tells whether a list of what is in a place is the same for a principal as for all others
    /// that may read there.
    pub(crate) fn sees_all(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        parent: Option<&NamespaceIdent>,
    ) -> bool {
        !matches!(self.visible(who, warehouse, parent), VisibleNames::Part { .. })
    }

    /// Lets rights follow what was renamed or dropped, before its name is free for others.
    pub(crate) async fn follow_moves(&self) {
        if let Err(error) = self.authority.refresh().await {
            // They are read again soon.
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "failed to read rights after something was moved");
        }
    }

    /// Returns what somebody may read of a table; none when it is all of it. Operators are not
    /// restricted.
    #[must_use]
    pub fn restrictions_for(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        ident: &TableIdent,
    ) -> Option<Arc<TableRestrictions>> {
        if who.operator { None } else { self.authority.restrictions(who, warehouse, ident) }
    }

    /// Refuses what would show somebody more of a table than he may read: credentials for its
    /// files, signatures, values of its columns.
    ///
    /// # Errors
    /// `Forbidden` when he is restricted, and not trusted to keep to that.
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

    /// A scan of the rows that somebody may read. Statistics of columns would show more.
    ///
    /// # Errors
    /// `Internal` when a policy's filter cannot be read any more.
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
