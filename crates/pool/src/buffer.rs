//! Buffers that are reused: size classes, a cache per thread, and a bounded overflow that all
//! threads share.
//!
//! Taking and returning a buffer touches nothing but the thread's own cache. The overflow, under a
//! lock, serves a thread whose cache is empty and takes what a full cache can not: buffers travel
//! from threads that only return to threads that only take. Contents are not cleared on return,
//! because the next user overwrites them and can not see what it has not written; a
//! [`SecretBuffer`] is zeroed, because memory dumps and bugs can.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Smallest class: 256 bytes.
const CLASS_BITS_MIN: u32 = 8;
/// Classes double up to 1 MiB.
const CLASSES: usize = 13;
/// Capacity of the largest class; larger buffers are allocated and freed, never kept.
pub const BUFFER_BYTES_MAX: usize = 1 << (CLASS_BITS_MIN as usize + CLASSES - 1);

/// Bounds of a [`BufferPool`].
#[derive(Clone, Debug)]
pub struct BufferConfig {
    /// Buffers of one class that one thread keeps.
    pub per_thread_max: usize,
    /// Bytes of one class that one thread keeps, which bounds the large classes; at least one
    /// buffer is kept.
    pub per_thread_bytes_max: usize,
    /// Bytes of one class in the overflow.
    pub shared_bytes_max: usize,
}

impl Default for BufferConfig {
    fn default() -> Self {
        Self { per_thread_max: 64, per_thread_bytes_max: 1 << 20, shared_bytes_max: 8 << 20 }
    }
}

/// What a buffer pool has done. Each figure is exact by itself; together they may be some
/// operations apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferStats {
    /// Buffers handed out.
    pub taken: u64,
    /// Of these, not newly allocated.
    pub hits: u64,
    /// Buffers that came back.
    pub returned: u64,
    /// Of these, freed because they were too large or there were enough.
    pub freed: u64,
}

/// A pool of byte buffers. A cheap handle: clones are the same pool.
#[derive(Clone)]
pub struct BufferPool {
    shared: Arc<Shared>,
    /// Marks the pool closed when the last handle goes, so that threads let go of its buffers.
    _owner: Arc<Owner>,
}

struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Relaxed);
        for class in &self.0.overflow {
            class.lock().clear();
        }
    }
}

/// What all threads share.
struct Shared {
    config: BufferConfig,
    overflow: [Mutex<Vec<Vec<u8>>>; CLASSES],
    /// One per thread that ever used the pool and still runs; those of ended threads are added to
    /// `ended`.
    figures: Mutex<Vec<Arc<Figures>>>,
    ended: Figures,
    closed: AtomicBool,
}

/// Counters with a single writer, which therefore needs no locked instruction. (`Shared::ended` is
/// written under the lock of `Shared::figures`.)
#[derive(Default)]
struct Figures {
    taken: AtomicU64,
    hits: AtomicU64,
    returned: AtomicU64,
    freed: AtomicU64,
}

impl Figures {
    fn add_to(&self, stats: &mut BufferStats) {
        stats.taken += self.taken.load(Ordering::Relaxed);
        stats.hits += self.hits.load(Ordering::Relaxed);
        stats.returned += self.returned.load(Ordering::Relaxed);
        stats.freed += self.freed.load(Ordering::Relaxed);
    }
}

fn bump(figure: &AtomicU64) {
    figure.store(figure.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// A buffer that moves as one pointer. Moving its parts costs more than all the rest, because the
/// processor can not forward several narrow stores to one wide load.
struct Kept(Box<Parts>);

/// A buffer's bytes, and the reference to its pool that it keeps for life: a cache hit touches no
/// shared count.
struct Parts {
    bytes: Vec<u8>,
    shared: Arc<Shared>,
}

/// One thread's buffers of one pool.
struct Cache {
    shared: Arc<Shared>,
    figures: Arc<Figures>,
    classes: [Vec<Kept>; CLASSES],
}

thread_local! {
    /// One cache per pool this thread uses; almost always one.
    static CACHES: RefCell<Vec<Cache>> = const { RefCell::new(Vec::new()) };
}

/// The class whose buffers hold `capacity` bytes, and `None` for larger than all.
fn class_to_take(capacity: usize) -> Option<usize> {
    let bits = capacity.max(1).checked_next_power_of_two()?.trailing_zeros().max(CLASS_BITS_MIN);
    usize::try_from(bits - CLASS_BITS_MIN).ok().filter(|class| *class < CLASSES)
}

/// The class that a buffer of this capacity can serve, and `None` for one that is not worth
/// keeping.
fn class_to_keep(capacity: usize) -> Option<usize> {
    if capacity > BUFFER_BYTES_MAX {
        return None;
    }
    let bits = capacity.checked_ilog2()?.checked_sub(CLASS_BITS_MIN)?;
    usize::try_from(bits).ok()
}

fn class_bytes(class: usize) -> usize {
    1 << (CLASS_BITS_MIN as usize + class)
}

impl BufferPool {
    /// An empty pool; nothing is allocated ahead.
    #[must_use]
    pub fn new(config: BufferConfig) -> Self {
        let shared = Arc::new(Shared {
            config,
            overflow: std::array::from_fn(|_| Mutex::default()),
            figures: Mutex::default(),
            ended: Figures::default(),
            closed: AtomicBool::new(false),
        });
        Self { _owner: Arc::new(Owner(Arc::clone(&shared))), shared }
    }

    /// An empty buffer that holds `capacity` bytes without growing.
    #[must_use]
    #[inline]
    pub fn take(&self, capacity: usize) -> Buffer {
        let class = class_to_take(capacity);
        let hit = with_cache(&self.shared, |cache| {
            bump(&cache.figures.taken);
            let kept = cache.classes.get_mut(class?)?.pop()?;
            bump(&cache.figures.hits);
            Some(kept)
        });
        let kept = match hit {
            Some(Some(kept)) => kept,
            Some(None) => self.take_slowly(class, capacity, true),
            None => self.take_slowly(class, capacity, false),
        };
        Buffer { kept: Some(kept) }
    }

    /// `len` zeroed bytes that are zeroed again when they come back. Its length is fixed, because
    /// growing would leave a copy behind.
    #[must_use]
    pub fn take_secret(&self, len: usize) -> SecretBuffer {
        let mut buffer = self.take(len);
        buffer.resize(len, 0);
        SecretBuffer { buffer }
    }

    /// From the overflow or new. `counted` says whether this thread has a cache that counted the
    /// take.
    #[cold]
    fn take_slowly(&self, class: Option<usize>, capacity: usize, counted: bool) -> Kept {
        let from_overflow = class.and_then(|class| self.shared.overflow.get(class)?.lock().pop());
        if counted && from_overflow.is_some() {
            with_cache(&self.shared, |cache| bump(&cache.figures.hits));
        } else if !counted {
            // The thread is ending. The lock makes it the only writer.
            let guard = self.shared.figures.lock();
            bump(&self.shared.ended.taken);
            if from_overflow.is_some() {
                bump(&self.shared.ended.hits);
            }
            drop(guard);
        }
        let bytes = from_overflow
            .unwrap_or_else(|| Vec::with_capacity(class.map_or(capacity, class_bytes)));
        Kept(Box::new(Parts { bytes, shared: Arc::clone(&self.shared) }))
    }

    /// Figures over all threads.
    #[must_use]
    pub fn stats(&self) -> BufferStats {
        let mut stats = BufferStats::default();
        let figures = self.shared.figures.lock();
        self.shared.ended.add_to(&mut stats);
        for thread in figures.iter() {
            thread.add_to(&mut stats);
        }
        stats
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// Visits this thread's cache for a pool, made on first use; `None` when the thread is ending.
#[inline]
fn with_cache<T>(shared: &Arc<Shared>, visit: impl FnOnce(&mut Cache) -> T) -> Option<T> {
    CACHES
        .try_with(|caches| {
            let mut caches = caches.borrow_mut();
            let position = match caches.iter().position(|cache| Arc::ptr_eq(&cache.shared, shared))
            {
                Some(position) => position,
                None => add_cache(&mut caches, shared),
            };
            caches.get_mut(position).map(visit)
        })
        .ok()
        .flatten()
}

#[cold]
fn add_cache(caches: &mut Vec<Cache>, shared: &Arc<Shared>) -> usize {
    // A good moment to let go of pools that nobody uses any more.
    caches.retain(|cache| !cache.shared.closed.load(Ordering::Relaxed));
    let figures = Arc::new(Figures::default());
    shared.figures.lock().push(Arc::clone(&figures));
    let classes = std::array::from_fn(|class| Vec::with_capacity(kept_max(&shared.config, class)));
    caches.push(Cache { shared: Arc::clone(shared), figures, classes });
    caches.len() - 1
}

/// How many buffers of a class a thread keeps.
fn kept_max(config: &BufferConfig, class: usize) -> usize {
    config.per_thread_max.min(config.per_thread_bytes_max / class_bytes(class)).max(1)
}

impl Cache {
    /// Keeps a buffer, or hands it back because there are enough.
    #[inline]
    fn keep(&mut self, class: usize, kept: Kept) -> Option<Kept> {
        match self.classes.get_mut(class) {
            // The vector was made with the capacity it may use.
            Some(stack) if stack.len() < stack.capacity() => {
                stack.push(kept);
                None
            }
            Some(_) | None => Some(kept),
        }
    }
}

impl Drop for Cache {
    /// The thread ends: its buffers and its figures go to all.
    fn drop(&mut self) {
        let mut figures = self.shared.figures.lock();
        figures.retain(|thread| !Arc::ptr_eq(thread, &self.figures));
        let mut mine = BufferStats::default();
        self.figures.add_to(&mut mine);
        let ended = &self.shared.ended;
        for (figure, mine) in [
            (&ended.taken, mine.taken),
            (&ended.hits, mine.hits),
            (&ended.returned, mine.returned),
            (&ended.freed, mine.freed),
        ] {
            figure.store(figure.load(Ordering::Relaxed) + mine, Ordering::Relaxed);
        }
        drop(figures);
        for (class, stack) in self.classes.iter_mut().enumerate() {
            for kept in stack.drain(..) {
                // Freed when the overflow is full; these were counted as returned before.
                drop(overflow(&self.shared, class, kept.0.bytes));
            }
        }
    }
}

/// Keeps bytes in the overflow, or hands them back because there are enough.
fn overflow(shared: &Shared, class: usize, bytes: Vec<u8>) -> Option<Vec<u8>> {
    let Some(stack) = shared.overflow.get(class) else { return Some(bytes) };
    let mut stack = stack.lock();
    let full = stack.len() >= (shared.config.shared_bytes_max / class_bytes(class)).max(1);
    if full || shared.closed.load(Ordering::Relaxed) {
        return Some(bytes);
    }
    stack.push(bytes);
    None
}

/// A buffer; goes back to its pool when dropped, with the capacity it has then.
pub struct Buffer {
    /// Taken when it is dropped or given away.
    kept: Option<Kept>,
}

impl Buffer {
    /// Keeps the bytes and lets the pool go without.
    #[must_use]
    pub fn into_vec(mut self) -> Vec<u8> {
        match self.kept.take() {
            Some(kept) => kept.0.bytes,
            None => unreachable!("only drop takes it, and it has not run"),
        }
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        let Some(mut kept) = self.kept.take() else { return };
        kept.0.bytes.clear();
        let class = class_to_keep(kept.0.bytes.capacity());
        let mut left = Some(kept);
        // The closure takes the buffer out; what it can not keep stays for the overflow.
        let shared = match &left {
            Some(kept) if class.is_some() => Arc::as_ptr(&kept.0.shared),
            _ => std::ptr::null(),
        };
        let returned = CACHES.try_with(|caches| {
            let mut caches = caches.borrow_mut();
            let cache =
                caches.iter_mut().find(|cache| std::ptr::eq(Arc::as_ptr(&cache.shared), shared))?;
            bump(&cache.figures.returned);
            left = cache.keep(class?, left.take()?);
            Some(())
        });
        let counted = matches!(returned, Ok(Some(())));
        if let Some(kept) = left {
            return_slowly(kept, class, counted);
        }
    }
}

/// To the overflow, or freed. `counted` says whether this thread's cache counted the return.
#[cold]
fn return_slowly(kept: Kept, class: Option<usize>, counted: bool) {
    let Parts { bytes, shared } = *kept.0;
    let freed = match class {
        Some(class) => overflow(&shared, class, bytes),
        None => Some(bytes),
    };
    // This thread may have no cache for the pool, and a thread that ends can not make one. The lock
    // makes the common counters ours.
    let guard = shared.figures.lock();
    if !counted {
        bump(&shared.ended.returned);
    }
    if freed.is_some() {
        bump(&shared.ended.freed);
    }
    drop(guard);
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        match &self.kept {
            Some(kept) => &kept.0.bytes,
            None => unreachable!("only drop takes it, and it has not run"),
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        match &mut self.kept {
            Some(kept) => &mut kept.0.bytes,
            None => unreachable!("only drop takes it, and it has not run"),
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish()
    }
}

/// Bytes of fixed length that are zeroed when they go back to the pool. Has no `Debug` that shows
/// them.
pub struct SecretBuffer {
    buffer: Buffer,
}

impl Drop for SecretBuffer {
    fn drop(&mut self) {
        self.buffer.fill(0);
        // Without this the compiler may skip the stores when it sees that the memory is freed next.
        std::hint::black_box(self.buffer.as_mut_slice());
    }
}

impl Deref for SecretBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl DerefMut for SecretBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }
}

impl fmt::Debug for SecretBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretBuffer").finish_non_exhaustive()
    }
}
