//! Manifest of an archive, its first member, and the names in an archive.

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

/// Version of the format that is written, and newest version that is read.
pub(super) const FORMAT: u32 = 1;
/// Name of the manifest, which is the first member.
pub(super) const MANIFEST_NAME: &str = "cove-backup.json";
/// Name of the report on the backup itself, which follows all files.
pub(super) const REPORT_NAME: &str = "cove-backup-report.json";
/// Name of the checksum file, the last member, with lines of `sha256sum`.
pub(super) const SUMS_NAME: &str = "SHA256SUMS";
/// Directory in the archive with the content of a data directory.
pub(super) const DATA_PREFIX: &str = "data/";
/// Name of the store in a data directory.
pub(super) const STORE_NAME: &str = "cove.sqlite";
/// Files at the top of a data directory, except the store.
pub(super) const KEY_FILES: [&str; 6] =
    ["secrets.key", "server.id", "token", "tokens.jsonl", "tokens.jsonl.moved", "webhook.key"];
/// Directory of objects.
pub(super) const OBJECTS: &str = "objects";
/// Directory of images of sessions.
pub(super) const SESSIONS: &str = "sessions";
/// Directory whose files keep their permissions: clients of other users may read them.
pub(super) const WAREHOUSE: &str = "warehouse";
/// Longest manifest or report, in bytes.
pub(super) const DOCUMENT_BYTES_MAX: u64 = 4 << 20;
/// Most files of one archive.
pub(super) const FILES_MAX: u64 = 10_000_000;

/// Description of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BackupManifest {
    /// Version of the format.
    pub(super) format: u32,
    /// Version of Cove that wrote it.
    pub(super) cove: String,
    /// Id of the server.
    pub(super) node: String,
    /// Data directory of the server. Tables name their files by this path.
    pub(super) data_dir: String,
    /// Moment of which the copy of the store is, in RFC 3339.
    pub(super) created: String,
    /// Parts of the data directory.
    pub(super) parts: Vec<BackupPart>,
    /// Bytes of all parts, as far as they were known at the beginning.
    pub(super) bytes: u64,
    /// Omissions: needed by a restored server, and not in this archive.
    pub(super) not_included: Vec<BackupOmission>,
}

/// Part of the data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BackupPart {
    /// Name of the part.
    pub(super) name: String,
    /// Number of its files.
    pub(super) files: u64,
    /// Bytes that they take.
    pub(super) bytes: u64,
}

/// Part of a server that is elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BackupOmission {
    /// Name of what is missing, with its place.
    pub(super) what: String,
    /// Way to keep it.
    pub(super) remedy: String,
}

/// Report of the writing of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BackupReport {
    /// Number of files of the data directory.
    pub(super) files: u64,
    /// Files that became shorter while they were read: zeros stand for what was missing.
    pub(super) shortened: SkippedFiles,
    /// Files that are not in the archive: links, devices and names that cannot be restored.
    pub(super) skipped: SkippedFiles,
}

/// Number of some files, with the names of the first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SkippedFiles {
    /// Number of them.
    pub(super) count: u64,
    /// The first of them.
    pub(super) first: Vec<String>,
}

/// Names that are kept of many files.
const NAMED_MAX: usize = 20;

impl SkippedFiles {
    /// Counts a file.
    pub(super) fn add(&mut self, name: String) {
        self.count += 1;
        if self.first.len() < NAMED_MAX {
            self.first.push(name);
        }
    }
}

/// Format of an archive, read first because it decides whether the rest of the manifest is
/// readable.
#[derive(Deserialize)]
struct ManifestFormat {
    format: u32,
    #[serde(default)]
    cove: String,
}

impl BackupManifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// If it is malformed or has a newer format.
    pub(super) fn parse(text: &[u8]) -> Result<BackupManifest> {
        let malformed = || format!("`{MANIFEST_NAME}` is malformed");
        let found: ManifestFormat = serde_json::from_slice(text).with_context(malformed)?;
        if found.format > FORMAT {
            bail!(
                "the archive has format {}, this version of cove reads up to {FORMAT}: restore it \
                 with the version that wrote it (cove {}) or a later one",
                found.format,
                found.cove,
            );
        }
        ensure!(found.format > 0, malformed());
        serde_json::from_slice(text).with_context(malformed)
    }

    /// Returns whether the store is in the archive.
    pub(super) fn has_store(&self) -> bool {
        self.part("store").is_some()
    }

    /// Returns a part, if the archive has files of it.
    pub(super) fn part(&self, name: &str) -> Option<&BackupPart> {
        self.parts.iter().find(|part| part.name == name && part.files > 0)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A manifest of an archive with a store.
    pub(in crate::backup) fn manifest() -> BackupManifest {
        BackupManifest {
            format: FORMAT,
            cove: "0.1.0".to_owned(),
            node: "srv_1".to_owned(),
            data_dir: "/var/lib/cove".to_owned(),
            created: "2026-11-29T08:00:00Z".to_owned(),
            parts: vec![BackupPart { name: "store".to_owned(), files: 1, bytes: 4096 }],
            bytes: 4096,
            not_included: Vec::new(),
        }
    }

    fn check(text: &str, expected: Result<(), &str>) {
        let parsed = BackupManifest::parse(text.as_bytes()).map(drop);
        match (parsed, expected) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => {
                let message = format!("{error:#}");
                assert!(message.contains(part), "{message}");
            }
            (parsed, expected) => panic!("{text}: {parsed:?}, not {expected:?}"),
        }
    }

    #[test]
    fn newer_formats_are_refused_whatever_else_they_say() {
        let current = serde_json::to_string(&manifest()).unwrap();
        check(&current, Ok(()));
        check(&current.replacen('{', "{\"later\":1,", 1), Ok(()));
        let newer = "this version of cove reads up to 1: restore it with the version that wrote it";
        check(r#"{"format": 2, "cove": "9.0.0"}"#, Err(newer));
        check(&current.replace("\"format\":1", "\"format\":2"), Err("(cove 0.1.0)"));
        for wrong in ["", "[]", "{}", r#"{"format": 0}"#, r#"{"format": 1}"#, r#"{"format": -1}"#] {
            check(wrong, Err("`cove-backup.json` is malformed"));
        }
    }
}
