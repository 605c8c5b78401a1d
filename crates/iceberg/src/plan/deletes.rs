//! Delete files that apply to a data file, by the format's rules on sequence number, partition and
//! referenced file.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#delete-formats>
//! - <https://iceberg.apache.org/spec/#scan-planning>

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::manifest::{ContentFile, FileContent, LiveFile, of_column};
use super::prune::{PruneSpecs, partition_key};
use super::value::PlanValue;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::schema::{ColumnType, SchemaColumns};

/// Most delete files of a scan.
pub(super) const DELETES_MAX: usize = 200_000;

/// Most delete files of one data file in a response.
pub(super) const DELETES_OF_FILE_MAX: usize = 10_000;

/// The column of a position delete file with the paths of data files.
const PATH_COLUMN: i32 = 2_147_483_546;

/// Approximate maximum of bytes in memory of a scan's delete files.
const DELETES_WEIGHT_MAX: usize = 160 << 20;

/// Bytes in memory of an index entry for a delete file, without the file.
const ENTRY_BYTES: usize = 256;

/// Delete files of a snapshot, indexed by the data that they apply to.
#[derive(Debug, Default)]
pub(super) struct DeleteIndex {
    all: Vec<LiveFile>,
    /// Deletion vectors of data files, by their paths.
    vectors: HashMap<Arc<str>, usize>,
    by_path: HashMap<Arc<str>, Vec<usize>>,
    /// Positional deletes by partition.
    positions: HashMap<Vec<u8>, Vec<usize>>,
    equalities: HashMap<Vec<u8>, Vec<usize>>,
    /// Deletes that apply to all data files.
    everywhere: Vec<usize>,
    /// Approximate bytes in memory.
    weight: usize,
}

impl DeleteIndex {
    /// Adds a delete file.
    ///
    /// # Errors
    /// `Validation` if there are more than [`DELETES_MAX`], if they take too much memory, or if a
    /// data file has two vectors.
    pub(super) fn add(&mut self, live: LiveFile, specs: &PruneSpecs) -> Result<()> {
        self.add_within(live, specs, DELETES_WEIGHT_MAX)
    }

    fn add_within(&mut self, live: LiveFile, specs: &PruneSpecs, weight_max: usize) -> Result<()> {
        let place = self.all.len();
        if place == DELETES_MAX {
            let message = format!("the snapshot has more than {DELETES_MAX} delete files");
            return Err(CatalogError::new(ErrorReason::Validation, message));
        }
        let spec = specs.get(live.spec_id);
        let spec = spec.ok_or_else(|| no_spec(live.spec_id))?;
        let file = Arc::clone(&live.file);
        let key = || partition_key(spec, live.spec_id, &file);
        let path = one_path(&file);
        let key_bytes = path.as_ref().map_or_else(|| key().len(), |path| path.len());
        let weight = ENTRY_BYTES.saturating_add(file.weight()).saturating_add(key_bytes);
        if file.content != FileContent::Data {
            self.weight = self.weight.saturating_add(weight);
        }
        if self.weight > weight_max {
            let message = "the delete files of the snapshot take too much memory";
            return Err(CatalogError::new(ErrorReason::Validation, message));
        }
        match (file.content, path) {
            (FileContent::Data, _) => return Ok(()),
            (FileContent::PositionDeletes, Some(path)) if &*file.format == "puffin" => {
                if self.vectors.insert(Arc::clone(&path), place).is_some() {
                    let message = format!("there are two deletion vectors of `{path:.200}`");
                    return Err(CatalogError::new(ErrorReason::Validation, message));
                }
            }
            (FileContent::PositionDeletes, Some(path)) => {
                self.by_path.entry(path).or_default().push(place);
            }
            (FileContent::PositionDeletes, None) => {
                self.positions.entry(key()).or_default().push(place);
            }
            (FileContent::EqualityDeletes, _) if spec.is_unpartitioned() => {
                self.everywhere.push(place)
            }
            (FileContent::EqualityDeletes, _) => {
                self.equalities.entry(key()).or_default().push(place);
            }
        }
        self.all.push(live);
        Ok(())
    }

    /// Returns a delete file by its index.
    pub(super) fn get(&self, place: usize) -> Option<&LiveFile> {
        self.all.get(place)
    }

    /// Returns the approximate bytes in memory.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// Returns the indices of the delete files that apply to a data file, in order.
    ///
    /// # Errors
    /// `Validation` if there are more than [`DELETES_OF_FILE_MAX`].
    pub(super) fn of(
        &self,
        data: &LiveFile,
        specs: &PruneSpecs,
        columns: &SchemaColumns,
    ) -> Result<Vec<usize>> {
        let spec = specs.get(data.spec_id).ok_or_else(|| no_spec(data.spec_id))?;
        let is_before = |place: &usize| {
            self.get(*place).is_some_and(|it| data.sequence_number < it.sequence_number)
        };
        let is_not_after = |place: &usize| {
            self.get(*place).is_some_and(|it| data.sequence_number <= it.sequence_number)
        };
        let mut found = BTreeSet::new();
        if let Some(vector) = self.vectors.get(&data.file.path).filter(|it| is_not_after(it)) {
            // A vector includes all earlier position delete files.
            found.insert(*vector);
        } else {
            let by_path = self.by_path.get(&data.file.path).into_iter().flatten();
            found.extend(by_path.copied().filter(is_not_after));
            if !self.positions.is_empty() {
                let key = partition_key(spec, data.spec_id, &data.file);
                let others = self.positions.get(&key).into_iter().flatten().copied();
                let may_name = |place: &usize| {
                    self.get(*place).is_some_and(|it| may_name(&it.file, &data.file.path))
                };
                found.extend(others.filter(is_not_after).filter(may_name));
            }
        }
        let mut equalities: Vec<usize> = self.everywhere.clone();
        if !self.equalities.is_empty() {
            let key = partition_key(spec, data.spec_id, &data.file);
            equalities.extend(self.equalities.get(&key).into_iter().flatten());
        }
        let may_equal = |place: &usize| {
            self.get(*place).is_some_and(|it| may_equal(&it.file, &data.file, columns))
        };
        found.extend(equalities.into_iter().filter(is_before).filter(may_equal));
        if found.len() > DELETES_OF_FILE_MAX {
            let message = format!("a data file has more than {DELETES_OF_FILE_MAX} delete files");
            return Err(CatalogError::new(ErrorReason::Validation, message));
        }
        Ok(found.into_iter().collect())
    }
}

fn no_spec(id: i32) -> CatalogError {
    CatalogError::new(ErrorReason::Validation, format!("the table has no partition spec {id}"))
}

/// Returns the only data file that a delete file applies to, if there is just one.
fn one_path(file: &ContentFile) -> Option<Arc<str>> {
    if let Some(path) = &file.referenced {
        return Some(Arc::clone(path));
    }
    let (lower, upper) =
        (of_column(&file.lower, PATH_COLUMN)?, of_column(&file.upper, PATH_COLUMN)?);
    if lower != upper {
        return None;
    }
    std::str::from_utf8(lower).ok().map(Into::into)
}

/// Returns whether a position delete file may contain this path.
fn may_name(file: &ContentFile, path: &str) -> bool {
    let path = path.as_bytes();
    of_column(&file.lower, PATH_COLUMN).is_none_or(|lower| **lower <= *path)
        && of_column(&file.upper, PATH_COLUMN).is_none_or(|upper| *path <= **upper)
}

/// Returns whether rows of both may be equal in the columns that the delete file compares.
fn may_equal(deletes: &ContentFile, data: &ContentFile, columns: &SchemaColumns) -> bool {
    deletes.equality_ids.iter().all(|id| {
        let Some(column) = columns.get(*id) else { return true };
        // The format does not define equality of NaNs and of signed zeros.
        if matches!(column.kind, ColumnType::Float | ColumnType::Double) {
            return true;
        }
        let no_nulls = |file: &ContentFile| of_column(&file.null_counts, *id) == Some(&0);
        if !no_nulls(deletes) && !no_nulls(data) {
            return true;
        }
        let bound = |of: &[(i32, Box<[u8]>)]| {
            of_column(of, *id).and_then(|bytes| PlanValue::of_bytes(&column.kind, bytes))
        };
        let is_above = |lower: Option<PlanValue>, upper: Option<PlanValue>| match (lower, upper) {
            (Some(lower), Some(upper)) => lower.order(&upper) == Some(std::cmp::Ordering::Greater),
            _ => false,
        };
        // The writer of the bounds may have compared UUIDs differently.
        column.kind == ColumnType::Uuid
            || !is_above(bound(&deletes.lower), bound(&data.upper))
                && !is_above(bound(&data.lower), bound(&deletes.upper))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delete(path: &str) -> LiveFile {
        let file = ContentFile {
            content: FileContent::PositionDeletes,
            path: path.into(),
            format: "parquet".into(),
            partition: Vec::new(),
            records: 1,
            bytes: 1,
            column_sizes: Box::default(),
            value_counts: Box::default(),
            null_counts: Box::default(),
            nan_counts: Box::default(),
            lower: [(1, vec![0; 1_000].into())].into(),
            upper: Box::default(),
            key_metadata: None,
            split_offsets: Vec::new(),
            equality_ids: Vec::new(),
            sort_order_id: None,
            first_row_id: None,
            referenced: None,
            content_offset: None,
            content_size: None,
        };
        LiveFile { file: Arc::new(file), spec_id: 0, sequence_number: 1, first_row_id: None }
    }

    #[test]
    fn delete_files_are_weighed_with_what_is_in_them() {
        let (mut deletes, specs) = (DeleteIndex::default(), PruneSpecs::unpartitioned());
        deletes.add(delete("a"), &specs).unwrap();
        let weight = deletes.weight();
        assert!(weight > 1_000, "{weight}");
        deletes.add_within(delete("b"), &specs, 2 * weight).unwrap();
        assert_eq!(deletes.weight(), 2 * weight);
        let error = deletes.add_within(delete("c"), &specs, 3 * weight - 1).unwrap_err();
        assert_eq!(error.kind, ErrorReason::Validation);
    }
}
