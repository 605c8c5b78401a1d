//! `cove backup` and `cove restore`: a consistent copy of a server, made while it serves.
//!
//! | file | contents |
//! |---|---|
//! | `backup/service.rs` | `GET /v1/backup` |
//! | `backup/writer.rs` | a backup from its first to its last byte |
//! | `backup/staging.rs` | holds files of the data directory for the duration of a backup |
//! | `backup/elsewhere.rs` | data outside the data directory, by the configuration |
//! | `backup/archive.rs`, `backup/manifest.rs` | the format |
//! | `backup/unpack.rs` | reads archives, which are untrusted |
//! | `backup/fetch.rs`, `backup/restore.rs` | the commands |

mod archive;
mod elsewhere;
mod fetch;
mod manifest;
mod restore;
mod service;
mod staging;
mod unpack;
mod writer;

use std::fmt::Write as _;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context as _, Result};
use axum::Router;
use node::cluster::NodeMembership;
use node::data_dir::DataDir;
use node::store::SqlStore;
use node::task;
use serde_json::{Value, json};
use sessions::Sessions;

use self::manifest::SkippedFiles;
use self::service::BackupService;
use self::unpack::{ArchiveVisitor, CheckOnly, CheckedArchive, read_archive};
use self::writer::BackupSources;
use crate::config::ConfigSource;
use crate::plain_text::plain;
use crate::usage_error::UsageError;
use crate::values::human_bytes;

pub(crate) use self::fetch::run;
pub(crate) use self::restore::run as restore;

/// Bytes that are read at once from an archive or from one of its files.
const READ_BYTES: usize = 256 << 10;

/// Returns the route of backups, after removing files that an interrupted backup left behind.
pub(crate) async fn routes_of(
    source: &ConfigSource,
    data_dir: &DataDir,
    store: &SqlStore,
    sessions: &Sessions,
    membership: &NodeMembership,
) -> Result<Router> {
    let sources = BackupSources {
        data_dir: data_dir.path().to_owned(),
        store: store.clone(),
        sessions: sessions.clone(),
        removals: data_dir.removals().clone(),
        node: membership.identity().id.clone(),
        has_catalog: source.config.catalog.enabled,
        elsewhere: elsewhere::elsewhere(&source.config, store.dialect()),
        free_bytes_min: source.config.limits.disk_free_bytes_min(),
    };
    let service = task::blocking(move || BackupService::open(sources)).await??;
    Ok(service::routes(service))
}

/// Reads a whole archive from a file.
fn read_file(path: &Path, visitor: &mut dyn ArchiveVisitor) -> Result<CheckedArchive> {
    let file = std::fs::File::open(path)
        .map_err(|error| UsageError(format!("`{}`: {error}", path.display())))?;
    let from = BufReader::with_capacity(READ_BYTES, file);
    read_archive(from, visitor).with_context(|| format!("`{}` cannot be restored", path.display()))
}

/// Checks an archive file.
fn verify(path: &Path) -> Result<CheckedArchive> {
    read_file(path, &mut CheckOnly)
}

/// Describes an archive for people.
fn described(archive: &CheckedArchive) -> String {
    let CheckedArchive { manifest, report } = archive;
    let mut text = format!(
        "backup of {} (cove {}, {}) of {}\n",
        plain(&manifest.node),
        plain(&manifest.cove),
        plain(&manifest.data_dir),
        plain(&manifest.created),
    );
    for part in &manifest.parts {
        let files = if part.files == 1 { "file" } else { "files" };
        let bytes = human_bytes(part.bytes);
        let _ = writeln!(text, "  {:<16} {:>8} {files}, {bytes}", plain(&part.name), part.files);
    }
    if !manifest.not_included.is_empty() {
        text.push_str("not in it:\n");
        for omission in &manifest.not_included {
            let _ = writeln!(text, "  {}: {}", plain(&omission.what), plain(&omission.remedy));
        }
    }
    let lists = [
        ("skipped, because they are not regular files with plain names", &report.skipped),
        ("cut off by a client while they were read", &report.shortened),
    ];
    for (what, files) in lists {
        text.push_str(&listed(what, files));
    }
    text
}

fn listed(what: &str, files: &SkippedFiles) -> String {
    if files.count == 0 {
        return String::new();
    }
    let first: Vec<_> = files.first.iter().map(|name| plain(name)).collect();
    let more =
        if u64::try_from(first.len()).is_ok_and(|it| it < files.count) { ", …" } else { "" };
    format!("{} files {what}: {}{more}\n", files.count, first.join(", "))
}

/// Describes an archive for programs.
fn document(archive: &CheckedArchive, file: Option<&Path>) -> Value {
    let file = file.map(|path| path.display().to_string());
    json!({ "file": file, "manifest": archive.manifest, "report": archive.report })
}
