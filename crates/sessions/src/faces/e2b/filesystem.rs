//! Files of a sandbox over Connect: what there is, what happens to it.
//!
//! # References
//! - <https://github.com/e2b-dev/infra/tree/main/packages/envd/spec>

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use node::clock;
use parking_lot::Mutex;
use sandbox::{
    EntryKind, FilesError, LinkMode, ListDepth, MissingParents, SandboxFileEntry, SandboxFiles,
    Watch, WatchBarrier, WatchEvent, WatchKind,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::task::AbortHandle;
use tokio::time;

use super::errors::RpcError;

/// Start of relative paths.
const HOME: &str = "/home/user";
/// Entries of one listing.
const ENTRIES_MAX: usize = 10_000;
/// Depth of a listing, as deep as the sandbox's own.
const DEPTH_MAX: u32 = 64;
/// Events of one watch that wait to be asked for; older ones are dropped.
const EVENTS_MAX: usize = 10_000;
/// Longest wait for the events of what was done before.
const EVENTS_WAIT_MAX: Duration = Duration::from_secs(2);
/// Names that one watch remembers; what is beyond is told as new each time.
const NAMES_MAX: usize = 50_000;
/// Prefix of attributes that hold metadata.
const METADATA_PREFIX: &str = "e2b.";
/// Entries of metadata of one file, and bytes of one value.
pub(super) const METADATA_MAX: usize = 64;
/// Entries whose metadata is read at the same time.
const LOOKS_MAX: usize = 16;

/// A path as the sandbox has it: relative ones begin at home.
pub(super) fn at_home(path: &str) -> String {
    match path {
        "" | "." => HOME.to_owned(),
        _ if path.starts_with('/') || path == "~" || path.starts_with("~/") => path.to_owned(),
        _ => format!("{HOME}/{path}"),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PathRequest {
    path: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MoveRequest {
    source: String,
    destination: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListRequest {
    path: String,
    depth: u32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WatchRequest {
    path: String,
    recursive: bool,
    include_entry: bool,
}

pub(super) async fn stat(files: &SandboxFiles, request: PathRequest) -> Result<Value, RpcError> {
    let path = at_home(&request.path);
    Ok(json!({ "entry": look(files, &path).await? }))
}

pub(super) async fn make_dir(
    files: &SandboxFiles,
    request: PathRequest,
) -> Result<Value, RpcError> {
    let path = at_home(&request.path);
    if !files.make_dir(&path, MissingParents::Make).await? {
        return Err(RpcError::new("already_exists", format!("directory already exists: {path}")));
    }
    Ok(json!({ "entry": look(files, &path).await? }))
}

pub(super) async fn rename(files: &SandboxFiles, request: MoveRequest) -> Result<Value, RpcError> {
    let (source, destination) = (at_home(&request.source), at_home(&request.destination));
    // The directory that it goes to is made, as E2B does.
    if let Some((parent, _)) = destination.rsplit_once('/').filter(|(parent, _)| !parent.is_empty())
    {
        files.stat(&source, LinkMode::Nothing).await.map_err(|error| about(error, &source))?;
        files.make_dir(parent, MissingParents::Make).await?;
    }
    let renamed = files.rename(&source, &destination).await;
    renamed.map_err(|error| about(error, &source))?;
    Ok(json!({ "entry": look(files, &destination).await? }))
}

pub(super) async fn remove(files: &SandboxFiles, request: PathRequest) -> Result<Value, RpcError> {
    let path = at_home(&request.path);
    match files.remove(&path, ListDepth::Recursive).await {
        // What is not there is as good as removed, as for E2B.
        Ok(()) | Err(FilesError::NotFound) => Ok(json!({})),
        Err(error) => Err(about(error, &path)),
    }
}

pub(super) async fn list(files: &SandboxFiles, request: ListRequest) -> Result<Value, RpcError> {
    let path = at_home(&request.path);
    let depth = request.depth.clamp(1, DEPTH_MAX);
    // The directory that a link leads to is what is meant.
    let listing = files.list(&path, depth, ENTRIES_MAX).await;
    let listing = listing.map_err(|error| about(error, &path))?;
    if listing.cut {
        let message = format!("{path} has more than {ENTRIES_MAX} entries at this depth");
        return Err(RpcError::new("resource_exhausted", message));
    }
    let described = listing.entries.into_iter().map(|entry| describe(files, entry));
    let entries: Vec<Value> = stream::iter(described).buffered(LOOKS_MAX).collect().await;
    Ok(json!({ "entries": entries }))
}

/// Returns what is at a path.
async fn look(files: &SandboxFiles, path: &str) -> Result<Value, RpcError> {
    let entry = files.stat(path, LinkMode::Nothing).await.map_err(|error| about(error, path))?;
    Ok(describe(files, entry).await)
}

/// Says which path an error is about.
fn about(error: FilesError, path: &str) -> RpcError {
    match error {
        FilesError::NotFound => RpcError::not_found(format!("path not found: {path}")),
        FilesError::NotADirectory => RpcError::invalid(format!("path is not a directory: {path}")),
        other => other.into(),
    }
}

/// An entry with its metadata, as clients see it. Of a link they are told what it leads to.
pub(super) async fn describe(files: &SandboxFiles, entry: SandboxFileEntry) -> Value {
    let (mut target, mut metadata) = (None, Map::new());
    match entry.kind {
        EntryKind::File => metadata = read_metadata(files, &entry.path).await,
        // One that leads nowhere stays a link.
        EntryKind::Symlink => target = files.stat(&entry.path, LinkMode::Links).await.ok(),
        EntryKind::Dir | EntryKind::Other => {}
    }
    let mut shown = shown(&entry, target.as_ref());
    if !metadata.is_empty() {
        shown["metadata"] = Value::Object(metadata);
    }
    shown
}

/// The metadata of a file. None where it cannot be read: it is an extra.
pub(super) async fn read_metadata(files: &SandboxFiles, path: &str) -> Map<String, Value> {
    let mut metadata = Map::new();
    let names = files.attributes(path).await.unwrap_or_default();
    let names = names.iter().filter_map(|name| name.strip_prefix(METADATA_PREFIX));
    for key in names.take(METADATA_MAX) {
        let name = format!("{METADATA_PREFIX}{key}");
        if let Ok(value) = files.attribute(path, &name).await {
            metadata.insert(key.to_owned(), String::from_utf8_lossy(&value).into());
        }
    }
    metadata
}

/// Gives a file its metadata.
///
/// # Errors
/// When the file system has no room for it.
pub(super) async fn set_metadata(
    files: &SandboxFiles,
    path: &str,
    metadata: &[(String, String)],
) -> Result<(), FilesError> {
    for (key, value) in metadata {
        let name = format!("{METADATA_PREFIX}{key}");
        files.set_attribute(path, &name, Some(value.as_bytes())).await?;
    }
    Ok(())
}

/// An entry, and where it is a link what is at its end.
fn shown(entry: &SandboxFileEntry, target: Option<&SandboxFileEntry>) -> Value {
    let kind = match target.unwrap_or(entry).kind {
        EntryKind::File | EntryKind::Other => "FILE_TYPE_FILE",
        EntryKind::Dir => "FILE_TYPE_DIRECTORY",
        EntryKind::Symlink => "FILE_TYPE_SYMLINK",
    };
    let mut shown = json!({
        "name": entry.name,
        "type": kind,
        "path": entry.path,
        // A number of 64 bits is a text in the JSON of protocol buffers.
        "size": entry.size.to_string(),
        "mode": entry.mode & 0o777,
        "permissions": permissions(entry),
        "owner": owner(entry.uid),
        "group": owner(entry.gid),
        "modifiedTime": modified(entry.modified_ns),
    });
    if let Some(written) = &entry.symlink_target {
        let resolved = target.and_then(|target| target.resolved.clone());
        shown["symlinkTarget"] = json!(resolved.unwrap_or_else(|| beside(&entry.path, written)));
        shown["isSymlink"] = json!(true);
    }
    shown
}

/// The absolute path of what is written in a link that leads nowhere.
fn beside(link: &str, target: &str) -> String {
    let parent = link.rsplit_once('/').map_or("", |(parent, _)| parent);
    let whole =
        if target.starts_with('/') { target.to_owned() } else { format!("{parent}/{target}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Names of the two users that a sandbox has.
fn owner(id: u32) -> String {
    match id {
        0 => "root".to_owned(),
        1000 => "user".to_owned(),
        65534 => "nobody".to_owned(),
        other => other.to_string(),
    }
}

/// As `ls` shows them.
fn permissions(entry: &SandboxFileEntry) -> String {
    let mut text = String::from(match entry.kind {
        EntryKind::File => '-',
        EntryKind::Dir => 'd',
        EntryKind::Symlink => 'L',
        EntryKind::Other => 'p',
    });
    for (index, letter) in "rwxrwxrwx".chars().enumerate() {
        text.push(if entry.mode >> (8 - index) & 1 == 1 { letter } else { '-' });
    }
    text
}

/// Programs may set any time; what RFC 3339 has no form for is its beginning.
fn modified(ns: i64) -> String {
    let since = u64::try_from(ns).map_or(Duration::ZERO, Duration::from_nanos);
    clock::rfc3339_ms(std::time::UNIX_EPOCH + since)
}

/// Events of a directory in E2B's terms.
///
/// E2B writes into files that are there, and then sets their owner; here a file is replaced in one
/// step, which the kernel tells as a new one. So it is remembered what is there, and content that
/// comes at once is told as E2B tells it: as new unless it is known, as written, and as one whose
/// attributes have changed.
#[derive(Debug)]
pub(super) struct DirectoryWatch {
    watch: Watch,
    files: SandboxFiles,
    request: WatchRequest,
    names: HashSet<String>,
    /// Being told at present.
    event: Option<WatchEvent>,
    /// Told next.
    pending: VecDeque<Value>,
}

impl DirectoryWatch {
    /// Begins to watch.
    ///
    /// # Errors
    /// When it is no directory, is not there, or too many are watched.
    pub(super) async fn start(
        files: SandboxFiles,
        request: WatchRequest,
    ) -> Result<DirectoryWatch, RpcError> {
        let path = at_home(&request.path);
        let depth = if request.recursive { DEPTH_MAX } else { 1 };
        // Before the watch begins: what is new in between is in neither, and does no harm.
        let there = files.list(&path, depth, ENTRIES_MAX).await;
        let there = there.map_err(|error| about(error, &path))?;
        let below = format!("{}/", files.stat(&path, LinkMode::Links).await?.path);
        let names = there.entries.iter().filter_map(|entry| entry.path.strip_prefix(&below));
        let names = names.map(str::to_owned).collect();
        let depth = if request.recursive { ListDepth::Recursive } else { ListDepth::Single };
        let watch = files.watch(&path, depth).await.map_err(|error| about(error, &path))?;
        Ok(DirectoryWatch { watch, files, request, names, event: None, pending: VecDeque::new() })
    }

    /// Returns what happens next; none when the directory is gone, or the sandbox. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(told) = self.pending.pop_front() {
                return Some(told);
            }
            if self.event.is_none() {
                self.event = Some(self.watch.next().await?);
            }
            let Some(event) = &self.event else { continue };
            let told = self.told(event).await;
            if let Some(WatchEvent { kind, path }) = self.event.take() {
                self.remember(kind, path);
            }
            self.pending.extend(told);
        }
    }

    /// An event as clients hear of it.
    async fn told(&self, event: &WatchEvent) -> Vec<Value> {
        let kinds: &[&str] = match event.kind {
            WatchKind::Create => {
                let there = self.files.stat(self.full(&event.path), LinkMode::Nothing).await.ok();
                let has_content = there.is_some_and(|it| it.kind == EntryKind::File && it.size > 0);
                match (self.names.contains(&event.path), has_content) {
                    (true, _) => &["EVENT_TYPE_WRITE", "EVENT_TYPE_CHMOD"],
                    (false, true) => &["EVENT_TYPE_CREATE", "EVENT_TYPE_WRITE", "EVENT_TYPE_CHMOD"],
                    (false, false) => &["EVENT_TYPE_CREATE"],
                }
            }
            WatchKind::Write => &["EVENT_TYPE_WRITE"],
            WatchKind::Chmod => &["EVENT_TYPE_CHMOD"],
            WatchKind::Remove => &["EVENT_TYPE_REMOVE"],
            WatchKind::Rename => &["EVENT_TYPE_RENAME"],
            // Clients have no word for this.
            WatchKind::Overflow => &[],
        };
        let is_gone = matches!(event.kind, WatchKind::Remove | WatchKind::Rename);
        let mut entry = None;
        if self.request.include_entry && !is_gone {
            // It may have gone meanwhile.
            entry = look(&self.files, &self.full(&event.path)).await.ok();
        }
        let one = |kind: &&str| {
            let mut told = json!({ "name": event.path, "type": kind });
            if let Some(entry) = &entry {
                told["entry"] = entry.clone();
            }
            told
        };
        kinds.iter().map(one).collect()
    }

    fn remember(&mut self, kind: WatchKind, path: String) {
        match kind {
            WatchKind::Create if self.names.len() < NAMES_MAX => {
                self.names.insert(path);
            }
            WatchKind::Remove | WatchKind::Rename => {
                self.names.remove(&path);
            }
            WatchKind::Create | WatchKind::Write | WatchKind::Chmod | WatchKind::Overflow => {}
        }
    }

    fn full(&self, path: &str) -> String {
        format!("{}/{path}", at_home(&self.request.path))
    }
}

/// Watches that collect what happens until somebody asks.
#[derive(Debug, Default)]
pub(super) struct PolledWatches(Mutex<WatchCollectors>);

#[derive(Debug, Default)]
struct WatchCollectors {
    next: u64,
    by_id: HashMap<String, WatchCollector>,
}

#[derive(Debug)]
struct WatchCollector {
    events: Arc<Mutex<VecDeque<Value>>>,
    barrier: WatchBarrier,
    task: AbortHandle,
}

impl Drop for WatchCollector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PolledWatches {
    /// Begins to collect. The number of watches is bounded by that of the sandbox's.
    ///
    /// # Errors
    /// As [`DirectoryWatch::start`].
    pub(super) async fn create(
        &self,
        files: SandboxFiles,
        request: WatchRequest,
    ) -> Result<Value, RpcError> {
        let mut watching = DirectoryWatch::start(files, request).await?;
        let barrier = watching.watch.barrier();
        let events = Arc::new(Mutex::new(VecDeque::new()));
        let collected = Arc::clone(&events);
        let task = node::task::spawn(async move {
            while let Some(told) = watching.next().await {
                let mut events = collected.lock();
                if events.len() >= EVENTS_MAX {
                    events.pop_front();
                }
                events.push_back(told);
            }
        });
        let mut collectors = self.0.lock();
        collectors.next += 1;
        let id = format!("w{}", collectors.next);
        let collector = WatchCollector { events, barrier, task: task.abort_handle() };
        collectors.by_id.insert(id.clone(), collector);
        Ok(json!({ "watcherId": id }))
    }

    /// Takes what has happened: whatever was done before this is among it.
    ///
    /// # Errors
    /// When there is no such watch.
    pub(super) async fn take(&self, id: &str) -> Result<Value, RpcError> {
        let (events, barrier) = {
            let collectors = self.0.lock();
            let collector = collectors.by_id.get(id).ok_or_else(|| unknown(id))?;
            (Arc::clone(&collector.events), collector.barrier.clone())
        };
        // What comes later is there to be asked for next time.
        drop(time::timeout(EVENTS_WAIT_MAX, barrier.wait()).await);
        let events: Vec<Value> = events.lock().drain(..).collect();
        Ok(json!({ "events": events }))
    }

    /// Stops one.
    ///
    /// # Errors
    /// When there is no such watch.
    pub(super) fn remove(&self, id: &str) -> Result<Value, RpcError> {
        self.0.lock().by_id.remove(id).map(|_| json!({})).ok_or_else(|| unknown(id))
    }
}

fn unknown(id: &str) -> RpcError {
    RpcError::not_found(format!("watcher {} not found", super::errors::shown(id)))
}

#[cfg(test)]
mod tests {
    //! Shape of entries.

    use super::*;

    #[test]
    fn relative_paths_begin_at_home() {
        for (path, expected) in [
            ("", "/home/user"),
            (".", "/home/user"),
            ("a/b", "/home/user/a/b"),
            ("/a", "/a"),
            ("~", "~"),
            ("~/a", "~/a"),
            ("~a", "/home/user/~a"),
        ] {
            assert_eq!(at_home(path), expected);
        }
    }

    #[test]
    fn entries_look_as_in_the_json_of_protocol_buffers() {
        let entry = SandboxFileEntry {
            name: "link".to_owned(),
            path: "/home/user/link".to_owned(),
            kind: EntryKind::Symlink,
            size: 1 << 40,
            mode: 0o4754,
            uid: 1000,
            gid: 0,
            modified_ns: 1_500_000_000,
            symlink_target: Some("to".to_owned()),
            resolved: None,
        };
        let expected = json!({
            "name": "link", "type": "FILE_TYPE_SYMLINK", "path": "/home/user/link",
            "size": "1099511627776", "mode": 0o754, "permissions": "Lrwxr-xr--",
            "owner": "user", "group": "root", "modifiedTime": "1970-01-01T00:00:01.500Z",
            "symlinkTarget": "/home/user/to", "isSymlink": true,
        });
        assert_eq!(shown(&entry, None), expected);
        let before = SandboxFileEntry { modified_ns: -1, ..entry.clone() };
        assert_eq!(shown(&before, None)["modifiedTime"], "1970-01-01T00:00:00.000Z");
        let target = SandboxFileEntry {
            kind: EntryKind::Dir,
            symlink_target: None,
            resolved: Some("/workspace/d".to_owned()),
            ..entry.clone()
        };
        let shown = shown(&entry, Some(&target));
        assert_eq!(shown["type"], "FILE_TYPE_DIRECTORY");
        assert_eq!(
            (&shown["symlinkTarget"], &shown["isSymlink"]),
            (&json!("/workspace/d"), &json!(true))
        );
    }

    #[test]
    fn links_that_lead_nowhere_have_an_absolute_target() {
        for (link, target, expected) in [
            ("/home/user/a", "b", "/home/user/b"),
            ("/home/user/a", "../b/./c", "/home/b/c"),
            ("/a", "../../b", "/b"),
            ("/home/user/a", "/x//y", "/x/y"),
        ] {
            assert_eq!(beside(link, target), expected, "{link} {target}");
        }
    }
}
