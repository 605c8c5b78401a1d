//! The files of a snapshot without a filter: for inspection, and to find unreferenced files.

use std::sync::Arc;

use super::manifest::{DataManifest, FileContent, ManifestEntryStatus, ManifestRef};

/// A file of a snapshot.
#[derive(Clone, Debug)]
pub struct FileRow {
    /// Content, by its name in the format.
    pub content: &'static str,
    /// Location of the file.
    pub path: Arc<str>,
    /// Format of the file, such as `PARQUET`.
    pub format: Box<str>,
    /// Partition specification that it was written with, if known.
    pub spec_id: Option<i32>,
    /// Sequence number of its data, if known.
    pub sequence_number: Option<i64>,
    /// Number of its rows.
    pub records: i64,
    /// Size of the file in bytes.
    pub bytes: i64,
    /// Location of the manifest that names it.
    pub manifest: Arc<str>,
}

const fn name(content: FileContent) -> &'static str {
    match content {
        FileContent::Data => "data",
        FileContent::PositionDeletes => "position-deletes",
        FileContent::EqualityDeletes => "equality-deletes",
    }
}

impl DataManifest {
    /// Returns the files from an entry on, with the entry of each, without removed ones.
    pub fn files<'a>(
        &'a self,
        of: &'a ManifestRef,
        first_entry: usize,
    ) -> impl Iterator<Item = (usize, FileRow)> + 'a {
        let entries = self.entries.iter().enumerate().skip(first_entry);
        let there = entries.filter(|(_, one)| one.status != ManifestEntryStatus::Deleted);
        there.map(move |(at, one)| {
            let live = self.live(one, of);
            let row = FileRow {
                content: name(one.file.content),
                path: Arc::clone(&one.file.path),
                format: one.file.format.clone(),
                spec_id: live.as_ref().map(|it| it.spec_id),
                sequence_number: live.map(|it| it.sequence_number),
                records: one.file.records,
                bytes: one.file.bytes,
                manifest: Arc::clone(&of.path),
            };
            (at, row)
        })
    }

    /// Returns the locations of its files, including removed ones if `with_removed` is set.
    pub fn locations(&self, with_removed: bool) -> impl Iterator<Item = &Arc<str>> {
        let is_named =
            move |it: &ManifestEntryStatus| with_removed || *it != ManifestEntryStatus::Deleted;
        self.entries.iter().filter(move |one| is_named(&one.status)).map(|one| &one.file.path)
    }
}
