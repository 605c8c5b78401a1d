//! The compile cache, by the hash of all inputs: an equal compilation is done once, however often
//! and however many at a time it is asked for.
//!
//! Nothing is found by name. A key is the hash of everything that the result depends on, the tenant
//! included unless tenants share: how fast an answer comes tells whether somebody compiled the same
//! before. What is kept is in sealed anonymous files that no program can write to, is bounded, and
//! ends with the process.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use sandbox::{ProgramExit, SandboxCommand, WorkspaceFile};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

/// Descriptors that all kept files together take. A server with few to spare has a thousand.
const FILES_MAX: usize = 512;
/// Size of an entry beside its files, in bytes.
const ENTRY_BYTES: u64 = 1024;
/// Changes when what is hashed, or what is kept, changes its meaning.
const KEY_VERSION: &str = "cove compile 1";

/// Hash of everything that a compilation depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CompileKey([u8; 32]);

/// A compilation that was successful.
#[derive(Debug)]
pub(crate) struct CompiledProgram {
    /// Exit of the compiler, with what it printed.
    pub(crate) exit: ProgramExit,
    /// Files for the run stage.
    pub(crate) files: Vec<WorkspaceFile>,
}

impl CompiledProgram {
    fn bytes(&self) -> u64 {
        let printed = u64::try_from(self.exit.stdout.len() + self.exit.stderr.len());
        let files: u64 = self.files.iter().map(|file| file.content.len()).sum();
        files.saturating_add(printed.unwrap_or(u64::MAX)).saturating_add(ENTRY_BYTES)
    }
}

/// Result of a compilation.
#[derive(Clone, Debug)]
pub(crate) enum CompileEnd {
    /// Compiled successfully.
    Compiled(Arc<CompiledProgram>),
    /// The compiler refused the program.
    Refused(Arc<ProgramExit>),
}

/// Result of a lookup.
#[derive(Debug)]
pub(crate) enum CacheLookup<'a> {
    /// Compiled before.
    Hit(Arc<CompiledProgram>),
    /// Compiled by another request at this moment, with this result.
    Joined(CompileEnd),
    /// Not there: the caller compiles it.
    Lead(CompileLeader<'a>),
}

/// Lookups by result, and the content of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheStats {
    pub(crate) hits: u64,
    pub(crate) joined: u64,
    pub(crate) misses: u64,
    pub(crate) entries: usize,
    pub(crate) bytes: u64,
}

/// The cache. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct CompileCache {
    bytes_max: u64,
    tenants: CacheSharing,
    state: Arc<Mutex<CompileCacheState>>,
}

/// Rule on sharing compiled programs between tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheSharing {
    Apart,
    Together,
}

#[derive(Debug, Default)]
struct CompileCacheState {
    entries: HashMap<CompileKey, CompileCacheEntry>,
    /// By last use; the first is forgotten first.
    order: BTreeMap<u64, CompileKey>,
    /// Compilations under way; bounded by what runs at one time.
    flights: HashMap<CompileKey, watch::Receiver<Option<CompileEnd>>>,
    uses: u64,
    files: usize,
    stats: CacheStats,
}

#[derive(Debug)]
struct CompileCacheEntry {
    compiled: Arc<CompiledProgram>,
    used: u64,
}

impl CompileCache {
    /// A cache of at most this many bytes; with none, nothing is kept, and equal compilations at
    /// one time are still done once.
    pub(crate) fn new(bytes_max: u64, tenants: CacheSharing) -> CompileCache {
        CompileCache { bytes_max, tenants, state: Arc::default() }
    }

    /// The key of a compilation. `tools` tells which compiler it is. The limits are part of it:
    /// whether a program compiles may depend on them.
    pub(crate) fn key(
        &self,
        tenant: &str,
        tools: &str,
        command: &SandboxCommand,
        files: &[WorkspaceFile],
    ) -> CompileKey {
        let mut hasher = FieldHasher(Sha256::new());
        hasher.field(KEY_VERSION.as_bytes());
        match self.tenants {
            CacheSharing::Apart => hasher.field(tenant.as_bytes()),
            CacheSharing::Together => hasher.number(0),
        }
        hasher.field(tools.as_bytes());
        for strings in [&command.argv, &command.env] {
            hasher.number(strings.len());
            strings.iter().for_each(|word| hasher.field(word));
        }
        hasher.field(format!("{:?} {:?}", command.profile, command.limits).as_bytes());
        hasher.number(command.outputs.len());
        command.outputs.iter().for_each(|name| hasher.field(name.as_bytes()));
        hasher.number(files.len());
        for WorkspaceFile { path, content, executable } in files {
            hasher.field(path.as_bytes());
            hasher.number(usize::from(*executable));
            match content {
                sandbox::WorkspaceContent::Bytes(bytes) => hasher.field(bytes),
                // Shared content comes from here and is named by what it was made of; a request has
                // none. By its identity, so that a mistake costs a hit and never mixes programs.
                sandbox::WorkspaceContent::Shared(file) => hasher.number(Arc::as_ptr(file).addr()),
            }
        }
        CompileKey(hasher.0.finalize().into())
    }

    /// Finds what was compiled before. While another one compiles the same, it waits for that; when
    /// that one is given up, the caller is the next to try.
    ///
    /// May be cancelled.
    pub(crate) async fn find(&self, key: CompileKey) -> CacheLookup<'_> {
        loop {
            let mut flight = {
                let mut state = self.state.lock();
                if let Some(compiled) = state.touch(key) {
                    state.stats.hits += 1;
                    return CacheLookup::Hit(compiled);
                }
                match state.flights.get(&key) {
                    Some(flight) => flight.clone(),
                    None => {
                        let (sender, receiver) = watch::channel(None);
                        state.flights.insert(key, receiver);
                        state.stats.misses += 1;
                        return CacheLookup::Lead(CompileLeader { cache: self, key, sender });
                    }
                }
            };
            let ended = flight.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone());
            if let Some(ended) = ended {
                self.state.lock().stats.joined += 1;
                return CacheLookup::Joined(ended);
            }
        }
    }

    pub(crate) fn stats(&self) -> CacheStats {
        let state = self.state.lock();
        CacheStats { entries: state.entries.len(), ..state.stats }
    }
}

impl CompileCacheState {
    fn touch(&mut self, key: CompileKey) -> Option<Arc<CompiledProgram>> {
        let entry = self.entries.get_mut(&key)?;
        self.order.remove(&entry.used);
        self.uses += 1;
        entry.used = self.uses;
        self.order.insert(entry.used, key);
        Some(Arc::clone(&entry.compiled))
    }

    /// Keeps `compiled`, and forgets what was not used for longest where there is no room.
    fn keep(&mut self, key: CompileKey, compiled: Arc<CompiledProgram>, bytes_max: u64) {
        let bytes = compiled.bytes();
        if bytes > bytes_max || compiled.files.len() > FILES_MAX || self.entries.contains_key(&key)
        {
            return;
        }
        while self.stats.bytes.saturating_add(bytes) > bytes_max
            || self.files + compiled.files.len() > FILES_MAX
        {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            if let Some(CompileCacheEntry { compiled, .. }) = self.entries.remove(&oldest) {
                self.stats.bytes -= compiled.bytes();
                self.files -= compiled.files.len();
            }
        }
        self.stats.bytes += bytes;
        self.files += compiled.files.len();
        self.uses += 1;
        self.order.insert(self.uses, key);
        self.entries.insert(key, CompileCacheEntry { compiled, used: self.uses });
    }
}

/// The one who compiles. Dropping it without a result makes another one of those who wait do it.
#[derive(Debug)]
pub(crate) struct CompileLeader<'a> {
    cache: &'a CompileCache,
    key: CompileKey,
    sender: watch::Sender<Option<CompileEnd>>,
}

impl CompileLeader<'_> {
    /// Tells those who wait, and keeps what was made.
    pub(crate) fn publish(self, ended: CompileEnd) {
        if let CompileEnd::Compiled(compiled) = &ended {
            let compiled = Arc::clone(compiled);
            self.cache.state.lock().keep(self.key, compiled, self.cache.bytes_max);
        }
        self.sender.send_replace(Some(ended));
    }
}

impl Drop for CompileLeader<'_> {
    fn drop(&mut self) {
        // Before the sender goes: who wakes must not find this flight again.
        self.cache.state.lock().flights.remove(&self.key);
    }
}

/// Hashes fields so that no two lists of them run into each other.
struct FieldHasher(Sha256);

impl FieldHasher {
    fn number(&mut self, number: usize) {
        self.0.update(u64::try_from(number).unwrap_or(u64::MAX).to_le_bytes());
    }

    fn field(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.0.update(bytes);
    }
}

#[cfg(test)]
mod tests;
