//! Health of a table: sizes of its files, deletes, partitions, manifests and snapshots, and what to
//! do about them.
//!
//! Manifests are read one after the other and are not cached, so that the memory use is that of one
//! manifest and of the partitions that [`SnapshotFigures`] distinguishes. No data file is opened.
//!
//! # References
//! - <https://iceberg.apache.org/docs/latest/maintenance/>
//! - <https://iceberg.apache.org/docs/latest/spark-procedures/#rewrite_data_files>

use std::sync::Arc;

use iceberg::doc::TableDoc;
use iceberg::ident::TableIdent;
use iceberg::plan::{
    FileTotals, ManifestFigures, PartitionFigures, SizeRange, SnapshotFigures, list_of,
};
use serde::Serialize;

use super::catalog::Catalog;
use super::expiry::expiry;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::CatalogPrincipal;
use crate::store::{RelationKind, TimelineMoment};
use crate::warehouse::Warehouse;

/// Most manifests for one response; the figures of a snapshot with more cover its first ones.
pub const STATS_MANIFESTS_MAX: usize = 2_000;

/// Approximate total of bytes in memory, over all manifests of one response, though each is
/// released before the next; reading stops beyond it.
const STATS_WEIGHT_MAX: usize = 1 << 30;

/// Most partitions in each list of a response.
const PARTITIONS_SHOWN: usize = 20;

/// Property with the target size of data files, and its default as in the reference.
const TARGET_SIZE: &str = "write.target-file-size-bytes";
const TARGET_SIZE_DEFAULT: i64 = 512 << 20;
/// Property with the target size of manifests, and its default.
const MANIFEST_SIZE: &str = "commit.manifest.target-size-bytes";
const MANIFEST_SIZE_DEFAULT: i64 = 8 << 20;

/// A file is small below three quarters of the target, as for `rewrite_data_files`.
const SMALL_NUMERATOR: i64 = 3;
const SMALL_DENOMINATOR: i64 = 4;
/// Number of small files in one partition from which merging is worthwhile, as for
/// `rewrite_data_files`.
const SMALL_FILES_MIN: u64 = 5;
/// Share of deleted rows from which rewriting is worthwhile, in percent: `delete-ratio-threshold`.
const DELETED_PERCENT_MIN: u64 = 30;
/// Delete files for each data file from which rewriting is worthwhile.
const DELETES_PER_FILE_MIN: u64 = 1;
/// Number of manifests below which merging is useless: `commit.manifest.min-count-to-merge`.
const MANIFESTS_MIN: u64 = 100;

/// Snapshot whose figures are wanted.
#[derive(Clone, Debug, Default)]
pub enum StatsSnapshot {
    /// The current one.
    #[default]
    Current,
    /// The one of this id.
    Id(i64),
    /// The one that a branch or tag names.
    Ref(String),
}

/// Health of a table at one snapshot.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TableHealth {
    /// Snapshot that was looked at; none of a table without one.
    pub snapshot_id: Option<i64>,
    /// Time of that snapshot in milliseconds.
    pub snapshot_at_ms: Option<i64>,
    /// False if the snapshot has more manifests than are read for one answer.
    pub complete: bool,
    /// Size that writers aim at.
    pub target_bytes: u64,
    /// Size below which a data file is small.
    pub small_below_bytes: u64,
    /// Data files.
    pub data: FileTotals,
    /// Small data files.
    pub small: FileTotals,
    /// Data files by size.
    pub histogram: Vec<SizeRange>,
    /// Average rows of a data file.
    pub rows_per_file: u64,
    /// Average bytes of a data file.
    pub bytes_per_file: u64,
    /// Delete files by kind.
    pub deletes: DeleteFigures,
    /// Partitions.
    pub partitions: PartitionSummaryView,
    /// Manifests.
    pub manifests: ManifestView,
    /// Snapshots of the table.
    pub snapshots: SnapshotAges,
    /// Recommendations, the most useful first.
    pub recommendations: Vec<Recommendation>,
}

/// Delete files.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct DeleteFigures {
    /// Position delete files.
    pub position: FileTotals,
    /// Equality delete files. The number of rows that they delete is unknown.
    pub equality: FileTotals,
    /// Deletion vectors.
    pub vectors: FileTotals,
    /// Rows that position delete files and vectors delete.
    pub deleted_rows: u64,
    /// Their part of all rows, in percent.
    pub deleted_percent: f64,
}

/// Partitions with files.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PartitionSummaryView {
    /// Number of partitions that are counted separately.
    pub count: usize,
    /// Files of partitions beyond those.
    pub files_beyond: u64,
    /// Bytes of the largest partition for each byte of the average one.
    pub skew: f64,
    /// The largest ones.
    pub largest: Vec<PartitionFigures>,
    /// Partitions whose largest file stands out most.
    pub skewed: Vec<PartitionFigures>,
    /// Partitions with most small files.
    pub small: Vec<PartitionFigures>,
}

/// Manifests of the snapshot.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ManifestView {
    /// Manifests in the snapshot's list.
    pub count: usize,
    /// Manifests that were read.
    #[serde(flatten)]
    pub read: ManifestFigures,
    /// Average files of a manifest.
    pub files_per_manifest: u64,
}

/// Snapshots of the table.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SnapshotAges {
    /// Number of snapshots.
    pub count: usize,
    /// Time of the oldest one in milliseconds.
    pub oldest_at_ms: Option<i64>,
    /// Age of the oldest one in milliseconds.
    pub oldest_age_ms: Option<i64>,
    /// Snapshots that the table's properties let expire now; none when these are wrong.
    pub expired: Option<usize>,
}

/// Kinds of recommendations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecommendedAction {
    /// Data files should be rewritten.
    Compact,
    /// Manifests should be merged.
    RewriteManifests,
    /// Snapshots should expire.
    ExpireSnapshots,
    /// Files should go that nothing leads to.
    RemoveOrphans,
}

/// Recommendation for a table.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Recommendation {
    /// Kind.
    pub action: RecommendedAction,
    /// Why, in a sentence.
    pub reason: String,
    /// Maintenance action of this catalog that does it; none where an engine has to.
    pub operation: Option<&'static str>,
    /// Call by which an engine does it, where this catalog does not: it never writes data.
    pub elsewhere: Option<String>,
}

impl Catalog {
    /// Returns the health of a table at a snapshot, in its present or in a past state.
    ///
    /// # Errors
    /// `NoSuchTable`; `BadRequest` if the snapshot, branch or tag does not exist; `Forbidden` if
    /// policies restrict the caller, because partitions contain values; those of reading manifests.
    pub async fn table_health(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
        wanted: StatsSnapshot,
        moment: Option<TimelineMoment>,
    ) -> Result<TableHealth> {
        let kind = RelationKind::Table;
        let (entry, today) = match moment {
            Some(moment) => {
                let found = self.0.history.load_at(who, warehouse, kind, ident, moment).await?;
                (found.entry, found.today)
            }
            None => {
                let entry = self.0.relations.load(who, warehouse, kind, ident).await?;
                (entry, Some(ident.clone()))
            }
        };
        let doc = entry.table().ok_or_else(|| kind.no_such(ident))?;
        // Rights and policies are those of the present table.
        let today = today.ok_or_else(|| kind.no_such(ident))?;
        self.0.rights.require_unrestricted(who, warehouse, &today)?;
        let snapshot = chosen(doc, &wanted)?;
        let target_bytes = size(doc, TARGET_SIZE, TARGET_SIZE_DEFAULT);
        let small_below = target_bytes / SMALL_DENOMINATOR * SMALL_NUMERATOR;
        let mut figures = SnapshotFigures::new(doc, small_below)?;
        let mut count = 0;
        if let Some(snapshot) = snapshot {
            let target = self.0.plans.scan_target(who, warehouse, &today).await?;
            let list = list_of(snapshot)?;
            self.0.plans.check_own(who, &target, list.path().into_iter()).await?;
            let manifests = target.reader.manifests_of(list).await?;
            self.0.plans.check_own(who, &target, manifests.paths()).await?;
            count = manifests.paths().count();
            let (most, weight) = (STATS_MANIFESTS_MAX, STATS_WEIGHT_MAX);
            figures = target.reader.figures(&manifests, figures, most, weight).await?;
        }
        let now_ms = i64::try_from(self.0.clock.now_ms()).map_err(CatalogError::internal)?;
        let view = HealthView { doc, figures, ident, now_ms, target_bytes, small_below, count };
        Ok(view.health(snapshot.map(|it| (it.id, it.timestamp_ms))))
    }
}

/// Returns the requested snapshot.
fn chosen<'a>(
    doc: &'a TableDoc,
    wanted: &StatsSnapshot,
) -> Result<Option<&'a iceberg::doc::TableSnapshot>> {
    let refuse = |message: String| CatalogError::new(ErrorReason::BadRequest, message);
    let id = match wanted {
        StatsSnapshot::Current => doc.current_snapshot_id,
        StatsSnapshot::Id(id) => Some(*id),
        StatsSnapshot::Ref(name) => {
            let found = doc.reference(name);
            let excerpt: String = name.chars().take(100).collect();
            let missing = || refuse(format!("the table has no branch or tag `{excerpt}`"));
            Some(found.ok_or_else(missing)?.snapshot_id)
        }
    };
    let Some(id) = id else { return Ok(None) };
    let missing = || refuse(format!("the table has no snapshot {id}"));
    doc.snapshot(id).map(Some).ok_or_else(missing)
}

/// Returns a size from a property, or the default if it is missing or invalid.
fn size(doc: &TableDoc, name: &str, default: i64) -> i64 {
    let configured = doc.properties.get(name).and_then(|it| it.trim().parse::<i64>().ok());
    configured.filter(|bytes| *bytes > 0).unwrap_or(default)
}

/// Data for a response about health.
struct HealthView<'a> {
    doc: &'a TableDoc,
    figures: SnapshotFigures,
    ident: &'a TableIdent,
    now_ms: i64,
    target_bytes: i64,
    small_below: i64,
    /// Manifests of the snapshot.
    count: usize,
}

impl HealthView<'_> {
    fn health(self, snapshot: Option<(i64, i64)>) -> TableHealth {
        let recommendations = self.recommendations();
        let HealthView { doc, figures, now_ms, target_bytes, small_below, count, .. } = self;
        let files = figures.data.files;
        let average = |whole: u64| whole.checked_div(files).unwrap_or(0);
        let deleted_rows = figures.position_deletes.rows.saturating_add(figures.vectors.rows);
        let partitions = figures.partitions().len();
        let largest = figures.top_partitions(PARTITIONS_SHOWN, |it| it.data.bytes);
        let skew = largest.first().map_or(0.0, |it| {
            ratio(it.data.bytes.saturating_mul(partitions as u64), figures.data.bytes)
        });
        let mut skewed =
            figures.top_partitions(PARTITIONS_SHOWN, PartitionFigures::skew_hundredths);
        skewed.retain(|it| it.data.files > 1);
        let mut small = figures.top_partitions(PARTITIONS_SHOWN, |it| it.small_files);
        small.retain(|it| it.small_files > 1);
        let read = figures.manifests;
        let manifests_read = read.data.saturating_add(read.deletes);
        let all_files = [figures.position_deletes, figures.equality_deletes, figures.vectors];
        let all_files = all_files.iter().fold(files, |sum, it| sum.saturating_add(it.files));
        let oldest = doc.snapshots.iter().map(|it| it.timestamp_ms).min();
        TableHealth {
            snapshot_id: snapshot.map(|(id, _)| id),
            snapshot_at_ms: snapshot.map(|(_, at_ms)| at_ms),
            complete: manifests_read == count as u64,
            target_bytes: target_bytes.unsigned_abs(),
            small_below_bytes: small_below.unsigned_abs(),
            data: figures.data,
            small: figures.small,
            rows_per_file: average(figures.data.rows),
            bytes_per_file: average(figures.data.bytes),
            deletes: DeleteFigures {
                position: figures.position_deletes,
                equality: figures.equality_deletes,
                vectors: figures.vectors,
                deleted_rows,
                deleted_percent: 100.0 * ratio(deleted_rows, figures.data.rows),
            },
            partitions: PartitionSummaryView {
                count: partitions,
                files_beyond: figures.beyond,
                skew,
                largest,
                skewed,
                small,
            },
            manifests: ManifestView {
                count,
                read,
                files_per_manifest: all_files.checked_div(manifests_read).unwrap_or(0),
            },
            snapshots: SnapshotAges {
                count: doc.snapshots.len(),
                oldest_at_ms: oldest,
                oldest_age_ms: oldest.map(|at_ms| now_ms.saturating_sub(at_ms).max(0)),
                expired: expiry(doc, now_ms).ok().map(|plan| plan.snapshots.len()),
            },
            histogram: figures.histogram,
            recommendations,
        }
    }

    fn recommendations(&self) -> Vec<Recommendation> {
        let found = [self.compact(), self.rewrite_manifests(), self.expire(), self.orphans()];
        found.into_iter().flatten().collect()
    }

    /// Recommends compaction for small files or many deletes.
    fn compact(&self) -> Option<Recommendation> {
        let figures = &self.figures;
        let many = figures.partitions().filter(|it| it.small_files >= SMALL_FILES_MIN);
        let (partitions, files, bytes) = many.fold((0_u64, 0_u64, 0_u64), |sum, it| {
            (sum.0 + 1, sum.1 + it.small_files, sum.2.saturating_add(it.small_bytes))
        });
        let deleted = figures.position_deletes.rows.saturating_add(figures.vectors.rows);
        let is_deleted =
            deleted.saturating_mul(100) >= DELETED_PERCENT_MIN.saturating_mul(figures.data.rows);
        let deletes = figures.position_deletes.files.saturating_add(figures.equality_deletes.files);
        let are_many = deletes >= DELETES_PER_FILE_MIN.saturating_mul(figures.data.files);
        let mut reasons = Vec::new();
        if partitions > 0 {
            let fewer = bytes.div_ceil(self.target_bytes.unsigned_abs().max(1)).max(partitions);
            let of_partitions = if partitions == 1 { "partition" } else { "partitions" };
            reasons.push(format!(
                "{files} small data files in {partitions} {of_partitions} could be about {fewer}"
            ));
        }
        if deleted > 0 && is_deleted {
            reasons.push(format!("{deleted} of {} rows are deleted", figures.data.rows));
        }
        if deletes > 0 && are_many {
            let data = figures.data.files;
            reasons.push(format!("{deletes} delete files are read with {data} data files"));
        }
        if reasons.is_empty() {
            return None;
        }
        Some(Recommendation {
            action: RecommendedAction::Compact,
            reason: reasons.join("; "),
            operation: None,
            elsewhere: Some(self.call("rewrite_data_files")),
        })
    }

    fn rewrite_manifests(&self) -> Option<Recommendation> {
        let read = &self.figures.manifests;
        let count = read.data.saturating_add(read.deletes);
        let size = size(self.doc, MANIFEST_SIZE, MANIFEST_SIZE_DEFAULT).unsigned_abs();
        let fewer = read.bytes.div_ceil(size).max(1);
        if count < MANIFESTS_MIN || fewer.saturating_mul(2) > count {
            return None;
        }
        Some(Recommendation {
            action: RecommendedAction::RewriteManifests,
            reason: format!("{count} manifests are read to plan a scan, where {fewer} would do"),
            operation: None,
            elsewhere: Some(self.call("rewrite_manifests")),
        })
    }

    fn expire(&self) -> Option<Recommendation> {
        let (expired, reason) = match expiry(self.doc, self.now_ms) {
            Ok(plan) => {
                let count = plan.snapshots.len();
                let of = self.doc.snapshots.len();
                (count, format!("{count} of {of} snapshots have expired by the table's properties"))
            }
            Err(error) => (1, error.message),
        };
        (expired > 0).then_some(Recommendation {
            action: RecommendedAction::ExpireSnapshots,
            reason,
            operation: Some("expire-snapshots"),
            elsewhere: None,
        })
    }

    /// Counts metadata files that dropped out of the log and were not removed. Orphaned data files
    /// are not searched: the table's directory is not listed.
    fn orphans(&self) -> Option<Recommendation> {
        let most = self.doc.metadata_log.len();
        let is_full = most >= iceberg::doc::properties::PREVIOUS_VERSIONS_MAX_DEFAULT;
        if !is_full || self.doc.deletes_old_metadata() {
            return None;
        }
        Some(Recommendation {
            action: RecommendedAction::RemoveOrphans,
            reason: format!(
                "the metadata log keeps {most} files, and older ones are not deleted by themselves"
            ),
            operation: Some("clean-metadata"),
            elsewhere: Some(self.call("remove_orphan_files")),
        })
    }

    /// Returns the call of a procedure in Spark's syntax. The name is quoted as an SQL string.
    fn call(&self, procedure: &str) -> String {
        let name = self.ident.to_string().replace('\'', "''");
        format!("CALL system.{procedure}(table => '{name}')")
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio that people read")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
