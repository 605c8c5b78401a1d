//! Makes a backup: which files are held, and in which order they are written.
//!
//! 1. The gate of removals is closed: no service removes a file.
//! 2. A snapshot of the store is taken, which copies nothing, and the files are linked.
//! 3. The gate is opened. From here on services continue as without a backup.
//! 4. The store is copied, and the archive is written in the order of names. A disk of a session is
//!    copied when its turn comes, in its state at that time.
//!
//! So every file that the copy of the store names is in the archive, and every transaction that was
//! answered before the backup began is in the copy.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use node::clock;
use node::removals::RemovalGate;
use node::store::{CopyProgress, SqlStore, SqlStoreError, StoreDialect, StoreSnapshot};
use node::task;
use sessions::{SessionFileNames, Sessions};
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;

use super::archive::{ArchivedContent, BackupArchive};
use super::manifest::{
    BackupManifest, BackupOmission, BackupPart, BackupReport, DATA_PREFIX, FORMAT, KEY_FILES,
    OBJECTS, STORE_NAME, SkippedFiles, WAREHOUSE,
};
use super::staging::{StagedFiles, open_held};

/// Directory of objects that are being written.
const UNFINISHED: &str = ".new";
/// Directories of images of sessions.
const DISKS: &str = "sessions/disks";
const LAYERS: &str = "sessions/layers";

/// Sources of a backup.
#[derive(Clone)]
pub(super) struct BackupSources {
    pub(super) data_dir: PathBuf,
    pub(super) store: SqlStore,
    pub(super) sessions: Sessions,
    /// Gate that all services of this server pass to remove files.
    pub(super) removals: RemovalGate,
    pub(super) node: String,
    /// True if warehouses are in the store.
    pub(super) has_catalog: bool,
    /// Data outside the data directory, by the configuration.
    pub(super) elsewhere: Vec<BackupOmission>,
    /// Bytes that must stay free on the file system of the data directory.
    pub(super) free_bytes_min: u64,
}

impl std::fmt::Debug for BackupSources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackupSources").field("data_dir", &self.data_dir).finish_non_exhaustive()
    }
}

/// Error of a backup that its caller can resolve: not enough free space.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoRoom(String);

/// Backup whose files are held.
pub(super) struct HeldBackup {
    sources: Arc<BackupSources>,
    staged: StagedFiles,
    snapshot: Option<StoreSnapshot>,
    /// Ids of disks, by their names below the data directory.
    disks: HashMap<String, String>,
    pub(super) manifest: BackupManifest,
    /// Lock of the backup; the last field, so that the files are dropped before it is released.
    _running: OwnedMutexGuard<()>,
}

/// Takes a snapshot and holds the files that belong to it.
pub(super) async fn hold(
    sources: Arc<BackupSources>,
    running: OwnedMutexGuard<()>,
) -> Result<HeldBackup> {
    let closed = sources.removals.close().await;
    let elsewhere = match sources.store.dialect() {
        StoreDialect::Sqlite => None,
        // These names come from no snapshot, but from a time after which none of the files is
        // removed.
        StoreDialect::Postgres => {
            let sessions = sources.sessions.clone();
            let read = sources.store.read("backup.files", move |it| {
                sessions.backup().map(|backup| backup.files_in(it)).transpose()
            });
            read.await.context("read the store")?
        }
    };
    // Runs to its end, with the lock and the closed gate, even if the caller is cancelled.
    let held = task::blocking(move || {
        let held = hold_files(sources, elsewhere, running);
        drop(closed);
        held
    });
    held.await.context("hold the files of a backup")?
}

/// `names` are the session files according to an external store.
fn hold_files(
    sources: Arc<BackupSources>,
    mut names: Option<SessionFileNames>,
    running: OwnedMutexGuard<()>,
) -> Result<HeldBackup> {
    let mut staged = StagedFiles::begin(&sources.data_dir)?;
    let created = clock::rfc3339_of_ms(clock::wall_ms());
    let snapshot = sources.store.snapshot().context("take a snapshot of the store")?;
    let mut parts = Vec::new();
    let mut not_included = sources.elsewhere.clone();
    if let Some(snapshot) = &snapshot {
        let bytes = snapshot.bytes()?;
        check_room(&sources, bytes)?;
        parts.push(BackupPart { name: "store".to_owned(), files: 1, bytes });
        let read = read_names(&sources, snapshot).context("read the snapshot of the store")?;
        names = read.sessions;
        not_included.extend(read.elsewhere);
    }
    let mut keys = BackupPart { name: "keys and tokens".to_owned(), files: 0, bytes: 0 };
    for name in KEY_FILES {
        keys.add(&staged.hold_file(&sources.data_dir.join(name), name)?);
    }
    parts.push(keys);
    for (name, leave) in [(OBJECTS, &[UNFINISHED][..]), (WAREHOUSE, &[])] {
        parts.push(staged.hold_tree(&sources.data_dir.join(name), name, leave)?);
    }
    let mut disks = HashMap::new();
    let mut images = BackupPart { name: "sessions".to_owned(), files: 0, bytes: 0 };
    let names = match names {
        Some(names) => names,
        None => {
            not_included.push(BackupOmission {
                what: "disks of sessions, which are not available on this server".to_owned(),
                remedy: "`cove doctor` lists what they need; then back up again".to_owned(),
            });
            SessionFileNames::default()
        }
    };
    for (name, id) in names.disks {
        let name = format!("{DISKS}/{name}");
        images.add(&staged.hold_file(&sources.data_dir.join(&name), &name)?);
        disks.insert(name, id);
    }
    for name in names.layers {
        let name = format!("{LAYERS}/{name}");
        images.add(&staged.hold_file(&sources.data_dir.join(&name), &name)?);
    }
    parts.push(images);
    let manifest = BackupManifest {
        format: FORMAT,
        cove: env!("CARGO_PKG_VERSION").to_owned(),
        node: sources.node.clone(),
        data_dir: sources.data_dir.display().to_string(),
        created,
        bytes: parts.iter().map(|part| part.bytes).sum(),
        parts,
        not_included,
    };
    Ok(HeldBackup { sources, staged, snapshot, disks, manifest, _running: running })
}

impl BackupPart {
    fn add(&mut self, other: &BackupPart) {
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// Rejects a copy that would use up the free space of the data directory.
fn check_room(sources: &BackupSources, bytes: u64) -> Result<()> {
    let stat = rustix::fs::statvfs(&sources.data_dir)?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let needed = bytes.saturating_add(sources.free_bytes_min);
    if free < needed {
        bail!(NoRoom(format!(
            "a copy of the store needs {needed} bytes of room in the data directory, and {free} \
             are free"
        )));
    }
    Ok(())
}

/// Files that the copy of the store names.
struct NamedFiles {
    sessions: Option<SessionFileNames>,
    elsewhere: Vec<BackupOmission>,
}

fn read_names(
    sources: &BackupSources,
    snapshot: &StoreSnapshot,
) -> Result<NamedFiles, SqlStoreError> {
    snapshot.read(|copy| {
        let sessions = sources.sessions.backup();
        let sessions = sessions.map(|backup| backup.files_in(copy)).transpose()?;
        let mut elsewhere = Vec::new();
        if sources.has_catalog {
            let own = format!("file://{}/", sources.data_dir.join(WAREHOUSE).display());
            for (name, locations) in catalog::store::warehouse_locations(copy)? {
                let others = locations.into_iter().filter(|it| !format!("{it}/").starts_with(&own));
                elsewhere.extend(others.map(|location| omitted_warehouse(&name, &location)));
            }
        }
        Ok(NamedFiles { sessions, elsewhere })
    })
}

/// Returns the omission for tables that are not below the data directory.
fn omitted_warehouse(name: &str, location: &str) -> BackupOmission {
    let remedy = match location.starts_with("file:") {
        true => "copy the directory after this backup",
        false => {
            "let the bucket keep deleted versions for as long as this backup may be restored, and \
             copy it after this backup"
        }
    };
    BackupOmission {
        what: format!("tables of the warehouse `{name}` in {location}"),
        remedy: remedy.to_owned(),
    }
}

impl HeldBackup {
    /// Writes the archive. `runtime` runs requests to services; the copy of the store stops when
    /// `is_wanted` returns false. Blocks.
    pub(super) fn write<W: Write>(
        mut self,
        out: W,
        runtime: &Handle,
        is_wanted: impl Fn() -> bool,
    ) -> Result<W> {
        let sums = self.staged.beside("sums");
        let sums = File::options().read(true).write(true).create_new(true).open(sums);
        let mut writer =
            BackupArchive::begin(out, sums.context("make the file of sums")?, &self.manifest)?;
        if let Some(snapshot) = self.snapshot.take() {
            let wanted = || match is_wanted() {
                true => CopyProgress::Continue,
                false => CopyProgress::Stop,
            };
            let copy = self.staged.data().join(STORE_NAME);
            snapshot.copy_to(&copy, wanted).context("copy the store")?;
        }
        let mut report = BackupReport {
            skipped: std::mem::take(&mut self.staged.skipped),
            ..BackupReport::default()
        };
        let data = self.staged.data();
        self.write_directory(&mut writer, &data, "", &mut report.shortened, runtime)?;
        writer.finish(report)
    }

    fn write_directory<W: Write>(
        &self,
        writer: &mut BackupArchive<W>,
        directory: &Path,
        prefix: &str,
        shortened: &mut SkippedFiles,
        runtime: &Handle,
    ) -> Result<()> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().into_string().ok();
            names.push((name.context("a held file has no plain name")?, entry.file_type()?));
        }
        names.sort_unstable_by(|one, next| one.0.cmp(&next.0));
        for (name, kind) in names {
            let (path, below) = (directory.join(&name), format!("{prefix}{name}"));
            if kind.is_dir() {
                let prefix = format!("{below}/");
                self.write_directory(writer, &path, &prefix, shortened, runtime)?;
                continue;
            }
            let mut file = self.opened(&path, &below, runtime)?;
            let name = format!("{DATA_PREFIX}{below}");
            let written = writer.file(&name, &mut file);
            if written.with_context(|| format!("archive `{below}`"))? == ArchivedContent::Shortened
            {
                shortened.add(below);
            }
            // Frees the space of files that services have removed meanwhile.
            fs::remove_file(&path)?;
        }
        Ok(())
    }

    /// Opens a held file; for a disk, a copy that is consistent at one time.
    fn opened(&self, path: &Path, below: &str, runtime: &Handle) -> Result<File> {
        let Some(id) = self.disks.get(below) else { return open_held(path) };
        let copy = self.staged.beside("disk.img");
        let backup = self.sources.sessions.backup().context("the sessions of this server")?;
        let copied = backup.copy_disk(id, path, &copy);
        runtime.block_on(copied).with_context(|| format!("copy the disk {id}"))?;
        let file = open_held(&copy)?;
        fs::remove_file(&copy)?;
        ensure!(file.metadata()?.len() > 0, "the copy of the disk {id} is empty");
        Ok(file)
    }
}
