//! Responses that list names, or describe a namespace, cached as the bytes to send.
//!
//! A response is stored with the counter of its place ([`NameCounters`]) as of before it was read,
//! and served while the counter is unchanged: a change made through this server is visible to all
//! requests after its response. If other servers change the same store, their changes are not
//! counted, so lists are read from the store each time, unless
//! [`CatalogSettings::pointer_cache`](super::CatalogSettings::pointer_cache) allows older ones.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use iceberg::ident::NamespaceIdent;
use node::clock;
use parking_lot::RwLock;

use super::rights::RightGuard;
use crate::error::Result;
use crate::locks::KeyLocks;
use crate::principal::{AccessRight, CatalogPrincipal, RightTarget};
use crate::store::{NameCount, NameCounters, RelationKind};
use crate::warehouse::Warehouse;

/// Number of shards, each with its own lock.
const PARTS: usize = 16;

/// Bytes of cached responses in memory, by shard.
const PART_BYTES_MAX: usize = 1 << 20;

/// Longest response that is cached, in bytes.
const LIST_BYTES_MAX: usize = PART_BYTES_MAX / 2;

/// Approximate size of an entry beside its bytes.
const OVERHEAD_BYTES: usize = 300;

/// Content of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListContent {
    /// The namespaces directly in it.
    Namespaces,
    /// Tables.
    Tables,
    /// Views.
    Views,
    /// Properties of the namespace.
    Properties,
}

impl ListContent {
    /// Returns the list of its tables, or of its views.
    pub(crate) const fn names_of(kind: RelationKind) -> ListContent {
        match kind {
            RelationKind::Table => ListContent::Tables,
            RelationKind::View => ListContent::Views,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ListKey {
    warehouse: Arc<str>,
    content: ListContent,
    namespace: Option<NamespaceIdent>,
}

#[derive(Debug)]
struct ReadyList {
    body: Bytes,
    count: NameCount,
    read: Instant,
}

#[derive(Debug, Default)]
struct ListPart {
    all: HashMap<ListKey, ReadyList>,
    bytes: usize,
}

/// Cached responses.
#[derive(Debug)]
pub struct ReadyLists {
    rights: RightGuard,
    names: NameCounters,
    hasher: RandomState,
    parts: [RwLock<ListPart>; PARTS],
    /// Locks held while a response is produced.
    locks: Arc<KeyLocks<ListKey>>,
    /// Time for which a response is valid if other servers change the store; `None` if none do.
    lifetime: Option<Duration>,
    bytes: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Counters of cached responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListFigures {
    /// Responses served from the cache.
    pub hits: u64,
    /// Responses that were produced.
    pub misses: u64,
    /// Bytes in memory.
    pub bytes: usize,
}

impl ReadyLists {
    pub(super) fn new(
        rights: RightGuard,
        names: NameCounters,
        kept: Option<Duration>,
    ) -> ReadyLists {
        ReadyLists {
            rights,
            names,
            hasher: RandomState::new(),
            parts: Default::default(),
            locks: Arc::default(),
            lifetime: kept,
            bytes: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    fn part(&self, key: &ListKey) -> &RwLock<ListPart> {
        let hash = self.hasher.hash_one(key);
        &self.parts[usize::try_from(hash % PARTS as u64).unwrap_or(0)]
    }

    fn find(&self, key: &ListKey, count: NameCount) -> Option<Bytes> {
        let part = self.part(key).read();
        let ready = part.all.get(key).filter(|it| it.count == count)?;
        let is_good = self.lifetime.is_none_or(|kept| clock::now() - ready.read < kept);
        is_good.then(|| {
            self.hits.fetch_add(1, Ordering::Relaxed);
            ready.body.clone()
        })
    }

    fn keep(&self, key: ListKey, ready: ReadyList) {
        let bytes = ready.body.len() + OVERHEAD_BYTES;
        if bytes > LIST_BYTES_MAX {
            return;
        }
        let mut part = self.part(&key).write();
        let before = part.bytes;
        if before + bytes > PART_BYTES_MAX {
            // Frequently requested responses are soon cached again: no order of eviction is worth
            // keeping.
            *part = ListPart::default();
        }
        let old = part.all.insert(key, ready).map_or(0, |old| old.body.len() + OVERHEAD_BYTES);
        part.bytes = part.bytes + bytes - old;
        let after = part.bytes;
        drop(part);
        self.bytes.fetch_add(after, Ordering::Relaxed);
        self.bytes.fetch_sub(before, Ordering::Relaxed);
    }

    /// Returns the counters.
    #[must_use]
    pub fn figures(&self) -> ListFigures {
        ListFigures {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Returns the result of [`ReadyLists::ready`], if it is cached.
    pub(crate) fn ready_at_hand(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        content: ListContent,
        namespace: &NamespaceIdent,
    ) -> Option<Bytes> {
        self.rights
            .allow(who, warehouse, AccessRight::Read, RightTarget::Namespace(namespace))
            .ok()?;
        if self.lifetime == Some(Duration::ZERO) {
            return None;
        }
        let count = self.names.count(warehouse.id(), Some(namespace));
        let (warehouse, namespace) = (Arc::clone(warehouse.id()), Some(namespace.clone()));
        self.find(&ListKey { warehouse, content, namespace }, count)
    }

    /// Returns a response about a namespace or a warehouse: a cached one, or one produced by
    /// `make`. Only for responses that are the same for all principals that may read there.
    ///
    /// # Errors
    /// `Forbidden`; those of `make`.
    pub(crate) async fn ready(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        content: ListContent,
        namespace: Option<&NamespaceIdent>,
        make: impl AsyncFnOnce() -> Result<Bytes>,
    ) -> Result<Bytes> {
        let object = namespace.map_or(RightTarget::Warehouse, RightTarget::Namespace);
        self.rights.allow(who, warehouse, AccessRight::Read, object)?;
        if self.lifetime == Some(Duration::ZERO) {
            return make().await;
        }
        let warehouse = Arc::clone(warehouse.id());
        let key = ListKey { warehouse, content, namespace: namespace.cloned() };
        let count = || self.names.count(&key.warehouse, namespace);
        if let Some(body) = self.find(&key, count()) {
            return Ok(body);
        }
        let _lock = self.locks.lock(key.clone()).await;
        // Read before the store: later changes make this response stale.
        let count = count();
        if let Some(body) = self.find(&key, count) {
            return Ok(body);
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let read = clock::now();
        let body = make().await?;
        self.keep(key, ReadyList { body: body.clone(), count, read });
        Ok(body)
    }
}
