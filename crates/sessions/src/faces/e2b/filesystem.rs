//! Files of a sandbox over Connect: listing, changing and watching them.
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

/// Base of relative paths.
const HOME: &str = "/home/user";
/// Maximum number of entries in one listing.
const ENTRIES_MAX: usize = 10_000;
/// Maximum depth of a listing, the same as in the sandbox's own interface.
const DEPTH_MAX: u32 = 64;
/// Events buffered per polled watch; older ones are dropped.
const EVENTS_MAX: usize = 10_000;
/// Longest wait for events of earlier changes.
const EVENTS_WAIT_MAX: Duration = Duration::from_secs(2);
/// Names that one watch remembers; files beyond it are reported as new each time.
const NAMES_MAX: usize = 50_000;
/// Prefix of attributes that hold metadata.
const METADATA_PREFIX: &str = "e2b.";
/// Maximum number of metadata entries of one file, and maximum bytes of one value.
pub(super) const METADATA_MAX: usize = 64;
/// Entries whose metadata is read concurrently.
const LOOKS_MAX: usize = 16;

/// Resolves a path as the sandbox does: relative paths begin at the home directory.
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
    // Creates the target's parent directory, as E2B does.
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
        // Removing a missing path succeeds, as with E2B.
        Ok(()) | Err(FilesError::NotFound) => Ok(json!({})),
        Err(error) => Err(about(error, &path)),
    }
}

pub(super) async fn list(files: &SandboxFiles, request: ListRequest) -> Result<Value, RpcError> {
    let path = at_home(&request.path);
    let depth = request.depth.clamp(1, DEPTH_MAX);
    // A listing follows a link to its directory.
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

/// Returns the entry at a path.
async fn look(files: &SandboxFiles, path: &str) -> Result<Value, RpcError> {
    let entry = files.stat(path, LinkMode::Nothing).await.map_err(|error| about(error, path))?;
    Ok(describe(files, entry).await)
}

/// Adds the path to an error.
fn about(error: FilesError, path: &str) -> RpcError {
    match error {
        FilesError::NotFound => RpcError::not_found(format!("path not found: {path}")),
        FilesError::NotADirectory => RpcError::invalid(format!("path is not a directory: {path}")),
        other => other.into(),
    }
}

/// Describes an entry with its metadata, as clients expect it. For a link, includes its target.
pub(super) async fn describe(files: &SandboxFiles, entry: SandboxFileEntry) -> Value {
    let (mut target, mut metadata) = (None, Map::new());
    match entry.kind {
        EntryKind::File => metadata = read_metadata(files, &entry.path).await,
        // A dangling link is described as a link.
        EntryKind::Symlink => target = files.stat(&entry.path, LinkMode::Links).await.ok(),
        EntryKind::Dir | EntryKind::Other => {}
    }
    let mut shown = shown(&entry, target.as_ref());
    if !metadata.is_empty() {
        shown["metadata"] = Value::Object(metadata);
    }
    shown
}

/// Reads the metadata of a file. Empty if it cannot be read, because metadata is optional.
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

/// Sets the metadata of a file.
///
/// # Errors
/// If the file system has no room for it.
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

/// Describes an entry; of a link, with the type of its target.
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
        // Protocol buffers encode 64-bit numbers as JSON strings.
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

/// Returns the absolute path that a dangling link's target text names.
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

/// Returns the name of a user id that sandboxes have; other ids as numbers.
fn owner(id: u32) -> String {
    match id {
        0 => "root".to_owned(),
        1000 => "user".to_owned(),
        65534 => "nobody".to_owned(),
        other => other.to_string(),
    }
}

/// Formats permissions as `ls` does.
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

/// Formats a modification time. Programs may set any time; times without an RFC 3339 form become
/// the epoch.
fn modified(ns: i64) -> String {
    let since = u64::try_from(ns).map_or(Duration::ZERO, Duration::from_nanos);
    clock::rfc3339_ms(std::time::UNIX_EPOCH + since)
}

/// Events of a directory in E2B's terms.
///
/// E2B writes into existing files and then sets their owner; Cove replaces a file in one step,
/// which the kernel reports as a creation. A watch therefore remembers existing names, and a file
/// that appears with content is reported as E2B does: created unless its name is known, then
/// written, then with changed attributes.
#[derive(Debug)]
pub(super) struct DirectoryWatch {
    watch: Watch,
    files: SandboxFiles,
    request: WatchRequest,
    names: HashSet<String>,
    /// Event that is being translated.
    event: Option<WatchEvent>,
    /// Translated events not yet returned.
    pending: VecDeque<Value>,
}

impl DirectoryWatch {
    /// Starts watching a directory.
    ///
    /// # Errors
    /// If it is not a directory, does not exist, or too many directories are watched.
    pub(super) async fn start(
        files: SandboxFiles,
        request: WatchRequest,
    ) -> Result<DirectoryWatch, RpcError> {
        let path = at_home(&request.path);
        let depth = if request.recursive { DEPTH_MAX } else { 1 };
        // List before the watch begins: a file created in between is in neither, which is harmless.
        let there = files.list(&path, depth, ENTRIES_MAX).await;
        let there = there.map_err(|error| about(error, &path))?;
        let below = format!("{}/", files.stat(&path, LinkMode::Links).await?.path);
        let names = there.entries.iter().filter_map(|entry| entry.path.strip_prefix(&below));
        let names = names.map(str::to_owned).collect();
        let depth = if request.recursive { ListDepth::Recursive } else { ListDepth::Single };
        let watch = files.watch(&path, depth).await.map_err(|error| about(error, &path))?;
        Ok(DirectoryWatch { watch, files, request, names, event: None, pending: VecDeque::new() })
    }

    /// Returns the next event; none if the directory or the sandbox has ended. Cancel-safe.
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

    /// Translates an event for clients.
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
            // The protocol has no event for an overflow.
            WatchKind::Overflow => &[],
        };
        let is_gone = matches!(event.kind, WatchKind::Remove | WatchKind::Rename);
        let mut entry = None;
        if self.request.include_entry && !is_gone {
            // The file may have been removed meanwhile.
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

/// Watches that collect events until a client polls them.
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
    /// Starts collecting. The sandbox's limit on watches bounds their number.
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

    /// Takes the collected events; they include every change made before this call.
    ///
    /// # Errors
    /// If there is no such watch.
    pub(super) async fn take(&self, id: &str) -> Result<Value, RpcError> {
        let (events, barrier) = {
            let collectors = self.0.lock();
            let collector = collectors.by_id.get(id).ok_or_else(|| unknown(id))?;
            (Arc::clone(&collector.events), collector.barrier.clone())
        };
        // Later events are returned by the next call.
        drop(time::timeout(EVENTS_WAIT_MAX, barrier.wait()).await);
        let events: Vec<Value> = events.lock().drain(..).collect();
        Ok(json!({ "events": events }))
    }

    /// Stops a watch.
    ///
    /// # Errors
    /// If there is no such watch.
    pub(super) fn remove(&self, id: &str) -> Result<Value, RpcError> {
        self.0.lock().by_id.remove(id).map(|_| json!({})).ok_or_else(|| unknown(id))
    }
}

fn unknown(id: &str) -> RpcError {
    RpcError::not_found(format!("watcher {} not found", super::errors::shown(id)))
}

#[cfg(test)]
mod tests {
    //! JSON form of entries.

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
