//! After a start: restores files lost in a power failure from the store.
//!
//! A metadata file is not flushed if the store has its content as well. So files of commits shortly
//! before a power failure may be missing or truncated.

use std::time::Duration;

use super::catalog::Catalog;
use super::documents::{read, write_document};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::store::StoredRelation;
use crate::warehouse::Warehouse;

/// Longest time before the last change within which a written file may not have reached the disk.
/// Kernels write back within a minute.
const WINDOW: Duration = Duration::from_secs(3600);

/// Tables that are checked together.
const STEP: usize = 500;

/// Result of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Tables and views that were checked.
    pub looked_at: u64,
    /// Files that were restored.
    pub written: u64,
}

impl Catalog {
    /// Restores metadata files that differ from the store. To be called before requests are served.
    ///
    /// # Errors
    /// If the store cannot be read, or a file cannot be written.
    pub async fn recover(&self) -> Result<RecoveryReport> {
        let mut all = RecoveryReport::default();
        let warehouses = self.0.warehouses.all();
        let window_ms = u64::try_from(WINDOW.as_millis()).map_err(CatalogError::internal)?;
        for warehouse in warehouses {
            let mut after = String::new();
            loop {
                let step =
                    self.0.relation_store.recent(warehouse.id(), window_ms, &after, STEP).await?;
                for relation in &step {
                    all.looked_at += 1;
                    all.written += u64::from(rewrite(&warehouse, relation).await?);
                }
                match step.last() {
                    Some(last) if step.len() == STEP => after.clone_from(&last.pointer.id),
                    _ => break,
                }
            }
        }
        Ok(all)
    }
}

/// Restores one file if it differs; returns whether it did.
async fn rewrite(warehouse: &Warehouse, relation: &StoredRelation) -> Result<bool> {
    let (location, files) = (&*relation.pointer.location, warehouse.files());
    // Buckets are durable; locations that the configuration no longer allows are skipped.
    let is_local = files.local_path(location).is_ok_and(|path| path.is_some());
    let Some(document) = relation.document.clone().filter(|_| is_local) else {
        return Ok(false);
    };
    // The decompressed text is compared: versions compress differently.
    match read(warehouse, location).await {
        Ok(found) if found == document => return Ok(false),
        Ok(_) => {}
        Err(error) if matches!(error.kind, ErrorReason::NotFound | ErrorReason::BadRequest) => {}
        Err(error) => return Err(error),
    }
    tracing::warn!(location, "a metadata file was lost and is written again");
    files.delete(location).await?;
    write_document(warehouse, location, document).await?;
    Ok(true)
}
