//! A bounded cache of facts about clients' texts, for either protocol.
//!
//! A text is cached when it occurs for the second time. A text with values occurs once and leaves
//! only a hash; its shape, which is the same for all values, is cached instead. Two generations of
//! a table drop unused entries.

use wire::shape;

use crate::pg::statements::{HashKey, HashedMap};

/// Maximum texts in one generation of the table.
const TEXTS_MAX: usize = 4_096;

/// Maximum bytes of texts in one generation of the table.
const TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Number of hashes of texts that occurred once; a power of two.
const SEEN_ONCE: usize = 4_096;

#[derive(Debug)]
struct CachedStatement<V> {
    text: Box<[u8]>,
    reading: u64,
    value: V,
}

/// Cached texts; each thread has its own table.
#[derive(Debug)]
pub(crate) struct TextTable<V> {
    key: HashKey,
    young: HashedMap<u64, CachedStatement<V>>,
    old: HashedMap<u64, CachedStatement<V>>,
    young_bytes: usize,
    seen_once: Box<[u64]>,
}

impl<V> TextTable<V> {
    /// Creates an empty table, whose hashes cannot be predicted from outside.
    pub(crate) fn new(key: HashKey) -> TextTable<V> {
        TextTable {
            key,
            young: HashedMap::default(),
            old: HashedMap::default(),
            young_bytes: 0,
            seen_once: vec![0; SEEN_ONCE].into_boxed_slice(),
        }
    }

    /// Returns the key of the hashes.
    pub(crate) fn key(&self) -> &HashKey {
        &self.key
    }

    /// Returns the cached value of a text that occurred before. The same text has an entry for each
    /// `reading`, the number of its parsing mode; `look` is called to create one.
    pub(crate) fn known(
        &mut self,
        text: &[u8],
        reading: u64,
        look: impl FnOnce() -> V,
    ) -> Option<&mut V> {
        let hash = self.key.short(text) ^ reading;
        if !self.young.contains_key(&hash) {
            let known = match self.old.remove(&hash) {
                Some(known) => known,
                None if self.was_seen(hash) => {
                    CachedStatement { text: text.into(), reading, value: look() }
                }
                None => return None,
            };
            self.keep(hash, known);
        }
        // For two texts with one hash, the second is parsed every time.
        let known = self.young.get_mut(&hash)?;
        (known.reading == reading && *known.text == *text).then_some(&mut known.value)
    }

    fn keep(&mut self, hash: u64, known: CachedStatement<V>) {
        if self.young.len() >= TEXTS_MAX || self.young_bytes >= TEXT_BYTES_MAX {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += known.text.len();
        drop(self.young.insert(hash, known));
    }

    /// Returns whether a hash occurred before; remembers it if not.
    fn was_seen(&mut self, hash: u64) -> bool {
        let at = usize::try_from(hash % 4_096).unwrap_or_default();
        match self.seen_once.get_mut(at) {
            Some(slot) if *slot == hash => true,
            Some(slot) => {
                *slot = hash;
                false
            }
            None => false,
        }
    }
}

/// Cached shapes of texts that differ in their constants and occur once each.
#[derive(Debug)]
pub(crate) struct ShapeTable<V> {
    shapes: TextTable<Option<V>>,
    /// Buffer for a shape.
    shape: Vec<u8>,
}

impl<V: Clone> ShapeTable<V> {
    /// Creates an empty table.
    pub(crate) fn new(key: HashKey) -> ShapeTable<V> {
        ShapeTable { shapes: TextTable::new(key), shape: Vec::new() }
    }

    /// Returns the cached value of all texts with the shape of `text`, if the shape occurred
    /// before. `look` analyses `text`, and returns `None` if the result depends on its constants.
    pub(crate) fn known(
        &mut self,
        text: &[u8],
        reading: u64,
        look: impl FnOnce() -> Option<V>,
    ) -> Option<V> {
        if !shape::shape(text, &mut self.shape) {
            return None;
        }
        self.shapes.known(&self.shape, reading, look)?.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_for_each_reading_when_it_comes_again() {
        let mut texts = TextTable::new(HashKey::new());
        for reading in 0..3 {
            assert_eq!(texts.known(b"SELECT 1", reading, || reading), None);
        }
        for _ in 0..2 {
            for reading in 0..3 {
                assert_eq!(texts.known(b"SELECT 1", reading, || reading).copied(), Some(reading));
            }
        }
        let look_again = || unreachable!("it is known");
        assert_eq!(texts.known(b"SELECT 1", 0, look_again).copied(), Some(0));
        assert_eq!(texts.known(b"SELECT 2", 0, look_again), None);
    }

    #[test]
    fn what_is_in_use_outlives_a_generation() {
        let mut texts = TextTable::new(HashKey::new());
        let mut looks = 0;
        for number in 0..3 * TEXTS_MAX {
            for _ in 0..2 {
                let text = format!("SELECT {number}");
                let _value = texts.known(text.as_bytes(), 0, || ());
                let _value = texts.known(b"SELECT NULL", 0, || looks += 1);
            }
        }
        assert_eq!(looks, 1);
    }

    #[test]
    fn the_table_is_bounded() {
        let check = |texts_wanted: usize, length: usize| {
            let mut texts = TextTable::new(HashKey::new());
            for number in 0..texts_wanted {
                let text = format!("SELECT {number} {}", "x".repeat(length));
                for _ in 0..2 {
                    let _value = texts.known(text.as_bytes(), 0, || ());
                }
            }
            for generation in [&texts.young, &texts.old] {
                let bytes: usize = generation.values().map(|known| known.text.len()).sum();
                assert!((1..=TEXTS_MAX).contains(&generation.len()));
                assert!(bytes < TEXT_BYTES_MAX + 2 * length.max(100));
            }
        };
        check(2 * TEXTS_MAX + 1, 0);
        check(12, TEXT_BYTES_MAX / 4);
    }

    #[test]
    fn a_shape_is_looked_at_once_for_each_reading() {
        let mut looks = 0;
        let mut shapes = ShapeTable::new(HashKey::new());
        let mut known = |text: &str, reading| {
            let look = || {
                looks += 1;
                (!text.contains("SET")).then_some(reading)
            };
            (shapes.known(text.as_bytes(), reading, look), looks)
        };
        assert_eq!(known("SELECT 1", 7), (None, 0));
        assert_eq!(known("SELECT 22", 7), (Some(7), 1));
        assert_eq!(known("SELECT 333", 7), (Some(7), 1));
        assert_eq!(known("SELECT 4444", 8), (None, 1));
        assert_eq!(known("SELECT 5", 8), (Some(8), 2));
        // A shape whose result depends on the constants is not parsed again, either.
        assert_eq!(known("SET a = 1", 7), (None, 2));
        assert_eq!(known("SET a = 2", 7), (None, 3));
        assert_eq!(known("SET a = 3", 7), (None, 3));
        for _ in 0..3 {
            assert_eq!(known("SELECT $1", 7), (None, 3));
        }
    }
}
