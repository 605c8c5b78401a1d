//! Server-side scan planning: the files with the rows that a client requests, and the deletes that
//! apply to each.
//!
//! | file | what it is |
//! |---|---|
//! | `request`, `expression`, `bind`, `metadata_columns` | requests: parsed, bound to columns |
//! | `avro`, `manifest` | manifests: decoding and content |
//! | `value`, `calendar`, `transform` | values in all their forms, and partition transforms |
//! | `facts`, `prune`, `deletes` | pruning, residual filters, applicable deletes |
//! | `scan`, `answer` | a scan from its snapshot to its responses |
//! | `files`, `figures` | all files of a snapshot, without a filter; their number and sizes |
//!
//! A file that may match is never left out: if a fact is unknown, the file stays. Manifests are
//! untrusted input.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#scan-planning>

mod answer;
mod avro;
mod bind;
mod calendar;
mod deletes;
mod expression;
mod facts;
mod figures;
mod files;
mod manifest;
mod metadata_columns;
mod prune;
mod request;
mod scan;
#[cfg(test)]
mod tests;
mod transform;
mod value;

/// Entries of the fuzz targets.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use super::manifest;

    /// Reads a manifest, and counts the files in it.
    pub fn manifest(bytes: &[u8]) -> Option<usize> {
        manifest::read(bytes).ok().map(|manifest| manifest.entries.len())
    }

    /// Reads a manifest list, and counts the manifests in it.
    pub fn manifest_list(bytes: &[u8]) -> Option<usize> {
        manifest::read_list(bytes).ok().map(|list| list.len())
    }
}

pub use self::answer::PlanPage;
pub use self::avro::AvroError;
pub use self::expression::{FilterExpression, PREDICATES_MAX, VALUES_MAX};
pub use self::figures::{
    FIGURE_PARTITIONS_MAX, FileTotals, HISTOGRAM_ENDS, ManifestFigures, PartitionFigures,
    SizeRange, SnapshotFigures,
};
pub use self::files::FileRow;
pub use self::manifest::{
    DataManifest, ManifestRef, read as read_manifest, read_list as read_manifest_list,
};
pub use self::request::{ReadRestriction, ScanRequest};
pub use self::scan::{
    BoundScan, ManifestListSource, PlanPageBuilder, SNAPSHOTS_MAX, ScanPosition, list_of,
};
