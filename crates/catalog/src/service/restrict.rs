//! Restrictions on reading a table, for all that shows its data or gives a way to it.

use std::sync::Arc;

use iceberg::ident::TableIdent;
use iceberg::json::RawJson;
use iceberg::plan::{FilterExpression, ReadRestriction, ScanRequest};

use super::catalog::Catalog;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::CatalogPrincipal;
use crate::principal::TableRestrictions;
use crate::store::RelationKind;
use crate::warehouse::Warehouse;

impl Catalog {
    /// Returns what somebody may read of a table; none when it is all of it. Operators are not
    /// restricted.
    #[must_use]
    pub fn restrictions_for(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        ident: &TableIdent,
    ) -> Option<Arc<TableRestrictions>> {
        if who.operator { None } else { self.0.authority.restrictions(who, warehouse, ident) }
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
                    "`{}` may read a part of {ident} only, and is given no way to its files",
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

    /// The schema that a table has now. Whether somebody may know is up to the caller.
    pub(crate) async fn schema_of(
        &self,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
    ) -> Result<RawJson> {
        let entry = self.entry(warehouse, RelationKind::Table, ident).await?;
        let schema = entry.table().and_then(|doc| doc.current_schema());
        let schema = schema.ok_or_else(|| CatalogError::internal("a table without a schema"))?;
        Ok(schema.raw.clone())
    }
}
