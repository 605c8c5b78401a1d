//! The files of a snapshot without a filter: for people, and to know what nothing leads to any
//! more.

use std::collections::HashSet;
use std::sync::Arc;

use super::manifest::{FileContent, ManifestEntryStatus, ManifestRef};
use super::reader::ManifestReader;
use super::scan::{self, ManifestListSource};
use crate::doc::TableSnapshot;
use crate::error::{CatalogError, ErrorReason, Result};

/// Manifests that one page is made of at the most.
const MANIFESTS_OF_PAGE_MAX: usize = 32;

/// A file that a snapshot has.
#[derive(Clone, Debug)]
pub(crate) struct FileRow {
    /// Content, as the format calls it.
    pub(crate) content: &'static str,
    pub(crate) path: Arc<str>,
    pub(crate) format: Box<str>,
    pub(crate) spec_id: Option<i32>,
    pub(crate) sequence_number: Option<i64>,
    pub(crate) records: i64,
    pub(crate) bytes: i64,
    pub(crate) manifest: Arc<str>,
}

/// Start of a page of files: a manifest in its list, and an entry in it.
pub(crate) type FilePlace = (usize, usize);

/// Returns where a snapshot's manifests are listed.
///
/// # Errors
/// `Validation` when it does not say.
pub(crate) fn list_of(snapshot: &TableSnapshot) -> Result<ManifestListSource> {
    scan::list(snapshot)
}

const fn name(content: FileContent) -> &'static str {
    match content {
        FileContent::Data => "data",
        FileContent::PositionDeletes => "position-deletes",
        FileContent::EqualityDeletes => "equality-deletes",
    }
}

/// Manifests of a snapshot, opaque to others.
pub(crate) struct ManifestList(Vec<ManifestRef>);

impl ManifestList {
    /// Returns where they are.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|it| &*it.path)
    }
}

impl ManifestReader {
    /// Reads which manifests a snapshot has.
    ///
    /// # Errors
    /// `NotFound` when the file is gone, `Validation` when it is none.
    pub(crate) async fn manifests_of(&self, list: ManifestListSource) -> Result<ManifestList> {
        Ok(ManifestList(self.list(list).await?))
    }

    /// Files of manifests from a place on, at most `limit`, and where to go on.
    ///
    /// # Errors
    /// As of [`Reader::manifests_of`].
    pub(crate) async fn files(
        &self,
        list: &ManifestList,
        (from, mut entry): FilePlace,
        limit: usize,
    ) -> Result<(Vec<FileRow>, Option<FilePlace>)> {
        let mut rows = Vec::new();
        for (place, of) in list.0.iter().enumerate().skip(from) {
            if place >= from.saturating_add(MANIFESTS_OF_PAGE_MAX) {
                return Ok((rows, Some((place, 0))));
            }
            let manifest = self.manifest(of).await?;
            for (at, one) in manifest.entries.iter().enumerate().skip(entry) {
                if one.status == ManifestEntryStatus::Deleted {
                    continue;
                }
                if rows.len() == limit {
                    return Ok((rows, Some((place, at))));
                }
                let live = manifest.live(one, of);
                rows.push(FileRow {
                    content: name(one.file.content),
                    path: Arc::clone(&one.file.path),
                    format: one.file.format.clone(),
                    spec_id: live.as_ref().map(|it| it.spec_id),
                    sequence_number: live.map(|it| it.sequence_number),
                    records: one.file.records,
                    bytes: one.file.bytes,
                    manifest: Arc::clone(&of.path),
                });
            }
            entry = 0;
        }
        Ok((rows, None))
    }

    /// Adds everything that a snapshot leads to: its manifests and their files, and of what it has
    /// removed as well when `removed` is set. Manifests in `known` were gone through before.
    ///
    /// # Errors
    /// As of [`Reader::manifests_of`]; `Validation` when there is more than `most`.
    pub(crate) async fn reach(
        &self,
        list: &ManifestList,
        known: &mut HashSet<Arc<str>>,
        all: &mut HashSet<Arc<str>>,
        removed: bool,
        most: usize,
    ) -> Result<()> {
        for of in &list.0 {
            all.insert(Arc::clone(&of.path));
            if !known.insert(Arc::clone(&of.path)) {
                continue;
            }
            let manifest = self.manifest(of).await?;
            for one in &manifest.entries {
                if removed || one.status != ManifestEntryStatus::Deleted {
                    all.insert(Arc::clone(&one.file.path));
                }
            }
            if all.len() > most {
                let message = format!("the snapshots have more than {most} files");
                return Err(CatalogError::new(ErrorReason::Validation, message));
            }
        }
        Ok(())
    }
}
