//! Commits of several tables at once: all of them or none.

use std::sync::Arc;

use iceberg::json::RawJson;
use iceberg::update;

use super::catalog::Catalog;
use super::commit::TableCommit;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::ChangeCall;
use crate::store::ChangeContext;
use crate::warehouse::Warehouse;

/// Most tables of one transaction.
pub const TRANSACTION_TABLES_MAX: usize = 1000;

impl Catalog {
    /// Commits changes of several tables, all or none.
    ///
    /// # Errors
    /// As of [`Catalog::commit_table`], of the first table that has one.
    pub async fn commit_transaction(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        body: &RawJson,
    ) -> Result<()> {
        let refuse = |message: &str| CatalogError::new(ErrorReason::BadRequest, message);
        let wanted =
            body.get("table-changes").ok_or_else(|| refuse("`table-changes` is missing"))?;
        let mut changes = Vec::new();
        for change in wanted.items()? {
            if changes.len() == TRANSACTION_TABLES_MAX {
                let message = format!("a transaction has at most {TRANSACTION_TABLES_MAX} tables");
                return Err(refuse(&message));
            }
            let request = update::parse_commit(&change)?;
            let ident = request.identifier.clone();
            let ident = ident.ok_or_else(|| refuse("each change needs an `identifier`"))?;
            changes.push(self.allow_commit(call, warehouse, ident, request)?);
        }
        if changes.is_empty() {
            // No right would be asked for.
            return Err(refuse(
                "`table-changes` is empty: it needs a change of at least one table",
            ));
        }
        // In one order for everybody, so that no two wait for each other.
        changes.sort_by(|one, other| one.ident.cmp(&other.ident));
        if changes.windows(2).any(|pair| pair[0].ident == pair[1].ident) {
            return Err(refuse("a table is in `table-changes` twice"));
        }
        let warehouse = Arc::clone(warehouse);
        let catalog = self.clone();
        let act = async move |stamp: ChangeContext| {
            let mut turns = Vec::with_capacity(changes.len());
            for TableCommit { ident, .. } in &changes {
                turns.push(catalog.0.entries.turn(&warehouse, ident).await);
            }
            catalog.commit_all(&warehouse, &stamp, &changes).await.map(drop)
        };
        self.0.changes.run(call, act, async || Ok(())).await
    }
}
