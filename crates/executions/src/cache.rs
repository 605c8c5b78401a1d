//! The compile cache, keyed by the hash of all inputs: an equal compilation is done once, for any
//! number of repeated or concurrent requests.
//!
//! Lookups use no names. A key is the hash of everything that the result depends on, including the
//! tenant unless tenants share: otherwise the response time would reveal that another tenant
//! compiled the same program. Results are in sealed anonymous files that no program can write to;
//! their size is bounded, and they end with the process.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use sandbox::{ProgramExit, SandboxCommand, WorkspaceFile};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

/// Maximum number of descriptors of all kept files. A server with a low limit has a thousand.
const FILES_MAX: usize = 512;
/// Size of an entry in addition to its files, in bytes.
const ENTRY_BYTES: u64 = 1024;
/// Changes when the meaning of hashed or kept data changes.
const KEY_VERSION: &str = "cove compile 1";

/// Hash of everything that a compilation depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CompileKey([u8; 32]);

/// A successful compilation.
#[derive(Debug)]
pub(crate) struct CompiledProgram {
    /// Exit of the compiler, with its output.
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
    /// The result was in the cache.
    Hit(Arc<CompiledProgram>),
    /// Another request was compiling it, with this result.
    Joined(CompileEnd),
    /// Not in the cache: the caller compiles it.
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
    /// Keys by last use; the first is evicted first.
    order: BTreeMap<u64, CompileKey>,
    /// Running compilations; bounded by the number of running executions.
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
    /// Creates a cache of at most `bytes_max` bytes; if it is 0, nothing is kept, but equal
    /// concurrent compilations are still done once.
    pub(crate) fn new(bytes_max: u64, tenants: CacheSharing) -> CompileCache {
        CompileCache { bytes_max, tenants, state: Arc::default() }
    }

    /// Returns the key of a compilation. `tools` identifies the compiler. The limits are included,
    /// because the result may depend on them.
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
                // Shared content is created here and identified by its inputs; a request has none.
                // Hashed by identity, so that a mistake costs a hit and never mixes programs.
                sandbox::WorkspaceContent::Shared(file) => hasher.number(Arc::as_ptr(file).addr()),
            }
        }
        CompileKey(hasher.0.finalize().into())
    }

    /// Looks a compilation up. If another request compiles the same, waits for its result; if that
    /// request gives up, the caller is the next to try.
    ///
    /// Cancel-safe.
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

    /// Keeps `compiled`, and evicts the least recently used entries if there is no room.
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

/// The request that compiles. Dropping it without a result makes another waiting request compile.
#[derive(Debug)]
pub(crate) struct CompileLeader<'a> {
    cache: &'a CompileCache,
    key: CompileKey,
    sender: watch::Sender<Option<CompileEnd>>,
}

impl CompileLeader<'_> {
    /// Publishes the result to waiting requests, and caches it if it is a success.
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
        // Before the sender is dropped, so that woken requests do not find this flight again.
        self.cache.state.lock().flights.remove(&self.key);
    }
}

/// Hashes fields unambiguously: lists with different boundaries have different hashes.
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
