//! A scan: the manifests for a request, and their files in a response.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::answer::{PlanPage, TASKS_MAX};
use super::bind::{BoundFilter, find};
use super::deletes::DeleteIndex;
use super::expression::ColumnReference;
use super::manifest::{DataManifest, MANIFESTS_MAX, ManifestEntryStatus, ManifestRef};
use super::metadata_columns::metadata_column;
use super::prune::{PruneSpecs, may_match_manifest, may_match_partition, may_match_rows};
use super::request::{ReadRestriction, ScanRequest};
use crate::doc::{TableDoc, TableSnapshot, part};
use crate::error::{CatalogError, ErrorReason, Result, illegal};
use crate::json::RawJson;
use crate::schema::{SchemaColumn, SchemaColumns};

/// Most snapshots of an incremental scan.
pub const SNAPSHOTS_MAX: usize = 10_000;

/// Approximate maximum of bytes in memory of a scan's manifests, including those that are excluded
/// when snapshots are compared.
const MANIFESTS_WEIGHT_MAX: usize = 64 << 20;

/// Bytes that a column takes in memory beside its name.
const COLUMN_BYTES: usize = size_of::<SchemaColumn>() + 64;

/// Most manifests for one response.
pub(super) const MANIFESTS_OF_ANSWER_MAX: usize = 32;

/// List of a snapshot's manifests.
#[derive(Debug)]
pub enum ManifestListSource {
    /// In a file.
    At(String),
    /// In the document, as in the first version of the format.
    Here(Vec<String>),
}

impl ManifestListSource {
    /// Returns the path of the file.
    pub fn path(&self) -> Option<&str> {
        match self {
            ManifestListSource::At(path) => Some(path),
            ManifestListSource::Here(_) => None,
        }
    }
}

/// A scan that is bound to a table's columns.
#[derive(Debug)]
pub struct BoundScan {
    pub(super) specs: PruneSpecs,
    pub(super) columns: SchemaColumns,
    pub(super) filter: BoundFilter,
    /// Part of the filter that may exclude files by their row statistics.
    counted: BoundFilter,
    pub(super) stats: Vec<i32>,
    min_rows: Option<i64>,
    /// Snapshots whose new files are requested; `None` for all files.
    added_in: Option<HashSet<i64>>,
    /// Paths of manifests already added: several snapshots may list the same one.
    known: HashSet<Arc<str>>,
    data: Vec<ManifestRef>,
    delete_manifests: Vec<ManifestRef>,
    pub(super) deletes: DeleteIndex,
    /// Approximate bytes in memory of its columns and filters.
    bound_weight: usize,
    /// Approximate bytes in memory of its manifests.
    manifests_weight: usize,
}

/// Position to continue from: an entry of the first manifest of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanPosition {
    /// First manifest, among those of the scan.
    pub from: usize,
    /// Index after the last manifest.
    pub to: usize,
    /// First entry of the first manifest.
    pub entry: usize,
}

impl BoundScan {
    /// Resolves the columns and the snapshots of a request.
    ///
    /// # Errors
    /// `Validation` and `IllegalArgument` if the request does not fit the table.
    pub fn new(
        doc: &TableDoc,
        request: &ScanRequest,
    ) -> Result<(BoundScan, Vec<ManifestListSource>)> {
        let (snapshots, added_in) = snapshots(doc, request)?;
        let of_snapshot = match (snapshots.as_slice(), request.use_snapshot_schema) {
            ([one], true) => one.schema_id.and_then(|id| part(&doc.schemas, id)),
            _ => None,
        };
        let schema = of_snapshot.or_else(|| doc.current_schema());
        let schema = schema.ok_or_else(|| CatalogError::internal("a table has no schema"))?;
        let columns = SchemaColumns::read(&schema.raw).map_err(CatalogError::internal)?;
        let ReadRestriction { filter, hidden, is_trusted } = &request.restriction;
        let hidden = &with_those_within(hidden, doc, &columns)?;
        // A policy's filter applies to the unmasked values.
        let restriction = BoundFilter::new(filter, &columns, true, &BTreeSet::new())?;
        let requested =
            BoundFilter::new(&request.filter, &columns, request.is_case_sensitive, hidden)?;
        let is_partial = restriction != BoundFilter::Constant(true);
        let filter = requested.and(restriction.clone());
        // Statistics cover all rows of a file: filters could probe rows that may not be read.
        let counted = if is_partial && !is_trusted { restriction } else { filter.clone() };
        let stats = ids_of_stats(&columns, request)?;
        let specs = PruneSpecs::read(doc, &columns)?;
        if !is_trusted && specs.are_made_of(hidden) {
            let message = "the table is partitioned by a masked column";
            return Err(CatalogError::new(ErrorReason::Forbidden, message));
        }
        let lists = snapshots.iter().map(|it| list_of(it)).collect::<Result<_>>()?;
        let named = columns.list.iter().map(|it| COLUMN_BYTES.saturating_add(2 * it.name.len()));
        let bound_weight = named.sum::<usize>() + filter.weight() + counted.weight();
        let scan = BoundScan {
            bound_weight,
            manifests_weight: 0,
            specs,
            columns,
            filter,
            counted,
            stats,
            min_rows: request.min_rows,
            added_in,
            known: HashSet::new(),
            data: Vec::new(),
            delete_manifests: Vec::new(),
            deletes: DeleteIndex::default(),
        };
        Ok((scan, lists))
    }

    /// Adds the manifests of a list, except those whose files cannot match.
    ///
    /// # Errors
    /// `Validation` if there are too many manifests.
    pub fn add_list(&mut self, list: Vec<ManifestRef>) -> Result<()> {
        self.take_list(list, MANIFESTS_WEIGHT_MAX)
    }

    /// Marks the lists as complete, which frees the set for comparing them.
    pub fn end_lists(&mut self) {
        self.known = HashSet::new();
    }

    fn take_list(&mut self, list: Vec<ManifestRef>, weight_max: usize) -> Result<()> {
        for mut manifest in list {
            if let Some(added_in) = &self.added_in {
                let is_new = manifest.snapshot_id.is_none_or(|id| added_in.contains(&id));
                if manifest.has_deletes || !is_new || !self.known.insert(Arc::clone(&manifest.path))
                {
                    continue;
                }
                self.weigh(manifest.path.len(), weight_max)?;
            }
            let spec = manifest.spec_id.and_then(|id| self.specs.get(id));
            if spec.is_some_and(|spec| !may_match_manifest(&self.filter, spec, &manifest)) {
                continue;
            }
            if manifest.live == Some(0) {
                continue;
            }
            // No longer needed.
            manifest.partitions = None;
            self.weigh(manifest.weight(), weight_max)?;
            let kind =
                if manifest.has_deletes { &mut self.delete_manifests } else { &mut self.data };
            if kind.len() == MANIFESTS_MAX {
                let message = format!("the scan has more than {MANIFESTS_MAX} manifests");
                return Err(CatalogError::new(ErrorReason::Validation, message));
            }
            kind.push(manifest);
        }
        Ok(())
    }

    fn weigh(&mut self, weight: usize, weight_max: usize) -> Result<()> {
        self.manifests_weight = self.manifests_weight.saturating_add(weight);
        if self.manifests_weight > weight_max {
            let message = "the manifests of the scan take too much memory";
            return Err(CatalogError::new(ErrorReason::Validation, message));
        }
        Ok(())
    }

    /// Returns the locations of all manifests.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.data.iter().chain(&self.delete_manifests).map(|it| &*it.path)
    }

    /// Returns the number of delete manifests: all are read before the first response.
    pub fn delete_manifests(&self) -> usize {
        self.delete_manifests.len()
    }

    /// Returns the approximate bytes in memory.
    pub fn weight(&self) -> usize {
        self.bound_weight + self.manifests_weight + self.deletes.weight()
    }

    /// Takes the delete manifests out of the scan; each has to be read and passed to
    /// [`BoundScan::add_deletes`].
    pub fn take_delete_manifests(&mut self) -> Vec<ManifestRef> {
        std::mem::take(&mut self.delete_manifests)
    }

    /// Adds the delete files of a manifest.
    ///
    /// # Errors
    /// `Validation` if there are too many, or one violates the format.
    pub fn add_deletes(&mut self, manifest: &ManifestRef, read: &DataManifest) -> Result<()> {
        for entry in read.entries.iter().filter(|it| it.status != ManifestEntryStatus::Deleted) {
            if let Some(live) = read.live(entry, manifest) {
                self.deletes.add(live, &self.specs)?;
            }
        }
        Ok(())
    }

    /// Returns the position of the whole scan.
    pub fn whole(&self) -> ScanPosition {
        ScanPosition { from: 0, to: self.data.len(), entry: 0 }
    }

    /// Returns whether a position is one that a client may have received.
    pub fn has(&self, place: ScanPosition) -> bool {
        place.from < place.to && place.to <= self.data.len()
    }

    fn is_enough(&self, page: &PlanPage) -> bool {
        self.min_rows.is_some_and(|min| page.rows >= min)
    }

    /// Takes files of one manifest, from an entry on; returns the entry at which the response is
    /// full.
    fn take_files(
        &self,
        page: &mut PlanPage,
        read: &DataManifest,
        manifest: &ManifestRef,
        first: usize,
    ) -> Result<Option<usize>> {
        for (place, entry) in read.entries.iter().enumerate().skip(first) {
            if page.is_full() || self.is_enough(page) {
                return Ok(Some(place));
            }
            let is_wanted = match &self.added_in {
                None => entry.status != ManifestEntryStatus::Deleted,
                Some(added_in) => {
                    let snapshot = entry.snapshot_id(manifest);
                    entry.status == ManifestEntryStatus::Added
                        && snapshot.is_some_and(|it| added_in.contains(&it))
                }
            };
            if !is_wanted {
                continue;
            }
            let live = read.live(entry, manifest);
            let spec = live.as_ref().and_then(|live| self.specs.get(live.spec_id));
            let (Some(live), Some(spec)) = (live, spec) else {
                let message = "a manifest has a partition spec that the table does not have";
                return Err(CatalogError::new(ErrorReason::Validation, message));
            };
            if may_match_partition(&self.filter, spec, &live.file)
                && may_match_rows(&self.counted, &live.file)
            {
                page.add(&live)?;
            }
        }
        Ok(None)
    }

    /// Splits the rest into parts for one response each, as far as lists state the number of files.
    fn parts(&self, rest: ScanPosition) -> Vec<ScanPosition> {
        let files_max = u64::try_from(TASKS_MAX).unwrap_or(u64::MAX);
        let (mut parts, mut files): (Vec<ScanPosition>, u64) = (Vec::new(), 0);
        for at in rest.from..rest.to {
            let live = self.data.get(at).and_then(|it| it.live).unwrap_or(files_max);
            files = files.saturating_add(live);
            match parts.last_mut() {
                Some(last) if files <= files_max && at - last.from < MANIFESTS_OF_ANSWER_MAX => {
                    last.to = at + 1;
                }
                _ => {
                    let entry = if at == rest.from { rest.entry } else { 0 };
                    parts.push(ScanPosition { from: at, to: at + 1, entry });
                    files = live;
                }
            }
        }
        parts
    }
}

/// Builds one response of a scan: it names the next manifest that it needs, and takes files of it
/// until the response is full.
#[derive(Debug)]
pub struct PlanPageBuilder {
    page: PlanPage,
    /// Position of the rest of the scan.
    rest: ScanPosition,
    /// Index after the last manifest for this response.
    end: usize,
}

impl PlanPageBuilder {
    /// Starts at a position of the scan.
    #[must_use]
    pub fn new(scan: Arc<BoundScan>, position: ScanPosition) -> PlanPageBuilder {
        let end = position.to.min(position.from.saturating_add(MANIFESTS_OF_ANSWER_MAX));
        PlanPageBuilder { page: PlanPage::new(scan), rest: position, end }
    }

    /// Returns the manifest to pass to [`PlanPageBuilder::add`]; `None` if the response is
    /// complete.
    #[must_use]
    pub fn next_manifest(&self) -> Option<&ManifestRef> {
        let (page, scan) = (&self.page, &self.page.scan);
        let is_done = self.rest.from >= self.end || page.is_full() || scan.is_enough(page);
        scan.data.get(self.rest.from).filter(|_| !is_done)
    }

    /// Takes files of the next manifest, which the caller has read.
    ///
    /// # Errors
    /// `Validation` if a file has an unknown partition specification; those of [`PlanPage::add`].
    pub fn add(&mut self, read: &DataManifest) -> Result<()> {
        let Some(manifest) = self.next_manifest().cloned() else { return Ok(()) };
        let scan = Arc::clone(&self.page.scan);
        match scan.take_files(&mut self.page, read, &manifest, self.rest.entry)? {
            Some(entry) => self.rest.entry = entry,
            None => (self.rest.from, self.rest.entry) = (self.rest.from + 1, 0),
        }
        Ok(())
    }

    /// Returns the response, and the positions of the remaining parts.
    #[must_use]
    pub fn finish(self) -> (PlanPage, Vec<ScanPosition>) {
        let scan = &self.page.scan;
        let rest = match scan.is_enough(&self.page) {
            true => Vec::new(),
            false => scan.parts(self.rest),
        };
        (self.page, rest)
    }
}

/// Returns the columns whose statistics are requested. Metadata columns have none.
fn ids_of_stats(columns: &SchemaColumns, request: &ScanRequest) -> Result<Vec<i32>> {
    let mut ids = Vec::new();
    for name in &request.stats {
        let reference = ColumnReference::Name(name.clone());
        match find(columns, &reference, request.is_case_sensitive) {
            Ok(column) => ids.push(column.id),
            Err(_) if metadata_column(&reference, request.is_case_sensitive).is_some() => {}
            Err(error) => return Err(error),
        }
    }
    ids.sort_unstable();
    Ok(ids)
}

/// Returns these columns and all their children, in every schema of the table: files may still be
/// partitioned by a removed column.
fn with_those_within(
    hidden: &BTreeSet<i32>,
    doc: &TableDoc,
    columns: &SchemaColumns,
) -> Result<BTreeSet<i32>> {
    let mut all = hidden.clone();
    let mut extend = |columns: &SchemaColumns| {
        let is_within = |it: &SchemaColumn| columns.around(it).any(|it| hidden.contains(&it.id));
        all.extend(columns.list.iter().filter(|it| is_within(it)).map(|it| it.id));
    };
    extend(columns);
    if !hidden.is_empty() {
        for schema in &doc.schemas {
            extend(&SchemaColumns::read(&schema.raw).map_err(CatalogError::internal)?);
        }
    }
    Ok(all)
}

/// Returns the snapshots whose lists are read, and those whose new files are requested.
fn snapshots<'d>(
    doc: &'d TableDoc,
    request: &ScanRequest,
) -> Result<(Vec<&'d TableSnapshot>, Option<HashSet<i64>>)> {
    let find = |id: i64| {
        let found = doc.snapshot(id);
        found.ok_or_else(|| illegal(format!("Cannot find snapshot with ID {id}")))
    };
    let Some(end) = request.end else {
        let id = request.snapshot_id.or(doc.current_snapshot_id);
        return Ok((id.map(find).transpose()?.into_iter().collect(), None));
    };
    let by_id: HashMap<i64, &TableSnapshot> = doc.snapshots.iter().map(|it| (it.id, it)).collect();
    let (mut chosen, mut added_in) = (Vec::new(), HashSet::new());
    let mut next = Some(find(end)?.id);
    let mut seen = HashSet::new();
    while next != request.start {
        // The ancestors in a malformed document may form a cycle.
        let snapshot = next.filter(|id| seen.insert(*id)).and_then(|id| by_id.get(&id));
        let Some(snapshot) = snapshot else {
            let Some(start) = request.start else { break };
            return Err(illegal(format!(
                "Starting snapshot (exclusive) {start} is not a parent ancestor of end snapshot {end}"
            )));
        };
        if is_append(snapshot) {
            if chosen.len() == SNAPSHOTS_MAX {
                return Err(illegal(format!("the scan has more than {SNAPSHOTS_MAX} snapshots")));
            }
            chosen.push(*snapshot);
            added_in.insert(snapshot.id);
        }
        next = snapshot.parent;
    }
    Ok((chosen, Some(added_in)))
}

fn is_append(snapshot: &TableSnapshot) -> bool {
    let operation = snapshot.raw.get("summary").and_then(|it| it.get("operation"));
    operation.as_ref().and_then(RawJson::as_str).as_deref() == Some("append")
}

/// Returns the location of a snapshot's list of manifests.
///
/// # Errors
/// `Validation` if the snapshot has none.
pub fn list_of(snapshot: &TableSnapshot) -> Result<ManifestListSource> {
    if let Some(path) = snapshot.raw.get("manifest-list").as_ref().and_then(RawJson::as_str) {
        return Ok(ManifestListSource::At(path.into_owned()));
    }
    match snapshot.raw.get("manifests") {
        Some(paths) => Ok(ManifestListSource::Here(paths.decode()?)),
        None => {
            let message = format!("the snapshot {} lists no manifests", snapshot.id);
            Err(CatalogError::new(ErrorReason::Validation, message))
        }
    }
}

#[cfg(test)]
impl BoundScan {
    /// Creates a scan without files, of this weight.
    pub fn of_weight(bound_weight: usize) -> BoundScan {
        BoundScan {
            bound_weight,
            manifests_weight: 0,
            specs: PruneSpecs::default(),
            columns: SchemaColumns::default(),
            filter: BoundFilter::Constant(true),
            counted: BoundFilter::Constant(true),
            stats: Vec::new(),
            min_rows: None,
            added_in: None,
            known: HashSet::new(),
            data: Vec::new(),
            delete_manifests: Vec::new(),
            deletes: DeleteIndex::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::manifest::PartitionSummary;
    use super::*;

    #[test]
    fn manifests_of_a_scan_have_a_limit_and_lose_what_they_were_left_out_by() {
        let mut manifest = ManifestRef::bare("m");
        let weight = manifest.weight();
        manifest.partitions = Some(vec![PartitionSummary::default(); 1_000]);
        let list = vec![manifest; 10];
        let mut scan = BoundScan::of_weight(7);
        scan.take_list(list.clone(), 10 * weight).unwrap();
        assert_eq!(scan.weight(), 7 + 10 * weight);
        assert!(scan.data.iter().all(|it| it.partitions.is_none()));
        let error = BoundScan::of_weight(7).take_list(list, 10 * weight - 1).unwrap_err();
        assert_eq!(error.kind, ErrorReason::Validation);
    }
}
