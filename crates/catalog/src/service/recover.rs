//! After a start: files that were lost with the power are written again from the store.
//!
//! A metadata file is not flushed when the store has its bytes as well. So what was committed
//! shortly before the power failed may be missing, or shorter than it was.

use std::time::Duration;

use super::catalog::Catalog;
use super::documents::{read, write_document};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::store::StoredRelation;
use crate::warehouse::Warehouse;

/// Time that before the last change a file may have been written that the disk never saw. Kernels
/// write back within a minute.
const WINDOW: Duration = Duration::from_secs(3600);

/// Tables that are looked at together.
const STEP: usize = 500;

/// Result of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Tables and views that were looked at.
    pub looked_at: u64,
    /// Files that were written again.
    pub written: u64,
}

impl Catalog {
    /// Writes metadata files again that are not as they were. To be done before anybody is served.
    ///
    /// # Errors
    /// When the store cannot be read, or a file cannot be written.
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

/// Writes one file again if it is not as it was; whether it was not.
async fn rewrite(warehouse: &Warehouse, relation: &StoredRelation) -> Result<bool> {
    let (location, files) = (&*relation.pointer.location, warehouse.files());
    // A bucket loses nothing; what the configuration does not allow any more is its owner's.
    let is_local = files.local_path(location).is_ok_and(|path| path.is_some());
    let Some(document) = relation.document.clone().filter(|_| is_local) else {
        return Ok(false);
    };
    // Text is compared: versions pack differently.
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
