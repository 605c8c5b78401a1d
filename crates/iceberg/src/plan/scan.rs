//! A scan: which manifests there are for a request, and what an answer has of their files.

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

/// Snapshots of an incremental scan at the most.
pub const SNAPSHOTS_MAX: usize = 10_000;

/// Bytes that the manifests of a scan may take in memory, about, with those that are left out of
/// it when snapshots are compared.
const MANIFESTS_WEIGHT_MAX: usize = 64 << 20;

/// Bytes that a column takes in memory beside its name.
const COLUMN_BYTES: usize = size_of::<SchemaColumn>() + 64;

/// Manifests that one answer is made of at the most.
pub(super) const MANIFESTS_OF_ANSWER_MAX: usize = 32;

/// List of a snapshot's manifests.
#[derive(Debug)]
pub enum ManifestListSource {
    /// In a file.
    At(String),
    /// In the document, as the first version of the format has it.
    Here(Vec<String>),
}

impl ManifestListSource {
    /// The file that it is in.
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
    /// Part of the filter that may leave out files by their row statistics.
    counted: BoundFilter,
    pub(super) stats: Vec<i32>,
    min_rows: Option<i64>,
    /// The snapshots whose new files are asked for; none when all files are.
    added_in: Option<HashSet<i64>>,
    /// Manifests that several snapshots have come once.
    known: HashSet<Arc<str>>,
    data: Vec<ManifestRef>,
    delete_manifests: Vec<ManifestRef>,
    pub(super) deletes: DeleteIndex,
    /// Bytes that its columns and filters take in memory, about.
    bound_weight: usize,
    /// Bytes that its manifests take in memory, about.
    manifests_weight: usize,
}

/// Position to go on from: at a file of the first of some manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanPosition {
    /// The first manifest, among those of the scan.
    pub from: usize,
    /// The manifest behind the last one.
    pub to: usize,
    /// The first entry of the first manifest.
    pub entry: usize,
}

impl BoundScan {
    /// Finds the columns and the snapshots of a request.
    ///
    /// # Errors
    /// `Validation` and `IllegalArgument` when the table has not got what is asked for.
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
        // What a policy says is about the values as they are.
        let restriction = BoundFilter::new(filter, &columns, true, &BTreeSet::new())?;
        let requested =
            BoundFilter::new(&request.filter, &columns, request.is_case_sensitive, hidden)?;
        let is_partial = restriction != BoundFilter::Constant(true);
        let filter = requested.and(restriction.clone());
        // Counts are of all rows of a file: filters could ask for those that may not be read.
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

    /// Takes the manifests of a list, but for those whose files cannot be what is asked for.
    ///
    /// # Errors
    /// `Validation` when there are too many manifests.
    pub fn add_list(&mut self, list: Vec<ManifestRef>) -> Result<()> {
        self.take_list(list, MANIFESTS_WEIGHT_MAX)
    }

    /// Says that all lists were added, which frees what compared them.
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
            // Nobody asks for them any more.
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

    /// The locations of all manifests.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.data.iter().chain(&self.delete_manifests).map(|it| &*it.path)
    }

    /// Returns how many manifests of delete files there are: all are read before the first answer.
    pub fn delete_manifests(&self) -> usize {
        self.delete_manifests.len()
    }

    /// Bytes that it takes in memory, about.
    pub fn weight(&self) -> usize {
        self.bound_weight + self.manifests_weight + self.deletes.weight()
    }

    /// Hands over the manifests of delete files, each of which is to be read and given to
    /// [`BoundScan::add_deletes`].
    pub fn take_delete_manifests(&mut self) -> Vec<ManifestRef> {
        std::mem::take(&mut self.delete_manifests)
    }

    /// Takes the delete files of a manifest.
    ///
    /// # Errors
    /// `Validation` when there are too many, or one is not as the format says.
    pub fn add_deletes(&mut self, manifest: &ManifestRef, read: &DataManifest) -> Result<()> {
        for entry in read.entries.iter().filter(|it| it.status != ManifestEntryStatus::Deleted) {
            if let Some(live) = read.live(entry, manifest) {
                self.deletes.add(live, &self.specs)?;
            }
        }
        Ok(())
    }

    /// All of it.
    pub fn whole(&self) -> ScanPosition {
        ScanPosition { from: 0, to: self.data.len(), entry: 0 }
    }

    /// Returns whether a client was told of such a place, or might have been.
    pub fn has(&self, place: ScanPosition) -> bool {
        place.from < place.to && place.to <= self.data.len()
    }

    fn is_enough(&self, page: &PlanPage) -> bool {
        self.min_rows.is_some_and(|min| page.rows >= min)
    }

    /// Takes files of one manifest, from one on; answers where it is full.
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

    /// Returns what is left, in parts for one answer each, as far as lists say how many files there
    /// are.
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

/// The making of one answer of a scan: it names the manifest that it needs next, and takes files of
/// it until the answer is full.
#[derive(Debug)]
pub struct PlanPageBuilder {
    page: PlanPage,
    /// Position of what is left to be scanned.
    rest: ScanPosition,
    /// The end of the manifests that this answer is made of.
    end: usize,
}

impl PlanPageBuilder {
    /// Begins at a position of the scan.
    #[must_use]
    pub fn new(scan: Arc<BoundScan>, position: ScanPosition) -> PlanPageBuilder {
        let end = position.to.min(position.from.saturating_add(MANIFESTS_OF_ANSWER_MAX));
        PlanPageBuilder { page: PlanPage::new(scan), rest: position, end }
    }

    /// The manifest to be given to [`PlanPageBuilder::add`]; none when the answer is done.
    #[must_use]
    pub fn next_manifest(&self) -> Option<&ManifestRef> {
        let (page, scan) = (&self.page, &self.page.scan);
        let is_done = self.rest.from >= self.end || page.is_full() || scan.is_enough(page);
        scan.data.get(self.rest.from).filter(|_| !is_done)
    }

    /// Takes files of the next manifest, which was read.
    ///
    /// # Errors
    /// `Validation` when a file is of a partition specification that the table has not got; as of
    /// [`PlanPage::add`].
    pub fn add(&mut self, read: &DataManifest) -> Result<()> {
        let Some(manifest) = self.next_manifest().cloned() else { return Ok(()) };
        let scan = Arc::clone(&self.page.scan);
        match scan.take_files(&mut self.page, read, &manifest, self.rest.entry)? {
            Some(entry) => self.rest.entry = entry,
            None => (self.rest.from, self.rest.entry) = (self.rest.from + 1, 0),
        }
        Ok(())
    }

    /// The answer, and where to go on in how many parts.
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

/// Finds the columns whose statistics are asked for. There are none of metadata columns.
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

/// These columns and all within them, in every schema that the table has had: files may still be
/// partitioned by a column that is gone.
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

/// The snapshots whose lists are read, and those whose new files are asked for.
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
        // Ancestors may be in a circle in a document that somebody made up.
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

/// Returns where a snapshot's manifests are listed.
///
/// # Errors
/// `Validation` when it does not say.
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
    /// Creates a scan without files of this weight.
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
